//! `canele jobs` and `canele stack`: the running jobs of this user, and where their ranks wait.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use launch::jobs::{self, JobFacts};

use crate::print::print;

/// Arguments of `canele stack`.
#[derive(Debug, Args)]
pub(crate) struct StackArguments {
    /// Number of the job, as `canele jobs` prints it; not needed if there is one
    job: Option<u32>,
}

/// Lists the running jobs.
pub(crate) fn list() -> ExitCode {
    let jobs = jobs::list();
    if jobs.is_empty() {
        return print("no job of this user runs here\n");
    }
    let mut text = String::from("     job  ranks  hosts      time  command\n");
    for JobFacts { job, ranks, hosts, seconds, command } in jobs {
        let (minutes, rest) = (seconds / 60, seconds % 60);
        text += &format!("{job:8} {ranks:6} {hosts:6} {minutes:6}:{rest:02}  {command}\n");
    }
    print(&text)
}

/// Prints where the ranks of a job wait, and for whom.
pub(crate) fn stack(arguments: &StackArguments) -> ExitCode {
    let answer = arguments.job.map_or_else(only_job, Ok).and_then(jobs::report);
    match answer {
        Ok(text) => print(&text),
        Err(text) => {
            let _ = writeln!(io::stderr(), "canele: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of the only job that runs.
pub(crate) fn only_job() -> Result<u32, String> {
    match jobs::list()[..] {
        [] => Err("no job of this user runs here".into()),
        [ref only] => Ok(only.job),
        ref several => {
            let first: Vec<String> =
                several.iter().take(NAMED_MAX).map(|one| one.job.to_string()).collect();
            let more = if several.len() > NAMED_MAX { ", and more" } else { "" };
            let numbers = first.join(", ");
            Err(format!("jobs {numbers}{more} run here: name one, as `canele jobs` lists them"))
        }
    }
}

/// Maximum number of jobs that a refusal names.
const NAMED_MAX: usize = 8;
