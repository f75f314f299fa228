//! Errors are reported, and no other message is lost.

use std::thread;

use engine::{Envelope, SendMode};
use mad::batch::Batch;
use mad::{Channel, Constraints, Error, Fault, Next, Receive, Send, Unpacking};
use memory::Region;
use wire::PeerId;

use crate::processes::{RankProcess, job};

const EXPRESS: Constraints = Constraints { send: Send::Cheaper, receive: Receive::Express };
const CHEAPER: Constraints = Constraints { send: Send::Cheaper, receive: Receive::Cheaper };

#[test]
fn a_process_packs_for_itself() {
    let alone = &job(1)[0];
    let channel = alone.node.open(1).expect("a channel");
    send(&channel, 0, &[b"one", b"two"]);
    send(&channel, 0, &[]);
    let message = channel.begin_unpacking().expect("the message");
    assert_eq!(take(&message, 3, EXPRESS).expect("a packet"), b"one");
    assert_fault(take(&message, 4, EXPRESS), Fault::Size, "packet 1 from process 0 has 3 bytes; 4");
    assert_fault(take(&message, 3, CHEAPER), Fault::Constraints, "is CHEAPER, EXPRESS");
    assert_eq!(take(&message, 3, EXPRESS).expect("a packet"), b"two");
    assert_fault(take(&message, 3, EXPRESS), Fault::Packets, "only 2 packets");
    message.end().expect("a whole message");
    assert_fault(message.end(), Fault::State, "ended before");
    let empty = channel.begin_unpacking().expect("the empty one");
    assert_fault(take(&empty, 3, EXPRESS), Fault::Packets, "only 0 packets");
    empty.end().expect("a whole message");
}

#[test]
fn untaken_packets_are_reported_and_freed() {
    let alone = &job(1)[0];
    let channel = alone.node.open(1).expect("a channel");
    let long = vec![7; 100_000];
    thread::scope(|scope| {
        // Long data leave their sender when the receiver drops them.
        scope.spawn(|| send(&channel, 0, &[b"short", &long, &long]));
        let message = channel.begin_unpacking().expect("the message");
        take(&message, 5, EXPRESS).expect("a packet");
        assert_fault(message.end(), Fault::Packets, "2 of 3 packets");
    });
    send(&channel, 0, &[b"next"]);
    let message = channel.begin_unpacking().expect("the next");
    assert_eq!(take(&message, 4, EXPRESS).expect("a packet"), b"next");
    message.end().expect("a whole message");
}

#[test]
fn messages_from_many_are_open_at_once() {
    let processes = job(3);
    let channel = |process: &RankProcess| process.node.open(9).expect("a channel");
    let channels: Vec<Channel> = processes.iter().map(channel).collect();
    thread::scope(|scope| {
        for sender in [1, 2] {
            let channel = &channels[sender];
            scope.spawn(move || {
                for number in 0..ROUNDS {
                    send(channel, 0, &[&[sender as u8], &[number]]);
                }
            });
        }
        for round in 0..ROUNDS {
            let open = [(); 2].map(|()| channels[0].begin_unpacking().expect("a message"));
            let [one, other] = &open;
            assert_eq!(one.peer() + other.peer(), 3, "both peers have one open");
            assert_fault(
                channels[0].begin_unpacking_from(1).map(drop),
                Fault::Open,
                "has not been ended",
            );
            for message in open.iter().rev() {
                assert_eq!(take(message, 1, EXPRESS).expect("who"), [message.peer() as u8]);
                assert_eq!(take(message, 1, EXPRESS).expect("what"), [round]);
                message.end().expect("a whole message");
            }
        }
    });
}

#[test]
fn begins_without_end_are_refused() {
    let alone = &job(1)[0];
    let channel = alone.node.open(1).expect("a channel");
    let packing = channel.begin_packing(0).expect("a connection");
    assert_fault(channel.begin_packing(0).map(drop), Fault::Open, "to process 0 on channel 1");
    assert_fault(channel.close(), Fault::Open, "a message to process 0");
    assert_fault(alone.node.close(), Fault::Open, "a message to process 0");
    packing.end().expect("a whole message");
    assert_fault(packing.end(), Fault::State, "ended before");
    assert_fault(channel.begin_packing(1).map(drop), Fault::Rank, "process 1 of a job of 1");
    assert_fault(alone.node.open(1).map(drop), Fault::Channel, "open in this process already");
    channel.close().expect("no open message");
    assert_fault(channel.begin_packing(0).map(drop), Fault::Channel, "was closed");
    let again = alone.node.open(1).expect("the channel again");
    assert_fault(channel.begin_unpacking().map(drop), Fault::Channel, "was closed");
    // What had come before it was closed is still there.
    again.begin_unpacking().expect("the message").end().expect("a whole message");
}

#[test]
fn bytes_of_a_peer_that_make_no_sense_end_one_message() {
    let processes = job(2);
    let [here, there] = [&processes[0], &processes[1]];
    let channel = here.node.open(2).expect("a channel");
    let mut good = Batch::default();
    good.put_apart(CHEAPER, 5);
    good.put_end();
    let good = good.written().to_vec();
    let strange: [(&[u8], &[u8]); 4] = [
        (&[0xff; 20], &[]),
        (&[0; 4], &[]),
        (&vec![0; 5000], &[]),
        // The data are longer than their record says.
        (&good, &[1; 6]),
    ];
    // The link opens while both communicate.
    thread::scope(|scope| {
        scope.spawn(|| raw(there, FIRST_BATCHES, 0, &[0xff]));
        let message = channel.begin_unpacking().expect("a message");
        assert_fault(message.end(), Fault::Peer, "what no peer sends");
    });
    for (number, (batch, data)) in (1..).zip(strange) {
        raw(there, FIRST_BATCHES, number, batch);
        raw(there, DATA, number << 20, data);
        let message = channel.begin_unpacking_from(1).expect("a message");
        let taken = take(&message, 5, CHEAPER).map(drop);
        assert_fault(taken.and(message.end()), Fault::Peer, "what no peer sends");
    }
    raw(there, FIRST_BATCHES, 5, &good);
    raw(there, DATA, 5 << 20, b"right");
    let message = channel.begin_unpacking().expect("a message");
    let into = Region::owned(5);
    message.unpack(&into, CHEAPER, Next::Unknown).expect("a packet");
    message.end().expect("a whole message");
    assert_eq!(into.to_vec(), b"right");
}

#[test]
fn a_peer_that_is_gone_ends_what_waits_for_it() {
    let mut processes = job(2);
    let there = processes.pop().expect("two");
    let channel = processes[0].node.open(2).expect("a channel");
    thread::scope(|scope| {
        scope.spawn(|| {
            send(&there.node.open(2).expect("a channel"), 0, &[b"hello"]);
            there.progress.look(progress::Worker::close);
        });
        let message = channel.begin_unpacking().expect("a message");
        assert_eq!(take(&message, 5, EXPRESS).expect("a packet"), b"hello");
        message.end().expect("a whole message");
        let message = channel.begin_unpacking_from(1).expect("a message");
        assert_fault(take(&message, 5, EXPRESS), Fault::Peer, "process 1 is gone");
        assert_fault(message.end(), Fault::Peer, "process 1 is gone");
        let packing = channel.begin_packing(1).expect("a connection");
        let long = Region::owned(100_000);
        packing.pack(&long, CHEAPER, Next::Unknown).expect("a packet");
        assert_fault(packing.end(), Fault::Peer, "process 1 is gone");
    });
    processes[0].node.close().expect("nothing open");
}

fn send(channel: &Channel, to: u32, packets: &[&[u8]]) {
    let packing = channel.begin_packing(to).expect("a connection");
    for &packet in packets {
        let data = Region::from_box(packet.into());
        packing.pack(&data, EXPRESS, Next::Unknown).expect("a packet");
    }
    packing.end().expect("a whole message");
}

fn take(message: &Unpacking, len: usize, constraints: Constraints) -> Result<Vec<u8>, Error> {
    let into = Region::owned(len);
    message.unpack(&into, constraints, Next::Unknown)?;
    Ok(into.to_vec())
}

/// A message of the engine to process 0 on channel 2, whatever its bytes.
fn raw(from: &RankProcess, stream: u64, tag: i32, bytes: &[u8]) {
    let context = 1 << 63 | 2 << 2 | stream;
    let envelope = Envelope { context, source: from.node.rank(), tag, is_urgent: false };
    let data = Region::from_box(bytes.into());
    from.progress.submit_and_wait(
        |worker| worker.engine.submit_send(PeerId(0), envelope, &data, SendMode::Standard),
        |worker, &op| worker.engine.take(op),
    );
}

#[track_caller]
fn assert_fault<T: std::fmt::Debug>(result: Result<T, Error>, fault: Fault, reason: &str) {
    let error = result.expect_err("a failure");
    assert_eq!(error.fault, fault, "{error}");
    assert!(error.message.contains(reason), "{error}");
    assert!(!error.message.contains('\n'), "{error}");
}

const FIRST_BATCHES: u64 = 0;
const DATA: u64 = 2;
const ROUNDS: u8 = 20;
