//! Values that differ between a program and C: handles, and numbers with a meaning.

use smallvec::SmallVec;

use crate::argument::Argument;

/// Two forms of one kind of value.
pub trait Translation {
    /// Type of the program's form.
    type Program: Copy;
    /// Type of C's form.
    type C: Copy + PartialEq;
    /// A value that C does not give: the place of a result before the call.
    const UNWRITTEN: Self::C;

    /// C's form of a program's value.
    fn to_c(value: Self::Program) -> Self::C;
    /// The program's form of a value of C.
    fn to_program(value: Self::C) -> Self::Program;
}

/// A value that C gets in its form.
#[derive(Debug)]
pub struct Translated<K: Translation>(K::C);

impl<K: Translation> Translated<K> {
    /// Reads a variable.
    ///
    /// # Safety
    /// `variable` must be the address of a value of this kind.
    pub unsafe fn take(variable: *const K::Program) -> Self {
        // SAFETY: as the caller says.
        Self(K::to_c(unsafe { *variable }))
    }

    /// A value that the program does not pass by its address.
    pub fn of(value: K::Program) -> Self {
        Self(K::to_c(value))
    }

    /// Puts another value in its place.
    pub fn replace(&mut self, value: K::C) {
        self.0 = value;
    }
}

impl<K: Translation> Argument for Translated<K> {
    type C = K::C;

    fn c(&mut self) -> K::C {
        self.0
    }
}

/// A variable that C reads or writes or both. C gets NULL where the program passes NULL.
#[derive(Debug)]
pub struct Variable<K: Translation> {
    variable: *mut K::Program,
    before: K::C,
    value: K::C,
}

impl<K: Translation> Variable<K> {
    /// A value that C may change.
    ///
    /// # Safety
    /// `variable` must be NULL, or the address of a value of this kind that lasts until [`Argument::give`].
    pub unsafe fn take(variable: *mut K::Program) -> Self {
        if variable.is_null() {
            return Self { variable, before: K::UNWRITTEN, value: K::UNWRITTEN };
        }
        // SAFETY: as the caller says.
        let value = K::to_c(unsafe { *variable });
        Self { variable, before: value, value }
    }

    /// Room for a value that C gives.
    ///
    /// # Safety
    /// As for [`Variable::take`], but for the value.
    pub unsafe fn result(variable: *mut K::Program) -> Self {
        Self { variable, before: K::UNWRITTEN, value: K::UNWRITTEN }
    }

    /// C's value.
    pub fn value(&self) -> K::C {
        self.value
    }
}

impl<K: Translation> Argument for Variable<K> {
    type C = *mut K::C;

    fn c(&mut self) -> *mut K::C {
        if self.variable.is_null() { std::ptr::null_mut() } else { &mut self.value }
    }

    fn give(self) {
        if self.value != self.before {
            // SAFETY: the program passes the address of a variable, since C has got an address to write to.
            unsafe { *self.variable = K::to_program(self.value) };
        }
    }
}

/// Variables that C reads or writes or both. C gets NULL where the program passes NULL.
#[derive(Debug)]
pub struct Variables<K: Translation> {
    variables: *mut K::Program,
    before: SmallVec<[K::C; 16]>,
    values: SmallVec<[K::C; 16]>,
}

impl<K: Translation> Variables<K> {
    /// Values that C may change. A negative number is for C to refuse.
    ///
    /// # Safety
    /// `variables` must be NULL, or the address of as many values of this kind, which last until [`Argument::give`].
    pub unsafe fn take(variables: *mut K::Program, number: i64) -> Self {
        let number = if variables.is_null() { 0 } else { number.max(0) as usize };
        let values: SmallVec<[K::C; 16]> =
            // SAFETY: as the caller says.
            (0..number).map(|i| K::to_c(unsafe { *variables.add(i) })).collect();
        Self { variables, before: values.clone(), values }
    }

    /// Room for values that C gives.
    ///
    /// # Safety
    /// As for [`Variables::take`], but for the values.
    pub unsafe fn result(variables: *mut K::Program, number: i64) -> Self {
        let number = if variables.is_null() { 0 } else { number.max(0) as usize };
        let values = SmallVec::from_elem(K::UNWRITTEN, number);
        Self { variables, before: values.clone(), values }
    }
}

impl<K: Translation> Argument for Variables<K> {
    type C = *mut K::C;

    fn c(&mut self) -> *mut K::C {
        if self.variables.is_null() { std::ptr::null_mut() } else { self.values.as_mut_ptr() }
    }

    fn give(self) {
        for (i, (value, before)) in self.values.iter().zip(&self.before).enumerate() {
            if value != before {
                // SAFETY: the program passes room for as many values.
                unsafe { *self.variables.add(i) = K::to_program(*value) };
            }
        }
    }
}
