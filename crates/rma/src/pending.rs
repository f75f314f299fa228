//! Operations that a request stands for.

use engine::{OpId, Outcome};
use progress::Worker;

use crate::fault::{AccessFault, Result};

/// Operations that a request stands for.
#[derive(Debug)]
pub struct PendingAccess {
    /// Rank of the target, and identifier in the engine.
    ops: Vec<(u32, OpId)>,
    fault: Option<AccessFault>,
}

impl PendingAccess {
    pub(crate) fn new(ops: Vec<(u32, OpId)>) -> Self {
        Self { ops, fault: None }
    }

    /// Result, once the operations are complete here. `worker` is that of the window's progress engine.
    pub fn poll(&mut self, worker: &mut Worker) -> Option<Result<()>> {
        while let Some(&(rank, op)) = self.ops.last() {
            match worker.engine.take(op)?.outcome {
                Outcome::Ok | Outcome::Truncated { .. } | Outcome::Cancelled => {}
                Outcome::PeerFailed | Outcome::Revoked => {
                    self.fault = Some(AccessFault::PeerFailed(rank))
                }
                Outcome::Refused => self.fault = Some(AccessFault::NotAttached(rank)),
            }
            self.ops.pop();
        }
        Some(self.fault.map_or(Ok(()), Err))
    }

    /// The operations that have not been seen to end.
    pub fn ops(&self) -> impl Iterator<Item = OpId> {
        self.ops.iter().map(|&(_, op)| op)
    }

    /// True if [`PendingAccess::poll`] would return a result.
    pub fn is_complete(&self, worker: &mut Worker) -> bool {
        self.ops.iter().all(|&(_, op)| worker.engine.is_complete(op))
    }
}
