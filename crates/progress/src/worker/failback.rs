//! The way back to a rail that was left: once another has taken over, the preferred one is tried now and then beside it,
//! and carries again when it leads there.
//!
//! Nothing is lost or doubled by that, and nothing overtaken: the link that opens is one more of the peer's, and the one
//! that is left then is lost like any other. A rail that is lost again soon after is tried ever more rarely.

use driver::Fault;
use wire::{PeerId, RailId};

use super::Worker;
use super::routes::Route;

/// A rail that led to a peer, and that another has taken the place of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    peer: PeerId,
    rail: RailId,
    /// From one try to the next.
    pause_ns: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is tried at the next look from this time on; at none that was told before the first.
    Waits { since_ns: u64 },
    /// It is being tried.
    Tries { since_ns: u64 },
    /// It leads again.
    Leads { since_ns: u64 },
}

impl Left {
    /// Waits for longer than before.
    fn put_off(&mut self, now_ns: u64, pause_max_ns: u64) {
        self.pause_ns = (2 * self.pause_ns).min(pause_max_ns);
        self.stage = Stage::Waits { since_ns: now_ns };
    }
}

impl Worker {
    /// Others than the rail's own kind carry what it did.
    pub(super) fn note_left(&mut self, rail: RailId, peer: PeerId) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        let unit_ns = self.engine.detour_ns();
        match self.left.iter_mut().find(|one| (one.peer, one.rail) == (peer, rail)) {
            Some(known) => known.put_off(now_ns, PAUSE_MAX * unit_ns),
            None => {
                let (pause_ns, stage) = (PAUSE_FIRST * unit_ns, Stage::Waits { since_ns: now_ns });
                self.left.push(Left { peer, rail, pause_ns, stage });
            }
        }
    }

    /// Whether a rail that was left is being tried.
    pub(super) fn is_returning(&self) -> bool {
        self.left.iter().any(|one| matches!(one.stage, Stage::Tries { .. }))
    }

    /// Tries the rails that were left whose time has come, and leaves those that took their place when they lead there.
    pub(super) fn look_back(&mut self, now_ns: u64) {
        let mut at = 0;
        while let Some(&(mut one)) = self.left.get(at) {
            // Those that are left meanwhile come behind.
            if self.follow(&mut one, now_ns) {
                self.left[at] = one;
                at += 1;
            } else {
                self.left.swap_remove(at);
            }
        }
    }

    /// Goes on with one; whether there is more to come.
    fn follow(&mut self, one: &mut Left, now_ns: u64) -> bool {
        let Left { peer, rail, pause_ns, stage } = *one;
        let unit_ns = self.engine.detour_ns();
        let has_passed = |since_ns: u64, for_ns: u64| now_ns.saturating_sub(since_ns) >= for_ns;
        let rails = match self.routes.get(peer.0 as usize) {
            Some(Route::Open(rails)) => *rails,
            Some(Route::Closed | Route::Opening { .. } | Route::Failed) | None => return false,
        };
        match stage {
            // Without a link all rails are asked, this one too.
            Stage::Waits { .. } | Stage::Tries { .. } if rails.members == 0 => {
                one.stage = Stage::Waits { since_ns: now_ns };
            }
            Stage::Waits { since_ns } if has_passed(since_ns, pause_ns) => {
                let addresses = self.directory.addresses(peer).unwrap_or_default();
                let place = |rail: RailId| {
                    let name = self.rails[rail.0 as usize].name;
                    addresses.iter().position(|(own, _)| own == name)
                };
                let Some(at) = place(rail) else { return false };
                let mut others = rails.iter().filter(|other| *other != rail).peekable();
                if others.peek().is_none() {
                    // The other end has gone back.
                    one.stage = Stage::Leads { since_ns: now_ns };
                    return true;
                }
                if others.filter_map(place).all(|other| other < at) {
                    return false;
                }
                let is_asked = self.rails[rail.0 as usize].rail.connect(peer, &addresses[at].1);
                match is_asked {
                    Ok(()) => one.stage = Stage::Tries { since_ns: now_ns },
                    Err(_) => one.put_off(now_ns, PAUSE_MAX * unit_ns),
                }
                self.has_loose_ends = true;
            }
            Stage::Tries { .. } if self.engine.carries(peer, rail) => {
                one.stage = Stage::Leads { since_ns: now_ns };
                self.leave_others(rail, peer);
            }
            Stage::Tries { since_ns } if has_passed(since_ns, TRY * unit_ns) => {
                if !rails.contains(rail) {
                    self.rails[rail.0 as usize].rail.disconnect(peer);
                    one.put_off(now_ns, PAUSE_MAX * unit_ns);
                }
            }
            Stage::Leads { since_ns } if has_passed(since_ns, PAUSE_MAX * unit_ns) => return false,
            Stage::Waits { .. } | Stage::Tries { .. } | Stage::Leads { .. } => {}
        }
        true
    }

    /// A rail leads to a peer again: those of other kinds are left.
    fn leave_others(&mut self, rail: RailId, peer: PeerId) {
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

/// In times that other rails wait before they are asked (1.5 s): from a rail's loss to the first try to go back to it…
const PAUSE_FIRST: u64 = 7;
/// …and between two at the most; each is twice as long after the last. One that leads again for so long is as if it
/// had never been left.
const PAUSE_MAX: u64 = 200;
/// How long a try may take.
const TRY: u64 = 3;
