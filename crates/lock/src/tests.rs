//! Locks and cells with threads of the operating system.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::{Combiner, CombiningLock, Lock, Missing, OwnedCell};

#[test]
fn the_lock_is_held_by_one_thread_at_a_time() {
    let (lock, inside) = (Lock::new(0u64), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let mut guard = lock.lock();
                    assert!(!inside.swap(true, Ordering::Relaxed));
                    *guard += 1;
                    if round % 5000 == 0 {
                        // Long enough for the others to go to sleep.
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    inside.store(false, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(*lock.lock(), 80_000);
}

#[test]
fn sleepers_are_woken_one_by_one() {
    let lock = Lock::new(0);
    let held = lock.lock();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| *lock.lock() += 1);
        }
        // The others likely sleep by then; the assertions hold in any case.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(*held, 0);
        drop(held);
    });
    assert_eq!(*lock.lock(), 3);
}

/// A value without records.
#[derive(Debug)]
struct Recordless;

impl Combiner for Recordless {
    type Record = ();

    fn take_in<'a>(&mut self, _: impl Iterator<Item = &'a mut ()>) {}
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "holds a lock that comes after it")]
fn a_combining_lock_is_not_entered_after_another_lock() {
    let (first, second) = (CombiningLock::new([], Recordless), Lock::new(()));
    drop((first.lock(), second.lock()));
    let _second = second.lock();
    let _first = first.lock();
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "holds another one")]
fn a_combining_lock_is_not_entered_within_another_one() {
    let [first, second] = [(); 2].map(|()| CombiningLock::new([], Recordless));
    drop(first.lock());
    let _second = second.take_at_once();
    let _first = first.take_at_once();
}

#[test]
fn a_cell_has_one_user_at_a_time() {
    let cell = OwnedCell::new(1);
    let held = cell.take().expect("a free cell");
    assert_eq!(cell.take().err(), Some(Missing::Used));
    drop(held);
    let kept = cell.take().expect("a free cell again").keep();
    assert_eq!((kept, cell.take().err()), (1, Some(Missing::Gone)));
    assert!(cell.help().is_none());
}

#[test]
fn take_at_once_fails_while_the_cell_is_held_or_empty() {
    let cell = OwnedCell::new(0);
    let held = cell.take_at_once().expect("nobody has it");
    assert!(cell.take_at_once().is_none() && cell.take_at_once().is_none(), "another has it");
    assert_eq!(cell.take().err(), Some(Missing::Used));
    assert_eq!(held.keep(), 0);
    assert!(cell.take_at_once().is_none() && cell.take_at_once().is_none(), "it is gone");
    assert_eq!(cell.take().err(), Some(Missing::Gone));
}

#[test]
fn users_and_helpers_exclude_each_other_and_helpers_miss_nothing() {
    let (cell, inside) = (OwnedCell::new(0), AtomicBool::new(false));
    let (seen, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let alone = |step: &mut dyn FnMut()| {
        assert!(!inside.swap(true, Ordering::Relaxed));
        step();
        inside.store(false, Ordering::Relaxed);
    };
    let help = || {
        if let Some(mut made) = cell.help() {
            alone(&mut || {
                seen.fetch_add(std::mem::take(&mut *made), Ordering::Relaxed);
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    help();
                }
            });
        }
        for _ in 0..20_000 {
            let mut made = cell.take().expect("one user only");
            alone(&mut || *made += 1);
        }
        done.store(true, Ordering::Relaxed);
    });
    help();
    assert_eq!(seen.load(Ordering::Relaxed), 20_000);
}

#[test]
fn values_are_dropped_once_whether_kept_or_not() {
    let value = Arc::new(());
    let [kept, left] = [0, 1].map(|_| OwnedCell::new(Arc::clone(&value)));
    let kept_value = kept.take().expect("a free cell").keep();
    drop(kept);
    assert_eq!(Arc::strong_count(&value), 3);
    drop((kept_value, left));
    assert_eq!(Arc::strong_count(&value), 1);
}
