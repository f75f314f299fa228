//! Lines on standard error, and their frequency.
//!
//! Refused connections of strangers are reported once for each reason, and then counted. The counts follow on one
//! line, once a minute at most and at the end. Failures of links first wait for the operation that fails with them,
//! whose error contains them. Failures that no operation takes are printed on their own.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use connect::PeerName;
use lock::Uncancelled;
use rail::Refusal;

/// The lines of one process.
#[derive(Debug)]
pub(crate) struct Journal {
    own: PeerName,
    /// Reasons that a line has reported, each with the number of refusals reported by none.
    untold: HashMap<Refusal, u64>,
    /// Origin of the latest of these refusals.
    origin: Option<SocketAddr>,
    /// Time of the last line on refusals.
    last: Instant,
    faults: Vec<(Instant, String)>,
    /// True if no line is written.
    pub is_silent: bool,
}

impl Journal {
    pub fn new(own: PeerName) -> Self {
        let (untold, faults) = (HashMap::new(), Vec::new());
        Self { own, untold, origin: None, last: Instant::now(), faults, is_silent: false }
    }

    /// Notes that a stranger was refused. Returns the line to print now, if any.
    pub fn note_refusal(
        &mut self,
        now: Instant,
        from: SocketAddr,
        reason: Refusal,
    ) -> Option<String> {
        let Some(count) = self.untold.get_mut(&reason) else {
            self.untold.insert(reason, 0);
            self.last = now;
            return Some(format!("refused a connection from {from}: {reason}"));
        };
        *count += 1;
        self.origin = Some(from);
        if now - self.last < SUMMARY_EVERY {
            return None;
        }
        self.last = now;
        self.sum_up()
    }

    /// Notes the failure of a link.
    pub fn note_fault(&mut self, now: Instant, text: String) {
        self.faults.push((now, text));
    }

    /// Takes the failures that wait for an operation's error to report them.
    pub fn take_faults(&mut self) -> Vec<String> {
        self.faults.drain(..).map(|(_, text)| text).collect()
    }

    pub fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Takes the failures that no operation has reported in time.
    pub fn due(&mut self, now: Instant) -> Vec<String> {
        let waited = self.faults.partition_point(|(since, _)| now - *since >= FAULTS_WAIT);
        self.faults.drain(..waited).map(|(_, text)| text).collect()
    }

    /// Takes everything that has not been reported.
    pub fn close(&mut self) -> Vec<String> {
        let mut lines = self.take_faults();
        lines.extend(self.sum_up());
        lines
    }

    /// Writes lines to standard error; errors are ignored, as a process may have none.
    pub fn print(&self, lines: &[String]) {
        if self.is_silent {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        for line in lines {
            let _ = writeln!(std::io::stderr(), "canele: {}: {line}", self.own);
        }
    }

    fn sum_up(&mut self) -> Option<String> {
        let origin = self.origin.take()?;
        let mut counts: Vec<(u64, Refusal)> = Vec::new();
        for (reason, count) in &mut self.untold {
            counts.push((std::mem::take(count), *reason));
        }
        let all: u64 = counts.iter().map(|(count, _)| count).sum();
        counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let told = counts.iter().filter(|(count, _)| *count > 0);
        let told: Vec<String> =
            told.map(|(count, reason)| format!("{count} times: {reason}")).collect();
        let told = told.join("; ");
        Some(format!("refused {all} more connections, the last from {origin}; {told}"))
    }
}

/// Shortest time between two lines with counts.
const SUMMARY_EVERY: Duration = Duration::from_secs(60);
/// Time for which a failure waits for an operation's error to report it.
const FAULTS_WAIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn repeated_refusals_are_reported_once_and_then_counted() {
        let mut journal = Journal::new(PeerName::Rank(3));
        let start = Instant::now();
        let first = journal.note_refusal(start, from("10.0.0.9:1000"), Refusal::Closed);
        assert_eq!(
            first.unwrap(),
            "refused a connection from 10.0.0.9:1000: it closed the connection in the middle of the handshake"
        );
        for port in 1001..1300 {
            let from = SocketAddr::new(from("10.0.0.9:1").ip(), port);
            assert_eq!(journal.note_refusal(start, from, Refusal::Closed), None);
        }
        let other = journal.note_refusal(start, from("10.0.0.8:5"), Refusal::Protocol);
        assert!(other.unwrap().starts_with("refused a connection from 10.0.0.8:5: it does not"));
        assert_eq!(journal.note_refusal(start, from("10.0.0.8:6"), Refusal::Protocol), None);
        let later = start + SUMMARY_EVERY;
        let summary = journal.note_refusal(later, from("10.0.0.9:2000"), Refusal::Closed);
        assert_eq!(
            summary.unwrap(),
            "refused 301 more connections, the last from 10.0.0.9:2000; \
             300 times: it closed the connection in the middle of the handshake; \
             1 times: it does not speak the protocol of these processes"
        );
        assert!(journal.close().is_empty());
        assert_eq!(journal.note_refusal(later, from("10.0.0.9:2001"), Refusal::Closed), None);
        assert!(journal.close()[0].starts_with("refused 1 more connections"));
    }

    #[test]
    fn failure_is_reported_by_an_error_or_later_on_its_own() {
        let mut journal = Journal::new(PeerName::Rank(0));
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
