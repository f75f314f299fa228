//! Eventfds on which a thread sleeps until another signals.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, eventfd, poll};
use rustix::time::Timespec;

/// Creates an eventfd that is not signalled.
///
/// # Errors
/// If the kernel gives no descriptor.
pub fn new() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Wakes the thread that sleeps on it, now or at its next sleep.
pub fn ring(event: &OwnedFd) {
    // This fails only if the counter is full, and then the sleeper is awake anyhow.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Resets the eventfd.
pub fn silence(event: &OwnedFd) {
    // The descriptor is non-blocking.
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Sleeps until one of several is signalled or the time limit, if any, is over.
pub fn wait(events: &mut [PollFd<'_>], limit: Option<Duration>) {
    let timeout = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    // A signal handler that interrupts the sleep only makes the thread check earlier.
    let _ = poll(events, timeout.as_ref());
}
