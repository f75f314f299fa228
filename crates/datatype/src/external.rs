//! The representation `external32` (MPI-5.0 §14.5.2): big-endian, of fixed widths, without padding.

use crate::builtin::Element;
use crate::datatype::Datatype;

/// A value that has no representation on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value {value} does not fit {bits} bits")]
pub struct ConversionError {
    /// The value.
    pub value: i128,
    /// Bits of the narrower representation.
    pub bits: u32,
}

impl Datatype {
    /// Returns the bytes of one element in this representation; none if they overflow.
    pub fn external_size(&self) -> Option<usize> {
        self.elements().iter().try_fold(0usize, |size, &(element, count)| {
            let bytes = usize::try_from(count).ok()?.checked_mul(external_size(element))?;
            size.checked_add(bytes)
        })
    }

    /// Converts the packed stream of whole elements to `external32`.
    ///
    /// # Errors
    /// If an integer does not fit.
    pub fn to_external(&self, native: &[u8]) -> Result<Vec<u8>, ConversionError> {
        let mut external = Vec::with_capacity(native.len());
        let mut rest = native;
        while !rest.is_empty() {
            for &(element, count) in self.elements() {
                for _ in 0..count {
                    let (one, after) = rest.split_at(element.size());
                    rest = after;
                    encode(element, one, &mut external)?;
                }
            }
        }
        Ok(external)
    }

    /// Converts whole elements from `external32` to the packed stream.
    pub fn from_external(&self, external: &[u8]) -> Vec<u8> {
        let mut native = Vec::with_capacity(external.len());
        let mut rest = external;
        while !rest.is_empty() {
            for &(element, count) in self.elements() {
                for _ in 0..count {
                    let (one, after) = rest.split_at(external_size(element));
                    rest = after;
                    decode(element, one, &mut native);
                }
            }
        }
        native
    }
}

/// Returns the widths in bytes of the numbers in an element, native and external.
fn widths(element: Element) -> (usize, usize) {
    match element {
        Element::Long | Element::UnsignedLong => (8, 4),
        Element::Wchar => (4, 2),
        Element::C32 => (4, 4),
        Element::C64 => (8, 8),
        Element::LongDoubleComplex => (16, 16),
        Element::C16 => (2, 2),
        Element::C128 => (16, 16),
        _ => (element.size(), element.size()),
    }
}

fn external_size(element: Element) -> usize {
    let (here, there) = widths(element);
    element.size() / here * there
}

fn encode(element: Element, native: &[u8], external: &mut Vec<u8>) -> Result<(), ConversionError> {
    let (here, there) = widths(element);
    for number in native.chunks_exact(here) {
        if is_extended(element) {
            external.extend(quad_of(number).to_be_bytes());
            continue;
        }
        if here != there {
            check_fits(element, number, there)?;
        }
        external.extend(number[..there].iter().rev());
    }
    Ok(())
}

fn decode(element: Element, external: &[u8], native: &mut Vec<u8>) {
    let (here, there) = widths(element);
    for number in external.chunks_exact(there) {
        if is_extended(element) {
            native.extend(extended_of(number));
            continue;
        }
        native.extend(number.iter().rev());
        let is_negative = element == Element::Long && number[0] & 0x80 != 0;
        let sign = if is_negative { 0xff } else { 0 };
        native.resize(native.len() + here - there, sign);
    }
}

fn check_fits(element: Element, number: &[u8], bytes: usize) -> Result<(), ConversionError> {
    let mut wide = [0; 16];
    wide[..number.len()].copy_from_slice(number);
    let unsigned = i128::from_le_bytes(wide);
    let is_signed = element == Element::Long;
    let unused = 128 - 8 * number.len();
    let value = if is_signed { unsigned << unused >> unused } else { unsigned };
    let bits = 8 * bytes as u32;
    let fits = match is_signed {
        true => (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&value),
        false => value < 1i128 << bits,
    };
    if fits { Ok(()) } else { Err(ConversionError { value, bits }) }
}

/// True if the element's numbers are x87's. On other architectures a `long double` is binary128 already.
fn is_extended(element: Element) -> bool {
    let is_long = matches!(element, Element::LongDouble | Element::LongDoubleComplex);
    cfg!(target_arch = "x86_64") && is_long
}

/// Converts an x87 number to IEEE binary128, which has as many bits of exponent and does not store
/// the leading bit.
fn quad_of(extended: &[u8]) -> u128 {
    let (mantissa, exponent) = parts_of(extended);
    let fraction = u128::from(mantissa & !LEADING);
    u128::from(exponent) << 112 | fraction << 49
}

/// Converts an IEEE binary128 to the nearest x87 number, ties to even.
fn extended_of(quad: &[u8]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(quad);
    let quad = u128::from_be_bytes(bytes);
    let (mut exponent, fraction) = ((quad >> 112) as u16, quad & ((1 << 112) - 1));
    let is_finite = exponent & 0x7fff != 0x7fff;
    let leading = if exponent & 0x7fff == 0 { 0 } else { LEADING };
    let mut mantissa = leading | (fraction >> 49) as u64;
    let lost = fraction & ((1 << 49) - 1);
    let half = 1u128 << 48;
    if is_finite && (lost > half || lost == half && mantissa & 1 == 1) {
        mantissa = mantissa.wrapping_add(1);
        if mantissa == 0 {
            mantissa = LEADING;
            exponent += 1;
        } else if leading == 0 && mantissa == LEADING {
            exponent += 1;
        }
    }
    let mut extended = [0; 16];
    extended[..8].copy_from_slice(&mantissa.to_le_bytes());
    extended[8..10].copy_from_slice(&exponent.to_le_bytes());
    extended
}

fn parts_of(extended: &[u8]) -> (u64, u16) {
    let mut mantissa = [0; 8];
    mantissa.copy_from_slice(&extended[..8]);
    (u64::from_le_bytes(mantissa), u16::from_le_bytes([extended[8], extended[9]]))
}

/// Explicit leading bit of the x87 format.
const LEADING: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::Builtin;

    #[test]
    fn numbers_are_big_endian_and_longs_short() {
        let types = [Builtin::Int, Builtin::Long, Builtin::Char].map(Datatype::builtin);
        let made = Datatype::structure(&[1, 2, 1], &[0, 8, 24], &types).unwrap();
        assert_eq!(made.external_size(), Some(13));
        let mut native = Vec::new();
        native.extend(0x0102_0304i32.to_le_bytes());
        native.extend((-2i64).to_le_bytes());
        native.extend(7i64.to_le_bytes());
        native.push(9);
        let external = made.to_external(&native).unwrap();
        assert_eq!(external, [1, 2, 3, 4, 255, 255, 255, 254, 0, 0, 0, 7, 9]);
        assert_eq!(made.from_external(&external), native);
    }

    #[test]
    fn integers_that_do_not_fit_are_an_error() {
        let long = Datatype::builtin(Builtin::Long);
        assert!(long.to_external(&(-(1i64 << 31)).to_le_bytes()).is_ok());
        let error = long.to_external(&(1i64 << 31).to_le_bytes()).unwrap_err();
        assert_eq!(error, ConversionError { value: 1 << 31, bits: 32 });
        let unsigned = Datatype::builtin(Builtin::UnsignedLong);
        assert!(unsigned.to_external(&(1i64 << 31).to_le_bytes()).is_ok());
        assert!(unsigned.to_external(&u64::MAX.to_le_bytes()).is_err());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn long_doubles_are_quads_outside() {
        let number = |mantissa: u64, exponent: u16| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
            bytes[8..10].copy_from_slice(&exponent.to_le_bytes());
            bytes
        };
        let datatype = Datatype::builtin(Builtin::LongDouble);
        // 1.5, -0.0, the least denormal, infinity.
        let cases = [
            (number(3 << 62, 16383), 0x3fff_8000u128 << 96),
            (number(0, 0x8000), 1 << 127),
            (number(1, 0), 1 << 49),
            (number(1 << 63, 0x7fff), 0x7fff << 112),
        ];
        for (native, quad) in cases {
            assert_eq!(datatype.to_external(&native).unwrap(), quad.to_be_bytes());
            assert_eq!(datatype.from_external(&quad.to_be_bytes()), native);
        }
        // Two to the power of zero, less the least: rounds up to one.
        let below = (0x3ffeu128 << 112) | ((1 << 112) - 1);
        assert_eq!(datatype.from_external(&below.to_be_bytes()), number(1 << 63, 16383));
    }
}
