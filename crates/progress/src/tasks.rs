//! What takes several operations, one after the other, and goes on without calls.
//!
//! A task begins operations of the engine and goes on when they have completed, by the hand of whichever
//! thread is there when that happens: one that waits, tests or submits, or the library's own. What it has
//! to compute in between it does without the core, so that a long reduction keeps nobody from
//! communicating, and a function of the application never runs under the library's lock.

use std::time::Duration;

use crate::core::Core;
use crate::counters::TaskSteps;
use crate::standby;

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for its operations.
    Waits,
    /// It has something to compute: [`Task::work`] is called, then [`Task::advance`] again.
    Works,
    /// Nothing more: whoever waits for it looks at what it has left.
    Ended,
}

/// An operation that is made of others.
pub trait Task: Send {
    /// Goes on as far as completed operations allow.
    fn advance(&mut self, core: &mut Core) -> Stage;

    /// Computes what has to be computed before it can go on. Nobody waits for the core meanwhile.
    fn work(&mut self);
}

/// The tasks of a process, but for those that some thread has taken to work.
#[derive(Default)]
pub(crate) struct Tasks {
    waiting: Vec<Box<dyn Task>>,
    working: Vec<Box<dyn Task>>,
    /// The engine's news when the waiting ones were last looked at.
    seen: u64,
}

impl Core {
    /// Whether something has completed for which a task may have waited.
    #[inline]
    pub(crate) fn has_due_tasks(&self) -> bool {
        !self.tasks.waiting.is_empty() && self.tasks.seen != self.engine.news()
    }

    /// Whether a task has something to compute.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.tasks.working.is_empty()
    }

    /// A task that has something to compute, to be given back by [`Core::add_task`].
    pub(crate) fn take_work(&mut self) -> Option<Box<dyn Task>> {
        let task = self.tasks.working.pop()?;
        self.task_steps().works += 1;
        Some(task)
    }

    /// It has computed for so long.
    pub(crate) fn note_work(&mut self, took: Duration) {
        self.task_steps().working += took;
    }

    /// Adds a task, which goes on at once if it can.
    pub(crate) fn add_task(&mut self, mut task: Box<dyn Task>) {
        self.task_steps().advances += 1;
        match task.advance(self) {
            Stage::Waits => self.tasks.waiting.push(task),
            Stage::Works => self.has_to_work(task),
            Stage::Ended => self.engine.submit_news(),
        }
        self.flush();
    }

    /// Adds a task, also in the middle of another's: it goes on at the next look.
    pub(crate) fn lay_aside(&mut self, task: Box<dyn Task>) {
        self.tasks.waiting.push(task);
        self.engine.submit_news();
    }

    /// What tasks did in threads of this kind.
    pub(crate) fn task_steps(&mut self) -> &mut TaskSteps {
        let counters = &mut self.counters;
        match (standby::is_this_thread(), self.is_in_call) {
            (true, _) => &mut counters.tasks_of_standby,
            (false, true) => &mut counters.tasks_of_callers,
            (false, false) => &mut counters.tasks_of_waits,
        }
    }

    fn has_to_work(&mut self, task: Box<dyn Task>) {
        self.tasks.working.push(task);
        self.has_loose_ends = true;
    }

    /// Lets all waiting tasks go on. What they submit is not sent yet.
    #[cold]
    pub(crate) fn advance_tasks(&mut self) {
        self.tasks.seen = self.engine.news();
        let mut tasks = std::mem::take(&mut self.tasks.waiting);
        self.task_steps().advances += tasks.len() as u64;
        let mut index = 0;
        while let Some(task) = tasks.get_mut(index) {
            match task.advance(self) {
                Stage::Waits => index += 1,
                Stage::Works => self.has_to_work(tasks.swap_remove(index)),
                Stage::Ended => {
                    drop(tasks.swap_remove(index));
                    self.engine.submit_news();
                }
            }
        }
        // Tasks may have laid others aside.
        tasks.append(&mut self.tasks.waiting);
        self.tasks.waiting = tasks;
    }
}
