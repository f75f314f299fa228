//! Running a command that may fail, hang or be interrupted: its lines as they come, and its end.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Program.
        program: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It failed.
    #[error("ended with {status}: {text}")]
    Failed {
        /// Exit status.
        status: ExitStatus,
        /// Last line that looks like a reason.
        text: String,
    },
    /// It took too long.
    #[error("was ended after {seconds:.0} s: {text}")]
    TooLong {
        /// Time limit.
        seconds: f64,
        /// Last line.
        text: String,
    },
    /// Interruption by Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A line was not understood.
    #[error("{0}")]
    Line(String),
}

/// Set by a signal that asks us to end.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Records Ctrl-C and similar signals from now on instead of ending the process, so that labs can be
    /// removed.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub fn watch() -> std::io::Result<Self> {
        let interruption = Self::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interruption.0))?;
        }
        Ok(interruption)
    }

    /// True if it was requested.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A child that does not outlive its owner.
#[derive(Debug)]
pub struct Guarded(Child);

impl Guarded {
    /// Starts a command.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, RunError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.spawn().map(Self).map_err(|source| RunError::Start { program, source })
    }

    /// Returns its output stream.
    pub fn stdout(&mut self) -> Option<impl Read + Send + use<>> {
        self.0.stdout.take()
    }

    /// Ends it, by SIGTERM first: a launcher then ends its ranks.
    fn end(&mut self) {
        let Ok(None) = self.0.try_wait() else { return };
        if let Some(pid) = Pid::from_raw(self.0.id() as i32) {
            // The process was not waited for, so its ID is not reused.
            let _ = kill_process(pid, Signal::TERM);
        }
        let since = Instant::now();
        while since.elapsed() < POLITE {
            if let Ok(Some(_)) | Err(_) = self.0.try_wait() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a command to its end and hands on each line of its output.
///
/// # Errors
/// Fails if it cannot be started, fails, exceeds `limit`, is interrupted, or a line is refused.
pub fn run(
    command: &mut Command,
    limit: Duration,
    interruption: &Interruption,
    on_line: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Result<(), RunError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guarded::start(command)?;
    let (sender, receiver) = mpsc::channel();
    if let (Some(stdout), Some(stderr)) = (child.0.stdout.take(), child.0.stderr.take()) {
        forward(stdout, true, sender.clone());
        forward(stderr, false, sender);
    }
    let since = Instant::now();
    let mut said = VecDeque::new();
    loop {
        match receiver.recv_timeout(GLANCE) {
            Ok((true, line)) => on_line(&line).map_err(RunError::Line)?,
            Ok((false, line)) => {
                said.push_back(line);
                if said.len() > MOST_SAID {
                    said.pop_front();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if interruption.has_come() {
            return Err(RunError::Interrupted);
        }
        if since.elapsed() > limit {
            return Err(RunError::TooLong { seconds: limit.as_secs_f64(), text: reason(&said) });
        }
    }
    if interruption.has_come() {
        return Err(RunError::Interrupted);
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let status = child.0.wait().map_err(|source| RunError::Start { program, source })?;
    if status.success() { Ok(()) } else { Err(RunError::Failed { status, text: reason(&said) }) }
}

/// Prints progress on standard error; nobody may read it.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints to the standard output, which may be closed or full.
pub fn say(text: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}

/// A time for people.
pub fn about(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.1} min", seconds / 60.0),
    }
}

/// Sends the lines of a stream, at most [`MOST_LINE`] bytes of each.
fn forward(stream: impl Read + Send + 'static, is_output: bool, sender: Sender<(bool, String)>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.by_ref().take(MOST_LINE).read_until(b'\n', &mut line) {
                Ok(1..) => {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if sender.send((is_output, text)).is_err() {
                        return;
                    }
                }
                Ok(0) | Err(_) => return,
            }
        }
    });
}

/// Returns the first of the last lines that names an error, or the last one with text.
fn reason(said: &VecDeque<String>) -> String {
    let words = |line: &&String| line.chars().any(char::is_alphabetic);
    let names_it = |line: &&String| {
        let line = line.to_lowercase();
        ["error", "fail", "cannot", "not ", "unable", "refused"].iter().any(|w| line.contains(w))
    };
    let line = said.iter().find(|line| words(line) && names_it(line));
    let line = line.or_else(|| said.iter().rfind(words));
    line.map_or("it said nothing", |line| line.trim()).chars().take(300).collect()
}

/// Interval of the checks of time and interruptions.
const GLANCE: Duration = Duration::from_millis(100);
/// Time a child may take to end after SIGTERM.
const POLITE: Duration = Duration::from_secs(3);
/// Number of error lines that are kept.
const MOST_SAID: usize = 40;
/// Maximum length of a line.
const MOST_LINE: u64 = 65536;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> (Result<(), RunError>, Vec<String>) {
        let mut lines = Vec::new();
        let result = run(
            Command::new("sh").args(["-c", script]),
            limit,
            &Interruption::default(),
            &mut |line| {
                lines.push(line.to_owned());
                if line == "bad" { Err("bad line".into()) } else { Ok(()) }
            },
        );
        (result, lines)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn lines_come_and_failures_have_reasons() {
        let (result, lines) = shell("echo one; echo two", LONG);
        assert!(result.is_ok());
        assert_eq!(lines, ["one", "two"]);
        let (result, _) = shell("echo ------ >&2; echo 'host not found' >&2; exit 3", LONG);
        let text = result.unwrap_err().to_string();
        assert!(text.contains("host not found") && text.contains('3'), "{text}");
        assert!(shell("echo bad; exec sleep 20", LONG).0.is_err());
    }

    #[test]
    fn hanging_commands_are_ended() {
        let since = Instant::now();
        let (result, _) = shell("exec sleep 30", Duration::from_millis(200));
        assert!(matches!(result, Err(RunError::TooLong { .. })));
        assert!(since.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn an_interruption_ends_a_run() {
        let interruption = Interruption::default();
        interruption.0.store(true, Ordering::Relaxed);
        let result = run(Command::new("sleep").arg("30"), LONG, &interruption, &mut |_| Ok(()));
        assert!(matches!(result, Err(RunError::Interrupted)));
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let text =
            run(&mut Command::new("/none/such"), LONG, &Interruption::default(), &mut |_| Ok(()))
                .unwrap_err()
                .to_string();
        assert!(text.contains("/none/such"), "{text}");
    }
}
