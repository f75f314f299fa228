//! The processes of collectives, and the state of their collectives.

use std::ops::Deref;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use plan::{Schedule, Topology};
use progress::Progress;
use wire::PeerId;

use crate::plans::{Listed, Plans, Shape};
use crate::slot::Slot;

/// The processes of collectives, as one of them sees them.
pub trait Team {
    /// Context number of their messages.
    fn context(&self) -> u64;

    /// Rank of this process.
    fn rank(&self) -> u32;

    /// Number of processes.
    fn size(&self) -> u32;

    /// The peer of a rank below the size.
    fn peer(&self, rank: u32) -> PeerId;

    /// The progress engine that carries their messages.
    fn progress(&self) -> &Progress;

    /// Nodes and sites of the processes, from which collectives are planned.
    fn places(&self) -> &Topology;

    /// True if this process wants a segment shared with those of its node.
    fn wants_shm_coll(&self) -> bool;

    /// State of their collectives.
    fn collectives(&self) -> &Collectives;
}

impl<T: Deref<Target: Team>> Team for T {
    #[inline]
    fn context(&self) -> u64 {
        T::Target::context(self)
    }

    #[inline]
    fn rank(&self) -> u32 {
        T::Target::rank(self)
    }

    #[inline]
    fn size(&self) -> u32 {
        T::Target::size(self)
    }

    #[inline]
    fn peer(&self, rank: u32) -> PeerId {
        T::Target::peer(self, rank)
    }

    #[inline]
    fn progress(&self) -> &Progress {
        T::Target::progress(self)
    }

    #[inline]
    fn places(&self) -> &Topology {
        T::Target::places(self)
    }

    #[inline]
    fn wants_shm_coll(&self) -> bool {
        T::Target::wants_shm_coll(self)
    }

    #[inline]
    fn collectives(&self) -> &Collectives {
        T::Target::collectives(self)
    }
}

/// The forms of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The operation completes in the call.
    Blocking,
    /// The call starts a nonblocking operation.
    Nonblocking,
    /// The call makes a persistent request.
    Persistent,
}

/// State of the collectives of a team.
#[derive(Debug, Default)]
pub struct Collectives {
    /// Number of collectives so far, by form.
    counts: [AtomicI32; 3],
    plans: Plans,
    /// Slot in the shared segment; set once its creation has been tried, `None` if that failed.
    slot: OnceLock<Option<Slot>>,
}

impl Collectives {
    /// State for a team that uses messages only.
    pub fn without_shm_coll() -> Self {
        Self { slot: OnceLock::from(None), ..Self::default() }
    }

    /// Returns the tag of the next collective of this form. Each form has its own range of tags: collectives of
    /// different forms never match (MPI-5.0 §6.12), in whatever order they are called. A persistent collective
    /// keeps its tag while the counters of the other forms wrap around.
    #[inline]
    pub(crate) fn next_tag(&self, form: Form) -> i32 {
        let count = self.counts[form as usize].load(Ordering::Relaxed);
        match form {
            Form::Blocking => count & (NONBLOCKING - 1),
            Form::Nonblocking => NONBLOCKING | count & (NONBLOCKING - 1),
            Form::Persistent => !(count & (NONBLOCKING - 1)),
        }
    }

    /// Counts a collective of this form. One thread at a time calls collectives of a team.
    #[inline]
    pub(crate) fn count(&self, form: Form) {
        let count = &self.counts[form as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// True once the creation of a shared segment has been tried.
    pub(crate) fn knows_slot(&self) -> bool {
        self.slot.get().is_some()
    }

    /// Records the result of the creation. One thread at a time calls collectives of a team.
    pub(crate) fn set_slot(&self, slot: Option<Slot>) {
        let _ = self.slot.set(slot);
    }

    /// This process's slot in the shared segment, if there is one.
    #[inline]
    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.slot.get().and_then(Option::as_ref)
    }

    /// Topology with shared segments, if there are any.
    pub fn shared_places(&self) -> Option<&Topology> {
        self.slot().map(|slot| &slot.places)
    }
}

/// Returns this process's schedule for a collective of this shape: a cached one, or the result of `make`.
#[inline]
pub(crate) fn plan(
    team: &impl Team,
    shape: Shape,
    make: impl FnOnce(u32, &Topology) -> Schedule,
) -> Arc<Schedule> {
    let places = places_of(team, shape);
    team.collectives().plans.find(shape, || make(team.rank(), places))
}

/// [`plan`] for blocks of individual lengths.
pub(crate) fn plan_listed(
    team: &impl Team,
    shape: Shape,
    listed: Listed<'_>,
    make: impl FnOnce(u32, &Topology) -> Schedule,
) -> Arc<Schedule> {
    let places = places_of(team, shape);
    team.collectives().plans.find_listed(shape, listed, || make(team.rank(), places))
}

#[inline]
fn places_of(team: &impl Team, shape: Shape) -> &Topology {
    match shape.in_shm_coll.then(|| team.collectives().slot()).flatten() {
        Some(slot) => &slot.places,
        None => team.places(),
    }
}

/// The bit that marks the tags of nonblocking collectives.
const NONBLOCKING: i32 = 1 << 30;
