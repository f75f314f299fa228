//! Evenness: members of a shared segment that outnumber the cores yield these to each other, and each round takes as long as the
//! core with most of them needs. The kernel leaves six of eight on one of two cores for a tenth of a second: who has
//! just run counts as at home there, and all have just run.

use std::time::{Duration, Instant};

use super::migrate::Aside;

/// How often this member has found others unevenly spread.
#[derive(Debug)]
pub(super) struct Evenness {
    next_look: Instant,
    aside: Aside,
}

impl Evenness {
    pub fn new(now: Instant) -> Self {
        Self { next_look: now, aside: Aside::after(LOOKS) }
    }

    /// This member has yielded its core: whether it is time to look at the others.
    #[inline]
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_look;
        if is_due {
            self.next_look = now + LOOK_EVERY;
        }
        is_due
    }

    /// Member `me` runs on `here`, and the others, one after the other, where they have said last. Once it is a habit
    /// that this is uneven, it goes elsewhere, if it is its turn.
    pub fn look(&mut self, me: u32, here: u32, others: impl Iterator<Item = (u32, u32)> + Clone) {
        match taken(me, here, others) {
            Some(taken) => self.aside.meet(here, taken.into_iter()),
            None => self.aside.part(),
        }
    }
}

/// The cores on which too many run for one more from `here`; none if nobody is to go from there, or another. Members
/// follow each other: the last of a core goes first.
fn taken(me: u32, here: u32, others: impl Iterator<Item = (u32, u32)> + Clone) -> Option<Vec<u32>> {
    if others.clone().any(|(member, core)| core == here && member > me) {
        return None;
    }
    let mut cores: Vec<u32> = others.map(|(_, core)| core).chain([here]).collect();
    cores.sort_unstable();
    let runs = || cores.chunk_by(PartialEq::eq);
    let mine = runs().find(|run| run[0] == here)?.len();
    // Of many a few more are not worth a move.
    let full = |run: &&[u32]| run.len() + 1 + mine / MANY >= mine;
    let taken: Vec<u32> = runs().filter(full).map(|run| run[0]).collect();
    (taken.len() < runs().count()).then_some(taken)
}

/// One core has as many as another when it has an eighth more.
const MANY: usize = 8;

/// How long a member does not look again: some rounds of what is short, a fraction of what is long.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// So many looks in a row are no chance: milliseconds, or as many calls where there is more time between these.
const LOOKS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the member `me` of those that run on `cores` does not go.
    fn of(me: u32, cores: &[u32]) -> Option<Vec<u32>> {
        let others = (0..).zip(cores.iter().copied()).filter(|(member, _)| *member != me);
        taken(me, cores[me as usize], others)
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
    fn one_more_than_elsewhere_is_even_and_so_is_a_single_core() {
        for cores in [&[0, 1, 0][..], &[0, 0, 0], &[2], &[0, 0, 0, 1, 1, 2, 2]] {
            assert!((0..cores.len() as u32).all(|me| of(me, cores).is_none()), "{cores:?}");
        }
        let uneven = [3, 1, 3, 2, 1, 3];
        assert_eq!(of(5, &uneven), Some(vec![1, 3]));
        assert!((0..5).all(|me| of(me, &uneven).is_none()));
    }

    #[test]
    fn of_many_a_few_more_are_left() {
        let split = |left: usize, right: usize| [vec![0; left], vec![1; right]].concat();
        assert!(of(16, &split(17, 15)).is_none());
        assert_eq!(of(17, &split(18, 14)), Some(vec![0]));
    }

    #[test]
    fn looks_are_some_time_apart() {
        let began = Instant::now();
        let mut evenness = Evenness::new(began);
        let yields = (0..10 * LOOK_EVERY.as_micros()).step_by(10);
        let looks = yields.filter(|us| evenness.is_due(began + Duration::from_micros(*us as u64)));
        assert_eq!(looks.count(), 10);
    }
}
