//! Reading and writing files (MPI-5.0 §14.4). Each macro makes the functions of one form of arguments.

use mpi::file::{AccessKind, At, TypedMemory};
use mpi::vci::Vci;

use crate::arguments::{BUF, buffer, committed, file};
use crate::convention::*;

macro_rules! at_offsets {
    ($($kind:ident $now:ident $later:ident $all:ident $later_all:ident $begin:ident $end:ident;)*) => {$(
        pub(crate) fn $now(
            fh: RawHandle,
            offset: i64,
            buf: Address,
            count: i64,
            datatype: RawHandle,
            status: StatusOut,
        ) -> Result<()> {
            let memory = (buf, count, datatype);
            access(fh, AccessKind::$kind, At::Offset(offset), memory, status)
        }

        pub(crate) fn $later(
            fh: RawHandle,
            offset: i64,
            buf: Address,
            count: i64,
            datatype: RawHandle,
            request: Out<RawHandle>,
        ) -> Result<()> {
            let memory = (buf, count, datatype);
            begin(fh, AccessKind::$kind, At::Offset(offset), memory, request)
        }

        pub(crate) fn $all(
            fh: RawHandle,
            offset: i64,
            buf: Address,
            count: i64,
            datatype: RawHandle,
            status: StatusOut,
        ) -> Result<()> {
            let memory = (buf, count, datatype);
            access_all(fh, AccessKind::$kind, At::Offset(offset), memory, status)
        }

        pub(crate) fn $later_all(
            fh: RawHandle,
            offset: i64,
            buf: Address,
            count: i64,
            datatype: RawHandle,
            request: Out<RawHandle>,
        ) -> Result<()> {
            let memory = (buf, count, datatype);
            begin_all(fh, AccessKind::$kind, At::Offset(offset), memory, request)
        }

        pub(crate) fn $begin(
            fh: RawHandle,
            offset: i64,
            buf: Address,
            count: i64,
            datatype: RawHandle,
        ) -> Result<()> {
            begin_split(fh, AccessKind::$kind, At::Offset(offset), (buf, count, datatype))
        }

        pub(crate) fn $end(fh: RawHandle, _buf: Address, status: StatusOut) -> Result<()> {
            end_split(fh, AccessKind::$kind, At::Offset(0), status)
        }
    )*};
}

macro_rules! blocking {
    ($($kind:ident $at:ident $act:ident $name:ident;)*) => {$(
        pub(crate) fn $name(
            fh: RawHandle,
            buf: Address,
            count: i64,
            datatype: RawHandle,
            status: StatusOut,
        ) -> Result<()> {
            $act(fh, AccessKind::$kind, At::$at, (buf, count, datatype), status)
        }
    )*};
}

macro_rules! nonblocking {
    ($($kind:ident $at:ident $act:ident $name:ident;)*) => {$(
        pub(crate) fn $name(
            fh: RawHandle,
            buf: Address,
            count: i64,
            datatype: RawHandle,
            request: Out<RawHandle>,
        ) -> Result<()> {
            $act(fh, AccessKind::$kind, At::$at, (buf, count, datatype), request)
        }
    )*};
}

macro_rules! split {
    ($($kind:ident $at:ident $begin:ident $end:ident;)*) => {$(
        pub(crate) fn $begin(
            fh: RawHandle,
            buf: Address,
            count: i64,
            datatype: RawHandle,
        ) -> Result<()> {
            begin_split(fh, AccessKind::$kind, At::$at, (buf, count, datatype))
        }

        pub(crate) fn $end(fh: RawHandle, _buf: Address, status: StatusOut) -> Result<()> {
            end_split(fh, AccessKind::$kind, At::$at, status)
        }
    )*};
}

at_offsets! {
    Read file_read_at file_iread_at file_read_at_all file_iread_at_all
        file_read_at_all_begin file_read_at_all_end;
    Write file_write_at file_iwrite_at file_write_at_all file_iwrite_at_all
        file_write_at_all_begin file_write_at_all_end;
}

blocking! {
    Read Own access file_read;
    Write Own access file_write;
    Read Shared access file_read_shared;
    Write Shared access file_write_shared;
    Read Own access_all file_read_all;
    Write Own access_all file_write_all;
    Read Ordered access_all file_read_ordered;
    Write Ordered access_all file_write_ordered;
}

nonblocking! {
    Read Own begin file_iread;
    Write Own begin file_iwrite;
    Read Shared begin file_iread_shared;
    Write Shared begin file_iwrite_shared;
    Read Own begin_all file_iread_all;
    Write Own begin_all file_iwrite_all;
}

split! {
    Read Own file_read_all_begin file_read_all_end;
    Write Own file_write_all_begin file_write_all_end;
    Read Ordered file_read_ordered_begin file_read_ordered_end;
    Write Ordered file_write_ordered_begin file_write_ordered_end;
}

/// Arguments that describe memory: address, number of elements, their datatype.
type Memory = (Address, i64, RawHandle);

/// The elements that arguments describe.
fn elements(buf: Address, count: i64, datatype: RawHandle) -> Result<TypedMemory> {
    let memory = buffer(&BUF, buf, count, datatype)?;
    let datatype = committed(BUF.datatype, datatype)?.into_owned();
    Ok(TypedMemory { memory, address: buf.get() as usize, datatype })
}

fn access(
    fh: RawHandle,
    kind: AccessKind,
    at: At,
    (buf, count, datatype): Memory,
    status: StatusOut,
) -> Result<()> {
    let ended = file(fh)?.access(kind, at, elements(buf, count, datatype)?)?;
    status.fill(&ended);
    Ok(())
}

/// A wrong argument of one process is an error on all.
fn access_all(
    fh: RawHandle,
    kind: AccessKind,
    at: At,
    (buf, count, datatype): Memory,
    status: StatusOut,
) -> Result<()> {
    let ended = file(fh)?.access_all(kind, at, elements(buf, count, datatype))?;
    status.fill(&ended);
    Ok(())
}

fn begin(
    fh: RawHandle,
    kind: AccessKind,
    at: At,
    (buf, count, datatype): Memory,
    request: Out<RawHandle>,
) -> Result<()> {
    let begun = file(fh)?.begin_access(kind, at, elements(buf, count, datatype)?)?;
    request.put(raw(begun.register(Vci::FIRST)?))
}

fn begin_all(
    fh: RawHandle,
    kind: AccessKind,
    at: At,
    (buf, count, datatype): Memory,
    request: Out<RawHandle>,
) -> Result<()> {
    let begun = file(fh)?.begin_access_all(kind, at, elements(buf, count, datatype)?)?;
    request.put(raw(begun.register(Vci::FIRST)?))
}

fn begin_split(
    fh: RawHandle,
    kind: AccessKind,
    at: At,
    (buf, count, datatype): Memory,
) -> Result<()> {
    file(fh)?.begin_split(kind, at, elements(buf, count, datatype))
}

fn end_split(fh: RawHandle, kind: AccessKind, at: At, status: StatusOut) -> Result<()> {
    let ended = file(fh)?.end_split(kind, at)?;
    status.fill(&ended);
    Ok(())
}
