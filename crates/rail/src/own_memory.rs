//! Remote reads from this process itself.

use memory::Region;
use wire::RemoteRegion;

use crate::rail::{RailError, RemoteReader};

/// Memory of this process, for remote reads from itself.
pub struct OwnMemory;

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

/// Copies from this process's own memory.
pub fn copy_own(remote: RemoteRegion, offset: u64, local: &Region) -> Result<(), RailError> {
    check_range(remote, offset, local)?;
    let address = (remote.address + offset) as usize as *mut u8;
    // SAFETY: the address comes from a region of a send that this process's engine has in flight. The maker of that
    // region vouched for the memory until the send completes.
    let source = unsafe { Region::new(address, local.len()) };
    local.copy_from(&source);
    Ok(())
}

/// Checks that `local.len()` bytes, starting `offset` bytes into `remote`, are part of it.
///
/// # Errors
/// They are not.
pub fn check_range(remote: RemoteRegion, offset: u64, local: &Region) -> Result<(), RailError> {
    match offset.checked_add(local.len() as u64) {
        Some(end) if end <= remote.len => Ok(()),
        _ => Err(RailError::Unreachable("a fetch beyond the sender's memory".into())),
    }
}
