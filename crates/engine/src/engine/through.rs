//! Cut-through frames: received while the sender still writes them.

use wire::packet::{self, Header, Packet};
use wire::{PeerId, RailId};

use super::{Engine, PeerError};
use crate::matching::wanted;
use crate::op::{OpId, OpState, receive_piece, received};
use crate::peer::{Control, charge};

impl Engine {
    /// Handles the beginning of a frame of `len` bytes, if it is a message with a posted receive,
    /// or an expected piece. [`Engine::handle_rest`] must then bring the rest. False changes
    /// nothing; the frame must be received whole.
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
        let state = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let mut links = state.iter().flat_map(|state| &state.links);
        let is_plain = links.any(|link| link.rail == rail && link.replay_buffer.is_none());
        let Some(packet) = packet::parse_beginning(beginning, len).filter(|_| is_plain) else {
            return Ok(false);
        };
        let (id, offset, payload) = match packet {
            Packet::Eager { header, acknowledge, payload } => {
                let bytes = len - packet::EAGER_LEN;
                let Some(id) = self.begin_eager(peer, &header, acknowledge, bytes) else {
                    return Ok(false);
                };
                (id, 0, payload)
            }
            Packet::Data { receiver, offset, payload } => {
                let bytes = len - packet::DATA_LEN;
                (self.expect_data(peer, receiver, offset, bytes)?, offset, payload)
            }
            _ => return Ok(false),
        };
        self.peer(peer).through = Some((id, offset + payload.len() as u64));
        if receive_piece(&mut self.ops, id, offset, payload) {
            self.answer_arrived(peer);
        }
        Ok(true)
    }

    /// Handles the next bytes of a frame whose beginning was accepted.
    pub fn handle_rest(&mut self, peer: PeerId, bytes: &[u8]) {
        let Self { peers, ops, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return };
        let Some((id, at)) = &mut state.through else { return };
        let is_answer = receive_piece(ops, *id, *at, bytes);
        *at += bytes.len() as u64;
        if is_answer {
            self.answer_arrived(peer);
        }
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
