//! Loom model of locks and cells: every order in which the memory model lets one thread's writes become visible to
//! others (after Norris and Demsky, "CDSChecker", 2013).
//!
//! The locks' own code runs, built on loom's atomics. Each protocol is also run with one [`LockFlaw`], which its model
//! must notice. [`born`] and [`joined`] hold the assumptions on the C library. Its variable is changed by the only
//! thread: before it creates another, and after it has joined the last. Fences of the kernel play no part.

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

/// Fault that is put into a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockFlaw {
    None,
    /// Releasing stores are relaxed.
    NoRelease,
    /// Acquiring loads are relaxed.
    NoAcquire,
    /// A thread that goes to sleep does not mark the lock as wanted.
    NoMark,
    /// The C library reports one thread when there are others.
    Alone,
}

thread_local! {
    // All threads of a model run alternately on one thread of the system.
    static FLAW: Cell<LockFlaw> = const { Cell::new(LockFlaw::None) };
}

/// Building blocks of the locks.
mod parts {
    use std::sync::atomic::Ordering;

    pub use loom::sync::{Condvar, Mutex};
    pub use loom::thread::yield_now;

    use super::{FLAW, LockFlaw};

    /// More rounds would only repeat the same steps.
    pub const ROUNDS: u32 = 1;
    pub const SPINS: u32 = 1;

    /// Does nothing: loom lets other threads run anyway.
    pub fn spin_loop() {}

    /// Counts nothing: all threads of a model share the thread's counters.
    pub mod order {
        pub fn check_combining() {}
        pub fn count_combining(_: bool) {}
        pub fn count_plain(_: bool) {}
    }

    loom::lazy_static! {
        /// The C library's variable. Reading and writing it orders nothing.
        pub static ref ALONE: loom::sync::atomic::AtomicBool =
            loom::sync::atomic::AtomicBool::new(true);
    }

    pub fn has_one_thread() -> bool {
        FLAW.get() == LockFlaw::Alone || ALONE.load(Ordering::Relaxed)
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
            // Only a thread that goes to sleep calls this.
            let value = if FLAW.get() == LockFlaw::NoMark { value.min(1) } else { value };
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
            (LockFlaw::NoRelease, Ordering::Release) | (LockFlaw::NoAcquire, Ordering::Acquire) => {
                Ordering::Relaxed
            }
            (LockFlaw::NoRelease, Ordering::AcqRel) => Ordering::Acquire,
            (LockFlaw::NoAcquire, Ordering::AcqRel) => Ordering::Release,
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

/// Records executed under a combining lock, in their order: the thread, and the number of its request.
#[derive(Default)]
struct ExecutionLog {
    list: UnsafeCell<Vec<(u32, u32)>>,
}

impl ExecutionLog {
    fn note(&self, thread: u32, number: u32) {
        // SAFETY: loom has just checked that nobody else uses the list.
        self.list.with_mut(|list| unsafe { (*list).push((thread, number)) });
    }
}

impl Combiner for ExecutionLog {
    type Record = UnsafeCell<(u32, u32)>;

    fn take_in<'a>(&mut self, records: impl Iterator<Item = &'a mut Self::Record>)
    where
        Self::Record: 'a,
    {
        for record in records {
            // SAFETY: loom has just checked that nobody else uses the record.
            let (thread, number) = record.with(|record| unsafe { *record });
            self.note(thread, number);
        }
    }
}

/// Creates a combining lock with this many records.
fn combining_lock(records: u32) -> CombiningLock<ExecutionLog> {
    let befores = std::iter::repeat_with(|| AtomicU32::new(0));
    let contents = (0..records).map(|_| UnsafeCell::new((0, 0)));
    let free = AtomicU64::new((1 << records) - 1);
    CombiningLock::of(latch(), (free, befores), contents, ExecutionLog::default())
}

/// Executes a request of a thread, or leaves it to the holder of the lock.
fn request(combining_lock: &CombiningLock<ExecutionLog>, thread: u32, number: u32) {
    let fill = |record: &mut UnsafeCell<_>| {
        // SAFETY: loom has just checked that nobody else uses the record.
        record.with_mut(|record| unsafe { *record = (thread, number) })
    };
    let guard = match combining_lock.take_at_once() {
        Some(guard) => guard,
        None => match combining_lock.leave(|| true, fill) {
            Entered::Locked(guard) => guard,
            Entered::Left(()) => return,
        },
    };
    guard.note(thread, number);
}

/// Checks that all requests of these threads were executed, each thread's in their order.
fn check(combining_lock: &CombiningLock<ExecutionLog>, wanted: &[(u32, u32)]) {
    let guard = combining_lock.lock();
    // SAFETY: loom has just checked that nobody else uses the list.
    let done = guard.list.with(|list| unsafe { (*list).clone() });
    for (thread, most) in wanted {
        let of_thread = done.iter().filter(|(who, _)| who == thread).map(|(_, number)| *number);
        assert_eq!(of_thread.collect::<Vec<_>>(), Vec::from_iter(0..*most), "of thread {thread}");
    }
}

fn cell() -> OwnedCell<Value> {
    OwnedCell::of(AtomicU32::new(0), Value::new(0))
}

fn add(value: &Value) {
    // SAFETY: loom has just checked that nobody else uses the value.
    value.with_mut(|value| unsafe { *value += 1 });
}

fn sum(value: &Value) -> u32 {
    // SAFETY: loom has just checked that nobody else uses the value.
    value.with(|value| unsafe { *value })
}

/// Creates a thread. The C library reports several threads from before that.
fn born(act: impl FnOnce() + 'static) -> JoinHandle<()> {
    parts::ALONE.store(false, std::sync::atomic::Ordering::Relaxed);
    thread::spawn(act)
}

/// Joins all other threads. The C library may then report one thread.
fn joined(others: impl IntoIterator<Item = JoinHandle<()>>) {
    others.into_iter().for_each(|other| other.join().expect("it ends"));
    parts::ALONE.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// One thread, then three, then one.
fn threads_alternate_at_a_lock() {
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

/// A thread is created by one that holds the lock, which it took while it was alone.
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

/// The lock is taken among several threads and released by one that is alone; another finds it free.
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

/// One thread takes the lock only if nobody holds it.
fn try_lock_takes_a_free_lock() {
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

/// Two threads make two requests each and check the result, at once or later. There are `records` records.
fn records_are_executed_in_order(records: u32) {
    let combining_lock = Arc::new(combining_lock(records));
    let for_other = Arc::clone(&combining_lock);
    let other = born(move || {
        request(&for_other, 1, 0);
        request(&for_other, 1, 1);
    });
    request(&combining_lock, 0, 0);
    check(&combining_lock, &[(0, 1)]);
    request(&combining_lock, 0, 1);
    joined([other]);
    check(&combining_lock, &[(0, 2), (1, 2)]);
}

/// Three threads, of which one only waits for the lock or takes it if it is free. No thread is left waiting, and no
/// record is left.
fn waiters_and_records_are_both_served() {
    let combining_lock = Arc::new(combining_lock(2));
    let [other, waiting] = [0, 1].map(|which| {
        let combining_lock = Arc::clone(&combining_lock);
        born(move || {
            if which == 0 {
                request(&combining_lock, 1, 0)
            } else {
                drop((combining_lock.try_lock().is_none()).then(|| combining_lock.lock()))
            }
        })
    });
    request(&combining_lock, 0, 0);
    joined([other, waiting]);
    check(&combining_lock, &[(0, 1), (1, 1)]);
}

/// A user, and a helper that acts for it. The value that is moved out is complete.
fn a_helper_acts_between_uses() {
    let cell = Arc::new(cell());
    add(&cell.take().expect("nobody has it"));
    let for_helper = Arc::clone(&cell);
    let helper = born(move || {
        if let Some(held) = for_helper.help() {
            add(&held);
        }
    });
    add(&cell.take().expect("the only user waits for helpers"));
    let kept = cell.take().expect("the only user").keep();
    assert!((2..=3).contains(&sum(&kept)));
    assert_eq!(cell.take().err(), Some(Missing::Gone));
    joined([helper]);
}

/// Two users, of which the one that does not wait may find the cell held.
fn users_exclude_each_other() {
    let cell = Arc::new(cell());
    let for_other = Arc::clone(&cell);
    let other = born(move || {
        for _ in 0..2 {
            if let Some(held) = for_other.take_at_once() {
                add(&held);
            }
        }
    });
    if let Ok(held) = cell.take() {
        add(&held);
    }
    joined([other]);
    assert!((1..=3).contains(&sum(&cell.take().expect("nobody has it"))));
}

/// Runs a protocol in every order.
fn explore(protocol: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 4000;
    // LOOM_MAX_PREEMPTIONS raises the bound, at the cost of time.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(protocol);
}

/// True if the model of a protocol fails with `flaw`.
fn notices(flaw: LockFlaw, protocol: fn()) -> bool {
    FLAW.set(flaw);
    let result = catch_unwind(AssertUnwindSafe(|| explore(protocol)));
    FLAW.set(LockFlaw::None);
    result.is_err()
}

#[test]
fn a_lock_excludes_and_wakes() {
    explore(threads_alternate_at_a_lock);
    explore(a_thread_finds_the_lock_held);
    explore(the_lock_outlives_the_others);
    explore(try_lock_takes_a_free_lock);
}

#[test]
fn flaws_of_a_lock_are_noticed() {
    for flaw in [LockFlaw::NoRelease, LockFlaw::NoAcquire, LockFlaw::NoMark, LockFlaw::Alone] {
        assert!(notices(flaw, threads_alternate_at_a_lock), "{flaw:?}");
    }
    for flaw in [LockFlaw::NoRelease, LockFlaw::NoAcquire, LockFlaw::Alone] {
        assert!(notices(flaw, try_lock_takes_a_free_lock), "{flaw:?}");
    }
    assert!(notices(LockFlaw::NoMark, a_thread_finds_the_lock_held));
}

#[test]
fn records_of_a_combining_lock_are_executed() {
    explore(|| records_are_executed_in_order(1));
    explore(|| records_are_executed_in_order(2));
    explore(waiters_and_records_are_both_served);
}

#[test]
fn flaws_of_a_combining_lock_are_noticed() {
    for flaw in [LockFlaw::NoRelease, LockFlaw::NoAcquire, LockFlaw::NoMark, LockFlaw::Alone] {
        assert!(notices(flaw, || records_are_executed_in_order(1)), "{flaw:?}");
    }
}

#[test]
fn a_cell_excludes() {
    explore(a_helper_acts_between_uses);
    explore(users_exclude_each_other);
}

#[test]
fn flaws_of_a_cell_are_noticed() {
    for flaw in [LockFlaw::NoRelease, LockFlaw::NoAcquire, LockFlaw::Alone] {
        assert!(notices(flaw, a_helper_acts_between_uses), "{flaw:?}");
        assert!(notices(flaw, users_exclude_each_other), "{flaw:?}");
    }
}
