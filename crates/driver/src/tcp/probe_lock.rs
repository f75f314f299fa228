//! Who of a host's processes finds out what a way carries.
//!
//! Each that has a link over it would fill it with padding, at the same time, and see the share that the others have left
//! it. So the first claims the way, by a name of the kernel's that ends with it however that ends, and others hear what it
//! found from what is remembered.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::fork::Unshared;

/// A way that is this process's to measure, as long as this lives.
#[derive(Debug)]
pub(super) struct Claim {
    /// What has the name, where others are to be kept from it.
    _name: Option<Unshared<UnixDatagram>>,
}

impl Claim {
    /// Claims the way between two addresses for a job's process.
    ///
    /// # Errors
    /// When it is claimed; the system's.
    pub fn of(job: u64, here: IpAddr, there: IpAddr) -> io::Result<Self> {
        // Hosts that share a kernel have networks, and with them names, of their own.
        let name = SocketAddr::from_abstract_name(format!("canele-way {job:x} {here} {there}"))?;
        Ok(Self { _name: Some(Unshared::new(UnixDatagram::bind_addr(&name)?)) })
    }

    /// Of a way that others are to measure, too.
    pub fn nobody() -> Self {
        Self { _name: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_one_process_s_until_that_has_done() {
        let (here, there) = ([127, 0, 0, 1], [127, 0, 0, 2]);
        // Tests of another run may be under way.
        let job = u64::from(std::process::id());
        let claim = |job, from: [u8; 4], to: [u8; 4]| Claim::of(job, from.into(), to.into());
        let first = claim(job, here, there).unwrap();
        assert_eq!(claim(job, here, there).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(claim(job, there, here).is_ok(), "the way back is another");
        assert!(claim(job + 1, here, there).is_ok(), "of another job");
        drop(first);
        assert!(claim(job, here, there).is_ok());
    }
}
