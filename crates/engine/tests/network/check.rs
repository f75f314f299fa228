//! Checks of completions.

use engine::{Completion, Outcome, SendMode};
use memory::{Region, Span};
use wire::PeerId;

use super::content::{fill, is_filled};
use super::{Send, Sent, SimulatedNetwork, Tracked, TrackedKind};

impl SimulatedNetwork {
    pub(super) fn check(&mut self, rank: usize, index: usize) {
        let Tracked { region, kind, end, .. } = &self.processes[rank].ops[index];
        let (region, end) = (region.clone(), end.expect("only completed operations are checked"));
        match *kind {
            TrackedKind::Send { message } => self.check_sent(rank, &region, end, message),
            TrackedKind::Receive { found: Some(message), .. } => {
                self.check_received(rank, &region, end, message);
            }
            TrackedKind::Receive { peer, found: None } => self.check_unmatched(rank, peer, end),
            TrackedKind::Addressed(kind) => {
                self.check_addressed(rank, &region, end.outcome, kind);
            }
        }
    }

    fn check_sent(&mut self, rank: usize, region: &Region, end: Completion, message: usize) {
        self.messages[message].complete = true;
        let is_held =
            self.held.iter().any(|(from, _, span)| *from == rank && overlaps(region, *span));
        assert!(!is_held, "a send is complete while a rail holds its memory");
        fill(region, OVERWRITTEN);
        let Sent { send: Send { to, tag, bytes, mode, .. }, matched, dropped, .. } =
            self.messages[message];
        if end.outcome == Outcome::PeerFailed {
            return assert!(self.is_cut(rank, to), "a send fails only with its peer");
        }
        if !self.is_tampered(rank, to) {
            let is_cancelled = end.outcome == Outcome::Cancelled;
            assert_eq!(is_cancelled, dropped, "message {message} is dropped or delivered");
        }
        if end.outcome == Outcome::Cancelled {
            return;
        }
        let outcome = Outcome::Ok;
        let expected = Completion { source: rank as u32, tag, bytes: bytes as u64, outcome };
        assert_eq!(end, expected, "the end of a send");
        if mode == SendMode::Synchronous && !self.is_tampered(rank, to) {
            assert!(matched, "message {message} is complete before it is matched");
        }
    }

    fn check_received(&self, rank: usize, region: &Region, end: Completion, message: usize) {
        let Sent { from, send, .. } = &self.messages[message];
        if end.outcome == Outcome::PeerFailed {
            return assert!(self.is_cut(rank, *from), "a receive fails only with its peer");
        }
        let bytes = send.bytes.min(region.len());
        let message_bytes = send.bytes as u64;
        let outcome = match bytes < send.bytes {
            true => Outcome::Truncated { message_bytes },
            false => Outcome::Ok,
        };
        let expected =
            Completion { source: *from as u32, tag: send.tag, bytes: bytes as u64, outcome };
        assert_eq!(end, expected, "message {message}: {send:?}");
        let content = self.shape(*from, rank).content;
        assert!(content.is_in(message, region, bytes), "message {message} came mangled");
        assert!(is_filled(region, bytes, UNTOUCHED), "written past the message");
    }

    fn check_unmatched(&self, rank: usize, peer: Option<PeerId>, end: Completion) {
        match end.outcome {
            Outcome::Cancelled => {}
            Outcome::PeerFailed => {
                let named = peer.expect("only a receive that names its source fails with it").0;
                assert!(self.is_cut(rank, named as usize), "and not while there is a link");
            }
            Outcome::Ok | Outcome::Truncated { .. } | Outcome::Refused | Outcome::Revoked => {
                let forged = peer.is_some_and(|peer| self.is_tampered(peer.0 as usize, rank));
                assert!(forged, "the model has matched nothing with it: {end:?}");
            }
        }
    }
}

pub fn overlaps(region: &Region, span: Span) -> bool {
    region.as_span().is_some_and(|own| {
        let start = own.address as usize;
        (start..start + own.len).contains(&(span.address as usize))
    })
}

/// Value of memory before data are received into it, and after it was sent from.
pub const UNTOUCHED: u8 = 0xee;
const OVERWRITTEN: u8 = 0xdd;
