//! A lock that costs next to nothing while the process has one thread.
//!
//! An atomic exchange makes the core wait until all it has written before is visible to others. Behind a
//! short message that wait is as long as a cache line's way from the peer's core, which is most of what
//! the message takes. As long as the C library knows of a single thread, taking and giving back the lock
//! are plain writes, and the line travels while the next message is made.
//!
//! This is an unsafe zone: the locks give out references to what they guard.

mod cancel;
mod turn;

pub use cancel::Uncancelled;
pub use turn::{Held, Missing, Turn};

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};

/// Guards a value that one thread at a time may use. A thread that panics leaves it as it is.
#[derive(Debug)]
pub struct Lock<T> {
    /// [`FREE`], [`HELD`] or [`WANTED`]. Threads that exchange it acquire and release what is guarded.
    /// A process of one thread writes it plainly: a thread that is born later finds in it, as in all
    /// memory, what its maker has written.
    state: AtomicU32,
    queue: Queue,
    value: UnsafeCell<T>,
}

/// Where threads sleep that found the lock held.
#[derive(Debug)]
struct Queue {
    mutex: Mutex<()>,
    given_back: Condvar,
}

/// The value, until it is dropped.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

// SAFETY: the lock hands its value to one thread at a time, so the value needs to bear being handed
// over, as with any lock.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: a guard shared between threads gives out shared references only.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        let queue = Queue { mutex: Mutex::new(()), given_back: Condvar::new() };
        Self { state: AtomicU32::new(FREE), queue, value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else holds the lock, and holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if has_one_thread() && self.state.load(Ordering::Relaxed) == FREE {
            self.state.store(HELD, Ordering::Relaxed);
        } else if !self.try_take() {
            self.wait();
        }
        Guard { lock: self }
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// What is held for a few hundred instructions is worth some of them; then the thread sleeps. Who
    /// may have others beside it in the queue leaves word of that in the state.
    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.state.load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
        }
        let mut sleeper = self.queue.mutex.lock().unwrap_or_else(|poison| poison.into_inner());
        while self.state.swap(WANTED, Ordering::Acquire) != FREE {
            let woken = self.queue.given_back.wait(sleeper);
            sleeper = woken.unwrap_or_else(|poison| poison.into_inner());
        }
    }

    /// A thread that has left word sleeps, or is about to while it holds the queue's mutex.
    #[cold]
    fn wake_one(&self) {
        drop(self.queue.mutex.lock());
        self.queue.given_back.notify_one();
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread holds the lock, and nobody else has a reference.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let state = &self.lock.state;
        if has_one_thread() {
            state.store(FREE, Ordering::Release);
        } else if state.swap(FREE, Ordering::Release) == WANTED {
            self.lock.wake_one();
        }
    }
}

/// Whether the process has this thread only. Other threads are made by this one, or not at all, so the
/// answer holds until the caller makes one.
#[inline]
fn has_one_thread() -> bool {
    let known = ONE_THREAD.load(Ordering::Relaxed);
    let known = if known.is_null() { find_word() } else { known };
    // SAFETY: the word is the C library's, or a static of our own; both live as long as the process.
    // Threads are made, and the word changed, by the only thread there is.
    unsafe { AtomicU8::from_ptr(known) }.load(Ordering::Relaxed) != 0
}

/// The word in which the C library (glibc from 2.32 on) says that there is one thread; elsewhere one that
/// never says so.
#[cold]
fn find_word() -> *mut u8 {
    static NEVER: AtomicU8 = AtomicU8::new(0);
    // SAFETY: the name is a C string; `dlsym` finds a variable of type `char`, or nothing.
    let word = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    let word = if word.is_null() { NEVER.as_ptr() } else { word.cast() };
    ONE_THREAD.store(word, Ordering::Relaxed);
    word
}

static ONE_THREAD: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and perhaps slept for.
const WANTED: u32 = 2;

/// Some microseconds, as long as a lock is held that guards no system call.
const SPINS: u32 = 100;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

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
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(*held, 0);
            drop(held);
        });
        assert_eq!(*lock.lock(), 3);
    }
}
