//! Members of communicators that have failed, and which of them the application has acknowledged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handles::Handle;
use progress::Worker;
use wire::PeerId;

use crate::group::Group;
use crate::{Error, ErrorClass};

/// Members of a communicator that are known to have failed.
#[derive(Debug)]
pub(crate) struct Failures {
    /// The members, of both groups if there are two.
    all: Group,
    /// Processes that messages come from.
    sources: Group,
    /// Locked after the worker.
    known: Mutex<KnownFailures>,
}

#[derive(Debug, Default)]
struct KnownFailures {
    /// In the order in which this process has learnt of them.
    failed: Vec<PeerId>,
    /// Number of them that are acknowledged, the first ones.
    acked: usize,
    /// Number of failed peers of the process at the last look.
    looked: u32,
}

impl Failures {
    pub fn of(all: Group, sources: Group) -> Arc<Self> {
        Arc::new(Self { all, sources, known: Mutex::default() })
    }

    /// Adds the members that have failed since the last look; `worker` is that of the communicator's VCI.
    pub fn find(&self, worker: &Worker) {
        let mut known = self.known();
        let failed_peers = worker.engine.failed_peers();
        if std::mem::replace(&mut known.looked, failed_peers) == failed_peers {
            return;
        }
        let failed = self.all.iter().filter(|peer| worker.engine.is_failed(*peer));
        known.add(failed);
    }

    /// Adds failures on which the members have agreed.
    pub fn add(&self, failed: impl Iterator<Item = PeerId>) {
        self.known().add(failed);
    }

    /// The known ones, and those of them that are acknowledged.
    pub fn failed(&self) -> (Vec<PeerId>, Vec<PeerId>) {
        let known = self.known();
        (known.failed.clone(), known.failed[..known.acked].to_vec())
    }

    /// Acknowledges the first ones, at most `count`. Returns the number of all that are acknowledged.
    pub fn acknowledge(&self, count: usize) -> usize {
        let mut known = self.known();
        known.acked = known.acked.max(count.min(known.failed.len()));
        known.acked
    }

    /// True if a process that messages come from has failed, and this process has not acknowledged it.
    fn has_unacknowledged(&self, worker: &Worker) -> bool {
        self.find(worker);
        let known = self.known();
        let mut new = known.failed[known.acked..].iter();
        new.any(|peer| self.sources.rank_of(*peer).is_some())
    }

    fn known(&self) -> MutexGuard<'_, KnownFailures> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownFailures {
    fn add(&mut self, failed: impl Iterator<Item = PeerId>) {
        for peer in failed {
            if !self.failed.contains(&peer) {
                self.failed.push(peer);
            }
        }
    }
}

/// Lets errors find the failures of a communicator by its handle.
pub(crate) fn register(comm: Handle, failures: &Arc<Failures>) {
    all().insert(comm.0, Arc::clone(failures));
}

/// Takes [`register`] back.
pub(crate) fn forget(comm: Handle) {
    all().remove(&comm.0);
}

/// The error of a receive from any source that waits, if a process that may be the sender has failed. `comm` is its
/// communicator, and `worker` that of its VCI.
#[cold]
pub(crate) fn held_up(comm: Handle, worker: &Worker) -> Option<Error> {
    let failures = all().get(&comm.0).map(Arc::clone)?;
    failures.has_unacknowledged(worker).then(|| {
        let message = "a process that may be the sender has failed: call MPIX_Comm_ack_failed to wait for others";
        Error::new(ErrorClass::ProcFailedPending, message)
    })
}

/// The error of an operation on a revoked communicator.
#[cold]
pub fn revoked() -> Error {
    let message = "a member has revoked the communicator: MPIX_Comm_shrink makes a new one";
    Error::new(ErrorClass::Revoked, message)
}

/// The failures of each communicator, by its handle. Locked after the worker.
fn all() -> MutexGuard<'static, BTreeMap<u64, Arc<Failures>>> {
    static ALL: Mutex<BTreeMap<u64, Arc<Failures>>> = Mutex::new(BTreeMap::new());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}
