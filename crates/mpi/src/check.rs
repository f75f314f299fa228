//! What collectives are compared by, if that is asked for (`CANELE_CHECK`): every process tells the others what it
//! calls before it takes part, so that a mismatch is an error on all of them that names both sides, and not a hang.
//!
//! Lengths that need not be the same everywhere are left to the messages, which tell of what does not fit.

use std::fmt;
use std::sync::{Arc, OnceLock};

use memory::Region;
use plan::Schedule;

use crate::comm::Comm;
use crate::plans::{Operation, Shape};
use crate::{Error, ErrorClass, Result};

/// What a process says of its call; none where others need not say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    operation: [u8; NAME],
    root: Option<u64>,
    bytes: Option<u64>,
    op: Option<[u8; OP]>,
}

/// Whether collectives are compared.
#[inline]
pub fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| settings::CHECK.text() == "yes")
}

impl Told {
    /// A call of an operation, by its root if all name the same, its length if it is the same for all, and the
    /// name of what combines its elements.
    pub fn new(
        operation: Operation,
        root: Option<u32>,
        bytes: Option<u64>,
        op: Option<&str>,
    ) -> Self {
        let operation = padded(&format!("{operation:?}"));
        Self { operation, root: root.map(u64::from), bytes, op: op.map(padded) }
    }

    fn emit(&self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        let (name, rest) = record.split_at_mut(NAME);
        name.copy_from_slice(&self.operation);
        rest[..8].copy_from_slice(&self.root.unwrap_or(u64::MAX).to_le_bytes());
        rest[8..16].copy_from_slice(&self.bytes.unwrap_or(u64::MAX).to_le_bytes());
        rest[16..].copy_from_slice(&self.op.unwrap_or([0; OP]));
        record
    }

    fn parse(record: &[u8; RECORD]) -> Option<Self> {
        let (operation, rest) = record.split_first_chunk::<NAME>()?;
        let (root, rest) = rest.split_first_chunk::<8>()?;
        let (bytes, rest) = rest.split_first_chunk::<8>()?;
        let op = *rest.first_chunk::<OP>()?;
        let known = |bytes: &[u8; 8]| Some(u64::from_le_bytes(*bytes)).filter(|&it| it != u64::MAX);
        Some(Self {
            operation: *operation,
            root: known(root),
            bytes: known(bytes),
            op: Some(op).filter(|op| op[0] != 0),
        })
    }

    /// What does not fit, if anything.
    fn conflict(&self, other: &Self) -> Option<ErrorClass> {
        fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            matches!((one, other), (Some(one), Some(other)) if one != other)
        }
        if self.operation != other.operation {
            Some(ErrorClass::Arg)
        } else if differ(self.root, other.root) {
            Some(ErrorClass::Root)
        } else if differ(self.op, other.op) {
            Some(ErrorClass::Op)
        } else if differ(self.bytes, other.bytes) {
            Some(ErrorClass::Count)
        } else {
            None
        }
    }

    /// What this does not say, as another says it.
    fn completed(self, other: &Self) -> Self {
        Self {
            root: self.root.or(other.root),
            bytes: self.bytes.or(other.bytes),
            op: self.op.or(other.op),
            ..self
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.operation))?;
        if let Some(bytes) = self.bytes {
            write!(f, " of {bytes} bytes")?;
        }
        if let Some(op) = &self.op {
            write!(f, " by {}", text(op))?;
        }
        if let Some(root) = self.root {
            write!(f, " with root {root}")?;
        }
        Ok(())
    }
}

/// The first two of several records that do not fit, as an error.
pub(crate) fn compare(records: &[u8]) -> Option<Error> {
    let all: Option<Vec<Told>> = records.as_chunks().0.iter().map(Told::parse).collect();
    let all = all?;
    let mut common = *all.first()?;
    for (rank, told) in all.iter().enumerate() {
        if let Some(class) = common.conflict(told) {
            // Who said first what this one contradicts.
            let (first, other) =
                all.iter().enumerate().find(|(_, other)| other.conflict(told).is_some())?;
            let message = format!("the calls differ: rank {first} {other}, rank {rank} {told}");
            return Some(Error::new(class, message));
        }
        common = common.completed(told);
    }
    None
}

/// The exchange of records: its plan, what this process says, and where all that is said comes.
pub(crate) fn exchange(comm: &Comm, told: &Told) -> Result<(Arc<Schedule>, Region, Region)> {
    let shape = Shape::of(Operation::Allgather).with_len(RECORD as u64);
    let schedule =
        comm.plan(shape, |rank, places| plan::allgather(rank, places, &|_| RECORD as u64, false))?;
    let said = Region::from_box(Box::new(told.emit()));
    Ok((schedule, said, Region::owned(RECORD * comm.size() as usize)))
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (byte, letter) in bytes.iter_mut().zip(text.bytes()) {
        *byte = letter;
    }
    bytes
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

/// The longest name of an operation.
const NAME: usize = 24;
/// The longest name of what combines elements.
const OP: usize = 8;
const RECORD: usize = NAME + 8 + 8 + OP;

#[cfg(test)]
mod tests {
    use super::*;

    fn records(all: &[Told]) -> Vec<u8> {
        all.iter().flat_map(Told::emit).collect()
    }

    #[test]
    fn both_sides_of_a_mismatch_are_named() {
        let root = |root| Told::new(Operation::Bcast, root, Some(8), None);
        assert!(compare(&records(&[root(Some(1)), root(None), root(Some(1))])).is_none());
        let error = compare(&records(&[root(None), root(Some(1)), root(Some(2))])).unwrap();
        assert_eq!(error.class, ErrorClass::Root);
        let want = "rank 1 Bcast of 8 bytes with root 1, rank 2 Bcast of 8 bytes with root 2";
        assert!(error.message.contains(want), "{}", error.message);
        let sum = |bytes, op| Told::new(Operation::Allreduce, None, Some(bytes), Some(op));
        let class = |one, other| compare(&records(&[one, other])).map(|error| error.class);
        assert_eq!(class(sum(8, "Sum"), sum(8, "Max")), Some(ErrorClass::Op));
        assert_eq!(class(sum(8, "Sum"), sum(4, "Sum")), Some(ErrorClass::Count));
        assert_eq!(class(sum(8, "Sum"), root(None)), Some(ErrorClass::Arg));
        assert_eq!(class(sum(8, "Sum"), sum(8, "Sum")), None);
    }
}
