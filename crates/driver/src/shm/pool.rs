//! Chunks of shared memory for long frames, owned by the sender and lent to its receivers.
//!
//! A frame too long for a ring is written to a chunk, and the ring carries the chunk's number. The
//! receiver lowers the chunk's `busy` word (release) once it has used the frame; the owner looks at
//! the words (acquire) when it needs a chunk. Chunks are used in turn, so that the copies of sender
//! and receiver follow one another through more memory than a core's second-level cache holds: lines
//! that were written back are fetched several times faster than lines another core still holds.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::segment::Segment;
use super::shared::{Shared, Word};
use super::takeover::Takeover;

/// The owner's view. Its memory is taken at the first long frame.
#[derive(Debug)]
pub(crate) struct Pool<S: Shared = Segment> {
    segment: Option<S>,
    free: VecDeque<u16>,
    /// Chunks that receivers use, oldest first, and to which link they went.
    lent: VecDeque<(u16, usize)>,
    /// Chunks lent to each link.
    held: Vec<u16>,
    takeover: Takeover,
    /// Whether a chunk's last reader was asked to take its lines over; none if there was no reader yet.
    taken: Vec<Option<bool>>,
}

impl<S: Shared> Default for Pool<S> {
    fn default() -> Self {
        Self {
            segment: None,
            free: VecDeque::new(),
            lent: VecDeque::new(),
            held: Vec::new(),
            takeover: Takeover::default(),
            taken: Vec::new(),
        }
    }
}

impl<S: Shared> Pool<S> {
    /// A chunk for `link`; none while too many are lent, to this link or to all.
    ///
    /// # Errors
    /// When the kernel gives no memory for the pool.
    pub fn take(&mut self, link: usize) -> io::Result<Option<u16>> {
        if self.segment.is_none() {
            self.segment = Some(S::create(pool_len::<S>())?);
            self.free.extend(0..S::CHUNKS);
            self.taken.resize(usize::from(S::CHUNKS), None);
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

    /// Whether a chunk could be taken for `link` now.
    pub fn has_room(&mut self, link: usize) -> bool {
        if self.segment.is_none() || link >= self.held.len() {
            return true;
        }
        self.reclaim();
        self.may_take(link)
    }

    /// Lets `fill` write `len` bytes from `start` within the chunk. Answers whether the reader should
    /// take the lines over.
    pub fn write(
        &mut self,
        chunk: u16,
        start: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        assert!(start + len <= S::CHUNK_LEN);
        let segment = self.segment.as_mut().unwrap_or_else(|| unreachable!("a chunk was taken"));
        let before = &mut self.taken[usize::from(chunk)];
        let measured = before.filter(|taken| self.takeover.measures(*taken));
        let measured = measured.map(|taken| (taken, Instant::now()));
        fill(segment.slice_mut(chunk_at::<S>(chunk) + start, len));
        if let Some((taken, begun)) = measured {
            self.takeover.learn(taken, len, begun.elapsed());
        }
        let taken = self.takeover.choose();
        *before = Some(taken);
        taken
    }

    /// Gives a chunk just written to its reader; the word is read after the ring's release of the
    /// record that names the chunk.
    pub fn lend(&self, chunk: u16) {
        if let Some(segment) = &self.segment {
            segment.word32(busy_at(chunk)).store(1, Ordering::Relaxed);
        }
    }

    /// Takes back a chunk that was lent last and not told of.
    pub fn unlend(&mut self, chunk: u16) {
        if let Some((last, link)) = self.lent.pop_back() {
            debug_assert_eq!(last, chunk);
            self.held[link] -= 1;
            self.free.push_front(last);
        }
    }

    /// The descriptor's number, for peers.
    pub fn descriptor(&self) -> Option<i32> {
        self.segment.as_ref().map(S::descriptor)
    }

    /// Takes back everything lent to `link`, whose reader is gone.
    pub fn forget(&mut self, link: usize) {
        if let Some(segment) = &self.segment {
            for (chunk, _) in self.lent.iter().filter(|(_, holder)| *holder == link) {
                segment.word32(busy_at(*chunk)).store(0, Ordering::Relaxed);
            }
        }
        self.reclaim();
    }

    /// A link may hold twice what it leaves free (dynamic thresholds, Choudhury and Hahne 1998): one
    /// alone gets two thirds, and readers that do not read never lock others out.
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
pub(crate) struct Lent<S: Shared = Segment> {
    segment: S,
}

impl<S: Shared> Lent<S> {
    /// The pool behind descriptor `fd` of process `pid`.
    ///
    /// # Errors
    /// When it cannot be opened, because its owner has ended.
    pub fn attach(pid: i32, fd: i32) -> io::Result<Self> {
        Ok(Self { segment: S::attach(pid, fd, pool_len::<S>())? })
    }

    /// A chunk's bytes, held within it whatever the owner wrote.
    pub fn bytes(&self, chunk: u16, start: usize, len: usize) -> &[u8] {
        let start = start.min(S::CHUNK_LEN);
        let len = len.min(S::CHUNK_LEN - start);
        self.segment.slice(chunk_at::<S>(chunk % S::CHUNKS) + start, len)
    }

    /// Takes over the lines of a frame that was read; see [`Takeover`].
    pub fn take_over(&self, chunk: u16, start: usize, len: usize) {
        let base = chunk_at::<S>(chunk % S::CHUNKS);
        let end = (start.min(S::CHUNK_LEN) + len).min(S::CHUNK_LEN);
        for at in (start / LINE * LINE..end).step_by(LINE) {
            self.segment.word64(base + at).store(0, Ordering::Relaxed);
        }
    }

    /// Returns a chunk to its owner.
    pub fn release(&self, chunk: u16) {
        self.segment.word32(busy_at(chunk % S::CHUNKS)).store(0, Ordering::Release);
    }
}

fn busy_at(chunk: u16) -> usize {
    usize::from(chunk) * LINE
}

const fn chunk_at<S: Shared>(chunk: u16) -> usize {
    S::CHUNKS as usize * LINE + chunk as usize * S::CHUNK_LEN
}

const fn pool_len<S: Shared>() -> usize {
    chunk_at::<S>(S::CHUNKS)
}

/// The longest frame that fits a chunk however its body is aligned.
pub(crate) const CHUNK_FRAME_MAX: usize = Segment::CHUNK_LEN - LINE;
pub(crate) const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKS: u16 = Segment::CHUNKS;

    #[test]
    fn one_reader_gets_two_thirds_and_others_still_find_room() {
        let mut pool = Pool::<Segment>::default();
        let mut taken = Vec::new();
        while let Some(chunk) = pool.take(0).unwrap() {
            pool.lend(chunk);
            taken.push(chunk);
        }
        assert_eq!(taken.len(), usize::from(CHUNKS) * 2 / 3);
        assert!(!pool.has_room(0));
        for link in 1..4 {
            let chunk = pool.take(link).unwrap().expect("room for another reader");
            pool.lend(chunk);
        }
    }

    #[test]
    fn returned_chunks_are_lent_again_in_turn() {
        let mut pool = Pool::<Segment>::default();
        let chunk = pool.take(0).unwrap().unwrap();
        pool.write(chunk, 3, 2, |bytes| bytes.copy_from_slice(&[7, 8]));
        pool.lend(chunk);
        let lent =
            Lent::<Segment>::attach(std::process::id() as i32, pool.descriptor().unwrap()).unwrap();
        assert_eq!(lent.bytes(chunk, 3, 2), [7, 8]);
        lent.take_over(chunk, 3, 2);
        assert_eq!(lent.bytes(chunk, 0, 8), [0; 8]);
        lent.release(chunk);
        let mut seen = Vec::new();
        for _ in 0..3 * CHUNKS {
            let chunk = pool.take(0).unwrap().expect("a free chunk");
            pool.lend(chunk);
            lent.release(chunk);
            seen.push(chunk);
        }
        let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), usize::from(CHUNKS));
    }

    #[test]
    fn what_a_gone_reader_held_comes_back() {
        let mut pool = Pool::<Segment>::default();
        while let Some(chunk) = pool.take(5).unwrap() {
            pool.lend(chunk);
        }
        pool.forget(5);
        assert!(pool.has_room(5));
    }
}
