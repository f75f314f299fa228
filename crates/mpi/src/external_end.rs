//! Ends of work that runs outside the engine.

use std::sync::OnceLock;

use engine::{EndMark, EndMarks, EndQueueId};
use lock::Lock;
use progress::Worker;

/// The result of such work, once it has ended, and the queues of the first VCI's worker that are told of it.
#[derive(Debug)]
pub(crate) struct ExternalEnd<T> {
    result: OnceLock<T>,
    /// Used with the lock of the first VCI's worker.
    marks: Lock<EndMarks>,
}

impl<T> Default for ExternalEnd<T> {
    fn default() -> Self {
        Self { result: OnceLock::new(), marks: Lock::default() }
    }
}

impl<T> ExternalEnd<T> {
    /// Records the result. False if there is one.
    pub fn set(&self, result: T) -> bool {
        self.result.set(result).is_ok()
    }

    /// The result, if the work has ended.
    pub fn result(&self) -> Option<&T> {
        self.result.get()
    }

    /// Tells those who wait for the work that it has a result.
    pub fn announce(&self, worker: &mut Worker) {
        self.marks.lock().note(&mut worker.engine);
        worker.engine.submit_event();
    }

    /// Lets a place enter a queue of the first VCI's worker at the end, or at once; see [`EndMarks::register`].
    pub fn register(&self, worker: &mut Worker, mark: EndMark) -> Option<u32> {
        self.marks.lock().register(&mut worker.engine, mark, self.result.get().is_some())
    }

    /// Takes back [`ExternalEnd::register`], unless the work has ended.
    pub fn forget(&self, worker: &mut Worker, queue: EndQueueId) {
        self.marks.lock().forget(&mut worker.engine, queue);
    }
}
