//! Where in the machine work is offered, and which of it is nearest to a thread that has the time.
//!
//! Pieces of long messages and what tasks have to compute wait under the worker's lock for whoever takes them. Each was
//! offered on some core: there its data were last. Who looks for work takes what was offered on its own core, then within
//! its domain, within its node of memory, and anywhere: what a queue for each core, cache and node would give that
//! is searched from the inside to the outside. So that none starves where work near by keeps coming, the oldest
//! is next when it has been passed over for long. There is no more of it than operations are under way.

use std::time::Instant;

use topo::domains::Location;

use crate::cores::LOOK_EVERY;

/// The machine, as far as the process has it.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The cores that it was made for.
    cores: Vec<usize>,
    /// By core; none where all are of one domain, for then no work is nearer than other.
    locations: Vec<Option<Location>>,
    /// When it was last asked whether these are the cores.
    asked: Option<Instant>,
}

/// Where work was offered, or who looks for it is: a core, if that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(Option<usize>);

/// How far it is from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    Worker,
    /// Both share the last cache, or the whole process is of one domain.
    Domain,
    /// Both are of one node of memory.
    Node,
    Machine,
}

/// What is taken next of one kind of work.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// How often in a row the oldest was passed over.
    passed: u32,
}

impl Places {
    /// These cores, each where it is said to be.
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

    /// Whether to ask which cores there are: now and then.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.asked.is_none_or(|asked| now - asked >= LOOK_EVERY);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// Whether it is made for these.
    pub fn is_of(&self, cores: &[usize]) -> bool {
        self.cores == cores
    }

    /// Where the calling thread is.
    pub fn here(&self) -> Place {
        Place((!self.locations.is_empty()).then(core_here))
    }

    /// How far it is. A core that came later is as far as can be.
    pub fn distance(&self, from: Place, to: Place) -> Distance {
        let (Place(Some(from)), Place(Some(to))) = (from, to) else { return Distance::Domain };
        let location = |core: usize| self.locations.get(core).copied().flatten();
        match (location(from), location(to)) {
            _ if from == to => Distance::Worker,
            (Some(one), Some(other)) if one == other => Distance::Domain,
            (Some(one), Some(other)) if one.node == other.node => Distance::Node,
            _ => Distance::Machine,
        }
    }
}

impl Choice {
    /// Which to take of those so far away, each with its age in the queue, 0 the oldest: the first of the nearest.
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

/// On which core the calling thread is. It is the C library that knows: to find what the kernel gives processes to read
/// goes wrong under valgrind.
pub(crate) fn core_here() -> usize {
    driver::core_here() as usize
}

/// So often in a row what is nearer, or came later, goes before the oldest.
const PASSED_MAX: u32 = 64;

/// A machine that no test has to run on.
#[cfg(test)]
pub(crate) mod made_up {
    use super::*;

    /// Two nodes of memory, of two caches each, which four cores share.
    pub fn machine() -> Places {
        let location = |core| Location { node: Some(core / 8), cache: Some(core / 4 * 4) };
        Places::new((0..16).collect(), location)
    }

    pub fn at(core: usize) -> Place {
        Place(Some(core))
    }
}

#[cfg(test)]
mod tests {
    use super::made_up::{at, machine};
    use super::*;

    /// Takes all work that was offered on these cores, the oldest first, by a thread on `core`; in which order.
    fn order(places: &Places, core: usize, offered: &[usize]) -> Vec<usize> {
        let (mut choice, mut left, mut taken) = (Choice::default(), offered.to_vec(), Vec::new());
        let far = |left: &[usize]| -> Vec<_> {
            left.iter().map(|offer| places.distance(at(core), at(*offer))).enumerate().collect()
        };
        while let Some((index, _)) = choice.take(far(&left).into_iter()) {
            taken.push(left.remove(index));
        }
        taken
    }

    #[test]
    fn the_nearest_is_taken_first_and_of_those_the_oldest() {
        let places = machine();
        assert_eq!(order(&places, 5, &[12, 0, 6, 5, 15, 3, 4]), [5, 6, 4, 0, 3, 12, 15]);
        assert_eq!(order(&places, 12, &[12, 0, 6, 5, 15, 3, 4]), [12, 15, 0, 6, 5, 3, 4]);
        assert_eq!(
            order(&places, 0, &[15, 14, 13]),
            [15, 14, 13],
            "who has only far work takes it"
        );
        assert!(order(&places, 0, &[]).is_empty());
    }

    #[test]
    fn distances_follow_caches_and_memory_and_are_those_back() {
        let places = machine();
        let levels = |core| {
            let far: Vec<_> = (0..16).map(|to| places.distance(at(core), at(to))).collect();
            [Distance::Worker, Distance::Domain, Distance::Node, Distance::Machine]
                .map(|level| far.iter().filter(|one| **one == level).count())
        };
        for core in 0..16 {
            assert_eq!(levels(core), [1, 3, 4, 8]);
            for to in 0..16 {
                assert_eq!(places.distance(at(core), at(to)), places.distance(at(to), at(core)));
            }
        }
        assert_eq!(places.distance(at(0), at(99)), Distance::Machine, "a core given later");
        assert_eq!(places.distance(at(99), at(99)), Distance::Worker);
    }

    #[test]
    fn in_one_domain_nothing_is_nearer() {
        let places = Places::new(vec![0, 1], |_| Location { node: Some(0), cache: Some(0) });
        assert_eq!(places.here(), Place(None));
        assert_eq!(places.distance(places.here(), places.here()), Distance::Domain);
        assert!(places.is_of(&[0, 1]) && !places.is_of(&[0]));
        assert!(Places::default().is_of(&[]));
        let (mut places, now) = (places, Instant::now());
        let due = [now, now, now + LOOK_EVERY / 2, now + LOOK_EVERY].map(|at| places.is_due(at));
        assert_eq!(due, [true, false, false, true]);
        assert_ne!(machine().here(), Place(None));
    }

    #[test]
    fn none_starves_where_nearer_work_keeps_coming() {
        let mut choice = Choice::default();
        let offers = [(0, Distance::Machine), (1, Distance::Worker)];
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
        let mut choice = Choice::default();
        let far = [Distance::Worker, Distance::Worker, Distance::Machine];
        let newest_first = || far.into_iter().enumerate().rev();
        assert_eq!(choice.take(newest_first()), Some((1, Distance::Worker)));
    }
}
