//! Arguments on their way to C and back.

/// An argument of a function. Each kind has a function `take` or `of`, which reads what the program passes.
///
/// Programs pass variables as the standard says of the argument: of its type, and as many as another argument or the
/// communicator says. That is why the blocks that read and write them are sound.
pub trait Argument {
    /// Type of the C function's parameter.
    type C;

    /// Returns what the C function gets.
    fn c(&mut self) -> Self::C;

    /// Hands back to the program what the C function has written.
    fn give(self)
    where
        Self: Sized,
    {
    }
}

/// A value that C gets as it is.
#[derive(Debug)]
pub struct Value<T>(T);

impl<T: Copy> Value<T> {
    /// Reads a variable.
    ///
    /// # Safety
    /// `variable` must be the address of a variable of this type.
    pub unsafe fn take(variable: *const T) -> Self {
        // SAFETY: as the caller says.
        Self(unsafe { variable.read_unaligned() })
    }

    /// A value that the program does not pass by its address.
    pub fn of(value: T) -> Self {
        Self(value)
    }

    /// Puts another value in its place.
    pub fn replace(&mut self, value: T) {
        self.0 = value;
    }
}

impl<T: Copy> Argument for Value<T> {
    type C = T;

    fn c(&mut self) -> T {
        self.0
    }
}

/// The address of variables that C reads and writes as the program does.
#[derive(Debug)]
pub struct ByAddress<T>(*mut T);

impl<T> ByAddress<T> {
    /// An address that C gets as it is.
    pub fn take(variables: *mut T) -> Self {
        Self(variables)
    }
}

impl<T> Argument for ByAddress<T> {
    type C = *mut T;

    fn c(&mut self) -> *mut T {
        self.0
    }
}

/// An argument that a program may leave out: NULL in C.
impl<T: Argument<C = *mut P>, P> Argument for Option<T> {
    type C = *mut P;

    fn c(&mut self) -> *mut P {
        self.as_mut().map_or(std::ptr::null_mut(), T::c)
    }

    fn give(self) {
        if let Some(argument) = self {
            argument.give();
        }
    }
}

/// Defines further names of a function: functions that jump to it.
#[macro_export]
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
