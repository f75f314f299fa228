//! Descriptors of arrays, as compilers pass them for choice buffers of `mpi_f08`.
//!
//! A procedure with a name of C gets those of the Fortran standard (`CFI_cdesc_t`). A procedure of Fortran, `mpi_send_f08ts_`,
//! gets those of its compiler. LLVM flang has no others; gfortran has its own. `mpifort` uses the second kind of name only
//! for a compiler with which a program has found all its sections described right.
//!
//! gfortran passes a copy in place of a section of components. With it only calls that end when they return have such
//! names.

use std::ffi::{c_int, c_void};
use std::{mem, slice};

/// A descriptor of either form. Dimensions follow.
#[repr(C)]
pub(crate) struct Descriptor {
    address: *mut u8,
    words: [usize; 2],
}

impl Descriptor {
    /// Address of the first element.
    pub(crate) fn address(&self) -> *mut c_void {
        self.address.cast()
    }
}

/// The start of a descriptor of the Fortran standard, without the part that each compiler lays out in its own way.
#[repr(C)]
struct StandardHead {
    address: *mut u8,
    element: usize,
    _version: c_int,
    rank: u8,
    _differs: [u8; 3],
}

/// The start of a descriptor of gfortran.
#[repr(C)]
struct GnuHead {
    address: *mut u8,
    _offset: isize,
    element: usize,
    _version: c_int,
    rank: i8,
    _kind: i8,
    _attribute: i16,
    /// Number of bytes in a unit of strides.
    span: isize,
}

/// One dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dimension {
    pub extent: isize,
    /// Number of bytes from an element to the next.
    pub stride: isize,
}

/// An array as its descriptor says.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    /// Address of the first element.
    pub address: *mut u8,
    /// Size of an element in bytes.
    pub element: usize,
    rank: usize,
    /// Lower bound, extent and stride of each dimension; those of gfortran are stride and both bounds.
    dimensions: *const [isize; 3],
    /// Number of bytes in a unit of gfortran's strides; none in a descriptor of the standard.
    span: Option<isize>,
}

impl Array {
    /// Reads a descriptor.
    ///
    /// # Safety
    /// It must be one that a compiler passes, and outlive the array.
    pub(crate) unsafe fn of(descriptor: *const Descriptor) -> Self {
        // SAFETY: both forms are longer.
        let words = unsafe { (*descriptor).words };
        // The third word of the standard's has a type other than 0 in its upper half, and gfortran's is the size of an
        // element.
        if words[1] >> 32 != 0 {
            // SAFETY: it is a descriptor of this form.
            let head = unsafe { &*descriptor.cast::<StandardHead>() };
            let dimensions = descriptor.wrapping_byte_add(mem::size_of::<StandardHead>()).cast();
            let (address, element, rank) = (head.address, head.element, head.rank.into());
            Self { address, element, rank, dimensions, span: None }
        } else {
            // SAFETY: it is a descriptor of gfortran.
            let head = unsafe { &*descriptor.cast::<GnuHead>() };
            let dimensions = descriptor.wrapping_byte_add(mem::size_of::<GnuHead>()).cast();
            let (address, element) = (head.address, head.element);
            let rank = head.rank.try_into().unwrap_or(0);
            // A variable without dimensions may have none.
            let span = if head.span == 0 { element as isize } else { head.span };
            Self { address, element, rank, dimensions, span: Some(span) }
        }
    }

    /// The dimensions, the fastest first.
    pub(crate) fn dimensions(&self) -> impl Iterator<Item = Dimension> {
        (0..self.rank).map(move |at| {
            // SAFETY: as many dimensions follow as the rank says.
            let words = unsafe { *self.dimensions.add(at) };
            match (self.span, words) {
                (None, [_, extent, stride]) => Dimension { extent, stride },
                (Some(span), [stride, lower, upper]) => {
                    Dimension { extent: upper - lower + 1, stride: stride * span }
                }
            }
        })
    }

    /// True if the elements follow each other, or there are none. An array of assumed size is contiguous; its last extent
    /// is not known.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut next = self.element as isize;
        let mut is_contiguous = true;
        for dimension in self.dimensions() {
            if dimension.extent == 0 {
                return true;
            }
            is_contiguous &= dimension.extent == 1 || dimension.stride == next;
            next *= dimension.extent;
        }
        is_contiguous
    }

    /// The dimensions of the array as one of bytes: a run of contiguous bytes comes first. Dimensions that one stride
    /// describes are one.
    pub(crate) fn runs(&self) -> Vec<Dimension> {
        let mut runs = vec![Dimension { extent: self.element as isize, stride: 1 }];
        for dimension in self.dimensions().filter(|dimension| dimension.extent != 1) {
            let last = runs.len() - 1;
            let run = &mut runs[last];
            if dimension.stride == run.extent * run.stride {
                run.extent *= dimension.extent;
            } else {
                runs.push(dimension);
            }
        }
        runs
    }

    /// The addresses of the elements; none unless they are so many.
    fn elements(&self, number: usize) -> Option<Vec<*mut u8>> {
        let dimensions: Vec<Dimension> = self.dimensions().collect();
        let found: isize = dimensions.iter().map(|dimension| dimension.extent).product();
        let place = |element: isize| {
            let mut rest = element;
            dimensions.iter().fold(self.address, |place, dimension| {
                let at = rest % dimension.extent;
                rest /= dimension.extent;
                place.wrapping_offset(at * dimension.stride)
            })
        };
        (usize::try_from(found) == Ok(number)).then(|| (0..found).map(place).collect())
    }
}

/// Counts a section as wrong unless it has so many elements of this size, at these distances from a variable. If it has their
/// values at other places, it is counted as a copy. A number below 0 stands for an array of assumed size. `mpifort` runs a
/// program that asks.
#[unsafe(no_mangle)]
unsafe extern "C" fn canele_check_section_f08ts_(
    section: *const Descriptor,
    variable: *const Descriptor,
    element: *const c_int,
    number: *const c_int,
    distances: *const isize,
    wrong: *mut c_int,
    copied: *mut c_int,
) {
    // SAFETY: the program passes two descriptors, integers and as many distances as it says.
    unsafe {
        let (array, from) = (Array::of(section), Array::of(variable).address);
        let is_size = array.element as c_int == *element;
        let Ok(number) = usize::try_from(*number) else {
            let is_right = array.is_contiguous() && array.address == from;
            *wrong += c_int::from(!is_right || !is_size);
            return;
        };
        let expected = slice::from_raw_parts(distances, number).iter();
        let expected: Vec<*mut u8> = expected.map(|at| from.wrapping_offset(*at)).collect();
        let found = array.elements(number).filter(|_| is_size);
        let bytes = |at: &*mut u8| slice::from_raw_parts(*at, array.element);
        match found {
            Some(found) if found == expected => {}
            Some(found) if found.iter().map(bytes).eq(expected.iter().map(bytes)) => *copied += 1,
            Some(_) | None => *wrong += 1,
        }
    }
}
