//! Steps at a shared segment: to post, to meet, and to take what others have posted.

use std::io;
use std::ops::Deref;

use driver::ShmColl;
use lock::Lock;
use memory::Region;
use plan::{Span, Step};
use progress::{Stage, Worker};

use super::{Collective, Running, gone, unfit};
use crate::shm_coll::Seat;
use crate::{Error, ErrorClass, Result};

impl<C: Deref<Target = Collective>> Running<C> {
    /// Whether what a question to the shared segment waits for is there: until then the shared segment is watched.
    #[inline]
    pub(super) fn await_shm_coll(
        &mut self,
        worker: &mut Worker,
        mut is_there: impl FnMut(&mut ShmColl) -> bool,
    ) -> Stage {
        let seat = self.collective.seat();
        let Seat { shm_coll, places, .. } = seat;
        // Neighbours that run and come at the same time are there sooner than the rails can be asked.
        let looks = if self.watches || places.is_oversubscribed() { 1 } else { LOOKS };
        let mut finds = |shm_coll: &mut ShmColl| {
            (0..looks).any(|look| {
                if look > 0 {
                    std::hint::spin_loop();
                }
                is_there(shm_coll)
            })
        };
        while !finds(&mut shm_coll.lock()) {
            let missing = shm_coll.lock().missing();
            if let Some(position) = missing {
                let (comm, rank) = (&self.collective.call.comm, seat.rank(position));
                worker.close_context(comm.collective_context(), comm.peer(rank));
                self.failure = Some(gone(&format!("rank {rank}'s process has ended")));
                self.is_over = true;
                break;
            }
            self.watches = true;
            if worker.watch(shm_coll) {
                return Stage::Waits;
            }
        }
        if std::mem::take(&mut self.watches) {
            worker.unwatch(shm_coll);
        }
        Stage::Ended
    }

    /// Whether there is memory for what is posted next. If there is none, the communicator's collectives are closed.
    #[inline]
    pub(super) fn reserves(
        &mut self,
        worker: &mut Worker,
        reserve: impl FnOnce(&mut ShmColl) -> io::Result<()>,
    ) -> bool {
        let reserved = reserve(&mut self.collective.seat().shm_coll.lock());
        reserved.map_err(|error| self.go_without(worker, &error)).is_ok()
    }

    #[cold]
    fn go_without(&mut self, worker: &mut Worker, error: &io::Error) {
        let message = format!("no memory for what is shared with the ranks of this node: {error}");
        self.failure = Some(Error::new(ErrorClass::NoMem, message));
        let comm = &self.collective.call.comm;
        let own = comm.peer(comm.rank());
        self.give_up(worker, own);
    }

    /// How many units a step posts, and how many bytes.
    #[inline]
    pub(super) fn posts(&self, step: Step) -> (u64, usize) {
        match step {
            Step::Post { span } => (span.len, span.len as usize * self.collective.memory.unit()),
            _ => self.posts_blocks(step),
        }
    }

    /// Posts on the shared segment what a step says; there is room.
    #[inline]
    pub(super) fn post(&self, step: Step) {
        match step {
            Step::Post { span } => {
                let data = self.collective.memory.stream(span, &self.temporaries);
                let shm_coll = &self.collective.seat().shm_coll;
                shm_coll.lock().post(data.len(), |page, past| read(past)(&data, 0, page));
            }
            _ => self.post_blocks(step),
        }
    }

    /// The blocks that a step posts one behind the other, and the bytes of a list before them of where each ends.
    fn blocks(&self, step: Step) -> (&[Span], usize) {
        let blocks = &self.collective.schedule.blocks;
        match step {
            Step::PostParts { first, count } => (&blocks[first as usize..][..count as usize], 0),
            _ => (blocks, blocks.len() * LISTED),
        }
    }

    #[inline(never)]
    fn posts_blocks(&self, step: Step) -> (u64, usize) {
        let (blocks, list_len) = self.blocks(step);
        let units = blocks.iter().map(|block| block.len).sum();
        (units, list_len + units as usize * self.collective.memory.unit())
    }

    #[inline(never)]
    fn post_blocks(&self, step: Step) {
        let Collective { memory, .. } = &*self.collective;
        let (blocks, list_len) = self.blocks(step);
        let (_, len) = self.posts_blocks(step);
        self.collective.seat().shm_coll.lock().post(len, |page, past| {
            let (list, mut rest) = page.split_at_mut(list_len);
            let mut ends = list.chunks_exact_mut(LISTED);
            let mut end = list_len;
            for block in blocks {
                let data = memory.stream(*block, &self.temporaries);
                let into = rest.split_off_mut(..data.len()).unwrap_or_default();
                read(past)(&data, 0, into);
                end += data.len();
                if let Some(listed) = ends.next() {
                    listed.copy_from_slice(&(end as u32).to_le_bytes());
                }
            }
        });
    }

    /// Wakes those who sleep until what was posted.
    #[inline]
    pub(super) fn tell(&self, worker: &mut Worker) {
        let (comm, seat) = (&self.collective.call.comm, self.collective.seat());
        seat.shm_coll.lock().tell(|position| worker.wake(comm.peer(seat.rank(position))));
    }

    /// Who has failed a call may have made up for it, without room for more yet.
    #[cold]
    pub(super) fn tell_what_was_left_out(&self, worker: &mut Worker) {
        self.tell(worker);
    }

    /// What is long has time for a call, which keeps short what all go through.
    #[inline(never)]
    pub(super) fn await_room_for_more(&mut self, worker: &mut Worker) -> Stage {
        let stage = self.await_shm_coll(worker, ShmColl::has_room_for_more);
        if stage != Stage::Ended || self.failure.is_some() {
            return stage;
        }
        match self.reserves(worker, ShmColl::reserve_more) {
            true => Stage::Works,
            false => Stage::Ended,
        }
    }

    #[inline(never)]
    pub(super) fn await_more(&mut self, worker: &mut Worker, from: u32, piece: u32) -> Stage {
        if !self.has_more(from, piece) && self.untaken().next().is_none() {
            let stage = self.await_shm_coll(worker, |shm_coll| shm_coll.has_more(from, piece));
            if stage != Stage::Ended || self.failure.is_some() {
                return stage;
            }
        }
        Stage::Works
    }

    /// Of the steps behind the one at which this rank waits, those that take what is long and there already: there is none
    /// where what comes first is short.
    pub(super) fn untaken(&self) -> impl Iterator<Item = usize> + use<'_, C> {
        let is_long = |take: &Take| take.piece > 0 || !self.collective.memory.is_brief(take.units);
        let begins_long = self.takes_behind().next().as_ref().is_some_and(is_long);
        self.takes_behind()
            .take_while(move |_| begins_long)
            .filter(|take| self.is_due(take))
            .map(|take| take.step)
    }

    /// Whether what a step takes is there, and has not been taken.
    fn is_due(&self, &Take { step, from, piece, .. }: &Take) -> bool {
        !self.early.takes(step) && is_there(&self.collective.seat().shm_coll, from, piece)
    }

    /// What the steps take that follow, whether it is there or not.
    fn takes_behind(&self) -> impl Iterator<Item = Take> + use<'_, C> {
        let first = self.at + 1;
        let steps = self.collective.schedule.steps.get(first..).unwrap_or_default();
        let steps = (first..).zip(steps).take(Early::MOST);
        let takes = steps.map_while(|(step, what)| match *what {
            Step::Take { from, to, .. } => Some(Some(Take { step, from, piece: 0, units: to.len })),
            Step::TakeMore { from, piece, to } => {
                Some(Some(Take { step, from, piece, units: to.len }))
            }
            Step::Release { .. } => Some(None),
            _ => None,
        });
        takes.flatten()
    }

    /// While others come, takes what is short and there already: it comes from other cores' caches.
    pub(super) fn take_short(&mut self) {
        let memory = &self.collective.memory;
        let is_worth_it = |take: &Take| {
            let is_whole = take.piece == 0 && memory.is_brief(take.units);
            is_whole && take.units * memory.unit() as u64 >= WORTH_HASTE
        };
        let takes = self.takes_behind().filter(is_worth_it).filter(|take| self.is_due(take));
        let due: Vec<usize> = takes.map(|take| take.step).collect();
        self.take_now(&due);
    }

    /// Where what a step behind a meeting takes from each is long, has the shared segment watched for one alone of those who have not
    /// posted yet, since that can be taken while others post. Whether it has posted meanwhile.
    pub(super) fn comes_first(&self) -> bool {
        let Collective { schedule, memory, .. } = &*self.collective;
        let is_long = |to: Span| to.len * memory.unit() as u64 >= ALONE;
        match schedule.steps.get(self.at + 1) {
            Some(&Step::Take { to, .. }) if is_long(to) => {}
            _ => return false,
        }
        let shm_coll = &self.collective.seat().shm_coll;
        let mut takes = self.takes_behind().take_while(|take| take.piece == 0);
        let absent = takes.find(|take| !is_there(shm_coll, take.from, 0));
        absent.is_some_and(|Take { from, .. }| shm_coll.lock().has(from..from + 1))
    }

    /// Takes what is there before the others have come.
    pub(super) fn take_early(&mut self) {
        let untaken: Vec<usize> = self.untaken().collect();
        self.take_now(&untaken);
    }

    fn take_now(&mut self, steps: &[usize]) {
        for &step in steps {
            match self.collective.schedule.steps.get(step) {
                Some(&Step::Take { from, at, to }) => self.take(from, at, to),
                Some(&Step::TakeMore { from, piece, to }) => self.take_more(from, piece, to),
                _ => continue,
            }
            self.early.insert(self.at, step);
        }
    }

    /// Whether a further piece is there.
    pub(super) fn has_more(&self, from: u32, piece: u32) -> bool {
        is_there(&self.collective.seat().shm_coll, from, piece)
    }

    pub(super) fn announce(&self, units: u64, reader: u32) {
        let len = units as usize * self.collective.memory.unit();
        self.collective.seat().shm_coll.lock().announce(len, reader);
    }

    pub(super) fn release(&self, piece: u32) {
        self.collective.seat().shm_coll.lock().release(piece);
    }

    /// Posts a further piece on the shared segment; there is room.
    pub(super) fn post_more(&self, piece: u32, span: Span) {
        let data = self.collective.memory.stream(span, &self.temporaries);
        let shm_coll = &self.collective.seat().shm_coll;
        shm_coll.lock().post_more(piece, data.len(), |page, past| read(past)(&data, 0, page));
    }

    pub(super) fn take_more(&mut self, from: u32, piece: u32, to: Span) {
        let into = self.collective.memory.stream(to, &self.temporaries);
        let more = self.collective.seat().shm_coll.lock().more(from, piece, into.len());
        match more {
            Ok(posted) => into.copy_from(&posted),
            Err((announced, expected)) => {
                let rank = self.collective.seat().rank(from);
                self.failure = Some(unfit(rank, announced as u64, expected as u64));
            }
        }
    }

    pub(super) fn take(&mut self, from: u32, at: u64, to: Span) {
        let Collective { memory, .. } = &*self.collective;
        let into = memory.stream(to, &self.temporaries);
        let start = at as usize * memory.unit();
        let shm_coll = self.collective.seat().shm_coll.lock();
        let posted = shm_coll.posted(from);
        match posted.get(start..start + into.len()) {
            Some(part) => into.write(0, part),
            None => self.failure = Some(self.unfit_part(from, posted.len(), start + into.len())),
        }
    }

    pub(super) fn take_block(&mut self, from: u32, to: Span) {
        let into = self.collective.memory.stream(to, &self.temporaries);
        let seat = self.collective.seat();
        let shm_coll = seat.shm_coll.lock();
        let block = block_of(shm_coll.posted(from), seat.position as usize, seat.size());
        match block.len() == into.len() {
            true => into.write(0, block),
            false => self.failure = Some(self.unfit_part(from, block.len(), into.len())),
        }
    }

    /// So many units of what a rank has posted, unless it is too short.
    pub(super) fn posted(&self, from: u32, at: u64, units: u64) -> Result<Region> {
        let (seat, unit) = (self.collective.seat(), self.collective.memory.unit());
        let posted = seat.shm_coll.lock().contribution(from);
        let (start, len) = (at as usize * unit, units as usize * unit);
        match start + len <= posted.len() {
            true => Ok(posted.slice(start, len)),
            false => Err(self.unfit_part(from, posted.len(), start + len)),
        }
    }

    /// Of so many bytes that a rank has posted, others were expected.
    #[cold]
    pub(super) fn unfit_part(&self, from: u32, got: usize, expected: usize) -> Error {
        unfit(self.collective.seat().rank(from), got as u64, expected as u64)
    }
}

/// How what is posted is read from where it lies.
fn read(past: bool) -> fn(&Region, usize, &mut [u8]) {
    if past { Region::read_past } else { Region::read }
}

/// A step that takes what another rank posts.
struct Take {
    step: usize,
    from: u32,
    /// 0 for what it posts first.
    piece: u32,
    units: u64,
}

/// What of the steps right behind a meeting has been taken before others had come.
#[derive(Clone, Copy, Default)]
pub(super) struct Early {
    /// The meeting's step.
    meeting: usize,
    /// A bit for each that follows.
    taken: u64,
}

impl Early {
    /// So many steps at most.
    const MOST: usize = 64;

    fn insert(&mut self, meeting: usize, step: usize) {
        if self.meeting != meeting {
            // A later one.
            let passed = (meeting - self.meeting) as u32;
            *self = Self { meeting, taken: self.taken.checked_shr(passed).unwrap_or(0) };
        }
        self.taken |= 1 << (step - meeting - 1);
    }

    /// Whether that is the case of a step that comes next.
    #[inline]
    pub(super) fn takes(self, step: usize) -> bool {
        self.taken != 0
            && (1..=Self::MOST).contains(&step.wrapping_sub(self.meeting))
            && self.taken >> (step - self.meeting - 1) & 1 == 1
    }
}

/// The block for rank `me` of `size` that were posted behind a list; empty where the list says what cannot be.
fn block_of(posted: &[u8], me: usize, size: usize) -> &[u8] {
    let end_of = |rank: usize| {
        let listed = posted.get(rank * LISTED..).and_then(<[u8]>::first_chunk);
        listed.map_or(0, |end| u32::from_le_bytes(*end) as usize)
    };
    let first = size * LISTED;
    let (start, end) = (if me == 0 { first } else { end_of(me - 1) }, end_of(me));
    posted.get(start.max(first)..end).unwrap_or_default()
}

/// Whether a piece of what a rank posts in this round is there.
fn is_there(shm_coll: &Lock<ShmColl>, from: u32, piece: u32) -> bool {
    match piece {
        0 => shm_coll.lock().has_met(from),
        _ => shm_coll.lock().has_met_more(from, piece),
    }
}

/// What is short and worth to be taken before others have come, in bytes: some cache lines.
const WORTH_HASTE: u64 = 512;

/// What is waited for alone, in bytes: it takes longer to copy than to wake who does.
const ALONE: u64 = 128 << 10;

/// Bytes in the list of where blocks end, for each.
const LISTED: usize = 4;

/// Looks at a shared segment at once, before others have the core: some cache lines' ways.
const LOOKS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_behind_a_list_are_found_and_lists_that_lie_do_no_harm() {
        let posted = |ends: [u32; 3], data: &[u8]| {
            let mut bytes = ends.map(u32::to_le_bytes).concat();
            bytes.extend_from_slice(data);
            bytes
        };
        let right = posted([14, 14, 17], b"abxyz");
        let found = [0, 1, 2].map(|me| block_of(&right, me, 3));
        assert_eq!(found, [&b"ab"[..], b"", b"xyz"]);
        for ends in [[u32::MAX, 0, u32::MAX], [0, 0, 0], [13, 12, 99]] {
            let wrong = posted(ends, b"abxyz");
            assert!((0..3).all(|me| block_of(&wrong, me, 3).len() <= wrong.len()));
        }
        assert!(block_of(&right, 0, 5).is_empty());
    }
}
