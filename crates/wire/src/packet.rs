//! Packets between the engines of two ranks.
//!
//! All numbers are little-endian. A packet begins with its kind; a payload follows its header
//! directly. `sequence` counts the sequenced packets of a peer: `Eager`, `Rts` and `Call`.

use std::num::NonZeroU64;

use crate::addressed::{self, Addressed};
use crate::bytes::{FrameError, take, take_payload, u32_at, u64_at};

/// Fields by which the receiver matches a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Communicator, and a bit that marks collectives.
    pub context: u64,
    /// Sender's rank in the communicator.
    pub source: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Position among the messages from this peer, wrapping.
    pub sequence: u32,
}

/// A packet; its payload is borrowed from its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A whole message.
    Eager {
        /// Matching fields.
        header: Header,
        /// Sender's operation, if it waits to hear that the message was matched.
        acknowledge: Option<u32>,
        /// Data of the message.
        payload: &'a [u8],
    },
    /// Ready to send (RTS) of a rendezvous: for a long message, or a short one without credit.
    Rts {
        /// Matching fields.
        header: Header,
        /// Sender's operation.
        op: u32,
        /// Length of the message in bytes.
        bytes: u64,
        /// Transfer methods that the sender offers.
        rndv: RndvKind,
    },
    /// A piece from the beginning of a message, sent after the RTS before the CTS, or after a
    /// `Grant`.
    RtsData {
        /// Position of the message among those of this peer, as in its RTS.
        sequence: u32,
        /// Offset of the piece in the message, in bytes.
        offset: u64,
        /// Data of the piece.
        payload: &'a [u8],
    },
    /// Clear to send (CTS): the receiver asks for the data of an RTS.
    Cts {
        /// Sender's operation.
        op: u32,
        /// Receiver's operation.
        receiver: u32,
        /// Number of bytes wanted, from the beginning of the message.
        wanted: u64,
    },
    /// The receiver accepts a short message before a receive matches it, and has granted the
    /// credit. The sender answers with `RtsData` of the whole message.
    Grant {
        /// Sender's operation.
        op: u32,
    },
    /// A piece of a message, after a CTS.
    Data {
        /// Receiver's operation.
        receiver: u32,
        /// Offset of the piece in the message, in bytes.
        offset: u64,
        /// Data of the piece.
        payload: &'a [u8],
    },
    /// Compressed `Data` ([`crate::compress`]).
    CompressedData {
        /// Receiver's operation.
        receiver: u32,
        /// Offset of the piece in the message, in bytes.
        offset: u64,
        /// Uncompressed length in bytes.
        bytes: u32,
        /// Compressed data of the piece.
        payload: &'a [u8],
    },
    /// Compressed `RtsData` ([`crate::compress`]).
    CompressedRtsData {
        /// Position of the message among those of this peer, as in its RTS.
        sequence: u32,
        /// Offset of the piece in the message, in bytes.
        offset: u64,
        /// Uncompressed length in bytes.
        bytes: u32,
        /// Compressed data of the piece.
        payload: &'a [u8],
    },
    /// Finish (FIN): a sender's message was matched, or read completely.
    Fin {
        /// Sender's operation.
        op: u32,
    },
    /// A get, call or flush was not carried out, or a put before the flush was not: the memory is not exposed.
    Refused {
        /// The peer's operation.
        op: u32,
    },
    /// First packet each time a link opens whose frames may be stored until acknowledged.
    Resume {
        /// Sender's name for the link.
        link: Incarnation,
        /// Counted frames received over the link, in all its incarnations, wrapping.
        frames: u32,
        /// True if the sender wants frames stored; one side's wish is enough.
        keeps: bool,
    },
    /// Cumulative acknowledgement of counted frames on this link, at the beginning of a frame. A
    /// frame counts if it holds anything besides acknowledgements.
    Ack {
        /// Frames received over all incarnations of the link, wrapping.
        frames: u32,
        /// True if the sender waits for an acknowledgement of its own frames.
        prompt: bool,
    },
    /// The sender discards further frames of a link until its next `Resume`.
    LinkDown {
        /// Sender's name for the link.
        link: Incarnation,
        /// Counted frames received over the link, in all its incarnations, wrapping.
        frames: u32,
    },
    /// Addressed traffic.
    Addressed(Addressed<'a>),
    /// Credit returned by the receiver: room for more unmatched bytes.
    Credit {
        /// Bytes of credit returned.
        bytes: u32,
    },
}

/// One side's name for a link that may open more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// Rail's number on that side.
    pub rail: u8,
    /// Number of times the link has opened on that side.
    pub epoch: u32,
}

/// Method by which the data of a rendezvous travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RndvKind {
    /// The sender streams it after the CTS.
    Stream,
    /// The receiver may read it at this address of the sender's memory; else as `Stream`.
    Get(u64),
    /// Works as `Get` if there is an address, else as `Stream`. The message is short and its sender waits for memory only:
    /// the receiver may accept it before a receive matches ([`Packet::Grant`]).
    Short(Option<NonZeroU64>),
    /// The first bytes follow the RTS at once, the rest after the CTS. Without `cts` there is no rest.
    WithData {
        /// Bytes from the beginning of the message.
        bytes: u64,
        /// True if the sender waits for a CTS.
        cts: bool,
    },
}

const EAGER: u8 = 0x11;
const EAGER_ACKNOWLEDGED: u8 = 0x12;
const RTS: u8 = 0x13;
const RTS_GET: u8 = 0x14;
const CTS: u8 = 0x15;
const DATA: u8 = 0x16;
const FIN: u8 = 0x17;
const CREDIT: u8 = 0x18;
const RTS_WITH_DATA: u8 = 0x19;
const RTS_ALL_DATA: u8 = 0x1a;
const RTS_DATA: u8 = 0x1b;
const RESUME: u8 = 0x1c;
const ACK_PROMPT: u8 = 0x1d;
const ACK: u8 = 0x1e;
const DATA_COMPRESSED: u8 = 0x1f;
const RTS_DATA_COMPRESSED: u8 = 0x20;
const LINK_DOWN: u8 = 0x21;
const RESUME_KEEPS: u8 = 0x22;
const RTS_SHORT: u8 = 0x23;
const GRANT: u8 = 0x24;
const REFUSED: u8 = 0x2b;

/// Length of an eager packet's header in bytes.
pub const EAGER_LEN: usize = 32;
/// Length of an RTS in bytes.
pub const RTS_LEN: usize = 44;
/// Length of the header of `Data` and `RtsData` in bytes.
pub const DATA_LEN: usize = 20;
/// Length of the header of `CompressedData` and `CompressedRtsData` in bytes.
pub const COMPRESSED_LEN: usize = 24;
/// Length of an `Ack` in bytes.
pub const ACK_LEN: usize = 8;
/// Length of `Resume` and `LinkDown` in bytes.
pub const INCARNATION_LEN: usize = 12;
/// Length of the longest packet without payload, in bytes.
pub const CONTROL_MAX: usize = RTS_LEN;

/// Appends the header of an eager packet whose payload of `len` bytes follows.
#[inline]
pub fn emit_eager(to: &mut Vec<u8>, header: &Header, acknowledge: Option<u32>, len: u32) {
    let mut bytes = [0; EAGER_LEN];
    bytes[0] = if acknowledge.is_some() { EAGER_ACKNOWLEDGED } else { EAGER };
    bytes[4..8].copy_from_slice(&len.to_le_bytes());
    put_header(&mut bytes[8..28], header);
    bytes[28..32].copy_from_slice(&acknowledge.unwrap_or(0).to_le_bytes());
    to.extend_from_slice(&bytes);
}

/// Appends an RTS for `bytes` bytes.
pub fn emit_rts(to: &mut Vec<u8>, header: &Header, op: u32, bytes: u64, rndv: RndvKind) {
    let (kind, detail) = match rndv {
        RndvKind::Stream => (RTS, 0),
        RndvKind::Get(address) => (RTS_GET, address),
        RndvKind::Short(address) => (RTS_SHORT, address.map_or(0, NonZeroU64::get)),
        RndvKind::WithData { bytes, cts: true } => (RTS_WITH_DATA, bytes),
        RndvKind::WithData { bytes, cts: false } => (RTS_ALL_DATA, bytes),
    };
    let mut packet = [0; RTS_LEN];
    packet[0] = kind;
    packet[4..8].copy_from_slice(&op.to_le_bytes());
    put_header(&mut packet[8..28], header);
    packet[28..36].copy_from_slice(&bytes.to_le_bytes());
    packet[36..44].copy_from_slice(&detail.to_le_bytes());
    to.extend_from_slice(&packet);
}

/// Appends the header of a data packet whose payload of `len` bytes follows.
pub fn emit_data(to: &mut Vec<u8>, receiver: u32, offset: u64, len: u32) {
    emit_piece(to, DATA, receiver, offset, len);
}

/// Appends the header of `RtsData` whose payload of `len` bytes follows.
pub fn emit_rts_data(to: &mut Vec<u8>, sequence: u32, offset: u64, len: u32) {
    emit_piece(to, RTS_DATA, sequence, offset, len);
}

fn emit_piece(to: &mut Vec<u8>, kind: u8, of: u32, offset: u64, len: u32) {
    let mut packet = [0; DATA_LEN];
    packet[0] = kind;
    packet[4..8].copy_from_slice(&of.to_le_bytes());
    packet[8..16].copy_from_slice(&offset.to_le_bytes());
    packet[16..20].copy_from_slice(&len.to_le_bytes());
    to.extend_from_slice(&packet);
}

/// Appends the header of `CompressedData` for `bytes` bytes; its compressed payload of `len` bytes
/// follows.
pub fn emit_compressed_data(to: &mut Vec<u8>, receiver: u32, offset: u64, bytes: u32, len: u32) {
    emit_compressed(to, DATA_COMPRESSED, receiver, offset, bytes, len);
}

/// Appends the header of `CompressedRtsData` for `bytes` bytes; its compressed payload of `len`
/// bytes follows.
pub fn emit_compressed_rts_data(
    to: &mut Vec<u8>,
    sequence: u32,
    offset: u64,
    bytes: u32,
    len: u32,
) {
    emit_compressed(to, RTS_DATA_COMPRESSED, sequence, offset, bytes, len);
}

fn emit_compressed(to: &mut Vec<u8>, kind: u8, of: u32, offset: u64, bytes: u32, len: u32) {
    emit_piece(to, kind, of, offset, len);
    to.extend_from_slice(&bytes.to_le_bytes());
}

/// Appends a CTS.
pub fn emit_cts(to: &mut Vec<u8>, op: u32, receiver: u32, wanted: u64) {
    let mut packet = [0; 20];
    packet[0] = CTS;
    packet[4..8].copy_from_slice(&op.to_le_bytes());
    packet[8..12].copy_from_slice(&receiver.to_le_bytes());
    packet[12..20].copy_from_slice(&wanted.to_le_bytes());
    to.extend_from_slice(&packet);
}

/// Appends a `Grant` for a short message.
pub fn emit_grant(to: &mut Vec<u8>, op: u32) {
    to.extend_from_slice(&[GRANT, 0, 0, 0]);
    to.extend_from_slice(&op.to_le_bytes());
}

/// Appends a FIN.
pub fn emit_fin(to: &mut Vec<u8>, op: u32) {
    to.extend_from_slice(&[FIN, 0, 0, 0]);
    to.extend_from_slice(&op.to_le_bytes());
}

/// Appends a `Refused`.
pub fn emit_refused(to: &mut Vec<u8>, op: u32) {
    to.extend_from_slice(&[REFUSED, 0, 0, 0]);
    to.extend_from_slice(&op.to_le_bytes());
}

/// Appends a return of credit.
pub fn emit_credit(to: &mut Vec<u8>, bytes: u32) {
    to.extend_from_slice(&[CREDIT, 0, 0, 0]);
    to.extend_from_slice(&bytes.to_le_bytes());
}

/// Appends an acknowledgement of `frames` counted frames; `prompt` asks for the peer's in return.
#[inline]
pub fn emit_ack(to: &mut Vec<u8>, frames: u32, prompt: bool) {
    let mut packet = [0; ACK_LEN];
    packet[0] = if prompt { ACK_PROMPT } else { ACK };
    packet[4..].copy_from_slice(&frames.to_le_bytes());
    to.extend_from_slice(&packet);
}

/// Sets the prompt flag of a frame that begins with an `Ack`.
pub fn ask_prompt(frame: &mut [u8]) {
    if let Some(kind) = frame.first_mut()
        && *kind == ACK
    {
        *kind = ACK_PROMPT;
    }
}

/// Splits a leading `Ack` off a frame: frames received, prompt flag, and rest. `None` if the frame
/// begins otherwise.
#[inline]
pub fn split_ack(frame: &[u8]) -> Option<(u32, bool, &[u8])> {
    let (word, rest) = frame.split_first_chunk::<ACK_LEN>()?;
    match word[0] {
        ACK => Some((u32_at(word, 4), false, rest)),
        ACK_PROMPT => Some((u32_at(word, 4), true, rest)),
        _ => None,
    }
}

/// Parses a frame that consists of one `Resume`; `None` for any other.
pub fn parse_resume(frame: &[u8]) -> Option<(Incarnation, u32, bool)> {
    let word: &[u8; INCARNATION_LEN] = frame.try_into().ok()?;
    let keeps = match word[0] {
        RESUME => false,
        RESUME_KEEPS => true,
        _ => return None,
    };
    Some((Incarnation { rail: word[1], epoch: u32_at(word, 4) }, u32_at(word, 8), keeps))
}

/// Appends a `Resume`, the first packet over a link.
pub fn emit_resume(to: &mut Vec<u8>, link: Incarnation, frames: u32, keeps: bool) {
    emit_incarnation(to, if keeps { RESUME_KEEPS } else { RESUME }, link, frames);
}

/// Appends a `LinkDown`.
pub fn emit_link_down(to: &mut Vec<u8>, link: Incarnation, frames: u32) {
    emit_incarnation(to, LINK_DOWN, link, frames);
}

fn emit_incarnation(to: &mut Vec<u8>, kind: u8, link: Incarnation, frames: u32) {
    let mut packet = [0; INCARNATION_LEN];
    (packet[0], packet[1]) = (kind, link.rail);
    packet[4..8].copy_from_slice(&link.epoch.to_le_bytes());
    packet[8..12].copy_from_slice(&frames.to_le_bytes());
    to.extend_from_slice(&packet);
}

/// Removes the first packet from `frame`; `None` at its end.
///
/// # Errors
/// If the bytes are no packet of this protocol.
#[inline]
pub fn parse<'a>(frame: &mut &'a [u8]) -> Result<Option<Packet<'a>>, FrameError> {
    let Some(&kind) = frame.first() else { return Ok(None) };
    let packet = match kind {
        EAGER | EAGER_ACKNOWLEDGED => {
            let bytes = take::<EAGER_LEN>(frame)?;
            let payload = take_payload(frame, u32_at(bytes, 4) as usize)?;
            let acknowledge = (kind == EAGER_ACKNOWLEDGED).then(|| u32_at(bytes, 28));
            Packet::Eager { header: header_at(bytes, 8), acknowledge, payload }
        }
        RTS | RTS_GET | RTS_SHORT | RTS_WITH_DATA | RTS_ALL_DATA => {
            let packet = take::<RTS_LEN>(frame)?;
            let detail = u64_at(packet, 36);
            let rndv = match kind {
                RTS => RndvKind::Stream,
                RTS_GET => RndvKind::Get(detail),
                RTS_SHORT => RndvKind::Short(NonZeroU64::new(detail)),
                _ => RndvKind::WithData { bytes: detail, cts: kind == RTS_WITH_DATA },
            };
            let (header, op) = (header_at(packet, 8), u32_at(packet, 4));
            Packet::Rts { header, op, bytes: u64_at(packet, 28), rndv }
        }
        CTS => {
            let bytes = take::<20>(frame)?;
            let (op, receiver) = (u32_at(bytes, 4), u32_at(bytes, 8));
            Packet::Cts { op, receiver, wanted: u64_at(bytes, 12) }
        }
        DATA | RTS_DATA => {
            let bytes = take::<DATA_LEN>(frame)?;
            let payload = take_payload(frame, u32_at(bytes, 16) as usize)?;
            let (of, offset) = (u32_at(bytes, 4), u64_at(bytes, 8));
            match kind {
                DATA => Packet::Data { receiver: of, offset, payload },
                _ => Packet::RtsData { sequence: of, offset, payload },
            }
        }
        DATA_COMPRESSED | RTS_DATA_COMPRESSED => {
            let packet = take::<COMPRESSED_LEN>(frame)?;
            let payload = take_payload(frame, u32_at(packet, 16) as usize)?;
            let (of, offset, bytes) = (u32_at(packet, 4), u64_at(packet, 8), u32_at(packet, 20));
            match kind {
                DATA_COMPRESSED => Packet::CompressedData { receiver: of, offset, bytes, payload },
                _ => Packet::CompressedRtsData { sequence: of, offset, bytes, payload },
            }
        }
        GRANT => Packet::Grant { op: u32_at(take::<8>(frame)?, 4) },
        FIN => Packet::Fin { op: u32_at(take::<8>(frame)?, 4) },
        REFUSED => Packet::Refused { op: u32_at(take::<8>(frame)?, 4) },
        CREDIT => Packet::Credit { bytes: u32_at(take::<8>(frame)?, 4) },
        ACK | ACK_PROMPT => {
            let frames = u32_at(take::<ACK_LEN>(frame)?, 4);
            Packet::Ack { frames, prompt: kind == ACK_PROMPT }
        }
        RESUME | RESUME_KEEPS | LINK_DOWN => {
            let word = take::<INCARNATION_LEN>(frame)?;
            let link = Incarnation { rail: word[1], epoch: u32_at(word, 4) };
            let frames = u32_at(word, 8);
            match kind {
                LINK_DOWN => Packet::LinkDown { link, frames },
                _ => Packet::Resume { link, frames, keeps: kind == RESUME_KEEPS },
            }
        }
        addressed::PUT..=addressed::CALL_DATA => Packet::Addressed(addressed::parse(frame, kind)?),
        kind => return Err(FrameError::Kind { kind }),
    };
    Ok(Some(packet))
}

/// Returns the names of the packets in the head of a frame. The payload of the last one may be in the frame's body.
pub fn names(mut head: &[u8]) -> impl Iterator<Item = &'static str> {
    std::iter::from_fn(move || {
        let name = name(*head.first()?);
        if parse(&mut head).is_err() {
            head = &[];
        }
        Some(name)
    })
}

fn name(kind: u8) -> &'static str {
    match kind {
        EAGER | EAGER_ACKNOWLEDGED => "eager",
        RTS | RTS_GET | RTS_SHORT | RTS_WITH_DATA | RTS_ALL_DATA => "RTS",
        CTS => "CTS",
        DATA => "data",
        RTS_DATA => "RTS data",
        DATA_COMPRESSED => "compressed data",
        RTS_DATA_COMPRESSED => "compressed RTS data",
        GRANT => "grant",
        FIN => "fin",
        REFUSED => "refused",
        CREDIT => "credit",
        ACK | ACK_PROMPT => "ACK",
        RESUME | RESUME_KEEPS => "resume",
        LINK_DOWN => "link down",
        addressed::PUT => "put",
        addressed::GET => "get",
        addressed::FLUSH => "flush",
        addressed::CALL..=addressed::CALL_DATA => "call",
        _ => "unknown",
    }
}

/// Parses the beginning of a frame of `len` bytes that consists of one `Eager` or `Data` packet.
/// The payload is what has arrived of it. `None` for any other frame.
pub fn parse_beginning(beginning: &[u8], len: usize) -> Option<Packet<'_>> {
    let &kind = beginning.first()?;
    match kind {
        EAGER | EAGER_ACKNOWLEDGED => {
            let (bytes, payload) = beginning.split_first_chunk::<EAGER_LEN>()?;
            let acknowledge = (kind == EAGER_ACKNOWLEDGED).then(|| u32_at(bytes, 28));
            let is_alone = len == EAGER_LEN + u32_at(bytes, 4) as usize;
            is_alone.then(|| Packet::Eager { header: header_at(bytes, 8), acknowledge, payload })
        }
        DATA => {
            let (bytes, payload) = beginning.split_first_chunk::<DATA_LEN>()?;
            let (receiver, offset) = (u32_at(bytes, 4), u64_at(bytes, 8));
            let is_alone = len == DATA_LEN + u32_at(bytes, 16) as usize;
            is_alone.then_some(Packet::Data { receiver, offset, payload })
        }
        _ => None,
    }
}

fn put_header(to: &mut [u8], header: &Header) {
    to[0..8].copy_from_slice(&header.context.to_le_bytes());
    to[8..12].copy_from_slice(&header.source.to_le_bytes());
    to[12..16].copy_from_slice(&header.tag.to_le_bytes());
    to[16..20].copy_from_slice(&header.sequence.to_le_bytes());
}

fn header_at<const N: usize>(bytes: &[u8; N], at: usize) -> Header {
    Header {
        context: u64_at(bytes, at),
        source: u32_at(bytes, at + 8),
        tag: u32_at(bytes, at + 12) as i32,
        sequence: u32_at(bytes, at + 16),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn emitted_packets_are_parsed_back() {
        let header = Header { context: 1 << 40, source: 7, tag: -3, sequence: u32::MAX };
        let mut bytes = Vec::new();
        emit_eager(&mut bytes, &header, None, 2);
        bytes.extend([8, 9]);
        emit_eager(&mut bytes, &header, Some(0), 0);
        let kinds = [
            RndvKind::Stream,
            RndvKind::Get(0x7fff_0000_0000),
            RndvKind::Short(None),
            RndvKind::Short(NonZeroU64::new(0x7fff_0000_0000)),
            RndvKind::WithData { bytes: 1 << 20, cts: true },
            RndvKind::WithData { bytes: 1 << 33, cts: false },
        ];
        for rndv in kinds {
            emit_rts(&mut bytes, &header, 5, 1 << 33, rndv);
        }
        emit_cts(&mut bytes, 5, 6, 77);
        emit_grant(&mut bytes, 8);
        emit_fin(&mut bytes, 9);
        emit_refused(&mut bytes, 10);
        emit_credit(&mut bytes, 4096);
        emit_data(&mut bytes, 6, 1 << 32, 1);
        bytes.push(1);
        emit_rts_data(&mut bytes, 7, 3, 2);
        bytes.extend([2, 3]);
        emit_compressed_data(&mut bytes, 6, 1 << 32, 1 << 20, 1);
        bytes.push(4);
        emit_compressed_rts_data(&mut bytes, 7, 3, u32::MAX, 2);
        bytes.extend([5, 6]);
        let link = Incarnation { rail: 3, epoch: u32::MAX };
        emit_ack(&mut bytes, 17, false);
        emit_ack(&mut bytes, u32::MAX, true);
        emit_resume(&mut bytes, link, 1 << 31, false);
        emit_resume(&mut bytes, link, 0, true);
        emit_link_down(&mut bytes, link, 6);
        let expected = [
            Packet::Eager { header, acknowledge: None, payload: &[8, 9] },
            Packet::Eager { header, acknowledge: Some(0), payload: &[] },
            Packet::Rts { header, op: 5, bytes: 1 << 33, rndv: kinds[0] },
            Packet::Rts { header, op: 5, bytes: 1 << 33, rndv: kinds[1] },
            Packet::Rts { header, op: 5, bytes: 1 << 33, rndv: kinds[2] },
            Packet::Rts { header, op: 5, bytes: 1 << 33, rndv: kinds[3] },
            Packet::Rts { header, op: 5, bytes: 1 << 33, rndv: kinds[4] },
            Packet::Rts { header, op: 5, bytes: 1 << 33, rndv: kinds[5] },
            Packet::Cts { op: 5, receiver: 6, wanted: 77 },
            Packet::Grant { op: 8 },
            Packet::Fin { op: 9 },
            Packet::Refused { op: 10 },
            Packet::Credit { bytes: 4096 },
            Packet::Data { receiver: 6, offset: 1 << 32, payload: &[1] },
            Packet::RtsData { sequence: 7, offset: 3, payload: &[2, 3] },
            Packet::CompressedData { receiver: 6, offset: 1 << 32, bytes: 1 << 20, payload: &[4] },
            Packet::CompressedRtsData { sequence: 7, offset: 3, bytes: u32::MAX, payload: &[5, 6] },
            Packet::Ack { frames: 17, prompt: false },
            Packet::Ack { frames: u32::MAX, prompt: true },
            Packet::Resume { link, frames: 1 << 31, keeps: false },
            Packet::Resume { link, frames: 0, keeps: true },
            Packet::LinkDown { link, frames: 6 },
        ];
        let mut rest = &bytes[..];
        for packet in expected {
            assert_eq!(parse(&mut rest).unwrap(), Some(packet));
        }
        assert_eq!(parse(&mut rest).unwrap(), None);
    }

    #[test]
    fn a_resume_is_a_frame_of_its_own() {
        let link = Incarnation { rail: 2, epoch: 7 };
        for keeps in [false, true] {
            let mut bytes = Vec::new();
            emit_resume(&mut bytes, link, 9, keeps);
            assert_eq!(parse_resume(&bytes), Some((link, 9, keeps)));
            assert_eq!(parse_resume(&bytes[1..]), None);
            bytes.push(0);
            assert_eq!(parse_resume(&bytes), None);
        }
        let mut other = Vec::new();
        emit_link_down(&mut other, link, 9);
        assert_eq!(parse_resume(&other), None);
    }

    #[test]
    fn packets_have_names_even_if_the_last_payload_is_elsewhere() {
        let mut head = Vec::new();
        emit_ack(&mut head, 9, true);
        emit_credit(&mut head, 9);
        emit_data(&mut head, 1, 0, 4000);
        assert_eq!(names(&head).collect::<Vec<_>>(), ["ACK", "credit", "data"]);
        assert_eq!(names(&[0xff, 1]).collect::<Vec<_>>(), ["unknown"]);
        assert_eq!(names(&[]).count(), 0);
    }

    #[test]
    fn every_kind_of_packet_has_a_name() {
        for kind in 0..=u8::MAX {
            let is_known = parse(&mut &[kind][..]) != Err(FrameError::Kind { kind });
            assert_eq!(name(kind) != "unknown", is_known, "{kind:#04x}");
        }
    }

    #[test]
    fn a_frame_that_begins_with_an_ack_is_split_behind_it() {
        for prompt in [false, true] {
            let mut bytes = Vec::new();
            emit_ack(&mut bytes, 9, prompt);
            assert_eq!(split_ack(&bytes[..7]), None);
            bytes.push(5);
            assert_eq!(split_ack(&bytes), Some((9, prompt, &[5][..])));
            ask_prompt(&mut bytes);
            assert_eq!(split_ack(&bytes), Some((9, true, &[5][..])));
        }
        let mut other = Vec::new();
        emit_credit(&mut other, 9);
        ask_prompt(&mut other);
        assert_eq!(split_ack(&other), None);
        assert_eq!(parse(&mut &other[..]), Ok(Some(Packet::Credit { bytes: 9 })));
    }

    proptest! {
        #[test]
        fn any_bytes_end_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0x10u8..0x2c) {
            let mut bytes = bytes;
            bytes.insert(0, kind);
            let mut rest = &bytes[..];
            while let Ok(Some(_)) = parse(&mut rest) {}
        }
    }
}
