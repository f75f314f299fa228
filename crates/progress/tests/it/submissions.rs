//! Operations that threads begin while another thread holds the worker's lock.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use engine::{Config, Engine, Envelope, OpId, Outcome, Selector, SendMode};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::LoopbackRail;
use wire::PeerId;

#[test]
fn operations_begun_while_the_worker_is_locked_are_left_to_the_holder() {
    let process = process();
    connect(&process);
    let into: Vec<_> = (0..COUNT).map(|_| Region::owned(LONGEST)).collect();
    // Operations get their ids while another thread holds the lock, and end once it is released.
    let (ops, before) = process.look(|worker| {
        let before = worker.counters().submissions_delegated;
        let ops: Vec<OpId> = beside(&process, |process| {
            for (number, len) in lengths() {
                let (data, note) = (message(number, len), number as u64 + 1);
                let op = process.begin_send(HERE, envelope(number), &data, MODE, note);
                assert_eq!(op.is_none(), len <= COPIED, "a copied message counts as sent");
            }
            let into = into.iter().zip(1..);
            into.map(|(into, note)| process.begin_receive(Some(HERE), SELECTOR, into, note))
                .collect()
        });
        assert_eq!(worker.counters().submissions_delegated, before, "nobody has seen to it yet");
        (ops, before)
    });
    for (op, ((number, len), into)) in ops.into_iter().zip(lengths().zip(&into)) {
        let end = |worker: &mut Worker| worker.take_noted_or_await(op).ok_or("unknown").transpose();
        let ended = process.wait_for(PATIENCE, end);
        let (completion, note) = ended.expect("in good time").expect("it is known by its note");
        assert_eq!((completion.tag, completion.outcome), (number as i32, Outcome::Ok));
        assert_eq!(note, number as u64 + 1);
        assert_eq!(content(into, len), content(&message(number, len), len), "in its order");
    }
    let left = process.look(|worker| worker.counters().submissions_delegated);
    assert_eq!(left - before, 2 * COUNT as u64);
}

#[test]
fn thread_without_a_free_record_waits() {
    let process = process();
    connect(&process);
    let (tell, hear) = channel();
    let other = Arc::clone(&process);
    let sender = process.look(|_| {
        let sender = thread::spawn(move || {
            for number in 0..MANY {
                other.begin_send(HERE, envelope(number), &message(number, 8), MODE, NOTE);
                tell.send(number).expect("the test listens");
            }
        });
        // So many records are left to the holder; the next operation waits for the lock.
        let mut left = 0;
        while left < MOST_LEFT {
            assert_eq!(hear.recv_timeout(PATIENCE).expect("in good time"), left);
            left += 1;
        }
        assert!(hear.try_recv().is_err(), "all records are in use");
        sender
    });
    for number in 0..MANY {
        let into = Region::owned(8);
        let op = process.begin_receive(Some(HERE), SELECTOR, &into, NOTE);
        let completion = process.wait_for(PATIENCE, |worker| worker.take_or_await(op));
        assert_eq!(completion.expect("in good time").tag, number as i32);
    }
    sender.join().expect("it has sent all");
}

#[test]
fn send_to_an_unknown_peer_ends_with_an_error() {
    let process = process();
    let nobody = PeerId(1);
    let op = process.look(|_| {
        beside(&process, |process| {
            assert!(process.send_short(nobody, envelope(0), &message(0, 8)), "as far as it knows");
            process.begin_send(nobody, envelope(1), &message(1, LONGEST), MODE, NOTE)
        })
    });
    let op = op.expect("an operation, for it is long");
    let completion = process.wait_for(PATIENCE, |worker| worker.take_or_await(op));
    assert_eq!(completion.expect("in good time").outcome, Outcome::PeerFailed);
}

/// Runs `act` in another thread, which must not need the lock that this thread holds.
fn beside<T: Send>(process: &Arc<Progress>, act: impl FnOnce(&Progress) -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(|| act(process)).join().expect("it ends well"))
}

fn process() -> Arc<Progress> {
    let rail = LoopbackRail::new(HERE).expect("an event");
    let worker =
        Worker::new(Engine::new(Config::new(2)), HERE, 2, vec![Box::new(rail)], Box::new(OwnRank));
    Progress::new(worker, Policy::for_node(1, 2)).expect("descriptors")
}

/// Opens the link by a first message.
fn connect(process: &Progress) {
    let into = Region::owned(8);
    let op = process.begin_receive(Some(HERE), SELECTOR, &into, NOTE);
    let sent = process.begin_send(HERE, envelope(0), &message(0, 8), MODE, NOTE);
    for op in [Some(op), sent].into_iter().flatten() {
        assert!(process.wait_for(PATIENCE, |worker| worker.take_or_await(op)).is_some());
    }
}

/// Numbers and lengths of messages: copied, short and long ones.
fn lengths() -> impl Iterator<Item = (usize, usize)> {
    [8, COPIED, COPIED + 1, 4000, LONGEST].into_iter().cycle().take(COUNT).enumerate()
}

fn message(number: usize, len: usize) -> Region {
    Region::from_box(vec![number as u8; len].into_boxed_slice())
}

fn content(region: &Region, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(0, &mut bytes);
    bytes
}

fn envelope(number: usize) -> Envelope {
    Envelope { context: 0, source: 0, tag: number as i32, is_urgent: false }
}

struct OwnRank;

impl Directory for OwnRank {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        match peer {
            HERE => Ok(vec![("self".into(), HERE.0.to_le_bytes().to_vec())]),
            _ => Err("nobody has that address".into()),
        }
    }
}

const HERE: PeerId = PeerId(0);
const SELECTOR: Selector = Selector { context: 0, source: Some(0), tag: None };
const MODE: SendMode = SendMode::Standard;
const NOTE: u64 = 1;

/// Longest message that is copied, in bytes.
const COPIED: usize = 256;
const LONGEST: usize = 100_000;
const COUNT: usize = 20;

/// Number of records that the lock has.
const MOST_LEFT: usize = 64;
const MANY: usize = 100;

/// Upper limit for one step.
const PATIENCE: Duration = Duration::from_secs(20);
