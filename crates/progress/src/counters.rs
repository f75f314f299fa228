//! Counts the work of progress.
//!
//! The thread that holds the worker's lock counts, so all counts are plain additions. They need no clock readings
//! except next to system calls: a wait knows its spinning and yielding times from the clock readings that it makes
//! anyway.

use std::ops::Add;
use std::time::Duration;

use crate::locality::Distance;

/// Counts of the work of a process for its communication. Guarded by the worker's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Polls of the rails by all threads.
    pub polls: u64,
    /// Polls by calls that test.
    pub polls_by_tests: u64,
    /// Polls by the progress thread.
    pub polls_by_progress_thread: u64,
    /// Checks of the progress thread if it is needed.
    pub looks_by_progress_thread: u64,
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
    pub sleeps_of_progress_thread: u64,
    /// Time of the progress thread's sleeps.
    pub progress_thread_sleeping: Duration,
    /// Wake-ups of a thread that sleeps on the rails by another thread of its process.
    pub bells: u64,
    /// Looks of the idle pollers, counted as far as they have gone to rest.
    pub looks_by_idle: u64,
    /// Wake-ups of sleeping threads by the idle pollers.
    pub rings_by_idle: u64,
    /// Times that the ranks began or ceased to outnumber the available cores.
    pub changes_of_cores: u64,
    /// Sends and receives that threads left to another thread that held the lock.
    pub left_to_others: u64,
    /// Waits left to another thread that polls.
    pub waits_for_others: u64,
    /// Those of the waits left to others that ended because they were complete, or because the thread had to poll
    /// itself.
    pub woken: u64,
    /// Work of tasks and pieces to copy that threads took on the core where it was offered,
    pub taken_on_core: u64,
    /// elsewhere in its domain, or in the only domain,
    pub taken_in_domain: u64,
    /// in another domain of its NUMA node,
    pub taken_in_node: u64,
    /// and in another NUMA node.
    pub taken_afar: u64,
    /// Work of tasks and copies in calls that submit or test,
    pub tasks_of_callers: TaskSteps,
    /// in waiting threads,
    pub tasks_of_waits: TaskSteps,
    /// and in the progress thread.
    pub tasks_of_progress_thread: TaskSteps,
}

impl Counters {
    /// Counts work taken at this distance from the core where it was offered.
    pub(crate) fn note_taken(&mut self, distance: Distance) {
        *match distance {
            Distance::Worker => &mut self.taken_on_core,
            Distance::Domain => &mut self.taken_in_domain,
            Distance::Node => &mut self.taken_in_node,
            Distance::Machine => &mut self.taken_afar,
        } += 1;
    }
}

/// Sum over several communications of a process.
impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            polls: self.polls + other.polls,
            polls_by_tests: self.polls_by_tests + other.polls_by_tests,
            polls_by_progress_thread: self.polls_by_progress_thread
                + other.polls_by_progress_thread,
            looks_by_progress_thread: self.looks_by_progress_thread
                + other.looks_by_progress_thread,
            spinning: self.spinning + other.spinning,
            yields: self.yields + other.yields,
            yielding: self.yielding + other.yielding,
            sleeps: self.sleeps + other.sleeps,
            sleeping: self.sleeping + other.sleeping,
            sleeps_of_progress_thread: self.sleeps_of_progress_thread
                + other.sleeps_of_progress_thread,
            progress_thread_sleeping: self.progress_thread_sleeping
                + other.progress_thread_sleeping,
            bells: self.bells + other.bells,
            looks_by_idle: self.looks_by_idle + other.looks_by_idle,
            rings_by_idle: self.rings_by_idle + other.rings_by_idle,
            changes_of_cores: self.changes_of_cores + other.changes_of_cores,
            left_to_others: self.left_to_others + other.left_to_others,
            waits_for_others: self.waits_for_others + other.waits_for_others,
            woken: self.woken + other.woken,
            taken_on_core: self.taken_on_core + other.taken_on_core,
            taken_in_domain: self.taken_in_domain + other.taken_in_domain,
            taken_in_node: self.taken_in_node + other.taken_in_node,
            taken_afar: self.taken_afar + other.taken_afar,
            tasks_of_callers: self.tasks_of_callers + other.tasks_of_callers,
            tasks_of_waits: self.tasks_of_waits + other.tasks_of_waits,
            tasks_of_progress_thread: self.tasks_of_progress_thread
                + other.tasks_of_progress_thread,
        }
    }
}

/// Work of tasks and copies in one kind of thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

impl Add for TaskSteps {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            advances: self.advances + other.advances,
            works: self.works + other.works,
            working: self.working + other.working,
            pieces: self.pieces + other.pieces,
            copying: self.copying + other.copying,
        }
    }
}
