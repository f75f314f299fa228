//! Tail duplicates: the latest bytes sent once more on lossy paths.
//!
//! A lost packet is detected within a round trip if others follow it. The last packet of a message has none behind
//! it: QUIC sends a probe after a PTO and retransmits when the acknowledgement shows the loss, which costs 1.5 round
//! trips and more. On a path known to lose packets, the latest stream bytes therefore follow in a datagram once
//! nothing else has left for a moment. The receiver takes the bytes that the stream has not delivered. The
//! acknowledgement of the datagram also reveals earlier losses at once.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

/// Latest bytes sent.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// True if duplicates are wanted; otherwise no bytes are kept.
    is_kept: bool,
    /// Latest bytes written to the stream: at least [`LEN_MAX`], if there were as many.
    bytes: Vec<u8>,
    /// Number of bytes written to the stream.
    end: u64,
    /// Number of kept bytes that no duplicate has carried.
    fresh: usize,
    due: Option<Instant>,
}

impl Tail {
    /// Sets if duplicates are wanted from now on.
    pub fn keep(&mut self, is_kept: bool) {
        if is_kept != self.is_kept {
            *self = Self { is_kept, end: self.end, ..Self::default() };
        }
    }

    /// Records bytes written to the stream.
    pub fn note_written(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        if !self.is_kept {
            return;
        }
        self.fresh = (self.fresh + bytes.len()).min(LEN_MAX);
        let last = &bytes[bytes.len().saturating_sub(LEN_MAX)..];
        if self.bytes.len() + last.len() > 2 * LEN_MAX {
            self.bytes.drain(..self.bytes.len().saturating_sub(LEN_MAX - last.len()));
        }
        self.bytes.extend(last);
    }

    /// Plans a duplicate after the last waiting data has left.
    pub fn plan(&mut self, now: Instant, round_trip: Duration) {
        self.due = Some(now + (round_trip / PATIENCE_SHARE).clamp(PATIENCE_MIN, PATIENCE_MAX));
    }

    /// Returns the time at which the duplicate is to leave.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// True if a duplicate is due, which is then no longer planned.
    pub fn take_due(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Returns the datagram: stream offset and bytes, at most `most` bytes in all. After retransmissions only, it
    /// carries no stream bytes, and is acknowledged all the same.
    pub fn duplicate(&mut self, most: usize) -> Bytes {
        let len = self.fresh.min(most.saturating_sub(HEADER_LEN));
        let mut duplicate = BytesMut::with_capacity(HEADER_LEN + len);
        duplicate.put_u64_le(self.end - len as u64);
        duplicate.put_slice(&self.bytes[self.bytes.len() - len..]);
        self.fresh = 0;
        duplicate.freeze()
    }
}

/// Received part of a stream, from the stream itself and from duplicates.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// Bytes that the stream has delivered.
    brought: u64,
    /// Bytes passed on, from the stream or a duplicate; at least `brought`.
    taken: u64,
    /// Latest duplicate that reaches beyond `taken`, and its stream offset.
    duplicate: Option<(u64, Bytes)>,
}

impl Reassembly {
    /// Accepts bytes of the stream and returns those that were not known.
    pub fn bring(&mut self, bytes: Bytes) -> Bytes {
        let known = (self.taken - self.brought).min(bytes.len() as u64);
        self.brought += bytes.len() as u64;
        self.taken = self.taken.max(self.brought);
        bytes.slice(known as usize..)
    }

    /// Accepts a duplicate; malformed and old ones are dropped.
    pub fn keep(&mut self, duplicate: Bytes) {
        let Some(begin) = duplicate.first_chunk::<HEADER_LEN>() else { return };
        let begin = u64::from_le_bytes(*begin);
        let (bytes, end_of) = (duplicate.slice(HEADER_LEN..), |begin: u64, bytes: &Bytes| {
            begin.saturating_add(bytes.len() as u64)
        });
        let known =
            self.duplicate.as_ref().map_or(self.taken, |(begin, bytes)| end_of(*begin, bytes));
        if end_of(begin, &bytes) > known.max(self.taken) {
            self.duplicate = Some((begin, bytes));
        }
    }

    /// Returns the bytes of the duplicate that come next in the stream, once all stream bytes were passed on.
    pub fn fill(&mut self) -> Option<Bytes> {
        let (begin, bytes) = self.duplicate.take_if(|(begin, _)| *begin <= self.taken)?;
        let known =
            usize::try_from(self.taken - begin).ok().filter(|known| *known < bytes.len())?;
        let bytes = bytes.slice(known..);
        self.taken += bytes.len() as u64;
        Some(bytes)
    }
}

/// True if the loss rate, seen or remembered, justifies duplicates. A duplicate costs a packet and saves 1.5 round
/// trips.
pub(super) fn pays(sent: u64, lost: u64, remembered: Option<f64>) -> bool {
    let is_seen = lost >= LOST_MIN && lost.saturating_mul(LOSSY_SHARE) >= sent;
    is_seen || remembered.is_some_and(|loss| loss * LOSSY_SHARE as f64 >= 1.0)
}

/// Maximum length of a packet.
const LEN_MAX: usize = 1472;
/// Length of the stream offset.
const HEADER_LEN: usize = 8;
/// Divisor of the round trip that a duplicate waits for other data to leave: short compared with the loss detection
/// it replaces.
const PATIENCE_SHARE: u32 = 16;
/// Limits of that wait. Frames posted in a row then share one duplicate.
const PATIENCE_MIN: Duration = Duration::from_micros(200);
const PATIENCE_MAX: Duration = Duration::from_millis(2);
/// Inverse of the loss rate from which on duplicates pay.
const LOSSY_SHARE: u64 = 4096;
/// Minimum number of lost packets: a single one says nothing.
const LOST_MIN: u64 = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept() -> Tail {
        Tail { is_kept: true, ..Tail::default() }
    }

    proptest! {
        /// Any mix of writes, deliveries and duplicates yields exactly the stream.
        #[test]
        fn stream_and_duplicates_yield_the_stream(
            steps in prop::collection::vec((0usize..4000, 0usize..1500, any::<bool>(), 0usize..5000), 1..40),
        ) {
            let (mut tail, mut heard) = (kept(), Reassembly::default());
            let (mut written, mut brought, mut taken) = (Vec::new(), 0, Vec::new());
            for (len, most, is_lost, comes) in steps {
                let more: Vec<u8> = (written.len()..written.len() + len).map(|at| (at * 7 / 3) as u8).collect();
                tail.note_written(&more);
                written.extend(more);
                let duplicate = tail.duplicate(most);
                prop_assert!(duplicate.len() <= most.max(HEADER_LEN));
                if !is_lost {
                    heard.keep(duplicate);
                }
                let comes = comes.min(written.len() - brought);
                let bytes = Bytes::copy_from_slice(&written[brought..brought + comes]);
                brought += comes;
                taken.extend(heard.bring(bytes));
                taken.extend(heard.fill().unwrap_or_default());
                prop_assert_eq!(&taken[..], &written[..taken.len()]);
            }
            let rest = Bytes::copy_from_slice(&written[brought..]);
            taken.extend(heard.bring(rest));
            prop_assert_eq!(taken, written);
            prop_assert!(tail.bytes.len() <= 2 * LEN_MAX);
        }

        #[test]
        fn arbitrary_duplicates_are_dropped_or_taken(
            duplicates in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..20),
        ) {
            let mut heard = Reassembly::default();
            for duplicate in duplicates {
                heard.keep(duplicate.into());
                heard.fill();
            }
        }
    }

    #[test]
    fn the_last_bytes_arrive_by_a_duplicate() {
        let (mut tail, mut heard) = (kept(), Reassembly::default());
        tail.note_written(b"a hello");
        tail.note_written(b", a frame");
        assert_eq!(heard.bring(Bytes::from_static(b"a hello")), b"a hello"[..]);
        heard.keep(tail.duplicate(100));
        assert_eq!(heard.fill().unwrap(), b", a frame"[..]);
        assert_eq!(heard.fill(), None);
        tail.note_written(b", more");
        let (duplicate, empty) = (tail.duplicate(100), tail.duplicate(100));
        assert_eq!(
            (duplicate.len(), empty.len()),
            (HEADER_LEN + 6, HEADER_LEN),
            "only what is new"
        );
        [duplicate, empty].into_iter().for_each(|duplicate| heard.keep(duplicate));
        assert_eq!(heard.bring(Bytes::from_static(b", a frame, mo")), b", mo"[..]);
        assert_eq!(heard.fill().unwrap(), b"re"[..]);
        assert_eq!(heard.bring(Bytes::from_static(b"re")), b""[..]);
    }

    #[test]
    fn nothing_is_kept_if_no_duplicate_is_wanted() {
        let (mut tail, mut heard) = (Tail::default(), Reassembly::default());
        tail.note_written(b"a hello");
        assert_eq!(tail.duplicate(100).len(), HEADER_LEN);
        tail.keep(true);
        tail.note_written(b", a frame");
        heard.bring(Bytes::from_static(b"a hello"));
        tail.keep(true);
        heard.keep(tail.duplicate(100));
        assert_eq!(heard.fill().unwrap(), b", a frame"[..]);
        tail.plan(Instant::now(), Duration::ZERO);
        tail.keep(false);
        assert!(tail.bytes.is_empty() && tail.due().is_none());
    }

    #[test]
    fn a_duplicate_is_due_when_nothing_has_left_for_a_moment() {
        let (mut tail, begin) = (kept(), Instant::now());
        let ms = Duration::from_millis;
        assert!(!tail.take_due(begin + ms(100)), "nothing has left");
        tail.plan(begin, ms(16));
        tail.plan(begin + ms(1), ms(16));
        assert!(!tail.take_due(begin + ms(1)));
        assert!(tail.take_due(begin + ms(2)) && !tail.take_due(begin + ms(3)), "once");
    }

    #[test]
    fn a_loss_of_one_in_4096_packets_justifies_duplicates() {
        assert!(!pays(100, 1, None), "a single one");
        assert!(pays(100, 2, None) && pays(8000, 2, None) && !pays(9000, 2, None));
        assert!(pays(0, 0, Some(0.001)) && !pays(0, 0, Some(0.0001)) && !pays(0, 0, None));
    }
}
