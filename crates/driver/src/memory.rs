//! Copies between processes that share a node.

use std::io;

use memory::Region;
use wire::RemoteRegion;

use crate::rail::{RailError, RemoteReader};

/// Memory of this process, for remote reads from itself.
pub(crate) struct OwnMemory;

impl RemoteReader for OwnMemory {
    fn remote_read(
        &self,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError> {
        copy_own(remote, offset, local)
    }
}

/// Memory of the process with this PID.
pub(crate) struct ProcessMemory(pub i32);

impl RemoteReader for ProcessMemory {
    fn remote_read(
        &self,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError> {
        copy_from_process(self.0, remote, offset, local)
    }
}

/// Copies from this process's own memory.
pub(crate) fn copy_own(remote: RemoteRegion, offset: u64, local: &Region) -> Result<(), RailError> {
    check_range(remote, offset, local)?;
    let address = (remote.address + offset) as usize as *mut u8;
    // SAFETY: the address comes from a region of a send that this process's engine has in flight. The maker of that
    // region vouched for the memory until the send completes.
    let source = unsafe { Region::new(address, local.len()) };
    local.copy_from(&source);
    Ok(())
}

/// Copies from the memory of process `pid` (`process_vm_readv`).
pub(crate) fn copy_from_process(
    pid: i32,
    remote: RemoteRegion,
    offset: u64,
    local: &Region,
) -> Result<(), RailError> {
    check_range(remote, offset, local)?;
    let mut done = 0;
    while done < local.len() {
        let vectors = vectors_of(local, done);
        let len: usize = vectors.iter().map(|vector| vector.iov_len).sum();
        let from = libc::iovec {
            iov_base: (remote.address + offset + done as u64) as usize as *mut libc::c_void,
            iov_len: len,
        };
        // SAFETY: the local vectors lie in a region whose maker vouched for it; the remote range is
        // read by the kernel, which checks it.
        let copied = unsafe {
            libc::process_vm_readv(pid, vectors.as_ptr(), vectors.len() as u64, &from, 1, 0)
        };
        if copied <= 0 {
            let source = io::Error::last_os_error();
            return Err(RailError::System {
                call: "process_vm_readv of the sender's memory",
                source,
            });
        }
        done += copied as usize;
    }
    Ok(())
}

fn vectors_of(local: &Region, from: usize) -> Vec<libc::iovec> {
    let mut vectors = Vec::new();
    local.visit(from, local.len() - from, &mut |span| {
        vectors.push(libc::iovec { iov_base: span.address.cast(), iov_len: span.len });
        vectors.len() < VECTORS_MAX
    });
    vectors
}

fn check_range(remote: RemoteRegion, offset: u64, local: &Region) -> Result<(), RailError> {
    match offset.checked_add(local.len() as u64) {
        Some(end) if end <= remote.len => Ok(()),
        _ => Err(RailError::Unreachable("a fetch beyond the sender's memory".into())),
    }
}

/// Vectors in one call: `UIO_MAXIOV`.
const VECTORS_MAX: usize = 1024;
