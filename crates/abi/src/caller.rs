//! Memory of the caller, as the shims hand it to the bodies: places for results, arrays, texts and buffers.
//!
//! Constructors are unsafe: a shim vouches that an argument leads to what the standard says of it. Their values are
//! safe to use while the call lasts. Places stay pointers, because a program may pass one place for two results.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use handles::Handle;
use memory::{Layout, Region};
use mpi::request::{self, Source};

use crate::convention::*;

/// A place for a result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// A place that must be there.
    ///
    /// # Safety
    /// A `T` may be written at the address, unless that is NULL.
    #[inline(always)]
    pub unsafe fn new(name: &'static str, place: *mut T) -> Result<Self> {
        NonNull::new(place).map(Self).ok_or_else(|| null(name))
    }

    /// A place that the caller may leave out.
    ///
    /// # Safety
    /// As [`Out::new`].
    pub unsafe fn optional(place: *mut T) -> Option<Self> {
        NonNull::new(place).map(Self)
    }

    /// Writes the result.
    #[inline(always)]
    pub fn put(self, value: T) -> Result<()> {
        // SAFETY: the maker of the place vouched for it.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// Sets a result that a call fails to give; nothing if the caller has left it out.
#[cold]
pub(crate) fn unset<T>(place: Option<Out<T>>, null: T) {
    if let Some(Out(place)) = place {
        // SAFETY: the maker of the place vouched for it.
        unsafe { place.write(null) };
    }
}

/// A variable that a function reads and may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InOut<T>(NonNull<T>);

impl<T: Copy> InOut<T> {
    /// A variable that must be there.
    ///
    /// # Safety
    /// The address leads to a `T` that the call may change, unless it is NULL.
    #[inline(always)]
    pub unsafe fn new(name: &'static str, place: *mut T) -> Result<Self> {
        NonNull::new(place).map(Self).ok_or_else(|| null(name))
    }

    /// A variable that the caller may leave out.
    ///
    /// # Safety
    /// As [`InOut::new`].
    pub unsafe fn optional(place: *mut T) -> Option<Self> {
        NonNull::new(place).map(Self)
    }

    #[inline(always)]
    pub fn get(self) -> T {
        // SAFETY: the maker of the place vouched for the value there.
        unsafe { self.0.read() }
    }

    #[inline(always)]
    pub fn put(self, value: T) -> Result<()> {
        // SAFETY: the maker of the place vouched for it.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// Place for an integer result of either width.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutInt {
    Int(Out<c_int>),
    Count(Out<i64>),
}

impl OutInt {
    /// Writes a result; one that does not fit an `int` becomes `MPI_UNDEFINED`.
    pub fn put(self, value: i64) -> Result<()> {
        match self {
            Self::Int(place) => place.put(c_int::try_from(value).unwrap_or(UNDEFINED)),
            Self::Count(place) => place.put(value),
        }
    }
}

/// An integer variable of either width.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InOutInt {
    Int(InOut<c_int>),
    Count(InOut<i64>),
}

impl InOutInt {
    pub fn get(self) -> i64 {
        match self {
            Self::Int(place) => i64::from(place.get()),
            Self::Count(place) => place.get(),
        }
    }

    /// Changes the variable; a value that does not fit an `int` becomes `MPI_UNDEFINED`.
    pub fn put(self, value: i64) -> Result<()> {
        match self {
            Self::Int(place) => place.put(c_int::try_from(value).unwrap_or(UNDEFINED)),
            Self::Count(place) => place.put(value),
        }
    }
}

/// Place for the handle of a new datatype, with the form of the call (`int` or large count).
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewType {
    pub place: Out<RawHandle>,
    pub is_large: bool,
}

impl NewType {
    /// Asked for by the form with `int`s, or by the only one.
    pub fn small(place: Out<RawHandle>) -> Self {
        Self { place, is_large: false }
    }

    /// Asked for by the form with `MPI_Count`s.
    pub fn large(place: Out<RawHandle>) -> Self {
        Self { place, is_large: true }
    }
}

/// Place for a status; none for `MPI_STATUS_IGNORE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusOut(*mut Status);

impl StatusOut {
    /// # Safety
    /// The address leads to a status that the call may change, unless it is NULL.
    #[inline(always)]
    pub unsafe fn new(status: *mut Status) -> Self {
        Self(status)
    }

    /// Writes a status unless it is ignored; the error field stays as it is (MPI-5.0 §3.2.5).
    #[inline(always)]
    pub fn fill(self, status: &request::Status) {
        if !self.0.is_null() {
            // SAFETY: the maker of the place vouched for it.
            unsafe {
                let error = (*self.0).error;
                *self.0 = Status { error, ..Status::of(status) };
            }
        }
    }

    /// The address of the status, or of another if it is ignored.
    pub fn or(self, other: &mut Status) -> *mut Status {
        if self.0.is_null() { other } else { self.0 }
    }

    /// Writes all fields of a status unless it is ignored.
    #[inline(always)]
    pub fn put(self, status: impl FnOnce() -> Status) {
        if !self.0.is_null() {
            // SAFETY: the maker of the place vouched for it.
            unsafe { *self.0 = status() };
        }
    }
}

/// Places for several statuses; none for `MPI_STATUSES_IGNORE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statuses {
    first: Option<NonNull<Status>>,
    len: usize,
}

impl Statuses {
    /// # Safety
    /// `first` leads to an array of `len` statuses that the call may change, unless it is NULL.
    #[inline(always)]
    pub unsafe fn new(first: *mut Status, len: usize) -> Self {
        Self { first: NonNull::new(first), len }
    }

    /// Writes the status at an index, unless statuses are ignored. Its error field stays as it is (MPI-5.0 §3.2.5),
    /// unless the request was inactive. A check of the index would cost MPI_Waitall 9 instructions for each request, of 22.
    ///
    /// # Safety
    /// The index is below the length of the array.
    #[inline(always)]
    pub unsafe fn fill_unchecked(self, index: usize, status: &request::Status) {
        if let Some(first) = self.first {
            let Status { source, tag, internal, .. } = Status::of(status);
            // SAFETY: the maker vouched for the array, and the caller for the index.
            let place = unsafe { first.add(index).as_mut() };
            (place.source, place.tag, place.internal) = (source, tag, internal);
            // Empty statuses have one (MPI-5.0 §3.7.3).
            if status.source == Source::Inactive {
                place.error = 0;
            }
        }
    }

    /// The place of the status at an index.
    pub fn at(self, index: usize) -> StatusOut {
        self.check(index);
        let place = |first: NonNull<Status>| first.as_ptr().wrapping_add(index);
        StatusOut(self.first.map_or(std::ptr::null_mut(), place))
    }

    /// Writes the error field of the status at an index, unless statuses are ignored.
    pub fn set_error(self, index: usize, error: c_int) {
        self.check(index);
        if let Some(first) = self.first {
            // SAFETY: the maker vouched for the array, and the index is below its length.
            unsafe { first.add(index).as_mut() }.error = error;
        }
    }

    fn check(self, index: usize) {
        assert!(index < self.len, "there are fewer statuses than requests");
    }
}

/// An array for results, or one that the caller leaves out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots<T> {
    name: &'static str,
    first: *mut T,
    len: usize,
}

impl<T: Copy> Slots<T> {
    /// # Safety
    /// The address leads to room for `len` values, unless it is NULL or a constant of the standard.
    pub unsafe fn new(name: &'static str, first: *mut T, len: usize) -> Self {
        Self { name, first, len }
    }

    /// Number of values that there is room for.
    pub fn len(self) -> usize {
        self.len
    }

    /// The address itself, which may be a constant of the standard.
    pub fn address(self) -> usize {
        self.first as usize
    }

    /// Checks that there is an array, if so many values are to be written.
    pub fn check(self, values: usize) -> Result<()> {
        exists(self.name, self.first, values)
    }

    /// Writes one value.
    pub fn put(self, index: usize, value: T) -> Result<()> {
        self.check(1)?;
        assert!(index < self.len, "{}[{index}] of {}", self.name, self.len);
        // SAFETY: the maker vouched for the array, and `index` is inside.
        unsafe { self.first.add(index).write(value) };
        Ok(())
    }

    /// Writes the first values.
    pub fn write(self, values: impl IntoIterator<Item = T>) -> Result<()> {
        values.into_iter().enumerate().try_for_each(|(index, value)| self.put(index, value))
    }
}

/// An array whose length follows from what the body knows, such as the size of the communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array<'a, T> {
    name: &'static str,
    first: *const T,
    caller: PhantomData<&'a T>,
}

impl<'a, T> Array<'a, T> {
    /// # Safety
    /// The address leads to as many values as the standard says, unless it is NULL or a constant of the standard.
    pub unsafe fn new(name: &'static str, first: *const T) -> Self {
        Self { name, first, caller: PhantomData }
    }

    /// The address itself, which may be a constant of the standard.
    pub fn address(self) -> usize {
        self.first as usize
    }

    /// The values, as many as the standard says.
    pub fn all(self, len: usize) -> Result<&'a [T]> {
        // SAFETY: the maker vouched for as many values as the standard says.
        unsafe { array(self.name, self.first, len) }
    }
}

/// Texts that have a meaning at the root only. None for `MPI_ARGV_NULL`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootTexts<'a> {
    name: &'static str,
    first: *const *mut c_char,
    caller: PhantomData<&'a c_char>,
}

impl RootTexts<'_> {
    /// # Safety
    /// At the root, `first` is NULL, or leads to texts that end in a zero byte: as many as the body reads, or up to NULL.
    pub unsafe fn new(name: &'static str, first: *mut *mut c_char) -> Self {
        Self { name, first, caller: PhantomData }
    }

    /// Reads so many texts, at the root.
    pub fn read(self, count: usize) -> Result<Vec<Vec<u8>>> {
        exists(self.name, self.first, count)?;
        (0..count).map(|index| self.at(index).bytes()).collect()
    }

    /// Reads the texts up to NULL, at the root.
    pub fn read_all(self) -> Vec<Vec<u8>> {
        if self.first.is_null() {
            return Vec::new();
        }
        (0..).map_while(|index| self.at(index).bytes().ok()).collect()
    }

    fn at(self, index: usize) -> RootText {
        // SAFETY: the maker vouched for the texts before this one, which was not NULL, and for the place behind it.
        let first = unsafe { *self.first.add(index) };
        RootText { name: self.name, first }
    }
}

/// Texts of several programs that have a meaning at the root only. None for `MPI_ARGVS_NULL`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootRows<'a> {
    name: &'static str,
    first: *const *mut *mut c_char,
    caller: PhantomData<&'a c_char>,
}

impl RootRows<'_> {
    /// # Safety
    /// At the root, `first` is NULL, or leads to one array for each program, as for [`RootTexts::new`].
    pub unsafe fn new(name: &'static str, first: *mut *mut *mut c_char) -> Self {
        Self { name, first, caller: PhantomData }
    }

    /// Reads the texts of a program, at the root.
    pub fn row(self, index: usize) -> Vec<Vec<u8>> {
        if self.first.is_null() {
            return Vec::new();
        }
        // SAFETY: the maker vouched for one array for each program.
        let first = unsafe { *self.first.add(index) };
        RootTexts { name: self.name, first, caller: PhantomData }.read_all()
    }
}

/// Place for the error codes of processes, as many as the root has asked for; none for `MPI_ERRCODES_IGNORE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorCodes(*mut c_int);

impl ErrorCodes {
    /// # Safety
    /// There is room for as many codes as the root asks for processes, unless the address is NULL.
    pub unsafe fn new(codes: *mut c_int) -> Self {
        Self(codes)
    }

    /// Writes the codes.
    pub fn put(self, codes: impl Iterator<Item = c_int>) {
        if self.0.is_null() {
            return;
        }
        for (index, code) in codes.enumerate() {
            // SAFETY: the maker vouched for the room.
            unsafe { self.0.add(index).write(code) };
        }
    }
}

/// An array of integers of either width, with the name the standard gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ints<'a> {
    Int(Array<'a, c_int>),
    Count(Array<'a, i64>),
}

impl<'a> Ints<'a> {
    /// An array of `int`.
    ///
    /// # Safety
    /// As [`Array::new`].
    pub unsafe fn int(name: &'static str, first: *const c_int) -> Self {
        // SAFETY: the caller's promise.
        Self::Int(unsafe { Array::new(name, first) })
    }

    /// An array of 64-bit integers.
    ///
    /// # Safety
    /// As [`Array::new`].
    pub unsafe fn count(name: &'static str, first: *const i64) -> Self {
        // SAFETY: the caller's promise.
        Self::Count(unsafe { Array::new(name, first) })
    }

    /// The integers, as many as the standard says.
    #[inline]
    pub fn all(self, len: usize) -> Result<IntSlice<'a>> {
        Ok(match self {
            Self::Int(array) => IntSlice { name: array.name, values: Values::Int(array.all(len)?) },
            Self::Count(array) => {
                IntSlice { name: array.name, values: Values::Count(array.all(len)?) }
            }
        })
    }
}

/// Integers of either width, with the name the standard gives their array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntSlice<'a> {
    pub name: &'static str,
    values: Values<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Values<'a> {
    Int(&'a [c_int]),
    Count(&'a [i64]),
}

impl IntSlice<'_> {
    pub fn len(self) -> usize {
        match self.values {
            Values::Int(values) => values.len(),
            Values::Count(values) => values.len(),
        }
    }

    #[inline]
    pub fn at(self, index: usize) -> i64 {
        match self.values {
            Values::Int(values) => i64::from(values[index]),
            Values::Count(values) => values[index],
        }
    }

    /// Value `index`, which is a count.
    #[inline]
    pub fn count_at(self, index: usize) -> Result<usize> {
        let value = self.at(index);
        usize::try_from(value).map_err(|_| {
            class(ErrorClass::Count, format!("{}[{index}] = {value} is negative", self.name))
        })
    }

    pub fn to_vec(self) -> Result<Vec<i64>> {
        let mut values = room(self.name, self.len())?;
        values.extend((0..self.len()).map(|index| self.at(index)));
        Ok(values)
    }

    /// The values, which are counts.
    pub fn counts(self) -> Result<Vec<usize>> {
        let mut values = room(self.name, self.len())?;
        for index in 0..self.len() {
            values.push(self.count_at(index)?);
        }
        Ok(values)
    }
}

/// A text that counts at the root only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootText {
    name: &'static str,
    first: *const c_char,
}

impl RootText {
    /// # Safety
    /// At the root, the address leads to a text that ends in a zero byte, or is NULL.
    pub unsafe fn new(name: &'static str, first: *const c_char) -> Self {
        Self { name, first }
    }

    /// The text, at the root.
    pub fn read(self) -> Result<String> {
        // SAFETY: the maker vouched for it.
        unsafe { crate::arguments::string(self.name, self.first) }
    }

    /// The bytes of the text, at the root.
    pub fn bytes(self) -> Result<Vec<u8>> {
        if self.first.is_null() {
            return Err(null(self.name));
        }
        // SAFETY: the maker vouched for the text.
        Ok(unsafe { CStr::from_ptr(self.first) }.to_bytes().to_vec())
    }
}

/// Room for a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chars {
    name: &'static str,
    first: *mut c_char,
}

impl Chars {
    /// # Safety
    /// The address leads to as many bytes as the standard says, or is NULL.
    pub unsafe fn new(name: &'static str, first: *mut c_char) -> Self {
        Self { name, first }
    }

    /// Writes as much of a text as `room` bytes hold, with its final zero byte. Returns the length of what is written.
    pub fn write(self, text: &str, room: usize) -> Result<usize> {
        if room == 0 {
            return Ok(0);
        }
        let place = NonNull::new(self.first).ok_or_else(|| null(self.name))?.cast::<u8>();
        let bytes = &text.as_bytes()[..text.len().min(room - 1)];
        // SAFETY: the maker vouched for as many bytes as the standard says, of which `room` are to be used.
        unsafe {
            place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            place.add(bytes.len()).write(0);
        }
        Ok(bytes.len())
    }
}

/// Address of a buffer: its memory belongs to the operation until that completes, as the standard says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(*const c_void);

impl Address {
    /// # Safety
    /// The address leads to the elements that the arguments beside it describe, or is a constant of the standard.
    #[inline(always)]
    pub unsafe fn new(address: *const c_void) -> Self {
        Self(address)
    }

    /// The address for pointers to this memory.
    #[inline(always)]
    pub fn get(self) -> *mut c_void {
        self.0.cast_mut()
    }

    /// True if the address is no constant of the standard, and not a device's.
    #[inline(always)]
    pub fn is_ordinary(self) -> bool {
        device::is_ordinary(self.0 as usize)
    }

    /// Bytes behind an ordinary address.
    #[inline(always)]
    pub fn ordinary_bytes(self, len: usize) -> Region {
        // SAFETY: the maker vouched for the buffer, of which the arguments beside it describe these bytes.
        unsafe { Region::new(self.get().cast(), len) }
    }

    /// Elements of a layout behind an ordinary address.
    #[inline(always)]
    pub fn ordinary_elements(self, count: usize, layout: &Arc<Layout>) -> Region {
        // SAFETY: the maker vouched for the buffer, of which the arguments beside it describe these elements.
        unsafe { Region::elements(self.get().cast(), count, layout) }
    }

    /// Some of the bytes behind the address, which may be in a device.
    pub fn bytes(self, offset: isize, len: usize) -> Region {
        // SAFETY: the maker vouched for the buffer.
        unsafe { device::located(self.offset(offset).ordinary_bytes(len)) }
    }

    /// Elements of a layout behind the address, which may be in a device.
    pub fn elements(self, count: usize, layout: &Arc<Layout>) -> Region {
        // SAFETY: the maker vouched for the buffer.
        unsafe { device::located(self.ordinary_elements(count, layout)) }
    }

    /// True for `MPI_IN_PLACE`.
    pub fn is_in_place(self) -> bool {
        self.0 as usize == 1
    }

    /// The address so many bytes on.
    pub fn offset(self, bytes: isize) -> Self {
        Self(self.0.wrapping_byte_offset(bytes))
    }
}

/// Checks that there is an array of `len` entries, if it has any, and that memory can hold so many.
#[inline(always)]
fn exists<T>(name: &str, entries: *const T, len: usize) -> Result<()> {
    let is_too_long = len > const { isize::MAX as usize / size_of::<T>() };
    if len > 0 && (entries.is_null() || is_too_long) {
        return Err(no_array(name, is_too_long.then_some(len)));
    }
    Ok(())
}

#[cold]
fn no_array(name: &str, too_long: Option<usize>) -> Error {
    match too_long {
        Some(len) => Error::argument(format!("{name}: {len} entries exceed memory")),
        None => null(name),
    }
}

/// An empty list with room for as many entries as a program says.
pub(crate) fn room<T>(name: &str, len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| no_memory(name, len))?;
    Ok(values)
}

#[cold]
fn no_memory(name: &str, len: usize) -> Error {
    class(ErrorClass::NoMem, format!("{name}: no memory for {len} entries"))
}

/// The entries of an array.
///
/// # Safety
/// The address leads to `len` entries that stay as they are during the call, or is NULL.
#[inline(always)]
pub(crate) unsafe fn array<'a, T>(
    name: &'static str,
    entries: *const T,
    len: usize,
) -> Result<&'a [T]> {
    exists(name, entries, len)?;
    match len {
        0 => Ok(&[]),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(entries, len) }),
    }
}

/// The entries of an array that the call changes.
///
/// # Safety
/// The address leads to `len` entries that nobody else uses during the call, or is NULL.
pub(crate) unsafe fn array_mut<'a, T>(
    name: &'static str,
    entries: *mut T,
    len: usize,
) -> Result<&'a mut [T]> {
    exists(name, entries, len)?;
    match len {
        0 => Ok(&mut []),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(entries, len) }),
    }
}

/// The handles of an array. They are read while others are set to null.
///
/// # Safety
/// The address leads to `len` handles that no other thread uses during the call, or is NULL. Only calls that may change
/// the array write its cells.
#[inline(always)]
pub(crate) unsafe fn handles<'a>(
    name: &'static str,
    requests: *const RawHandle,
    len: usize,
) -> Result<&'a [Cell<Handle>]> {
    const { assert!(size_of::<RawHandle>() == size_of::<Handle>()) };
    // SAFETY: the caller's promise; a cell has the layout of what it holds.
    unsafe { array(name, requests.cast(), len) }
}

/// The status that a function reads.
///
/// # Safety
/// The address leads to a status, or is NULL.
pub(crate) unsafe fn status<'a>(name: &'static str, status: *const Status) -> Result<&'a Status> {
    // SAFETY: the caller's promise.
    unsafe { status.as_ref() }.ok_or_else(|| null(name))
}

/// The status that a function changes.
///
/// # Safety
/// The address leads to a status that nobody else uses during the call, or is NULL.
pub(crate) unsafe fn status_mut<'a>(
    name: &'static str,
    status: *mut Status,
) -> Result<&'a mut Status> {
    // SAFETY: the caller's promise.
    unsafe { status.as_mut() }.ok_or_else(|| null(name))
}

/// The length of an array, of which a negative one is of this class of error.
#[inline(always)]
pub(crate) fn length_of(name: &str, kind: ErrorClass, len: i64) -> Result<usize> {
    usize::try_from(len).map_err(|_| negative(name, kind, len))
}

#[cold]
pub(crate) fn negative(name: &str, kind: ErrorClass, value: i64) -> Error {
    class(kind, format!("{name} = {value} is negative"))
}
