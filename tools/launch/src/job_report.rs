//! State of the report on a job that is being made.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::jobs::Question;
use crate::reports::RankState;

/// The report that is being made, and the facts about the job.
#[derive(Default)]
pub(crate) struct Reporting {
    /// Number of the latest request to the ranks.
    pub number: u64,
    /// Time of the request, while answers are awaited.
    pub since: Option<Instant>,
    pub answers: HashMap<u32, RankState>,
    /// Processes that have asked.
    pub askers: Vec<(Question, UnixStream)>,
    /// Processes that have asked for something else meanwhile.
    pub next: Vec<(Question, UnixStream)>,
    /// True if the report is printed.
    pub is_printed: bool,
    /// True if the job ends with the report, because its time is over.
    pub ends_job: bool,
    /// Programs of the job, with their arguments.
    pub command: String,
}

impl Reporting {
    pub(crate) fn new(command: String) -> Self {
        Self { command, ..Self::default() }
    }
}
