//! What was sent last, once more, where packets get lost.
//!
//! A packet that is lost before others is missed within a round trip. The last of a message has none behind it: the protocol
//! asks after a round trip and more whether it has come, and repeats it when the answer, a round trip later, says that it
//! has not. So where a path is known to lose packets, the last bytes of what has left follow once more when nothing else has
//! for a moment, in a datagram. The receiver takes from it what the stream has not brought; and as it is acknowledged, what
//! was lost before it is missed as soon as in the midst of a message.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

/// What was sent last.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Echoes are wanted: else nothing is kept for them.
    is_kept: bool,
    /// The last bytes that the stream was given since: [`LEN_MAX`] of them at least, if there were so many.
    bytes: Vec<u8>,
    /// All that it was given.
    end: u64,
    /// What no echo has had, of those.
    fresh: usize,
    due: Option<Instant>,
}

impl Tail {
    /// Whether echoes are wanted, from now on.
    pub fn keep(&mut self, is_kept: bool) {
        if is_kept != self.is_kept {
            *self = Self { is_kept, end: self.end, ..Self::default() };
        }
    }

    /// The stream was given so much more.
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

    /// Something has left, and nothing is to leave behind it: an echo may, unless something does.
    pub fn plan(&mut self, now: Instant, round_trip: Duration) {
        self.due = Some(now + (round_trip / PATIENCE_SHARE).clamp(PATIENCE_MIN, PATIENCE_MAX));
    }

    /// When the echo is to leave.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether it is time for an echo, which is then not planned any more.
    pub fn take_due(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// The echo: where in the stream it belongs, and at most so many bytes in all. Where only repeats have left since the
    /// last it has no bytes of the stream, and is acknowledged all the same.
    pub fn echo(&mut self, most: usize) -> Bytes {
        let len = self.fresh.min(most.saturating_sub(HEADER_LEN));
        let mut echo = BytesMut::with_capacity(HEADER_LEN + len);
        echo.put_u64_le(self.end - len as u64);
        echo.put_slice(&self.bytes[self.bytes.len() - len..]);
        self.fresh = 0;
        echo.freeze()
    }
}

/// What has come of a stream, by itself and by echoes.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What the stream has brought.
    brought: u64,
    /// What was taken, from the stream or before it came: never less.
    taken: u64,
    /// The latest echo that goes on behind that, and where it begins.
    echo: Option<(u64, Bytes)>,
}

impl Heard {
    /// The stream has brought these bytes, of which those are told that were not known.
    pub fn bring(&mut self, bytes: Bytes) -> Bytes {
        let known = (self.taken - self.brought).min(bytes.len() as u64);
        self.brought += bytes.len() as u64;
        self.taken = self.taken.max(self.brought);
        bytes.slice(known as usize..)
    }

    /// An echo has come; what is none is thrown away.
    pub fn keep(&mut self, echo: Bytes) {
        let Some(begin) = echo.first_chunk::<HEADER_LEN>() else { return };
        let begin = u64::from_le_bytes(*begin);
        let (bytes, end_of) = (echo.slice(HEADER_LEN..), |begin: u64, bytes: &Bytes| {
            begin.saturating_add(bytes.len() as u64)
        });
        let known = self.echo.as_ref().map_or(self.taken, |(begin, bytes)| end_of(*begin, bytes));
        if end_of(begin, &bytes) > known.max(self.taken) {
            self.echo = Some((begin, bytes));
        }
    }

    /// What the echo has of what comes next in the stream, when all that the stream has brought was taken.
    pub fn fill(&mut self) -> Option<Bytes> {
        let (begin, bytes) = self.echo.take_if(|(begin, _)| *begin <= self.taken)?;
        let known =
            usize::try_from(self.taken - begin).ok().filter(|known| *known < bytes.len())?;
        let bytes = bytes.slice(known..);
        self.taken += bytes.len() as u64;
        Some(bytes)
    }
}

/// Whether so much gets lost that an echo pays: of the packets that were sent, or of what jobs before have sent. It costs a
/// packet; what it saves is a round trip and a half.
pub(super) fn pays(sent: u64, lost: u64, remembered: Option<f64>) -> bool {
    let is_seen = lost >= LOST_MIN && lost.saturating_mul(LOSSY_SHARE) >= sent;
    is_seen || remembered.is_some_and(|loss| loss * LOSSY_SHARE as f64 >= 1.0)
}

/// The last packet is no longer.
const LEN_MAX: usize = 1472;
/// Where in the stream the bytes belong.
const HEADER_LEN: usize = 8;
/// An echo waits for such a part of a round trip for something else to leave: what is missed without it is missed later than
/// that anyway…
const PATIENCE_SHARE: u32 = 16;
/// …but for long enough that frames posted in a row have one together.
const PATIENCE_MIN: Duration = Duration::from_micros(200);
const PATIENCE_MAX: Duration = Duration::from_millis(2);
/// One packet in so many is much.
const LOSSY_SHARE: u64 = 4096;
/// A single one says nothing.
const LOST_MIN: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept() -> Tail {
        Tail { is_kept: true, ..Tail::default() }
    }

    proptest! {
        /// Whatever of a stream is written at once, comes at once or is echoed: what is taken is the stream.
        #[test]
        fn what_is_taken_is_the_stream(
            steps in prop::collection::vec((0usize..4000, 0usize..1500, any::<bool>(), 0usize..5000), 1..40),
        ) {
            let (mut tail, mut heard) = (kept(), Heard::default());
            let (mut written, mut brought, mut taken) = (Vec::new(), 0, Vec::new());
            for (len, most, is_lost, comes) in steps {
                let more: Vec<u8> = (written.len()..written.len() + len).map(|at| (at * 7 / 3) as u8).collect();
                tail.note_written(&more);
                written.extend(more);
                let echo = tail.echo(most);
                prop_assert!(echo.len() <= most.max(HEADER_LEN));
                if !is_lost {
                    heard.keep(echo);
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
        fn whatever_a_peer_sends_for_an_echo_is_thrown_away_or_taken(
            echoes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..20),
        ) {
            let mut heard = Heard::default();
            for echo in echoes {
                heard.keep(echo.into());
                heard.fill();
            }
        }
    }

    #[test]
    fn the_last_bytes_come_though_the_stream_brings_them_not() {
        let (mut tail, mut heard) = (kept(), Heard::default());
        tail.note_written(b"a hello");
        tail.note_written(b", a frame");
        assert_eq!(heard.bring(Bytes::from_static(b"a hello")), b"a hello"[..]);
        heard.keep(tail.echo(100));
        assert_eq!(heard.fill().unwrap(), b", a frame"[..]);
        assert_eq!(heard.fill(), None);
        tail.note_written(b", more");
        let (echo, empty) = (tail.echo(100), tail.echo(100));
        assert_eq!((echo.len(), empty.len()), (HEADER_LEN + 6, HEADER_LEN), "only what is new");
        [echo, empty].into_iter().for_each(|echo| heard.keep(echo));
        assert_eq!(heard.bring(Bytes::from_static(b", a frame, mo")), b", mo"[..]);
        assert_eq!(heard.fill().unwrap(), b"re"[..]);
        assert_eq!(heard.bring(Bytes::from_static(b"re")), b""[..]);
    }

    #[test]
    fn nothing_is_kept_where_no_echo_is_wanted() {
        let (mut tail, mut heard) = (Tail::default(), Heard::default());
        tail.note_written(b"a hello");
        assert_eq!(tail.echo(100).len(), HEADER_LEN);
        tail.keep(true);
        tail.note_written(b", a frame");
        heard.bring(Bytes::from_static(b"a hello"));
        tail.keep(true);
        heard.keep(tail.echo(100));
        assert_eq!(heard.fill().unwrap(), b", a frame"[..]);
        tail.plan(Instant::now(), Duration::ZERO);
        tail.keep(false);
        assert!(tail.bytes.is_empty() && tail.due().is_none());
    }

    #[test]
    fn an_echo_is_due_when_nothing_has_left_for_a_moment() {
        let (mut tail, begin) = (kept(), Instant::now());
        let ms = Duration::from_millis;
        assert!(!tail.take_due(begin + ms(100)), "nothing has left");
        tail.plan(begin, ms(16));
        tail.plan(begin + ms(1), ms(16));
        assert!(!tail.take_due(begin + ms(1)));
        assert!(tail.take_due(begin + ms(2)) && !tail.take_due(begin + ms(3)), "once");
    }

    #[test]
    fn one_packet_in_some_thousand_is_worth_an_echo() {
        assert!(!pays(100, 1, None), "a single one");
        assert!(pays(100, 2, None) && pays(8000, 2, None) && !pays(9000, 2, None));
        assert!(pays(0, 0, Some(0.001)) && !pays(0, 0, Some(0.0001)) && !pays(0, 0, None));
    }
}
