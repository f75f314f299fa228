//! Frames on a byte stream: one authenticated connection.

#[cfg(test)]
mod placing_tests;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};

use auth::Channel;
use memory::Region;
use rail::{Fault, Post};
use wire::{Frame, FrameToken, Incoming, packet};

/// A connection that carries frames: each is preceded by its length and the length's complement.
#[derive(Debug)]
pub(crate) struct FrameStream {
    pub channel: Channel,
    /// Received bytes are `buffer[start..end]`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    queue: VecDeque<Outgoing>,
    /// True if a frame was refused for lack of room or budget.
    pub refused: bool,
    /// Send budget between two polls, in bytes: see [`FrameStream::post`].
    pub burst: usize,
    /// Rest of the budget, and the poll that it was set in.
    budget: usize,
    poll: u32,
    /// True if the peer has sent a goodbye.
    closed: bool,
    /// True if the peer has sent padding.
    pub padded: bool,
    through: Through,
}

/// State of a frame of which only a part has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    /// Into the buffer; its beginning has not been shown.
    Unknown,
    /// Into the buffer, whole: the sink did not take its beginning.
    Whole,
    /// Straight to its place: so many bytes are to come.
    Taken(usize),
}

/// Output of [`FrameStream::deliver`].
#[derive(Debug)]
pub(crate) enum Arrival<'a> {
    /// A whole frame.
    Frame(&'a [u8]),
    /// The first bytes of a frame of `len` bytes. If the sink sets `taken`, [`FrameStream::receive_rest`] brings the
    /// others.
    Begun { bytes: &'a [u8], len: usize, taken: &'a mut bool },
}

/// A frame, or the unsent rest of one.
#[derive(Debug)]
struct Outgoing {
    head: Vec<u8>,
    head_done: usize,
    body: Option<Region>,
    body_done: usize,
    token: Option<FrameToken>,
}

/// The result of reading the socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Nothing,
    Bytes,
    End(Fault),
}

impl FrameStream {
    pub fn new(channel: Channel) -> Self {
        Self {
            channel,
            buffer: vec![0; BUFFER_FIRST],
            start: 0,
            end: 0,
            queue: VecDeque::new(),
            refused: false,
            burst: usize::MAX,
            budget: usize::MAX,
            poll: 0,
            closed: false,
            padded: false,
            through: Through::Unknown,
        }
    }

    /// Sends a frame, or as much of it as the socket takes, and queues the rest. Long frames beyond the budget
    /// between two polls are refused. Bytes in the kernel go first, and messages that the application submits
    /// meanwhile can pass the long ones.
    pub fn post(&mut self, frame: &Frame, poll: u32) -> Result<Post, io::Error> {
        if self.poll != poll {
            self.poll = poll;
            self.budget = self.burst;
        }
        if self.queue.len() >= DEPTH || (self.budget == 0 && frame.body.is_some()) {
            self.refused = true;
            return Ok(Post::Full);
        }
        self.budget = self.budget.saturating_sub(frame.len());
        let header = header_of(frame.len());
        if !self.queue.is_empty() {
            self.queue.push_back(Outgoing::new(&header, frame, 0));
            return Ok(if frame.body.is_some() { Post::Held } else { Post::Done });
        }
        let body = frame.body.as_ref().map(|body| &body.region);
        let sent = send(&mut self.channel, &[&header, &frame.head], body, 0)?;
        if sent == HEADER_LEN + frame.len() {
            return Ok(Post::Done);
        }
        self.queue.push_back(Outgoing::new(&header, frame, sent));
        Ok(if frame.body.is_some() { Post::Held } else { Post::Done })
    }

    /// Sends the queued bytes; reports the tokens of frames that are gone.
    pub fn flush(&mut self, sent: &mut dyn FnMut(FrameToken)) -> Result<bool, io::Error> {
        let mut moved = self.channel.flush()?;
        while let Some(first) = self.queue.front_mut() {
            let count = first.send(&mut self.channel)?;
            moved |= count > 0;
            if !first.is_done() {
                break;
            }
            let token = first.token.filter(|_| first.body.is_some());
            self.queue.pop_front();
            if let Some(token) = token {
                sent(token);
            }
        }
        Ok(moved)
    }

    /// Sends padding until the socket is full or `most` bytes are queued; returns the count.
    pub fn pad(&mut self, most: usize) -> Result<usize, io::Error> {
        let mut count = 0;
        while count < most && self.is_flushed() {
            self.queue.push_back(Outgoing::padding(PADDING_LEN));
            count += PADDING_LEN;
            self.flush(&mut |_| {})?;
        }
        Ok(count)
    }

    /// Sends up to `most` packets of short padding, as many as the socket takes; returns the count.
    pub fn pad_shortly(&mut self, most: u64) -> Result<u64, io::Error> {
        let mut count = 0;
        while count < most && self.is_flushed() {
            self.queue.push_back(Outgoing::padding(PADDING_SHORT));
            count += 1;
            self.channel.ends_packets = true;
            let flushed = self.flush(&mut |_| {});
            self.channel.ends_packets = false;
            flushed?;
        }
        Ok(count)
    }

    /// Admits refused frames, without a budget until the next poll, if there is room. Returns true if so.
    pub fn invite(&mut self, poll: u32) -> bool {
        if !self.refused || !self.has_room() {
            return false;
        }
        (self.refused, self.poll, self.budget) = (false, poll, usize::MAX);
        true
    }

    pub fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.channel.is_flushed()
    }

    fn has_room(&self) -> bool {
        self.queue.len() < DEPTH
    }

    /// Reads once into the buffer, without blocking.
    pub fn receive(&mut self) -> Received {
        self.make_room();
        let read = self.channel.read(&mut self.buffer[self.end..]);
        if let Ok(count) = read {
            self.end += count;
        }
        self.received(read)
    }

    /// True if the sink takes the frame in pieces: [`receive_rest`](Self::receive_rest) reads on.
    pub fn is_through(&self) -> bool {
        matches!(self.through, Through::Taken(_))
    }

    /// Reads the next bytes of a frame that the sink takes in pieces, once and without blocking, and passes them to
    /// `sink`. Bytes behind the frame go to the buffer.
    pub fn receive_rest(&mut self, sink: &mut dyn FnMut(Incoming<'_>)) -> Received {
        let mut read = None;
        sink(Incoming::Unread(&mut |target| {
            let (result, count) = self.read_rest(target);
            read = Some(result);
            count
        }));
        // The sink discards the bytes.
        let result = read.unwrap_or_else(|| self.read_rest(&Region::empty()).0);
        self.received(result)
    }

    /// Reads bytes of the current frame into `target`, further ones into the buffer. Returns the result, and how many
    /// of the bytes are the frame's.
    fn read_rest(&mut self, target: &Region) -> (io::Result<usize>, usize) {
        let Through::Taken(left) = self.through else {
            return (Err(ErrorKind::WouldBlock.into()), 0);
        };
        let stored = target.len().min(left);
        // Scattered memory is filled from the buffer.
        let span = target.as_span().filter(|_| stored == left);
        let direct: &mut [u8] = match span {
            // SAFETY: the region's maker vouched for the memory until the receive ends, which does not happen before
            // this call returns. No other reference to it exists in this process.
            Some(span) => unsafe { std::slice::from_raw_parts_mut(span.address, left) },
            None => &mut [],
        };
        let room = direct.len();
        let behind = if room > 0 { BEHIND } else { self.buffer.len() };
        let buffer = IoSliceMut::new(&mut self.buffer[..behind]);
        let read = self.channel.read_slices(&mut [IoSliceMut::new(direct), buffer]);
        let count = *read.as_ref().unwrap_or(&0);
        let of_frame = count.min(left);
        (self.start, self.end) = (of_frame.saturating_sub(room), count.saturating_sub(room));
        target.begin_write(0, &self.buffer[..self.start.min(stored)]);
        self.through = match left - of_frame {
            0 => Through::Unknown,
            left => Through::Taken(left),
        };
        (read, of_frame)
    }

    fn received(&self, read: io::Result<usize>) -> Received {
        match read {
            Ok(0) if self.closed => Received::End(Fault::Closed),
            Ok(0) => Received::End(Fault::Lost("the peer closed the connection".into())),
            Ok(_) => Received::Bytes,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Received::Nothing
            }
            // A peer that has said goodbye discards later bytes.
            Err(_) if self.closed => Received::End(Fault::Closed),
            Err(error) => Received::End(Fault::Lost(error.to_string())),
        }
    }

    /// Delivers the complete frames received, at most `BURST`, and the beginning of a long one.
    pub fn deliver(&mut self, sink: &mut dyn FnMut(Arrival<'_>)) -> Result<usize, Fault> {
        let mut frames = 0;
        while frames < BURST {
            if self.buffer[self.start..self.end].starts_with(&GOODBYE) {
                self.closed = true;
                self.start += HEADER_LEN;
                continue;
            }
            let Some(next) = self.next()? else { break };
            let from = self.start + HEADER_LEN;
            let end = from + next.len();
            if self.end < end {
                self.show_beginning(next, from, sink);
                break;
            }
            match next {
                Next::Frame(_) => sink(Arrival::Frame(&self.buffer[from..end])),
                Next::Padding(_) => self.padded = true,
            }
            self.start = end;
            self.through = Through::Unknown;
            frames += 1;
        }
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        Ok(frames)
    }

    /// Shows the beginning of a frame at `from`, once, if it is long and most of it is still to come.
    fn show_beginning(&mut self, next: Next, from: usize, sink: &mut dyn FnMut(Arrival<'_>)) {
        let Next::Frame(len) = next else { return };
        let come = self.end - from;
        if self.through != Through::Unknown || come < BEGINNING_MIN || len - come < REST_MIN {
            return;
        }
        let mut taken = false;
        let bytes = &self.buffer[from..self.end];
        sink(Arrival::Begun { bytes, len, taken: &mut taken });
        self.through = Through::Whole;
        if taken {
            self.through = Through::Taken(len - come);
            self.start = self.end;
        }
    }

    /// True if [`deliver`](Self::deliver) has something to do: a complete frame, a goodbye, or an error.
    pub fn has_frame(&self) -> bool {
        match self.next() {
            Ok(Some(next)) => self.end - self.start >= HEADER_LEN + next.len(),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// True if there are frames to deliver, or bytes to receive that the socket does not report.
    pub fn has_more(&self) -> bool {
        self.has_frame() || self.channel.holds_more()
    }

    /// Sends a goodbye if the socket takes it at once.
    pub fn say_goodbye(&mut self) {
        if self.flush(&mut |_| {}).is_ok() && self.is_flushed() {
            // Without the goodbye the peer finds the connection closed.
            let _ = self.channel.write(&GOODBYE);
        }
    }

    fn next(&self) -> Result<Option<Next>, Fault> {
        let Some(header) = self.buffer[self.start..self.end].first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        match next_of(header) {
            Some(next) => Ok(Some(next)),
            None => Err(Fault::Misbehaved("a frame with an impossible header".into())),
        }
    }

    /// Makes room for the rest of the current frame and for more behind it.
    fn make_room(&mut self) {
        let wanted = match self.next() {
            Ok(Some(next)) => HEADER_LEN + next.len(),
            Ok(None) | Err(_) => HEADER_LEN,
        };
        if self.start + wanted <= self.buffer.len() && self.buffer.len() - self.end >= READ_MIN {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if wanted + READ_MIN > self.buffer.len() {
            self.buffer.resize(2 * FRAME_MAX, 0);
        }
    }
}

impl Outgoing {
    /// Returns the rest of a frame after `sent` bytes, header included.
    fn new(header: &[u8; HEADER_LEN], frame: &Frame, sent: usize) -> Self {
        let mut head = Vec::with_capacity(HEADER_LEN + frame.head.len());
        head.extend(header);
        head.extend(&frame.head);
        let head_done = sent.min(head.len());
        let body = frame.body.as_ref().map(|body| body.region.clone());
        Self { body_done: sent - head_done, head_done, head, body, token: frame.token }
    }

    fn padding(len: usize) -> Self {
        let mut head = vec![0; HEADER_LEN + len];
        head[..HEADER_LEN].copy_from_slice(&header_of(PADDING | len));
        Self { head, head_done: 0, body: None, body_done: 0, token: None }
    }

    fn is_done(&self) -> bool {
        let body = self.body.as_ref().map_or(0, Region::len);
        self.head_done == self.head.len() && self.body_done == body
    }

    fn send(&mut self, channel: &mut Channel) -> Result<usize, io::Error> {
        let head = &self.head[self.head_done..];
        let sent = send(channel, &[head], self.body.as_ref(), self.body_done)?;
        let head_sent = sent.min(head.len());
        self.head_done += head_sent;
        self.body_done += sent - head_sent;
        Ok(sent)
    }
}

/// Sends `heads` and the body from `body_from` on in one call, without copying; returns 0 if the socket is full.
fn send(
    channel: &mut Channel,
    heads: &[&[u8]],
    body: Option<&Region>,
    body_from: usize,
) -> Result<usize, io::Error> {
    let mut slices: [IoSlice<'_>; SLICES_MAX] = [IoSlice::new(&[]); SLICES_MAX];
    let mut count = 0;
    for head in heads {
        slices[count] = IoSlice::new(head);
        count += 1;
    }
    if let Some(body) = body {
        body.visit(body_from, body.len() - body_from, &mut |span| {
            // SAFETY: the region's maker vouched for the memory until the send completes, and it
            // does not complete before this call returns.
            let bytes = unsafe { std::slice::from_raw_parts(span.address, span.len) };
            slices[count] = IoSlice::new(bytes);
            count += 1;
            count < SLICES_MAX
        });
    }
    match channel.write_slices(&mut slices[..count]) {
        Ok(sent) => Ok(sent),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        Err(error) => Err(error),
    }
}

fn header_of(len: usize) -> [u8; HEADER_LEN] {
    let len = len as u32;
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&len.to_le_bytes());
    header[4..].copy_from_slice(&(!len).to_le_bytes());
    header
}

/// The kind and length of the bytes after a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Frame(usize),
    /// Padding, to be discarded.
    Padding(usize),
}

impl Next {
    fn len(self) -> usize {
        match self {
            Self::Frame(len) | Self::Padding(len) => len,
        }
    }
}

/// Decodes a header; `None` if it contradicts itself or exceeds the limit.
#[inline]
fn next_of(header: &[u8; HEADER_LEN]) -> Option<Next> {
    let word = u64::from_le_bytes(*header);
    let len = word as u32;
    if len != !((word >> 32) as u32) {
        return None;
    }
    match len as usize {
        len @ 0..=FRAME_MAX => Some(Next::Frame(len)),
        len => (len & !PADDING <= PADDING_LEN).then_some(Next::Padding(len & !PADDING)),
    }
}

/// Maximum length of a frame: a few system calls per megabyte, and short enough to share a link fairly.
pub(crate) const FRAME_MAX: usize = 256 << 10;

/// Length of a frame's header on the stream.
const HEADER_LEN: usize = 8;
/// Header of a goodbye: a length beyond all limits.
const GOODBYE: [u8; HEADER_LEN] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Flag in the length of padding.
const PADDING: usize = 1 << 31;
/// Length of one padding block: the longest that a frame behind it waits for.
const PADDING_LEN: usize = 16 << 10;
/// Length of short padding: from 128 bytes on, the receiver's kernel opens its window for more (Linux,
/// `tcp_event_data_recv`).
pub(crate) const PADDING_SHORT: usize = 128;
/// Maximum number of frames queued behind a full socket.
const DEPTH: usize = 2;
/// Maximum number of frames delivered before other connections are read.
const BURST: usize = 16;
/// First size of the receive buffer; it grows when long frames come.
const BUFFER_FIRST: usize = 64 << 10;
/// Minimum room for a read.
const READ_MIN: usize = 16 << 10;
/// Minimum number of bytes of a frame to show: an ACK and the header of a piece of a message.
const BEGINNING_MIN: usize = packet::ACK_LEN + packet::DATA_LEN;
/// Minimum number of bytes to come of a frame that is shown: they save more than a system call costs.
const REST_MIN: usize = 16 << 10;
/// Room for bytes behind a frame that is read where it belongs: the beginning of the next one, or some short ones.
const BEHIND: usize = 4 << 10;
/// Maximum number of memory pieces in one system call.
const SLICES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use auth::Identity;
    use proptest::prelude::*;
    use wire::Body;

    use super::*;

    pub fn pair() -> (FrameStream, FrameStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (FrameStream::new(Channel::new(one)), FrameStream::new(Channel::new(other)))
    }

    /// Returns an encrypted pair.
    pub fn private_pair() -> (FrameStream, FrameStream) {
        let identity = Identity::of(&[1; 32].into(), 2);
        let (mut one, mut other) = pair();
        one.channel.encrypt_as_client(&identity).unwrap();
        other.channel.encrypt_as_server(&identity).unwrap();
        while ![&mut one, &mut other].map(|end| end.channel.agree().unwrap()).iter().all(|it| *it) {
        }
        (one, other)
    }

    fn frame(number: u64, len: usize) -> Frame {
        let body = (0..len).map(|i| (i as u64 * 7 + number) as u8).collect();
        let region = Region::from_box(body);
        let token = Some(FrameToken(number));
        Frame { head: number.to_le_bytes().into(), body: Some(Body { region }), token }
    }

    #[test]
    fn long_and_short_frames_pass_a_full_socket_in_order() {
        pass_frames(pair());
        pass_frames(private_pair());
    }

    fn pass_frames((mut one, mut other): (FrameStream, FrameStream)) {
        let lengths = [0, 1, 5000, FRAME_MAX - 8, 70_000];
        let (mut posted, mut seen, mut tokens) = (0, 0, Vec::new());
        let mut held = Vec::new();
        while seen < 100u64 {
            if posted < 100 {
                let frame = frame(posted, lengths[posted as usize % 5]);
                match one.post(&frame, 0).unwrap() {
                    Post::Full => {}
                    Post::Held => {
                        held.push(FrameToken(posted));
                        posted += 1;
                    }
                    Post::Done => posted += 1,
                }
            }
            one.flush(&mut |token| tokens.push(token)).unwrap();
            assert!(one.queue.len() <= DEPTH);
            assert!(!matches!(other.receive(), Received::End(_)));
            other
                .deliver(&mut whole(|bytes| {
                    let expected = frame(seen, lengths[seen as usize % 5]);
                    assert_eq!(bytes[..8], expected.head);
                    assert_eq!(bytes[8..], expected.body.unwrap().region.to_vec());
                    seen += 1;
                }))
                .unwrap();
        }
        assert_eq!(tokens, held);
        one.say_goodbye();
        drop(one);
        let end = loop {
            match other.receive() {
                Received::End(fault) => break fault,
                Received::Bytes => {
                    assert_eq!(other.deliver(&mut whole(|_| panic!("a frame nobody sent"))), Ok(0))
                }
                Received::Nothing => {}
            }
        };
        assert_eq!(end, Fault::Closed);
    }

    /// Takes no frame in pieces.
    fn whole(mut sink: impl FnMut(&[u8])) -> impl FnMut(Arrival<'_>) {
        move |arrival| match arrival {
            Arrival::Frame(bytes) => sink(bytes),
            Arrival::Begun { .. } => {}
        }
    }

    #[test]
    fn long_frames_are_read_where_they_belong() {
        for (mut one, mut other) in [pair(), private_pair()] {
            for (number, room) in [(0, FRAME_MAX), (1, 50_000), (2, 0), (3, FRAME_MAX)] {
                let target = if number == 3 { scattered(room) } else { Region::owned(room) };
                let sent = frame(number, FRAME_MAX - 8);
                let (mut at, mut shown, mut short) = (0, Vec::new(), Vec::new());
                let mut posts = vec![frame(9, 3), sent.clone()];
                while short.is_empty() || one.flush(&mut |_| {}).unwrap() || other.has_more() {
                    if let Some(next) = posts.last()
                        && one.post(next, 0).unwrap() != Post::Full
                    {
                        posts.pop();
                    }
                    one.flush(&mut |_| {}).unwrap();
                    let is_through = other.is_through();
                    let received = if is_through {
                        other.receive_rest(&mut |bytes| {
                            // A receive that has ended leaves some to the rail.
                            if number != 2 || at % 2 == 0 {
                                let from = at.min(room);
                                at += bytes.store(&target.slice(from, room - from));
                            }
                        })
                    } else {
                        other.receive()
                    };
                    assert!(!matches!(received, Received::End(_)));
                    other
                        .deliver(&mut |arrival| match arrival {
                            Arrival::Begun { bytes, taken, .. } => {
                                shown.extend_from_slice(bytes);
                                *taken = true;
                            }
                            Arrival::Frame(bytes) => short.extend_from_slice(bytes),
                        })
                        .unwrap();
                }
                assert_eq!(short[..8], [9, 0, 0, 0, 0, 0, 0, 0]);
                assert!(shown.len() >= BEGINNING_MIN && shown.len() <= FRAME_MAX - REST_MIN);
                let rest = &sent.body.unwrap().region.to_vec()[shown.len() - 8..];
                let stored = rest.len().min(room);
                assert_eq!(target.to_vec()[..stored], rest[..stored]);
                assert_eq!(other.buffer.len(), BUFFER_FIRST, "no buffer for a frame is needed");
            }
        }
    }

    /// Memory of `len` bytes in pieces of 8, two of them apart.
    fn scattered(len: usize) -> Region {
        let memory = Region::owned(8 * len.div_ceil(8) * 2);
        let pieces = (0..len / 8).map(|piece| memory.slice(16 * piece, 8));
        Region::chain(pieces.chain([Region::owned(len % 8)]))
    }

    #[test]
    fn padding_is_discarded_and_frames_pass_it() {
        for (mut one, mut other) in [pair(), private_pair()] {
            let mut seen = 0;
            let mut take = |other: &mut FrameStream| {
                if other.receive() == Received::Bytes || other.has_more() {
                    let mut count = |bytes: &[u8]| {
                        assert_eq!(bytes[..8], frame(seen, 0).head);
                        seen += 1;
                    };
                    while other.has_frame() {
                        other.deliver(&mut whole(&mut count)).unwrap();
                    }
                }
                seen
            };
            assert_eq!(one.pad(3 * PADDING_LEN).unwrap(), 3 * PADDING_LEN);
            assert_eq!(one.post(&frame(0, 100), 0).unwrap(), Post::Done);
            // Until the socket is full and part of a block is queued.
            assert!(one.pad(1 << 30).unwrap() < 1 << 28 && one.queue.len() <= 1);
            assert_ne!(one.post(&frame(1, 100), 0).unwrap(), Post::Full);
            let limit = Instant::now() + Duration::from_secs(20);
            while take(&mut other) < 2 {
                one.flush(&mut |_| {}).unwrap();
                assert!(Instant::now() < limit);
            }
            assert!(other.padded && one.is_flushed() && !one.padded);
            one.say_goodbye();
            drop(one);
            while take(&mut other) == 2 && !other.closed {
                assert!(Instant::now() < limit);
            }
        }
    }

    #[test]
    fn a_poll_takes_a_burst_of_long_frames_and_all_short_ones() {
        let (mut one, _other) = pair();
        one.burst = 10_000;
        for poll in 1..4 {
            assert_eq!(one.post(&frame(0, 6000), poll).unwrap(), Post::Done);
            assert_eq!(one.post(&frame(1, 6000), poll).unwrap(), Post::Done);
            let short = Frame { head: vec![7; 100], body: None, token: None };
            assert_eq!(one.post(&short, poll).unwrap(), Post::Done);
            assert!(!one.invite(poll), "nothing was refused");
            assert_eq!(one.post(&frame(2, 6000), poll).unwrap(), Post::Full);
            assert!(one.invite(poll + 10) && one.is_flushed());
            for number in 2..5 {
                assert_eq!(one.post(&frame(number, 6000), poll + 10).unwrap(), Post::Done);
            }
        }
    }

    proptest! {
        #[test]
        fn only_self_consistent_headers_have_a_length(header: [u8; 8]) {
            match next_of(&header) {
                Some(Next::Frame(len)) => prop_assert_eq!(header_of(len), header),
                Some(Next::Padding(len)) => prop_assert_eq!(header_of(PADDING | len), header),
                None => {}
            }
        }
    }
}
