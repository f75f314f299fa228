//! Whether a reader should write to the lines it has read.
//!
//! A line that two cores hold to read must be given up by both before its owner may write it again;
//! between distant cores that is several times slower than taking it from one core that holds it to
//! write. Between near ones the reader's extra writes cost more than they save. Which cores two
//! processes run on changes, so the writer measures both and keeps to the better.

use std::time::Duration;

/// What writing cost after either kind of reading.
#[derive(Debug, Default)]
pub(crate) struct Takeover {
    /// Mean time to write, in ns per KiB, after readers that only read and after those that took over.
    cost: [Option<f32>; 2],
    frames: u32,
}

impl Takeover {
    /// Whether the reader of the next frame should take its lines over.
    pub fn choose(&mut self) -> bool {
        self.frames = self.frames.wrapping_add(1);
        let better = match self.cost {
            [Some(shared), Some(taken)] => taken * WORTH < shared,
            [_, None] => return true,
            [None, Some(_)] => return false,
        };
        better != self.frames.is_multiple_of(EXPLORE_EVERY)
    }

    /// Writing `len` bytes took so long, after a reader that had (or had not) taken over.
    pub fn learn(&mut self, taken: bool, len: usize, took: Duration) {
        if len < LEN_MIN {
            return;
        }
        let found = took.as_nanos() as f32 / (len as f32 / 1024.0);
        let known = &mut self.cost[usize::from(taken)];
        *known = Some(known.map_or(found, |known| known + (found - known) * WEIGHT));
    }
}

/// Taking over must make writing so much faster, for it makes reading slower.
const WORTH: f32 = 1.5;

/// The other way is tried once in so many frames.
const EXPLORE_EVERY: u32 = 256;

/// Shorter frames say little.
const LEN_MIN: usize = 8 << 10;

/// Weight of the newest measurement.
const WEIGHT: f32 = 0.125;

#[cfg(test)]
mod tests {
    use super::*;

    /// So many of the next frames are taken over.
    fn taken_of(takeover: &mut Takeover, frames: usize) -> usize {
        (0..frames).filter(|_| takeover.choose()).count()
    }

    #[test]
    fn both_ways_are_tried_and_the_better_is_kept_and_the_other_seldom_tried_again() {
        let us = Duration::from_micros;
        let mut takeover = Takeover::default();
        assert!(takeover.choose());
        takeover.learn(true, 64 << 10, us(4));
        assert!(!takeover.choose());
        takeover.learn(false, 64 << 10, us(20));
        assert_eq!(taken_of(&mut takeover, 512), 510);
        // The processes have moved together.
        for _ in 0..32 {
            takeover.learn(false, 64 << 10, us(3));
        }
        assert_eq!(taken_of(&mut takeover, 512), 2);
    }

    #[test]
    fn short_frames_teach_nothing() {
        let mut takeover = Takeover::default();
        takeover.learn(true, 100, Duration::from_secs(1));
        assert_eq!(takeover.cost, [None, None]);
    }
}
