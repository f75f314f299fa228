//! Seeing, without the rail and whoever has it, that something has come.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};

/// What a thread looks through that must hold nothing others wait for. It outlives the rail, which it keeps from
/// nothing; what it says is a hint, late by what the rail has just done.
pub trait ReadinessProbe: Send + Sync {
    /// Whether something has come that the rail has not taken in. Neither waits for anybody nor changes what the rail
    /// finds.
    fn sees_events(&self) -> bool;
}

/// Looks at sockets, through an epoll descriptor of its own: the kernel locks one while it reads from it, and none
/// while nothing is there. Sockets that are closed leave it by themselves.
#[derive(Debug)]
pub(crate) struct Sockets(OwnedFd);

impl Sockets {
    /// None where the kernel gives no descriptor.
    pub fn new() -> Option<Self> {
        epoll::create(epoll::CreateFlags::CLOEXEC).ok().map(Self)
    }

    /// Looks at another one from now on.
    pub fn add(&self, socket: impl AsFd) {
        // Fails only for lack of kernel memory; what comes there is then found by who polls.
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
