//! The environment: versions, names, clocks, memory (MPI-5.0 §9.1, §9.6).

use std::ffi::{c_double, c_int};
use std::sync::LazyLock;
use std::time::Instant;

use lock::Uncancelled;

use crate::convention::*;
use crate::error::write_string;

pub(crate) fn get_version(version: Out<c_int>, subversion: Out<c_int>) -> Result<()> {
    version.put(5)?;
    subversion.put(0)
}

pub(crate) fn abi_get_version(major: Out<c_int>, minor: Out<c_int>) -> Result<()> {
    major.put(1)?;
    minor.put(0)
}

pub(crate) fn abi_get_info(info: Out<RawHandle>) -> Result<()> {
    let made = mpi::info::Info::default();
    for (key, value) in [("mpi_aint_size", 8), ("mpi_count_size", 8), ("mpi_offset_size", 8)] {
        made.set(key, &value.to_string())?;
    }
    info.put(raw(made.register()?))
}

/// Returns the resource types of `MPI_Comm_split_type`; true marks those that this process has for itself alone.
pub(crate) fn get_hw_resource_info(info: Out<RawHandle>) -> Result<()> {
    let made = mpi::info::Info::default();
    made.set("mpi_shared_memory", "true")?;
    made.set(crate::comm::SITE, "true")?;
    info.put(raw(made.register()?))
}

pub(crate) fn get_library_version(text: Chars, len: Out<c_int>) -> Result<()> {
    let version = concat!(
        "Canele ",
        env!("CARGO_PKG_VERSION"),
        ", an MPI for machines that are far apart, and for machines that are oversubscribed (MPI 5.0, ABI 1.0)"
    );
    write_string(version, 8192, text, len)
}

pub(crate) fn get_processor_name(name: Chars, len: Out<c_int>) -> Result<()> {
    let _uncancelled = Uncancelled::begin();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    write_string(host.trim(), 256, name, len)
}

/// Seconds since the first call of a clock function in this process.
pub(crate) fn wtime() -> c_double {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_secs_f64()
}

/// The clock counts nanoseconds.
pub(crate) fn wtick() -> c_double {
    1e-9
}

pub(crate) fn aint_add(base: isize, displacement: isize) -> isize {
    base.wrapping_add(displacement)
}

pub(crate) fn aint_diff(one: isize, other: isize) -> isize {
    one.wrapping_sub(other)
}

pub(crate) fn get_address(location: Address, address: Out<isize>) -> Result<()> {
    address.put(location.get() as isize)
}

pub(crate) fn alloc_mem(size: isize, info: RawHandle, base: Out<usize>) -> Result<()> {
    let bytes = crate::arguments::length("size", size as i64)?;
    crate::info::optional(info)?;
    // SAFETY: allocation of at least one byte.
    let memory = unsafe { libc::malloc(bytes.max(1)) };
    if memory.is_null() {
        return Err(class(ErrorClass::NoMem, format!("no {bytes} bytes of memory")));
    }
    base.put(memory as usize)
}

pub(crate) fn free_mem(base: Address) -> Result<()> {
    // SAFETY: the caller passes what `alloc_mem` gave.
    unsafe { libc::free(base.get()) };
    Ok(())
}

pub(crate) fn pcontrol(level: c_int) -> Result<()> {
    runtime::record::set_level(level);
    Ok(())
}

macro_rules! integers {
    ($($to:ident $from:ident $find:path;)*) => {$(
        /// The Fortran integer of a handle.
        pub(crate) fn $to(value: RawHandle) -> c_int {
            handle(value).to_int()
        }

        /// The handle of a Fortran integer.
        pub(crate) fn $from(value: c_int) -> RawHandle {
            match value {
                0..0x1000 => value as RawHandle,
                _ => raw($find(value)),
            }
        }
    )*};
}

fn group_from_int(value: c_int) -> handles::Handle {
    mpi::objects::GROUPS.from_int(value)
}

fn request_from_int(value: c_int) -> handles::Handle {
    mpi::request::from_int(crate::world::current().ok().map(|process| &**process), value)
}

fn type_from_int(value: c_int) -> handles::Handle {
    mpi::objects::DATATYPES.from_int(value)
}

fn op_from_int(value: c_int) -> handles::Handle {
    mpi::objects::OPS.from_int(value)
}

integers! {
    comm_toint comm_fromint mpi::comm::from_int;
    group_toint group_fromint group_from_int;
    type_toint type_fromint type_from_int;
    op_toint op_fromint op_from_int;
    request_toint request_fromint request_from_int;
    message_toint message_fromint mpi::point_to_point::message_from_int;
    errhandler_toint errhandler_fromint mpi::errhandler::Errhandler::from_int;
    info_toint info_fromint mpi::info::Info::from_int;
    win_toint win_fromint mpi::window::from_int;
    file_toint file_fromint mpi::file::from_int;
    session_toint session_fromint mpi::session::from_int;
}
