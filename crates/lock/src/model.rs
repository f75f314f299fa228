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

use combining_lock::{Combiner, CombiningLock, Entered};
use latch::Latch;
use mutual::Lock;
use owned_cell::{Missing, OwnedCell};
use parts::{AtomicU32, AtomicU64, Condvar, Mutex};

#[path = "combining_lock.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "the locks' own source again, here with loom's atomics for `parts`"
)]
mod combining_lock;
#[path = "latch.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "the locks' own source again, here with loom's atomics for `parts`"
)]
mod latch;
#[path = "mutual.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "the locks' own source again, here with loom's atomics for `parts`"
)]
mod mutual;
#[path = "owned_cell.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "the locks' own source again, here with loom's atomics for `parts`"
)]
mod owned_cell;

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
    pub const ROUNDS: u32 = 1;
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
            self.0.swap(value, flawed(order))
        }

        pub fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
            self.0.fetch_and(value, flawed(order))
        }

        pub fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
            // It is who goes to sleep.
            let value = if FLAW.get() == Flaw::NoWord { value.min(1) } else { value };
            self.0.fetch_or(value, flawed(order))
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

    #[derive(Debug)]
    pub struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }

        pub fn load(&self, order: Ordering) -> u64 {
            self.0.load(flawed(order))
        }

        pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
            self.0.fetch_or(value, flawed(order))
        }

        pub fn compare_exchange(
            &self,
            from: u64,
            to: u64,
            taken: Ordering,
            not: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange(from, to, flawed(taken), not)
        }
    }

    fn flawed(order: Ordering) -> Ordering {
        match (FLAW.get(), order) {
            (Flaw::NoRelease, Ordering::Release) | (Flaw::NoAcquire, Ordering::Acquire) => {
                Ordering::Relaxed
            }
            (Flaw::NoRelease, Ordering::AcqRel) => Ordering::Acquire,
            (Flaw::NoAcquire, Ordering::AcqRel) => Ordering::Release,
            _ => order,
        }
    }
}

/// A value whose use by two threads at once is an error.
type Value = UnsafeCell<u32>;

fn lock() -> Lock<Value> {
    Lock::of(latch(), Value::new(0))
}

fn latch() -> Latch {
    Latch::of(AtomicU32::new(0), Mutex::new(()), Condvar::new())
}

/// What was done at a combining_lock, in its order; each thing by a thread, and the how manieth of its own.
#[derive(Default)]
struct Done {
    list: UnsafeCell<Vec<(u32, u32)>>,
}

impl Done {
    fn note(&self, thread: u32, number: u32) {
        // SAFETY: loom has just found that nobody else uses it.
        self.list.with_mut(|list| unsafe { (*list).push((thread, number)) });
    }
}

impl Combiner for Done {
    type Record = UnsafeCell<(u32, u32)>;

    fn take_in<'a>(&mut self, records: impl Iterator<Item = &'a mut Self::Record>)
    where
        Self::Record: 'a,
    {
        for record in records {
            // SAFETY: as above.
            let (thread, number) = record.with(|record| unsafe { *record });
            self.note(thread, number);
        }
    }
}

/// A combining_lock with so many records.
fn combining_lock(records: u32) -> CombiningLock<Done> {
    let befores = std::iter::repeat_with(|| AtomicU32::new(0));
    let contents = (0..records).map(|_| UnsafeCell::new((0, 0)));
    let free = AtomicU64::new((1 << records) - 1);
    CombiningLock::of(latch(), (free, befores), contents, Done::default())
}

/// A thread has something done, or leaves it to who is at the combining_lock.
fn have_done(combining_lock: &CombiningLock<Done>, thread: u32, number: u32) {
    // SAFETY: as above.
    let fill = |record: &mut UnsafeCell<_>| {
        record.with_mut(|record| unsafe { *record = (thread, number) })
    };
    let guard = match combining_lock.take_at_once() {
        Some(guard) => guard,
        None => match combining_lock.leave(|| true, fill) {
            Entered::Seated(guard) => guard,
            Entered::Left(()) => return,
        },
    };
    guard.note(thread, number);
}

/// Whoever comes to the combining_lock finds done all that these threads had wanted, each one's in its order.
fn check(combining_lock: &CombiningLock<Done>, wanted: &[(u32, u32)]) {
    let guard = combining_lock.lock();
    // SAFETY: as above.
    let done = guard.list.with(|list| unsafe { (*list).clone() });
    for (thread, most) in wanted {
        let of_thread = done.iter().filter(|(who, _)| who == thread).map(|(_, number)| *number);
        assert_eq!(of_thread.collect::<Vec<_>>(), Vec::from_iter(0..*most), "of thread {thread}");
    }
}

fn turn() -> OwnedCell<Value> {
    OwnedCell::of(AtomicU32::new(0), Value::new(0))
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

/// Two threads want something done twice, and look themselves, when they want it or later; there are as many records.
fn what_is_left_is_done_in_order(records: u32) {
    let combining_lock = Arc::new(combining_lock(records));
    let for_other = Arc::clone(&combining_lock);
    let other = born(move || {
        have_done(&for_other, 1, 0);
        have_done(&for_other, 1, 1);
    });
    have_done(&combining_lock, 0, 0);
    check(&combining_lock, &[(0, 1)]);
    have_done(&combining_lock, 0, 1);
    joined([other]);
    check(&combining_lock, &[(0, 2), (1, 2)]);
}

/// Three threads, of which one only waits for the combining_lock, or has it if nobody else does: nobody is left waiting, and nothing
/// is left.
fn who_waits_and_who_leaves_do_not_meet() {
    let combining_lock = Arc::new(combining_lock(2));
    let [other, waiting] = [0, 1].map(|which| {
        let combining_lock = Arc::clone(&combining_lock);
        born(move || {
            if which == 0 {
                have_done(&combining_lock, 1, 0)
            } else {
                drop((combining_lock.try_lock().is_none()).then(|| combining_lock.lock()))
            }
        })
    });
    have_done(&combining_lock, 0, 0);
    joined([other, waiting]);
    check(&combining_lock, &[(0, 1), (1, 1)]);
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
fn what_is_left_at_a_desk_is_done() {
    explore(|| what_is_left_is_done_in_order(1));
    explore(|| what_is_left_is_done_in_order(2));
    explore(who_waits_and_who_leaves_do_not_meet);
}

#[test]
fn flaws_of_a_desk_are_noticed() {
    for flaw in [Flaw::NoRelease, Flaw::NoAcquire, Flaw::NoWord, Flaw::Alone] {
        assert!(notices(flaw, || what_is_left_is_done_in_order(1)), "{flaw:?}");
    }
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
