//! Accesses to files that run on other threads.

use std::sync::Arc;

use engine::{EndMark, EndQueueId};
use handles::Handle;
use progress::Worker;

use crate::external_end::ExternalEnd;
use crate::{Error, Result};

/// An access that runs on a thread of the pool, and the file for its errors. Clones are the same access.
#[derive(Clone, Debug)]
pub struct PendingTransfer {
    end: Arc<ExternalEnd<Result<u64>>>,
    file: Handle,
}

impl PendingTransfer {
    pub(super) fn new(file: Handle) -> Self {
        Self { end: Arc::default(), file }
    }

    /// Records the result.
    pub(super) fn set(&self, result: Result<u64>) {
        // An access ends once.
        self.end.set(result.map_err(|error| error.on(self.file)));
    }

    /// Tells those who wait for it that it has a result.
    pub(super) fn announce(&self, worker: &mut Worker) {
        self.end.announce(worker);
    }

    /// Lets a place enter a queue of the first VCI's worker at the end, or at once.
    pub(crate) fn register_end(&self, worker: &mut Worker, mark: EndMark) -> Option<u32> {
        self.end.register(worker, mark)
    }

    /// Takes back [`PendingTransfer::register_end`], unless it has ended.
    pub(crate) fn forget_end(&self, worker: &mut Worker, queue: EndQueueId) {
        self.end.forget(worker, queue);
    }

    /// The result, if the access has ended.
    pub(super) fn result(&self) -> Option<Result<u64>> {
        self.end.result().cloned()
    }

    /// Number of bytes moved and the error, if the access has ended.
    pub(crate) fn end(&self) -> Option<(u64, Option<Error>)> {
        Some(match self.result()? {
            Ok(bytes) => (bytes, None),
            Err(error) => (0, Some(error)),
        })
    }
}
