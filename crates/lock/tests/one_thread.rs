//! A process that begins with one thread and makes others.

use std::time::Duration;

use lock::Lock;

fn main() {
    one_thread_takes_it_again_and_again();
    a_thread_born_inside_finds_the_lock_held();
    after_its_end_there_is_no_other();
}

fn one_thread_takes_it_again_and_again() {
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
        // The other goes to sleep: it is woken by one that took the lock when there was nobody to wake.
        std::thread::sleep(Duration::from_millis(20));
        *held = 7;
        drop(held);
        assert_eq!(other.join().ok(), Some(7));
    });
}

fn after_its_end_there_is_no_other() {
    let lock = Lock::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock() += 1);
    });
    *lock.lock() += 1;
    assert_eq!(*lock.lock(), 2);
}
