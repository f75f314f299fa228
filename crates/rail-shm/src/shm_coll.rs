//! A shared-memory segment for collectives, which members of a group write and all may read.
//!
//! Members go through *rounds* together. In each round every member posts one contribution, which may be empty. A
//! member that needs contributions waits until they are posted and reads them in place. Nobody waits for readers at
//! once: a member that reuses a place has seen that all members have begun a later round. Short contributions have
//! slots of their own, more of them the shorter they are. A member that finds no free slot waits until several are
//! free, because one is not worth a context switch. Long contributions go to one of two pages: behind the earlier
//! data there, or to the start of the other page once that was read.
//!
//! Data longer than a page continues in the same round, piece by piece on alternating pages, for one reader, who
//! acknowledges the pieces. The number of rounds thus does not depend on lengths that other members do not know.
//!
//! A round belongs to an operation, whose number lies beside the round's. A member that has skipped an operation,
//! because a check failed there only, finds the next one in the lines of others and posts nothing in the rounds
//! before it (`steps`).
//!
//! A member's round number and its brief contribution lie side by side. A member about to sleep publishes its
//! condition and its sleeper bit, and checks once more. A member whose post completes the condition rings its
//! doorbell. Each side runs a full fence between its write and its check (Dekker's problem). The same holds for two
//! members that post at once: one of them sees the condition complete.

mod awaited;
mod layout;
mod pages;
mod steps;

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use memory::Region;

use crate::balance::Balancer;
use crate::liveness::Liveness;
use crate::nt_stores::NtStores;
use crate::pool::LINE;
use crate::segment::Segment;
use crate::shared::{Shared, Word};
use crate::shm_coll::awaited::{Awaited, Condition, PIECE_BITS, place_of};
pub(super) use crate::shm_coll::layout::Layout;
use crate::shm_coll::layout::{
    CORE_AT, LEN_AT, PAGE_AT, PAGES, PID_AT, POSTED_AT, Places, READY_AT, TAKEN_AT, TOTAL_AT,
    before,
};
use crate::shm_coll::pages::Pages;
pub use crate::shm_coll::steps::Operations;
use crate::shm_coll::steps::{StepState, mark, round_of};

/// One member's view of a shared segment.
#[derive(Debug)]
pub struct ShmColl<S = Segment> {
    memory: S,
    size: u32,
    me: u32,
    layout: Layout,
    /// Round of the latest post; the first is 1.
    round: u64,
    /// A round that all members have begun.
    begun_by_all: u64,
    operations: Operations,
    step_state: StepState,
    pages: Pages,
    /// Total length of the next contribution with its further pieces, and their only reader.
    announced: Option<(usize, u32)>,
    /// Condition that this member waits for.
    awaited: Option<Awaited>,
    liveness: Vec<Option<Liveness>>,
    /// Time of the next liveness check, and the number of calls so far.
    next_look: Instant,
    looks: u32,
    /// Member that was found to have ended.
    lost: Option<u32>,
    balancer: Balancer,
    nt_stores: NtStores,
}

/// Address of a shared segment, for members that join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmCollInvitation {
    pid: i32,
    descriptor: i32,
}

impl ShmCollInvitation {
    /// Length of an encoded invitation.
    pub const LEN: usize = 8;

    /// Encodes the invitation for members of the group.
    pub fn emit(self) -> [u8; Self::LEN] {
        (u64::from(self.pid as u32) << 32 | u64::from(self.descriptor as u32)).to_le_bytes()
    }

    /// Decodes an invitation.
    pub fn parse(bytes: [u8; Self::LEN]) -> Self {
        let number = u64::from_le_bytes(bytes);
        Self { pid: (number >> 32) as i32, descriptor: number as i32 }
    }
}

impl ShmColl {
    /// Maximum length of a result that one member combines for all, in bytes.
    pub const COMBINED_MAX: usize = Segment::SHORT_LEN;

    /// Creates a shared segment of `size` members, at most 64, as member 0. `page_len` is the maximum length of a
    /// contribution, a multiple of a cache line below 1 GiB.
    ///
    /// # Errors
    /// The kernel gives no shared memory.
    pub fn create(size: u32, page_len: usize) -> io::Result<(Self, ShmCollInvitation)> {
        let Layout { first_page, len_bytes, .. } = Layout::of::<Segment>(size, page_len);
        let memory = Segment::create_in_part(len_bytes, first_page)?;
        let invitation =
            ShmCollInvitation { pid: std::process::id() as i32, descriptor: memory.descriptor() };
        Ok((Self::over(memory, size, 0, page_len), invitation))
    }

    /// Joins the shared segment of another process as member `me`.
    ///
    /// # Errors
    /// The kernel does not let this process attach the other's memory.
    pub fn join(
        invitation: ShmCollInvitation,
        size: u32,
        me: u32,
        page_len: usize,
    ) -> io::Result<Self> {
        let len = Layout::of::<Segment>(size, page_len).len_bytes;
        let memory = Segment::attach(invitation.pid, invitation.descriptor, len)?;
        Ok(Self::over(memory, size, me, page_len))
    }

    /// Returns the contribution of a member in this round, valid until the next post of this member. The member must
    /// have been met.
    #[inline]
    pub fn contribution(&self, member: u32) -> Region {
        let (at, len) = self.locate(member);
        // SAFETY: the range lies in the mapping, which lives as long as the shared segment. Its writer reuses it only
        // after this member has begun a later round.
        unsafe { Region::new(self.memory.address(at) as *mut u8, len) }
    }

    /// Returns the contribution of a member in this round as a slice.
    #[inline]
    pub fn posted(&self, member: u32) -> &[u8] {
        let (at, len) = self.locate(member);
        self.memory.slice(at, len)
    }

    /// Returns a further piece that a member has posted in this round, valid until this member releases it. The
    /// member must have been met.
    ///
    /// # Errors
    /// The announced total length and the expected minimum, if the announced one is too short.
    pub fn more(&self, member: u32, piece: u32, len: usize) -> Result<Region, (usize, usize)> {
        let at = self.locate_piece(member, piece, len)?;
        // SAFETY: the range lies in the mapping, which lives as long as the shared segment. Its writer reuses it only
        // after this member has released the piece.
        Ok(unsafe { Region::new(self.memory.address(at) as *mut u8, len) })
    }

    /// Balances oversubscribed members among the CPU cores from time to time; called by a waiting member after a
    /// yield.
    #[inline]
    pub fn balance(&mut self, now: Instant) {
        if self.balancer.is_due(now) {
            self.compare_cores();
        }
    }

    #[cold]
    fn compare_cores(&mut self) {
        // SAFETY: `sched_getcpu` takes no arguments and touches no memory.
        let here = unsafe { libc::sched_getcpu() } as u32;
        let Self { memory, size, me, balancer, .. } = self;
        let told = |member: u32| memory.word32(member as usize * LINE + CORE_AT);
        if told(*me).load(Ordering::Relaxed) != here + 1 {
            told(*me).store(here + 1, Ordering::Relaxed);
        }
        let core_of = |member| Some((member, told(member).load(Ordering::Relaxed).checked_sub(1)?));
        let others = (0..*size).filter(|member| member != me).filter_map(core_of);
        balancer.look(*me, here, others);
    }

    /// Returns the length of the segment in bytes.
    pub fn len_bytes(&self) -> usize {
        self.layout.len_bytes
    }

    /// Closes the segment to further members.
    pub fn close_invitation(&mut self) {
        self.memory.close();
    }
}

impl<S: Shared> ShmColl<S> {
    /// Creates member `me`'s view of a shared segment in this memory.
    pub(super) fn over(memory: S, size: u32, me: u32, page_len: usize) -> Self {
        assert!(size <= u64::BITS, "sleepers have a bit each");
        let now = Instant::now();
        let shm_coll = Self {
            memory,
            size,
            me,
            layout: Layout::of::<S>(size, page_len),
            round: 0,
            begun_by_all: 0,
            operations: Operations::default(),
            step_state: StepState::default(),
            pages: Pages::default(),
            announced: None,
            awaited: None,
            liveness: (0..size).map(|_| None).collect(),
            next_look: now,
            looks: 0,
            lost: None,
            balancer: Balancer::new(now),
            nt_stores: NtStores::default(),
        };
        shm_coll
            .memory
            .word32(shm_coll.control(me) + PID_AT)
            .store(std::process::id(), Ordering::Relaxed);
        shm_coll
    }

    /// True if the place of the next contribution of `len` bytes is free. Otherwise this member waits for that.
    #[inline]
    pub fn has_room(&mut self, len: usize) -> bool {
        self.is_in_step() && self.has_place_for(len)
    }

    #[inline]
    fn has_place_for(&mut self, len: usize) -> bool {
        let places = self.places(len);
        let Places { count, .. } = places.unwrap_or(self.layout.lines);
        // All members have read the place if they have begun the round after its last use.
        let has_place = match (self.round + 2).checked_sub(count) {
            Some(round) if round > self.begun_by_all.max(1) => {
                self.meets(round + count / 2 - 2, 0..self.size)
            }
            Some(_) | None => true,
        };
        has_place && (places.is_some() || self.has_page(len))
    }

    /// True if a page has room for `len` bytes; otherwise this member waits for that.
    #[inline(never)]
    fn has_page(&mut self, len: usize) -> bool {
        let Pages { last, current, .. } = self.pages;
        if self.is_read(1 - current) {
            return true;
        }
        let has_place = self.pages.place(false, len, self.layout.page_len).is_some();
        let is_read = match self.pages.readers[1 - current] {
            Some(reader) => self.awaits(Awaited::taking(last[1 - current], reader)),
            None => self.meets(last[1 - current] + 1, 0..self.size),
        };
        is_read || {
            // Waiting makes sense only if there is no other room.
            self.awaited = self.awaited.take().filter(|_| !has_place);
            has_place
        }
    }

    /// True if all readers of a page have read it.
    fn is_read(&self, page: usize) -> bool {
        let Pages { last, readers, .. } = self.pages;
        let is_taken = |(reader, piece)| self.has_done(reader, last[page], Condition::Taken(piece));
        last[page] < self.begun_by_all.max(1) || readers[page].is_some_and(is_taken)
    }

    /// Allocates memory for the next contribution of `len` bytes, for which there must be room. Many communicators
    /// never use their pages, so memory is allocated late.
    ///
    /// # Errors
    /// The kernel has no memory.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> io::Result<()> {
        match self.places(len) {
            Some(_) => Ok(()),
            None => self.reserve_place(len),
        }
    }

    #[inline(never)]
    fn reserve_place(&mut self, len: usize) -> io::Result<()> {
        // All members may have read a page between this call and the post, so both pages are reserved.
        for is_other_read in [true, false] {
            if let Some((page, start)) = self.pages.place(is_other_read, len, self.layout.page_len)
            {
                self.reserve_page(page, start + len)?;
            }
        }
        Ok(())
    }

    /// Allocates memory for a further piece.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn reserve_more(&mut self) -> io::Result<()> {
        self.reserve_page(1 - self.pages.current, self.layout.page_len)
    }

    fn reserve_page(&mut self, page: usize, end: usize) -> io::Result<()> {
        if let Some((start, len)) = self.pages.unreserved(page, end, self.layout.page_len) {
            self.memory.reserve(self.layout.page(self.me, page) + start, len)?;
            self.pages.reserve(page, len);
        }
        Ok(())
    }

    /// Posts a contribution of `len` bytes that `fill` writes, with non-temporal stores if its argument is true. Room
    /// and memory must exist.
    ///
    /// # Panics
    /// The contribution is longer than a page.
    #[inline]
    pub fn post(&mut self, len: usize, fill: impl FnOnce(&mut [u8], bool)) {
        self.post_for(self.operations.number(), len, fill);
    }

    #[inline]
    fn post_for(&mut self, operation: u64, len: usize, fill: impl FnOnce(&mut [u8], bool)) {
        assert!(len <= self.layout.page_len, "a contribution is at most a page long");
        self.round += 1;
        let line = self.line(self.me, self.round);
        if len > 0 {
            let at = match self.places(len) {
                Some(places) => places.at(self.me, self.round) + before::<S>(len),
                None => self.take_page(line, len),
            };
            self.write(at, len, fill);
        }
        self.memory.word32(line + LEN_AT).store(len as u32, Ordering::Relaxed);
        self.memory.word64(line).store(mark(self.round, operation), Ordering::Release);
        S::fence();
    }

    /// Writes a contribution; for a long one the kind of stores is chosen by measurement, because its readers may be
    /// far away.
    #[inline]
    fn write(&mut self, at: usize, len: usize, fill: impl FnOnce(&mut [u8], bool)) {
        let page = self.memory.slice_mut(at, len);
        if len < NtStores::LEN_MIN {
            return fill(page, false);
        }
        let (past, is_measured) = self.nt_stores.choose();
        let begun = is_measured.then(Instant::now);
        fill(page, past);
        if let Some(begun) = begun {
            self.nt_stores.learn(past, len, begun.elapsed());
        }
    }

    /// Allocates a place on a page and records it in the line.
    #[inline(never)]
    fn take_page(&mut self, line: usize, len: usize) -> usize {
        let is_read = self.is_read(1 - self.pages.current);
        let Self { pages, layout, announced, .. } = self;
        let place = pages.place(is_read, len, layout.page_len);
        let (page, start) = place.unwrap_or_else(|| unreachable!("there is room"));
        let (total, reader) = announced.take().unzip();
        pages.take(page, start + len, self.round, reader.map(|reader| (reader, 0)));
        let start = page * layout.page_len + start;
        self.memory.word32(line + PAGE_AT).store(start as u32, Ordering::Relaxed);
        let total = total.unwrap_or(len) as u64;
        self.memory.word64(line + TOTAL_AT).store(total, Ordering::Relaxed);
        self.layout.page(self.me, 0) + start
    }

    /// Returns the combined result of this round, if a member has published one.
    #[inline]
    pub fn combined(&self) -> Option<&[u8]> {
        let at = self.layout.combined.at(0, self.round);
        if self.memory.word64(at + READY_AT).load(Ordering::Acquire) != self.round {
            return None;
        }
        let len = self.memory.word32(at + LEN_AT).load(Ordering::Relaxed) as usize;
        Some(self.memory.slice(at + LINE, len.min(S::SHORT_LEN)))
    }

    /// Publishes the combined result of this round, which `fill` writes, unless another member does so already. All
    /// members must have been met.
    ///
    /// # Panics
    /// The result is longer than a short contribution.
    pub fn tell_combined(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(len <= S::SHORT_LEN, "what is combined for all is short");
        let at = self.layout.combined.at(0, self.round);
        // All members have begun this round, so nobody reads the result of an earlier one.
        if self.memory.word64(at).swap(self.round, Ordering::Relaxed) == self.round {
            return;
        }
        fill(self.memory.slice_mut(at + LINE, len));
        self.memory.word32(at + LEN_AT).store(len as u32, Ordering::Relaxed);
        self.memory.word64(at + READY_AT).store(self.round, Ordering::Release);
    }

    /// Announces the total length of the next contribution and its only reader. The post, of a whole page, is the
    /// first piece.
    pub fn announce(&mut self, len: usize, reader: u32) {
        self.announced = Some((len, reader));
    }

    /// True if a page is free for a further piece of this round. Otherwise this member waits for that.
    pub fn has_room_for_more(&mut self) -> bool {
        self.has_page(self.layout.page_len)
    }

    /// Posts a further piece of this round, as [`post`](Self::post) does. Room and memory must exist.
    ///
    /// # Panics
    /// The piece is longer than a page, or there are too many.
    pub fn post_more(&mut self, piece: u32, len: usize, fill: impl FnOnce(&mut [u8], bool)) {
        let page_len = self.layout.page_len;
        assert!(len <= page_len, "a piece is at most a page long");
        assert!(piece >> PIECE_BITS == 0, "pieces have numbers of few bits");
        let page = 1 - self.pages.current;
        let reader = self.pages.readers[self.pages.current].map(|(reader, _)| (reader, piece));
        self.pages.take(page, page_len, self.round, reader);
        self.write(self.layout.page(self.me, page), len, fill);
        let word = self.memory.word64(self.control(self.me) + POSTED_AT);
        word.store(place_of(self.round, piece), Ordering::Release);
        S::fence();
    }

    /// True if a member has posted this piece, or will post none. Otherwise this member waits for that.
    pub fn has_more(&mut self, member: u32, piece: u32) -> bool {
        let (round, members) = (self.round, member..member + 1);
        self.has_met_more(member, piece)
            || self.awaits(Awaited { round, members, what: Condition::More(piece) })
    }

    /// [`has_more`](Self::has_more) without waiting.
    pub fn has_met_more(&self, member: u32, piece: u32) -> bool {
        let is_short = || self.announced_len(member) <= self.layout.page_len * piece as usize;
        self.has_done(member, self.round, Condition::More(piece))
            || self.has_met(member) && is_short()
    }

    /// Returns the total length of a contribution in all its pieces. The member must have been met and have posted a
    /// page.
    fn announced_len(&self, member: u32) -> usize {
        let line = self.line(member, self.round);
        match self.memory.word32(line + LEN_AT).load(Ordering::Relaxed) as usize {
            len if len < self.layout.page_len => len,
            _ => self.memory.word64(line + TOTAL_AT).load(Ordering::Relaxed) as usize,
        }
    }

    /// Records that this member has read all pieces of this round up to `piece`, of all members.
    pub fn release(&self, piece: u32) {
        let word = self.memory.word64(self.control(self.me) + TAKEN_AT);
        word.store(place_of(self.round, piece), Ordering::Release);
        S::fence();
    }

    /// Returns the offset of a further piece. The error is the announced length, if that is too short, and the
    /// expected one.
    pub(super) fn locate_piece(
        &self,
        member: u32,
        piece: u32,
        len: usize,
    ) -> Result<usize, (usize, usize)> {
        let page_len = self.layout.page_len;
        let told = self.memory.word32(self.line(member, self.round) + PAGE_AT);
        let first = told.load(Ordering::Relaxed) as usize / page_len;
        let (announced, expected) = (self.announced_len(member), page_len * piece as usize + len);
        match announced < expected {
            true => Err((announced, expected)),
            false => Ok(self.layout.page(member, (first + piece as usize) % PAGES)),
        }
    }

    /// Calls `ring` for each sleeping member whose condition the latest post completes. Each sleeping member is woken
    /// once.
    #[inline]
    pub fn wake_members(&self, ring: impl FnMut(u32)) {
        let sleepers = self.sleepers().load(Ordering::Relaxed) & !self.own_bit();
        if sleepers != 0 {
            self.wake_sleepers(sleepers, ring);
        }
    }

    #[cold]
    fn wake_sleepers(&self, sleepers: u64, mut ring: impl FnMut(u32)) {
        for member in (0..self.size).filter(|member| sleepers >> member & 1 == 1) {
            let word = self.memory.word64(self.control(member));
            let wanted = word.load(Ordering::Relaxed);
            if wanted != 0 && self.completes(wanted) && word.swap(0, Ordering::Relaxed) != 0 {
                ring(member);
            }
        }
    }

    fn completes(&self, wanted: u64) -> bool {
        let awaited = Awaited::decode(wanted, self.round);
        let Awaited { members, .. } = &awaited;
        members.contains(&self.me) && members.end <= self.size && self.is_done(&awaited)
    }

    fn is_done(&self, Awaited { round, members, what }: &Awaited) -> bool {
        members.clone().all(|member| self.has_done(member, *round, *what))
    }

    /// True if a member has done this in a round, or is past it.
    fn has_done(&self, member: u32, round: u64, what: Condition) -> bool {
        let has_reached = |at, piece| {
            let word = self.memory.word64(self.control(member) + at);
            word.load(Ordering::Acquire) >= place_of(round, piece)
                || self.has_posted(member, round + 1)
        };
        match what {
            Condition::Post => self.has_posted(member, round),
            Condition::More(piece) => has_reached(POSTED_AT, piece),
            Condition::Taken(piece) => has_reached(TAKEN_AT, piece),
        }
    }

    fn awaits(&mut self, awaited: Awaited) -> bool {
        let is_done = self.is_done(&awaited);
        self.awaited = (!is_done).then_some(awaited);
        is_done
    }

    /// True if a member has posted in the current round: it is met then.
    #[inline]
    pub fn has_met(&self, member: u32) -> bool {
        self.has_posted(member, self.round)
    }

    /// True if the members have posted in the current round. Otherwise this member waits for that.
    #[inline]
    pub fn has(&mut self, members: Range<u32>) -> bool {
        self.meets(self.round, members)
    }

    #[inline]
    fn meets(&mut self, round: u64, members: Range<u32>) -> bool {
        let is_met = members.clone().all(|member| self.has_posted(member, round));
        if is_met {
            if members == (0..self.size) {
                self.begun_by_all = self.begun_by_all.max(round);
            }
            self.awaited = None;
        } else {
            self.awaited = Some(Awaited { round, members, what: Condition::Post });
        }
        is_met
    }

    /// Returns offset and length of a member's contribution to this round. The member must have been met.
    #[inline]
    pub(super) fn locate(&self, member: u32) -> (usize, usize) {
        let line = self.line(member, self.round);
        let len = self.memory.word32(line + LEN_AT).load(Ordering::Relaxed) as usize;
        let len = len.min(self.layout.page_len);
        (self.place(member, self.round, len), len)
    }

    fn is_due(&self) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| self.is_done(awaited))
    }

    /// True if the awaited condition holds, or if a member that should fulfil it has ended; reported once.
    pub fn take_due(&mut self) -> bool {
        let is_due = self.awaited.is_some() && (self.is_due() || self.missing().is_some());
        if is_due {
            self.awaited = None;
        }
        is_due
    }

    /// Announces that this member is about to sleep; false if its condition holds already.
    pub fn begin_sleep(&mut self) -> bool {
        let Some(awaited) = &self.awaited else { return true };
        let word = self.memory.word64(self.control(self.me));
        word.store(awaited.encode(), Ordering::Relaxed);
        self.sleepers().fetch_or(self.own_bit(), Ordering::Relaxed);
        S::fence();
        !self.is_due()
    }

    /// Records that this member is awake.
    pub fn end_sleep(&mut self) {
        self.memory.word64(self.control(self.me)).store(0, Ordering::Relaxed);
        self.sleepers().fetch_and(!self.own_bit(), Ordering::Relaxed);
        // Time has passed, so the next call reads the clock.
        self.looks = LOOKS_PER_CLOCK - 1;
    }

    /// Returns the members that this one waits for, because they have not yet done what it needs.
    pub fn awaited_members(&self) -> Vec<u32> {
        let Some(Awaited { round, members, what }) = self.awaited.clone() else {
            return Vec::new();
        };
        members.filter(|member| !self.has_done(*member, round, what)).collect()
    }

    /// Returns a member that has ended without fulfilling the awaited condition. The check runs at intervals.
    pub fn missing(&mut self) -> Option<u32> {
        if self.lost.is_some() {
            return self.lost;
        }
        let Awaited { round, members, what } = self.awaited.clone()?;
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            return None;
        }
        let now = Instant::now();
        if now < self.next_look {
            return None;
        }
        self.next_look = now + LOOK_EVERY;
        for member in members.filter(|member| *member != self.me) {
            let pid = self.memory.word32(self.control(member) + PID_AT).load(Ordering::Relaxed);
            let liveness =
                self.liveness[member as usize].get_or_insert_with(|| Liveness::of(pid as i32));
            // A post before its end counts.
            if liveness.has_ended() && !self.has_done(member, round, what) {
                self.lost = Some(member);
                return self.lost;
            }
        }
        None
    }

    #[inline]
    fn has_posted(&self, member: u32, round: u64) -> bool {
        round_of(self.marked(member, round)) >= round
    }

    /// Returns the round number on a member's line, with the operation number.
    #[inline]
    fn marked(&self, member: u32, round: u64) -> u64 {
        self.memory.word64(self.line(member, round)).load(Ordering::Acquire)
    }

    /// Word with a bit for each member that sleeps or is about to.
    #[inline]
    fn sleepers(&self) -> &S::Word64 {
        self.memory.word64(self.layout.sleepers)
    }

    #[inline]
    fn own_bit(&self) -> u64 {
        1 << self.me
    }

    #[inline]
    fn control(&self, member: u32) -> usize {
        member as usize * LINE
    }

    #[inline]
    fn line(&self, member: u32, round: u64) -> usize {
        self.layout.lines.at(member, round)
    }

    /// Returns the offset of a contribution of `len` bytes.
    #[inline]
    fn place(&self, member: u32, round: u64, len: usize) -> usize {
        match self.places(len) {
            Some(places) => places.at(member, round) + before::<S>(len),
            None => self.place_on_page(member, round, len),
        }
    }

    #[inline(never)]
    fn place_on_page(&self, member: u32, round: u64, len: usize) -> usize {
        let told = self.memory.word32(self.line(member, round) + PAGE_AT);
        let start = told.load(Ordering::Relaxed) as usize;
        self.layout.page(member, 0) + start.min(PAGES * self.layout.page_len - len)
    }

    /// Returns the slots for contributions of `len` bytes; `None` if they go to a page.
    #[inline]
    fn places(&self, len: usize) -> Option<Places> {
        if len <= S::BRIEF_LEN {
            Some(self.layout.lines)
        } else if len <= S::SHORT_LEN {
            Some(self.layout.short)
        } else {
            None
        }
    }
}

/// Interval of liveness checks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Number of calls per reading of the clock.
const LOOKS_PER_CLOCK: u32 = 64;

#[cfg(test)]
mod tests;
