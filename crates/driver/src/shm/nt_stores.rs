//! Whether long frames are written past the caches.
//!
//! A reader leaves behind lines that its own cache holds as well. To write there again takes them back one by one, which
//! between distant cores is ten times as long as to write past all caches (non-temporal stores), where the reader then finds
//! what was written sooner, too. Between near ones, by a memory that goes round through more than their caches hold, plain
//! stores take half as long as those. Which cores two processes run on changes, so the writer measures both and keeps to the
//! better.

use std::time::Duration;

/// What either kind of writing costs.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// Mean time to write, in ns per KiB: plainly, and past the caches.
    cost: [Option<f32>; 2],
    frames: u32,
}

impl Stores {
    /// Shorter frames say little.
    pub const LEN_MIN: usize = 8 << 10;

    /// Whether the next frame is to be written past the caches, and whether what that costs is to be measured: always
    /// where it is seldom tried.
    pub fn choose(&mut self) -> (bool, bool) {
        self.frames = self.frames.wrapping_add(1);
        match self.better() {
            Ok(better) => {
                let is_tried = self.frames.is_multiple_of(EXPLORE_EVERY);
                (better != is_tried, is_tried || self.frames.is_multiple_of(MEASURE_EVERY))
            }
            Err(unknown) => (unknown, true),
        }
    }

    /// Whether frames are usually written past the caches.
    pub fn pass_caches(&self) -> bool {
        self.better() == Ok(true)
    }

    /// Which of the two is better, or which is not known.
    fn better(&self) -> Result<bool, bool> {
        match self.cost {
            [Some(plain), Some(past)] => Ok(past * WORTH < plain),
            [None, _] => Err(false),
            [Some(_), None] => Err(true),
        }
    }

    /// To write `len` bytes plainly, or past the caches, took so long.
    pub fn learn(&mut self, past: bool, len: usize, took: Duration) {
        if len < Self::LEN_MIN {
            return;
        }
        let found = took.as_nanos() as f32 / (len as f32 / 1024.0);
        let known = &mut self.cost[usize::from(past)];
        // Who was put aside meanwhile, or touched memory for the first time, took longer for another reason.
        let weighed = |known: f32| {
            let weight = if found < known { WEIGHT_OF_LESS } else { WEIGHT };
            known + (found.min(MOST * known) - known) * weight
        };
        *known = Some(known.map_or(found, weighed));
    }
}

/// Past the caches writing must be so much faster: between near cores it takes as long, and reading is slower then.
const WORTH: f32 = 3.0;

/// The other way is tried once in so many frames.
const EXPLORE_EVERY: u32 = 256;

/// The clock is read for one in so many frames: it takes as long as the rest of the work for one.
const MEASURE_EVERY: u32 = 8;

/// No measurement counts for more than so many times the mean.
const MOST: f32 = 8.0;

/// Weight of the newest measurement, and where it is less than the mean.
const WEIGHT: f32 = 0.125;
const WEIGHT_OF_LESS: f32 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64 << 10;

    /// So many of the next frames are written past the caches, and so many are measured.
    fn past_of(stores: &mut Stores, frames: usize) -> (usize, usize) {
        (0..frames).map(|_| stores.choose()).fold((0, 0), |(past, measured), next| {
            (past + usize::from(next.0), measured + usize::from(next.1))
        })
    }

    #[test]
    fn both_ways_are_tried_and_the_better_is_kept_and_the_other_seldom_tried_again() {
        let us = Duration::from_micros;
        let mut stores = Stores::default();
        assert_eq!(stores.choose(), (false, true));
        stores.learn(false, LEN, us(20));
        assert_eq!(stores.choose(), (true, true));
        assert!(!stores.pass_caches(), "not known yet");
        stores.learn(true, LEN, us(5));
        assert!(stores.pass_caches());
        assert_eq!(past_of(&mut stores, 512), (510, 64));
        // The processes have moved together.
        for _ in 0..32 {
            stores.learn(false, LEN, us(3));
        }
        assert!(!stores.pass_caches());
        assert_eq!(past_of(&mut stores, 512), (2, 64));
    }

    #[test]
    fn short_frames_teach_nothing() {
        let mut stores = Stores::default();
        stores.learn(true, 100, Duration::from_secs(1));
        assert_eq!(stores.cost, [None, None]);
    }
}
