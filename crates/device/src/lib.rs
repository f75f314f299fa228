//! Memory of devices in the application's buffers.
//!
//! An address tells whose memory it is: the device's library knows. Regions of it go through the library like others, and a
//! mover copies them ([`memory::device`]). The only library so far is CUDA's, which is loaded at run time.

mod api;
mod cuda;
mod stages;

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory::Region;

use crate::cuda::Cuda;

/// Number of addresses behind the first page that are the host's for sure: all of them, or none where a device's library is open.
static HOSTS: AtomicUsize = AtomicUsize::new(ALL);
static CUDA: OnceLock<Cuda> = OnceLock::new();

/// Opens the library of this machine's devices, as [`settings::DEVICES`] says. Further calls do nothing.
///
/// # Errors
/// The setting is wrong, or the library that it names cannot be loaded.
pub fn open() -> Result<(), String> {
    let (variable, value) = (settings::DEVICES.variable(), settings::DEVICES.text());
    let is_wanted = match value.trim() {
        "auto" => Path::new(NVIDIA).exists(),
        "cuda" => true,
        "none" => false,
        _ => return Err(format!("{variable}={value}: not one of {}", settings::DEVICES.values())),
    };
    if !is_wanted || is_open() {
        return Ok(());
    }
    match Cuda::load() {
        Ok(cuda) => {
            let _ = CUDA.set(cuda);
            HOSTS.store(0, Ordering::Release);
            Ok(())
        }
        // A machine may have the device without its library.
        Err(_) if value.trim() == "auto" => Ok(()),
        Err(reason) => Err(format!("{variable}={value}: {reason}")),
    }
}

/// True if an address is the host's for sure, and not in the first page, as constants of the standard are. One comparison tells both.
#[inline(always)]
pub fn is_ordinary(address: usize) -> bool {
    address.wrapping_sub(PAGE) < HOSTS.load(Ordering::Relaxed)
}

fn is_open() -> bool {
    HOSTS.load(Ordering::Acquire) != ALL
}

/// Kinds of memory that buffers may have, for the info key `mpi_memory_alloc_kinds` (MPI-5.0 §12.4.3).
pub fn memory_kinds() -> &'static str {
    if is_open() { "mpi,system,cuda,cuda:host,cuda:device,cuda:managed" } else { "mpi,system" }
}

/// Returns the region as one of a device, if the memory behind its addresses is one's.
///
/// # Safety
/// The application vouches for the memory until the operation completes.
#[cold]
#[inline(never)]
pub unsafe fn located(region: Region) -> Region {
    let Some(cuda) = CUDA.get().filter(|_| !region.is_empty()) else { return region };
    let mut first = std::ptr::null_mut();
    region.visit(0, 1, &mut |span| {
        first = span.address;
        false
    });
    match cuda.owner(first as u64) {
        // SAFETY: the library says that the memory is its own, and the caller that the application vouches for it.
        Some(context) => unsafe { Region::on_device(region, context) },
        None => region,
    }
}

const PAGE: usize = 4096;
const ALL: usize = usize::MAX - PAGE + 1;
/// File of NVIDIA's driver.
const NVIDIA: &str = "/dev/nvidiactl";
