//! Outgoing frames: selection of a link, and construction of the frame.

use wire::{Frame, PeerId, RailId};

use super::{Engine, Posted};
use crate::emit::{emit_begin, emit_choice, emit_end, emit_lost};
use crate::strategy::{Fifo, Invalid, Strategy, View};

impl Engine {
    /// True if there may be something to connect, read or send.
    #[inline]
    pub fn has_output(&self) -> bool {
        !(self.ready.is_empty() && self.remote_reads.is_empty() && self.wanted.is_empty())
    }

    /// Next peer that has work but no link; each is returned once.
    #[inline]
    pub fn poll_connect(&mut self) -> Option<PeerId> {
        self.wanted.pop_front()
    }

    /// Next link of a peer that can take a frame and has one to build.
    #[inline]
    pub fn poll_peer(&mut self) -> Option<(PeerId, RailId)> {
        while let Some((id, rail)) = self.ready.pop_front() {
            let peer = self.peer(id);
            let Some(at) = peer.links.iter().position(|link| link.rail == rail) else {
                if peer.needs_resume(rail) {
                    return Some((id, rail));
                }
                continue;
            };
            let has_work = peer.has_work() && peer.is_served_by(at);
            let link = &mut peer.links[at];
            link.listed = false;
            if !link.full && (has_work || link.has_work()) {
                return Some((id, rail));
            }
        }
        None
    }

    /// Builds the next frame for a link of `peer` into `frame`; false if there is nothing to send
    /// over it.
    #[inline]
    pub fn poll_frame(&mut self, peer: PeerId, rail: RailId, frame: &mut Frame) -> bool {
        frame.clear();
        let Some(Some(state)) = self.peers.get_mut(peer.0 as usize) else { return false };
        let Some(at) = state.links.iter().position(|link| link.rail == rail) else {
            return self.poll_resume(peer, rail, frame);
        };
        let link = &mut state.links[at];
        if link.full {
            return false;
        }
        if let Some(stalled) = link.stalled.take() {
            *frame = stalled;
            return true;
        }
        let has_work = state.has_work() && state.is_served_by(at);
        if !has_work && !state.links[at].has_work() {
            return false;
        }
        if state.links[at].replay_buffer.is_none() || !self.emit_replay(peer, at, frame) {
            self.build(peer, at, frame);
        }
        self.counters.frames += u64::from(!frame.is_empty());
        !frame.is_empty()
    }

    /// Builds a repeated frame or a lone ACK on a link with replay; false if there is room for new
    /// data.
    fn emit_replay(&mut self, peer: PeerId, at: usize, frame: &mut Frame) -> bool {
        let Some(Some(state)) = self.peers.get_mut(peer.0 as usize) else { return true };
        let may_store = state.may_store(at);
        let Some(replay_buffer) = &mut state.links[at].replay_buffer else { return false };
        if replay_buffer.emit_resend(frame) {
            self.counters.resent += 1;
            return true;
        }
        if !may_store {
            if replay_buffer.is_ack_due() {
                replay_buffer.emit_ack(&mut frame.head, false);
            }
            return true;
        }
        let goes_again = !state.lost.is_empty() && emit_lost(state, at, frame);
        self.counters.resent += u64::from(goes_again);
        self.is_timed |= goes_again;
        goes_again
    }

    /// Builds a frame of the strategy's choice.
    fn build(&mut self, peer: PeerId, link: usize, frame: &mut Frame) {
        let host = (&self.host, self.is_oversubscribed);
        let Self { peers, ops, counters, codec, strategy, choice, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return };
        let begun = emit_begin(state, link, state.order_room(), frame);
        let mut broken = None;
        if state.has_choice() && state.is_served_by(link) {
            choice.clear();
            let taken = frame.head.len();
            let view = View::new(peer, (state, link), ops, host, (taken, taken == begun.from));
            let strategy: &mut dyn Strategy =
                if state.is_plain { &mut Fifo } else { &mut **strategy };
            strategy.choose(&view, choice);
            broken = choice.check(&view).err().map(|rule| (strategy.name(), rule));
            if broken.is_some() {
                choice.clear();
                Fifo.choose(&view, choice);
            }
            emit_choice(state, link, ops, choice, frame, (counters, codec));
            state.note_built(frame, choice.piece.is_some_and(|piece| piece.stream == 0));
        }
        self.record = emit_end(state, link, begun, frame);
        self.is_timed |= frame.body.is_some();
        if let Some((name, rule)) = broken {
            self.replace_strategy(peer, name, rule);
        }
    }

    /// Replaces the strategy by `fifo` for one peer. Choices depend on the data waiting there, so
    /// other peers keep the strategy.
    #[cold]
    fn replace_strategy(&mut self, peer: PeerId, name: &str, broken: Invalid) {
        self.peer(peer).is_plain = true;
        self.counters.violations += 1;
        let rule = std::mem::discriminant(&broken);
        if !self.broken.contains(&rule) {
            self.broken.push(rule);
            self.violations.push_back((peer, format!("strategy {name}: {broken}")));
        }
    }

    /// Next report of a strategy's violation, with the peer to which `fifo` goes on; each rule is reported once for
    /// all peers.
    pub fn poll_violation(&mut self) -> Option<(PeerId, String)> {
        self.violations.pop_front()
    }

    /// Handles the result of posting the frame that [`Engine::poll_frame`] built.
    #[inline]
    pub fn handle_posted(&mut self, peer: PeerId, rail: RailId, frame: &mut Frame, posted: Posted) {
        if self.record.is_some() {
            self.store_posted(peer, rail, frame);
        }
        match posted {
            Posted::Done => {
                if let Some(token) = frame.token {
                    self.handle_sent(peer, rail, token);
                }
            }
            Posted::Held => {}
            Posted::Full => {
                let Some(link) = self.peer(peer).any_link(rail) else { return };
                link.full = true;
                // A body without a token was borrowed for the call.
                if let (None, None, Some(body)) = (&link.replay_buffer, frame.token, &frame.body) {
                    body.region.append_to(&mut frame.head);
                    frame.body = None;
                }
                link.stalled = Some(std::mem::take(frame));
            }
        }
        // Another link may take what this one, being busier now, does not.
        if !self.watched.is_empty() || posted == Posted::Full {
            self.list_if_working(peer);
        }
    }

    /// Stores the posted frame until it is acknowledged.
    #[inline(never)]
    fn store_posted(&mut self, peer: PeerId, rail: RailId, frame: &Frame) {
        let record = self.record.take();
        let replay_buffer = self.peer(peer).link(rail).and_then(|link| link.replay_buffer.as_mut());
        if let (Some(record), Some(replay_buffer)) = (record, replay_buffer) {
            replay_buffer.store(frame, record);
        }
    }

    /// Lists a peer that has more to send.
    #[cold]
    fn list_if_working(&mut self, peer: PeerId) {
        if self.peer(peer).has_work() {
            self.list(peer);
        }
    }
}
