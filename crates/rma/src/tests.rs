//! Tests of the lock word. They are apart from it, because the loom model includes its source.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::{LockKind, WAITERS, give_back, is_held, try_grant, try_take};

#[test]
fn a_lock_is_shared_or_exclusive() {
    let word = AtomicU64::new(0);
    assert!(try_take(&word, LockKind::Shared) && try_take(&word, LockKind::Shared));
    assert!(!try_take(&word, LockKind::Exclusive));
    assert!(is_held(&word, LockKind::Shared) && !is_held(&word, LockKind::Exclusive));
    assert!(!give_back(&word, LockKind::Shared) && !give_back(&word, LockKind::Shared));
    assert!(try_take(&word, LockKind::Exclusive) && !try_take(&word, LockKind::Shared));
    assert!(!try_take(&word, LockKind::Exclusive));
    assert!(!give_back(&word, LockKind::Exclusive));
    assert_eq!(word.load(Ordering::Relaxed), 0);
}

#[test]
fn nobody_passes_those_who_wait() {
    let word = AtomicU64::new(WAITERS | 1);
    assert!(!try_take(&word, LockKind::Shared));
    assert!(give_back(&word, LockKind::Shared));
    assert!(!try_take(&word, LockKind::Exclusive));
    assert!(try_grant(&word, LockKind::Exclusive));
    assert!(give_back(&word, LockKind::Exclusive));
    assert_eq!(word.load(Ordering::Relaxed), WAITERS);
}
