//! Locks and turns among threads of the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::{Lock, Missing, OwnedCell};

#[test]
fn one_thread_at_a_time_holds_it() {
    let (lock, inside) = (Lock::new(0u64), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for turn in 0..20_000 {
                    let mut guard = lock.lock();
                    assert!(!inside.swap(true, Ordering::Relaxed));
                    *guard += 1;
                    if turn % 5000 == 0 {
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
        // So that they are likely asleep by then; what is asserted holds whenever they come.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(*held, 0);
        drop(held);
    });
    assert_eq!(*lock.lock(), 3);
}

#[test]
fn one_user_at_a_time() {
    let turn = OwnedCell::new(1);
    let held = turn.take().expect("a free turn");
    assert_eq!(turn.take().err(), Some(Missing::Used));
    drop(held);
    let kept = turn.take().expect("a free turn again").keep();
    assert_eq!((kept, turn.take().err()), (1, Some(Missing::Gone)));
    assert!(turn.help().is_none());
}

#[test]
fn who_does_not_wait_leaves_the_turn_to_who_has_it() {
    let turn = OwnedCell::new(0);
    let held = turn.take_at_once().expect("nobody has it");
    assert!(turn.take_at_once().is_none() && turn.take_at_once().is_none(), "another has it");
    assert_eq!(turn.take().err(), Some(Missing::Used));
    assert_eq!(held.keep(), 0);
    assert!(turn.take_at_once().is_none() && turn.take_at_once().is_none(), "it is gone");
    assert_eq!(turn.take().err(), Some(Missing::Gone));
}

#[test]
fn users_and_helpers_exclude_each_other_and_helpers_miss_nothing() {
    let (turn, inside) = (OwnedCell::new(0), AtomicBool::new(false));
    let (seen, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let alone = |step: &mut dyn FnMut()| {
        assert!(!inside.swap(true, Ordering::Relaxed));
        step();
        inside.store(false, Ordering::Relaxed);
    };
    let help = || {
        if let Some(mut made) = turn.help() {
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
            let mut made = turn.take().expect("one user only");
            alone(&mut || *made += 1);
        }
        done.store(true, Ordering::Relaxed);
    });
    help();
    assert_eq!(seen.load(Ordering::Relaxed), 20_000);
}

#[test]
fn what_is_kept_is_dropped_once_and_the_rest_too() {
    let value = Arc::new(());
    let [kept, left] = [0, 1].map(|_| OwnedCell::new(Arc::clone(&value)));
    let kept_value = kept.take().expect("a free turn").keep();
    drop(kept);
    assert_eq!(Arc::strong_count(&value), 3);
    drop((kept_value, left));
    assert_eq!(Arc::strong_count(&value), 1);
}
