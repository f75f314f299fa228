//! Choice buffers of `mpi_f08`: arrays and their sections (MPI-5.0 §19.1.12).
//!
//! A contiguous section is passed by its address. A call that ends when it returns gets a contiguous copy of any other
//! section. A call that uses the buffer after it has returned gets a datatype that describes the section, or the part of
//! it that belongs to one rank. A non-blocking or persistent collective that no datatype can be given, such as a reduction,
//! works on a copy until it has ended ([`CopiedRequest`]). Other sections are refused with `MPI_ERR_BUFFER`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::{ptr, slice};

use crate::descriptor::{Array, Descriptor, Dimension};
use crate::handle::{Datatype, Request};
use crate::sentinel;
use binding::argument::{Argument, Value};
use binding::library;
use binding::translation::{Translated, Translation, Variable};

/// A choice buffer as C gets it.
pub(crate) struct Section {
    array: Array,
    address: *mut c_void,
    /// A contiguous copy, if the call ends when it returns.
    copy: Option<Vec<u8>>,
    is_written: bool,
    /// A datatype for the section, to be freed.
    datatype: Option<usize>,
    is_contiguous: bool,
}

impl Section {
    /// The address alone: the call uses one element at most, or none.
    pub(crate) unsafe fn address(descriptor: *const Descriptor) -> Self {
        // SAFETY: Fortran passes a descriptor.
        let array = unsafe { Array::of(descriptor) };
        let (address, is_contiguous) =
            (sentinel::buffer(array.address.cast()), array.is_contiguous());
        Self { array, address, copy: None, is_written: false, datatype: None, is_contiguous }
    }

    /// A buffer of a call that ends when it returns, and may write to it.
    pub(crate) unsafe fn blocking(descriptor: *const Descriptor, is_written: bool) -> Self {
        // SAFETY: Fortran passes a descriptor.
        let mut section = unsafe { Self::address(descriptor) };
        if !section.is_contiguous {
            let mut copy = Vec::new();
            // SAFETY: the elements that a descriptor describes can be read.
            unsafe { gather(section.array.address, &section.array.runs(), &mut copy) };
            section.address = copy.as_mut_ptr().cast();
            (section.copy, section.is_written) = (Some(copy), is_written);
        }
        section
    }

    /// Refuses a section that is not contiguous; returns an error code.
    pub(crate) fn refuse(&self) -> c_int {
        if self.is_contiguous { 0 } else { refused() }
    }

    /// Describes a section by a datatype if it is not contiguous; returns an error code. Count and datatype are those of the
    /// whole buffer.
    pub(crate) fn describe<N>(
        &mut self,
        count: &mut Value<N>,
        datatype: &mut Translated<Datatype>,
    ) -> c_int
    where
        Value<N>: Argument<C = N> + Count,
    {
        let number = count.get();
        self.replace(datatype, |array, basic| {
            count.one();
            whole(array, number, basic)
        })
    }

    /// Describes a section with as many elements of the datatype for each rank; returns an error code.
    pub(crate) fn describe_blocks<N>(
        &mut self,
        count: &mut Value<N>,
        datatype: &mut Translated<Datatype>,
    ) -> c_int
    where
        Value<N>: Argument<C = N> + Count,
    {
        let number = count.get();
        if number <= 0 {
            // Nothing is moved, or the call says what is wrong.
            return 0;
        }
        self.replace(datatype, |array, basic| {
            count.one();
            block(array, number, basic)
        })
    }

    /// Describes a section of which counts and displacements give each rank a part; returns an error code.
    pub(crate) fn describe_elements(&mut self, datatype: &mut Translated<Datatype>) -> c_int {
        self.replace(datatype, |array, basic| block(array, 1, basic))
    }

    /// Replaces the datatype by the one that `make` makes of it, if the section is not contiguous.
    fn replace(
        &mut self,
        datatype: &mut Translated<Datatype>,
        make: impl FnOnce(&Array, Basic) -> Result<SectionType>,
    ) -> c_int {
        if self.is_contiguous {
            return 0;
        }
        let made = Basic::of(datatype.c(), &self.array)
            .and_then(|basic| make(&self.array, basic))
            .and_then(SectionType::committed);
        match made {
            Ok(made) => {
                datatype.replace(made);
                self.datatype = Some(made);
                0
            }
            Err(code) => code,
        }
    }
}

/// The request of a collective that works on copies of sections until it has ended, or until it is freed.
pub(crate) struct CopiedRequest {
    request: Variable<Request>,
    copies: Vec<SectionCopy>,
}

/// A copy of a section, and where it came from. The descriptor need not last as long.
struct SectionCopy {
    address: *mut u8,
    runs: Vec<Dimension>,
    bytes: Vec<u8>,
    is_written: bool,
}

impl CopiedRequest {
    pub(crate) unsafe fn result(variable: *mut c_int) -> Self {
        // SAFETY: Fortran passes the address of a request.
        Self { request: unsafe { Variable::result(variable) }, copies: Vec::new() }
    }

    /// Puts a copy in the place of a section that is not contiguous. It is given back if it `is_written`. Refuses the section
    /// over a library of others, which does not tell of a collective's runs.
    pub(crate) fn copy(&mut self, section: &mut Section, is_written: bool) -> c_int {
        if follow_collective().is_none() {
            return section.refuse();
        }
        if !section.is_contiguous {
            let Array { address, .. } = section.array;
            let (runs, mut bytes) = (section.array.runs(), Vec::new());
            // SAFETY: the elements that a descriptor describes can be read.
            unsafe { gather(address, &runs, &mut bytes) };
            self.copies.push(SectionCopy { address, runs, bytes, is_written });
            // The memory of the copy stays where it is.
            let last = self.copies.len() - 1;
            section.address = self.copies[last].bytes.as_mut_ptr().cast();
        }
        0
    }
}

impl Argument for CopiedRequest {
    type C = <Variable<Request> as Argument>::C;

    fn c(&mut self) -> Self::C {
        self.request.c()
    }

    fn give(self) {
        let request = self.request.value();
        let has_begun = request != Request::UNWRITTEN && request != REQUEST_NULL;
        if has_begun
            && !self.copies.is_empty()
            && let Some(follow) = follow_collective()
        {
            let copies = Box::into_raw(Box::new(self.copies));
            // SAFETY: the request is that of a collective, and the copies are used from here on by its events alone.
            unsafe { follow(request, handle_event, copies.cast()) };
        }
        self.request.give();
    }
}

/// Copies sections before a run of a persistent collective, gives copies back after a run, or frees them at the end.
unsafe extern "C" fn handle_event(copies: *mut c_void, event: c_int) {
    let copies = copies.cast::<Vec<SectionCopy>>();
    if event == FREED {
        // SAFETY: the copies were in a box, and this is the last event.
        drop(unsafe { Box::from_raw(copies) });
        return;
    }
    // SAFETY: the copies last until they are freed, and one event follows the other.
    for SectionCopy { address, runs, bytes, is_written } in unsafe { &mut *copies } {
        // SAFETY: the section lasts, and nobody else uses it or its copy until the request completes.
        unsafe {
            match event {
                BEGINS => gather(*address, runs, bytes),
                SUCCEEDED if *is_written => scatter(*address, runs, bytes),
                _ => {}
            }
        }
    }
}

/// Events of a collective, besides a run that has failed.
const BEGINS: c_int = 0;
const SUCCEEDED: c_int = 1;
const FREED: c_int = 3;

/// Tells a function of the runs of a collective: before each of a persistent one, and of each end before the request
/// completes.
type FollowCollective = unsafe extern "C" fn(
    request: usize,
    tell: unsafe extern "C" fn(*mut c_void, c_int),
    state: *mut c_void,
) -> c_int;

/// Returns that function of Canele's library. The symbol is not MPI's, so other libraries of the standard ABI lack it.
fn follow_collective() -> Option<FollowCollective> {
    static FOUND: OnceLock<Option<FollowCollective>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = library::standard().find(c"canele_follow_collective");
        // SAFETY: null is no function, and Canele's library has this one of that name.
        unsafe { std::mem::transmute::<*mut c_void, Option<FollowCollective>>(found) }
    })
}

const REQUEST_NULL: usize = 0x180;

/// The object whose error handler is called.
pub(crate) enum On {
    Comm(usize),
    Win(usize),
    File(usize),
    Session(usize),
    Process,
}

/// Calls the error handler with the first error, if there is one; returns it.
pub(crate) fn raise(codes: &[c_int], on: On) -> c_int {
    unsafe extern "C" {
        fn MPI_Comm_call_errhandler(comm: usize, code: c_int) -> c_int;
        fn MPI_Win_call_errhandler(win: usize, code: c_int) -> c_int;
        fn MPI_File_call_errhandler(file: usize, code: c_int) -> c_int;
        fn MPI_Session_call_errhandler(session: usize, code: c_int) -> c_int;
    }
    let code = codes.iter().copied().find(|code| *code != 0).unwrap_or(0);
    if code != 0 {
        // SAFETY: the functions take any handle and any code.
        unsafe {
            match on {
                On::Comm(comm) => MPI_Comm_call_errhandler(comm, code),
                On::Win(win) => MPI_Win_call_errhandler(win, code),
                On::File(file) => MPI_File_call_errhandler(file, code),
                On::Session(session) => MPI_Session_call_errhandler(session, code),
                On::Process => MPI_Comm_call_errhandler(COMM_SELF, code),
            }
        };
    }
    code
}

const COMM_SELF: usize = 0x102;

/// Number of elements, of either width.
pub(crate) trait Count {
    fn get(&mut self) -> i64;
    fn one(&mut self);
}

impl Count for Value<c_int> {
    fn get(&mut self) -> i64 {
        self.c().into()
    }

    fn one(&mut self) {
        self.replace(1);
    }
}

impl Count for Value<i64> {
    fn get(&mut self) -> i64 {
        self.c()
    }

    fn one(&mut self) {
        self.replace(1);
    }
}

impl Argument for Section {
    type C = *mut c_void;

    fn c(&mut self) -> *mut c_void {
        self.address
    }

    fn give(self) {
        if let Some(copy) = self.copy.filter(|_| self.is_written) {
            // SAFETY: the elements that a descriptor describes can be written where the call may do so.
            unsafe { scatter(self.array.address, &self.array.runs(), &copy) };
        }
        if let Some(mut datatype) = self.datatype {
            // SAFETY: the datatype was made for this call. The operation keeps it.
            unsafe { PMPI_Type_free(&mut datatype) };
        }
    }
}

/// Calls a function with the place of each run of contiguous bytes, in the order of the elements.
fn each_run(address: *mut u8, runs: &[Dimension], mut run: impl FnMut(*mut u8, usize)) {
    let [first, outer @ ..] = runs else { return };
    let mut at = [0isize; 16];
    loop {
        let offset: isize = outer.iter().zip(&at).map(|(dimension, i)| dimension.stride * i).sum();
        run(address.wrapping_offset(offset), first.extent as usize);
        let Some(next) = (0..outer.len()).find(|i| at[*i] + 1 < outer[*i].extent) else { return };
        at[..next].fill(0);
        at[next] += 1;
    }
}

/// Replaces bytes by those of a section. Room for as many bytes stays where it is.
unsafe fn gather(address: *mut u8, runs: &[Dimension], bytes: &mut Vec<u8>) {
    bytes.clear();
    each_run(address, runs, |place, length| {
        // SAFETY: the elements of the section can be read.
        bytes.extend_from_slice(unsafe { slice::from_raw_parts(place, length) });
    });
}

unsafe fn scatter(address: *mut u8, runs: &[Dimension], bytes: &[u8]) {
    let mut rest = bytes;
    each_run(address, runs, |place, length| {
        let (front, back) = rest.split_at(length);
        // SAFETY: the elements of the section can be written, and are as many as were copied.
        unsafe { ptr::copy_nonoverlapping(front.as_ptr(), place, length) };
        rest = back;
    });
}

unsafe extern "C" {
    fn PMPI_Type_get_envelope_c(
        datatype: usize,
        integers: *mut i64,
        addresses: *mut i64,
        counts: *mut i64,
        datatypes: *mut i64,
        combiner: *mut c_int,
    ) -> c_int;
    fn PMPI_Type_size_c(datatype: usize, size: *mut i64) -> c_int;
    fn PMPI_Type_contiguous_c(count: i64, old: usize, new: *mut usize) -> c_int;
    fn PMPI_Type_create_hvector_c(
        count: i64,
        length: i64,
        stride: i64,
        old: usize,
        new: *mut usize,
    ) -> c_int;
    fn PMPI_Type_create_struct_c(
        count: i64,
        lengths: *const i64,
        displacements: *const i64,
        types: *const usize,
        new: *mut usize,
    ) -> c_int;
    fn PMPI_Type_create_resized_c(old: usize, lower: i64, extent: i64, new: *mut usize) -> c_int;
    fn PMPI_Add_error_code(class: c_int, code: *mut c_int) -> c_int;
    fn PMPI_Add_error_string(code: c_int, text: *const c_char) -> c_int;
    fn PMPI_Type_commit(datatype: *mut usize) -> c_int;
    fn PMPI_Type_free(datatype: *mut usize) -> c_int;
}

/// An error code of class `MPI_ERR_BUFFER`, with a text that says what to do.
fn refused() -> c_int {
    static CODE: OnceLock<c_int> = OnceLock::new();
    *CODE.get_or_init(|| {
        let mut code = ERR_BUFFER;
        // SAFETY: the functions take any class, and a text that ends in a zero byte.
        unsafe {
            PMPI_Add_error_code(ERR_BUFFER, &mut code);
            PMPI_Add_error_string(code, REFUSED.as_ptr());
        }
        code
    })
}

const REFUSED: &CStr =
    c"this call cannot use a section of an array that is not contiguous: pass a contiguous copy";

type Result<T> = std::result::Result<T, c_int>;

fn checked(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// A datatype on its way, which is freed when it has been used.
struct SectionType(usize);

impl Drop for SectionType {
    fn drop(&mut self) {
        // SAFETY: the datatype was made here.
        unsafe { PMPI_Type_free(&mut self.0) };
    }
}

impl SectionType {
    fn made(make: impl FnOnce(*mut usize) -> c_int) -> Result<Self> {
        let mut datatype = 0;
        checked(make(&mut datatype)).map(|()| Self(datatype))
    }

    fn contiguous(count: i64, old: usize) -> Result<Self> {
        // SAFETY: the function takes any handle, and writes one.
        Self::made(|new| unsafe { PMPI_Type_contiguous_c(count, old, new) })
    }

    fn repeated(&self, dimension: Dimension, count: i64) -> Result<Self> {
        let stride = dimension.stride as i64;
        // SAFETY: this function, too, takes any handle and writes one.
        Self::made(|new| unsafe { PMPI_Type_create_hvector_c(count, 1, stride, self.0, new) })
    }

    fn resized(&self, extent: i64) -> Result<Self> {
        // SAFETY: and so does this one.
        Self::made(|new| unsafe { PMPI_Type_create_resized_c(self.0, 0, extent, new) })
    }

    fn committed(mut self) -> Result<usize> {
        // SAFETY: the datatype was made here.
        checked(unsafe { PMPI_Type_commit(&mut self.0) })?;
        let datatype = self.0;
        std::mem::forget(self);
        Ok(datatype)
    }
}

/// A predefined datatype, of which each element of an array holds one or several.
#[derive(Clone, Copy)]
struct Basic {
    datatype: usize,
    size: i64,
    per_element: i64,
}

impl Basic {
    fn of(datatype: usize, array: &Array) -> Result<Self> {
        let (mut size, mut combiner, mut ignored) = (0, 0, [0; 4]);
        let [a, b, c, d] = &mut ignored;
        // SAFETY: the functions take any handle, and the addresses are those of integers.
        unsafe {
            checked(PMPI_Type_get_envelope_c(datatype, a, b, c, d, &mut combiner))?;
            checked(PMPI_Type_size_c(datatype, &mut size))?;
        }
        let element = array.element as i64;
        let is_fitting = combiner == COMBINER_NAMED && size > 0 && element % size == 0;
        is_fitting.then(|| Self { datatype, size, per_element: element / size }).ok_or_else(refused)
    }
}

/// A datatype of the first `count` basic elements of a section.
fn whole(array: &Array, count: i64, basic: Basic) -> Result<SectionType> {
    let dimensions: Vec<Dimension> = array.dimensions().collect();
    let elements: i64 = dimensions.iter().map(|dimension| dimension.extent as i64).product();
    if count < 0 || count > elements * basic.per_element {
        return Err(refused());
    }
    // Datatypes of an element, of a row of them, of a plane of rows, and so on.
    let mut slabs = vec![SectionType::contiguous(basic.per_element, basic.datatype)?];
    for dimension in dimensions.iter().take(dimensions.len().saturating_sub(1)) {
        slabs.push(slabs[slabs.len() - 1].repeated(*dimension, dimension.extent as i64)?);
    }
    // As many slabs of each size as fit, the largest first.
    let (mut parts, mut places) = (Vec::new(), Vec::new());
    let (mut rest, mut place) = (count, 0);
    let mut slab_count = elements * basic.per_element;
    for (slab, dimension) in slabs.iter().zip(&dimensions).rev() {
        slab_count /= dimension.extent as i64;
        let fitting = rest / slab_count;
        parts.push(slab.repeated(*dimension, fitting)?);
        places.push(place);
        place += fitting * dimension.stride as i64;
        rest %= slab_count;
    }
    parts.push(SectionType::contiguous(rest, basic.datatype)?);
    places.push(place);
    let types: Vec<usize> = parts.iter().map(|part| part.0).collect();
    let (ones, number) = (vec![1; types.len()], types.len() as i64);
    SectionType::made(|new| {
        // SAFETY: the arrays have as many elements, and the function writes a handle.
        unsafe {
            PMPI_Type_create_struct_c(number, ones.as_ptr(), places.as_ptr(), types.as_ptr(), new)
        }
    })
}

/// A datatype of the first `count` basic elements of a section. Its extent leads to the elements that follow, so that
/// several of them are as many blocks. The blocks must be alike: each has whole rows, planes and so on.
fn block(array: &Array, count: i64, basic: Basic) -> Result<SectionType> {
    let mut dimensions = array.runs();
    // The first dimension counts bytes.
    dimensions[0].extent /= basic.size as isize;
    dimensions[0].stride = basic.size as isize;
    let Some(outer) = dimensions.pop() else { return Err(refused()) };
    let slab_count: i64 = dimensions.iter().map(|dimension| dimension.extent as i64).product();
    if count % slab_count != 0 {
        return Err(refused());
    }
    let mut slab = SectionType::contiguous(1, basic.datatype)?;
    for dimension in &dimensions {
        slab = slab.repeated(*dimension, dimension.extent as i64)?;
    }
    let slabs = count / slab_count;
    slab.repeated(outer, slabs)?.resized(slabs * outer.stride as i64)
}

const ERR_BUFFER: c_int = 1;
const COMBINER_NAMED: c_int = 101;
