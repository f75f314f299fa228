//! Eventfds, on which a thread sleeps until another signals it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, eventfd, poll};
use rustix::time::Timespec;

/// Creates an eventfd that is not signalled.
///
/// # Errors
/// Fails if the kernel gives no descriptor.
pub fn new() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Signals the eventfd: wakes a thread that sleeps on it or will do so next.
pub fn signal(event: &OwnedFd) {
    // Fails only if the counter is full, and then the eventfd is readable anyway.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Clears the signal.
pub fn clear(event: &OwnedFd) {
    // The eventfd is nonblocking.
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Sleeps until one of the descriptors is readable or the time limit, if any, is over.
pub fn wait(events: &mut [PollFd<'_>], limit: Option<Duration>) {
    let timeout = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    // A signal handler that interrupts the sleep only makes the thread check earlier.
    let _ = poll(events, timeout.as_ref());
}
