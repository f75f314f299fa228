//! A thread waits for events of any of several VCIs of its process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use engine::{Config, Engine, Envelope, OpId, Selector, SendMode};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::LoopbackRail;
use wire::PeerId;

#[test]
fn message_to_any_vci_wakes_a_thread_waiting_in_all() {
    for policy in [Policy::for_node(1, 2), Policy::for_node(4, 2)] {
        let first = process(policy);
        let others = (1..VCIS).map(|_| first.new_sibling(worker(), policy).expect("descriptors"));
        let vcis: Vec<_> = others.chain([Arc::clone(&first)]).collect();
        let all: Vec<&Progress> = vcis.iter().map(|vci| &**vci).collect();
        Progress::set_siblings(&all);
        for turn in 0..TURNS {
            let ops: Vec<OpId> = all.iter().map(|vci| receive(vci)).collect();
            // Some messages come at once, some while the thread polls, some while it sleeps.
            let (vci, pause) = (turn * 7 % VCIS, Duration::from_micros(turn as u64 % 4 * 700));
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(pause);
                    send(all[vci]);
                });
                let came = Progress::wait_in_any(&all, |index, worker| {
                    worker.take_or_await(ops[index]).map(|_| index)
                });
                assert_eq!(came, vci, "turn {turn}");
            });
            for (index, vci) in all.iter().enumerate().filter(|(index, _)| *index != vci) {
                send(vci);
                let came = vci.wait_for(PATIENCE, |worker| worker.take_or_await(ops[index]));
                assert!(came.is_some(), "a message that nobody waited for is still there");
            }
        }
    }
}

#[test]
fn thread_sleeping_in_one_vci_polls_its_siblings() {
    let vcis = [process(Policy::for_node(1, 2)), process(Policy::for_node(1, 2))];
    let all = [&*vcis[0], &*vcis[1]];
    Progress::set_siblings(&all);
    // These are more messages than the rail has room for, so the last waits until somebody polls.
    let op = receive(all[1]);
    send(all[1]);
    assert!(all[1].wait_for(PATIENCE, |worker| worker.take_or_await(op)).is_some());
    for _ in 0..ROOM {
        send(all[1]);
    }
    let has_come = || all[1].look(|worker| worker.engine.probe(Some(HERE), SELECTOR).is_some());
    assert!(!has_come(), "nobody has polled");
    let op = receive(all[0]);
    assert!(all[0].wait_for(AWHILE, |worker| worker.take_or_await(op)).is_none());
    assert!(has_come(), "the thread that slept in the first VCI has polled the second");
    send(all[0]);
    assert!(all[0].wait_for(PATIENCE, |worker| worker.take_or_await(op)).is_some());
}

fn process(policy: Policy) -> Arc<Progress> {
    Progress::new(worker(), policy).expect("descriptors")
}

fn worker() -> Worker {
    let rail = LoopbackRail::new(HERE).expect("an event");
    Worker::new(Engine::new(Config::new(1)), HERE, 1, vec![Box::new(rail)], Box::new(OwnRank))
}

fn receive(vci: &Progress) -> OpId {
    vci.begin_receive(Some(HERE), SELECTOR, &Region::owned(8), NOTE)
}

fn send(vci: &Progress) {
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    let bytes = Region::from_box(Box::new([1; 8]));
    vci.begin_send(HERE, envelope, &bytes, SendMode::Standard, NOTE);
}

struct OwnRank;

impl Directory for OwnRank {
    fn addresses(&mut self, _: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("self".into(), HERE.0.to_le_bytes().to_vec())])
    }
}

const HERE: PeerId = PeerId(0);
const SELECTOR: Selector = Selector { context: 0, source: Some(0), tag: None };
const NOTE: u64 = 1;
const VCIS: usize = 3;
const TURNS: usize = 60;
const ROOM: usize = 10;

/// Time in which a thread goes to sleep and polls the sibling VCIs.
const AWHILE: Duration = Duration::from_millis(200);

/// Upper limit for one step.
const PATIENCE: Duration = Duration::from_secs(20);
