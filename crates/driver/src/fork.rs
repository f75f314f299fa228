//! What becomes of copies of this process.
//!
//! A process that `fork` makes has the rails of the one that called, and with them its connections, rings
//! and doorbells: whatever it read would be missing there, and whatever it wrote would be nonsense to
//! peers. So it is told not to, before it does anything else; and it closes its copies of what peers are
//! reached by. Otherwise no connection would end before it does: peers would not see that this process has
//! ended, the kernel would answer who calls it, and epoll would tell of sockets that were closed.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Has `tell` called in every process forked from this one from now on, first thing. It may do no more
/// than a signal handler.
pub fn tell_forked(tell: extern "C" fn()) {
    // SAFETY: the handler is a function without arguments, which the library provides for as long as the
    // process lasts. Fails only for lack of memory: copies are then not told.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(tell)) };
}

/// A socket that copies of this process close. What they have of it is of no use to them.
#[derive(Debug)]
pub(crate) struct Unshared<T: AsFd>(T);

impl<T: AsFd> Unshared<T> {
    pub fn new(socket: T) -> Self {
        static TELL: Once = Once::new();
        TELL.call_once(|| tell_forked(close_copies));
        if let Some((word, bit)) = place(&socket) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Self(socket)
    }
}

impl<T: AsFd> Drop for Unshared<T> {
    fn drop(&mut self) {
        // Before it is closed: its number may be another's then.
        if let Some((word, bit)) = place(&self.0) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl<T: AsFd> Deref for Unshared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> DerefMut for Unshared<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: AsFd> AsFd for Unshared<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Where a descriptor is noted; copies keep those of higher numbers.
fn place(socket: &impl AsFd) -> Option<(&'static AtomicU64, u64)> {
    let number = socket.as_fd().as_raw_fd() as usize;
    UNSHARED.get(number / 64).map(|word| (word, 1 << (number % 64)))
}

/// In a copy: it has one thread, and never drops what it closes.
extern "C" fn close_copies() {
    for (index, word) in UNSHARED.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let number = index as u32 * 64 + bits.trailing_zeros();
            bits &= bits - 1;
            // SAFETY: the number is of an open socket whose owner is not used in a copy of the process: communication
            // is refused there. To close it is allowed where only a signal handler's calls are.
            let _ = unsafe { libc::close(number as libc::c_int) };
        }
    }
}

/// A bit for each descriptor that copies close.
static UNSHARED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
