//! Hosts that an agent requests from Slurm, and holds until its job ends.
//!
//! `salloc` runs a script that holds the hosts until its input ends. The agent keeps that input open, so hosts that are
//! there go back even if the agent is killed. It cancels a request that still waits.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGKILL, SIGTERM};

use crate::system;

/// Request for hosts of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AllocationRequest {
    /// Name of the job, which no other has.
    pub name: String,
    /// Options of `salloc`.
    pub options: Vec<String>,
}

/// Progress of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AllocationEvent {
    /// It waits in the queue, as a job of this number.
    Queued(String),
    /// State of the job in the queue, with the reason.
    State(String),
    /// The hosts are there: the job, the list of hosts, and the tasks on each if Slurm counts them, as it folds them.
    Granted { job: String, nodes: String, tasks: Option<String> },
    /// It has ended, for this reason.
    Ended(String),
}

/// Hosts of a request, or the request while it waits.
pub(crate) struct SlurmHolder {
    name: String,
    /// Input of the script that holds the hosts.
    input: Option<ChildStdin>,
    state: Arc<HolderState>,
}

/// State that the threads of a request share.
struct HolderState {
    /// The `salloc`.
    process: Mutex<Child>,
    /// Number of the job, once it is known.
    job: Mutex<Option<String>>,
    /// The latest complaint of `salloc`.
    said: Mutex<String>,
    /// True if all that `salloc` has complained of is read.
    has_read_errors: AtomicBool,
    /// True if the request waits no more.
    is_settled: AtomicBool,
    /// True if the hosts go back because the job has ended.
    is_given_back: AtomicBool,
}

impl SlurmHolder {
    /// Requests hosts, and reports what becomes of that.
    pub fn start(
        request: &AllocationRequest,
        report: impl Fn(AllocationEvent) + Clone + Send + 'static,
    ) -> Option<Self> {
        let mut command = slurm("salloc");
        command.args(&request.options).arg(format!("--job-name={}", request.name));
        // Without a signal for it, the script would hold hosts that Slurm has taken back.
        command.args(["--kill-command=TERM", "sh", "-c", HOLD]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = match command.spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                report(AllocationEvent::Ended(NO_SLURM.into()));
                return None;
            }
            Err(error) => {
                report(AllocationEvent::Ended(format!("salloc: {error}")));
                return None;
            }
        };
        let input = process.stdin.take();
        let (output, errors) = (process.stdout.take(), process.stderr.take());
        let state = Arc::new(HolderState {
            process: Mutex::new(process),
            job: Mutex::default(),
            said: Mutex::default(),
            has_read_errors: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            is_given_back: AtomicBool::new(false),
        });
        let holder = Self { name: request.name.clone(), input, state: Arc::clone(&state) };
        let (theirs, tell) = (Arc::clone(&state), report.clone());
        let listener = system::start_thread(move || theirs.follow_errors(errors, &tell));
        let (theirs, tell) = (Arc::clone(&state), report.clone());
        let poller = system::start_thread(move || theirs.follow_queue(&tell));
        let tell = report.clone();
        let reader = system::start_thread(move || state.follow_output(output, &tell));
        match listener.and(poller).and(reader) {
            Ok(()) => Some(holder),
            Err(error) => {
                report(AllocationEvent::Ended(format!("threads for salloc: {error}")));
                holder.give_back();
                None
            }
        }
    }

    /// Gives the hosts back, or cancels the request, and waits until that is done.
    pub fn give_back(mut self) {
        self.state.is_given_back.store(true, Ordering::Release);
        drop(self.input.take());
        if !self.state.is_settled.load(Ordering::Acquire) {
            system::signal_group(self.state.id(), SIGTERM);
        }
        if self.state.ended(RELEASE_TIMEOUT).is_some() {
            return;
        }
        let mut command = slurm("scancel");
        command.arg(format!("--name={}", self.name));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(process) = command.spawn() {
            let process = Mutex::new(process);
            if ended(&process, CANCEL_TIMEOUT).is_none() {
                kill(&process);
            }
        }
        if self.state.ended(RELEASE_TIMEOUT).is_none() {
            kill(&self.state.process);
        }
    }
}

/// Returns the version of Slurm here.
///
/// # Errors
/// Fails if there is none, with one line.
pub(crate) fn version() -> Result<String, String> {
    match slurm("salloc").arg("--version").stdin(Stdio::null()).output() {
        Ok(answer) => Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(NO_SLURM.into()),
        Err(error) => Err(format!("salloc: {error}")),
    }
}

impl HolderState {
    /// Reports the hosts, and the end of `salloc`, whose output ends with it.
    fn follow_output(&self, output: Option<impl Read>, report: &impl Fn(AllocationEvent)) {
        let mut granted = None;
        lines(output, |line| {
            // Scripts of the site may print other lines.
            let Some(facts) = line.strip_prefix(MARK) else { return };
            let mut words = facts.split_whitespace().map(str::to_owned);
            let (Some(job), Some(nodes)) = (words.next(), words.next()) else { return };
            self.is_settled.store(true, Ordering::Release);
            granted = Some(job.clone());
            report(AllocationEvent::Granted { job, nodes, tasks: words.next() });
        });
        if self.is_given_back.load(Ordering::Acquire) {
            return;
        }
        let known = granted.and_then(|job| end_reason(&job));
        report(AllocationEvent::Ended(known.unwrap_or_else(|| self.last_words())));
    }

    /// Returns the last complaint of `salloc`, which ends.
    fn last_words(&self) -> String {
        let status = self.ended(EXIT_TIMEOUT);
        // The last complaint may be read after the end of the output.
        let since = Instant::now();
        while !self.has_read_errors.load(Ordering::Acquire) && since.elapsed() < EXIT_TIMEOUT {
            thread::sleep(TICK);
        }
        self.is_settled.store(true, Ordering::Release);
        let said = locked(&self.said).trim_end_matches('.').to_owned();
        match (said.is_empty(), status) {
            (false, _) => said,
            (true, Some(status)) => format!("salloc has ended without a word ({status})"),
            (true, None) => "salloc has closed its output".to_owned(),
        }
    }

    /// Reads what `salloc` tells of the request.
    fn follow_errors(&self, errors: Option<impl Read>, report: &impl Fn(AllocationEvent)) {
        lines(errors, |line| {
            let text = line.strip_prefix("salloc: ").unwrap_or(&line).trim();
            if let Some(job) = text.strip_prefix("Pending job allocation ") {
                *locked(&self.job) = Some(job.to_owned());
                report(AllocationEvent::Queued(job.to_owned()));
            } else if let Some(error) = text.strip_prefix("error: ") {
                *locked(&self.said) = error.to_owned();
            } else if !text.is_empty() && !PROGRESS.iter().any(|word| text.contains(word)) {
                *locked(&self.said) = text.to_owned();
            }
        });
        self.has_read_errors.store(true, Ordering::Release);
    }

    /// Asks for the state of the job while it waits, and reports changes.
    fn follow_queue(&self, report: &impl Fn(AllocationEvent)) {
        let mut last = String::new();
        let mut due = Instant::now() + FIRST_ASKED;
        while !self.is_settled.load(Ordering::Acquire) {
            thread::sleep(TICK);
            let Some(job) = locked(&self.job).clone() else { continue };
            if Instant::now() < due {
                continue;
            }
            due = Instant::now() + ASKED_EVERY;
            let Some(line) = asked(&job, &["--format=%T|%r|%S"]) else { return };
            let text = queue_state(&line);
            if !text.is_empty() && text != last {
                report(AllocationEvent::State(text.clone()));
                last = text;
            }
        }
    }

    fn id(&self) -> u32 {
        locked(&self.process).id()
    }

    fn ended(&self, patience: Duration) -> Option<ExitStatus> {
        ended(&self.process, patience)
    }
}

/// Returns a line of `squeue` (state, reason, expected start) for people.
fn queue_state(line: &str) -> String {
    let words: Vec<&str> = line.lines().next().unwrap_or("").split('|').map(str::trim).collect();
    let [state, reason, start] = words[..] else { return String::new() };
    let reason = if reason == "None" { String::new() } else { format!(", {reason}") };
    match start {
        "N/A" | "" => format!("{state}{reason}"),
        start => format!("{state}{reason}, expected to start at {start}"),
    }
}

/// Returns the reason for which Slurm has ended a job, once Slurm knows it.
fn end_reason(job: &str) -> Option<String> {
    let since = Instant::now();
    loop {
        let line = asked(job, &["--states=all", "--format=%T|%r|%l"])?;
        match end_text(&line) {
            None if since.elapsed() < REASON_TIMEOUT => thread::sleep(TICK),
            text => return text,
        }
    }
}

/// Returns a line of `squeue` (state, reason, time limit) about a job that has ended, for people, with what to do. None
/// while its processes are being ended.
fn end_text(line: &str) -> Option<String> {
    let words: Vec<&str> = line.lines().next()?.split('|').map(str::trim).collect();
    let [state, reason, limit] = words[..] else { return None };
    let text = match (state, reason) {
        ("TIMEOUT", _) | (_, "TimeLimit") => {
            format!("its time limit of {limit} is over; give more with -t in `slurm` of the grid file")
        }
        ("RUNNING" | "COMPLETING", _) => return None,
        ("CANCELLED", _) => "it was cancelled (scancel) by its user or an administrator".to_owned(),
        ("PREEMPTED", _) => {
            "another job has preempted it; name a partition or QOS (-p, -q) in `slurm` that is not preempted".to_owned()
        }
        ("NODE_FAIL", _) => "a host has failed; start the job again".to_owned(),
        (state, "None") => format!("its state is {state}"),
        (state, reason) => format!("its state is {state}, {reason}"),
    };
    Some(text)
}

/// Returns what `squeue` prints about a job. None if it cannot be run.
fn asked(job: &str, options: &[&str]) -> Option<String> {
    let mut command = slurm("squeue");
    command.arg("--noheader").args(options).arg(format!("--jobs={job}"));
    let answer = command.stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&answer.stdout).into_owned())
}

/// Returns a command of Slurm, out of reach of the keys of this terminal, and of a job in which this process runs.
fn slurm(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let is_of_job =
            name.to_str().is_some_and(|name| name.starts_with("SLURM_") && name != "SLURM_CONF");
        if is_of_job {
            command.env_remove(name);
        }
    }
    system::in_background(&mut command);
    command
}

/// Passes lines to `take`. Long ones are cut.
fn lines(from: Option<impl Read>, mut take: impl FnMut(String)) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while matches!((&mut from).take(LINE_MAX).read_until(b'\n', &mut line), Ok(1..)) {
        take(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}

fn ended(process: &Mutex<Child>, patience: Duration) -> Option<ExitStatus> {
    let since = Instant::now();
    loop {
        let status = locked(process).try_wait();
        match status {
            Ok(Some(status)) => return Some(status),
            _ if since.elapsed() >= patience => return None,
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn kill(process: &Mutex<Child>) {
    let mut process = locked(process);
    system::signal_group(process.id(), SIGKILL);
    let _ = process.wait();
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Script of `salloc`: it prints what it has got, and holds it until its input ends.
const HOLD: &str = r#"echo "canele-hosts $SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE"; exec cat >/dev/null"#;
/// Beginning of its line.
const MARK: &str = "canele-hosts ";
/// Words in lines of `salloc` that say how it goes on.
const PROGRESS: [&str; 7] = [
    "Granted job",
    "Relinquishing job",
    "Waiting for resource",
    "are ready for job",
    "queued and waiting",
    "has been allocated",
    "Nodes ",
];
/// Reason why there are no hosts.
const NO_SLURM: &str = "no salloc in the PATH of its agent: `login` names a host of Slurm's users";
/// Time after which the state of a request is asked for, and the interval of asking again.
const FIRST_ASKED: Duration = Duration::from_millis(500);
const ASKED_EVERY: Duration = Duration::from_secs(5);
/// Interval of checks.
const TICK: Duration = Duration::from_millis(100);
/// Time in which `salloc` ends after its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which `salloc` ends once its hosts go back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which Slurm must know why a job has ended.
const REASON_TIMEOUT: Duration = Duration::from_secs(4);
/// Time in which a job is cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest line.
const LINE_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_the_queue_are_for_people() {
        assert_eq!(queue_state("PENDING|Resources|N/A\n"), "PENDING, Resources");
        assert_eq!(
            queue_state("PENDING|Priority|2026-12-01T08:00:00\n"),
            "PENDING, Priority, expected to start at 2026-12-01T08:00:00"
        );
        assert_eq!(queue_state("RUNNING|None|N/A"), "RUNNING");
        assert_eq!([queue_state(""), queue_state("slurm_load_jobs error")], ["", ""]);
    }

    #[test]
    fn the_end_of_an_allocation_is_explained() {
        let text = |line: &str| end_text(line).unwrap_or_default();
        assert!(
            text("TIMEOUT|TimeLimit|5:00\n").contains("limit of 5:00 is over; give more with -t")
        );
        assert!(text("COMPLETING|TimeLimit|5:00").contains("limit of 5:00"));
        assert!(text("CANCELLED|None|5:00").contains("scancel"));
        assert!(text("PREEMPTED|None|5:00").contains("preempted"));
        assert!(text("NODE_FAIL|None|5:00").contains("failed"));
        assert_eq!(text("FAILED|NonZeroExitCode|5:00"), "its state is FAILED, NonZeroExitCode");
        assert_eq!(text("BOOT_FAIL|None|5:00"), "its state is BOOT_FAIL");
        for unknown in ["COMPLETING|None|5:00", "RUNNING|None|5:00", "", "slurm_load_jobs error"] {
            assert_eq!(end_text(unknown), None);
        }
    }

    #[test]
    fn long_lines_are_cut_and_all_are_read() {
        let long = "x".repeat(LINE_MAX as usize + 3);
        let text = format!("a\n{long}\nb");
        let mut found = Vec::new();
        lines(Some(text.as_bytes()), |line| found.push(line.len()));
        assert_eq!(found, [1, LINE_MAX as usize, 3, 1]);
    }
}
