//! Packets of addressed traffic: memory that a peer has exposed is written and read, and handlers of a peer are called.
//!
//! A put or a call belongs to an *epoch* of its sender. A flush names an epoch and the bytes that were sent in it, so
//! that the receiver knows when all have been applied, whatever rails they took.

use crate::bytes::{FrameError, take, take_payload, u32_at, u64_at};

/// Key of memory that a process has exposed to its peers. Stale keys are recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteKey {
    /// Index in the table of the process.
    pub index: u32,
    /// Number of exposures at this index before.
    pub generation: u32,
}

/// Answer that a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None.
    None,
    /// A `Fin` to this operation of the caller.
    Fin(u32),
    /// The bytes of the handler's reply as `Data` for this operation of the caller.
    Data(u32),
}

/// Fields of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader {
    /// Number of the handler.
    pub handler: u16,
    /// Epoch of the sender.
    pub epoch: u16,
    /// Position among the sequenced packets from this peer, wrapping.
    pub sequence: u32,
    /// Answer asked for.
    pub answer: Answer,
    /// Arguments of the handler.
    pub arguments: [u64; 3],
}

/// A packet of addressed traffic; its payload is borrowed from its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressed<'a> {
    /// Bytes for memory that the receiver has exposed.
    Put {
        /// Key of the memory.
        key: RemoteKey,
        /// Epoch of the sender.
        epoch: u16,
        /// Offset of the first byte in the memory.
        offset: u64,
        /// Bytes to write.
        payload: &'a [u8],
    },
    /// Asks for bytes of memory that the receiver has exposed; they are sent as `Data`.
    Get {
        /// Key of the memory.
        key: RemoteKey,
        /// Offset of the first byte in the memory.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// Operation of the sender that receives them.
        op: u32,
    },
    /// Asks for a `Fin` once all puts and calls of an epoch have been applied.
    Flush {
        /// Operation of the sender.
        op: u32,
        /// Epoch of the sender.
        epoch: u16,
        /// Bytes sent in it.
        bytes: u64,
    },
    /// Calls a handler of the receiver.
    Call {
        /// Fields of the call.
        call: CallHeader,
        /// Payload of the call.
        payload: &'a [u8],
    },
}

pub(crate) const PUT: u8 = 0x25;
pub(crate) const GET: u8 = 0x26;
pub(crate) const FLUSH: u8 = 0x27;
pub(crate) const CALL: u8 = 0x28;
const CALL_FIN: u8 = 0x29;
pub(crate) const CALL_DATA: u8 = 0x2a;

/// Length of the header of a put in bytes.
pub const PUT_LEN: usize = 24;
/// Length of a get in bytes.
pub const GET_LEN: usize = 32;
/// Length of a flush in bytes.
pub const FLUSH_LEN: usize = 16;
/// Length of the header of a call in bytes.
pub const CALL_LEN: usize = 44;

/// Appends the header of a put whose payload of `len` bytes follows.
#[inline]
pub fn emit_put(to: &mut Vec<u8>, key: RemoteKey, epoch: u16, offset: u64, len: u32) {
    let mut packet = [0; PUT_LEN];
    packet[0] = PUT;
    packet[2..4].copy_from_slice(&epoch.to_le_bytes());
    put_key(&mut packet, 4, key);
    packet[12..16].copy_from_slice(&len.to_le_bytes());
    packet[16..24].copy_from_slice(&offset.to_le_bytes());
    to.extend_from_slice(&packet);
}

/// Appends a get of `bytes` bytes, which are sent as `Data` for `op`.
pub fn emit_get(to: &mut Vec<u8>, key: RemoteKey, offset: u64, bytes: u64, op: u32) {
    let mut packet = [0; GET_LEN];
    packet[0] = GET;
    put_key(&mut packet, 4, key);
    packet[12..16].copy_from_slice(&op.to_le_bytes());
    packet[16..24].copy_from_slice(&offset.to_le_bytes());
    packet[24..32].copy_from_slice(&bytes.to_le_bytes());
    to.extend_from_slice(&packet);
}

/// Appends a flush of an epoch in which `bytes` bytes were sent; `op` is answered by a `Fin`.
pub fn emit_flush(to: &mut Vec<u8>, op: u32, epoch: u16, bytes: u64) {
    let mut packet = [0; FLUSH_LEN];
    packet[0] = FLUSH;
    packet[2..4].copy_from_slice(&epoch.to_le_bytes());
    packet[4..8].copy_from_slice(&op.to_le_bytes());
    packet[8..16].copy_from_slice(&bytes.to_le_bytes());
    to.extend_from_slice(&packet);
}

/// Appends the header of a call whose payload of `len` bytes follows.
#[inline]
pub fn emit_call(to: &mut Vec<u8>, call: &CallHeader, len: u32) {
    let mut packet = [0; CALL_LEN];
    let (kind, op) = match call.answer {
        Answer::None => (CALL, 0),
        Answer::Fin(op) => (CALL_FIN, op),
        Answer::Data(op) => (CALL_DATA, op),
    };
    packet[0] = kind;
    packet[2..4].copy_from_slice(&call.handler.to_le_bytes());
    packet[4..6].copy_from_slice(&call.epoch.to_le_bytes());
    packet[8..12].copy_from_slice(&call.sequence.to_le_bytes());
    packet[12..16].copy_from_slice(&op.to_le_bytes());
    packet[16..20].copy_from_slice(&len.to_le_bytes());
    for (at, argument) in (20..).step_by(8).zip(call.arguments) {
        packet[at..at + 8].copy_from_slice(&argument.to_le_bytes());
    }
    to.extend_from_slice(&packet);
}

/// Removes a packet of addressed traffic from `frame`; `kind` is its first byte.
#[inline(never)]
pub(crate) fn parse<'a>(frame: &mut &'a [u8], kind: u8) -> Result<Addressed<'a>, FrameError> {
    match kind {
        PUT => {
            let bytes = take::<PUT_LEN>(frame)?;
            let payload = take_payload(frame, u32_at(bytes, 12) as usize)?;
            let (key, epoch) = (key_at(bytes, 4), u16_at(bytes, 2));
            Ok(Addressed::Put { key, epoch, offset: u64_at(bytes, 16), payload })
        }
        GET => {
            let bytes = take::<GET_LEN>(frame)?;
            let (key, op) = (key_at(bytes, 4), u32_at(bytes, 12));
            Ok(Addressed::Get { key, offset: u64_at(bytes, 16), bytes: u64_at(bytes, 24), op })
        }
        FLUSH => {
            let packet = take::<FLUSH_LEN>(frame)?;
            let (op, epoch) = (u32_at(packet, 4), u16_at(packet, 2));
            Ok(Addressed::Flush { op, epoch, bytes: u64_at(packet, 8) })
        }
        _ => {
            let bytes = take::<CALL_LEN>(frame)?;
            let payload = take_payload(frame, u32_at(bytes, 16) as usize)?;
            let answer = match (kind, u32_at(bytes, 12)) {
                (CALL_FIN, op) => Answer::Fin(op),
                (CALL_DATA, op) => Answer::Data(op),
                _ => Answer::None,
            };
            let call = CallHeader {
                handler: u16_at(bytes, 2),
                epoch: u16_at(bytes, 4),
                sequence: u32_at(bytes, 8),
                answer,
                arguments: [20, 28, 36].map(|at| u64_at(bytes, at)),
            };
            Ok(Addressed::Call { call, payload })
        }
    }
}

fn put_key(to: &mut [u8], at: usize, key: RemoteKey) {
    to[at..at + 4].copy_from_slice(&key.index.to_le_bytes());
    to[at + 4..at + 8].copy_from_slice(&key.generation.to_le_bytes());
}

fn key_at<const N: usize>(bytes: &[u8; N], at: usize) -> RemoteKey {
    RemoteKey { index: u32_at(bytes, at), generation: u32_at(bytes, at + 4) }
}

fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{self, Packet};

    #[test]
    fn emitted_packets_are_parsed_back_and_none_is_parsed_from_a_part() {
        let key = RemoteKey { index: 3, generation: u32::MAX };
        let calls =
            [Answer::None, Answer::Fin(7), Answer::Data(u32::MAX)].map(|answer| CallHeader {
                handler: 9,
                epoch: u16::MAX,
                sequence: 1 << 31,
                answer,
                arguments: [1, u64::MAX, 3],
            });
        let mut packets = vec![
            Addressed::Put { key, epoch: 2, offset: 1 << 40, payload: &[1, 2, 3] },
            Addressed::Get { key, offset: 5, bytes: 1 << 33, op: 6 },
            Addressed::Flush { op: 7, epoch: 8, bytes: u64::MAX },
        ];
        packets.extend(calls.map(|call| Addressed::Call { call, payload: &[4] }));
        for packet in packets {
            let mut bytes = Vec::new();
            match packet {
                Addressed::Put { key, epoch, offset, payload } => {
                    emit_put(&mut bytes, key, epoch, offset, payload.len() as u32);
                    bytes.extend(payload);
                }
                Addressed::Get { key, offset, bytes: len, op } => {
                    emit_get(&mut bytes, key, offset, len, op);
                }
                Addressed::Flush { op, epoch, bytes: sent } => {
                    emit_flush(&mut bytes, op, epoch, sent)
                }
                Addressed::Call { call, payload } => {
                    emit_call(&mut bytes, &call, payload.len() as u32);
                    bytes.extend(payload);
                }
            }
            let mut rest = &bytes[..];
            assert_eq!(packet::parse(&mut rest), Ok(Some(Packet::Addressed(packet))));
            assert!(rest.is_empty());
            for len in 1..bytes.len() {
                let error = packet::parse(&mut &bytes[..len]).expect_err("a part is no packet");
                assert!(matches!(error, FrameError::Short { .. }), "{error}");
            }
        }
    }
}
