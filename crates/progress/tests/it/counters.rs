//! Counters record each action, the thread that did it, and its duration.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Config, Engine, Envelope, OpId, Selector, SendMode};
use memory::Region;
use progress::{Counters, Directory, Policy, Progress, Task, TaskStage, Worker};
use rail::LoopbackRail;
use wire::PeerId;

#[test]
fn polls_are_counted_by_kind_of_thread() {
    let process = process(oversubscribed());
    assert_eq!(counters(&process), Counters::default());
    (0..TESTS).for_each(|_| process.test(|_| ()));
    let Counters { polls, polls_by_tests, polls_by_progress_thread, .. } = counters(&process);
    assert_eq!((polls, polls_by_tests, polls_by_progress_thread), (TESTS, TESTS, 0));
    let (counted, _) = wait_until(&process, |counters| counters.polls > TESTS);
    assert_eq!(counted.polls_by_tests, TESTS);
}

#[test]
fn oversubscribed_wait_yields_and_sleeps_and_does_not_spin() {
    let process = process(oversubscribed());
    let (counted, took) = wait_until(&process, |counters| counters.sleeps > 0);
    let Counters { yields, sleeping, spinning, .. } = counted;
    // The thread yields as often as the policy says, unless one yield took long.
    assert!(yields > 0);
    assert!(!sleeping.is_zero() && sleeping <= took, "{sleeping:?} of {took:?}");
    assert_eq!(spinning, Duration::ZERO);
}

#[test]
fn yields_are_timed() {
    let process = process(oversubscribed());
    let (counted, _) = wait_until(&process, |counters| !counters.yielding.is_zero());
    assert!(counted.yields > 0 && counted.sleeps == 0, "{counted:?}");
}

#[test]
fn thread_with_its_own_core_spins_until_it_sleeps() {
    let process = process(Policy::for_node(1, 1));
    let (counted, took) = wait_until(&process, |counters| counters.sleeps > 0);
    // The thread spins as long as the policy says, unless it was preempted meanwhile.
    assert!(!counted.spinning.is_zero(), "{counted:?}");
    assert!(counted.spinning + counted.sleeping <= took, "{counted:?} of {took:?}");
}

#[test]
fn loop_of_tests_sleeps_if_others_want_the_cores() {
    let process = process(Policy::for_node(1, 1));
    let has_slept = AtomicBool::new(false);
    let cores = thread::available_parallelism().expect("cores").get();
    thread::scope(|scope| {
        for _ in 0..2 * cores {
            scope.spawn(|| {
                while !has_slept.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let begun = Instant::now();
        while counters(&process).sleeps == 0 && begun.elapsed() < PATIENCE {
            (0..TESTS_IN_A_ROW).for_each(|_| {
                process.test(|_| ());
                process.pause();
            });
        }
        has_slept.store(true, Ordering::Relaxed);
    });
    // The thread yields before it sleeps, until a yield shows that the others compute.
    let counted = counters(&process);
    assert!(counted.sleeps > 0, "{counted:?}");
    assert!(counted.yields <= TURNS_AT_MOST * (counted.sleeps + 1), "{counted:?}");
}

#[test]
fn threads_that_leave_polling_to_others_are_counted_and_woken() {
    let process = process(oversubscribed());
    let waits = [(); 3].map(|()| {
        let process = Arc::clone(&process);
        thread::spawn(move || {
            process
                .wait_for(PATIENCE, |worker| (worker.counters().polls_by_tests > 0).then_some(()))
        })
    });
    let begun = Instant::now();
    let until = |is_so: fn(&Counters) -> bool| {
        while !is_so(&counters(&process)) {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(SOON);
            process.wake();
        }
    };
    until(|counters| counters.waits_without_polling >= 2);
    until(|counters| counters.woken >= 2);
    until(|counters| counters.wakeups > 0);
    process.test(|_| ());
    process.wake();
    assert!(waits.into_iter().all(|wait| wait.join().unwrap().is_some()));
}

#[test]
fn threads_are_woken_only_by_events_they_wait_for() {
    let process = process(oversubscribed());
    let waiting = |count: u64, what: fn(&mut Worker) -> Option<()>| {
        let waits = {
            let process = Arc::clone(&process);
            thread::spawn(move || process.wait_for(PATIENCE, what))
        };
        let begun = Instant::now();
        while counters(&process).waits_without_polling < count || counters(&process).polls == 0 {
            assert!(begun.elapsed() < PATIENCE, "thread {count} waits");
            thread::sleep(SOON);
        }
        waits
    };
    let [first, second] = [FIRST, SECOND].map(|tag| receive(&process, tag));
    ENDS.get_or_init(|| [first, second]);
    let polling = waiting(0, |worker| (worker.counters().polls_by_tests > 0).then_some(()));
    let waits = [
        waiting(1, |worker| {
            QUESTIONS.fetch_add(1, Ordering::Relaxed);
            let ended = ENDS.get()?.iter().any(|&op| worker.engine.take(op).is_some());
            worker.await_any(|| ENDS.get().map(|ops| ops.to_vec()));
            ended.then_some(())
        }),
        waiting(2, |worker| {
            QUESTIONS.fetch_add(1, Ordering::Relaxed);
            let found = worker.engine.probe(Some(PeerId(0)), selector(PROBED));
            worker.await_message(Some(PeerId(0)), selector(PROBED));
            found.map(drop)
        }),
    ];
    for _ in 0..TESTS {
        let op = receive(&process, OTHER);
        send(&process, OTHER);
        assert!(process.wait_for(PATIENCE, |worker| worker.take_or_await(op)).is_some());
    }
    assert_eq!(QUESTIONS.load(Ordering::Relaxed), 2, "each has asked when it began to wait");
    send(&process, SECOND);
    send(&process, PROBED);
    assert!(waits.into_iter().all(|wait| wait.join().unwrap().is_some()));
    process.test(|_| ());
    process.wake();
    assert!(polling.join().unwrap().is_some());
}

/// Begins to receive a message from the process itself.
fn receive(process: &Progress, tag: i32) -> OpId {
    let into = Region::owned(8);
    process.submit(|worker| worker.engine.submit_receive(Some(PeerId(0)), selector(tag), &into))
}

fn send(process: &Progress, tag: i32) {
    let data = Region::owned(8);
    let envelope = Envelope { context: 0, source: 0, tag, is_urgent: false };
    process.submit(|worker| {
        let op = worker.engine.submit_send(PeerId(0), envelope, &data, SendMode::Standard);
        worker.engine.release(op);
    });
}

fn selector(tag: i32) -> Selector {
    Selector { context: 0, source: Some(0), tag: Some(tag) }
}

static QUESTIONS: AtomicUsize = AtomicUsize::new(0);
static ENDS: OnceLock<[OpId; 2]> = OnceLock::new();
const FIRST: i32 = 1;
const SECOND: i32 = 2;
const PROBED: i32 = 3;
const OTHER: i32 = 4;

#[test]
fn work_of_tasks_is_counted_by_kind_of_thread() {
    let process = process(oversubscribed());
    process.begin(Box::new(Work { left: 3 }));
    let Counters { tasks_in_calls, tasks_in_waits, tasks_by_progress_thread, .. } =
        counters(&process);
    assert_eq!((tasks_in_calls.works, tasks_in_calls.advances), (3, 4));
    assert_eq!((tasks_in_waits.works, tasks_by_progress_thread.works), (0, 0));
    let Counters {
        work_stolen_same_core,
        work_stolen_same_cache,
        work_stolen_same_numa,
        work_stolen_remote_numa,
        ..
    } = counters(&process);
    assert_eq!(
        work_stolen_same_core
            + work_stolen_same_cache
            + work_stolen_same_numa
            + work_stolen_remote_numa,
        3,
        "each somewhere"
    );
}

/// A task that computes `left` times.
struct Work {
    left: u32,
}

impl Task for Work {
    fn advance(&mut self, _: &mut Worker) -> TaskStage {
        if self.left > 0 { TaskStage::Works } else { TaskStage::Ended }
    }

    fn work(&mut self) {
        self.left -= 1;
    }
}

#[test]
fn tasks_advance_only_when_their_own_operations_have_ended() {
    for tasks in [100, 200, 400] {
        let process = process(oversubscribed());
        for tag in 0..tasks {
            process.begin(Box::new(ReceiveTask { tag, received: None }));
        }
        for tag in (0..tasks).rev() {
            send(&process, tag);
        }
        let is_over = |worker: &mut Worker| (!worker.engine.has_pending()).then_some(());
        assert!(process.wait_for(PATIENCE, is_over).is_some());
        let Counters { tasks_in_calls, tasks_in_waits, tasks_by_progress_thread, .. } =
            counters(&process);
        let all = [tasks_in_calls, tasks_in_waits, tasks_by_progress_thread];
        let advances: u64 = all.iter().map(|of| of.advances).sum();
        assert_eq!(advances, 2 * tasks as u64, "each begins and ends");
    }
}

/// A task that receives a message.
struct ReceiveTask {
    tag: i32,
    received: Option<OpId>,
}

impl Task for ReceiveTask {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        let received = *self.received.get_or_insert_with(|| {
            let (peer, into) = (Some(PeerId(0)), Region::owned(8));
            worker.engine.submit_receive(peer, selector(self.tag), &into)
        });
        match worker.engine.take(received) {
            Some(_) => TaskStage::Ended,
            None => TaskStage::Waits,
        }
    }

    fn work(&mut self) {}

    fn awaited(&self) -> Option<OpId> {
        self.received
    }
}

/// A process alone in its job.
fn process(policy: Policy) -> Arc<Progress> {
    let rail = LoopbackRail::new(PeerId(0)).expect("a rail to itself");
    let engine = Engine::new(Config::new(1));
    let worker = Worker::new(engine, PeerId(0), 1, vec![Box::new(rail)], Box::new(Alone));
    Progress::new(worker, policy).expect("descriptors")
}

fn oversubscribed() -> Policy {
    Policy::for_node(2, 1)
}

/// Waits until `is_so`; returns the counters at that time and the duration of the wait.
fn wait_until(process: &Progress, is_so: fn(&Counters) -> bool) -> (Counters, Duration) {
    let begun = Instant::now();
    let counted = process.wait_for(PATIENCE, |worker| Some(worker.counters()).filter(is_so));
    (counted.expect("in good time"), begun.elapsed())
}

fn counters(process: &Progress) -> Counters {
    process.look(|worker| worker.counters())
}

struct Alone;

impl Directory for Alone {
    fn addresses(&mut self, _: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("self".into(), 0u32.to_le_bytes().to_vec())])
    }
}

const TESTS: u64 = 10;
const TESTS_IN_A_ROW: usize = 1000;
/// Most yields before a sleep.
const TURNS_AT_MOST: u64 = 100;
const SOON: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);
