//! Floats that Rust has no stable type for: `binary16`, the 80-bit format of the x87 unit, and `binary128`.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::uint8x16_t as Vector;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m128i as Vector;
use std::cmp::Ordering;

/// C's `long double`.
#[cfg(target_arch = "x86_64")]
pub(super) type LongDouble = F80;
#[cfg(target_arch = "aarch64")]
pub(super) type LongDouble = F128;

/// The `binary16` of Fortran's `REAL(2)`. Its arithmetic is that of `f32`, rounded once more: `f32` has so many bits that
/// the result is the same as rounded once.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct F16(u16);

impl F16 {
    fn to_f32(self) -> f32 {
        let (sign, rest) = (u32::from(self.0 & 0x8000) << 16, u32::from(self.0 & 0x7fff));
        match rest >> 10 {
            0 => f32::from_bits(sign | (rest as f32 * f32::powi(2.0, -24)).to_bits()),
            0x1f => f32::from_bits(sign | 0x7f80_0000 | rest << 13),
            _ => f32::from_bits(sign | ((rest << 13) + (112 << 23))),
        }
    }

    /// Returns the nearest number; of two, the one with an even mantissa.
    fn nearest(value: f32) -> Self {
        let (sign, size) = ((value.to_bits() >> 16 & 0x8000) as u16, value.abs());
        let bits = size.to_bits();
        let rounded = match size {
            _ if size.is_nan() => 0x7e00,
            65520.0.. => 0x7c00,
            // Below the least normal number; the result may be that one.
            ..6.103_515_6e-5 => (size * f32::powi(2.0, 24)).round_ties_even() as u16,
            _ => (((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112 << 10)) as u16,
        };
        Self(sign | rounded)
    }
}

impl F16 {
    pub fn sum(self, other: Self) -> Self {
        Self::nearest(self.to_f32() + other.to_f32())
    }

    pub fn product(self, other: Self) -> Self {
        Self::nearest(self.to_f32() * other.to_f32())
    }

    pub fn difference(self, other: Self) -> Self {
        Self::nearest(self.to_f32() - other.to_f32())
    }
}

impl PartialEq for F16 {
    fn eq(&self, other: &Self) -> bool {
        self.to_f32() == other.to_f32()
    }
}

impl PartialOrd for F16 {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.to_f32().partial_cmp(&other.to_f32())
    }
}

/// The `long double` of x86-64: the 80-bit format of the x87 unit, in 16 bytes.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct F80(pub [u8; 16]);

#[cfg(target_arch = "x86_64")]
macro_rules! x87 {
    ($name:ident, $instruction:literal) => {
        pub fn $name(self, other: F80) -> F80 {
            let mut result = F80([0; 16]);
            // SAFETY: two loads, one operation and one store on the x87 stack, which is left
            // unchanged; the operands are live and aligned.
            unsafe {
                std::arch::asm!(
                    "fld tbyte ptr [{a}]",
                    "fld tbyte ptr [{b}]",
                    $instruction,
                    "fstp tbyte ptr [{r}]",
                    a = in(reg) &raw const self,
                    b = in(reg) &raw const other,
                    r = in(reg) &raw mut result,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack),
                );
            }
            result
        }
    };
}

#[cfg(target_arch = "x86_64")]
impl F80 {
    x87!(sum, "faddp");
    x87!(product, "fmulp");
    x87!(difference, "fsubp");
}

#[cfg(target_arch = "x86_64")]
impl PartialEq for F80 {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

#[cfg(target_arch = "x86_64")]
impl PartialOrd for F80 {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let (is_unordered, is_equal, is_less): (u8, u8, u8);
        // SAFETY: two loads, a comparison and two removals on the x87 stack, which is left unchanged; the operands are
        // live and aligned.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{b}]",
                "fld tbyte ptr [{a}]",
                "fucomip st, st(1)",
                "fstp st(0)",
                "setp {is_unordered}",
                "sete {is_equal}",
                "setb {is_less}",
                a = in(reg) &raw const *self,
                b = in(reg) &raw const *other,
                is_unordered = out(reg_byte) is_unordered,
                is_equal = out(reg_byte) is_equal,
                is_less = out(reg_byte) is_less,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        match (is_unordered, is_equal, is_less) {
            (1, ..) => None,
            (_, 1, _) => Some(Ordering::Equal),
            (.., 1) => Some(Ordering::Less),
            _ => Some(Ordering::Greater),
        }
    }
}

/// The `binary128` of Fortran's `REAL(16)` and of C's `__float128`, which are passed in vector registers.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct F128(Vector);

// The arithmetic of C compilers for this format, called with registers, for which Rust has no stable declaration.
unsafe extern "C" {
    fn __addtf3();
    fn __subtf3();
    fn __multf3();
    /// Gives a negative number if less, 0 if equal, else a positive one: also if an operand is no number.
    fn __letf2();
    /// Gives a positive number if greater, 0 if equal, else a negative one: also if an operand is no number.
    fn __getf2();
}

macro_rules! quads {
    ($($name:ident $function:ident;)*) => {
        impl F128 {
            $(pub fn $name(self, other: Self) -> Self {
                let (mut result, other) = (self.0, other.0);
                // SAFETY: the function computes with two arguments alone; all that a call may change is named.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    std::arch::asm!(
                        "call {function}@PLT",
                        function = sym $function,
                        inout("xmm0") result,
                        inout("xmm1") other => _,
                        clobber_abi("C"),
                    );
                    #[cfg(target_arch = "aarch64")]
                    std::arch::asm!(
                        "bl {function}",
                        function = sym $function,
                        inout("v0") result,
                        inout("v1") other => _,
                        clobber_abi("C"),
                    );
                }
                Self(result)
            })*
        }
    };
}

quads! {
    sum __addtf3;
    product __multf3;
    difference __subtf3;
}

macro_rules! comparisons {
    ($($name:ident $function:ident;)*) => {
        impl F128 {
            $(fn $name(self, other: Self) -> i32 {
                let result;
                // SAFETY: the function compares two arguments alone; all that a call may change is named.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    std::arch::asm!(
                        "call {function}@PLT",
                        function = sym $function,
                        inout("xmm0") self.0 => _,
                        inout("xmm1") other.0 => _,
                        out("eax") result,
                        clobber_abi("C"),
                    );
                    #[cfg(target_arch = "aarch64")]
                    std::arch::asm!(
                        "bl {function}",
                        function = sym $function,
                        inout("v0") self.0 => _,
                        inout("v1") other.0 => _,
                        out("w0") result,
                        clobber_abi("C"),
                    );
                }
                result
            })*
        }
    };
}

comparisons! {
    at_most __letf2;
    at_least __getf2;
}

impl PartialEq for F128 {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for F128 {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.at_most(*other), self.at_least(*other)) {
            (..0, _) => Some(Ordering::Less),
            (0, _) => Some(Ordering::Equal),
            (_, 1..) => Some(Ordering::Greater),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_float_is_the_nearest_to_itself() {
        for bits in 0..=u16::MAX {
            let value = F16(bits).to_f32();
            assert!(value.is_nan() || F16::nearest(value).0 == bits, "{bits:#x} is {value}");
        }
    }

    #[test]
    fn what_lies_between_two_short_floats_goes_to_the_nearer_or_the_even_one() {
        for bits in 0..0x7bff {
            let (low, high) = (F16(bits).to_f32(), F16(bits + 1).to_f32());
            let middle = low + (high - low) / 2.0;
            assert_eq!(F16::nearest(middle).0, bits + (bits & 1), "{middle}");
            assert_eq!(F16::nearest(middle.next_down()).0, bits);
            assert_eq!(F16::nearest(-middle.next_up()).0, 0x8000 | (bits + 1));
        }
        assert_eq!([65519.9, 65520.0].map(|value| F16::nearest(value).0), [0x7bff, 0x7c00]);
        assert!(F16::nearest(f32::NAN).to_f32().is_nan());
    }
}
