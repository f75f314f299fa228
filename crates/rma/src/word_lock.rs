//! A lock of one word in shared memory. It is taken from a process that has ended.

use std::sync::atomic::Ordering;

use super::parts::{AtomicU32, SPINS, YIELDS, has_ended, spin_loop, yield_now};

/// Takes the lock as process `me`, which is not 0.
#[inline]
pub(crate) fn take(word: &AtomicU32, me: u32) {
    if word.compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
        wait(word, me);
    }
}

/// Gives the lock back that this process has taken.
#[inline]
pub(crate) fn give_back(word: &AtomicU32) {
    word.store(FREE, Ordering::Release);
}

/// Takes the lock once another holder has released it or has ended.
#[cold]
fn wait(word: &AtomicU32, me: u32) {
    let mut tries: u32 = 0;
    while let Err(holder) = word.compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed) {
        tries += 1;
        if !tries.is_multiple_of(SPINS) {
            spin_loop();
            continue;
        }
        yield_now();
        if tries.is_multiple_of(SPINS * YIELDS) && has_ended(holder) {
            // Somebody else may have done so.
            let _ = word.compare_exchange(holder, FREE, Ordering::Acquire, Ordering::Relaxed);
        }
    }
}

const FREE: u32 = 0;
