//! Packet encoding: every packet round-trips, and every damage is reported.

use std::num::NonZeroU64;

use proptest::prelude::*;
use wire::FrameError;
use wire::packet::{self, Header, Incarnation, Packet, RndvKind};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..<_>::default() })]

    #[test]
    fn frames_of_packets_come_back(frame in prop::collection::vec(owned(), 0..20)) {
        let bytes = emit_all(&frame);
        let mut rest = &bytes[..];
        for packet in &frame {
            prop_assert_eq!(packet::parse(&mut rest), Ok(Some(packet.borrowed())));
        }
        prop_assert_eq!(packet::parse(&mut rest), Ok(None));
    }

    #[test]
    fn a_cut_packet_reports_the_missing_bytes(packet in owned(), cut in any::<prop::sample::Index>()) {
        let bytes = emit_all(std::slice::from_ref(&packet));
        let len = 1 + cut.index(bytes.len());
        let parsed = packet::parse(&mut &bytes[..len]);
        if len == bytes.len() {
            prop_assert!(matches!(parsed, Ok(Some(_))));
        } else {
            let header = bytes.len() - packet.payload_len();
            let whole = if len < header { header } else { bytes.len() };
            prop_assert_eq!(parsed, Err(FrameError::Short { missing: whole - len }));
        }
    }

    #[test]
    fn a_damaged_frame_parses_or_fails_within_its_bytes(
        frame in prop::collection::vec(owned(), 1..8),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = emit_all(&frame);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut rest = &bytes[..];
        let mut packets = 0;
        while let Ok(Some(_)) = packet::parse(&mut rest) {
            packets += 1;
        }
        prop_assert!(packets <= bytes.len() / 8, "the shortest packet has 8 bytes");
    }

    #[test]
    fn unknown_kinds_are_named(kind in any::<u8>(), rest in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assume!(!(0x11..=0x2b).contains(&kind));
        let bytes = [&[kind][..], &rest].concat();
        prop_assert_eq!(packet::parse(&mut &bytes[..]), Err(FrameError::Kind { kind }));
    }
}

#[test]
fn lengths_match_the_constants() {
    let header = Header { context: 1, source: 2, tag: 3, sequence: 4 };
    let lengths = |emit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        emit(&mut bytes);
        bytes.len()
    };
    let eager = lengths(&|to| packet::emit_eager(to, &header, Some(1), 0));
    let data = lengths(&|to| packet::emit_data(to, 1, 2, 0));
    let rts_data = lengths(&|to| packet::emit_rts_data(to, 1, 2, 0));
    let compressed = [
        lengths(&|to| packet::emit_compressed_data(to, 1, 2, 3, 0)),
        lengths(&|to| packet::emit_compressed_rts_data(to, 1, 2, 3, 0)),
    ];
    assert_eq!(compressed, [packet::COMPRESSED_LEN; 2]);
    assert_eq!((eager, data, rts_data), (packet::EAGER_LEN, packet::DATA_LEN, packet::DATA_LEN));
    let controls = [
        lengths(&|to| packet::emit_rts(to, &header, 1, 2, RndvKind::Get(3))),
        lengths(&|to| packet::emit_cts(to, 1, 2, 3)),
        lengths(&|to| packet::emit_fin(to, 1)),
        lengths(&|to| packet::emit_grant(to, 1)),
        lengths(&|to| packet::emit_credit(to, 1)),
        lengths(&|to| packet::emit_ack(to, 1, true)),
        lengths(&|to| packet::emit_resume(to, LINK, 1, true)),
        lengths(&|to| packet::emit_link_down(to, LINK, 1)),
    ];
    assert_eq!(controls[5], packet::ACK_LEN);
    assert_eq!(controls[6..], [packet::INCARNATION_LEN; 2]);
    assert_eq!(controls[0], packet::RTS_LEN);
    assert_eq!(controls.iter().max(), Some(&packet::CONTROL_MAX));
}

#[test]
fn a_payload_of_maximal_length_is_missing() {
    let header = Header { context: 0, source: 0, tag: 0, sequence: 0 };
    let mut bytes = Vec::new();
    packet::emit_eager(&mut bytes, &header, None, u32::MAX);
    let missing = u32::MAX as usize;
    assert_eq!(packet::parse(&mut &bytes[..]), Err(FrameError::Short { missing }));
}

const LINK: Incarnation = Incarnation { rail: 1, epoch: 2 };

/// A packet with its payload.
#[derive(Clone, Debug)]
enum Owned {
    Eager(Header, Option<u32>, Vec<u8>),
    Request(Header, u32, u64, RndvKind),
    Clear(u32, u32, u64),
    Take(u32),
    Data(u32, u64, Vec<u8>),
    Ahead(u32, u64, Vec<u8>),
    PackedData(u32, u64, u32, Vec<u8>),
    PackedAhead(u32, u64, u32, Vec<u8>),
    Finish(u32),
    Credit(u32),
    Arrived(u32, bool),
    Resume(Incarnation, u32, bool),
    LinkDown(Incarnation, u32),
}

fn owned() -> impl Strategy<Value = Owned> {
    let header = any::<(u64, u32, i32, u32)>()
        .prop_map(|(context, source, tag, sequence)| Header { context, source, tag, sequence });
    let payload = || prop::collection::vec(any::<u8>(), 0..50);
    prop_oneof![
        (header.clone(), any::<Option<u32>>(), payload())
            .prop_map(|(header, acknowledge, data)| Owned::Eager(header, acknowledge, data)),
        (header, any::<u32>(), any::<u64>(), rndv())
            .prop_map(|(header, op, bytes, rndv)| Owned::Request(header, op, bytes, rndv)),
        any::<(u32, u32, u64)>()
            .prop_map(|(op, receiver, wanted)| Owned::Clear(op, receiver, wanted)),
        (any::<u32>(), any::<u64>(), payload())
            .prop_map(|(receiver, offset, data)| Owned::Data(receiver, offset, data)),
        (any::<u32>(), any::<u64>(), payload())
            .prop_map(|(sequence, offset, data)| Owned::Ahead(sequence, offset, data)),
        (any::<(u32, u64, u32)>(), payload())
            .prop_map(|((to, offset, bytes), data)| Owned::PackedData(to, offset, bytes, data)),
        (any::<(u32, u64, u32)>(), payload())
            .prop_map(|((of, offset, bytes), data)| Owned::PackedAhead(of, offset, bytes, data)),
        any::<u32>().prop_map(Owned::Take),
        any::<u32>().prop_map(Owned::Finish),
        any::<u32>().prop_map(Owned::Credit),
        any::<(u32, bool)>().prop_map(|(frames, prompt)| Owned::Arrived(frames, prompt)),
        (link(), any::<(u32, bool)>())
            .prop_map(|(link, (frames, keeps))| Owned::Resume(link, frames, keeps)),
        (link(), any::<u32>()).prop_map(|(link, frames)| Owned::LinkDown(link, frames)),
    ]
}

fn link() -> impl Strategy<Value = Incarnation> {
    any::<(u8, u32)>().prop_map(|(rail, epoch)| Incarnation { rail, epoch })
}

fn rndv() -> impl Strategy<Value = RndvKind> {
    prop_oneof![
        Just(RndvKind::Stream),
        any::<u64>().prop_map(RndvKind::Get),
        any::<u64>().prop_map(|address| RndvKind::Short(NonZeroU64::new(address))),
        Just(RndvKind::Short(None)),
        any::<(u64, bool)>().prop_map(|(bytes, cts)| RndvKind::WithData { bytes, cts }),
    ]
}

impl Owned {
    fn borrowed(&self) -> Packet<'_> {
        match self {
            Self::Eager(header, acknowledge, payload) => {
                Packet::Eager { header: *header, acknowledge: *acknowledge, payload }
            }
            Self::Request(header, op, bytes, rndv) => {
                Packet::Rts { header: *header, op: *op, bytes: *bytes, rndv: *rndv }
            }
            Self::Clear(op, receiver, wanted) => {
                Packet::Cts { op: *op, receiver: *receiver, wanted: *wanted }
            }
            Self::Data(receiver, offset, payload) => {
                Packet::Data { receiver: *receiver, offset: *offset, payload }
            }
            Self::Ahead(sequence, offset, payload) => {
                Packet::RtsData { sequence: *sequence, offset: *offset, payload }
            }
            Self::PackedData(receiver, offset, bytes, payload) => {
                let (receiver, offset, bytes) = (*receiver, *offset, *bytes);
                Packet::CompressedData { receiver, offset, bytes, payload }
            }
            Self::PackedAhead(sequence, offset, bytes, payload) => {
                let (sequence, offset, bytes) = (*sequence, *offset, *bytes);
                Packet::CompressedRtsData { sequence, offset, bytes, payload }
            }
            Self::Take(op) => Packet::Grant { op: *op },
            Self::Finish(op) => Packet::Fin { op: *op },
            Self::Credit(bytes) => Packet::Credit { bytes: *bytes },
            Self::Arrived(frames, prompt) => Packet::Ack { frames: *frames, prompt: *prompt },
            Self::Resume(link, frames, keeps) => {
                Packet::Resume { link: *link, frames: *frames, keeps: *keeps }
            }
            Self::LinkDown(link, frames) => Packet::LinkDown { link: *link, frames: *frames },
        }
    }

    fn payload_len(&self) -> usize {
        match self {
            Self::Eager(_, _, payload)
            | Self::Data(_, _, payload)
            | Self::Ahead(_, _, payload)
            | Self::PackedData(_, _, _, payload)
            | Self::PackedAhead(_, _, _, payload) => payload.len(),
            Self::Request(..)
            | Self::Clear(..)
            | Self::Take(_)
            | Self::Finish(_)
            | Self::Credit(_)
            | Self::Arrived(..)
            | Self::Resume(..)
            | Self::LinkDown(..) => 0,
        }
    }
}

fn emit_all(frame: &[Owned]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in frame {
        match packet {
            Owned::Eager(header, acknowledge, payload) => {
                packet::emit_eager(&mut bytes, header, *acknowledge, payload.len() as u32);
                bytes.extend(payload);
            }
            Owned::Request(header, op, len, rndv) => {
                packet::emit_rts(&mut bytes, header, *op, *len, *rndv);
            }
            Owned::Clear(op, receiver, wanted) => {
                packet::emit_cts(&mut bytes, *op, *receiver, *wanted);
            }
            Owned::Data(receiver, offset, payload) => {
                packet::emit_data(&mut bytes, *receiver, *offset, payload.len() as u32);
                bytes.extend(payload);
            }
            Owned::Ahead(sequence, offset, payload) => {
                packet::emit_rts_data(&mut bytes, *sequence, *offset, payload.len() as u32);
                bytes.extend(payload);
            }
            Owned::PackedData(receiver, offset, len, payload) => {
                let compressed = payload.len() as u32;
                packet::emit_compressed_data(&mut bytes, *receiver, *offset, *len, compressed);
                bytes.extend(payload);
            }
            Owned::PackedAhead(sequence, offset, len, payload) => {
                let compressed = payload.len() as u32;
                packet::emit_compressed_rts_data(&mut bytes, *sequence, *offset, *len, compressed);
                bytes.extend(payload);
            }
            Owned::Take(op) => packet::emit_grant(&mut bytes, *op),
            Owned::Finish(op) => packet::emit_fin(&mut bytes, *op),
            Owned::Credit(credit) => packet::emit_credit(&mut bytes, *credit),
            Owned::Arrived(frames, prompt) => packet::emit_ack(&mut bytes, *frames, *prompt),
            Owned::Resume(link, frames, keeps) => {
                packet::emit_resume(&mut bytes, *link, *frames, *keeps);
            }
            Owned::LinkDown(link, frames) => packet::emit_link_down(&mut bytes, *link, *frames),
        }
    }
    bytes
}
