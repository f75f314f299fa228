//! A lock that lets one process per host probe a path.
//!
//! All processes with a link over the path would fill it with padding at once, and each would measure only its share.
//! So the first takes a lock, an abstract socket name that the kernel frees when the process ends. The others read
//! the result from the cache.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rail::Unshared;

/// The right to probe a path, held while this value lives.
#[derive(Debug)]
pub struct ProbeLock {
    /// Socket that holds the name; none if no lock is needed.
    _name: Option<Unshared<UnixDatagram>>,
}

impl ProbeLock {
    /// Takes the lock of the path between two addresses for a job.
    ///
    /// # Errors
    /// Returned when another process holds the lock, or by the kernel.
    pub fn of(job: u64, here: IpAddr, there: IpAddr) -> io::Result<Self> {
        // Hosts that share a kernel have separate network namespaces, and names with them.
        let name = SocketAddr::from_abstract_name(format!("canele-way {job:x} {here} {there}"))?;
        Ok(Self { _name: Some(Unshared::new(UnixDatagram::bind_addr(&name)?)) })
    }

    /// A lock of a path that other processes probe as well.
    pub fn unlocked() -> Self {
        Self { _name: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_locked_by_one_process_at_a_time() {
        let (here, there) = ([127, 0, 0, 1], [127, 0, 0, 2]);
        // Tests of another run may be running.
        let job = u64::from(std::process::id());
        let probe_lock =
            |job, from: [u8; 4], to: [u8; 4]| ProbeLock::of(job, from.into(), to.into());
        let first = probe_lock(job, here, there).unwrap();
        assert_eq!(probe_lock(job, here, there).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(probe_lock(job, there, here).is_ok(), "the way back is another");
        assert!(probe_lock(job + 1, here, there).is_ok(), "of another job");
        drop(first);
        assert!(probe_lock(job, here, there).is_ok());
    }
}
