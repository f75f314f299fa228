//! Replay of frames after a link is lost: sent frames are stored until acknowledged.
//!
//! A link delivers in order, so both ends number its frames by counting; no frame carries a number.
//! The sender stores posted frames until the peer acknowledges them. After a loss, the peer reports
//! how many frames it received, over another link or the reopened one. It discards all later frames
//! of the lost link, and exactly those are resent. Nothing arrives twice.
//!
//! A link may open many times. Each side counts its openings (*epochs*). Its first packet is a
//! `Resume`: its name for the link, the epoch, and the number of frames received in all. Neither
//! side sends counted frames before it has the other's `Resume`. Both therefore know to which
//! opening of the other side their frames went, and recognise late packets about earlier ones.

use std::collections::VecDeque;

use memory::Region;
use wire::packet::{self, Incarnation};
use wire::{Body, Frame, FrameToken, RailId};

use crate::engine::PeerError;

/// Replay state of one link, for both directions. See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ReplayBuffer {
    /// Unacknowledged frames, in the order they left.
    unacknowledged: VecDeque<SentFrame>,
    /// Bytes of their heads, and the long payloads of those that have one.
    heads: Heads,
    longs: VecDeque<Long>,
    /// Total bytes of these frames.
    bytes: usize,
    /// Bytes of the bodies that are copies.
    copied_bytes: usize,
    /// Number of acknowledged frames, and the time by which the last of them had left.
    confirmed: u32,
    confirmed_ns: u64,
    /// Time of the last ACK of a new frame.
    acked_ns: u64,
    /// Counted frames received when the clock was last read, and the time at which there were new ones.
    heard: u32,
    heard_ns: u64,
    /// Frames sent up to the last one that asked for a prompt ACK; bytes sent since, and whether a
    /// long frame is among them.
    prompted: u32,
    unprompted_bytes: usize,
    has_unprompted_long: bool,
    /// Pairs of a number of frames and the latest time by which they had left.
    stamps: VecDeque<(u32, u64)>,
    /// Next frame to resend, in order, before anything new.
    resend: Option<ResendPosition>,
    /// Time since which the link seems late.
    pub suspected_ns: Option<u64>,
    /// True if a probe is to be sent that asks for an ACK.
    pub probes: bool,
    /// Start of the current busy period of the link, and bytes acknowledged since.
    busy: Option<(u64, u64)>,
    /// True if traffic has shown the link's rate.
    pub has_learned: bool,
    /// Counted frames received, frames acknowledged to the peer, and bytes not yet acknowledged.
    received: u32,
    acked: u32,
    unacked_bytes: usize,
    /// True if the peer waits for an ACK.
    is_ack_due: bool,
    /// Number of times the link has opened on this side.
    pub epoch: u32,
    /// Peer's name for the link, with its last known epoch; `None` before its first `Resume`.
    pub peer: Option<Incarnation>,
    /// True if the peer has ended this epoch (`LinkDown`).
    pub is_over: bool,
    /// True if either end wants frames stored.
    pub keeps: bool,
}

/// A sent frame that may have to be resent.
#[derive(Clone, Copy, Debug)]
struct SentFrame {
    head_len: u32,
    /// Sequence of the first message in it, if any.
    sequence: u32,
    is_long: bool,
}

/// Data needed to store a frame that was built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRecord {
    /// Offset in the head from which bytes are stored.
    pub from: usize,
    /// Sequence of the first message in it, or of the next one.
    pub sequence: u32,
    /// True if the frame asks for a prompt ACK.
    pub is_prompt: bool,
}

/// Position among the stored frames.
#[derive(Clone, Copy, Debug, Default)]
struct ResendPosition {
    frames: usize,
    head_bytes: usize,
    longs: usize,
}

/// Body of a stored frame.
#[derive(Debug)]
struct Long {
    body: Body,
    /// `None` once the application's memory is free: the body is then a copy.
    token: Option<FrameToken>,
    /// True if the rail has released the memory, but there was no room for a copy.
    wants_copy: bool,
}

impl Long {
    /// Replaces the body by a copy; returns its length in bytes.
    fn copy(&mut self) -> usize {
        let bytes: Box<[u8]> = self.body.region.to_vec().into();
        let len = bytes.len();
        self.body = Body { region: Region::from_box(bytes) };
        (self.token, self.wants_copy) = (None, false);
        len
    }
}

/// A frame of a lost link, to be resent over another.
#[derive(Debug)]
pub(crate) struct Lost {
    pub head: Box<[u8]>,
    pub body: Option<Body>,
    pub token: Option<FrameToken>,
    /// Sequence of the first message in it, if any.
    pub sequence: u32,
}

impl Lost {
    /// True if a link with this maximal frame length can carry it.
    pub fn fits(&self, frame_max: usize) -> bool {
        let body_len = self.body.as_ref().map_or(0, |body| body.region.len());
        packet::ACK_LEN + self.head.len() + body_len <= frame_max
    }
}

/// Sending side.
impl ReplayBuffer {
    #[inline]
    pub fn has_room(&self) -> bool {
        self.unacknowledged.len() < UNACKNOWLEDGED_MAX
    }

    /// Stores a frame that was just posted or is about to be.
    #[inline]
    pub fn store(&mut self, frame: &Frame, record: FrameRecord) {
        let FrameRecord { from, sequence, is_prompt } = record;
        let head = &frame.head[from..];
        self.heads.push(head);
        let mut len = head.len();
        let is_long = frame.body.is_some();
        if let Some(body) = &frame.body {
            len += body.region.len();
            let (body, token) = (body.clone(), frame.token);
            self.longs.push_back(Long { body, token, wants_copy: false });
        }
        self.unacknowledged.push_back(SentFrame { head_len: head.len() as u32, sequence, is_long });
        self.bytes += len;
        self.unprompted_bytes += len;
        self.has_unprompted_long |= is_long;
        if is_prompt {
            self.note_prompted(self.sent());
        }
    }

    /// Notes that the first `sent` frames are covered by a prompt request.
    #[inline]
    fn note_prompted(&mut self, sent: u32) {
        (self.prompted, self.unprompted_bytes, self.has_unprompted_long) = (sent, 0, false);
    }

    /// Number of frames stored since the link is known.
    #[inline]
    fn sent(&self) -> u32 {
        self.confirmed.wrapping_add(self.unacknowledged.len() as u32)
    }

    /// True if the next frame must ask for a prompt ACK, given how many bytes may be sent without
    /// one.
    #[inline]
    pub fn is_prompt(&self, unprompted_max: usize) -> bool {
        let unprompted = self.sent().wrapping_sub(self.prompted);
        unprompted >= PROMPT_EVERY || self.unprompted_bytes >= unprompted_max
    }

    /// True if a long frame has left after the last prompt request.
    #[inline]
    pub fn has_unprompted_long(&self) -> bool {
        self.has_unprompted_long
    }

    /// True if a frame with a prompt request is unacknowledged.
    pub fn awaits_ack(&self) -> bool {
        let outstanding = self.prompted.wrapping_sub(self.confirmed);
        (1..=self.unacknowledged.len() as u32).contains(&outstanding)
    }

    /// Handles an ACK of `frames` frames; passes the tokens of newly acknowledged ones to
    /// `arrived`.
    ///
    /// # Errors
    /// If fewer frames were sent.
    #[inline]
    pub fn confirm(
        &mut self,
        frames: u32,
        now_ns: u64,
        mut on_acked: impl FnMut(FrameToken),
    ) -> Result<(), PeerError> {
        let event_count = frames.wrapping_sub(self.confirmed) as usize;
        if event_count > self.unacknowledged.len() {
            return Err(PeerError::Confirmation { sent: self.sent(), got: frames });
        }
        self.confirmed = frames;
        for _ in 0..event_count {
            let Some(SentFrame { head_len, is_long, .. }) = self.unacknowledged.pop_front() else {
                break;
            };
            self.heads.pop(head_len as usize);
            self.bytes -= head_len as usize;
            if is_long && let Some(Long { body, token, .. }) = self.longs.pop_front() {
                self.bytes -= body.region.len();
                match token {
                    Some(token) => on_acked(token),
                    None => self.copied_bytes -= body.region.len(),
                }
            }
            if let Some(resend) = &mut self.resend {
                resend.frames = resend.frames.saturating_sub(1);
                resend.head_bytes = resend.head_bytes.saturating_sub(head_len as usize);
                resend.longs = resend.longs.saturating_sub(usize::from(is_long));
            }
        }
        // Acknowledged frames need no prompt request.
        if self.prompted.wrapping_sub(frames) as usize > self.unacknowledged.len() {
            self.prompted = frames;
        }
        self.unprompted_bytes = self.unprompted_bytes.min(self.bytes);
        self.has_unprompted_long &= self.has_longs();
        self.confirm_stamps(now_ns, event_count);
        Ok(())
    }

    #[inline]
    fn confirm_stamps(&mut self, now_ns: u64, event_count: usize) {
        if event_count == 0 {
            return;
        }
        self.acked_ns = now_ns;
        let confirmed = self.confirmed;
        let is_past = |sent: u32| confirmed.wrapping_sub(sent) <= u32::MAX / 2;
        let mut left_ns = self.stamps.front().map_or(now_ns, |&(_, at_ns)| at_ns);
        while let Some(&(sent, at_ns)) = self.stamps.front()
            && is_past(sent)
        {
            left_ns = at_ns;
            self.stamps.pop_front();
        }
        self.confirmed_ns = left_ns;
    }

    /// Records the time: all frames sent since the previous call had left by now.
    pub fn stamp(&mut self, now_ns: u64) {
        if std::mem::replace(&mut self.heard, self.received) != self.received {
            self.heard_ns = now_ns;
        }
        let sent = self.sent();
        if self.unacknowledged.is_empty() || self.stamps.back().is_some_and(|last| last.0 == sent) {
            return;
        }
        if self.stamps.len() == STAMPS_MAX {
            self.stamps.pop_back();
        }
        self.stamps.push_back((sent, now_ns));
    }

    /// Learns from an ACK of `acked_bytes` bytes. Returns bytes and duration if the link was busy
    /// for long enough to show its rate.
    pub fn observe(&mut self, acked_bytes: u64, now_ns: u64) -> Option<(u64, u64)> {
        let Some((since_ns, before)) = self.busy.filter(|_| !self.longs.is_empty()) else {
            self.busy = (!self.longs.is_empty()).then_some((now_ns, 0));
            return None;
        };
        let (bytes, took_ns) = (before + acked_bytes, now_ns - since_ns);
        let is_enough = bytes >= OBSERVED_MIN && took_ns > 0;
        self.busy = Some(if is_enough { (now_ns, 0) } else { (since_ns, bytes) });
        self.has_learned |= is_enough;
        is_enough.then_some((bytes, took_ns))
    }

    /// Latest time by which the oldest unacknowledged frame had left.
    pub fn waits_since_ns(&self) -> Option<u64> {
        self.stamps.front().map(|&(_, at_ns)| at_ns)
    }

    /// Time of the last sign of life: an ACK of a new frame, or a frame, behind which ACKs may wait.
    pub fn heard_ns(&self) -> u64 {
        self.acked_ns.max(self.heard_ns)
    }

    /// Time by which the last acknowledged frame had left.
    pub fn confirmed_ns(&self) -> u64 {
        self.confirmed_ns
    }

    /// True if a frame has left since.
    pub fn has_sent_since(&self, since_ns: u64) -> bool {
        let Some(&(sent, at_ns)) = self.stamps.back() else {
            return !self.unacknowledged.is_empty();
        };
        at_ns > since_ns || sent != self.sent()
    }

    /// Requests a probe if the last frame has been unacknowledged for `patience_ns`. Later probes
    /// follow in growing intervals.
    pub fn probe_after(&mut self, patience_ns: u64, now_ns: u64) {
        if let (Some(&(_, first_ns)), Some(&(_, last_ns))) =
            (self.stamps.front(), self.stamps.back())
        {
            self.probes |= now_ns - last_ns > patience_ns.max(last_ns - first_ns);
        }
    }

    /// Clears the probe request; returns whether it was set.
    pub fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.probes)
    }

    /// Sequence that was next when the oldest unacknowledged frame left.
    #[inline]
    pub fn oldest_sequence(&self) -> Option<u32> {
        self.unacknowledged.front().map(|frame| frame.sequence)
    }

    /// Bytes of unacknowledged frames.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if a long frame is unacknowledged.
    #[inline]
    pub fn has_longs(&self) -> bool {
        !self.longs.is_empty()
    }

    /// True if no operation waits for an ACK.
    pub fn is_settled(&self) -> bool {
        self.longs.iter().all(|long| long.token.is_none())
    }

    /// True if a link with this maximal frame length can carry all stored frames.
    pub fn fits(&self, frame_max: usize) -> bool {
        let mut longs = self.longs.iter();
        self.unacknowledged.iter().all(|frame| {
            let long = if frame.is_long { longs.next() } else { None };
            let body_len = long.map_or(0, |long| long.body.region.len());
            packet::ACK_LEN + frame.head_len as usize + body_len <= frame_max
        })
    }

    /// Copies the body of an unacknowledged frame whose memory the rail has released, so that the
    /// memory is free. All copies take at most `copied_max` bytes; bodies beyond are [copied
    /// later](Self::copy_others).
    pub fn copy(&mut self, token: FrameToken, copied_max: usize) -> bool {
        let found = self.longs.iter_mut().find(|long| long.token == Some(token));
        let Some(long) = found else { return false };
        long.wants_copy = self.copied_bytes + long.body.region.len() > copied_max;
        if long.wants_copy {
            return false;
        }
        self.copied_bytes += long.copy();
        true
    }

    /// True if a body still waits for room to be copied.
    #[inline]
    pub fn wants_copies(&self) -> bool {
        self.longs.iter().any(|long| long.wants_copy)
    }

    /// Copies waiting bodies in order, as far as there is room; passes the tokens of freed memory
    /// to `is_free`.
    pub fn copy_others(&mut self, copied_max: usize, mut is_free: impl FnMut(FrameToken)) {
        for long in self.longs.iter_mut().filter(|long| long.wants_copy) {
            let len = long.body.region.len();
            if self.copied_bytes + len > copied_max {
                break;
            }
            long.token.into_iter().for_each(&mut is_free);
            self.copied_bytes += long.copy();
        }
    }

    /// Moves all stored frames to `lost`, for other links to carry.
    pub fn take_lost(&mut self, lost: &mut VecDeque<Lost>) {
        let mut longs = std::mem::take(&mut self.longs).into_iter();
        for SentFrame { head_len, sequence, is_long } in std::mem::take(&mut self.unacknowledged) {
            let head = self.heads.front(0, head_len as usize).into();
            self.heads.pop(head_len as usize);
            let long = if is_long { longs.next() } else { None };
            let (body, token) = long.map_or((None, None), |long| (Some(long.body), long.token));
            lost.push_back(Lost { head, body, token, sequence });
        }
        (self.bytes, self.copied_bytes, self.resend) = (0, 0, None);
        self.stamps.clear();
        // Prompt requests are repeated on the other link.
        self.prompted = self.confirmed;
    }

    /// Stores a frame of a lost link that is about to be posted with a prompt request.
    pub fn store_lost(&mut self, lost: Lost) {
        let Lost { head, body, token, sequence } = lost;
        self.heads.push(&head);
        self.bytes += head.len();
        let is_long = body.is_some();
        if let Some(body) = body {
            self.bytes += body.region.len();
            self.copied_bytes += if token.is_none() { body.region.len() } else { 0 };
            self.longs.push_back(Long { body, token, wants_copy: false });
        }
        self.unacknowledged.push_back(SentFrame { head_len: head.len() as u32, sequence, is_long });
        self.note_prompted(self.sent());
    }
}

/// Opening and closing.
impl ReplayBuffer {
    /// Begins a new epoch.
    pub fn open(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Appends the link's `Resume`; `keeps` is true if this end wants frames stored.
    pub fn emit_resume(&mut self, head: &mut Vec<u8>, rail: RailId, keeps: bool) {
        self.keeps |= keeps;
        packet::emit_resume(head, self.name(rail), self.received, self.keeps);
        self.note_acked();
    }

    /// Name of the link on this side, over the given rail.
    pub fn name(&self, rail: RailId) -> Incarnation {
        Incarnation { rail: rail.0, epoch: self.epoch }
    }

    /// Handles the peer's `Resume`, after its count was acknowledged: the remaining frames are
    /// resent. False if the epoch is stale.
    pub fn handle_resume(&mut self, peer: Incarnation) -> bool {
        if self.peer.is_some_and(|known| peer.epoch <= known.epoch) {
            return false;
        }
        (self.peer, self.is_over) = (Some(peer), false);
        self.resend = (!self.unacknowledged.is_empty()).then(ResendPosition::default);
        true
    }

    /// Resets the state of a closed link until it reopens.
    pub fn close(&mut self) {
        (self.suspected_ns, self.probes, self.is_ack_due, self.busy) = (None, false, false, None);
        self.stamps.clear();
        self.prompted = self.confirmed;
        self.resend = None;
    }

    /// Builds the next frame to resend; false if there is none.
    pub fn emit_resend(&mut self, frame: &mut Frame) -> bool {
        let Some(ResendPosition { frames, head_bytes, longs }) = self.resend else { return false };
        let Some(&SentFrame { head_len, is_long, .. }) = self.unacknowledged.get(frames) else {
            self.resend = None;
            return false;
        };
        let mut long = if is_long { self.longs.get_mut(longs) } else { None };
        let is_last = frames + 1 == self.unacknowledged.len();
        let is_prompt = is_long || is_last;
        frame.body = long.as_ref().map(|long| long.body.clone());
        frame.token = long.as_ref().map(|long| long.token.unwrap_or(NO_OPERATION));
        if let Some(long) = &mut long {
            // The rail holds the memory again.
            long.wants_copy = false;
        }
        self.emit_ack(&mut frame.head, is_prompt);
        frame.head.extend_from_slice(self.heads.front(head_bytes, head_len as usize));
        if is_prompt {
            self.prompted = self.confirmed.wrapping_add(frames as u32 + 1);
        }
        self.resend = (!is_last).then_some(ResendPosition {
            frames: frames + 1,
            head_bytes: head_bytes + head_len as usize,
            longs: longs + usize::from(is_long),
        });
        true
    }
}

/// Receiving side.
impl ReplayBuffer {
    /// Counts a received frame.
    #[inline]
    pub fn receive(&mut self, bytes: usize) {
        self.received = self.received.wrapping_add(1);
        self.unacked_bytes += bytes;
    }

    /// Counts a frame that does not begin with an ACK; false if it does.
    #[inline]
    pub fn receive_quiet(&mut self, frame: &[u8]) -> bool {
        let is_quiet = !frame.is_empty() && packet::split_ack(frame).is_none();
        if is_quiet {
            self.receive(frame.len());
        }
        is_quiet
    }

    /// True if received frames have not been acknowledged.
    #[inline]
    pub fn has_unacked(&self) -> bool {
        self.received != self.acked
    }

    /// Notes that the peer waits for an ACK.
    #[inline]
    pub fn request_ack(&mut self) {
        self.is_ack_due = true;
    }

    /// True if the link must send a frame of its own: an ACK, a probe or a repeat.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.is_ack_due || self.probes || self.resend.is_some()
    }

    /// True if enough was received for an ACK on a frame that is sent anyway.
    #[inline]
    pub fn may_ack(&self) -> bool {
        self.is_ack_due
            || self.unacked_bytes >= ACK_BYTES
            || self.received.wrapping_sub(self.acked) >= ACK_EVERY
    }

    /// True if the peer waits for an ACK.
    #[inline]
    pub fn is_ack_due(&self) -> bool {
        self.is_ack_due
    }

    /// Appends an ACK to a frame; `is_prompt` asks for one in return.
    #[inline]
    pub fn emit_ack(&mut self, head: &mut Vec<u8>, is_prompt: bool) {
        packet::emit_ack(head, self.received, is_prompt);
        self.note_acked();
    }

    /// Notes that all received frames are acknowledged.
    #[inline]
    pub fn note_acked(&mut self) {
        self.acked = self.received;
        self.unacked_bytes = 0;
        self.is_ack_due = false;
    }

    /// Number of counted frames received.
    pub fn received(&self) -> u32 {
        self.received
    }
}

/// Heads of frames, stored back to back.
#[derive(Debug, Default)]
struct Heads {
    /// Offset of the first byte in use.
    bytes: Vec<u8>,
    start: usize,
}

impl Heads {
    #[inline]
    fn push(&mut self, head: &[u8]) {
        if self.bytes.len() + head.len() > self.bytes.capacity() && self.start > 0 {
            self.compact();
        }
        self.bytes.extend_from_slice(head);
    }

    /// Moves the bytes in use to the front: amortised, at most one move for each freed byte.
    #[inline(never)]
    fn compact(&mut self) {
        if self.start >= self.bytes.len() / 2 {
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(self.bytes.len() - self.start);
            self.start = 0;
        }
    }

    /// Removes the first `len` bytes.
    #[inline]
    fn pop(&mut self, len: usize) {
        self.start += len;
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > SPARE_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Returns `len` bytes at offset `skipped`.
    fn front(&self, skipped: usize, len: usize) -> &[u8] {
        let from = self.start + skipped;
        &self.bytes[from..from + len]
    }
}

/// Token of a body that no operation waits for: no operation has this generation and index.
pub(crate) const NO_OPERATION: FrameToken = FrameToken(u64::MAX);

/// Maximal number of unacknowledged frames on a link: 10 Gb/s over 300 ms are 9000 of 40 KB.
const UNACKNOWLEDGED_MAX: usize = 16384;

/// Frames, and bytes, after which a frame must ask for a prompt ACK.
const PROMPT_EVERY: u32 = 64;
pub(crate) const PROMPT_BYTES: usize = 64 << 10;
/// Bytes of a long message between two prompt requests, if its memory is freed earlier. Each ACK
/// costs a wake-up on both hosts and on the gateways between them.
pub(crate) const PROMPT_BYTES_FAR: usize = 192 << 10;

/// Frames, or bytes, after which an ACK is added to a frame that is sent anyway.
const ACK_EVERY: u32 = 8;
const ACK_BYTES: usize = 1 << 10;

/// Bytes that must be acknowledged before they show the link's rate.
const OBSERVED_MIN: u64 = 512 << 10;

/// Number of recorded departure times.
const STAMPS_MAX: usize = 64;

/// Spare capacity for heads, in bytes.
const SPARE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores a frame with a body of 100 bytes.
    fn keep(replay_buffer: &mut ReplayBuffer, token: u64) {
        let body = Some(Body { region: Region::from_box([token as u8; 100].into()) });
        let frame = Frame { head: vec![], body, token: Some(FrameToken(token)) };
        replay_buffer.store(&frame, FrameRecord { from: 0, sequence: 0, is_prompt: true });
    }

    #[test]
    fn sent_frames_are_copied_when_earlier_copies_make_room() {
        let mut replay_buffer = ReplayBuffer::default();
        (0..4).for_each(|token| keep(&mut replay_buffer, token));
        let copies = [0, 1, 2].map(|token| replay_buffer.copy(FrameToken(token), 250));
        assert_eq!(copies, [true, true, false]);
        let mut is_free = Vec::new();
        replay_buffer.copy_others(250, |token| is_free.push(token));
        assert_eq!(is_free, [], "there is no room yet");
        replay_buffer.confirm(1, 0, |_| panic!("its memory was free")).unwrap();
        assert!(replay_buffer.wants_copies());
        replay_buffer.copy_others(250, |token| is_free.push(token));
        // The fourth frame has not left.
        assert_eq!((&is_free[..], replay_buffer.wants_copies()), (&[FrameToken(2)][..], false));
        replay_buffer.confirm(4, 0, |token| is_free.push(token)).unwrap();
        assert_eq!(is_free, [FrameToken(2), FrameToken(3)]);
        assert_eq!((replay_buffer.bytes(), replay_buffer.copied_bytes), (0, 0));
    }

    #[test]
    fn resent_frames_are_copied_when_they_have_left_again() {
        let mut replay_buffer = ReplayBuffer::default();
        (0..2).for_each(|token| keep(&mut replay_buffer, token));
        assert_eq!([0, 1].map(|token| replay_buffer.copy(FrameToken(token), 100)), [true, false]);
        replay_buffer.resend = Some(ResendPosition::default());
        let mut frame = Frame::default();
        while replay_buffer.emit_resend(&mut frame) {}
        assert!(!replay_buffer.wants_copies());
        assert!(!replay_buffer.copy(FrameToken(1), 100) && replay_buffer.wants_copies());
    }
}
