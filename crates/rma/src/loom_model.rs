//! Loom model of what threads and processes share of a target: its lock, the lock of those who combine elements, and the
//! list of incomplete operations (after Norris and Demsky, "CDSChecker", 2013).
//!
//! The crate's own code runs, built on loom's atomics. Each protocol is also run with a [`RmaFlaw`], which its model must
//! notice. A message to the target is a call under the lock of the target's queue, as its handler is.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use locks::{LockKind, LockWait, Queue};
use outstanding::Outstanding;
use parts::{AtomicU32, AtomicU64};

#[path = "locks.rs"]
#[allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the crate's own source again, here with loom's atomics for `parts`"
)]
mod locks;
#[path = "outstanding.rs"]
#[allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the crate's own source again, here with loom's atomics for `parts`"
)]
mod outstanding;
#[path = "word_lock.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "the crate's own source again, here with loom's atomics for `parts`"
)]
mod word_lock;

/// Fault that is put into a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RmaFlaw {
    None,
    /// Releasing writes are relaxed.
    NoRelease,
    /// Acquiring reads are relaxed.
    NoAcquire,
    /// A bit that tells others of a waiting process, or of listed operations, is not set.
    NoMark,
}

thread_local! {
    // All threads of a model run alternately on one thread of the system.
    static FLAW: Cell<RmaFlaw> = const { Cell::new(RmaFlaw::None) };
}

/// Building blocks of the protocols.
mod parts {
    use std::sync::atomic::Ordering;

    pub use std::sync::PoisonError;

    pub use loom::sync::{Mutex, MutexGuard};
    pub use loom::thread::yield_now;

    use super::{FLAW, RmaFlaw};

    /// More rounds would only repeat the same steps.
    pub const SPINS: u32 = 1;
    pub const YIELDS: u32 = 1;

    /// Does nothing: loom lets other threads run anyway.
    pub fn spin_loop() {}

    /// True for the process that has ended in the model.
    pub fn has_ended(process: u32) -> bool {
        process == super::ENDED
    }

    fn flawed(order: Ordering) -> Ordering {
        match (FLAW.get(), order) {
            (RmaFlaw::NoRelease, Ordering::Release) => Ordering::Relaxed,
            (RmaFlaw::NoRelease, Ordering::AcqRel) => Ordering::Acquire,
            (RmaFlaw::NoAcquire, Ordering::Acquire) => Ordering::Relaxed,
            (RmaFlaw::NoAcquire, Ordering::AcqRel) => Ordering::Release,
            (_, order) => order,
        }
    }

    macro_rules! atomics {
        ($($name:ident $value:ident;)*) => {$(
            #[derive(Debug)]
            pub struct $name(loom::sync::atomic::$name);

            #[allow(dead_code, reason = "no protocol uses all methods of all atomics")]
            impl $name {
                pub fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    self.0.load(flawed(order))
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, flawed(order));
                }

                pub fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                    // The lowest bit tells of puts, and not of those who wait.
                    let is_mark = bits != 1;
                    match FLAW.get() {
                        RmaFlaw::NoMark if is_mark => self.0.load(Ordering::Relaxed),
                        _ => self.0.fetch_or(bits, flawed(order)),
                    }
                }

                pub fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                    self.0.fetch_and(bits, flawed(order))
                }

                pub fn fetch_sub(&self, less: $value, order: Ordering) -> $value {
                    self.0.fetch_sub(less, flawed(order))
                }

                pub fn compare_exchange(
                    &self,
                    old: $value,
                    new: $value,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    self.0.compare_exchange(old, new, flawed(done), flawed(failed))
                }

                pub fn fetch_update(
                    &self,
                    done: Ordering,
                    failed: Ordering,
                    update: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    self.0.fetch_update(flawed(done), flawed(failed), update)
                }
            }
        )*};
    }

    atomics! {
        AtomicU8 u8;
        AtomicU32 u32;
        AtomicU64 u64;
    }
}

/// Number of a process that has ended while it combined elements.
const ENDED: u32 = 9;

/// A number in memory that is not atomic: an addition that overlaps another, or does not see it, loses one of them.
struct Number(AtomicU32);

impl Number {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(0)))
    }

    fn add(&self) {
        let former = self.value();
        self.0.store(former + 1, Ordering::Relaxed);
    }

    fn value(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Two processes combine elements; `first` held the lock before.
fn elements_are_combined_one_after_the_other(first: u32) {
    let (word, number) = (Arc::new(AtomicU32::new(first)), Number::new());
    let (for_other, others) = (Arc::clone(&word), Arc::clone(&number));
    let other = thread::spawn(move || {
        word_lock::take(&for_other, 1);
        others.add();
        word_lock::give_back(&for_other);
    });
    word_lock::take(&word, 2);
    number.add();
    word_lock::give_back(&word);
    other.join().unwrap();
    assert_eq!((word.load(Ordering::Relaxed), number.value()), (0, 2));
}

/// A target, its lock, and the processes that were told that they have it.
struct LockedTarget {
    word: AtomicU64,
    queue: Mutex<Queue<usize>>,
    granted: Mutex<[bool; 2]>,
    changed: Condvar,
    number: Arc<Number>,
}

impl LockedTarget {
    fn serve(&self, queue: &mut Queue<usize>) {
        queue.serve(&self.word, &mut |granted| {
            self.granted.lock().unwrap()[granted.process] = true;
            self.changed.notify_all();
        });
    }

    /// A process locks the window, adds to the number if it may, and unlocks the window. It maps the word if `is_near`.
    fn visit(&self, process: usize, is_near: bool, kind: LockKind) {
        if !is_near || !locks::try_take(&self.word, kind, process as u32) {
            let mut queue = self.queue.lock().unwrap();
            queue.ask(LockWait { kind, rank: process as u32, process });
            self.serve(&mut queue);
            drop(queue);
            let mut granted = self.granted.lock().unwrap();
            while !granted[process] {
                granted = self.changed.wait(granted).unwrap();
            }
        }
        if kind == LockKind::Exclusive {
            self.number.add();
        }
        if locks::give_back(&self.word, kind) {
            self.serve(&mut self.queue.lock().unwrap());
        }
    }
}

/// Two processes lock a window, each of which may map its word.
fn a_lock_is_granted_to_both(near: [bool; 2], kinds: [LockKind; 2]) {
    let target = Arc::new(LockedTarget {
        word: AtomicU64::new(0),
        queue: Mutex::new(Queue::default()),
        granted: Mutex::new([false; 2]),
        changed: Condvar::new(),
        number: Number::new(),
    });
    let for_other = Arc::clone(&target);
    let other = thread::spawn(move || for_other.visit(1, near[1], kinds[1]));
    target.visit(0, near[0], kinds[0]);
    other.join().unwrap();
    let writers = kinds.iter().filter(|kind| **kind == LockKind::Exclusive).count();
    assert_eq!(target.number.value() as usize, writers);
    assert_eq!(target.word.load(Ordering::Relaxed), 0, "nobody holds the lock or waits");
}

/// Puts of a process, and what their target has applied.
struct Origin {
    outstanding: Outstanding<u32>,
    sent: Mutex<u32>,
    applied: AtomicU32,
}

impl Origin {
    /// Puts, flushes, and finds the put applied.
    fn put_and_flush(&self) {
        let own = {
            let mut sent = self.sent.lock().unwrap();
            *sent += 1;
            *sent
        };
        if self.outstanding.expects_flush() {
            self.outstanding.list(*self.sent.lock().unwrap());
        } else {
            self.outstanding.note_sent();
        }
        if !self.outstanding.is_empty() {
            self.outstanding.begin_flush(|| *self.sent.lock().unwrap());
            let apply = |flushed: u32| {
                let applied = self.applied.load(Ordering::Relaxed).max(flushed);
                self.applied.store(applied, Ordering::Relaxed);
                true
            };
            self.outstanding.complete(apply, drop).unwrap();
        }
        assert!(self.applied.load(Ordering::Relaxed) >= own, "put {own} is not applied");
    }
}

/// Two threads put to the same target, which had one put before if `is_expected`.
fn no_flush_returns_before_its_puts_are_applied(is_expected: bool) {
    let (outstanding, sent) = (Outstanding::new(), Mutex::new(0));
    let origin = Arc::new(Origin { outstanding, sent, applied: AtomicU32::new(0) });
    if is_expected {
        origin.put_and_flush();
        assert!(origin.outstanding.expects_flush());
    }
    let for_other = Arc::clone(&origin);
    let other = thread::spawn(move || for_other.put_and_flush());
    origin.put_and_flush();
    other.join().unwrap();
    assert!(origin.outstanding.is_empty());
}

/// Runs a protocol in every order.
fn explore(protocol: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 4000;
    // LOOM_MAX_PREEMPTIONS raises the bound, at the cost of time.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(protocol);
}

/// True if the model of a protocol fails with `flaw`.
fn notices(flaw: RmaFlaw, protocol: impl Fn() + Sync + Send + 'static) -> bool {
    FLAW.set(flaw);
    let result = catch_unwind(AssertUnwindSafe(|| explore(protocol)));
    FLAW.set(RmaFlaw::None);
    result.is_err()
}

#[test]
fn elements_are_combined_even_after_the_end_of_a_holder() {
    for first in [0, ENDED] {
        explore(move || elements_are_combined_one_after_the_other(first));
        for flaw in [RmaFlaw::NoRelease, RmaFlaw::NoAcquire] {
            assert!(notices(flaw, move || elements_are_combined_one_after_the_other(first)));
        }
    }
}

#[test]
fn a_lock_of_a_window_is_granted_whatever_way_its_process_comes() {
    use LockKind::{Exclusive, Shared};
    for near in [[true, true], [true, false], [false, false]] {
        for kinds in [[Exclusive, Exclusive], [Exclusive, Shared], [Shared, Exclusive]] {
            explore(move || a_lock_is_granted_to_both(near, kinds));
        }
    }
    let near = |near| move || a_lock_is_granted_to_both([true, near], [Exclusive, Exclusive]);
    assert!(notices(RmaFlaw::NoRelease, near(true)));
    assert!(notices(RmaFlaw::NoAcquire, near(true)));
    assert!(notices(RmaFlaw::NoMark, near(false)));
}

#[test]
fn a_flush_waits_for_what_other_threads_complete() {
    explore(|| no_flush_returns_before_its_puts_are_applied(false));
    explore(|| no_flush_returns_before_its_puts_are_applied(true));
    for flaw in [RmaFlaw::NoRelease, RmaFlaw::NoAcquire, RmaFlaw::NoMark] {
        assert!(notices(flaw, || no_flush_returns_before_its_puts_are_applied(false)), "{flaw:?}");
    }
}
