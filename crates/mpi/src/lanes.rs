//! Lanes: communications of a process side by side, each with an engine, links and a lock of its own, in which communicators
//! lie by their number, so that threads that use different ones share nothing (Zambre, Chandramowlishwaran, Balaji,
//! "How I learned to stop worrying about user-visible endpoints and love MPI", 2020: what they call virtual
//! communication interfaces).
//!
//! A thread that waits polls its own lane, and a call that names requests of several asks each. So there are no more lanes
//! than a rank has cores: where there are, nothing is gained but by threads that send to themselves.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

pub use progress::LANES_MAX;
use progress::{Policy, Progress};

use crate::Result;
use crate::process::{self, Process, ThreadLevel};

/// One of a process's lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane(u8);

/// Where a communicator lies, which is known when its context is.
#[derive(Default)]
pub(crate) struct Place {
    lane: AtomicU8,
    /// Found at its first use.
    progress: OnceLock<&'static Progress>,
}

impl Place {
    #[inline]
    pub fn lane(&self) -> Lane {
        Lane(self.lane.load(Ordering::Relaxed))
    }

    /// It is this one, and has not been used.
    pub fn settle(&self, lane: Lane) {
        self.lane.store(lane.0, Ordering::Relaxed);
    }

    /// What its messages go by.
    #[inline]
    pub fn progress(&self) -> Result<&'static Progress> {
        match self.progress.get() {
            Some(progress) => Ok(progress),
            None => self.find_progress(),
        }
    }

    #[cold]
    fn find_progress(&self) -> Result<&'static Progress> {
        let progress = process::current()?.lane(self.lane());
        Ok(self.progress.get_or_init(|| progress))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lane().fmt(f)
    }
}

/// Lanes, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes(u8);

impl Lane {
    /// That of `MPI_COMM_WORLD`, of communicators across sites, and of all that belongs to none.
    pub const FIRST: Self = Self(0);

    /// Its number, from 0.
    #[inline]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Of the lowest bits of a number.
    #[inline]
    pub(crate) fn numbered(number: usize) -> Self {
        Self((number % LANES_MAX) as u8)
    }

    /// Where a communicator lies by its context, whose processes these are: all of them find the same.
    pub(crate) fn of(
        process: &Process,
        context: u64,
        mut ranks: impl Iterator<Item = u32>,
    ) -> Self {
        let (count, map) = (process.lanes(), process.sites());
        let here = map.site(process.rank());
        if count == 1 || (map.sites() > 1 && ranks.any(|rank| map.site(rank) != here)) {
            return Self::FIRST;
        }
        // Above the bits that tell the messages of one communicator from each other.
        Self::numbered((context >> 2) as usize & (count - 1))
    }
}

impl Lanes {
    /// None.
    pub const NONE: Self = Self(0);

    /// These, and one more.
    #[must_use]
    pub fn with(self, lane: Lane) -> Self {
        Self(self.0 | 1 << lane.0)
    }

    /// The one lane, if it is one; the first where there is none.
    pub fn only(self) -> Option<Lane> {
        match self.0 {
            0 => Some(Lane::FIRST),
            lanes if lanes.is_power_of_two() => Some(Lane(lanes.trailing_zeros() as u8)),
            _ => None,
        }
    }

    /// One of them; the first where there is none.
    pub fn first(self) -> Lane {
        self.iter().next().unwrap_or_default()
    }

    /// All of a process that has so many.
    pub fn all(count: usize) -> Self {
        (0..count).map(Lane::numbered).fold(Self::NONE, Self::with)
    }

    /// Each, the first first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Lane> {
        let rest = |lanes: &u8| Some(lanes & (lanes - 1)).filter(|rest| *rest != 0);
        let each = std::iter::successors(Some(self.0).filter(|lanes| *lanes != 0), rest);
        each.map(|lanes| Lane(lanes.trailing_zeros() as u8))
    }
}

/// How many rank 0 wants.
pub(crate) fn wanted(level: ThreadLevel, policy: &Policy) -> std::result::Result<usize, String> {
    let text = settings::VCIS.text();
    match text.trim() {
        // Who wants to know what is sent sees one engine.
        _ if crate::record::is_wanted() => Ok(1),
        "auto" if level == ThreadLevel::Multiple => Ok(policy.lanes()),
        "auto" => Ok(1),
        "1" => Ok(1),
        "2" => Ok(2),
        "4" => Ok(4),
        "8" => Ok(LANES_MAX),
        _ => {
            let variable = settings::VCIS.variable();
            Err(format!("{variable}={text}: `auto`, 1, 2, 4 or 8 is needed"))
        }
    }
}

/// Waits in several lanes of a process for what any of them may bring; see [`Progress::wait`].
#[inline(always)]
pub(crate) fn wait_in<T>(
    process: &Process,
    lanes: Lanes,
    mut ready: impl FnMut(Lane, &mut progress::Worker) -> Option<T>,
) -> T {
    if let Some(lane) = lanes.only() {
        return process.lane(lane).wait(|worker| ready(lane, worker));
    }
    let (mut all, mut count) = ([(Lane::FIRST, process.progress()); LANES_MAX], 0);
    for lane in lanes.iter() {
        all[count] = (lane, process.lane(lane));
        count += 1;
    }
    let of = all.map(|(_, progress)| progress);
    Progress::wait_in_any(&of[..count], |index, worker| ready(all[index].0, worker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_told_apart() {
        assert_eq!(Lanes::NONE.only(), Some(Lane::FIRST));
        assert_eq!(Lanes::NONE.iter().count(), 0);
        let third = Lanes::NONE.with(Lane(2));
        assert_eq!(third.only(), Some(Lane(2)));
        let two = third.with(Lane(7)).with(Lane(2));
        assert_eq!(two.only(), None);
        assert_eq!(two.iter().collect::<Vec<_>>(), [Lane(2), Lane(7)]);
        assert_eq!(Lanes::all(3).iter().map(Lane::number).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(Lanes::all(LANES_MAX).iter().count(), LANES_MAX);
    }
}
