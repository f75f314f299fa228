//! Threads for operations that may wait for a disk.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// A pool of threads, started as they are needed.
#[derive(Debug, Default)]
pub struct Pool(Arc<PoolState>);

/// Work of a thread.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug, Default)]
struct PoolState {
    queue: Mutex<Jobs>,
    /// Signals a job, or the end.
    event: Condvar,
}

/// Work of the pool. Each job is an operation that the application has begun and must complete, which bounds them.
#[derive(Default)]
struct Jobs {
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    has_ended: bool,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (jobs, threads) = (self.jobs.len(), self.threads.len());
        f.debug_struct("Jobs").field("jobs", &jobs).field("threads", &threads).finish()
    }
}

impl Pool {
    /// Runs a job on a thread of the pool. Without threads, as after [`Pool::end`], the caller runs it.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        if !queue.has_ended && queue.idle <= queue.jobs.len() && queue.threads.len() < THREADS_MAX {
            // Where no thread can be started, those that there are do the work.
            let started = self.start_thread();
            queue.threads.extend(started);
        }
        if queue.threads.is_empty() {
            drop(queue);
            return job();
        }
        self.push(queue, Box::new(job));
    }

    /// Starts all threads. False if none could be started.
    pub fn start(&self) -> bool {
        let mut queue = self.0.lock();
        while !queue.has_ended && queue.threads.len() < THREADS_MAX {
            let Some(started) = self.start_thread() else { break };
            queue.threads.push(started);
        }
        !queue.threads.is_empty()
    }

    /// Runs a job on a thread of the pool that has been started, for a caller that must not run it. False without threads, as
    /// after [`Pool::end`].
    pub fn offer(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let queue = self.0.lock();
        let has_threads = !queue.threads.is_empty();
        if has_threads {
            self.push(queue, Box::new(job));
        }
        has_threads
    }

    fn start_thread(&self) -> Option<JoinHandle<()>> {
        let state = Arc::clone(&self.0);
        let builder = thread::Builder::new().name("canele-io".into()).stack_size(STACK_BYTES);
        cpu::without_signals(|| builder.spawn(move || state.work())).ok()
    }

    fn push(&self, mut queue: MutexGuard<'_, Jobs>, job: Job) {
        queue.jobs.push_back(job);
        drop(queue);
        self.0.event.notify_one();
    }

    /// Completes all jobs and ends the threads.
    pub fn end(&self) {
        let threads = {
            let mut queue = self.0.lock();
            queue.has_ended = true;
            std::mem::take(&mut queue.threads)
        };
        self.0.event.notify_all();
        for thread in threads {
            // A job that panicked has reported itself.
            let _ = thread.join();
        }
    }
}

impl PoolState {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs jobs until the pool ends.
    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.lock();
            } else if queue.has_ended {
                return;
            } else {
                queue.idle += 1;
                queue = self.event.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

/// Maximum number of threads: as many operations as disks of a node gain from.
const THREADS_MAX: usize = 4;
/// Stack of a thread in bytes.
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn all_jobs_run_before_the_end_and_after_it() {
        let (pool, done) = (Pool::default(), Arc::new(AtomicU32::new(0)));
        let job = || {
            let done = Arc::clone(&done);
            move || {
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        (0..100).for_each(|_| pool.run(job()));
        pool.end();
        assert_eq!(done.load(Ordering::Relaxed), 100);
        pool.run(job());
        assert_eq!(done.load(Ordering::Relaxed), 101);
        assert!(!pool.start() && !pool.offer(job()), "it has ended");
        let pool = Pool::default();
        assert!(!pool.offer(job()), "no thread has been started");
        assert!(pool.start() && pool.offer(job()));
        pool.end();
        assert_eq!(done.load(Ordering::Relaxed), 102);
    }
}
