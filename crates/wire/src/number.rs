//! Variable-length integers (LEB128): seven bits per byte, lowest first; all bytes but the last
//! have bit 7 set.

/// Appends a number.
pub fn append(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Removes a number from the front of `bytes`. Returns `None` if it is incomplete or exceeds 64
/// bits.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_others_are_none() {
        for number in [0, 0x7f, 0x80, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            append(&mut bytes, number);
            bytes.push(9);
            let mut rest = &bytes[..];
            assert_eq!((take(&mut rest), rest), (Some(number), &[9][..]));
        }
        assert_eq!(take(&mut &[][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None, "cut off");
        assert_eq!(take(&mut &[0xff; 10][..]), None, "beyond 64 bits");
    }
}
