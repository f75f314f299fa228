//! Tasks: sequences of operations that advance without calls.
//!
//! A task begins operations of the engine and goes on when they have completed. The thread at hand advances it: one
//! that waits, tests or submits, or the progress thread. Its computations run without the worker's lock, so that a
//! long reduction blocks no communication, and a function of the application never runs under the library's lock.

use std::time::Duration;

use engine::{EndMark, EndQueueId, Engine, OpId};

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

    /// The operation without whose end a waiting task cannot go on; any event may be awaited if there is none.
    fn awaited(&self) -> Option<OpId> {
        None
    }
}

/// The tasks of a process, except those taken by a thread to compute.
pub(crate) struct Tasks {
    /// Tasks that advance after any event.
    waiting: Vec<Box<dyn Task>>,
    /// Tasks that advance at the end of one operation, by their places in `ends`.
    parked: Vec<Option<Box<dyn Task>>>,
    /// Unused places.
    free: Vec<u32>,
    /// Number of tasks that wait, for any event or for an operation.
    idle: usize,
    /// The operations that have ended.
    ends: EndQueueId,
    /// Tasks that have to compute, each with the place where it was offered.
    working: Vec<(WorkCore, Box<dyn Task>)>,
    choice: NearestFirst,
    /// The engine's event count when the waiting tasks were last checked.
    seen: u64,
}

impl Tasks {
    pub fn new(engine: &mut Engine) -> Self {
        Self {
            waiting: Vec::new(),
            parked: Vec::new(),
            free: Vec::new(),
            idle: 0,
            ends: engine.open_end_queue(),
            working: Vec::new(),
            choice: NearestFirst::default(),
            seen: 0,
        }
    }

    fn are_due(&self, engine: &Engine) -> bool {
        engine.ends_in(self.ends) > 0
            || (!self.waiting.is_empty() && self.seen != engine.event_count())
    }

    /// Takes the nearest task that has to compute, the newest among equals, and returns its distance.
    fn take(&mut self, locality: &Locality, here: WorkCore) -> Option<(Distance, Box<dyn Task>)> {
        if locality.is_uniform() {
            let index = self.choice.take_of_equals(self.working.len())?;
            return Some((locality.distance(here, here), self.working.remove(index).1));
        }
        let far = self.working.iter().map(|(place, _)| locality.distance(here, *place));
        let (index, distance) = self.choice.take(far.enumerate().rev())?;
        Some((distance, self.working.remove(index).1))
    }
}

impl Worker {
    /// True if something has completed for which a task may have waited.
    #[inline]
    pub(crate) fn has_due_tasks(&self) -> bool {
        self.tasks.idle != 0 && self.tasks.are_due(&self.engine)
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
    pub fn add_task(&mut self, task: Box<dyn Task>) {
        self.advance_task(task);
        self.flush();
    }

    /// Keeps a task until the event that it waits for.
    fn park(&mut self, task: Box<dyn Task>) {
        let Self { engine, tasks, .. } = self;
        tasks.idle += 1;
        let Some(op) = task.awaited().filter(|op| engine.is_pending(*op)) else {
            return tasks.waiting.push(task);
        };
        let place = tasks.free.pop().unwrap_or_else(|| {
            tasks.parked.push(None);
            tasks.parked.len() as u32 - 1
        });
        tasks.parked[place as usize] = Some(task);
        engine.expect_end_of(op, EndMark { queue: tasks.ends, place });
    }

    /// Lets all tasks advance, whatever they wait for.
    pub(crate) fn rouse_tasks(&mut self) {
        let Tasks { waiting, parked, free, .. } = &mut self.tasks;
        waiting.extend(parked.drain(..).flatten());
        free.clear();
        self.engine.submit_event();
    }

    /// Adds a task, also while another one advances; it advances at the next check.
    pub(crate) fn queue_task(&mut self, task: Box<dyn Task>) {
        self.tasks.idle += 1;
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

    /// Advances the tasks whose operations have ended, and those that wait for any event. Their submissions are not
    /// sent yet.
    #[cold]
    pub(crate) fn advance_tasks(&mut self) {
        self.tasks.seen = self.engine.event_count();
        // What ends meanwhile is for the next time, after the submissions have been sent.
        for _ in 0..self.engine.ends_in(self.tasks.ends) {
            let Some(place) = self.engine.next_end(self.tasks.ends) else { break };
            // A roused task has left its place.
            if let Some(task) = self.tasks.parked.get_mut(place as usize).and_then(Option::take) {
                self.tasks.free.push(place);
                self.tasks.idle -= 1;
                self.advance_task(task);
            }
        }
        let waiting = std::mem::take(&mut self.tasks.waiting);
        self.tasks.idle -= waiting.len();
        for task in waiting {
            self.advance_task(task);
        }
    }

    fn advance_task(&mut self, mut task: Box<dyn Task>) {
        self.task_steps().advances += 1;
        match task.advance(self) {
            TaskStage::Waits => self.park(task),
            TaskStage::Works => self.has_to_work(task),
            TaskStage::Ended => self.engine.submit_event(),
        }
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
        let mut tasks = Tasks::new(&mut Engine::new(engine::Config::new(1)));
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
    fn oldest_task_is_taken_after_many_newer_ones_whatever_the_machine() {
        let uniform = Locality::default();
        for locality in [&uniform, &made_up::machine()] {
            let worked = Arc::new(AtomicUsize::new(0));
            let mut tasks = Tasks::new(&mut Engine::new(engine::Config::new(1)));
            let mut taken = Vec::new();
            for number in 0..200 {
                let task = Box::new(Numbered(number, Arc::clone(&worked)));
                tasks.working.push((made_up::at(0), task));
                if number >= 100 {
                    let (_, mut task) = tasks.take(locality, made_up::at(0)).unwrap();
                    task.work();
                    taken.push(worked.load(Ordering::Relaxed));
                }
            }
            let newest = (100..200).map(|number| if number == 164 { 0 } else { number });
            assert!(taken.into_iter().eq(newest));
        }
    }

    #[test]
    fn nearest_task_is_taken_first_and_the_newest_among_equals() {
        let offered = [9, 1, 5, 4, 2, 10];
        assert_eq!(order(2, &offered), [4, 1, 3, 2, 5, 0]);
        assert_eq!(order(8, &offered), [5, 0, 4, 3, 2, 1]);
        assert_eq!(order(2, &[9, 15]), [1, 0], "only far ones");
    }
}
