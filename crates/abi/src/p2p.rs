//! Point-to-point communication (MPI-5.0 §3).

use std::ffi::c_int;

use memory::Region;
use mpi::buffer::Buffer;
use mpi::point_to_point::{self as p2p, Matched, Mode, Receive, Send};
use mpi::request::{self, Done, Request, Template};
use mpi::vci::Vci;

use crate::arguments::{
    BUF, Names, PAGE, RECV, SEND, buffer as data, comm, destination, distinct, length, source, tag,
    tag_or_any,
};
use crate::convention::*;
use crate::world;

const MESSAGE_NULL: RawHandle = 0x128;
const MESSAGE_NO_PROC: RawHandle = 0x129;

#[inline]
fn send_now(
    buf: Address,
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
    let data = data(&BUF, buf, count, datatype)?;
    p2p::send(&comm, to, tagged, &data, mode)
}

fn send_later(
    buf: Address,
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
    let data = data(names.0, buf, count, datatype)?;
    Ok(Send { comm: comm.clone(), to, tag, data, mode })
}

fn receive_later(
    buf: Address,
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
    let into = data(names.0, buf, count, datatype)?;
    Ok(Receive { comm: comm.clone(), from, tag, into })
}

#[inline(always)]
fn begin_send(
    buf: Address,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    tagged: c_int,
    on: RawHandle,
    mode: Mode,
    request: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let to = destination(&comm, dest)?;
    let tagged = tag("tag", tagged)?;
    let data = data(&BUF, buf, count, datatype)?;
    give(p2p::begin_send(&comm, to, tagged, &data, mode)?, comm.vci(), request)
}

#[inline(always)]
pub(crate) fn give(request: Request, vci: Vci, place: Out<RawHandle>) -> Result<()> {
    place.put(raw(request.register(vci)?))
}

macro_rules! sends {
    ($($now:ident $later:ident $persistent:ident $mode:ident;)*) => {$(
        #[inline]
        pub(crate) fn $now(
            buf: Address,
            count: i64,
            datatype: RawHandle,
            dest: c_int,
            tag: c_int,
            comm: RawHandle,
        ) -> Result<()> {
            send_now(buf, count, datatype, dest, tag, comm, Mode::$mode)
        }

        #[inline]
        pub(crate) fn $later(
            buf: Address,
            count: i64,
            datatype: RawHandle,
            dest: c_int,
            tag: c_int,
            comm: RawHandle,
            request: Out<RawHandle>,
        ) -> Result<()> {
            begin_send(buf, count, datatype, dest, tag, comm, Mode::$mode, request)
        }

        pub(crate) fn $persistent(
            buf: Address,
            count: i64,
            datatype: RawHandle,
            dest: c_int,
            tag: c_int,
            comm: RawHandle,
            request: Out<RawHandle>,
        ) -> Result<()> {
                let names = (&BUF, "tag");
                let send = send_later(buf, count, datatype, dest, tag, comm, Mode::$mode, names)?;
                let vci = send.comm.vci();
                give(Request::persistent(Template::Send(Box::new(send))), vci, request)
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
pub(crate) fn recv(
    buf: Address,
    count: i64,
    datatype: RawHandle,
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    status: StatusOut,
) -> Result<()> {
    let comm = comm(on)?;
    let from = source(&comm, from)?;
    let tagged = tag_or_any("tag", tagged)?;
    let into = data(&BUF, buf, count, datatype)?;
    let (outcome, error) = p2p::receive(&comm, from, tagged, &into);
    status.fill(&outcome);
    error.map_or(Ok(()), Err)
}

#[inline]
pub(crate) fn irecv(
    buf: Address,
    count: i64,
    datatype: RawHandle,
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    request: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let from = source(&comm, from)?;
    let tagged = tag_or_any("tag", tagged)?;
    let into = data(&BUF, buf, count, datatype)?;
    give(p2p::begin_receive(&comm, from, tagged, &into), comm.vci(), request)
}

pub(crate) fn recv_init(
    buf: Address,
    count: i64,
    datatype: RawHandle,
    source: c_int,
    tag: c_int,
    comm: RawHandle,
    request: Out<RawHandle>,
) -> Result<()> {
    let names = (&BUF, "tag");
    let receive = receive_later(buf, count, datatype, source, tag, comm, names)?;
    let vci = receive.comm.vci();
    give(Request::persistent(Template::Receive(Box::new(receive))), vci, request)
}

pub(crate) fn probe(from: c_int, tagged: c_int, on: RawHandle, status: StatusOut) -> Result<()> {
    let comm = comm(on)?;
    let outcome = p2p::probe(&comm, source(&comm, from)?, tag_or_any("tag", tagged)?)?;
    status.fill(&outcome);
    Ok(())
}

pub(crate) fn iprobe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    flag: Out<c_int>,
    status: StatusOut,
) -> Result<()> {
    let comm = comm(on)?;
    let outcome = p2p::immediate_probe(&comm, source(&comm, from)?, tag_or_any("tag", tagged)?)?;
    if let Some(outcome) = &outcome {
        status.fill(outcome);
    }
    flag.put(c_int::from(outcome.is_some()))
}

pub(crate) fn mprobe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    message: Out<RawHandle>,
    status: StatusOut,
) -> Result<()> {
    matched_probe(from, tagged, on, true, message, status).map(drop)
}

pub(crate) fn improbe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    flag: Out<c_int>,
    message: Out<RawHandle>,
    status: StatusOut,
) -> Result<()> {
    flag.put(c_int::from(matched_probe(from, tagged, on, false, message, status)?))
}

/// Returns whether there is a message.
fn matched_probe(
    from: c_int,
    tagged: c_int,
    on: RawHandle,
    waits: bool,
    message: Out<RawHandle>,
    status: StatusOut,
) -> Result<bool> {
    let comm = comm(on)?;
    let found = p2p::matched_probe(&comm, source(&comm, from)?, tag_or_any("tag", tagged)?, waits)?;
    let Some((matched, outcome)) = found else { return Ok(false) };
    let handle = match matched {
        Matched::Message(handle) => raw(handle),
        Matched::NoProc => MESSAGE_NO_PROC,
    };
    status.fill(&outcome);
    message.put(handle)?;
    Ok(true)
}

pub(crate) fn mrecv(
    buf: Address,
    count: i64,
    datatype: RawHandle,
    message: InOut<RawHandle>,
    status: StatusOut,
) -> Result<()> {
    let into = data(&BUF, buf, count, datatype)?;
    if message.get() == MESSAGE_NO_PROC {
        message.put(MESSAGE_NULL)?;
        status.fill(&request::Status::PROC_NULL);
        return Ok(());
    }
    let world = world::current()?;
    let begun = p2p::begin_matched_receive(world, handle(message.get()), &into);
    let operation = named("message", begun)?;
    message.put(MESSAGE_NULL)?;
    let (outcome, error) = p2p::finish(world, operation);
    status.fill(&outcome);
    error.map_or(Ok(()), Err)
}

pub(crate) fn imrecv(
    buf: Address,
    count: i64,
    datatype: RawHandle,
    message: InOut<RawHandle>,
    request: Out<RawHandle>,
) -> Result<()> {
    let into = data(&BUF, buf, count, datatype)?;
    let (begun, vci) = if message.get() == MESSAGE_NO_PROC {
        (Request::Done(Done::OfNobody), Vci::FIRST)
    } else {
        let begun = p2p::begin_matched_receive(world::current()?, handle(message.get()), &into);
        let operation = named("message", begun)?;
        (Request::Operation(operation), operation.vci)
    };
    message.put(MESSAGE_NULL)?;
    give(begun, vci, request)
}

pub(crate) fn sendrecv(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    source: c_int,
    recvtag: c_int,
    comm: RawHandle,
    status: StatusOut,
) -> Result<()> {
    let mode = Mode::Standard;
    let names = (&SEND, "sendtag");
    let send = send_later(sendbuf, sendcount, sendtype, dest, sendtag, comm, mode, names)?;
    let names = (&RECV, "recvtag");
    let receive = receive_later(recvbuf, recvcount, recvtype, source, recvtag, comm, names)?;
    distinct("sendbuf", &send.data, "recvbuf", &receive.into)?;
    exchange(&send, &receive, status)
}

pub(crate) fn sendrecv_replace(
    buf: Address,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: RawHandle,
    status: StatusOut,
) -> Result<()> {
    let (mode, names) = (Mode::Standard, (&BUF, "sendtag"));
    let mut send = send_later(buf, count, datatype, dest, sendtag, comm, mode, names)?;
    let receive = receive_later(buf, count, datatype, source, recvtag, comm, (&BUF, "recvtag"))?;
    send.data = copy_of(&send.data)?;
    exchange(&send, &receive, status)
}

fn exchange(send: &Send, receive: &Receive, status: StatusOut) -> Result<()> {
    let sent = send.begin()?;
    let (outcome, received) = p2p::receive(&receive.comm, receive.from, receive.tag, &receive.into);
    let sent = match sent {
        Request::Operation(operation) => p2p::finish(send.comm.process(), operation).1,
        Request::Done(_)
        | Request::Exchange(_)
        | Request::Flush(_)
        | Request::Collective(_)
        | Request::Access(_)
        | Request::Transfer(_)
        | Request::Generalized(_)
        | Request::Persistent(_) => None,
    };
    status.fill(&outcome);
    received.or(sent).map_or(Ok(()), Err)
}

pub(crate) fn isendrecv(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    source: c_int,
    recvtag: c_int,
    comm: RawHandle,
    request: Out<RawHandle>,
) -> Result<()> {
    let names = (&SEND, "sendtag");
    let mode = Mode::Standard;
    let send = send_later(sendbuf, sendcount, sendtype, dest, sendtag, comm, mode, names)?;
    let names = (&RECV, "recvtag");
    let receive = receive_later(recvbuf, recvcount, recvtype, source, recvtag, comm, names)?;
    distinct("sendbuf", &send.data, "recvbuf", &receive.into)?;
    give(p2p::begin_exchange(&send, &receive)?, send.comm.vci(), request)
}

pub(crate) fn isendrecv_replace(
    buf: Address,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: RawHandle,
    request: Out<RawHandle>,
) -> Result<()> {
    let (mode, names) = (Mode::Standard, (&BUF, "sendtag"));
    let mut send = send_later(buf, count, datatype, dest, sendtag, comm, mode, names)?;
    let names = (&BUF, "recvtag");
    let receive = receive_later(buf, count, datatype, source, recvtag, comm, names)?;
    send.data = copy_of(&send.data)?;
    give(p2p::begin_exchange(&send, &receive)?, send.comm.vci(), request)
}

fn copy_of(data: &Region) -> Result<Region> {
    let full = || class(ErrorClass::NoMem, format!("buf: no memory for {} bytes", data.len()));
    let copy = Region::scratch(data.len()).ok_or_else(full)?;
    copy.copy_from(data);
    Ok(copy)
}

/// The buffer that an address and a size stand for.
pub(crate) fn lent(address: Address, size: i64) -> Result<Buffer> {
    if address.get() as usize == BUFFER_AUTOMATIC {
        return Ok(Buffer::Automatic);
    }
    let bytes = length("size", size)?;
    if (address.get() as usize) < PAGE && bytes > 0 {
        let text = format!("buffer = {:?} is no address of size = {bytes} bytes", address.get());
        return Err(class(ErrorClass::Buffer, text));
    }
    Ok(Buffer::Lent { address: address.get() as usize, bytes })
}

/// Reports what was attached.
pub(crate) fn give_back(buffer: Buffer, place: Out<usize>, size: OutInt) -> Result<()> {
    let (address, bytes) = match buffer {
        Buffer::Lent { address, bytes } => (address, bytes),
        Buffer::Automatic => (BUFFER_AUTOMATIC, 0),
    };
    size.put(bytes as i64)?;
    place.put(address)
}

pub(crate) fn buffer_attach(address: Address, size: i64) -> Result<()> {
    let process = world::current()?;
    process.buffer().attach(lent(address, size)?)
}

pub(crate) fn buffer_detach(address: Out<usize>, size: OutInt) -> Result<()> {
    let process = world::current()?;
    give_back(process.buffer().detach(process)?, address, size)
}

pub(crate) fn buffer_flush() -> Result<()> {
    let process = world::current()?;
    process.buffer().flush(process);
    Ok(())
}

pub(crate) fn buffer_iflush(request: Out<RawHandle>) -> Result<()> {
    let flush = world::current()?.buffer().begin_flush();
    give(Request::Flush(flush), Vci::FIRST, request)
}

pub(crate) fn comm_attach_buffer(on: RawHandle, address: Address, size: i64) -> Result<()> {
    comm(on)?.buffer().attach(lent(address, size)?)
}

pub(crate) fn comm_detach_buffer(on: RawHandle, address: Out<usize>, size: OutInt) -> Result<()> {
    let comm = comm(on)?;
    give_back(comm.buffer().detach(comm.process())?, address, size)
}

pub(crate) fn comm_flush_buffer(on: RawHandle) -> Result<()> {
    let comm = comm(on)?;
    comm.buffer().flush(comm.process());
    Ok(())
}

pub(crate) fn comm_iflush_buffer(on: RawHandle, request: Out<RawHandle>) -> Result<()> {
    give(Request::Flush(comm(on)?.buffer().begin_flush()), Vci::FIRST, request)
}

/// `MPI_BUFFER_AUTOMATIC`.
const BUFFER_AUTOMATIC: usize = 2;
