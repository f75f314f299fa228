//! A shared segment: memory on which the members of a group write what all of them may read.
//!
//! Members go through *rounds* together. In each round every member posts once: a contribution, which may be
//! empty. Whoever needs those of others waits until they are posted and reads them where they are. Nobody
//! waits for who reads, but some rounds later: a member that posts again in the same place has seen that all
//! have begun a later round. What is short has places of its own, the more the shorter it is. Who finds none
//! free waits for some at once: one is not worth a change of threads. What is long goes to one of two pages, behind what
//! lies there, or to the beginning of the other as soon as that has been read.
//!
//! What is longer than a page goes on in the same round, piece by piece on either page in turn, for one reader, who says
//! which it has taken: so rounds are as many for those who do not know how much others post.
//!
//! A round belongs to an operation, whose number lies beside the count. Who has left one out, because a check failed there only,
//! finds in the lines of others where the next begins, and posts nothing in the rounds before it (`steps`).
//!
//! A member's count and what is brief lie beside each other. Who is about to sleep says first what it waits for, and that it
//! sleeps, in one word for all, and looks once more; who posts what completes it rings. Either side runs a full fence between its write
//! and its look (Dekker's problem), and so do two that post at once: one of them sees that all is there.

mod awaited;
mod layout;
mod pages;
mod steps;

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use memory::Region;

use super::balance::Evenness;
use super::liveness::Life;
use super::nt_stores::Stores;
use super::pool::LINE;
use super::segment::Segment;
use super::shared::{Shared, Word};
use awaited::{Awaited, PIECE_BITS, What, place_of};
pub(super) use layout::Layout;
use layout::{
    CORE_AT, LEN_AT, PAGE_AT, PAGES, PID_AT, POSTED_AT, Places, READY_AT, TAKEN_AT, TOTAL_AT,
    before,
};
use pages::Pages;
pub use steps::Operations;
use steps::{Standing, mark, round_of};

/// One member's part of a shared segment.
#[derive(Debug)]
pub struct ShmColl<S = Segment> {
    memory: S,
    size: u32,
    me: u32,
    layout: Layout,
    /// The round of the latest post; the first is 1.
    round: u64,
    /// A round that all have begun.
    begun_by_all: u64,
    operations: Operations,
    standing: Standing,
    pages: Pages,
    /// How long the next contribution is with all that follows its first page, and who reads it, if something does.
    announced: Option<(usize, u32)>,
    /// What this member waits for.
    awaited: Option<Awaited>,
    lives: Vec<Option<Life>>,
    /// When to ask next whether the others live, and how often that was looked at.
    next_look: Instant,
    looks: u32,
    /// Whom this member has missed.
    lost: Option<u32>,
    evenness: Evenness,
    stores: Stores,
}

/// Where a shared segment is found, for those who join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmCollInvitation {
    pid: i32,
    descriptor: i32,
}

impl ShmCollInvitation {
    /// Length of a door's bytes.
    pub const LEN: usize = 8;

    /// As bytes, for members of the group.
    pub fn emit(self) -> [u8; Self::LEN] {
        (u64::from(self.pid as u32) << 32 | u64::from(self.descriptor as u32)).to_le_bytes()
    }

    /// What such bytes say.
    pub fn parse(bytes: [u8; Self::LEN]) -> Self {
        let number = u64::from_le_bytes(bytes);
        Self { pid: (number >> 32) as i32, descriptor: number as i32 }
    }
}

impl ShmColl {
    /// How many bytes one member may combine for all.
    pub const COMBINED_MAX: usize = Segment::SHORT_LEN;

    /// Makes a shared segment of `size` members, at most 64, as its first. A contribution is at most `page_len` bytes long, a
    /// multiple of a cache line, below 1 GiB.
    ///
    /// # Errors
    /// When the kernel gives no shared memory.
    pub fn found(size: u32, page_len: usize) -> io::Result<(Self, ShmCollInvitation)> {
        let Layout { first_page, len_bytes, .. } = Layout::of::<Segment>(size, page_len);
        let memory = Segment::create_in_part(len_bytes, first_page)?;
        let door =
            ShmCollInvitation { pid: std::process::id() as i32, descriptor: memory.descriptor() };
        Ok((Self::over(memory, size, 0, page_len), door))
    }

    /// Takes member `me`'s place at a shared segment that another process has made.
    ///
    /// # Errors
    /// When the kernel does not let this process reach the other's memory.
    pub fn join(door: ShmCollInvitation, size: u32, me: u32, page_len: usize) -> io::Result<Self> {
        let len = Layout::of::<Segment>(size, page_len).len_bytes;
        let memory = Segment::attach(door.pid, door.descriptor, len)?;
        Ok(Self::over(memory, size, me, page_len))
    }

    /// What a member has posted in this round, until this one posts again; it was met.
    #[inline]
    pub fn contribution(&self, member: u32) -> Region {
        let (at, len) = self.lies(member);
        // SAFETY: it lies in the mapping, which lives as long as the shared segment; the member that may write there again
        // waits until this one has begun a later round.
        unsafe { Region::new(self.memory.address(at) as *mut u8, len) }
    }

    /// What a member has posted in this round, while the shared segment is at hand.
    #[inline]
    pub fn posted(&self, member: u32) -> &[u8] {
        let (at, len) = self.lies(member);
        self.memory.slice(at, len)
    }

    /// A further piece that a member has posted in this round, until this one has taken it; it was met.
    ///
    /// # Errors
    /// How long what that member has announced is altogether, and how long it should be at least, if it is too short.
    pub fn more(&self, member: u32, piece: u32, len: usize) -> Result<Region, (usize, usize)> {
        let at = self.lies_more(member, piece, len)?;
        // SAFETY: as above; the member that may write there again waits until this one has taken the piece.
        Ok(unsafe { Region::new(self.memory.address(at) as *mut u8, len) })
    }

    /// This member waits, and has yielded its core to others that outnumber the cores: now and then it looks whether these
    /// have as many each, and goes to another if not.
    #[inline]
    pub fn even_out(&mut self, now: Instant) {
        if self.evenness.is_due(now) {
            self.compare_cores();
        }
    }

    #[cold]
    fn compare_cores(&mut self) {
        // SAFETY: no preconditions.
        let here = unsafe { libc::sched_getcpu() } as u32;
        let Self { memory, size, me, evenness, .. } = self;
        let told = |member: u32| memory.word32(member as usize * LINE + CORE_AT);
        if told(*me).load(Ordering::Relaxed) != here + 1 {
            told(*me).store(here + 1, Ordering::Relaxed);
        }
        let core_of = |member| Some((member, told(member).load(Ordering::Relaxed).checked_sub(1)?));
        let others = (0..*size).filter(|member| member != me).filter_map(core_of);
        evenness.look(*me, here, others);
    }

    /// Its length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.layout.len_bytes
    }

    /// Nobody else is going to join.
    pub fn close_door(&mut self) {
        self.memory.close();
    }
}

impl<S: Shared> ShmColl<S> {
    /// Member `me`'s part of a shared segment in this memory.
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
            standing: Standing::default(),
            pages: Pages::default(),
            announced: None,
            awaited: None,
            lives: (0..size).map(|_| None).collect(),
            next_look: now,
            looks: 0,
            lost: None,
            evenness: Evenness::new(now),
            stores: Stores::default(),
        };
        shm_coll
            .memory
            .word32(shm_coll.control(me) + PID_AT)
            .store(std::process::id(), Ordering::Relaxed);
        shm_coll
    }

    /// Whether the place of the next contribution, of so many bytes, is free. If it is not, this member waits for
    /// that.
    #[inline]
    pub fn has_room(&mut self, len: usize) -> bool {
        self.is_in_step() && self.has_place_for(len)
    }

    #[inline]
    fn has_place_for(&mut self, len: usize) -> bool {
        let places = self.places(len);
        let Places { count, .. } = places.unwrap_or(self.layout.lines);
        // Whoever has begun the round after that of its last use has read what was there.
        let has_place = match (self.round + 2).checked_sub(count) {
            Some(round) if round > self.begun_by_all.max(1) => {
                self.meets(round + count / 2 - 2, 0..self.size)
            }
            Some(_) | None => true,
        };
        has_place && (places.is_some() || self.has_page(len))
    }

    /// The same of what goes to a page.
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
            // It waits for that only if there is no other room.
            self.awaited = self.awaited.take().filter(|_| !has_place);
            has_place
        }
    }

    /// Whether all who need it have read what lies on a page.
    fn is_read(&self, page: usize) -> bool {
        let Pages { last, readers, .. } = self.pages;
        let is_taken = |(reader, piece)| self.has_done(reader, last[page], What::Taken(piece));
        last[page] < self.begun_by_all.max(1) || readers[page].is_some_and(is_taken)
    }

    /// Sees that there is memory for the next contribution, of so many bytes, for which there is room: what many
    /// communicators never need is not taken before.
    ///
    /// # Errors
    /// When the kernel has none.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> io::Result<()> {
        match self.places(len) {
            Some(_) => Ok(()),
            None => self.reserve_place(len),
        }
    }

    #[inline(never)]
    fn reserve_place(&mut self, len: usize) -> io::Result<()> {
        // A page may be read by all before it is written to.
        for is_other_read in [true, false] {
            if let Some((page, start)) = self.pages.place(is_other_read, len, self.layout.page_len)
            {
                self.reserve_page(page, start + len)?;
            }
        }
        Ok(())
    }

    /// The same of a further piece.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
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

    /// Posts what `fill` writes, `len` bytes, past the caches if it is told so; there must be room, and memory. Long ones are
    /// not written in a hurry.
    ///
    /// # Panics
    /// When it is longer than a page.
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

    /// Others read what is long from caches of their own, which may be far away: whether to write past all of them pays is
    /// learned.
    #[inline]
    fn write(&mut self, at: usize, len: usize, fill: impl FnOnce(&mut [u8], bool)) {
        let page = self.memory.slice_mut(at, len);
        if len < Stores::LEN_MIN {
            return fill(page, false);
        }
        let (past, is_measured) = self.stores.choose();
        let begun = is_measured.then(Instant::now);
        fill(page, past);
        if let Some(begun) = begun {
            self.stores.learn(past, len, begun.elapsed());
        }
    }

    /// Finds a place on a page, which the line says.
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

    /// What all that was posted in this round comes to, if a member has combined it for all.
    #[inline]
    pub fn combined(&self) -> Option<&[u8]> {
        let at = self.layout.combined.at(0, self.round);
        if self.memory.word64(at + READY_AT).load(Ordering::Acquire) != self.round {
            return None;
        }
        let len = self.memory.word32(at + LEN_AT).load(Ordering::Relaxed) as usize;
        Some(self.memory.slice(at + LINE, len.min(S::SHORT_LEN)))
    }

    /// Tells the others what all that was posted in this round comes to, which `fill` writes, unless another member is at it;
    /// all were met.
    ///
    /// # Panics
    /// When it is longer than what is short.
    pub fn tell_combined(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(len <= S::SHORT_LEN, "what is combined for all is short");
        let at = self.layout.combined.at(0, self.round);
        // All have begun this round: nobody reads what was told in an earlier one.
        if self.memory.word64(at).swap(self.round, Ordering::Relaxed) == self.round {
            return;
        }
        fill(self.memory.slice_mut(at + LINE, len));
        self.memory.word32(at + LEN_AT).store(len as u32, Ordering::Relaxed);
        self.memory.word64(at + READY_AT).store(self.round, Ordering::Release);
    }

    /// Says how long what this member posts next is altogether, and who alone reads it: the post, of a whole page, is its
    /// first piece.
    pub fn announce(&mut self, len: usize, reader: u32) {
        self.announced = Some((len, reader));
    }

    /// Whether there is a page for a further piece of this round. If there is none, this member waits for that.
    pub fn has_room_for_more(&mut self) -> bool {
        self.has_page(self.layout.page_len)
    }

    /// Posts what `fill` writes as a further piece of this round, as [`post`](Self::post) does; there must be room, and memory.
    ///
    /// # Panics
    /// When it is longer than a page, or there are too many.
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

    /// Whether a member has posted a further piece in this round, or is known to post none. If not, this one waits for that.
    pub fn has_more(&mut self, member: u32, piece: u32) -> bool {
        let (round, members) = (self.round, member..member + 1);
        self.has_met_more(member, piece)
            || self.awaits(Awaited { round, members, what: What::More(piece) })
    }

    /// The same without waiting.
    pub fn has_met_more(&self, member: u32, piece: u32) -> bool {
        let is_short = || self.announced_len(member) <= self.layout.page_len * piece as usize;
        self.has_done(member, self.round, What::More(piece)) || self.has_met(member) && is_short()
    }

    /// How long what a member has posted in this round is altogether, in all its pieces; it was met, and posted a page.
    fn announced_len(&self, member: u32) -> usize {
        let line = self.line(member, self.round);
        match self.memory.word32(line + LEN_AT).load(Ordering::Relaxed) as usize {
            len if len < self.layout.page_len => len,
            _ => self.memory.word64(line + TOTAL_AT).load(Ordering::Relaxed) as usize,
        }
    }

    /// Says that this member has read all pieces of this round up to this one, whosever they are.
    pub fn release(&self, piece: u32) {
        let word = self.memory.word64(self.control(self.me) + TAKEN_AT);
        word.store(place_of(self.round, piece), Ordering::Release);
        S::fence();
    }

    /// Where a further piece of a member lies, or how much that has announced if it is less; it was met.
    pub(super) fn lies_more(
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

    /// Calls `ring` with each member that sleeps until what the latest post has completed; it is asked to be
    /// rung once.
    #[inline]
    pub fn tell(&self, ring: impl FnMut(u32)) {
        let sleepers = self.sleepers().load(Ordering::Relaxed) & !self.own_bit();
        if sleepers != 0 {
            self.tell_sleepers(sleepers, ring);
        }
    }

    #[cold]
    fn tell_sleepers(&self, sleepers: u64, mut ring: impl FnMut(u32)) {
        for member in (0..self.size).filter(|member| sleepers >> member & 1 == 1) {
            let word = self.memory.word64(self.control(member));
            let wanted = word.load(Ordering::Relaxed);
            if wanted != 0 && self.completes(wanted) && word.swap(0, Ordering::Relaxed) != 0 {
                ring(member);
            }
        }
    }

    fn completes(&self, wanted: u64) -> bool {
        let awaited = Awaited::unpack(wanted, self.round);
        let Awaited { members, .. } = &awaited;
        members.contains(&self.me) && members.end <= self.size && self.is_done(&awaited)
    }

    fn is_done(&self, Awaited { round, members, what }: &Awaited) -> bool {
        members.clone().all(|member| self.has_done(member, *round, *what))
    }

    /// Whether a member has done that in a round, or is past it.
    fn has_done(&self, member: u32, round: u64, what: What) -> bool {
        let has_reached = |at, piece| {
            let word = self.memory.word64(self.control(member) + at);
            word.load(Ordering::Acquire) >= place_of(round, piece)
                || self.has_posted(member, round + 1)
        };
        match what {
            What::Post => self.has_posted(member, round),
            What::More(piece) => has_reached(POSTED_AT, piece),
            What::Taken(piece) => has_reached(TAKEN_AT, piece),
        }
    }

    fn awaits(&mut self, awaited: Awaited) -> bool {
        let is_done = self.is_done(&awaited);
        self.awaited = (!is_done).then_some(awaited);
        is_done
    }

    /// Whether a member has posted in the round of this member's latest post: it is met then.
    #[inline]
    pub fn has_met(&self, member: u32) -> bool {
        self.has_posted(member, self.round)
    }

    /// Whether the members have posted in the round of this member's latest post. If not, it waits for that.
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
            self.awaited = Some(Awaited { round, members, what: What::Post });
        }
        is_met
    }

    /// Where a member's contribution to this round lies, and its length; it was met.
    #[inline]
    pub(super) fn lies(&self, member: u32) -> (usize, usize) {
        let line = self.line(member, self.round);
        let len = self.memory.word32(line + LEN_AT).load(Ordering::Relaxed) as usize;
        let len = len.min(self.layout.page_len);
        (self.place(member, self.round, len), len)
    }

    fn is_due(&self) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| self.is_done(awaited))
    }

    /// Whether what this member waits for has come since it was asked last, or somebody who should post it was
    /// missed.
    pub fn take_due(&mut self) -> bool {
        let is_due = self.awaited.is_some() && (self.is_due() || self.missing().is_some());
        if is_due {
            self.awaited = None;
        }
        is_due
    }

    /// Tells that this member is about to sleep until what it waits for; false if that is there.
    pub fn lie_down(&mut self) -> bool {
        let Some(awaited) = &self.awaited else { return true };
        let word = self.memory.word64(self.control(self.me));
        word.store(awaited.pack(), Ordering::Relaxed);
        self.sleepers().fetch_or(self.own_bit(), Ordering::Relaxed);
        S::fence();
        !self.is_due()
    }

    /// Tells that it is awake.
    pub fn get_up(&mut self) {
        self.memory.word64(self.control(self.me)).store(0, Ordering::Relaxed);
        self.sleepers().fetch_and(!self.own_bit(), Ordering::Relaxed);
        // Time has passed.
        self.looks = LOOKS_PER_CLOCK - 1;
    }

    /// A member that has ended without posting what this one waits for: looked for now and then.
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
            let life = self.lives[member as usize].get_or_insert_with(|| Life::of(pid as i32));
            // What it has posted before its end counts.
            if life.has_ended() && !self.has_done(member, round, what) {
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

    /// The count on a member's line of a round, and the number beside it.
    #[inline]
    fn marked(&self, member: u32, round: u64) -> u64 {
        self.memory.word64(self.line(member, round)).load(Ordering::Acquire)
    }

    /// A bit for each member that sleeps, or is about to.
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

    /// Where a contribution of so many bytes lies.
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

    /// Where so many bytes have places of their own; none if they go to a page.
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

/// The others are asked for signs of life this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The clock is read once in so many looks.
const LOOKS_PER_CLOCK: u32 = 64;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const PAGE: usize = 4 << 10;
    const BRIEF: usize = Segment::BRIEF_LEN;
    const SHORT: usize = Segment::SHORT_LEN;

    #[test]
    fn memory_of_pages_is_taken_when_something_goes_there() {
        const LONG: usize = 512 << 10;
        let (mut shm_coll, door) = ShmColl::found(1, LONG).unwrap();
        let path = format!("/proc/self/fd/{}", door.descriptor);
        let taken = || 512 * std::fs::metadata(&path).unwrap().blocks() as usize;
        let founded = taken();
        assert!(founded < LONG / 2, "{founded} bytes");
        for len in [BRIEF, SHORT] {
            shm_coll.reserve(len).unwrap();
            shm_coll.post(len, |bytes, _| bytes.fill(1));
        }
        assert_eq!(taken(), founded);
        for len in [SHORT + 1, 100 << 10, LONG] {
            assert!(shm_coll.has_room(len));
            let before = taken();
            shm_coll.reserve(len).unwrap();
            let reserved = taken();
            shm_coll.post(len, |bytes, _| bytes.fill(2));
            let posted = taken();
            assert!((founded + len..=founded + PAGES * LONG).contains(&posted), "{posted} bytes");
            // Kernels before Linux 5.14 reserve nothing.
            assert!(
                reserved == posted || reserved == before,
                "{before}, {reserved}, {posted} bytes"
            );
        }
    }

    fn pair() -> [ShmColl; 2] {
        let (mut first, door) = ShmColl::found(2, PAGE).unwrap();
        let door = ShmCollInvitation::parse(door.emit());
        let second = ShmColl::join(door, 2, 1, PAGE).unwrap();
        first.close_door();
        [first, second]
    }

    #[test]
    fn members_read_what_others_have_posted() {
        let [mut one, mut other] = pair();
        for (round, len) in (1u8..).zip([0, 1, BRIEF, BRIEF + 1, SHORT, SHORT + 1, PAGE]) {
            assert!(one.has_room(len) && other.has_room(0));
            one.post(len, |bytes, _| bytes.fill(round));
            assert!(!one.has(0..2) && one.has(0..1));
            other.post(0, |_, _| unreachable!("nothing is to be written"));
            assert!(other.has(0..2) && one.has(1..2));
            assert_eq!(other.contribution(0).to_vec(), vec![round; len]);
            assert!(one.contribution(1).is_empty());
        }
    }

    #[test]
    fn who_is_ahead_waits_for_the_last() {
        let short = Segment::SHORT_ROUNDS;
        for (len, places) in [(BRIEF, Segment::ROUNDS), (SHORT, short)] {
            let [mut one, mut other] = pair();
            for _ in 0..places {
                assert!(one.has_room(len), "the place was never used");
                one.post(len, |bytes, _| bytes.fill(1));
            }
            assert!(!one.has_room(len));
            other.post(0, |_, _| ());
            assert!(!one.has_room(len), "it may be reading");
            let spare = places / 2 - 2;
            for _ in 0..=spare {
                assert!(!one.has_room(len), "too few are free to be worth a turn");
                other.post(0, |_, _| ());
            }
            for _ in 0..=spare {
                assert!(one.has_room(len));
                one.post(len, |bytes, _| bytes.fill(2));
            }
            assert!(!one.has_room(len));
        }
    }

    #[test]
    fn what_is_long_goes_behind_what_is_unread_or_to_the_other_page() {
        let [mut one, mut other] = pair();
        let room = |one: &mut ShmColl, len: usize| {
            let has_room = one.has_room(len);
            assert!(has_room || !one.take_due());
            has_room.then(|| {
                one.post(len, |bytes, _| bytes.fill(one_more(len)));
                let Layout { first_page, page_len, .. } = one.layout;
                let at = one.lies(0).0 - first_page;
                (at / page_len, at % page_len)
            })
        };
        let third = PAGE / 3;
        let stride = third.next_multiple_of(LINE);
        assert_eq!(room(&mut one, third), Some((1, 0)));
        assert_eq!(room(&mut one, third), Some((0, 0)), "nobody has ever written there");
        assert_eq!(room(&mut one, third), Some((0, stride)), "the other may be unread");
        assert_eq!(room(&mut one, PAGE), None, "it is not on two pages");
        other.post(0, |_, _| ());
        assert_eq!(room(&mut one, PAGE), None, "it may be reading");
        other.post(0, |_, _| ());
        assert_eq!(room(&mut one, PAGE), Some((1, 0)), "it has read the first");
        assert_eq!(room(&mut one, third), None, "two on a page are unread");
        other.post(0, |_, _| ());
        other.post(0, |_, _| ());
        assert_eq!(other.contribution(0).to_vec(), vec![one_more(PAGE); PAGE]);
        assert_eq!(room(&mut one, third), Some((0, 0)));
        assert_eq!(room(&mut one, third), Some((0, stride)));
        assert_eq!(room(&mut one, third), None, "neither has room");
    }

    #[test]
    fn what_is_longer_than_a_page_goes_on_when_its_reader_has_taken_the_last_piece_but_one() {
        let [mut one, mut other] = pair();
        let page_of = |shm_coll: &ShmColl, at: usize| (at - shm_coll.layout.first_page) / PAGE;
        for round in 0..2 {
            one.announce(2 * PAGE + 9, 1);
            assert!(one.has_room(PAGE));
            one.post(PAGE, |bytes, _| bytes.fill(round));
            assert!(one.has_room_for_more());
            one.post_more(1, PAGE, |bytes, _| bytes.fill(round + 1));
            assert!(!one.has_room_for_more());
            other.post(0, |_, _| ());
            assert!(other.has(0..1) && other.has_more(0, 1) && !other.has_more(0, 2));
            let pages = [other.lies(0).0, other.lies_more(0, 1, PAGE).unwrap()];
            assert_eq!(pages.map(|at| page_of(&other, at)).iter().sum::<usize>(), 1);
            assert!(!one.take_due(), "the other may be reading");
            other.release(0);
            assert!(one.take_due() && one.has_room_for_more());
            one.post_more(2, 9, |bytes, _| bytes.fill(round + 2));
            assert!(other.take_due() && other.has_more(0, 2));
            for (piece, len) in [(1, PAGE), (2, 9)] {
                let more = other.more(0, piece, len).unwrap().to_vec();
                assert_eq!(more, vec![round + piece as u8; len]);
            }
            let short = other.more(0, 2, 10).map(|more| more.len());
            assert_eq!(short, Err((2 * PAGE + 9, 2 * PAGE + 10)));
            assert!(other.has_more(0, 3), "no more was announced");
            assert!(!one.has_room(PAGE), "it may be reading the last ones");
            other.release(1);
            assert!(one.has_room(PAGE));
            other.release(2);
        }
    }

    #[test]
    fn what_a_member_sleeps_for_is_told_in_a_word() {
        for what in [What::Post, What::More(1), What::Taken(0), What::More((1 << PIECE_BITS) - 1)] {
            for (round, near) in [(1, 1), (7, 9), (9, 7), ((1 << 40) + 3, (1 << 40) - 3)] {
                let awaited = Awaited { round, members: 2..255, what };
                let told = Awaited::unpack(awaited.pack(), near);
                assert_eq!((told.round, told.members, told.what), (round, 2..255, what));
            }
        }
    }

    fn one_more(len: usize) -> u8 {
        len as u8 + 1
    }

    #[test]
    fn many_members_have_fewer_lines_each() {
        let rounds = |size| Layout::of::<Segment>(size, PAGE).lines.count;
        assert_eq!([1, 8, 9, 16, 31, 255].map(rounds), [64, 64, 32, 32, 16, 16]);
    }

    #[test]
    fn who_sleeps_is_rung_once_and_only_for_what_it_waits_for() {
        let (mut first, door) = ShmColl::found(3, PAGE).unwrap();
        let [mut second, mut third] = [1, 2].map(|me| ShmColl::join(door, 3, me, PAGE).unwrap());
        first.post(0, |_, _| ());
        assert!(!first.has(0..3) && first.lie_down());
        let rung = |shm_coll: &ShmColl| {
            let mut rung = Vec::new();
            shm_coll.tell(|member| rung.push(member));
            rung
        };
        second.post(0, |_, _| ());
        assert_eq!(rung(&second), [0u32; 0], "the third is missing");
        third.post(0, |_, _| ());
        assert_eq!((rung(&third), rung(&third)), (vec![0], vec![]));
        assert!(!first.lie_down() && first.take_due() && !first.take_due());
        first.get_up();
        assert!(first.has(0..3));
    }

    #[test]
    fn a_member_that_has_ended_is_missed_unless_it_has_posted() {
        let [mut one, other] = pair();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = other.memory.word32(other.control(1) + PID_AT);
        pid.store(child.id(), Ordering::Relaxed);
        one.lives[1] = Some(Life::of(child.id() as i32));
        child.wait().unwrap();
        one.post(0, |_, _| ());
        assert!(!one.has(0..2));
        one.get_up();
        assert_eq!(one.missing(), Some(1));
        one.lost = None;
        one.get_up();
        assert_eq!(one.missing(), None, "it was looked just now");
        other.memory.word64(other.line(1, 1)).store(mark(1, 0), Ordering::Release);
        one.get_up();
        one.next_look = Instant::now();
        assert_eq!(one.missing(), None);
        assert!(one.has(0..2));
    }
}
