//! The connection manager: which rails are asked for a link to a peer, when, and when the peer has failed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use wire::{PeerId, ProcessId, RailId};

use crate::facts::{Candidate, PeerFacts};
use crate::failback::{Failback, FailbackStep};
use crate::fault::Fault;
use crate::names::{PeerName, PeerNames};
use crate::outage::{Outage, OutageStep, Patience};
use crate::rails::{RailSet, RailTraits};
use crate::search::{Purpose, Search};

/// The connections of a process to its peers, over all rails. Events go in, and [`Peers::poll_action`] returns what
/// is to be done. Times are those of one clock that stops while nobody looks.
#[derive(Debug)]
pub struct Peers {
    rails: Vec<RailTraits>,
    patience: Patience,
    routes: Vec<Route>,
    names: PeerNames,
    /// Peers that have lost a link, until another one works.
    outages: BTreeMap<PeerId, Outage>,
    /// Links that rails are reopening.
    reopening: Vec<Reopening>,
    /// Rails replaced by others, to be returned to.
    failbacks: Vec<Failback>,
    actions: VecDeque<Action>,
    /// True once a notice was made that a rail does not reach a peer and another is tried.
    has_told_next_rail: bool,
}

/// An action for the caller. Actions are carried out in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask a rail for a link. If it cannot begin, [`Peers::handle_no_attempt`] follows at once.
    Connect {
        /// The peer to reach.
        peer: PeerId,
        /// The rail to ask.
        rail: RailId,
        /// Address of the peer on this rail.
        address: Vec<u8>,
    },
    /// Close what a rail has of a peer: a link that was never counted, or an attempt.
    Disconnect {
        /// The peer behind the link.
        peer: PeerId,
        /// The rail of the link.
        rail: RailId,
    },
    /// Close a link that its rail may count as open, and handle its loss ([`Peers::handle_down`]).
    Close {
        /// The peer behind the link.
        peer: PeerId,
        /// The rail of the link.
        rail: RailId,
        /// Reason of the loss.
        reason: String,
    },
    /// The peer has failed; the text says why, unless it has closed its links.
    Fail {
        /// The peer.
        peer: PeerId,
        /// Text for the user.
        text: Option<String>,
    },
    /// No route leads to a peer from which a message is awaited. It may still connect to this process.
    EndSearch {
        /// The peer.
        peer: PeerId,
    },
    /// A rail has not reached a peer, so that another kind of rail may be preferred from now on.
    NoteUnreachable {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: RailId,
    },
    /// Print a line for the user.
    Print(String),
}

/// Route to one peer.
#[derive(Clone, Debug)]
enum Route {
    /// No message has asked for it yet.
    Closed,
    /// Rails are opening the first link.
    Searching(Box<Search>),
    /// Frames go over these rails; none during an outage.
    Open(RailSet),
    /// There is no route, or no longer one.
    Failed,
}

/// A link that is to be reopened.
#[derive(Clone, Copy, Debug)]
struct Reopening {
    peer: PeerId,
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
    fn is_of(&self, peer: PeerId, rail: RailId) -> bool {
        (self.peer, self.rail) == (peer, rail)
    }
}

/// Effect of an opened link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// True if the link was lost before.
    pub is_back: bool,
    /// True if links of the peer are still being reopened: [`Peers::handle_takeover`] is due, and the link replays
    /// what they have lost.
    pub takes_over: bool,
}

/// A lost link of a peer with a route. The caller tells the engine, and then [`Peers::handle_loss`].
#[derive(Clone, Copy, Debug)]
pub struct LostLink {
    /// The peer behind the link.
    pub peer: PeerId,
    /// The rail of the link.
    pub rail: RailId,
    /// True if the link does not reopen.
    pub ends: bool,
    was_open: bool,
    /// True if only rails of other teams are left.
    is_replaced: bool,
}

/// Outputs and questions.
impl Peers {
    /// Connections of a process in a job of `size` processes.
    pub fn new(size: usize, patience: Patience) -> Self {
        Self {
            rails: Vec::new(),
            patience,
            routes: vec![Route::Closed; size],
            names: PeerNames::of_job(size),
            outages: BTreeMap::new(),
            reopening: Vec::new(),
            failbacks: Vec::new(),
            actions: VecDeque::new(),
            has_told_next_rail: false,
        }
    }

    /// Adds a process of another job, as the next peer.
    pub fn add_peer(&mut self, process: ProcessId) -> PeerId {
        let peer = PeerId(self.routes.len() as u32);
        self.routes.push(Route::Closed);
        self.names.add(peer, process);
        peer
    }

    /// The name of a peer in messages.
    pub fn name(&self, peer: PeerId) -> PeerName {
        self.names.name(peer)
    }

    /// Sets the rails, in the order of their numbers.
    pub fn set_rails(&mut self, rails: Vec<RailTraits>) {
        self.rails = rails;
    }

    /// Sets the limits of outages.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Returns the next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// True if the rails must be polled for a link that is being reopened.
    pub fn is_reopening(&self) -> bool {
        !self.reopening.is_empty() || self.failbacks.iter().any(Failback::is_trying)
    }

    /// Peers to which no link leads at the moment, although one has.
    pub fn without_link(&self) -> impl Iterator<Item = PeerId> {
        self.outages.keys().copied()
    }

    /// True if [`Peers::handle_time`] has something to do.
    #[inline]
    pub fn is_timed(&self) -> bool {
        !(self.outages.is_empty() && self.failbacks.is_empty())
    }

    /// Rail that leads to a peer, of several the one that opened first.
    #[inline]
    pub fn leading_rail(&self, peer: PeerId) -> Option<RailId> {
        match self.routes.get(peer.0 as usize)? {
            Route::Open(rails) => Some(rails.first()),
            Route::Closed | Route::Searching(_) | Route::Failed => None,
        }
    }

    /// True if a peer has failed, or does not exist.
    pub fn is_failed(&self, peer: PeerId) -> bool {
        matches!(self.routes.get(peer.0 as usize), Some(Route::Failed) | None)
    }

    /// True if nobody has asked for a route to a peer, and none has come about.
    pub fn is_closed(&self, peer: PeerId) -> bool {
        matches!(self.routes.get(peer.0 as usize), Some(Route::Closed))
    }

    /// Gives up all routes: the rails are closed.
    pub fn close(&mut self) {
        self.routes.fill(Route::Failed);
        self.outages.clear();
        self.reopening.clear();
        self.failbacks.clear();
        self.actions.clear();
    }
}

/// First links.
impl Peers {
    /// Starts to search a route to a [closed](Peers::is_closed) peer over these rails.
    pub fn submit_search(&mut self, peer: PeerId, purpose: Purpose, candidates: Vec<Candidate>) {
        let carriers = candidates.into_iter().filter(|(rail, _)| !self.traits(*rail).passes);
        let search = Search::new(purpose, carriers.collect());
        self.routes[peer.0 as usize] = Route::Searching(Box::new(search));
        self.advance_search(peer);
    }

    /// Asks the next rail and its team, or ends the search.
    fn advance_search(&mut self, peer: PeerId) {
        let Self { rails, routes, names, actions, .. } = self;
        let Route::Searching(search) = &mut routes[peer.0 as usize] else { return };
        let asked = search.advance(|rail| rails[rail.0 as usize].team);
        if asked.is_empty() {
            if search.purpose == Purpose::Awaited {
                return self.end_search(peer);
            }
            let text = format!("{} cannot be reached: {}", names.name(peer), search.account());
            return self.fail_with(peer, Some(text));
        }
        actions.extend(asked.into_iter().map(|(rail, address)| Action::Connect {
            peer,
            rail,
            address,
        }));
    }

    /// Ends a search without a route for a peer to which nothing was to be sent when the search began.
    fn end_search(&mut self, peer: PeerId) {
        self.routes[peer.0 as usize] = Route::Closed;
        self.actions.push_back(Action::EndSearch { peer });
    }

    /// Handles a rail that could not begin to connect.
    pub fn handle_no_attempt(&mut self, peer: PeerId, rail: RailId, reason: &str, now: Duration) {
        let name = self.traits(rail).name;
        match self.routes.get_mut(peer.0 as usize) {
            Some(Route::Searching(search)) => {
                search.note_refusal(rail, name, reason);
                if search.leader == rail {
                    self.advance_search(peer);
                }
            }
            Some(Route::Open(_)) => {
                let unit = self.patience.detour;
                let retried =
                    |one: &&mut Failback| (one.peer, one.rail) == (peer, rail) && one.is_trying();
                if let Some(one) = self.failbacks.iter_mut().find(retried) {
                    one.put_off(now, unit);
                }
                // The peer may connect to this process, or other links carry on.
                self.reopening
                    .retain(|one| !one.is_of(peer, rail) || one.stage != ReopenStage::Trying);
                let again = self.reopening.iter_mut().find(|one| one.is_of(peer, rail));
                again.into_iter().for_each(|one| one.stage = ReopenStage::Refused);
            }
            Some(Route::Closed | Route::Failed) | None => {}
        }
    }

    /// Handles the end of an attempt while a peer is searched.
    fn handle_no_path(&mut self, peer: PeerId, rail: RailId, fault: Fault) {
        let name = self.traits(rail).name;
        let Some(Route::Searching(search)) = self.routes.get_mut(peer.0 as usize) else { return };
        let is_leader = search.leader == rail;
        match fault {
            Fault::Lost(reason) | Fault::Silent(reason, _) | Fault::Unreachable(reason)
                if !is_leader =>
            {
                search.note_refusal(rail, name, &reason);
            }
            Fault::Lost(reason) | Fault::Silent(reason, _) | Fault::Unreachable(reason)
                if !search.is_alone() =>
            {
                search.note_refusal(rail, name, &reason);
                self.actions.push_back(Action::NoteUnreachable { peer, rail });
                self.tell_next_rail(peer);
                self.advance_search(peer);
            }
            Fault::Unreachable(_) if search.purpose == Purpose::Awaited => self.end_search(peer),
            // The peer has closed, or is no process of this job.
            fault if is_leader => self.fail(peer, &fault),
            Fault::Closed
            | Fault::Lost(_)
            | Fault::Silent(..)
            | Fault::Unreachable(_)
            | Fault::Misbehaved(_) => {}
        }
    }

    /// Tells the user of the first peer that another rail is tried for.
    fn tell_next_rail(&mut self, peer: PeerId) {
        let Some(Route::Searching(search)) = self.routes.get(peer.0 as usize) else { return };
        if let (false, Some((refusal, next))) = (self.has_told_next_rail, search.turn()) {
            let name = self.traits(next).name;
            let text = format!("{}: {refusal}; {name} is tried", self.name(peer));
            self.actions.push_back(Action::Print(text));
            self.has_told_next_rail = true;
        }
    }

    /// Handles an opened link; `None` if the peer has failed before, so that the link is rejected.
    pub fn handle_up(&mut self, peer: PeerId, rail: RailId) -> Option<Opened> {
        match self.routes.get_mut(peer.0 as usize)? {
            route @ (Route::Closed | Route::Searching(_)) => {
                *route = Route::Open(RailSet::of(rail))
            }
            Route::Open(rails) => rails.insert(rail),
            Route::Failed => {
                self.actions.push_back(Action::Disconnect { peer, rail });
                return None;
            }
        }
        if let Some(outage) = self.outages.get_mut(&peer) {
            outage.note_opening(rail);
        }
        let at = self.reopening.iter().position(|one| one.is_of(peer, rail));
        if let Some(at) = at {
            self.reopening.swap_remove(at);
        }
        let takes_over = self.reopening.iter().any(|one| one.peer == peer);
        Some(Opened { is_back: at.is_some(), takes_over })
    }
}

/// Lost links.
impl Peers {
    /// Handles the end of a link or of an attempt. If a peer with a route has lost a link, the caller tells the engine
    /// and calls [`Peers::handle_loss`].
    pub fn handle_down(
        &mut self,
        peer: PeerId,
        rail: RailId,
        fault: &Fault,
        facts: &mut impl PeerFacts,
    ) -> Option<LostLink> {
        if let Fault::Unreachable(reason) = fault
            && facts.is_cut_off(peer)
            && let Some(one) = self.reopening.iter_mut().find(|one| one.is_of(peer, rail))
        {
            let is_first = one.stage == ReopenStage::Trying;
            one.stage = ReopenStage::Refused;
            self.handle_refusal(peer, rail, is_first.then_some(reason), facts);
            return None;
        }
        let passes = self.traits(rail).passes;
        match self.routes.get_mut(peer.0 as usize)? {
            Route::Open(open) => {
                let was_open = open.remove(rail);
                let open = *open;
                let is_replaced =
                    !open.is_empty() && !open.iter().any(|other| self.is_mate(other, rail));
                // A bypass link is requested again when the other links reopen.
                let is_spared = passes && !open.is_empty();
                let ends = is_spared || is_replaced || !fault.is_loss();
                if facts.is_restored(peer) {
                    self.outages.remove(&peer);
                }
                return Some(LostLink { peer, rail, ends, was_open, is_replaced });
            }
            Route::Searching(_) => self.handle_no_path(peer, rail, fault.clone()),
            // Another rail of a team has not reached the peer either.
            Route::Closed if matches!(fault, Fault::Unreachable(_)) => {}
            Route::Closed => self.fail(peer, fault),
            Route::Failed => {}
        }
        None
    }

    /// Continues without a link, and reopens it if permitted. `is_final` is true if what was lost cannot be sent again.
    pub fn handle_loss(
        &mut self,
        lost: LostLink,
        is_final: bool,
        fault: &Fault,
        now: Duration,
        facts: &mut impl PeerFacts,
    ) {
        let LostLink { peer, rail, was_open, is_replaced, .. } = lost;
        if is_final {
            return self.fail(peer, fault);
        }
        let RailTraits { name, passes, .. } = self.traits(rail);
        if is_replaced && !passes && facts.has_been_open(peer, rail) {
            self.note_replaced(peer, rail, now);
        }
        self.reopening.retain(|one| !one.is_of(peer, rail));
        let is_down = facts.is_down(peer);
        if was_open || is_down {
            // The time without a sign of life counts.
            let begin = || Outage::new(now, fault.silence().unwrap_or_default());
            let outage = self.outages.entry(peer).or_insert_with(begin);
            if was_open {
                outage.note_loss(rail, now, fault.silence());
            }
        }
        if was_open && (is_down || !passes) {
            let rest = if is_down { "it is opened anew" } else { "others go on" };
            let reason = fault.text().unwrap_or("closed");
            let text = format!("{name} to {} is gone, {rest}: {reason}", self.name(peer));
            self.actions.push_back(Action::Print(text));
        }
        if facts.may_reopen(peer, rail)
            && let Some((_, address)) =
                facts.addresses(peer).into_iter().find(|(other, _)| *other == rail)
        {
            self.reopen(peer, rail, address);
        }
    }

    /// Reopens a rail's link to a peer that was reached before. If it cannot connect, the peer may connect to this
    /// process, or other links carry on.
    fn reopen(&mut self, peer: PeerId, rail: RailId, address: Vec<u8>) {
        self.reopening.push(Reopening { peer, rail, stage: ReopenStage::Trying });
        self.actions.push_back(Action::Connect { peer, rail, address });
    }

    /// Handles a refused connection to a remote peer. A host or firewall may refuse although the peer is alive, so a
    /// refusal counts as silence, unless the launcher knows that the peer has ended. Other rails may still reach the
    /// peer.
    fn handle_refusal(
        &mut self,
        peer: PeerId,
        rail: RailId,
        first: Option<&String>,
        facts: &mut impl PeerFacts,
    ) {
        if facts.has_ended(peer) {
            return self.fail_ended(peer);
        }
        if let Some(reason) = first {
            let name = self.traits(rail).name;
            let text = format!("{name} to {} is refused: {reason}", self.name(peer));
            self.actions.push_back(Action::Print(text));
        }
        let addresses = facts.addresses(peer);
        self.try_remaining_rails(peer, addresses);
    }

    /// Repeats the attempts of rails that were refused.
    fn retry_refused_rails(&mut self, peer: PeerId, addresses: &[Candidate]) {
        let Self { reopening, actions, .. } = self;
        let is_refused =
            |one: &&mut Reopening| one.peer == peer && one.stage == ReopenStage::Refused;
        for one in reopening.iter_mut().filter(is_refused) {
            if let Some((rail, address)) = addresses.iter().find(|(rail, _)| *rail == one.rail) {
                one.stage = ReopenStage::TryingAgain;
                let address = address.clone();
                actions.push_back(Action::Connect { peer, rail: *rail, address });
            }
        }
    }

    /// Tries the remaining rails for a peer whose reconnections were dropped or refused. The first rail that comes up
    /// takes over.
    fn try_remaining_rails(&mut self, peer: PeerId, addresses: Vec<Candidate>) {
        for (rail, address) in addresses {
            let is_known = self.reopening.iter().any(|one| one.is_of(peer, rail));
            if !is_known && !self.traits(rail).passes {
                self.reopen(peer, rail, address);
            }
        }
    }

    /// Lets a rail take over for a peer: rails outside its team are no longer awaited, and it resends their lost
    /// frames.
    pub fn handle_takeover(&mut self, peer: PeerId, rail: RailId, facts: &impl PeerFacts) {
        let RailTraits { team, name, .. } = self.traits(rail);
        let Self { reopening, rails, names, actions, .. } = self;
        let is_other =
            |one: &mut Reopening| one.peer == peer && rails[one.rail.0 as usize].team != team;
        for Reopening { rail: other, .. } in reopening.extract_if(.., is_other) {
            if facts.may_reopen(peer, other) {
                let other = rails[other.0 as usize].name;
                let to = names.name(peer);
                let text = format!("{other} to {to} is not back: {name} takes over");
                actions.push_back(Action::Print(text));
            }
            let reason = format!("{name} leads there");
            actions.push_back(Action::Close { peer, rail: other, reason });
        }
    }

    /// Gives up a peer: no route leads to it any more.
    pub fn fail(&mut self, peer: PeerId, fault: &Fault) {
        let name = self.name(peer);
        let text = match fault {
            Fault::Closed => None,
            Fault::Lost(text) | Fault::Silent(text, _) => {
                Some(format!("link to {name} lost: {text}"))
            }
            Fault::Unreachable(text) => Some(format!("{name} unreachable: {text}")),
            Fault::Misbehaved(text) => Some(format!("{name} sent what no rank sends: {text}")),
        };
        self.fail_with(peer, text);
    }

    /// Gives up a peer without links that has ended according to the launcher.
    fn fail_ended(&mut self, peer: PeerId) {
        self.fail(peer, &Fault::Lost("its process has ended".into()));
    }

    fn fail_with(&mut self, peer: PeerId, text: Option<String>) {
        let Some(route) = self.routes.get_mut(peer.0 as usize) else { return };
        let mut asked = match std::mem::replace(route, Route::Failed) {
            Route::Closed | Route::Failed => RailSet::EMPTY,
            Route::Searching(search) => search.asked,
            Route::Open(rails) => rails,
        };
        let reopening = self.reopening.extract_if(.., |one| one.peer == peer);
        reopening.for_each(|one| asked.insert(one.rail));
        let left = asked.iter().map(|rail| Action::Disconnect { peer, rail });
        self.actions.extend(left);
        self.actions.push_back(Action::Fail { peer, text });
    }
}

/// Time.
impl Peers {
    /// Handles the time: outages end, lead to detours, or are over, and replaced rails are retried.
    pub fn handle_time(&mut self, now: Duration, facts: &mut impl PeerFacts) {
        let mut outages = std::mem::take(&mut self.outages);
        outages.retain(|&peer, outage| self.follow_outage(peer, outage, now, facts));
        self.outages = outages;
        let mut at = 0;
        while let Some(&(mut one)) = self.failbacks.get(at) {
            if self.follow_failback(&mut one, now, facts) {
                self.failbacks[at] = one;
                at += 1;
            } else {
                self.failbacks.swap_remove(at);
            }
        }
    }

    /// Advances one outage; false if it is over.
    fn follow_outage(
        &mut self,
        peer: PeerId,
        outage: &mut Outage,
        now: Duration,
        facts: &mut impl PeerFacts,
    ) -> bool {
        if !matches!(self.routes.get(peer.0 as usize), Some(Route::Open(_))) {
            return false;
        }
        let state = (facts.is_down(peer), facts.is_restored(peer));
        match outage.look(now, state, &self.patience) {
            OutageStep::Waits => true,
            OutageStep::Ends => false,
            OutageStep::Fails => {
                let text = "no link has opened again in time".into();
                self.fail(peer, &Fault::Lost(text));
                false
            }
            OutageStep::Detour if facts.has_ended(peer) => {
                self.fail_ended(peer);
                false
            }
            OutageStep::Detour => {
                let addresses = facts.addresses(peer);
                self.retry_refused_rails(peer, &addresses);
                self.try_remaining_rails(peer, addresses);
                true
            }
        }
    }

    /// Notes that rails of another team have replaced a rail.
    fn note_replaced(&mut self, peer: PeerId, rail: RailId, now: Duration) {
        let unit = self.patience.detour;
        match self.failbacks.iter_mut().find(|one| (one.peer, one.rail) == (peer, rail)) {
            Some(known) => known.put_off(now, unit),
            None => self.failbacks.push(Failback::new(peer, rail, now, unit)),
        }
    }

    /// Advances one failback; false if it is over.
    fn follow_failback(
        &mut self,
        one: &mut Failback,
        now: Duration,
        facts: &mut impl PeerFacts,
    ) -> bool {
        let Failback { peer, rail, .. } = *one;
        let Some(Route::Open(rails)) = self.routes.get(peer.0 as usize) else { return false };
        match one.advance((now, self.patience.detour), *rails, facts) {
            FailbackStep::Nothing => {}
            FailbackStep::Ends => return false,
            FailbackStep::Connect(address) => {
                self.actions.push_back(Action::Connect { peer, rail, address });
            }
            FailbackStep::GivesUp => self.actions.push_back(Action::Disconnect { peer, rail }),
            FailbackStep::Leads => self.close_substitutes(peer, rail, *rails),
        }
        true
    }

    /// Closes the links of other teams because a preferred rail is up again.
    fn close_substitutes(&mut self, peer: PeerId, rail: RailId, rails: RailSet) {
        let name = self.traits(rail).name;
        let text = format!("{name} to {} is back, and leads again", self.name(peer));
        self.actions.push_back(Action::Print(text));
        for other in rails.iter().filter(|other| !self.is_mate(*other, rail)).collect::<Vec<_>>() {
            let reason = format!("{name} leads there again");
            self.actions.push_back(Action::Close { peer, rail: other, reason });
        }
    }

    fn traits(&self, rail: RailId) -> RailTraits {
        self.rails[rail.0 as usize]
    }

    /// True if two rails are of one team.
    fn is_mate(&self, one: RailId, other: RailId) -> bool {
        self.traits(one).team == self.traits(other).team
    }
}
