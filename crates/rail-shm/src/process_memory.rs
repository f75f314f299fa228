//! Remote reads from another process of the node.

use std::io;

use memory::Region;
use rail::{RailError, RemoteReader, check_range};
use wire::RemoteRegion;

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

/// Vectors in one call: `UIO_MAXIOV`.
const VECTORS_MAX: usize = 1024;
