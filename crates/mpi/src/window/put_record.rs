//! Record of puts, in which conflicting ones are found (`CANELE_CHECK`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rma::TargetPlace;

use crate::{Error, ErrorClass, Result};

/// Puts of this process to each target since the last flush of an epoch: no two of them may overlap, because their order
/// is undefined (MPI-5.0 §12.7).
#[derive(Debug, Default)]
pub(super) struct PutRecord(Mutex<Puts>);

#[derive(Debug, Default)]
struct Puts {
    /// Number of the epoch.
    epoch: u64,
    /// First byte and end of each run of bytes, by target.
    runs: BTreeMap<u32, BTreeMap<i64, i64>>,
}

impl PutRecord {
    /// Records a put in an epoch.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_CONFLICT` if it overlaps another one.
    pub fn note(&self, epoch: u64, place: &TargetPlace<'_>) -> Result<()> {
        let mut puts = self.puts();
        if puts.epoch != epoch {
            *puts = Puts { epoch, runs: BTreeMap::new() };
        }
        let runs = puts.runs.entry(place.rank()).or_default();
        for (first, end) in runs_of(place).take_while(|(first, end)| first < end) {
            let before = runs.range(..end).next_back().filter(|(_, before)| **before > first);
            if before.is_some() {
                let rank = place.rank();
                let text = format!(
                    "bytes {first} to {end} of rank {rank}'s window overlap an earlier put, and no flush is between them"
                );
                return Err(Error::new(ErrorClass::RmaConflict, text));
            }
            if runs.len() < RUNS_MAX {
                runs.insert(first, end);
            }
        }
        Ok(())
    }

    /// Forgets the puts to a target, or to all: they are complete.
    pub fn clear(&self, target: Option<u32>) {
        let mut puts = self.puts();
        match target {
            Some(target) => drop(puts.runs.remove(&target)),
            None => puts.runs.clear(),
        }
    }

    fn puts(&self) -> MutexGuard<'_, Puts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs of bytes of a put: the first ones, if there are many.
fn runs_of<'a>(place: &TargetPlace<'a>) -> impl Iterator<Item = (i64, i64)> + 'a {
    let displacement = place.displacement();
    let whole = displacement.saturating_add_unsigned(place.len() as u64);
    let dense = place.scattered().is_none().then_some((displacement, whole));
    let elements = place.scattered().into_iter().flat_map(move |(count, layout)| {
        (0..count.min(RUNS_MAX)).flat_map(move |index| {
            let origin =
                displacement.saturating_add((index as i64).saturating_mul(layout.extent() as i64));
            layout.segments().iter().map(move |segment| {
                let first = origin.saturating_add(segment.offset as i64);
                (first, first.saturating_add_unsigned(segment.len as u64))
            })
        })
    });
    dense.into_iter().chain(elements.take(RUNS_MAX))
}

/// Limit of the recorded runs of a target. Puts beyond it are compared, but not recorded.
const RUNS_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memory::{Layout, Segment};

    use super::*;

    #[test]
    fn puts_that_overlap_are_found_until_they_are_complete() {
        let record = PutRecord::default();
        let dense = Arc::new(Layout::new([Segment { offset: 0, len: 8 }], 8));
        let comb = Arc::new(Layout::new([Segment { offset: 4, len: 4 }], 16));
        let put = |epoch, displacement, count, layout| {
            record.note(epoch, &TargetPlace::elements(3, displacement, count, layout)).is_ok()
        };
        assert!(put(2, 0, 2, &dense) && put(2, 24, 1, &dense) && !put(2, 15, 1, &dense));
        assert!(put(2, 16, 1, &dense) && !put(2, 31, 1, &dense) && put(2, 100, 0, &dense));
        assert!(put(2, 100, 3, &comb) && put(2, 108, 3, &comb) && put(2, 96, 1, &dense));
        assert!(!put(2, 130, 1, &dense));
        record.clear(Some(1));
        assert!(!put(2, 0, 1, &dense));
        record.clear(Some(3));
        assert!(put(2, 0, 1, &dense) && !put(2, 0, 1, &dense) && put(4, 0, 1, &dense));
    }
}
