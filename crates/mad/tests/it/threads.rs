//! Several threads on one channel, and on one message.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use mad::{Channel, Constraints, Fault, Next, Receive, Send};
use memory::Region;
use progress::Worker;

use crate::processes::job;

#[test]
fn any_thread_takes_any_message_and_each_peers_come_in_order() {
    let processes = job(PEERS);
    let channels: Vec<Channel> =
        processes.iter().map(|process| process.node.open(1).expect("a channel")).collect();
    thread::scope(|scope| {
        for channel in &channels {
            scope.spawn(|| all_of_one_process(channel));
        }
    });
}

fn all_of_one_process(channel: &Channel) {
    let (sending, taken) = (AtomicU32::new(PEERS), AtomicU32::new(0));
    // What a thread has begun, no other begins: the numbers are in order where they are taken.
    let due = Mutex::new([0; PEERS as usize]);
    thread::scope(|scope| {
        for to in 0..PEERS {
            let sending = &sending;
            scope.spawn(move || {
                (0..MESSAGES).for_each(|number| send(channel, to, number));
                sending.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                if take_all(channel, &taken, &due) {
                    while sending.load(Ordering::Relaxed) > 0 {
                        thread::yield_now();
                    }
                    // The other thread learns of it by that.
                    channel.close().expect("no open message");
                }
            });
        }
    });
    assert_eq!(due.into_inner().expect("no thread has failed"), [MESSAGES; PEERS as usize]);
}

/// Takes messages until all are taken; whether this thread took the last.
fn take_all(channel: &Channel, taken: &AtomicU32, due: &Mutex<[u32; PEERS as usize]>) -> bool {
    loop {
        let message = match channel.begin_unpacking() {
            Ok(message) => message,
            Err(error) => {
                assert_eq!(error.fault, Fault::Channel, "{error}");
                return false;
            }
        };
        let into = Region::owned(4);
        message.unpack(&into, EXPRESS, Next::Unknown).expect("the number");
        let number = u32::from_le_bytes(into.to_vec().try_into().expect("four bytes"));
        {
            let due = &mut due.lock().expect("no thread has failed")[message.peer() as usize];
            assert_eq!(number, *due, "from {}", message.peer());
            *due += 1;
        }
        let rest = Region::owned(rest_len(number));
        message.unpack(&rest, CHEAPER, Next::Unknown).expect("the rest");
        message.end().expect("a whole message");
        assert_eq!(rest.to_vec(), vec![number as u8; rest.len()]);
        if taken.fetch_add(1, Ordering::Relaxed) + 1 == PEERS * MESSAGES {
            return true;
        }
    }
}

#[test]
fn a_message_that_had_to_wait_for_another_wakes_who_waits_for_any() {
    let processes = job(2);
    let [here, there] =
        [0, 1].map(|rank| processes[rank as usize].node.open(1).expect("a channel"));
    let other = processes[0].node.open(2).expect("a channel");
    let back = processes[1].node.open(2).expect("a channel");
    thread::scope(|scope| {
        // Polls for all, and is not spoken to.
        let polls = scope.spawn(|| other.begin_unpacking().expect("a message").end());
        scope.spawn(|| [0, 1].map(|number| send(&there, 0, number)));
        let first = here.begin_unpacking().expect("the first message");
        let unexpected = |worker: &mut Worker| worker.engine.counters().unexpected;
        while processes[0].progress.look(unexpected) < 2 {
            thread::yield_now();
        }
        let waits = scope.spawn(|| take(&here));
        first.unpack(&Region::owned(4), EXPRESS, Next::Unknown).expect("the number");
        let rest = Region::owned(rest_len(0));
        first.unpack(&rest, CHEAPER, Next::Unknown).expect("the rest");
        thread::sleep(SOON);
        first.end().expect("a whole message");
        assert_eq!(waits.join().expect("the second message"), 1);
        back.begin_packing(0).expect("a connection").end().expect("a whole message");
        polls.join().expect("a thread").expect("a whole message");
    });
}

#[test]
fn closing_a_channel_wakes_who_waits_on_it() {
    let processes = job(2);
    let open = |rank: usize, number| processes[rank].node.open(number).expect("a channel");
    let (other, back) = (open(0, 2), open(1, 2));
    let channel = open(0, 1);
    thread::scope(|scope| {
        let polls = scope.spawn(|| other.begin_unpacking().expect("a message").end());
        thread::sleep(SOON);
        let waits = scope.spawn(|| channel.begin_unpacking().map(drop));
        thread::sleep(SOON);
        channel.close().expect("no open message");
        let error = waits.join().expect("a thread").expect_err("no message");
        assert_eq!(error.fault, Fault::Channel, "{error}");
        back.begin_packing(0).expect("a connection").end().expect("a whole message");
        polls.join().expect("a thread").expect("a whole message");
    });
}

#[test]
fn packed_data_are_sent_while_the_thread_continues_packing() {
    let processes = job(2);
    let open = |rank: usize, number| processes[rank].node.open(number).expect("a channel");
    let (there, answers, asks) = (open(1, 1), open(1, 2), open(0, 1));
    let hears = open(0, 2);
    for _ in 0..ROUNDS {
        let (packed, is_packed) = mpsc::channel();
        let is_answered = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let message = asks.begin_packing(1).expect("a connection");
                message.pack(&Region::owned(1), EXPRESS, Next::Unknown).expect("a packet");
                packed.send(()).expect("somebody who waits");
                while !is_answered.load(Ordering::Relaxed) {
                    // Too few bytes to fill a batch soon.
                    message.pack(&Region::owned(0), CHEAPER, Next::Unknown).expect("one user");
                }
                message.end().expect("a whole message");
            });
            scope.spawn(|| {
                let question = there.begin_unpacking_from(0).expect("a message");
                question.unpack(&Region::owned(1), EXPRESS, Next::Unknown).expect("a packet");
                answers.begin_packing(0).expect("a connection").end().expect("a whole message");
                // What was packed since is left, if anything was.
                if let Err(error) = question.end() {
                    assert_eq!(error.fault, Fault::Packets, "{error}");
                }
            });
            is_packed.recv().expect("a packet");
            hears.begin_unpacking_from(1).expect("a message").end().expect("a whole message");
            is_answered.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn channels_are_closed_all_or_none() {
    let alone = &job(1)[0];
    for _ in 0..ROUNDS {
        let channels: Vec<Channel> =
            (0..4).map(|number| alone.node.open(number).expect("a channel")).collect();
        thread::scope(|scope| {
            let begins = scope.spawn(|| {
                channels.iter().map(|channel| channel.begin_packing(0)).collect::<Vec<_>>()
            });
            let closed = alone.node.close();
            for message in begins.join().expect("a thread").into_iter().flatten() {
                assert!(closed.is_err(), "a channel with a message is open");
                message.end().expect("a whole message");
            }
            for channel in &channels {
                let taken = channel.begin_unpacking_from(0).map(|message| message.end());
                assert_eq!(taken.is_ok(), closed.is_err(), "{taken:?}");
            }
        });
        alone.node.close().expect("no open message");
    }
}

fn send(channel: &Channel, to: u32, number: u32) {
    let message = channel.begin_packing(to).expect("a connection");
    let word = Region::from_box(number.to_le_bytes().into());
    message.pack(&word, EXPRESS, Next::Unknown).expect("the number");
    let rest = Region::from_box(vec![number as u8; rest_len(number)].into());
    message.pack(&rest, CHEAPER, Next::Unknown).expect("the rest");
    message.end().expect("a whole message");
}

/// Takes a message of any process; answers its number.
fn take(channel: &Channel) -> u32 {
    let message = channel.begin_unpacking().expect("a message");
    let into = Region::owned(4);
    message.unpack(&into, EXPRESS, Next::Unknown).expect("the number");
    let number = u32::from_le_bytes(into.to_vec().try_into().expect("four bytes"));
    message.unpack(&Region::owned(rest_len(number)), CHEAPER, Next::Unknown).expect("the rest");
    message.end().expect("a whole message");
    number
}

/// Some travel in batches, some apart, some by rendezvous.
fn rest_len(number: u32) -> usize {
    [16, 0, 2_000, 100_000][number as usize % 4]
}

const EXPRESS: Constraints = Constraints { send: Send::Cheaper, receive: Receive::Express };
const CHEAPER: Constraints = Constraints { send: Send::Cheaper, receive: Receive::Cheaper };
const PEERS: u32 = 3;
const MESSAGES: u32 = 40;
const ROUNDS: usize = 20;
const SOON: Duration = Duration::from_millis(30);
