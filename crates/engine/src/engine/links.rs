//! Life cycle of links: opening, comparison, loss and reopening; and the packets about links.

use cost::Cost;
use wire::packet::{self, Incarnation};
use wire::{Capabilities, Frame, FrameToken, PeerId, RailId};

use super::{Engine, PeerError, free};
use crate::link::{InactiveLink, Link, LinkState, judge};
use crate::peer::{PeerState, Reach, charge};

/// Effect of a lost link on its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Other links carry on, and resend what may have been lost.
    Tolerated,
    /// No link is open. Pending operations continue when one reopens.
    LinkDown,
    /// The peer has failed, as by [`Engine::handle_down`].
    Final,
}

/// Opening and closing.
impl Engine {
    /// Handles an opened or reopened link. A failed peer stays failed: its messages and credits
    /// have no defined start any more.
    pub fn handle_up(&mut self, peer: PeerId, rail: RailId, capabilities: Capabilities) {
        let state = self.peer(peer);
        if state.reach.is_failed() || state.link(rail).is_some() {
            return;
        }
        if state.reach != Reach::Up {
            state.reach = Reach::Up;
            state.accepted = capabilities.credit_bytes;
            state.credit = capabilities.credit_bytes;
        }
        if state.inactive(rail).is_none() {
            let link = Link::new(rail, capabilities);
            match link.replay_buffer {
                Some(_) => state.inactive.push(InactiveLink { link, state: LinkState::Down }),
                None => state.activate(link),
            }
        }
        if let Some(inactive) = state.inactive(rail)
            && let (LinkState::Gone | LinkState::Down, Some(replay_buffer)) =
                (inactive.state, &mut inactive.link.replay_buffer)
        {
            replay_buffer.open();
            inactive.state = LinkState::Open { resume_sent: false, resume_received: false };
        }
        self.watch(peer);
        self.grant(peer, capabilities.credit_wanted);
        self.list(peer);
    }

    /// Peers and contexts of the receives without a message that name their peer.
    pub fn awaited(&self) -> Vec<(PeerId, u64)> {
        self.matching.awaited()
    }

    /// True if no path to a peer was requested and none came from it, so that its failure would go
    /// unnoticed.
    pub fn is_untried(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        state.is_none_or(|state| state.reach == Reach::Unconnected)
    }

    /// Peers to which a path was requested and has not opened.
    pub fn wanted_peers(&self) -> impl Iterator<Item = PeerId> {
        let is_wanted = |peer: &PeerState| peer.reach == Reach::Wanted;
        let all = (0..).map(PeerId).zip(&self.peers);
        all.filter(move |(_, peer)| peer.as_deref().is_some_and(is_wanted)).map(|(id, _)| id)
    }

    /// Handles a failed attempt to reach a peer that was not requested here. The peer's state
    /// stays; a request made meanwhile is repeated.
    pub fn handle_no_path(&mut self, peer: PeerId) {
        let state = self.peer(peer);
        if state.reach == Reach::Wanted {
            state.reach = Reach::Unconnected;
            self.list(peer);
        }
    }

    /// Handles a new or better known cost of a link.
    pub fn handle_cost(&mut self, peer: PeerId, rail: RailId, cost: Cost) {
        if let Some(link) = self.peer(peer).any_link(rail) {
            link.predict(cost);
            self.adapt(peer, rail);
        }
    }

    /// Derives the sizes of a link from its cost.
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

    /// Grants a peer credit up to `wanted` bytes in all, within the budget. It gets at most half of
    /// what is left, so that later peers get some.
    fn grant(&mut self, peer: PeerId, wanted: usize) {
        let left = self.budget_bytes.saturating_sub(self.granted_bytes) / 2;
        let state = self.peer(peer);
        let bytes = wanted.saturating_sub(state.accepted + state.unannounced).min(left);
        state.granted += bytes;
        state.unannounced += bytes;
        self.granted_bytes += bytes;
    }

    /// Grants a peer the credit of one message of `bytes` bytes, announced by a `Grant`; false if
    /// that is too much. A peer is thus never granted more than half of what the others leave.
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

    /// Handles the release of a frame's memory by the rail.
    pub fn handle_sent(&mut self, peer: PeerId, rail: RailId, token: FrameToken) {
        let Self { peers, ops, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return };
        let Some(link) = state.link(rail) else { return };
        // Memory of a frame that may be resent is free after the ACK, or once copied.
        if link.copies(token) {
            free(ops, token);
        }
    }

    /// Handles new room on a full link.
    pub fn handle_room(&mut self, peer: PeerId, rail: RailId) {
        if let Some(link) = self.peer(peer).any_link(rail) {
            link.full = false;
            self.list(peer);
        }
    }

    /// Handles the loss of a link. With `ends` it does not reopen: the peer has closed it, or the
    /// rail cannot reach the peer any more.
    pub fn handle_link_down(&mut self, peer: PeerId, rail: RailId, ends: bool) -> Loss {
        let reopens = self.reopens;
        let state = self.peer(peer);
        let link_state = |link: &Link| {
            let may_open = link.capabilities.reopens && !ends && reopens;
            if may_open { LinkState::Down } else { LinkState::Gone }
        };
        let mut survives = true;
        if let Some(at) = state.links.iter().position(|link| link.rail == rail) {
            let link = state.links.remove(at);
            survives = link.replay_buffer.is_some();
            let after = link_state(&link);
            state.deactivate(link, after);
        } else if let Some(at) =
            state.inactive.iter().position(|inactive| inactive.link.rail == rail)
        {
            let mut inactive = state.inactive.swap_remove(at);
            inactive.link.close();
            // The peer may have received the `Resume` and sent frames that are lost.
            if let LinkState::Open { .. } = inactive.state {
                state.queue_link_down(&inactive.link);
            }
            inactive.state = link_state(&inactive.link);
            state.inactive.push(inactive);
            state.repeat_link_downs();
        } else {
            return if state.reach == Reach::Up { Loss::Tolerated } else { Loss::Final };
        }
        if !survives || !state.can_recover() {
            self.handle_down(peer);
            return Loss::Final;
        }
        state.has_lapsed = true;
        let loss = if state.is_down() { Loss::LinkDown } else { Loss::Tolerated };
        self.watch(peer);
        self.list(peer);
        loss
    }

    /// Next link that the peer has given up, although its rail has not found it lost. It must be
    /// closed; then call [`Engine::handle_link_down`].
    pub fn poll_severed(&mut self) -> Option<(PeerId, RailId)> {
        self.severed.pop_front()
    }

    /// True if a lost link may reopen.
    pub fn may_reopen(&self, peer: PeerId, rail: RailId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let is_it = |inactive: &InactiveLink| {
            inactive.link.rail == rail && inactive.state == LinkState::Down
        };
        state.is_some_and(|state| state.inactive.iter().any(is_it))
    }

    /// True if a lost link to a distant peer was open before.
    pub fn has_been_open(&self, peer: PeerId, rail: RailId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let is_it = |inactive: &InactiveLink| inactive.link.rail == rail && inactive.link.is_far();
        state.is_some_and(|state| state.inactive.iter().any(is_it))
    }

    /// True if the frames of a link are stored until acknowledged.
    pub fn keeps(&self, peer: PeerId, rail: RailId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let is_it = |link: &Link| link.rail == rail && link.replay_buffer.is_some();
        state.is_some_and(|state| state.links.iter().any(is_it))
    }

    /// True if a link carries frames: it is open, and both ends have sent a `Resume`.
    pub fn carries(&self, peer: PeerId, rail: RailId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        state.is_some_and(|state| state.links.iter().any(|link| link.rail == rail))
    }

    /// True if the peer was reached and no link to it is open.
    pub fn is_down(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        state.is_some_and(|state| state.is_down())
    }

    /// True if the peer has lost no link, or has acknowledged something since the last loss.
    pub fn is_restored(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        state.is_none_or(|state| !state.has_lapsed)
    }

    /// True if a distant peer was reached and has no link now. A refusal may come from a host in
    /// between, so the peer is waited for.
    pub fn is_cut_off(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let is_far =
            |inactive: &InactiveLink| inactive.state == LinkState::Down && inactive.link.is_far();
        state.is_some_and(|state| state.is_down() && state.inactive.iter().any(is_far))
    }

    /// True if the peer has given up a link.
    #[inline]
    pub fn has_severed(&self) -> bool {
        !self.severed.is_empty()
    }

    /// Handles the failure of a peer, or of all paths to it. Operations with it complete with
    /// [`Outcome::PeerFailed`](crate::Outcome::PeerFailed). Those in a remote read complete when
    /// [`Engine::handle_remote_read_done`] reports its end.
    pub fn handle_down(&mut self, peer: PeerId) {
        self.end_rts_data(peer);
        self.ops.event_count += 1;
        self.failed_peers += u32::from(!self.is_failed(peer));
        let state = self.peer(peer);
        let granted = state.granted;
        *state = PeerState { reach: Reach::Failed, ..PeerState::new() };
        self.granted_bytes -= granted;
        self.matching.drop_rts(peer);
        for index in self.ops.of_peer(peer) {
            if self.ops.is_being_read(index) {
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

    /// True if all frames for the peer have arrived, as far as they are stored until acknowledged, or it has failed. Asks
    /// for the ACKs that are missing.
    pub fn confirm_all(&mut self, peer: PeerId) -> bool {
        let Some(Some(state)) = self.peers.get_mut(peer.0 as usize) else { return true };
        if state.reach.is_failed() {
            return true;
        }
        let mut is_confirmed = state.is_idle();
        for link in state.links.iter_mut().filter(|link| link.backlog_bytes() > 0) {
            is_confirmed = false;
            let asked = link.awaits_ack();
            link.replay_buffer.iter_mut().for_each(|buffer| buffer.probes |= !asked);
        }
        if !is_confirmed {
            self.list(peer);
        }
        is_confirmed
    }

    /// True if some links need [`Engine::handle_time`].
    pub fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// True if the engine needs the time after received frames were handled: links are compared or
    /// waited for. It does so soon while long frames are unacknowledged, and otherwise now and
    /// then.
    #[inline]
    pub fn wants_time(&mut self) -> bool {
        !self.watched.is_empty() && {
            self.untimed += 1;
            self.is_timed || self.untimed >= UNTIMED_MAX
        }
    }

    /// Handles the time of a monotonic clock. Returns a link that has fallen far behind the others
    /// of its peer: it must be closed; then call [`Engine::handle_link_down`].
    pub fn handle_time(&mut self, now_ns: u64) -> Option<(PeerId, RailId)> {
        (self.now_ns, self.untimed, self.is_timed) = (now_ns, 0, false);
        let mut late = None;
        let mut at = 0;
        while let Some(&peer) = self.watched.get(at) {
            let state = self.peer(peer);
            if !state.is_watched() {
                self.watched.swap_remove(at);
                continue;
            }
            at += 1;
            state.links.iter_mut().for_each(|link| link.stamp(now_ns));
            if let [only] = &mut state.links[..] {
                only.ask_if_late(now_ns);
            } else {
                let rail = judge(&mut state.links, now_ns);
                late = late.or(rail.map(|rail| (peer, rail)));
            }
            let is_timed = !state.inactive.is_empty() || state.links.iter().any(Link::has_longs);
            if state.links.iter().any(Link::has_work) || state.has_work() {
                self.list(peer);
            }
            self.is_timed |= is_timed;
        }
        late
    }
}

/// Packets about links.
impl Engine {
    /// Handles the ACK at the beginning of a frame received over the peer's link `at`, and counts
    /// the frame. Returns the remaining bytes.
    #[inline(never)]
    pub(super) fn handle_ack<'a>(
        &mut self,
        peer: PeerId,
        at: usize,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], PeerError> {
        let (ack, rest) = match packet::split_ack(bytes) {
            Some((frames, prompt, behind)) => (Some((frames, prompt)), behind),
            None => (None, bytes),
        };
        self.count_frame(peer, at, ack, rest.len())?;
        Ok(rest)
    }

    /// Counts a received frame of `len` bytes after its ACK, and handles that: a number of frames,
    /// and true if it asks for one in return.
    pub(super) fn count_frame(
        &mut self,
        peer: PeerId,
        at: usize,
        ack: Option<(u32, bool)>,
        len: usize,
    ) -> Result<(), PeerError> {
        let Self { peers, ops, now_ns, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return Ok(()) };
        let (mut is_ack_due, mut has_changed) = (false, None);
        let link = &mut state.links[at];
        if let Some((frames, prompt)) = ack {
            is_ack_due = prompt;
            let changes = link.confirm(frames, *now_ns, |token| free(ops, token))?;
            has_changed = changes.then_some(link.rail);
            state.has_lapsed = false;
        }
        if let Some(replay_buffer) = &mut link.replay_buffer
            && len > 0
        {
            replay_buffer.receive(len);
        }
        // The peer can order more messages now, and the link can store more frames.
        if is_ack_due || state.is_ack_wanted || (ack.is_some() && !state.is_drained()) {
            self.request_acks(peer, is_ack_due);
        }
        if let Some(rail) = has_changed {
            self.adapt(peer, rail);
        }
        Ok(())
    }

    /// Marks links for an ACK if the peer waits for one, and lists the peer.
    fn request_acks(&mut self, peer: PeerId, is_ack_due: bool) {
        let state = self.peer(peer);
        if is_ack_due || state.is_ack_wanted {
            // On all links: the sender may be blocked by a frame on another link, which may still
            // arrive. A link that received nothing since sends no ACK, so that the other end checks
            // less often.
            let replay_buffers =
                state.links.iter_mut().filter_map(|link| link.replay_buffer.as_mut());
            replay_buffers
                .filter(|replay_buffer| replay_buffer.has_unacked())
                .for_each(|replay_buffer| replay_buffer.request_ack());
            state.is_ack_wanted = !state.early.is_empty();
        }
        self.list(peer);
    }

    /// Handles the peer's `Resume` over an inactive link. Frames over a link that is to be closed
    /// are dropped.
    #[cold]
    pub(super) fn handle_resume<'a>(
        &mut self,
        peer: PeerId,
        rail: RailId,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], PeerError> {
        let Self { peers, ops, now_ns, severed, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return Ok(&[]) };
        let inactive = state.inactive(rail).ok_or(PeerError::NotConnected)?;
        let LinkState::Open { resume_sent, resume_received: false } = inactive.state else {
            return Ok(&[]);
        };
        let (link, frames, keeps) = packet::parse_resume(bytes).ok_or(PeerError::NoResume)?;
        inactive.link.confirm(frames, *now_ns, |token| free(ops, token))?;
        if !inactive
            .link
            .replay_buffer
            .as_mut()
            .is_some_and(|replay_buffer| replay_buffer.handle_resume(link))
        {
            severed.push_back((peer, rail));
            return Ok(&[]);
        }
        inactive.state = LinkState::Open { resume_sent, resume_received: true };
        inactive
            .link
            .replay_buffer
            .iter_mut()
            .for_each(|replay_buffer| replay_buffer.keeps |= keeps);
        if resume_sent {
            self.activate(peer, rail);
        }
        Ok(&[])
    }

    /// Builds the `Resume` of an opened link.
    #[cold]
    pub(super) fn poll_resume(&mut self, peer: PeerId, rail: RailId, frame: &mut Frame) -> bool {
        let reopens = self.reopens;
        let Some(inactive) =
            self.peer(peer).inactive(rail).filter(|inactive| inactive.needs_resume())
        else {
            return false;
        };
        if let Some(stalled) = inactive.link.stalled.take() {
            *frame = stalled;
            return true;
        }
        let keeps = inactive.link.keeps(reopens);
        let (LinkState::Open { resume_received, .. }, Some(replay_buffer)) =
            (inactive.state, &mut inactive.link.replay_buffer)
        else {
            return false;
        };
        replay_buffer.emit_resume(&mut frame.head, rail, keeps);
        inactive.state = LinkState::Open { resume_sent: true, resume_received };
        if resume_received {
            self.activate(peer, rail);
        }
        self.counters.frames += 1;
        true
    }

    /// Activates a link after both sides have sent a `Resume`.
    fn activate(&mut self, peer: PeerId, rail: RailId) {
        let state = self.peer(peer);
        let Some(at) = state.inactive.iter().position(|inactive| inactive.link.rail == rail) else {
            return;
        };
        let InactiveLink { mut link, .. } = state.inactive.remove(at);
        if link.replay_buffer.as_ref().is_some_and(|replay_buffer| !replay_buffer.keeps) {
            link.replay_buffer = None;
        }
        // A link that reopens again and again without carrying its stored frames does not count as
        // open.
        if link.backlog_bytes() == 0 && state.lost.is_empty() {
            state.has_lapsed = false;
        }
        state.activate(link);
        self.watch(peer);
        self.list(peer);
    }

    /// Handles a `LinkDown`: the peer accepts no more frames of a link, and has received `frames`
    /// of it. Later ones are resent elsewhere.
    #[cold]
    pub(super) fn handle_link_down_packet(
        &mut self,
        peer: PeerId,
        name: Incarnation,
        frames: u32,
    ) -> Result<(), PeerError> {
        let Self { peers, ops, now_ns, severed, reopens, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return Ok(()) };
        let is_it = |link: &Link| {
            let peer = link.replay_buffer.as_ref().and_then(|replay_buffer| replay_buffer.peer);
            peer.is_some_and(|peer| peer.rail == name.rail && peer.epoch <= name.epoch)
        };
        // A packet about an older epoch than the last known one is late.
        if let Some(at) = state.links.iter().position(is_it) {
            let link = state.links.remove(at);
            severed.push_back((peer, link.rail));
            let may_open = link.capabilities.reopens && *reopens;
            state.deactivate(link, if may_open { LinkState::Down } else { LinkState::Gone });
        }
        let Some(at) = state.inactive.iter().position(|inactive| is_it(&inactive.link)) else {
            return Ok(());
        };
        let InactiveLink { link, state: link_state } = &mut state.inactive[at];
        let rail = link.rail;
        link.confirm(frames, *now_ns, |token| free(ops, token))?;
        let Some(replay_buffer) = &mut link.replay_buffer else { return Ok(()) };
        let is_known = replay_buffer.is_over && replay_buffer.peer == Some(name);
        (replay_buffer.peer, replay_buffer.is_over) = (Some(name), true);
        match *link_state {
            // The peer may have missed this side's `LinkDown`, sent before its `Resume`.
            LinkState::Gone | LinkState::Down if !is_known => {
                let inactive = state.inactive.swap_remove(at);
                state.queue_link_down(&inactive.link);
                state.inactive.push(inactive);
            }
            LinkState::Open { resume_received: true, .. } => severed.push_back((peer, rail)),
            LinkState::Gone | LinkState::Down | LinkState::Open { .. } => {}
        }
        state.move_to_lost(rail);
        self.list(peer);
        Ok(())
    }
}

/// Number of calls without the time if no long frame is unacknowledged.
const UNTIMED_MAX: u32 = 16;
