//! Threads that wait while another polls learn of every event they wait for.
//!
//! Operations that they submit during the wait are sent.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use engine::SendMode;
use memory::Region;
use progress::Progress;
use rail::{SimNetwork, SimPath};
use wire::PeerId;

use crate::simulated::{envelope, process, selector, send};

#[test]
fn unexpected_message_wakes_the_thread_that_probes_for_it() {
    let network = SimNetwork::new(0);
    let [sender, receiver] = [0, 1].map(|rank| process(&network, rank));
    let (done, all_done) = mpsc::channel();
    // The first waiting thread polls for the other as well.
    for tag in [1, 2] {
        let (receiver, done) = (Arc::clone(&receiver), done.clone());
        thread::spawn(move || {
            let found =
                receiver.wait_for(PATIENCE, |worker| worker.engine.probe(None, selector(tag)));
            done.send((tag, found.is_some())).ok();
        });
        thread::sleep(SOON);
    }
    for tag in [2, 1] {
        send(&sender, tag);
        until(&network, &sender, || all_done.try_recv().ok()).map_or_else(
            || panic!("nobody heard of message {tag}"),
            |heard| assert_eq!(heard, (tag, true)),
        );
    }
}

#[test]
fn thread_that_ends_its_wait_leaves_polling_to_another() {
    let network = SimNetwork::new(0);
    let [sender, receiver] = [0, 1].map(|rank| process(&network, rank));
    // The first waiting thread polls; the others do not poll while it waits.
    let waiting = [1, 2, 3].map(|tag| {
        let receiver = Arc::clone(&receiver);
        let waits = thread::spawn(move || {
            receiver.wait_for(PATIENCE, |worker| {
                worker.await_message(None, selector(tag));
                worker.engine.probe(None, selector(tag))
            })
        });
        thread::sleep(SOON);
        waits
    });
    let mut waiting = waiting.into_iter();
    for tag in [1, 2] {
        send(&sender, tag);
        let waits = waiting.next().expect("a thread each");
        let ends = until(&network, &sender, || waits.is_finished().then_some(()));
        assert!(ends.is_some() && waits.join().unwrap().is_some(), "message {tag}");
    }
    let is_woken = || receiver.look(|worker| worker.counters().woken == 2).then_some(());
    assert!(until(&network, &sender, is_woken).is_some(), "the third polls now");
    send(&sender, 3);
    let last = waiting.next().expect("a thread each");
    assert!(until(&network, &sender, || last.is_finished().then_some(())).is_some());
}

#[test]
fn operation_submitted_while_waiting_is_sent() {
    let network = SimNetwork::new(0);
    let [sender, receiver] = [0, 1].map(|rank| process(&network, rank));
    let data = Region::owned(8);
    let mut sent = None;
    let mut turns = 0;
    // The sender makes no further call.
    sender.wait_for(PATIENCE, |worker| {
        let mode = SendMode::Standard;
        sent.get_or_insert_with(|| worker.engine.submit_send(PeerId(1), envelope(1), &data, mode));
        network.step();
        turns += 1;
        (turns == TURNS).then_some(())
    });
    let found = until(&network, &receiver, || {
        receiver.test(|worker| worker.engine.probe(None, selector(1)))
    });
    assert!(found.is_some(), "sent though nobody flushed");
}

#[test]
fn send_that_ends_while_its_thread_goes_to_sleep_is_noticed() {
    let (_network, sender, _receiver) = linked();
    // Another thread polls for all, and sees no event.
    let poller = Arc::clone(&sender);
    thread::spawn(move || poller.wait(|worker| worker.engine.probe(None, selector(2))));
    thread::sleep(SOON);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let data = Region::owned(8);
        let mut begun = None;
        sender.wait(|worker| {
            let op = *begun.get_or_insert_with(|| {
                worker.engine.submit_send(PeerId(1), envelope(3), &data, SendMode::Standard)
            });
            worker.engine.take(op)
        });
        done.send(()).ok();
    });
    assert!(is_done.recv_timeout(PATIENCE).is_ok(), "a send ended, and its thread sleeps");
}

#[test]
fn send_that_ends_before_its_thread_hands_over_polling_is_noticed() {
    let (network, sender, _receiver) = linked();
    let (begin, may_begin) = mpsc::channel::<()>();
    let (done, is_done) = mpsc::channel();
    let poller = Arc::clone(&sender);
    thread::spawn(move || {
        let data = Region::owned(8);
        let mut begun = None;
        poller.wait(|worker| {
            if begun.is_none() && may_begin.try_recv().is_err() {
                return None;
            }
            let op = *begun.get_or_insert_with(|| {
                worker.engine.submit_send(PeerId(1), envelope(3), &data, SendMode::Standard)
            });
            worker.engine.take(op)
        });
        done.send(()).ok();
    });
    thread::sleep(SOON);
    // Any event may concern this thread. The polling thread therefore hands over to it when the send has ended.
    let waiter = Arc::clone(&sender);
    thread::spawn(move || waiter.wait(|worker| worker.engine.probe(None, selector(2))));
    thread::sleep(SOON);
    begin.send(()).expect("it waits");
    assert!(is_done.recv_timeout(PATIENCE).is_ok(), "a send ended, and its thread sleeps");
    drop(network);
}

/// Advances simulated time and polls `process` until there is an answer.
fn until<T>(
    network: &SimNetwork,
    process: &Progress,
    mut answer: impl FnMut() -> Option<T>,
) -> Option<T> {
    (0..POLLS).find_map(|_| {
        network.step();
        process.test(|_| ());
        thread::sleep(Duration::from_millis(1));
        answer()
    })
}

/// Creates two ranks and a link over which frames leave at once, so that a send ends when it is flushed.
fn linked() -> (SimNetwork, Arc<Progress>, Arc<Progress>) {
    let network = SimNetwork::new(0);
    network.set_usual_path(SimPath { bandwidth_bytes_per_s: None, ..SimPath::default() });
    let [sender, receiver] = [0, 1].map(|rank| process(&network, rank));
    send(&sender, 1);
    let found = until(&network, &receiver, || {
        receiver.test(|worker| worker.engine.probe(None, selector(1)))
    });
    assert!(found.is_some(), "the link is open");
    (network, sender, receiver)
}

const PATIENCE: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(50);
const POLLS: usize = 5_000;
const TURNS: usize = 20;
