//! The life of links: how they open, are judged, part and open again; and their own words in frames.

use wire::packet::{self, Incarnation};
use wire::{Capabilities, Cost, Frame, FrameToken, GateId, RailId};

use super::{Engine, PeerError, free};
use crate::gate::{Gate, Reach, charge};
use crate::link::{Apart, Link, State, judge};

/// What the end of a link means for its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Other links carry on, and what may have been lost.
    Borne,
    /// No link is open. What was under way goes on when one is again; [`Engine::handle_time`] says when that has
    /// taken too long.
    Parted,
    /// The peer is gone, as [`Engine::handle_down`] says.
    Final,
}

/// What has taken too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// A link has fallen far behind the others of its gate: it is to be closed, and
    /// [`Engine::handle_link_down`] follows.
    Link(GateId, RailId),
    /// A peer has had no open link for too long: all that leads to it is to be closed, and
    /// [`Engine::handle_down`] follows.
    Peer(GateId),
    /// A peer has had no open link for a while, and then for as long again: other rails than those that are
    /// opening one may lead there.
    Way(GateId),
}

/// Links open and end.
impl Engine {
    /// A link is open, or open again. A peer that is gone stays gone: its messages and credits have no
    /// beginning any more.
    pub fn handle_up(&mut self, gate: GateId, rail: RailId, capabilities: Capabilities) {
        let way = self.gate(gate);
        if way.reach == Reach::Gone || way.link(rail).is_some() {
            return;
        }
        if way.reach != Reach::Up {
            way.reach = Reach::Up;
            way.accepted = capabilities.credit_bytes;
            way.credit = capabilities.credit_bytes;
        }
        if way.apart(rail).is_none() {
            let link = Link::new(rail, capabilities);
            match link.ledger {
                Some(_) => way.apart.push(Apart { link, state: State::Parted }),
                None => way.join(link),
            }
        }
        if let Some(apart) = way.apart(rail)
            && let (State::Gone | State::Parted, Some(ledger)) =
                (apart.state, &mut apart.link.ledger)
        {
            ledger.open();
            apart.state = State::Open { has_greeted: false, is_greeted: false };
        }
        self.watch(gate);
        self.grant(gate, capabilities.credit_wanted);
        self.list(gate);
    }

    /// The peers that receives without a message name, and the contexts of these.
    pub fn awaited(&self) -> Vec<(GateId, u64)> {
        self.matching.awaited()
    }

    /// Whether no way to a peer was ever asked for, and none has come from there: that it is gone is not found out.
    pub fn is_untried(&self, gate: GateId) -> bool {
        let way = self.gates.get(gate.0 as usize).and_then(Option::as_ref);
        way.is_none_or(|way| way.reach == Reach::Closed)
    }

    /// A way that was not asked for here was tried in vain: the peer is as it was, and if a way was asked for
    /// meanwhile, it is asked for again.
    pub fn handle_no_way(&mut self, gate: GateId) {
        let way = self.gate(gate);
        if way.reach == Reach::Wanted {
            way.reach = Reach::Closed;
            self.list(gate);
        }
    }

    /// What a link costs is known, or known better.
    pub fn handle_cost(&mut self, gate: GateId, rail: RailId, cost: Cost) {
        if let Some(link) = self.gate(gate).any_link(rail) {
            link.predict(cost);
            self.adapt(gate, rail);
        }
    }

    /// The sizes of a link follow its costs.
    fn adapt(&mut self, gate: GateId, rail: RailId) {
        let (host, budget_bytes) = (self.host, self.budget_bytes as u64);
        let Some(link) = self.gate(gate).any_link(rail) else { return };
        link.adapt(&host, budget_bytes);
        if link.capabilities.adapts {
            let wanted = link.capabilities.credit_wanted;
            self.grant(gate, wanted);
        }
        // A link that was passed over may be the better one now.
        self.list(gate);
    }

    /// Grants a peer credit up to `wanted` bytes in all, as far as the budget goes: never more than half
    /// of what is left, so that there is some for those that come later.
    fn grant(&mut self, gate: GateId, wanted: usize) {
        let left = self.budget_bytes.saturating_sub(self.granted_bytes) / 2;
        let way = self.gate(gate);
        let bytes = wanted.saturating_sub(way.accepted + way.untold).min(left);
        way.granted += bytes;
        way.untold += bytes;
        self.granted_bytes += bytes;
    }

    /// Grants a peer what a message of `bytes` bytes costs, which it is told by the word that the message is taken in; false
    /// where that is too much. So a peer is never granted more than half of what the others leave.
    pub(super) fn grant_message(&mut self, gate: GateId, bytes: u64) -> bool {
        let left = self.budget_bytes.saturating_sub(self.granted_bytes);
        let way = self.gate(gate);
        // granted + cost <= (granted + left) / 2
        let most = left.saturating_sub(way.granted) / 2;
        let cost = bytes.saturating_add(charge(0) as u64);
        if cost > most as u64 {
            return false;
        }
        way.granted += cost as usize;
        way.accepted += cost as usize;
        self.granted_bytes += cost as usize;
        true
    }

    /// The memory of a frame is free again, as far as the rail goes.
    pub fn handle_sent(&mut self, gate: GateId, rail: RailId, token: FrameToken) {
        let Self { gates, ops, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return };
        let Some(link) = way.link(rail) else { return };
        // What may have to leave again is free when it has arrived, or is copied.
        if link.copies(token) {
            free(ops, token);
        }
    }

    /// A full link has room again.
    pub fn handle_room(&mut self, gate: GateId, rail: RailId) {
        if let Some(link) = self.gate(gate).any_link(rail) {
            link.full = false;
            self.list(gate);
        }
    }

    /// A link is gone, and with `ends` it does not open again: the peer has closed it, or cannot be reached by its
    /// rail any more.
    pub fn handle_link_down(&mut self, gate: GateId, rail: RailId, ends: bool) -> Loss {
        let is_impatient = self.patience_ns == 0;
        let way = self.gate(gate);
        let state = |link: &Link| {
            let may_open = link.capabilities.reopens && !ends && !is_impatient;
            if may_open { State::Parted } else { State::Gone }
        };
        let mut survives = true;
        if let Some(at) = way.links.iter().position(|link| link.rail == rail) {
            let link = way.links.remove(at);
            survives = link.ledger.is_some();
            let state = state(&link);
            way.part(link, state);
        } else if let Some(at) = way.apart.iter().position(|apart| apart.link.rail == rail) {
            let mut apart = way.apart.swap_remove(at);
            apart.link.close();
            // The peer may have been greeted, and have sent what has not come.
            if let State::Open { .. } = apart.state {
                way.tell_parted(&apart.link);
            }
            apart.state = state(&apart.link);
            way.apart.push(apart);
        } else {
            return if way.reach == Reach::Up { Loss::Borne } else { Loss::Final };
        }
        if !survives || !way.can_recover() {
            self.handle_down(gate);
            return Loss::Final;
        }
        let loss = if way.is_parted() { Loss::Parted } else { Loss::Borne };
        self.watch(gate);
        self.list(gate);
        loss
    }

    /// A link that the peer has given up, though its rail has not found it lost: it is to be closed, and
    /// [`Engine::handle_link_down`] follows.
    pub fn poll_severed(&mut self) -> Option<(GateId, RailId)> {
        self.severed.pop_front()
    }

    /// Whether a link that is gone may open again.
    pub fn may_reopen(&self, gate: GateId, rail: RailId) -> bool {
        let way = self.gates.get(gate.0 as usize).and_then(Option::as_ref);
        let is_it = |apart: &Apart| apart.link.rail == rail && apart.state == State::Parted;
        way.is_some_and(|way| way.apart.iter().any(is_it))
    }

    /// Whether a link was open that is gone, to a peer so far away that it is kept count of.
    pub fn has_been_open(&self, gate: GateId, rail: RailId) -> bool {
        let way = self.gates.get(gate.0 as usize).and_then(Option::as_ref);
        let is_it = |apart: &Apart| apart.link.rail == rail && apart.link.is_far();
        way.is_some_and(|way| way.apart.iter().any(is_it))
    }

    /// Whether the frames of a link are kept until they have arrived.
    pub fn keeps(&self, gate: GateId, rail: RailId) -> bool {
        let way = self.gates.get(gate.0 as usize).and_then(Option::as_ref);
        let is_it = |link: &Link| link.rail == rail && link.ledger.is_some();
        way.is_some_and(|way| way.links.iter().any(is_it))
    }

    /// Whether a link carries frames: it is open, and both ends have greeted.
    pub fn carries(&self, gate: GateId, rail: RailId) -> bool {
        let way = self.gates.get(gate.0 as usize).and_then(Option::as_ref);
        way.is_some_and(|way| way.links.iter().any(|link| link.rail == rail))
    }

    /// How long a peer may be without a link before other rails are asked for a way.
    pub fn detour_ns(&self) -> u64 {
        self.detour_ns
    }

    /// Whether a peer that is far away was reached and has no link: who refuses there may stand in between, and the
    /// peer is waited for.
    pub fn is_cut_off(&self, gate: GateId) -> bool {
        let way = self.gates.get(gate.0 as usize).and_then(Option::as_ref);
        let is_far = |apart: &Apart| apart.state == State::Parted && apart.link.is_far();
        way.is_some_and(|way| way.is_parted() && way.apart.iter().any(is_far))
    }

    /// Whether there is a link that the peer has given up.
    #[inline]
    pub fn has_severed(&self) -> bool {
        !self.severed.is_empty()
    }

    /// The peer is gone, or there is no way to it: operations that need it complete with
    /// [`Outcome::PeerFailed`](crate::Outcome::PeerFailed), those that are being fetched when
    /// [`Engine::handle_pulled`] says that the fetch has ended.
    pub fn handle_down(&mut self, gate: GateId) {
        self.end_ahead(gate);
        self.ops.news += 1;
        let way = self.gate(gate);
        let reach = match way.reach {
            Reach::Closed | Reach::Wanted | Reach::Unreachable => Reach::Unreachable,
            Reach::Up | Reach::Gone => Reach::Gone,
        };
        let granted = way.granted;
        *way = Gate { reach, ..Gate::new() };
        self.granted_bytes -= granted;
        self.matching.drop_requests(gate);
        for index in self.ops.of_gate(gate) {
            if self.ops.is_being_fetched(index) {
                continue;
            }
            self.matching.cancel(self.ops.id(index));
            self.fail(index);
        }
    }
}

/// Time.
impl Engine {
    fn watch(&mut self, gate: GateId) {
        if self.gate(gate).is_watched() && !self.watched.contains(&gate) {
            self.watched.push(gate);
        }
        self.is_timed = true;
    }

    /// Whether there are links that the engine is to be told the time for.
    pub fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether the engine is to be told the time, when asked after what came was taken in: where links are
    /// judged beside one another, or waited for; soon while long frames are under way, and now and then.
    #[inline]
    pub fn wants_time(&mut self) -> bool {
        !self.watched.is_empty() && {
            self.untimed += 1;
            self.is_timed || self.untimed >= UNTIMED_MAX
        }
    }

    /// It is so late, by a clock that never goes back. Answers what has taken too long.
    pub fn handle_time(&mut self, now_ns: u64) -> Option<Overdue> {
        let passed_ns = now_ns.saturating_sub(self.now_ns).min(GAP_MAX_NS);
        (self.now_ns, self.untimed, self.is_timed) = (now_ns, 0, false);
        let mut overdue = None;
        let mut at = 0;
        while let Some(&gate) = self.watched.get(at) {
            let (patience_ns, detour_ns) = (self.patience_ns, self.detour_ns);
            let way = self.gate(gate);
            if !way.is_watched() {
                self.watched.swap_remove(at);
                continue;
            }
            at += 1;
            way.links.iter_mut().for_each(|link| link.stamp(now_ns));
            if way.is_parted() {
                let for_ns = way.wait_parted(passed_ns);
                if for_ns >= patience_ns {
                    overdue = overdue.or(Some(Overdue::Peer(gate)));
                } else if overdue.is_none() && for_ns / detour_ns > way.detours {
                    way.detours = for_ns / detour_ns;
                    overdue = Some(Overdue::Way(gate));
                }
            }
            if let [only] = &mut way.links[..] {
                only.ask_if_late(now_ns);
            } else {
                let late = judge(&mut way.links, now_ns).map(|rail| Overdue::Link(gate, rail));
                overdue = overdue.or(late);
            }
            let is_timed = !way.apart.is_empty() || way.links.iter().any(Link::has_longs);
            if way.links.iter().any(Link::has_work) || way.has_work() {
                self.list(gate);
            }
            self.is_timed |= is_timed;
        }
        overdue
    }
}

/// Words about links.
impl Engine {
    /// Takes in what a frame says of the link that it came over, the gate's link `at`, and counts it if it holds
    /// more; answers the rest.
    #[inline(never)]
    pub(super) fn hear<'a>(
        &mut self,
        gate: GateId,
        at: usize,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], PeerError> {
        let Self { gates, ops, now_ns, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return Ok(bytes) };
        let (mut rest, mut is_asked, mut is_told) = (bytes, false, false);
        let mut has_changed = None;
        let link = &mut way.links[at];
        if let Some((frames, prompt, behind)) = packet::split_arrived(bytes) {
            (rest, is_asked, is_told) = (behind, prompt, true);
            let changes = link.confirm(frames, *now_ns, |token| free(ops, token))?;
            has_changed = changes.then_some(link.rail);
            way.parted_for_ns = None;
        }
        if let Some(ledger) = &mut link.ledger
            && !rest.is_empty()
        {
            ledger.receive(rest.len());
        }
        // The peer puts more in order now, and the link keeps more.
        if is_asked || way.is_pressed || (is_told && !way.is_drained()) {
            self.answer_word(gate, is_asked);
        }
        if let Some(rail) = has_changed {
            self.adapt(gate, rail);
        }
        Ok(rest)
    }

    /// The peer may wait to be told what has come, and the gate may have something to send.
    fn answer_word(&mut self, gate: GateId, is_asked: bool) {
        let way = self.gate(gate);
        if is_asked || way.is_pressed {
            // On all links: what holds the sender up may be a frame on another, which may be still to come. Where
            // nothing has come since, silence says so, and lets the other end look less often.
            let ledgers = way.links.iter_mut().filter_map(|link| link.ledger.as_mut());
            ledgers.filter(|ledger| ledger.has_untold()).for_each(|ledger| ledger.ask());
            way.is_pressed = !way.early.is_empty();
        }
        self.list(gate);
    }

    /// Takes in what came over a link that carries nothing yet: the peer's greeting. What comes over one that is
    /// to be closed is too late.
    #[cold]
    pub(super) fn hear_apart<'a>(
        &mut self,
        gate: GateId,
        rail: RailId,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], PeerError> {
        let Self { gates, ops, now_ns, severed, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return Ok(&[]) };
        let apart = way.apart(rail).ok_or(PeerError::NotConnected)?;
        let State::Open { has_greeted, is_greeted: false } = apart.state else { return Ok(&[]) };
        let (link, frames, keeps) = packet::parse_greeting(bytes).ok_or(PeerError::Greeting)?;
        apart.link.confirm(frames, *now_ns, |token| free(ops, token))?;
        if !apart.link.ledger.as_mut().is_some_and(|ledger| ledger.meet(link)) {
            severed.push_back((gate, rail));
            return Ok(&[]);
        }
        apart.state = State::Open { has_greeted, is_greeted: true };
        apart.link.ledger.iter_mut().for_each(|ledger| ledger.keeps |= keeps);
        if has_greeted {
            self.introduce(gate, rail);
        }
        Ok(&[])
    }

    /// Greets the peer over a link that has opened.
    #[cold]
    pub(super) fn poll_greeting(&mut self, gate: GateId, rail: RailId, frame: &mut Frame) -> bool {
        let is_patient = self.patience_ns > 0;
        let Some(apart) = self.gate(gate).apart(rail).filter(|apart| apart.greets()) else {
            return false;
        };
        if let Some(stalled) = apart.link.stalled.take() {
            *frame = stalled;
            return true;
        }
        let keeps = apart.link.keeps(is_patient);
        let (State::Open { is_greeted, .. }, Some(ledger)) = (apart.state, &mut apart.link.ledger)
        else {
            return false;
        };
        ledger.emit_greeting(&mut frame.head, rail, keeps);
        apart.state = State::Open { has_greeted: true, is_greeted };
        if is_greeted {
            self.introduce(gate, rail);
        }
        self.counters.frames += 1;
        true
    }

    /// Both sides have greeted: the link carries frames.
    fn introduce(&mut self, gate: GateId, rail: RailId) {
        let way = self.gate(gate);
        let Some(at) = way.apart.iter().position(|apart| apart.link.rail == rail) else { return };
        let Apart { mut link, .. } = way.apart.remove(at);
        if link.ledger.as_ref().is_some_and(|ledger| !ledger.keeps) {
            link.ledger = None;
        }
        // One that opens again and again, and never carries what it is to, is none.
        if link.backlog_bytes() == 0 && way.lost.is_empty() {
            way.parted_for_ns = None;
        }
        way.join(link);
        self.watch(gate);
        self.list(gate);
    }

    /// The peer takes no more frames from a link, of which it has taken so many: what was sent after them goes
    /// another way.
    #[cold]
    pub(super) fn handle_parted(
        &mut self,
        gate: GateId,
        name: Incarnation,
        frames: u32,
    ) -> Result<(), PeerError> {
        let Self { gates, ops, now_ns, severed, patience_ns, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return Ok(()) };
        let is_it = |link: &Link| {
            let peer = link.ledger.as_ref().and_then(|ledger| ledger.peer);
            peer.is_some_and(|peer| peer.rail == name.rail && peer.epoch <= name.epoch)
        };
        // A word about an epoch before the last that is known here is late.
        if let Some(at) = way.links.iter().position(is_it) {
            let link = way.links.remove(at);
            severed.push_back((gate, link.rail));
            let may_open = link.capabilities.reopens && *patience_ns > 0;
            way.part(link, if may_open { State::Parted } else { State::Gone });
        }
        let Some(at) = way.apart.iter().position(|apart| is_it(&apart.link)) else {
            return Ok(());
        };
        let Apart { link, state } = &mut way.apart[at];
        let rail = link.rail;
        link.confirm(frames, *now_ns, |token| free(ops, token))?;
        let Some(ledger) = &mut link.ledger else { return Ok(()) };
        let is_known = ledger.is_over && ledger.peer == Some(name);
        (ledger.peer, ledger.is_over) = (Some(name), true);
        match *state {
            // The peer may have missed this side's word, not having been greeted then.
            State::Gone | State::Parted if !is_known => {
                let apart = way.apart.swap_remove(at);
                way.tell_parted(&apart.link);
                way.apart.push(apart);
            }
            State::Open { is_greeted: true, .. } => severed.push_back((gate, rail)),
            State::Gone | State::Parted | State::Open { .. } => {}
        }
        way.give_away(rail);
        self.list(gate);
        Ok(())
    }
}

/// So often the time need not be told, where no long frames are under way.
const UNTIMED_MAX: u32 = 16;

/// A process that waits looks at the clock more often than this: whoever computes for a minute has not waited
/// for one.
const GAP_MAX_NS: u64 = 1_000_000_000;
