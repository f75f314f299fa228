//! The plans of a communicator's latest collectives, so that the same call again plans nothing.

use std::sync::Arc;

use lock::Lock;
use plan::Schedule;

/// What a plan follows from, besides the communicator and this process's rank in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The operation.
    pub operation: Operation,
    /// The root's rank; 0 where there is none.
    pub root: u32,
    /// Length of the data, or of one of its equal blocks, in the plan's units.
    pub len: u64,
    /// Bytes of an element, for reductions.
    pub element: u64,
    /// Whether operands may be combined in any order.
    pub commutes: bool,
    /// Whether the result is the same in any order to the last bit.
    pub is_exact: bool,
    /// Whether it works in place.
    pub in_place: bool,
    /// Whether it may use the communicator's board.
    pub at_board: bool,
}

/// The operations. The plans of those that have a count for each rank, or neighbours, follow from more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Operation {
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
    CommIdup,
}

impl Shape {
    /// The shape of an operation without data.
    pub fn of(operation: Operation) -> Self {
        Self {
            operation,
            root: 0,
            len: 0,
            element: 1,
            commutes: false,
            is_exact: false,
            in_place: false,
            at_board: false,
        }
    }

    /// The same with data of so many units.
    #[must_use]
    pub fn with_len(self, len: u64) -> Self {
        Self { len, ..self }
    }
}

/// Plans made before, those used most first.
#[derive(Debug)]
pub(crate) struct Plans(Lock<Vec<(Shape, Arc<Schedule>)>>);

impl Default for Plans {
    fn default() -> Self {
        Self(Lock::new(Vec::new()))
    }
}

impl Plans {
    /// The plan of this shape: one made before, or what `make` makes.
    #[inline]
    pub fn find(&self, shape: Shape, make: impl FnOnce() -> Schedule) -> Arc<Schedule> {
        let mut known = self.0.lock();
        let Some(place) = known.iter().position(|(other, _)| *other == shape) else {
            drop(known);
            return self.keep(shape, make());
        };
        let plan = Arc::clone(&known[place].1);
        if place > 0 {
            // One step forward each time it is used (Rivest 1976).
            known.swap(place, place - 1);
        }
        plan
    }

    #[cold]
    fn keep(&self, shape: Shape, plan: Schedule) -> Arc<Schedule> {
        let plan = Arc::new(plan);
        if plan.steps.len() > STEPS_MAX {
            return plan;
        }
        let mut known = self.0.lock();
        known.truncate(PLANS_MAX - 1);
        known.push((shape, Arc::clone(&plan)));
        let steps = |known: &[(Shape, Arc<Schedule>)]| -> usize {
            known.iter().map(|(_, plan)| plan.steps.len()).sum()
        };
        while steps(&known) > STEPS_MAX {
            // The last is new, and short enough to be kept alone.
            let oldest = known.len() - 2;
            known.remove(oldest);
        }
        plan
    }
}

/// How many plans a communicator keeps.
const PLANS_MAX: usize = 16;

/// How many steps they have together at most: a megabyte.
const STEPS_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use plan::Step;

    fn long(steps: usize) -> Schedule {
        Schedule { steps: vec![Step::Wait; steps], temporaries: Vec::new() }
    }

    fn shape(len: u64) -> Shape {
        Shape::of(Operation::Bcast).with_len(len)
    }

    #[test]
    fn the_same_again_is_not_planned() {
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
    fn what_is_kept_is_bounded() {
        let plans = Plans::default();
        for len in 0..1000 {
            plans.find(shape(len), || long(1000));
            plans.find(shape(0), || long(1000));
            let known = plans.0.lock();
            assert!(known.len() <= PLANS_MAX);
            assert!(known.iter().map(|(_, plan)| plan.steps.len()).sum::<usize>() <= STEPS_MAX);
        }
        plans.find(shape(0), || panic!("what is used most is not kept"));
        let steps = plans.find(shape(1000), || long(STEPS_MAX + 1)).steps.len();
        assert_eq!(steps, STEPS_MAX + 1);
        plans.find(shape(0), || panic!("what is too long drives others out"));
    }
}
