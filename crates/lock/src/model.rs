//! Locks and turns under every order in which the language lets one thread's writes become visible to
//! others (loom, after Norris and Demsky, "CDSChecker", 2013).
//!
//! It is the locks' own code that runs, made of loom's parts. Each protocol is also run with one [`Flaw`],
//! which its model must notice. What is assumed of the C library is [`born`] and [`joined`]: its word is
//! changed by the only thread there is, before it makes another and after it has waited for the last.
//! No fence of the kernel's takes part.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};

use mutual::Lock;
use parts::{AtomicU32, Condvar, Mutex};
use turn::{Missing, Turn};

#[path = "mutual.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "the locks' own source again, here with loom's atomics for `parts`"
)]
mod mutual;
#[path = "turn.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "the locks' own source again, here with loom's atomics for `parts`"
)]
mod turn;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// What is given back is not released.
    NoRelease,
    /// What is taken is not acquired.
    NoAcquire,
    /// Who goes to sleep leaves no word of it.
    NoWord,
    /// The library speaks of one thread when there are others.
    Alone,
}

thread_local! {
    // All threads of a model run in turn on one thread of the system.
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
}

/// What locks are made of.
mod parts {
    use std::sync::atomic::Ordering;

    pub use loom::sync::{Condvar, Mutex};
    pub use loom::thread::yield_now;

    use super::{FLAW, Flaw};

    /// More would be the same again.
    pub const SPINS: u32 = 1;

    /// Others may run all the same.
    pub fn spin_loop() {}

    loom::lazy_static! {
        /// The library's word. Reading and writing it orders nothing.
        pub static ref ALONE: loom::sync::atomic::AtomicBool =
            loom::sync::atomic::AtomicBool::new(true);
    }

    pub fn has_one_thread() -> bool {
        FLAW.get() == Flaw::Alone || ALONE.load(Ordering::Relaxed)
    }

    pub fn is_known_alone() -> bool {
        has_one_thread()
    }

    #[derive(Debug)]
    pub struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub fn new(value: u32) -> Self {
            Self(loom::sync::atomic::AtomicU32::new(value))
        }

        pub fn load(&self, order: Ordering) -> u32 {
            self.0.load(flawed(order))
        }

        pub fn store(&self, value: u32, order: Ordering) {
            self.0.store(value, flawed(order));
        }

        pub fn swap(&self, value: u32, order: Ordering) -> u32 {
            // Only who goes to sleep swaps anything but a zero in.
            let value = if FLAW.get() == Flaw::NoWord { value.min(1) } else { value };
            self.0.swap(value, flawed(order))
        }

        pub fn compare_exchange(
            &self,
            from: u32,
            to: u32,
            taken: Ordering,
            not: Ordering,
        ) -> Result<u32, u32> {
            self.0.compare_exchange(from, to, flawed(taken), not)
        }
    }

    fn flawed(order: Ordering) -> Ordering {
        match (FLAW.get(), order) {
            (Flaw::NoRelease, Ordering::Release) | (Flaw::NoAcquire, Ordering::Acquire) => {
                Ordering::Relaxed
            }
            _ => order,
        }
    }
}

/// A value whose use by two threads at once is an error.
type Value = UnsafeCell<u32>;

fn lock() -> Lock<Value> {
    Lock::of(AtomicU32::new(0), Mutex::new(()), Condvar::new(), Value::new(0))
}

fn turn() -> Turn<Value> {
    Turn::of(AtomicU32::new(0), Value::new(0))
}

fn add(value: &Value) {
    // SAFETY: loom has just found that nobody else uses it.
    value.with_mut(|value| unsafe { *value += 1 });
}

fn sum(value: &Value) -> u32 {
    // SAFETY: as above.
    value.with(|value| unsafe { *value })
}

/// A thread is made. The library has said before that there is more than one.
fn born(act: impl FnOnce() + 'static) -> JoinHandle<()> {
    parts::ALONE.store(false, std::sync::atomic::Ordering::Relaxed);
    thread::spawn(act)
}

/// The only thread has waited for the others. The library may say so.
fn joined(others: impl IntoIterator<Item = JoinHandle<()>>) {
    others.into_iter().for_each(|other| other.join().expect("it ends"));
    parts::ALONE.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// One thread, then three, then one.
fn threads_take_turns_at_a_lock() {
    let lock = Arc::new(lock());
    add(&lock.lock());
    let others = [0, 1].map(|_| {
        let lock = Arc::clone(&lock);
        born(move || add(&lock.lock()))
    });
    add(&lock.lock());
    joined(others);
    add(&lock.lock());
    assert_eq!(sum(&lock.lock()), 5);
}

/// A thread is made by one that holds the lock, which it took when it was alone.
fn a_thread_finds_the_lock_held() {
    let lock = Arc::new(lock());
    let held = lock.lock();
    let for_other = Arc::clone(&lock);
    let other = born(move || add(&for_other.lock()));
    add(&held);
    drop(held);
    joined([other]);
    assert_eq!(sum(&lock.lock()), 2);
}

/// The lock is taken among several threads and given back by one that is alone; another finds it free.
fn the_lock_outlives_the_others() {
    let lock = Arc::new(lock());
    let bystander = born(|| ());
    let held = lock.lock();
    add(&held);
    joined([bystander]);
    drop(held);
    let for_other = Arc::clone(&lock);
    let other = born(move || add(&for_other.lock()));
    add(&lock.lock());
    joined([other]);
    assert_eq!(sum(&lock.lock()), 3);
}

/// One takes the lock only if nobody has it.
fn who_does_not_wait_takes_what_is_free() {
    let lock = Arc::new(lock());
    let for_other = Arc::clone(&lock);
    let other = born(move || {
        for _ in 0..2 {
            if let Some(held) = for_other.try_lock() {
                add(&held);
            }
        }
    });
    add(&lock.lock());
    joined([other]);
    assert!((1..=3).contains(&sum(&lock.lock())));
}

/// A user, and a helper that acts for it; what is kept is seen whole.
fn a_helper_acts_between_turns() {
    let turn = Arc::new(turn());
    add(&turn.take().expect("nobody has it"));
    let for_helper = Arc::clone(&turn);
    let helper = born(move || {
        if let Some(held) = for_helper.help() {
            add(&held);
        }
    });
    add(&turn.take().expect("the only user waits for helpers"));
    let kept = turn.take().expect("the only user").keep();
    assert!((2..=3).contains(&sum(&kept)));
    assert_eq!(turn.take().err(), Some(Missing::Gone));
    joined([helper]);
}

/// Two users: one has it, or the other, who does not wait.
fn users_exclude_each_other() {
    let turn = Arc::new(turn());
    let for_other = Arc::clone(&turn);
    let other = born(move || {
        for _ in 0..2 {
            if let Some(held) = for_other.take_at_once() {
                add(&held);
            }
        }
    });
    if let Ok(held) = turn.take() {
        add(&held);
    }
    joined([other]);
    assert!((1..=3).contains(&sum(&turn.take().expect("nobody has it"))));
}

/// Runs a protocol in every order.
fn explore(protocol: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 4000;
    // More with LOOM_MAX_PREEMPTIONS, which takes longer.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(protocol);
}

/// Whether the model of a protocol fails with `flaw`.
fn notices(flaw: Flaw, protocol: fn()) -> bool {
    FLAW.set(flaw);
    let result = catch_unwind(AssertUnwindSafe(|| explore(protocol)));
    FLAW.set(Flaw::None);
    result.is_err()
}

#[test]
fn a_lock_excludes_and_wakes() {
    explore(threads_take_turns_at_a_lock);
    explore(a_thread_finds_the_lock_held);
    explore(the_lock_outlives_the_others);
    explore(who_does_not_wait_takes_what_is_free);
}

#[test]
fn flaws_of_a_lock_are_noticed() {
    for flaw in [Flaw::NoRelease, Flaw::NoAcquire, Flaw::NoWord, Flaw::Alone] {
        assert!(notices(flaw, threads_take_turns_at_a_lock), "{flaw:?}");
    }
    for flaw in [Flaw::NoRelease, Flaw::NoAcquire, Flaw::Alone] {
        assert!(notices(flaw, who_does_not_wait_takes_what_is_free), "{flaw:?}");
    }
    assert!(notices(Flaw::NoWord, a_thread_finds_the_lock_held));
}

#[test]
fn a_turn_excludes() {
    explore(a_helper_acts_between_turns);
    explore(users_exclude_each_other);
}

#[test]
fn flaws_of_a_turn_are_noticed() {
    for flaw in [Flaw::NoRelease, Flaw::NoAcquire, Flaw::Alone] {
        assert!(notices(flaw, a_helper_acts_between_turns), "{flaw:?}");
        assert!(notices(flaw, users_exclude_each_other), "{flaw:?}");
    }
}
