//! One progress thread serves all VCIs of a process.

mod pair;

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use engine::{Envelope, OpId, Selector, SendMode};
use memory::Region;
use pair::{PATIENCE, cores, policy};
use progress::Progress;
use wire::PeerId;

#[test]
fn pending_operations_of_several_vcis_end_without_calls() {
    let processes = processes();
    for round in 0..ROUNDS {
        // In some rounds all VCIs have pending operations, in some a few; each is the first at times.
        let vcis: Vec<usize> =
            (0..VCIS).map(|vci| (vci + round) % VCIS).take(1 + round % VCIS).collect();
        let (mut sends, mut receives, mut into) = (Vec::new(), Vec::new(), Vec::new());
        for &vci in &vcis {
            let [sender, receiver] = [&processes[0][vci], &processes[1][vci]];
            into.push(Region::owned(LEN));
            let len = if (round + vci).is_multiple_of(3) { 8 } else { LEN };
            if round.is_multiple_of(2) {
                receives.push((receiver, receive(receiver, &into[into.len() - 1])));
            }
            let data = Region::from_box(vec![(round + vci) as u8; len].into());
            sends.push((sender, send(sender, &data)));
            if round % 5 == 1 {
                // The progress thread sleeps on the rails of one VCI when the next one needs it.
                thread::sleep(SOME_WHILE);
            }
            if !round.is_multiple_of(2) {
                receives.push((receiver, receive(receiver, &into[into.len() - 1])));
            }
        }
        // `look` does not poll.
        let begun = Instant::now();
        let has_ended = |(progress, op): &(&Arc<Progress>, OpId)| {
            progress.look(|worker| worker.engine.is_complete(*op))
        };
        while !(sends.iter().all(has_ended) && receives.iter().all(has_ended)) {
            assert!(begun.elapsed() < PATIENCE, "round {round}: operations end without polls");
            thread::sleep(SOME_WHILE / 20);
        }
        assert!(threads() <= 2, "one for each process");
        for (progress, op) in sends.into_iter().chain(receives) {
            assert!(progress.look(|worker| worker.engine.take(op)).is_some());
        }
        for (&vci, into) in vcis.iter().zip(&into) {
            assert_eq!(into.slice(0, 8).to_vec(), [(round + vci) as u8; 8]);
        }
    }
    assert_eq!(threads(), 2);
    // The first VCI may be dropped before the others.
    let [mut senders, receivers] = processes;
    drop(senders.remove(0));
    let into = Region::owned(8);
    let received = receive(&receivers[1], &into);
    send(&senders[0], &Region::from_box(Box::new([5; 8])));
    let received = receivers[1].wait_for(PATIENCE, |worker| worker.take_or_await(received));
    assert!(received.is_some());
    drop((senders, receivers));
    let begun = Instant::now();
    while threads() > 0 {
        assert!(begun.elapsed() < PATIENCE, "the progress threads end with their VCIs");
        thread::sleep(SOME_WHILE);
    }
}

/// Creates two ranks of a job, each with several VCIs.
fn processes() -> [Vec<Arc<Progress>>; 2] {
    let mut processes: [Vec<Arc<Progress>>; 2] = Default::default();
    for _ in 0..VCIS {
        for (process, worker) in processes.iter_mut().zip(cores::<2>(|rail| Box::new(rail))) {
            let begun = match process.first() {
                None => Progress::new(worker, policy(2)),
                Some(first) => first.new_sibling(worker, policy(2)),
            };
            process.push(begun.expect("descriptors"));
        }
    }
    processes
}

fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("canele-progress")).count()
}

fn send(progress: &Progress, data: &Region) -> OpId {
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    progress.submit(|worker| {
        worker.engine.submit_send(PeerId(1), envelope, data, SendMode::Synchronous)
    })
}

fn receive(progress: &Progress, into: &Region) -> OpId {
    let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
    progress.submit(|worker| worker.engine.submit_receive(Some(PeerId(0)), selector, into))
}

const VCIS: usize = 4;
const ROUNDS: usize = 60;

/// Message length in bytes, more than a socket's buffers hold.
const LEN: usize = 8 << 20;

/// Time in which the progress thread goes to sleep on the rails.
const SOME_WHILE: Duration = Duration::from_millis(20);
