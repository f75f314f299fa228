//! Remote reads of long messages: in pieces, and without the worker's lock.
//!
//! A thread takes a piece under the worker's lock, copies it without the lock, and gives it back under it. A thread
//! that works at a remote read goes on with it. A read without a thread goes to the next holder of the lock. Waiting
//! threads without other work take pieces of any read (`wait/copying`), the nearest first (`locality`). A remote read
//! ends when no piece is left or held by a thread. Until then its operation is in progress, and the memory belongs to
//! the library.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{RemoteRead, RemoteReadId};
use rail::RemoteReader;

use crate::locality::{Distance, Locality, NearestFirst, WorkCore};
use crate::worker::Worker;

/// The long remote reads of a process, the oldest first: at most as many as it has receives in progress.
#[derive(Default)]
pub(crate) struct Copies {
    under_way: Vec<LongRead>,
    choice: NearestFirst,
}

struct LongRead {
    /// Place where it was begun.
    place: WorkCore,
    remote_read: RemoteRead,
    remote_reader: Arc<dyn RemoteReader>,
    /// Number of its first bytes that threads have taken.
    taken: usize,
    /// Number of taken pieces that have not been given back.
    in_progress: usize,
    /// True if the system has refused a piece, which makes all others useless.
    has_failed: bool,
}

/// A part of a remote read.
pub(crate) struct Piece {
    remote_read: RemoteRead,
    remote_reader: Arc<dyn RemoteReader>,
}

impl Copies {
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Number of pieces that threads are copying.
    pub fn in_progress(&self) -> usize {
        self.under_way.iter().map(|fetch| fetch.in_progress).sum()
    }

    /// Number of bytes that no thread has taken.
    pub fn left_bytes(&self) -> usize {
        self.under_way.iter().map(LongRead::left).sum()
    }

    /// Drops all reads; pieces in progress are dropped when they are given back.
    pub fn clear(&mut self) {
        self.under_way.clear();
    }

    /// True if there is a piece for a thread at this read, or at none: of this read, or of one without a thread.
    fn has(&self, at: Option<RemoteReadId>) -> bool {
        let is_for = |fetch: &LongRead| fetch.in_progress == 0 || Some(fetch.remote_read.id) == at;
        self.under_way.iter().any(|fetch| fetch.left() > 0 && is_for(fetch))
    }

    /// Finds the remote read at which a thread works, if it has pieces left.
    fn find(&self, locality: &Locality, at: Option<RemoteReadId>) -> Option<(usize, Distance)> {
        let is_its = |fetch: &LongRead| fetch.left() > 0 && Some(fetch.remote_read.id) == at;
        let index = self.under_way.iter().position(is_its)?;
        Some((index, locality.distance(locality.here(), self.under_way[index].place)))
    }

    /// Chooses the nearest remote read with pieces left that meets a condition, the oldest among equals.
    fn choose(
        &mut self,
        locality: &Locality,
        is_such: impl Fn(&LongRead) -> bool,
    ) -> Option<(usize, Distance)> {
        let here = locality.here();
        let all = self.under_way.iter().enumerate();
        let such = all.filter(|(_, fetch)| fetch.left() > 0 && is_such(fetch));
        let far = such.map(|(index, fetch)| (index, locality.distance(here, fetch.place)));
        self.choice.take(far)
    }
}

impl LongRead {
    fn left(&self) -> usize {
        if self.has_failed { 0 } else { self.remote_read.local.len() - self.taken }
    }

    fn take(&mut self) -> Piece {
        let RemoteRead { id, peer, rail, remote, offset, ref local } = self.remote_read;
        let local = local.slice(self.taken, self.left().min(PIECE));
        let offset = offset + self.taken as u64;
        self.taken += local.len();
        self.in_progress += 1;
        let remote_read = RemoteRead { id, peer, rail, remote, offset, local };
        Piece { remote_read, remote_reader: Arc::clone(&self.remote_reader) }
    }
}

impl Piece {
    /// Id of the remote read that it belongs to.
    pub fn of(&self) -> RemoteReadId {
        self.remote_read.id
    }

    /// Copies the piece; returns true on success, and the time taken.
    pub fn copy(&self) -> (bool, Duration) {
        let RemoteRead { remote, offset, local, .. } = &self.remote_read;
        timed(|| self.remote_reader.remote_read(*remote, *offset, local).is_ok())
    }
}

impl Worker {
    /// Copies a short message from its sender's memory, and queues a long one for threads that have time.
    pub(crate) fn fetch(&mut self, remote_read: RemoteRead, remote_reader: Arc<dyn RemoteReader>) {
        if remote_read.local.len() <= IN_PLACE {
            let id = remote_read.id;
            let (is_copied, took) = Piece { remote_read, remote_reader }.copy();
            self.note_piece(took);
            return self.engine.handle_remote_read_done(id, is_copied);
        }
        let place = self.locality.here();
        let fetch = LongRead {
            place,
            remote_read,
            remote_reader,
            taken: 0,
            in_progress: 0,
            has_failed: false,
        };
        self.copies.under_way.push(fetch);
        self.has_loose_ends = true;
    }

    /// True if there is a piece to copy for a thread at this remote read, or at none.
    #[inline(never)]
    pub(crate) fn has_pieces(&self, at: Option<RemoteReadId>) -> bool {
        self.copies.has(at)
    }

    /// Takes that piece; the caller returns it by [`Worker::return_piece`].
    pub(crate) fn take_piece(&mut self, at: Option<RemoteReadId>) -> Option<Piece> {
        let Self { copies, locality, .. } = self;
        let own = copies.find(locality, at);
        let found = own.or_else(|| copies.choose(locality, |fetch| fetch.in_progress == 0));
        Some(self.take_of(found?))
    }

    /// Takes a piece of the nearest remote read that has any, even if other threads work at it.
    pub(crate) fn take_any_piece(&mut self) -> Option<Piece> {
        let found = self.copies.choose(&self.locality, |_| true);
        Some(self.take_of(found?))
    }

    fn take_of(&mut self, (index, distance): (usize, Distance)) -> Piece {
        self.counters.note_taken(distance);
        self.copies.under_way[index].take()
    }

    /// Gives back a piece that is copied or was refused. The last piece ends the remote read, and its sender is
    /// told.
    pub(crate) fn return_piece(&mut self, piece: &Piece, is_copied: bool, took: Duration) {
        self.note_piece(took);
        let fetches = &mut self.copies.under_way;
        let Some(at) = fetches.iter().position(|fetch| fetch.remote_read.id == piece.of()) else {
            return;
        };
        let fetch = &mut fetches[at];
        fetch.in_progress -= 1;
        fetch.has_failed |= !is_copied;
        if fetch.in_progress == 0 && fetch.left() == 0 {
            let LongRead { remote_read, has_failed, .. } = fetches.remove(at);
            self.engine.handle_remote_read_done(remote_read.id, !has_failed);
            self.flush();
            self.look_at_ends();
        }
    }

    fn note_piece(&mut self, took: Duration) {
        let steps = self.task_steps();
        steps.pieces += 1;
        steps.copying += took;
    }
}

/// Runs a function; returns its result and the time taken.
pub(crate) fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let answer = act();
    (answer, began.elapsed())
}

/// Longest message that is copied under the lock: this takes some microseconds, no longer than other threads spin
/// for the lock.
const IN_PLACE: usize = 64 << 10;

/// Bytes that one thread copies before it takes the lock again: some 50 µs, which makes the cost of the lock
/// negligible.
pub(crate) const PIECE: usize = 512 << 10;
