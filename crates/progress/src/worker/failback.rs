//! Failback: after another rail has taken over, the preferred one is retried from time to time and carries frames
//! again once it is up.
//!
//! Nothing is lost, duplicated or reordered: the reopened link is one more link of the peer, and the link that it
//! replaces goes down like any other. The retry interval grows for a rail that is lost again soon.

use rail::Fault;
use wire::{PeerId, RailId};

use super::Worker;
use super::routes::Route;

/// A rail that led to a peer and was replaced by another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedOver {
    peer: PeerId,
    rail: RailId,
    /// Time between two retries.
    pause_ns: u64,
    stage: FailbackStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailbackStage {
    /// Retries at the first check after the pause.
    Waits { since_ns: u64 },
    /// Waits for the link of a retry.
    Tries { since_ns: u64 },
    /// Carries frames again.
    Leads { since_ns: u64 },
}

impl FailedOver {
    /// Doubles the pause before the next retry, up to a limit.
    fn put_off(&mut self, now_ns: u64, pause_max_ns: u64) {
        self.pause_ns = (2 * self.pause_ns).min(pause_max_ns);
        self.stage = FailbackStage::Waits { since_ns: now_ns };
    }
}

impl Worker {
    /// Notes that rails of another team have replaced a rail.
    pub(super) fn note_left(&mut self, rail: RailId, peer: PeerId) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        let unit_ns = self.engine.detour_ns();
        match self.failed_over.iter_mut().find(|one| (one.peer, one.rail) == (peer, rail)) {
            Some(known) => known.put_off(now_ns, PAUSE_MAX * unit_ns),
            None => {
                let (pause_ns, stage) =
                    (PAUSE_FIRST * unit_ns, FailbackStage::Waits { since_ns: now_ns });
                self.failed_over.push(FailedOver { peer, rail, pause_ns, stage });
            }
        }
    }

    /// True if a replaced rail is being retried.
    pub(super) fn is_returning(&self) -> bool {
        self.failed_over.iter().any(|one| matches!(one.stage, FailbackStage::Tries { .. }))
    }

    /// Retries the replaced rails whose pause is over, and closes their substitutes once they are up.
    pub(super) fn retry_left_rails(&mut self, now_ns: u64) {
        let mut at = 0;
        while let Some(&(mut one)) = self.failed_over.get(at) {
            // Rails replaced meanwhile are appended.
            if self.follow(&mut one, now_ns) {
                self.failed_over[at] = one;
                at += 1;
            } else {
                self.failed_over.swap_remove(at);
            }
        }
    }

    /// Advances one failback; false if it is over.
    fn follow(&mut self, one: &mut FailedOver, now_ns: u64) -> bool {
        let FailedOver { peer, rail, pause_ns, stage } = *one;
        let unit_ns = self.engine.detour_ns();
        let has_passed = |since_ns: u64, for_ns: u64| now_ns.saturating_sub(since_ns) >= for_ns;
        let rails = match self.routes.get(peer.0 as usize) {
            Some(Route::Open(rails)) => *rails,
            Some(Route::Closed | Route::Opening { .. } | Route::Failed) | None => return false,
        };
        match stage {
            // Without any link, all rails are tried, this one too.
            FailbackStage::Waits { .. } | FailbackStage::Tries { .. } if rails.members == 0 => {
                one.stage = FailbackStage::Waits { since_ns: now_ns };
            }
            FailbackStage::Waits { since_ns } if has_passed(since_ns, pause_ns) => {
                let addresses = self.directory.addresses(peer).unwrap_or_default();
                let place = |rail: RailId| {
                    let name = self.rails[rail.0 as usize].name;
                    addresses.iter().position(|(own, _)| own == name)
                };
                let Some(at) = place(rail) else { return false };
                let mut others = rails.iter().filter(|other| *other != rail).peekable();
                if others.peek().is_none() {
                    // The other end has already failed back.
                    one.stage = FailbackStage::Leads { since_ns: now_ns };
                    return true;
                }
                if others.filter_map(place).all(|other| other < at) {
                    return false;
                }
                let is_asked = self.rails[rail.0 as usize].rail.connect(peer, &addresses[at].1);
                match is_asked {
                    Ok(()) => one.stage = FailbackStage::Tries { since_ns: now_ns },
                    Err(_) => one.put_off(now_ns, PAUSE_MAX * unit_ns),
                }
                self.has_loose_ends = true;
            }
            FailbackStage::Tries { .. } if self.engine.carries(peer, rail) => {
                one.stage = FailbackStage::Leads { since_ns: now_ns };
                self.close_substitutes(rail, peer);
            }
            FailbackStage::Tries { since_ns } if has_passed(since_ns, TRY * unit_ns) => {
                if !rails.contains(rail) {
                    self.rails[rail.0 as usize].rail.disconnect(peer);
                    one.put_off(now_ns, PAUSE_MAX * unit_ns);
                }
            }
            FailbackStage::Leads { since_ns } if has_passed(since_ns, PAUSE_MAX * unit_ns) => {
                return false;
            }
            FailbackStage::Waits { .. }
            | FailbackStage::Tries { .. }
            | FailbackStage::Leads { .. } => {}
        }
        true
    }

    /// Closes the links of other teams because a preferred rail is up again.
    fn close_substitutes(&mut self, rail: RailId, peer: PeerId) {
        let team = |rail: RailId| self.rails[rail.0 as usize].team;
        let Some(Route::Open(rails)) = self.routes.get(peer.0 as usize) else { return };
        let others: Vec<_> = rails.iter().filter(|other| team(*other) != team(rail)).collect();
        let name = self.rails[rail.0 as usize].name;
        self.journal.print(&[format!("{name} to rank {} is back, and leads again", peer.0)]);
        for other in others {
            self.close_link(other, peer, Fault::Lost(format!("{name} leads there again")));
        }
    }
}

/// Pause between the loss of a rail and its first retry, in units of the time after which other rails are tried
/// (1.5 s).
const PAUSE_FIRST: u64 = 7;
/// Maximum pause between two retries, in the same units; each pause is twice the last one. A rail that carries
/// frames for this long counts as never lost.
const PAUSE_MAX: u64 = 200;
/// Maximum duration of a retry, in the same units.
const TRY: u64 = 3;
