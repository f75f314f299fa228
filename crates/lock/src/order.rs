//! The order of locks, checked with debug assertions.
//!
//! A thread that enters a combining lock holds no other lock of this crate, neither a second combining lock nor a
//! [`Lock`](crate::Lock). Without this rule two threads could wait for each other, which a test meets by chance only. The
//! check finds a call in the wrong order whether or not another thread is there.

use std::cell::Cell;

/// Locks of this crate that a thread holds.
#[derive(Clone, Copy)]
struct HeldLocks {
    plain: u32,
    combining: u32,
}

thread_local! {
    static HELD: Cell<HeldLocks> = const { Cell::new(HeldLocks { plain: 0, combining: 0 }) };
}

/// Checks that the thread may wait for a combining lock.
#[inline(always)]
pub fn check_combining() {
    if cfg!(debug_assertions) {
        let HeldLocks { plain, combining } = HELD.get();
        debug_assert!(
            plain == 0,
            "a thread enters a combining lock and holds a lock that comes after it"
        );
        debug_assert!(combining == 0, "a thread enters a combining lock and holds another one");
    }
}

/// Counts a combining lock that the thread has taken, or (`false`) released.
#[inline(always)]
pub fn count_combining(is_taken: bool) {
    if cfg!(debug_assertions) {
        let held = HELD.get();
        HELD.set(HeldLocks { combining: counted(held.combining, is_taken), ..held });
    }
}

/// Counts a [`Lock`](crate::Lock) that the thread has taken, or (`false`) released.
#[inline(always)]
pub fn count_plain(is_taken: bool) {
    if cfg!(debug_assertions) {
        let held = HELD.get();
        HELD.set(HeldLocks { plain: counted(held.plain, is_taken), ..held });
    }
}

fn counted(count: u32, is_taken: bool) -> u32 {
    if is_taken { count + 1 } else { count.saturating_sub(1) }
}
