//! Pending operations of a process end while it computes.

use std::thread;
use std::time::Duration;

use engine::{Envelope, OpId, PutTo, Selector, SendMode};
use memory::Region;
use progress::Progress;
use wire::PeerId;

use crate::pair::{PATIENCE, pair};

#[test]
fn long_message_leaves_while_its_sender_computes() {
    let [sender, receiver] = pair();
    for round in 0..ROUNDS {
        let data = Region::from_box(vec![round; LEN].into());
        let into = Region::owned(LEN);
        let send = begin_send(&sender, &data, SendMode::Standard);
        // The sender makes no call from here on.
        let receive = begin_receive(&receiver, &into);
        assert!(receiver.wait_for(PATIENCE, |worker| worker.engine.take(receive)).is_some());
        assert_eq!(into.to_vec(), data.to_vec());
        assert!(sender.wait_for(PATIENCE, |worker| worker.engine.take(send)).is_some());
    }
}

#[test]
fn message_is_received_while_its_receiver_computes() {
    let [sender, receiver] = pair();
    for (round, len) in (0..ROUNDS).zip([8, LEN].into_iter().cycle()) {
        let data = Region::from_box(vec![round; len].into());
        let into = Region::owned(len);
        let receive = begin_receive(&receiver, &into);
        // This thread polls at times, so that it alternates with the progress thread.
        thread::sleep(SOME_WHILE * u32::from(round % 4));
        receiver.test(|_| ());
        let send = begin_send(&sender, &data, SendMode::Synchronous);
        let sent = sender.wait_for(PATIENCE, |worker| worker.engine.take(send));
        assert!(sent.is_some(), "message {round} is matched without a call of the receiver's");
        assert!(receiver.wait_for(PATIENCE, |worker| worker.engine.take(receive)).is_some());
        assert_eq!(into.to_vec(), data.to_vec());
    }
}

#[test]
fn frames_held_by_a_full_socket_leave_while_both_processes_compute() {
    let [one, other] = pair();
    let data = Region::from_box(vec![7; LEN].into());
    let into: Vec<_> = (0..ROUNDS).map(|_| Region::owned(LEN)).collect();
    let receives: Vec<_> = into.iter().map(|into| begin_receive(&other, into)).collect();
    let sends: Vec<_> = into.iter().map(|_| begin_send(&one, &data, SendMode::Standard)).collect();
    let begun = std::time::Instant::now();
    let all_done = |process: &Progress, ops: &[OpId]| {
        process.look(|worker| ops.iter().all(|op| worker.engine.is_complete(*op)))
    };
    // `look` does not poll.
    while !(all_done(&one, &sends) && all_done(&other, &receives)) {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(SOME_WHILE);
    }
    assert!(into.iter().all(|into| into.to_vec() == data.to_vec()));
}

#[test]
fn exposed_memory_is_read_and_written_while_its_owner_computes() {
    let [one, owner] = pair();
    let memory = Region::owned(LEN);
    // The owner makes no call after this one.
    let key = owner.submit(|worker| worker.engine.expose(memory.clone()));
    for round in 1..ROUNDS {
        let data = Region::from_box(vec![round; LEN].into());
        let into = Region::owned(LEN);
        let place = PutTo { key, offset: 0 };
        let put = one.submit(|worker| worker.engine.submit_put(PeerId(1), place, &data));
        let flush = one.submit(|worker| worker.engine.submit_flush(PeerId(1)));
        for op in [put, flush] {
            assert!(one.wait_for(PATIENCE, |worker| worker.engine.take(op)).is_some());
        }
        assert_eq!(memory.to_vec(), data.to_vec());
        let get = one.submit(|worker| worker.engine.submit_get(PeerId(1), place, &into));
        assert!(one.wait_for(PATIENCE, |worker| worker.engine.take(get)).is_some());
        assert_eq!(into.to_vec(), data.to_vec());
        // Idle for a while, so that the progress thread of the owner sleeps.
        thread::sleep(SOME_WHILE * u32::from(round % 4));
        let short = Region::from_box(Box::new([0xaa; 8]));
        while !one.access_short(PeerId(1), engine::Short::Put(place), &short) {
            one.test(|_| ());
        }
        let flush = one.submit(|worker| worker.engine.submit_flush(PeerId(1)));
        assert!(one.wait_for(PATIENCE, |worker| worker.engine.take(flush)).is_some());
        assert_eq!(memory.slice(0, 8).to_vec(), [0xaa; 8]);
    }
}

fn begin_send(progress: &Progress, data: &Region, mode: SendMode) -> OpId {
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    progress.submit(|worker| worker.engine.submit_send(PeerId(1), envelope, data, mode))
}

fn begin_receive(progress: &Progress, into: &Region) -> OpId {
    let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
    progress.submit(|worker| worker.engine.submit_receive(Some(PeerId(0)), selector, into))
}

const LEN: usize = 3 << 20;
const ROUNDS: u8 = 12;
const SOME_WHILE: Duration = Duration::from_millis(1);
