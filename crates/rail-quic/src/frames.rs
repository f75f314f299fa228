//! Frames on a byte stream: staged at the sender, reassembled at the receiver.
//!
//! A length precedes each frame. The sender copies a frame at once, so that its memory is free, and passes it to the
//! connection only when it is about to leave. A new frame waits behind at most [`Outbox::depth`] bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use rail::{Fault, Post};
use wire::Frame;

/// Frames waiting to leave.
#[derive(Debug)]
pub struct Outbox {
    /// Complete chunks, oldest first.
    full: VecDeque<Bytes>,
    /// The chunk being filled.
    last: Vec<u8>,
    /// Number of bytes in both.
    staged: usize,
    /// Number of staged bytes from which on frames are refused.
    pub depth: usize,
    /// Send budget of long frames between two polls, in bytes.
    pub burst: usize,
    /// Remaining send budget.
    budget: usize,
    /// Poll count to which the budget belongs.
    poll: u32,
    /// True if a frame was refused.
    refused: bool,
}

impl Outbox {
    /// Creates an outbox that refuses frames when `depth` bytes wait.
    pub fn new(depth: usize) -> Self {
        Self {
            full: VecDeque::new(),
            last: Vec::new(),
            staged: 0,
            depth,
            burst: usize::MAX,
            budget: usize::MAX,
            poll: 0,
            refused: false,
        }
    }

    /// Copies a frame to the end, if there is room. Between two polls, long frames beyond the send budget are
    /// refused, as over TCP: messages submitted meanwhile can then overtake them.
    pub fn post(&mut self, frame: &Frame, poll: u32) -> Post {
        if self.poll != poll {
            (self.poll, self.budget) = (poll, self.burst);
        }
        let is_long = frame.body.is_some();
        if !self.has_room() || (self.budget == 0 && is_long) {
            self.refused = true;
            return Post::Full;
        }
        self.budget = self.budget.saturating_sub(HEADER_LEN + frame.len());
        self.stage(frame.len(), |last| {
            last.extend(&frame.head);
            if let Some(body) = &frame.body {
                body.region.append_to(last);
            }
        });
        Post::Done
    }

    /// Copies a short frame, given in two parts, to the end, if there is room.
    pub fn post_parts(&mut self, parts: [&[u8]; 2]) -> Post {
        if !self.has_room() {
            self.refused = true;
            return Post::Full;
        }
        let len = parts.iter().map(|part| part.len()).sum();
        self.stage(len, |last| parts.iter().for_each(|part| last.extend(*part)));
        Post::Done
    }

    /// Appends a frame of `len` bytes.
    fn stage(&mut self, len: usize, append: impl FnOnce(&mut Vec<u8>)) {
        self.last.reserve(HEADER_LEN + len);
        self.last.extend((len as u32).to_le_bytes());
        append(&mut self.last);
        self.staged += HEADER_LEN + len;
        if self.last.len() >= CHUNK_LEN {
            self.full.push_back(Bytes::from(std::mem::take(&mut self.last)));
        }
    }

    /// True if a frame would be accepted now.
    pub fn has_room(&self) -> bool {
        self.staged < self.depth
    }

    /// Returns the next bytes to leave, at most `max`; `None` if nothing waits.
    pub fn take(&mut self, max: usize) -> Option<Bytes> {
        if self.full.is_empty() && !self.last.is_empty() {
            self.full.push_back(Bytes::from(std::mem::take(&mut self.last)));
        }
        let first = self.full.front_mut()?;
        let chunk = if first.len() <= max { self.full.pop_front()? } else { first.split_to(max) };
        self.staged -= chunk.len();
        Some(chunk)
    }

    /// Returns bytes that the connection did not take.
    pub fn put_back(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.staged += chunk.len();
            self.full.push_front(chunk);
        }
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.staged == 0
    }

    /// True if a frame was refused and [`Event::Room`](rail::Event::Room) is still due.
    pub fn has_refused(&self) -> bool {
        self.refused
    }

    /// Renews the send budget after a refusal, if there is room, without limit until the next poll; returns true if
    /// it did.
    pub fn invite(&mut self, poll: u32) -> bool {
        let invites = self.refused && self.has_room();
        if invites {
            (self.refused, self.poll, self.budget) = (false, poll, usize::MAX);
        }
        invites
    }
}

/// Reassembly of frames from pieces.
#[derive(Debug, Default)]
pub struct Inbox {
    /// An incomplete frame, header included.
    partial: Vec<u8>,
    /// Its length, header included, once the header is complete.
    wanted: Option<usize>,
}

impl Inbox {
    /// Appends the next bytes and delivers complete frames; returns their number.
    ///
    /// # Errors
    /// The peer announces a frame longer than allowed.
    pub fn take(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<usize, Fault> {
        let mut frames = 0;
        while !bytes.is_empty() {
            if self.partial.is_empty()
                && let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>()
            {
                let len = length_of(header)?;
                if let Some((frame, rest)) = rest.split_at_checked(len) {
                    sink(frame);
                    frames += 1;
                    bytes = rest;
                    continue;
                }
                self.wanted = Some(HEADER_LEN + len);
                self.partial.reserve(HEADER_LEN + len);
            }
            let wanted = self.wanted.unwrap_or(HEADER_LEN);
            let (piece, rest) = bytes.split_at(bytes.len().min(wanted - self.partial.len()));
            self.partial.extend(piece);
            bytes = rest;
            frames += usize::from(self.show(sink)?);
        }
        Ok(frames)
    }

    /// Delivers the incomplete frame if it is complete now.
    fn show(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
        let Some((header, frame)) = self.partial.split_first_chunk::<HEADER_LEN>() else {
            return Ok(false);
        };
        let len = match self.wanted {
            Some(wanted) => wanted - HEADER_LEN,
            None => length_of(header)?,
        };
        self.wanted = Some(HEADER_LEN + len);
        if frame.len() < len {
            return Ok(false);
        }
        sink(frame);
        self.partial.clear();
        self.wanted = None;
        Ok(true)
    }
}

fn length_of(header: &[u8; HEADER_LEN]) -> Result<usize, Fault> {
    match u32::from_le_bytes(*header) as usize {
        len if len <= FRAME_MAX => Ok(len),
        len => Err(Fault::Misbehaved(format!("a frame of {len} bytes, beyond all limits"))),
    }
}

/// Longest frame: a few packet trains, and short enough to share a link fairly.
pub(super) const FRAME_MAX: usize = 256 << 10;

/// Length of the header of a frame on the stream.
const HEADER_LEN: usize = 4;
/// Length up to which short frames share a chunk: quinn searches the chunks under way for every packet.
const CHUNK_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use memory::Region;
    use proptest::prelude::*;
    use wire::Body;

    use super::*;

    fn frame(number: usize, len: usize) -> Frame {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
        let (head, body) = bytes.split_at(len.min(number % 50));
        let region = Region::from_box(body.into());
        Frame { head: head.to_vec(), body: Some(Body { region }), token: None }
    }

    fn bytes_of(frame: &Frame) -> Vec<u8> {
        let body = frame.body.as_ref().map_or(Vec::new(), |body| body.region.to_vec());
        [frame.head.clone(), body].concat()
    }

    proptest! {
        #[test]
        fn frames_are_reassembled_from_pieces_of_any_length(
            lens in prop::collection::vec(prop_oneof![0usize..40, 0usize..70_000], 1..30),
            cuts in prop::collection::vec(1usize..3000, 1..20),
        ) {
            let mut outbox = Outbox::new(usize::MAX);
            let mut inbox = Inbox::default();
            let frames: Vec<Frame> = lens.iter().enumerate().map(|(i, &len)| frame(i, len)).collect();
            for frame in &frames {
                prop_assert_eq!(outbox.post(frame, 0), Post::Done);
            }
            let mut arrived = Vec::new();
            let mut cuts = cuts.iter().cycle();
            while let Some(chunk) = outbox.take(*cuts.next().unwrap()) {
                // The connection takes only a part from time to time.
                let taken = chunk.len().min(*cuts.next().unwrap());
                outbox.put_back(chunk.slice(taken..));
                inbox.take(&chunk[..taken], &mut |bytes| arrived.push(bytes.to_vec())).unwrap();
            }
            prop_assert!(outbox.is_empty());
            let expected: Vec<Vec<u8>> = frames.iter().map(bytes_of).collect();
            prop_assert!(arrived == expected);
        }

        #[test]
        fn arbitrary_bytes_are_frames_or_a_fault(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
        ) {
            let mut inbox = Inbox::default();
            for piece in &pieces {
                if inbox.take(piece, &mut |bytes| assert!(bytes.len() <= FRAME_MAX)).is_err() {
                    break;
                }
                prop_assert!(inbox.partial.capacity() <= 2 * (HEADER_LEN + FRAME_MAX));
            }
        }
    }

    #[test]
    fn frames_are_refused_beyond_the_depth_until_there_is_room() {
        let mut outbox = Outbox::new(1000);
        assert_eq!(outbox.post(&frame(0, 990), 0), Post::Done);
        assert_eq!(outbox.post(&frame(1, 5000), 0), Post::Done);
        assert!(!outbox.invite(0), "nothing was refused");
        assert_eq!(outbox.post(&frame(2, 1), 0), Post::Full);
        assert!(!outbox.invite(0), "there is no room");
        while outbox.take(700).is_some() {}
        assert!(outbox.invite(0));
        assert!(!outbox.invite(0), "invited once");
    }

    #[test]
    fn short_frames_are_accepted_when_the_budget_of_long_ones_is_spent() {
        let mut outbox = Outbox::new(1 << 20);
        outbox.burst = 10_000;
        let (long, short) = (frame(1, 9000), Frame { head: vec![1; 40], body: None, token: None });
        assert_eq!([(); 3].map(|()| outbox.post(&long, 7)), [Post::Done, Post::Done, Post::Full]);
        assert_eq!(outbox.post(&short, 7), Post::Done);
        assert_eq!(outbox.post(&long, 7), Post::Full);
        // The next poll renews the budget.
        assert!(outbox.invite(8));
        assert_eq!([(); 4].map(|()| outbox.post(&long, 8)), [Post::Done; 4]);
        assert_eq!([(); 3].map(|()| outbox.post(&long, 9)), [Post::Done, Post::Done, Post::Full]);
    }
}
