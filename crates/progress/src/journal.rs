//! What is worth a line on standard error, and how often.
//!
//! Strangers that were turned away are told of once for each reason and origin, and then counted; the
//! counts follow once a minute at most, and at the end. Failures of links first wait for the operation
//! that fails with them, whose error says it all; those that none takes are told on their own.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use driver::Refusal;
use wire::GateId;

/// The lines of one process.
#[derive(Debug)]
pub(crate) struct Journal {
    rank: GateId,
    /// Whom a line told of already.
    known: HashSet<(Refusal, IpAddr)>,
    /// Refusals that no line has told of, by reason, and the last one's origin.
    untold: HashMap<Refusal, (u64, SocketAddr)>,
    last: Option<Instant>,
    faults: Vec<(Instant, String)>,
}

impl Journal {
    pub fn new(rank: GateId) -> Self {
        let (known, untold) = (HashSet::new(), HashMap::new());
        Self { rank, known, untold, last: None, faults: Vec::new() }
    }

    /// A stranger was turned away.
    pub fn note_refusal(&mut self, now: Instant, from: SocketAddr, reason: Refusal) -> Vec<String> {
        let key = (reason, from.ip());
        if self.known.len() < LINES_MAX && self.known.insert(key) {
            self.last.get_or_insert(now);
            return vec![format!("refused a connection from {from}: {reason}")];
        }
        let (count, last) = self.untold.entry(reason).or_insert((0, from));
        *count += 1;
        *last = from;
        if self.last.is_some_and(|last| now - last < SUMMARY_EVERY) {
            return Vec::new();
        }
        self.last = Some(now);
        self.sum_up()
    }

    /// A link has failed.
    pub fn note_fault(&mut self, now: Instant, text: String) {
        self.faults.push((now, text));
    }

    /// The failures that wait for an operation's error to tell of them.
    pub fn take_faults(&mut self) -> Vec<String> {
        self.faults.drain(..).map(|(_, text)| text).collect()
    }

    pub fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// The failures that have waited in vain.
    pub fn due(&mut self, now: Instant) -> Vec<String> {
        let waited = self.faults.partition_point(|(since, _)| now - *since >= FAULTS_WAIT);
        self.faults.drain(..waited).map(|(_, text)| text).collect()
    }

    /// All that has not been told.
    pub fn close(&mut self) -> Vec<String> {
        let mut lines = self.take_faults();
        lines.extend(self.sum_up());
        lines
    }

    /// Writes lines to standard error; a process without one is none the worse for it.
    pub fn print(&self, lines: &[String]) {
        for line in lines {
            let _ = writeln!(std::io::stderr(), "canele: rank {}: {line}", self.rank.0);
        }
    }

    fn sum_up(&mut self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .untold
            .drain()
            .map(|(reason, (count, last))| {
                format!("refused {count} more connections, the last from {last}: {reason}")
            })
            .collect();
        lines.sort();
        lines
    }
}

/// Lines about single strangers.
const LINES_MAX: usize = 16;
/// Counts are told this often at most.
const SUMMARY_EVERY: Duration = Duration::from_secs(60);
/// How long a failure waits to be told by an operation's error.
const FAULTS_WAIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn repeated_refusals_are_told_once_and_then_counted() {
        let mut journal = Journal::new(GateId(3));
        let start = Instant::now();
        let first = journal.note_refusal(start, from("10.0.0.9:1000"), Refusal::Closed);
        assert_eq!(
            first,
            [
                "refused a connection from 10.0.0.9:1000: it closed the connection in the middle of the handshake"
            ]
        );
        for port in 1001..1300 {
            let from = SocketAddr::new(from("10.0.0.9:1").ip(), port);
            assert!(journal.note_refusal(start, from, Refusal::Closed).is_empty());
        }
        let later = start + SUMMARY_EVERY;
        let summary = journal.note_refusal(later, from("10.0.0.9:2000"), Refusal::Closed);
        assert_eq!(
            summary,
            [
                "refused 300 more connections, the last from 10.0.0.9:2000: it closed the connection in the middle of the handshake"
            ]
        );
        assert!(journal.close().is_empty());
    }

    #[test]
    fn strangers_without_number_fill_no_screen() {
        let mut journal = Journal::new(GateId(0));
        let now = Instant::now();
        let mut lines = 0;
        for host in 0..1000u32 {
            let from = SocketAddr::new(IpAddr::V4((0x0a00_0000 + host).into()), 5);
            lines += journal.note_refusal(now, from, Refusal::Protocol).len();
        }
        assert_eq!(lines, LINES_MAX);
        let rest = journal.close();
        assert_eq!(rest.len(), 1);
        assert!(rest[0].starts_with("refused 984 more connections"), "{rest:?}");
    }

    #[test]
    fn a_failure_is_told_by_an_error_or_after_a_while_on_its_own() {
        let mut journal = Journal::new(GateId(0));
        let start = Instant::now();
        journal.note_fault(start, "link to rank 1 lost".into());
        assert!(journal.due(start).is_empty());
        assert_eq!(journal.take_faults(), ["link to rank 1 lost"]);
        assert!(journal.due(start + FAULTS_WAIT).is_empty());
        journal.note_fault(start, "link to rank 2 lost".into());
        assert_eq!(journal.due(start + FAULTS_WAIT), ["link to rank 2 lost"]);
        assert!(journal.close().is_empty());
    }
}
