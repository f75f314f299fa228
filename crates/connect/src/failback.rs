//! Failback: after another rail has taken over, the preferred one is retried from time to time and carries frames
//! again once it is up.
//!
//! Nothing is lost, duplicated or reordered: the reopened link is one more link of the peer, and the link that it
//! replaces goes down like any other. The retry interval grows for a rail that is lost again soon.

use std::time::Duration;

use wire::{PeerId, RailId};

use crate::facts::PeerFacts;
use crate::rails::RailSet;

/// A rail that led to a peer and was replaced by another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failback {
    pub peer: PeerId,
    pub rail: RailId,
    /// Time between two retries.
    pause: Duration,
    stage: FailbackStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailbackStage {
    /// Retries at the first check after the pause.
    Waits { since: Duration },
    /// Waits for the link of a retry.
    Tries { since: Duration },
    /// Carries frames again.
    Leads { since: Duration },
}

/// Next action for a replaced rail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FailbackStep {
    Nothing,
    /// Ask the rail for a link to this address of the peer.
    Connect(Vec<u8>),
    /// Close the links of other teams.
    Leads,
    /// Close the attempt.
    GivesUp,
    /// Forget the rail.
    Ends,
}

impl Failback {
    /// A rail that was just replaced. `unit` is the time after which other rails are tried.
    pub fn new(peer: PeerId, rail: RailId, now: Duration, unit: Duration) -> Self {
        let stage = FailbackStage::Waits { since: now };
        Self { peer, rail, pause: PAUSE_FIRST * unit, stage }
    }

    /// True if a link of the rail is awaited.
    pub fn is_trying(&self) -> bool {
        matches!(self.stage, FailbackStage::Tries { .. })
    }

    /// Doubles the pause before the next retry, up to a limit.
    pub fn put_off(&mut self, now: Duration, unit: Duration) {
        self.pause = (2 * self.pause).min(PAUSE_MAX * unit);
        self.stage = FailbackStage::Waits { since: now };
    }

    /// Advances the failback of a peer with links on `rails`.
    pub fn advance(
        &mut self,
        (now, unit): (Duration, Duration),
        rails: RailSet,
        facts: &mut impl PeerFacts,
    ) -> FailbackStep {
        let Self { peer, rail, pause, stage } = *self;
        let has_passed = |since: Duration, time: Duration| now.saturating_sub(since) >= time;
        match stage {
            // Without any link, all rails are tried, this one too.
            FailbackStage::Waits { .. } | FailbackStage::Tries { .. } if rails.is_empty() => {
                self.stage = FailbackStage::Waits { since: now };
            }
            FailbackStage::Waits { since } if has_passed(since, pause) => {
                let addresses = facts.addresses(peer);
                let place = |rail: RailId| addresses.iter().position(|(own, _)| *own == rail);
                let Some(at) = place(rail) else { return FailbackStep::Ends };
                let mut others = rails.iter().filter(|other| *other != rail).peekable();
                if others.peek().is_none() {
                    // The other end has already failed back.
                    self.stage = FailbackStage::Leads { since: now };
                    return FailbackStep::Nothing;
                }
                if others.filter_map(place).all(|other| other < at) {
                    return FailbackStep::Ends;
                }
                self.stage = FailbackStage::Tries { since: now };
                return FailbackStep::Connect(addresses[at].1.clone());
            }
            FailbackStage::Tries { .. } if facts.carries(peer, rail) => {
                self.stage = FailbackStage::Leads { since: now };
                return FailbackStep::Leads;
            }
            FailbackStage::Tries { since } if has_passed(since, TRY * unit) => {
                if !rails.contains(rail) {
                    self.put_off(now, unit);
                    return FailbackStep::GivesUp;
                }
            }
            FailbackStage::Leads { since } if has_passed(since, PAUSE_MAX * unit) => {
                return FailbackStep::Ends;
            }
            FailbackStage::Waits { .. }
            | FailbackStage::Tries { .. }
            | FailbackStage::Leads { .. } => {}
        }
        FailbackStep::Nothing
    }
}

/// Pause between the loss of a rail and its first retry, in units of the time after which other rails are tried
/// (1.5 s).
const PAUSE_FIRST: u32 = 7;
/// Maximum pause between two retries, in the same units; each pause is twice the last one. A rail that carries
/// frames for this long counts as never lost.
const PAUSE_MAX: u32 = 200;
/// Maximum duration of a retry, in the same units.
const TRY: u32 = 3;
