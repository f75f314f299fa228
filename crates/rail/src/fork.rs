//! Forked copies of this process.
//!
//! A forked child inherits the rails of its parent, with connections, rings and eventfds. Bytes that it read would be
//! missing in the parent, and bytes that it wrote would confuse the peers. So a handler tells the child first thing
//! not to communicate, and closes its copies of the sockets. Otherwise no connection would end before the child does.
//! Peers would not see that the parent has ended, the kernel would accept connections for it, and epoll would report
//! closed sockets.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `tell` first in every process forked from this one from now on. It may do no more than a signal handler.
pub fn tell_forked(tell: extern "C" fn()) {
    // SAFETY: the handler is a function without arguments that exists as long as the process. The call fails only for
    // lack of memory; forked children are then not told.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(tell)) };
}

/// A socket that forked children close. Their copies are useless to them.
#[derive(Debug)]
pub struct Unshared<T: AsFd>(T);

impl<T: AsFd> Unshared<T> {
    /// Has forked children close the socket from now on.
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
        // The bit is cleared before the socket closes, because its number may be reused then.
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

/// Returns the bit of a descriptor; children do not close those of higher numbers.
fn place(socket: &impl AsFd) -> Option<(&'static AtomicU64, u64)> {
    let number = socket.as_fd().as_raw_fd() as usize;
    UNSHARED.get(number / 64).map(|word| (word, 1 << (number % 64)))
}

/// Runs in a forked child, which has one thread and never drops the sockets that it closes here.
extern "C" fn close_copies() {
    for (index, word) in UNSHARED.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let number = index as u32 * 64 + bits.trailing_zeros();
            bits &= bits - 1;
            // SAFETY: the number belongs to an open socket, and its owner is not used in a child, where communication
            // is refused. `close` is async-signal-safe.
            let _ = unsafe { libc::close(number as libc::c_int) };
        }
    }
}

/// One bit for each descriptor that forked children close.
static UNSHARED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
