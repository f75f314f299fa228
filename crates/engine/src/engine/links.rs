//! The life of links: how they open, are judged, part and open again; and their own words in frames.

use wire::packet::{self, Incarnation};
use wire::{Capabilities, Cost, Frame, FrameToken, PeerId, RailId};

use super::{Engine, PeerError, free};
use crate::link::{Apart, Link, State, judge};
use crate::peer::{PeerState, Reach, charge};

/// What the end of a link means for its peer.
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
    /// A link has fallen far behind the others of its peer: it is to be closed, and
    /// [`Engine::handle_link_down`] follows.
    Link(PeerId, RailId),
    /// A peer has had no open link for too long: all that leads to it is to be closed, and
    /// [`Engine::handle_down`] follows.
    Peer(PeerId),
    /// A peer has had no open link for a while, and then for as long again: other rails than those that are
    /// opening one may lead there.
    Way(PeerId),
}

/// Links open and end.
impl Engine {
    /// A link is open, or open again. A peer that is gone stays gone: its messages and credits have no
    /// beginning any more.
    pub fn handle_up(&mut self, peer: PeerId, rail: RailId, capabilities: Capabilities) {
        let state = self.peer(peer);
        if state.reach == Reach::Gone || state.link(rail).is_some() {
            return;
        }
        if state.reach != Reach::Up {
            state.reach = Reach::Up;
            state.accepted = capabilities.credit_bytes;
            state.credit = capabilities.credit_bytes;
        }
        if state.apart(rail).is_none() {
            let link = Link::new(rail, capabilities);
            match link.replay_buffer {
                Some(_) => state.apart.push(Apart { link, state: State::Parted }),
                None => state.join(link),
            }
        }
        if let Some(apart) = state.apart(rail)
            && let (State::Gone | State::Parted, Some(replay_buffer)) =
                (apart.state, &mut apart.link.replay_buffer)
        {
            replay_buffer.open();
            apart.state = State::Open { has_greeted: false, is_greeted: false };
        }
        self.watch(peer);
        self.grant(peer, capabilities.credit_wanted);
        self.list(peer);
    }

    /// The peers that receives without a message name, and the contexts of these.
    pub fn awaited(&self) -> Vec<(PeerId, u64)> {
        self.matching.awaited()
    }

    /// Whether no way to a peer was ever asked for, and none has come from there: that it is gone is not found out.
    pub fn is_untried(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        state.is_none_or(|state| state.reach == Reach::Closed)
    }

    /// A way that was not asked for here was tried in vain: the peer is as it was, and if a way was asked for
    /// meanwhile, it is asked for again.
    pub fn handle_no_way(&mut self, peer: PeerId) {
        let state = self.peer(peer);
        if state.reach == Reach::Wanted {
            state.reach = Reach::Closed;
            self.list(peer);
        }
    }

    /// What a link costs is known, or known better.
    pub fn handle_cost(&mut self, peer: PeerId, rail: RailId, cost: Cost) {
        if let Some(link) = self.peer(peer).any_link(rail) {
            link.predict(cost);
            self.adapt(peer, rail);
        }
    }

    /// The sizes of a link follow its costs.
    fn adapt(&mut self, peer: PeerId, rail: RailId) {
        let (host, budget_bytes) = (self.host, self.budget_bytes as u64);
        let Some(link) = self.peer(peer).any_link(rail) else { return };
        link.adapt(&host, budget_bytes);
        if link.capabilities.adapts {
            let wanted = link.capabilities.credit_wanted;
            self.grant(peer, wanted);
        }
        // A link that was passed over may be the better one now.
        self.list(peer);
    }

    /// Grants a peer credit up to `wanted` bytes in all, as far as the budget goes: never more than half
    /// of what is left, so that there is some for those that come later.
    fn grant(&mut self, peer: PeerId, wanted: usize) {
        let left = self.budget_bytes.saturating_sub(self.granted_bytes) / 2;
        let state = self.peer(peer);
        let bytes = wanted.saturating_sub(state.accepted + state.untold).min(left);
        state.granted += bytes;
        state.untold += bytes;
        self.granted_bytes += bytes;
    }

    /// Grants a peer what a message of `bytes` bytes costs, which it is told by the word that the message is taken in; false
    /// where that is too much. So a peer is never granted more than half of what the others leave.
    pub(super) fn grant_message(&mut self, peer: PeerId, bytes: u64) -> bool {
        let left = self.budget_bytes.saturating_sub(self.granted_bytes);
        let state = self.peer(peer);
        // granted + cost <= (granted + left) / 2
        let most = left.saturating_sub(state.granted) / 2;
        let cost = bytes.saturating_add(charge(0) as u64);
        if cost > most as u64 {
            return false;
        }
        state.granted += cost as usize;
        state.accepted += cost as usize;
        self.granted_bytes += cost as usize;
        true
    }

    /// The memory of a frame is free again, as far as the rail goes.
    pub fn handle_sent(&mut self, peer: PeerId, rail: RailId, token: FrameToken) {
        let Self { peers, ops, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return };
        let Some(link) = state.link(rail) else { return };
        // What may have to leave again is free when it has arrived, or is copied.
        if link.copies(token) {
            free(ops, token);
        }
    }

    /// A full link has room again.
    pub fn handle_room(&mut self, peer: PeerId, rail: RailId) {
        if let Some(link) = self.peer(peer).any_link(rail) {
            link.full = false;
            self.list(peer);
        }
    }

    /// A link is gone, and with `ends` it does not open again: the peer has closed it, or cannot be reached by its
    /// rail any more.
    pub fn handle_link_down(&mut self, peer: PeerId, rail: RailId, ends: bool) -> Loss {
        let is_impatient = self.patience_ns == 0;
        let state = self.peer(peer);
        let link_state = |link: &Link| {
            let may_open = link.capabilities.reopens && !ends && !is_impatient;
            if may_open { State::Parted } else { State::Gone }
        };
        let mut survives = true;
        if let Some(at) = state.links.iter().position(|link| link.rail == rail) {
            let link = state.links.remove(at);
            survives = link.replay_buffer.is_some();
            let after = link_state(&link);
            state.part(link, after);
        } else if let Some(at) = state.apart.iter().position(|apart| apart.link.rail == rail) {
            let mut apart = state.apart.swap_remove(at);
            apart.link.close();
            // The peer may have been greeted, and have sent what has not come.
            if let State::Open { .. } = apart.state {
                state.tell_parted(&apart.link);
            }
            apart.state = link_state(&apart.link);
            state.apart.push(apart);
        } else {
            return if state.reach == Reach::Up { Loss::Borne } else { Loss::Final };
        }
        if !survives || !state.can_recover() {
            self.handle_down(peer);
            return Loss::Final;
        }
        let loss = if state.is_parted() { Loss::Parted } else { Loss::Borne };
        self.watch(peer);
        self.list(peer);
        loss
    }

    /// A link that the peer has given up, though its rail has not found it lost: it is to be closed, and
    /// [`Engine::handle_link_down`] follows.
    pub fn poll_severed(&mut self) -> Option<(PeerId, RailId)> {
        self.severed.pop_front()
    }

    /// Whether a link that is gone may open again.
    pub fn may_reopen(&self, peer: PeerId, rail: RailId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let is_it = |apart: &Apart| apart.link.rail == rail && apart.state == State::Parted;
        state.is_some_and(|state| state.apart.iter().any(is_it))
    }

    /// Whether a link was open that is gone, to a peer so far away that it is kept count of.
    pub fn has_been_open(&self, peer: PeerId, rail: RailId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let is_it = |apart: &Apart| apart.link.rail == rail && apart.link.is_far();
        state.is_some_and(|state| state.apart.iter().any(is_it))
    }

    /// Whether the frames of a link are kept until they have arrived.
    pub fn keeps(&self, peer: PeerId, rail: RailId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let is_it = |link: &Link| link.rail == rail && link.replay_buffer.is_some();
        state.is_some_and(|state| state.links.iter().any(is_it))
    }

    /// Whether a link carries frames: it is open, and both ends have greeted.
    pub fn carries(&self, peer: PeerId, rail: RailId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        state.is_some_and(|state| state.links.iter().any(|link| link.rail == rail))
    }

    /// How long a peer may be without a link before other rails are asked for a way.
    pub fn detour_ns(&self) -> u64 {
        self.detour_ns
    }

    /// Whether a peer that is far away was reached and has no link: who refuses there may stand in between, and the
    /// peer is waited for.
    pub fn is_cut_off(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let is_far = |apart: &Apart| apart.state == State::Parted && apart.link.is_far();
        state.is_some_and(|state| state.is_parted() && state.apart.iter().any(is_far))
    }

    /// Whether there is a link that the peer has given up.
    #[inline]
    pub fn has_severed(&self) -> bool {
        !self.severed.is_empty()
    }

    /// The peer is gone, or there is no way to it: operations that need it complete with
    /// [`Outcome::PeerFailed`](crate::Outcome::PeerFailed), those that are being fetched when
    /// [`Engine::handle_remote_read_done`] says that the fetch has ended.
    pub fn handle_down(&mut self, peer: PeerId) {
        self.end_rts_data(peer);
        self.ops.event_count += 1;
        let state = self.peer(peer);
        let reach = match state.reach {
            Reach::Closed | Reach::Wanted | Reach::Unreachable => Reach::Unreachable,
            Reach::Up | Reach::Gone => Reach::Gone,
        };
        let granted = state.granted;
        *state = PeerState { reach, ..PeerState::new() };
        self.granted_bytes -= granted;
        self.matching.drop_rts(peer);
        for index in self.ops.of_peer(peer) {
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
    fn watch(&mut self, peer: PeerId) {
        if self.peer(peer).is_watched() && !self.watched.contains(&peer) {
            self.watched.push(peer);
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
        while let Some(&peer) = self.watched.get(at) {
            let (patience_ns, detour_ns) = (self.patience_ns, self.detour_ns);
            let state = self.peer(peer);
            if !state.is_watched() {
                self.watched.swap_remove(at);
                continue;
            }
            at += 1;
            state.links.iter_mut().for_each(|link| link.stamp(now_ns));
            if state.is_parted() {
                let for_ns = state.wait_parted(passed_ns);
                if for_ns >= patience_ns {
                    overdue = overdue.or(Some(Overdue::Peer(peer)));
                } else if overdue.is_none() && for_ns / detour_ns > state.detours {
                    state.detours = for_ns / detour_ns;
                    overdue = Some(Overdue::Way(peer));
                }
            }
            if let [only] = &mut state.links[..] {
                only.ask_if_late(now_ns);
            } else {
                let late = judge(&mut state.links, now_ns).map(|rail| Overdue::Link(peer, rail));
                overdue = overdue.or(late);
            }
            let is_timed = !state.apart.is_empty() || state.links.iter().any(Link::has_longs);
            if state.links.iter().any(Link::has_work) || state.has_work() {
                self.list(peer);
            }
            self.is_timed |= is_timed;
        }
        overdue
    }
}

/// Words about links.
impl Engine {
    /// Takes in what a frame says of the link that it came over, the peer's link `at`, and counts it if it holds
    /// more; answers the rest.
    #[inline(never)]
    pub(super) fn hear<'a>(
        &mut self,
        peer: PeerId,
        at: usize,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], PeerError> {
        let Self { peers, ops, now_ns, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return Ok(bytes) };
        let (mut rest, mut is_asked, mut is_told) = (bytes, false, false);
        let mut has_changed = None;
        let link = &mut state.links[at];
        if let Some((frames, prompt, behind)) = packet::split_ack(bytes) {
            (rest, is_asked, is_told) = (behind, prompt, true);
            let changes = link.confirm(frames, *now_ns, |token| free(ops, token))?;
            has_changed = changes.then_some(link.rail);
            state.parted_for_ns = None;
        }
        if let Some(replay_buffer) = &mut link.replay_buffer
            && !rest.is_empty()
        {
            replay_buffer.receive(rest.len());
        }
        // The peer puts more in order now, and the link keeps more.
        if is_asked || state.is_pressed || (is_told && !state.is_drained()) {
            self.answer_word(peer, is_asked);
        }
        if let Some(rail) = has_changed {
            self.adapt(peer, rail);
        }
        Ok(rest)
    }

    /// The peer may wait to be told what has come, and the peer may have something to send.
    fn answer_word(&mut self, peer: PeerId, is_asked: bool) {
        let state = self.peer(peer);
        if is_asked || state.is_pressed {
            // On all links: what holds the sender up may be a frame on another, which may be still to come. Where
            // nothing has come since, silence says so, and lets the other end look less often.
            let replay_buffers =
                state.links.iter_mut().filter_map(|link| link.replay_buffer.as_mut());
            replay_buffers
                .filter(|replay_buffer| replay_buffer.has_untold())
                .for_each(|replay_buffer| replay_buffer.ask());
            state.is_pressed = !state.early.is_empty();
        }
        self.list(peer);
    }

    /// Takes in what came over a link that carries nothing yet: the peer's greeting. What comes over one that is
    /// to be closed is too late.
    #[cold]
    pub(super) fn hear_apart<'a>(
        &mut self,
        peer: PeerId,
        rail: RailId,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], PeerError> {
        let Self { peers, ops, now_ns, severed, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return Ok(&[]) };
        let apart = state.apart(rail).ok_or(PeerError::NotConnected)?;
        let State::Open { has_greeted, is_greeted: false } = apart.state else { return Ok(&[]) };
        let (link, frames, keeps) = packet::parse_resume(bytes).ok_or(PeerError::Greeting)?;
        apart.link.confirm(frames, *now_ns, |token| free(ops, token))?;
        if !apart.link.replay_buffer.as_mut().is_some_and(|replay_buffer| replay_buffer.meet(link))
        {
            severed.push_back((peer, rail));
            return Ok(&[]);
        }
        apart.state = State::Open { has_greeted, is_greeted: true };
        apart.link.replay_buffer.iter_mut().for_each(|replay_buffer| replay_buffer.keeps |= keeps);
        if has_greeted {
            self.introduce(peer, rail);
        }
        Ok(&[])
    }

    /// Greets the peer over a link that has opened.
    #[cold]
    pub(super) fn poll_greeting(&mut self, peer: PeerId, rail: RailId, frame: &mut Frame) -> bool {
        let is_patient = self.patience_ns > 0;
        let Some(apart) = self.peer(peer).apart(rail).filter(|apart| apart.greets()) else {
            return false;
        };
        if let Some(stalled) = apart.link.stalled.take() {
            *frame = stalled;
            return true;
        }
        let keeps = apart.link.keeps(is_patient);
        let (State::Open { is_greeted, .. }, Some(replay_buffer)) =
            (apart.state, &mut apart.link.replay_buffer)
        else {
            return false;
        };
        replay_buffer.emit_resume(&mut frame.head, rail, keeps);
        apart.state = State::Open { has_greeted: true, is_greeted };
        if is_greeted {
            self.introduce(peer, rail);
        }
        self.counters.frames += 1;
        true
    }

    /// Both sides have greeted: the link carries frames.
    fn introduce(&mut self, peer: PeerId, rail: RailId) {
        let state = self.peer(peer);
        let Some(at) = state.apart.iter().position(|apart| apart.link.rail == rail) else { return };
        let Apart { mut link, .. } = state.apart.remove(at);
        if link.replay_buffer.as_ref().is_some_and(|replay_buffer| !replay_buffer.keeps) {
            link.replay_buffer = None;
        }
        // One that opens again and again, and never carries what it is to, is none.
        if link.backlog_bytes() == 0 && state.lost.is_empty() {
            state.parted_for_ns = None;
        }
        state.join(link);
        self.watch(peer);
        self.list(peer);
    }

    /// The peer takes no more frames from a link, of which it has taken so many: what was sent after them goes
    /// another way.
    #[cold]
    pub(super) fn handle_link_down_packet(
        &mut self,
        peer: PeerId,
        name: Incarnation,
        frames: u32,
    ) -> Result<(), PeerError> {
        let Self { peers, ops, now_ns, severed, patience_ns, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return Ok(()) };
        let is_it = |link: &Link| {
            let peer = link.replay_buffer.as_ref().and_then(|replay_buffer| replay_buffer.peer);
            peer.is_some_and(|peer| peer.rail == name.rail && peer.epoch <= name.epoch)
        };
        // A word about an epoch before the last that is known here is late.
        if let Some(at) = state.links.iter().position(is_it) {
            let link = state.links.remove(at);
            severed.push_back((peer, link.rail));
            let may_open = link.capabilities.reopens && *patience_ns > 0;
            state.part(link, if may_open { State::Parted } else { State::Gone });
        }
        let Some(at) = state.apart.iter().position(|apart| is_it(&apart.link)) else {
            return Ok(());
        };
        let Apart { link, state: link_state } = &mut state.apart[at];
        let rail = link.rail;
        link.confirm(frames, *now_ns, |token| free(ops, token))?;
        let Some(replay_buffer) = &mut link.replay_buffer else { return Ok(()) };
        let is_known = replay_buffer.is_over && replay_buffer.peer == Some(name);
        (replay_buffer.peer, replay_buffer.is_over) = (Some(name), true);
        match *link_state {
            // The peer may have missed this side's word, not having been greeted then.
            State::Gone | State::Parted if !is_known => {
                let apart = state.apart.swap_remove(at);
                state.tell_parted(&apart.link);
                state.apart.push(apart);
            }
            State::Open { is_greeted: true, .. } => severed.push_back((peer, rail)),
            State::Gone | State::Parted | State::Open { .. } => {}
        }
        state.give_away(rail);
        self.list(peer);
        Ok(())
    }
}

/// So often the time need not be told, where no long frames are under way.
const UNTIMED_MAX: u32 = 16;

/// A process that waits looks at the clock more often than this: whoever computes for a minute has not waited
/// for one.
const GAP_MAX_NS: u64 = 1_000_000_000;
