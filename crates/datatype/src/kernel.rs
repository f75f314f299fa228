//! The inner loops of reductions.

mod formats;

use std::ffi::c_char;

use memory::Region;

use crate::builtin::Element;
use crate::op::Predefined;

#[cfg(target_arch = "x86_64")]
use formats::F80;
use formats::{F16, F128, LongDouble};

/// Addresses of elements to combine: `out[i] = left[i] op right[i]`. The results may replace the
/// right operands.
#[derive(Clone, Copy)]
struct Elements {
    left: *const u8,
    right: *const u8,
    out: *mut u8,
    count: usize,
}

/// Combination of a builtin type's elements by an operation. It is looked up once and called for
/// any number of operands.
#[derive(Clone, Copy, Debug)]
pub struct Reducer {
    function: fn(Elements),
    /// The binary logarithm of an element's extent in bytes.
    extent_log2: u32,
}

impl Reducer {
    /// Makes a reducer, which does nothing for a pair of operation and element that
    /// [`crate::Op::is_valid_for`] refuses.
    pub(crate) fn of(op: Predefined, element: Element) -> Self {
        let (function, extent): (fn(Elements), _) = match op {
            Predefined::Replace => (|of| each::<u8>(of, |a, _| a), 1),
            Predefined::NoOp => (|of| each::<u8>(of, |_, b| b), 1),
            _ => (function(op, element), element.shape().extent),
        };
        Self { function, extent_log2: extent.ilog2() }
    }

    /// Computes `inout[i] = input[i] op inout[i]` for the whole elements that lie in both arrays.
    #[inline]
    pub fn combine_onto(self, input: &[u8], inout: &mut [u8]) {
        let count = input.len().min(inout.len()) >> self.extent_log2;
        let out = inout.as_mut_ptr();
        (self.function)(Elements { left: input.as_ptr(), right: out, out, count });
    }

    /// Computes `out[i] = left[i] op right[i]` for the whole elements that lie in all three arrays.
    #[inline]
    pub fn combine(self, left: &[u8], right: &[u8], out: &mut [u8]) {
        let count = left.len().min(right.len()).min(out.len()) >> self.extent_log2;
        let (left, right, out) = (left.as_ptr(), right.as_ptr(), out.as_mut_ptr());
        (self.function)(Elements { left, right, out, count });
    }

    /// Combines contiguous regions like [`Reducer::combine_onto`]. The last element may end before
    /// its extent does.
    pub fn combine_regions(self, input: &Region, inout: &Region) {
        let (Some(from), Some(to)) = (input.as_span(), inout.as_span()) else {
            return on_host(input, inout, |input, inout| self.combine_regions(input, inout));
        };
        let count = from.len.min(to.len).div_ceil(1 << self.extent_log2);
        let (right, out) = (to.address.cast_const(), to.address);
        (self.function)(Elements { left: from.address, right, out, count });
    }
}

/// Combines regions by `combine` where the processor reaches them: those that devices hold are copied, and so is the result.
#[cold]
pub(crate) fn on_host(input: &Region, inout: &Region, combine: impl FnOnce(&Region, &Region)) {
    match (input.is_on_host(), inout.is_on_host()) {
        (true, true) => {}
        (_, true) => combine(&input.clone().staged(), inout),
        (_, false) => {
            let result = inout.clone().staged();
            combine(&input.clone().staged(), &result);
            inout.copy_from(&result);
        }
    }
}

fn function(op: Predefined, element: Element) -> fn(Elements) {
    match element {
        Element::I8 => integer::<i8>(op),
        Element::U8 => integer::<u8>(op),
        // Without a sign on aarch64.
        Element::Char => integer::<c_char>(op),
        Element::I16 => integer::<i16>(op),
        Element::U16 => integer::<u16>(op),
        Element::I32 | Element::Wchar => integer::<i32>(op),
        Element::U32 => integer::<u32>(op),
        Element::I64 | Element::Long => integer::<i64>(op),
        Element::U64 | Element::UnsignedLong => integer::<u64>(op),
        Element::I128 => integer::<i128>(op),
        Element::F32 => float::<f32>(op),
        Element::F64 => float::<f64>(op),
        Element::C32 => complex::<f32>(op),
        Element::C64 => complex::<f64>(op),
        Element::LongDouble => float::<LongDouble>(op),
        Element::LongDoubleComplex => complex::<LongDouble>(op),
        Element::F32I32 => pair::<f32, i32, 4, 8>(op),
        Element::F64I32 => pair::<f64, i32, 8, 16>(op),
        Element::LongI32 => pair::<i64, i32, 8, 16>(op),
        Element::I32I32 => pair::<i32, i32, 4, 8>(op),
        Element::I16I32 => pair::<i16, i32, 4, 8>(op),
        Element::F32F32 => pair::<f32, f32, 4, 8>(op),
        Element::F64F64 => pair::<f64, f64, 8, 16>(op),
        Element::LongDoubleI32 => pair::<LongDouble, i32, 16, 32>(op),
        Element::F16 => float::<F16>(op),
        Element::C16 => complex::<F16>(op),
        Element::F128 => float::<F128>(op),
        Element::C128 => complex::<F128>(op),
        Element::Bytes1 => nothing,
    }
}

/// Does nothing: the standard has no such operation for such elements.
fn nothing(_: Elements) {}

/// Applies `combine` to every pair of elements, several at a time.
#[inline]
fn each<T: Copy>(of: Elements, combine: impl Fn(T, T) -> T) {
    if of.count == 1 {
        return one(of, 0, combine);
    }
    match size_of::<T>() {
        0..=4 => blocks::<T, 16>(of, combine),
        5..=8 => blocks::<T, 8>(of, combine),
        _ => blocks::<T, 4>(of, combine),
    }
}

/// Combines block by block. Both operands' blocks are read before the results are written, so the
/// compiler may use vector registers wherever the results go.
#[inline]
fn blocks<T: Copy, const N: usize>(of: Elements, combine: impl Fn(T, T) -> T) {
    let whole = of.count - of.count % N;
    let (left, right, out) = (of.left.cast::<T>(), of.right.cast::<T>(), of.out.cast::<T>());
    for first in (0..whole).step_by(N) {
        // SAFETY: the regions hold `count` elements of this type at these addresses, which the
        // regions' makers guaranteed; alignment is not assumed.
        unsafe {
            let [left, right] =
                [left, right].map(|from| from.add(first).cast::<[T; N]>().read_unaligned());
            let results: [T; N] = std::array::from_fn(|index| combine(left[index], right[index]));
            out.add(first).cast::<[T; N]>().write_unaligned(results);
        }
    }
    for index in whole..of.count {
        one(of, index, &combine);
    }
}

/// Combines the elements of an index below their count.
#[inline(always)]
fn one<T: Copy>(of: Elements, index: usize, combine: impl Fn(T, T) -> T) {
    let (left, right, out) = (of.left.cast::<T>(), of.right.cast::<T>(), of.out.cast::<T>());
    // SAFETY: `index` is below the count, and the regions hold as many elements of this type, as
    // their makers guaranteed; alignment is not assumed.
    unsafe {
        let result = combine(left.add(index).read_unaligned(), right.add(index).read_unaligned());
        out.add(index).write_unaligned(result);
    }
}

trait Integer: Copy + Ord + Eq {
    const ZERO: Self;
    const ONE: Self;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Integer for $integer {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn product(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 i128 }

fn integer<T: Integer>(op: Predefined) -> fn(Elements) {
    match op {
        Predefined::Sum => |of| each::<T>(of, T::sum),
        Predefined::Prod => |of| each::<T>(of, T::product),
        Predefined::Min => |of| each::<T>(of, T::min),
        Predefined::Max => |of| each::<T>(of, T::max),
        Predefined::Band => |of| each::<T>(of, T::and),
        Predefined::Bor => |of| each::<T>(of, T::or),
        Predefined::Bxor => |of| each::<T>(of, T::xor),
        Predefined::Land => |of| each::<T>(of, |a, b| truth(a != T::ZERO && b != T::ZERO)),
        Predefined::Lor => |of| each::<T>(of, |a, b| truth(a != T::ZERO || b != T::ZERO)),
        Predefined::Lxor => |of| each::<T>(of, |a, b| truth((a != T::ZERO) != (b != T::ZERO))),
        Predefined::Minloc | Predefined::Maxloc | Predefined::Replace | Predefined::NoOp => nothing,
    }
}

fn truth<T: Integer>(value: bool) -> T {
    if value { T::ONE } else { T::ZERO }
}

trait Real: Copy + PartialOrd {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn difference(self, other: Self) -> Self;
}

macro_rules! reals {
    ($($real:ty)*) => {$(
        impl Real for $real {
            fn sum(self, other: Self) -> Self { self + other }
            fn product(self, other: Self) -> Self { self * other }
            fn difference(self, other: Self) -> Self { self - other }
        }
    )*};
}

reals! { f32 f64 }

macro_rules! formats {
    ($($real:ty)*) => {$(
        impl Real for $real {
            fn sum(self, other: Self) -> Self { <$real>::sum(self, other) }
            fn product(self, other: Self) -> Self { <$real>::product(self, other) }
            fn difference(self, other: Self) -> Self { <$real>::difference(self, other) }
        }
    )*};
}

formats! { F16 F128 }
#[cfg(target_arch = "x86_64")]
formats! { F80 }

fn float<T: Real>(op: Predefined) -> fn(Elements) {
    match op {
        Predefined::Sum => |of| each::<T>(of, T::sum),
        Predefined::Prod => |of| each::<T>(of, T::product),
        Predefined::Min => |of| each::<T>(of, |a, b| if a < b { a } else { b }),
        Predefined::Max => |of| each::<T>(of, |a, b| if a > b { a } else { b }),
        _ => nothing,
    }
}

fn complex<T: Real>(op: Predefined) -> fn(Elements) {
    match op {
        Predefined::Sum => |of| each::<[T; 2]>(of, |a, b| [a[0].sum(b[0]), a[1].sum(b[1])]),
        Predefined::Prod => |of| {
            each::<[T; 2]>(of, |a, b| {
                let real = a[0].product(b[0]).difference(a[1].product(b[1]));
                [real, a[0].product(b[1]).sum(a[1].product(b[0]))]
            });
        },
        _ => nothing,
    }
}

/// Combines value and index: the index of the lesser (or greater) value, and among equal values the
/// lesser index.
fn pair<V: Value, I: Copy + PartialOrd, const INDEX: usize, const EXTENT: usize>(
    op: Predefined,
) -> fn(Elements) {
    match op {
        Predefined::Minloc => |of| pairs::<V, I, INDEX, EXTENT>(of, V::is_less),
        Predefined::Maxloc => |of| pairs::<V, I, INDEX, EXTENT>(of, |a, b| b.is_less(a)),
        _ => nothing,
    }
}

/// Keeps, of each two pairs, the one whose value comes first.
#[inline]
fn pairs<V: Value, I: Copy + PartialOrd, const INDEX: usize, const EXTENT: usize>(
    Elements { left, right, out, count }: Elements,
    is_first: impl Fn(V, V) -> bool,
) {
    for element in 0..count {
        // SAFETY: the regions hold `count` pairs at these addresses, which their makers guaranteed:
        // the value first, and the index `INDEX` bytes further. Alignment is not assumed.
        unsafe {
            let [(a, i), (b, j)] = [left, right].map(|from| {
                let from = from.add(element * EXTENT);
                let index = from.add(INDEX).cast::<I>().read_unaligned();
                (from.cast::<V>().read_unaligned(), index)
            });
            let wins = is_first(a, b) || (V::is_equal(a, b) && i < j);
            let (value, index) = if wins { (a, i) } else { (b, j) };
            let out = out.add(element * EXTENT);
            out.cast::<V>().write_unaligned(value);
            out.add(INDEX).cast::<I>().write_unaligned(index);
        }
    }
}

/// Values of pairs that are compared.
trait Value: Copy {
    fn is_less(self, other: Self) -> bool;
    fn is_equal(self, other: Self) -> bool;
}

macro_rules! values {
    ($($value:ty)*) => {$(
        impl Value for $value {
            fn is_less(self, other: Self) -> bool { self < other }
            fn is_equal(self, other: Self) -> bool { self == other }
        }
    )*};
}

values! { i16 i32 i64 f32 f64 LongDouble }

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use std::cmp::Ordering::{Equal, Greater, Less};

    use super::*;
    use crate::builtin::Builtin;
    use crate::{Datatype, Op};

    fn run<T: Copy>(op: Predefined, builtin: Builtin, a: &[T], b: &mut [T]) {
        let bytes = std::mem::size_of_val(a);
        // SAFETY: both slices outlive the call.
        let (input, inout) = unsafe {
            let input = Region::new(a.as_ptr().cast_mut().cast(), bytes);
            (input, Region::new(b.as_mut_ptr().cast(), bytes))
        };
        let (op, datatype) = (Op::Predefined(op), Datatype::builtin(builtin));
        assert!(op.is_valid_for(&datatype));
        op.apply(&input, &inout, a.len(), &datatype, 0);
    }

    #[test]
    fn integers_and_floats_follow_scalar_arithmetic() {
        let a: Vec<i32> = (-20..20).collect();
        let mut b: Vec<i32> = (-20..20).rev().collect();
        let expected: Vec<i32> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        run(Predefined::Prod, Builtin::Int, &a, &mut b);
        assert_eq!(b, expected);
        let mut c = [1.5f64, -2.0];
        run(Predefined::Max, Builtin::Double, &[0.5, 7.0], &mut c);
        assert_eq!(c, [1.5, 7.0]);
        let mut d = [3u8, 0];
        run(Predefined::Land, Builtin::CBool, &[1, 1], &mut d);
        assert_eq!(d, [1, 0]);
    }

    #[test]
    fn characters_have_the_sign_of_c() {
        let mut b: [c_char; 1] = [1];
        run(Predefined::Max, Builtin::Char, &[0xff_u8 as c_char], &mut b);
        assert_eq!(b, [1.max(0xff_u8 as c_char)]);
    }

    #[test]
    fn complex_products_are_complex() {
        let mut b = [[3.0f64, 4.0]];
        run(Predefined::Prod, Builtin::CDoubleComplex, &[[1.0, 2.0]], &mut b);
        assert_eq!(b, [[-5.0, 10.0]]);
    }

    #[test]
    fn the_lower_index_wins_among_equals() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(C)]
        struct DoubleInt(f64, i32);
        let mut b = [DoubleInt(1.0, 5), DoubleInt(2.0, 1)];
        run(
            Predefined::Minloc,
            Builtin::DoubleInt,
            &[DoubleInt(1.0, 3), DoubleInt(3.0, 0)],
            &mut b,
        );
        assert_eq!(b, [DoubleInt(1.0, 3), DoubleInt(2.0, 1)]);
    }

    /// Infinity, as C's `long double`.
    fn infinity() -> [u8; 16] {
        let mut bytes = [0; 16];
        match cfg!(target_arch = "x86_64") {
            true => bytes[7..10].copy_from_slice(&[0x80, 0xff, 0x7f]),
            false => bytes[14..].copy_from_slice(&[0xff, 0x7f]),
        }
        bytes
    }

    #[test]
    fn the_lower_index_wins_among_infinities() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(C, align(16))]
        struct LongDoubleInt([u8; 16], i32);
        let pair = |index| LongDoubleInt(infinity(), index);
        for op in [Predefined::Minloc, Predefined::Maxloc] {
            let mut b = [pair(3), pair(3)];
            run(op, Builtin::LongDoubleInt, &[pair(5), pair(1)], &mut b);
            assert_eq!(b, [pair(3), pair(1)]);
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn long_doubles_use_the_x87() {
        // 1.0 and 2.0: mantissa 2^63, exponents 16383 and 16384.
        let number = |exponent: u16| {
            let mut bytes = [0; 16];
            bytes[7] = 0x80;
            bytes[8..10].copy_from_slice(&exponent.to_le_bytes());
            F80(bytes)
        };
        let (one, two, four) = (number(16383), number(16384), number(16385));
        assert_eq!(one.sum(one).0[..10], two.0[..10]);
        assert_eq!(two.product(two).0[..10], four.0[..10]);
        let (nothing, infinity) = (F80([0xff; 16]), number(0x7fff));
        let orders = [(one, two), (two, one), (infinity, infinity), (infinity, nothing)];
        let orders = orders.map(|(a, b)| a.partial_cmp(&b));
        assert_eq!(orders, [Some(Less), Some(Greater), Some(Equal), None]);
    }

    #[test]
    fn operations_are_refused_where_the_standard_has_none() {
        let valid = |op, builtin| Op::Predefined(op).is_valid_for(&Datatype::builtin(builtin));
        assert!(!valid(Predefined::Band, Builtin::Double));
        assert!(!valid(Predefined::Max, Builtin::CDoubleComplex));
        assert!(!valid(Predefined::Sum, Builtin::Wchar));
        assert!(!valid(Predefined::Sum, Builtin::FloatInt));
        assert!(valid(Predefined::Band, Builtin::Byte));
    }
}
