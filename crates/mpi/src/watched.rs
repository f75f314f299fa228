//! Long arrays of requests that a program names again and again, as loops around `MPI_Waitany` do: what is known of
//! them from one call to the next (`request::watching`).

use std::cell::Cell;

use engine::EndQueueId;
use handles::Handle;
use lock::{Guard, Lock};
use progress::Worker;

use crate::vci::{VCIS_MAX, Vci};

/// The watched arrays of a process.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// By VCI; locked after its worker.
    vcis: [Lock<WatchedArrays>; VCIS_MAX],
    recent: Lock<RecentArrays>,
}

/// Addresses of the long arrays that calls named last.
#[derive(Debug, Default)]
struct RecentArrays {
    addresses: [usize; ARRAYS_MAX],
    next: usize,
}

/// The arrays that one VCI watches.
#[derive(Debug, Default)]
pub(crate) struct WatchedArrays {
    arrays: Vec<WatchedArray>,
    /// Number of calls so far.
    calls: u64,
}

/// An array of requests whose ends enter a queue.
#[derive(Debug)]
pub(crate) struct WatchedArray {
    address: usize,
    pub queue: EndQueueId,
    /// The registered handle of each place; `NULL` where there is none.
    pub handles: Vec<Handle>,
    /// Places of requests whose ends enter no queue.
    pub asked: Vec<u32>,
    /// Places that left the queue while the program's array had another request there.
    pub missed: Vec<u32>,
    /// Number of ends taken since the array was compared.
    pub taken: usize,
    /// Number of the latest call that named it.
    used: u64,
}

impl Watched {
    pub fn of(&self, vci: Vci) -> Guard<'_, WatchedArrays> {
        self.vcis[vci.number()].lock()
    }

    /// True if a call has named this array lately.
    pub fn is_repeated(&self, address: usize) -> bool {
        let RecentArrays { addresses, next } = &mut *self.recent.lock();
        if addresses.contains(&address) {
            return true;
        }
        addresses[*next] = address;
        *next = (*next + 1) % ARRAYS_MAX;
        false
    }
}

impl WatchedArrays {
    pub fn has(&self, address: usize) -> bool {
        self.arrays.iter().any(|array| array.address == address)
    }

    /// The array at an address, and whether it is new. The one that was not named for longest gives way.
    pub fn reach(&mut self, address: usize, worker: &mut Worker) -> (&mut WatchedArray, bool) {
        self.calls += 1;
        let found = self.arrays.iter().position(|array| array.address == address);
        let index = found.unwrap_or_else(|| {
            let oldest = self.arrays.iter().min_by_key(|array| array.used);
            if let Some(oldest) = oldest.filter(|_| self.arrays.len() == ARRAYS_MAX) {
                self.close(oldest.address, worker);
            }
            self.arrays.push(WatchedArray::new(address, worker.engine.open_end_queue()));
            self.arrays.len() - 1
        });
        self.arrays[index].used = self.calls;
        (&mut self.arrays[index], found.is_none())
    }

    pub fn close(&mut self, address: usize, worker: &mut Worker) {
        for array in self.arrays.extract_if(.., |array| array.address == address) {
            worker.engine.close_end_queue(array.queue);
        }
    }
}

impl WatchedArray {
    fn new(address: usize, queue: EndQueueId) -> Self {
        let (handles, asked, missed) = (Vec::new(), Vec::new(), Vec::new());
        Self { address, queue, handles, asked, missed, taken: 0, used: 0 }
    }

    /// True if the array is to be compared although there are ends: so that none of its requests is left out for ever.
    pub fn is_due(&self) -> bool {
        self.taken > self.handles.len() / 4
    }

    /// True if any place may enter the queue, as far as this VCI knows.
    pub fn expects_ends(&self, worker: &Worker) -> bool {
        worker.engine.expects_ends(self.queue)
    }

    /// Indices at which the program's array differs from the registered handles, or has differed from them when an end
    /// was taken.
    pub fn changed(&mut self, now: &[Cell<Handle>]) -> Vec<usize> {
        let missed = self.missed.drain(..).map(|place| place as usize);
        let mut all: Vec<_> = missed.filter(|index| *index < now.len()).collect();
        for (block, (now, then)) in now.chunks(BLOCK).zip(self.handles.chunks(BLOCK)).enumerate() {
            let both = || now.iter().map(Cell::get).zip(then);
            // Without branches, one instruction compares several handles.
            if both().fold(0, |differs, (now, then)| differs | (now.0 ^ then.0)) != 0 {
                let differing = both().enumerate().filter(|(_, (now, then))| now != *then);
                all.extend(differing.map(|(index, _)| block * BLOCK + index));
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Largest number of arrays that a VCI watches.
const ARRAYS_MAX: usize = 16;

/// Number of handles that are compared at once.
const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use engine::{Config, Engine};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_change_is_found(
            then in prop::collection::vec(0..3u64, 0..300),
            now in prop::collection::vec(0..3u64, 300),
            missed in prop::collection::vec(0..300u32, 0..5),
        ) {
            let mut array = WatchedArray::new(0, Engine::new(Config::new(1)).open_end_queue());
            array.handles = then.iter().copied().map(Handle).collect();
            array.missed.clone_from(&missed);
            let program = now[..then.len()].iter().map(|bits| Cell::new(Handle(*bits)));
            let program: Vec<_> = program.collect();
            let is_changed = |at: &usize| then[*at] != now[*at] || missed.contains(&(*at as u32));
            let expected: Vec<_> = (0..then.len()).filter(is_changed).collect();
            prop_assert_eq!(array.changed(&program), expected);
            prop_assert!(array.missed.is_empty());
        }
    }

    #[test]
    fn an_array_is_known_until_many_others_were_named() {
        let watched = Watched::default();
        assert!(!watched.is_repeated(8));
        assert!(
            (2..=ARRAYS_MAX).all(|other| watched.is_repeated(8) && !watched.is_repeated(8 * other))
        );
        assert!(!watched.is_repeated(8 * ARRAYS_MAX + 8) && !watched.is_repeated(8));
    }
}
