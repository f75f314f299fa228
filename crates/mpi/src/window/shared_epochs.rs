//! The epochs of a window as its threads share them. A thread that accesses a target again takes no lock.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use lock::{Guard, Lock};

use super::epoch::{Epochs, Use};
use crate::Result;

/// Epochs behind a lock, and the permissions that threads read without it.
#[derive(Debug)]
pub(super) struct SharedEpochs {
    epochs: Lock<Epochs>,
    /// Number of the present state. Each call that opens or closes an epoch changes it. Odd in a passive target epoch.
    number: AtomicU64,
    /// For each target, the number of the state that permits its access at once.
    permitted: Box<[AtomicU64]>,
    /// True if each access asks for its permission.
    is_strict: bool,
}

/// The epochs, to be read.
pub(super) struct EpochsView<'a>(Guard<'a, Epochs>);

/// The epochs, to be changed. What was permitted before is checked again.
pub(super) struct EpochsChange<'a> {
    epochs: Guard<'a, Epochs>,
    number: &'a AtomicU64,
}

impl SharedEpochs {
    /// Makes the closed epochs of a window of `size` processes. With `is_strict`, each access asks for its permission.
    pub fn new(size: u32, is_strict: bool) -> Self {
        let epochs = Lock::new(Epochs::default());
        let permitted = (0..size).map(|_| AtomicU64::new(0)).collect();
        Self { epochs, number: AtomicU64::new(2), permitted, is_strict }
    }

    /// True if an operation without a request is permitted at once, because another one was in this epoch.
    #[inline]
    pub fn is_permitted(&self, target: u32) -> bool {
        let permitted = self.permitted[target as usize].load(Ordering::Acquire);
        permitted == self.number.load(Ordering::Relaxed)
    }

    /// True like [`SharedEpochs::is_permitted`], and the epoch is one of a passive target.
    #[inline]
    pub fn is_passive(&self, target: u32) -> bool {
        self.number.load(Ordering::Relaxed) & PASSIVE != 0 && self.is_permitted(target)
    }

    /// Number of the present epoch.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Permits an operation like [`Epochs::permit`], and the next ones of this epoch on the same target.
    pub fn permit(&self, target: Option<u32>, with: Use) -> Result<bool> {
        let mut epochs = self.epochs.lock();
        let wants_lock = epochs.permit(target, with)?;
        if let Some(target) = target.filter(|_| !wants_lock && !self.is_strict) {
            let number = self.number.load(Ordering::Relaxed);
            self.permitted[target as usize].store(number, Ordering::Release);
        }
        Ok(wants_lock)
    }

    /// Notes that the epoch of `MPI_Win_lock_all` has taken a target's lock. What was permitted stays so.
    pub fn note_taken(&self, target: u32) {
        self.epochs.lock().note_taken(target);
    }

    /// Locks the epochs to read them.
    pub fn look(&self) -> EpochsView<'_> {
        EpochsView(self.epochs.lock())
    }

    /// Locks the epochs to change them.
    pub fn change(&self) -> EpochsChange<'_> {
        EpochsChange { epochs: self.epochs.lock(), number: &self.number }
    }
}

impl Deref for EpochsView<'_> {
    type Target = Epochs;

    fn deref(&self) -> &Epochs {
        &self.0
    }
}

impl Deref for EpochsChange<'_> {
    type Target = Epochs;

    fn deref(&self) -> &Epochs {
        &self.epochs
    }
}

impl DerefMut for EpochsChange<'_> {
    fn deref_mut(&mut self) -> &mut Epochs {
        &mut self.epochs
    }
}

impl Drop for EpochsChange<'_> {
    fn drop(&mut self) {
        let former = self.number.load(Ordering::Relaxed) & !PASSIVE;
        let passive = if self.epochs.is_passive() { PASSIVE } else { 0 };
        self.number.store((former + 2) | passive, Ordering::Relaxed);
    }
}

/// Bit of the numbers of passive target epochs.
const PASSIVE: u64 = 1;

#[cfg(test)]
mod tests {
    use rma::LockKind;

    use super::*;

    #[test]
    fn a_permission_ends_with_its_epoch() {
        let epochs = SharedEpochs::new(3, false);
        assert!(!epochs.is_permitted(1) && !epochs.is_passive(1));
        epochs.change().lock(Some(1), Some(LockKind::Shared)).unwrap();
        assert!(!epochs.is_permitted(1));
        assert!(!epochs.permit(Some(1), Use::Plain).unwrap());
        assert!(epochs.is_permitted(1) && epochs.is_passive(1) && !epochs.is_permitted(2));
        epochs.permit(Some(2), Use::Plain).unwrap_err();
        assert!(!epochs.is_permitted(2));
        epochs.change().unlock(Some(1));
        assert!(!epochs.is_permitted(1) && !epochs.is_passive(1));
        epochs.permit(Some(1), Use::Plain).unwrap_err();
        assert!(!epochs.is_permitted(1));
    }

    #[test]
    fn a_target_whose_lock_is_to_be_taken_is_not_permitted_yet() {
        let epochs = SharedEpochs::new(2, false);
        epochs.change().lock_all(true).unwrap();
        assert!(epochs.permit(Some(1), Use::Plain).unwrap());
        assert!(!epochs.is_permitted(1));
        epochs.note_taken(1);
        assert!(!epochs.permit(Some(1), Use::Plain).unwrap());
        assert!(epochs.is_permitted(1) && epochs.is_passive(1));
    }

    #[test]
    fn a_permission_in_a_fence_is_none_for_a_flush() {
        let epochs = SharedEpochs::new(2, false);
        epochs.change().fence(true);
        epochs.permit(Some(0), Use::Plain).unwrap();
        assert!(epochs.is_permitted(0) && !epochs.is_passive(0));
        assert!(epochs.look().check_fence().unwrap(), "the epoch is used");
        epochs.change().fence(true);
        assert!(!epochs.is_permitted(0));
        assert!(!epochs.look().check_fence().unwrap(), "the next epoch is not");
    }
}
