//! Epochs of a window at one process (MPI-5.0 §12.5): which one is open, and what it permits.

use std::collections::{BTreeMap, BTreeSet};

use rma::LockKind;

use crate::{Error, ErrorClass, Result};

/// Open epochs of a process.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    access: Access,
    /// Origins whose `MPI_Win_complete` is still awaited, while the window is exposed by `MPI_Win_post`.
    exposure: Option<Vec<u32>>,
}

/// Epoch in which this process accesses the windows of others.
#[derive(Debug, Default)]
enum Access {
    #[default]
    None,
    /// Opened by `MPI_Win_fence`.
    Fence {
        /// True once an operation has been submitted. An unused epoch gives way to another one.
        is_used: bool,
    },
    /// Opened by `MPI_Win_start`, for these targets in ascending order.
    Start(Vec<u32>),
    /// Opened by `MPI_Win_lock`, for each target; none is `MPI_PROC_NULL`. There is at least one.
    Locks(BTreeMap<Option<u32>, Hold>),
    /// Opened by `MPI_Win_lock_all`.
    All {
        /// True if locks are taken; false with `MPI_MODE_NOCHECK`.
        takes_locks: bool,
        /// Targets whose lock is taken.
        taken: BTreeSet<u32>,
    },
}

/// Hold on a target: the lock that was taken, or none with `MPI_MODE_NOCHECK`.
pub(super) type Hold = Option<LockKind>;

/// Kind of operation, which limits the epochs that permit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// An operation without a request.
    Plain,
    /// An operation with a request, which needs a passive target epoch (MPI-5.0 §12.3.5).
    WithRequest,
}

impl Epochs {
    /// Checks that a fence may be called, and returns true if operations were submitted since the last one.
    pub fn check_fence(&self) -> Result<bool> {
        if self.exposure.is_some() {
            return Err(wrong("the window is exposed: call MPI_Win_wait first"));
        }
        match self.access {
            Access::None => Ok(false),
            Access::Fence { is_used } => Ok(is_used),
            Access::Start(_) | Access::Locks(_) | Access::All { .. } => Err(self.is_open()),
        }
    }

    /// Ends the fence's epoch, and opens the next one if operations may follow.
    pub fn fence(&mut self, opens: bool) {
        self.access = if opens { Access::Fence { is_used: false } } else { Access::None };
    }

    /// Opens an access epoch for these targets.
    pub fn start(&mut self, mut targets: Vec<u32>) -> Result<()> {
        self.check_closed()?;
        targets.sort_unstable();
        self.access = Access::Start(targets);
        Ok(())
    }

    /// The targets of the epoch that `MPI_Win_start` opened.
    pub fn started(&self) -> Result<Vec<u32>> {
        match &self.access {
            Access::Start(targets) => Ok(targets.clone()),
            Access::None | Access::Fence { .. } | Access::Locks(_) | Access::All { .. } => {
                Err(wrong("MPI_Win_start was not called"))
            }
        }
    }

    /// Closes the access epoch.
    pub fn close(&mut self) {
        self.access = Access::None;
    }

    /// Exposes the window to these origins.
    pub fn post(&mut self, origins: Vec<u32>) -> Result<()> {
        if self.exposure.is_some() {
            return Err(wrong("the window is exposed already: call MPI_Win_wait first"));
        }
        if let Access::Fence { is_used: true } = self.access {
            return Err(self.is_open());
        }
        self.exposure = Some(origins);
        Ok(())
    }

    /// The origins whose `MPI_Win_complete` is still awaited.
    pub fn awaited(&self) -> Result<Vec<u32>> {
        self.exposure.clone().ok_or_else(|| wrong("MPI_Win_post was not called"))
    }

    /// An origin has called `MPI_Win_complete`.
    pub fn note_complete(&mut self, origin: u32) {
        if let Some(awaited) = &mut self.exposure {
            awaited.retain(|other| *other != origin);
        }
    }

    /// Ends the exposure epoch.
    pub fn end_exposure(&mut self) {
        self.exposure = None;
    }

    /// Opens a passive target epoch for one target.
    pub fn lock(&mut self, target: Option<u32>, hold: Hold) -> Result<()> {
        if let Access::Locks(locks) = &mut self.access {
            if locks.contains_key(&target) {
                return Err(wrong("the target is locked already"));
            }
            locks.insert(target, hold);
            return Ok(());
        }
        self.check_closed()?;
        self.access = Access::Locks(BTreeMap::from([(target, hold)]));
        Ok(())
    }

    /// The hold on a target.
    pub fn hold(&self, target: Option<u32>) -> Result<Hold> {
        let known = match &self.access {
            Access::Locks(locks) => locks.get(&target).copied(),
            Access::None | Access::Fence { .. } | Access::Start(_) | Access::All { .. } => None,
        };
        known.ok_or_else(|| wrong("the target is not locked"))
    }

    /// Ends the passive target epoch of one target.
    pub fn unlock(&mut self, target: Option<u32>) {
        let Access::Locks(locks) = &mut self.access else { return };
        locks.remove(&target);
        if locks.is_empty() {
            self.access = Access::None;
        }
    }

    /// Opens a passive target epoch for all targets.
    pub fn lock_all(&mut self, takes_locks: bool) -> Result<()> {
        self.check_closed()?;
        self.access = Access::All { takes_locks, taken: BTreeSet::new() };
        Ok(())
    }

    /// The targets whose lock the epoch of `MPI_Win_lock_all` has taken.
    pub fn taken(&self) -> Result<Vec<u32>> {
        match &self.access {
            Access::All { taken, .. } => Ok(taken.iter().copied().collect()),
            Access::None | Access::Fence { .. } | Access::Start(_) | Access::Locks(_) => {
                Err(wrong("MPI_Win_lock_all was not called"))
            }
        }
    }

    /// True if the epoch of `MPI_Win_lock_all` has to take this target's lock.
    pub fn wants_lock(&self, target: u32) -> bool {
        match &self.access {
            Access::All { takes_locks, taken } => *takes_locks && !taken.contains(&target),
            Access::None | Access::Fence { .. } | Access::Start(_) | Access::Locks(_) => false,
        }
    }

    /// The epoch of `MPI_Win_lock_all` has taken this target's lock.
    pub fn note_taken(&mut self, target: u32) {
        if let Access::All { taken, .. } = &mut self.access {
            taken.insert(target);
        }
    }

    /// True in a passive target epoch.
    pub fn is_passive(&self) -> bool {
        matches!(self.access, Access::Locks(_) | Access::All { .. })
    }

    /// Checks that a passive target epoch is open for a target, or for any if there is none.
    pub fn check_passive(&self, target: Option<u32>) -> Result<()> {
        let permits = match (&self.access, target) {
            (Access::Locks(locks), Some(_)) => locks.contains_key(&target),
            (Access::Locks(_), None) | (Access::All { .. }, _) => true,
            (Access::None | Access::Fence { .. } | Access::Start(_), _) => false,
        };
        if permits {
            return Ok(());
        }
        Err(wrong("the target is not locked: call MPI_Win_lock or MPI_Win_lock_all first"))
    }

    /// Permits an operation on a target, or on none (`MPI_PROC_NULL`). Returns true if the target's lock has to be
    /// taken first.
    pub fn permit(&mut self, target: Option<u32>, with: Use) -> Result<bool> {
        let wants_lock = target.is_some_and(|target| self.wants_lock(target));
        let permits = match (&mut self.access, target) {
            (Access::None, _) => false,
            (Access::Fence { .. } | Access::Start(_), _) if with == Use::WithRequest => {
                return Err(wrong(
                    "operations with a request need MPI_Win_lock or MPI_Win_lock_all",
                ));
            }
            (Access::Fence { is_used }, _) => {
                *is_used |= target.is_some();
                true
            }
            (Access::Start(_) | Access::Locks(_), None) | (Access::All { .. }, _) => true,
            (Access::Start(targets), Some(target)) => targets.binary_search(&target).is_ok(),
            (Access::Locks(locks), Some(_)) => locks.contains_key(&target),
        };
        match (permits, target) {
            (true, _) => Ok(wants_lock),
            (false, Some(target)) => {
                Err(wrong(format!("no epoch is open for the window of rank {target}")))
            }
            (false, None) => Err(wrong("no epoch is open")),
        }
    }

    /// Checks that the window may be freed.
    pub fn check_free(&self) -> Result<()> {
        if self.exposure.is_some() {
            return Err(wrong("the window is exposed: call MPI_Win_wait first"));
        }
        self.check_closed()
    }

    /// Checks that no access epoch is open, save a fence's that no operation used.
    fn check_closed(&self) -> Result<()> {
        match self.access {
            Access::None | Access::Fence { is_used: false } => Ok(()),
            Access::Fence { is_used: true }
            | Access::Start(_)
            | Access::Locks(_)
            | Access::All { .. } => Err(self.is_open()),
        }
    }

    #[cold]
    fn is_open(&self) -> Error {
        let ends = match self.access {
            Access::None | Access::Fence { .. } => "MPI_Win_fence",
            Access::Start(_) => "MPI_Win_complete",
            Access::Locks(_) => "MPI_Win_unlock",
            Access::All { .. } => "MPI_Win_unlock_all",
        };
        wrong(format!("an access epoch is open: call {ends} first"))
    }
}

#[cold]
fn wrong(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorClass::RmaSync, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(result: Result<impl std::fmt::Debug>) -> ErrorClass {
        result.unwrap_err().class
    }

    #[test]
    fn no_operation_outside_an_epoch() {
        let mut epochs = Epochs::default();
        for target in [None, Some(0)] {
            assert_eq!(class(epochs.permit(target, Use::Plain)), ErrorClass::RmaSync);
        }
        assert_eq!(class(epochs.check_passive(None)), ErrorClass::RmaSync);
        assert_eq!(class(epochs.started()), ErrorClass::RmaSync);
        assert_eq!(class(epochs.awaited()), ErrorClass::RmaSync);
        assert_eq!(class(epochs.hold(Some(0))), ErrorClass::RmaSync);
        assert_eq!(class(epochs.taken()), ErrorClass::RmaSync);
        epochs.check_free().unwrap();
    }

    #[test]
    fn a_used_fence_epoch_gives_way_to_a_fence_only() {
        let mut epochs = Epochs::default();
        epochs.fence(true);
        epochs.check_free().unwrap();
        assert!(!epochs.check_fence().unwrap());
        epochs.permit(None, Use::Plain).unwrap();
        assert!(!epochs.check_fence().unwrap());
        epochs.permit(Some(1), Use::Plain).unwrap();
        assert!(epochs.check_fence().unwrap());
        assert_eq!(class(epochs.permit(Some(1), Use::WithRequest)), ErrorClass::RmaSync);
        assert_eq!(class(epochs.lock(Some(1), None)), ErrorClass::RmaSync);
        assert_eq!(class(epochs.start(vec![1])), ErrorClass::RmaSync);
        assert_eq!(class(epochs.post(vec![1])), ErrorClass::RmaSync);
        assert_eq!(class(epochs.check_free()), ErrorClass::RmaSync);
        epochs.fence(true);
        epochs.lock(Some(1), None).unwrap();
        assert_eq!(class(epochs.check_fence()), ErrorClass::RmaSync);
    }

    #[test]
    fn targets_of_a_start_are_the_only_ones() {
        let mut epochs = Epochs::default();
        epochs.start(vec![3, 1]).unwrap();
        assert!(!epochs.permit(Some(3), Use::Plain).unwrap());
        assert_eq!(class(epochs.permit(Some(2), Use::Plain)), ErrorClass::RmaSync);
        assert_eq!(class(epochs.check_passive(Some(3))), ErrorClass::RmaSync);
        assert_eq!(class(epochs.lock_all(true)), ErrorClass::RmaSync);
        assert_eq!(epochs.started().unwrap(), [1, 3]);
        epochs.post(vec![2, 4]).unwrap();
        epochs.note_complete(2);
        assert_eq!(epochs.awaited().unwrap(), [4]);
        epochs.close();
        assert_eq!(class(epochs.check_free()), ErrorClass::RmaSync);
        epochs.end_exposure();
        epochs.check_free().unwrap();
    }

    #[test]
    fn each_target_is_locked_by_itself() {
        let mut epochs = Epochs::default();
        epochs.lock(Some(1), Some(LockKind::Shared)).unwrap();
        epochs.lock(Some(2), Some(LockKind::Exclusive)).unwrap();
        assert_eq!(class(epochs.lock(Some(1), None)), ErrorClass::RmaSync);
        assert_eq!(epochs.hold(Some(2)).unwrap(), Some(LockKind::Exclusive));
        assert!(!epochs.permit(Some(1), Use::WithRequest).unwrap());
        assert_eq!(class(epochs.permit(Some(0), Use::Plain)), ErrorClass::RmaSync);
        epochs.unlock(Some(1));
        assert_eq!(class(epochs.check_free()), ErrorClass::RmaSync);
        epochs.lock(None, None).unwrap();
        epochs.permit(None, Use::WithRequest).unwrap();
        epochs.unlock(Some(2));
        assert_eq!(class(epochs.check_free()), ErrorClass::RmaSync);
        epochs.unlock(None);
        epochs.check_free().unwrap();
    }

    #[test]
    fn locks_of_all_are_taken_at_first_use() {
        let mut epochs = Epochs::default();
        epochs.lock_all(true).unwrap();
        assert!(epochs.permit(Some(1), Use::WithRequest).unwrap());
        epochs.note_taken(1);
        assert!(!epochs.permit(Some(1), Use::Plain).unwrap());
        assert_eq!(epochs.taken().unwrap(), [1]);
        assert_eq!(class(epochs.lock(Some(0), None)), ErrorClass::RmaSync);
        epochs.close();
        epochs.lock_all(false).unwrap();
        assert!(!epochs.permit(Some(1), Use::Plain).unwrap());
    }
}
