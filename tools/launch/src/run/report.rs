//! Reports on a job that runs: who asks for one, and how the ranks' answers become one.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use boot::RankReport;

use super::{Cause, Run};
use crate::channel::{Message, MessageKind};
use crate::hang::{self, RankView};
use crate::jobs::{JobFacts, Question};
use crate::reports::RankState;

impl Run {
    /// Answers a question about the job.
    pub(super) fn answer(&mut self, question: Question, mut asker: UnixStream) {
        match question {
            Question::Facts => {
                let facts = JobFacts {
                    job: std::process::id(),
                    ranks: self.ended.len(),
                    hosts: self.map.len(),
                    seconds: self.started.elapsed().as_secs(),
                    command: self.reporting.command.clone(),
                };
                // An asker that has gone needs no answer.
                let _ = asker.write_all(&serde_json::to_vec(&facts).unwrap_or_default());
            }
            Question::Report => {
                if self.reporting.askers.len() < ASKERS_MAX {
                    self.reporting.askers.push(asker);
                }
                self.begin_report();
            }
        }
    }

    /// Makes a report and prints it.
    pub(super) fn print_report(&mut self) {
        self.reporting.is_printed = true;
        self.begin_report();
    }

    /// Makes a report, prints it, and ends the job, whose time is over.
    pub(super) fn report_and_end(&mut self) {
        self.reporting.ends_job = true;
        self.print_report();
    }

    /// Asks all ranks, unless answers are awaited already.
    fn begin_report(&mut self) {
        if self.reporting.since.is_none() {
            self.reporting.number += 1;
            self.reporting.since = Some(Instant::now());
            self.reporting.answers.clear();
            let number = self.reporting.number.to_string();
            self.send_to_all(&Message::new(MessageKind::Report, 0, number));
        }
    }

    pub(super) fn take_answer(&mut self, rank: u32, body: &[u8]) {
        let Ok(state) = serde_json::from_slice::<RankState>(body) else { return };
        if state.number == self.reporting.number {
            self.reporting.answers.insert(rank, state);
        }
        self.end_report();
    }

    /// Ends the report once all ranks within MPI have answered, or the time for it is over.
    pub(super) fn end_report(&mut self) {
        let Some(since) = self.reporting.since else { return };
        let is_awaited = |rank: u32| {
            let is_in_mpi = !self.ended[rank as usize] && self.server.is_open(rank);
            is_in_mpi && !self.reporting.answers.contains_key(&rank)
        };
        let has_all = !(0..self.ended.len() as u32).any(is_awaited);
        if !has_all && since.elapsed() < REPORT_TIMEOUT {
            return;
        }
        self.reporting.since = None;
        let views: Vec<RankView> =
            (0..self.ended.len() as u32).map(|rank| self.view(rank)).collect();
        let text = hang::text(&views, &self.hosts);
        for mut asker in std::mem::take(&mut self.reporting.askers) {
            let _ = asker.write_all(text.as_bytes());
        }
        if std::mem::take(&mut self.reporting.is_printed) {
            text.lines().for_each(|line| tell!("mpiexec: {line}"));
        }
        if std::mem::take(&mut self.reporting.ends_job) {
            let limit = "-timeout or MPIEXEC_TIMEOUT";
            tell!("mpiexec: the time given by {limit} is over; ending the job");
            self.end(124, Cause::First);
        }
    }

    fn view(&self, rank: u32) -> RankView {
        match self.reporting.answers.get(&rank) {
            _ if self.ended[rank as usize] => RankView::Ended,
            Some(state) if state.is_stopped => RankView::Stopped,
            Some(RankState { answer: Some(text), .. }) => {
                RankView::Reported(RankReport::parse(text))
            }
            Some(_) | None => RankView::Silent,
        }
    }
}

/// Time in which all answers must have come.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of processes that wait for a report.
const ASKERS_MAX: usize = 16;
