//! What packing brings on the way to a peer, as far as the last pieces tell.

use memory::Region;
use wire::compress::{Codec, UNPACKED_MAX};

use crate::engine::Counters;

/// How much shorter pieces got lately, and when packing is tried against expectation.
///
/// What stayed too long is expected to do so again. After a few pieces a sample is packed
/// nevertheless: after two, four, and so on up to 64, as long as it is in vain.
#[derive(Clone, Copy, Debug)]
pub struct Compression {
    /// What is left of a byte, in parts of [`WHOLE`]: a moving average.
    part: u32,
    /// Pieces to go before the next trial.
    pause: u32,
    /// Trials in vain, one after the other.
    vain: u32,
}

impl Compression {
    /// Bytes to which so many are expected to be packed; the same where there is nothing to hope for.
    pub fn expected_bytes(&self, bytes: usize) -> usize {
        (bytes as u64 * u64::from(self.part) / u64::from(WHOLE)) as usize
    }

    /// Whether it is time to try, whatever is expected.
    pub fn is_trial_due(&self) -> bool {
        self.pause == 0
    }

    /// A piece was sent as it is.
    pub(crate) fn pass(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    fn succeed(&mut self, bytes: usize, packed: usize) {
        let part = (packed as u64 * u64::from(WHOLE) / bytes as u64) as u32;
        self.part = if self.vain > 0 || self.part == WHOLE {
            part
        } else {
            (self.part * (REMEMBERS - 1) + part) / REMEMBERS
        };
        self.vain = 0;
        self.pause = PAUSE_MAX;
    }

    fn fail(&mut self) {
        self.part = WHOLE;
        self.vain = (self.vain + 1).min(PAUSE_MAX.ilog2());
        self.pause = 1 << self.vain;
    }

    /// A piece, packed to at most `bytes_max` bytes; none where it does not get so short. Where it is
    /// not expected to, its beginning tells.
    pub(crate) fn compress(
        &mut self,
        codec: &mut Codec,
        piece: &Region,
        bytes_max: usize,
        counters: &mut Counters,
    ) -> Option<Box<[u8]>> {
        let bytes = piece.len();
        if !(COMPRESS_MIN..=UNPACKED_MAX).contains(&bytes) {
            return None;
        }
        let mut read = bytes;
        let promises = self.expected_bytes(bytes) <= bytes_max || {
            let beginning = piece.slice(0, COMPRESS_MIN);
            read = COMPRESS_MIN;
            codec.compress_region(&beginning, COMPRESS_MIN - COMPRESS_MIN / 20).is_some()
        };
        let packed = if promises {
            read = bytes;
            codec.compress_region(piece, bytes_max)
        } else {
            None
        };
        match &packed {
            Some(packed) => {
                self.succeed(bytes, packed.len());
                counters.packed += 1;
                counters.uncompressed_bytes += bytes as u64;
                counters.compressed_bytes += packed.len() as u64;
            }
            None => {
                self.fail();
                counters.incompressible_bytes += read as u64;
            }
        }
        packed
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self { part: WHOLE, pause: 0, vain: 0 }
    }
}

/// Shorter pieces are not packed; so long is the sample of others.
pub const COMPRESS_MIN: usize = 4096;

const WHOLE: u32 = 1 << 16;
/// One piece moves the average by such a part.
const REMEMBERS: u32 = 4;
/// At least one piece in so many is tried.
const PAUSE_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends so many pieces; how many of them were tried.
    fn send(
        packing: &mut Compression,
        piece: &Region,
        times: usize,
        counters: &mut Counters,
    ) -> usize {
        let mut codec = Codec::default();
        let bytes_max = piece.len() * 3 / 4;
        let mut tried = 0;
        for _ in 0..times {
            if packing.expected_bytes(piece.len()) <= bytes_max || packing.is_trial_due() {
                packing.compress(&mut codec, piece, bytes_max, counters);
                tried += 1;
            } else {
                packing.pass();
            }
        }
        tried
    }

    #[test]
    fn what_cannot_be_packed_is_tried_less_and_less_and_what_can_always() {
        let (mut packing, mut counters) = (Compression::default(), Counters::default());
        let zeros = Region::owned(64 << 10);
        let word =
            |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(at);
        let dense: Vec<u8> = (1..8 << 10).flat_map(|at| word(at).to_le_bytes()).collect();
        let dense = Region::from_box(dense.into());
        assert_eq!(send(&mut packing, &zeros, 20, &mut counters), 20);
        assert_eq!((counters.packed, counters.incompressible_bytes), (20, 0));
        let tried = send(&mut packing, &dense, 1000, &mut counters);
        assert!((10..=30).contains(&tried), "{tried} of 1000 pieces");
        // One before it was known, then samples.
        assert_eq!(counters.packed, 20);
        assert_eq!(
            counters.incompressible_bytes as usize,
            dense.len() + (tried - 1) * COMPRESS_MIN
        );
        let late = send(&mut packing, &zeros, 200, &mut counters);
        assert!(late >= 200 - PAUSE_MAX as usize, "{late} of 200 pieces");
        assert!(packing.expected_bytes(64 << 10) < 1 << 10);
    }
}
