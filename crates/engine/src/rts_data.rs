//! Messages whose beginning comes ahead of their clear.
//!
//! Asking first costs a round trip and, at a receiver that sleeps, a wake-up. A sender with credit
//! spares both: the first bytes of a long message, or all of it, follow the request at once. They go
//! where the receive wants them if it is posted, and wait, paid for by the credit, if it is not.
//!
//! So does all of a short message that asked for want of credit and is taken in: what it costs is
//! granted first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::engine::PeerError;
use crate::op::{OpId, Ops, receive_piece};
use crate::peer::charge;

/// The messages of one peer that come ahead, by sequence.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(BTreeMap<u32, Arrival>);

/// One of them, until all bytes that come ahead are here and a receive has them.
#[derive(Debug, Default)]
struct Arrival {
    /// How many bytes come ahead; unknown until the request is here, which may take another link.
    promised: Option<u64>,
    arrived: u64,
    /// What was charged for it before its request was here.
    charged_early: usize,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// No receive yet: runs of bytes, each with its place in the message.
    Waiting(Vec<(u64, Vec<u8>)>),
    Receive(OpId),
}

/// What a step means for the peer's accounts, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Waiting now that were not before.
    pub kept: usize,
    /// To be charged now, because the request that pays for them is not here yet.
    pub early: usize,
    /// Waited before, and do no longer.
    pub released: usize,
    /// Promised by a message that needs nothing more.
    pub retired: Option<usize>,
}

impl Arrivals {
    /// A request is here, or is taken in: `promised` of the message's bytes come ahead. Answers how much of what they
    /// cost was charged before it.
    pub fn announce(&mut self, sequence: u32, promised: u64) -> Result<usize, PeerError> {
        let arrival = self.0.entry(sequence).or_default();
        if arrival.promised.is_some() || arrival.arrived > promised {
            return Err(PeerError::Ahead { sequence });
        }
        arrival.promised = Some(promised);
        Ok(arrival.charged_early)
    }

    /// A piece is here. Without a request it is accepted only if `may_be_first`, up to `limit` bytes.
    pub fn piece(
        &mut self,
        ops: &mut Ops,
        sequence: u32,
        (offset, payload): (u64, &[u8]),
        (may_be_first, limit): (bool, u64),
    ) -> Result<Settled, PeerError> {
        if payload.is_empty() {
            return Err(PeerError::Ahead { sequence });
        }
        let arrival = match self.0.entry(sequence) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) if may_be_first => entry.insert(Arrival::default()),
            Entry::Vacant(_) => return Err(PeerError::Ahead { sequence }),
        };
        let len = payload.len() as u64;
        let wanted = arrival.promised.unwrap_or(limit);
        let inside = offset.checked_add(len).is_some_and(|end| end <= wanted);
        if !inside || arrival.arrived + len > wanted {
            return Err(PeerError::Range { offset, len: payload.len(), wanted });
        }
        let early = match (arrival.promised, arrival.arrived) {
            (Some(_), _) => 0,
            (None, 0) => charge(payload.len()),
            (None, _) => payload.len(),
        };
        arrival.arrived += len;
        arrival.charged_early += early;
        let mut settled = Settled { early, ..Settled::default() };
        match &mut arrival.target {
            Target::Waiting(runs) => {
                let announced = arrival.promised.unwrap_or(0);
                keep(runs, offset, payload, announced).ok_or(PeerError::Ahead { sequence })?;
                settled.kept = payload.len();
            }
            Target::Receive(op) => {
                receive_piece(ops, *op, offset, payload);
                settled.retired = self.retire(sequence);
            }
        }
        Ok(settled)
    }

    /// A receive has matched the message.
    pub fn matched(&mut self, ops: &mut Ops, sequence: u32, op: OpId) -> Settled {
        let Some(arrival) = self.0.get_mut(&sequence) else { return Settled::default() };
        let mut settled = Settled::default();
        if let Target::Waiting(runs) = std::mem::replace(&mut arrival.target, Target::Receive(op)) {
            for (offset, bytes) in runs {
                settled.released += bytes.len();
                receive_piece(ops, op, offset, &bytes);
            }
        }
        settled.retired = self.retire(sequence);
        settled
    }

    /// All `bytes` bytes of a message without a receive, if they are here.
    pub fn take_whole(&mut self, sequence: u32, bytes: u64) -> Option<Box<[u8]>> {
        let Entry::Occupied(entry) = self.0.entry(sequence) else { return None };
        let arrival = entry.get();
        let is_whole = arrival.promised == Some(bytes) && arrival.arrived == bytes;
        if !is_whole || matches!(arrival.target, Target::Receive(_)) {
            return None;
        }
        let Target::Waiting(runs) = entry.remove().target else { return None };
        let mut whole = vec![0; bytes as usize];
        for (offset, run) in runs {
            // Every piece was checked to lie inside when it came.
            whole[offset as usize..][..run.len()].copy_from_slice(&run);
        }
        Some(whole.into())
    }

    /// Bytes that wait for a receive, and those that came before their request.
    pub fn waiting_bytes(&self) -> usize {
        let waiting = self.0.values().filter_map(|arrival| match &arrival.target {
            Target::Waiting(runs) => Some(runs.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()),
            Target::Receive(_) => None,
        });
        waiting.sum()
    }

    fn retire(&mut self, sequence: u32) -> Option<usize> {
        let arrival = self.0.get(&sequence)?;
        let promised = arrival.promised.filter(|promised| *promised == arrival.arrived)?;
        self.0.remove(&sequence);
        Some(promised as usize)
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::Waiting(Vec::new())
    }
}

/// Adds a piece to the run it continues, or begins one; none when there are too many.
fn keep(runs: &mut Vec<(u64, Vec<u8>)>, offset: u64, payload: &[u8], announced: u64) -> Option<()> {
    if let Some((start, bytes)) = runs.last_mut()
        && *start + bytes.len() as u64 == offset
    {
        bytes.extend_from_slice(payload);
        return Some(());
    }
    if runs.len() == RUNS_MAX {
        return None;
    }
    // What is announced is paid for, once.
    let reserve = if runs.is_empty() { announced.min(RESERVE_MAX) as usize } else { 0 };
    let mut bytes = Vec::with_capacity(reserve.max(payload.len()));
    bytes.extend_from_slice(payload);
    runs.push((offset, bytes));
    Some(())
}

/// Runs of one message: links deliver in order, so that there are no more than links and pieces in
/// flight between them.
const RUNS_MAX: usize = 256;

/// The first run's first allocation.
const RESERVE_MAX: u64 = 256 << 10;
