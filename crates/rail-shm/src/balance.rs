//! Load balancing of the members of a shared segment among the CPU cores.
//!
//! If members outnumber the cores, they yield to each other, and a round takes as long as the fullest core needs. The
//! kernel may leave six of eight processes on one of two cores for 100 ms. It considers a thread that has just run
//! cache-hot there, and all have just run.

use std::time::{Duration, Instant};

use crate::migrate::Migrator;

/// Balancing state of one member.
#[derive(Debug)]
pub(super) struct Balancer {
    next_look: Instant,
    migrator: Migrator,
}

impl Balancer {
    pub fn new(now: Instant) -> Self {
        Self { next_look: now, migrator: Migrator::after(LOOKS) }
    }

    /// True if it is time to look at the other members; called after a yield.
    #[inline]
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_look;
        if is_due {
            self.next_look = now + LOOK_EVERY;
        }
        is_due
    }

    /// Compares the core `here` of member `me` with the last published cores of the others. After [`LOOKS`] uneven
    /// results in a row this member migrates, if it is the one to go.
    pub fn look(&mut self, me: u32, here: u32, others: impl Iterator<Item = (u32, u32)> + Clone) {
        match full_cores(me, here, others) {
            Some(taken) => self.migrator.note_shared_core(here, taken.into_iter()),
            None => self.migrator.reset(),
        }
    }
}

/// Returns the cores that are too full to take one more from `here`; `None` if nobody, or another member, is to
/// leave. The last member of a core leaves first.
fn full_cores(
    me: u32,
    here: u32,
    others: impl Iterator<Item = (u32, u32)> + Clone,
) -> Option<Vec<u32>> {
    if others.clone().any(|(member, core)| core == here && member > me) {
        return None;
    }
    let mut cores: Vec<u32> = others.map(|(_, core)| core).chain([here]).collect();
    cores.sort_unstable();
    let runs = || cores.chunk_by(PartialEq::eq);
    let mine = runs().find(|run| run[0] == here)?.len();
    // With many members per core, small differences are not worth a migration.
    let full = |run: &&[u32]| run.len() + 1 + mine / MANY >= mine;
    let taken: Vec<u32> = runs().filter(full).map(|run| run[0]).collect();
    (taken.len() < runs().count()).then_some(taken)
}

/// Inverse of the relative difference that still counts as even.
const MANY: usize = 8;

/// Minimum interval of checks: a few rounds of short messages, a fraction of a long one.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Consecutive uneven results that are no coincidence: some milliseconds, or as many calls if these are farther
/// apart.
const LOOKS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the full cores for member `me`, if the members run on `cores`.
    fn of(me: u32, cores: &[u32]) -> Option<Vec<u32>> {
        let others = (0..).zip(cores.iter().copied()).filter(|(member, _)| *member != me);
        full_cores(me, cores[me as usize], others)
    }

    #[test]
    fn the_last_of_the_fullest_core_goes_until_it_is_even() {
        let mut cores = vec![0, 0, 0, 1, 0, 0, 0, 0];
        let mut gone = Vec::new();
        while let Some((me, taken)) = (0..8).find_map(|me| Some((me, of(me, &cores)?))) {
            assert_eq!(taken, [cores[me as usize]]);
            cores[me as usize] = 1;
            gone.push(me);
        }
        assert_eq!((gone, cores), (vec![7, 6, 5], vec![0, 0, 0, 1, 0, 1, 1, 1]));
    }

    #[test]
    fn a_difference_of_one_and_a_single_core_are_even() {
        for cores in [&[0, 1, 0][..], &[0, 0, 0], &[2], &[0, 0, 0, 1, 1, 2, 2]] {
            assert!((0..cores.len() as u32).all(|me| of(me, cores).is_none()), "{cores:?}");
        }
        let uneven = [3, 1, 3, 2, 1, 3];
        assert_eq!(of(5, &uneven), Some(vec![1, 3]));
        assert!((0..5).all(|me| of(me, &uneven).is_none()));
    }

    #[test]
    fn small_differences_among_many_are_even() {
        let split = |left: usize, right: usize| [vec![0; left], vec![1; right]].concat();
        assert!(of(16, &split(17, 15)).is_none());
        assert_eq!(of(17, &split(18, 14)), Some(vec![0]));
    }

    #[test]
    fn checks_keep_their_interval() {
        let began = Instant::now();
        let mut balancer = Balancer::new(began);
        let yields = (0..10 * LOOK_EVERY.as_micros()).step_by(10);
        let looks = yields.filter(|us| balancer.is_due(began + Duration::from_micros(*us as u64)));
        assert_eq!(looks.count(), 10);
    }
}
