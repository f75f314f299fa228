//! Liveness check of processes on this node.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process, watched since its memory was attached.
#[derive(Debug)]
pub(crate) struct Liveness {
    pid: i32,
    /// A pidfd: it reports the end even before the parent has waited, and is not confused by a reused pid. `None` if
    /// the kernel has no pidfds.
    descriptor: Option<OwnedFd>,
}

impl Liveness {
    pub fn of(pid: i32) -> Self {
        let number = Pid::from_raw(pid);
        let descriptor = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self { pid, descriptor }
    }

    pub fn has_ended(&self) -> bool {
        match &self.descriptor {
            Some(descriptor) => {
                let mut ends = [PollFd::new(descriptor, PollFlags::IN)];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                poll(&mut ends, Some(&now)).is_ok_and(|count| count > 0)
            }
            None => {
                // SAFETY: signal 0 sends nothing; it only checks that the process exists.
                let answer = unsafe { libc::kill(self.pid, 0) };
                answer != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_zombie_process_counts_as_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let watched = Liveness::of(child.id() as i32);
        let by_number = Liveness { pid: child.id() as i32, descriptor: None };
        assert!(!watched.has_ended() && !by_number.has_ended());
        child.kill().unwrap();
        if watched.descriptor.is_some() {
            while !watched.has_ended() {
                std::thread::yield_now();
            }
        }
        child.wait().unwrap();
        assert!(watched.has_ended() && by_number.has_ended());
    }
}
