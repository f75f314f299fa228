//! The PMI-1 server: what ranks publish for each other, and where they meet.

use std::collections::HashMap;

/// What a request leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A line for the one who asked.
    Line(String),
    /// A line for every rank.
    Everyone(String),
    /// Nothing yet.
    Later,
    /// The job is to end with this code.
    Abort(i32),
}

/// What ranks have published, by key.
pub(crate) type Values = HashMap<String, String>;

/// The state of a job's PMI.
#[derive(Debug)]
pub(crate) struct Server {
    /// What ranks call the job; unlike that of any other, for libraries name their shared memory by it.
    name: String,
    size: u32,
    values: Values,
    /// Those of the values that agents have not been given yet.
    fresh: Values,
    waiting: Vec<bool>,
    initialized: Vec<bool>,
    finalized: Vec<bool>,
    /// Which of the programs each rank runs.
    programs: Vec<u32>,
}

impl Server {
    pub fn new(name: String, programs: Vec<u32>, values: Values) -> Self {
        let ranks = programs.len();
        Self {
            name,
            size: ranks as u32,
            fresh: values.clone(),
            values,
            waiting: vec![false; ranks],
            initialized: vec![false; ranks],
            finalized: vec![false; ranks],
            programs,
        }
    }

    /// Whether a rank has begun to be part of an MPI job and not ended it: its exit is then early.
    pub fn is_open(&self, rank: u32) -> bool {
        let rank = rank as usize;
        self.initialized[rank] && !self.finalized[rank]
    }

    /// Values that agents may give to ranks from now on: before ranks begin, and when all have met.
    pub fn take_fresh(&mut self) -> Values {
        std::mem::take(&mut self.fresh)
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
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into()
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
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
            },
            "barrier_in" => return self.barrier(index),
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
        let known = self.values.len() < VALUES_MAX && !key.is_empty() && value.len() <= VALUE_MAX;
        if !known || key == boot::SECRET_KEY {
            return "cmd=put_result rc=-1 msg=refused".into();
        }
        self.values.insert(key.into(), value.into());
        self.fresh.insert(key.into(), value.into());
        "cmd=put_result rc=0 msg=success".into()
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

/// What an agent answers itself: a request for a value that it was given.
pub(crate) fn answer_of(values: &Values, line: &str) -> Option<String> {
    let words = words(line);
    let is_get = words.get("cmd") == Some(&"get");
    words.get("key").filter(|_| is_get).and_then(|key| values.get(*key)).map(|value| found(value))
}

fn words(line: &str) -> HashMap<&str, &str> {
    line.split_ascii_whitespace().filter_map(|word| word.split_once('=')).collect()
}

fn found(value: &str) -> String {
    format!("cmd=get_result rc=0 msg=success value={value}")
}

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
    fn agents_answer_for_what_they_were_given() {
        let first = Values::from([("secret".into(), "s".into())]);
        let mut server = Server::new("job".into(), vec![0], first);
        let mut given = server.take_fresh();
        let get = |key: &str| format!("cmd=get kvsname=job key={key}");
        assert_eq!(
            answer_of(&given, &get("secret")).map(Answer::Line),
            Some(server.handle(0, &get("secret")))
        );
        server.handle(0, "cmd=put kvsname=job key=a value=b=c");
        assert_eq!(answer_of(&given, &get("a")), None);
        given.extend(server.take_fresh());
        assert_eq!(
            answer_of(&given, &get("a")).map(Answer::Line),
            Some(server.handle(0, &get("a")))
        );
        assert_eq!(answer_of(&given, "cmd=put kvsname=job key=a value=x"), None);
        assert!(server.take_fresh().is_empty());
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
