//! Cut-through frames: received while the sender still writes them.

use wire::packet::{self, Header, Packet};
use wire::{Incoming, PeerId, RailId};

use super::{Engine, PeerError};
use crate::link::Through;
use crate::matching::wanted;
use crate::op::{OpId, OpState, count_piece, received, write_piece};
use crate::peer::{Control, charge};

impl Engine {
    /// Handles the beginning of a frame of `len` bytes, if it is a message with a posted receive,
    /// or an expected piece. [`Engine::handle_rest`] must then bring the rest. False changes
    /// nothing; the frame must be received whole.
    ///
    /// A frame that may be resent counts as received when all of it has arrived. A piece may arrive
    /// again then, but a message would find its receive taken: it is received whole.
    ///
    /// # Errors
    /// As for [`Engine::handle_frame`].
    pub fn handle_beginning(
        &mut self,
        peer: PeerId,
        rail: RailId,
        beginning: &[u8],
        len: usize,
    ) -> Result<bool, PeerError> {
        let Some((at, has_replay)) = self.link_of(peer, rail) else { return Ok(false) };
        let split = packet::split_ack(beginning).filter(|_| has_replay);
        let (ack, beginning) = match split {
            Some((frames, prompt, behind)) => (Some((frames, prompt)), behind),
            None => (None, beginning),
        };
        let len = if ack.is_some() { len - packet::ACK_LEN } else { len };
        let Some(packet) = packet::parse_beginning(beginning, len) else { return Ok(false) };
        let (op, start, payload, bytes) = match packet {
            Packet::Eager { header, acknowledge, payload } if !has_replay => {
                let bytes = len - packet::EAGER_LEN;
                let Some(op) = self.begin_eager(peer, &header, acknowledge, bytes) else {
                    return Ok(false);
                };
                (op, 0, payload, bytes)
            }
            Packet::Data { receiver, offset, payload } => {
                let bytes = len - packet::DATA_LEN;
                (self.expect_data(peer, receiver, offset, bytes)?, offset, payload, bytes)
            }
            _ => return Ok(false),
        };
        write_piece(&mut self.ops, op, start, payload);
        let (next, end) = (start + payload.len() as u64, start + bytes as u64);
        self.peer(peer).links[at].through = Some(Through { op, start, at: next, end, ack, len });
        if next == end {
            self.end_through(peer, at)?;
        }
        Ok(true)
    }

    /// Handles the next bytes of a frame whose beginning was accepted.
    ///
    /// # Errors
    /// As for [`Engine::handle_frame`].
    #[inline]
    pub fn handle_rest(
        &mut self,
        peer: PeerId,
        rail: RailId,
        incoming: Incoming<'_>,
    ) -> Result<(), PeerError> {
        let Some((at, _)) = self.link_of(peer, rail) else { return Ok(()) };
        let Self { peers, ops, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return Ok(()) };
        let Some(through) = &mut state.links[at].through else { return Ok(()) };
        // The receive may have ended since.
        let target = ops.piece_target(through.op, through.at, through.end);
        through.at += incoming.store(&target) as u64;
        if through.at < through.end { Ok(()) } else { self.end_through(peer, at) }
    }

    /// Handles the end of a cut-through frame: counts it, and what its receive has got.
    fn end_through(&mut self, peer: PeerId, at: usize) -> Result<(), PeerError> {
        let link = &mut self.peer(peer).links[at];
        let has_replay = link.replay_buffer.is_some();
        let Some(Through { op, start, end, ack, len, .. }) = link.through.take() else {
            return Ok(());
        };
        if has_replay {
            self.count_frame(peer, at, ack, len)?;
        }
        if count_piece(&mut self.ops, op, start, end - start) {
            self.answer_arrived(peer);
        }
        Ok(())
    }

    /// Returns the position of a link that carries frames, and true if its frames may be resent.
    fn link_of(&self, peer: PeerId, rail: RailId) -> Option<(usize, bool)> {
        let state = self.peers.get(peer.0 as usize)?.as_ref()?;
        let at = state.links.iter().position(|link| link.rail == rail)?;
        Some((at, state.links[at].replay_buffer.is_some()))
    }

    /// Matches a message of `bytes` bytes with a receive and begins to fill it. `None` if no
    /// receive matches or the sender has no credit.
    fn begin_eager(
        &mut self,
        peer: PeerId,
        header: &Header,
        acknowledge: Option<u32>,
        bytes: usize,
    ) -> Option<OpId> {
        let state = self.peer(peer);
        let is_next = state.sequence_in == header.sequence && state.early.is_empty();
        if !is_next || state.charged + charge(bytes) > state.accepted {
            return None;
        }
        let id = self.matching.take_posted(peer, header)?;
        let (source, tag, bytes) = (header.source, header.tag, bytes as u64);
        let op = self.ops.at(id.index)?;
        let wanted = wanted(&op.region, bytes);
        op.peer = Some(peer);
        op.state =
            OpState::Receiving { source, tag, bytes, wanted, left: wanted, is_answer: false };
        if wanted == 0 {
            self.ops.complete(id.index, received(source, tag, bytes, 0));
        }
        let state = self.peer(peer);
        state.sequence_in = header.sequence.wrapping_add(1);
        // A matched message takes no memory for unexpected ones.
        state.charged += charge(bytes as usize);
        state.owed += charge(bytes as usize);
        if let Some(op) = acknowledge {
            state.control.push_back(Control::Fin { op });
        } else if !state.must_return_credit() {
            return Some(id);
        }
        self.list(peer);
        Some(id)
    }
}
