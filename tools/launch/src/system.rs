//! System calls that the standard library lacks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getpgrp, getpid, getppid, getrlimit,
    kill_process, kill_process_group, pidfd_open, set_child_subreaper,
    set_parent_process_death_signal, setrlimit, waitpid,
};
use rustix::termios::tcgetpgrp;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Puts the command's process into a group of its own in the background. Signals from the terminal leave it alone:
/// they reach the ranks through `mpiexec`. The terminal does not stop it either, but fails its reads.
pub(crate) fn in_background(command: &mut Command) {
    command.process_group(0);
    // SAFETY: signal is async-signal-safe, and no handler is installed.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGTTIN, libc::SIG_IGN);
            libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            Ok(())
        });
    }
}

/// Returns the signals that this process ignores, one bit per number.
pub(crate) fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    signals_of(&status, "SigIgn:")
}

/// True if a process handles or ignores a signal, so that it does not end by it.
pub(crate) fn takes(process: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    ["SigCgt:", "SigIgn:"].iter().any(|name| signals_of(&status, name) >> signal & 1 != 0)
}

/// Returns a set of signals in the status of a process, one bit per number.
fn signals_of(status: &str, name: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(name));
    // The kernel's lowest bit is signal 1.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).map_or(0, |mask| mask << 1)
}

/// True if this process is in the background of a terminal.
pub(crate) fn is_in_background(terminal: &impl AsFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|foreground| foreground != getpgrp())
}

/// Writes all bytes. Waits if another process has made the open file non-blocking.
pub(crate) fn write_all(to: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => await_readiness(to, PollFlags::OUT, None).map(drop)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Prints a requested text on standard output. False if that fails, with a line unless nobody reads it.
pub(crate) fn print(text: &str) -> bool {
    match write_all(&io::stdout(), text.as_bytes()) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => false,
        Err(error) => {
            tell!("mpiexec: standard output cannot be written: {error}");
            false
        }
    }
}

/// Makes the command's process the leader of a group of its own, which ends with its parent.
pub(crate) fn own_group(command: &mut Command) {
    command.process_group(0);
    let parent = getpid();
    // SAFETY: between fork and exec only async-signal-safe system calls are made.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before the call.
            if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
        });
    }
}

/// Leaves descriptor `fd` open in the command's process.
pub(crate) fn inherit(command: &mut Command, fd: RawFd) {
    // SAFETY: fcntl is async-signal-safe, and the descriptor stays open in this process until the command is
    // spawned.
    unsafe {
        command.pre_exec(move || {
            fcntl_setfd(BorrowedFd::borrow_raw(fd), FdFlags::empty())?;
            Ok(())
        });
    }
}

/// Raises this process's limit of descriptors to its maximum. Returns the former limit.
pub(crate) fn raise_descriptors() -> Option<Rlimit> {
    let before = getrlimit(Resource::Nofile);
    let most = Rlimit { current: before.maximum, ..before };
    setrlimit(Resource::Nofile, most).is_ok().then_some(before)
}

/// Gives the command's process this limit of descriptors: programs may rely on a low one.
pub(crate) fn limit_descriptors(command: &mut Command, limit: Rlimit) {
    // SAFETY: setrlimit is async-signal-safe, and the limit is the closure's own.
    unsafe {
        command.pre_exec(move || Ok(setrlimit(Resource::Nofile, limit)?));
    }
}

/// Binds the command's process to these processors, as far as a [`CpuSet`] can hold their numbers.
pub(crate) fn bind(command: &mut Command, processors: &[usize]) {
    let mut set = CpuSet::new();
    processors.iter().filter(|one| **one < CpuSet::MAX_CPU).for_each(|one| set.set(*one));
    // SAFETY: sched_setaffinity is async-signal-safe, and the set is the closure's own.
    unsafe {
        command.pre_exec(move || Ok(sched_setaffinity(None, &set)?));
    }
}

/// Returns the local time as `ctime` writes it: `Mon Nov 30 04:14:57 2026`.
pub(crate) fn local_time() -> String {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs() as libc::time_t;
    let mut text = [0u8; 64];
    // SAFETY: a `tm` of zeros is valid: numbers, and a null pointer for the name of the zone.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of this function.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    let format = c"%a %b %e %H:%M:%S %Y";
    // SAFETY: the buffer has the length that is given, and the format ends with a zero.
    let len = unsafe {
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &raw const parts)
    };
    String::from_utf8_lossy(&text[..len]).into_owned()
}

/// Starts a thread that needs little memory.
pub(crate) fn start_thread(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body).map(drop)
}

/// Sends a signal, of which a message has the number, to a process group. A group that has ended is none to signal, nor
/// is a number that is no signal's.
pub(crate) fn signal_group(group: u32, signal: i32) {
    let group = Pid::from_raw(group as i32);
    if let (Some(group), Some(signal)) = (group, Signal::from_named_raw(signal)) {
        let _ = kill_process_group(group, signal);
    }
}

/// Opens a pidfd, which keeps naming the process after its number is reused.
pub(crate) fn process(id: u32) -> io::Result<OwnedFd> {
    let id = Pid::from_raw(id as i32).ok_or(Errno::SRCH)?;
    Ok(pidfd_open(id, PidfdFlags::empty())?)
}

/// Waits for a process's end.
pub(crate) fn await_end(process: &OwnedFd) -> io::Result<()> {
    await_input(process, None).map(drop)
}

/// Waits until the descriptor is readable or closed, at most for `limit`. True if it is.
pub(crate) fn await_input(from: &impl AsFd, limit: Option<Duration>) -> io::Result<bool> {
    await_readiness(from, PollFlags::IN, limit)
}

fn await_readiness(of: &impl AsFd, wanted: PollFlags, limit: Option<Duration>) -> io::Result<bool> {
    let limit = limit.map(Timespec::try_from).transpose().unwrap_or(None);
    loop {
        match poll(&mut [PollFd::new(of, wanted)], limit.as_ref()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(count) => return Ok(count > 0),
        }
    }
}

/// Makes this process the reaper of orphaned descendants, so that it can end them.
pub(crate) fn adopt_orphans() {
    // Fails on no kernel that has pidfds.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Ends remaining descendants of this process, such as children of ranks in groups of their own.
pub(crate) fn end_descendants() {
    for _ in 0..SWEEPS {
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let ids = children.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?));
        let children: Vec<Pid> = ids.collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            // Children of ours: their ids are not reused.
            let _ = kill_process(child, Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
    }
}

/// Stops this process, as the terminal demands, until it is continued.
pub(crate) fn stop() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// Stack of a thread: small, because threads here only move bytes through buffers on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Maximum number of sweeps: killing a parent may make its children ours.
const SWEEPS: usize = 64;
