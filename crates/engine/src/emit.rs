//! Frames: what of a gate's window goes into the next one, and in which order.
//!
//! Control first, then short messages together, then one long piece at the end.

use memory::Region;
use wire::packet::{self, Header, Way};
use wire::{Body, Capabilities, Frame, FrameToken};

use crate::engine::Counters;
use crate::gate::{Control, Gate, charge};
use crate::op::{Envelope, Op, OpId, OpState, Ops};

/// Appends a whole message to a frame's head.
#[inline]
pub(crate) fn emit_whole(way: &mut Gate, envelope: Envelope, data: &Region, head: &mut Vec<u8>) {
    let len = data.len();
    way.credit -= charge(len);
    let Envelope { context, source, tag } = envelope;
    let header = Header { context, source, tag, sequence: way.sequence_out };
    way.sequence_out = way.sequence_out.wrapping_add(1);
    packet::emit_eager(head, &header, None, len as u32);
    data.append_to(head);
}

pub(crate) fn emit_control(way: &mut Gate, frame: &mut Frame) {
    if way.may_return_credit() {
        packet::emit_credit(&mut frame.head, way.owed as u32);
        way.charged -= way.owed;
        way.owed = 0;
    }
    while frame.head.len() + packet::CONTROL_MAX <= way.capabilities.frame_max {
        match way.control.pop_front() {
            Some(Control::Clear { op, receiver, wanted }) => {
                packet::emit_clear(&mut frame.head, op, receiver, wanted);
            }
            Some(Control::Finish { op }) => packet::emit_finish(&mut frame.head, op),
            None => break,
        }
    }
}

/// Moves sends from the window into the frame, until it is full or ends in a body.
#[inline]
pub(crate) fn emit_window(
    way: &mut Gate,
    ops: &mut Ops,
    frame: &mut Frame,
    counters: &mut Counters,
) {
    let Capabilities { frame_max, inline_max, eager_max, .. } = way.capabilities;
    while let Some(&id) = way.window.front() {
        let Some(Op { region, state: OpState::Send(send), .. }) = ops.find_mut(id) else {
            way.window.pop_front();
            continue;
        };
        let len = region.len();
        let room = frame_max.saturating_sub(frame.head.len());
        let affordable = charge(len) <= way.credit;
        let short = len <= eager_max.min(frame_max.saturating_sub(packet::EAGER_LEN));
        let eager = short && affordable;
        let needed = if eager { packet::EAGER_LEN + len } else { packet::REQUEST_LEN };
        if needed > room {
            break;
        }
        way.window.pop_front();
        let Envelope { context, source, tag } = send.envelope;
        let header = Header { context, source, tag, sequence: way.sequence_out };
        way.sequence_out = way.sequence_out.wrapping_add(1);
        if !eager {
            counters.rendezvous += 1;
            counters.out_of_credit += u64::from(short);
            let ahead = ahead_len(len, way);
            let approach = if ahead > 0 {
                way.credit -= charge(ahead);
                send.sequence = header.sequence;
                send.ahead = ahead as u64;
                send.end = send.ahead;
                send.awaiting |= ahead < len;
                way.streams.push_back(id);
                Way::Ahead { bytes: ahead as u64, clear: send.awaiting }
            } else {
                send.to_emit = false;
                send.awaiting = true;
                let span = region.as_span().filter(|_| way.capabilities.pull && !way.pull_refused);
                span.map_or(Way::Ask, |span| Way::Fetch(span.address as u64))
            };
            send.offered = true;
            packet::emit_request(&mut frame.head, &header, id.index, len as u64, approach);
            ops.offers += 1;
            continue;
        }
        counters.eager += 1;
        way.credit -= charge(len);
        send.to_emit = false;
        let acknowledge = send.awaiting.then_some(id.index);
        packet::emit_eager(&mut frame.head, &header, acknowledge, len as u32);
        if len <= inline_max {
            region.append_to(&mut frame.head);
            ops.complete_send_if_done(id.index);
        } else {
            send.held += 1;
            frame.body = Some(Body { region: region.clone() });
            frame.token = Some(token(id));
            break;
        }
    }
}

/// Ends the frame with the next piece of the message whose turn it is.
pub(crate) fn emit_stream(way: &mut Gate, ops: &mut Ops, frame: &mut Frame) {
    while let Some(id) = way.streams.pop_front() {
        let Some(Op { region, state: OpState::Send(send), .. }) = ops.find_mut(id) else {
            continue;
        };
        let room = way.capabilities.frame_max.saturating_sub(frame.head.len() + packet::DATA_LEN);
        let piece = piece_len(region.len(), room, way.capabilities.piece_min);
        let is_ahead = send.next < send.ahead;
        let until = if is_ahead { send.ahead } else { send.end };
        let len = (until - send.next).min(piece as u64);
        if len == 0 {
            way.streams.push_front(id);
            return;
        }
        if is_ahead {
            packet::emit_ahead(&mut frame.head, send.sequence, send.next, len as u32);
        } else {
            packet::emit_data(&mut frame.head, send.receiver, send.next, len as u32);
        }
        frame.body = Some(Body { region: region.slice(send.next as usize, len as usize) });
        frame.token = Some(token(id));
        send.next += len;
        send.held += 1;
        if send.next == send.end {
            send.to_emit = false;
        } else {
            way.streams.push_back(id);
        }
        return;
    }
}

/// How much of a message of `len` bytes goes with its request: all or a good part, as credits allow.
fn ahead_len(len: usize, way: &Gate) -> usize {
    let Capabilities { ahead_max, eager_max, .. } = way.capabilities;
    let ahead = len.min(ahead_max).min(way.credit.saturating_sub(charge(0)));
    if ahead == len || ahead > eager_max { ahead } else { 0 }
}

/// How much of a message of `bytes` goes into a frame with `room`: a share, so that the receiver
/// copies while the sender still does, and whole pages, so that both copies stay aligned.
fn piece_len(bytes: usize, room: usize, piece_min: usize) -> usize {
    let len = room.min(piece_min.max(bytes / PIECES));
    if len < PAGE_LEN { len } else { len - len % PAGE_LEN }
}

/// Messages gathered for one frame, in bytes: some hundred short ones, so that the receiver takes in one
/// frame while the next is filled.
pub(crate) const GATHERED_MAX: usize = 16 << 10;

/// A long message travels in at least so many pieces.
const PIECES: usize = 16;

const PAGE_LEN: usize = 4096;

fn token(id: OpId) -> FrameToken {
    FrameToken(u64::from(id.generation) << 32 | u64::from(id.index))
}
