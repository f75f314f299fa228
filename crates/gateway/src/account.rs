//! What is counted, and what is told of it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use driver::Refusal;

use crate::connect_job::Denial;

/// Counts of a gateway. Refusals are told of once for each kind, on standard error; callers that went away
/// by themselves are only counted.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Connections carried, now and in all.
    now: AtomicU64,
    all: AtomicU64,
    /// Bytes carried from who called, and to it.
    pub from_callers: AtomicU64,
    pub to_callers: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// A connection that is being carried, for as long as it lives.
pub(crate) struct Carried<'a>(&'a Ledger);

impl Ledger {
    /// Counts a connection that is carried from here on.
    pub fn begin(&self) -> Carried<'_> {
        self.now.fetch_add(1, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
        Carried(self)
    }

    /// Somebody was turned away before it had proved itself.
    pub fn refuse(&self, from: SocketAddr, refusal: Refusal) {
        if refusal == Refusal::Closed {
            // A rank's second connection, say, that was being opened when the job was done.
            self.count(kind_of(refusal));
        } else {
            self.note(kind_of(refusal), from, &refusal);
        }
    }

    /// A member of the job did not get what it asked for.
    pub fn deny(&self, from: SocketAddr, denial: &Denial) {
        self.note(denial.kind(), from, denial);
    }

    fn note(&self, kind: &'static str, from: SocketAddr, reason: &dyn fmt::Display) {
        if self.count(kind) == 1 {
            eprintln!(
                "canele-gateway: refused {from}: {reason}; the next of this kind are counted only"
            );
        }
    }

    /// Counts one more refusal of a kind: how many there are.
    fn count(&self, kind: &'static str) -> u64 {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let count = refused.entry(kind).or_default();
        *count += 1;
        *count
    }

    /// The counts, a line each.
    pub fn account(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut text = format!(
            "connections: {} now, {} in all\nbytes: {} from callers, {} to callers\n",
            count(&self.now),
            count(&self.all),
            count(&self.from_callers),
            count(&self.to_callers),
        );
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, count) in refused.iter() {
            text.push_str(&format!("refused, {kind}: {count}\n"));
        }
        text
    }
}

impl Drop for Carried<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

fn kind_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Protocol => "protocol",
        Refusal::Job => "job",
        Refusal::Secret => "secret",
        Refusal::Slow => "slow",
        Refusal::Closed => "closed",
        Refusal::Altered => "altered",
        Refusal::Clear | Refusal::Encrypted => "encryption",
        Refusal::Crowd => "crowd",
    }
}
