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

use crate::hang::RankView;
use crate::reports::RankState;
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
    /// The [`JobLoad`]; traffic is counted for this time.
    Load(Duration),
}

/// Load of the ranks of a running job, as `mpiexec` answers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadAnswer {
    pub facts: Option<JobFacts>,
    pub ranks: Vec<RankAnswer>,
}

/// State of a rank in a [`LoadAnswer`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RankAnswer {
    /// Its world, and its rank there.
    pub place: (u32, u32),
    pub host: String,
    pub site: Option<String>,
    pub has_ended: bool,
    pub state: Option<RankState>,
}

/// Load of a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLoad {
    /// Facts about the job.
    pub facts: JobFacts,
    /// Its ranks.
    pub ranks: Vec<RankEntry>,
}

/// A rank of a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankEntry {
    /// Number of its world: those that are spawned follow the first.
    pub world: u32,
    /// Its rank there.
    pub rank: u32,
    /// Name of its host.
    pub host: String,
    /// Name of its site, on a grid.
    pub site: Option<String>,
    /// Its state.
    pub view: RankView,
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
        line if may_ask => {
            let watch = line.strip_prefix("load ")?.parse().ok()?;
            Some(Question::Load(Duration::from_millis(watch)))
        }
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
    ask(job, "report").map_err(|error| refusal(job, &error))
}

/// Returns the load of a job, whose ranks count their traffic for `watch` from now on.
///
/// # Errors
/// Fails if there is no such job, it does not answer, or its `mpiexec` knows no such question, with one line.
pub fn load(job: u32, watch: Duration) -> Result<JobLoad, String> {
    let text = ask(job, &format!("load {}", watch.as_millis())).map_err(|error| {
        // An `mpiexec` that lives and does not know the question closes the connection.
        match error.kind() == io::ErrorKind::UnexpectedEof && ask(job, "facts").is_ok() {
            true => format!(
                "job {job} runs under an mpiexec of another version, which cannot answer: `canele stack {job}` may"
            ),
            false => refusal(job, &error),
        }
    })?;
    if text == BUSY {
        return Err(format!("job {job}: {}", BUSY.trim_end()));
    }
    let answer = serde_json::from_str(&text).unwrap_or_default();
    let LoadAnswer { facts: Some(facts), ranks } = answer else {
        return Err(format!(
            "job {job} runs under an mpiexec of another version: it answers otherwise"
        ));
    };
    let entry = |answer: RankAnswer| RankEntry {
        world: answer.place.0,
        rank: answer.place.1,
        view: RankView::of(answer.has_ended, answer.state.as_ref()),
        host: answer.host,
        site: answer.site,
    };
    Ok(JobLoad { facts, ranks: ranks.into_iter().map(entry).collect() })
}

fn refusal(job: u32, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("no job {job} of this user runs here: `canele jobs` lists them")
        }
        _ => format!("job {job} does not answer: {error}"),
    }
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

/// Answer to one asker too many.
pub(crate) const BUSY: &str = "too many processes ask at the same time: try again\n";
const PREFIX: &str = "canele-job-";
/// Time that an asking process has for its question and to read the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time in which a job must answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
const QUESTION_MAX: u64 = 32;
/// Longest answer.
const ANSWER_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_listed_and_answers_its_user() {
        let own = std::process::id();
        assert!(report(own).unwrap_err().contains("canele jobs"));
        assert!(super::load(own, PATIENCE).unwrap_err().contains("canele jobs"));
        listen(move |question, mut stream| {
            let facts =
                JobFacts { job: own, ranks: 2, hosts: 1, seconds: 0, command: "./a b".into() };
            let text = match question {
                Question::Facts => serde_json::to_string(&facts).unwrap(),
                Question::Report => "all is well\n".to_owned(),
                Question::Load(watch) if watch < PATIENCE => String::new(),
                Question::Load(_) => {
                    let state = RankState {
                        answer: Some("load\tposted=3\n".into()),
                        ..RankState::default()
                    };
                    let rank = |has_ended, state| RankAnswer {
                        place: (u32::from(has_ended), 0),
                        host: "a".into(),
                        site: None,
                        has_ended,
                        state,
                    };
                    let ranks = vec![rank(false, Some(state)), rank(true, None)];
                    serde_json::to_string(&LoadAnswer { facts: Some(facts), ranks }).unwrap()
                }
            };
            stream.write_all(text.as_bytes()).is_ok()
        });
        assert_eq!(report(own).as_deref(), Ok("all is well\n"));
        assert!(list().iter().any(|job| job.job == own && job.command == "./a b"));
        assert!(ask(own, "pony").is_err());
        assert!(ask(own, "load soon").is_err());
        let load = super::load(own, PATIENCE).unwrap();
        assert_eq!((load.facts.job, load.ranks.len()), (own, 2));
        assert_eq!(load.ranks[1].view, RankView::Ended);
        assert_eq!((load.ranks[1].world, load.ranks[1].rank), (1, 0));
        let RankView::Reported(answer) = &load.ranks[0].view else { panic!("{load:?}") };
        assert_eq!(answer.load.as_ref().map(|load| load.posted), Some(3));
        let other = super::load(own, Duration::ZERO).unwrap_err();
        assert!(other.contains("another version"), "{other}");
        assert!(ask(own, &"x".repeat(999)).is_err());
        assert_eq!(report(own).as_deref(), Ok("all is well\n"), "it still answers");
    }
}
