//! Arguments that only Fortran has, and the procedures that are made of arguments.

use std::ffi::{c_int, c_void};

use binding::argument::Argument;

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
/// before the call; its value is 0, or an error code in place of the call. Then comes the error code's variable, and
/// perhaps a function that gets the code.
macro_rules! procedures {
    ($(procedure $form:tt $profiled:tt $dummies:tt $arguments:tt $prepare:expr => $($end:ident)*;)*) => { $(
        $crate::argument::procedures! { @form $form $dummies $arguments $prepare => $($end)* }
        $crate::argument::procedures! { @form $profiled $dummies $arguments $prepare => $($end)* }
    )* };
    (@form [$c:ident $name:ident $($alias:ident)*] $dummies:tt $arguments:tt $prepare:expr => $($end:ident)*) => {
        $crate::argument::procedures! { @one $c $name $dummies $arguments $prepare => $($end)* }
        binding::alias! { $name: $($alias)* }
    };
    (@one $c:ident $name:ident ($($dummy:ident: $type:ty),*) ($($argument:ident: $form:ty = $take:expr),*)
        $prepare:expr => $ierror:ident $($then:ident)?) => {
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
                $($then(code);)?
                finish(code, $ierror);
            }
        }
    };
}

pub(crate) use procedures;
