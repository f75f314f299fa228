//! Data taken ahead of the order of the steps.

/// Steps right after a meeting whose data was taken before all ranks had arrived.
#[derive(Clone, Copy, Default)]
pub(super) struct Early {
    /// Index of the meeting's step.
    meeting: usize,
    /// One bit for each following step.
    taken: u64,
}

impl Early {
    /// Maximum number of steps, one per bit of `taken`.
    pub(super) const MOST: usize = 64;

    /// Notes that a step after the meeting has taken its data.
    pub(super) fn insert(&mut self, meeting: usize, step: usize) {
        if self.meeting != meeting {
            // A later meeting: drop the bits of steps before it.
            let passed = (meeting - self.meeting) as u32;
            *self = Self { meeting, taken: self.taken.checked_shr(passed).unwrap_or(0) };
        }
        self.taken |= 1 << (step - meeting - 1);
    }

    /// True if the data of this step was already taken.
    #[inline]
    pub(super) fn takes(self, step: usize) -> bool {
        self.taken != 0
            && (1..=Self::MOST).contains(&step.wrapping_sub(self.meeting))
            && self.taken >> (step - self.meeting - 1) & 1 == 1
    }
}
