//! Generalized requests: operations of the program's own, in requests (MPI-5.0 §13.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{EndMark, EndQueueId};
use progress::Worker;

use crate::external_end::ExternalEnd;

/// The functions of a generalized request and the state for them, as addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFunctions {
    /// Fills the status.
    pub query: usize,
    /// Frees what the request uses.
    pub free: usize,
    /// Begins to cancel the operation.
    pub cancel: usize,
    /// Passed to all of them.
    pub extra_state: usize,
}

/// A generalized request. Clones are the same request.
#[derive(Clone, Debug)]
pub struct GeneralizedRequest(Arc<GeneralizedState>);

#[derive(Debug)]
struct GeneralizedState {
    functions: RequestFunctions,
    end: ExternalEnd<()>,
    /// True if the program has freed the request before its end. Used with the lock of the table.
    is_freed: AtomicBool,
}

impl GeneralizedRequest {
    /// The program's functions.
    pub fn functions(&self) -> RequestFunctions {
        self.0.functions
    }

    pub(crate) fn new(functions: RequestFunctions) -> Self {
        let (end, is_freed) = (ExternalEnd::default(), AtomicBool::new(false));
        Self(Arc::new(GeneralizedState { functions, end, is_freed }))
    }

    /// True if the operation is complete.
    pub fn is_complete(&self) -> bool {
        self.0.end.result().is_some()
    }

    /// True if the program has freed the request before its end.
    pub(crate) fn is_freed(&self) -> bool {
        self.0.is_freed.load(Ordering::Relaxed)
    }

    /// Ends the operation; false if it has ended. Used with the lock of the table.
    pub(crate) fn complete(&self) -> bool {
        self.0.end.set(())
    }

    /// Notes that the program has freed the request; false if it had before. Used with the lock of the table.
    pub(crate) fn set_freed(&self) -> bool {
        !self.0.is_freed.swap(true, Ordering::Relaxed)
    }

    /// Tells those who wait for the request that it is complete.
    pub(crate) fn announce(&self, worker: &mut Worker) {
        self.0.end.announce(worker);
    }

    pub(crate) fn register_end(&self, worker: &mut Worker, mark: EndMark) -> Option<u32> {
        self.0.end.register(worker, mark)
    }

    pub(crate) fn forget_end(&self, worker: &mut Worker, queue: EndQueueId) {
        self.0.end.forget(worker, queue);
    }
}
