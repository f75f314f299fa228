//! Threads that must not be cancelled for a while.

use std::ffi::c_int;
use std::marker::PhantomData;

/// While it lives, its thread is not cancelled.
///
/// A thread that the application cancels (`pthread_cancel`) ends inside the next system call that is a
/// cancellation point: what it holds stays held, and all others wait for ever. No call of MPI is such a
/// point: the thread ends at the next one after it. So this must be held wherever a call of the C library
/// is made that is one (POSIX.1-2024 XSH §2.9.5.2), on whatever way from the application; on ways that
/// must be short the kernel is called without the C library instead, as `rustix` and `std`'s locks do, and
/// no `HashMap` is made: for the first in each thread `std` asks for random numbers.
#[derive(Debug)]
#[must_use = "the thread may be cancelled again as soon as this is dropped"]
pub struct Uncancelled {
    before: c_int,
    /// It is its thread's.
    _of_thread: PhantomData<*const ()>,
}

impl Uncancelled {
    /// Puts off being cancelled.
    #[inline]
    pub fn begin() -> Self {
        let mut before = 0;
        // SAFETY: the state is one of the two there are, and the place for the one before is ours.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self { before, _of_thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above; the state before is not wanted.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

// The same in all C libraries for Linux; `libc` does not name it there.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_cancelled_again_after_the_outermost() {
        let state = || Uncancelled::begin().before;
        let one_thread = std::thread::spawn(move || {
            let enabled = state();
            let outer = Uncancelled::begin();
            let inner = Uncancelled::begin();
            assert_eq!((outer.before, inner.before), (enabled, DISABLE));
            drop(inner);
            assert_eq!(state(), DISABLE);
            drop(outer);
            assert_eq!(state(), enabled);
            assert_ne!(enabled, DISABLE);
        });
        one_thread.join().unwrap();
    }
}
