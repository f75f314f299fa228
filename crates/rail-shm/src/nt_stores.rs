//! Choice between plain and non-temporal stores for long frames.
//!
//! A reader leaves lines in its cache. A plain store to such a line takes it back, one line at a time. Between
//! distant cores that takes ten times as long as non-temporal stores, and the reader then finds the data sooner too.
//! Between near cores plain stores take half as long, if the buffer cycles through more memory than their caches
//! hold. The cores of two processes change, so the writer measures both and uses the faster.

use std::time::Duration;

/// Measured costs of both kinds of stores.
#[derive(Debug, Default)]
pub(crate) struct NtStores {
    /// Mean time to write, in ns per KiB: plain, non-temporal.
    cost: [Option<f32>; 2],
    frames: u32,
}

impl NtStores {
    /// Minimum length of a measured frame.
    pub const LEN_MIN: usize = 8 << 10;

    /// Returns true if the next frame uses non-temporal stores, and true if its time is to be measured. The rarely
    /// used kind is always measured.
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

    /// True if frames usually use non-temporal stores.
    pub fn pass_caches(&self) -> bool {
        self.better() == Ok(true)
    }

    /// Returns `Ok(true)` if non-temporal stores are better, or `Err` with the kind that was not measured yet.
    fn better(&self) -> Result<bool, bool> {
        match self.cost {
            [Some(plain), Some(past)] => Ok(past * WORTH < plain),
            [None, _] => Err(false),
            [Some(_), None] => Err(true),
        }
    }

    /// Records that writing `len` bytes took `took`, with non-temporal stores if `past`.
    pub fn learn(&mut self, past: bool, len: usize, took: Duration) {
        if len < Self::LEN_MIN {
            return;
        }
        let found = took.as_nanos() as f32 / (len as f32 / 1024.0);
        let known = &mut self.cost[usize::from(past)];
        // Preemption and first-touch page faults lengthen a measurement, so lower ones weigh more.
        let weighed = |known: f32| {
            let weight = if found < known { WEIGHT_OF_LESS } else { WEIGHT };
            known + (found.min(MOST * known) - known) * weight
        };
        *known = Some(known.map_or(found, weighed));
    }
}

/// Minimum speedup of non-temporal stores: between near cores they take as long, and reading is slower then.
const WORTH: f32 = 3.0;

/// Interval, in frames, at which the slower kind is tried.
const EXPLORE_EVERY: u32 = 256;

/// Interval, in frames, of measurements: reading the clock takes as long as the rest of the work for a frame.
const MEASURE_EVERY: u32 = 8;

/// Limit of a measurement, in multiples of the mean.
const MOST: f32 = 8.0;

/// Weight of a measurement above the mean, and of one below it.
const WEIGHT: f32 = 0.125;
const WEIGHT_OF_LESS: f32 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64 << 10;

    /// Returns how many of the next frames use non-temporal stores, and how many are measured.
    fn past_of(nt_stores: &mut NtStores, frames: usize) -> (usize, usize) {
        (0..frames).map(|_| nt_stores.choose()).fold((0, 0), |(past, measured), next| {
            (past + usize::from(next.0), measured + usize::from(next.1))
        })
    }

    #[test]
    fn both_kinds_are_measured_and_the_faster_is_used() {
        let us = Duration::from_micros;
        let mut nt_stores = NtStores::default();
        assert_eq!(nt_stores.choose(), (false, true));
        nt_stores.learn(false, LEN, us(20));
        assert_eq!(nt_stores.choose(), (true, true));
        assert!(!nt_stores.pass_caches(), "not known yet");
        nt_stores.learn(true, LEN, us(5));
        assert!(nt_stores.pass_caches());
        assert_eq!(past_of(&mut nt_stores, 512), (510, 64));
        // The processes have moved together.
        for _ in 0..32 {
            nt_stores.learn(false, LEN, us(3));
        }
        assert!(!nt_stores.pass_caches());
        assert_eq!(past_of(&mut nt_stores, 512), (2, 64));
    }

    #[test]
    fn short_frames_are_not_measured() {
        let mut nt_stores = NtStores::default();
        nt_stores.learn(true, 100, Duration::from_secs(1));
        assert_eq!(nt_stores.cost, [None, None]);
    }
}
