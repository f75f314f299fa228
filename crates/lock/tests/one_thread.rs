//! A process that begins with one thread and creates others.

use std::time::Duration;

use lock::Lock;

fn main() {
    a_single_thread_takes_the_lock_repeatedly();
    a_thread_born_inside_finds_the_lock_held();
    the_lock_works_after_other_threads_have_ended();
}

fn a_single_thread_takes_the_lock_repeatedly() {
    let lock = Lock::new(0);
    for _ in 0..1000 {
        *lock.lock() += 1;
    }
    assert_eq!(*lock.lock(), 1000);
}

fn a_thread_born_inside_finds_the_lock_held() {
    let lock = Lock::new(0);
    let mut held = lock.lock();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| *lock.lock());
        // The other thread sleeps by then. It is woken by a thread that took the lock while it was alone.
        std::thread::sleep(Duration::from_millis(20));
        *held = 7;
        drop(held);
        assert_eq!(other.join().ok(), Some(7));
    });
}

fn the_lock_works_after_other_threads_have_ended() {
    let lock = Lock::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock() += 1);
    });
    *lock.lock() += 1;
    assert_eq!(*lock.lock(), 2);
}
