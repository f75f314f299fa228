//! Chunks of shared memory for long frames, owned by the sender and lent to its receivers.
//!
//! A frame too long for a ring is written to a chunk, and the ring carries the chunk's number. The receiver clears
//! the chunk's `busy` word (release) once it has used the frame; the owner reads the words (acquire) when it needs a
//! chunk. Chunks are used round-robin, each from the end of its last frame. The copies of sender and receiver thus
//! cycle through more memory than an L2 cache holds. Lines that were written back are fetched several times faster
//! than lines in another core's cache.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::nt_stores::NtStores;
use crate::segment::Segment;
use crate::shared::{Shared, Word};

/// The owner's view. Its memory is created for the first long frame.
#[derive(Debug)]
pub(crate) struct Pool<S: Shared = Segment> {
    segment: Option<S>,
    free: VecDeque<u16>,
    /// Chunks in use by receivers, oldest first, and the index of their link.
    lent: VecDeque<(u16, usize)>,
    /// Number of chunks lent to each link.
    held: Vec<u16>,
    /// End of the last frame in each chunk.
    ends: Vec<usize>,
    nt_stores: NtStores,
    ring_max: usize,
}

impl<S: Shared> Default for Pool<S> {
    fn default() -> Self {
        Self {
            segment: None,
            free: VecDeque::new(),
            lent: VecDeque::new(),
            held: Vec::new(),
            ends: Vec::new(),
            nt_stores: NtStores::default(),
            ring_max: RING_MAX,
        }
    }
}

impl<S: Shared> Pool<S> {
    /// Returns a chunk for `link`; `None` while too many are lent, to this link or in all.
    ///
    /// # Errors
    /// The kernel gives no memory for the pool.
    pub fn take(&mut self, link: usize) -> io::Result<Option<u16>> {
        if self.segment.is_none() {
            self.segment = Some(S::create(pool_len::<S>())?);
            self.free.extend(0..S::CHUNKS);
            self.ends.resize(usize::from(S::CHUNKS), 0);
        }
        if self.held.len() <= link {
            self.held.resize(link + 1, 0);
        }
        if !self.may_take(link) {
            self.reclaim();
            if !self.may_take(link) {
                return Ok(None);
            }
        }
        let Some(chunk) = self.free.pop_front() else { return Ok(None) };
        self.held[link] += 1;
        self.lent.push_back((chunk, link));
        Ok(Some(chunk))
    }

    /// True if a chunk could be taken for `link` now.
    pub fn has_room(&mut self, link: usize) -> bool {
        if self.segment.is_none() || link >= self.held.len() {
            return true;
        }
        self.reclaim();
        self.may_take(link)
    }

    /// Lends a chunk and lets `fill` write a frame of `len` bytes. `fill` gets the offsets of the chunk and of the
    /// frame in the pool, and true for non-temporal stores. The frame begins `lead` bytes after a line boundary,
    /// behind the chunk's last frame if there is room. The record's release in the ring also publishes the `busy`
    /// word.
    pub fn write(
        &mut self,
        (chunk, lead, len): (u16, usize, usize),
        fill: impl FnOnce(&mut S, usize, usize, bool),
    ) {
        let segment = self.segment.as_mut().unwrap_or_else(|| unreachable!("a chunk was taken"));
        segment.word32(busy_at(chunk)).store(1, Ordering::Relaxed);
        let end = &mut self.ends[usize::from(chunk)];
        let start = if *end + lead + len <= S::CHUNK_LEN { *end } else { 0 };
        *end = (start + lead + len).next_multiple_of(LINE);
        let (past, is_measured) = self.nt_stores.choose();
        let begun = is_measured.then(Instant::now);
        fill(segment, chunk_at::<S>(chunk), start + lead, past);
        if let Some(begun) = begun {
            self.nt_stores.learn(past, len, begun.elapsed());
            self.ring_max = if self.nt_stores.pass_caches() { RING_MAX_PAST } else { RING_MAX };
        }
    }

    /// Length up to which a frame reaches its reader sooner through a ring than through a chunk.
    #[inline]
    pub fn ring_max(&self) -> usize {
        self.ring_max
    }

    /// Takes back all chunks lent to `link`, whose reader is gone.
    pub fn forget(&mut self, link: usize) {
        if let Some(segment) = &self.segment {
            for (chunk, _) in self.lent.iter().filter(|(_, holder)| *holder == link) {
                segment.word32(busy_at(*chunk)).store(0, Ordering::Relaxed);
            }
        }
        self.reclaim();
    }

    /// True if `link` may take a chunk. A link may hold twice as many as are free (dynamic thresholds, Choudhury and
    /// Hahne 1998): a single link gets two thirds, and idle readers never block others.
    fn may_take(&self, link: usize) -> bool {
        usize::from(self.held[link]) < 2 * self.free.len()
    }

    fn reclaim(&mut self) {
        let Self { segment: Some(segment), free, lent, held, .. } = self else { return };
        lent.retain(|&(chunk, link)| {
            let busy = segment.word32(busy_at(chunk)).load(Ordering::Acquire) != 0;
            if !busy {
                free.push_back(chunk);
                held[link] -= 1;
            }
            busy
        });
    }
}

/// A receiver's view of a sender's pool.
#[derive(Debug)]
pub(crate) struct BorrowedPool<S: Shared = Segment> {
    segment: S,
}

impl<S: Shared> BorrowedPool<S> {
    /// Attaches the pool behind descriptor `fd` of process `pid`.
    ///
    /// # Errors
    /// The pool cannot be opened, because its owner has ended.
    pub fn attach(pid: i32, fd: i32) -> io::Result<Self> {
        Ok(Self { segment: S::attach(pid, fd, pool_len::<S>())? })
    }

    /// Returns bytes of a chunk, clamped to it whatever the owner wrote.
    pub fn bytes(&self, chunk: u16, start: usize, len: usize) -> &[u8] {
        let start = start.min(S::CHUNK_LEN);
        let len = len.min(S::CHUNK_LEN - start);
        self.segment.slice(chunk_at::<S>(chunk % S::CHUNKS) + start, len)
    }

    /// Returns a chunk to its owner.
    pub fn release(&self, chunk: u16) {
        self.segment.word32(busy_at(chunk % S::CHUNKS)).store(0, Ordering::Release);
    }
}

/// Longest frame for a ring if chunks are written with plain stores…
pub const RING_MAX: usize = 9 << 10;
/// …and with non-temporal stores.
pub const RING_MAX_PAST: usize = 3 << 10;

fn busy_at(chunk: u16) -> usize {
    usize::from(chunk) * LINE
}

const fn chunk_at<S: Shared>(chunk: u16) -> usize {
    S::CHUNKS as usize * LINE + chunk as usize * S::CHUNK_LEN
}

const fn pool_len<S: Shared>() -> usize {
    chunk_at::<S>(S::CHUNKS)
}

/// Longest frame that fits a chunk with any alignment of its body.
pub(crate) const CHUNK_FRAME_MAX: usize = Segment::CHUNK_LEN - LINE;
pub(crate) const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKS: u16 = Segment::CHUNKS;

    fn lend(pool: &mut Pool, chunk: u16) {
        pool.write((chunk, 0, 0), |_, _, _, _| ());
    }

    #[test]
    fn one_reader_gets_two_thirds_and_others_still_find_room() {
        let mut pool = Pool::<Segment>::default();
        let mut taken = Vec::new();
        while let Some(chunk) = pool.take(0).unwrap() {
            lend(&mut pool, chunk);
            taken.push(chunk);
        }
        assert_eq!(taken.len(), usize::from(CHUNKS) * 2 / 3);
        assert!(!pool.has_room(0));
        for link in 1..4 {
            let chunk = pool.take(link).unwrap().expect("room for another reader");
            lend(&mut pool, chunk);
        }
    }

    #[test]
    fn returned_chunks_are_lent_again_in_turn() {
        let mut pool = Pool::<Segment>::default();
        let chunk = pool.take(0).unwrap().unwrap();
        pool.write((chunk, 3, 2), |segment, at, start, _| segment.write(at + start, &[7, 8]));
        let lent = BorrowedPool::<Segment>::attach(
            std::process::id() as i32,
            pool.segment.as_ref().unwrap().descriptor(),
        )
        .unwrap();
        assert_eq!(lent.bytes(chunk, 3, 2), [7, 8]);
        lent.release(chunk);
        let mut seen = Vec::new();
        for _ in 0..3 * CHUNKS {
            let chunk = pool.take(0).unwrap().expect("a free chunk");
            lend(&mut pool, chunk);
            lent.release(chunk);
            seen.push(chunk);
        }
        let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), usize::from(CHUNKS));
    }

    #[test]
    fn chunks_of_a_gone_reader_come_back() {
        let mut pool = Pool::<Segment>::default();
        while let Some(chunk) = pool.take(5).unwrap() {
            lend(&mut pool, chunk);
        }
        pool.forget(5);
        assert!(pool.has_room(5));
    }
}
