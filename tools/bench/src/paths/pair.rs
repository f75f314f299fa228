//! The two processes that measure, and the pipes between them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Binds this process to a core of its own, if there are two, and returns their number. Two processes on one
/// core would measure context switches.
pub fn take_core(rank: usize) -> Result<usize, String> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let failed = |error: rustix::io::Errno| format!("affinity: {error}");
    let allowed = sched_getaffinity(None).map_err(failed)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if let (Some(core), 2..) = (cores.get(rank), cores.len()) {
        let mut own = CpuSet::new();
        own.set(*core);
        sched_setaffinity(None, &own).map_err(failed)?;
    }
    Ok(cores.len())
}

/// Pipes to the other process.
pub struct PeerPipes<R, W> {
    /// From the other process.
    pub from: R,
    /// To the other process.
    pub to: W,
}

impl<R: BufRead, W: Write> PeerPipes<R, W> {
    /// Sends a value.
    pub fn tell(&mut self, what: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_string(what).map_err(|error| error.to_string())?;
        let told = writeln!(self.to, "{text}").and_then(|()| self.to.flush());
        told.map_err(|error| format!("the other process: {error}"))
    }

    /// Receives a value.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(|error| format!("the other process: {error}"))?;
        serde_json::from_str(&line).map_err(|error| format!("the other process: {error}"))
    }
}

/// The answering process, ended on drop.
pub struct AnsweringProcess {
    child: Child,
    /// Pipes to it.
    pub other: PeerPipes<BufReader<std::process::ChildStdout>, std::process::ChildStdin>,
}

impl AnsweringProcess {
    /// Starts this program again, with these words of `canele bench`.
    pub fn start(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
        let failed = |error: std::io::Error| format!("cannot start {}: {error}", own.display());
        let mut child = Command::new(&own)
            .arg("bench")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        match (child.stdout.take(), child.stdin.take()) {
            (Some(from), Some(to)) => {
                Ok(Self { child, other: PeerPipes { from: BufReader::new(from), to } })
            }
            _ => unreachable!("both were asked for"),
        }
    }

    /// Waits for its end.
    pub fn end(mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the other process: {status}")) }
    }
}

impl Drop for AnsweringProcess {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
