//! Point-to-point communication (MPI-5.0 §3).

use std::ffi::{c_int, c_void};

use memory::Region;
use mpi::buffer::{self, Buffer};
use mpi::point_to_point::{self as p2p, Matched, Mode, Receive, Send};
use mpi::request::{self, Done, Request, Template};
use mpi::vci::Vci;

use crate::arguments::{
    BUF, Names, PAGE, RECV, SEND, buffer as data, comm, destination, distinct, length, source, tag,
    tag_or_any,
};
use crate::convention::*;
use crate::status::fill;

const MESSAGE_NULL: RawHandle = 0x128;
const MESSAGE_NO_PROC: RawHandle = 0x129;

#[inline]
unsafe fn send_now(
    buf: *const c_void,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    tagged: c_int,
    on: RawHandle,
    mode: Mode,
) -> Result<()> {
    let comm = comm(on)?;
    let to = destination(&comm, dest)?;
    let tagged = tag("tag", tagged)?;
    // SAFETY: `buf` holds `count` elements of `datatype`.
    let data = unsafe { data(&BUF, buf, count, datatype) }?;
    p2p::send(&comm, to, tagged, &data, mode)
}

unsafe fn send_later(
    buf: *const c_void,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    tagged: c_int,
    on: RawHandle,
    mode: Mode,
    names: (&Names, &str),
) -> Result<Send> {
    let comm = comm(on)?;
    let to = destination(&comm, dest)?;
    let tag = tag(names.1, tagged)?;
    // SAFETY: `buf` holds `count` elements of `datatype`.
    let data = unsafe { data(names.0, buf, count, datatype) }?;
    Ok(Send { comm: comm.clone(), to, tag, data, mode })
}

unsafe fn receive_later(
    buf: *mut c_void,
    count: i64,
    datatype: RawHandle,
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    names: (&Names, &str),
) -> Result<Receive> {
    let comm = comm(on)?;
    let from = source(&comm, from)?;
    let tag = tag_or_any(names.1, tagged)?;
    // SAFETY: `buf` holds `count` elements of `datatype`.
    let into = unsafe { data(names.0, buf, count, datatype) }?;
    Ok(Receive { comm: comm.clone(), from, tag, into })
}

#[inline(always)]
unsafe fn begin_send(
    buf: *const c_void,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    tagged: c_int,
    on: RawHandle,
    mode: Mode,
    request: *mut RawHandle,
) -> Result<()> {
    let comm = comm(on)?;
    let to = destination(&comm, dest)?;
    let tagged = tag("tag", tagged)?;
    // SAFETY: `buf` holds `count` elements of `datatype` until the request completes; `request`
    // points to a variable of the caller.
    unsafe {
        let data = data(&BUF, buf, count, datatype)?;
        give(p2p::begin_send(&comm, to, tagged, &data, mode)?, comm.vci(), request)
    }
}

#[inline(always)]
unsafe fn give(request: Request, vci: Vci, place: *mut RawHandle) -> Result<()> {
    // SAFETY: `place` points to a variable of the caller.
    unsafe { put(place, raw(request.register(vci)?)) }
}

macro_rules! sends {
    ($($now:ident $later:ident $persistent:ident $mode:ident;)*) => {$(
        #[inline]
        pub(crate) unsafe fn $now(
            buf: *const c_void,
            count: i64,
            datatype: RawHandle,
            dest: c_int,
            tag: c_int,
            comm: RawHandle,
        ) -> Result<()> {
            // SAFETY: the caller's buffers go to `send_now`, which has the same conditions.
            unsafe { send_now(buf, count, datatype, dest, tag, comm, Mode::$mode) }
        }

        #[inline]
        pub(crate) unsafe fn $later(
            buf: *const c_void,
            count: i64,
            datatype: RawHandle,
            dest: c_int,
            tag: c_int,
            comm: RawHandle,
            request: *mut RawHandle,
        ) -> Result<()> {
            // SAFETY: the caller's buffers go to `begin_send`, which has the same conditions.
            unsafe { begin_send(buf, count, datatype, dest, tag, comm, Mode::$mode, request) }
        }

        pub(crate) unsafe fn $persistent(
            buf: *const c_void,
            count: i64,
            datatype: RawHandle,
            dest: c_int,
            tag: c_int,
            comm: RawHandle,
            request: *mut RawHandle,
        ) -> Result<()> {
            // SAFETY: `buf` holds `count` elements of `datatype` while the request lives; `request`
            // points to a variable of the caller.
            unsafe {
                let names = (&BUF, "tag");
                let send = send_later(buf, count, datatype, dest, tag, comm, Mode::$mode, names)?;
                let vci = send.comm.vci();
                give(Request::persistent(Template::Send(send)), vci, request)
            }
        }
    )*};
}

sends! {
    send isend send_init Standard;
    ssend issend ssend_init Synchronous;
    bsend ibsend bsend_init Buffered;
    rsend irsend rsend_init Standard;
}

#[inline]
pub(crate) unsafe fn recv(
    buf: *mut c_void,
    count: i64,
    datatype: RawHandle,
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    status: *mut Status,
) -> Result<()> {
    let comm = comm(on)?;
    let from = source(&comm, from)?;
    let tagged = tag_or_any("tag", tagged)?;
    // SAFETY: `buf` holds `count` elements of `datatype`; `status` points to a status or is
    // MPI_STATUS_IGNORE.
    unsafe {
        let into = data(&BUF, buf, count, datatype)?;
        let (outcome, error) = p2p::receive(&comm, from, tagged, &into);
        fill(status, &outcome);
        error.map_or(Ok(()), Err)
    }
}

#[inline]
pub(crate) unsafe fn irecv(
    buf: *mut c_void,
    count: i64,
    datatype: RawHandle,
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    request: *mut RawHandle,
) -> Result<()> {
    let comm = comm(on)?;
    let from = source(&comm, from)?;
    let tagged = tag_or_any("tag", tagged)?;
    // SAFETY: `buf` has room for `count` elements of `datatype` until the request completes;
    // `request` points to a variable of the caller.
    unsafe {
        let into = data(&BUF, buf, count, datatype)?;
        give(p2p::begin_receive(&comm, from, tagged, &into)?, comm.vci(), request)
    }
}

pub(crate) unsafe fn recv_init(
    buf: *mut c_void,
    count: i64,
    datatype: RawHandle,
    source: c_int,
    tag: c_int,
    comm: RawHandle,
    request: *mut RawHandle,
) -> Result<()> {
    // SAFETY: `buf` has room for `count` elements of `datatype` while the request lives; `request`
    // points to a variable of the caller.
    unsafe {
        let names = (&BUF, "tag");
        let receive = receive_later(buf, count, datatype, source, tag, comm, names)?;
        let vci = receive.comm.vci();
        give(Request::persistent(Template::Receive(receive)), vci, request)
    }
}

pub(crate) unsafe fn probe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    status: *mut Status,
) -> Result<()> {
    let comm = comm(on)?;
    let outcome = p2p::probe(&comm, source(&comm, from)?, tag_or_any("tag", tagged)?)?;
    // SAFETY: `status` points to a status or is MPI_STATUS_IGNORE.
    unsafe { fill(status, &outcome) };
    Ok(())
}

pub(crate) unsafe fn iprobe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    flag: *mut c_int,
    status: *mut Status,
) -> Result<()> {
    let comm = comm(on)?;
    let outcome = p2p::immediate_probe(&comm, source(&comm, from)?, tag_or_any("tag", tagged)?)?;
    // SAFETY: `flag` points to a variable of the caller; `status` points to a status or is
    // MPI_STATUS_IGNORE.
    unsafe {
        if let Some(outcome) = &outcome {
            fill(status, outcome);
        }
        put(flag, c_int::from(outcome.is_some()))
    }
}

pub(crate) unsafe fn mprobe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    message: *mut RawHandle,
    status: *mut Status,
) -> Result<()> {
    let mut flag = 0;
    // SAFETY: the caller's pointers go to `matched_probe`, which has the same conditions.
    unsafe { matched_probe(from, tagged, on, true, &mut flag, message, status) }
}

pub(crate) unsafe fn improbe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    flag: *mut c_int,
    message: *mut RawHandle,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: the caller's pointers go to `matched_probe`, which has the same conditions.
    unsafe { matched_probe(from, tagged, on, false, flag, message, status) }
}

unsafe fn matched_probe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    waits: bool,
    flag: *mut c_int,
    message: *mut RawHandle,
    status: *mut Status,
) -> Result<()> {
    let comm = comm(on)?;
    let found = p2p::matched_probe(&comm, source(&comm, from)?, tag_or_any("tag", tagged)?, waits)?;
    // SAFETY: `flag` and `message` point to variables of the caller; `status` points to a status or
    // is MPI_STATUS_IGNORE.
    unsafe {
        let Some((matched, outcome)) = found else { return put(flag, 0) };
        let handle = match matched {
            Matched::Message(handle) => raw(handle),
            Matched::NoProc => MESSAGE_NO_PROC,
        };
        fill(status, &outcome);
        put(message, handle)?;
        put(flag, 1)
    }
}

pub(crate) unsafe fn mrecv(
    buf: *mut c_void,
    count: i64,
    datatype: RawHandle,
    message: *mut RawHandle,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: `message` points to a handle of the caller; `buf` holds `count` elements of
    // `datatype`; `status` points to a status or is MPI_STATUS_IGNORE.
    unsafe {
        let into = data(&BUF, buf, count, datatype)?;
        if *message == MESSAGE_NO_PROC {
            *message = MESSAGE_NULL;
            fill(status, &request::Status::PROC_NULL);
            return Ok(());
        }
        let operation = named("message", p2p::begin_matched_receive(handle(*message), &into))?;
        *message = MESSAGE_NULL;
        let (outcome, error) = p2p::finish(operation)?;
        fill(status, &outcome);
        error.map_or(Ok(()), Err)
    }
}

pub(crate) unsafe fn imrecv(
    buf: *mut c_void,
    count: i64,
    datatype: RawHandle,
    message: *mut RawHandle,
    request: *mut RawHandle,
) -> Result<()> {
    // SAFETY: `message` points to a handle of the caller; `buf` holds `count` elements of
    // `datatype`; `request` points to a variable of the caller.
    unsafe {
        let into = data(&BUF, buf, count, datatype)?;
        let (begun, vci) = if *message == MESSAGE_NO_PROC {
            (Request::Done(Done::OfNobody), Vci::FIRST)
        } else {
            let begun = p2p::begin_matched_receive(handle(*message), &into);
            let operation = named("message", begun)?;
            (Request::Operation(operation), operation.vci)
        };
        *message = MESSAGE_NULL;
        give(begun, vci, request)
    }
}

pub(crate) unsafe fn sendrecv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    source: c_int,
    recvtag: c_int,
    comm: RawHandle,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: both buffers hold the elements that their counts say; `status` points to a status or
    // is MPI_STATUS_IGNORE.
    unsafe {
        let mode = Mode::Standard;
        let names = (&SEND, "sendtag");
        let send = send_later(sendbuf, sendcount, sendtype, dest, sendtag, comm, mode, names)?;
        let names = (&RECV, "recvtag");
        let receive = receive_later(recvbuf, recvcount, recvtype, source, recvtag, comm, names)?;
        distinct("sendbuf", &send.data, "recvbuf", &receive.into)?;
        exchange(&send, &receive, status)
    }
}

pub(crate) unsafe fn sendrecv_replace(
    buf: *mut c_void,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: RawHandle,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: `buf` holds `count` elements of `datatype`; `status` points to a status or is
    // MPI_STATUS_IGNORE.
    unsafe {
        let (mode, names) = (Mode::Standard, (&BUF, "sendtag"));
        let mut send = send_later(buf, count, datatype, dest, sendtag, comm, mode, names)?;
        send.data = copy_of(&send.data);
        let receive =
            receive_later(buf, count, datatype, source, recvtag, comm, (&BUF, "recvtag"))?;
        exchange(&send, &receive, status)
    }
}

unsafe fn exchange(send: &Send, receive: &Receive, status: *mut Status) -> Result<()> {
    let sent = send.begin()?;
    let (outcome, received) = p2p::receive(&receive.comm, receive.from, receive.tag, &receive.into);
    let sent = match sent {
        Request::Operation(operation) => p2p::finish(operation)?.1,
        Request::Done(_)
        | Request::Exchange(_)
        | Request::Flush(_)
        | Request::Collective(_)
        | Request::Persistent(_) => None,
    };
    // SAFETY: `status` points to a status or is MPI_STATUS_IGNORE.
    unsafe { fill(status, &outcome) };
    received.or(sent).map_or(Ok(()), Err)
}

pub(crate) unsafe fn isendrecv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    source: c_int,
    recvtag: c_int,
    comm: RawHandle,
    request: *mut RawHandle,
) -> Result<()> {
    // SAFETY: both buffers hold their elements until the request completes; `request` points to a
    // variable of the caller.
    unsafe {
        let names = (&SEND, "sendtag");
        let mode = Mode::Standard;
        let send = send_later(sendbuf, sendcount, sendtype, dest, sendtag, comm, mode, names)?;
        let names = (&RECV, "recvtag");
        let receive = receive_later(recvbuf, recvcount, recvtype, source, recvtag, comm, names)?;
        distinct("sendbuf", &send.data, "recvbuf", &receive.into)?;
        give(p2p::begin_exchange(&send, &receive)?, send.comm.vci(), request)
    }
}

pub(crate) unsafe fn isendrecv_replace(
    buf: *mut c_void,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: RawHandle,
    request: *mut RawHandle,
) -> Result<()> {
    // SAFETY: `buf` holds `count` elements of `datatype` until the request completes; `request`
    // points to a variable of the caller.
    unsafe {
        let (mode, names) = (Mode::Standard, (&BUF, "sendtag"));
        let mut send = send_later(buf, count, datatype, dest, sendtag, comm, mode, names)?;
        send.data = copy_of(&send.data);
        let names = (&BUF, "recvtag");
        let receive = receive_later(buf, count, datatype, source, recvtag, comm, names)?;
        give(p2p::begin_exchange(&send, &receive)?, send.comm.vci(), request)
    }
}

fn copy_of(data: &Region) -> Region {
    let copy = Region::owned(data.len());
    copy.copy_from(data);
    copy
}

/// The buffer that an address and a size stand for.
fn lent(address: *mut c_void, size: i64) -> Result<Buffer> {
    if address as usize == BUFFER_AUTOMATIC {
        return Ok(Buffer::Automatic);
    }
    let bytes = length("size", size)?;
    if (address as usize) < PAGE && bytes > 0 {
        let text = format!("buffer = {address:?} is no address of size = {bytes} bytes");
        return Err(class(ErrorClass::Buffer, text));
    }
    Ok(Buffer::Lent { address: address as usize, bytes })
}

/// Reports what was attached; `place` is the address of a pointer.
unsafe fn give_back(buffer: Buffer, place: *mut c_void, size: OutInt) -> Result<()> {
    let (address, bytes) = match buffer {
        Buffer::Lent { address, bytes } => (address, bytes),
        Buffer::Automatic => (BUFFER_AUTOMATIC, 0),
    };
    // SAFETY: `place` and `size` point to variables of the caller.
    unsafe {
        size.write(bytes as i64);
        put(place.cast::<usize>(), address)
    }
}

pub(crate) unsafe fn buffer_attach(address: *mut c_void, size: i64) -> Result<()> {
    buffer::of_process().attach(lent(address, size)?)
}

pub(crate) unsafe fn buffer_detach(address: *mut c_void, size: OutInt) -> Result<()> {
    // SAFETY: the caller's pointers go to `give_back`, which has the same conditions.
    unsafe { give_back(buffer::of_process().detach()?, address, size) }
}

pub(crate) unsafe fn buffer_flush() -> Result<()> {
    buffer::of_process().flush()
}

pub(crate) unsafe fn buffer_iflush(request: *mut RawHandle) -> Result<()> {
    // SAFETY: `request` points to a variable of the caller.
    unsafe { give(Request::Flush(buffer::of_process().begin_flush()), Vci::FIRST, request) }
}

pub(crate) unsafe fn comm_attach_buffer(
    on: RawHandle,
    address: *mut c_void,
    size: i64,
) -> Result<()> {
    comm(on)?.buffer().attach(lent(address, size)?)
}

pub(crate) unsafe fn comm_detach_buffer(
    on: RawHandle,
    address: *mut c_void,
    size: OutInt,
) -> Result<()> {
    // SAFETY: the caller's pointers go to `give_back`, which has the same conditions.
    unsafe { give_back(comm(on)?.buffer().detach()?, address, size) }
}

pub(crate) unsafe fn comm_flush_buffer(on: RawHandle) -> Result<()> {
    comm(on)?.buffer().flush()
}

pub(crate) unsafe fn comm_iflush_buffer(on: RawHandle, request: *mut RawHandle) -> Result<()> {
    // SAFETY: `request` points to a variable of the caller.
    unsafe { give(Request::Flush(comm(on)?.buffer().begin_flush()), Vci::FIRST, request) }
}

/// `MPI_BUFFER_AUTOMATIC`.
const BUFFER_AUTOMATIC: usize = 2;
