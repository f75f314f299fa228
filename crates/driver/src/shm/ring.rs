//! A single-producer single-consumer ring of frames in shared memory.
//!
//! Records begin on cache lines. The first word of a record is its *state*: 0 while it is empty,
//! then the frame's length plus one, or [`PAD`]. The producer writes the frame and then the state
//! (release); the consumer polls the state of the next record (acquire), so that a short frame costs
//! one cache line's trip. Having used a record, the consumer clears the first word of every line it
//! covers — any of them may be a state in the next lap — and then returns the room through `used`
//! (release), which the producer reads (acquire) only when the room it knows of is exhausted.
//!
//! A long frame lies in a chunk of the producer's pool; its record is a state word that names it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::Frame;

use super::pool::{CHUNK_FRAME_MAX, LINE, Lent};
use super::segment::Segment;
use super::shared::{Shared, Word};

/// The producer's end.
#[derive(Debug)]
pub(crate) struct Producer<S: Shared = Segment> {
    segment: S,
    /// Bytes written since the ring began, a multiple of the line.
    written: u64,
    /// The last known `used`.
    used: u64,
}

/// The consumer's end.
#[derive(Debug)]
pub(crate) struct Consumer<S: Shared = Segment> {
    segment: S,
    consumed: u64,
    /// The last published `used`.
    published: u64,
    /// The producer's process, and its pool once a long frame has come.
    pid: i32,
    lent: Option<Lent<S>>,
    broken: bool,
    /// Where `consumed` is told to who looks on; nothing follows from it but a look.
    shown: Option<Arc<AtomicU64>>,
}

/// Where in its chunk a long frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub chunk: u16,
    pub start: usize,
    pub len: usize,
    /// The reader is to take its lines over.
    pub take_over: bool,
}

impl<S: Shared> Producer<S> {
    /// The longest frame in the ring itself. A frame and the padding before it fill at most half the
    /// ring, so that room for it comes as long as less than half is held back by the consumer.
    pub const FRAME_MAX: usize = S::RING_LEN / 4 - STATE_LEN;

    /// The producer of a fresh, zeroed segment of [`SEGMENT_LEN`] bytes.
    pub fn new(segment: S) -> Self {
        Self { segment, written: 0, used: 0 }
    }

    /// The segment, for what its header carries besides.
    pub fn segment(&self) -> &S {
        &self.segment
    }

    /// Writes a frame of at most [`Self::FRAME_MAX`] bytes; false when there is no room.
    #[inline]
    pub fn push(&mut self, frame: &Frame) -> bool {
        let len = frame.len();
        debug_assert!(len <= Self::FRAME_MAX);
        let Some(at) = self.reserve(span_of(len)) else { return false };
        self.fill(at as usize, frame);
        self.state(at).store(len as u64 + 1, Ordering::Release);
        true
    }

    /// Writes the record of a frame that lies in a chunk of the pool behind `descriptor`; false when
    /// there is no room.
    pub fn push_place(&mut self, place: Place, descriptor: i32) -> bool {
        let Some(at) = self.reserve(LINE as u64) else { return false };
        self.segment.word32(POOL_AT).store(descriptor as u32, Ordering::Relaxed);
        self.state(at).store(place.emit(), Ordering::Release);
        true
    }

    /// Whether any frame that may be pushed has room.
    pub fn has_room_for_any(&mut self) -> bool {
        self.has_room(2 * span_of(Self::FRAME_MAX))
    }

    /// Asks the consumer to ring when it returns room; to be followed by a full fence on both sides
    /// and another look. Who takes the word (acquire) sees what its writer said before, that it
    /// sleeps: otherwise the word would be spent on a little room and nobody rung for the rest.
    pub fn want_room(&self) {
        self.segment.word32(WANTED_AT).store(1, Ordering::Release);
    }

    /// Where a record of `span` bytes begins, after padding as needed.
    #[inline]
    fn reserve(&mut self, span: u64) -> Option<u64> {
        let at = self.written % S::RING_LEN as u64;
        let to_end = S::RING_LEN as u64 - at;
        let pad = if span > to_end { to_end } else { 0 };
        if !self.has_room(pad + span) {
            return None;
        }
        if pad > 0 {
            self.state(at).store(PAD, Ordering::Release);
            self.written += pad;
        }
        let at = self.written % S::RING_LEN as u64;
        self.written += span;
        Some(at)
    }

    /// Marks the ring as closed by its producer.
    pub fn close(&self) {
        self.segment.word32(CLOSED_AT).store(1, Ordering::Release);
    }

    #[inline]
    fn has_room(&mut self, needed: u64) -> bool {
        if self.written + needed - self.used <= S::RING_LEN as u64 {
            return true;
        }
        self.used = self.segment.word64(USED_AT).load(Ordering::Acquire);
        self.written + needed - self.used <= S::RING_LEN as u64
    }

    #[inline]
    fn fill(&mut self, at: usize, frame: &Frame) {
        let start = DATA_AT + at + STATE_LEN;
        self.segment.write(start, &frame.head);
        if let Some(body) = &frame.body {
            let start = start + frame.head.len();
            body.region.read(0, self.segment.slice_mut(start, body.region.len()));
        }
    }

    fn state(&self, at: u64) -> &S::Word64 {
        self.segment.word64(DATA_AT + at as usize)
    }
}

impl<S: Shared> Consumer<S> {
    /// The consumer returns room in portions, to write the shared line seldom.
    const PUBLISH_EVERY: u64 = S::RING_LEN as u64 / 8;

    /// The consumer of a segment that a producer in process `pid` made.
    pub fn new(segment: S, pid: i32) -> Self {
        Self { segment, consumed: 0, published: 0, pid, lent: None, broken: false, shown: None }
    }

    /// The segment, for who looks on.
    pub fn segment(&self) -> &S {
        &self.segment
    }

    /// Tells from now on where it is.
    pub fn show_place(&mut self) -> &Arc<AtomicU64> {
        let consumed = self.consumed;
        self.shown.get_or_insert_with(|| Arc::new(AtomicU64::new(consumed)))
    }

    /// It reads no more, which is `gone` to who looks on.
    pub fn leave(&self, gone: u64) {
        if let Some(shown) = &self.shown {
            shown.store(gone, Ordering::Relaxed);
        }
    }

    /// Shows the next frame to `sink`; false when there is none.
    #[inline]
    pub fn pop(&mut self, sink: &mut dyn FnMut(&[u8])) -> bool {
        loop {
            let at = (self.consumed % S::RING_LEN as u64) as usize;
            let state = self.segment.word64(DATA_AT + at).load(Ordering::Acquire);
            if state == 0 {
                return false;
            }
            if state & (PAD_FLAG | CHUNK_FLAG) != 0 {
                self.segment.word64(DATA_AT + at).store(0, Ordering::Relaxed);
                if state == PAD {
                    self.release((S::RING_LEN - at) as u64);
                    continue;
                }
                self.release(LINE as u64);
                self.show(Place::parse(state), sink);
                return true;
            }
            // A peer that writes nonsense is bounded to nonsense within the ring.
            let len = ((state - 1) as usize)
                .min(Producer::<S>::FRAME_MAX)
                .min(S::RING_LEN - at - STATE_LEN);
            sink(self.segment.slice(DATA_AT + at + STATE_LEN, len));
            let span = span_of(len);
            for line in 0..span as usize / LINE {
                self.segment.word64(DATA_AT + at + line * LINE).store(0, Ordering::Relaxed);
            }
            self.release(span);
            return true;
        }
    }

    /// Shows a frame that lies in the producer's pool.
    fn show(&mut self, place: Place, sink: &mut dyn FnMut(&[u8])) {
        if self.lent.is_none() {
            let descriptor = self.segment.word32(POOL_AT).load(Ordering::Relaxed) as i32;
            self.lent = Lent::attach(self.pid, descriptor).ok();
        }
        match &self.lent {
            Some(lent) => {
                sink(lent.bytes(place.chunk, place.start, place.len));
                if place.take_over {
                    lent.take_over(place.chunk, place.start, place.len);
                }
                lent.release(place.chunk);
            }
            None => self.broken = true,
        }
    }

    /// Whether a frame was lost because the producer's pool could not be opened.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether the producer waits for room, which it has been given since; asked once.
    #[inline]
    pub fn take_wanted(&self) -> bool {
        let wanted = self.segment.word32(WANTED_AT);
        wanted.load(Ordering::Relaxed) != 0 && wanted.swap(0, Ordering::Acquire) != 0
    }

    /// Publishes all room there is.
    pub fn publish(&mut self) {
        self.published = self.consumed;
        self.segment.word64(USED_AT).store(self.consumed, Ordering::Release);
    }

    /// Whether a frame is there.
    pub fn has_news(&self) -> bool {
        let at = (self.consumed % S::RING_LEN as u64) as usize;
        self.segment.word64(DATA_AT + at).load(Ordering::Acquire) != 0
    }

    /// Whether the producer is only a few short frames ahead; a guess, for what is looked at may be the
    /// middle of a longer one.
    pub fn is_close(&self) -> bool {
        let at = (self.consumed + CLOSE as u64) % S::RING_LEN as u64;
        self.segment.word64(DATA_AT + at as usize).load(Ordering::Relaxed) == 0
    }

    /// Whether the producer has closed the ring; what it wrote before can still be read.
    pub fn is_closed(&self) -> bool {
        self.segment.word32(CLOSED_AT).load(Ordering::Acquire) != 0
    }

    #[inline]
    fn release(&mut self, span: u64) {
        self.consumed += span;
        if let Some(shown) = &self.shown {
            shown.store(self.consumed, Ordering::Relaxed);
        }
        if self.consumed - self.published >= Self::PUBLISH_EVERY {
            self.publish();
        }
    }
}

impl Place {
    /// The state word of the record: bits 0..32 the length, 32..48 the chunk, 48..61 the start, and
    /// whether to take over.
    fn emit(self) -> u64 {
        debug_assert!(self.len <= CHUNK_FRAME_MAX && self.start <= START_MAX);
        let (start, chunk, len) = (self.start as u64, u64::from(self.chunk), self.len as u64);
        CHUNK_FLAG | u64::from(self.take_over) << 61 | start << 48 | chunk << 32 | len
    }

    fn parse(state: u64) -> Self {
        let start = (state >> 48) as usize & START_MAX;
        let take_over = state >> 61 & 1 == 1;
        Self { chunk: (state >> 32) as u16, start, len: state as u32 as usize, take_over }
    }
}

#[inline]
fn span_of(len: usize) -> u64 {
    (STATE_LEN + len).next_multiple_of(LINE) as u64
}

/// The longest frame in the ring itself.
pub(crate) const FRAME_MAX: usize = Producer::<Segment>::FRAME_MAX;
/// Length of a whole segment in bytes.
pub(crate) const SEGMENT_LEN: usize = segment_len::<Segment>();
/// Where the segment's maker may put up to [`HEADER_LEN`] bytes of its own.
pub(crate) const HEADER_AT: usize = 0;
/// Room for the maker's bytes.
pub(crate) const HEADER_LEN: usize = 256;
const CLOSED_AT: usize = 320;
/// On the line of `CLOSED_AT`: written seldom, read often.
const WANTED_AT: usize = 324;
const POOL_AT: usize = 328;
pub(crate) const USED_AT: usize = 384;
pub(crate) const DATA_AT: usize = 512;
const STATE_LEN: usize = 8;
/// How far ahead a producer is out of reach of this side's processor, which fetches lines in advance.
const CLOSE: usize = 8 * LINE;
const PAD: u64 = u64::MAX;
const PAD_FLAG: u64 = 1 << 63;
const CHUNK_FLAG: u64 = 1 << 62;
const START_MAX: usize = (1 << 13) - 1;

/// Length in bytes of what a ring of `S` lies in.
pub(crate) const fn segment_len<S: Shared>() -> usize {
    DATA_AT + S::RING_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Producer, Consumer) {
        let segment = Segment::create(SEGMENT_LEN).unwrap();
        let other = segment.again().unwrap();
        (Producer::new(segment), Consumer::new(other, std::process::id() as i32))
    }

    fn frame(len: usize, seed: u8) -> Frame {
        let head = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        Frame { head, body: None, token: None }
    }

    #[test]
    fn frames_of_all_lengths_come_out_as_they_went_in() {
        let (mut producer, mut consumer) = pair();
        let lengths = [0, 1, 55, 56, 57, 63, 64, 65, 4096, FRAME_MAX];
        for round in 0..200u32 {
            let len = lengths[round as usize % lengths.len()];
            let sent = frame(len, round as u8);
            assert!(producer.push(&sent), "no room in round {round}");
            let mut seen = 0;
            assert!(consumer.pop(&mut |bytes| {
                assert_eq!(bytes, sent.head);
                seen += 1;
            }));
            assert_eq!(seen, 1);
            assert!(!consumer.pop(&mut |_| panic!("a frame nobody sent")));
        }
    }

    #[test]
    fn a_full_ring_refuses_and_has_room_again_once_read() {
        let (mut producer, mut consumer) = pair();
        for _ in 0..3 {
            let mut sent = 0;
            while producer.push(&frame(FRAME_MAX, sent)) {
                sent += 1;
            }
            assert!(sent >= 3);
            for seed in 0..sent {
                assert!(consumer.pop(&mut |bytes| assert_eq!(bytes, frame(FRAME_MAX, seed).head)));
            }
        }
    }

    #[test]
    fn a_producer_some_frames_ahead_is_not_close() {
        let (mut producer, mut consumer) = pair();
        for number in 0..3000 {
            assert!(consumer.is_close(), "after {number} frames");
            assert!(producer.push(&frame(40, 1)));
            assert!(consumer.pop(&mut |_| ()));
        }
        for _ in 0..8 {
            assert!(consumer.is_close());
            assert!(producer.push(&frame(40, 1)));
        }
        assert!(producer.push(&frame(40, 1)));
        assert!(!consumer.is_close());
    }

    #[test]
    fn two_threads_pass_many_frames_in_order() {
        let (mut producer, mut consumer) = pair();
        let sender = std::thread::spawn(move || {
            for number in 0..50_000u32 {
                let mut frame = frame((number % 3000) as usize, number as u8);
                frame.head.extend(number.to_le_bytes());
                while !producer.push(&frame) {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..50_000u32 {
            let check = &mut |bytes: &[u8]| {
                let (head, tail) = bytes.split_at(bytes.len() - 4);
                assert_eq!(tail, number.to_le_bytes());
                assert_eq!(head, frame((number % 3000) as usize, number as u8).head);
            };
            while !consumer.pop(check) {
                std::thread::yield_now();
            }
        }
        sender.join().unwrap();
    }
}
