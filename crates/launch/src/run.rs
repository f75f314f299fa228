//! `mpiexec` itself: one loop over what the agents report.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::VERSION;
use crate::channel::{Exit, Kind, Message, RankStart, Start};
use crate::options::{HELP, Launcher, Options, Parsed};
use crate::pmi::{Answer, Server};
use crate::system;

/// Runs `mpiexec` with these arguments, without its own name.
pub fn mpiexec_main(arguments: &[String]) -> ExitCode {
    let options = match Options::parse(arguments) {
        Ok(Parsed::Run(options)) => options,
        Ok(Parsed::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Parsed::Version) => {
            println!("mpiexec (Canele) {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("mpiexec: {error}");
            return ExitCode::from(2);
        }
    };
    system::note_signals(&[
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ]);
    match Run::start(&options) {
        Ok(run) => ExitCode::from(run.finish()),
        Err(text) => {
            eprintln!("mpiexec: {text}");
            ExitCode::FAILURE
        }
    }
}

/// News for the loop.
enum News {
    From(usize, Message),
    /// An agent's channel has closed.
    Closed(usize),
    /// A piece of our own standard input; empty at its end.
    Input(Vec<u8>),
}

struct Agent {
    host: String,
    process: Child,
    channel: ChildStdin,
    greeted: bool,
    ranks: usize,
}

struct Run {
    agents: Vec<Agent>,
    /// The agent of each rank.
    homes: Vec<usize>,
    server: Server,
    news: Receiver<News>,
    streams: HashMap<(u32, Stream), Vec<u8>>,
    label: bool,
    left: usize,
    ended: Vec<bool>,
    code: u8,
    /// Since when the job is being ended.
    ending: Option<Instant>,
    killed: bool,
    /// Lets the reader of our input go on.
    permits: Sender<()>,
    started: Instant,
    deadline: Option<Instant>,
}

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stream {
    Output,
    Error,
}

impl Run {
    fn start(options: &Options) -> Result<Self, String> {
        let placement = options.placement();
        let hosts = match options.hosts.is_empty() {
            true => vec!["localhost".to_owned()],
            false => options.hosts.iter().map(|(host, _)| host.clone()).collect(),
        };
        let (sender, news) = mpsc::channel();
        let mut homes = vec![0; placement.len()];
        let mut agents: Vec<Agent> = Vec::new();
        let starts = starts(options, &placement);
        for (host, name) in hosts.iter().enumerate() {
            let mine: Vec<RankStart> = starts
                .iter()
                .filter(|(home, _)| *home == host)
                .map(|(_, one)| one.clone())
                .collect();
            if mine.is_empty() {
                continue;
            }
            for one in &mine {
                homes[one.rank as usize] = agents.len();
            }
            let start = Start { size: placement.len() as u32, ranks: mine };
            agents.push(start_agent(name, options, &start, agents.len(), &sender)?);
        }
        let permits = read_input(sender);
        let mut values = HashMap::new();
        values.insert(boot::SECRET_KEY.to_owned(), secret()?);
        values.insert("PMI_process_mapping".to_owned(), mapping(&homes));
        let programs = (0u32..).zip(&options.programs);
        let programs =
            programs.flat_map(|(number, one)| vec![number; one.ranks as usize]).collect();
        let started = Instant::now();
        Ok(Self {
            agents,
            server: Server::new(programs, values),
            news,
            streams: HashMap::new(),
            label: options.label,
            left: homes.len(),
            ended: vec![false; homes.len()],
            homes,
            code: 0,
            ending: None,
            killed: false,
            permits,
            started,
            deadline: options.timeout_s.map(|seconds| started + Duration::from_secs(seconds)),
        })
    }

    /// Until the last rank has ended; the job's exit code.
    fn finish(mut self) -> u8 {
        while self.left > 0 {
            match self.news.recv_timeout(TICK) {
                Ok(News::From(agent, message)) => self.handle(agent, message),
                Ok(News::Closed(agent)) => self.lose(agent),
                Ok(News::Input(piece)) => self.send(0, Kind::Input, piece),
                Err(RecvTimeoutError::Timeout) => self.look_after(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(signal) = system::taken_signal() {
                self.pass_signal(signal);
            }
        }
        self.flush_all();
        for agent in self.agents {
            drop(agent.channel);
            let mut process = agent.process;
            // The agent ends by itself when its channel closes.
            let _ = process.wait();
        }
        self.code
    }

    fn handle(&mut self, agent: usize, message: Message) {
        let Message { kind, rank, body } = message;
        if rank as usize >= self.homes.len() {
            return;
        }
        match kind {
            Kind::Hello => self.greet(agent, &body),
            Kind::Output => self.print(rank, Stream::Output, &body),
            Kind::Error => self.print(rank, Stream::Error, &body),
            Kind::PmiRequest => self.serve(rank, &String::from_utf8_lossy(&body)),
            Kind::Exit => {
                if let Ok(exit) = serde_json::from_slice(&body) {
                    self.handle_exit(rank, exit);
                }
            }
            // The reader has gone when the input has ended.
            Kind::Input => drop(self.permits.send(())),
            Kind::Start | Kind::Signal | Kind::PmiAnswer => {}
        }
    }

    fn greet(&mut self, agent: usize, version: &[u8]) {
        self.agents[agent].greeted = true;
        if version != VERSION.as_bytes() {
            let host = &self.agents[agent].host;
            let theirs = String::from_utf8_lossy(version);
            eprintln!(
                "mpiexec: the agent on {host} is `{theirs}`, needed is `{VERSION}`: install the same version"
            );
            self.end(1);
        }
    }

    fn serve(&mut self, rank: u32, line: &str) {
        match self.server.handle(rank, line) {
            Answer::Line(line) => self.send(rank, Kind::PmiAnswer, format!("{line}\n").into()),
            Answer::Everyone(line) => {
                for rank in 0..self.homes.len() as u32 {
                    self.send(rank, Kind::PmiAnswer, format!("{line}\n").into());
                }
            }
            Answer::Later => {}
            Answer::Abort(code) => self.end(exit_code(code)),
        }
    }

    fn handle_exit(&mut self, rank: u32, exit: Exit) {
        if std::mem::replace(&mut self.ended[rank as usize], true) {
            return;
        }
        self.left -= 1;
        self.flush(rank, Stream::Output);
        self.flush(rank, Stream::Error);
        let host = self.agents[self.homes[rank as usize]].host.clone();
        let (code, text) = match exit {
            Exit::Code(0) if self.server.is_open(rank) => {
                (1, "ended without MPI_Finalize".to_owned())
            }
            Exit::Code(0) => return,
            Exit::Code(code) => (exit_code(code), format!("exited with code {code}")),
            Exit::Signal(signal) => {
                let code = exit_code(128 + signal);
                (code, format!("was ended by signal {signal} ({})", signal_name(signal)))
            }
            Exit::NotStarted(code, reason) => (exit_code(code), reason),
        };
        if self.ending.is_none() {
            let more = if self.left > 0 { "; ending the job" } else { "" };
            eprintln!("mpiexec: rank {rank} on {host}: {text}{more}");
        }
        self.end(code);
    }

    /// Begins to end the job; the first reason gives the exit code.
    fn end(&mut self, code: u8) {
        if self.ending.is_none() {
            self.ending = Some(Instant::now());
            self.code = code;
            self.signal_all(libc::SIGTERM);
        }
    }

    fn signal_all(&mut self, signal: i32) {
        for agent in &mut self.agents {
            // An agent that has gone is reported by its reader.
            let _ = Message::new(Kind::Signal, 0, [signal as u8]).write(&mut agent.channel);
        }
    }

    fn pass_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGUSR1 | libc::SIGUSR2 => self.signal_all(signal),
            _ if self.ending.is_some() => {
                self.killed = true;
                self.signal_all(libc::SIGKILL);
            }
            _ => {
                self.signal_all(signal);
                self.ending = Some(Instant::now());
                self.code = exit_code(128 + signal);
            }
        }
    }

    /// Time passes: an ending job is killed, silent agents are given up.
    fn look_after(&mut self) {
        let now = Instant::now();
        if let Some(since) = self.ending
            && now - since > GRACE
            && !self.killed
        {
            self.killed = true;
            self.signal_all(libc::SIGKILL);
        }
        if self.deadline.is_some_and(|deadline| now > deadline) && self.ending.is_none() {
            eprintln!("mpiexec: the time given by -timeout is over; ending the job");
            self.end(124);
        }
        if now - self.started > connect_timeout() && self.ending.is_none() {
            let silent =
                self.agents.iter().find(|agent| !agent.greeted).map(|agent| agent.host.clone());
            if let Some(host) = silent {
                let seconds = connect_timeout().as_secs();
                eprintln!("mpiexec: no agent answered on host {host} within {seconds} s");
                self.end(1);
                self.left = 0;
            }
        }
        // A line that was begun and not ended is shown when nothing else comes.
        self.flush_all();
    }

    /// An agent is gone, with all ranks it had.
    fn lose(&mut self, agent: usize) {
        let lost: Vec<u32> = (0..self.homes.len() as u32)
            .filter(|rank| self.homes[*rank as usize] == agent && !self.ended[*rank as usize])
            .collect();
        if lost.is_empty() {
            return;
        }
        let Agent { host, greeted, process, ranks, .. } = &mut self.agents[agent];
        if self.ending.is_none() {
            let status =
                process.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            match greeted {
                true => eprintln!(
                    "mpiexec: the agent on host {host} with {ranks} ranks is gone ({status})"
                ),
                false => eprintln!(
                    "mpiexec: the launcher could not start an agent on host {host} ({status})"
                ),
            }
        }
        for rank in lost {
            self.ended[rank as usize] = true;
            self.left -= 1;
        }
        self.end(1);
    }

    fn send(&mut self, rank: u32, kind: Kind, body: Vec<u8>) {
        let agent = &mut self.agents[self.homes[rank as usize]];
        // An agent that has gone is reported by its reader.
        let _ = Message::new(kind, rank, body).write(&mut agent.channel);
    }

    /// Shows the whole lines among what a rank has said, and keeps the rest.
    fn print(&mut self, rank: u32, stream: Stream, bytes: &[u8]) {
        let kept = self.streams.entry((rank, stream)).or_default();
        kept.extend_from_slice(bytes);
        let whole = match kept.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if kept.len() > LINE_MAX => kept.len(),
            None => return,
        };
        let lines: Vec<u8> = kept.drain(..whole).collect();
        self.show(rank, stream, &lines);
    }

    fn show(&self, rank: u32, stream: Stream, lines: &[u8]) {
        let mut text = Vec::with_capacity(lines.len() + 16);
        if self.label {
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                text.extend(format!("[{rank}] ").bytes());
                text.extend(line);
            }
        } else {
            text.extend(lines);
        }
        // Whoever read our output has gone: the job goes on without.
        let _ = match stream {
            Stream::Output => {
                let mut out = std::io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush())
            }
            Stream::Error => std::io::stderr().lock().write_all(&text),
        };
    }

    fn flush(&mut self, rank: u32, stream: Stream) {
        if let Some(rest) = self.streams.remove(&(rank, stream))
            && !rest.is_empty()
        {
            self.show(rank, stream, &rest);
        }
    }

    fn flush_all(&mut self) {
        let streams: Vec<(u32, Stream)> = self.streams.keys().copied().collect();
        for (rank, stream) in streams {
            self.flush(rank, stream);
        }
    }
}

/// What each rank's agent is told, with the rank's home.
fn starts(options: &Options, placement: &[usize]) -> Vec<(usize, RankStart)> {
    let programs = options.programs.iter().flat_map(|one| vec![one; one.ranks as usize]);
    let local = |home: usize| placement.iter().filter(|other| **other == home).count();
    let directory = std::env::current_dir().ok().map(|path| path.to_string_lossy().into_owned());
    let shared = shared_environment(options);
    let mut seen: HashMap<usize, usize> = HashMap::new();
    let ranks = (0u32..).zip(placement).zip(programs);
    ranks
        .map(|((rank, &home), program)| {
            let position = seen.entry(home).or_default();
            let mut environment = shared.clone();
            environment.extend(program.environment.iter().cloned());
            environment.push(("MPI_LOCALNRANKS".into(), local(home).to_string()));
            environment.push(("MPI_LOCALRANKID".into(), position.to_string()));
            *position += 1;
            let start = RankStart {
                rank,
                command: program.command.clone(),
                directory: program.directory.clone().or_else(|| directory.clone()),
                environment,
                inherit: !options.no_environment,
            };
            (home, start)
        })
        .collect()
}

/// The environment that goes to all ranks: ours, but for what belongs to this host or this session,
/// or to another launcher.
fn shared_environment(options: &Options) -> Vec<(String, String)> {
    let foreign = ["PMI_", "PMIX_", "HYDRA_", "HYDI_", "OMPI_", "PRTE_"];
    let own = ["HOSTNAME", "DISPLAY", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SHLVL", "_"];
    let mut environment: Vec<(String, String)> = Vec::new();
    if !options.no_environment {
        let ours = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let kept = ours.filter(|(name, _)| {
            !foreign.iter().any(|prefix| name.starts_with(prefix)) && !own.contains(&name.as_str())
        });
        environment.extend(kept);
    }
    environment.extend(options.environment.iter().cloned());
    environment
}

fn start_agent(
    host: &str,
    options: &Options,
    start: &Start,
    index: usize,
    sender: &Sender<News>,
) -> Result<Agent, String> {
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
    let (Some(mut channel), Some(mut reports)) = (process.stdin.take(), process.stdout.take())
    else {
        return Err(format!("no channel to the agent on {host}"));
    };
    let body = serde_json::to_vec(start).map_err(|error| error.to_string())?;
    // An agent that does not even start is reported by its reader.
    let _ = Message::new(Kind::Start, 0, body).write(&mut channel);
    let sender = sender.clone();
    thread::spawn(move || {
        while let Ok(Some(message)) = Message::read(&mut reports) {
            if sender.send(News::From(index, message)).is_err() {
                return;
            }
        }
        // The loop may have ended.
        let _ = sender.send(News::Closed(index));
    });
    Ok(Agent { host: host.into(), process, channel, greeted: false, ranks: start.ranks.len() })
}

fn launcher(host: &str, options: &Options) -> Launcher {
    match &options.launcher {
        Some(launcher) => launcher.clone(),
        None if is_here(host) => Launcher::Fork,
        None => {
            let words = ["ssh", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"];
            Launcher::Command(words.iter().map(|word| (*word).to_owned()).collect())
        }
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

/// Reads our standard input, a piece at a time: the next one when the rank has taken the last.
fn read_input(sender: Sender<News>) -> Sender<()> {
    let (permits, taken) = mpsc::channel();
    thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut piece = vec![0; INPUT_PIECE];
        loop {
            let count = input.read(&mut piece).unwrap_or(0);
            let sent = sender.send(News::Input(piece[..count].to_vec()));
            if sent.is_err() || count == 0 || taken.recv().is_err() {
                return;
            }
        }
    });
    permits
}

fn secret() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Which ranks share a node, as PMI says it: blocks of (first node, nodes, ranks on each).
fn mapping(homes: &[usize]) -> String {
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for &home in homes {
        match blocks.last_mut() {
            Some((last, ranks)) if *last == home => *ranks += 1,
            _ => blocks.push((home, 1)),
        }
    }
    let blocks: Vec<String> =
        blocks.iter().map(|(home, ranks)| format!("({home},1,{ranks})")).collect();
    format!("(vector,{})", blocks.join(","))
}

fn exit_code(code: i32) -> u8 {
    match u8::try_from(code & 0xff) {
        Ok(0) | Err(_) => 1,
        Ok(code) => code,
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "Hangup",
        libc::SIGINT => "Interrupt",
        libc::SIGILL => "Illegal instruction",
        libc::SIGABRT => "Aborted",
        libc::SIGBUS => "Bus error",
        libc::SIGFPE => "Arithmetic exception",
        libc::SIGKILL => "Killed",
        libc::SIGSEGV => "Segmentation fault",
        libc::SIGPIPE => "Broken pipe",
        libc::SIGTERM => "Terminated",
        _ => "see signal(7)",
    }
}

fn connect_timeout() -> Duration {
    let seconds = std::env::var("CANELE_CONNECT_TIMEOUT").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

/// How long ranks may take to end themselves before they are killed.
const GRACE: Duration = Duration::from_millis(400);
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(50);
/// Longer lines are shown in pieces.
const LINE_MAX: usize = 64 << 10;
const INPUT_PIECE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_names_blocks_of_ranks() {
        assert_eq!(mapping(&[0, 0, 1, 1, 1]), "(vector,(0,1,2),(1,1,3))");
    }

    #[test]
    fn exit_codes_are_never_success() {
        assert_eq!((exit_code(0), exit_code(256), exit_code(139)), (1, 1, 139));
    }
}
