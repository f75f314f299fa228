//! Long messages that are fetched from their senders' memory: in pieces, and without the core.
//!
//! A thread takes a piece under the worker's lock, copies it without, and gives it back under it. Who is at a fetch
//! goes on with it; what nobody is at is for the next that holds the worker, and who waits and has nothing else to do
//! takes pieces of any (`wait/copying`), of the nearest first (`places`). However it goes, a fetch ends when nothing of it is left and nothing is in
//! anyone's hands: until then its operation is under way, and the memory is the library's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::RemoteReader;
use engine::{RemoteRead, RemoteReadId};

use crate::locality::{Choice, Distance, Place, Places};
use crate::worker::Worker;

/// The long fetches of a process, the oldest first: no more than it has receives under way.
#[derive(Default)]
pub(crate) struct Copies {
    under_way: Vec<Fetch>,
    choice: Choice,
}

struct Fetch {
    /// Where it was begun.
    place: Place,
    remote_read: RemoteRead,
    remote_reader: Arc<dyn RemoteReader>,
    /// Its first bytes, which threads have taken.
    taken: usize,
    /// Pieces of them that have not been given back.
    in_hand: usize,
    /// The system has refused a piece: all others are in vain.
    has_failed: bool,
}

/// A part of a fetch.
pub(crate) struct Piece {
    remote_read: RemoteRead,
    remote_reader: Arc<dyn RemoteReader>,
}

impl Copies {
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// How many threads are at it.
    pub fn in_hand(&self) -> usize {
        self.under_way.iter().map(|fetch| fetch.in_hand).sum()
    }

    /// How many bytes nobody has taken.
    pub fn left_bytes(&self) -> usize {
        self.under_way.iter().map(Fetch::left).sum()
    }

    /// Gives up what nobody is at, and the rest when it is given back.
    pub fn clear(&mut self) {
        self.under_way.clear();
    }

    /// Whether there is a piece for who is at a fetch, or at none: of that, or of one that nobody is at.
    fn has(&self, at: Option<RemoteReadId>) -> bool {
        let is_for = |fetch: &Fetch| fetch.in_hand == 0 || Some(fetch.remote_read.id) == at;
        self.under_way.iter().any(|fetch| fetch.left() > 0 && is_for(fetch))
    }

    /// The fetch that a thread is at, if it has pieces left.
    fn find(&self, places: &Places, at: Option<RemoteReadId>) -> Option<(usize, Distance)> {
        let is_its = |fetch: &Fetch| fetch.left() > 0 && Some(fetch.remote_read.id) == at;
        let index = self.under_way.iter().position(is_its)?;
        Some((index, places.distance(places.here(), self.under_way[index].place)))
    }

    /// The nearest fetch that has pieces left and is such a one, of those the oldest.
    fn choose(
        &mut self,
        places: &Places,
        is_such: impl Fn(&Fetch) -> bool,
    ) -> Option<(usize, Distance)> {
        let here = places.here();
        let all = self.under_way.iter().enumerate();
        let such = all.filter(|(_, fetch)| fetch.left() > 0 && is_such(fetch));
        let far = such.map(|(index, fetch)| (index, places.distance(here, fetch.place)));
        self.choice.take(far)
    }
}

impl Fetch {
    fn left(&self) -> usize {
        if self.has_failed { 0 } else { self.remote_read.local.len() - self.taken }
    }

    fn take(&mut self) -> Piece {
        let RemoteRead { id, peer, rail, remote, offset, ref local } = self.remote_read;
        let local = local.slice(self.taken, self.left().min(PIECE));
        let offset = offset + self.taken as u64;
        self.taken += local.len();
        self.in_hand += 1;
        let remote_read = RemoteRead { id, peer, rail, remote, offset, local };
        Piece { remote_read, remote_reader: Arc::clone(&self.remote_reader) }
    }
}

impl Piece {
    /// The fetch that it is of.
    pub fn of(&self) -> RemoteReadId {
        self.remote_read.id
    }

    /// Copies it; whether that went well, and how long it took.
    pub fn copy(&self) -> (bool, Duration) {
        let RemoteRead { remote, offset, local, .. } = &self.remote_read;
        timed(|| self.remote_reader.remote_read(*remote, *offset, local).is_ok())
    }
}

impl Worker {
    /// Copies a short message from its sender's memory, and lays a long one beside for who has the time.
    pub(crate) fn fetch(&mut self, remote_read: RemoteRead, remote_reader: Arc<dyn RemoteReader>) {
        if remote_read.local.len() <= IN_PLACE {
            let id = remote_read.id;
            let (is_copied, took) = Piece { remote_read, remote_reader }.copy();
            self.note_piece(took);
            return self.engine.handle_remote_read_done(id, is_copied);
        }
        let place = self.places.here();
        let fetch =
            Fetch { place, remote_read, remote_reader, taken: 0, in_hand: 0, has_failed: false };
        self.copies.under_way.push(fetch);
        self.has_loose_ends = true;
    }

    /// Whether there is a piece to copy for who is at a fetch, or at none.
    #[inline(never)]
    pub(crate) fn has_pieces(&self, at: Option<RemoteReadId>) -> bool {
        self.copies.has(at)
    }

    /// Takes that piece, to be given back by [`Worker::give_back`].
    pub(crate) fn take_piece(&mut self, at: Option<RemoteReadId>) -> Option<Piece> {
        let Self { copies, places, .. } = self;
        let own = copies.find(places, at);
        let found = own.or_else(|| copies.choose(places, |fetch| fetch.in_hand == 0));
        Some(self.take_of(found?))
    }

    /// Takes a piece of the nearest fetch that has any, whoever is at it.
    pub(crate) fn take_any_piece(&mut self) -> Option<Piece> {
        let found = self.copies.choose(&self.places, |_| true);
        Some(self.take_of(found?))
    }

    fn take_of(&mut self, (index, distance): (usize, Distance)) -> Piece {
        self.counters.note_taken(distance);
        self.copies.under_way[index].take()
    }

    /// A piece is copied, or was refused. With the last the fetch ends, and its sender is told.
    pub(crate) fn give_back(&mut self, piece: &Piece, is_copied: bool, took: Duration) {
        self.note_piece(took);
        let fetches = &mut self.copies.under_way;
        let Some(at) = fetches.iter().position(|fetch| fetch.remote_read.id == piece.of()) else {
            return;
        };
        let fetch = &mut fetches[at];
        fetch.in_hand -= 1;
        fetch.has_failed |= !is_copied;
        if fetch.in_hand == 0 && fetch.left() == 0 {
            let Fetch { remote_read, has_failed, .. } = fetches.remove(at);
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

/// What it answers, and how long it took.
pub(crate) fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let answer = act();
    (answer, began.elapsed())
}

/// Messages up to this length are copied with the core: it takes some microseconds, no longer than others spin for
/// the lock.
const IN_PLACE: usize = 64 << 10;

/// What one thread copies before it looks at the core again: some 50 µs, beside which the look is nothing.
pub(crate) const PIECE: usize = 512 << 10;
