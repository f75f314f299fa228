//! How long a waiting thread spins before it sleeps.

use std::time::{Duration, Instant};

/// How a thread waits when nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Polls without giving up the core.
    pub spin: Duration,
    /// After spinning, how often the core is yielded between polls before sleeping.
    pub yields: u32,
}

impl Policy {
    /// The policy for a process that shares `cores` with `ranks` ranks of the job.
    ///
    /// With a core each, spinning as long as a sleep and a wake-up cost loses at most a factor of two
    /// against knowing the future (the ski-rental argument); the bound here is a generous multiple of
    /// it, so that a peer that computes shortly is still met awake. With ranks beyond cores a spinning
    /// rank only keeps the one it waits for from running: the core is yielded at once.
    pub fn for_node(ranks: usize, cores: usize) -> Self {
        if ranks > cores {
            Self { spin: Duration::ZERO, yields: CROWDED_YIELDS }
        } else {
            Self { spin: SPIN, yields: 0 }
        }
    }

    /// Whether a waiting thread keeps its core for a while.
    #[inline]
    pub fn has_a_core(&self) -> bool {
        !self.spin.is_zero()
    }
}

/// The course of one wait.
pub(crate) struct Patience {
    policy: Policy,
    since: Option<Instant>,
    polls: u32,
    yields: u32,
}

/// What to do before polling again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Spin,
    /// Yield the core to a peer that runs on the same one, else spin.
    Look,
    Yield,
    Sleep,
}

impl Patience {
    pub fn new(policy: Policy) -> Self {
        Self { policy, since: None, polls: 0, yields: 0 }
    }

    /// Something happened: the patience is fresh again.
    pub fn renew(&mut self) {
        *self = Self::new(self.policy);
    }

    /// Nothing happened at the last poll.
    pub fn next(&mut self) -> Next {
        if !self.policy.spin.is_zero() {
            self.polls += 1;
            if !self.polls.is_multiple_of(POLLS_PER_CLOCK) {
                return Next::Spin;
            }
            let now = Instant::now();
            if now - *self.since.get_or_insert(now) < self.policy.spin {
                return Next::Look;
            }
        }
        if self.yields < self.policy.yields {
            self.yields += 1;
            return Next::Yield;
        }
        Next::Sleep
    }
}

/// How long a rank with a core of its own spins: some tens of sleep-and-wake cycles (3–5 µs each).
const SPIN: Duration = Duration::from_micros(200);

/// How often a rank without a core of its own lets the others run before it sleeps.
const CROWDED_YIELDS: u32 = 16;

/// The clock is read once in so many polls.
const POLLS_PER_CLOCK: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_rank_yields_and_then_sleeps() {
        let mut patience = Patience::new(Policy::for_node(3, 2));
        for _ in 0..CROWDED_YIELDS {
            assert_eq!(patience.next(), Next::Yield);
        }
        assert_eq!(patience.next(), Next::Sleep);
        patience.renew();
        assert_eq!(patience.next(), Next::Yield);
    }

    #[test]
    fn a_rank_with_a_core_spins_first_and_sleeps_in_the_end() {
        let mut patience = Patience::new(Policy { spin: Duration::from_nanos(1), yields: 0 });
        assert_eq!(patience.next(), Next::Spin);
        let outcome =
            (0..10 * POLLS_PER_CLOCK).map(|_| patience.next()).find(|n| *n == Next::Sleep);
        assert_eq!(outcome, Some(Next::Sleep));
    }
}
