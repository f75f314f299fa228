//! A single-producer single-consumer ring of frames in shared memory.
//!
//! Records begin on cache lines. The first word of a record is its *state*: 0 while it is empty, then the frame's
//! length plus one, or [`PAD`]. The producer writes the frame and then the state (release). The consumer polls the
//! state of the next record (acquire), so a short frame costs one cache-line transfer. After use, the consumer clears
//! the first word of every line of the record, because any of them may be a state in the next lap. It then returns
//! the room through `used` (release), which the producer reads (acquire) only when its known room is exhausted.
//!
//! A frame that is too long lies in a chunk of the producer's pool; its record is a state word that names the chunk.
//!
//! A long body *cuts through*: its state is published with its first lines and counts the lines written so far. The
//! producer updates it, so the consumer copies the first pieces out while the last ones are still copied in.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memory::Region;
use wire::Frame;

use crate::pool::{BorrowedPool, CHUNK_FRAME_MAX, LINE, RING_MAX};
use crate::segment::Segment;
use crate::shared::{Shared, Word};

/// The producer's end.
#[derive(Debug)]
pub(crate) struct Producer<S: Shared = Segment> {
    segment: S,
    /// Bytes written since the creation of the ring, a multiple of the line.
    written: u64,
    /// Last known value of `used`.
    used: u64,
}

/// The consumer's end.
#[derive(Debug)]
pub(crate) struct Consumer<S: Shared = Segment> {
    segment: S,
    consumed: u64,
    /// Last published value of `used`.
    published: u64,
    /// The producer's process, and its pool once a long frame has come.
    pid: i32,
    lent: Option<BorrowedPool<S>>,
    broken: bool,
    cut_through: CutThrough,
    /// Copy of `consumed` for the readiness probe; only a hint.
    shown: Option<Arc<AtomicU64>>,
}

/// Output of a ring.
pub(crate) enum Arrival<'a> {
    /// A whole frame.
    Whole(&'a [u8]),
    /// The first bytes of a frame of `len` bytes. If the sink sets `taken`, the rest follows in pieces; otherwise the
    /// whole frame follows.
    Begun { bytes: &'a [u8], len: usize, taken: &'a mut bool },
    /// The next bytes of a frame that is taken in pieces.
    Rest(&'a [u8]),
}

/// Progress of the next frame while it is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutThrough {
    Nothing,
    /// Its beginning was shown and not taken.
    Declined,
    /// Number of bytes that were taken.
    Taken(usize),
}

/// Position of a long frame in its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub chunk: u16,
    pub start: usize,
    pub len: usize,
}

impl<S: Shared> Producer<S> {
    /// Longest frame in the ring itself. A frame and the padding before it fill at most half the ring, so room for it
    /// comes as long as the consumer holds back less than half.
    pub const FRAME_MAX: usize = S::RING_LEN / 4 - STATE_LEN;

    /// Creates the producer of a new, zeroed segment of [`SEGMENT_LEN`] bytes.
    pub fn new(segment: S) -> Self {
        Self { segment, written: 0, used: 0 }
    }

    /// Returns the segment, for the other contents of its header.
    pub fn segment(&self) -> &S {
        &self.segment
    }

    /// Writes a frame of at most [`Self::FRAME_MAX`] bytes; false if there is no room.
    #[inline]
    pub fn push(&mut self, frame: &Frame) -> bool {
        debug_assert!(frame.len() <= Self::FRAME_MAX);
        let Frame { head, body: None, .. } = frame else { return self.push_with_body(frame) };
        let Some(at) = self.reserve(span_of(head.len())) else { return false };
        self.segment.write(DATA_AT + at as usize + STATE_LEN, head);
        self.state(at).store(head.len() as u64 + 1, Ordering::Release);
        true
    }

    /// [`Producer::push`] of a frame with a body; a long body cuts through.
    #[inline(never)]
    fn push_with_body(&mut self, frame: &Frame) -> bool {
        let (Some(body), len) = (&frame.body, frame.len()) else { return false };
        let Some(at) = self.reserve(span_of(len)) else { return false };
        let (record, mut state) = (DATA_AT + at as usize, len as u64 + 1);
        self.segment.write(record + STATE_LEN, &frame.head);
        let (start, body_len) = (record + STATE_LEN + frame.head.len(), body.region.len());
        if body_len < S::CUT_THROUGH_MIN {
            body.region.read_across(0, self.segment.slice_mut(start, body_len));
        } else {
            let body = (&body.region, Region::read_across as Read);
            write_through(&mut self.segment, start, body, |segment, end| {
                let lines = (end - record) / LINE;
                segment.word64(record).store(state | cut(lines), Ordering::Release);
            });
            state |= cut(WHOLE);
        }
        self.state(at).store(state, Ordering::Release);
        true
    }

    /// True if there is room for the record of a frame in a chunk.
    pub fn has_room_for_place(&mut self) -> bool {
        self.has_room(LINE as u64)
    }

    /// Writes a frame to offset `start` of a lent chunk, which begins at `at` of the pool, and its record, for which
    /// there must be room. The body begins on a line; `past` selects non-temporal stores.
    pub fn push_long(
        &mut self,
        frame: &Frame,
        (chunk, start): (u16, usize),
        (pool, at): (&mut S, usize),
        past: bool,
    ) {
        let record = self.reserve(LINE as u64).unwrap_or_else(|| unreachable!("there was room"));
        self.segment.word32(POOL_AT).store(pool.descriptor() as u32, Ordering::Relaxed);
        let place = ChunkPlace { chunk, start, len: frame.len() };
        let tell = |lines| self.state(record).store(place.emit() | cut(lines), Ordering::Release);
        pool.write(at + start, &frame.head);
        if let Some(body) = &frame.body {
            let start = at + start + frame.head.len();
            let read = if past { Region::read_past } else { Region::read };
            write_through(pool, start, (&body.region, read), |_, end| tell((end - at) / LINE));
        }
        tell(WHOLE);
    }

    /// True if there is room for every permitted frame.
    pub fn has_room_for_any(&mut self) -> bool {
        self.has_room(2 * span_of(Self::FRAME_MAX))
    }

    /// Asks the consumer to ring the doorbell when it returns room. Both sides must then run a full fence and check
    /// again. The consumer takes the flag with acquire and thus sees that the producer sleeps. Otherwise the flag
    /// would be spent on a little room, and nobody would be woken for the rest.
    pub fn want_room(&self) {
        self.segment.word32(WANTED_AT).store(1, Ordering::Release);
    }

    /// Returns the offset of a record of `span` bytes, after padding if needed.
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
        self.segment.word32(CLOSED_AT).store(CLOSED, Ordering::Release);
    }

    /// True if the process for which the ring was made does not take it.
    pub fn is_refused(&self) -> bool {
        self.segment.word32(CLOSED_AT).load(Ordering::Acquire) == REFUSED
    }

    #[inline]
    fn has_room(&mut self, needed: u64) -> bool {
        if self.written + needed - self.used <= S::RING_LEN as u64 {
            return true;
        }
        self.used = self.segment.word64(USED_AT).load(Ordering::Acquire);
        self.written + needed - self.used <= S::RING_LEN as u64
    }

    fn state(&self, at: u64) -> &S::Word64 {
        self.segment.word64(DATA_AT + at as usize)
    }
}

impl<S: Shared> Consumer<S> {
    /// Room that the consumer returns at once, so that it seldom writes the shared line.
    const PUBLISH_EVERY: u64 = S::RING_LEN as u64 / 8;

    /// Creates the consumer of a segment that process `pid` has made.
    pub fn new(segment: S, pid: i32) -> Self {
        Self {
            segment,
            consumed: 0,
            published: 0,
            pid,
            lent: None,
            broken: false,
            cut_through: CutThrough::Nothing,
            shown: None,
        }
    }

    /// Returns the segment, for the readiness probe.
    pub fn segment(&self) -> &S {
        &self.segment
    }

    /// Publishes the position of the consumer from now on.
    pub fn publish_cursor(&mut self) -> &Arc<AtomicU64> {
        let consumed = self.consumed;
        self.shown.get_or_insert_with(|| Arc::new(AtomicU64::new(consumed)))
    }

    /// Publishes `gone`: the consumer reads no more.
    pub fn leave(&self, gone: u64) {
        if let Some(shown) = &self.shown {
            shown.store(gone, Ordering::Relaxed);
        }
    }

    /// Shows the next frame, or its next bytes, to `sink`; false if there is nothing to show.
    #[inline]
    pub fn pop(&mut self, mut sink: impl FnMut(Arrival<'_>)) -> bool {
        loop {
            let at = (self.consumed % S::RING_LEN as u64) as usize;
            let state = self.segment.word64(DATA_AT + at).load(Ordering::Acquire);
            if state == 0 {
                return false;
            }
            if state & (PAD_FLAG | CUT_FLAG) != 0 {
                if state == PAD {
                    self.segment.word64(DATA_AT + at).store(0, Ordering::Relaxed);
                    self.release((S::RING_LEN - at) as u64);
                    continue;
                }
                return self.pop_through(at, state, &mut sink);
            }
            let len = len_in_ring::<S>(state, at);
            sink(Arrival::Whole(self.segment.slice(DATA_AT + at + STATE_LEN, len)));
            self.clear(at, len);
            return true;
        }
    }

    /// [`Consumer::pop`] of a frame that cuts through.
    #[inline(never)]
    fn pop_through(
        &mut self,
        at: usize,
        mut state: u64,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> bool {
        let place = (state & CHUNK_FLAG != 0).then(|| ChunkPlace::parse(state));
        if place.is_some() && !self.borrow() {
            return false;
        }
        let len = place.map_or_else(|| len_in_ring::<S>(state, at), |place| place.len);
        let lead = place.map_or(STATE_LEN, |place| place.start);
        let (mut waited, mut moved) = (0, false);
        loop {
            let ready = ready_of(state, lead, len);
            match self.cut_through {
                CutThrough::Nothing if ready < len => {
                    let mut taken = false;
                    let bytes = self.shown(at, place, 0..ready);
                    sink(Arrival::Begun { bytes, len, taken: &mut taken });
                    self.cut_through =
                        if taken { CutThrough::Taken(ready) } else { CutThrough::Declined };
                    return true;
                }
                CutThrough::Declined if ready < len => return false,
                CutThrough::Nothing | CutThrough::Declined => {
                    sink(Arrival::Whole(self.shown(at, place, 0..len)));
                    break;
                }
                CutThrough::Taken(before) if ready > before => {
                    sink(Arrival::Rest(self.shown(at, place, before..ready)));
                    self.cut_through = CutThrough::Taken(ready);
                    if ready == len {
                        break;
                    }
                    (waited, moved) = (0, true);
                }
                // The producer is writing the next piece, or is preempted.
                CutThrough::Taken(_) if waited == PIECE_SPINS => return moved,
                CutThrough::Taken(_) => {
                    waited += 1;
                    S::pause();
                }
            }
            state = self.segment.word64(DATA_AT + at).load(Ordering::Acquire);
        }
        self.cut_through = CutThrough::Nothing;
        match place {
            None => self.clear(at, len),
            Some(place) => {
                if let Some(lent) = &self.lent {
                    lent.release(place.chunk);
                }
                self.segment.word64(DATA_AT + at).store(0, Ordering::Relaxed);
                self.release(LINE as u64);
            }
        }
        true
    }

    /// Returns bytes of the frame at `at`, or at `place`.
    fn shown(&self, at: usize, place: Option<ChunkPlace>, range: Range<usize>) -> &[u8] {
        match (place, &self.lent) {
            (Some(place), Some(lent)) => {
                lent.bytes(place.chunk, place.start + range.start, range.len())
            }
            _ => self.segment.slice(DATA_AT + at + STATE_LEN + range.start, range.len()),
        }
    }

    /// Clears the first words of the lines of a record, where later states will lie, and returns the lines.
    #[inline]
    fn clear(&mut self, at: usize, len: usize) {
        let span = span_of(len);
        for line in 0..span as usize / LINE {
            self.segment.word64(DATA_AT + at + line * LINE).store(0, Ordering::Relaxed);
        }
        self.release(span);
    }

    /// Attaches the producer's pool if necessary; true if it can be read.
    fn borrow(&mut self) -> bool {
        if self.lent.is_none() && !self.broken {
            let descriptor = self.segment.word32(POOL_AT).load(Ordering::Relaxed) as i32;
            self.lent = BorrowedPool::attach(self.pid, descriptor).ok();
            self.broken = self.lent.is_none();
        }
        !self.broken
    }

    /// True if the producer's pool could not be opened, so that no more frames come out.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// True if the producer waits for room that it has been given since; reported once.
    #[inline]
    pub fn take_wanted(&self) -> bool {
        let wanted = self.segment.word32(WANTED_AT);
        wanted.load(Ordering::Relaxed) != 0 && wanted.swap(0, Ordering::Acquire) != 0
    }

    /// Publishes all room.
    pub fn publish(&mut self) {
        self.published = self.consumed;
        self.segment.word64(USED_AT).store(self.consumed, Ordering::Release);
    }

    /// True if a frame, or more of an incomplete one, is available.
    pub fn has_events(&self) -> bool {
        let at = (self.consumed % S::RING_LEN as u64) as usize;
        let state = self.segment.word64(DATA_AT + at).load(Ordering::Acquire);
        if self.broken || state == 0 || state & (PAD_FLAG | CUT_FLAG) != CUT_FLAG {
            return !self.broken && state != 0;
        }
        let place = (state & CHUNK_FLAG != 0).then(|| ChunkPlace::parse(state));
        let len = place.map_or_else(|| len_in_ring::<S>(state, at), |place| place.len);
        let ready = ready_of(state, place.map_or(STATE_LEN, |place| place.start), len);
        match self.cut_through {
            CutThrough::Nothing => true,
            CutThrough::Declined => ready == len,
            CutThrough::Taken(before) => ready > before,
        }
    }

    /// True if the producer is only a few short frames ahead. A guess: the inspected word may lie within a longer
    /// frame.
    pub fn is_close(&self) -> bool {
        let at = (self.consumed + CLOSE as u64) % S::RING_LEN as u64;
        self.segment.word64(DATA_AT + at as usize).load(Ordering::Relaxed) == 0
    }

    /// True if the producer has closed the ring; earlier frames can still be read.
    pub fn is_closed(&self) -> bool {
        self.segment.word32(CLOSED_AT).load(Ordering::Acquire) != 0
    }

    /// Refuses a ring that somebody else has announced.
    pub fn refuse(&self) {
        self.segment.word32(CLOSED_AT).store(REFUSED, Ordering::Release);
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

impl ChunkPlace {
    /// Encodes the place in the state word: length, chunk from bit 32 on, start from bit 40 on.
    fn emit(self) -> u64 {
        debug_assert!(self.len <= CHUNK_FRAME_MAX && self.start <= START_MAX && self.chunk < 256);
        let (start, chunk, len) = (self.start as u64, u64::from(self.chunk), self.len as u64);
        CHUNK_FLAG | start << START_SHIFT | chunk << 32 | len
    }

    /// Decodes a place. Malformed values are clamped to a chunk.
    fn parse(state: u64) -> Self {
        let start = (state >> START_SHIFT) as usize & START_MAX;
        let len = (state & LEN_MASK) as usize;
        Self { chunk: (state >> 32) as u16 & 0xff, start, len: len.min(CHUNK_FRAME_MAX) }
    }
}

/// Length of the frame in the ring that a state names. Malformed values are clamped to the ring.
#[inline]
fn len_in_ring<S: Shared>(state: u64, at: usize) -> usize {
    let len = ((state & LEN_MASK) as usize).saturating_sub(1);
    len.min(Producer::<S>::FRAME_MAX).min(S::RING_LEN - at - STATE_LEN)
}

/// State bits of a frame that cuts through, with `lines` lines written.
fn cut(lines: usize) -> u64 {
    CUT_FLAG | (lines as u64) << LINES_SHIFT
}

/// Number of written bytes of a frame of `len` that begins `lead` bytes after a line boundary.
fn ready_of(state: u64, lead: usize, len: usize) -> usize {
    match (state >> LINES_SHIFT) as usize & WHOLE {
        WHOLE => len,
        lines => (lines * LINE).saturating_sub(lead).min(len),
    }
}

/// Function that copies bytes of a body from some offset on.
type Read = fn(&Region, usize, &mut [u8]);

/// Writes a body to offset `at` in pieces that end on lines, and reports the start of each but the first.
fn write_through<S: Shared>(
    segment: &mut S,
    at: usize,
    (body, read): (&Region, Read),
    mut tell: impl FnMut(&S, usize),
) {
    let piece = S::PIECE_LEN.max((body.len() / PIECES).next_multiple_of(LINE));
    let (mut done, mut end) = (0, at.next_multiple_of(LINE) - at);
    loop {
        read(body, done, segment.slice_mut(at + done, end - done));
        if end == body.len() {
            return;
        }
        tell(segment, at + end);
        (done, end) = (end, (end + piece).min(body.len()));
    }
}

#[inline]
fn span_of(len: usize) -> u64 {
    (STATE_LEN + len).next_multiple_of(LINE) as u64
}

/// Length of a whole segment in bytes.
pub(crate) const SEGMENT_LEN: usize = segment_len::<Segment>();
/// Offset of up to [`HEADER_LEN`] bytes for the creator of the segment.
pub(crate) const HEADER_AT: usize = 0;
/// Room for those bytes.
pub(crate) const HEADER_LEN: usize = 256;
const CLOSED_AT: usize = 320;
/// Values there.
const CLOSED: u32 = 1;
const REFUSED: u32 = 2;
/// On the line of `CLOSED_AT`: seldom written, often read.
const WANTED_AT: usize = 324;
const POOL_AT: usize = 328;
pub(crate) const USED_AT: usize = 384;
pub(crate) const DATA_AT: usize = 512;
const STATE_LEN: usize = 8;
/// Distance at which the producer is beyond this core's hardware prefetcher.
const CLOSE: usize = 8 * LINE;
const PAD: u64 = u64::MAX;
const PAD_FLAG: u64 = 1 << 63;
const CHUNK_FLAG: u64 = 1 << 62;
const START_SHIFT: u32 = 40;
const START_MAX: usize = (1 << 17) - 1;
/// State of a frame that cuts through: length in bits 0..17, number of written lines in bits 17..30.
const CUT_FLAG: u64 = 1 << 31;
const LEN_MASK: u64 = (1 << LINES_SHIFT) - 1;
const LINES_SHIFT: u32 = 17;
const WHOLE: usize = (1 << 13) - 1;
/// Maximum number of pieces of a body.
const PIECES: usize = 4;
/// Pauses that a consumer waits for the next piece, which takes its producer a few hundred nanoseconds.
const PIECE_SPINS: u32 = 20;

/// Length in bytes of the segment of a ring over `S`.
pub(crate) const fn segment_len<S: Shared>() -> usize {
    DATA_AT + S::RING_LEN
}

const _: () = assert!(RING_MAX <= Producer::<Segment>::FRAME_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: usize = 32;
    const FRAME_MAX: usize = Producer::<Segment>::FRAME_MAX;

    fn pair() -> (Producer, Consumer) {
        let segment = Segment::create(SEGMENT_LEN).unwrap();
        let other = segment.again().unwrap();
        (Producer::new(segment), Consumer::new(other, std::process::id() as i32))
    }

    fn frame(len: usize, seed: u8) -> Frame {
        let head = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        Frame { head, body: None, token: None }
    }

    /// Frames that come whole.
    fn whole(mut sink: impl FnMut(&[u8])) -> impl FnMut(Arrival<'_>) {
        move |arrival| match arrival {
            Arrival::Whole(bytes) => sink(bytes),
            Arrival::Begun { .. } | Arrival::Rest(_) => panic!("a part of a frame"),
        }
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
            assert!(consumer.pop(whole(|bytes| {
                assert_eq!(bytes, sent.head);
                seen += 1;
            })));
            assert_eq!(seen, 1);
            assert!(!consumer.pop(|_| panic!("a frame nobody sent")));
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
                let sent = frame(FRAME_MAX, seed);
                assert!(consumer.pop(whole(|bytes| assert_eq!(bytes, sent.head))));
            }
        }
    }

    #[test]
    fn a_producer_some_frames_ahead_is_not_close() {
        let (mut producer, mut consumer) = pair();
        for number in 0..3000 {
            assert!(consumer.is_close(), "after {number} frames");
            assert!(producer.push(&frame(40, 1)));
            assert!(consumer.pop(whole(|_| ())));
        }
        for _ in 0..8 {
            assert!(consumer.is_close());
            assert!(producer.push(&frame(40, 1)));
        }
        assert!(producer.push(&frame(40, 1)));
        assert!(!consumer.is_close());
    }

    /// A frame with a head of `HEAD` bytes, and a body of `len`.
    fn with_body(len: usize, seed: u8) -> Frame {
        let body = frame(len, seed.wrapping_add(1)).head;
        let body = Some(wire::Body { region: Region::from_box(body.into()) });
        Frame { body, ..frame(HEAD, seed) }
    }

    fn bytes_of(frame: &Frame) -> Vec<u8> {
        let body = frame.body.as_ref().map(|body| body.region.to_vec());
        [frame.head.clone(), body.unwrap_or_default()].concat()
    }

    #[test]
    fn long_frames_are_shown_while_they_are_written() {
        let (producer, mut consumer) = pair();
        let sent = with_body(3 * Segment::PIECE_LEN + 100, 7);
        let bytes = bytes_of(&sent);
        let len = bytes.len();
        // The producer's memory as it is after each word of the state that it tells.
        let Producer { segment, .. } = producer;
        let mut segment = segment;
        segment.write(DATA_AT + STATE_LEN, &bytes);
        let state = |lines| (len as u64 + 1) | cut(lines);
        let mut show = |lines, taken_as| {
            segment.word64(DATA_AT).store(state(lines), Ordering::Release);
            let mut shown = Vec::new();
            let moved = consumer.pop(|arrival| match arrival {
                Arrival::Whole(bytes) => shown.push(("whole", bytes.to_vec())),
                Arrival::Begun { bytes, len: all, taken } => {
                    assert_eq!(all, len);
                    *taken = taken_as;
                    shown.push(("begun", bytes.to_vec()));
                }
                Arrival::Rest(bytes) => shown.push(("rest", bytes.to_vec())),
            });
            (moved, shown, consumer.has_events())
        };
        let begun = ("begun", bytes[..LINE - STATE_LEN].to_vec());
        assert_eq!(show(1, true), (true, vec![begun], false));
        assert_eq!(show(1, true), (false, vec![], false));
        let rest = ("rest", bytes[LINE - STATE_LEN..5 * LINE - STATE_LEN].to_vec());
        assert_eq!(show(5, true), (true, vec![rest], false));
        let rest = ("rest", bytes[5 * LINE - STATE_LEN..].to_vec());
        assert_eq!(show(WHOLE, true), (true, vec![rest], false));
    }

    #[test]
    fn a_frame_declined_at_its_beginning_comes_whole() {
        let (mut producer, mut consumer) = pair();
        let sent = with_body(2 * Segment::PIECE_LEN, 3);
        let bytes = bytes_of(&sent);
        assert!(producer.push(&sent));
        let whole_state = producer.state(0).load(Ordering::Relaxed);
        producer.state(0).store((bytes.len() as u64 + 1) | cut(2), Ordering::Release);
        let mut begun = 0;
        assert!(consumer.has_events());
        for times in 0..3 {
            let moved = consumer.pop(|arrival| match arrival {
                Arrival::Begun { .. } => begun += 1,
                Arrival::Whole(_) | Arrival::Rest(_) => panic!("nobody has taken it"),
            });
            assert_eq!((moved, begun, consumer.has_events()), (times == 0, 1, false));
        }
        producer.state(0).store(whole_state, Ordering::Release);
        assert!(consumer.has_events());
        assert!(consumer.pop(whole(|shown| assert_eq!(shown, bytes))));
        assert!(!consumer.has_events());
    }

    #[test]
    fn a_pool_that_cannot_be_opened_ends_what_comes() {
        let (mut producer, mut consumer) = pair();
        let mut pool = Segment::create(Segment::CHUNK_LEN).unwrap();
        producer.push_long(&with_body(100, 1), (0, LINE - HEAD), (&mut pool, 0), false);
        assert!(producer.push(&frame(8, 2)));
        assert!(consumer.has_events());
        // It is shorter than a pool.
        for _ in 0..2 {
            assert!(!consumer.pop(|_| panic!("nothing can be read")));
            assert!(consumer.is_broken() && !consumer.has_events());
        }
    }

    #[test]
    fn two_threads_pass_long_frames_piece_by_piece() {
        let (mut producer, mut consumer) = pair();
        let lens = [5000, 8192, 20_000, 4096, 30_000];
        let sent =
            move |number: usize| with_body(lens[number % lens.len()] + number % 130, number as u8);
        let rounds = 5000;
        let sender = std::thread::spawn(move || {
            for number in 0..rounds {
                let frame = sent(number);
                while !producer.push(&frame) {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..rounds {
            let bytes = bytes_of(&sent(number));
            let (mut come, mut is_whole) = (0, false);
            while !is_whole {
                consumer.pop(|arrival| match arrival {
                    Arrival::Whole(shown) => {
                        assert!(come == 0 && shown == bytes);
                        is_whole = true;
                    }
                    Arrival::Begun { bytes: shown, len, taken } => {
                        assert!(come == 0 && len == bytes.len() && bytes.starts_with(shown));
                        *taken = !number.is_multiple_of(3);
                        come = if *taken { shown.len() } else { 0 };
                    }
                    Arrival::Rest(shown) => {
                        assert_eq!(
                            shown,
                            &bytes[come..][..shown.len()],
                            "frame {number} from {come}"
                        );
                        come += shown.len();
                        is_whole = come == bytes.len();
                    }
                });
                if !is_whole {
                    std::thread::yield_now();
                }
            }
        }
        sender.join().unwrap();
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
            let check = |bytes: &[u8]| {
                let (head, tail) = bytes.split_at(bytes.len() - 4);
                assert_eq!(tail, number.to_le_bytes());
                assert_eq!(head, frame((number % 3000) as usize, number as u8).head);
            };
            while !consumer.pop(whole(check)) {
                std::thread::yield_now();
            }
        }
        sender.join().unwrap();
    }
}
