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
        match self.better() {
            Ok(better) => better != self.frames.is_multiple_of(EXPLORE_EVERY),
            Err(unknown) => unknown,
        }
    }

    /// Whether it is to be measured what writing costs after a reader that had (or had not) taken over: always
    /// where that is seldom tried.
    pub fn measures(&self, taken: bool) -> bool {
        self.frames.is_multiple_of(MEASURE_EVERY) || self.better() != Ok(taken)
    }

    /// Which of the two is better, or which is not known.
    fn better(&self) -> Result<bool, bool> {
        match self.cost {
            [Some(shared), Some(taken)] => Ok(taken * WORTH < shared),
            [_, None] => Err(true),
            [None, Some(_)] => Err(false),
        }
    }

    /// Writing `len` bytes took so long, after a reader that had (or had not) taken over.
    pub fn learn(&mut self, taken: bool, len: usize, took: Duration) {
        if len < LEN_MIN {
            return;
        }
        let found = took.as_nanos() as f32 / (len as f32 / 1024.0);
        let known = &mut self.cost[usize::from(taken)];
        // Who was put aside meanwhile took longer for another reason.
        let weighed = |known: f32| known + (found.min(MOST * known) - known) * WEIGHT;
        *known = Some(known.map_or(found, weighed));
    }
}

/// Taking over must make writing so much faster, for it makes reading slower.
const WORTH: f32 = 1.5;

/// The other way is tried once in so many frames.
const EXPLORE_EVERY: u32 = 256;

/// The clock is read for one in so many frames: it takes as long as the rest of the work for one.
const MEASURE_EVERY: u32 = 8;

/// Shorter frames say little.
const LEN_MIN: usize = 8 << 10;

/// No measurement counts for more than so many times the mean.
const MOST: f32 = 8.0;

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
        assert!(takeover.measures(false), "what is seldom tried");
        let measured = (0..80).filter(|_| takeover.choose() && takeover.measures(true)).count();
        assert_eq!(measured, 10);
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
