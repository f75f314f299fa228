//! Reduction operations (MPI-5.0 §6.9).

use std::fmt;
use std::sync::Arc;

use memory::Region;

use crate::builtin::{Builtin, Class, Element};
use crate::datatype::Datatype;
use crate::kernel::{Reducer, on_host};

/// Operations of the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the standard's operations")]
pub enum Predefined {
    Sum,
    Min,
    Max,
    Prod,
    Band,
    Bor,
    Bxor,
    Land,
    Lor,
    Lxor,
    Minloc,
    Maxloc,
    Replace,
    NoOp,
}

/// A function of the application: `inout[i] = input[i] op inout[i]`.
pub trait UserFunction: Send + Sync {
    /// Combines `count` elements in the datatype's layout. The first one's address is `origin`
    /// bytes from the beginning of its region.
    fn apply(&self, input: &Region, inout: &Region, origin: isize, count: usize, datatype: u64);
}

/// A reduction operation.
#[derive(Clone)]
pub enum Op {
    /// One of the standard's.
    Predefined(Predefined),
    /// One of the application's.
    User {
        /// The function.
        function: Arc<dyn UserFunction>,
        /// True if the order of operands does not matter.
        commutes: bool,
    },
}

impl Op {
    /// True if the order of operands does not matter.
    pub fn is_commutative(&self) -> bool {
        match self {
            Self::Predefined(Predefined::Replace | Predefined::NoOp) => false,
            Self::Predefined(_) => true,
            Self::User { commutes, .. } => *commutes,
        }
    }

    /// True if the result for a datatype is the same to the last bit in any order. Sums and
    /// products of floats are rounded, and nothing is known of the application's functions.
    pub fn is_exact_for(&self, datatype: &Datatype) -> bool {
        match self {
            Self::Predefined(Predefined::Sum | Predefined::Prod) => {
                datatype.as_builtin().is_some_and(is_integer)
            }
            Self::Predefined(Predefined::Replace | Predefined::NoOp) | Self::User { .. } => false,
            Self::Predefined(_) => true,
        }
    }

    /// True if the operation is defined for a datatype: by the table of MPI-5.0 §6.9.2, or for characters of one byte,
    /// which other MPIs combine as integers, and programs rely on it.
    pub fn is_valid_for(&self, datatype: &Datatype) -> bool {
        let Self::Predefined(op) = self else { return true };
        let Some(builtin) = datatype.as_builtin() else { return false };
        op.combines(builtin)
    }

    /// Combines `count` elements: `inout[i] = input[i] op inout[i]`. Both regions cover
    /// [`Datatype::reach`]. `handle` is the datatype's, for functions of the application.
    pub fn apply(
        &self,
        input: &Region,
        inout: &Region,
        count: usize,
        datatype: &Datatype,
        handle: u64,
    ) {
        match self {
            Self::User { function, .. } => {
                let Some((lowest, _)) = datatype.reach(count) else { return };
                let apply = |input: &Region, inout: &Region| {
                    function.apply(input, inout, -lowest, count, handle);
                };
                match input.is_on_host() && inout.is_on_host() {
                    true => apply(input, inout),
                    false => on_host(input, inout, apply),
                }
            }
            Self::Predefined(op) => {
                if let Some(builtin) = datatype.as_builtin() {
                    op.reducer(builtin).combine_regions(input, inout);
                }
            }
        }
    }
}

impl Predefined {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Sum,
        Self::Min,
        Self::Max,
        Self::Prod,
        Self::Band,
        Self::Bor,
        Self::Bxor,
        Self::Land,
        Self::Lor,
        Self::Lxor,
        Self::Minloc,
        Self::Maxloc,
        Self::Replace,
        Self::NoOp,
    ];

    /// Returns the combination of a builtin type's elements.
    #[inline]
    pub fn reducer(self, builtin: Builtin) -> Reducer {
        Reducer::of(self, builtin.element())
    }

    /// True if the operation is defined for a predefined type; see [`Op::is_valid_for`].
    #[inline]
    pub fn combines(self, builtin: Builtin) -> bool {
        let class = builtin.class();
        match self {
            Self::Max | Self::Min => is_integer(builtin) || class == Class::Float,
            Self::Sum | Self::Prod => {
                is_integer(builtin) || matches!(class, Class::Float | Class::Complex)
            }
            Self::Land | Self::Lor | Self::Lxor => is_integer(builtin) || class == Class::Logical,
            Self::Band | Self::Bor | Self::Bxor => is_integer(builtin) || class == Class::Byte,
            Self::Minloc | Self::Maxloc => class == Class::Pair,
            Self::Replace | Self::NoOp => true,
        }
    }
}

/// True if a type has the operations of integers.
fn is_integer(builtin: Builtin) -> bool {
    let is_byte = matches!(builtin.element(), Element::I8 | Element::U8 | Element::Char);
    match builtin.class() {
        Class::Integer | Class::Multi => true,
        Class::Character => is_byte,
        _ => false,
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Predefined(op) => op.fmt(f),
            Self::User { commutes, .. } => write!(f, "User {{ commutes: {commutes} }}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rounded_results_depend_on_the_order() {
        let is_exact = |op, builtin| Op::Predefined(op).is_exact_for(&Datatype::builtin(builtin));
        let all = |class| Builtin::ALL.iter().copied().filter(move |one| one.class() == class);
        for op in [Predefined::Sum, Predefined::Prod] {
            assert!(all(Class::Integer).chain(all(Class::Multi)).all(|one| is_exact(op, one)));
            assert!(!all(Class::Float).chain(all(Class::Complex)).any(|one| is_exact(op, one)));
        }
        assert!(all(Class::Float).all(|one| is_exact(Predefined::Max, one)));
        assert!(all(Class::Pair).all(|one| is_exact(Predefined::Minloc, one)));
    }

    #[test]
    fn characters_of_one_byte_are_integers() {
        let char = Datatype::builtin(Builtin::Char);
        // C's char has a sign on x86-64, and none on aarch64.
        let (max, min) = if std::ffi::c_char::MIN == 0 { (-2, 3) } else { (3, -2) };
        for (op, expected) in [
            (Predefined::Sum, [9, 1]),
            (Predefined::Prod, [14, -6]),
            (Predefined::Max, [7, max]),
            (Predefined::Min, [2, min]),
            (Predefined::Bxor, [5, -3]),
            (Predefined::Land, [1, 1]),
        ] {
            assert!(Op::Predefined(op).is_valid_for(&char), "{op:?}");
            let bytes = |values: [i8; 2]| Region::from_box(Box::new(values.map(|it| it as u8)));
            let inout = bytes([2, 3]);
            Op::Predefined(op).apply(&bytes([7, -2]), &inout, 2, &char, 0);
            assert_eq!(inout.to_vec(), expected.map(|it: i8| it as u8), "{op:?}");
        }
        assert!(!Op::Predefined(Predefined::Sum).is_valid_for(&Datatype::builtin(Builtin::Wchar)));
        assert!(!Op::Predefined(Predefined::Sum).is_valid_for(&Datatype::builtin(Builtin::Byte)));
    }

    #[test]
    fn combining_to_a_third_place_gives_the_same_result() {
        for &builtin in Builtin::ALL {
            let datatype = Datatype::builtin(builtin);
            let extent = datatype.extent().1 as usize;
            let is_dense = datatype.size() == extent;
            let operand = |modulus| {
                Region::from_box((0..5 * extent).map(|index| index as u8 % modulus).collect())
            };
            let all = [Predefined::Sum, Predefined::Minloc, Predefined::Replace, Predefined::NoOp];
            for op in all.into_iter().filter(|op| is_dense && op.combines(builtin)) {
                let (left, right, whole) = (operand(11), operand(7), operand(7));
                Op::Predefined(op).apply(&left, &whole, 5, &datatype, 0);
                let expected = whole.to_vec();
                let mut out = vec![0xee; 5 * extent];
                op.reducer(builtin).combine(&left.to_vec(), &right.to_vec(), &mut out);
                assert_eq!(out, expected, "{op:?} of {builtin:?}");
            }
        }
    }

    #[test]
    fn bytes_are_combined_as_regions_are_and_no_half_element_is_touched() {
        for &builtin in Builtin::ALL {
            let datatype = Datatype::builtin(builtin);
            for op in [Predefined::Sum, Predefined::Max, Predefined::Bxor, Predefined::Maxloc] {
                let whole = 3 * datatype.extent().1 as usize;
                let input: Vec<u8> = (0..whole + 1).map(|index| index as u8 % 11).collect();
                let before: Vec<u8> = (0..whole + 1).map(|index| index as u8 % 7).collect();
                let region = |bytes: &[u8]| Region::from_box(bytes[..whole].into());
                let (from, to) = (region(&input), region(&before));
                Op::Predefined(op).apply(&from, &to, 3, &datatype, 0);
                let mut inout = before.clone();
                op.reducer(builtin).combine_onto(&input, &mut inout);
                let is_small = datatype.extent().1 == 1;
                assert_eq!(inout[..whole], to.to_vec(), "{op:?} of {builtin:?}");
                assert!(is_small || inout[whole..] == before[whole..]);
            }
        }
    }
}
