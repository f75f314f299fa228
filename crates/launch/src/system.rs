//! System calls that the standard library lacks.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Makes the command's process the leader of a group of its own, which ends with its parent.
pub(crate) fn own_group(command: &mut Command) {
    command.process_group(0);
    let parent = std::process::id() as i32;
    // SAFETY: between fork and exec only async-signal-safe calls are made.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // The parent may have ended before the call.
            if libc::getppid() != parent {
                libc::_exit(1);
            }
            Ok(())
        });
    }
}

/// Leaves descriptor `fd` open in the command's process.
pub(crate) fn inherit(command: &mut Command, fd: i32) {
    // SAFETY: fcntl is async-signal-safe, and the descriptor stays open in this process until the command is
    // spawned.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Raises this process's limit of descriptors to its maximum. Returns the former limit.
pub(crate) fn raise_descriptors() -> Option<libc::rlimit> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is written, then read.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) != 0 {
            return None;
        }
        let most = libc::rlimit { rlim_cur: before.rlim_max, ..before };
        (libc::setrlimit(libc::RLIMIT_NOFILE, &most) == 0).then_some(before)
    }
}

/// Gives the command's process this limit of descriptors: programs may rely on a low one.
pub(crate) fn limit_descriptors(command: &mut Command, limit: libc::rlimit) {
    // SAFETY: setrlimit is async-signal-safe, and the limit is the closure's own.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &limit) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

/// Binds the command's process to these processors, as far as `cpu_set_t` can hold their numbers.
pub(crate) fn bind(command: &mut Command, processors: &[usize]) {
    // SAFETY: `cpu_set_t` is plain bits, and all zeroes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for processor in processors.iter().filter(|one| **one < libc::CPU_SETSIZE as usize) {
        // SAFETY: the processor's number is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(*processor, &mut set) };
    }
    // SAFETY: sched_setaffinity is async-signal-safe, and the set is the closure's own.
    unsafe {
        command.pre_exec(move || {
            match libc::sched_setaffinity(0, size_of_val(&set), &raw const set) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

/// Starts a thread that needs little memory.
pub(crate) fn start_thread(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body).map(drop)
}

/// Sends a signal to a process group.
pub(crate) fn signal_group(group: u32, signal: i32) {
    // SAFETY: no memory is involved. A group that has ended is none to signal.
    unsafe { libc::kill(-(group as i32), signal) };
}

/// Opens a pidfd, which keeps naming the process after its number is reused.
pub(crate) fn process(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; the descriptor is nobody else's.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, id as libc::pid_t, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}

/// Waits for a process's end.
pub(crate) fn await_end(process: &OwnedFd) -> io::Result<()> {
    await_input(process, None).map(drop)
}

/// Waits until the descriptor is readable or closed, at most for `limit`. True if it is.
pub(crate) fn await_input(from: &impl AsRawFd, limit: Option<Duration>) -> io::Result<bool> {
    let mut wanted = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit_ms = limit.map_or(-1, |limit| limit.as_millis().try_into().unwrap_or(i32::MAX));
    loop {
        // SAFETY: one struct, which outlives the call.
        match unsafe { libc::poll(&raw mut wanted, 1, limit_ms) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            count => return Ok(count > 0),
        }
    }
}

/// Makes this process the reaper of orphaned descendants, so that it can end them.
pub(crate) fn adopt_orphans() {
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Ends remaining descendants of this process, such as children of ranks in groups of their own.
pub(crate) fn end_descendants() {
    for _ in 0..SWEEPS {
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let children: Vec<i32> =
            children.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            // SAFETY: no memory is involved; the ids are children of ours, so they are not reused.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Records signals instead of obeying them; [`taken_signal`] returns them.
pub(crate) fn note_signals(signals: &[i32]) {
    for &signal in signals {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// Returns a recorded signal once, the lowest first.
pub(crate) fn taken_signal() -> Option<i32> {
    let noted = NOTED.load(Ordering::Relaxed);
    if noted == 0 {
        return None;
    }
    let signal = noted.trailing_zeros();
    NOTED.fetch_and(!(1 << signal), Ordering::Relaxed);
    Some(signal as i32)
}

/// Stops this process, as the terminal demands, until it is continued.
pub(crate) fn stop() {
    // SAFETY: no memory is involved.
    unsafe { libc::raise(libc::SIGSTOP) };
}

extern "C" fn note(signal: i32) {
    NOTED.fetch_or(1 << signal, Ordering::Relaxed);
}

/// Recorded signals, one bit each.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// Stack of a thread: small, because threads here only move bytes through buffers on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Maximum number of sweeps: killing a parent may make its children ours.
const SWEEPS: usize = 64;
