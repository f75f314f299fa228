//! Compression ratio observed with a peer, and trials.

use memory::Region;
use wire::compress::{Codec, UNCOMPRESSED_MAX};

use crate::engine::Counters;

/// Decides when compression is tried, from the ratio of recent pieces.
///
/// Data that did not compress are expected not to do so again. A sample is compressed nevertheless
/// after two pieces, then four, and so on up to 64, while trials fail.
#[derive(Clone, Copy, Debug)]
pub struct Compression {
    /// Compressed size of a byte, in units of 1/[`WHOLE`]: a moving average.
    part: u32,
    /// Pieces until the next trial.
    pause: u32,
    /// Number of consecutive failed trials.
    failures: u32,
}

impl Compression {
    /// Expected compressed size of `bytes` bytes; `bytes` itself if no gain is expected.
    pub fn expected_bytes(&self, bytes: usize) -> usize {
        (bytes as u64 * u64::from(self.part) / u64::from(WHOLE)) as usize
    }

    /// True if a trial is due, whatever is expected.
    pub fn is_trial_due(&self) -> bool {
        self.pause == 0
    }

    /// Notes that a piece was sent uncompressed.
    pub(crate) fn pass(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    fn succeed(&mut self, bytes: usize, compressed: usize) {
        let part = (compressed as u64 * u64::from(WHOLE) / bytes as u64) as u32;
        self.part = if self.failures > 0 || self.part == WHOLE {
            part
        } else {
            (self.part * (REMEMBERS - 1) + part) / REMEMBERS
        };
        self.failures = 0;
        self.pause = PAUSE_MAX;
    }

    fn fail(&mut self) {
        self.part = WHOLE;
        self.failures = (self.failures + 1).min(PAUSE_MAX.ilog2());
        self.pause = 1 << self.failures;
    }

    /// Compresses a piece to at most `bytes_max` bytes; `None` if it does not fit. A piece that is
    /// not expected to fit is first judged by a sample from its beginning.
    pub(crate) fn compress(
        &mut self,
        codec: &mut Codec,
        piece: &Region,
        bytes_max: usize,
        counters: &mut Counters,
    ) -> Option<Box<[u8]>> {
        let bytes = piece.len();
        if !(COMPRESS_MIN..=UNCOMPRESSED_MAX).contains(&bytes) {
            return None;
        }
        let mut read = bytes;
        let promises = self.expected_bytes(bytes) <= bytes_max || {
            let beginning = piece.slice(0, COMPRESS_MIN);
            read = COMPRESS_MIN;
            codec.compress_region(&beginning, COMPRESS_MIN - COMPRESS_MIN / 20).is_some()
        };
        let compressed = if promises {
            read = bytes;
            codec.compress_region(piece, bytes_max)
        } else {
            None
        };
        match &compressed {
            Some(compressed) => {
                self.succeed(bytes, compressed.len());
                counters.compressed += 1;
                counters.uncompressed_bytes += bytes as u64;
                counters.compressed_bytes += compressed.len() as u64;
            }
            None => {
                self.fail();
                counters.incompressible_bytes += read as u64;
            }
        }
        compressed
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self { part: WHOLE, pause: 0, failures: 0 }
    }
}

/// Shortest piece that is compressed, and length of a sample.
pub const COMPRESS_MIN: usize = 4096;

const WHOLE: u32 = 1 << 16;
/// Inverse weight of one piece in the moving average.
const REMEMBERS: u32 = 4;
/// Longest interval between trials, in pieces.
const PAUSE_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `times` pieces; returns how many were tried.
    fn send(
        compression: &mut Compression,
        piece: &Region,
        times: usize,
        counters: &mut Counters,
    ) -> usize {
        let mut codec = Codec::default();
        let bytes_max = piece.len() * 3 / 4;
        let mut tried = 0;
        for _ in 0..times {
            if compression.expected_bytes(piece.len()) <= bytes_max || compression.is_trial_due() {
                compression.compress(&mut codec, piece, bytes_max, counters);
                tried += 1;
            } else {
                compression.pass();
            }
        }
        tried
    }

    #[test]
    fn incompressible_data_are_tried_less_and_less_and_others_always() {
        let (mut compression, mut counters) = (Compression::default(), Counters::default());
        let zeros = Region::owned(64 << 10);
        let word =
            |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(at);
        let dense: Vec<u8> = (1..8 << 10).flat_map(|at| word(at).to_le_bytes()).collect();
        let dense = Region::from_box(dense.into());
        assert_eq!(send(&mut compression, &zeros, 20, &mut counters), 20);
        assert_eq!((counters.compressed, counters.incompressible_bytes), (20, 0));
        let tried = send(&mut compression, &dense, 1000, &mut counters);
        assert!((10..=30).contains(&tried), "{tried} of 1000 pieces");
        // The first piece was compressed whole, later ones by samples.
        assert_eq!(counters.compressed, 20);
        assert_eq!(
            counters.incompressible_bytes as usize,
            dense.len() + (tried - 1) * COMPRESS_MIN
        );
        let late = send(&mut compression, &zeros, 200, &mut counters);
        assert!(late >= 200 - PAUSE_MAX as usize, "{late} of 200 pieces");
        assert!(compression.expected_bytes(64 << 10) < 1 << 10);
    }
}
