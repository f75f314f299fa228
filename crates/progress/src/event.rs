//! Events: descriptors on which a thread sleeps until another rings.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, eventfd, poll};
use rustix::time::Timespec;

/// A new one, which has not been rung.
///
/// # Errors
/// When the kernel gives no descriptor.
pub fn new() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Wakes who sleeps on it, or will next.
pub fn ring(event: &OwnedFd) {
    // Fails only when the counter is full, and then the sleeper is awake anyhow.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// It has been heard.
pub fn silence(event: &OwnedFd) {
    // It does not block.
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Sleeps until one of several rings or time, if it is limited, is over.
pub fn wait(events: &mut [PollFd<'_>], limit: Option<Duration>) {
    let timeout = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    // An interruption by a signal only means that the sleeper looks earlier.
    let _ = poll(events, timeout.as_ref());
}
