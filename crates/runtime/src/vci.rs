//! Virtual communication interfaces (VCIs). Each VCI has its own engine, links and lock. Communicators are assigned
//! by number, so that threads on different VCIs share nothing (Zambre, Chandramowlishwaran, Balaji, "How I learned to
//! stop worrying about user-visible endpoints and love MPI", 2020).
//!
//! A waiting thread polls its own VCI. A call with requests of several VCIs polls each. A process has at most as many
//! VCIs as it has cores: more would help only threads that send to themselves.

use progress::Policy;
pub use progress::VCIS_MAX;

/// One of a process's VCIs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vci(u8);

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
    pub fn numbered(number: usize) -> Self {
        Self((number % VCIS_MAX) as u8)
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

    /// True if it is one of them.
    pub fn contains(self, vci: Vci) -> bool {
        self.0 >> vci.0 & 1 == 1
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
pub(crate) fn wanted(is_multithreaded: bool, policy: &Policy) -> Result<usize, String> {
    let text = settings::VCIS.text();
    match text.trim() {
        // Who wants to know what is sent sees one engine.
        _ if crate::record::is_wanted() => Ok(1),
        "auto" if is_multithreaded => Ok(policy.vcis()),
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
