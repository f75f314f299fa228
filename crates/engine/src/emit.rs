//! Encoding of frames from the chosen contents of a send queue.

use std::num::NonZeroU64;

use memory::Region;
use wire::addressed::{self, Answer, CALL_LEN, CallHeader};
use wire::compress::Codec;
use wire::packet::{self, Header, RndvKind};
use wire::{Body, Frame, FrameToken};

use crate::engine::Counters;
use crate::exposed::{AddressedHead, HandlerId, PutTo};
use crate::link::Link;
use crate::op::{Envelope, Head, Op, OpId, OpState, Ops, SendState};
use crate::peer::{Control, EARLY_MAX, PeerState, charge};
use crate::pending::Pending;
use crate::replay_buffer::{FrameRecord, NO_OPERATION, PROMPT_BYTES, PROMPT_BYTES_FAR};
use crate::strategy::{Carry, Choice, Piece};

/// Purpose of short data that leave in one packet, without an operation.
#[derive(Clone, Copy, Debug)]
pub enum Short {
    /// A message to be matched.
    Message(Envelope),
    /// A put.
    Put(PutTo),
    /// A call of a handler that does not answer, with its arguments.
    Call(HandlerId, [u64; 3]),
}

impl Short {
    /// Credit that `len` bytes cost.
    pub(crate) fn cost(self, len: usize) -> usize {
        match self {
            Self::Message(_) => charge(len),
            Self::Put(_) | Self::Call(..) => 0,
        }
    }

    /// Length of the packet of `len` bytes beyond the head of an eager message.
    pub(crate) fn packet_len(self, len: usize) -> usize {
        match self {
            Self::Message(_) | Self::Put(_) => len,
            Self::Call(..) => len + CALL_LEN - packet::EAGER_LEN,
        }
    }
}

/// Appends an eager message to a frame's head.
#[inline]
pub(crate) fn emit_whole(
    state: &mut PeerState,
    envelope: Envelope,
    data: &Region,
    head: &mut Vec<u8>,
) {
    let len = data.len();
    state.credit -= charge(len);
    let header = next_header(state, envelope);
    packet::emit_eager(head, &header, None, len as u32);
    data.append_to(head);
}

/// Appends a short packet with its data to a frame's head.
pub(crate) fn emit_any(state: &mut PeerState, short: Short, data: &Region, head: &mut Vec<u8>) {
    match short {
        Short::Message(envelope) => emit_whole(state, envelope, data, head),
        Short::Put(PutTo { key, offset }) => {
            let epoch = state.addressed().count(data.len());
            addressed::emit_put(head, key, epoch, offset, data.len() as u32);
            data.append_to(head);
        }
        Short::Call(HandlerId(handler), arguments) => {
            let (epoch, sequence) =
                (state.addressed().count_call(data.len()), next_sequence(state));
            let answer = Answer::None;
            let call = CallHeader { handler, epoch, sequence, answer, arguments };
            addressed::emit_call(head, &call, data.len() as u32);
            data.append_to(head);
        }
    }
}

/// Emits an eager message whose data are the frame's body, borrowed for the duration of the call.
/// Memory is not held; if the rail does not accept the frame, the data are copied.
#[inline(never)]
pub(crate) fn emit_lent(
    state: &mut PeerState,
    envelope: Envelope,
    data: &Region,
    frame: &mut Frame,
) {
    let len = data.len();
    state.credit -= charge(len);
    let header = next_header(state, envelope);
    packet::emit_eager(&mut frame.head, &header, None, len as u32);
    frame.body = Some(Body { region: data.clone().staged() });
}

/// Builds the frame of a short packet on a link with replay; returns how to store it. `room` is
/// the number of further messages the peer can put in order.
#[inline]
pub(crate) fn emit_short(
    state: &mut PeerState,
    link: usize,
    room: usize,
    (short, data): (Short, &Region),
    frame: &mut Frame,
) -> Option<FrameRecord> {
    let sequence = state.sequence_out;
    let (mut is_prompt, mut from) = (false, 0);
    if let Some(replay_buffer) = &mut state.links[link].replay_buffer {
        is_prompt = room <= EARLY_MAX / 2 || replay_buffer.is_prompt(PROMPT_BYTES);
        if is_prompt || replay_buffer.may_ack() {
            replay_buffer.emit_ack(&mut frame.head, is_prompt);
            from = frame.head.len();
        }
    }
    emit_any(state, short, data, &mut frame.head);
    state.links[link].replay_buffer.is_some().then_some(FrameRecord { from, sequence, is_prompt })
}

/// A frame being built.
pub(crate) struct Begun {
    /// End of the ACK in the head.
    pub from: usize,
    /// Sequence of its first message, or of the next one.
    sequence: u32,
    /// Number of messages that could leave before this frame.
    room: usize,
}

/// Begins a frame: the ACK on a link with replay, coalesced messages, and credit. `room` is the
/// number of further messages the peer can put in order.
#[inline]
pub(crate) fn emit_begin(
    state: &mut PeerState,
    link: usize,
    room: usize,
    frame: &mut Frame,
) -> Begun {
    let (head, link) = (&mut frame.head, &mut state.links[link]);
    if let Some(replay_buffer) = &link.replay_buffer {
        packet::emit_ack(head, replay_buffer.received(), false);
    }
    let from = head.len();
    let mut sequence = state.sequence_out;
    if !state.coalesced.is_empty() {
        sequence = state.coalesced_from;
        if head.is_empty() {
            std::mem::swap(head, &mut state.coalesced);
        } else {
            head.append(&mut state.coalesced);
        }
    }
    state.released = false;
    if state.may_return_credit() {
        let bytes = state.return_credit();
        packet::emit_credit(&mut frame.head, bytes);
    }
    Begun { from, sequence, room }
}

/// Ends a frame, and returns how to store it on a link with replay.
pub(crate) fn emit_end(
    state: &mut PeerState,
    link: usize,
    begun: Begun,
    frame: &mut Frame,
) -> Option<FrameRecord> {
    let Begun { from, sequence, room } = begun;
    state.links[link].replay_buffer.as_ref()?;
    // With copies, the next long frame does not wait for the ACK of this one.
    let is_followed =
        state.has_one_carrier() && state.links[link].keeps_copies() && !state.streams.is_empty();
    let replay_buffer = state.links[link].replay_buffer.as_mut()?;
    let unprompted_max = match frame.body.is_some() || replay_buffer.has_unprompted_long() {
        true if is_followed => PROMPT_BYTES_FAR,
        true => 0,
        false => PROMPT_BYTES,
    };
    let probes = replay_buffer.take_probe();
    if frame.head.len() == from && frame.body.is_none() {
        if !probes {
            if replay_buffer.is_ack_due() {
                replay_buffer.note_acked();
            } else {
                frame.head.clear();
            }
            return None;
        }
        // An empty credit packet makes the frame count.
        packet::emit_credit(&mut frame.head, 0);
    }
    replay_buffer.note_acked();
    // An ACK is asked for before the peer's limit of out-of-order messages is reached.
    let messages = state.sequence_out.wrapping_sub(sequence) as usize;
    let is_pressing = room.saturating_sub(messages) < EARLY_MAX / 2;
    let is_prompt = probes || is_pressing || replay_buffer.is_prompt(unprompted_max);
    if is_prompt {
        packet::ask_prompt(&mut frame.head);
    }
    Some(FrameRecord { from, sequence, is_prompt })
}

/// Resends a frame of a lost link over another one.
pub(crate) fn emit_lost(state: &mut PeerState, link: usize, frame: &mut Frame) -> bool {
    let Link { capabilities, replay_buffer: Some(replay_buffer), .. } = &mut state.links[link]
    else {
        return false;
    };
    let Some(lost) = state.lost.pop_front_if(|lost| lost.fits(capabilities.frame_max)) else {
        return false;
    };
    replay_buffer.emit_ack(&mut frame.head, true);
    frame.head.extend_from_slice(&lost.head);
    frame.body = lost.body.clone();
    frame.token = lost.body.is_some().then(|| lost.token.unwrap_or(NO_OPERATION));
    replay_buffer.store_lost(lost);
    true
}

/// Appends the chosen packets.
pub(crate) fn emit_choice(
    state: &mut PeerState,
    link: usize,
    ops: &mut Ops,
    choice: &Choice,
    frame: &mut Frame,
    (counters, codec): (&mut Counters, &mut Codec),
) {
    for _ in 0..choice.controls {
        match state.control.pop_front() {
            Some(Control::Cts { op, receiver, wanted }) => {
                counters.answers += 1;
                packet::emit_cts(&mut frame.head, op, receiver, wanted);
            }
            Some(Control::Grant { op }) => {
                counters.answers += 1;
                packet::emit_grant(&mut frame.head, op);
            }
            Some(Control::Fin { op }) => {
                counters.answers += 1;
                packet::emit_fin(&mut frame.head, op);
            }
            Some(Control::Refused { op }) => {
                counters.answers += 1;
                packet::emit_refused(&mut frame.head, op);
            }
            Some(Control::Get { key, offset, bytes, op }) => {
                addressed::emit_get(&mut frame.head, key, offset, bytes, op);
            }
            Some(Control::Flush { op, epoch, bytes }) => {
                addressed::emit_flush(&mut frame.head, op, epoch, bytes);
            }
            Some(Control::LinkDown { link, frames }) => {
                packet::emit_link_down(&mut frame.head, link, frames);
            }
            None => break,
        }
    }
    if !choice.messages.is_empty() {
        emit_messages(state, link, ops, choice, frame, counters);
    }
    if let Some(piece) = choice.piece {
        emit_piece(state, link, ops, piece, frame, (counters, codec));
    }
}

fn emit_messages(
    state: &mut PeerState,
    link: usize,
    ops: &mut Ops,
    choice: &Choice,
    frame: &mut Frame,
    counters: &mut Counters,
) {
    // Eager messages are charged first; RTS data take what credit they leave.
    let whole = choice.messages.iter().filter(|(_, carry)| *carry != Carry::Rts);
    state.credit -= whole.map(|&(at, _)| state.send_queue[at].cost).sum::<usize>();
    for &(at, carry) in &choice.messages {
        let pending = state.send_queue[at];
        let Some(Op { region, state: OpState::Send(send), .. }) = ops.find_mut(pending.id) else {
            continue;
        };
        let envelope = match send.head {
            Head::Matched(envelope) => envelope,
            Head::Addressed(to) => {
                emit_addressed(state, to, region, send, frame);
                ops.complete_send_if_done(pending.id.index);
                continue;
            }
        };
        match carry {
            Carry::Rts => {
                counters.rendezvous += 1;
                counters.out_of_credit +=
                    u64::from(pending.bytes <= state.links[link].capabilities.eager_max);
                emit_rts(state, link, (pending, envelope), region, send, frame);
                ops.offers += 1;
            }
            Carry::Inline | Carry::Body => {
                counters.eager += 1;
                emit_eager(state, (pending, envelope), region, send, carry, frame);
                ops.complete_send_if_done(pending.id.index);
            }
        }
    }
    remove_sent(state, choice);
}

/// Appends a short packet of addressed traffic with its data.
fn emit_addressed(
    state: &mut PeerState,
    to: AddressedHead,
    region: &Region,
    send: &mut SendState,
    frame: &mut Frame,
) {
    send.to_emit = false;
    let (head, len) = (&mut frame.head, region.len() as u32);
    match to {
        AddressedHead::Put { to, epoch } => {
            addressed::emit_put(head, to.key, epoch, to.offset, len);
        }
        AddressedHead::Call(call) => {
            let sequence = next_sequence(state);
            addressed::emit_call(head, &CallHeader { sequence, ..call }, len);
        }
        AddressedHead::Data { receiver } => {
            packet::emit_data(head, receiver, 0, len);
            state.addressed().paid();
        }
        AddressedHead::Flush => {}
    }
    region.append_to(head);
}

fn emit_eager(
    state: &mut PeerState,
    (pending, envelope): (Pending, Envelope),
    region: &Region,
    send: &mut SendState,
    carry: Carry,
    frame: &mut Frame,
) {
    send.to_emit = false;
    let acknowledge = send.awaiting.then_some(pending.id.index);
    let header = next_header(state, envelope);
    send.sequence = header.sequence;
    packet::emit_eager(&mut frame.head, &header, acknowledge, pending.bytes as u32);
    if carry == Carry::Inline {
        region.append_to(&mut frame.head);
    } else {
        state.compression.pass();
        send.held += 1;
        frame.body = Some(Body { region: region.clone().staged() });
        frame.token = Some(token(pending.id));
    }
}

fn emit_rts(
    state: &mut PeerState,
    link: usize,
    (pending, envelope): (Pending, Envelope),
    region: &Region,
    send: &mut SendState,
    frame: &mut Frame,
) {
    let Pending { id, bytes, .. } = pending;
    let header = next_header(state, envelope);
    let rts_data = rts_data_len(bytes, state, link);
    send.sequence = header.sequence;
    let approach = if rts_data > 0 {
        state.credit -= charge(rts_data);
        send.rts_data = rts_data as u64;
        send.end = send.rts_data;
        send.awaiting |= rts_data < bytes;
        state.streams.push_back(id);
        RndvKind::WithData { bytes: rts_data as u64, cts: send.awaiting }
    } else {
        send.to_emit = false;
        // A send that awaits its match already is synchronous.
        let is_short = bytes <= state.size_link(link).capabilities.eager_max;
        send.may_be_granted = is_short && !send.awaiting;
        send.awaiting = true;
        let span = region.as_span().filter(|_| state.can_read_remotely());
        let address = span.map(|span| span.address as u64);
        match address {
            _ if send.may_be_granted => RndvKind::Short(address.and_then(NonZeroU64::new)),
            Some(address) => RndvKind::Get(address),
            None => RndvKind::Stream,
        }
    };
    send.offered = true;
    packet::emit_rts(&mut frame.head, &header, id.index, bytes as u64, approach);
}

/// Removes the sent messages from the send queue, and counts for the others how many overtook them.
fn remove_sent(state: &mut PeerState, choice: &Choice) {
    let in_order = choice.messages.iter().enumerate().all(|(index, &(at, _))| index == at);
    if in_order {
        state.send_queue.drain(..choice.messages.len());
        return;
    }
    let mut places: Vec<usize> = choice.messages.iter().map(|&(at, _)| at).collect();
    places.sort_unstable();
    while let Some(place) = places.pop() {
        state.send_queue.remove(place);
        // Entries before this index; chosen ones among them are still to be removed.
        for older in state.send_queue.range_mut(..place) {
            older.overtaken = older.overtaken.saturating_add(1);
        }
    }
}

/// Ends the frame with the next piece of a message.
fn emit_piece(
    state: &mut PeerState,
    link: usize,
    ops: &mut Ops,
    piece: Piece,
    frame: &mut Frame,
    (counters, codec): (&mut Counters, &mut Codec),
) {
    let frame_max = state.links[link].capabilities.frame_max;
    let Some(id) = state.streams.remove(piece.stream) else { return };
    let Some(Op { region, state: OpState::Send(send), .. }) = ops.find_mut(id) else { return };
    let put = match send.head {
        Head::Addressed(AddressedHead::Put { to, epoch }) => Some((to, epoch)),
        Head::Matched(_) | Head::Addressed(_) => None,
    };
    let header = if put.is_some() { addressed::PUT_LEN } else { packet::DATA_LEN };
    let room = frame_max.saturating_sub(frame.head.len() + header);
    let is_rts_data = send.next < send.rts_data;
    let until = if is_rts_data { send.rts_data } else { send.end };
    let len = (until - send.next).min(piece.len.min(room) as u64);
    if len == 0 {
        state.streams.insert(piece.stream, id);
        return;
    }
    let plain = region.slice(send.next as usize, len as usize).staged();
    let behind = (send.next + len) as usize;
    region.fetch(behind, (len as usize).min(region.len() - behind));
    // The limit was computed for the longest piece, and scales with the length.
    let compressed_max = (piece.compressed_max as u64 * len / piece.len as u64) as usize;
    let compressed = if compressed_max == 0 || put.is_some() {
        state.compression.pass();
        None
    } else {
        state.compression.compress(codec, &plain, compressed_max, counters)
    };
    counters.pieces += 1;
    let (head, at, bytes) = (&mut frame.head, send.next, len as u32);
    let of = if is_rts_data { send.sequence } else { send.receiver };
    match (&compressed, is_rts_data) {
        _ if let Some((to, epoch)) = put => {
            addressed::emit_put(head, to.key, epoch, to.offset + at, bytes);
        }
        (None, true) => packet::emit_rts_data(head, of, at, bytes),
        (None, false) => packet::emit_data(head, of, at, bytes),
        (Some(compressed), true) => {
            packet::emit_compressed_rts_data(head, of, at, bytes, compressed.len() as u32);
        }
        (Some(compressed), false) => {
            packet::emit_compressed_data(head, of, at, bytes, compressed.len() as u32);
        }
    }
    frame.body = Some(Body { region: compressed.map_or(plain, Region::from_box) });
    frame.token = Some(token(id));
    send.next += len;
    send.held += 1;
    if send.next == send.end {
        send.to_emit = false;
        if let Head::Addressed(AddressedHead::Data { .. }) = send.head {
            state.addressed().paid();
        }
    } else if send.head.is_urgent() {
        // The receiver works on the first urgent message while others arrive.
        state.streams.insert(piece.stream, id);
    } else {
        state.streams.push_back(id);
    }
}

#[inline(always)]
fn next_header(state: &mut PeerState, envelope: Envelope) -> Header {
    let Envelope { context, source, tag, .. } = envelope;
    Header { context, source, tag, sequence: next_sequence(state) }
}

#[inline(always)]
fn next_sequence(state: &mut PeerState) -> u32 {
    let sequence = state.sequence_out;
    state.sequence_out = sequence.wrapping_add(1);
    sequence
}

/// Bytes of a message that follow its RTS: all or a good part, as credits allow. Some credit is
/// left for later short messages, since the peer may have granted less than the link needs.
fn rts_data_len(len: usize, state: &PeerState, link: usize) -> usize {
    let capabilities = &state.size_link(link).capabilities;
    let left = (state.credit / CREDIT_LEFT).max(charge(0));
    let rts_data = len.min(capabilities.rts_data_max).min(state.credit.saturating_sub(left));
    if rts_data == len || rts_data > capabilities.eager_max { rts_data } else { 0 }
}

/// Fraction of the credit that RTS data leave.
const CREDIT_LEFT: usize = 8;
/// Bytes of messages coalesced for one frame: some hundred short ones, so that the receiver handles
/// one frame while the next is filled.
pub(crate) const COALESCED_MAX: usize = 16 << 10;

/// Bytes at the beginning of a frame, besides chosen and coalesced packets.
pub(crate) const BEGIN_MAX: usize = packet::ACK_LEN + 8;

fn token(id: OpId) -> FrameToken {
    FrameToken(u64::from(id.generation) << 32 | u64::from(id.index))
}
