//! An agent as its parent sees it: `mpiexec` or another agent starts it, speaks with it and ends it.

use std::io::{ErrorKind, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use boot::Secret;
use signal_hook::consts::SIGKILL;

use crate::agent::VERSION;
use crate::channel::{BODY_MAX, Branch, Message, MessageKind, Start, write_secret};
use crate::launcher::Launcher;
use crate::system;

/// Reports of an agent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Message(Message),
    /// The channel has closed.
    Closed,
    /// Something else than an agent has written to the channel: its beginning.
    Foreign(String),
}

/// The channel to an agent, from any thread.
#[derive(Clone)]
pub(crate) struct NodeChannel {
    /// Host of the agent in messages.
    pub host: String,
    /// Its ranks, with those of its child agents.
    ranks: Arc<Mutex<Vec<u32>>>,
    /// Channel to the writer thread, so that a full pipe blocks nobody else. Messages are bounded by the
    /// agents' requests and by one piece of input.
    outgoing: Sender<Outgoing>,
}

/// A message for an agent.
enum Outgoing {
    Message(Message),
    /// The secret of the world with this first process.
    Secret(u32, Secret),
}

/// An agent, or the launcher that is to start it.
pub(crate) struct Node {
    channel: NodeChannel,
    /// True if it is asked for the state of its host, and has no ranks.
    is_asked: bool,
    /// True if the agent has answered.
    answered: bool,
    /// True if its channel has closed.
    lost: bool,
    /// Command that started it.
    command: Vec<String>,
    process: Child,
    /// Time of its start.
    since: Instant,
}

impl NodeChannel {
    /// Sends a message; it is dropped if the agent is gone.
    pub fn send(&self, message: Message) {
        // The reader reports a lost agent.
        let _ = self.outgoing.send(Outgoing::Message(message));
    }

    /// Has the agent start what a branch names for its host, with the secret of its world.
    ///
    /// # Errors
    /// Fails if the start is too long, with one line.
    pub fn start(&self, start: &Start, secret: Option<&Secret>) -> Result<(), String> {
        let body = serde_json::to_vec(start).map_err(|error| error.to_string())?;
        let ranks = start.all_ranks();
        if body.len() > BODY_MAX {
            return Err(format!(
                "{} ranks with their environments are more than an agent can start on host {}: \
                 name more hosts, or pass on less (-genvnone)",
                ranks.len(),
                self.host
            ));
        }
        self.led().extend(ranks);
        if let Some(secret) = secret {
            // The reader reports a lost agent.
            let _ = self.outgoing.send(Outgoing::Secret(start.first, secret.clone()));
        }
        self.send(Message::new(MessageKind::Start, 0, body));
        Ok(())
    }

    /// Ranks of the agent, with those of its child agents.
    pub fn ranks(&self) -> Vec<u32> {
        self.led().clone()
    }

    fn led(&self) -> MutexGuard<'_, Vec<u32>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Starts the agent of a branch, and sends it the secret of its world and its start. Its reports go to `report`,
    /// which returns false if nobody wants more.
    ///
    /// # Errors
    /// Fails if the launcher cannot be started, with one line that names it.
    pub fn start(
        branch: &Branch,
        secret: Option<&Secret>,
        report: impl FnMut(Report) -> bool + Send + 'static,
    ) -> Result<Self, String> {
        let Branch { host, command: words, start } = branch;
        let (program, arguments) = words.split_first().ok_or("an agent without a command")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        system::in_background(&mut command);
        let mut process = command.spawn().map_err(|error| {
            let missing = error.kind() == ErrorKind::NotFound;
            let advice = if missing { ": install it, or name another launcher" } else { "" };
            let reason = boot::shortage(&error).unwrap_or_else(|| error.to_string());
            format!("launcher {program} for host {host}: {reason}{advice}")
        })?;
        let (Some(mut stdin), Some(reports)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(format!("no channel to the agent on {host}"));
        };
        let (outgoing, messages) = mpsc::channel();
        let writer = system::start_thread(move || {
            while let Ok(message) = messages.recv() {
                let written = match message {
                    Outgoing::Message(message) => message.write(&mut stdin),
                    Outgoing::Secret(first, secret) => write_secret(first, &secret, &mut stdin),
                };
                // The reader reports a lost agent.
                if written.is_err() {
                    return;
                }
            }
        });
        let reader = system::start_thread(move || read_reports(reports, report));
        writer.and(reader).map_err(|error| format!("threads for host {host}: {error}"))?;
        let channel = NodeChannel { host: host.clone(), ranks: Arc::default(), outgoing };
        let (is_asked, since) = (start.status.is_some(), Instant::now());
        let command = words.clone();
        let node =
            Self { channel, is_asked, answered: false, lost: false, command, process, since };
        node.channel.start(start, secret)?;
        Ok(node)
    }

    /// Sends a message; it is dropped if the agent is gone.
    pub fn send(&self, message: Message) {
        self.channel.send(message);
    }

    /// Returns the channel to the agent.
    pub fn channel(&self) -> &NodeChannel {
        &self.channel
    }

    /// Name of its host in messages.
    pub fn host(&self) -> &str {
        &self.channel.host
    }

    /// Its ranks, with those of its child agents.
    pub fn ranks(&self) -> Vec<u32> {
        self.channel.ranks()
    }

    /// True if the agent should have answered by now.
    pub fn is_silent(&self, patience: Duration) -> bool {
        !self.answered && self.since.elapsed() > patience
    }

    /// True if the agent has answered.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// Notes that the channel has closed.
    pub fn note_lost(&mut self) {
        self.lost = true;
    }

    /// True if the channel has closed.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Notes the agent's first message.
    ///
    /// # Errors
    /// Fails if it is of another version, with one line.
    pub fn handle_hello(&mut self, version: &[u8]) -> Result<(), String> {
        self.answered = true;
        match version == VERSION.as_bytes() {
            true => Ok(()),
            false => Err(format!(
                "the agent on {} is `{}`, needed is `{VERSION}`: install the same version",
                self.host(),
                String::from_utf8_lossy(version)
            )),
        }
    }

    /// Returns the reason why the channel of an agent has closed, and ends the rest of it.
    pub fn loss_text(&mut self) -> String {
        let status = self.exit_status();
        let exit_status =
            status.map_or("its channel was closed".into(), |status| status.to_string());
        let ranks = self.ranks();
        let Self { channel: NodeChannel { host, .. }, is_asked, answered, command, .. } = self;
        match (answered, *is_asked || ranks.is_empty()) {
            (true, true) => format!("the agent on host {host} is gone ({exit_status})"),
            (true, false) => format!(
                "the agent on host {host} with {} ranks is gone ({exit_status})",
                ranks.len()
            ),
            (false, _) => {
                let advice = advice(command, status.and_then(|status| status.code()));
                format!(
                    "the launcher could not start an agent on host {host} ({exit_status}){advice}"
                )
            }
        }
    }

    /// Returns the error text for something else than an agent that answered, and ends it.
    pub fn stranger_text(&mut self, said: &str) -> String {
        self.exit_status();
        let host = self.host();
        format!(
            "on host {host} something else than an agent answered: `{said}` (do login scripts print there?)"
        )
    }

    /// Returns the error text if nobody has answered.
    pub fn silence_text(&self, patience_s: u64) -> String {
        let limit = if self.is_asked { "--timeout" } else { settings::CONNECT_TIMEOUT.variable() };
        format!("no agent answered on host {} within {patience_s} s ({limit})", self.host())
    }

    /// Waits for the process and returns its exit status. None if it had to be killed.
    fn exit_status(&mut self) -> Option<ExitStatus> {
        let status = wait(&mut self.process, EXIT_TIMEOUT);
        if status.is_none() {
            self.kill();
        }
        status
    }

    /// Closes the channel. The agent then ends everything it has started.
    pub fn hang_up(&mut self) {
        // The writer closes the agent's input when this sender is dropped.
        self.channel.outgoing = mpsc::channel().0;
    }

    /// Waits for an agent whose channel was closed.
    pub fn close(&mut self) {
        self.close_within(END_TIMEOUT);
    }

    /// Waits so long for an agent whose channel was closed. False if it had to be killed.
    pub fn close_within(&mut self, patience: Duration) -> bool {
        let patience = if self.answered { patience } else { Duration::ZERO };
        let has_ended = wait(&mut self.process, patience).is_some();
        if !has_ended {
            self.kill();
        }
        has_ended
    }

    /// Kills the launcher; its agent ends with its channel.
    fn kill(&mut self) {
        system::signal_group(self.process.id(), SIGKILL);
        let _ = self.process.wait();
    }
}

/// Returns advice about a launcher that ended with this code before an agent answered.
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
        Some(_) if launcher.first().is_some_and(|program| program == "srun") => {
            let word = if launcher.iter().any(|word| word.starts_with("--jobid=")) {
                "the allocation may have ended"
            } else {
                "without an allocation of your own, unset SLURM_JOB_NODELIST"
            };
            format!(": `{} true` has to work; {word}", launcher.join(" "))
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

/// Forwards an agent's messages until its channel closes.
fn read_reports(mut reports: ChildStdout, mut report: impl FnMut(Report) -> bool) {
    let mut first = [0];
    match reports.read(&mut first) {
        Ok(1..) if first[0] == MessageKind::Hello as u8 => {}
        Ok(1..) => {
            // A single read, because the output may never end.
            let mut said = [0; FOREIGN_MAX];
            let count = reports.read(&mut said).unwrap_or(0);
            let said = [&first[..], &said[..count]].concat();
            let said = String::from_utf8_lossy(&said);
            report(Report::Foreign(said.lines().next().unwrap_or("").to_owned()));
            return;
        }
        Ok(0) | Err(_) => {
            report(Report::Closed);
            return;
        }
    }
    let mut reports = (&first[..]).chain(reports);
    while let Ok(Some(message)) = Message::read(&mut reports) {
        if !report(Report::Message(message)) {
            return;
        }
    }
    report(Report::Closed);
}

/// Time an agent may take to end everything it has started.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Time an agent may take to end after its channel.
const EXIT_TIMEOUT: Duration = Duration::from_millis(300);
/// Bytes read of output that is not an agent's.
const FOREIGN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_launcher_is_reported_with_advice() {
        let said = |line: &str, code| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            advice(&words, Some(code))
        };
        assert!(said("ssh -p 7 h /a", 255).contains("`ssh -p 7 h true` has to work"));
        assert!(said("ssh h /a", 127).contains("/a has to be there"));
        assert!(said("srun -N1 /a", 127).contains("/a has to be there"));
        assert!(said("srun -N1 /a", 1).contains("`srun -N1 true` has to work; without an allo"));
        assert!(said("srun --jobid=7 /a", 1).contains("the allocation may have ended"));
        assert_eq!([said("/a", 127), said("ssh h /a", 1)], ["", ""]);
    }
}
