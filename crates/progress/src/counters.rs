//! Counts the work of progress.
//!
//! The thread that holds the worker's lock counts, so all counts are plain additions. They need no clock readings
//! except next to system calls: a wait knows its spinning and yielding times from the clock readings that it makes
//! anyway.

use std::time::Duration;

use engine::counters;

use crate::locality::Distance;

counters! {
    /// Counts of the work of one VCI, or of all VCIs of a process. Guarded by the worker's lock.
    pub struct Counters {
        /// Polls of the rails by all threads.
        pub polls: u64,
        /// Polls by calls that test.
        pub polls_by_tests: u64,
        /// Polls by the progress thread.
        pub polls_by_progress_thread: u64,
        /// Checks of the progress thread if it is needed.
        pub checks_by_progress_thread: u64,
        /// Time that waiting threads spent spinning, as far as a spin was long enough for a clock reading.
        pub spinning: Duration,
        /// Yields of waiting threads that went on polling.
        pub yields: u64,
        /// Time that these yields took.
        pub yielding: Duration,
        /// Sleeps in the kernel of the thread that polls for all.
        pub sleeps: u64,
        /// Time of these sleeps.
        pub sleeping: Duration,
        /// Sleeps in the kernel of the progress thread.
        pub sleeps_by_progress_thread: u64,
        /// Time of the progress thread's sleeps.
        pub progress_thread_sleeping: Duration,
        /// Wake-ups of a thread that sleeps on the rails by another thread of its process.
        pub wakeups: u64,
        /// Polls by idle pollers, counted when they go to rest.
        pub polls_by_idle_pollers: u64,
        /// Wake-ups of sleeping threads by the idle pollers.
        pub wakeups_by_idle_pollers: u64,
        /// Times that the ranks began or ceased to outnumber the available cores.
        pub oversubscription_changes: u64,
        /// Sends and receives that threads left to another thread that held the lock.
        pub submissions_delegated: u64,
        /// Waits left to another thread that polls.
        pub waits_without_polling: u64,
        /// Those of the waits left to others that ended because they were complete, or because the thread had to poll
        /// itself.
        pub woken: u64,
        /// Requests that calls for any or some of several looked at.
        pub request_looks: u64,
        /// Work of tasks and pieces to copy that threads took on the core where it was offered,
        pub work_stolen_same_core: u64,
        /// elsewhere in its domain, or in the only domain,
        pub work_stolen_same_cache: u64,
        /// in another domain of its NUMA node,
        pub work_stolen_same_numa: u64,
        /// and in another NUMA node.
        pub work_stolen_remote_numa: u64,
        /// Work of tasks and copies in calls that submit or test,
        pub tasks_in_calls: TaskSteps,
        /// in waiting threads,
        pub tasks_in_waits: TaskSteps,
        /// and in the progress thread.
        pub tasks_by_progress_thread: TaskSteps,
    }
}

impl Counters {
    /// Counts work taken at this distance from the core where it was offered.
    pub(crate) fn note_taken(&mut self, distance: Distance) {
        *match distance {
            Distance::SameCore => &mut self.work_stolen_same_core,
            Distance::Domain => &mut self.work_stolen_same_cache,
            Distance::Node => &mut self.work_stolen_same_numa,
            Distance::Machine => &mut self.work_stolen_remote_numa,
        } += 1;
    }
}

counters! {
    /// Work of tasks and copies in one kind of thread.
    pub struct TaskSteps {
        /// Number of times that they were advanced.
        pub advances: u64,
        /// Number of computations,
        pub works: u64,
        /// and the time that they took.
        pub working: Duration,
        /// Pieces of messages copied from their sender's memory,
        pub pieces: u64,
        /// and the time that these copies took.
        pub copying: Duration,
    }
}
