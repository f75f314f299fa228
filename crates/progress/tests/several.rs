//! One thread that waits for what any of several communications of its process brings.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use driver::LoopbackRail;
use engine::{Config, Engine, Envelope, OpId, Selector, SendMode};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use wire::PeerId;

#[test]
fn what_comes_to_any_wakes_the_thread_that_waits_for_all() {
    for policy in [Policy::for_node(1, 2), Policy::for_node(4, 2)] {
        let first = process(policy);
        let others = (1..VCIS).map(|_| first.new_beside(worker(), policy).expect("descriptors"));
        let vcis: Vec<_> = others.chain([Arc::clone(&first)]).collect();
        let all: Vec<&Progress> = vcis.iter().map(|vci| &**vci).collect();
        Progress::put_beside(&all);
        for turn in 0..TURNS {
            let ops: Vec<OpId> = all.iter().map(|vci| receive(vci)).collect();
            // Some come at once, some while the thread polls, and some when it sleeps.
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
                assert!(came.is_some(), "what was not waited for is there still");
            }
        }
    }
}

#[test]
fn who_sleeps_in_one_takes_in_what_comes_to_the_others() {
    let vcis = [process(Policy::for_node(1, 2)), process(Policy::for_node(1, 2))];
    let all = [&*vcis[0], &*vcis[1]];
    Progress::put_beside(&all);
    // More than there is room for, until somebody polls: the last waits to leave.
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
    assert!(has_come(), "who has slept in the first vci has polled the second");
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

/// Long enough for a thread to sleep, and to look beside.
const AWHILE: Duration = Duration::from_millis(200);

/// More than any step takes.
const PATIENCE: Duration = Duration::from_secs(20);
