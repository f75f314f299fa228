//! The PMI-1 server: what ranks publish for each other, and where they meet.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// What a request leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A line for the one who asked.
    Line(String),
    /// A line for every rank.
    Everyone(String),
    /// Nothing yet.
    Later,
    /// None; but all agents are to know at once what they are [given](Server::take_fresh).
    Given,
    /// The job is to end with this code.
    Abort(i32),
}

/// Texts by key.
pub(crate) type Values = HashMap<String, String>;

/// What agents may answer without asking above.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Given {
    /// What has been published.
    values: Values,
    /// Answers that are the same for all ranks, by command.
    answers: Values,
}

/// What an agent does with a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It has the answer.
    Known(String),
    /// The server is told, and needs not be waited for.
    Noted(String),
    /// The server answers.
    Above,
}

/// The state of a job's PMI.
#[derive(Debug)]
pub(crate) struct Server {
    /// What ranks call the job; unlike that of any other, for libraries name their shared memory by it.
    name: String,
    size: u32,
    values: Values,
    /// What agents have not been given yet.
    fresh: Given,
    waiting: Vec<bool>,
    initialized: Vec<bool>,
    finalized: Vec<bool>,
    /// Which of the programs each rank runs.
    programs: Vec<u32>,
}

impl Server {
    pub fn new(name: String, programs: Vec<u32>, values: Values) -> Self {
        let ranks = programs.len();
        let fresh = Given { values: values.clone(), answers: Values::new() };
        let mut server = Self {
            name,
            size: ranks as u32,
            fresh,
            values,
            waiting: vec![false; ranks],
            initialized: vec![false; ranks],
            finalized: vec![false; ranks],
            programs,
        };
        for command in ["get_maxes", "get_my_kvsname", "get_universe_size", "get_appnum"] {
            let is_for_all = server.programs.iter().all(|program| *program == 0);
            if let Answer::Line(answer) = server.handle(0, &format!("cmd={command}"))
                && (command != "get_appnum" || is_for_all)
            {
                server.fresh.answers.insert(command.into(), answer);
            }
        }
        server
    }

    /// Whether a rank has begun to be part of an MPI job and not ended it: its exit is then early.
    pub fn is_open(&self, rank: u32) -> bool {
        let rank = rank as usize;
        self.initialized[rank] && !self.finalized[rank]
    }

    /// What agents may answer from now on: before ranks begin, and when all have met.
    pub fn take_fresh(&mut self) -> Given {
        std::mem::take(&mut self.fresh)
    }

    /// What was published.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// A rank that waits for the others.
    pub fn waiting(&self) -> Option<usize> {
        self.waiting.iter().position(|waiting| *waiting)
    }

    /// Answers a line of `rank`, one of the job's.
    pub fn handle(&mut self, rank: u32, line: &str) -> Answer {
        let words = words(line);
        let word = |key: &str| words.get(key).copied().unwrap_or("");
        let index = rank as usize;
        Answer::Line(match word("cmd") {
            "init" => {
                self.initialized[index] = true;
                INITIALIZED.into()
            }
            "get_maxes" => {
                format!("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={VALUE_MAX} rc=0")
            }
            "get_appnum" => format!("cmd=appnum appnum={} rc=0", self.programs[index]),
            "get_my_kvsname" => format!("cmd=my_kvsname kvsname={} rc=0", self.name),
            "get_universe_size" => format!("cmd=universe_size size={} rc=0", self.size),
            "put" => self.put(word("key"), word("value")),
            "get" => match self.values.get(word("key")) {
                Some(value) => found(value),
                None => NOT_FOUND.into(),
            },
            "barrier_in" => return self.barrier(index),
            ENDED => return self.bury(rank),
            "finalize" => {
                self.finalized[index] = true;
                "cmd=finalize_ack rc=0".into()
            }
            "abort" => return Answer::Abort(word("exitcode").parse().unwrap_or(1)),
            "spawn" => "cmd=spawn_result rc=-1 msg=spawn_is_not_supported".into(),
            "publish_name" => {
                "cmd=publish_result rc=-1 msg=not_supported info=not_supported".into()
            }
            "unpublish_name" => "cmd=unpublish_result rc=-1 msg=not_supported info=no".into(),
            "lookup_name" => "cmd=lookup_result rc=-1 msg=not_supported info=not_supported".into(),
            other => format!("cmd={other} rc=-1 msg=unknown_command"),
        })
    }

    fn put(&mut self, key: &str, value: &str) -> String {
        if self.values.len() >= VALUES_MAX || !may_put(key, value) {
            return REFUSED.into();
        }
        self.values.insert(key.into(), value.into());
        // What is for the launcher does not go to all agents.
        if !boot::is_published_as(key, boot::TRAFFIC_KEY) {
            self.fresh.values.insert(key.into(), value.into());
        }
        PUT.into()
    }

    /// A rank's process has ended, as its agent has seen.
    fn bury(&mut self, rank: u32) -> Answer {
        if !self.is_open(rank) {
            return Answer::Later;
        }
        self.fresh.values.insert(boot::ended_name(rank), "1".into());
        Answer::Given
    }

    fn barrier(&mut self, rank: usize) -> Answer {
        self.waiting[rank] = true;
        if !self.waiting.iter().all(|waiting| *waiting) {
            return Answer::Later;
        }
        self.waiting.fill(false);
        Answer::Everyone("cmd=barrier_out rc=0".into())
    }
}

impl Given {
    /// Adds what is given more.
    pub fn extend(&mut self, more: Self) {
        self.values.extend(more.values);
        self.answers.extend(more.answers);
    }

    /// What to do with a line of a rank.
    pub fn reply(&self, line: &str) -> Reply {
        let words = words(line);
        let word = |key: &str| words.get(key).copied().unwrap_or("");
        match word("cmd") {
            "init" => Reply::Noted(INITIALIZED.into()),
            "put" if may_put(word("key"), word("value")) => Reply::Noted(PUT.into()),
            "get" => match self.values.get(word("key")) {
                Some(value) => Reply::Known(found(value)),
                None if boot::is_ended_name(word("key")) => Reply::Known(NOT_FOUND.into()),
                None => Reply::Above,
            },
            command => {
                self.answers.get(command).map_or(Reply::Above, |it| Reply::Known(it.clone()))
            }
        }
    }
}

fn may_put(key: &str, value: &str) -> bool {
    let is_ours = key == boot::SECRET_KEY || boot::is_ended_name(key);
    !key.is_empty() && value.len() <= VALUE_MAX && !is_ours
}

/// The process by which a rank introduces itself, if that is one of this host's, as it is seen here.
pub(crate) fn process(line: &str) -> Option<u32> {
    let words = words(line);
    let is_near = words.get("space").copied() == boot::process_space().as_deref();
    let is_it = is_near && words.get("cmd") == Some(&"process");
    words.get("id").filter(|_| is_it)?.parse().ok()
}

/// What an agent says of a rank whose process has ended.
pub(crate) const ENDED_NOTICE: &str = "cmd=ended";
const ENDED: &str = "ended";

/// What a rank is answered whose process is watched.
pub(crate) const WATCHED: &str = "cmd=process rc=0";

fn words(line: &str) -> HashMap<&str, &str> {
    line.split_ascii_whitespace().filter_map(|word| word.split_once('=')).collect()
}

fn found(value: &str) -> String {
    format!("cmd=get_result rc=0 msg=success value={value}")
}

const INITIALIZED: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
const NOT_FOUND: &str = "cmd=get_result rc=-1 msg=key_not_found value=unknown";
const PUT: &str = "cmd=put_result rc=0 msg=success";
/// What a value is answered that is not taken.
pub(crate) const REFUSED: &str = "cmd=put_result rc=-1 msg=refused";

/// The longest value.
const VALUE_MAX: usize = 1024;

/// Values in one job: some dozens for each of as many ranks as a job may have.
const VALUES_MAX: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_after_they_are_put() {
        let mut server = Server::new("job".into(), vec![0, 0], HashMap::new());
        let get = "cmd=get kvsname=job key=a";
        let Answer::Line(missing) = server.handle(1, get) else { panic!() };
        assert!(missing.contains("rc=-1"));
        server.handle(0, "cmd=put kvsname=job key=a value=b=c");
        let Answer::Line(found) = server.handle(1, get) else { panic!() };
        assert!(found.contains("rc=0") && found.ends_with("value=b=c"), "{found}");
    }

    #[test]
    fn the_barrier_opens_for_everyone_when_the_last_comes() {
        let mut server = Server::new("job".into(), vec![0, 0], HashMap::new());
        assert_eq!(server.handle(0, "cmd=barrier_in"), Answer::Later);
        assert!(matches!(server.handle(1, "cmd=barrier_in"), Answer::Everyone(_)));
        assert_eq!(server.waiting(), None);
        assert_eq!(server.handle(1, "cmd=barrier_in"), Answer::Later);
        assert_eq!(server.waiting(), Some(1));
    }

    #[test]
    fn agents_answer_as_the_server_would() {
        let secret = boot::SECRET_KEY;
        let first = Values::from([(secret.into(), "s".into())]);
        let mut server = Server::new("job".into(), vec![0, 0], first);
        let mut given = Given::default();
        given.extend(server.take_fresh());
        let get = |key: &str| format!("cmd=get kvsname=job key={key}");
        let put = |key: &str, value: &str| format!("cmd=put kvsname=job key={key} value={value}");
        for (line, is_known) in [
            (get(secret), true),
            ("cmd=get_maxes".into(), true),
            ("cmd=get_my_kvsname".into(), true),
            ("cmd=get_universe_size".into(), true),
            ("cmd=get_appnum".into(), true),
            ("cmd=init pmi_version=1 pmi_subversion=1".into(), false),
            (put("a", "b=c"), false),
        ] {
            let Answer::Line(answer) = server.handle(1, &line) else { panic!("{line}") };
            let reply = if is_known { Reply::Known(answer) } else { Reply::Noted(answer) };
            assert_eq!(given.reply(&line), reply);
        }
        assert_eq!(given.reply(&get("a")), Reply::Above);
        given.extend(server.take_fresh());
        assert!(matches!(given.reply(&get("a")), Reply::Known(_)));
        let long = "x".repeat(VALUE_MAX + 1);
        let traffic = "canele-1-traffic-0";
        server.handle(1, &put(traffic, ".00"));
        assert_eq!(server.value(traffic), Some(".00"));
        assert_eq!(server.take_fresh(), Given::default());
        for line in [&put(secret, "mine"), &put("", "x"), &put("b", &long)] {
            assert_eq!(given.reply(line), Reply::Above);
            assert_eq!(server.handle(0, line), Answer::Line(REFUSED.into()));
        }
        assert_eq!(given.reply("cmd=barrier_in"), Reply::Above);
        assert_eq!(server.take_fresh(), Given::default());
        let mut several = Server::new("job".into(), vec![0, 1], Values::new());
        assert_eq!(several.take_fresh().reply("cmd=get_appnum"), Reply::Above);
    }

    #[test]
    fn agents_know_which_processes_have_ended_without_asking() {
        let mut server = Server::new("job".into(), vec![0, 0], Values::new());
        let mut given = Given::default();
        let get = format!("cmd=get kvsname=job key={}", boot::ended_name(1));
        assert_eq!(given.reply(&get), Reply::Known(NOT_FOUND.into()));
        assert_eq!(server.handle(1, ENDED_NOTICE), Answer::Later, "it is part of no job");
        server.handle(1, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(server.handle(1, ENDED_NOTICE), Answer::Given);
        given.extend(server.take_fresh());
        assert_eq!(given.reply(&get), Reply::Known(found("1")));
        let put = format!("cmd=put kvsname=job key={} value=1", boot::ended_name(0));
        assert_eq!(server.handle(1, &put), Answer::Line(REFUSED.into()));
        server.handle(0, "cmd=init pmi_version=1 pmi_subversion=1");
        server.handle(0, "cmd=finalize");
        assert_eq!(server.handle(0, ENDED_NOTICE), Answer::Later, "it has ended its part");
    }

    #[test]
    fn a_process_introduces_itself_by_a_number_that_is_known_here() {
        let space = boot::process_space().expect("a system that names it");
        assert_eq!(process(&format!("cmd=process id=7 space={space}")), Some(7));
        assert_eq!(process("cmd=process id=7 space=pid:[1]"), None);
        assert_eq!(process(&format!("cmd=get id=7 space={space}")), None);
    }

    #[test]
    fn a_rank_is_open_between_init_and_finalize() {
        let mut server = Server::new("job".into(), vec![0], HashMap::new());
        assert!(!server.is_open(0));
        server.handle(0, "cmd=init pmi_version=1 pmi_subversion=1");
        assert!(server.is_open(0));
        server.handle(0, "cmd=finalize");
        assert!(!server.is_open(0));
        assert_eq!(server.handle(0, "cmd=abort exitcode=7"), Answer::Abort(7));
    }
}
