//! A single-producer single-consumer ring of frames in shared memory.
//!
//! Records begin on cache lines. The first word of a record is its *state*: 0 while it is empty,
//! then the frame's length plus one, or [`PAD`]. The producer writes the frame and then the state
//! (release); the consumer polls the state of the next record (acquire), so that a short frame costs
//! one cache line's trip. Having used a record, the consumer clears the first word of every line it
//! covers — any of them may be a state in the next lap — and then returns the room through `used`
//! (release), which the producer reads (acquire) only when the room it knows of is exhausted.
//!
//! A frame longer than that lies in a chunk of the producer's pool; its record is a state word that names it.
//!
//! What is long *cuts through*: its state is there when the first of its lines is, and says, rewritten by the
//! producer, how many are, so that the consumer copies the first pieces out while the last are still copied in.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memory::Region;
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
    through: Through,
    /// Where `consumed` is told to who looks on; nothing follows from it but a look.
    shown: Option<Arc<AtomicU64>>,
}

/// What comes out of a ring.
pub(crate) enum Arrival<'a> {
    /// A frame, whole.
    Whole(&'a [u8]),
    /// The first bytes of a frame of `len`. Who has `taken` them is shown the rest piece by piece, who has not the
    /// whole frame.
    Begun { bytes: &'a [u8], len: usize, taken: &'a mut bool },
    /// The bytes that follow those that were taken.
    Rest(&'a [u8]),
}

/// What was shown of the frame that is next and not whole yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    Nothing,
    /// Its beginning, which was not taken.
    Declined,
    /// So many bytes.
    Taken(usize),
}

/// Where in its chunk a long frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub chunk: u16,
    pub start: usize,
    pub len: usize,
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
        debug_assert!(frame.len() <= Self::FRAME_MAX);
        let Frame { head, body: None, .. } = frame else { return self.push_with_body(frame) };
        let Some(at) = self.reserve(span_of(head.len())) else { return false };
        self.segment.write(DATA_AT + at as usize + STATE_LEN, head);
        self.state(at).store(head.len() as u64 + 1, Ordering::Release);
        true
    }

    /// As [`Producer::push`]; tells how far the body has come if it is long.
    #[inline(never)]
    fn push_with_body(&mut self, frame: &Frame) -> bool {
        let (Some(body), len) = (&frame.body, frame.len()) else { return false };
        let Some(at) = self.reserve(span_of(len)) else { return false };
        let (record, mut state) = (DATA_AT + at as usize, len as u64 + 1);
        self.segment.write(record + STATE_LEN, &frame.head);
        let (start, body_len) = (record + STATE_LEN + frame.head.len(), body.region.len());
        if body_len < S::THROUGH_MIN {
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

    /// Whether there is room for the record of a frame that lies in a chunk.
    pub fn has_room_for_place(&mut self) -> bool {
        self.has_room(LINE as u64)
    }

    /// Writes a frame to byte `start` of a chunk that was lent and begins at `at` of the pool's memory, its body past the
    /// caches or not, and its record, for which there is room. The body begins with a line.
    pub fn push_long(
        &mut self,
        frame: &Frame,
        (chunk, start): (u16, usize),
        (pool, at): (&mut S, usize),
        past: bool,
    ) {
        let record = self.reserve(LINE as u64).unwrap_or_else(|| unreachable!("there was room"));
        self.segment.word32(POOL_AT).store(pool.descriptor() as u32, Ordering::Relaxed);
        let place = Place { chunk, start, len: frame.len() };
        let tell = |lines| self.state(record).store(place.emit() | cut(lines), Ordering::Release);
        pool.write(at + start, &frame.head);
        if let Some(body) = &frame.body {
            let start = at + start + frame.head.len();
            let read = if past { Region::read_past } else { Region::read };
            write_through(pool, start, (&body.region, read), |_, end| tell((end - at) / LINE));
        }
        tell(WHOLE);
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

    fn state(&self, at: u64) -> &S::Word64 {
        self.segment.word64(DATA_AT + at as usize)
    }
}

impl<S: Shared> Consumer<S> {
    /// The consumer returns room in portions, to write the shared line seldom.
    const PUBLISH_EVERY: u64 = S::RING_LEN as u64 / 8;

    /// The consumer of a segment that a producer in process `pid` made.
    pub fn new(segment: S, pid: i32) -> Self {
        Self {
            segment,
            consumed: 0,
            published: 0,
            pid,
            lent: None,
            broken: false,
            through: Through::Nothing,
            shown: None,
        }
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

    /// Shows the next frame, or what there is more of it, to `sink`; false when there is nothing to show.
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

    /// As [`Consumer::pop`], of a frame that cuts through.
    #[inline(never)]
    fn pop_through(
        &mut self,
        at: usize,
        mut state: u64,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> bool {
        let place = (state & CHUNK_FLAG != 0).then(|| Place::parse(state));
        if place.is_some() && !self.borrow() {
            return false;
        }
        let len = place.map_or_else(|| len_in_ring::<S>(state, at), |place| place.len);
        let lead = place.map_or(STATE_LEN, |place| place.start);
        let (mut waited, mut moved) = (0, false);
        loop {
            let ready = ready_of(state, lead, len);
            match self.through {
                Through::Nothing if ready < len => {
                    let mut taken = false;
                    let bytes = self.shown(at, place, 0..ready);
                    sink(Arrival::Begun { bytes, len, taken: &mut taken });
                    self.through = if taken { Through::Taken(ready) } else { Through::Declined };
                    return true;
                }
                Through::Declined if ready < len => return false,
                Through::Nothing | Through::Declined => {
                    sink(Arrival::Whole(self.shown(at, place, 0..len)));
                    break;
                }
                Through::Taken(before) if ready > before => {
                    sink(Arrival::Rest(self.shown(at, place, before..ready)));
                    self.through = Through::Taken(ready);
                    if ready == len {
                        break;
                    }
                    (waited, moved) = (0, true);
                }
                // Its producer is at the next piece, or not there.
                Through::Taken(_) if waited == PIECE_SPINS => return moved,
                Through::Taken(_) => {
                    waited += 1;
                    S::pause();
                }
            }
            state = self.segment.word64(DATA_AT + at).load(Ordering::Acquire);
        }
        self.through = Through::Nothing;
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

    /// Bytes of the frame at `at`, or at `place`.
    fn shown(&self, at: usize, place: Option<Place>, range: Range<usize>) -> &[u8] {
        match (place, &self.lent) {
            (Some(place), Some(lent)) => {
                lent.bytes(place.chunk, place.start + range.start, range.len())
            }
            _ => self.segment.slice(DATA_AT + at + STATE_LEN + range.start, range.len()),
        }
    }

    /// Clears the lines of a record, for states to be written there, and gives them back.
    #[inline]
    fn clear(&mut self, at: usize, len: usize) {
        let span = span_of(len);
        for line in 0..span as usize / LINE {
            self.segment.word64(DATA_AT + at + line * LINE).store(0, Ordering::Relaxed);
        }
        self.release(span);
    }

    /// Attaches to the producer's pool, if that was not done before; whether it can be read.
    fn borrow(&mut self) -> bool {
        if self.lent.is_none() && !self.broken {
            let descriptor = self.segment.word32(POOL_AT).load(Ordering::Relaxed) as i32;
            self.lent = Lent::attach(self.pid, descriptor).ok();
            self.broken = self.lent.is_none();
        }
        !self.broken
    }

    /// Whether nothing more comes out because the producer's pool could not be opened.
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

    /// Whether a frame is there, or more of one than was shown.
    pub fn has_events(&self) -> bool {
        let at = (self.consumed % S::RING_LEN as u64) as usize;
        let state = self.segment.word64(DATA_AT + at).load(Ordering::Acquire);
        if self.broken || state == 0 || state & (PAD_FLAG | CUT_FLAG) != CUT_FLAG {
            return !self.broken && state != 0;
        }
        let place = (state & CHUNK_FLAG != 0).then(|| Place::parse(state));
        let len = place.map_or_else(|| len_in_ring::<S>(state, at), |place| place.len);
        let ready = ready_of(state, place.map_or(STATE_LEN, |place| place.start), len);
        match self.through {
            Through::Nothing => true,
            Through::Declined => ready == len,
            Through::Taken(before) => ready > before,
        }
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
    /// The state word of the record besides how much is there: the length, and from bit 32 on the chunk, from bit 40 on the
    /// start.
    fn emit(self) -> u64 {
        debug_assert!(self.len <= CHUNK_FRAME_MAX && self.start <= START_MAX && self.chunk < 256);
        let (start, chunk, len) = (self.start as u64, u64::from(self.chunk), self.len as u64);
        CHUNK_FLAG | start << START_SHIFT | chunk << 32 | len
    }

    /// A peer that writes nonsense is bounded to nonsense within a chunk.
    fn parse(state: u64) -> Self {
        let start = (state >> START_SHIFT) as usize & START_MAX;
        let len = (state & LEN_MASK) as usize;
        Self { chunk: (state >> 32) as u16 & 0xff, start, len: len.min(CHUNK_FRAME_MAX) }
    }
}

/// Length of the frame in the ring that a state tells of. A peer that writes nonsense is bounded to nonsense within the
/// ring.
#[inline]
fn len_in_ring<S: Shared>(state: u64, at: usize) -> usize {
    let len = ((state & LEN_MASK) as usize).saturating_sub(1);
    len.min(Producer::<S>::FRAME_MAX).min(S::RING_LEN - at - STATE_LEN)
}

/// What the state of a frame that cuts through says besides, when so many lines are there.
fn cut(lines: usize) -> u64 {
    CUT_FLAG | (lines as u64) << LINES_SHIFT
}

/// How many bytes are there of a frame of `len` that begins `lead` bytes behind a line.
fn ready_of(state: u64, lead: usize, len: usize) -> usize {
    match (state >> LINES_SHIFT) as usize & WHOLE {
        WHOLE => len,
        lines => (lines * LINE).saturating_sub(lead).min(len),
    }
}

/// How bytes of a body are written from some offset on.
type Read = fn(&Region, usize, &mut [u8]);

/// Writes a body to byte `at`, in pieces that end with lines, and tells before each but the first where it begins.
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
const START_SHIFT: u32 = 40;
const START_MAX: usize = (1 << 17) - 1;
/// The state of a frame that cuts through: bits 0..17 say how long it is, bits 17..30 how many lines of it are there.
const CUT_FLAG: u64 = 1 << 31;
const LEN_MASK: u64 = (1 << LINES_SHIFT) - 1;
const LINES_SHIFT: u32 = 17;
const WHOLE: usize = (1 << 13) - 1;
/// So many pieces are made of what is long.
const PIECES: usize = 4;
/// So many pauses a consumer waits for the next piece, which takes its producer a few hundred nanoseconds.
const PIECE_SPINS: u32 = 20;

/// Length in bytes of what a ring of `S` lies in.
pub(crate) const fn segment_len<S: Shared>() -> usize {
    DATA_AT + S::RING_LEN
}

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
    fn what_is_long_is_shown_while_it_is_written() {
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
    fn what_was_not_taken_at_its_beginning_comes_whole() {
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
