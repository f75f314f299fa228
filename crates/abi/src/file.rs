//! Files (MPI-5.0 §14): opening and closing, views, pointers and sizes.

mod access;
mod representation;

use std::ffi::c_int;
use std::path::PathBuf;

use mpi::file::{self, File, NULL, Whence};

use crate::arguments::{committed, file, intra};
use crate::contents::handle_for;
use crate::convention::*;

pub(crate) use access::*;
pub(crate) use representation::*;

pub(crate) fn file_open(
    on: RawHandle,
    filename: PathBuf,
    amode: c_int,
    info: RawHandle,
    fh: Out<RawHandle>,
) -> Result<()> {
    let comm = intra(on)?;
    let info = crate::info::optional(info)?;
    let opened = File::open(&comm, &filename, amode, &info)?;
    fh.put(raw(opened.handle()))
}

pub(crate) fn file_close(fh: InOut<RawHandle>) -> Result<()> {
    let found = file(fh.get())?;
    let closed = found.close();
    closed.map_err(|error| error.on(found.handle()))?;
    fh.put(raw(NULL))
}

pub(crate) fn file_delete(filename: PathBuf, info: RawHandle) -> Result<()> {
    crate::world::current()?;
    crate::info::optional(info)?;
    file::delete(&filename)
}

pub(crate) fn file_set_size(fh: RawHandle, size: i64) -> Result<()> {
    file(fh)?.set_size(size)
}

pub(crate) fn file_preallocate(fh: RawHandle, size: i64) -> Result<()> {
    file(fh)?.preallocate(size)
}

pub(crate) fn file_get_size(fh: RawHandle, size: Out<i64>) -> Result<()> {
    size.put(file(fh)?.size()? as i64)
}

pub(crate) fn file_get_group(fh: RawHandle, group: Out<RawHandle>) -> Result<()> {
    crate::group::give(file(fh)?.group(), group)
}

pub(crate) fn file_get_amode(fh: RawHandle, amode: Out<c_int>) -> Result<()> {
    amode.put(file(fh)?.mode().bits())
}

pub(crate) fn file_set_info(fh: RawHandle, info: RawHandle) -> Result<()> {
    file(fh)?.set_info(crate::info::optional(info))
}

pub(crate) fn file_get_info(fh: RawHandle, info: Out<RawHandle>) -> Result<()> {
    info.put(raw(file(fh)?.info()?.register()?))
}

pub(crate) fn file_set_view(
    fh: RawHandle,
    disp: i64,
    etype: RawHandle,
    filetype: RawHandle,
    datarep: String,
    info: RawHandle,
) -> Result<()> {
    let file = file(fh)?;
    let disp = (disp != DISPLACEMENT_CURRENT).then_some(disp);
    let types = committed("etype", etype)
        .and_then(|etype| Ok((etype.into_owned(), committed("filetype", filetype)?.into_owned())));
    file.set_view(disp, types, &datarep, crate::info::optional(info))
}

pub(crate) fn file_get_view(
    fh: RawHandle,
    disp: Out<i64>,
    etype: Out<RawHandle>,
    filetype: Out<RawHandle>,
    datarep: Chars,
) -> Result<()> {
    let file = file(fh)?;
    let (at, of_etype, of_filetype, representation) = file.view();
    disp.put(at)?;
    datarep.write(representation.name(), DATAREP_MAX)?;
    etype.put(handle_for(&of_etype)?)?;
    filetype.put(handle_for(&of_filetype)?)
}

pub(crate) fn file_get_type_extent(
    fh: RawHandle,
    datatype: RawHandle,
    extent: OutInt,
) -> Result<()> {
    let file = file(fh)?;
    extent.put(file.type_extent(&crate::arguments::datatype("datatype", datatype)?)?)
}

pub(crate) fn file_seek(fh: RawHandle, offset: i64, whence: c_int) -> Result<()> {
    file(fh)?.seek(offset, whence_of(whence)?)
}

pub(crate) fn file_seek_shared(fh: RawHandle, offset: i64, whence: c_int) -> Result<()> {
    file(fh)?.seek_shared(offset, whence_of(whence))
}

pub(crate) fn file_get_position(fh: RawHandle, offset: Out<i64>) -> Result<()> {
    offset.put(file(fh)?.position()? as i64)
}

pub(crate) fn file_get_position_shared(fh: RawHandle, offset: Out<i64>) -> Result<()> {
    offset.put(file(fh)?.shared_position()? as i64)
}

pub(crate) fn file_get_byte_offset(fh: RawHandle, offset: i64, disp: Out<i64>) -> Result<()> {
    disp.put(file(fh)?.byte_offset(offset)?)
}

pub(crate) fn file_sync(fh: RawHandle) -> Result<()> {
    file(fh)?.sync()
}

pub(crate) fn file_set_atomicity(fh: RawHandle, flag: c_int) -> Result<()> {
    file(fh)?.set_atomic(flag != 0)
}

pub(crate) fn file_get_atomicity(fh: RawHandle, flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(file(fh)?.is_atomic()))
}

fn whence_of(whence: c_int) -> Result<Whence> {
    match whence {
        401 => Ok(Whence::Current),
        402 => Ok(Whence::End),
        403 => Ok(Whence::Set),
        _ => Err(Error::argument(format!("whence = {whence} is no MPI_SEEK_SET, _CUR or _END"))),
    }
}

/// `MPI_DISPLACEMENT_CURRENT`.
const DISPLACEMENT_CURRENT: i64 = -1;
/// `MPI_MAX_DATAREP_STRING`.
const DATAREP_MAX: usize = 128;
