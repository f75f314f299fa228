//! Tasks: sequences of operations that advance without calls.
//!
//! A task begins operations of the engine and goes on when they have completed. The thread at hand advances it: one
//! that waits, tests or submits, or the progress thread. Its computations run without the worker's lock, so that a
//! long reduction blocks no communication, and a function of the application never runs under the library's lock.

use std::time::Duration;

use crate::counters::TaskSteps;
use crate::locality::{Distance, Locality, NearestFirst, WorkCore};
use crate::progress_thread;
use crate::worker::Worker;

/// Next step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStage {
    /// Waits for its operations.
    Waits,
    /// Has something to compute: [`Task::work`] is called, then [`Task::advance`] again.
    Works,
    /// Has ended; a thread that waits for the task looks at its results.
    Ended,
}

/// An operation that consists of others.
pub trait Task: Send {
    /// Advances as far as completed operations allow.
    fn advance(&mut self, worker: &mut Worker) -> TaskStage;

    /// Computes what it needs before it can go on, without the worker's lock.
    fn work(&mut self);
}

/// The tasks of a process, except those taken by a thread to compute.
#[derive(Default)]
pub(crate) struct Tasks {
    waiting: Vec<Box<dyn Task>>,
    /// Tasks that have to compute, each with the place where it was offered.
    working: Vec<(WorkCore, Box<dyn Task>)>,
    choice: NearestFirst,
    /// The engine's event count when the waiting tasks were last checked.
    seen: u64,
}

impl Tasks {
    /// Takes the nearest task that has to compute, the newest among equals, and returns its distance.
    fn take(&mut self, locality: &Locality, here: WorkCore) -> Option<(Distance, Box<dyn Task>)> {
        let far = self.working.iter().map(|(place, _)| locality.distance(here, *place));
        let (index, distance) = self.choice.take(far.enumerate().rev())?;
        Some((distance, self.working.remove(index).1))
    }
}

impl Worker {
    /// True if something has completed for which a task may have waited.
    #[inline]
    pub(crate) fn has_due_tasks(&self) -> bool {
        !self.tasks.waiting.is_empty() && self.tasks.seen != self.engine.event_count()
    }

    /// True if a task has something to compute.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.tasks.working.is_empty()
    }

    /// Takes the nearest task that has something to compute, the newest among equals. The caller returns it by
    /// [`Worker::add_task`].
    pub(crate) fn take_work(&mut self) -> Option<Box<dyn Task>> {
        let (distance, task) = self.tasks.take(&self.locality, self.locality.here())?;
        self.counters.note_taken(distance);
        self.task_steps().works += 1;
        Some(task)
    }

    /// Adds the time of a computation to the counters.
    pub(crate) fn note_work(&mut self, took: Duration) {
        self.task_steps().working += took;
    }

    /// Adds a task, which advances at once if it can.
    pub(crate) fn add_task(&mut self, mut task: Box<dyn Task>) {
        self.task_steps().advances += 1;
        match task.advance(self) {
            TaskStage::Waits => self.tasks.waiting.push(task),
            TaskStage::Works => self.has_to_work(task),
            TaskStage::Ended => self.engine.submit_event(),
        }
        self.flush();
    }

    /// Adds a task, also while another one advances; it advances at the next check.
    pub(crate) fn queue_task(&mut self, task: Box<dyn Task>) {
        self.tasks.waiting.push(task);
        self.engine.submit_event();
    }

    /// Returns the task counters for the kind of the calling thread.
    pub(crate) fn task_steps(&mut self) -> &mut TaskSteps {
        let counters = &mut self.counters;
        match (progress_thread::is_this_thread(), self.is_in_call) {
            (true, _) => &mut counters.tasks_by_progress_thread,
            (false, true) => &mut counters.tasks_in_calls,
            (false, false) => &mut counters.tasks_in_waits,
        }
    }

    fn has_to_work(&mut self, task: Box<dyn Task>) {
        self.tasks.working.push((self.locality.here(), task));
        self.has_loose_ends = true;
    }

    /// Advances all waiting tasks. Their submissions are not sent yet.
    #[cold]
    pub(crate) fn advance_tasks(&mut self) {
        self.tasks.seen = self.engine.event_count();
        let mut tasks = std::mem::take(&mut self.tasks.waiting);
        self.task_steps().advances += tasks.len() as u64;
        let mut index = 0;
        while let Some(task) = tasks.get_mut(index) {
            match task.advance(self) {
                TaskStage::Waits => index += 1,
                TaskStage::Works => self.has_to_work(tasks.swap_remove(index)),
                TaskStage::Ended => {
                    drop(tasks.swap_remove(index));
                    self.engine.submit_event();
                }
            }
        }
        // Tasks may have added others meanwhile.
        tasks.append(&mut self.tasks.waiting);
        self.tasks.waiting = tasks;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::locality::made_up;

    struct Numbered(usize, Arc<AtomicUsize>);

    impl Task for Numbered {
        fn advance(&mut self, _: &mut Worker) -> TaskStage {
            TaskStage::Ended
        }

        fn work(&mut self) {
            self.1.store(self.0, Ordering::Relaxed);
        }
    }

    /// Returns the order in which a thread on `core` takes tasks offered on these cores.
    fn order(core: usize, offered: &[usize]) -> Vec<usize> {
        let (locality, at) = (made_up::machine(), made_up::at);
        let worked = Arc::new(AtomicUsize::new(0));
        let mut tasks = Tasks::default();
        for (number, core) in offered.iter().enumerate() {
            let task = Numbered(number, Arc::clone(&worked));
            tasks.working.push((at(*core), Box::new(task)));
        }
        let number = |task: &mut Box<dyn Task>| {
            task.work();
            worked.load(Ordering::Relaxed)
        };
        let taken = std::iter::from_fn(|| tasks.take(&locality, at(core)));
        taken.map(|(_, mut task)| number(&mut task)).collect()
    }

    #[test]
    fn nearest_task_is_taken_first_and_the_newest_among_equals() {
        let offered = [9, 1, 5, 4, 2, 10];
        assert_eq!(order(2, &offered), [4, 1, 3, 2, 5, 0]);
        assert_eq!(order(8, &offered), [5, 0, 4, 3, 2, 1]);
        assert_eq!(order(2, &[9, 15]), [1, 0], "only far ones");
    }
}
