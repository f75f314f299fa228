//! Kinds of values that are others in MPICH's ABI: handles, and numbers with a meaning.

use std::ffi::c_int;

use binding::translation::Translation;

/// A number that means nothing in the standard ABI. It stands for one that means nothing in MPICH's.
pub(crate) fn meaningless(value: c_int) -> c_int {
    value.wrapping_sub(1 << 30)
}

/// Defines kinds of numbers that translate one by one: `MPICH's = the standard's`. Others stay as they are, unless they mean
/// something in the standard ABI.
macro_rules! numbers {
    ($name:ident { $($theirs:literal = $ours:literal)* }) => {
        pub(crate) struct $name;

        impl binding::translation::Translation for $name {
            type Program = c_int;
            type C = c_int;
            const UNWRITTEN: c_int = $crate::kind::UNWRITTEN;

            #[inline]
            #[allow(unreachable_patterns, clippy::manual_range_patterns, reason = "numbers of a list; one may mean something in both forms")]
            fn to_c(value: c_int) -> c_int {
                match value {
                    $($theirs => $ours,)*
                    $($ours)|* => $crate::kind::meaningless(value),
                    _ => value,
                }
            }

            #[inline]
            fn to_program(value: c_int) -> c_int {
                match value {
                    $($ours => $theirs,)*
                    _ => value,
                }
            }
        }
    };
}

/// Defines kinds of numbers that are sums. A term without a meaning becomes one without a meaning.
macro_rules! bits {
    ($name:ident { $($theirs:literal = $ours:literal)* }) => {
        pub(crate) struct $name;

        impl binding::translation::Translation for $name {
            type Program = c_int;
            type C = c_int;
            const UNWRITTEN: c_int = $crate::kind::UNWRITTEN;

            fn to_c(value: c_int) -> c_int {
                let known = 0 $(| $theirs)*;
                let unknown = if value & !known == 0 { 0 } else { 1 << 30 };
                unknown $(| if value & $theirs == 0 { 0 } else { $ours })*
            }

            fn to_program(value: c_int) -> c_int {
                0 $(| if value & $ours == 0 { 0 } else { $theirs })*
            }
        }
    };
}

/// Defines kinds of handles: the functions that turn others than predefined ones into integers and back, and the
/// predefined ones, `MPICH's = the standard's`. Behind a semicolon are synonyms, which no result has.
macro_rules! handles {
    ($kind:ident $toint:ident $fromint:ident { $($theirs:literal = $ours:literal)* $(; $synonym:literal = $of:literal)* }) => {
        pub(crate) struct $kind;

        impl binding::translation::Translation for $kind {
            type Program = c_int;
            type C = usize;
            const UNWRITTEN: usize = usize::MAX;

            #[inline]
            fn to_c(value: c_int) -> usize {
                match value as u32 {
                    $($theirs => $ours,)*
                    $($synonym => $of,)*
                    dynamic @ 0xc000_0000.. => {
                        let function = $crate::standard::standard!(stringify!($fromint) =>
                            unsafe extern "C" fn(c_int) -> usize);
                        // SAFETY: the function takes any integer.
                        unsafe { function((dynamic & !$crate::kind::DYNAMIC) as c_int) }
                    }
                    unknown => unknown as usize | $crate::kind::UNKNOWN,
                }
            }

            #[inline]
            fn to_program(handle: usize) -> c_int {
                match handle {
                    $($ours => $theirs as u32 as c_int,)*
                    _ => {
                        let function = $crate::standard::standard!(stringify!($toint) =>
                            unsafe extern "C" fn(usize) -> c_int);
                        // SAFETY: C has given this handle.
                        let value = unsafe { function(handle) };
                        (value as u32 | $crate::kind::DYNAMIC) as c_int
                    }
                }
            }
        }
    };
}

pub(crate) use {bits, handles, numbers};

/// The displacement of a file's view.
pub(crate) struct Displacement;

impl Translation for Displacement {
    type Program = i64;
    type C = i64;
    const UNWRITTEN: i64 = i64::MIN;

    fn to_c(value: i64) -> i64 {
        match value {
            DISPLACEMENT_CURRENT => STANDARD_DISPLACEMENT_CURRENT,
            STANDARD_DISPLACEMENT_CURRENT => i64::MIN,
            _ => value,
        }
    }

    fn to_program(value: i64) -> i64 {
        value
    }
}

/// `MPI_DISPLACEMENT_CURRENT` of MPICH.
const DISPLACEMENT_CURRENT: i64 = -54_278_278;
/// `MPI_DISPLACEMENT_CURRENT` of the standard ABI.
const STANDARD_DISPLACEMENT_CURRENT: i64 = -1;
/// The place of a result before the call: a number that C does not give.
pub(crate) const UNWRITTEN: c_int = c_int::MIN + 12;
/// The bit that handles of objects have in MPICH's ABI, and integers of `MPI_Comm_toint` and its siblings do not.
pub(crate) const DYNAMIC: u32 = 1 << 31;
/// A bit that no handle of the standard ABI has.
pub(crate) const UNKNOWN: usize = 1 << 63;
