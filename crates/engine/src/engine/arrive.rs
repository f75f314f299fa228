//! Received frames: matching, delivery, replies, remote reads.

use std::num::NonZeroU64;

use wire::packet::{self, Header, Packet, RndvKind};
use wire::{PeerId, RailId, RemoteRegion};

use super::{CREDIT_MAX, Engine, PeerError, RemoteRead, RemoteReadId};
use crate::exposed::AddressedHead;
use crate::matching::{Content, Early, Unexpected, wanted};
use crate::op::{Head, Op, OpId, OpState, SendState, receive_piece, received};
use crate::peer::{Control, EARLY_MAX, charge};
use crate::rts_data::Settled;

impl Engine {
    /// Handles a frame received over a link of `peer`.
    ///
    /// # Errors
    /// If the peer breaks the protocol. State of other peers is not touched; the caller closes the
    /// peer's links and calls [`Engine::handle_down`].
    pub fn handle_frame(
        &mut self,
        peer: PeerId,
        rail: RailId,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let entry = self.peers.get_mut(peer.0 as usize).ok_or(PeerError::Unknown(peer.0))?;
        let state = entry.as_mut().ok_or(PeerError::NotConnected)?;
        let mut rest = match state.links.iter().position(|link| link.rail == rail) {
            Some(at) => match &mut state.links[at].replay_buffer {
                Some(replay_buffer) => {
                    let is_quiet = !state.is_ack_wanted && replay_buffer.receive_quiet(bytes);
                    if is_quiet { bytes } else { self.handle_ack(peer, at, bytes)? }
                }
                None => bytes,
            },
            None => self.handle_resume(peer, rail, bytes)?,
        };
        while let Some(packet) = packet::parse(&mut rest)? {
            if let Packet::Eager { header, acknowledge, payload } = packet {
                self.handle_eager(peer, header, acknowledge, payload)?;
                continue;
            }
            self.handle_packet(peer, packet)?;
        }
        Ok(())
    }

    /// Handles a packet outside the fast path of short messages.
    #[inline(never)]
    fn handle_packet(&mut self, peer: PeerId, packet: Packet<'_>) -> Result<(), PeerError> {
        match packet {
            Packet::Eager { header, acknowledge, payload } => {
                self.handle_eager(peer, header, acknowledge, payload)
            }
            Packet::RtsData { sequence, offset, payload } => {
                self.handle_rts_data(peer, sequence, offset, payload)
            }
            Packet::Rts { header, op, bytes, rndv } => {
                if let RndvKind::WithData { bytes: rts_data, .. } = rndv {
                    self.announce_rts_data(peer, header.sequence, rts_data, bytes)?;
                }
                let content = Content::Rts { op, bytes, rndv };
                self.handle_message(Unexpected { peer, header, content })
            }
            Packet::Cts { op, receiver, wanted } => self.handle_cts(peer, op, receiver, wanted),
            Packet::Grant { op } => self.handle_grant(peer, op),
            Packet::Data { receiver, offset, payload } => {
                self.handle_data(peer, receiver, offset, payload)
            }
            Packet::CompressedRtsData { sequence, offset, bytes, payload } => {
                self.handle_compressed_rts_data(peer, (sequence, offset), payload, bytes as usize)
            }
            Packet::CompressedData { receiver, offset, bytes, payload } => {
                self.handle_compressed_data(peer, (receiver, offset), payload, bytes as usize)
            }
            Packet::Fin { op } => self.handle_fin(peer, op),
            Packet::Refused { op } => self.handle_refused(peer, op),
            Packet::Addressed(addressed) => self.handle_addressed(peer, addressed),
            Packet::Credit { bytes } => {
                let state = self.peer(peer);
                state.credit = CREDIT_MAX.min(state.credit + bytes as usize);
                Ok(())
            }
            Packet::LinkDown { link, frames } => self.handle_link_down_packet(peer, link, frames),
            Packet::Ack { .. } | Packet::Resume { .. } => Err(PeerError::Misplaced),
        }
    }

    /// Next remote read to perform.
    #[inline]
    pub fn poll_remote_read(&mut self) -> Option<RemoteRead> {
        loop {
            let id = self.remote_reads.pop_front()?;
            let Self { ops, peers, .. } = self;
            let Some(op) = ops.find_mut(id) else { continue };
            let (OpState::RemoteReading { wanted, address, is_polled, .. }, Some(peer)) =
                (&mut op.state, op.peer)
            else {
                continue;
            };
            let remote = RemoteRegion { address: *address, len: *wanted };
            let local = op.region.slice(0, *wanted as usize);
            let state = peers.get(peer.0 as usize).and_then(Option::as_ref);
            let Some(rail) = state.and_then(|state| state.remote_read_rail()) else {
                self.handle_remote_read_declined(RemoteReadId(id));
                continue;
            };
            *is_polled = true;
            return Some(RemoteRead { id: RemoteReadId(id), peer, rail, remote, offset: 0, local });
        }
    }

    /// Handles the end of a remote read. If it was refused, the peer is asked to send instead.
    /// Nothing is written to its memory any more.
    pub fn handle_remote_read_done(&mut self, id: RemoteReadId, ok: bool) {
        let RemoteReadId(id) = id;
        let Some(op) = self.ops.find_mut(id) else { return };
        let (&OpState::RemoteReading { source, tag, bytes, wanted, op: sender, .. }, Some(peer)) =
            (&op.state, op.peer)
        else {
            return;
        };
        if !ok {
            self.peer(peer).remote_read_refused = true;
            return self.handle_remote_read_declined(RemoteReadId(id));
        }
        self.ops.complete(id.index, received(source, tag, bytes, wanted));
        if self.is_failed(peer) {
            return;
        }
        self.peer(peer).control.push_back(Control::Fin { op: sender });
        self.list(peer);
    }

    /// Handles a remote read that is not wanted this time: the peer is asked to send.
    pub fn handle_remote_read_declined(&mut self, id: RemoteReadId) {
        let RemoteReadId(id) = id;
        let Some(op) = self.ops.find_mut(id) else { return };
        let (&OpState::RemoteReading { source, tag, bytes, wanted, op: sender, .. }, Some(peer)) =
            (&op.state, op.peer)
        else {
            return;
        };
        op.state =
            OpState::Receiving { source, tag, bytes, wanted, left: wanted, is_answer: false };
        if self.is_failed(peer) {
            return self.fail(id.index);
        }
        let cts = Control::Cts { op: sender, receiver: id.index, wanted };
        self.peer(peer).control.push_back(cts);
        self.list(peer);
    }

    /// Sets whether messages of a context may match before those that were sent earlier
    /// (`mpi_assert_allow_overtaking`). They then match as they arrive over several links.
    #[cold]
    pub fn set_overtaking(&mut self, context: u64, is_allowed: bool) {
        if is_allowed {
            self.overtaking.insert(context);
        } else {
            self.overtaking.remove(&context);
        }
    }

    /// Checks the sequence of a matching-bearing packet; true if it is the next of its peer, and
    /// counts it.
    #[inline]
    pub(super) fn in_sequence(&mut self, peer: PeerId, got: u32) -> Result<bool, PeerError> {
        let state = self.peer(peer);
        let expected = state.sequence_in;
        if got == expected {
            state.sequence_in = expected.wrapping_add(1);
            return Ok(true);
        }
        let rts_data = got.wrapping_sub(expected) as usize;
        if rts_data > EARLY_MAX || state.early.contains_key(&got) {
            return Err(PeerError::Sequence { expected, got });
        }
        Ok(false)
    }

    /// Delivers an eager message to its posted receive, or stores it.
    #[inline]
    fn handle_eager(
        &mut self,
        peer: PeerId,
        header: Header,
        acknowledge: Option<u32>,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        self.charge(peer, charge(payload.len()))?;
        let state = self.peer(peer);
        let overtaken = state.sequence_in != header.sequence || !state.early.is_empty();
        if !overtaken && let Some(id) = self.matching.take_posted(peer, &header) {
            self.peer(peer).sequence_in = header.sequence.wrapping_add(1);
            self.deliver(id, peer, &header, payload, acknowledge);
            return Ok(());
        }
        let content = Content::Eager { data: payload.into(), acknowledge };
        self.handle_message(Unexpected { peer, header, content })
    }

    /// Handles a message in order, and then those it held up; stores one that is early.
    fn handle_message(&mut self, message: Unexpected) -> Result<(), PeerError> {
        let peer = message.peer;
        let sequence = message.header.sequence;
        if !self.in_sequence(peer, sequence)? {
            if self.overtaking.contains(&message.header.context) {
                self.peer(peer).early.insert(sequence, Early::Overtaken);
                return self.match_or_store(message);
            }
            self.peer(peer).early.insert(sequence, Early::Message(message));
            return Ok(());
        }
        self.match_or_store(message)?;
        if self.peer(peer).early.is_empty() { Ok(()) } else { self.handle_early(peer) }
    }

    /// Handles the packets that were early, as far as they are in order now.
    #[cold]
    pub(super) fn handle_early(&mut self, peer: PeerId) -> Result<(), PeerError> {
        loop {
            let state = self.peer(peer);
            let Some(next) = state.early.remove(&state.sequence_in) else { return Ok(()) };
            state.sequence_in = state.sequence_in.wrapping_add(1);
            match next {
                Early::Message(message) => self.match_or_store(message)?,
                Early::Call { call, payload } => self.run_call(peer, &call, &payload)?,
                Early::Overtaken => {}
            }
        }
    }

    fn match_or_store(&mut self, message: Unexpected) -> Result<(), PeerError> {
        match self.matching.take_posted(message.peer, &message.header) {
            Some(id) => self.accept(id, message),
            None if self.revoked_by(message.header.context).is_some() => self.discard(message),
            None => {
                self.counters.unexpected += 1;
                self.ops.event_count += 1;
                let Content::Eager { data, .. } = &message.content else {
                    return self.store_rts(message);
                };
                self.unexpected_bytes += data.len();
                self.counters.unexpected_bytes_max.note(self.unexpected_bytes);
                self.matching.arrive(message);
            }
        }
        Ok(())
    }

    /// Stores an RTS without a receive. A short one is granted if the budget allows, so that its
    /// sender does not wait for the receive.
    #[inline(never)]
    fn store_rts(&mut self, mut message: Unexpected) -> Result<(), PeerError> {
        let Unexpected { peer, header, content } = &mut message;
        if let Content::Rts { op, bytes, rndv: approach @ RndvKind::Short(_) } = content
            && self.grant_message(*peer, *bytes)
        {
            let state = self.peer(*peer);
            let early = state.rts_data.announce(header.sequence, *bytes)?;
            state.control.push_back(Control::Grant { op: *op });
            *approach = RndvKind::WithData { bytes: *bytes, cts: false };
            self.charge(*peer, charge(*bytes as usize) - early)?;
            self.list(*peer);
        }
        self.matching.arrive(message);
        Ok(())
    }

    /// Delivers a waiting message to the receive that matched it.
    pub(super) fn deliver_waiting(&mut self, id: OpId, message: Unexpected) {
        self.forget_waiting(&message);
        self.accept(id, message);
    }

    #[inline]
    pub(super) fn forget_waiting(&mut self, message: &Unexpected) {
        if let Content::Eager { data, .. } = &message.content {
            self.unexpected_bytes -= data.len();
        }
    }

    pub(super) fn accept(&mut self, id: OpId, message: Unexpected) {
        let Unexpected { peer, header, content } = message;
        match content {
            Content::Eager { data, acknowledge } => {
                self.deliver(id, peer, &header, &data, acknowledge);
            }
            Content::Rts { op, bytes, rndv } => {
                self.answer(id, peer, &header, op, bytes, rndv);
            }
        }
    }

    #[inline]
    fn deliver(
        &mut self,
        id: OpId,
        peer: PeerId,
        header: &Header,
        payload: &[u8],
        acknowledge: Option<u32>,
    ) {
        self.ops.complete_with(id.index, |into| {
            let bytes = payload.len() as u64;
            let wanted = wanted(into, bytes);
            into.write(0, &payload[..wanted as usize]);
            received(header.source, header.tag, bytes, wanted)
        });
        let state = self.peer(peer);
        if state.reach.is_failed() {
            return;
        }
        state.owed += charge(payload.len());
        if let Some(op) = acknowledge {
            state.control.push_back(Control::Fin { op });
        } else if !state.must_return_credit() {
            return;
        }
        self.list(peer);
    }

    /// Answers an RTS that matched a receive: remote read, data received before, or CTS.
    fn answer(
        &mut self,
        id: OpId,
        peer: PeerId,
        header: &Header,
        sender: u32,
        bytes: u64,
        approach: RndvKind,
    ) {
        let Header { source, tag, sequence, .. } = *header;
        let Some(op) = self.ops.at(id.index) else { return };
        let wanted = wanted(&op.region, bytes);
        let is_on_host = op.region.is_on_host();
        op.peer = Some(peer);
        op.state =
            OpState::Receiving { source, tag, bytes, wanted, left: wanted, is_answer: false };
        let state = self.peer(peer);
        if state.reach.is_failed() {
            return self.fail(id.index);
        }
        let address = match approach {
            RndvKind::Get(address) => Some(address),
            RndvKind::Short(address) => address.map(NonZeroU64::get),
            RndvKind::Stream | RndvKind::WithData { .. } => None,
        };
        let is_read = wanted > 0 && is_on_host && state.can_read_remotely();
        if let Some(address) = address.filter(|_| is_read) {
            if let Some(op) = self.ops.at(id.index) {
                let is_polled = false;
                op.state = OpState::RemoteReading {
                    source,
                    tag,
                    bytes,
                    wanted,
                    op: sender,
                    address,
                    is_polled,
                };
            }
            self.remote_reads.push_back(id);
            return;
        }
        match approach {
            RndvKind::WithData { cts: false, .. } => {}
            RndvKind::Stream
            | RndvKind::Get(_)
            | RndvKind::Short(_)
            | RndvKind::WithData { cts: true, .. } => {
                state.control.push_back(Control::Cts { op: sender, receiver: id.index, wanted });
            }
        }
        if wanted == 0 {
            self.ops.complete(id.index, received(source, tag, bytes, 0));
        }
        if let RndvKind::WithData { .. } = approach {
            self.take_rts_data(peer, sequence, id);
        }
        self.list(peer);
    }

    fn handle_cts(
        &mut self,
        peer: PeerId,
        op: u32,
        receiver: u32,
        wanted: u64,
    ) -> Result<(), PeerError> {
        let (bytes, send) = self.awaiting_send(peer, op, "cts")?;
        if !send.offered {
            return Err(PeerError::Operation { what: "cts", op });
        }
        if wanted > bytes {
            return Err(PeerError::Range { offset: 0, len: wanted as usize, wanted: bytes });
        }
        send.awaiting = false;
        send.receiver = receiver;
        // Announced data are sent in full, wanted or not.
        send.end = wanted.max(send.rts_data);
        let streams_already = send.to_emit;
        send.to_emit = send.next < send.end;
        if !send.to_emit {
            self.ops.complete_send_if_done(op);
        } else if !streams_already {
            self.stream(peer, op);
        }
        Ok(())
    }

    /// Handles a grant: the whole message may be sent before its receive.
    fn handle_grant(&mut self, peer: PeerId, op: u32) -> Result<(), PeerError> {
        let (bytes, send) = self.awaiting_send(peer, op, "grant")?;
        if !send.may_be_granted {
            return Err(PeerError::Operation { what: "grant", op });
        }
        send.awaiting = false;
        (send.rts_data, send.end) = (bytes, bytes);
        send.to_emit = bytes > 0;
        if bytes > 0 {
            self.stream(peer, op);
        } else {
            self.ops.complete_send_if_done(op);
        }
        Ok(())
    }

    /// Begins to stream a message.
    fn stream(&mut self, peer: PeerId, op: u32) {
        let id = self.ops.id(op);
        self.peer(peer).streams.push_back(id);
        self.list(peer);
    }

    fn handle_fin(&mut self, peer: PeerId, op: u32) -> Result<(), PeerError> {
        let (_, send) = self.awaiting_send(peer, op, "fin")?;
        if let Head::Addressed(AddressedHead::Flush) = send.head {
            return self.handle_flushed(peer, op, false);
        }
        send.awaiting = false;
        self.ops.complete_send_if_done(op);
        Ok(())
    }

    /// Finds a send that waits for a packet of this peer, and its message's length in bytes.
    pub(super) fn awaiting_send(
        &mut self,
        peer: PeerId,
        op: u32,
        what: &'static str,
    ) -> Result<(u64, &mut SendState), PeerError> {
        match self.ops.at(op) {
            Some(Op { state: OpState::Send(send), peer: Some(to), region, .. })
                if *to == peer && send.awaiting && (!send.to_emit || send.rts_data > 0) =>
            {
                Ok((region.len() as u64, send))
            }
            _ => Err(PeerError::Operation { what, op }),
        }
    }

    fn handle_data(
        &mut self,
        peer: PeerId,
        receiver: u32,
        offset: u64,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        let id = self.expect_data(peer, receiver, offset, payload.len())?;
        let is_answer = receive_piece(&mut self.ops, id, offset, payload);
        if is_answer {
            self.answer_arrived(peer);
        }
        Ok(())
    }

    /// Finds the receive that expects these bytes of its message.
    #[inline]
    pub(super) fn expect_data(
        &mut self,
        peer: PeerId,
        receiver: u32,
        offset: u64,
        len: usize,
    ) -> Result<OpId, PeerError> {
        let unexpected = PeerError::Operation { what: "data", op: receiver };
        let op = self.ops.at(receiver).filter(|op| op.peer == Some(peer)).ok_or(unexpected)?;
        let OpState::Receiving { wanted, left, .. } = &op.state else {
            return Err(unexpected);
        };
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > *wanted) || len as u64 > *left {
            return Err(PeerError::Range { offset, len, wanted: *wanted });
        }
        Ok(self.ops.id(receiver))
    }

    /// Handles compressed data like [`Engine::handle_data`]; only expected data are decompressed.
    #[cold]
    fn handle_compressed_data(
        &mut self,
        peer: PeerId,
        (receiver, offset): (u32, u64),
        payload: &[u8],
        bytes: usize,
    ) -> Result<(), PeerError> {
        let id = self.expect_data(peer, receiver, offset, bytes)?;
        let Self { codec, ops, .. } = self;
        let wrong = PeerError::Compressed { len: payload.len(), bytes };
        let piece = codec.decompress(payload, bytes).ok_or(wrong)?;
        if receive_piece(ops, id, offset, piece) {
            self.answer_arrived(peer);
        }
        Ok(())
    }

    /// Handles an RTS that announces data before the CTS.
    fn announce_rts_data(
        &mut self,
        peer: PeerId,
        sequence: u32,
        rts_data: u64,
        bytes: u64,
    ) -> Result<(), PeerError> {
        let granted = self.peer(peer).accepted as u64;
        if rts_data > bytes || rts_data > granted {
            return Err(PeerError::Range { offset: 0, len: rts_data as usize, wanted: bytes });
        }
        let state = self.peer(peer);
        let expected = state.sequence_in;
        if sequence.wrapping_sub(expected) as usize > EARLY_MAX {
            return Err(PeerError::Sequence { expected, got: sequence });
        }
        let early = state.rts_data.announce(sequence, rts_data)?;
        self.charge(peer, charge(rts_data as usize) - early)
    }

    fn handle_rts_data(
        &mut self,
        peer: PeerId,
        sequence: u32,
        offset: u64,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        let Self { peers, ops, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return Ok(()) };
        let is_due = sequence.wrapping_sub(state.sequence_in) as usize <= EARLY_MAX;
        let limit = state.accepted as u64;
        let settled = state.rts_data.piece(ops, sequence, (offset, payload), (is_due, limit))?;
        self.settle(peer, settled);
        self.charge(peer, settled.early)
    }

    /// Handles compressed data like [`Engine::handle_rts_data`]; only acceptable data are
    /// decompressed.
    #[cold]
    fn handle_compressed_rts_data(
        &mut self,
        peer: PeerId,
        (sequence, offset): (u32, u64),
        payload: &[u8],
        bytes: usize,
    ) -> Result<(), PeerError> {
        let wanted = self.peer(peer).accepted as u64;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > wanted) {
            return Err(PeerError::Range { offset, len: bytes, wanted });
        }
        let mut codec = std::mem::take(&mut self.codec);
        let taken = match codec.decompress(payload, bytes) {
            Some(piece) => self.handle_rts_data(peer, sequence, offset, piece),
            None => Err(PeerError::Compressed { len: payload.len(), bytes }),
        };
        self.codec = codec;
        taken
    }

    /// Gives a matched receive the data that came before the CTS.
    pub(super) fn take_rts_data(&mut self, peer: PeerId, sequence: u32, id: OpId) {
        let Self { peers, ops, .. } = self;
        let Some(Some(state)) = peers.get_mut(peer.0 as usize) else { return };
        let settled = state.rts_data.matched(ops, sequence, id);
        self.settle(peer, settled);
    }

    fn settle(&mut self, peer: PeerId, settled: Settled) {
        self.unexpected_bytes = self.unexpected_bytes + settled.stored - settled.released;
        self.counters.unexpected_bytes_max.note(self.unexpected_bytes);
        if let Some(bytes) = settled.retired {
            let state = self.peer(peer);
            state.owed += charge(bytes);
            if state.must_return_credit() {
                self.list(peer);
            }
        }
    }

    /// Keeps the complete messages of a failed peer, including empty ones, and drops incomplete
    /// ones.
    pub(super) fn end_rts_data(&mut self, peer: PeerId) {
        let mut rts_data = std::mem::take(&mut self.peer(peer).rts_data);
        self.unexpected_bytes -= rts_data.waiting_bytes();
        for message in self.matching.messages_mut().chain(self.matched.messages_mut()) {
            if message.peer == peer
                && let Content::Rts { bytes, .. } = message.content
                && let Some(data) = match bytes {
                    0 => Some(Box::default()),
                    _ => rts_data.take_whole(message.header.sequence, bytes),
                }
            {
                self.unexpected_bytes += data.len();
                message.content = Content::Eager { data: data.into(), acknowledge: None };
            }
        }
    }

    #[inline]
    fn charge(&mut self, peer: PeerId, bytes: usize) -> Result<(), PeerError> {
        let state = self.peer(peer);
        state.charged += bytes;
        let granted = state.accepted;
        if state.charged > granted {
            return Err(PeerError::Credit { charged: state.charged, granted });
        }
        Ok(())
    }
}
