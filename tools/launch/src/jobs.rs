//! Running jobs of this user on this machine: each `mpiexec` answers on a socket that has a name and no file.
//!
//! The name is `canele-job-USER-PROCESS` in the abstract namespace of Unix sockets, which belongs to a network namespace. Names
//! are no secret, so each side looks who the other one is: only the user of the job, and root, are answered.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use serde::{Deserialize, Serialize};

use crate::system;

/// A running job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    /// Number of the job: the process of its `mpiexec`.
    pub job: u32,
    /// Number of its ranks.
    pub ranks: usize,
    /// Number of hosts with ranks.
    pub hosts: usize,
    /// Time since its start in seconds.
    pub seconds: u64,
    /// Its programs with their arguments.
    pub command: String,
}

/// A question to `mpiexec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The [`JobFacts`].
    Facts,
    /// The report on its ranks.
    Report,
}

/// Begins to answer questions on the socket of this process. A system without one has jobs that cannot be asked.
pub(crate) fn listen(mut ask: impl FnMut(Question, UnixStream) -> bool + Send + 'static) {
    let address = SocketAddr::from_abstract_name(name_of(std::process::id()));
    let Ok(listener) = address.and_then(|address| UnixListener::bind_addr(&address)) else {
        return;
    };
    let answer = move || {
        while let Ok((stream, _)) = listener.accept() {
            if let Some(question) = question(&stream)
                && !ask(question, stream)
            {
                return;
            }
        }
    };
    // Without a thread, nobody is answered.
    let _ = cpu::without_signals(|| system::start_thread(answer));
}

/// Reads the question of a process that may ask.
fn question(stream: &UnixStream) -> Option<Question> {
    let asker = user_of(stream).ok()?;
    let may_ask = asker == getuid().as_raw() || asker == 0;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(QUESTION_MAX)).read_line(&mut line).ok()?;
    match line.trim() {
        "facts" if may_ask => Some(Question::Facts),
        "report" if may_ask => Some(Question::Report),
        _ => None,
    }
}

/// Lists the running jobs of this user, in order of their numbers.
pub fn list() -> Vec<JobFacts> {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let prefix = format!("@{PREFIX}{}-", getuid().as_raw());
    let number = |line: &str| line.split_whitespace().last()?.strip_prefix(&prefix)?.parse().ok();
    let mut jobs: Vec<u32> = sockets.lines().filter_map(number).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs.into_iter().filter_map(|job| serde_json::from_str(&ask(job, "facts").ok()?).ok()).collect()
}

/// Returns the report on the ranks of a job.
///
/// # Errors
/// Fails if there is no such job, or it does not answer, with one line.
pub fn report(job: u32) -> Result<String, String> {
    ask(job, "report").map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("no job {job} of this user runs here: `canele jobs` lists them")
        }
        _ => format!("job {job} does not answer: {error}"),
    })
}

fn ask(job: u32, question: &str) -> io::Result<String> {
    let address = SocketAddr::from_abstract_name(name_of(job))?;
    let stream = UnixStream::connect_addr(&address)?;
    if user_of(&stream)? != getuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's"));
    }
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    (&stream).write_all(format!("{question}\n").as_bytes())?;
    let mut text = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut text)?;
    match text.is_empty() {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(text),
    }
}

fn user_of(stream: &impl AsFd) -> io::Result<u32> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}

fn name_of(job: u32) -> String {
    format!("{PREFIX}{}-{job}", getuid().as_raw())
}

const PREFIX: &str = "canele-job-";
/// Time that an asking process has for its question and to read the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time in which a job must answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
const QUESTION_MAX: u64 = 32;
/// Longest answer.
const ANSWER_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_listed_and_answers_its_user() {
        let own = std::process::id();
        assert!(report(own).unwrap_err().contains("canele jobs"));
        listen(move |question, mut stream| {
            let facts =
                JobFacts { job: own, ranks: 2, hosts: 1, seconds: 0, command: "./a b".into() };
            let text = match question {
                Question::Facts => serde_json::to_string(&facts).unwrap(),
                Question::Report => "all is well\n".to_owned(),
            };
            stream.write_all(text.as_bytes()).is_ok()
        });
        assert_eq!(report(own).as_deref(), Ok("all is well\n"));
        assert!(list().iter().any(|job| job.job == own && job.command == "./a b"));
        assert!(ask(own, "pony").is_err());
        assert!(ask(own, &"x".repeat(999)).is_err());
        assert_eq!(report(own).as_deref(), Ok("all is well\n"), "it still answers");
    }
}
