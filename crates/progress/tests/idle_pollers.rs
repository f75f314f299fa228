//! Idle pollers run on idle cores, and only there.

mod unlinked;
#[macro_use]
mod wrapped_rail;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use engine::{Config, Engine, Envelope, OpId, Selector, SendMode};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::{Event, Rail, ReadinessProbe};
use rail_shm::{ShmConfig, ShmRail};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use unlinked::UnlinkedRail;
use wire::PeerId;

#[test]
fn idle_poller_wakes_a_sleeping_thread() {
    let (_alone, true) = (alone(), has_cores()) else { return };
    let shown = Arc::new(Shown::default());
    let process = process(&shown, Policy::for_node(1, 3));
    let op = begin_receive(&process, &Region::owned(8));
    let rings = || process.look(|worker| worker.counters().wakeups_by_idle_pollers);
    for _ in 0..ROUNDS {
        let before = rings();
        until("somebody rings", || {
            // The submission wakes the idle poller if it has given up its core.
            process.submit(|worker| worker.engine.submit_event());
            // No descriptor becomes readable, so only the idle poller sees the event.
            shown.has_events.store(true, Ordering::SeqCst);
            rings() > before
        });
        until("somebody polls", || !shown.has_events.load(Ordering::SeqCst));
    }
    until("looks are counted", || {
        process.look(|worker| worker.counters().polls_by_idle_pollers) > 0
    });
    process.submit(|worker| worker.engine.submit_cancel(op));
}

#[test]
fn process_has_no_idle_poller_if_every_core_has_a_rank_or_the_policy_forbids_it() {
    let _alone = alone();
    for policy in [
        Policy::for_node(2, 2),
        Policy::for_node(1, 2),
        Policy::for_node(1, 3).without_idle_pollers(),
    ] {
        let shown = Arc::new(Shown::default());
        let process = process(&shown, policy);
        let op = begin_receive(&process, &Region::owned(8));
        until("the progress thread sleeps", || shown.is_raised.load(Ordering::SeqCst));
        assert_eq!((threads("canele-progress").len(), threads("canele-idle").len()), (1, 0));
        process.submit(|worker| worker.engine.submit_cancel(op));
        drop(process);
        until("it is gone", || threads("canele-progress").is_empty());
    }
}

#[test]
fn idle_poller_ends_with_the_last_link_and_with_the_process() {
    let (_alone, true) = (alone(), has_cores()) else { return };
    for closes in [true, false] {
        let shown = Arc::new(Shown::default());
        let process = process(&shown, Policy::for_node(1, 3));
        let op = begin_receive(&process, &Region::owned(8));
        until("an idle poller runs", || threads("canele-idle").len() == 1);
        if closes {
            process.look(Worker::close);
            until("no idle poller runs", || threads("canele-idle").is_empty());
        }
        process.submit(|worker| worker.engine.submit_cancel(op));
        drop(process);
        until("all are gone", || threads("canele-").is_empty());
    }
}

#[test]
fn idle_poller_ends_when_the_process_loses_its_cores() {
    let (_alone, true) = (alone(), has_cores()) else { return };
    let shown = Arc::new(Shown::default());
    let process = process(&shown, Policy::for_node(1, 3));
    let op = begin_receive(&process, &Region::owned(8));
    until("an idle poller runs", || threads("canele-idle").len() == 1);
    let progress_thread = threads("canele-progress")[0];
    let all = sched_getaffinity(Some(progress_thread)).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap());
    sched_setaffinity(Some(progress_thread), &one).unwrap();
    process.submit(|worker| worker.engine.submit_cancel(op));
    // An operation left pending wakes the progress thread, which notices the lost cores.
    until("no idle poller runs", || {
        let op = begin_receive(&process, &Region::owned(8));
        thread::sleep(SOME_WHILE);
        process.submit(|worker| worker.engine.submit_cancel(op));
        thread::sleep(SOME_WHILE);
        threads("canele-idle").is_empty()
    });
    sched_setaffinity(Some(progress_thread), &all).unwrap();
    until("an idle poller runs again", || {
        let op = begin_receive(&process, &Region::owned(8));
        thread::sleep(SOME_WHILE);
        process.submit(|worker| worker.engine.submit_cancel(op));
        thread::sleep(SOME_WHILE);
        threads("canele-idle").len() == 1
    });
}

#[test]
fn rendezvous_is_answered_by_idle_pollers_while_both_ranks_compute() {
    let (_alone, true) = (alone(), has_cores()) else { return };
    let [sender, receiver] = neighbours();
    for round in 0..ROUNDS {
        meet(&sender, &receiver, round);
    }
    assert!(!threads("canele-idle").is_empty());
}

#[test]
fn forked_processes_have_no_idle_poller_and_disturb_nobody() {
    let (_alone, true) = (alone(), has_cores()) else { return };
    let [sender, receiver] = neighbours();
    for round in 0..ROUNDS {
        meet(&sender, &receiver, round);
        until("an idle poller runs", || !threads("canele-idle").is_empty());
        let copy = Copy::make();
        meet(&sender, &receiver, round);
        assert_eq!(copy.end(), 0, "the child has library threads");
    }
}

/// Sends a message while both processes compute.
fn meet(sender: &Progress, receiver: &Progress, round: u8) {
    let data = Region::from_box(vec![round; LEN].into());
    let into = Region::owned(LEN);
    let receive = begin_receive(receiver, &into);
    if round.is_multiple_of(2) {
        receiver.test(|_| ());
    }
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    let send = sender.submit(|worker| {
        worker.engine.submit_send(PeerId(1), envelope, &data, SendMode::Synchronous)
    });
    // `look` does not poll.
    let is_over = |process: &Progress, op| process.look(|worker| worker.engine.is_complete(op));
    until("it arrives", || is_over(receiver, receive) && is_over(sender, send));
    assert_eq!(into.to_vec(), data.to_vec());
    assert!(receiver.test(|worker| worker.engine.take(receive)).is_some());
    assert!(sender.test(|worker| worker.engine.take(send)).is_some());
}

/// A forked child of this process.
struct Copy {
    process: libc::pid_t,
    life: std::io::PipeWriter,
}

impl Copy {
    fn make() -> Self {
        let (mut held, life) = std::io::pipe().expect("a pipe");
        // SAFETY: the child only reads files and its own memory, and exits without needing other threads.
        let process = unsafe { libc::fork() };
        if process == 0 {
            drop(life);
            // Waits until the parent closes the pipe.
            let _ = std::io::Read::read(&mut held, &mut [0]);
            let count = threads("canele-").len();
            // SAFETY: `_exit` ends the child and runs no handlers.
            unsafe { libc::_exit(count as libc::c_int) };
        }
        assert!(process > 0, "a copy");
        Self { process, life }
    }

    /// Ends the child and returns its exit code.
    fn end(self) -> libc::c_int {
        drop(self.life);
        let mut status = 0;
        // SAFETY: the id is that of a child of this process, and `status` is valid for the write.
        let ended = unsafe { libc::waitpid(self.process, &mut status, 0) };
        assert!(ended == self.process && libc::WIFEXITED(status), "status {status}");
        libc::WEXITSTATUS(status)
    }
}

/// Excludes other tests, because threads are counted in the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    until("those of the test before are gone", || threads("canele-").is_empty());
    alone
}

/// True if this process has a core for the idle poller; reports a skip otherwise.
fn has_cores() -> bool {
    let has_cores = topo::domains::allowed(None).is_some_and(|cores| cores.len() > 1);
    if !has_cores {
        testing::skip("there is only one core");
    }
    has_cores
}

/// Threads of this process whose names begin with `name`.
fn threads(name: &str) -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let is_so = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    let number = |task: fs::DirEntry| Pid::from_raw(task.file_name().to_str()?.parse().ok()?);
    tasks.filter(is_so).filter_map(number).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(SOME_WHILE);
    }
}

fn begin_receive(process: &Progress, into: &Region) -> OpId {
    let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
    process.submit(|worker| worker.engine.submit_receive(Some(PeerId(0)), selector, into))
}

/// Creates rank 1 of two, over a rail that signals no event.
fn process(shown: &Arc<Shown>, policy: Policy) -> Arc<Progress> {
    let rails: Vec<Box<dyn Rail>> =
        vec![Box::new(Mute { rail: UnlinkedRail, shown: Arc::clone(shown) })];
    let worker =
        Worker::new(Engine::new(Config::new(2)), PeerId(1), 2, rails, Box::new(All(vec![])));
    Progress::new(worker, policy).expect("descriptors")
}

/// Creates two ranks on one node, as if each had three cores.
fn neighbours() -> [Arc<Progress>; 2] {
    let rails = [0, 1].map(|rank| {
        let config =
            ShmConfig { rank: PeerId(rank), job: [5; 16], host: cost::HostCost::default() };
        ShmRail::new(config).expect("shared memory")
    });
    let addresses = rails.each_ref().map(Rail::address);
    let mut ranks = 0..;
    rails.map(|rail| {
        let rank = PeerId(ranks.next().unwrap_or(0));
        let directory = Box::new(All(addresses.to_vec()));
        let engine = Engine::new(Config::new(2));
        let worker = Worker::new(engine, rank, 2, vec![Box::new(rail)], directory);
        Progress::new(worker, Policy::for_node(1, 3)).expect("descriptors")
    })
}

/// State shared by the test and a rail.
#[derive(Default)]
struct Shown {
    has_events: AtomicBool,
    is_raised: AtomicBool,
    polls: AtomicU32,
}

impl ReadinessProbe for Shown {
    fn sees_events(&self) -> bool {
        self.has_events.load(Ordering::SeqCst)
    }
}

struct Mute {
    rail: UnlinkedRail,
    shown: Arc<Shown>,
}

impl Rail for Mute {
    passes_on!(rail: name, address, connect, disconnect, post, descriptors, is_flushed);

    fn poll(&mut self, _: &mut dyn FnMut(Event<'_>)) -> bool {
        self.shown.polls.fetch_add(1, Ordering::SeqCst);
        self.shown.has_events.swap(false, Ordering::SeqCst)
    }

    fn readiness_probe(&mut self) -> Option<Arc<dyn ReadinessProbe>> {
        Some(Arc::<Shown>::clone(&self.shown))
    }

    fn prepare_sleep(&mut self) -> bool {
        self.shown.is_raised.store(true, Ordering::SeqCst);
        !self.shown.has_events.load(Ordering::SeqCst)
    }

    fn finish_sleep(&mut self) {
        self.shown.is_raised.store(false, Ordering::SeqCst);
    }
}

struct All(Vec<Vec<u8>>);

impl Directory for All {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        let address = self.0.get(peer.0 as usize).ok_or("no such peer")?;
        Ok(vec![("shm".into(), address.clone())])
    }
}

const LEN: usize = 3 << 20;
const ROUNDS: u8 = 6;
const SOME_WHILE: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);
