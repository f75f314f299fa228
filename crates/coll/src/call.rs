//! Collective calls, and the collectives that they make from schedules and memory.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use memory::Region;
use plan::Schedule;

use crate::buffers::{Elements, Memory};
use crate::check::{self, CallArguments};
use crate::plans::{Listed, Routine, Shape};
use crate::slot::Slot;
use crate::team::{self, Form, Team};

/// A collective call of this process. It takes its number once its arguments are known to be right: a call that is
/// refused has no effect, and the rank may call again.
#[derive(Debug)]
pub struct Call<T> {
    pub(crate) team: T,
    /// Number of this collective, which identifies its messages among collectives that run at the same time. It
    /// is the same on all processes because all make their calls of one form in the same order.
    pub(crate) tag: i32,
    pub(crate) form: Form,
    /// Arguments to compare with those of other processes, if such checks are on.
    pub(crate) arguments: OnceLock<Box<CallArguments>>,
}

/// One rank's part in a collective operation, ready to run.
#[derive(Debug)]
pub struct Collective<T> {
    pub(crate) call: Call<T>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) memory: Memory,
}

impl<T: Team> Call<T> {
    /// Takes the call's number for messages of the caller's own, which use it as their tag.
    pub fn number(self) -> i32 {
        self.count();
        self.tag
    }

    /// Returns this process's schedule for a collective of this shape: a cached one, or the result of `make`. Blocking
    /// calls may use the shared segment.
    #[inline]
    pub fn plan(
        &self,
        shape: Shape,
        make: impl FnOnce(u32, &plan::Topology) -> Schedule,
    ) -> Arc<Schedule> {
        let in_shm_coll = self.in_shm_coll().is_some();
        team::plan(&self.team, Shape { in_shm_coll, ..shape }, make)
    }

    /// [`Call::plan`] for blocks of individual lengths.
    pub fn plan_listed(
        &self,
        shape: Shape,
        listed: Listed<'_>,
        make: impl FnOnce(u32, &plan::Topology) -> Schedule,
    ) -> Arc<Schedule> {
        let in_shm_coll = self.in_shm_coll().is_some();
        team::plan_listed(&self.team, Shape { in_shm_coll, ..shape }, listed, make)
    }

    #[inline]
    fn in_shm_coll(&self) -> Option<&Slot> {
        if self.form == Form::Blocking { self.team.collectives().slot() } else { None }
    }

    /// Records the arguments to compare, if checks are on.
    #[inline]
    pub fn note_arguments(&self, arguments: impl FnOnce() -> CallArguments) {
        if check::is_on() {
            self.store_arguments(arguments);
        }
    }

    #[cold]
    fn store_arguments(&self, arguments: impl FnOnce() -> CallArguments) {
        // Each call records its arguments once.
        let _ = self.arguments.set(Box::new(arguments()));
    }

    /// Makes a barrier.
    #[inline]
    pub fn barrier(self) -> Collective<T> {
        self.note_arguments(|| CallArguments::new(Routine::Barrier, None, None, None));
        let schedule = self.plan(Shape::of(Routine::Barrier), plan::barrier);
        self.bytes(schedule, Region::empty(), Region::empty())
    }

    /// Makes a collective whose units are bytes of two packed streams.
    #[inline]
    pub fn bytes(
        self,
        schedule: impl Into<Arc<Schedule>>,
        input: Region,
        output: Region,
    ) -> Collective<T> {
        self.count();
        let memory = Memory::bytes(input, output);
        Collective { call: self, schedule: schedule.into(), memory }
    }

    /// Makes a collective whose units are elements.
    #[inline]
    pub fn elements(self, schedule: impl Into<Arc<Schedule>>, elements: Elements) -> Collective<T> {
        self.count();
        let memory = Memory::elements(elements);
        Collective { call: self, schedule: schedule.into(), memory }
    }
}

impl<T> Deref for Call<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.team
    }
}

impl<T: Team> Collective<T> {
    /// Makes a part of the collective that has this number; it uses messages only. Units are bytes.
    pub(crate) fn part(
        (team, tag): (T, i32),
        schedule: impl Into<Arc<Schedule>>,
        input: Region,
        output: Region,
    ) -> Self {
        let call = Call { team, tag, form: Form::Nonblocking, arguments: OnceLock::new() };
        Self { call, schedule: schedule.into(), memory: Memory::bytes(input, output) }
    }

    /// Its processes.
    pub fn team(&self) -> &T {
        &self.call.team
    }

    /// The slot in the shared segment that its plan uses.
    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        match self.call.team.collectives().slot() {
            Some(slot) => slot,
            None => unreachable!("only teams with a shared segment have plans for it"),
        }
    }
}
