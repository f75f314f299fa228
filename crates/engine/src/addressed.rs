//! Addressed traffic with one peer.
//!
//! A put or a get names exposed memory by its key. A call runs a handler of the peer, in the order of all calls and
//! matched messages of its sender. Puts and calls complete here when their memory may be reused; a flush completes when
//! the peer has applied all puts and calls before it. Each flush ends an *epoch*: the peer counts the applied bytes of
//! each epoch, so that it answers no flush too early, whatever rails the data took.

use std::collections::VecDeque;

use smallvec::SmallVec;
use wire::RemoteKey;

use crate::op::OpId;
use crate::pending::Pending;

/// Addressed traffic with one peer.
#[derive(Debug, Default)]
pub(crate) struct AddressedState {
    /// Epoch of puts and calls submitted now, and their bytes so far.
    epoch: u16,
    bytes: u64,
    /// Flushes that are not complete, oldest first.
    flushes: VecDeque<Flush>,
    /// Flushes that wait until fewer are incomplete.
    deferred: Vec<OpId>,
    /// The peer's epochs of which something was applied, or whose flush has arrived.
    incoming: SmallVec<[IncomingEpoch; 1]>,
    /// Number of operations here that the peer has to send data for.
    awaited: usize,
    /// Operations that wait until fewer are.
    postponed: VecDeque<Postponed>,
    /// Number of operations of the peer that data are still to be sent for.
    owed: usize,
}

/// A flush of this process.
#[derive(Debug)]
struct Flush {
    op: OpId,
    /// Others that nothing was submitted before since this one.
    followers: Vec<OpId>,
    is_answered: bool,
    /// True if the peer has refused a put or call before it.
    is_refused: bool,
}

/// An epoch of the peer.
#[derive(Debug)]
struct IncomingEpoch {
    number: u16,
    applied: u64,
    /// True if a put or call was refused.
    is_refused: bool,
    /// The peer's operation, and the bytes sent in the epoch.
    flush: Option<(u32, u64)>,
}

/// An epoch of the peer that was applied whole, and asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedEpoch {
    /// The peer's operation.
    pub op: u32,
    /// True if a put or call was refused.
    pub is_refused: bool,
}

/// An operation that waits until the peer has to send fewer data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Postponed {
    Get { key: RemoteKey, offset: u64, bytes: u64, op: u32 },
    Call { pending: Pending, has_data: bool },
}

/// Effect of a flush on the sender's side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FlushStep {
    /// Nothing is to be flushed.
    Complete,
    /// An earlier flush completes this one.
    Joined,
    /// A `Flush` packet is to be sent.
    Send { epoch: u16, bytes: u64 },
}

impl AddressedState {
    /// Counts the bytes of a put or call; returns its epoch.
    #[inline]
    pub fn count(&mut self, bytes: usize) -> u16 {
        self.bytes += bytes as u64;
        self.epoch
    }

    /// Counts a call with so many bytes of payload; returns its epoch.
    #[inline]
    pub fn count_call(&mut self, payload: usize) -> u16 {
        self.count(payload + CALL_BYTES)
    }

    pub fn flush(&mut self, op: OpId) -> FlushStep {
        if self.bytes == 0 {
            return match (self.deferred.is_empty(), self.flushes.back_mut()) {
                (false, _) => {
                    self.deferred.push(op);
                    FlushStep::Joined
                }
                (true, Some(last)) => {
                    last.followers.push(op);
                    FlushStep::Joined
                }
                (true, None) => FlushStep::Complete,
            };
        }
        if self.flushes.len() >= FLUSHES_MAX {
            self.deferred.push(op);
            return FlushStep::Joined;
        }
        self.begin_flush(op, Vec::new())
    }

    fn begin_flush(&mut self, op: OpId, followers: Vec<OpId>) -> FlushStep {
        self.flushes.push_back(Flush { op, followers, is_answered: false, is_refused: false });
        let step = FlushStep::Send { epoch: self.epoch, bytes: self.bytes };
        (self.epoch, self.bytes) = (self.epoch.wrapping_add(1), 0);
        step
    }

    /// Handles the answer to a flush; returns the completed ones, in order, and true for each that was refused.
    pub fn flush_answered(&mut self, op: OpId, is_refused: bool) -> Vec<(OpId, bool)> {
        if let Some(flush) = self.flushes.iter_mut().find(|flush| flush.op == op) {
            (flush.is_answered, flush.is_refused) = (true, is_refused);
        }
        let mut completed = Vec::new();
        while let Some(flush) = self.flushes.pop_front_if(|flush| flush.is_answered) {
            let Flush { op, followers, is_refused, .. } = flush;
            completed.extend([op].into_iter().chain(followers).map(|op| (op, is_refused)));
        }
        completed
    }

    /// Begins the deferred flushes, as one, if few others are incomplete.
    pub fn begin_deferred(&mut self) -> Option<(OpId, FlushStep)> {
        if self.deferred.is_empty() || self.flushes.len() >= FLUSHES_MAX {
            return None;
        }
        let mut ops = std::mem::take(&mut self.deferred);
        let op = ops.remove(0);
        Some((op, self.begin_flush(op, ops)))
    }

    /// Counts applied or refused bytes of the peer's epoch; returns the epoch if its flush is complete. `None` if the
    /// peer has too many epochs.
    pub fn apply(
        &mut self,
        number: u16,
        bytes: u64,
        is_refused: bool,
    ) -> Option<Option<EndedEpoch>> {
        let at = self.incoming(number)?;
        self.incoming[at].applied += bytes;
        self.incoming[at].is_refused |= is_refused;
        Some(self.end_incoming(at))
    }

    /// Handles a flush of the peer like [`AddressedState::apply`]. `None` also if the epoch has one already.
    pub fn flush_arrived(
        &mut self,
        number: u16,
        op: u32,
        bytes: u64,
    ) -> Option<Option<EndedEpoch>> {
        let at = self.incoming(number)?;
        if self.incoming[at].flush.replace((op, bytes)).is_some() {
            return None;
        }
        Some(self.end_incoming(at))
    }

    fn incoming(&mut self, number: u16) -> Option<usize> {
        let found = self.incoming.iter().position(|epoch| epoch.number == number);
        if found.is_none() {
            // One more than the flushes is open.
            if self.incoming.len() > FLUSHES_MAX {
                return None;
            }
            self.incoming.push(IncomingEpoch {
                number,
                applied: 0,
                is_refused: false,
                flush: None,
            });
        }
        found.or(Some(self.incoming.len() - 1))
    }

    fn end_incoming(&mut self, at: usize) -> Option<EndedEpoch> {
        let IncomingEpoch { applied, flush, is_refused, .. } = self.incoming[at];
        let (op, _) = flush.filter(|&(_, bytes)| bytes <= applied)?;
        self.incoming.swap_remove(at);
        Some(EndedEpoch { op, is_refused })
    }

    /// True if an operation may be sent now; else it has to wait.
    pub fn admits(&self) -> bool {
        self.awaited < AWAITED_MAX && self.postponed.is_empty()
    }

    /// Counts an operation that the peer has to send data for.
    pub fn await_data(&mut self) {
        self.awaited += 1;
    }

    pub fn postpone(&mut self, postponed: Postponed) {
        self.postponed.push_back(postponed);
    }

    /// Counts an operation whose data have arrived.
    pub fn data_arrived(&mut self) {
        self.awaited -= 1;
    }

    /// Returns the next waiting operation that may be sent.
    pub fn next_postponed(&mut self) -> Option<Postponed> {
        if self.awaited < AWAITED_MAX { self.postponed.pop_front() } else { None }
    }

    /// Counts an operation of the peer that data are to be sent for; false if there are too many.
    #[must_use]
    pub fn owe(&mut self) -> bool {
        self.owed += 1;
        self.owed <= AWAITED_MAX
    }

    /// Counts an operation of the peer whose data have left.
    pub fn paid(&mut self) {
        self.owed -= 1;
    }
}

/// Maximal number of incomplete flushes to a peer.
const FLUSHES_MAX: usize = 1024;

/// Maximal number of operations for which a peer has to send data at the same time.
const AWAITED_MAX: usize = 4096;

/// Bytes that a call counts for beside its payload, so that one without a payload counts.
pub(crate) const CALL_BYTES: usize = 1;
