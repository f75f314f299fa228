//! Threads that mark partitions and ask for them at once, of messages to the own process.

use std::sync::Arc;
use std::thread;

use engine::{Config, Engine};
use memory::Region;
use partitioned::{Channels, Receiver, Route, Sender};
use progress::{Directory, Policy, Progress, Worker};
use rail::LoopbackRail;
use wire::PeerId;

#[test]
fn partitions_of_many_threads_arrive() {
    let progress = process();
    let channels = Channels::new(&progress);
    for bytes in [1, 3000, 20_000] {
        let len = (THREADS * EACH) as usize * bytes;
        let route = Route { peer: HERE, context: 4, source: 0, tag: 0, note: 1 };
        let (data, into) = (Region::owned(len), Region::owned(len));
        let sender = channels.send(route, data.clone(), THREADS * EACH).expect("memory");
        let receiver = channels.receive(route, into.clone(), THREADS).expect("memory");
        for run in 1..=RUNS {
            sender.start();
            receiver.start();
            thread::scope(|scope| {
                for number in 0..THREADS {
                    let (sender, data) = (&sender, &data);
                    scope.spawn(move || mark(sender, data, number, run));
                }
                scope.spawn(|| ask(&receiver, &into, run));
                end(&progress, &sender, &receiver);
            });
            assert!(into.to_vec().iter().all(|byte| *byte == run));
        }
    }
}

/// Writes the partitions of a thread, and marks each.
fn mark(sender: &Sender, data: &Region, number: u32, run: u8) {
    for at in 0..EACH {
        let partition = at * THREADS + number;
        let bytes = data.len() / (THREADS * EACH) as usize;
        data.slice(partition as usize * bytes, bytes).write(0, &vec![run; bytes]);
        sender.mark(std::iter::once(partition)).expect("a partition that is not ready");
    }
}

/// Waits for the receiver's partitions, one after the other.
fn ask(receiver: &Receiver, into: &Region, run: u8) {
    for partition in 0..THREADS {
        while receiver.has_arrived(partition) == Ok(false) {}
        let bytes = into.len() / THREADS as usize;
        let part = into.slice(partition as usize * bytes, bytes).to_vec();
        assert!(part.iter().all(|byte| *byte == run));
    }
}

fn end(progress: &Progress, sender: &Sender, receiver: &Receiver) {
    assert_eq!(progress.wait(|worker| sender.poll(worker)), Ok(()));
    sender.end();
    let result = progress.wait(|worker| {
        let result = receiver.poll(worker)?;
        receiver.end(worker);
        Some(result)
    });
    assert!(result.is_ok());
}

/// Makes a process of its own.
fn process() -> Arc<Progress> {
    let rail = Box::new(LoopbackRail::new(HERE).expect("a rail to oneself"));
    let worker = Worker::new(Engine::new(Config::new(1)), HERE, 1, vec![rail], Box::new(Here));
    Progress::new(worker, Policy::for_node(1, 2)).expect("descriptors")
}

struct Here;

impl Directory for Here {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("self".into(), peer.0.to_le_bytes().to_vec())])
    }
}

const HERE: PeerId = PeerId(0);
const THREADS: u32 = 4;
/// Partitions that each thread marks.
const EACH: u32 = 25;
const RUNS: u8 = 5;
