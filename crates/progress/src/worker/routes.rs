//! Routes from peers to rails: how they are found, lost and reopened.

use std::time::Instant;

use engine::{Loss, Overdue};
use lock::Uncancelled;
use rail::Fault;
use tracing::debug;
use wire::{PeerId, RailId};

use super::{PolledRail, Worker};

/// Route to one peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Route {
    /// No message has asked for it yet.
    Closed,
    /// A rail is opening the link.
    Opening { rail: RailId, attempt: Attempt },
    /// Frames go over these rails.
    Open(RailSet),
    /// There is no route, or no longer one.
    Failed,
}

/// A set of rails, the one that opened first before the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RailSet {
    pub(super) first: RailId,
    pub(super) members: u32,
}

impl RailSet {
    pub(super) fn of(rail: RailId) -> Self {
        Self { first: rail, members: 1 << rail.0 }
    }

    pub(super) fn insert(&mut self, rail: RailId) {
        if self.members == 0 {
            self.first = rail;
        }
        self.members |= 1 << rail.0;
    }

    pub(super) fn contains(self, rail: RailId) -> bool {
        self.members & 1 << rail.0 != 0
    }

    /// Removes a rail; true if it was in the set.
    pub(super) fn remove(&mut self, rail: RailId) -> bool {
        let was_in = self.contains(rail);
        self.members &= !(1 << rail.0);
        if self.first == rail && self.members != 0 {
            self.first = RailId(self.members.trailing_zeros() as u8);
        }
        was_in
    }

    pub(super) fn iter(self) -> impl Iterator<Item = RailId> {
        (0..u32::BITS as u8).map(RailId).filter(move |rail| self.contains(*rail))
    }
}

/// A problem with a peer on a rail, handled after the rail has reported all its events.
pub(super) enum Trouble {
    /// The peer has broken the protocol.
    Misbehaved(String),
    /// The link is down.
    Down(Fault),
    /// The peer has failed before, so that its link is rejected.
    Unwanted,
    /// The peer is unreachable on this rail; other rails may reach it.
    Refused(Attempt),
    /// No problem: the rail is up while others are still reopening links.
    TakesOver,
}

impl Trouble {
    pub(super) fn is_misbehaviour(&self) -> bool {
        matches!(self, Self::Misbehaved(_))
    }
}

/// Reason for which a route to a peer is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A message is to be sent: without a route the peer has failed.
    Wanted,
    /// A message is awaited. The peer may still connect to this process if no route leads to it.
    Awaited,
}

/// Search for a route to a peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    purpose: Purpose,
    /// Rails to try if the opening one fails, with the peer's addresses there.
    pub(super) later: Vec<(RailId, Vec<u8>)>,
    /// Errors of the rails tried before.
    pub(super) refusals: Vec<String>,
}

/// A link that is to be reopened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reopening {
    pub(super) peer: PeerId,
    rail: RailId,
    /// State of the rail's attempt.
    stage: ReopenStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReopenStage {
    /// The rail is connecting.
    Trying,
    /// The rail is connecting again after a refusal.
    TryingAgain,
    /// The attempt was refused and will be repeated.
    Refused,
}

impl Reopening {
    pub(super) fn is_of(&self, peer: PeerId, rail: RailId) -> bool {
        (self.peer, self.rail) == (peer, rail)
    }
}

impl Worker {
    /// Handles the problems that a rail has reported.
    #[cold]
    pub(super) fn handle_troubles(&mut self, rail: RailId, troubles: Vec<(PeerId, Trouble)>) {
        for (peer, trouble) in troubles {
            match trouble {
                Trouble::Misbehaved(text) => {
                    self.rails[rail.0 as usize].rail.disconnect(peer);
                    self.fail(peer, Fault::Misbehaved(text));
                }
                Trouble::Down(fault) => self.handle_down(rail, peer, fault),
                Trouble::Unwanted => self.rails[rail.0 as usize].rail.disconnect(peer),
                Trouble::Refused(attempt) => self.try_next_rail(rail, peer, attempt),
                Trouble::TakesOver => self.take_over(rail, peer),
            }
        }
    }

    /// Tries the next rail, and reports the first peer that needs this.
    fn try_next_rail(&mut self, rail: RailId, peer: PeerId, attempt: Attempt) {
        self.directory.note_unreachable(peer, self.rails[rail.0 as usize].rail.name());
        if let (false, Some((next, _)), Some(refusal)) =
            (self.has_reported_next_rail, attempt.later.first(), attempt.refusals.last())
        {
            self.has_reported_next_rail = true;
            let name = self.rails[next.0 as usize].rail.name();
            self.journal.print(&[format!("rank {}: {refusal}; {name} is tried", peer.0)]);
        }
        self.connect(peer, attempt);
    }

    /// Closes a link that has fallen far behind another one to the same peer, and fails peers that had no link for
    /// too long.
    #[cold]
    pub(super) fn judge_links(&mut self) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        while let Some(overdue) = self.engine.handle_time(now_ns) {
            match overdue {
                Overdue::Link(peer, rail) => {
                    let name = self.rails[rail.0 as usize].rail.name();
                    let text = format!("{name} delivers nothing, another does");
                    self.close_link(rail, peer, Fault::Lost(text));
                }
                Overdue::Peer(peer) => {
                    let text = "no link has opened again in time".into();
                    self.fail(peer, Fault::Lost(text));
                }
                Overdue::Path(peer) if self.directory.has_ended(peer) => self.fail_ended_peer(peer),
                Overdue::Path(peer) => {
                    self.retry_refused_rails(peer);
                    self.try_remaining_rails(peer);
                }
            }
        }
        if !self.failed_over.is_empty() {
            self.retry_left_rails(now_ns);
        }
    }

    /// Closes a link that its rail regards as open.
    pub(super) fn close_link(&mut self, rail: RailId, peer: PeerId, fault: Fault) {
        debug!(
            peer = peer.0,
            rail = self.rails[rail.0 as usize].name,
            ?fault,
            "the link is closed"
        );
        self.rails[rail.0 as usize].rail.disconnect(peer);
        self.handle_down(rail, peer, fault);
    }

    /// Closes links that their peers have given up.
    #[cold]
    pub(super) fn close_severed(&mut self) {
        while let Some((peer, rail)) = self.engine.poll_severed() {
            self.close_link(rail, peer, Fault::Lost("the other end has lost it".into()));
        }
    }

    /// Handles the loss of a link: other links of the peer carry on, or it is reopened.
    pub(super) fn handle_down(&mut self, rail: RailId, peer: PeerId, fault: Fault) {
        if let Fault::Unreachable(text) = &fault
            && self.engine.is_cut_off(peer)
            && let Some(one) = self.reopening.iter_mut().find(|one| one.is_of(peer, rail))
        {
            let is_first = one.stage == ReopenStage::Trying;
            one.stage = ReopenStage::Refused;
            return self.handle_refusal(rail, peer, text, is_first);
        }
        let concerned = match self.routes.get_mut(peer.0 as usize) {
            Some(Route::Open(rails)) => {
                let was_open = rails.remove(rail);
                let team = |rail: RailId| self.rails[rail.0 as usize].team;
                let is_replaced =
                    rails.members != 0 && !rails.iter().any(|one| team(one) == team(rail));
                // A bypass link is requested again when the other links reopen.
                let passes = self.rails[rail.0 as usize].passes;
                let is_spared = passes && rails.members != 0;
                let ends = is_spared || is_replaced || !matches!(fault, Fault::Lost(_));
                let loss = self.engine.handle_link_down(peer, rail, ends);
                if loss != Loss::Final {
                    if is_replaced && !passes && self.engine.has_been_open(peer, rail) {
                        self.note_left(rail, peer);
                    }
                    return self.handle_lost_link(rail, peer, (loss, was_open), &fault);
                }
                true
            }
            Some(Route::Opening { rail: opening, attempt }) if *opening == rail => {
                if attempt.purpose == Purpose::Awaited && matches!(fault, Fault::Unreachable(_)) {
                    return self.end_search(peer);
                }
                true
            }
            Some(Route::Opening { .. }) => false,
            // Another rail of a team has not reached the peer either.
            Some(Route::Closed) => !matches!(fault, Fault::Unreachable(_)),
            Some(Route::Failed) | None => false,
        };
        if concerned {
            self.fail(peer, fault);
        }
    }

    /// Continues without a link, and reopens it if permitted.
    fn handle_lost_link(
        &mut self,
        rail: RailId,
        peer: PeerId,
        (loss, was_open): (Loss, bool),
        fault: &Fault,
    ) {
        let name = self.rails[rail.0 as usize].rail.name();
        let text = fault.text().unwrap_or("closed");
        self.reopening.retain(|one| !one.is_of(peer, rail));
        let is_missed = loss != Loss::Tolerated || !self.rails[rail.0 as usize].passes;
        if was_open && is_missed {
            let rest = match loss {
                Loss::Tolerated => "others go on",
                Loss::LinkDown | Loss::Final => "it is opened anew",
            };
            self.journal.print(&[format!("{name} to rank {} is gone, {rest}: {text}", peer.0)]);
        }
        if !self.engine.may_reopen(peer, rail) {
            return;
        }
        let addresses = self.directory.addresses(peer).unwrap_or_default();
        if let Some((_, address)) = addresses.into_iter().find(|(own, _)| own == name) {
            self.open_again(rail, peer, &address);
        }
    }

    /// Reopens a rail's link to a peer that was reached before. If it cannot connect, the peer may connect to this
    /// process, or other links carry on.
    fn open_again(&mut self, rail: RailId, peer: PeerId, address: &[u8]) {
        if self.rails[rail.0 as usize].rail.connect(peer, address).is_ok() {
            debug!(
                peer = peer.0,
                rail = self.rails[rail.0 as usize].name,
                "the link is opened again"
            );
            self.reopening.push(Reopening { peer, rail, stage: ReopenStage::Trying });
            self.has_loose_ends = true;
        }
    }

    /// Handles a refused connection to a remote peer. A host or firewall may refuse although the peer is alive, so
    /// a refusal counts as silence, unless the launcher knows that the peer has ended. Other rails may still reach
    /// the peer.
    fn handle_refusal(&mut self, rail: RailId, peer: PeerId, text: &str, is_first: bool) {
        if self.directory.has_ended(peer) {
            return self.fail_ended_peer(peer);
        }
        let name = self.rails[rail.0 as usize].name;
        if is_first {
            self.journal.print(&[format!("{name} to rank {} is refused: {text}", peer.0)]);
        }
        self.try_remaining_rails(peer);
    }

    /// Fails a peer without links that has ended according to the launcher.
    fn fail_ended_peer(&mut self, peer: PeerId) {
        self.fail(peer, Fault::Lost("its process has ended".into()));
    }

    /// Repeats the attempts of rails that were refused.
    fn retry_refused_rails(&mut self, peer: PeerId) {
        if !self.reopening.iter().any(|one| one.peer == peer && one.stage == ReopenStage::Refused) {
            return;
        }
        let addresses = self.directory.addresses(peer).unwrap_or_default();
        let Self { reopening, rails, .. } = self;
        for one in reopening.iter_mut().filter(|one| one.peer == peer) {
            let polled = &mut rails[one.rail.0 as usize];
            let address = addresses.iter().find(|(name, _)| name == polled.name);
            if one.stage == ReopenStage::Refused
                && let Some((_, address)) = address
                && polled.rail.connect(peer, address).is_ok()
            {
                one.stage = ReopenStage::TryingAgain;
            }
        }
    }

    /// Tries the remaining rails for a peer whose reconnections were dropped or refused. The first rail that comes
    /// up takes over.
    fn try_remaining_rails(&mut self, peer: PeerId) {
        for (name, address) in self.directory.addresses(peer).unwrap_or_default() {
            let rail = self.carrier_named(&name);
            let is_known = |rail| self.reopening.iter().any(|one| one.is_of(peer, rail));
            if let Some(rail) = rail.filter(|rail| !is_known(*rail)) {
                self.open_again(rail, peer, &address);
            }
        }
    }

    /// Lets a rail take over for a peer: rails outside its team are no longer awaited, and it resends their lost
    /// frames.
    fn take_over(&mut self, rail: RailId, peer: PeerId) {
        let PolledRail { team, name, .. } = self.rails[rail.0 as usize];
        let rails = &self.rails;
        let is_other =
            |one: &mut Reopening| one.peer == peer && rails[one.rail.0 as usize].team != team;
        let others: Vec<_> = self.reopening.extract_if(.., is_other).map(|one| one.rail).collect();
        for other in others {
            if self.engine.may_reopen(peer, other) {
                let other = self.rails[other.0 as usize].name;
                let text = format!("{other} to rank {} is not back: {name} takes over", peer.0);
                self.journal.print(&[text]);
            }
            self.close_link(other, peer, Fault::Lost(format!("{name} leads there")));
        }
    }

    /// Fails a peer: no route leads to it any more.
    pub(super) fn fail(&mut self, peer: PeerId, fault: Fault) {
        debug!(peer = peer.0, ?fault, "the peer has failed");
        let Some(route) = self.routes.get_mut(peer.0 as usize) else { return };
        if let Route::Open(rails) = std::mem::replace(route, Route::Failed) {
            let opening = self.reopening.extract_if(.., |one| one.peer == peer).map(|one| one.rail);
            for rail in rails.iter().chain(opening) {
                self.rails[rail.0 as usize].rail.disconnect(peer);
            }
        }
        let text = match fault {
            Fault::Closed => None,
            Fault::Lost(text) => Some(format!("link to rank {} lost: {text}", peer.0)),
            Fault::Unreachable(text) => Some(format!("rank {} unreachable: {text}", peer.0)),
            Fault::Misbehaved(text) => {
                Some(format!("rank {} sent what no rank sends: {text}", peer.0))
            }
        };
        if let Some(text) = text {
            self.journal.note_fault(Instant::now(), text);
        }
        self.fail_peer(peer);
    }

    /// Ends a search without a route for a peer to which nothing was to be sent when the search began.
    fn end_search(&mut self, peer: PeerId) {
        self.routes[peer.0 as usize] = Route::Closed;
        self.engine.handle_no_path(peer);
    }

    #[cold]
    pub(super) fn open(&mut self, peer: PeerId, purpose: Purpose) {
        let _uncancelled = Uncancelled::begin();
        let index = peer.0 as usize;
        match self.routes.get(index) {
            Some(Route::Closed) => {}
            Some(Route::Failed) | None => return self.fail_peer(peer),
            Some(Route::Opening { .. } | Route::Open(_)) => return,
        }
        let candidates = match self.directory.addresses(peer) {
            Ok(addresses) => addresses
                .into_iter()
                .filter_map(|(name, address)| Some((self.carrier_named(&name)?, address)))
                .collect(),
            Err(text) => {
                self.journal
                    .note_fault(Instant::now(), format!("rank {}: no address: {text}", peer.0));
                Vec::new()
            }
        };
        self.connect(peer, Attempt { purpose, later: candidates, refusals: Vec::new() });
    }

    /// Tries the remaining rails in order until one begins to connect; the rails of its team connect as well.
    fn connect(&mut self, peer: PeerId, attempt: Attempt) {
        let Attempt { purpose, later, mut refusals } = attempt;
        let mut later = later.into_iter();
        while let Some((rail, address)) = later.next() {
            match self.rails[rail.0 as usize].rail.connect(peer, &address) {
                Ok(()) => {
                    let name = self.rails[rail.0 as usize].name;
                    debug!(peer = peer.0, rail = name, ?purpose, "a link is being opened");
                    let later: Vec<_> = later.collect();
                    self.connect_twins(peer, rail, &later);
                    let attempt = Attempt { purpose, later, refusals };
                    self.routes[peer.0 as usize] = Route::Opening { rail, attempt };
                    return;
                }
                Err(error) => {
                    let name = self.rails[rail.0 as usize].rail.name();
                    debug!(peer = peer.0, rail = name, %error, "the rail does not lead there");
                    refusals.push(format!("{name}: {error}"));
                }
            }
        }
        if purpose == Purpose::Awaited {
            return self.end_search(peer);
        }
        self.routes[peer.0 as usize] = Route::Failed;
        let tried =
            if refusals.is_empty() { "no rail in common".into() } else { refusals.join("; ") };
        let text = format!("rank {} cannot be reached: {tried}", peer.0);
        self.journal.note_fault(Instant::now(), text);
        self.fail_peer(peer);
    }

    /// Opens the other links of a rail's team; a link that cannot be opened is left out.
    fn connect_twins(&mut self, peer: PeerId, rail: RailId, later: &[(RailId, Vec<u8>)]) {
        let team = self.rails[rail.0 as usize].team;
        for (twin, address) in later {
            let polled = &mut self.rails[twin.0 as usize];
            if polled.team == team {
                let _ = polled.rail.connect(peer, address);
            }
        }
    }

    /// Returns the rail of this name that leads to peers by itself.
    pub(super) fn carrier_named(&self, name: &str) -> Option<RailId> {
        let is_it = |polled: &PolledRail| polled.name == name && !polled.passes;
        Some(RailId(self.rails.iter().position(is_it)? as u8))
    }

    /// Opens a `passing` link, once, so that short messages bypass long ones. This applies to links whose frames
    /// are held until acknowledged.
    pub(super) fn open_passing(&mut self, peer: PeerId, rail: RailId, passing: RailId) {
        if !self.engine.keeps(peer, rail) || !self.passed.insert(peer) {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        let addresses = self.directory.addresses(peer).unwrap_or_default();
        let PolledRail { rail, name, .. } = &mut self.rails[passing.0 as usize];
        if let Some((_, address)) = addresses.iter().find(|(own, _)| own == name) {
            // Without the bypass link, short messages wait behind long ones.
            let _ = rail.connect(peer, address);
        }
    }
}

/// Returns the rest of the search after the opening rail has reported a failure.
pub(super) fn next_attempt(
    routes: &mut [Route],
    (rail, name): (RailId, &str),
    peer: PeerId,
    fault: &Fault,
) -> Option<Attempt> {
    let Some(Route::Opening { rail: opening, attempt }) = routes.get_mut(peer.0 as usize) else {
        return None;
    };
    let reason = match fault {
        Fault::Lost(text) | Fault::Unreachable(text) => text,
        // The peer has closed, or is no process of this job.
        Fault::Closed | Fault::Misbehaved(_) => return None,
    };
    if *opening != rail || (attempt.later.is_empty() && attempt.refusals.is_empty()) {
        return None;
    }
    attempt.refusals.push(format!("{name}: {reason}"));
    Some(attempt.clone())
}
