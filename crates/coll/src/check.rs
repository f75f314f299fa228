//! Comparison of collective calls across processes (`CANELE_CHECK`). Before a collective, all processes exchange
//! their arguments. A mismatch is then an error on all of them that names both calls, instead of a hang.
//!
//! If lengths may differ between processes, each also sends the lengths it sends to and expects from every other,
//! and all compare them pairwise. Neighborhood collectives compare sums only: two processes may be neighbours
//! several times.

use std::fmt;
use std::sync::{Arc, OnceLock};

use plan::Schedule;

use crate::failure::{Argument, Failure, Fault};
use crate::plans::{Routine, Shape};
use crate::team::{self, Team};

/// Arguments of a process's call; `None` if they may differ between processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallArguments {
    operation: [u8; NAME],
    root: Option<u64>,
    bytes: Option<u64>,
    op: Option<[u8; OP]>,
    lengths: Option<Lengths>,
}

/// Bytes that a process sends to each other one and expects from it; `UNKNOWN` if unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    sends: Vec<u64>,
    expects: Vec<u64>,
}

/// True if collectives are compared.
#[inline]
pub fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| settings::CHECK.text().trim() == "yes")
}

/// Checks the value of the setting.
///
/// # Errors
/// For a value that is neither `yes` nor `no`; the text names the variable.
pub fn validate() -> Result<(), String> {
    let (variable, value) = (settings::CHECK.variable(), settings::CHECK.text());
    match value.trim() {
        "yes" | "no" => Ok(()),
        _ => Err(format!("{variable}={value}: `yes` or `no` is needed")),
    }
}

impl CallArguments {
    /// Describes a call: its root and length if they must be equal on all processes, and the name of its reduction
    /// operation.
    pub fn new(
        operation: Routine,
        root: Option<u32>,
        bytes: Option<u64>,
        op: Option<&str>,
    ) -> Self {
        let operation = padded(&format!("{operation:?}"));
        let root = root.map(u64::from);
        Self { operation, root, bytes, op: op.map(padded), lengths: None }
    }

    /// The same call with lengths that are compared in pairs.
    #[must_use]
    pub fn with_lengths(self, lengths: Lengths) -> Self {
        Self { lengths: Some(lengths), ..self }
    }

    pub(crate) fn emit(&self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        let (name, rest) = record.split_at_mut(NAME);
        name.copy_from_slice(&self.operation);
        rest[..8].copy_from_slice(&self.root.unwrap_or(u64::MAX).to_le_bytes());
        rest[8..16].copy_from_slice(&self.bytes.unwrap_or(u64::MAX).to_le_bytes());
        rest[16..16 + OP].copy_from_slice(&self.op.unwrap_or([0; OP]));
        rest[16 + OP] = u8::from(self.lengths.is_some());
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
            lengths: None,
        })
    }

    /// Returns the first argument that differs, if any.
    fn conflict(&self, other: &Self) -> Option<Argument> {
        fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            matches!((one, other), (Some(one), Some(other)) if one != other)
        }
        if self.operation != other.operation {
            Some(Argument::Routine)
        } else if differ(self.root, other.root) {
            Some(Argument::Root)
        } else if differ(self.op, other.op) {
            Some(Argument::Op)
        } else if differ(self.bytes, other.bytes) {
            Some(Argument::Count)
        } else {
            None
        }
    }

    /// Fills missing arguments from another call.
    fn completed(self, other: &Self) -> Self {
        Self {
            root: self.root.or(other.root),
            bytes: self.bytes.or(other.bytes),
            op: self.op.or(other.op),
            ..self
        }
    }
}

impl Lengths {
    /// Lengths of `size` processes, all unknown.
    pub fn unknown(size: u32) -> Self {
        let none = vec![UNKNOWN; size as usize];
        Self { sends: none.clone(), expects: none }
    }

    /// Lengths of `size` processes that exchange nothing.
    pub fn none(size: u32) -> Self {
        let none = vec![0; size as usize];
        Self { sends: none.clone(), expects: none }
    }

    /// The same lengths with more bytes to send to some ranks: pairs of a rank and bytes.
    #[must_use]
    pub fn sending(mut self, to: impl IntoIterator<Item = (u32, u64)>) -> Self {
        add(&mut self.sends, to);
        self
    }

    /// The same lengths with more bytes to receive from some ranks: pairs of a rank and bytes.
    #[must_use]
    pub fn expecting(mut self, from: impl IntoIterator<Item = (u32, u64)>) -> Self {
        add(&mut self.expects, from);
        self
    }
}

fn add(lengths: &mut [u64], more: impl IntoIterator<Item = (u32, u64)>) {
    for (rank, bytes) in more {
        let length = &mut lengths[rank as usize];
        *length = if *length == UNKNOWN { bytes } else { length.saturating_add(bytes) };
    }
}

impl fmt::Display for CallArguments {
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

/// Returns an error that names the first two calls whose arguments differ, if any do.
pub(crate) fn compare(records: &[u8]) -> Option<Box<Failure>> {
    let all = parsed(records)?;
    let mut common = all.first()?.clone();
    for (rank, call) in all.iter().enumerate() {
        if let Some(argument) = common.conflict(call) {
            // The first rank whose arguments this one contradicts.
            let (first, other) =
                all.iter().enumerate().find(|(_, other)| other.conflict(call).is_some())?;
            let message = format!("the calls differ: rank {first} {other}, rank {rank} {call}");
            return Some(Failure::new(Fault::Differ(argument), message));
        }
        common = common.completed(call);
    }
    None
}

/// True if any process has lengths to compare.
pub(crate) fn has_lengths(records: &[u8]) -> bool {
    records.chunks(RECORD).any(|record| record.last() == Some(&1))
}

/// Returns an error that names the first pair of which one sends another length than the other expects, if there is one.
/// `lengths` has the results of [`lengths`] of all processes, in order of rank.
pub(crate) fn compare_lengths(records: &[u8], lengths: &[u8]) -> Option<Box<Failure>> {
    let all = parsed(records)?;
    let numbers: Vec<u64> =
        lengths.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    let size = all.len();
    // Each rank has `size` lengths that it sends, then `size` that it expects.
    let sends = |from: usize, to: usize| numbers.get(2 * size * from + to).copied();
    let expects = |to: usize, from: usize| numbers.get(2 * size * to + size + from).copied();
    for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
        let (sent, expected) = (sends(from, to)?, expects(to, from)?);
        if sent != expected && sent != UNKNOWN && expected != UNKNOWN {
            let (sender, receiver) = (&all[from], &all[to]);
            let message = format!(
                "the calls differ: rank {from} {sender} sends {sent} bytes to rank {to}, rank {to} {receiver} expects {expected} of rank {from}"
            );
            return Some(Failure::new(Fault::Differ(Argument::Count), message));
        }
    }
    None
}

/// Encodes a process's lengths for a communicator of `size` processes.
pub(crate) fn lengths(call: &CallArguments, size: u32) -> Vec<u8> {
    let unknown = || Lengths::unknown(size);
    let Lengths { sends, expects } = call.lengths.clone().unwrap_or_else(unknown);
    sends.into_iter().chain(expects).flat_map(u64::to_le_bytes).collect()
}

fn parsed(records: &[u8]) -> Option<Vec<CallArguments>> {
    records.as_chunks().0.iter().map(CallArguments::parse).collect()
}

/// Returns the plan of an exchange of `len` bytes of each process.
pub(crate) fn exchange(team: &impl Team, len: u64) -> Arc<Schedule> {
    let shape = Shape::of(Routine::Allgather).with_len(len);
    team::plan(team, shape, |rank, places| plan::allgather(rank, places, &|_| len, false))
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
/// The longest name of a reduction operation.
const OP: usize = 8;
/// And whether lengths are to be compared.
pub(crate) const RECORD: usize = NAME + 8 + 8 + OP + 1;

/// Bytes of lengths per process of the communicator.
pub(crate) const LENGTHS: usize = 16;

/// A length of which nothing is said.
const UNKNOWN: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn records(all: &[CallArguments]) -> Vec<u8> {
        all.iter().flat_map(CallArguments::emit).collect()
    }

    #[test]
    fn both_sides_of_a_mismatch_are_named() {
        let root = |root| CallArguments::new(Routine::Bcast, root, Some(8), None);
        assert!(compare(&records(&[root(Some(1)), root(None), root(Some(1))])).is_none());
        let failure = compare(&records(&[root(None), root(Some(1)), root(Some(2))])).unwrap();
        assert_eq!(failure.fault, Fault::Differ(Argument::Root));
        let want = "rank 1 Bcast of 8 bytes with root 1, rank 2 Bcast of 8 bytes with root 2";
        assert!(failure.message.contains(want), "{}", failure.message);
        let sum = |bytes, op| CallArguments::new(Routine::Allreduce, None, Some(bytes), Some(op));
        let fault = |one, other| compare(&records(&[one, other])).map(|failure| failure.fault);
        let differ = |argument| Some(Fault::Differ(argument));
        assert_eq!(fault(sum(8, "Sum"), sum(8, "Max")), differ(Argument::Op));
        assert_eq!(fault(sum(8, "Sum"), sum(4, "Sum")), differ(Argument::Count));
        assert_eq!(fault(sum(8, "Sum"), root(None)), differ(Argument::Routine));
        assert_eq!(fault(sum(8, "Sum"), sum(8, "Sum")), None);
    }

    #[test]
    fn each_two_agree_on_what_one_sends_the_other() {
        let call = || CallArguments::new(Routine::Alltoall, None, None, None);
        let of = |lengths| call().with_lengths(lengths);
        let first = Lengths::unknown(3).sending([(1, 8), (2, 4)]).expecting([(1, 5)]);
        let second =
            |to: u64| of(Lengths::unknown(3).sending([(0, to)]).expecting([(0, 8), (0, 0)]));
        let compared = |all: &[CallArguments; 3]| {
            let lengths: Vec<u8> = all.iter().flat_map(|call| lengths(call, 3)).collect();
            assert_eq!(lengths.len(), 3 * LENGTHS * 3);
            compare_lengths(&records(all), &lengths)
        };
        assert!(compared(&[of(first.clone()), second(5), call()]).is_none());
        let failure = compared(&[of(first), second(6), call()]).unwrap();
        assert_eq!(failure.fault, Fault::Differ(Argument::Count));
        let want = "rank 1 Alltoall sends 6 bytes to rank 0, rank 0 Alltoall expects 5 of rank 1";
        assert!(failure.message.contains(want), "{}", failure.message);
        assert!(
            !has_lengths(&records(&[call(), call()]))
                && has_lengths(&records(&[call(), second(1)]))
        );
        let neighbours = Lengths::none(2).sending([(1, 3), (1, 4)]);
        assert_eq!(neighbours.sends, [0, 7]);
    }
}
