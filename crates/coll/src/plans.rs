//! The plans of a team's latest collectives, so that the same call again plans nothing.

use std::sync::Arc;

use lock::Lock;
use plan::Schedule;

/// Key of a plan, besides the team and this process's rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The operation.
    pub operation: Routine,
    /// The root's rank; 0 where there is none.
    pub root: u32,
    /// Length of the data, or of one of its equal blocks, in the plan's units.
    pub len: u64,
    /// Bytes of an element, for reductions.
    pub element: u64,
    /// True if the operation is commutative.
    pub commutes: bool,
    /// True if the result is bitwise the same in any order.
    pub is_exact: bool,
    /// True for MPI_IN_PLACE.
    pub in_place: bool,
    /// True if it may use the team's shared segment.
    pub in_shm_coll: bool,
}

/// The collective calls of the standard. Plans of neighborhood collectives depend on more than a [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Routine {
    Barrier,
    Bcast,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatterBlock,
    ReduceScatter,
    Scan,
    Exscan,
    NeighborAllgather,
    NeighborAlltoall,
    CommDup,
    CommIdup,
    CommCreate,
    CommSplit,
    IntercommMerge,
    DistGraphCreate,
    WinCreate,
    FileOpen,
    FileClose,
    FileSetView,
    FileSetSize,
    FilePreallocate,
    FileSync,
    FileSetInfo,
    FileSetAtomicity,
    FileSeekShared,
    FileRead,
    FileWrite,
}

impl Shape {
    /// The shape of an operation without data.
    pub fn of(operation: Routine) -> Self {
        Self {
            operation,
            root: 0,
            len: 0,
            element: 1,
            commutes: false,
            is_exact: false,
            in_place: false,
            in_shm_coll: false,
        }
    }

    /// The same with data of so many units.
    #[must_use]
    pub fn with_len(self, len: u64) -> Self {
        Self { len, ..self }
    }
}

/// Lengths of blocks that are sent, and of those that are received, as far as a process knows them.
pub type Listed<'a> = [&'a [u64]; 2];

/// The plans of a team.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    /// Of calls that a shape says all of.
    even: Latest<Shape>,
    /// Of calls on blocks that differ.
    uneven: Latest<Uneven>,
}

/// A shape, and the lengths of blocks, one list behind the other.
type Uneven = (Shape, Box<[u64]>);

/// Plans made before, by what they follow from, those used most first.
#[derive(Debug)]
struct Latest<K>(Lock<Vec<(K, Arc<Schedule>)>>);

impl Plans {
    /// The plan of this shape: one made before, or what `make` makes.
    #[inline]
    pub fn find(&self, shape: Shape, make: impl FnOnce() -> Schedule) -> Arc<Schedule> {
        self.even.find(|other| *other == shape, || (shape, make()))
    }

    /// The plan of this shape for blocks of these lengths.
    pub fn find_listed(
        &self,
        shape: Shape,
        [sent, received]: Listed<'_>,
        make: impl FnOnce() -> Schedule,
    ) -> Arc<Schedule> {
        let is_it = |(other, listed): &Uneven| {
            let lists = listed.split_at_checked(sent.len());
            *other == shape && lists == Some((sent, received))
        };
        self.uneven.find(is_it, || ((shape, [sent, received].concat().into()), make()))
    }
}

impl<K: Key> Latest<K> {
    #[inline]
    fn find(
        &self,
        is_it: impl Fn(&K) -> bool,
        make: impl FnOnce() -> (K, Schedule),
    ) -> Arc<Schedule> {
        let mut known = self.0.lock();
        let Some(place) = known.iter().position(|(key, _)| is_it(key)) else {
            drop(known);
            let (key, plan) = make();
            return self.keep(key, plan);
        };
        let plan = Arc::clone(&known[place].1);
        if place > 0 {
            // One step forward each time it is used (Rivest 1976).
            known.swap(place, place - 1);
        }
        plan
    }

    #[cold]
    fn keep(&self, key: K, plan: Schedule) -> Arc<Schedule> {
        let plan = Arc::new(plan);
        if weight(&key, &plan) > LEN_MAX {
            return plan;
        }
        let mut known = self.0.lock();
        known.truncate(PLANS_MAX - 1);
        known.push((key, Arc::clone(&plan)));
        while known.iter().map(|(key, plan)| weight(key, plan)).sum::<usize>() > LEN_MAX {
            // The last is new, and short enough to be kept alone.
            let oldest = known.len() - 2;
            known.remove(oldest);
        }
        plan
    }
}

impl<K> Default for Latest<K> {
    fn default() -> Self {
        Self(Lock::new(Vec::new()))
    }
}

/// Steps, blocks and lengths: what takes memory.
fn weight(key: &impl Key, plan: &Schedule) -> usize {
    plan.steps.len() + plan.blocks.len() + key.len()
}

/// Key of a cached plan.
trait Key {
    /// Number of lengths in the key.
    fn len(&self) -> usize;
}

impl Key for Shape {
    fn len(&self) -> usize {
        0
    }
}

impl Key for Uneven {
    fn len(&self) -> usize {
        self.1.len()
    }
}

/// Maximum number of cached plans of each kind per communicator.
const PLANS_MAX: usize = 16;

/// Maximum number of steps, blocks and lengths in all cached plans: about 1 MB.
const LEN_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use plan::Step;

    fn long(steps: usize) -> Schedule {
        Schedule { steps: vec![Step::Wait; steps], ..Schedule::default() }
    }

    fn shape(len: u64) -> Shape {
        Shape::of(Routine::Bcast).with_len(len)
    }

    #[test]
    fn lengths_of_blocks_tell_plans_apart() {
        let plans = Plans::default();
        let lists: [Listed<'_>; 3] = [[&[1], &[2, 3]], [&[1], &[2, 4]], [&[], &[1]]];
        for (steps, lengths) in (1..).zip(lists) {
            plans.find_listed(shape(0), lengths, || long(steps));
        }
        for (steps, lengths) in (1..).zip(lists) {
            assert_eq!(
                plans.find_listed(shape(0), lengths, || panic!("planned again")).steps.len(),
                steps
            );
        }
        let counts: Vec<u64> = (0..LEN_MAX as u64).collect();
        plans.find_listed(shape(0), [&counts, &counts], || long(1));
        assert_eq!(plans.uneven.0.lock().len(), lists.len());
    }

    #[test]
    fn repeated_shapes_reuse_their_plan() {
        let plans = Plans::default();
        let first = plans.find(shape(1), || long(3));
        let again = plans.find(shape(1), || panic!("planned again"));
        assert!(Arc::ptr_eq(&first, &again));
        let other = Shape { in_place: true, ..shape(1) };
        assert_eq!(plans.find(other, || long(4)).steps.len(), 4);
    }

    /// Prints what a plan costs that is known, beside one that is not.
    #[test]
    fn finding_a_plan_makes_none() {
        let plans = Plans::default();
        let places = plan::Topology::flat(1024, false, plan::Costs::default());
        let make = || plan::broadcast(0, &places, 0, 1 << 20);
        let (start, last) = (Instant::now(), PLANS_MAX as u64 - 1);
        (0..=last).for_each(|len| drop(plans.find(shape(len), make)));
        let made = start.elapsed() / PLANS_MAX as u32;
        let start = Instant::now();
        for _ in 0..1000 {
            plans.find(shape(last), || panic!("planned again"));
        }
        let found = start.elapsed() / 1000;
        println!("planning for 1024 ranks: {made:?} for a new shape, {found:?} from the cache");
    }

    #[test]
    fn cached_plans_are_bounded() {
        let plans = Plans::default();
        for len in 0..1000 {
            plans.find(shape(len), || long(1000));
            plans.find(shape(0), || long(1000));
            let known = plans.even.0.lock();
            assert!(known.len() <= PLANS_MAX);
            assert!(known.iter().map(|(key, plan)| weight(key, plan)).sum::<usize>() <= LEN_MAX);
        }
        plans.find(shape(0), || panic!("what is used most is not kept"));
        let steps = plans.find(shape(1000), || long(LEN_MAX + 1)).steps.len();
        assert_eq!(steps, LEN_MAX + 1);
        plans.find(shape(0), || panic!("what is too long drives others out"));
    }
}
