//! Probes that see pending input without locking the rail.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};

/// A probe for threads that must not hold a lock others wait for. It may outlive the rail and never disturbs it. Its
/// answer is a hint: input that the rail is just receiving may still be reported.
pub trait ReadinessProbe: Send + Sync {
    /// True if input has arrived that the rail has not received yet. Neither blocks nor changes what the rail finds.
    fn sees_events(&self) -> bool;
}

/// Probe of sockets, through an epoll descriptor of its own. `epoll_wait` locks a socket only while input is pending
/// there. The kernel removes closed sockets by itself.
#[derive(Debug)]
pub struct Sockets(OwnedFd);

impl Sockets {
    /// Creates a probe without sockets; `None` if the kernel gives no descriptor.
    pub fn new() -> Option<Self> {
        epoll::create(epoll::CreateFlags::CLOEXEC).ok().map(Self)
    }

    /// Adds a socket to the probe.
    pub fn add(&self, socket: impl AsFd) {
        // Fails only for lack of kernel memory; input on this socket is then found by the next poll of the rail.
        let _ = epoll::add(&self.0, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
    }
}

impl ReadinessProbe for Sockets {
    fn sees_events(&self) -> bool {
        let none =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.0, &mut [none], Some(&at_once)).is_ok_and(|ready| ready > 0)
    }
}
