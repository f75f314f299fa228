//! A guard against thread cancellation.

use std::ffi::c_int;
use std::marker::PhantomData;

/// Disables cancellation of the calling thread (`pthread_cancel`) until it is dropped.
///
/// A cancelled thread ends inside the next system call that is a cancellation point. Locks that it holds stay held,
/// and all others wait for ever. No MPI call may be such a point: the thread ends at the next one after the call. So
/// this guard must be held around every C library call that is a cancellation point (POSIX.1-2024 XSH §2.9.5.2).
/// Paths that must be short avoid the C library: `rustix` and `std`'s locks call the kernel directly. They also
/// create no `HashMap`, because `std` asks for random numbers for the first in each thread.
#[derive(Debug)]
#[must_use = "the thread may be cancelled again as soon as this is dropped"]
pub struct Uncancelled {
    before: c_int,
    /// Makes the guard `!Send`: the state belongs to the thread.
    _of_thread: PhantomData<*const ()>,
}

impl Uncancelled {
    /// Disables cancellation.
    #[inline]
    pub fn begin() -> Self {
        let mut before = 0;
        // SAFETY: `DISABLE` is one of the two valid states, and `before` is a local variable.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self { before, _of_thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `before` is a state that the C library has returned; a null pointer is allowed for the former
        // state.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

// All C libraries for Linux have it, but `libc` does not declare it.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellation_is_enabled_again_after_the_outermost_guard() {
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
