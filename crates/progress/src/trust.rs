//! Whether something that may be in vain is worth trying, by how it went lately.

use std::sync::atomic::{AtomicU32, Ordering};

/// Grows with tries that paid, and lasts for some that did not; without it one in [`TRY_EVERY`] is tried all the
/// same. Guarded as the core is.
#[derive(Debug)]
pub(crate) struct Trust {
    level: AtomicU32,
    /// Since one was tried all the same.
    untried: AtomicU32,
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
        Self { level: AtomicU32::new(LEVEL_MAX), untried: AtomicU32::new(0) }
    }

    /// As if it had paid.
    pub fn restore(&self) {
        self.level.store(LEVEL_MAX, Ordering::Relaxed);
    }

    /// What to do this time; to be followed by [`Trust::learn`] where it was tried.
    pub fn ask(&self) -> Try {
        if self.level.load(Ordering::Relaxed) > 0 {
            return Try::Yes;
        }
        let untried = self.untried.load(Ordering::Relaxed) + 1;
        self.untried.store(untried % TRY_EVERY, Ordering::Relaxed);
        if untried == TRY_EVERY { Try::Again } else { Try::No }
    }

    /// Whether it paid.
    pub fn learn(&self, paid: bool) {
        let level = self.level.load(Ordering::Relaxed);
        let level = if paid { (level + GAIN).min(LEVEL_MAX) } else { level.saturating_sub(1) };
        self.level.store(level, Ordering::Relaxed);
    }
}

/// So many may be in vain: at most, and for one that paid.
const LEVEL_MAX: u32 = 64;
const GAIN: u32 = 4;

const TRY_EVERY: u32 = 16;

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
