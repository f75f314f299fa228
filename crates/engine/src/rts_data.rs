//! Reception of data that follow an RTS before the CTS.
//!
//! A rendezvous costs a round trip and, if the receiver sleeps, a wake-up. A sender with credit
//! avoids both: the beginning of a long message, or all of it, follows the RTS at once. The data go
//! to the receive's memory if it is posted; otherwise they wait, covered by the credit.
//!
//! A short message without credit is sent in the same way once the receiver has granted it
//! (`Grant`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::engine::PeerError;
use crate::op::{OpId, Ops, receive_piece};
use crate::peer::charge;

/// Messages of one peer with data before the CTS, by sequence.
#[derive(Debug, Default)]
pub(crate) struct RtsDataTable(BTreeMap<u32, RtsDataMessage>);

/// A message, until all such data are here and a receive has them.
#[derive(Debug, Default)]
struct RtsDataMessage {
    /// Announced bytes; unknown until the RTS is here, which may take another link.
    promised: Option<u64>,
    received: u64,
    /// Bytes charged before the RTS was here.
    charged_early: usize,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// No receive yet: runs of bytes, each with its offset in the message.
    Waiting(Vec<(u64, Vec<u8>)>),
    Receive(OpId),
}

/// Changes to the peer's accounts, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Bytes that now wait for a receive.
    pub stored: usize,
    /// Bytes to charge now, because the RTS that pays for them is not here yet.
    pub early: usize,
    /// Bytes that no longer wait.
    pub released: usize,
    /// Announced bytes of a message that is now complete.
    pub retired: Option<usize>,
}

impl RtsDataTable {
    /// Handles an RTS or a grant: `promised` bytes of the message precede the CTS. Returns the
    /// bytes charged before.
    pub fn announce(&mut self, sequence: u32, promised: u64) -> Result<usize, PeerError> {
        let message = self.0.entry(sequence).or_default();
        if message.promised.is_some() || message.received > promised {
            return Err(PeerError::RtsData { sequence });
        }
        message.promised = Some(promised);
        Ok(message.charged_early)
    }

    /// Handles a piece. Without an RTS it is accepted only if `may_be_first`, up to `limit` bytes.
    pub fn piece(
        &mut self,
        ops: &mut Ops,
        sequence: u32,
        (offset, payload): (u64, &[u8]),
        (may_be_first, limit): (bool, u64),
    ) -> Result<Settled, PeerError> {
        if payload.is_empty() {
            return Err(PeerError::RtsData { sequence });
        }
        let message = match self.0.entry(sequence) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) if may_be_first => entry.insert(RtsDataMessage::default()),
            Entry::Vacant(_) => return Err(PeerError::RtsData { sequence }),
        };
        let len = payload.len() as u64;
        let wanted = message.promised.unwrap_or(limit);
        let inside = offset.checked_add(len).is_some_and(|end| end <= wanted);
        if !inside || message.received + len > wanted {
            return Err(PeerError::Range { offset, len: payload.len(), wanted });
        }
        let early = match (message.promised, message.received) {
            (Some(_), _) => 0,
            (None, 0) => charge(payload.len()),
            (None, _) => payload.len(),
        };
        message.received += len;
        message.charged_early += early;
        let mut settled = Settled { early, ..Settled::default() };
        match &mut message.target {
            Target::Waiting(runs) => {
                let announced = message.promised.unwrap_or(0);
                append_run(runs, offset, payload, announced)
                    .ok_or(PeerError::RtsData { sequence })?;
                settled.stored = payload.len();
            }
            Target::Receive(op) => {
                receive_piece(ops, *op, offset, payload);
                settled.retired = self.retire(sequence);
            }
        }
        Ok(settled)
    }

    /// Gives the message to the receive that matched it.
    pub fn matched(&mut self, ops: &mut Ops, sequence: u32, op: OpId) -> Settled {
        let Some(message) = self.0.get_mut(&sequence) else { return Settled::default() };
        let mut settled = Settled::default();
        if let Target::Waiting(runs) = std::mem::replace(&mut message.target, Target::Receive(op)) {
            for (offset, bytes) in runs {
                settled.released += bytes.len();
                receive_piece(ops, op, offset, &bytes);
            }
        }
        settled.retired = self.retire(sequence);
        settled
    }

    /// Takes all `bytes` bytes of a message without a receive, if they are here.
    pub fn take_whole(&mut self, sequence: u32, bytes: u64) -> Option<Box<[u8]>> {
        let Entry::Occupied(entry) = self.0.entry(sequence) else { return None };
        let message = entry.get();
        let is_whole = message.promised == Some(bytes) && message.received == bytes;
        if !is_whole || matches!(message.target, Target::Receive(_)) {
            return None;
        }
        let Target::Waiting(runs) = entry.remove().target else { return None };
        let mut whole = vec![0; bytes as usize];
        for (offset, run) in runs {
            // Every piece was checked to lie inside on arrival.
            whole[offset as usize..][..run.len()].copy_from_slice(&run);
        }
        Some(whole.into())
    }

    /// Bytes that wait for a receive, those before their RTS included.
    pub fn waiting_bytes(&self) -> usize {
        let waiting = self.0.values().filter_map(|message| match &message.target {
            Target::Waiting(runs) => Some(runs.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()),
            Target::Receive(_) => None,
        });
        waiting.sum()
    }

    fn retire(&mut self, sequence: u32) -> Option<usize> {
        let message = self.0.get(&sequence)?;
        let promised = message.promised.filter(|promised| *promised == message.received)?;
        self.0.remove(&sequence);
        Some(promised as usize)
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::Waiting(Vec::new())
    }
}

/// Appends a piece to the run it continues, or begins one; `None` if there are too many.
fn append_run(
    runs: &mut Vec<(u64, Vec<u8>)>,
    offset: u64,
    payload: &[u8],
    announced: u64,
) -> Option<()> {
    if let Some((start, bytes)) = runs.last_mut()
        && *start + bytes.len() as u64 == offset
    {
        bytes.extend_from_slice(payload);
        return Some(());
    }
    if runs.len() == RUNS_MAX {
        return None;
    }
    // The announced length is covered by credit, once.
    let reserve = if runs.is_empty() { announced.min(RESERVE_MAX) as usize } else { 0 };
    let mut bytes = Vec::with_capacity(reserve.max(payload.len()));
    bytes.extend_from_slice(payload);
    runs.push((offset, bytes));
    Some(())
}

/// Maximal number of runs of a message. Links deliver in order, so links and pieces in flight bound
/// it.
const RUNS_MAX: usize = 256;

/// Maximal initial allocation of the first run.
const RESERVE_MAX: u64 = 256 << 10;
