//! Arguments that many functions take: checked, and turned into the `mpi` crate's terms.

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use datatype::{Builtin, Datatype};
use lock::ThreadSlots;
use memory::Region;
use mpi::comm::{self, Comm, CommRef};
use mpi::failures::revoked;
use mpi::file::{self, File};
use mpi::objects;
use mpi::point_to_point::From;
use mpi::window::{self, Window};

use crate::convention::*;
use crate::world;

/// A communicator for as long as a call takes.
pub(crate) enum Named {
    Found(CommRef),
    /// The communicator this thread used last, from its cache.
    Cached(Rc<Comm>),
}

impl Deref for Named {
    type Target = Comm;

    #[inline]
    fn deref(&self) -> &Comm {
        match self {
            Self::Found(comm) => comm,
            Self::Cached(comm) => comm,
        }
    }
}

/// For longer, and for other threads.
impl std::convert::From<Named> for CommRef {
    fn from(named: Named) -> Self {
        match named {
            Named::Found(comm) => comm,
            Named::Cached(comm) => Self::Derived(Comm::clone(&comm)),
        }
    }
}

/// The communicator.
#[inline(always)]
pub(crate) fn comm(raw: RawHandle) -> Result<Named> {
    match handle(raw) {
        comm::WORLD => {
            world::world_model().map(|world| Named::Found(CommRef::Predefined(world.world())))
        }
        _ => other(raw),
    }
}

/// One but that of all processes: that which the thread has named last is found without the table that all threads share.
#[inline(never)]
fn other(raw: RawHandle) -> Result<Named> {
    let is_it = |known: &RawHandle, comm: &Comm| *known == raw && comm.is_live();
    // SAFETY: the question only reads.
    let known = unsafe { LAST.ask(|(known, comm)| is_it(known, comm).then(|| Rc::clone(comm))) };
    match known.flatten() {
        Some(comm) => world::current().map(|_| Named::Cached(comm)),
        None => named("comm", find(raw)).map(Named::Found),
    }
}

/// The communicator behind a handle.
pub(crate) fn find_comm(raw: RawHandle) -> Result<CommRef> {
    match handle(raw) {
        comm::WORLD => Ok(CommRef::Predefined(world::world_model()?.world())),
        comm::SELF => Ok(CommRef::Predefined(world::world_model()?.myself())),
        derived => {
            world::current()?;
            comm::find(derived).map(CommRef::Derived)
        }
    }
}

#[cold]
fn find(raw: RawHandle) -> Result<CommRef> {
    let found = find_comm(raw)?;
    LAST.set((raw, Rc::new(Comm::clone(&found))));
    Ok(found)
}

/// The communicator that a thread has named last.
static LAST: ThreadSlots<(RawHandle, Rc<Comm>)> = ThreadSlots::new();

/// A communicator of one group.
pub(crate) fn intra(raw: RawHandle) -> Result<CommRef> {
    intra_as("comm", raw)
}

/// The same, as an argument of another name.
pub(crate) fn intra_as(name: &str, raw: RawHandle) -> Result<CommRef> {
    let comm = named(name, find_comm(raw))?;
    match comm.remote_group() {
        Some(_) => {
            Err(class(ErrorClass::Comm, format!("{name}: not defined on an intercommunicator")))
        }
        None => Ok(comm),
    }
}

/// A window. That which the thread has named last is found without the table that all threads share.
#[inline(always)]
pub(crate) fn window(raw: RawHandle) -> Result<Rc<Window>> {
    // SAFETY: the question only reads.
    let known = unsafe {
        LAST_WINDOW.ask(|last| {
            last.as_ref().filter(|last| last.is(raw)).map(|last| Rc::clone(&last.window))
        })
    };
    // Results of calls that are not inlined stay apart, so that this one stays in registers.
    match known.flatten() {
        Some(window) => {
            world::current()?;
            Ok(window)
        }
        None => Ok(find_window(raw)?),
    }
}

#[cold]
fn find_window(raw: RawHandle) -> Result<Rc<Window>> {
    world::current()?;
    let window = Rc::new(named("win", window::find(handle(raw)))?);
    LAST_WINDOW.set(Some(LastWindow { raw, window: Rc::clone(&window) }));
    Ok(window)
}

/// Lets the calling thread forget the window that it has named last, whose memory this keeps.
pub(crate) fn forget_window() {
    LAST_WINDOW.set(None);
}

/// The window that a thread has named last.
struct LastWindow {
    raw: RawHandle,
    window: Rc<Window>,
}

impl LastWindow {
    #[inline(always)]
    fn is(&self, raw: RawHandle) -> bool {
        self.raw == raw && self.window.is_live()
    }
}

static LAST_WINDOW: ThreadSlots<Option<LastWindow>> = ThreadSlots::new();

/// A file.
pub(crate) fn file(raw: RawHandle) -> Result<File> {
    world::current()?;
    named("fh", file::find(handle(raw)))
}

/// The destination of a send; none is `MPI_PROC_NULL`.
#[inline]
pub(crate) fn destination(comm: &Comm, rank: c_int) -> Result<Option<u32>> {
    match u32::try_from(rank) {
        Ok(rank) if rank < comm.peer_count() => Ok(Some(rank)),
        _ if rank == PROC_NULL => Ok(None),
        _ => Err(bad_rank(ErrorClass::Rank, "dest", rank, comm)),
    }
}

/// The source of a receive.
#[inline]
pub(crate) fn source(comm: &Comm, rank: c_int) -> Result<From> {
    match u32::try_from(rank) {
        Ok(rank) if rank < comm.peer_count() => Ok(From::Rank(rank)),
        _ => match rank {
            ANY_SOURCE => Ok(From::Any),
            PROC_NULL => Ok(From::Null),
            _ => Err(bad_rank(ErrorClass::Rank, "source", rank, comm)),
        },
    }
}

/// The root of a collective.
pub(crate) fn root(comm: &Comm, rank: c_int) -> Result<u32> {
    match u32::try_from(rank) {
        Ok(rank) if rank < comm.size() => Ok(rank),
        _ => Err(bad_rank(ErrorClass::Root, "root", rank, comm)),
    }
}

/// The tag of a send. All that an `int` holds from zero up is a tag.
#[inline]
pub(crate) fn tag(name: &str, tag: c_int) -> Result<c_int> {
    match tag {
        0.. => Ok(tag),
        _ => Err(negative(name, ErrorClass::Tag, i64::from(tag))),
    }
}

/// The tag of a receive.
#[inline]
pub(crate) fn tag_or_any(name: &str, value: c_int) -> Result<Option<c_int>> {
    match value {
        ANY_TAG => Ok(None),
        _ => tag(name, value).map(Some),
    }
}

/// A count of elements.
#[inline]
pub(crate) fn count(name: &str, count: i64) -> Result<usize> {
    length_of(name, ErrorClass::Count, count)
}

/// The length of an array, or a size in bytes.
pub(crate) fn length(name: &str, length: impl Into<i64>) -> Result<usize> {
    length_of(name, ErrorClass::Arg, length.into())
}

/// A datatype.
#[inline]
pub(crate) fn datatype(name: &str, raw: RawHandle) -> Result<Datatype> {
    named(name, objects::datatype(handle(raw)))
}

/// A datatype to communicate with. The standard's own are always there, and always committed: they are not counted.
#[inline(always)]
pub(crate) fn committed(name: &str, raw: RawHandle) -> Result<Cow<'static, Datatype>> {
    if handle(raw).is_predefined() {
        return named(name, objects::predefined(handle(raw))).map(Cow::Borrowed);
    }
    committed_derived(name, raw).map(Cow::Owned)
}

#[inline(never)]
fn committed_derived(name: &str, raw: RawHandle) -> Result<Datatype> {
    let datatype = datatype(name, raw)?;
    if !datatype.is_committed() {
        let text = format!("{name} = {raw:#x} is not committed: call MPI_Type_commit first");
        return Err(class(ErrorClass::Type, text));
    }
    Ok(datatype)
}

/// A datatype of so many elements to communicate. That of none may be anything, and is not looked at.
#[inline]
pub(crate) fn committed_for(
    name: &str,
    raw: RawHandle,
    elements: usize,
) -> Result<Cow<'static, Datatype>> {
    committed(name, if elements == 0 { BYTE } else { raw })
}

/// Names in the standard of the three arguments that describe a buffer.
pub(crate) struct Names {
    pub address: &'static str,
    pub count: &'static str,
    pub datatype: &'static str,
}

impl Names {
    /// Names in the order of the arguments.
    pub const fn new(address: &'static str, count: &'static str, datatype: &'static str) -> Self {
        Self { address, count, datatype }
    }
}

/// The buffer of functions that have one.
pub(crate) const BUF: Names = Names::new("buf", "count", "datatype");
/// The send buffer of functions with two buffers.
pub(crate) const SEND: Names = Names::new("sendbuf", "sendcount", "sendtype");
/// The receive buffer of functions with two buffers.
pub(crate) const RECV: Names = Names::new("recvbuf", "recvcount", "recvtype");

/// The memory of a buffer argument.
#[inline(always)]
pub(crate) fn buffer(
    names: &Names,
    address: Address,
    elements: i64,
    datatype: RawHandle,
) -> Result<Region> {
    match gapless_len(elements, datatype) {
        Some(len) if address.is_ordinary() => Ok(address.ordinary_bytes(len)),
        _ => unusual_buffer(names, address, elements, datatype),
    }
}

/// Length in bytes of elements of a predefined datatype without gaps, if their number is usual.
#[inline(always)]
pub(crate) fn gapless_len(elements: i64, datatype: RawHandle) -> Option<usize> {
    let bytes = Builtin::gapless_size(handle(datatype).0);
    let is_usual = bytes > 0 && (0..USUAL_COUNT_MAX).contains(&elements);
    if is_usual { Some(elements as usize * bytes) } else { None }
}

/// The general case of [`buffer`], with all checks.
#[cold]
#[inline(never)]
fn unusual_buffer(
    names: &Names,
    address: Address,
    elements: i64,
    datatype: RawHandle,
) -> Result<Region> {
    let elements = count(names.count, elements)?;
    let datatype = committed_for(names.datatype, datatype, elements)?;
    region(names, address, elements, &datatype)
}

/// `elements` elements of a datatype at an address.
#[inline]
pub(crate) fn region(
    names: &Names,
    address: Address,
    elements: usize,
    datatype: &Datatype,
) -> Result<Region> {
    let bytes = datatype.size().checked_mul(elements);
    let is_too_long = bytes.is_none_or(|bytes| bytes > isize::MAX as usize);
    if is_too_long || !address.is_ordinary() {
        return unusual_region(names, address, elements, (datatype, is_too_long));
    }
    Ok(address.ordinary_elements(elements, datatype.layout()))
}

/// Elements at an address that is no memory, or a constant, or a device's.
#[cold]
#[inline(never)]
fn unusual_region(
    names: &Names,
    address: Address,
    elements: usize,
    (datatype, is_too_long): (&Datatype, bool),
) -> Result<Region> {
    let place = address.get() as usize;
    let is_low = place < PAGE && elements > 0;
    if is_too_long || is_low && is_nowhere(place, datatype) {
        let too_long = is_too_long.then_some(datatype.size());
        return Err(misplaced(names, address.get(), elements, too_long));
    }
    Ok(address.elements(elements, datatype.layout()))
}

fn misplaced(
    names: &Names,
    address: *const c_void,
    elements: usize,
    too_long: Option<usize>,
) -> Error {
    if let Some(size) = too_long {
        let text = format!("{} = {elements} of {size} bytes each exceed memory", names.count);
        return class(ErrorClass::Count, text);
    }
    let text = match address as usize {
        0 => format!("{} is NULL but {} = {elements}", names.address, names.count),
        1 => format!("{} is MPI_IN_PLACE, which does not apply here", names.address),
        _ => format!("{} = {address:?} is no address", names.address),
    };
    class(ErrorClass::Buffer, text)
}

/// True if an element at an address below the first page really has data there. With absolute addresses in the
/// datatype, `MPI_BOTTOM` is a valid buffer.
#[cold]
fn is_nowhere(address: usize, datatype: &Datatype) -> bool {
    let first = datatype.true_extent().0.wrapping_add_unsigned(address);
    datatype.size() > 0 && (0..PAGE as isize).contains(&first)
}

/// Checks that what is sent does not lie where something is received, as far as both are in one piece.
pub(crate) fn distinct(send: &str, sent: &Region, receive: &str, received: &Region) -> Result<()> {
    match overlap(sent, received) {
        None => Ok(()),
        Some((from, to)) => {
            let text = format!("{send} = {from:#x} overlaps {receive} = {to:#x}");
            Err(class(ErrorClass::Buffer, text))
        }
    }
}

/// Returns both addresses, if both buffers are contiguous and overlap.
#[inline]
pub(crate) fn overlap(one: &Region, other: &Region) -> Option<(usize, usize)> {
    let range = |span: memory::Span| span.address as usize..span.address as usize + span.len;
    let (one, other) = (range(one.as_span()?), range(other.as_span()?));
    let is_apart = one.start >= other.end || other.start >= one.end;
    (!is_apart && !one.is_empty() && !other.is_empty()).then_some((one.start, other.start))
}

/// A C string.
///
/// # Safety
/// The pointer leads to a string that ends in a zero byte, or is null.
pub(crate) unsafe fn string(name: &str, text: *const c_char) -> Result<String> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The name of a file, which may have any bytes but zero.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn path(name: &str, text: *const c_char) -> Result<PathBuf> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(OsStr::from_bytes(bytes).into())
}

#[cold]
fn bad_rank(kind: ErrorClass, name: &str, rank: c_int, comm: &Comm) -> Error {
    if comm.is_revoked() {
        return revoked();
    }
    class(kind, format!("{name} = {rank} is outside a communicator of {}", comm.peer_count()))
}

/// `MPI_BYTE`.
const BYTE: RawHandle = 0x247;
pub(crate) const ANY_SOURCE: c_int = -1;
pub(crate) const ANY_TAG: c_int = -2;
pub(crate) const PROC_NULL: c_int = -3;

/// Number of elements for which any predefined datatype still fits the address space.
const USUAL_COUNT_MAX: i64 = 1 << 40;

/// Nothing is mapped below this address.
pub(crate) const PAGE: usize = 4096;
