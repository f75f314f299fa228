//! Contributions, answers, and what a member knows of an agreement.

use crate::ranks::{RankSet, words};

/// Contribution of a member; the answer is composed of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreementRecord {
    /// Two flags. The answer has the bits that all contributions have.
    pub flags: [u32; 2],
    /// A number. The answer has that of one contribution.
    pub number: u64,
    /// Ranks that have failed. The answer has those of all contributions, and those that have not contributed.
    pub failed: RankSet,
    /// Ranks whose failure is acknowledged. The answer has those that all contributions have.
    pub acked: RankSet,
}

impl AgreementRecord {
    /// Length in bytes for a group of `size`.
    pub(crate) const fn len(size: usize) -> usize {
        16 + 16 * words(size)
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let [first, second] = self.flags.map(u32::to_le_bytes);
        let fixed = [&first[..], &second, &self.number.to_le_bytes()].concat();
        fixed.into_iter().chain(self.failed.emit()).chain(self.acked.emit()).collect()
    }

    pub(crate) fn parse(bytes: &[u8], size: usize) -> Option<Self> {
        let (first, rest) = bytes.split_first_chunk()?;
        let (second, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (failed, rest) = RankSet::parse(rest, size)?;
        let (acked, rest) = RankSet::parse(rest, size)?;
        let flags = [first, second].map(|flag| u32::from_le_bytes(*flag));
        let number = u64::from_le_bytes(*number);
        rest.is_empty().then_some(Self { flags, number, failed, acked })
    }

    /// Adds a contribution; the number stays.
    pub(crate) fn add(&mut self, other: &Self) {
        self.flags = [0, 1].map(|at| self.flags[at] & other.flags[at]);
        self.failed.unite(&other.failed);
        self.acked.intersect(&other.acked);
    }
}

/// Knowledge of a member about an agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// Its contribution.
    Contributed(AgreementRecord),
    /// The answer that it has accepted last, and the ballot.
    Accepted(u32, AgreementRecord),
    /// The decision.
    Decided(AgreementRecord),
}

impl Knowledge {
    /// Length in bytes for a group of `size`.
    pub const fn len(size: usize) -> usize {
        8 + AgreementRecord::len(size)
    }

    pub fn emit(&self) -> Vec<u8> {
        let (kind, ballot, record): (u32, u32, _) = match self {
            Self::Contributed(record) => (0, 0, record),
            Self::Accepted(ballot, record) => (1, *ballot, record),
            Self::Decided(record) => (2, 0, record),
        };
        [&kind.to_le_bytes()[..], &ballot.to_le_bytes(), &record.emit()].concat()
    }

    pub fn parse(bytes: &[u8], size: usize) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk()?;
        let (ballot, rest) = rest.split_first_chunk()?;
        let record = AgreementRecord::parse(rest, size)?;
        match u32::from_le_bytes(*kind) {
            0 => Some(Self::Contributed(record)),
            1 => Some(Self::Accepted(u32::from_le_bytes(*ballot), record)),
            2 => Some(Self::Decided(record)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_is_decoded_as_it_was_encoded() {
        for size in [1, 63, 64, 65, 1000] {
            let last = size as u32 - 1;
            let record = AgreementRecord {
                flags: [7, u32::MAX],
                number: 1 << 40 | 3,
                failed: RankSet::of(size, [0, last]),
                acked: RankSet::of(size, [last]),
            };
            assert!(record.acked.is_within(&record.failed));
            let kinds =
                [Knowledge::Contributed, |it| Knowledge::Accepted(9, it), Knowledge::Decided];
            for knowledge in kinds.map(|kind| kind(record.clone())) {
                let bytes = knowledge.emit();
                assert_eq!(bytes.len(), Knowledge::len(size));
                assert_eq!(Knowledge::parse(&bytes, size), Some(knowledge));
                for wrong in [&bytes[1..], &[&bytes[..], &[0]].concat(), &[]] {
                    assert_eq!(Knowledge::parse(wrong, size), None);
                }
            }
        }
    }
}
