//! Packed bytes: a piece of a message as a Zstandard frame (RFC 8878).
//!
//! One codec, at one level. On a core of 2023, Zstandard's first level packs what scientific programs
//! send at 0.3 to 0.7 GB/s into a quarter to nine tenths of the bytes that LZ4 needs at up to twice that
//! speed. Both keep a link of 118 MB/s busy, and one of 10 MB/s is the faster the less it has to carry; a
//! link of more than some 500 MB/s is not worth packing for with either.

use std::fmt;

use memory::Region;
use zstd::bulk::{Compressor, Decompressor};

/// Packs and unpacks; its tables and memory serve one piece after the other.
#[derive(Default)]
pub struct Packer {
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
    plain: Vec<u8>,
    unpacked: Vec<u8>,
}

impl Packer {
    /// `bytes` in at most `bytes_max`; none where they do not fit.
    pub fn pack(&mut self, bytes: &[u8], bytes_max: usize) -> Option<Box<[u8]>> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL).ok()?),
        };
        let mut packed = Vec::with_capacity(bytes_max);
        compressor.compress_to_buffer(bytes, &mut packed).ok()?;
        (packed.len() <= bytes_max).then(|| packed.into_boxed_slice())
    }

    /// As [`Packer::pack`], wherever the bytes lie. They are read once: who changes them meanwhile gets
    /// some mixture packed.
    pub fn pack_region(&mut self, bytes: &Region, bytes_max: usize) -> Option<Box<[u8]>> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        bytes.append_to(&mut plain);
        let packed = self.pack(&plain, bytes_max);
        self.plain = plain;
        packed
    }

    /// What was packed, if it is `len` bytes, no more than [`UNPACKED_MAX`]; the memory taken for it
    /// is no larger, whatever `packed` says.
    pub fn unpack(&mut self, packed: &[u8], len: usize) -> Option<&[u8]> {
        if len > UNPACKED_MAX {
            return None;
        }
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().ok()?),
        };
        self.unpacked.clear();
        self.unpacked.reserve_exact(len);
        let found = decompressor.decompress_to_buffer(packed, &mut self.unpacked).ok()?;
        (found == len).then_some(&self.unpacked[..])
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("unpacked", &self.unpacked.len()).finish_non_exhaustive()
    }
}

/// The longest piece that is packed, in bytes.
pub const UNPACKED_MAX: usize = 1 << 20;

/// The fastest that still codes by entropy.
const LEVEL: i32 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_repeats_gets_short_and_what_does_not_is_refused() {
        let mut packer = Packer::default();
        let zeros = vec![0; 64 << 10];
        let packed = packer.pack(&zeros, 1000).unwrap();
        assert_eq!(packer.unpack(&packed, zeros.len()), Some(&zeros[..]));
        let mut state = 1u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(64 << 10)
        .collect();
        assert_eq!(packer.pack(&random, random.len() * 95 / 100), None);
        assert_eq!(packer.pack(&zeros, 0), None);
    }

    #[test]
    fn a_wrong_length_is_refused_without_its_memory() {
        let mut packer = Packer::default();
        let bytes = vec![7; 100_000];
        let packed = packer.pack(&bytes, bytes.len()).unwrap();
        for len in [0, 1, 99_999, 100_001, UNPACKED_MAX, UNPACKED_MAX + 1, usize::MAX] {
            assert_eq!(packer.unpack(&packed, len), None, "{len} bytes");
            assert!(packer.unpacked.capacity() <= UNPACKED_MAX);
        }
        assert_eq!(packer.unpack(&packed, bytes.len()), Some(&bytes[..]), "and goes on");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..<_>::default() })]

        #[test]
        fn what_is_packed_comes_back(run in prop::collection::vec(any::<u8>(), 1..300), times in 1..200usize) {
            let bytes = run.repeat(times);
            let mut packer = Packer::default();
            let packed = packer.pack(&bytes, bytes.len() + 64).unwrap();
            prop_assert_eq!(packer.unpack(&packed, bytes.len()), Some(&bytes[..]));
        }

        #[test]
        fn damage_is_refused_or_harmless(
            run in prop::collection::vec(any::<u8>(), 1..300),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = run.repeat(20);
            let mut packer = Packer::default();
            let mut packed = packer.pack(&bytes, bytes.len() + 64).unwrap().to_vec();
            for (at, byte) in damage {
                let at = at.index(packed.len());
                packed[at] = byte;
            }
            packed.truncate(cut.index(packed.len() + 1));
            let unpacked = packer.unpack(&packed, bytes.len());
            prop_assert!(unpacked.is_none_or(|unpacked| unpacked.len() == bytes.len()));
        }

        #[test]
        fn any_bytes_are_refused_or_harmless(packed in prop::collection::vec(any::<u8>(), 0..300), len in 0..5000usize) {
            let mut framed = vec![0x28, 0xb5, 0x2f, 0xfd];
            framed.extend(&packed);
            let mut packer = Packer::default();
            for bytes in [&packed, &framed] {
                let unpacked = packer.unpack(bytes, len);
                prop_assert!(unpacked.is_none_or(|unpacked| unpacked.len() == len));
            }
        }
    }
}
