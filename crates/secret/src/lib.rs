//! Keys of a job in memory that is wiped before it is freed and left out of core dumps.
//!
//! A [`Secret`] lies once in a process, in a page of its own. Text and buffers through which it passes are
//! [`Zeroizing`] and never grow, because growth leaves the old allocation behind. Hashes leave copies on the stack,
//! which [`scrubbed`] clears.

mod page;

use std::fmt;
use std::io;
use std::sync::Arc;

use zeroize::{Zeroize, Zeroizing};

use crate::page::{LEN, Page};

/// A key of 32 bytes: the secret of a job, or a key derived from it. Clones share its memory. It is never printed.
#[derive(Clone)]
pub struct Secret(Arc<Page>);

impl Secret {
    /// Length in bytes.
    pub const LEN: usize = LEN;
    /// Number of hexadecimal digits.
    pub const DIGITS: usize = 2 * Self::LEN;

    /// Draws a secret.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut page = Page::new();
        let drawn = getrandom::fill(page.bytes_mut());
        drawn.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(Arc::new(page)))
    }

    /// Makes a secret in place. What the function leaves on the stack is cleared.
    pub fn made(make: impl FnOnce(&mut [u8; Self::LEN])) -> Self {
        let mut page = Page::new();
        scrubbed(|| make(page.bytes_mut()));
        Self(Arc::new(page))
    }

    /// Reads a secret from its hexadecimal digits, which the caller wipes. `None` if they are not a secret.
    pub fn parse(digits: &str) -> Option<Self> {
        let mut page = Page::new();
        scrubbed(|| hex::decode_to_slice(digits, page.bytes_mut())).ok()?;
        Some(Self(Arc::new(page)))
    }

    /// The bytes, for the derivation of keys. They must not be logged or stored.
    pub fn expose(&self) -> &[u8; Self::LEN] {
        self.0.bytes()
    }

    /// Returns the hexadecimal digits between two texts, as a line for a pipe or socket.
    pub fn line(&self, before: &str, after: &str) -> Zeroizing<String> {
        let mut line =
            Zeroizing::new(String::with_capacity(before.len() + Self::DIGITS + after.len()));
        line.push_str(before);
        for byte in self.expose() {
            line.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
        }
        line.push_str(after);
        line
    }
}

/// A key that is no secret to whoever has it as an array, such as a test.
impl From<[u8; Self::LEN]> for Secret {
    fn from(bytes: [u8; Self::LEN]) -> Self {
        Self::made(|key| key.copy_from_slice(&bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Runs a computation on secrets, and clears the stack that it has used.
pub fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let result = apart(work);
    clear_stack();
    result
}

/// Runs the computation in a frame below the caller's.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Overwrites the frames that calls from the caller have left.
#[inline(never)]
fn clear_stack() {
    [0_u64; STACK / size_of::<u64>()].zeroize();
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// Bytes of stack that are cleared: more than HMAC-SHA256 takes without optimisation.
const STACK: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_written() {
        let secret = Secret::made(|key| (0_u8..).zip(key).for_each(|(at, byte)| *byte = at * 8));
        let line = secret.line("a ", "\n");
        assert_eq!((&line[..8], line.len(), line.capacity()), ("a 000810", 67, 67));
        let digits = line.trim_start_matches("a ").trim_end();
        let read = Secret::parse(digits).unwrap();
        assert_eq!(read.expose(), secret.expose());
        assert_eq!(Secret::from(*read.expose()).expose(), secret.expose());
        for wrong in ["", "00", &digits[1..], &digits.replace('8', "g"), &format!("{digits}00")] {
            assert!(Secret::parse(wrong).is_none(), "{wrong}");
        }
        assert_ne!(Secret::random().unwrap().expose(), Secret::random().unwrap().expose());
    }

    #[test]
    fn nothing_of_it_is_printed() {
        let secret = Secret::from([7; 32]);
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret(…) Some(Secret(…))");
    }

    #[test]
    fn a_wiped_stack_holds_nothing() {
        let address = scrubbed(|| {
            let copy = [0x5a_u8; 64];
            std::hint::black_box(&copy).as_ptr() as usize
        });
        // The words around the copy, as the kernel reads them.
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let mut found = [0; 64];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut found, address as u64).unwrap();
        assert_ne!(found, [0x5a; 64]);
    }
}
