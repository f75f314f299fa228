//! What progress has done so far.
//!
//! Whoever holds the worker counts, so all of it is plain additions. No clock is read for it but beside calls of the
//! kernel: what a thread spins, or loses by yielding, is known where a wait looks at the clock for its own sake.

use std::ops::Add;
use std::time::Duration;

use crate::locality::Distance;

/// What a process has done for its communication; guarded as the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Looks at the rails, by all threads.
    pub polls: u64,
    /// Those of calls that test.
    pub polls_by_tests: u64,
    /// Those of the progress thread.
    pub polls_by_progress_thread: u64,
    /// How often the progress thread looked whether it is needed.
    pub looks_by_progress_thread: u64,
    /// What threads spun that wait, polling, as far as it took long enough to look at the clock.
    pub spinning: Duration,
    /// How often a thread that waits gave its core to others, and went on polling.
    pub yields: u64,
    /// What that took.
    pub yielding: Duration,
    /// Sleeps in the kernel of the thread that polls for all.
    pub sleeps: u64,
    /// What they took.
    pub sleeping: Duration,
    /// Sleeps in the kernel of the progress thread.
    pub sleeps_of_progress_thread: u64,
    /// What they took.
    pub progress_thread_sleeping: Duration,
    /// How often a thread that sleeps on the rails was woken by another of its process.
    pub bells: u64,
    /// Looks of threads that look on from cores nobody wants, as far as they rest.
    pub looks_by_idle: u64,
    /// How often they rang for who sleeps.
    pub rings_by_idle: u64,
    /// How often ranks were found to be more than the cores that they have now, or not to be so any more.
    pub changes_of_cores: u64,
    /// Sends and receives that threads left to another that had the core.
    pub left_to_others: u64,
    /// Waits left to another thread that polls.
    pub waits_for_others: u64,
    /// Of those, what ended because it was over, or because it was this thread's turn to poll.
    pub woken: u64,
    /// What threads took of what tasks have to compute and of pieces to copy: on the core where it was offered,
    pub taken_on_core: u64,
    /// elsewhere in its domain, or where there is only one,
    pub taken_in_domain: u64,
    /// in another of its node of memory,
    pub taken_in_node: u64,
    /// and in another node.
    pub taken_afar: u64,
    /// What tasks and copies did in calls that submit or test,
    pub tasks_of_callers: TaskSteps,
    /// in threads that wait,
    pub tasks_of_waits: TaskSteps,
    /// and in the progress thread.
    pub tasks_of_progress_thread: TaskSteps,
}

impl Counters {
    /// Work was taken so far from where it was offered.
    pub(crate) fn note_taken(&mut self, distance: Distance) {
        *match distance {
            Distance::Worker => &mut self.taken_on_core,
            Distance::Domain => &mut self.taken_in_domain,
            Distance::Node => &mut self.taken_in_node,
            Distance::Machine => &mut self.taken_afar,
        } += 1;
    }
}

/// Of several communications of a process.
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

/// What tasks and copies did in one kind of thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskSteps {
    /// How often they were asked to go on.
    pub advances: u64,
    /// How often they computed,
    pub works: u64,
    /// and what that took.
    pub working: Duration,
    /// Pieces of messages that were copied from their sender's memory,
    pub pieces: u64,
    /// and what that took.
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
