//! The C symbols of `mad.h`.
//!
//! Each turns C arguments into a call and its failure into a code; the text of a thread's last failure
//! is kept for `mad_last_error`. Handles are those of `handles`: a stale or foreign one is an error.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};

use handles::{Handle, Kind, Table, TableError};
use lock::ThreadSlots;
use memory::Region;

use crate::batch::INLINE_MAX;
use crate::{Channel, Constraints, Error, Fault, Next, Packing, Receive, Result, Send};
use crate::{Unpacking, session};

/// A handle as C passes it: a pointer to nothing.
type RawHandle = usize;

/// Begins to use the interface, beside MPI or without it.
#[unsafe(no_mangle)]
pub extern "C" fn mad_init() -> c_int {
    finish("mad_init", session::initialize)
}

/// Ends what `mad_init` began.
#[unsafe(no_mangle)]
pub extern "C" fn mad_finalize() -> c_int {
    let free = || {
        CHANNELS.clear();
        PACKINGS.clear();
        UNPACKINGS.clear();
    };
    finish("mad_finalize", || session::finalize(free))
}

/// This process's rank in the job.
///
/// # Safety
/// `rank` is NULL or leads to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_rank(rank: *mut c_int) -> c_int {
    finish("mad_rank", || {
        // SAFETY: `rank` is NULL or points to an `int` of the caller.
        unsafe { put("rank", rank, || Ok(session::node()?.rank() as c_int)) }
    })
}

/// Number of processes in the job.
///
/// # Safety
/// `size` is NULL or leads to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_size(size: *mut c_int) -> c_int {
    finish("mad_size", || {
        // SAFETY: `size` is NULL or points to an `int` of the caller.
        unsafe { put("size", size, || Ok(session::node()?.size() as c_int)) }
    })
}

/// Opens a channel by its number.
///
/// # Safety
/// `channel` is NULL or leads to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_channel_open(number: c_int, channel: *mut RawHandle) -> c_int {
    let open = || {
        let valid = u32::try_from(number);
        let negative = |_| Error::new(Fault::Channel, format!("channel {number} is negative"));
        insert(&CHANNELS, session::node()?.open(valid.map_err(negative)?)?)
    };
    // SAFETY: `channel` is NULL or points to a handle of the caller.
    finish("mad_channel_open", || unsafe { put("channel", channel, open) })
}

/// Closes a channel.
#[unsafe(no_mangle)]
pub extern "C" fn mad_channel_close(channel: RawHandle) -> c_int {
    finish("mad_channel_close", || {
        find(&CHANNELS, "channel", channel)?.close()?;
        remove(&CHANNELS, channel)
    })
}

/// Begins a message.
///
/// # Safety
/// `connection` is NULL or leads to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_begin_packing(
    channel: RawHandle,
    to: c_int,
    connection: *mut RawHandle,
) -> c_int {
    let begin = || insert(&PACKINGS, open(channel)?.begin_packing(rank("to", to)?)?);
    // SAFETY: `connection` is NULL or points to a handle of the caller.
    finish("mad_begin_packing", || unsafe { put("connection", connection, begin) })
}

/// Adds a packet to a message.
///
/// # Safety
/// `data` leads to `size` bytes, which stay as the constraints say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_pack(
    connection: RawHandle,
    data: *const c_void,
    size: usize,
    send: c_int,
    receive: c_int,
    next: c_int,
) -> c_int {
    // One that is read late waits for the end of the message.
    let is_packed = send != LATER
        && try_last(&PACKED, connection, |message| {
            let constraints = at_once(data, size, send, receive, next);
            constraints.is_some_and(|constraints| {
                // SAFETY: the caller passes `size` bytes at `data`; the constraints are checked to allow reading them now.
                let data = unsafe { std::slice::from_raw_parts(data.cast(), size) };
                message.pack_short(data, constraints)
            })
        });
    if is_packed {
        return 0;
    }
    // SAFETY: `data` points to `size` bytes of the caller, as `pack_any` requires.
    unsafe { pack_any(connection, data, size, send, receive, next) }
}

/// Adds a packet to a message, or says why not.
#[inline(never)]
unsafe fn pack_any(
    connection: RawHandle,
    data: *const c_void,
    size: usize,
    send: c_int,
    receive: c_int,
    next: c_int,
) -> c_int {
    finish("mad_pack", || {
        let known = constraints(send, receive);
        let constraints = known.ok_or_else(|| no_constraint(send, receive))?;
        let next = what_follows(next)?;
        // SAFETY: the caller keeps `size` bytes at `data` as long as the constraints say.
        let data = unsafe { region(data.cast_mut(), size) }?;
        with(&PACKINGS, &PACKED, connection, |message| message.pack(&data, constraints, next))
    })
}

/// Ends a message.
#[unsafe(no_mangle)]
pub extern "C" fn mad_end_packing(connection: RawHandle) -> c_int {
    finish("mad_end_packing", || {
        let ended = with(&PACKINGS, &PACKED, connection, Packing::end);
        end(&PACKINGS, connection, ended)
    })
}

/// Begins to unpack the next message, of any process.
///
/// # Safety
/// `connection` is NULL or leads to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_begin_unpacking(
    channel: RawHandle,
    connection: *mut RawHandle,
) -> c_int {
    let begin = || insert(&UNPACKINGS, open(channel)?.begin_unpacking()?);
    // SAFETY: `connection` is NULL or points to a handle of the caller.
    finish("mad_begin_unpacking", || unsafe { put("connection", connection, begin) })
}

/// Begins to unpack the next message of one process.
///
/// # Safety
/// `connection` is NULL or leads to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_begin_unpacking_from(
    channel: RawHandle,
    from: c_int,
    connection: *mut RawHandle,
) -> c_int {
    let begin = || insert(&UNPACKINGS, open(channel)?.begin_unpacking_from(rank("from", from)?)?);
    // SAFETY: `connection` is NULL or points to a handle of the caller.
    finish("mad_begin_unpacking_from", || unsafe { put("connection", connection, begin) })
}

/// The process at the other end of a message.
///
/// # Safety
/// `peer` is NULL or leads to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_peer(connection: RawHandle, peer: *mut c_int) -> c_int {
    let ask = || {
        let packed = find(&PACKINGS, "connection", connection).map(|packing| packing.peer());
        let other =
            || find(&UNPACKINGS, "connection", connection).map(|unpacking| unpacking.peer());
        packed.or_else(|_| other()).map(|peer| peer as c_int)
    };
    // SAFETY: `peer` is NULL or points to an `int` of the caller.
    finish("mad_peer", || unsafe { put("peer", peer, ask) })
}

/// Takes the next packet of a message.
///
/// # Safety
/// `data` leads to `size` bytes, which are the library's until the constraints say that data are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_unpack(
    connection: RawHandle,
    data: *mut c_void,
    size: usize,
    send: c_int,
    receive: c_int,
    next: c_int,
) -> c_int {
    let is_unpacked = try_last(&UNPACKED, connection, |message| {
        let constraints = at_once(data, size, send, receive, next);
        constraints.is_some_and(|constraints| {
            // SAFETY: the caller passes room for `size` bytes at `data`, which are only written.
            let into = unsafe { std::slice::from_raw_parts_mut(data.cast(), size) };
            message.unpack_short(into, constraints)
        })
    });
    if is_unpacked {
        return 0;
    }
    // SAFETY: `data` has room for `size` bytes, as `unpack_any` requires.
    unsafe { unpack_any(connection, data, size, send, receive, next) }
}

/// Takes the next packet of a message, or says why not.
#[inline(never)]
unsafe fn unpack_any(
    connection: RawHandle,
    data: *mut c_void,
    size: usize,
    send: c_int,
    receive: c_int,
    next: c_int,
) -> c_int {
    finish("mad_unpack", || {
        let known = constraints(send, receive);
        let constraints = known.ok_or_else(|| no_constraint(send, receive))?;
        let next = what_follows(next)?;
        // SAFETY: the caller keeps room for `size` bytes at `data` as long as the constraints say.
        let into = unsafe { region(data, size) }?;
        with(&UNPACKINGS, &UNPACKED, connection, |message| message.unpack(&into, constraints, next))
    })
}

/// Ends the unpacking of a message.
#[unsafe(no_mangle)]
pub extern "C" fn mad_end_unpacking(connection: RawHandle) -> c_int {
    finish("mad_end_unpacking", || {
        let ended = with(&UNPACKINGS, &UNPACKED, connection, Unpacking::end);
        end(&UNPACKINGS, connection, ended)
    })
}

/// Returns the meaning of a code.
#[unsafe(no_mangle)]
pub extern "C" fn mad_strerror(code: c_int) -> *const c_char {
    let fault = Fault::ALL.iter().find(|fault| **fault as c_int == code);
    let text = match (fault, code) {
        (Some(fault), _) => fault.c_text(),
        (None, 0) => c"success",
        (None, _) => c"no code of this library",
    };
    text.as_ptr()
}

/// Why the calling thread's last failed call failed, in one line; valid until its next failure.
#[unsafe(no_mangle)]
pub extern "C" fn mad_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// Runs a body, unless the process is a forked one; keeps the reason of a failure.
#[inline]
fn finish(function: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    match session::refuse_forked().and_then(|()| body()) {
        Ok(()) => 0,
        Err(error) => fail(function, &error),
    }
}

#[cold]
fn fail(function: &'static str, error: &Error) -> c_int {
    let line = CString::new(format!("{function}: {error}").replace(['\0', '\n'], " "));
    LAST.set(line.unwrap_or_default());
    error.fault as c_int
}

/// Writes a result to its place, which is looked at before anything is done.
unsafe fn put<T>(name: &str, place: *mut T, make: impl FnOnce() -> Result<T>) -> Result<()> {
    if place.is_null() {
        return Err(null(name));
    }
    let value = make()?;
    // SAFETY: the caller passes a place for the result.
    unsafe { place.write(value) };
    Ok(())
}

/// The memory of a packet.
unsafe fn region(data: *mut c_void, size: usize) -> Result<Region> {
    if data.is_null() && size > 0 {
        return Err(null("data"));
    }
    if isize::try_from(size).is_err() {
        let message = format!("size = {size} is more than memory has");
        return Err(Error::new(Fault::Argument, message));
    }
    // SAFETY: the caller vouches for the memory as long as the constraints say.
    Ok(unsafe { Region::new(data.cast(), size) })
}

/// The constraints of a short packet with which nothing is wrong, and behind which the caller does not
/// compute.
#[inline(always)]
fn at_once(
    data: *const c_void,
    size: usize,
    send: c_int,
    receive: c_int,
    next: c_int,
) -> Option<Constraints> {
    let is_valid = usize::try_from(next).is_ok_and(|next| NEXT_AT_ONCE.get(next) == Some(&true));
    if data.is_null() || size > INLINE_MAX || !is_valid {
        return None;
    }
    constraints(send, receive)
}

/// True for each value of `next` that gives no information or the constraints of another packet.
static NEXT_AT_ONCE: [bool; 64] = {
    let mut valid = [false; 64];
    valid[UNKNOWN as usize] = true;
    let mut send = SAFER;
    while send <= SEND_CHEAPER {
        valid[(send | EXPRESS) as usize] = true;
        valid[(send | RECEIVE_CHEAPER) as usize] = true;
        send += 1;
    }
    valid
};

fn open(channel: RawHandle) -> Result<Channel> {
    session::node()?;
    find(&CHANNELS, "channel", channel)
}

fn rank(name: &str, value: c_int) -> Result<u32> {
    let message = |_| Error::new(Fault::Rank, format!("{name} = {value} is negative"));
    u32::try_from(value).map_err(message)
}

#[inline(always)]
fn constraints(send: c_int, receive: c_int) -> Option<Constraints> {
    let send = match send {
        SAFER => Send::Safer,
        LATER => Send::Later,
        SEND_CHEAPER => Send::Cheaper,
        _ => return None,
    };
    let receive = match receive {
        EXPRESS => Receive::Express,
        RECEIVE_CHEAPER => Receive::Cheaper,
        _ => return None,
    };
    Some(Constraints { send, receive })
}

#[cold]
fn no_constraint(send: c_int, receive: c_int) -> Error {
    let (name, value) = match constraints(send, EXPRESS) {
        None => ("send", send),
        Some(_) => ("receive", receive),
    };
    Error::new(Fault::Argument, format!("{name} = {value:#x} is no {name} constraint"))
}

fn what_follows(next: c_int) -> Result<Next> {
    match next {
        UNKNOWN => Ok(Next::Unknown),
        COMPUTING => Ok(Next::Computing),
        _ => match constraints(next & SEND_MASK, next & RECEIVE_MASK) {
            Some(constraints) if next & !(SEND_MASK | RECEIVE_MASK) == 0 => {
                Ok(Next::Packet(constraints))
            }
            Some(_) | None => {
                let message = format!("next = {next:#x} is none of MAD_NEXT_*");
                Err(Error::new(Fault::Argument, message))
            }
        },
    }
}

fn insert<T: Clone>(table: &Table<T>, object: T) -> Result<RawHandle> {
    let full = |error: TableError| Error::new(Fault::Limit, error.to_string());
    table.insert(object).map(|handle| handle.0 as RawHandle).map_err(full)
}

#[inline]
fn find<T: Clone>(table: &Table<T>, name: &str, handle: RawHandle) -> Result<T> {
    table.find(Handle(handle as u64)).map_err(|error| unknown(name, handle, error))
}

/// Asks the message that the thread has called last; false when this is another one.
#[inline(always)]
fn try_last<T: std::marker::Send>(
    last: &ThreadSlots<(RawHandle, T)>,
    handle: RawHandle,
    question: impl FnOnce(&T) -> bool,
) -> bool {
    // SAFETY: no question comes back here, where the last message is set.
    let asked = unsafe { last.ask(|(known, message)| *known == handle && question(message)) };
    asked == Some(true)
}

/// Calls a message, which the thread has called last from now on.
fn with<T: Clone + std::marker::Send>(
    table: &Table<T>,
    last: &'static ThreadSlots<(RawHandle, T)>,
    handle: RawHandle,
    call: impl FnOnce(&T) -> Result<()>,
) -> Result<()> {
    // SAFETY: the question only reads.
    let known = unsafe { last.ask(|(known, message)| (*known == handle).then(|| message.clone())) };
    let (message, is_new) = match known.flatten() {
        Some(message) => (message, false),
        None => (find(table, "connection", handle)?, true),
    };
    if is_new {
        last.set((handle, message.clone()));
    }
    // The handle of a message that another call has ended is stale.
    call(&message).or_else(|failed| find(table, "connection", handle).and(Err(failed)))
}

fn remove<T: Clone>(table: &Table<T>, handle: RawHandle) -> Result<()> {
    let removed = table.remove(Handle(handle as u64));
    removed.map(drop).map_err(|error| unknown("handle", handle, error))
}

/// The handle of a message that has ended is gone; that of one in use by another thread stays.
fn end<T: Clone>(table: &Table<T>, handle: RawHandle, ended: Result<()>) -> Result<()> {
    match ended {
        Err(Error { fault: Fault::Busy, .. }) => ended,
        Ok(()) | Err(_) => ended.and(remove(table, handle)),
    }
}

#[cold]
fn unknown(name: &str, handle: RawHandle, error: TableError) -> Error {
    let message = match handle {
        0 => format!("{name} is NULL"),
        _ => format!("{name}: {error}"),
    };
    Error::new(Fault::Handle, message)
}

#[cold]
fn null(name: &str) -> Error {
    Error::new(Fault::Argument, format!("{name} is NULL"))
}

const SAFER: c_int = 0x1;
const LATER: c_int = 0x2;
const SEND_CHEAPER: c_int = 0x3;
const SEND_MASK: c_int = 0x3;
const EXPRESS: c_int = 0x10;
const RECEIVE_CHEAPER: c_int = 0x20;
const RECEIVE_MASK: c_int = 0x30;
const UNKNOWN: c_int = 0;
const COMPUTING: c_int = 0x100;

static CHANNELS: Table<Channel> = Table::new(Kind::Channel);
static PACKINGS: Table<Packing> = Table::part(Kind::MadMessage, 0);
static UNPACKINGS: Table<Unpacking> = Table::part(Kind::MadMessage, 1);

static PACKED: ThreadSlots<(RawHandle, Packing)> = ThreadSlots::new();
static UNPACKED: ThreadSlots<(RawHandle, Unpacking)> = ThreadSlots::new();

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}
