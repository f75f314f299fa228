//! Choice buffers of `mpi_f08`: descriptors of arrays and their sections (MPI-5.0 §19.1.12).
//!
//! A contiguous section is passed by its address. A call that ends when it returns gets a contiguous copy of any other
//! section. A call that uses the buffer after it has returned gets a datatype that describes the section, where count
//! and datatype are those of the whole buffer. Elsewhere the section is refused with `MPI_ERR_BUFFER`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::{ptr, slice};

use crate::argument::{Argument, Value};
use crate::handle::{Datatype, Handle};
use crate::sentinel;

/// A descriptor of Fortran 2018 (`CFI_cdesc_t`), without the part that each compiler lays out in its own way.
#[repr(C)]
pub(crate) struct Descriptor {
    address: *mut u8,
    element: usize,
    _version: c_int,
    rank: u8,
    _differs: [u8; 3],
    dimensions: [Dimension; 0],
}

/// One dimension of an array.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dimension {
    _lower: isize,
    extent: isize,
    stride: isize,
}

impl Descriptor {
    /// Size of an element in bytes.
    pub(crate) fn element(&self) -> usize {
        self.element
    }

    /// Address of the first element.
    pub(crate) fn address(&self) -> *mut c_void {
        self.address.cast()
    }

    /// Dimensions, the fastest first.
    unsafe fn dimensions(&self) -> &[Dimension] {
        // SAFETY: as many dimensions follow as the rank says.
        unsafe { slice::from_raw_parts(self.dimensions.as_ptr(), self.rank.into()) }
    }
}

/// A choice buffer as C gets it.
pub(crate) struct Section {
    descriptor: *const Descriptor,
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
        let (address, is_contiguous) =
            unsafe { ((*descriptor).address.cast(), is_contiguous(descriptor)) };
        let address = sentinel::buffer(address);
        Self { descriptor, address, copy: None, is_written: false, datatype: None, is_contiguous }
    }

    /// A buffer of a call that ends when it returns, and may write to it.
    pub(crate) unsafe fn blocking(descriptor: *const Descriptor, is_written: bool) -> Self {
        // SAFETY: Fortran passes a descriptor.
        let mut section = unsafe { Self::address(descriptor) };
        if !section.is_contiguous {
            // SAFETY: the elements that a descriptor describes can be read.
            let mut copy = unsafe { gathered(&*descriptor) };
            section.address = copy.as_mut_ptr().cast();
            (section.copy, section.is_written) = (Some(copy), is_written);
        }
        section
    }

    /// Refuses a section that is not contiguous; returns an error code.
    pub(crate) fn refuse(&self) -> c_int {
        if self.is_contiguous { 0 } else { refused() }
    }

    /// Describes a section by a datatype if it is not contiguous; returns an error code.
    pub(crate) fn describe<N>(
        &mut self,
        count: &mut Value<N>,
        datatype: &mut Handle<Datatype>,
    ) -> c_int
    where
        Value<N>: Argument<C = N> + Count,
    {
        if self.is_contiguous {
            return 0;
        }
        // SAFETY: the descriptor is that of the section.
        let made = unsafe { datatype_of(&*self.descriptor, count.get(), datatype.c()) };
        match made {
            Ok(made) => {
                count.one();
                datatype.replace(made);
                self.datatype = Some(made);
                0
            }
            Err(code) => code,
        }
    }
}

/// The object whose error handler is called.
pub(crate) enum On {
    Comm(usize),
    Win(usize),
    File(usize),
    Process,
}

/// Calls the error handler with the first error, if there is one; returns it.
pub(crate) fn raise(codes: &[c_int], on: On) -> c_int {
    unsafe extern "C" {
        fn MPI_Comm_call_errhandler(comm: usize, code: c_int) -> c_int;
        fn MPI_Win_call_errhandler(win: usize, code: c_int) -> c_int;
        fn MPI_File_call_errhandler(file: usize, code: c_int) -> c_int;
    }
    let code = codes.iter().copied().find(|code| *code != 0).unwrap_or(0);
    if code != 0 {
        // SAFETY: the functions take any handle and any code.
        unsafe {
            match on {
                On::Comm(comm) => MPI_Comm_call_errhandler(comm, code),
                On::Win(win) => MPI_Win_call_errhandler(win, code),
                On::File(file) => MPI_File_call_errhandler(file, code),
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
            unsafe { scatter(&*self.descriptor, &copy) };
        }
        if let Some(mut datatype) = self.datatype {
            // SAFETY: the datatype was made for this call. The operation keeps it.
            unsafe { PMPI_Type_free(&mut datatype) };
        }
    }
}

unsafe fn is_contiguous(descriptor: *const Descriptor) -> bool {
    // SAFETY: Fortran passes a descriptor.
    let (dimensions, mut next) =
        unsafe { ((*descriptor).dimensions(), (*descriptor).element as isize) };
    if dimensions.iter().any(|dimension| dimension.extent == 0) {
        return true;
    }
    dimensions.iter().all(|dimension| {
        let follows = dimension.extent == 1 || dimension.stride == next;
        // The last extent of an array of assumed size is -1.
        next *= dimension.extent;
        follows
    })
}

/// Calls a function with the place of each run of contiguous bytes, in the order of the elements.
unsafe fn each_run(descriptor: &Descriptor, mut run: impl FnMut(*mut u8, usize)) {
    // SAFETY: as for the descriptor.
    let dimensions = unsafe { descriptor.dimensions() };
    let (mut length, mut inner) = (descriptor.element, 0);
    while inner < dimensions.len() && dimensions[inner].stride == length as isize {
        length *= dimensions[inner].extent as usize;
        inner += 1;
    }
    let outer = &dimensions[inner..];
    let mut at = [0isize; 15];
    loop {
        let offset: isize = outer.iter().zip(&at).map(|(dimension, i)| dimension.stride * i).sum();
        run(descriptor.address.wrapping_offset(offset), length);
        let Some(next) = (0..outer.len()).find(|i| at[*i] + 1 < outer[*i].extent) else { return };
        at[..next].fill(0);
        at[next] += 1;
    }
}

unsafe fn gathered(descriptor: &Descriptor) -> Vec<u8> {
    let mut bytes = Vec::new();
    // SAFETY: the elements of the section can be read.
    unsafe {
        each_run(descriptor, |place, length| {
            bytes.extend_from_slice(slice::from_raw_parts(place, length));
        });
    }
    bytes
}

unsafe fn scatter(descriptor: &Descriptor, bytes: &[u8]) {
    let mut rest = bytes;
    // SAFETY: the elements of the section can be written, and are as many as were copied.
    unsafe {
        each_run(descriptor, |place, length| {
            let (front, back) = rest.split_at(length);
            ptr::copy_nonoverlapping(front.as_ptr(), place, length);
            rest = back;
        });
    }
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
}

/// A committed datatype of the first `count` basic elements of a section.
unsafe fn datatype_of(descriptor: &Descriptor, count: i64, basic: usize) -> Result<usize> {
    let (mut size, mut combiner, mut ignored) = (0, 0, [0; 4]);
    let [a, b, c, d] = &mut ignored;
    // SAFETY: the functions take any handle, and the addresses are those of integers.
    unsafe {
        checked(PMPI_Type_get_envelope_c(basic, a, b, c, d, &mut combiner))?;
        checked(PMPI_Type_size_c(basic, &mut size))?;
    }
    let is_fitting =
        combiner == COMBINER_NAMED && size > 0 && descriptor.element as i64 % size == 0;
    // SAFETY: as for the descriptor.
    let dimensions = unsafe { descriptor.dimensions() };
    let per_element = descriptor.element as i64 / size.max(1);
    let elements: i64 = dimensions.iter().map(|dimension| dimension.extent as i64).product();
    if !is_fitting || count < 0 || count > elements * per_element {
        return Err(refused());
    }
    // Datatypes of an element, of a row of them, of a plane of rows, and so on.
    let mut slabs = vec![SectionType::contiguous(per_element, basic)?];
    for dimension in dimensions.iter().take(dimensions.len().saturating_sub(1)) {
        slabs.push(slabs[slabs.len() - 1].repeated(*dimension, dimension.extent as i64)?);
    }
    // As many slabs of each size as fit, the largest first.
    let (mut parts, mut places) = (Vec::new(), Vec::new());
    let (mut rest, mut place) = (count, 0);
    let mut slab_count = elements * per_element;
    for (slab, dimension) in slabs.iter().zip(dimensions).rev() {
        slab_count /= dimension.extent as i64;
        let fitting = rest / slab_count;
        parts.push(slab.repeated(*dimension, fitting)?);
        places.push(place);
        place += fitting * dimension.stride as i64;
        rest %= slab_count;
    }
    parts.push(SectionType::contiguous(rest, basic)?);
    places.push(place);
    let types: Vec<usize> = parts.iter().map(|part| part.0).collect();
    let (ones, number) = (vec![1; types.len()], types.len() as i64);
    let whole = SectionType::made(|new| {
        // SAFETY: the arrays have as many elements, and the function writes a handle.
        unsafe {
            PMPI_Type_create_struct_c(number, ones.as_ptr(), places.as_ptr(), types.as_ptr(), new)
        }
    })?;
    let mut datatype = whole.0;
    std::mem::forget(whole);
    // SAFETY: the datatype has just been made.
    checked(unsafe { PMPI_Type_commit(&mut datatype) })?;
    Ok(datatype)
}

const ERR_BUFFER: c_int = 1;
const COMBINER_NAMED: c_int = 101;
