//! Whether something that may be in vain is worth trying, by how it went lately.

use std::sync::atomic::{AtomicU32, Ordering};

/// Grows with tries that paid, and lasts for some that did not; without it one is tried all the same now and then, which
/// is the more seldom the longer that goes on. Guarded as the core is.
#[derive(Debug)]
pub(crate) struct Trust {
    level: AtomicU32,
    /// Since one was tried all the same.
    untried: AtomicU32,
    /// One in so many is.
    every: AtomicU32,
}

/// What to do this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// It pays.
    Yes,
    /// It has been in vain, and may be otherwise now.
    Again,
    /// It is in vain.
    No,
}

impl Trust {
    /// As if it had paid.
    pub fn new() -> Self {
        let [level, untried, every] = [LEVEL_MAX, 0, TRY_EVERY].map(AtomicU32::new);
        Self { level, untried, every }
    }

    /// As if it had paid.
    pub fn restore(&self) {
        self.level.store(LEVEL_MAX, Ordering::Relaxed);
        self.every.store(TRY_EVERY, Ordering::Relaxed);
    }

    /// What to do this time; to be followed by [`Trust::learn`] where it was tried.
    pub fn ask(&self) -> Try {
        if self.level.load(Ordering::Relaxed) > 0 {
            return Try::Yes;
        }
        let untried = self.untried.load(Ordering::Relaxed) + 1;
        let is_time = untried >= self.every.load(Ordering::Relaxed);
        self.untried.store(if is_time { 0 } else { untried }, Ordering::Relaxed);
        if is_time { Try::Again } else { Try::No }
    }

    /// Whether it paid.
    pub fn learn(&self, paid: bool) {
        let level = self.level.load(Ordering::Relaxed);
        let every = match (paid, level) {
            (true, _) => TRY_EVERY,
            (false, 0) => (2 * self.every.load(Ordering::Relaxed)).min(TRY_EVERY_MAX),
            (false, _) => self.every.load(Ordering::Relaxed),
        };
        self.every.store(every, Ordering::Relaxed);
        let level = if paid { (level + GAIN).min(LEVEL_MAX) } else { level.saturating_sub(1) };
        self.level.store(level, Ordering::Relaxed);
    }
}

/// So many may be in vain: at most, and for one that paid.
const LEVEL_MAX: u32 = 64;
const GAIN: u32 = 4;

/// One in so many is tried all the same: at first…
const TRY_EVERY: u32 = 16;
/// …and at last.
const TRY_EVERY_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_is_tried_now_and_then_only() {
        let trust = Trust::new();
        let asked = |times: u32, answer| (0..times).filter(|_| trust.ask() == answer).count();
        for _ in 0..LEVEL_MAX {
            assert_eq!(trust.ask(), Try::Yes);
            trust.learn(false);
        }
        assert_eq!(asked(3 * TRY_EVERY, Try::Again), 3);
        for every in [TRY_EVERY, 2 * TRY_EVERY, 4 * TRY_EVERY] {
            assert_eq!(asked(3 * every, Try::Again), 3);
            trust.learn(false);
        }
        (0..10).for_each(|_| trust.learn(false));
        assert_eq!(asked(3 * TRY_EVERY_MAX, Try::Again), 3);
        trust.learn(true);
        for _ in 0..GAIN {
            assert_eq!(trust.ask(), Try::Yes);
            trust.learn(false);
        }
        assert_eq!(asked(TRY_EVERY - 1, Try::No), TRY_EVERY as usize - 1);
        trust.restore();
        assert_eq!(trust.ask(), Try::Yes);
    }
}
