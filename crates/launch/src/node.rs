//! An agent, seen from above: how it is started, spoken with and ended, by `mpiexec` or another agent.

use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::VERSION;
use crate::channel::{Branch, Kind, Message};
use crate::options::Launcher;
use crate::system;

/// What comes from an agent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Message(Message),
    /// Its channel has closed.
    Closed,
    /// What came over its channel was no agent's: its beginning.
    Strange(String),
}

/// An agent, or the launcher that is to start it.
pub(crate) struct Node {
    pub host: String,
    /// Its ranks, with those of the agents below it.
    pub ranks: Vec<u32>,
    /// Whether the agent has said that it is there.
    greeted: bool,
    /// What started it.
    command: Vec<String>,
    process: Child,
    /// To the thread that writes, so that a channel that is full blocks nobody else. What waits is
    /// bounded by what agents ask for, and by one piece of input.
    channel: Sender<Message>,
}

impl Node {
    /// Starts the agent of a branch and tells it what to start. What it says goes to `report`, which says
    /// whether anybody wants to hear more.
    ///
    /// # Errors
    /// When the launcher cannot be started; one line that names it.
    pub fn start(
        branch: &Branch,
        report: impl FnMut(Report) -> bool + Send + 'static,
    ) -> Result<Self, String> {
        let Branch { host, command: words, start } = branch;
        let (program, arguments) = words.split_first().ok_or("an agent without a command")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Signals from the terminal reach the ranks through us, and leave the agent alone.
        command.process_group(0);
        let mut process = command.spawn().map_err(|error| {
            let missing = error.kind() == ErrorKind::NotFound;
            let advice = if missing { ": install it, or name another launcher" } else { "" };
            format!("launcher {program} for host {host}: {error}{advice}")
        })?;
        let (Some(mut stdin), Some(reports)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(format!("no channel to the agent on {host}"));
        };
        let (channel, messages) = mpsc::channel::<Message>();
        let writer = system::start_thread(move || {
            while let Ok(message) = messages.recv() {
                // An agent that has gone is reported by its reader.
                if message.write(&mut stdin).is_err() {
                    return;
                }
            }
        });
        let reader = system::start_thread(move || read_reports(reports, report));
        writer.and(reader).map_err(|error| format!("threads for host {host}: {error}"))?;
        let ranks = start.all_ranks();
        let node = Self {
            host: host.clone(),
            ranks,
            greeted: false,
            command: words.clone(),
            process,
            channel,
        };
        let body = serde_json::to_vec(start).map_err(|error| error.to_string())?;
        node.send(Message::new(Kind::Start, 0, body));
        Ok(node)
    }

    /// Sends a message; one for an agent that has gone is dropped.
    pub fn send(&self, message: Message) {
        // An agent that has gone is reported by its reader.
        let _ = self.channel.send(message);
    }

    /// The way by which [`Node::send`] sends.
    pub fn channel(&self) -> Sender<Message> {
        self.channel.clone()
    }

    /// Whether the agent has said that it is there.
    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Takes note that the agent is there.
    ///
    /// # Errors
    /// When it is of another version; a line that says so.
    pub fn greet(&mut self, version: &[u8]) -> Result<(), String> {
        self.greeted = true;
        match version == VERSION.as_bytes() {
            true => Ok(()),
            false => Err(format!(
                "the agent on {} is `{}`, needed is `{VERSION}`: install the same version",
                self.host,
                String::from_utf8_lossy(version)
            )),
        }
    }

    /// Why an agent is gone whose channel has closed; ends what is left of it.
    pub fn obituary(&mut self) -> String {
        let status = self.fate();
        let fate = status.map_or("its channel was closed".into(), |status| status.to_string());
        let Self { host, ranks, greeted, command, .. } = self;
        match greeted {
            true => format!("the agent on host {host} with {} ranks is gone ({fate})", ranks.len()),
            false => {
                let advice = advice(command, status.and_then(|status| status.code()));
                format!("the launcher could not start an agent on host {host} ({fate}){advice}")
            }
        }
    }

    /// What is wrong where something else than an agent has answered; ends it.
    pub fn stranger(&mut self, said: &str) -> String {
        self.fate();
        let host = &self.host;
        format!(
            "on host {host} something else than an agent answered: `{said}` (do login scripts print there?)"
        )
    }

    /// What is wrong where nobody has answered.
    pub fn silence(&self, patience_s: u64) -> String {
        let (host, variable) = (&self.host, settings::CONNECT_TIMEOUT.variable());
        format!("no agent answered on host {host} within {patience_s} s ({variable})")
    }

    /// How its process has ended; one that has not is ended, and has none.
    fn fate(&mut self) -> Option<ExitStatus> {
        let status = wait(&mut self.process, LAST_BREATH);
        if status.is_none() {
            self.kill();
        }
        status
    }

    /// Closes the channel, upon which the agent ends everything it has started.
    pub fn hang_up(&mut self) {
        // The writer closes the agent's input when this end goes.
        self.channel = mpsc::channel().0;
    }

    /// Waits for the end of an agent whose channel was closed.
    pub fn close(&mut self) {
        let patience = if self.greeted { FAREWELL } else { Duration::ZERO };
        if wait(&mut self.process, patience).is_none() {
            self.kill();
        }
    }

    /// Ends the launcher; its agent, wherever it is, ends with its channel.
    fn kill(&mut self) {
        system::signal_group(self.process.id(), libc::SIGKILL);
        let _ = self.process.wait();
    }
}

/// What to do about a launcher that has ended with this code before there was an agent.
fn advice(command: &[String], code: Option<i32>) -> String {
    let Some((agent, launcher)) = command.split_last() else { return String::new() };
    let is_ssh = Launcher::Command(launcher.to_vec()).has_shell();
    match code {
        Some(126 | 127) if !launcher.is_empty() => {
            format!(": {agent} has to be there (`agent` in a grid's file names another)")
        }
        Some(255) if is_ssh => {
            format!(": `{} true` has to work without a question", launcher.join(" "))
        }
        _ => String::new(),
    }
}

fn wait(process: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let since = Instant::now();
    loop {
        if let Ok(Some(status)) = process.try_wait() {
            return Some(status);
        }
        if since.elapsed() >= patience {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Passes an agent's messages on until its channel closes.
fn read_reports(mut reports: ChildStdout, mut tell: impl FnMut(Report) -> bool) {
    let mut first = [0];
    match reports.read(&mut first) {
        Ok(1..) if first[0] == Kind::Hello as u8 => {}
        Ok(1..) => {
            // One look: whoever talks there may never end.
            let mut said = [0; STRANGE_MAX];
            let count = reports.read(&mut said).unwrap_or(0);
            let said = [&first[..], &said[..count]].concat();
            let said = String::from_utf8_lossy(&said);
            tell(Report::Strange(said.lines().next().unwrap_or("").to_owned()));
            return;
        }
        Ok(0) | Err(_) => {
            tell(Report::Closed);
            return;
        }
    }
    let mut reports = (&first[..]).chain(reports);
    while let Ok(Some(message)) = Message::read(&mut reports) {
        if !tell(Report::Message(message)) {
            return;
        }
    }
    tell(Report::Closed);
}

/// How long an agent may take to end what it has started.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long an agent may take to end after its channel.
const LAST_BREATH: Duration = Duration::from_millis(300);
/// How much is read of what is no agent's.
const STRANGE_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_that_fails_is_told_of_with_what_to_do() {
        let said = |line: &str, code| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            advice(&words, Some(code))
        };
        assert!(said("ssh -p 7 h /a", 255).contains("`ssh -p 7 h true` has to work"));
        assert!(said("ssh h /a", 127).contains("/a has to be there"));
        assert!(said("srun -N1 /a", 127).contains("/a has to be there"));
        assert_eq!([said("srun -N1 /a", 255), said("/a", 127), said("ssh h /a", 1)], ["", "", ""]);
    }
}
