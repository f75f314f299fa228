//! Frames on a stream of bytes: staged on one side, put together again on the other.
//!
//! A frame is preceded by its length. What is staged is copied at once, so that its memory is free, and
//! handed to the connection only when it is about to leave: what has not left can still be kept waiting
//! by nobody but what was posted before it, and that is little ([`Outbox::depth`]).

use std::collections::VecDeque;

use bytes::Bytes;
use wire::Frame;

use crate::rail::{Fault, Post};

/// Frames that wait to leave.
#[derive(Debug)]
pub struct Outbox {
    /// Whole chunks, the first to leave before all others.
    full: VecDeque<Bytes>,
    /// The chunk that is being filled.
    last: Vec<u8>,
    /// Bytes in both.
    staged: usize,
    /// Frames are refused from here on.
    pub depth: usize,
    /// What long frames may come to in a turn.
    pub burst: usize,
    /// What is left of that in this one.
    leave: usize,
    turn: u32,
    /// A frame was refused.
    refused: bool,
}

impl Outbox {
    /// One that refuses frames when so many bytes wait.
    pub fn new(depth: usize) -> Self {
        Self {
            full: VecDeque::new(),
            last: Vec::new(),
            staged: 0,
            depth,
            burst: usize::MAX,
            leave: usize::MAX,
            turn: 0,
            refused: false,
        }
    }

    /// Copies a frame behind the others, if there is room. In a turn, which is the time between two polls, long
    /// frames beyond a burst are refused, as over TCP: what the application submits meanwhile is to be let before
    /// them.
    pub fn post(&mut self, frame: &Frame, turn: u32) -> Post {
        if self.turn != turn {
            (self.turn, self.leave) = (turn, self.burst);
        }
        let is_long = frame.body.is_some();
        if !self.has_room() || (self.leave == 0 && is_long) {
            self.refused = true;
            return Post::Full;
        }
        self.leave = self.leave.saturating_sub(HEADER_LEN + frame.len());
        self.stage(frame.len(), |last| {
            last.extend(&frame.head);
            if let Some(body) = &frame.body {
                body.region.append_to(last);
            }
        });
        Post::Done
    }

    /// Copies a short frame behind the others that lies in two parts, if there is room.
    pub fn post_parts(&mut self, parts: [&[u8]; 2]) -> Post {
        if !self.has_room() {
            self.refused = true;
            return Post::Full;
        }
        let len = parts.iter().map(|part| part.len()).sum();
        self.stage(len, |last| parts.iter().for_each(|part| last.extend(*part)));
        Post::Done
    }

    /// Puts a frame behind the others, of so many bytes that are appended.
    fn stage(&mut self, len: usize, append: impl FnOnce(&mut Vec<u8>)) {
        self.last.reserve(HEADER_LEN + len);
        self.last.extend((len as u32).to_le_bytes());
        append(&mut self.last);
        self.staged += HEADER_LEN + len;
        if self.last.len() >= CHUNK_LEN {
            self.full.push_back(Bytes::from(std::mem::take(&mut self.last)));
        }
    }

    /// Whether a frame would be taken now.
    pub fn has_room(&self) -> bool {
        self.staged < self.depth
    }

    /// What leaves next, of at most so many bytes; none when nothing waits.
    pub fn take(&mut self, max: usize) -> Option<Bytes> {
        if self.full.is_empty() && !self.last.is_empty() {
            self.full.push_back(Bytes::from(std::mem::take(&mut self.last)));
        }
        let first = self.full.front_mut()?;
        let chunk = if first.len() <= max { self.full.pop_front()? } else { first.split_to(max) };
        self.staged -= chunk.len();
        Some(chunk)
    }

    /// Puts back what the connection did not take.
    pub fn put_back(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.staged += chunk.len();
            self.full.push_front(chunk);
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.staged == 0
    }

    /// Whether a frame was refused, and none invited since.
    pub fn has_refused(&self) -> bool {
        self.refused
    }

    /// What was refused may come, in this turn without limit, if there is room; whether it may.
    pub fn invite(&mut self, turn: u32) -> bool {
        let invites = self.refused && self.has_room();
        if invites {
            (self.refused, self.turn, self.leave) = (false, turn, usize::MAX);
        }
        invites
    }
}

/// Frames that arrive piecewise.
#[derive(Debug, Default)]
pub struct Inbox {
    /// A frame of which a part is missing, header included.
    partial: Vec<u8>,
    /// Its length, header included, once the header is there.
    wanted: Option<usize>,
}

impl Inbox {
    /// Takes in the next bytes and shows the frames that are whole; how many.
    ///
    /// # Errors
    /// When the peer announces a frame that no honest peer sends.
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

    /// Shows the frame that was missing a part, if it is whole now.
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

/// The longest frame: some packet trains, and short enough to share a link fairly.
pub(super) const FRAME_MAX: usize = 256 << 10;

/// Length of a frame's header on the stream.
const HEADER_LEN: usize = 4;
/// Short frames share a chunk up to this length: the connection looks through the chunks that are under
/// way for every packet.
const CHUNK_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use memory::Region;
    use proptest::prelude::*;
    use wire::Body;

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
        fn frames_pass_in_pieces_of_any_length(
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
                // Now and then the connection takes only a part.
                let taken = chunk.len().min(*cuts.next().unwrap());
                outbox.put_back(chunk.slice(taken..));
                inbox.take(&chunk[..taken], &mut |bytes| arrived.push(bytes.to_vec())).unwrap();
            }
            prop_assert!(outbox.is_empty());
            let expected: Vec<Vec<u8>> = frames.iter().map(bytes_of).collect();
            prop_assert!(arrived == expected);
        }

        #[test]
        fn whatever_a_peer_sends_is_frames_or_a_fault(
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
    fn the_outbox_refuses_beyond_its_depth_and_invites_when_there_is_room() {
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
    fn what_is_short_passes_what_is_long_beyond_a_burst() {
        let mut outbox = Outbox::new(1 << 20);
        outbox.burst = 10_000;
        let (long, short) = (frame(1, 9000), Frame { head: vec![1; 40], body: None, token: None });
        assert_eq!([(); 3].map(|()| outbox.post(&long, 7)), [Post::Done, Post::Done, Post::Full]);
        assert_eq!(outbox.post(&short, 7), Post::Done);
        assert_eq!(outbox.post(&long, 7), Post::Full);
        // The next poll lets them come, and the turn behind it begins anew.
        assert!(outbox.invite(8));
        assert_eq!([(); 4].map(|()| outbox.post(&long, 8)), [Post::Done; 4]);
        assert_eq!([(); 3].map(|()| outbox.post(&long, 9)), [Post::Done, Post::Done, Post::Full]);
    }
}
