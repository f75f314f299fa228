//! Arguments on their way from Fortran to C and back, and the procedures that are made of them.

use std::ffi::{c_int, c_void};

use crate::sentinel;

/// An argument of a procedure. Each kind has a function `take`, which reads what Fortran passes.
///
/// Fortran passes variables as the standard says of the argument: of its type, and as many as another argument or the
/// communicator says. That is why the blocks that read and write them are sound.
pub(crate) trait Argument {
    /// Type of the C function's parameter.
    type C;

    /// Returns what the C function gets.
    fn c(&mut self) -> Self::C;

    /// Hands back to Fortran what the C function has written.
    fn give(self)
    where
        Self: Sized,
    {
    }
}

/// A variable that C gets by its value.
pub(crate) struct Value<T>(T);

impl<T: Copy> Value<T> {
    /// Reads a variable.
    pub(crate) unsafe fn take(variable: *const T) -> Self {
        // SAFETY: Fortran passes the address of a variable of this type.
        Self(unsafe { variable.read_unaligned() })
    }

    /// A constant that Fortran does not pass.
    pub(crate) fn of(value: T) -> Self {
        Self(value)
    }
}

impl Value<c_int> {
    /// Writes the value where a procedure looks for a number of elements.
    pub(crate) fn replace(&mut self, value: c_int) {
        self.0 = value;
    }
}

impl Value<i64> {
    /// Writes the value where a procedure looks for a number of elements.
    pub(crate) fn replace(&mut self, value: i64) {
        self.0 = value;
    }
}

impl<T: Copy> Argument for Value<T> {
    type C = T;

    fn c(&mut self) -> T {
        self.0
    }
}

/// The address of variables that C reads and writes as Fortran does.
pub(crate) struct ByAddress<T>(*mut T);

impl<T> ByAddress<T> {
    pub(crate) fn take(variables: *mut T) -> Self {
        Self(variables)
    }

    /// The address of weights, or the constant that stands for them.
    pub(crate) fn weights(variables: *mut T) -> Self {
        Self(sentinel::weights(variables.cast()).cast())
    }

    /// The address of error codes, unless they are ignored.
    pub(crate) fn error_codes(variables: *mut T) -> Self {
        Self(sentinel::error_codes(variables.cast()).cast())
    }

    /// The address of statuses, unless they are ignored.
    pub(crate) fn statuses(variables: *mut T) -> Self {
        Self(sentinel::statuses(variables.cast()).cast())
    }

    /// The address of a choice buffer, or the constant that stands for it.
    pub(crate) fn buffer(variables: *mut T) -> Self {
        Self(sentinel::buffer(variables.cast()).cast())
    }
}

impl<T> Argument for ByAddress<T> {
    type C = *mut T;

    fn c(&mut self) -> *mut T {
        self.0
    }
}

/// A result that this procedure of Fortran does not give.
pub(crate) struct Unused(*mut c_void);

impl Unused {
    pub(crate) fn take(_: *mut c_void) -> Self {
        Self(std::ptr::null_mut())
    }
}

impl Argument for Unused {
    type C = *mut c_void;

    fn c(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }
}

/// An index, from 0 in C and from 1 in Fortran.
pub(crate) struct Index {
    variable: *mut c_int,
    index: c_int,
}

impl Index {
    pub(crate) fn take(variable: *mut c_int) -> Self {
        Self { variable, index: UNDEFINED }
    }
}

impl Argument for Index {
    type C = *mut c_int;

    fn c(&mut self) -> *mut c_int {
        &mut self.index
    }

    fn give(self) {
        // SAFETY: Fortran passes the address of an integer.
        unsafe { *self.variable = from_one(self.index) }
    }
}

/// Indices, as many as C writes to another variable.
pub(crate) struct Indices {
    variables: *mut c_int,
    number: *const c_int,
}

impl Indices {
    pub(crate) fn take(variables: *mut c_int, number: *const c_int) -> Self {
        // SAFETY: Fortran passes the address of an integer. C leaves it if the call fails.
        unsafe { number.cast_mut().write(UNDEFINED) };
        Self { variables, number }
    }
}

impl Argument for Indices {
    type C = *mut c_int;

    fn c(&mut self) -> *mut c_int {
        self.variables
    }

    fn give(self) {
        // SAFETY: C has written the number of indices, or MPI_UNDEFINED is still there, which is negative.
        for i in 0..unsafe { *self.number }.max(0) as usize {
            // SAFETY: C has written this index.
            unsafe {
                let index = self.variables.add(i);
                *index = from_one(*index);
            }
        }
    }
}

fn from_one(index: c_int) -> c_int {
    if index == UNDEFINED { index } else { index + 1 }
}

const UNDEFINED: c_int = -32766;

/// Writes the error code, unless the caller has left out the argument.
///
/// # Safety
/// `variable` must be NULL or the address of an integer.
pub(crate) unsafe fn finish(code: c_int, variable: *mut c_int) {
    if !variable.is_null() {
        // SAFETY: the caller passes the address of an integer.
        unsafe { *variable = code };
    }
}

/// Defines procedures in both forms, for C's `MPI_` and `PMPI_` function, each with further names.
///
/// After the names come the dummy arguments, and then the arguments of the C function. The last expression is evaluated
/// before the call; its value is 0, or an error code in place of the call.
macro_rules! procedures {
    ($(procedure $form:tt $profiled:tt $dummies:tt $arguments:tt $prepare:expr => $ierror:ident;)*) => { $(
        $crate::argument::procedures! { @form $form $dummies $arguments $prepare => $ierror }
        $crate::argument::procedures! { @form $profiled $dummies $arguments $prepare => $ierror }
    )* };
    (@form [$c:ident $name:ident $($alias:ident)*] $dummies:tt $arguments:tt $prepare:expr => $ierror:ident) => {
        $crate::argument::procedures! { @one $c $name $dummies $arguments $prepare => $ierror }
        $crate::argument::alias! { $name: $($alias)* }
    };
    (@one $c:ident $name:ident ($($dummy:ident: $type:ty),*) ($($argument:ident: $form:ty = $take:expr),*)
        $prepare:expr => $ierror:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($dummy: $type),*) {
            unsafe extern "C" {
                fn $c($($argument: <$form as Argument>::C),*) -> c_int;
            }
            // SAFETY: Fortran passes what the standard says of each argument, and C gets what it says there.
            unsafe {
                #[allow(unused_mut, unused_variables, reason = "there are procedures without arguments")]
                let ($(mut $argument,)*): ($($form,)*) = ($($take,)*);
                let refused: c_int = $prepare;
                let code = if refused == 0 { $c($($argument.c()),*) } else { refused };
                $($argument.give();)*
                finish(code, $ierror);
            }
        }
    };
}

/// Defines further names of a procedure: functions that jump to it.
macro_rules! alias {
    ($target:ident: $($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {target}@PLT", target = sym $target);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {target}", target = sym $target);
        }
    )* };
}

pub(crate) use {alias, procedures};
