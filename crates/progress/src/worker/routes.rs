//! Which rail leads to which peer: how ways are found, lost, and found anew.

use std::time::Instant;

use driver::Fault;
use engine::{Loss, Overdue};
use lock::Uncancelled;
use wire::{PeerId, RailId};

use super::{Station, Worker};

/// The way to one peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Route {
    /// Not asked for yet.
    Closed,
    /// A rail is opening the link.
    Opening { rail: RailId, attempt: Attempt },
    /// Frames go over these rails.
    Open(RailSet),
    /// There is no way, or no longer one.
    Failed,
}

/// Rails, the one that opened first before the others.
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

    /// Takes one out; whether it was in.
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

/// What has gone wrong with a peer on a rail, to be met when the rail has told all.
pub(super) enum Trouble {
    /// It has broken the protocol.
    Misbehaved(String),
    /// The link is gone.
    Down(Fault),
    /// It has failed before: its link is not wanted.
    Unwanted,
    /// It cannot be reached there; others may do.
    Refused(Attempt),
    /// None: the rail leads there, while others are still opening links.
    Outdone,
}

impl Trouble {
    pub(super) fn is_misbehaviour(&self) -> bool {
        matches!(self, Self::Misbehaved(_))
    }
}

/// Why a way to a peer is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Something is to be sent: without a way the peer has failed.
    Wanted,
    /// Something is waited for. The peer may find its way here where none leads there.
    Sought,
}

/// The search for a way to a peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    purpose: Purpose,
    /// The rails to try if the one that is opening the link fails, and the peer's addresses there.
    pub(super) later: Vec<(RailId, Vec<u8>)>,
    /// What the rails tried before said.
    pub(super) refusals: Vec<String>,
}

/// A link that is to be opened anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reopening {
    pub(super) peer: PeerId,
    rail: RailId,
    /// What the rail is at.
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It tries to open it.
    Trying,
    /// The same, after it was refused.
    TryingAgain,
    /// It was refused, and is to try again.
    Refused,
}

impl Reopening {
    pub(super) fn is_of(&self, peer: PeerId, rail: RailId) -> bool {
        (self.peer, self.rail) == (peer, rail)
    }
}

impl Worker {
    /// Does what follows from what has gone wrong on a rail.
    #[cold]
    pub(super) fn meet(&mut self, rail: RailId, troubles: Vec<(PeerId, Trouble)>) {
        for (peer, trouble) in troubles {
            match trouble {
                Trouble::Misbehaved(text) => {
                    self.rails[rail.0 as usize].rail.disconnect(peer);
                    self.fail(peer, Fault::Misbehaved(text));
                }
                Trouble::Down(fault) => self.handle_down(rail, peer, fault),
                Trouble::Unwanted => self.rails[rail.0 as usize].rail.disconnect(peer),
                Trouble::Refused(attempt) => self.try_another(rail, peer, attempt),
                Trouble::Outdone => self.take_over(rail, peer),
            }
        }
    }

    /// Tries the next rail, and tells of the first peer for which it has to.
    fn try_another(&mut self, rail: RailId, peer: PeerId, attempt: Attempt) {
        self.directory.note_no_way(peer, self.rails[rail.0 as usize].rail.name());
        if let (false, Some((next, _)), Some(refusal)) =
            (self.has_told_detour, attempt.later.first(), attempt.refusals.last())
        {
            self.has_told_detour = true;
            let name = self.rails[next.0 as usize].rail.name();
            self.journal.print(&[format!("rank {}: {refusal}; {name} is tried", peer.0)]);
        }
        self.connect(peer, attempt);
    }

    /// Closes a link that has fallen far behind another to the same peer, and gives up peers that were without a
    /// link for too long.
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
                Overdue::Path(peer) if self.directory.has_ended(peer) => self.bury(peer),
                Overdue::Path(peer) => {
                    self.ask_again(peer);
                    self.ask_others(peer);
                }
            }
        }
        if !self.left.is_empty() {
            self.look_back(now_ns);
        }
    }

    /// Closes a link that its rail takes to be open.
    pub(super) fn close_link(&mut self, rail: RailId, peer: PeerId, fault: Fault) {
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

    /// A link is gone. Others of the peer carry on, if there are any, or it is opened anew.
    pub(super) fn handle_down(&mut self, rail: RailId, peer: PeerId, fault: Fault) {
        if let Fault::Unreachable(text) = &fault
            && self.engine.is_cut_off(peer)
            && let Some(one) = self.reopening.iter_mut().find(|one| one.is_of(peer, rail))
        {
            let is_first = one.stage == Stage::Trying;
            one.stage = Stage::Refused;
            return self.bear_refusal(rail, peer, text, is_first);
        }
        let concerned = match self.routes.get_mut(peer.0 as usize) {
            Some(Route::Open(rails)) => {
                let was_open = rails.remove(rail);
                let team = |rail: RailId| self.rails[rail.0 as usize].team;
                let is_replaced =
                    rails.members != 0 && !rails.iter().any(|one| team(one) == team(rail));
                // A link that passes others is asked for again when they open again.
                let passes = self.rails[rail.0 as usize].passes;
                let is_spared = passes && rails.members != 0;
                let ends = is_spared || is_replaced || !matches!(fault, Fault::Lost(_));
                let loss = self.engine.handle_link_down(peer, rail, ends);
                if loss != Loss::Final {
                    if is_replaced && !passes && self.engine.has_been_open(peer, rail) {
                        self.note_left(rail, peer);
                    }
                    return self.bear(rail, peer, (loss, was_open), &fault);
                }
                true
            }
            Some(Route::Opening { rail: opening, attempt }) if *opening == rail => {
                if attempt.purpose == Purpose::Sought && matches!(fault, Fault::Unreachable(_)) {
                    return self.give_up_search(peer);
                }
                true
            }
            Some(Route::Opening { .. }) => false,
            // Another rail of a team has not got there either.
            Some(Route::Closed) => !matches!(fault, Fault::Unreachable(_)),
            Some(Route::Failed) | None => false,
        };
        if concerned {
            self.fail(peer, fault);
        }
    }

    /// Does without a link, and has it opened anew, if that may be.
    fn bear(&mut self, rail: RailId, peer: PeerId, (loss, was_open): (Loss, bool), fault: &Fault) {
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

    /// Has a rail open a link to a peer that was reached before. Where it cannot, the peer may find its way here, or
    /// others carry on.
    fn open_again(&mut self, rail: RailId, peer: PeerId, address: &[u8]) {
        if self.rails[rail.0 as usize].rail.connect(peer, address).is_ok() {
            self.reopening.push(Reopening { peer, rail, stage: Stage::Trying });
            self.has_loose_ends = true;
        }
    }

    /// Somebody says that nobody is where a far peer was: its host, or what stands between, such as a firewall. That
    /// counts as silence does, for the peer may be there and be waited for, unless the launcher knows better; and what
    /// is refused on one rail may pass on others.
    fn bear_refusal(&mut self, rail: RailId, peer: PeerId, text: &str, is_first: bool) {
        if self.directory.has_ended(peer) {
            return self.bury(peer);
        }
        let name = self.rails[rail.0 as usize].name;
        if is_first {
            self.journal.print(&[format!("{name} to rank {} is refused: {text}", peer.0)]);
        }
        self.ask_others(peer);
    }

    /// A peer that no link leads to has ended, as the launcher says: it is waited for in vain.
    fn bury(&mut self, peer: PeerId) {
        self.fail(peer, Fault::Lost("its process has ended".into()));
    }

    /// Rails that were refused try again.
    fn ask_again(&mut self, peer: PeerId) {
        if !self.reopening.iter().any(|one| one.peer == peer && one.stage == Stage::Refused) {
            return;
        }
        let addresses = self.directory.addresses(peer).unwrap_or_default();
        let Self { reopening, rails, .. } = self;
        for one in reopening.iter_mut().filter(|one| one.peer == peer) {
            let station = &mut rails[one.rail.0 as usize];
            let address = addresses.iter().find(|(name, _)| name == station.name);
            if one.stage == Stage::Refused
                && let Some((_, address)) = address
                && station.rail.connect(peer, address).is_ok()
            {
                one.stage = Stage::TryingAgain;
            }
        }
    }

    /// A peer has no link, and what opens one anew was swallowed or refused: the rails that have not been asked may
    /// lead there, and the first that does takes over.
    fn ask_others(&mut self, peer: PeerId) {
        for (name, address) in self.directory.addresses(peer).unwrap_or_default() {
            let rail = self.carrier_named(&name);
            let is_known = |rail| self.reopening.iter().any(|one| one.is_of(peer, rail));
            if let Some(rail) = rail.filter(|rail| !is_known(*rail)) {
                self.open_again(rail, peer, &address);
            }
        }
    }

    /// A rail leads to a peer: others than those of its team are not waited for any more, and what they have lost
    /// goes by it.
    fn take_over(&mut self, rail: RailId, peer: PeerId) {
        let Station { team, name, .. } = self.rails[rail.0 as usize];
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

    /// There is no way to a peer any more.
    pub(super) fn fail(&mut self, peer: PeerId, fault: Fault) {
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
        self.engine.handle_down(peer);
    }

    /// No way was found to a peer that nothing was to be sent to when the search began.
    fn give_up_search(&mut self, peer: PeerId) {
        self.routes[peer.0 as usize] = Route::Closed;
        self.engine.handle_no_path(peer);
    }

    #[cold]
    pub(super) fn open(&mut self, peer: PeerId, purpose: Purpose) {
        let _uncancelled = Uncancelled::begin();
        let index = peer.0 as usize;
        match self.routes.get(index) {
            Some(Route::Closed) => {}
            Some(Route::Failed) | None => return self.engine.handle_down(peer),
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

    /// Tries the rails that are left in turn until one begins to open; those of its team open beside it.
    fn connect(&mut self, peer: PeerId, attempt: Attempt) {
        let Attempt { purpose, later, mut refusals } = attempt;
        let mut later = later.into_iter();
        while let Some((rail, address)) = later.next() {
            match self.rails[rail.0 as usize].rail.connect(peer, &address) {
                Ok(()) => {
                    let later: Vec<_> = later.collect();
                    self.connect_twins(peer, rail, &later);
                    let attempt = Attempt { purpose, later, refusals };
                    self.routes[peer.0 as usize] = Route::Opening { rail, attempt };
                    return;
                }
                Err(error) => {
                    let name = self.rails[rail.0 as usize].rail.name();
                    refusals.push(format!("{name}: {error}"));
                }
            }
        }
        if purpose == Purpose::Sought {
            return self.give_up_search(peer);
        }
        self.routes[peer.0 as usize] = Route::Failed;
        let tried =
            if refusals.is_empty() { "no rail in common".into() } else { refusals.join("; ") };
        let text = format!("rank {} cannot be reached: {tried}", peer.0);
        self.journal.note_fault(Instant::now(), text);
        self.engine.handle_down(peer);
    }

    /// Opens the other links of a rail's team; where one cannot, there is one link less.
    fn connect_twins(&mut self, peer: PeerId, rail: RailId, later: &[(RailId, Vec<u8>)]) {
        let team = self.rails[rail.0 as usize].team;
        for (twin, address) in later {
            let station = &mut self.rails[twin.0 as usize];
            if station.team == team {
                let _ = station.rail.connect(peer, address);
            }
        }
    }

    /// A rail of this name that leads to peers by itself.
    pub(super) fn carrier_named(&self, name: &str) -> Option<RailId> {
        let is_it = |station: &Station| station.name == name && !station.passes;
        Some(RailId(self.rails.iter().position(is_it)? as u8))
    }

    /// What is long goes over a rail: where the frames to the peer are kept, a link of `passing` is opened, once, for
    /// what is not to wait behind that.
    pub(super) fn open_passing(&mut self, peer: PeerId, rail: RailId, passing: RailId) {
        if !self.engine.keeps(peer, rail) || !self.passed.insert(peer) {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        let addresses = self.directory.addresses(peer).unwrap_or_default();
        let Station { rail, name, .. } = &mut self.rails[passing.0 as usize];
        if let Some((_, address)) = addresses.iter().find(|(own, _)| own == name) {
            // Where it cannot be opened, what is short waits behind what is long.
            let _ = rail.connect(peer, address);
        }
    }
}

/// What is left to try when the rail that was opening the link says that it cannot.
pub(super) fn another_way(
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
        // The peer is done, or no peer.
        Fault::Closed | Fault::Misbehaved(_) => return None,
    };
    if *opening != rail || (attempt.later.is_empty() && attempt.refusals.is_empty()) {
        return None;
    }
    attempt.refusals.push(format!("{name}: {reason}"));
    Some(attempt.clone())
}
