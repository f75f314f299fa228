//! Steps of a collective on a shared segment: post data, wait for other ranks, take their data.

use std::io;
use std::ops::Deref;

use engine::RevokedBy;
use lock::Lock;
use memory::Region;
use plan::{Span, Step};
use progress::{TaskStage, Worker};
use rail_shm::ShmColl;

use super::Running;
use super::early::Early;
use crate::call::Collective;
use crate::failure::{Failure, Fault, Result, gone, unfit};
use crate::slot::Slot;
use crate::team::Team;

impl<C: Deref<Target = Collective<T>>, T: Team> Running<C> {
    /// Checks a condition on the shared segment, and has the worker watch the segment until it holds.
    #[inline]
    pub(super) fn await_shm_coll(
        &mut self,
        worker: &mut Worker,
        mut is_there: impl FnMut(&mut ShmColl) -> bool,
    ) -> TaskStage {
        let slot = self.collective.slot();
        let Slot { shm_coll, places, .. } = slot;
        // Ranks that run on other cores usually arrive sooner than one poll of the rails takes.
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
                let (team, rank) = (&self.collective.call.team, slot.rank(position));
                let peer = team.peer(rank);
                worker.revoke_context(team.context(), peer);
                let name = worker.peer_name(peer);
                self.failure = Some(gone(&format!("{name}'s process has ended")));
                self.is_over = true;
                break;
            }
            self.watches = true;
            if worker.is_reporting() {
                let (team, awaited) = (&self.collective.call.team, shm_coll.lock());
                let members = awaited.awaited_members();
                let peers = members.into_iter().map(|member| team.peer(slot.rank(member)));
                worker.note_awaited_members(team.context(), peers.collect());
            }
            if worker.watch(shm_coll) {
                return TaskStage::Waits;
            }
        }
        if std::mem::take(&mut self.watches) {
            worker.unwatch(shm_coll);
        }
        TaskStage::Ended
    }

    /// Reserves memory for the next post. If that fails, the team's collectives are revoked.
    #[inline]
    pub(super) fn reserves(
        &mut self,
        worker: &mut Worker,
        reserve: impl FnOnce(&mut ShmColl) -> io::Result<()>,
    ) -> bool {
        let reserved = reserve(&mut self.collective.slot().shm_coll.lock());
        reserved.map_err(|error| self.go_without(worker, &error)).is_ok()
    }

    #[cold]
    fn go_without(&mut self, worker: &mut Worker, error: &io::Error) {
        let message =
            format!("no memory for the segment shared with the ranks of this node: {error}");
        self.failure = Some(Failure::new(Fault::NoMemory, message));
        let team = &self.collective.call.team;
        let own = team.peer(team.rank());
        self.give_up(worker, RevokedBy::Failure(own));
    }

    /// Number of units and of bytes that a step posts.
    #[inline]
    pub(super) fn posts(&self, step: Step) -> (u64, usize) {
        match step {
            Step::Post { span } => (span.len, span.len as usize * self.collective.memory.unit()),
            _ => self.posts_blocks(step),
        }
    }

    /// Posts the data of a step on the shared segment, which has room for it.
    #[inline]
    pub(super) fn post(&self, step: Step) {
        match step {
            Step::Post { span } => {
                let data = self.collective.memory.stream(span, &self.temporaries);
                let shm_coll = &self.collective.slot().shm_coll;
                shm_coll.lock().post(data.len(), |page, past| read(past)(&data, 0, page));
            }
            _ => self.post_blocks(step),
        }
    }

    /// Returns the blocks that a step posts one after the other, and the length in bytes of the list of their ends
    /// that precedes them.
    fn blocks<'a>(&'a self, step: Step) -> (&'a [Span], usize)
    where
        T: 'a,
    {
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
        self.collective.slot().shm_coll.lock().post(len, |page, past| {
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

    /// Wakes the ranks that sleep until this post.
    #[inline]
    pub(super) fn wake_members(&self, worker: &mut Worker) {
        let (team, slot) = (&self.collective.call.team, self.collective.slot());
        slot.shm_coll.lock().wake_members(|position| worker.wake(team.peer(slot.rank(position))));
    }

    /// Wakes other ranks after this rank has caught up with collectives that failed their argument checks, even
    /// if the segment has no room for more yet.
    #[cold]
    pub(super) fn notify_of_skipped(&self, worker: &mut Worker) {
        self.wake_members(worker);
    }

    /// Waits for room for a further piece. Kept out of line: only long messages need it, and the short path stays
    /// small.
    #[inline(never)]
    pub(super) fn await_room_for_more(&mut self, worker: &mut Worker) -> TaskStage {
        let stage = self.await_shm_coll(worker, ShmColl::has_room_for_more);
        if stage != TaskStage::Ended || self.failure.is_some() {
            return stage;
        }
        match self.reserves(worker, ShmColl::reserve_more) {
            true => TaskStage::Works,
            false => TaskStage::Ended,
        }
    }

    #[inline(never)]
    pub(super) fn await_more(&mut self, worker: &mut Worker, from: u32, piece: u32) -> TaskStage {
        if !self.has_more(from, piece) && self.untaken().next().is_none() {
            let stage = self.await_shm_coll(worker, |shm_coll| shm_coll.has_more(from, piece));
            if stage != TaskStage::Ended || self.failure.is_some() {
                return stage;
            }
        }
        TaskStage::Works
    }

    /// Returns the later steps whose data is long and already posted. Empty if the first of these steps takes short
    /// data.
    pub(super) fn untaken<'a>(&'a self) -> impl Iterator<Item = usize> + use<'a, C, T>
    where
        T: 'a,
    {
        let is_long = |take: &Take| take.piece > 0 || !self.collective.memory.is_brief(take.units);
        let begins_long = self.takes_behind().next().as_ref().is_some_and(is_long);
        self.takes_behind()
            .take_while(move |_| begins_long)
            .filter(|take| self.is_due(take))
            .map(|take| take.step)
    }

    /// True if the data of a step is posted and not yet taken.
    fn is_due(&self, &Take { step, from, piece, .. }: &Take) -> bool {
        !self.early.takes(step) && is_there(&self.collective.slot().shm_coll, from, piece)
    }

    /// The takes among the following steps, posted or not.
    fn takes_behind<'a>(&'a self) -> impl Iterator<Item = Take> + use<'a, C, T>
    where
        T: 'a,
    {
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

    /// Takes short data that is already posted while other ranks arrive: it must be loaded from other cores' caches.
    pub(super) fn take_short(&mut self) {
        let memory = &self.collective.memory;
        let is_worth_it = |take: &Take| {
            let is_whole = take.piece == 0 && memory.is_brief(take.units);
            is_whole && take.units * memory.unit() as u64 >= EARLY_MIN
        };
        let takes = self.takes_behind().filter(is_worth_it).filter(|take| self.is_due(take));
        let due: Vec<usize> = takes.map(|take| take.step).collect();
        self.take_now(&due);
    }

    /// Makes the segment watch for one missing rank only, if the step after a meeting takes long data from each
    /// rank: that data can be copied while others post. True if this rank has posted meanwhile.
    pub(super) fn comes_first(&self) -> bool {
        let Collective { schedule, memory, .. } = &*self.collective;
        let is_long = |to: Span| to.len * memory.unit() as u64 >= ALONE;
        match schedule.steps.get(self.at + 1) {
            Some(&Step::Take { to, .. }) if is_long(to) => {}
            _ => return false,
        }
        let shm_coll = &self.collective.slot().shm_coll;
        let mut takes = self.takes_behind().take_while(|take| take.piece == 0);
        let absent = takes.find(|take| !is_there(shm_coll, take.from, 0));
        absent.is_some_and(|Take { from, .. }| shm_coll.lock().has(from..from + 1))
    }

    /// Takes posted data before the other ranks arrive.
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

    /// True if a further piece is posted.
    pub(super) fn has_more(&self, from: u32, piece: u32) -> bool {
        is_there(&self.collective.slot().shm_coll, from, piece)
    }

    pub(super) fn announce(&self, units: u64, reader: u32) {
        let len = units as usize * self.collective.memory.unit();
        self.collective.slot().shm_coll.lock().announce(len, reader);
    }

    pub(super) fn release(&self, piece: u32) {
        self.collective.slot().shm_coll.lock().release(piece);
    }

    /// Posts a further piece on the shared segment, which has room for it.
    pub(super) fn post_more(&self, piece: u32, span: Span) {
        let data = self.collective.memory.stream(span, &self.temporaries);
        let shm_coll = &self.collective.slot().shm_coll;
        shm_coll.lock().post_more(piece, data.len(), |page, past| read(past)(&data, 0, page));
    }

    pub(super) fn take_more(&mut self, from: u32, piece: u32, to: Span) {
        let into = self.collective.memory.stream(to, &self.temporaries);
        let more = self.collective.slot().shm_coll.lock().more(from, piece, into.len());
        match more {
            Ok(posted) => into.copy_from(&posted),
            Err((announced, expected)) => {
                let rank = self.collective.slot().rank(from);
                self.failure = Some(unfit(rank, announced as u64, expected as u64));
            }
        }
    }

    pub(super) fn take(&mut self, from: u32, at: u64, to: Span) {
        let Collective { memory, .. } = &*self.collective;
        let into = memory.stream(to, &self.temporaries);
        let start = at as usize * memory.unit();
        let shm_coll = self.collective.slot().shm_coll.lock();
        let posted = shm_coll.posted(from);
        match posted.get(start..start + into.len()) {
            Some(part) => into.write(0, part),
            None => self.failure = Some(self.unfit_part(from, posted.len(), start + into.len())),
        }
    }

    pub(super) fn take_block(&mut self, from: u32, to: Span) {
        let into = self.collective.memory.stream(to, &self.temporaries);
        let slot = self.collective.slot();
        let shm_coll = slot.shm_coll.lock();
        let block = block_of(shm_coll.posted(from), slot.position as usize, slot.size());
        match block.len() == into.len() {
            true => into.write(0, block),
            false => self.failure = Some(self.unfit_part(from, block.len(), into.len())),
        }
    }

    /// Returns `units` units of a rank's post, or an error if the post is too short.
    pub(super) fn posted(&self, from: u32, at: u64, units: u64) -> Result<Region> {
        let (slot, unit) = (self.collective.slot(), self.collective.memory.unit());
        let posted = slot.shm_coll.lock().contribution(from);
        let (start, len) = (at as usize * unit, units as usize * unit);
        match start + len <= posted.len() {
            true => Ok(posted.slice(start, len)),
            false => Err(self.unfit_part(from, posted.len(), start + len)),
        }
    }

    /// The error for a post whose length differs from the expected one, in bytes.
    #[cold]
    pub(super) fn unfit_part(&self, from: u32, got: usize, expected: usize) -> Box<Failure> {
        unfit(self.collective.slot().rank(from), got as u64, expected as u64)
    }
}

/// Selects the copy: `past` reads with non-temporal stores, past the cache.
fn read(past: bool) -> fn(&Region, usize, &mut [u8]) {
    if past { Region::read_past } else { Region::read }
}

/// A step that takes what another rank posts.
struct Take {
    step: usize,
    from: u32,
    /// 0 for the first piece.
    piece: u32,
    units: u64,
}

/// Returns the block for rank `me` of `size`, posted behind the list of ends; empty if the list is invalid.
fn block_of(posted: &[u8], me: usize, size: usize) -> &[u8] {
    let end_of = |rank: usize| {
        let listed = posted.get(rank * LISTED..).and_then(<[u8]>::first_chunk);
        listed.map_or(0, |end| u32::from_le_bytes(*end) as usize)
    };
    let first = size * LISTED;
    let (start, end) = (if me == 0 { first } else { end_of(me - 1) }, end_of(me));
    posted.get(start.max(first)..end).unwrap_or_default()
}

/// True if a rank has posted this piece in the current round.
fn is_there(shm_coll: &Lock<ShmColl>, from: u32, piece: u32) -> bool {
    match piece {
        0 => shm_coll.lock().has_met(from),
        _ => shm_coll.lock().has_met_more(from, piece),
    }
}

/// Minimum size of short data that is taken early, in bytes: some cache lines.
const EARLY_MIN: u64 = 512;

/// Minimum size of data for which a single rank is awaited, in bytes: copying it takes longer than a wake-up.
const ALONE: u64 = 128 << 10;

/// Bytes per entry in the list of block ends.
const LISTED: usize = 4;

/// Number of checks of the segment before the worker's lock is released: a few cache-line transfers.
const LOOKS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_behind_a_list_are_found_and_invalid_lists_do_no_harm() {
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
