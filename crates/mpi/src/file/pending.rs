//! Accesses to files that run on other threads.

use std::sync::{Arc, OnceLock};

use handles::Handle;

use crate::{Error, Result};

/// An access that runs on a thread of the pool, and the file for its errors. Clones are the same access.
#[derive(Clone, Debug)]
pub struct PendingTransfer {
    end: Arc<OnceLock<Result<u64>>>,
    file: Handle,
}

impl PendingTransfer {
    pub(super) fn new(file: Handle) -> Self {
        Self { end: Arc::default(), file }
    }

    /// Records the result.
    pub(super) fn set(&self, result: Result<u64>) {
        // An access ends once.
        let _ = self.end.set(result.map_err(|error| error.on(self.file)));
    }

    /// The result, if the access has ended.
    pub(super) fn result(&self) -> Option<Result<u64>> {
        self.end.get().cloned()
    }

    /// Number of bytes moved and the error, if the access has ended.
    pub(crate) fn end(&self) -> Option<(u64, Option<Error>)> {
        Some(match self.result()? {
            Ok(bytes) => (bytes, None),
            Err(error) => (0, Some(error)),
        })
    }
}
