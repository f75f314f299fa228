//! The functions of MPICH's ABI, as they are made of the forms of their arguments.

use std::ffi::{c_double, c_int};

use binding::translation::Translation;

use crate::code::Code;

/// Result of a function: an error code, or an answer.
pub(crate) trait Returned {
    type Value;

    /// The program's form of what the function of the standard returned.
    fn of(value: Self::Value) -> Self::Value;
}

impl Returned for Code {
    type Value = c_int;

    #[inline]
    fn of(value: Self::Value) -> Self::Value {
        if value == 0 { 0 } else { Self::to_program(value) }
    }
}

impl Returned for c_double {
    type Value = Self;

    fn of(value: Self) -> Self {
        value
    }
}

impl Returned for isize {
    type Value = Self;

    fn of(value: Self) -> Self {
        value
    }
}

/// Defines functions with the names `MPI_` and `PMPI_`: the type of the result, what the program passes, and what
/// becomes of it.
macro_rules! functions {
    ($($result:ident $name:ident $profiled:ident ($($dummy:ident: $type:ty),*) ($($argument:ident: $form:ty = $take:expr),*);)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $profiled($($dummy: $type),*) -> <$result as $crate::function::Returned>::Value {
            let function = $crate::standard::standard!(stringify!($profiled) => unsafe extern "C" fn(
                $(<$form as binding::argument::Argument>::C),*
            ) -> <$result as $crate::function::Returned>::Value);
            // SAFETY: the program passes what the standard says of each argument, and C gets what it says there.
            #[allow(unused_unsafe, reason = "there are functions without arguments")]
            unsafe {
                #[allow(unused_mut, unused_variables, reason = "there are functions without arguments")]
                let ($(mut $argument,)*): ($($form,)*) = ($($take,)*);
                let code = function($(binding::argument::Argument::c(&mut $argument)),*);
                $(binding::argument::Argument::give($argument);)*
                <$result as $crate::function::Returned>::of(code)
            }
        }
        binding::alias! { $profiled: $name }
    )* };
}

pub(crate) use functions;
