//! Reports on a job that runs: who asks for one, and how the ranks' answers become one.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use boot::ReportRequest;

use super::Run;
use crate::channel::{Message, MessageKind};
use crate::hang::{self, RankView};
use crate::jobs::{self, JobFacts, LoadAnswer, Question, RankAnswer};
use crate::reports::RankState;
use crate::tree;

impl Run {
    /// Answers a question about the job.
    pub(super) fn answer(&mut self, question: Question, mut asker: UnixStream) {
        match question {
            Question::Facts => {
                let text = serde_json::to_vec(&self.facts()).unwrap_or_default();
                // An asker that has gone needs no answer.
                let _ = asker.write_all(&text);
            }
            Question::Report | Question::Load(_)
                if self.reporting.askers.len() + self.reporting.next.len() >= ASKERS_MAX =>
            {
                let _ = asker.write_all(jobs::BUSY.as_bytes());
            }
            Question::Report => {
                self.reporting.askers.push((question, asker));
                self.begin_report(None);
            }
            // A report may lack the load; the load lacks nothing of a report.
            Question::Load(_) if self.reporting.since.is_some() => {
                self.reporting.next.push((question, asker));
            }
            Question::Load(watch) => {
                self.reporting.askers.push((question, asker));
                self.begin_report(Some(watch));
            }
        }
    }

    fn facts(&self) -> JobFacts {
        JobFacts {
            job: std::process::id(),
            ranks: self.ended.len(),
            hosts: self.hosts.iter().collect::<BTreeSet<_>>().len(),
            seconds: self.started.elapsed().as_secs(),
            command: self.reporting.command.clone(),
        }
    }

    /// Makes a report and prints it.
    pub(super) fn print_report(&mut self) {
        self.reporting.is_printed = true;
        self.begin_report(None);
    }

    /// Makes a report, prints it, and ends the job, whose time is over.
    pub(super) fn report_and_end(&mut self) {
        self.reporting.ends_job = true;
        self.print_report();
    }

    /// Asks all ranks, unless answers are awaited already.
    fn begin_report(&mut self, watch: Option<Duration>) {
        if self.reporting.since.is_none() {
            self.reporting.number += 1;
            self.reporting.since = Some(Instant::now());
            self.reporting.answers.clear();
            let request = ReportRequest { number: self.reporting.number, watch };
            self.send_to_all(&Message::new(MessageKind::Report, 0, request.text()));
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
        let is_awaited = |process: u32| {
            let (world, rank) = self.world_of(process);
            let is_running = !self.ended[process as usize];
            let is_in_mpi = is_running && self.worlds[world].server.is_open(rank);
            is_in_mpi && !self.reporting.answers.contains_key(&process)
        };
        let has_all = !(0..self.ended.len() as u32).any(is_awaited);
        if !has_all && since.elapsed() < REPORT_TIMEOUT {
            return;
        }
        self.reporting.since = None;
        let text = self.report_text();
        for (question, mut asker) in std::mem::take(&mut self.reporting.askers) {
            let _ = match question {
                Question::Facts | Question::Report => asker.write_all(text.as_bytes()),
                Question::Load(_) => asker.write_all(&self.load()),
            };
        }
        if std::mem::take(&mut self.reporting.is_printed) {
            text.lines().for_each(|line| tell!("mpiexec: {line}"));
        }
        if std::mem::take(&mut self.reporting.ends_job) {
            let limit = "-timeout or MPIEXEC_TIMEOUT";
            tell!("mpiexec: the time given by {limit} is over; ending the job");
            self.end_all(124);
        }
        for (question, asker) in std::mem::take(&mut self.reporting.next) {
            self.answer(question, asker);
        }
    }

    /// Returns the report on each world in which ranks are left.
    fn report_text(&self) -> String {
        let mut text = String::new();
        for (number, world) in self.worlds.iter().enumerate() {
            if number > 0 && world.left == 0 {
                continue;
            }
            let (first, size) = (world.first as usize, world.server.size());
            let answer = |process| self.reporting.answers.get(&process);
            let views: Vec<RankView> = (world.first..)
                .zip(&self.ended[first..first + size])
                .map(|(process, has_ended)| RankView::of(*has_ended, answer(process)))
                .collect();
            if number > 0 {
                text += &format!("ranks of spawned world {number}:\n");
            }
            text += &hang::text(&views, &self.hosts[first..first + size]);
        }
        text
    }

    /// Returns the answer about the load of all ranks.
    fn load(&self) -> Vec<u8> {
        let ranks = (0u32..).zip(&self.hosts).map(|(rank, name)| {
            let (host, site) = tree::host_and_site(name);
            let (world, place) = self.world_of(rank);
            RankAnswer {
                place: (world as u32, place),
                host: host.into(),
                site: site.map(str::to_owned),
                has_ended: self.ended[rank as usize],
                state: self.reporting.answers.get(&rank).cloned(),
            }
        });
        let answer = LoadAnswer { facts: Some(self.facts()), ranks: ranks.collect() };
        serde_json::to_vec(&answer).unwrap_or_default()
    }
}

/// Time in which all answers must have come.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of processes that wait for a report.
const ASKERS_MAX: usize = 16;
