//! Tests of the lock word. They are apart from it, because the loom model includes its source.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::{LockKind, WAITERS, give_back, owner, sharers, try_grant, try_take};

#[test]
fn a_lock_is_shared_or_exclusive() {
    let word = AtomicU64::new(0);
    assert!(try_take(&word, LockKind::Shared, 5) && try_take(&word, LockKind::Shared, 6));
    assert!(!try_take(&word, LockKind::Exclusive, 5));
    assert_eq!((owner(&word), sharers(&word)), (None, 2));
    assert!(!give_back(&word, LockKind::Shared) && !give_back(&word, LockKind::Shared));
    assert_eq!((owner(&word), sharers(&word)), (None, 0));
    for rank in [0, 5, u32::MAX] {
        assert!(try_take(&word, LockKind::Exclusive, rank));
        assert!(!try_take(&word, LockKind::Shared, rank.wrapping_add(1)));
        assert!(!try_take(&word, LockKind::Exclusive, rank));
        assert_eq!((owner(&word), sharers(&word)), (Some(rank), 0));
        assert!(!give_back(&word, LockKind::Exclusive));
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn nobody_passes_those_who_wait() {
    let word = AtomicU64::new(WAITERS | 1);
    assert!(!try_take(&word, LockKind::Shared, 1));
    assert!(give_back(&word, LockKind::Shared));
    assert!(!try_take(&word, LockKind::Exclusive, 1));
    assert!(try_grant(&word, LockKind::Exclusive, 1));
    assert_eq!(owner(&word), Some(1));
    assert!(give_back(&word, LockKind::Exclusive));
    assert_eq!(word.load(Ordering::Relaxed), WAITERS);
}
