//! Virtual communication interfaces (VCIs). Each VCI has its own engine, links and lock. Communicators are assigned
//! by number, so that threads on different VCIs share nothing (Zambre, Chandramowlishwaran, Balaji, "How I learned to
//! stop worrying about user-visible endpoints and love MPI", 2020).
//!
//! A waiting thread polls its own VCI. A call with requests of several VCIs polls each. A process has at most as many
//! VCIs as it has cores: more would help only threads that send to themselves.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

pub use progress::VCIS_MAX;
use progress::{Policy, Progress};

use crate::Result;
use crate::process::{self, Process, ThreadLevel};

/// One of a process's VCIs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vci(u8);

/// VCI of a communicator, which its context determines.
#[derive(Default)]
pub(crate) struct CommVci {
    vci: AtomicU8,
    /// Found at its first use.
    progress: OnceLock<&'static Progress>,
}

impl CommVci {
    #[inline]
    pub fn vci(&self) -> Vci {
        Vci(self.vci.load(Ordering::Relaxed))
    }

    /// Sets the VCI, before the first use.
    pub fn settle(&self, vci: Vci) {
        self.vci.store(vci.0, Ordering::Relaxed);
    }

    /// The progress engine that carries its messages.
    #[inline]
    pub fn progress(&self) -> Result<&'static Progress> {
        match self.progress.get() {
            Some(progress) => Ok(progress),
            None => self.find_progress(),
        }
    }

    #[cold]
    fn find_progress(&self) -> Result<&'static Progress> {
        let progress = process::current()?.vci(self.vci());
        Ok(self.progress.get_or_init(|| progress))
    }
}

impl fmt::Debug for CommVci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.vci().fmt(f)
    }
}

/// A set of VCIs, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VciSet(u8);

impl Vci {
    /// The VCI of `MPI_COMM_WORLD`, of communicators across sites, and of everything without a communicator.
    pub const FIRST: Self = Self(0);

    /// Its number, from 0.
    #[inline]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Of the lowest bits of a number.
    #[inline]
    pub(crate) fn numbered(number: usize) -> Self {
        Self((number % VCIS_MAX) as u8)
    }

    /// Returns the VCI of a communicator from its context and processes, the same on all of them.
    pub(crate) fn of(
        process: &Process,
        context: u64,
        mut ranks: impl Iterator<Item = u32>,
    ) -> Self {
        let (count, map) = (process.vcis(), process.sites());
        let here = map.site(process.rank());
        if count == 1 || (map.sites() > 1 && ranks.any(|rank| map.site(rank) != here)) {
            return Self::FIRST;
        }
        // Above the bits that tell the messages of one communicator from each other.
        Self::numbered((context >> 2) as usize & (count - 1))
    }
}

impl VciSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// These, and one more.
    #[must_use]
    pub fn with(self, vci: Vci) -> Self {
        Self(self.0 | 1 << vci.0)
    }

    /// The one vci, if it is one; the first where there is none.
    pub fn only(self) -> Option<Vci> {
        match self.0 {
            0 => Some(Vci::FIRST),
            vcis if vcis.is_power_of_two() => Some(Vci(vcis.trailing_zeros() as u8)),
            _ => None,
        }
    }

    /// One of them; the first where there is none.
    pub fn first(self) -> Vci {
        self.iter().next().unwrap_or_default()
    }

    /// All of a process that has so many.
    pub fn all(count: usize) -> Self {
        (0..count).map(Vci::numbered).fold(Self::NONE, Self::with)
    }

    /// Each, the first first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Vci> {
        let rest = |vcis: &u8| Some(vcis & (vcis - 1)).filter(|rest| *rest != 0);
        let each = std::iter::successors(Some(self.0).filter(|vcis| *vcis != 0), rest);
        each.map(|vcis| Vci(vcis.trailing_zeros() as u8))
    }
}

/// Number of VCIs that rank 0 requests.
pub(crate) fn wanted(level: ThreadLevel, policy: &Policy) -> std::result::Result<usize, String> {
    let text = settings::VCIS.text();
    match text.trim() {
        // Who wants to know what is sent sees one engine.
        _ if crate::record::is_wanted() => Ok(1),
        "auto" if level == ThreadLevel::Multiple => Ok(policy.vcis()),
        "auto" => Ok(1),
        "1" => Ok(1),
        "2" => Ok(2),
        "4" => Ok(4),
        "8" => Ok(VCIS_MAX),
        _ => {
            let variable = settings::VCIS.variable();
            Err(format!("{variable}={text}: `auto`, 1, 2, 4 or 8 is needed"))
        }
    }
}

/// Waits in several vcis of a process for what any of them may bring; see [`Progress::wait`].
#[inline(always)]
pub(crate) fn wait_in<T>(
    process: &Process,
    vcis: VciSet,
    mut ready: impl FnMut(Vci, &mut progress::Worker) -> Option<T>,
) -> T {
    if let Some(vci) = vcis.only() {
        return process.vci(vci).wait(|worker| ready(vci, worker));
    }
    let (mut all, mut count) = ([(Vci::FIRST, process.progress()); VCIS_MAX], 0);
    for vci in vcis.iter() {
        all[count] = (vci, process.vci(vci));
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
        assert_eq!(VciSet::NONE.only(), Some(Vci::FIRST));
        assert_eq!(VciSet::NONE.iter().count(), 0);
        let third = VciSet::NONE.with(Vci(2));
        assert_eq!(third.only(), Some(Vci(2)));
        let two = third.with(Vci(7)).with(Vci(2));
        assert_eq!(two.only(), None);
        assert_eq!(two.iter().collect::<Vec<_>>(), [Vci(2), Vci(7)]);
        assert_eq!(VciSet::all(3).iter().map(Vci::number).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(VciSet::all(VCIS_MAX).iter().count(), VCIS_MAX);
    }
}
