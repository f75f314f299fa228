//! Calls of the C library about cores and threads: the calling thread's core and signal mask, and the cores online.

use std::{mem, ptr};

/// Number of the core that the calling thread runs on. The C library is asked, for reading what the kernel maps into
/// processes goes wrong under valgrind.
pub fn core_here() -> u32 {
    // SAFETY: the call takes no argument and touches no memory of the caller.
    let core = unsafe { libc::sched_getcpu() };
    u32::try_from(core).unwrap_or(0)
}

/// Number of cores that are online on this machine, those that this process may not use included.
pub fn cores_online() -> Option<usize> {
    // SAFETY: the call takes a number and touches no memory of the caller.
    let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(cores).ok().filter(|cores| *cores > 0)
}

/// Runs `spawn` with all signals blocked. Threads that it starts inherit the mask, so that signals reach the
/// application's threads only.
pub fn without_signals<T>(spawn: impl FnOnce() -> T) -> T {
    // SAFETY: a signal set is plain bits, for which zero is a value.
    let (mut all, mut before) =
        unsafe { (mem::zeroed::<libc::sigset_t>(), mem::zeroed::<libc::sigset_t>()) };
    // SAFETY: the calls read and write the two sets, which live until the end of the function.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
    }
    let spawned = spawn();
    // SAFETY: `before` holds the mask that the kernel returned above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    spawned
}
