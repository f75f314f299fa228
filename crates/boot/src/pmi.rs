//! The PMI-1 client: lines of `key=value` words over a stream.
//!
//! The protocol is the one Hydra and Slurm serve: every command is one line that begins with
//! `cmd=`, every answer one line; values contain neither spaces nor newlines.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};

use crate::error::BootError;
use crate::launcher::Launcher;

/// A connection to the launcher's PMI server.
pub(crate) struct Pmi<S> {
    stream: BufReader<S>,
    kvs: String,
    /// The longest value the server takes.
    value_max: usize,
}

impl<S: Read + Write> Pmi<S> {
    /// Introduces this process; `id` where the server does not know who is calling. Returns rank
    /// and size where the server tells them.
    pub fn open(stream: S, id: Option<u32>) -> Result<(Self, Option<(u32, u32)>), BootError> {
        let mut pmi = Self { stream: BufReader::new(stream), kvs: String::new(), value_max: 0 };
        let mut place = None;
        if let Some(id) = id {
            pmi.say(&format!("cmd=initack pmiid={id}"))?;
            pmi.answer("initack")?;
            let size = pmi.value_line("size")?;
            let rank = pmi.value_line("rank")?;
            pmi.value_line("debug")?;
            place = Some((rank, size));
        }
        pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let maxes = pmi.ask("cmd=get_maxes", "maxes")?;
        pmi.value_max = maxes.number("vallen_max")? as usize;
        pmi.kvs = pmi.ask("cmd=get_my_kvsname", "my_kvsname")?.word("kvsname")?.to_owned();
        Ok((pmi, place))
    }

    fn ask(&mut self, line: &str, answer: &'static str) -> Result<Answer, BootError> {
        self.say(line)?;
        self.answer(answer)
    }

    fn say(&mut self, line: &str) -> Result<(), BootError> {
        let stream = self.stream.get_mut();
        stream.write_all(format!("{line}\n").as_bytes()).map_err(BootError::Launcher)
    }

    fn answer(&mut self, expected: &'static str) -> Result<Answer, BootError> {
        let answer = Answer::parse(&self.line()?);
        match answer.words.get("cmd") {
            Some(command) if command == expected => Ok(answer),
            _ => Err(BootError::Answer { expected, line: answer.line }),
        }
    }

    /// A line `cmd=set name=value`.
    fn value_line(&mut self, name: &'static str) -> Result<u32, BootError> {
        let answer = self.answer("set")?;
        answer.number(name)
    }

    fn line(&mut self) -> Result<String, BootError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE_MAX);
        limited.read_until(b'\n', &mut line).map_err(BootError::Launcher)?;
        match line.pop() {
            Some(b'\n') => Ok(String::from_utf8_lossy(&line).into_owned()),
            _ => Err(BootError::Launcher(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl<S: Read + Write + Send> Launcher for Pmi<S> {
    fn job_name(&self) -> &str {
        &self.kvs
    }

    fn value_max(&self) -> usize {
        self.value_max.saturating_sub(1)
    }

    fn universe_size(&mut self) -> Result<Option<u32>, BootError> {
        let answer = self.ask("cmd=get_universe_size", "universe_size")?;
        Ok(answer.word("size")?.parse().ok())
    }

    fn application_number(&mut self) -> Result<Option<u32>, BootError> {
        let answer = self.ask("cmd=get_appnum", "appnum")?;
        Ok(answer.word("appnum")?.parse().ok())
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        let line = format!("cmd=put kvsname={} key={key} value={value}", self.kvs);
        let answer = self.ask(&line, "put_result")?;
        answer.check("put")
    }

    fn get(&mut self, key: &str) -> Result<Option<String>, BootError> {
        let line = format!("cmd=get kvsname={} key={key}", self.kvs);
        let answer = self.ask(&line, "get_result")?;
        if answer.word("rc")? != "0" {
            return Ok(None);
        }
        Ok(Some(answer.word("value")?.to_owned()))
    }

    fn introduce(&mut self) -> Result<bool, BootError> {
        let space = process_space().unwrap_or_default();
        let line = format!("cmd=process id={} space={space}", std::process::id());
        Ok(self.ask(&line, "process")?.word("rc")? == "0")
    }

    fn barrier(&mut self) -> Result<(), BootError> {
        self.ask("cmd=barrier_in", "barrier_out")?.check("barrier")
    }

    fn finalize(&mut self) -> Result<(), BootError> {
        self.ask("cmd=finalize", "finalize_ack").map(drop)
    }

    fn abort(&mut self, code: i32) -> Result<(), BootError> {
        self.say(&format!("cmd=abort exitcode={code}"))
    }
}

/// Among which processes the number of this one is known: the system's name for them.
pub fn process_space() -> Option<String> {
    let name = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(name.to_str()?.to_owned())
}

/// An answer's words.
#[derive(Debug)]
struct Answer {
    line: String,
    words: HashMap<String, String>,
}

impl Answer {
    fn parse(line: &str) -> Self {
        let words = line.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        let words = words.map(|(key, value)| (key.into(), value.into())).collect();
        Self { line: line.into(), words }
    }

    fn word(&self, key: &'static str) -> Result<&str, BootError> {
        let missing = || BootError::Answer { expected: key, line: self.line.clone() };
        self.words.get(key).map(String::as_str).ok_or_else(missing)
    }

    fn number(&self, key: &'static str) -> Result<u32, BootError> {
        let wrong = || BootError::Answer { expected: key, line: self.line.clone() };
        self.word(key)?.parse().map_err(|_| wrong())
    }

    fn check(&self, what: &'static str) -> Result<(), BootError> {
        match self.words.get("rc").map(String::as_str) {
            None | Some("0") => Ok(()),
            Some(_) => Err(BootError::Answer { expected: what, line: self.line.clone() }),
        }
    }
}

/// The longest line a server may send.
const LINE_MAX: u64 = 64 << 10;
