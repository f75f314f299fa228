//! What has been sent over a link that may be replaced, and what has come over it.
//!
//! A link delivers in order, so that both ends know its frames by counting: no frame carries a number. The
//! sender keeps what it has posted until the peer has said how many have arrived. When the link is lost, the
//! peer says, over another link or over the same when it has opened again, how many it has taken and that it
//! takes no more of them; exactly those after it go again. Nothing comes twice.
//!
//! A link may open many times. Each side counts its openings (*epochs*) and begins each with a greeting: its own
//! name for the link, the epoch, and how many frames it has taken in all. Neither sends what counts before it
//! has heard the other's greeting, so that each knows which of the other's openings its frames went to, and
//! knows a word about an earlier one when it comes late.

use std::collections::VecDeque;

use memory::Region;
use wire::packet::{self, Incarnation};
use wire::{Body, Frame, FrameToken, RailId};

use crate::engine::PeerError;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ReplayBuffer {
    /// Frames that have not been said to have arrived, in the order they left…
    kept: VecDeque<Kept>,
    /// …the bytes of their heads, and the long payloads of those that have one.
    heads: Heads,
    longs: VecDeque<Long>,
    /// Bytes of frames in all.
    bytes: usize,
    /// The bodies among them that are copies, in bytes.
    copied_bytes: usize,
    /// How many have been said to have arrived, and when the last of them had left.
    confirmed: u32,
    confirmed_ns: u64,
    /// How many had left with the last that the peer was asked to confirm at once, the bytes since, and whether a long
    /// frame is among them.
    prompted: u32,
    unprompted_bytes: usize,
    has_unprompted_long: bool,
    /// So many had left at such a time, at the latest.
    stamps: VecDeque<(u32, u64)>,
    /// What is still to go again, in order, before all that is new.
    again: Option<Again>,
    /// Since when the link seems to be late.
    pub suspected_ns: Option<u64>,
    /// Whether the peer is to be asked for a sign of life.
    pub probes: bool,
    /// What has arrived since the link was last found busy without a pause, and since when.
    busy: Option<(u64, u64)>,
    /// Whether the link's rate has shown.
    pub has_learned: bool,
    /// Counted frames that have come, how many the peer has been told of, and the bytes of the others.
    received: u32,
    told: u32,
    untold_bytes: usize,
    /// The peer waits to be told.
    is_asked: bool,
    /// How often the link has opened here.
    pub epoch: u32,
    /// What the peer calls it, and the last of its epochs that is known here; none before it has greeted.
    pub peer: Option<Incarnation>,
    /// The peer has said that this epoch is over for it.
    pub is_over: bool,
    /// Whether either end wants frames to be kept.
    pub keeps: bool,
}

/// A frame that has left and may have to leave again.
#[derive(Clone, Copy, Debug)]
struct Kept {
    head_len: u32,
    /// The first message's sequence, if there is one in it.
    sequence: u32,
    is_long: bool,
}

/// How a frame that was built is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// From this byte of its head on.
    pub from: usize,
    /// The sequence of the first message in it, or of the next.
    pub sequence: u32,
    /// It asks to be confirmed at once.
    pub is_prompt: bool,
}

/// A place among the kept frames.
#[derive(Clone, Copy, Debug, Default)]
struct Again {
    frames: usize,
    head_bytes: usize,
    longs: usize,
}

/// The end of a kept frame that lies elsewhere.
#[derive(Debug)]
struct Long {
    body: Body,
    /// None when the memory that was sent from is free: the body is a copy.
    token: Option<FrameToken>,
    /// The rail has let go of the memory, and there was no room for a copy.
    wants_copy: bool,
}

impl Long {
    /// Makes the body a copy; of how many bytes.
    fn copy(&mut self) -> usize {
        let bytes: Box<[u8]> = self.body.region.to_vec().into();
        let len = bytes.len();
        self.body = Body { region: Region::from_box(bytes) };
        (self.token, self.wants_copy) = (None, false);
        len
    }
}

/// A frame that a link has lost, to go over another.
#[derive(Debug)]
pub(crate) struct Lost {
    pub head: Box<[u8]>,
    pub body: Option<Body>,
    pub token: Option<FrameToken>,
    /// The first message's sequence, if there is one in it.
    pub sequence: u32,
}

impl Lost {
    /// Whether a link whose frames are no longer than this can carry it.
    pub fn fits(&self, frame_max: usize) -> bool {
        let body_len = self.body.as_ref().map_or(0, |body| body.region.len());
        packet::ACK_LEN + self.head.len() + body_len <= frame_max
    }
}

/// What goes out.
impl ReplayBuffer {
    #[inline]
    pub fn has_room(&self) -> bool {
        self.kept.len() < KEPT_MAX
    }

    /// Keeps a frame that has just been posted, or is about to be.
    #[inline]
    pub fn keep(&mut self, frame: &Frame, keeping: Keeping) {
        let Keeping { from, sequence, is_prompt } = keeping;
        let head = &frame.head[from..];
        self.heads.push(head);
        let mut len = head.len();
        let is_long = frame.body.is_some();
        if let Some(body) = &frame.body {
            len += body.region.len();
            let (body, token) = (body.clone(), frame.token);
            self.longs.push_back(Long { body, token, wants_copy: false });
        }
        self.kept.push_back(Kept { head_len: head.len() as u32, sequence, is_long });
        self.bytes += len;
        self.unprompted_bytes += len;
        self.has_unprompted_long |= is_long;
        if is_prompt {
            self.note_prompted(self.sent());
        }
    }

    /// The peer was asked to confirm so many at once.
    #[inline]
    fn note_prompted(&mut self, sent: u32) {
        (self.prompted, self.unprompted_bytes, self.has_unprompted_long) = (sent, 0, false);
    }

    /// How many frames have been kept since the link is known.
    #[inline]
    fn sent(&self) -> u32 {
        self.confirmed.wrapping_add(self.kept.len() as u32)
    }

    /// Whether the frame that is kept next is to be confirmed at once, where so many bytes may leave unconfirmed.
    #[inline]
    pub fn is_prompt(&self, unprompted_max: usize) -> bool {
        let unprompted = self.sent().wrapping_sub(self.prompted);
        unprompted >= PROMPT_EVERY || self.unprompted_bytes >= unprompted_max
    }

    /// Whether a long frame has left behind the last that the peer was asked to confirm at once.
    #[inline]
    pub fn has_unprompted_long(&self) -> bool {
        self.has_unprompted_long
    }

    /// Whether a frame is under way that the peer was asked to confirm at once.
    pub fn awaits_word(&self) -> bool {
        let outstanding = self.prompted.wrapping_sub(self.confirmed);
        (1..=self.kept.len() as u32).contains(&outstanding)
    }

    /// So many of the frames have arrived; tells the tokens of those that were not known to.
    ///
    /// # Errors
    /// When so many were not sent.
    #[inline]
    pub fn confirm(
        &mut self,
        frames: u32,
        now_ns: u64,
        mut arrived: impl FnMut(FrameToken),
    ) -> Result<(), PeerError> {
        let event_count = frames.wrapping_sub(self.confirmed) as usize;
        if event_count > self.kept.len() {
            return Err(PeerError::Confirmation { sent: self.sent(), got: frames });
        }
        self.confirmed = frames;
        for _ in 0..event_count {
            let Some(Kept { head_len, is_long, .. }) = self.kept.pop_front() else { break };
            self.heads.pop(head_len as usize);
            self.bytes -= head_len as usize;
            if is_long && let Some(Long { body, token, .. }) = self.longs.pop_front() {
                self.bytes -= body.region.len();
                match token {
                    Some(token) => arrived(token),
                    None => self.copied_bytes -= body.region.len(),
                }
            }
            if let Some(again) = &mut self.again {
                again.frames = again.frames.saturating_sub(1);
                again.head_bytes = again.head_bytes.saturating_sub(head_len as usize);
                again.longs = again.longs.saturating_sub(usize::from(is_long));
            }
        }
        // What is known to have arrived need not be asked for.
        if self.prompted.wrapping_sub(frames) as usize > self.kept.len() {
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

    /// It is so late: what has left since the time was told before has left by now.
    pub fn stamp(&mut self, now_ns: u64) {
        let sent = self.sent();
        if self.kept.is_empty() || self.stamps.back().is_some_and(|last| last.0 == sent) {
            return;
        }
        if self.stamps.len() == STAMPS_MAX {
            self.stamps.pop_back();
        }
        self.stamps.push_back((sent, now_ns));
    }

    /// Frames of so many bytes have arrived now: what that says of the link's rate, as bytes and the time
    /// they took, if it was busy all the while.
    pub fn observe(&mut self, arrived_bytes: u64, now_ns: u64) -> Option<(u64, u64)> {
        let Some((since_ns, before)) = self.busy.filter(|_| !self.longs.is_empty()) else {
            self.busy = (!self.longs.is_empty()).then_some((now_ns, 0));
            return None;
        };
        let (bytes, took_ns) = (before + arrived_bytes, now_ns - since_ns);
        let is_enough = bytes >= OBSERVED_MIN && took_ns > 0;
        self.busy = Some(if is_enough { (now_ns, 0) } else { (since_ns, bytes) });
        self.has_learned |= is_enough;
        is_enough.then_some((bytes, took_ns))
    }

    /// When the oldest frame left, at the latest, that has not been said to have arrived.
    pub fn waits_since_ns(&self) -> Option<u64> {
        self.stamps.front().map(|&(_, at_ns)| at_ns)
    }

    /// When the last frame had left that has been said to have arrived.
    pub fn confirmed_ns(&self) -> u64 {
        self.confirmed_ns
    }

    /// Whether a frame has left since.
    pub fn has_sent_since(&self, since_ns: u64) -> bool {
        let Some(&(sent, at_ns)) = self.stamps.back() else { return !self.kept.is_empty() };
        at_ns > since_ns || sent != self.sent()
    }

    /// Has the peer asked for a sign of life when so much time has passed without one since something left, and
    /// then in ever longer intervals.
    pub fn probe_after(&mut self, patience_ns: u64, now_ns: u64) {
        if let (Some(&(_, first_ns)), Some(&(_, last_ns))) =
            (self.stamps.front(), self.stamps.back())
        {
            self.probes |= now_ns - last_ns > patience_ns.max(last_ns - first_ns);
        }
    }

    /// Takes note that the peer is asked for a sign of life; whether it was to be.
    pub fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.probes)
    }

    /// The sequence at which the oldest frame left that has not been said to have arrived.
    #[inline]
    pub fn oldest_sequence(&self) -> Option<u32> {
        self.kept.front().map(|kept| kept.sequence)
    }

    /// Bytes of frames that have not been said to have arrived.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a long frame is under way.
    #[inline]
    pub fn has_longs(&self) -> bool {
        !self.longs.is_empty()
    }

    /// Whether no operation waits for a frame to arrive.
    pub fn is_settled(&self) -> bool {
        self.longs.iter().all(|long| long.token.is_none())
    }

    /// Whether a link whose frames are no longer than this can carry what is kept.
    pub fn fits(&self, frame_max: usize) -> bool {
        let mut longs = self.longs.iter();
        self.kept.iter().all(|kept| {
            let long = if kept.is_long { longs.next() } else { None };
            let body_len = long.map_or(0, |long| long.body.region.len());
            packet::ACK_LEN + kept.head_len as usize + body_len <= frame_max
        })
    }

    /// Takes the memory of a frame that has left whole, and is still to arrive, to be free: keeps a copy
    /// instead, as long as there are not more than `copied_max` bytes of copies. Those for which there is no room
    /// are [copied](Self::copy_others) when there is.
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

    /// Whether a frame was left for which there was no room.
    #[inline]
    pub fn wants_copies(&self) -> bool {
        self.longs.iter().any(|long| long.wants_copy)
    }

    /// Copies what had no room, in order, as far as there is room now; tells the tokens of what is free.
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

    /// All that is kept leaves this replay_buffer, for other links to carry.
    pub fn take_lost(&mut self, lost: &mut VecDeque<Lost>) {
        let mut longs = std::mem::take(&mut self.longs).into_iter();
        for Kept { head_len, sequence, is_long } in std::mem::take(&mut self.kept) {
            let head = self.heads.front(0, head_len as usize).into();
            self.heads.pop(head_len as usize);
            let long = if is_long { longs.next() } else { None };
            let (body, token) = long.map_or((None, None), |long| (Some(long.body), long.token));
            lost.push_back(Lost { head, body, token, sequence });
        }
        (self.bytes, self.copied_bytes, self.again) = (0, 0, None);
        self.stamps.clear();
        // What was asked for is asked for again, where it goes.
        self.prompted = self.confirmed;
    }

    /// Keeps a frame that another link has lost, and that is about to be posted with the question for it.
    pub fn keep_lost(&mut self, lost: Lost) {
        let Lost { head, body, token, sequence } = lost;
        self.heads.push(&head);
        self.bytes += head.len();
        let is_long = body.is_some();
        if let Some(body) = body {
            self.bytes += body.region.len();
            self.copied_bytes += if token.is_none() { body.region.len() } else { 0 };
            self.longs.push_back(Long { body, token, wants_copy: false });
        }
        self.kept.push_back(Kept { head_len: head.len() as u32, sequence, is_long });
        self.note_prompted(self.sent());
    }
}

/// Openings and ends.
impl ReplayBuffer {
    /// The link is open once more.
    pub fn open(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Appends the word with which the link begins; this end `keeps` frames, or need not.
    pub fn emit_resume(&mut self, head: &mut Vec<u8>, rail: RailId, keeps: bool) {
        self.keeps |= keeps;
        packet::emit_resume(head, self.name(rail), self.received, self.keeps);
        self.note_told();
    }

    /// What this side calls the link, over the given rail.
    pub fn name(&self, rail: RailId) -> Incarnation {
        Incarnation { rail: rail.0, epoch: self.epoch }
    }

    /// The peer's greeting has come, and what it says has arrived is confirmed: the rest goes again. False if the
    /// peer has said meanwhile that this opening is over.
    pub fn meet(&mut self, peer: Incarnation) -> bool {
        if self.peer.is_some_and(|known| peer.epoch <= known.epoch) {
            return false;
        }
        (self.peer, self.is_over) = (Some(peer), false);
        self.again = (!self.kept.is_empty()).then(Again::default);
        true
    }

    /// The link is gone, until it opens again if ever.
    pub fn close(&mut self) {
        (self.suspected_ns, self.probes, self.is_asked, self.busy) = (None, false, false, None);
        self.stamps.clear();
        self.prompted = self.confirmed;
        self.again = None;
    }

    /// Builds the frame that is to go again next; false if there is none.
    pub fn emit_again(&mut self, frame: &mut Frame) -> bool {
        let Some(Again { frames, head_bytes, longs }) = self.again else { return false };
        let Some(&Kept { head_len, is_long, .. }) = self.kept.get(frames) else {
            self.again = None;
            return false;
        };
        let mut long = if is_long { self.longs.get_mut(longs) } else { None };
        let is_last = frames + 1 == self.kept.len();
        let is_prompt = is_long || is_last;
        frame.body = long.as_ref().map(|long| long.body.clone());
        frame.token = long.as_ref().map(|long| long.token.unwrap_or(NOBODY));
        if let Some(long) = &mut long {
            // The rail has it again.
            long.wants_copy = false;
        }
        self.tell(&mut frame.head, is_prompt);
        frame.head.extend_from_slice(self.heads.front(head_bytes, head_len as usize));
        if is_prompt {
            self.prompted = self.confirmed.wrapping_add(frames as u32 + 1);
        }
        self.again = (!is_last).then_some(Again {
            frames: frames + 1,
            head_bytes: head_bytes + head_len as usize,
            longs: longs + usize::from(is_long),
        });
        true
    }
}

/// What comes in.
impl ReplayBuffer {
    /// A counted frame has come.
    #[inline]
    pub fn receive(&mut self, bytes: usize) {
        self.received = self.received.wrapping_add(1);
        self.untold_bytes += bytes;
    }

    /// Counts a frame that says nothing of the link; false if it does.
    #[inline]
    pub fn receive_quiet(&mut self, frame: &[u8]) -> bool {
        let is_quiet = !frame.is_empty() && packet::split_ack(frame).is_none();
        if is_quiet {
            self.receive(frame.len());
        }
        is_quiet
    }

    /// Whether something has come of which the peer has not been told.
    #[inline]
    pub fn has_untold(&self) -> bool {
        self.received != self.told
    }

    /// The peer waits to be told.
    #[inline]
    pub fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Whether the peer is to be told in a frame of its own, if there is no other.
    #[inline]
    pub fn has_errand(&self) -> bool {
        self.is_asked || self.probes || self.again.is_some()
    }

    /// Whether enough has come to tell the peer where a frame goes back anyway.
    #[inline]
    pub fn may_tell(&self) -> bool {
        self.is_asked
            || self.untold_bytes >= TELL_BYTES
            || self.received.wrapping_sub(self.told) >= TELL_EVERY
    }

    /// Whether the peer waits to be told.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Appends to a frame what has come, and perhaps the question for the same.
    #[inline]
    pub fn tell(&mut self, head: &mut Vec<u8>, is_prompt: bool) {
        packet::emit_ack(head, self.received, is_prompt);
        self.note_told();
    }

    /// What has come has been put into a frame that leaves.
    #[inline]
    pub fn note_told(&mut self) {
        self.told = self.received;
        self.untold_bytes = 0;
        self.is_asked = false;
    }

    /// How many counted frames have come.
    pub fn received(&self) -> u32 {
        self.received
    }
}

/// Heads of frames, one behind the other.
#[derive(Debug, Default)]
struct Heads {
    /// Those from `start` on are in use.
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

    /// Moves what is in use to the beginning: at most once for as many bytes as were freed since.
    #[inline(never)]
    fn compact(&mut self) {
        if self.start >= self.bytes.len() / 2 {
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(self.bytes.len() - self.start);
            self.start = 0;
        }
    }

    /// The first is not needed any more.
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

    /// `len` bytes, `skipped` bytes behind the first.
    fn front(&self, skipped: usize, len: usize) -> &[u8] {
        let from = self.start + skipped;
        &self.bytes[from..from + len]
    }
}

/// The token of a body that no operation waits for: no operation has this generation and this place.
pub(crate) const NOBODY: FrameToken = FrameToken(u64::MAX);

/// Frames that may be under way on a link without having been confirmed: 10 Gb/s over 300 ms are 9000 of 40 KB.
const KEPT_MAX: usize = 16384;

/// The peer is asked to confirm at least every so many frames, and bytes.
const PROMPT_EVERY: u32 = 64;
pub(crate) const PROMPT_BYTES: usize = 64 << 10;
/// Bytes of a long message between two words about it, where its memory is free before: each word costs both hosts, and
/// the gateways between them, a wake-up.
pub(crate) const PROMPT_BYTES_FAR: usize = 192 << 10;

/// The peer is told of so many frames, or bytes, where a frame goes back anyway.
const TELL_EVERY: u32 = 8;
const TELL_BYTES: usize = 1 << 10;

/// What has to arrive before it says something of a link's rate, in bytes.
const OBSERVED_MIN: u64 = 512 << 10;

/// So many moments are told apart at which frames had left.
const STAMPS_MAX: usize = 64;

/// So much memory for heads is held ready, in bytes.
const SPARE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps a frame with a body of 100 bytes.
    fn keep(replay_buffer: &mut ReplayBuffer, token: u64) {
        let body = Some(Body { region: Region::from_box([token as u8; 100].into()) });
        let frame = Frame { head: vec![], body, token: Some(FrameToken(token)) };
        replay_buffer.keep(&frame, Keeping { from: 0, sequence: 0, is_prompt: true });
    }

    #[test]
    fn what_has_left_is_copied_when_earlier_copies_make_room() {
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
        // The fourth has not left.
        assert_eq!((&is_free[..], replay_buffer.wants_copies()), (&[FrameToken(2)][..], false));
        replay_buffer.confirm(4, 0, |token| is_free.push(token)).unwrap();
        assert_eq!(is_free, [FrameToken(2), FrameToken(3)]);
        assert_eq!((replay_buffer.bytes(), replay_buffer.copied_bytes), (0, 0));
    }

    #[test]
    fn what_goes_again_is_copied_when_it_has_left_again() {
        let mut replay_buffer = ReplayBuffer::default();
        (0..2).for_each(|token| keep(&mut replay_buffer, token));
        assert_eq!([0, 1].map(|token| replay_buffer.copy(FrameToken(token), 100)), [true, false]);
        replay_buffer.again = Some(Again::default());
        let mut frame = Frame::default();
        while replay_buffer.emit_again(&mut frame) {}
        assert!(!replay_buffer.wants_copies());
        assert!(!replay_buffer.copy(FrameToken(1), 100) && replay_buffer.wants_copies());
    }
}
