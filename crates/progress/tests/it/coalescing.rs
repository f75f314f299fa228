//! Consecutive short messages share frames, and leave even if their sender makes no further call.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use engine::{Envelope, Selector, SendMode};
use memory::Region;
use progress::{Progress, Worker};
use rail::Rail;
use rail_tcp::TcpRail;
use wire::PeerId;

use crate::pair::{PATIENCE, group, pair};

#[test]
fn coalesced_messages_leave_without_further_calls_of_the_sender() {
    let [sender, receiver] = pair();
    let other = thread::spawn(move || {
        // The first one opens the link.
        (0..=MESSAGES).all(|number| receive(&receiver).is_some_and(|got| got == [number; 8]))
    });
    send(&sender, 0);
    let data: Vec<_> = (1..=MESSAGES).map(|number| Region::from_box([number; 8].into())).collect();
    let (alone, together) = data.split_at(data.len() / 2);
    for (data, number) in alone.iter().zip(1..) {
        if !sender.send_short(PeerId(1), envelope(), data) {
            send(&sender, number);
        }
    }
    // If a call takes longer than a message waits to be coalesced, only these share frames.
    sender.submit(|worker| {
        assert!(together.iter().all(|data| worker.send_short(PeerId(1), envelope(), data)));
    });
    // The sender makes no call from here on.
    assert!(other.join().unwrap(), "all messages arrive, in order");
    let counters = sender.look(|worker| worker.engine.counters());
    assert_eq!(counters.eager, u64::from(MESSAGES) + 1);
    assert!(counters.frames < counters.eager, "{counters:?}");
}

#[test]
fn coalesced_messages_leave_before_their_thread_sleeps_beside_a_poller() {
    let [sender, receiver] = pair();
    let at_receiver = Arc::clone(&receiver);
    let other = thread::spawn(move || receive(&at_receiver));
    send(&sender, 0);
    assert!(other.join().unwrap().is_some(), "the link is open");
    let [poller, waiter] = [Arc::clone(&sender), Arc::clone(&sender)];
    thread::spawn(move || poller.wait(nothing));
    thread::sleep(SOON);
    let (coalesced, has_coalesced) = mpsc::channel();
    thread::spawn(move || {
        let mut coalesced = Some(coalesced);
        waiter.wait(|worker| {
            if let Some(coalesced) = coalesced.take() {
                let data = Region::owned(8);
                let mut follows = || {
                    worker.send_short(PeerId(1), envelope(), &data);
                    worker.is_coalescing()
                };
                let follows = (0..MESSAGES).any(|_| follows());
                coalesced.send(follows).ok();
            }
            nothing(worker)
        });
    });
    assert_eq!(has_coalesced.recv_timeout(PATIENCE), Ok(true));
    // The waiting thread releases the worker's lock when it goes to sleep.
    assert!(!sender.look(|worker| worker.is_coalescing()));
}

#[test]
fn alternating_messages_to_several_peers_share_frames_from_the_third_on() {
    let [sender, one, other] = group(|rail| Box::new(Slow { rail }));
    let all = [PeerId(1), PeerId(2)];
    let receivers = [one, other].map(|receiver| {
        thread::spawn(move || {
            (0..=MESSAGES).all(|number| receive(&receiver).is_some_and(|got| got == [number; 8]))
        })
    });
    all.into_iter().for_each(|peer| send_to(&sender, peer, 0));
    let before = sender.look(|worker| worker.engine.counters());
    let data: Vec<_> = (1..=MESSAGES).map(|number| Region::from_box([number; 8].into())).collect();
    sender.submit(|worker| {
        for (data, number) in data.iter().zip(1..) {
            for peer in all {
                assert!(worker.send_short(peer, envelope(), data));
                assert!(number > 2 || !worker.is_coalescing(), "two leave at once");
            }
        }
    });
    for receiver in receivers {
        assert!(receiver.join().unwrap(), "all messages arrive, in order");
    }
    let counters = sender.look(|worker| worker.engine.counters());
    assert_eq!(counters.eager - before.eager, 2 * u64::from(MESSAGES));
    // Two frames per receiver carry one message each; the other frames are filled.
    assert!(counters.frames - before.frames < u64::from(MESSAGES) / 4, "{counters:?}");
}

/// A rail that coalesces the messages of a call, however long the call takes.
struct Slow {
    rail: TcpRail,
}

impl Rail for Slow {
    passes_on!(rail: name, address, connect, disconnect, post, poll, descriptors, prepare_sleep, finish_sleep, is_flushed);

    fn coalesce_within(&self) -> Duration {
        PATIENCE
    }
}

/// Probes for a message that never comes.
fn nothing(worker: &mut Worker) -> Option<()> {
    let selector = Selector { context: 1, source: None, tag: None };
    worker.engine.probe(None, selector).map(drop)
}

fn send(progress: &Progress, number: u8) {
    send_to(progress, PeerId(1), number);
}

fn send_to(progress: &Progress, peer: PeerId, number: u8) {
    let data = Region::from_box([number; 8].into());
    let mode = SendMode::Standard;
    progress.submit_and_wait(
        |worker| worker.engine.submit_send(peer, envelope(), &data, mode),
        |worker, &op| worker.engine.take(op),
    );
}

fn receive(progress: &Progress) -> Option<Vec<u8>> {
    let into = Region::owned(8);
    let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
    let op =
        progress.submit(|worker| worker.engine.submit_receive(Some(PeerId(0)), selector, &into));
    progress.wait_for(PATIENCE, |worker| worker.engine.take(op))?;
    Some(into.to_vec())
}

fn envelope() -> Envelope {
    Envelope { context: 0, source: 0, tag: 0, is_urgent: false }
}

const SOON: Duration = Duration::from_millis(50);
const MESSAGES: u8 = 200;
