//! The link that alone has spoken lately.
//!
//! To ask epoll costs half of what it costs to read a socket that has nothing, however many there are; but what it
//! finds is to be read besides. So only a link is read unasked from which all of the last frames came, as where two exchange
//! messages in turn.

/// The link that spoke last, and how that went on.
#[derive(Debug, Default)]
pub(super) struct Speaker {
    key: u64,
    /// Times in a row that it was this one that spoke.
    times: u32,
    /// Times that it was read in vain since.
    vain: u32,
}

impl Speaker {
    /// A link has spoken.
    pub fn heard(&mut self, key: u64) {
        self.times = if self.key == key { self.times.saturating_add(1) } else { 0 };
        self.key = key;
        self.vain = 0;
    }

    /// The link to be read unasked, if there is one.
    pub fn alone(&self) -> Option<u64> {
        (self.times >= TIMES).then_some(self.key)
    }

    /// It was read in vain.
    pub fn was_silent(&mut self) {
        self.vain += 1;
        if self.vain >= VAIN_MAX {
            self.times = 0;
        }
    }
}

/// Who has spoken so many times alone is likely to be the next.
const TIMES: u32 = 8;
/// Who was silent for so long, some milliseconds, is not expected any more.
const VAIN_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_speaks_alone_is_read_unasked_until_another_does_or_it_is_silent() {
        let mut speaker = Speaker::default();
        let alone = |speaker: &mut Speaker, key| {
            (0..=TIMES).for_each(|_| speaker.heard(key));
            assert_eq!(speaker.alone(), Some(key));
        };
        assert_eq!(speaker.alone(), None);
        alone(&mut speaker, 7);
        speaker.heard(8);
        assert_eq!(speaker.alone(), None);
        alone(&mut speaker, 7);
        (1..VAIN_MAX).for_each(|_| speaker.was_silent());
        assert_eq!(speaker.alone(), Some(7));
        speaker.was_silent();
        assert_eq!(speaker.alone(), None);
    }
}
