//! Accesses to files that run on other threads.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use engine::{EndMark, EndMarks, EndQueueId};
use handles::Handle;
use progress::Worker;

use crate::{Error, Result};

/// An access that runs on a thread of the pool, and the file for its errors. Clones are the same access.
#[derive(Clone, Debug)]
pub struct PendingTransfer {
    end: Arc<TransferEnd>,
    file: Handle,
}

#[derive(Debug, Default)]
struct TransferEnd {
    result: OnceLock<Result<u64>>,
    /// Queues that are told of the end; used with the lock of the first VCI's worker.
    marks: Mutex<EndMarks>,
}

impl PendingTransfer {
    pub(super) fn new(file: Handle) -> Self {
        Self { end: Arc::default(), file }
    }

    /// Records the result.
    pub(super) fn set(&self, result: Result<u64>) {
        // An access ends once.
        let _ = self.end.result.set(result.map_err(|error| error.on(self.file)));
    }

    /// Tells those who wait for it that it has a result.
    pub(super) fn announce(&self, worker: &mut Worker) {
        self.marks().note(&mut worker.engine);
        worker.engine.submit_event();
    }

    /// Lets a place enter a queue of the first VCI's worker at the end, or at once; see [`EndMarks::register`].
    pub(crate) fn register_end(&self, worker: &mut Worker, mark: EndMark) -> Option<u32> {
        self.marks().register(&mut worker.engine, mark, self.end.result.get().is_some())
    }

    /// Takes back [`PendingTransfer::register_end`], unless it has ended.
    pub(crate) fn forget_end(&self, worker: &mut Worker, queue: EndQueueId) {
        self.marks().forget(&mut worker.engine, queue);
    }

    fn marks(&self) -> MutexGuard<'_, EndMarks> {
        self.end.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result, if the access has ended.
    pub(super) fn result(&self) -> Option<Result<u64>> {
        self.end.result.get().cloned()
    }

    /// Number of bytes moved and the error, if the access has ended.
    pub(crate) fn end(&self) -> Option<(u64, Option<Error>)> {
        Some(match self.result()? {
            Ok(bytes) => (bytes, None),
            Err(error) => (0, Some(error)),
        })
    }
}
