//! Counts of connections, bytes and refusals, and their report.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rail::Refusal;

use crate::connect_job::Denial;

/// Counts of a gateway. The first refusal of each kind is reported on standard error. Callers that leave by
/// themselves are only counted.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Relayed connections, now and in all.
    now: AtomicU64,
    all: AtomicU64,
    /// Bytes relayed from callers and to callers.
    pub from_callers: AtomicU64,
    pub to_callers: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// A relayed connection, counted for as long as it lives.
pub(crate) struct Carried<'a>(&'a Account);

impl Account {
    /// Counts a connection that is relayed from now on.
    pub fn begin(&self) -> Carried<'_> {
        self.now.fetch_add(1, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
        Carried(self)
    }

    /// Counts a caller that was refused before it had authenticated.
    pub fn refuse(&self, from: SocketAddr, refusal: Refusal) {
        if refusal == Refusal::Closed {
            // For example, a rank's second connection that was being opened when the job ended.
            self.count(kind_of(refusal));
        } else {
            self.note(kind_of(refusal), from, &refusal);
        }
    }

    /// Counts a member of the job whose request was denied.
    pub fn deny(&self, from: SocketAddr, denial: &Denial) {
        self.note(denial.kind(), from, denial);
    }

    fn note(&self, kind: &'static str, from: SocketAddr, reason: &dyn fmt::Display) {
        if self.count(kind) == 1 {
            let _ = writeln!(
                io::stderr(),
                "canele-gateway: refused {from}: {reason}; the next of this kind are counted only"
            );
        }
    }

    /// Counts one more refusal of a kind and returns their number.
    fn count(&self, kind: &'static str) -> u64 {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let count = refused.entry(kind).or_default();
        *count += 1;
        *count
    }

    /// Returns the counts, one per line.
    pub fn text(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut report = format!(
            "connections: {} now, {} in all\nbytes: {} from callers, {} to callers\n",
            count(&self.now),
            count(&self.all),
            count(&self.from_callers),
            count(&self.to_callers),
        );
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, count) in refused.iter() {
            report.push_str(&format!("refused, {kind}: {count}\n"));
        }
        report
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
        Refusal::Version { .. } => "version",
        Refusal::Job => "job",
        Refusal::Secret => "secret",
        Refusal::Slow => "slow",
        Refusal::Closed => "closed",
        Refusal::Altered => "altered",
        Refusal::Clear | Refusal::Encrypted => "encryption",
        Refusal::TooMany => "too many",
    }
}
