//! Instances are made and ended many times in one process, several at once, and leave nothing behind.

mod hub;

use std::fs::DirEntry;
use std::thread;
use std::time::{Duration, Instant};

use engine::{Envelope, Selector, SendMode};
use memory::Region;
use runtime::{Instance, Needs};
use wire::PeerId;

/// Sends a message to each other process of the job, and receives one from each.
fn exchange(instance: &Instance) {
    let (rank, size) = (instance.rank(), instance.size());
    let others: Vec<u32> = (0..size).filter(|other| *other != rank).collect();
    let envelope = Envelope { context: 0, source: rank, tag: 7, is_urgent: false };
    let progress = instance.progress();
    let sends = others.iter().map(|&other| {
        let bytes = Region::from_box(vec![rank as u8; LEN].into());
        progress.submit(|worker| {
            worker.engine.submit_send(PeerId(other), envelope, &bytes, SendMode::Standard)
        })
    });
    let sends: Vec<_> = sends.collect();
    for &other in &others {
        let region = Region::owned(LEN);
        let selector = Selector { context: 0, source: Some(other), tag: Some(7) };
        progress.submit_and_wait(
            |worker| worker.engine.submit_receive(Some(PeerId(other)), selector, &region),
            |worker, op| worker.take_or_await(*op),
        );
        assert_eq!(region.to_vec(), vec![other as u8; LEN]);
    }
    for send in sends {
        progress.wait(|worker| worker.take_or_await(send));
    }
}

/// Runs a job whose processes are threads of this one.
fn run_job(size: u32) {
    let processes = hub::job(size).into_iter().map(|join| {
        thread::spawn(move || {
            let needs = Needs { is_multithreaded: true, ..Needs::default() };
            let instance = Instance::new(join(), &needs).expect("an instance");
            exchange(&instance);
            instance.end().expect("an end");
        })
    });
    let processes: Vec<_> = processes.collect();
    for process in processes {
        process.join().expect("a process of the job");
    }
}

/// Number of open descriptors of this process, and its resident memory in bytes.
fn resources() -> (usize, usize) {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: usize = pages.split(' ').nth(1).expect("a field").parse().expect("a number");
    (std::fs::read_dir("/proc/self/fd").expect("procfs").count(), pages * 4096)
}

/// Waits until this process has `most` threads, since a thread that was joined is listed for another moment, and idle
/// pollers leave when they next get a core. Returns the names of the threads.
fn threads_at_most(most: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
        // A thread that ends meanwhile has no name any more.
        let name = |task: DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
        let names: Vec<String> = tasks.filter_map(name).collect();
        if names.len() <= most || began.elapsed() > THREADS_END {
            return names;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn instances_leave_nothing_behind() {
    let alone = || {
        let needs = Needs::default();
        let instance = Instance::new(hub::job(1).remove(0)(), &needs).expect("an instance");
        instance.end().expect("an end");
    };
    let rounds = 1000 * testing::budget();
    // The first rounds make what stays: caches of the allocator, lazy statics.
    for _ in 0..20 {
        alone();
        run_job(2);
    }
    threads_at_most(HARNESS_THREADS);
    let before = resources();
    for _ in 0..rounds {
        alone();
    }
    for _ in 0..rounds / 20 {
        // Two jobs side by side.
        let other = thread::spawn(|| run_job(3));
        run_job(2);
        other.join().expect("the other job");
    }
    let has_idle_pollers = threads_at_most(usize::MAX).iter().any(|name| name.contains("idle"));
    let at_once = resources();
    let names = threads_at_most(HARNESS_THREADS);
    assert_eq!(names.len(), HARNESS_THREADS, "{names:?}");
    let after = resources();
    assert_eq!(after.0, before.0, "descriptors");
    assert!(
        has_idle_pollers || at_once.0 == before.0,
        "{} descriptors are left for later",
        at_once.0
    );
    assert!(after.1 < before.1 + MEMORY_MAX, "{} bytes before, {} after", before.1, after.1);
}

const LEN: usize = 100_000;

/// Threads of the process: the first one, and that of the test.
const HARNESS_THREADS: usize = 2;

/// Time limit for threads that were joined, or told to end.
const THREADS_END: Duration = Duration::from_secs(20);

/// Growth of memory that the allocator and the kernel may cause, in bytes: less than a page per instance.
const MEMORY_MAX: usize = 4 << 20;
