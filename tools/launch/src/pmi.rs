//! PMI-1 server: the key-value store of the ranks, and their barrier.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Action that a request requires.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PmiAction {
    /// Send a line to the rank that asked.
    Line(String),
    /// Send a line to every rank.
    Everyone(String),
    /// Send nothing yet.
    Wait,
    /// Send nothing to ranks, but the [new values](Server::take_new) to all agents at once.
    Share,
    /// End the job with this code.
    Abort(i32),
    /// Answer this line from the names of the whole job.
    AskName(Zeroizing<String>),
    /// The rank, of job `from`, has communicators with processes of another job from now on, or none any more.
    Connection { from: u64, job: u64, is_connected: bool },
}

/// Values by key.
pub(crate) type Values = HashMap<String, String>;

/// Values that agents may answer without the server.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedValues {
    /// Published values.
    values: Values,
    /// Answers that are the same for all ranks, by command.
    answers: Values,
}

/// Reply of an agent to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AgentReply {
    /// The agent has the answer.
    Known(String),
    /// The agent has the answer, and notifies the server without waiting for it.
    Noted(String),
    /// The agent answers with the job's secret, which is no value.
    Secret,
    /// The server answers.
    AskServer,
}

/// The state of a job's PMI.
#[derive(Debug)]
pub(crate) struct Server {
    /// Name of the job, unique because libraries name their shared memory by it.
    name: String,
    /// Value of `MPI_UNIVERSE_SIZE`; negative without a limit.
    universe_size: i64,
    values: Values,
    /// Values not sent to agents yet.
    new_values: SharedValues,
    waiting: Vec<bool>,
    /// Ranks that barriers no longer count.
    gone: Vec<bool>,
    initialized: Vec<bool>,
    finalized: Vec<bool>,
    /// Index of the program that each rank runs.
    programs: Vec<u32>,
}

impl Server {
    pub fn new(
        name: String,
        programs: Vec<u32>,
        universe_size: Option<u32>,
        values: Values,
    ) -> Self {
        let ranks = programs.len();
        let new_values = SharedValues { values: values.clone(), answers: Values::new() };
        let mut server = Self {
            name,
            universe_size: universe_size.map_or(-1, i64::from),
            new_values,
            values,
            waiting: vec![false; ranks],
            gone: vec![false; ranks],
            initialized: vec![false; ranks],
            finalized: vec![false; ranks],
            programs,
        };
        for command in ["get_maxes", "get_my_kvsname", "get_universe_size", "get_appnum"] {
            let is_for_all = server.programs.iter().all(|program| *program == 0);
            if let PmiAction::Line(answer) = server.handle(0, &format!("cmd={command}"))
                && (command != "get_appnum" || is_for_all)
            {
                server.new_values.answers.insert(command.into(), answer);
            }
        }
        server
    }

    /// True if a rank has called MPI_Init and not MPI_Finalize, so its exit is premature.
    pub fn is_open(&self, rank: u32) -> bool {
        let rank = rank as usize;
        self.initialized[rank] && !self.finalized[rank]
    }

    /// True if a rank has called MPI_Finalize and has not joined the job again.
    pub fn has_left(&self, rank: u32) -> bool {
        self.finalized[rank as usize]
    }

    /// Returns the values that agents may answer from now on: before ranks begin, and after each barrier.
    pub fn take_new(&mut self) -> SharedValues {
        std::mem::take(&mut self.new_values)
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.programs.len()
    }

    /// Forgets all values, which nobody needs once the ranks have ended.
    pub fn clear(&mut self) {
        self.values = Values::new();
    }

    /// True if a rank has ever called MPI_Init.
    pub fn has_joined(&self, rank: u32) -> bool {
        self.initialized[rank as usize]
    }

    /// Returns a published value.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Returns a rank that waits in the barrier.
    pub fn waiting(&self) -> Option<usize> {
        self.waiting.iter().position(|waiting| *waiting)
    }

    /// Handles a line of `rank`, one of the job's.
    pub fn handle(&mut self, rank: u32, line: &str) -> PmiAction {
        let words = words(line);
        let word = |key: &str| words.get(key).copied().unwrap_or("");
        let index = rank as usize;
        PmiAction::Line(match word("cmd") {
            "init" => {
                self.initialized[index] = true;
                // It may join again.
                self.finalized[index] = false;
                INITIALIZED.into()
            }
            "get_maxes" => {
                format!("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={VALUE_MAX} rc=0")
            }
            "get_appnum" => format!("cmd=appnum appnum={} rc=0", self.programs[index]),
            "get_my_kvsname" => format!("cmd=my_kvsname kvsname={} rc=0", self.name),
            "get_universe_size" => format!("cmd=universe_size size={} rc=0", self.universe_size),
            "put" => self.put(word("key"), word("value")),
            "get" => match self.values.get(word("key")) {
                Some(value) => found(value),
                None => NOT_FOUND.into(),
            },
            "barrier_in" => return self.barrier(index),
            ENDED => return self.handle_end(rank),
            "finalize" => {
                self.finalized[index] = true;
                "cmd=finalize_ack rc=0".into()
            }
            "abort" => return PmiAction::Abort(word("exitcode").parse().unwrap_or(1)),
            command @ (boot::CONNECTED | boot::DISCONNECTED) => {
                let number = |key| u64::from_str_radix(word(key), 16).ok();
                match number("from").zip(number("job")) {
                    Some((from, job)) => {
                        let is_connected = command == boot::CONNECTED;
                        return PmiAction::Connection { from, job, is_connected };
                    }
                    None => format!("cmd={command} rc=-1 msg=malformed"),
                }
            }
            boot::PUBLISH_NAME | boot::LOOKUP_NAME | boot::UNPUBLISH_NAME => {
                return PmiAction::AskName(Zeroizing::new(line.to_owned()));
            }
            other => format!("cmd={other} rc=-1 msg=unknown_command"),
        })
    }

    fn put(&mut self, key: &str, value: &str) -> String {
        if self.values.len() >= VALUES_MAX || !may_put(key, value) {
            return REFUSED.into();
        }
        self.values.insert(key.into(), value.into());
        // Values for the launcher do not go to all agents.
        if !boot::is_published_as(key, boot::TRAFFIC_KEY) {
            self.new_values.values.insert(key.into(), value.into());
        }
        PUT.into()
    }

    /// Notes that a rank's process has ended, as its agent has seen.
    fn handle_end(&mut self, rank: u32) -> PmiAction {
        if !self.is_open(rank) {
            return PmiAction::Wait;
        }
        self.new_values.values.insert(boot::ended_name(rank), "1".into());
        PmiAction::Share
    }

    fn barrier(&mut self, rank: usize) -> PmiAction {
        self.waiting[rank] = true;
        self.end_barrier()
    }

    /// Counts an ended rank out of this barrier and all later ones.
    pub fn count_out(&mut self, rank: u32) -> PmiAction {
        self.gone[rank as usize] = true;
        if self.waiting().is_some() { self.end_barrier() } else { PmiAction::Wait }
    }

    /// Ends the barrier if all ranks that are left wait in it.
    fn end_barrier(&mut self) -> PmiAction {
        if !self.waiting.iter().zip(&self.gone).all(|(waiting, gone)| *waiting || *gone) {
            return PmiAction::Wait;
        }
        self.waiting.fill(false);
        PmiAction::Everyone("cmd=barrier_out rc=0".into())
    }
}

impl SharedValues {
    /// Adds new values.
    pub fn extend(&mut self, more: Self) {
        self.values.extend(more.values);
        self.answers.extend(more.answers);
    }

    /// Returns the reply to a line of a rank.
    pub fn reply(&self, line: &str) -> AgentReply {
        let words = words(line);
        let word = |key: &str| words.get(key).copied().unwrap_or("");
        match word("cmd") {
            "init" => AgentReply::Noted(INITIALIZED.into()),
            "put" if may_put(word("key"), word("value")) => AgentReply::Noted(PUT.into()),
            "get" if word("key") == boot::SECRET_KEY => AgentReply::Secret,
            "get" => match self.values.get(word("key")) {
                Some(value) => AgentReply::Known(found(value)),
                None if boot::is_ended_name(word("key")) => AgentReply::Known(NOT_FOUND.into()),
                None => AgentReply::AskServer,
            },
            command => self
                .answers
                .get(command)
                .map_or(AgentReply::AskServer, |it| AgentReply::Known(it.clone())),
        }
    }
}

fn may_put(key: &str, value: &str) -> bool {
    let is_ours = key == boot::SECRET_KEY || boot::is_ended_name(key);
    !key.is_empty() && value.len() <= VALUE_MAX && !is_ours
}

/// Returns the process ID that a rank reports, if it is in this host's PID namespace.
pub(crate) fn process(line: &str) -> Option<u32> {
    let words = words(line);
    let is_near = words.get("space").copied() == boot::process_space().as_deref();
    let is_it = is_near && words.get("cmd") == Some(&"process");
    words.get("id").filter(|_| is_it)?.parse().ok()
}

/// Line by which an agent reports the end of a rank's process.
pub(crate) const ENDED_NOTICE: &str = "cmd=ended";
const ENDED: &str = "ended";

/// Answer to a rank whose process is watched.
pub(crate) const WATCHED: &str = "cmd=process rc=0";

/// Reads a request: a line, or several up to their last one. None at the end of the stream.
///
/// # Errors
/// The stream fails or ends within a request, or a line or request is longer than any.
pub(crate) fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut request = Vec::new();
    if stream.by_ref().take(LINE_MAX).read_until(b'\n', &mut request)? == 0 {
        return Ok(None);
    }
    while has_many_lines(&request) && !is_whole(&request) {
        if stream.by_ref().take(LINE_MAX).read_until(b'\n', &mut request)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if request.len() > REQUEST_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(Some(request))
}

/// True if a line is the first of a request of many lines.
pub(crate) fn has_many_lines(line: &[u8]) -> bool {
    line.starts_with(b"mcmd=")
}

/// True if a request of many lines has its last one.
fn is_whole(request: &[u8]) -> bool {
    request.strip_suffix(b"\n").is_some_and(|lines| lines.ends_with(b"\nendcmd"))
}

pub(crate) fn words(line: &str) -> HashMap<&str, &str> {
    line.split_ascii_whitespace().filter_map(|word| word.split_once('=')).collect()
}

fn found(value: &str) -> String {
    format!("{FOUND}{value}")
}

/// Answer with a value, which follows.
pub(crate) const FOUND: &str = "cmd=get_result rc=0 msg=success value=";

const INITIALIZED: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
/// Answer without a value.
pub(crate) const NOT_FOUND: &str = "cmd=get_result rc=-1 msg=key_not_found value=unknown";
const PUT: &str = "cmd=put_result rc=0 msg=success";
/// Answer to a value that was refused.
pub(crate) const REFUSED: &str = "cmd=put_result rc=-1 msg=refused";

/// Longest line of a request.
const LINE_MAX: u64 = 64 << 10;
/// Longest request of many lines.
const REQUEST_MAX: usize = 4 << 20;
/// Longest value.
const VALUE_MAX: usize = 1024;

/// Maximum number of values in one job: some dozens for each of as many ranks as a job may have.
const VALUES_MAX: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_after_they_are_put() {
        let mut server = Server::new("job".into(), vec![0, 0], Some(2), HashMap::new());
        let get = "cmd=get kvsname=job key=a";
        let PmiAction::Line(missing) = server.handle(1, get) else { panic!() };
        assert!(missing.contains("rc=-1"));
        server.handle(0, "cmd=put kvsname=job key=a value=b=c");
        let PmiAction::Line(found) = server.handle(1, get) else { panic!() };
        assert!(found.contains("rc=0") && found.ends_with("value=b=c"), "{found}");
    }

    #[test]
    fn the_barrier_opens_for_all_when_the_last_rank_enters() {
        let mut server = Server::new("job".into(), vec![0, 0], Some(2), HashMap::new());
        assert_eq!(server.handle(0, "cmd=barrier_in"), PmiAction::Wait);
        assert!(matches!(server.handle(1, "cmd=barrier_in"), PmiAction::Everyone(_)));
        assert_eq!(server.waiting(), None);
        assert_eq!(server.handle(1, "cmd=barrier_in"), PmiAction::Wait);
        assert_eq!(server.waiting(), Some(1));
    }

    #[test]
    fn agents_answer_as_the_server_does() {
        let secret = boot::SECRET_KEY;
        let mut server = Server::new("job".into(), vec![0, 0], Some(2), Values::new());
        let mut shared = SharedValues::default();
        shared.extend(server.take_new());
        let get = |key: &str| format!("cmd=get kvsname=job key={key}");
        let put = |key: &str, value: &str| format!("cmd=put kvsname=job key={key} value={value}");
        for (line, is_known) in [
            ("cmd=get_maxes".into(), true),
            ("cmd=get_my_kvsname".into(), true),
            ("cmd=get_universe_size".into(), true),
            ("cmd=get_appnum".into(), true),
            ("cmd=init pmi_version=1 pmi_subversion=1".into(), false),
            (put("a", "b=c"), false),
        ] {
            let PmiAction::Line(answer) = server.handle(1, &line) else { panic!("{line}") };
            let reply =
                if is_known { AgentReply::Known(answer) } else { AgentReply::Noted(answer) };
            assert_eq!(shared.reply(&line), reply);
        }
        assert_eq!(shared.reply(&get(secret)), AgentReply::Secret);
        assert_eq!(shared.reply(&get("a")), AgentReply::AskServer);
        shared.extend(server.take_new());
        assert!(matches!(shared.reply(&get("a")), AgentReply::Known(_)));
        let long = "x".repeat(VALUE_MAX + 1);
        let traffic = "canele-1-traffic-0";
        server.handle(1, &put(traffic, ".00"));
        assert_eq!(server.value(traffic), Some(".00"));
        assert_eq!(server.take_new(), SharedValues::default());
        for line in [&put(secret, "mine"), &put("", "x"), &put("b", &long)] {
            assert_eq!(shared.reply(line), AgentReply::AskServer);
            assert_eq!(server.handle(0, line), PmiAction::Line(REFUSED.into()));
        }
        assert_eq!(shared.reply("cmd=barrier_in"), AgentReply::AskServer);
        assert_eq!(server.take_new(), SharedValues::default());
        let mut several = Server::new("job".into(), vec![0, 1], Some(2), Values::new());
        assert_eq!(several.take_new().reply("cmd=get_appnum"), AgentReply::AskServer);
    }

    #[test]
    fn agents_know_ended_processes_without_asking() {
        let mut server = Server::new("job".into(), vec![0, 0], Some(2), Values::new());
        let mut shared = SharedValues::default();
        let get = format!("cmd=get kvsname=job key={}", boot::ended_name(1));
        assert_eq!(shared.reply(&get), AgentReply::Known(NOT_FOUND.into()));
        assert_eq!(server.handle(1, ENDED_NOTICE), PmiAction::Wait, "it is part of no job");
        server.handle(1, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(server.handle(1, ENDED_NOTICE), PmiAction::Share);
        shared.extend(server.take_new());
        assert_eq!(shared.reply(&get), AgentReply::Known(found("1")));
        let put = format!("cmd=put kvsname=job key={} value=1", boot::ended_name(0));
        assert_eq!(server.handle(1, &put), PmiAction::Line(REFUSED.into()));
        server.handle(0, "cmd=init pmi_version=1 pmi_subversion=1");
        server.handle(0, "cmd=finalize");
        assert_eq!(server.handle(0, ENDED_NOTICE), PmiAction::Wait, "it has ended its part");
    }

    #[test]
    fn requests_are_read_whole() {
        let text =
            "cmd=get_maxes\nmcmd=spawn\narg1=endcmd\nendcmd\ncmd=barrier_in\nmcmd=spawn\nendcmd";
        let mut rest = text.as_bytes();
        for request in ["cmd=get_maxes\n", "mcmd=spawn\narg1=endcmd\nendcmd\n", "cmd=barrier_in\n"]
        {
            assert_eq!(read_request(&mut rest).unwrap().as_deref(), Some(request.as_bytes()));
        }
        assert!(read_request(&mut rest).is_err(), "its last line is cut");
        assert!(read_request(&mut &b""[..]).unwrap().is_none());
        let long = [b"mcmd=spawn\n".to_vec(), vec![b'x'; 2 * REQUEST_MAX]].concat();
        assert!(read_request(&mut &long[..]).is_err());
    }

    #[test]
    fn a_process_is_known_by_its_number_in_this_namespace() {
        let space = boot::process_space().expect("a system that names it");
        assert_eq!(process(&format!("cmd=process id=7 space={space}")), Some(7));
        assert_eq!(process("cmd=process id=7 space=pid:[1]"), None);
        assert_eq!(process(&format!("cmd=get id=7 space={space}")), None);
    }

    #[test]
    fn barriers_end_without_the_ranks_that_are_counted_out() {
        let mut server = Server::new("job".into(), vec![0; 3], Some(2), Values::new());
        let all_go = || PmiAction::Everyone("cmd=barrier_out rc=0".into());
        assert_eq!(server.handle(0, "cmd=barrier_in"), PmiAction::Wait);
        assert_eq!(server.handle(2, "cmd=barrier_in"), PmiAction::Wait);
        assert_eq!(server.count_out(1), all_go(), "the others were waiting for it");
        assert_eq!(server.handle(2, "cmd=barrier_in"), PmiAction::Wait);
        assert_eq!(server.handle(0, "cmd=barrier_in"), all_go());
        assert_eq!(server.count_out(2), PmiAction::Wait, "nobody waits");
        assert_eq!(server.handle(0, "cmd=barrier_in"), all_go(), "the last one meets nobody");
    }

    #[test]
    fn a_rank_is_open_between_init_and_finalize() {
        let mut server = Server::new("job".into(), vec![0], Some(2), HashMap::new());
        assert!(!server.is_open(0));
        server.handle(0, "cmd=init pmi_version=1 pmi_subversion=1");
        assert!(server.is_open(0));
        server.handle(0, "cmd=finalize");
        assert!(!server.is_open(0));
        assert_eq!(server.handle(0, "cmd=abort exitcode=7"), PmiAction::Abort(7));
    }
}
