//! What leaves: which link can take a frame, and the frame.

use wire::{Frame, PeerId, RailId};

use super::{Engine, Posted};
use crate::emit::{emit_begin, emit_choice, emit_end, emit_lost};
use crate::strategy::{Fifo, Invalid, Strategy, View};

impl Engine {
    /// Whether there may be something to connect, to copy or to send.
    #[inline]
    pub fn has_output(&self) -> bool {
        !(self.ready.is_empty() && self.remote_reads.is_empty() && self.wanted.is_empty())
    }

    /// A peer that has work and no link; each is named once.
    #[inline]
    pub fn poll_connect(&mut self) -> Option<PeerId> {
        self.wanted.pop_front()
    }

    /// A peer's link that can take a frame which is there to be built.
    #[inline]
    pub fn poll_peer(&mut self) -> Option<(PeerId, RailId)> {
        while let Some((id, rail)) = self.ready.pop_front() {
            let peer = self.peer(id);
            let Some(at) = peer.links.iter().position(|link| link.rail == rail) else {
                if peer.greets(rail) {
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

    /// Builds the next frame for a link of `peer` into `frame`; false when there is nothing to send over
    /// it.
    #[inline]
    pub fn poll_frame(&mut self, peer: PeerId, rail: RailId, frame: &mut Frame) -> bool {
        frame.clear();
        let Some(Some(state)) = self.peers.get_mut(peer.0 as usize) else { return false };
        let Some(at) = state.links.iter().position(|link| link.rail == rail) else {
            return self.poll_greeting(peer, rail, frame);
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
        if state.links[at].replay_buffer.is_none() || !self.emit_kept(peer, at, frame) {
            self.build(peer, at, frame);
        }
        self.counters.frames += u64::from(!frame.is_empty());
        !frame.is_empty()
    }

    /// Where frames are kept: builds one that goes again, or the word that alone can go; false if there is
    /// room for what is new.
    fn emit_kept(&mut self, peer: PeerId, at: usize, frame: &mut Frame) -> bool {
        let Some(Some(state)) = self.peers.get_mut(peer.0 as usize) else { return true };
        let may_keep = state.may_keep(at);
        let Some(replay_buffer) = &mut state.links[at].replay_buffer else { return false };
        if replay_buffer.emit_again(frame) {
            self.counters.resent += 1;
            return true;
        }
        if !may_keep {
            if replay_buffer.is_asked() {
                replay_buffer.tell(&mut frame.head, false);
            }
            return true;
        }
        let goes_again = !state.lost.is_empty() && emit_lost(state, at, frame);
        self.counters.resent += u64::from(goes_again);
        self.is_timed |= goes_again;
        goes_again
    }

    /// Builds a frame of what the strategy chooses.
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
        self.keeping = emit_end(state, link, begun, frame);
        self.is_timed |= frame.body.is_some();
        if let Some((name, rule)) = broken {
            self.refuse(peer, name, rule);
        }
    }

    /// Gives the strategy up for a peer. What it chooses may depend on what waits there: others keep theirs.
    #[cold]
    fn refuse(&mut self, peer: PeerId, name: &str, broken: Invalid) {
        self.peer(peer).is_plain = true;
        self.counters.refusals += 1;
        let rule = std::mem::discriminant(&broken);
        if !self.broken.contains(&rule) {
            self.broken.push(rule);
            let text = format!("strategy {name}: {broken}; to rank {} fifo goes on", peer.0);
            self.refusals.push_back(text);
        }
    }

    /// Why the strategy was given up for a peer; of all peers once for each rule.
    pub fn poll_refusal(&mut self) -> Option<String> {
        self.refusals.pop_front()
    }

    /// What the rail did with the frame that [`Engine::poll_frame`] built.
    #[inline]
    pub fn handle_posted(&mut self, peer: PeerId, rail: RailId, frame: &mut Frame, posted: Posted) {
        if self.keeping.is_some() {
            self.keep(peer, rail, frame);
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
                // A body without a token was lent for the call.
                if let (None, None, Some(body)) = (&link.replay_buffer, frame.token, &frame.body) {
                    body.region.append_to(&mut frame.head);
                    frame.body = None;
                }
                link.stalled = Some(std::mem::take(frame));
            }
        }
        // What this link does not take, now that it has more to do, another may.
        if !self.watched.is_empty() || posted == Posted::Full {
            self.list_if_working(peer);
        }
    }

    /// Keeps the frame that was posted until it has arrived.
    #[inline(never)]
    fn keep(&mut self, peer: PeerId, rail: RailId, frame: &Frame) {
        let keeping = self.keeping.take();
        let replay_buffer = self.peer(peer).link(rail).and_then(|link| link.replay_buffer.as_mut());
        if let (Some(keeping), Some(replay_buffer)) = (keeping, replay_buffer) {
            replay_buffer.keep(frame, keeping);
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
