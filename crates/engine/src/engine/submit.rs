//! What the application asks for: sends, receives, probes.

use memory::Region;
use wire::{Capabilities, Frame, PeerId, RailId, packet};

use super::Engine;
use crate::emit::{BEGIN_MAX, COALESCED_MAX, emit_lent, emit_short, emit_whole};
use crate::matching::{MatchedId, Message, Selector, Unexpected};
use crate::op::{Completion, Envelope, OpId, OpState, Outcome, SendMode, SendState};
use crate::peer::{Pending, charge};
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

    /// Names an operation before it is submitted, by [`Engine::submit_reserved_send`] or
    /// [`Engine::submit_reserved_receive`]: until then it is not known.
    pub fn reserve(&mut self) -> OpId {
        self.ops.reserve()
    }

    /// As [`Engine::submit_send`], of an operation that has its name.
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

    /// A send waits in its peer's send_queue.
    #[inline(always)]
    fn line_up(&mut self, id: OpId, peer: PeerId, envelope: Envelope, bytes: usize) {
        let state = self.peer(peer);
        if state.reach.is_failed() {
            return self.fail(id.index);
        }
        let Envelope { context, is_urgent, .. } = envelope;
        state.send_queue.push_back(Pending { id, bytes, context, is_urgent, overtaken: 0 });
        self.list(peer);
    }

    /// Builds the frame of a short message that can leave at once, with nothing before it on its peer.
    /// Answers the rail for which `frame` holds it: the message is sent, its memory free, and the frame
    /// is to be posted as one of [`Engine::poll_frame`]. None when it must be submitted as any other.
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
            return self.submit_short_kept(peer, envelope, data, frame);
        };
        if link.replay_buffer.is_some() {
            return self.submit_short_kept(peer, envelope, data, frame);
        }
        let rail = link.rail;
        if !link.is_ready() || link.has_work() || !state.takes_short(link, data.len()) {
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

    /// As [`Engine::submit_short`], where frames are kept and there may be several links.
    #[cold]
    fn submit_short_kept(
        &mut self,
        peer: PeerId,
        envelope: Envelope,
        data: &Region,
        frame: &mut Frame,
    ) -> Option<RailId> {
        let state = self.peers.get_mut(peer.0 as usize)?.as_mut()?;
        let at = state.first_ready()?;
        let link = &state.links[at];
        let rail = link.rail;
        let room = state.order_room();
        if !state.takes_short(link, data.len()) || room == 0 {
            return None;
        }
        frame.clear();
        self.keeping = emit_short(state, at, room, (envelope, data), frame);
        self.counters.eager += 1;
        self.counters.frames += 1;
        self.note_send(peer, envelope, data);
        Some(rail)
    }

    /// Lays a short message beside others of its peer, to share a frame with them and with what follows,
    /// until [`Engine::release_coalesced`] or until the peer has something else to send. True when the
    /// message is taken: it is sent, its memory free. False when it must be submitted as any other, as
    /// when the frame is full, or the strategy coalesces nothing.
    pub fn submit_coalesced(&mut self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let Some(Some(state)) = self.peers.get_mut(peer.0 as usize) else { return false };
        let Some(link) = state.links.first() else { return false };
        let len = data.len();
        let Capabilities { frame_max, inline_max, aggregate_max, .. } = link.capabilities;
        let frame_max = frame_max.saturating_sub(BEGIN_MAX).min(aggregate_max).min(COALESCED_MAX);
        if !self.coalesces
            || state.is_plain
            || state.is_stream_due()
            || len > inline_max
            || state.coalesced.len() + packet::EAGER_LEN + len > frame_max
            || charge(len) > state.credit
            || !state.send_queue.is_empty()
            || state.order_room() == 0
        {
            return false;
        }
        let mut coalesced = std::mem::take(&mut state.coalesced);
        if coalesced.is_empty() {
            state.coalesced_from = state.sequence_out;
        }
        emit_whole(state, envelope, data, &mut coalesced);
        state.coalesced = coalesced;
        self.counters.eager += 1;
        self.note_send(peer, envelope, data);
        true
    }

    /// Tells a send_observer of every message from now on.
    pub fn set_send_observer(&mut self, send_observer: Box<dyn SendObserver>) {
        self.send_observer = Some(send_observer);
    }

    #[inline]
    fn note_send(&mut self, peer: PeerId, envelope: Envelope, data: &Region) {
        if let Some(send_observer) = &mut self.send_observer {
            send_observer.note_send(peer, envelope, data.len() as u64);
        }
    }

    /// Whether messages were coalesced for a peer that have not left.
    #[inline]
    pub fn has_coalesced(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        state.is_some_and(|state| !state.coalesced.is_empty())
    }

    /// Lets what was coalesced for a peer go.
    pub fn release_coalesced(&mut self, peer: PeerId) {
        let state = self.peer(peer);
        if !state.coalesced.is_empty() {
            state.released = true;
            self.list(peer);
        }
    }

    /// Receives a message that `selector` accepts into `into`; `peer` is the only process it can come
    /// from, if it names its source.
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

    /// As [`Engine::submit_receive`], of an operation that has its name.
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
            || self.closed_by(selector.context).is_some()
        {
            self.fail(id.index);
        } else {
            self.matching.post(peer, selector, id);
        }
    }

    /// Cancels a receive that has not been matched; false if it is too late, or a send.
    pub fn submit_cancel(&mut self, op: OpId) -> bool {
        let is_posted = self.ops.find(op).is_some_and(|op| matches!(op.state, OpState::Posted));
        if !is_posted || !self.matching.cancel(op) {
            return false;
        }
        let outcome = Outcome::Cancelled;
        self.ops.complete(op.index, Completion { source: 0, tag: 0, bytes: 0, outcome });
        true
    }

    /// The oldest waiting message that `selector` accepts; `peer` is as in [`Engine::submit_receive`].
    pub fn probe(&mut self, peer: Option<PeerId>, selector: Selector) -> Option<Message> {
        self.matching.peek(peer, &selector).map(Unexpected::message)
    }

    /// Takes the oldest waiting message that `selector` accepts out of matching; `peer` is as in
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

    /// Receives a message that a matched probe took; `None` if it was received before.
    pub fn submit_matched_receive(&mut self, message: MatchedId, into: &Region) -> Option<OpId> {
        let message = self.matched.take(message)?;
        let id = self.ops.insert(Some(message.peer), into.clone(), OpState::Posted);
        self.deliver_waiting(id, message);
        Some(id)
    }
}

/// A longer message is not copied into its frame for a rail that copies it out of there at once.
const COPIED_TWICE_MAX: usize = 512;

fn send_state(envelope: Envelope, mode: SendMode) -> OpState {
    OpState::Send(SendState {
        envelope,
        to_emit: true,
        held: 0,
        awaiting: mode == SendMode::Synchronous,
        sequence: 0,
        rts_data: 0,
        receiver: 0,
        next: 0,
        end: 0,
        offered: false,
        may_be_taken: false,
    })
}
