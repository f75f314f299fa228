//! Evenness: members of a board that outnumber the cores yield these to each other, and each round takes as long as the
//! core with most of them needs. The kernel leaves seven of eight on one of two cores for a tenth of a second: who has
//! just run counts as at home there, and all have just run.

use super::aside::Aside;

/// How often this member has looked where the others run.
#[derive(Debug, Default)]
pub(super) struct Evenness {
    yields: u32,
    aside: Aside,
}

impl Evenness {
    /// This member has yielded its core: whether it is time to look at the others.
    #[inline]
    pub fn count(&mut self) -> bool {
        self.yields = self.yields.wrapping_add(1);
        self.yields.is_multiple_of(YIELDS_PER_LOOK)
    }

    /// Member `me` runs on `here`, and the others, one after the other, where they have said last. Once it is a habit
    /// that this is uneven, it goes elsewhere, if it is its turn.
    pub fn look(&mut self, me: u32, here: u32, others: impl Iterator<Item = (u32, u32)> + Clone) {
        if let Some(taken) = taken(me, here, others) {
            self.aside.meet(here, taken.into_iter());
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

/// What takes some microseconds between looks takes milliseconds to become a habit.
const YIELDS_PER_LOOK: u32 = 8;

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
    fn looks_are_one_in_some_yields() {
        let mut evenness = Evenness::default();
        assert_eq!((0..10 * YIELDS_PER_LOOK).filter(|_| evenness.count()).count(), 10);
    }
}
