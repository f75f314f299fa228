//! Contents of messages.

use std::ops::Range;

use memory::Region;
use memory::simulated_device::SimulatedDevice;
use testing::Random;

/// Compressibility of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Random bytes.
    Dense,
    /// Compresses to a third or less.
    Sparse,
    /// Some data compress well, some not, some in part.
    Mixed,
}

impl Content {
    /// Returns the bytes of a message, determined by its number. Those of every fourth one are in a device.
    pub fn of(self, message: usize, len: usize) -> Region {
        let bytes = self.bytes_of(message, len);
        match message % 4 {
            3 => on_device(&bytes, message as u64),
            _ => Region::from_box(bytes.into()),
        }
    }

    /// Returns the bytes of a message.
    pub fn bytes_of(self, message: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut words = self.words(message);
        let mut chunks = bytes.chunks_exact_mut(WORD_LEN);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&words().to_le_bytes());
        }
        let rest = chunks.into_remainder();
        rest.copy_from_slice(&words().to_le_bytes()[..rest.len()]);
        bytes
    }

    /// True if `region` begins with the first `len` bytes of a message.
    pub fn is_in(self, message: usize, region: &Region, len: usize) -> bool {
        let mut words = self.words(message);
        in_parts(region, 0..len, |part| {
            let chunks = part.chunks_exact(WORD_LEN);
            let rest = chunks.remainder();
            let is_whole = chunks.into_iter().all(|chunk| *chunk == words().to_le_bytes());
            is_whole && (rest.is_empty() || *rest == words().to_le_bytes()[..rest.len()])
        })
    }

    fn words(self, message: usize) -> impl FnMut() -> u64 {
        let mut random = Random::new(message as u64);
        let sparse = match self {
            Self::Dense => 0,
            Self::Sparse => 8,
            Self::Mixed => random.pick(&[0, 4, 8]),
        };
        move || {
            let word = random.next();
            let is_zero = word >> 32 & 7 < sparse && word >> 48 & 3 > 0;
            if is_zero { 0 } else { word }
        }
    }
}

/// Memory filled with one value. Some lengths are in a device.
pub fn filled(len: usize, value: u8) -> Region {
    let bytes = vec![value; len];
    match len % 3 {
        1 => on_device(&bytes, len as u64),
        _ => Region::from_box(bytes.into()),
    }
}

fn on_device(bytes: &[u8], seed: u64) -> Region {
    let device = SimulatedDevice::new(bytes.len(), seed);
    device.fill(bytes);
    device.bytes(0, bytes.len())
}

/// True if a region holds one value from `begin` on.
pub fn is_filled(region: &Region, begin: usize, value: u8) -> bool {
    in_parts(region, begin..region.len(), |part| part.iter().all(|&byte| byte == value))
}

/// Overwrites a region with one value.
pub fn fill(region: &Region, value: u8) {
    let part = [value; LINK_DOWN_LEN];
    for at in (0..region.len()).step_by(LINK_DOWN_LEN) {
        region.write(at, &part[..LINK_DOWN_LEN.min(region.len() - at)]);
    }
}

/// True if all parts of a range of a region are right, checked one after another.
fn in_parts(region: &Region, range: Range<usize>, mut is_right: impl FnMut(&[u8]) -> bool) -> bool {
    let mut part = [0; LINK_DOWN_LEN];
    range.clone().step_by(LINK_DOWN_LEN).all(|at| {
        let part = &mut part[..LINK_DOWN_LEN.min(range.end - at)];
        region.read(at, part);
        is_right(part)
    })
}

const WORD_LEN: usize = 8;

/// Whole words.
const LINK_DOWN_LEN: usize = 4096;
