//! Memory that an agent makes and its rank maps.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::slice;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Makes memory of `len` bytes that begins with `magic`. Pages are taken as they are written.
pub(crate) fn create(name: &str, magic: u64, len: u64) -> io::Result<File> {
    let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.set_len(len)?;
    file.write_all_at(&magic.to_le_bytes(), 0)?;
    Ok(file)
}

/// Opens the memory whose descriptor `variable` names, and maps it; none if the agent has made none.
///
/// # Errors
/// It cannot be mapped; the text says why.
pub(crate) fn of_process(
    variable: &str,
    option: &str,
    magic: u64,
) -> Result<Option<&'static [AtomicU64]>, String> {
    let Some(number) = std::env::var_os(variable) else { return Ok(None) };
    let path = std::path::Path::new("/proc/self/fd").join(&number);
    let failed = |error: io::Error| {
        format!("the recording of mpiexec {option} ({variable}={}): {error}", number.display())
    };
    // Programs that a rank starts inherit its variables, but not its recording.
    let file = File::options().read(true).write(true).open(path).ok();
    let Some(file) = file.filter(|file| begins_with(file, magic)) else { return Ok(None) };
    if let Some(Ok(inherited)) = number.to_str().map(str::parse) {
        // SAFETY: the agent has left this descriptor open, and nothing in this process closes it.
        let inherited = unsafe { BorrowedFd::borrow_raw(inherited) };
        fcntl_setfd(inherited, FdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    }
    map(&file, magic).map(Some).map_err(failed)
}

fn begins_with(file: &File, magic: u64) -> bool {
    let mut found = [0; 8];
    file.read_exact_at(&mut found, 0).is_ok() && u64::from_le_bytes(found) == magic
}

/// Maps memory that [`create`] has made. It stays mapped until the process ends.
///
/// # Errors
/// It is not such memory, or the system lacks a resource.
pub(crate) fn map(file: &File, magic: u64) -> io::Result<&'static [AtomicU64]> {
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    if !begins_with(file, magic) {
        return Err(io::Error::other("is no recording"));
    }
    let len = len / 8 * 8;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice, replaces no other.
    let address = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0)? };
    // SAFETY: the mapping has `len` bytes, begins on a page and is never removed. Its words are only accessed as
    // atomics, and all their values are valid. The file is as long: only its agent has it too, which only reads.
    Ok(unsafe { slice::from_raw_parts(address.cast::<AtomicU64>(), len / 8) })
}
