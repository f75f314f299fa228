//! `mpiexec`'s side of an agent: how it is started, spoken with and ended.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use crate::channel::{Kind, Message, Start};
use crate::options::{Launcher, Options, SSH};
use crate::system;

/// News for `mpiexec`'s loop.
pub(crate) enum News {
    From(usize, Message),
    /// An agent's channel has closed.
    Closed(usize),
    /// What came over an agent's channel was no agent's: its beginning.
    Strange(usize, String),
    /// A piece of our own standard input; empty at its end.
    Input(Vec<u8>),
}

/// An agent, or the launcher that is to start it.
pub(crate) struct Node {
    pub host: String,
    /// Whether the agent has said that it is there.
    pub greeted: bool,
    /// How many ranks it has.
    pub ranks: usize,
    process: Child,
    /// To the thread that writes, so that a channel that is full blocks nobody else. What waits is
    /// bounded by what agents ask for, and by one piece of input.
    channel: Sender<Message>,
}

impl Node {
    /// Starts the agent of `host` and tells it what to start; its reports go to `news` as those of
    /// agent `index`.
    ///
    /// # Errors
    /// When the launcher cannot be started; one line that names it.
    pub fn start(
        host: &str,
        options: &Options,
        start: &Start,
        index: usize,
        news: &SyncSender<News>,
    ) -> Result<Self, String> {
        let agent = agent_path()?;
        let words = match launcher(host, options) {
            Launcher::Fork => vec![agent],
            Launcher::Command(mut words) => {
                words.extend([host.to_owned(), agent]);
                words
            }
        };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Signals from the terminal reach the ranks through us, and leave the agent alone.
        command.process_group(0);
        let mut process = command
            .spawn()
            .map_err(|error| format!("launcher {} for host {host}: {error}", words[0]))?;
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
        let news = news.clone();
        let reader = system::start_thread(move || read_reports(reports, index, &news));
        writer.and(reader).map_err(|error| format!("threads for host {host}: {error}"))?;
        let node =
            Self { host: host.into(), greeted: false, ranks: start.ranks.len(), process, channel };
        let body = serde_json::to_vec(start).map_err(|error| error.to_string())?;
        node.send(Message::new(Kind::Start, 0, body));
        Ok(node)
    }

    /// Sends a message; one for an agent that has gone is dropped.
    pub fn send(&self, message: Message) {
        // An agent that has gone is reported by its reader.
        let _ = self.channel.send(message);
    }

    /// How the agent ended, whose channel has closed; ends what is left of it.
    pub fn fate(&mut self) -> String {
        match wait(&mut self.process, LAST_BREATH) {
            Some(status) => status.to_string(),
            None => {
                self.kill();
                "its channel was closed".into()
            }
        }
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
fn read_reports(mut reports: ChildStdout, index: usize, news: &SyncSender<News>) {
    // The loop may have ended before us: then nobody wants to know.
    let tell = |one| news.send(one).is_ok();
    let mut first = [0];
    match reports.read(&mut first) {
        Ok(1..) if first[0] == Kind::Hello as u8 => {}
        Ok(1..) => {
            // One look: whoever talks there may never end.
            let mut said = [0; STRANGE_MAX];
            let count = reports.read(&mut said).unwrap_or(0);
            let said = [&first[..], &said[..count]].concat();
            let said = String::from_utf8_lossy(&said);
            tell(News::Strange(index, said.lines().next().unwrap_or("").to_owned()));
            return;
        }
        Ok(0) | Err(_) => {
            tell(News::Closed(index));
            return;
        }
    }
    let mut reports = (&first[..]).chain(reports);
    while let Ok(Some(message)) = Message::read(&mut reports) {
        if !tell(News::From(index, message)) {
            return;
        }
    }
    tell(News::Closed(index));
}

fn launcher(host: &str, options: &Options) -> Launcher {
    match &options.launcher {
        Some(launcher) => launcher.clone(),
        None if is_here(host) => Launcher::Fork,
        None => Launcher::Command(SSH.iter().map(|word| (*word).to_owned()).collect()),
    }
}

fn is_here(host: &str) -> bool {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host == "localhost" || host.starts_with("127.") || host == "::1" || host == own.trim()
}

/// The agent lies beside `mpiexec`.
fn agent_path() -> Result<String, String> {
    let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let beside: PathBuf = own.with_file_name("canele-agent");
    match beside.is_file() {
        true => Ok(beside.to_string_lossy().into_owned()),
        false => Err(format!("{} is missing: install Canele again", beside.display())),
    }
}

/// How long an agent may take to end what it has started.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long an agent may take to end after its channel.
const LAST_BREATH: Duration = Duration::from_millis(300);
/// How much is read of what is no agent's.
const STRANGE_MAX: usize = 200;
