//! Tells where in the machine work is offered, and which work is nearest to an idle thread.
//!
//! Pieces of long messages and computations of tasks wait under the worker's lock. Each was offered on the core that
//! had its data last. A thread that looks for work takes the work of its own core first, then of its cache domain, of
//! its NUMA node, and of the whole machine. This equals one queue per core, cache and node, searched from the inside
//! to the outside. To prevent starvation, the oldest work comes next after it has been passed over often. There is
//! never more work than operations in progress.

use std::time::Instant;

use topo::domains::Location;

use crate::cores::LOOK_EVERY;

/// The cores of the process and their domains and NUMA nodes.
#[derive(Debug, Default)]
pub(crate) struct Locality {
    /// The cores that these places describe.
    cores: Vec<usize>,
    /// Locations by core; empty if all cores share one domain, since no work is nearer then.
    locations: Vec<Option<Location>>,
    /// Time of the last check of the cores.
    asked: Option<Instant>,
}

/// The core on which work was offered, or on which a thread looks for it; none if that does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkCore(Option<usize>);

/// Distance between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    SameCore,
    /// Both share the last-level cache, or the whole process has one domain.
    Domain,
    /// Both are in one NUMA node.
    Node,
    Machine,
}

/// Chooses the next work of one kind.
#[derive(Debug, Default)]
pub(crate) struct NearestFirst {
    /// Number of times in a row that the oldest was passed over.
    passed: u32,
}

impl Locality {
    /// Creates the places of these cores, whose locations `location` tells.
    pub fn new(cores: Vec<usize>, location: impl Fn(usize) -> Location) -> Self {
        let mut locations = vec![None; cores.last().map_or(0, |last| last + 1)];
        cores.iter().for_each(|core| locations[*core] = Some(location(*core)));
        let mut known = locations.iter().flatten();
        let first = known.next();
        if known.all(|one| Some(one) == first) {
            locations.clear();
        }
        Self { cores, locations, asked: None }
    }

    /// True if the cores of the process are to be checked, which happens now and then.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.asked.is_none_or(|asked| now - asked >= LOOK_EVERY);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// True if the places describe exactly these cores.
    pub fn is_of(&self, cores: &[usize]) -> bool {
        self.cores == cores
    }

    /// Returns the place of the calling thread.
    pub fn here(&self) -> WorkCore {
        WorkCore((!self.locations.is_empty()).then(core_here))
    }

    /// True if no work is nearer than other work.
    pub fn is_uniform(&self) -> bool {
        self.locations.is_empty()
    }

    /// Returns the distance between two places. A core that was added later is at the largest distance.
    pub fn distance(&self, from: WorkCore, to: WorkCore) -> Distance {
        let (WorkCore(Some(from)), WorkCore(Some(to))) = (from, to) else {
            return Distance::Domain;
        };
        let location = |core: usize| self.locations.get(core).copied().flatten();
        match (location(from), location(to)) {
            _ if from == to => Distance::SameCore,
            (Some(one), Some(other)) if one == other => Distance::Domain,
            (Some(one), Some(other)) if one.node == other.node => Distance::Node,
            _ => Distance::Machine,
        }
    }
}

impl NearestFirst {
    /// Chooses like [`NearestFirst::take`] among so many offers at one distance, the newest first; returns the age.
    pub fn take_of_equals(&mut self, count: usize) -> Option<usize> {
        let newest = count.checked_sub(1)?;
        let is_due = self.passed >= PASSED_MAX;
        self.passed = if is_due || newest == 0 { 0 } else { self.passed + 1 };
        Some(if is_due { 0 } else { newest })
    }

    /// Chooses the first of the nearest offers. Each has its age in the queue, 0 for the oldest, and its distance.
    pub fn take(
        &mut self,
        all: impl Iterator<Item = (usize, Distance)>,
    ) -> Option<(usize, Distance)> {
        let mut found: Option<[(usize, Distance); 2]> = None;
        for one in all {
            let [nearest, oldest] = found.get_or_insert([one; 2]);
            if one.1 < nearest.1 {
                *nearest = one;
            }
            if one.0 < oldest.0 {
                *oldest = one;
            }
        }
        let [nearest, oldest] = found?;
        let is_due = self.passed >= PASSED_MAX;
        self.passed = if is_due || nearest.0 == oldest.0 { 0 } else { self.passed + 1 };
        Some(if is_due { oldest } else { nearest })
    }
}

/// Returns the core of the calling thread, as the C library tells it. Looking up the kernel's vDSO directly goes wrong
/// under valgrind.
pub(crate) fn core_here() -> usize {
    cpu::core_here() as usize
}

/// Number of times in a row that nearer or later work goes before the oldest.
const PASSED_MAX: u32 = 64;

/// An invented machine, so that tests need no particular one.
#[cfg(test)]
pub(crate) mod made_up {
    use super::*;

    /// Creates two NUMA nodes with two caches each, shared by four cores.
    pub fn machine() -> Locality {
        let location = |core| Location { node: Some(core / 8), cache: Some(core / 4 * 4) };
        Locality::new((0..16).collect(), location)
    }

    pub fn at(core: usize) -> WorkCore {
        WorkCore(Some(core))
    }
}

#[cfg(test)]
mod tests {
    use super::made_up::{at, machine};
    use super::*;

    /// Takes all work that was offered on these cores, oldest first, by a thread on `core`. Returns the order.
    fn order(locality: &Locality, core: usize, offered: &[usize]) -> Vec<usize> {
        let (mut choice, mut left, mut taken) =
            (NearestFirst::default(), offered.to_vec(), Vec::new());
        let far = |left: &[usize]| -> Vec<_> {
            left.iter().map(|offer| locality.distance(at(core), at(*offer))).enumerate().collect()
        };
        while let Some((index, _)) = choice.take(far(&left).into_iter()) {
            taken.push(left.remove(index));
        }
        taken
    }

    #[test]
    fn the_nearest_is_taken_first_and_of_those_the_oldest() {
        let locality = machine();
        assert_eq!(order(&locality, 5, &[12, 0, 6, 5, 15, 3, 4]), [5, 6, 4, 0, 3, 12, 15]);
        assert_eq!(order(&locality, 12, &[12, 0, 6, 5, 15, 3, 4]), [12, 15, 0, 6, 5, 3, 4]);
        assert_eq!(
            order(&locality, 0, &[15, 14, 13]),
            [15, 14, 13],
            "who has only far work takes it"
        );
        assert!(order(&locality, 0, &[]).is_empty());
    }

    #[test]
    fn distances_follow_caches_and_memory_and_are_those_back() {
        let locality = machine();
        let levels = |core| {
            let far: Vec<_> = (0..16).map(|to| locality.distance(at(core), at(to))).collect();
            [Distance::SameCore, Distance::Domain, Distance::Node, Distance::Machine]
                .map(|level| far.iter().filter(|one| **one == level).count())
        };
        for core in 0..16 {
            assert_eq!(levels(core), [1, 3, 4, 8]);
            for to in 0..16 {
                assert_eq!(
                    locality.distance(at(core), at(to)),
                    locality.distance(at(to), at(core))
                );
            }
        }
        assert_eq!(locality.distance(at(0), at(99)), Distance::Machine, "a core given later");
        assert_eq!(locality.distance(at(99), at(99)), Distance::SameCore);
    }

    #[test]
    fn in_one_domain_nothing_is_nearer() {
        let locality = Locality::new(vec![0, 1], |_| Location { node: Some(0), cache: Some(0) });
        assert_eq!(locality.here(), WorkCore(None));
        assert_eq!(locality.distance(locality.here(), locality.here()), Distance::Domain);
        assert!(locality.is_of(&[0, 1]) && !locality.is_of(&[0]));
        assert!(Locality::default().is_of(&[]));
        let (mut locality, now) = (locality, Instant::now());
        let due = [now, now, now + LOOK_EVERY / 2, now + LOOK_EVERY].map(|at| locality.is_due(at));
        assert_eq!(due, [true, false, false, true]);
        assert_ne!(machine().here(), WorkCore(None));
    }

    #[test]
    fn distant_work_is_taken_though_nearer_work_keeps_coming() {
        let mut choice = NearestFirst::default();
        let offers = [(0, Distance::Machine), (1, Distance::SameCore)];
        for _ in 0..3 {
            for _ in 0..PASSED_MAX {
                assert_eq!(choice.take(offers.into_iter()), Some(offers[1]));
            }
            assert_eq!(choice.take(offers.into_iter()), Some(offers[0]));
        }
        assert_eq!(choice.take([].into_iter()), None);
    }

    #[test]
    fn a_choice_from_the_newest_on_takes_the_newest_of_the_nearest() {
        let mut choice = NearestFirst::default();
        let far = [Distance::SameCore, Distance::SameCore, Distance::Machine];
        let newest_first = || far.into_iter().enumerate().rev();
        assert_eq!(choice.take(newest_first()), Some((1, Distance::SameCore)));
    }
}
