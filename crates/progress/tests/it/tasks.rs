//! Tasks advance without calls of their own, compute without the worker's lock, and wake the threads that wait.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::Duration;

use engine::{Envelope, OpId, Selector, SendMode};
use memory::Region;
use progress::{Progress, Task, TaskStage, Worker};
use rail::SimNetwork;
use wire::PeerId;

use crate::simulated::{envelope, process, selector, send};

#[test]
fn task_advances_while_a_thread_waits_for_something_else() {
    let network = SimNetwork::new(0);
    let [sender, receiver] = [0, 1].map(|rank| process(&network, rank));
    let told = Arc::<Told>::default();
    receiver.begin(Box::new(Relay::new(&receiver, &told)));
    let other = Arc::clone(&receiver);
    let waiting = thread::spawn(move || {
        other.wait_for(PATIENCE, |worker| worker.engine.probe(None, selector(LAST + 1))).is_some()
    });
    for tag in 1..=LAST {
        let answer = receive(&sender, tag);
        send(&sender, tag);
        let answered = until(&network, &sender, || {
            sender.look(|worker| worker.engine.take(answer)).map(|completion| completion.tag)
        });
        assert_eq!(answered, Some(tag), "nobody but the waiting thread polls");
    }
    assert!(told.ended.load(Ordering::Acquire));
    assert_eq!(told.works.load(Ordering::Acquire), LAST as u32);
    let counters = receiver.look(|worker| worker.counters());
    let tasks =
        [counters.tasks_in_calls, counters.tasks_in_waits, counters.tasks_by_progress_thread];
    assert!(tasks[1].works > 0, "{counters:?}");
    assert_eq!(tasks.iter().map(|of| of.works).sum::<u64>(), LAST as u64, "{counters:?}");
    send(&sender, LAST + 1);
    until(&network, &sender, || waiting.is_finished().then_some(()));
    assert!(waiting.join().unwrap());
}

#[test]
fn end_of_a_task_wakes_threads_that_wait_while_another_polls() {
    let network = SimNetwork::new(0);
    let [sender, receiver] = [0, 1].map(|rank| process(&network, rank));
    let told = Arc::<Told>::default();
    receiver.begin(Box::new(Relay::new(&receiver, &told)));
    let (done, all_done) = mpsc::channel();
    // The first waiting thread polls for the other as well.
    for waits_for_task in [false, true] {
        let (receiver, told, done) = (Arc::clone(&receiver), Arc::clone(&told), done.clone());
        thread::spawn(move || {
            let found = receiver.wait_for(PATIENCE, |worker| match waits_for_task {
                true => told.ended.load(Ordering::Acquire).then_some(()),
                false => worker.engine.probe(None, selector(LAST + 1)).map(drop),
            });
            done.send(found.is_some()).ok();
        });
        thread::sleep(SOON);
    }
    let answers: Vec<OpId> = (1..=LAST).map(|tag| receive(&sender, tag)).collect();
    (1..=LAST).for_each(|tag| send(&sender, tag));
    assert_eq!(until(&network, &sender, || all_done.try_recv().ok()), Some(true));
    assert!(told.ended.load(Ordering::Acquire), "the one that waits for the task was woken");
    for answer in answers {
        until(&network, &sender, || sender.look(|worker| worker.engine.take(answer)));
    }
    send(&sender, LAST + 1);
    assert_eq!(until(&network, &sender, || all_done.try_recv().ok()), Some(true));
}

#[test]
fn task_that_need_not_wait_ends_when_it_is_begun() {
    let network = SimNetwork::new(0);
    let only = process(&network, 0);
    let told = Arc::<Told>::default();
    only.begin(Box::new(Relay { tag: LAST + 1, ..Relay::new(&only, &told) }));
    assert!(told.ended.load(Ordering::Acquire));
    assert_eq!(told.works.load(Ordering::Acquire), 0);
}

/// Progress that a [`Relay`] reports.
#[derive(Default)]
struct Told {
    works: AtomicU32,
    ended: AtomicBool,
}

/// A task that receives messages with tags 1, 2… from rank 0, and answers each after some work.
struct Relay {
    progress: Weak<Progress>,
    told: Arc<Told>,
    tag: i32,
    received: Option<OpId>,
    has_worked: bool,
}

impl Relay {
    fn new(progress: &Arc<Progress>, told: &Arc<Told>) -> Self {
        let (progress, told) = (Arc::downgrade(progress), Arc::clone(told));
        Self { progress, told, tag: 1, received: None, has_worked: false }
    }
}

impl Task for Relay {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        while self.tag <= LAST {
            if std::mem::take(&mut self.has_worked) {
                let envelope = Envelope { source: 1, ..envelope(self.tag) };
                let data = Region::owned(8);
                let mode = SendMode::Standard;
                let op = worker.engine.submit_send(PeerId(0), envelope, &data, mode);
                worker.engine.release(op);
                self.tag += 1;
                self.received = None;
                continue;
            }
            let received = *self.received.get_or_insert_with(|| {
                let peer = Some(PeerId(0));
                worker.engine.submit_receive(peer, selector(self.tag), &Region::owned(8))
            });
            return match worker.engine.take(received) {
                Some(_) => TaskStage::Works,
                None => TaskStage::Waits,
            };
        }
        self.told.ended.store(true, Ordering::Release);
        TaskStage::Ended
    }

    fn work(&mut self) {
        // Other threads can take the worker's lock; otherwise this call would never return.
        let progress = self.progress.upgrade().expect("the test holds it");
        progress.look(|_| ());
        self.told.works.fetch_add(1, Ordering::AcqRel);
        self.has_worked = true;
    }
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

fn receive(progress: &Progress, tag: i32) -> OpId {
    let from = Selector { source: Some(1), ..selector(tag) };
    progress.submit(|worker| worker.engine.submit_receive(Some(PeerId(1)), from, &Region::owned(8)))
}

const LAST: i32 = 5;
const PATIENCE: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(50);
const POLLS: usize = 5_000;
