//! Operations on windows that requests stand for.

use engine::{EndMark, EndQueueId, OpId};
use handles::Handle;
use lock::Lock;
use progress::Worker;
use rma::AccessFault;

use crate::{Error, ErrorClass};

/// An operation that a request stands for, and the window for its errors.
#[derive(Debug)]
pub struct PendingAccess {
    /// Locked after the worker.
    state: Lock<State>,
    window: Handle,
}

#[derive(Debug)]
enum State {
    Pending(rma::PendingAccess),
    Ended(Option<Error>),
}

impl PendingAccess {
    pub(super) fn new(pending: rma::PendingAccess, window: Handle) -> Self {
        Self { state: Lock::new(State::Pending(pending)), window }
    }

    /// The result, if the operation is complete: `None` or the error.
    pub(crate) fn end(&self, worker: &mut Worker) -> Option<Option<Error>> {
        let mut state = self.state.lock();
        if let State::Pending(pending) = &mut *state {
            let result = pending.poll(worker)?;
            *state = State::Ended(result.err().map(|fault| Error::from(fault).on(self.window)));
        }
        match &*state {
            State::Pending(_) => None,
            State::Ended(error) => Some(error.clone()),
        }
    }

    /// Lets a place enter a queue of the window's worker when an operation ends, at once if all have. Returns the former
    /// place, if it was registered there before.
    pub(crate) fn register_end(&self, worker: &mut Worker, mark: EndMark) -> Option<u32> {
        let ops = self.ops();
        if ops.is_empty() {
            worker.engine.expect_end(mark.queue);
            worker.engine.note_end(mark);
        }
        ops.into_iter().fold(None, |former, op| former.or(worker.engine.expect_end_of(op, mark)))
    }

    /// Takes back [`PendingAccess::register_end`], unless they have ended.
    pub(crate) fn forget_end(&self, worker: &mut Worker, queue: EndQueueId) {
        self.ops().into_iter().for_each(|op| worker.engine.forget_end_of(op, queue));
    }

    fn ops(&self) -> Vec<OpId> {
        match &*self.state.lock() {
            State::Pending(pending) => pending.ops().collect(),
            State::Ended(_) => Vec::new(),
        }
    }
}

impl From<AccessFault> for Error {
    #[cold]
    fn from(fault: AccessFault) -> Self {
        let (class, message) = match fault {
            AccessFault::Range { rank, first, end, len } => (
                ErrorClass::RmaRange,
                format!(
                    "bytes {first} to {end} lie outside the {len} bytes of rank {rank}'s window"
                ),
            ),
            AccessFault::PeerFailed(rank) => {
                (ErrorClass::ProcAborted, format!("rank {rank} of the window is gone"))
            }
            AccessFault::HolderFailed(rank) => (
                ErrorClass::ProcAborted,
                format!("a process that holds the lock of rank {rank}'s window is gone"),
            ),
            AccessFault::NotAttached(rank) => (
                ErrorClass::RmaRange,
                format!(
                    "an operation named memory that rank {rank} has not attached to the window"
                ),
            ),
            AccessFault::Attach => (
                ErrorClass::RmaAttach,
                "base: the memory overlaps attached memory, or is not attached".to_owned(),
            ),
        };
        Self::new(class, message)
    }
}
