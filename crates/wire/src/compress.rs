//! Compression of message pieces into Zstandard frames (RFC 8878).
//!
//! There is one codec, at one level. On a CPU core of 2023, Zstandard's level 1 compresses typical
//! scientific data at 0.3 to 0.7 GB/s. Its output is a quarter to nine tenths the size of LZ4's,
//! which is up to twice as fast. Both keep a link of 118 MB/s busy; on one of 10 MB/s the smaller
//! output wins. Above some 500 MB/s, compression pays with neither.

use std::fmt;

use memory::Region;
use zstd::bulk::{Compressor, Decompressor};

/// Compressor and decompressor; tables and buffers are reused from piece to piece.
#[derive(Default)]
pub struct Codec {
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
    plain: Vec<u8>,
    decompressed: Vec<u8>,
}

impl Codec {
    /// Compresses `bytes` to at most `bytes_max`; `None` if they do not fit.
    pub fn compress(&mut self, bytes: &[u8], bytes_max: usize) -> Option<Box<[u8]>> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL).ok()?),
        };
        let mut compressed = Vec::with_capacity(bytes_max);
        compressor.compress_to_buffer(bytes, &mut compressed).ok()?;
        (compressed.len() <= bytes_max).then(|| compressed.into_boxed_slice())
    }

    /// Compresses a region like [`Codec::compress`]. Bytes are read once, so a concurrent change
    /// yields a compressed mixture.
    pub fn compress_region(&mut self, bytes: &Region, bytes_max: usize) -> Option<Box<[u8]>> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        bytes.append_to(&mut plain);
        let compressed = self.compress(&plain, bytes_max);
        self.plain = plain;
        compressed
    }

    /// Decompresses to exactly `len` bytes, at most [`UNCOMPRESSED_MAX`]; `None` otherwise. Memory
    /// use is bounded by `len`, whatever `compressed` claims.
    pub fn decompress(&mut self, compressed: &[u8], len: usize) -> Option<&[u8]> {
        if len > UNCOMPRESSED_MAX {
            return None;
        }
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().ok()?),
        };
        self.decompressed.clear();
        self.decompressed.reserve_exact(len);
        let found = decompressor.decompress_to_buffer(compressed, &mut self.decompressed).ok()?;
        (found == len).then_some(&self.decompressed[..])
    }
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("decompressed", &self.decompressed.len())
            .finish_non_exhaustive()
    }
}

/// Longest piece that is compressed, in bytes.
pub const UNCOMPRESSED_MAX: usize = 1 << 20;

/// Fastest level that still uses entropy coding.
const LEVEL: i32 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repetitive_data_shrinks_and_random_data_is_refused() {
        let mut compressor = Codec::default();
        let zeros = vec![0; 64 << 10];
        let compressed = compressor.compress(&zeros, 1000).unwrap();
        assert_eq!(compressor.decompress(&compressed, zeros.len()), Some(&zeros[..]));
        let mut state = 1u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(64 << 10)
        .collect();
        assert_eq!(compressor.compress(&random, random.len() * 95 / 100), None);
        assert_eq!(compressor.compress(&zeros, 0), None);
    }

    #[test]
    fn a_wrong_length_is_refused_without_its_memory() {
        let mut compressor = Codec::default();
        let bytes = vec![7; 100_000];
        let compressed = compressor.compress(&bytes, bytes.len()).unwrap();
        for len in [0, 1, 99_999, 100_001, UNCOMPRESSED_MAX, UNCOMPRESSED_MAX + 1, usize::MAX] {
            assert_eq!(compressor.decompress(&compressed, len), None, "{len} bytes");
            assert!(compressor.decompressed.capacity() <= UNCOMPRESSED_MAX);
        }
        assert_eq!(
            compressor.decompress(&compressed, bytes.len()),
            Some(&bytes[..]),
            "and goes on"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..<_>::default() })]

        #[test]
        fn compressed_data_is_restored(run in prop::collection::vec(any::<u8>(), 1..300), times in 1..200usize) {
            let bytes = run.repeat(times);
            let mut compressor = Codec::default();
            let compressed = compressor.compress(&bytes, bytes.len() + 64).unwrap();
            prop_assert_eq!(compressor.decompress(&compressed, bytes.len()), Some(&bytes[..]));
        }

        #[test]
        fn damage_is_refused_or_harmless(
            run in prop::collection::vec(any::<u8>(), 1..300),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = run.repeat(20);
            let mut compressor = Codec::default();
            let mut compressed = compressor.compress(&bytes, bytes.len() + 64).unwrap().to_vec();
            for (index, byte) in damage {
                let offset = index.index(compressed.len());
                compressed[offset] = byte;
            }
            compressed.truncate(cut.index(compressed.len() + 1));
            let decompressed = compressor.decompress(&compressed, bytes.len());
            prop_assert!(decompressed.is_none_or(|decompressed| decompressed.len() == bytes.len()));
        }

        #[test]
        fn any_bytes_are_refused_or_harmless(compressed in prop::collection::vec(any::<u8>(), 0..300), len in 0..5000usize) {
            let mut framed = vec![0x28, 0xb5, 0x2f, 0xfd];
            framed.extend(&compressed);
            let mut compressor = Codec::default();
            for bytes in [&compressed, &framed] {
                let decompressed = compressor.decompress(bytes, len);
                prop_assert!(decompressed.is_none_or(|decompressed| decompressed.len() == len));
            }
        }
    }
}
