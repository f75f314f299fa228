//! Assertions that an application makes about a communicator (MPI-5.0 §7.4.4).
//!
//! One assertion has an effect: with `mpi_assert_allow_overtaking`, messages that arrive over several links match as they
//! arrive. The others promise what matching does not need (docs/decisions.md).

use crate::Result;
use crate::info::Info;

/// True for each of [`KEYS`] that the application asserts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Assertions([bool; KEYS.len()]);

impl Assertions {
    /// Adds all assertions to the hints of a communicator.
    pub fn tell(self, info: &Info) -> Result<()> {
        KEYS.iter()
            .zip(self.0)
            .try_for_each(|(key, holds)| info.set(key, if holds { "true" } else { "false" }))
    }

    /// Takes the assertions from hints; those that are missing there, or have an unknown value, do not change.
    pub fn take(&mut self, info: &Info) {
        for (key, holds) in KEYS.iter().zip(&mut self.0) {
            match info.value(key).ok().flatten().as_deref() {
                Some("true") => *holds = true,
                Some("false") => *holds = false,
                Some(_) | None => {}
            }
        }
    }

    pub fn forbid_overtaking(&mut self) {
        self.0[OVERTAKING] = false;
    }

    /// True if messages may match before those that were sent earlier.
    pub fn allows_overtaking(self) -> bool {
        self.0[OVERTAKING]
    }
}

/// Info keys.
const KEYS: [&str; 5] = [
    "mpi_assert_no_any_tag",
    "mpi_assert_no_any_source",
    "mpi_assert_exact_length",
    "mpi_assert_allow_overtaking",
    "mpi_assert_strict_persistent_collective_ordering",
];
const OVERTAKING: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_are_told_as_taken() {
        let given = Info::default();
        given.set(KEYS[OVERTAKING], "true").unwrap();
        given.set(KEYS[0], "perhaps").unwrap();
        let mut assertions = Assertions::default();
        assertions.take(&given);
        assert!(assertions.allows_overtaking());
        let told = Info::default();
        assertions.tell(&told).unwrap();
        let value = |key: &str| told.value(key).unwrap().unwrap();
        assert_eq!(KEYS.map(|key| value(key) == "true"), [false, false, false, true, false]);
        let withdrawn = Info::default();
        withdrawn.set(KEYS[OVERTAKING], "false").unwrap();
        assertions.take(&withdrawn);
        assert_eq!(assertions, Assertions::default());
    }
}
