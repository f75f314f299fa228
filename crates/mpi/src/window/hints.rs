//! Hints of windows (MPI-5.0 §12.2.1).

use super::flavor::Flavor;
use crate::Result;
use crate::info::Info;

/// Values of the hints, in the order of [`HINTS`].
#[derive(Clone, Debug)]
pub(super) struct Hints([String; HINTS.len()]);

/// A hint that the library knows.
#[derive(Debug)]
struct Hint {
    key: &'static str,
    default: &'static str,
    form: ValueForm,
}

/// ValueForm of a hint's value. Values of another form are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueForm {
    /// `true` or `false`.
    Logical,
    /// A power of two that the library can align memory to.
    Alignment,
    /// Words, which the library does not interpret.
    Words,
    /// A value that no program changes.
    Constant,
}

impl Hints {
    /// The hints of a new window.
    pub fn new(given: &Info) -> Self {
        let mut hints = Self(HINTS.each_ref().map(|hint| hint.default.into()));
        hints.set_where(given, |_| true);
        hints
    }

    /// Sets the hints of an existing window, whose alignment does not change; those missing from `given` stay.
    pub fn set(&mut self, given: &Info) {
        self.set_where(given, |hint| hint.form != ValueForm::Alignment);
    }

    fn set_where(&mut self, given: &Info, may_set: impl Fn(&Hint) -> bool) {
        for (hint, known) in HINTS.iter().zip(&mut self.0) {
            let value = given.value(hint.key).ok().flatten().filter(|_| may_set(hint));
            if let Some(value) = value.filter(|value| hint.form.accepts(value)) {
                *known = value;
            }
        }
    }

    /// The hints that concern a window of this flavour.
    pub fn info(&self, flavor: Flavor) -> Result<Info> {
        let info = Info::default();
        for (hint, value) in HINTS.iter().zip(&self.0) {
            let concerns = match hint.key {
                NONCONTIGUOUS => flavor == Flavor::Shared,
                ALIGNMENT => flavor == Flavor::Allocate,
                _ => true,
            };
            if concerns {
                info.set(hint.key, value)?;
            }
        }
        Ok(info)
    }

    /// True if the parts of shared memory need not follow each other.
    pub fn is_noncontiguous(&self) -> bool {
        self.value(NONCONTIGUOUS) == "true"
    }

    /// Alignment of allocated memory in bytes.
    pub fn alignment(&self) -> usize {
        alignment(self.value(ALIGNMENT)).unwrap_or(ALIGNMENT_MIN)
    }

    /// False if the accumulates of a process need not be applied in the order of the calls (MPI-5.0 §12.7.2).
    pub fn has_accumulate_order(&self) -> bool {
        self.value(ORDERING).trim() != "none"
    }

    fn value(&self, key: &str) -> &str {
        let known = HINTS.iter().zip(&self.0).find(|(hint, _)| hint.key == key);
        known.map_or("", |(_, value)| value)
    }
}

impl ValueForm {
    fn accepts(self, value: &str) -> bool {
        match self {
            Self::Logical => matches!(value, "true" | "false"),
            Self::Alignment => alignment(value).is_some(),
            Self::Words => true,
            Self::Constant => false,
        }
    }
}

fn alignment(value: &str) -> Option<usize> {
    let bytes: usize = value.trim().parse().ok()?;
    (bytes.is_power_of_two() && bytes <= ALIGNMENT_MAX).then_some(bytes.max(ALIGNMENT_MIN))
}

const fn hint(key: &'static str, default: &'static str, form: ValueForm) -> Hint {
    Hint { key, default, form }
}

const NONCONTIGUOUS: &str = "alloc_shared_noncontig";
const ORDERING: &str = "accumulate_ordering";
const ALIGNMENT: &str = "mpi_minimum_memory_alignment";

const HINTS: [Hint; 9] = [
    hint("no_locks", "false", ValueForm::Logical),
    hint(ORDERING, "rar,raw,war,waw", ValueForm::Words),
    hint("accumulate_ops", "same_op_no_op", ValueForm::Words),
    hint("mpi_accumulate_granularity", "0", ValueForm::Words),
    hint("same_size", "false", ValueForm::Logical),
    hint("same_disp_unit", "false", ValueForm::Logical),
    hint(NONCONTIGUOUS, "false", ValueForm::Logical),
    hint(ALIGNMENT, "64", ValueForm::Alignment),
    hint("mpi_memory_alloc_kinds", "mpi,system", ValueForm::Constant),
];

/// Alignment of allocated memory in bytes: a cache line.
pub(super) const ALIGNMENT_MIN: usize = 64;
/// Greatest alignment that can be asked for, in bytes.
const ALIGNMENT_MAX: usize = 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_of_a_wrong_form_are_ignored() {
        let given = Info::default();
        for (key, value) in [("no_locks", "perhaps"), (ALIGNMENT, "48"), (NONCONTIGUOUS, "true")] {
            given.set(key, value).unwrap();
        }
        let hints = Hints::new(&given);
        assert!(hints.is_noncontiguous());
        assert_eq!(hints.alignment(), ALIGNMENT_MIN);
        let shown = hints.info(Flavor::Create).unwrap();
        assert_eq!(shown.value("no_locks").unwrap().as_deref(), Some("false"));
        assert_eq!(shown.value(NONCONTIGUOUS).unwrap(), None);
    }

    #[test]
    fn the_alignment_counts_at_creation_only() {
        let given = Info::default();
        let mut hints = Hints::new(&given);
        for (key, value) in [("no_locks", "true"), (ALIGNMENT, "4096")] {
            given.set(key, value).unwrap();
        }
        hints.set(&given);
        assert_eq!((hints.value("no_locks"), hints.alignment()), ("true", ALIGNMENT_MIN));
        assert_eq!(Hints::new(&given).alignment(), 4096);
    }
}
