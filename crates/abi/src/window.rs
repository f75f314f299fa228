//! Windows (MPI-5.0 §12.2): how they are made, and what they tell of themselves.

mod access;
mod synchronization;

use std::ffi::c_int;

use memory::Region;
use mpi::window::{NULL, Window};

use crate::arguments::{PAGE, PROC_NULL, forget_window, intra, window};
use crate::attribute;
use crate::comm::NAME_MAX;
use crate::convention::*;
use crate::error::write_string;

pub(crate) use access::*;
pub(crate) use synchronization::*;

pub(crate) fn win_create(
    base: Address,
    size: isize,
    unit: i64,
    info: RawHandle,
    on: RawHandle,
    win: Out<RawHandle>,
) -> Result<()> {
    let comm = intra(on)?;
    let len = window_size(size)?;
    let unit = displacement_unit(unit)?;
    let info = crate::info::optional(info)?;
    give(Window::create(&comm, exposed(base, len)?, unit, &info)?, win)
}

pub(crate) fn win_create_dynamic(
    info: RawHandle,
    on: RawHandle,
    win: Out<RawHandle>,
) -> Result<()> {
    let comm = intra(on)?;
    let info = crate::info::optional(info)?;
    give(Window::create_dynamic(&comm, &info)?, win)
}

pub(crate) fn win_allocate(
    size: isize,
    unit: i64,
    info: RawHandle,
    on: RawHandle,
    base: Out<usize>,
    win: Out<RawHandle>,
) -> Result<()> {
    let comm = intra(on)?;
    let (len, unit) = (window_size(size)?, displacement_unit(unit)?);
    let info = crate::info::optional(info)?;
    let made = Window::allocate(&comm, len, unit, &info)?;
    base.put(made.values().base)?;
    give(made, win)
}

pub(crate) fn win_allocate_shared(
    size: isize,
    unit: i64,
    info: RawHandle,
    on: RawHandle,
    base: Out<usize>,
    win: Out<RawHandle>,
) -> Result<()> {
    let comm = intra(on)?;
    let (len, unit) = (window_size(size)?, displacement_unit(unit)?);
    let info = crate::info::optional(info)?;
    let made = Window::allocate_shared(&comm, len, unit, &info)?;
    base.put(made.values().base)?;
    give(made, win)
}

fn give(made: Window, place: Out<RawHandle>) -> Result<()> {
    place.put(raw(made.handle()))
}

fn window_size(size: isize) -> Result<usize> {
    length_of("size", ErrorClass::Size, size as i64)
}

/// A displacement unit in bytes.
fn displacement_unit(unit: i64) -> Result<u32> {
    u32::try_from(unit).ok().filter(|unit| *unit > 0).ok_or_else(|| {
        let text = format!("disp_unit = {unit} is no positive number of 32 bits");
        class(ErrorClass::Disp, text)
    })
}

/// The memory at an address, for others to access.
fn exposed(base: Address, len: usize) -> Result<Region> {
    if (base.get() as usize) < PAGE && len > 0 {
        let text = format!("base = {:?} is no address of size = {len} bytes", base.get());
        return Err(class(ErrorClass::Buffer, text));
    }
    let memory = base.bytes(0, len);
    if !memory.is_on_host() {
        let text =
            format!("base = {:?} is in a device: windows are in memory of the host", base.get());
        return Err(class(ErrorClass::Buffer, text));
    }
    Ok(memory)
}

pub(crate) fn win_free(win: InOut<RawHandle>) -> Result<()> {
    let window = window(win.get())?;
    let on = window.handle();
    let freed = window.check_free().and_then(|()| {
        attribute::delete_window(&window)?;
        window.free()
    });
    forget_window();
    freed.map_err(|error| error.on(on))?;
    win.put(raw(NULL))
}

pub(crate) fn win_attach(win: RawHandle, base: Address, size: isize) -> Result<()> {
    let window = window(win)?;
    let len = window_size(size)?;
    window.attach(exposed(base, len)?)
}

pub(crate) fn win_detach(win: RawHandle, base: Address) -> Result<()> {
    window(win)?.detach(base.get() as usize)
}

pub(crate) fn win_shared_query(
    win: RawHandle,
    rank: c_int,
    size: Out<isize>,
    unit: OutInt,
    base: Out<usize>,
) -> Result<()> {
    let window = window(win)?;
    let rank = rank_or_null(&window, "rank", rank)?;
    let memory = window.reachable_memory(rank);
    size.put(memory.len as isize)?;
    unit.put(i64::from(memory.unit))?;
    base.put(memory.address)
}

pub(crate) fn win_get_group(win: RawHandle, group: Out<RawHandle>) -> Result<()> {
    crate::group::give(window(win)?.group(), group)
}

pub(crate) fn win_set_name(win: RawHandle, name: String) -> Result<()> {
    window(win)?.set_name(name.as_bytes());
    Ok(())
}

pub(crate) fn win_get_name(win: RawHandle, name: Chars, len: Out<c_int>) -> Result<()> {
    let known = match handle(win) {
        NULL => "MPI_WIN_NULL".into(),
        _ => String::from_utf8_lossy(&window(win)?.name()).into_owned(),
    };
    write_string(&known, NAME_MAX, name, len)
}

pub(crate) fn win_set_info(win: RawHandle, info: RawHandle) -> Result<()> {
    let window = window(win)?;
    window.set_info(&crate::info::optional(info)?);
    Ok(())
}

pub(crate) fn win_get_info(win: RawHandle, info: Out<RawHandle>) -> Result<()> {
    info.put(raw(window(win)?.info()?.register()?))
}

/// The rank of a process of the window; none for `MPI_PROC_NULL`.
#[inline(always)]
fn rank_or_null(window: &Window, name: &str, rank: c_int) -> Result<Option<u32>> {
    match u32::try_from(rank) {
        Ok(rank) if rank < window.size() => Ok(Some(rank)),
        _ if rank == PROC_NULL => Ok(None),
        _ => Err(bad_rank(window, name, rank)),
    }
}

#[cold]
fn bad_rank(window: &Window, name: &str, rank: c_int) -> Error {
    let text = format!("{name} = {rank} is outside a window of {}", window.size());
    class(ErrorClass::Rank, text)
}
