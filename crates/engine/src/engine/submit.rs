//! Commands of the application: sends, receives, probes.

use memory::Region;
use wire::{Capabilities, Frame, PeerId, RailId, packet};

use super::Engine;
use crate::emit::{BEGIN_MAX, COALESCED_MAX, Short, emit_any, emit_lent, emit_short, emit_whole};
use crate::matching::{MatchedId, Message, Selector, Unexpected};
use crate::op::{Envelope, Head, OpId, OpState, SendMode, SendState};
use crate::peer::charge;
use crate::pending::Pending;
use crate::send_observer::SendObserver;

impl Engine {
    /// Sends `data` to `peer`, one of the job's processes.
    #[inline]
    pub fn submit_send(
        &mut self,
        peer: PeerId,
        envelope: Envelope,
        data: &Region,
        mode: SendMode,
    ) -> OpId {
        self.note_send(peer, envelope, data);
        let id = self.ops.insert(Some(peer), data.clone(), send_state(envelope, mode));
        self.line_up(id, peer, envelope, data.len());
        id
    }

    /// Reserves an identifier for [`Engine::submit_reserved_send`] or
    /// [`Engine::submit_reserved_receive`]. The operation is unknown until submitted.
    pub fn reserve(&mut self) -> OpId {
        self.ops.reserve()
    }

    /// Submits a send like [`Engine::submit_send`], with a reserved identifier.
    pub fn submit_reserved_send(
        &mut self,
        id: OpId,
        peer: PeerId,
        envelope: Envelope,
        data: Region,
        mode: SendMode,
    ) {
        self.note_send(peer, envelope, &data);
        let len = data.len();
        self.ops.insert_reserved(id, Some(peer), data, send_state(envelope, mode));
        self.line_up(id, peer, envelope, len);
    }

    /// Appends a send to its peer's send queue.
    #[inline(always)]
    fn line_up(&mut self, id: OpId, peer: PeerId, envelope: Envelope, bytes: usize) {
        let state = self.peer(peer);
        if state.reach.is_failed() {
            return self.fail(id.index);
        }
        let Envelope { context, is_urgent, .. } = envelope;
        let cost = charge(bytes);
        state.send_queue.push_back(Pending {
            id,
            bytes,
            cost,
            context,
            is_addressed: false,
            is_urgent,
            overtaken: 0,
        });
        self.list(peer);
    }

    /// Builds the frame of a short message that can leave at once, with nothing before it at its
    /// peer. Returns the rail on which to post `frame`, as after [`Engine::poll_frame`]; the
    /// message is sent and its memory free. `None` if it must be submitted as usual.
    #[inline]
    pub fn submit_short(
        &mut self,
        peer: PeerId,
        envelope: Envelope,
        data: &Region,
        frame: &mut Frame,
    ) -> Option<RailId> {
        let state = self.peers.get_mut(peer.0 as usize)?.as_mut()?;
        let [link] = &state.links[..] else {
            return self.submit_short_over_any(peer, Short::Message(envelope), data, frame);
        };
        if link.replay_buffer.is_some() {
            return self.submit_short_over_any(peer, Short::Message(envelope), data, frame);
        }
        let rail = link.rail;
        let cost = charge(data.len());
        if !link.is_ready() || link.has_work() || !state.takes_short(link, data.len(), cost) {
            return None;
        }
        let is_lent = data.len() > COPIED_TWICE_MAX && link.capabilities.copies;
        frame.clear();
        if is_lent {
            emit_lent(state, envelope, data, frame);
        } else {
            emit_whole(state, envelope, data, &mut frame.head);
        }
        self.counters.eager += 1;
        self.counters.frames += 1;
        self.note_send(peer, envelope, data);
        Some(rail)
    }

    /// Builds the frame of a short put or call like [`Engine::submit_short`].
    pub fn submit_short_access(
        &mut self,
        peer: PeerId,
        access: Short,
        data: &Region,
        frame: &mut Frame,
    ) -> Option<RailId> {
        self.submit_short_over_any(peer, access, data, frame)
    }

    /// Builds the frame like [`Engine::submit_short`], with replay and possibly several links.
    #[cold]
    fn submit_short_over_any(
        &mut self,
        peer: PeerId,
        short: Short,
        data: &Region,
        frame: &mut Frame,
    ) -> Option<RailId> {
        let state = self.peers.get_mut(peer.0 as usize)?.as_mut()?;
        let at = state.first_ready()?;
        let link = &state.links[at];
        let rail = link.rail;
        let room = state.order_room();
        let (len, cost) = (short.packet_len(data.len()), short.cost(data.len()));
        if !state.takes_short(link, len, cost) || !state.admits(short) || room == 0 {
            return None;
        }
        frame.clear();
        self.record = emit_short(state, at, room, (short, data), frame);
        self.counters.frames += 1;
        self.note_short(peer, short, data);
        Some(rail)
    }

    /// Coalesces a short message, put or call with others of its peer. They leave in one frame on
    /// [`Engine::release_coalesced`], or when the peer has something else to send. True if the
    /// message was accepted: it is sent and its memory free. False if it must be submitted as
    /// usual, for example when the frame is full.
    pub fn submit_coalesced(&mut self, peer: PeerId, short: Short, data: &Region) -> bool {
        let Some(Some(state)) = self.peers.get_mut(peer.0 as usize) else { return false };
        let Some(link) = state.links.first() else { return false };
        let len = short.packet_len(data.len());
        let Capabilities { frame_max, inline_max, aggregate_max, .. } = link.capabilities;
        let frame_max = frame_max.saturating_sub(BEGIN_MAX).min(aggregate_max).min(COALESCED_MAX);
        if !self.coalesces
            || state.is_plain
            || state.is_stream_due()
            || len > inline_max
            || state.coalesced.len() + packet::EAGER_LEN + len > frame_max
            || short.cost(data.len()) > state.credit
            || !state.admits(short)
            || !state.send_queue.is_empty()
            || state.order_room() == 0
        {
            return false;
        }
        let mut coalesced = std::mem::take(&mut state.coalesced);
        if coalesced.is_empty() {
            state.coalesced_from = state.sequence_out;
        }
        emit_any(state, short, data, &mut coalesced);
        state.coalesced = coalesced;
        self.note_short(peer, short, data);
        true
    }

    /// Sets an observer of every later send.
    pub fn set_send_observer(&mut self, send_observer: Box<dyn SendObserver>) {
        self.send_observer = Some(send_observer);
    }

    /// Takes the observer of sends out.
    pub fn take_send_observer(&mut self) -> Option<Box<dyn SendObserver>> {
        self.send_observer.take()
    }

    #[inline(always)]
    fn note_short(&mut self, peer: PeerId, short: Short, data: &Region) {
        match short {
            Short::Message(envelope) => {
                self.counters.eager += 1;
                self.note_send(peer, envelope, data);
            }
            Short::Put(_) => {
                self.counters.puts += 1;
                self.note_access(peer, data.len() as u64);
            }
            Short::Call(..) => {
                self.counters.calls += 1;
                self.note_access(peer, data.len() as u64);
            }
        }
    }

    #[inline]
    fn note_send(&mut self, peer: PeerId, envelope: Envelope, data: &Region) {
        if let Some(send_observer) = &mut self.send_observer {
            send_observer.note_send(peer, envelope, data.len() as u64);
        }
    }

    #[inline]
    pub(super) fn note_access(&mut self, peer: PeerId, bytes: u64) {
        if let Some(send_observer) = &mut self.send_observer {
            send_observer.note_access(peer, bytes);
        }
    }

    /// True if coalesced messages for a peer have not left.
    #[inline]
    pub fn has_coalesced(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        state.is_some_and(|state| !state.coalesced.is_empty())
    }

    /// Lets the coalesced messages of a peer leave.
    pub fn release_coalesced(&mut self, peer: PeerId) {
        let state = self.peer(peer);
        if !state.coalesced.is_empty() {
            state.released = true;
            self.list(peer);
        }
    }

    /// Receives a message that `selector` accepts into `into`. If the selector names its source,
    /// `peer` is that process.
    #[inline]
    pub fn submit_receive(
        &mut self,
        peer: Option<PeerId>,
        selector: Selector,
        into: &Region,
    ) -> OpId {
        let id = self.ops.insert(peer, into.clone(), OpState::Posted);
        self.match_or_post(id, peer, selector);
        id
    }

    /// Submits a receive like [`Engine::submit_receive`], with a reserved identifier.
    pub fn submit_reserved_receive(
        &mut self,
        id: OpId,
        peer: Option<PeerId>,
        selector: Selector,
        into: Region,
    ) {
        self.ops.insert_reserved(id, peer, into, OpState::Posted);
        self.match_or_post(id, peer, selector);
    }

    #[inline(always)]
    fn match_or_post(&mut self, id: OpId, peer: Option<PeerId>, selector: Selector) {
        if let Some(message) = self.matching.take_waiting(peer, &selector) {
            self.deliver_waiting(id, message);
        } else if peer.is_some_and(|peer| self.is_failed(peer))
            || self.revoked_by(selector.context).is_some()
        {
            self.end_hopeless(id, selector.context);
        } else {
            self.matching.post(peer, selector, id);
        }
    }

    /// Returns the oldest waiting message that `selector` accepts; `peer` is as in
    /// [`Engine::submit_receive`].
    pub fn probe(&mut self, peer: Option<PeerId>, selector: Selector) -> Option<Message> {
        self.matching.peek(peer, &selector).map(Unexpected::message)
    }

    /// Removes the oldest waiting message that `selector` accepts from matching; `peer` is as in
    /// [`Engine::submit_receive`].
    pub fn submit_matched_probe(
        &mut self,
        peer: Option<PeerId>,
        selector: Selector,
    ) -> Option<(MatchedId, Message)> {
        let message = self.matching.take_waiting(peer, &selector)?;
        let described = message.message();
        Some((self.matched.insert(message), described))
    }

    /// Receives a message of a matched probe; `None` if it was received before.
    pub fn submit_matched_receive(&mut self, message: MatchedId, into: &Region) -> Option<OpId> {
        let message = self.matched.take(message)?;
        let id = self.ops.insert(Some(message.peer), into.clone(), OpState::Posted);
        self.deliver_waiting(id, message);
        Some(id)
    }
}

/// Longest message that is copied into its frame for a rail that copies the frame again.
const COPIED_TWICE_MAX: usize = 512;

fn send_state(envelope: Envelope, mode: SendMode) -> OpState {
    let awaiting = mode == SendMode::Synchronous;
    OpState::Send(SendState { to_emit: true, awaiting, ..SendState::new(Head::Matched(envelope)) })
}
