//! The integers that a datatype was made of. Some stand for an order or a distribution, whose values differ.

use std::ffi::c_int;

use binding::argument::Argument;
use binding::translation::Translation;

use crate::constants::{Distribution, DistributionArgument, Order};
use crate::handle::Datatype;
use crate::standard::standard;

/// Room for the integers of a datatype.
pub(crate) struct ContentsIntegers {
    integers: *mut c_int,
    room: i64,
    datatype: usize,
}

impl ContentsIntegers {
    pub(crate) fn take(integers: *mut c_int, room: impl Into<i64>, datatype: c_int) -> Self {
        Self { integers, room: room.into(), datatype: Datatype::to_c(datatype) }
    }
}

impl Argument for ContentsIntegers {
    type C = *mut c_int;

    fn c(&mut self) -> Self::C {
        self.integers
    }

    fn give(self) {
        let (mut number, mut others, mut combiner) = (0, [0; 3], 0);
        let envelope = standard!("PMPI_Type_get_envelope_c" => unsafe extern "C" fn(
            usize, *mut i64, *mut i64, *mut i64, *mut i64, *mut c_int,
        ) -> c_int);
        let [addresses, large, datatypes] = &mut others;
        // SAFETY: the function takes any handle, and the addresses are those of integers.
        let code = unsafe {
            envelope(self.datatype, &mut number, addresses, large, datatypes, &mut combiner)
        };
        if code != 0 || !(1..=self.room).contains(&number) || self.integers.is_null() {
            return;
        }
        // SAFETY: the program has room for these integers, and C has written all of them.
        let integers = unsafe { std::slice::from_raw_parts_mut(self.integers, number as usize) };
        translate(combiner, integers);
    }
}

/// Translates the integers that have a meaning: of an array's part, the last; of a distributed array, also the distributions
/// and their arguments. What lies before them may be among the large counts.
fn translate(combiner: c_int, integers: &mut [c_int]) {
    let is_distributed = combiner == COMBINER_DARRAY;
    if !is_distributed && combiner != COMBINER_SUBARRAY {
        return;
    }
    let dimensions = integers.get(2).map_or(0, |dimensions| (*dimensions).max(0) as usize);
    let Some((order, before)) = integers.split_last_mut() else { return };
    *order = Order::to_program(*order);
    let Some(first) = before.len().checked_sub(3 * dimensions) else { return };
    if is_distributed {
        let (distributions, rest) = before[first..].split_at_mut(dimensions);
        distributions.iter_mut().for_each(|value| *value = Distribution::to_program(*value));
        let arguments = rest.iter_mut().take(dimensions);
        arguments.for_each(|value| *value = DistributionArgument::to_program(*value));
    }
}

const COMBINER_SUBARRAY: c_int = 111;
const COMBINER_DARRAY: c_int = 112;
