//! Revoked contexts: propagates a revocation among the members.
//!
//! A process that revokes a context, or hears of it, tells its two neighbours in a ring of all members. For speed it
//! also tells those at distances of 2, 4, 8… to which a link is open. If one of them has failed, it
//! tells the next one beyond. So every live member hears from the previous live member in the ring. A member may miss
//! the notice only if those that know it die while it spreads.

use engine::{OpId, Outcome, Revocation, RevokedBy};
use wire::PeerId;

use super::Worker;
use crate::tasks::{Task, TaskStage};

impl Worker {
    /// Revokes a context because `failed`, one of its members, has failed, and tells the other members, unless done
    /// before.
    #[cold]
    pub fn revoke_context(&mut self, context: u64, failed: PeerId) {
        self.revoke(Revocation { context, marks: 0, by: RevokedBy::Failure(failed) });
    }

    /// Revokes contexts and tells the other members, unless done before.
    #[cold]
    pub fn revoke(&mut self, revocation: Revocation) {
        let is_new = self.engine.submit_revoke(&revocation);
        if is_new {
            self.take_effect(revocation);
        } else if self.unannounced.remove(&revocation.context) {
            self.announce_revoked(revocation);
        }
    }

    /// Forwards the revocations received from peers.
    #[inline]
    pub(super) fn forward_revocations(&mut self) {
        while let Some(revocation) = self.engine.poll_revoked() {
            self.take_effect(revocation);
        }
    }

    /// Has this process's calls and the other members learn of a revocation.
    #[cold]
    fn take_effect(&mut self, revocation: Revocation) {
        self.rouse_tasks();
        if revocation.by == RevokedBy::Application {
            self.directory.note_revoked(revocation.context);
        }
        self.announce_revoked(revocation);
    }

    #[cold]
    fn announce_revoked(&mut self, revocation: Revocation) {
        match self.directory.members(revocation.context) {
            Some(ring) => self.queue_task(Box::new(RevokeTask::new(revocation, ring))),
            // Members of an unknown context find it revoked at its first use.
            None => drop(self.unannounced.insert(revocation.context)),
        }
    }
}

/// A task that announces a revocation to other members.
struct RevokeTask {
    revocation: Revocation,
    /// The members, this process first.
    ring: Vec<PeerId>,
    walks: Vec<Walk>,
}

/// Walk along the ring to the next live member.
struct Walk {
    at: usize,
    is_back: bool,
    /// True if a link may be opened for this walk.
    opens: bool,
    told: Option<OpId>,
}

impl RevokeTask {
    fn new(revocation: Revocation, ring: Vec<PeerId>) -> Self {
        let distances = (0..usize::BITS).map(|bit| 1 << bit).take_while(|at| *at < ring.len());
        let both = |at| [(at, false), (ring.len() - at, true)];
        let walks = distances.flat_map(both).map(|(at, is_back)| {
            let opens = at == 1 || at == ring.len() - 1;
            Walk { at, is_back, opens, told: None }
        });
        let walks = walks.collect();
        Self { revocation, ring, walks }
    }

    /// True if a member on this walk has been told, or none is left.
    fn advance_walk(&self, walk: &mut Walk, worker: &mut Worker) -> bool {
        loop {
            if let Some(op) = walk.told {
                match worker.engine.take(op) {
                    None => return false,
                    Some(end) if end.outcome == Outcome::Ok => return true,
                    Some(_) => walk.step(self.ring.len()),
                }
            }
            while walk.at != 0 && !walk.may_tell(worker, self.ring[walk.at]) {
                walk.step(self.ring.len());
            }
            if walk.at == 0 {
                return true;
            }
            let peer = self.ring[walk.at];
            walk.told = Some(worker.engine.submit_revocation(peer, &self.revocation));
        }
    }
}

impl Walk {
    fn may_tell(&self, worker: &Worker, peer: PeerId) -> bool {
        !worker.engine.is_failed(peer) && (self.opens || worker.rail_name(peer).is_some())
    }

    fn step(&mut self, len: usize) {
        let step = if self.is_back { len - 1 } else { 1 };
        self.at = (self.at + step) % len;
    }
}

impl Task for RevokeTask {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        let mut walks = std::mem::take(&mut self.walks);
        walks.retain_mut(|walk| !self.advance_walk(walk, worker));
        self.walks = walks;
        if self.walks.is_empty() { TaskStage::Ended } else { TaskStage::Waits }
    }

    fn work(&mut self) {}
}
