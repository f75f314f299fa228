//! The PMI-1 client: lines of `key=value` words over a stream.
//!
//! The protocol is the one Hydra and Slurm serve: every command is one line that begins with
//! `cmd=`, every answer one line; values contain neither spaces nor newlines.

use std::io::{Read, Write};

use zeroize::Zeroizing;

use crate::environment::{NodePlace, node_place};
use crate::error::BootError;
use crate::launcher::{CONNECTED, DISCONNECTED, Launcher};
use crate::lines::Lines;
use crate::names::{NameAnswer, NameQuestion, unescaped};
use crate::spawn::SpawnRequest;

/// A connection to the launcher's PMI server.
pub(crate) struct Pmi<S> {
    lines: Lines<S>,
    kvs: String,
    /// The longest value the server takes.
    value_max: usize,
}

impl<S: Read + Write> Pmi<S> {
    /// Introduces this process; `id` where the server does not know who is calling. Returns rank
    /// and size where the server tells them.
    pub fn open(stream: S, id: Option<u32>) -> Result<(Self, Option<(u32, u32)>), BootError> {
        let mut pmi = Self { lines: Lines::new(stream), kvs: String::new(), value_max: 0 };
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
        self.lines.write(line).map_err(BootError::Launcher)
    }

    fn answer(&mut self, expected: &'static str) -> Result<Answer, BootError> {
        let answer = Answer(self.lines.read().map_err(BootError::Launcher)?);
        match answer.find("cmd") {
            Some(command) if command == expected => Ok(answer),
            _ => Err(answer.unexpected(expected)),
        }
    }

    /// A line `cmd=set name=value`.
    fn value_line(&mut self, name: &'static str) -> Result<u32, BootError> {
        let answer = self.answer("set")?;
        answer.number(name)
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
        let words = ["cmd=put kvsname=", &self.kvs, " key=", key, " value=", value];
        // The value may be the job's secret: the text must not grow.
        let mut line = Zeroizing::new(String::with_capacity(words.map(str::len).iter().sum()));
        words.into_iter().for_each(|word| line.push_str(word));
        let answer = self.ask(&line, "put_result")?;
        answer.check("put")
    }

    fn place(&mut self) -> Result<Option<NodePlace>, BootError> {
        Ok(node_place())
    }

    fn get(&mut self, _rank: u32, key: &str) -> Result<Option<Zeroizing<String>>, BootError> {
        self.get_served(key)
    }

    fn get_served(&mut self, key: &str) -> Result<Option<Zeroizing<String>>, BootError> {
        let line = format!("cmd=get kvsname={} key={key}", self.kvs);
        let answer = self.ask(&line, "get_result")?;
        if answer.word("rc")? != "0" {
            return Ok(None);
        }
        Ok(Some(Zeroizing::new(answer.word("value")?.to_owned())))
    }

    fn introduce(&mut self) -> Result<bool, BootError> {
        let space = process_space().unwrap_or_default();
        let line = format!("cmd=process id={} space={space}", std::process::id());
        Ok(self.ask(&line, "process")?.word("rc")? == "0")
    }

    fn spawn(&mut self, request: &SpawnRequest) -> Result<(), BootError> {
        self.lines.write_all(&request.lines()?).map_err(BootError::Launcher)?;
        match self.answer("spawn_result")?.word("rc")? {
            "0" => Ok(()),
            _ => Err(BootError::Spawn),
        }
    }

    fn tell_connection(
        &mut self,
        own: u64,
        other: u64,
        is_connected: bool,
    ) -> Result<(), BootError> {
        let command = if is_connected { CONNECTED } else { DISCONNECTED };
        let line = format!("cmd={command} from={own:x} job={other:x}");
        self.ask(&line, command)?.check(command)
    }

    fn ask_name(&mut self, question: NameQuestion<'_>) -> Result<NameAnswer, BootError> {
        let (line, expected) = question.line();
        let answer = self.ask(&line, expected)?;
        if answer.word("rc")? != "0" {
            return Ok(NameAnswer::Refused);
        }
        match question {
            NameQuestion::LookUp(_) => {
                let port = unescaped(answer.word("port")?);
                Ok(NameAnswer::Done(port.ok_or_else(|| answer.unexpected("port"))?))
            }
            NameQuestion::Publish(..) | NameQuestion::Withdraw(..) => {
                Ok(NameAnswer::Done(Zeroizing::default()))
            }
        }
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

/// A line of words `key=value`.
struct Answer(Zeroizing<String>);

impl Answer {
    fn find(&self, key: &str) -> Option<&str> {
        let words = self.0.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        words.rev().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    fn word(&self, key: &'static str) -> Result<&str, BootError> {
        self.find(key).ok_or_else(|| self.unexpected(key))
    }

    fn number(&self, key: &'static str) -> Result<u32, BootError> {
        self.word(key)?.parse().map_err(|_| self.unexpected(key))
    }

    fn check(&self, what: &'static str) -> Result<(), BootError> {
        match self.find("rc") {
            None | Some("0") => Ok(()),
            Some(_) => Err(self.unexpected(what)),
        }
    }

    /// Returns the error for this answer, which shows no value: it may be the job's secret.
    fn unexpected(&self, expected: &'static str) -> BootError {
        let shown = self.0.split(' ').map(|word| match word.split_once('=') {
            Some(("value", _)) => "value=…",
            Some(("port", _)) => "port=…",
            _ => word,
        });
        BootError::Answer { expected, line: shown.collect::<Vec<_>>().join(" ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_by_word_and_shown_without_values() {
        let answer = Answer(Zeroizing::new("cmd=get_result rc=x value=a=b".to_owned()));
        assert_eq!((answer.find("value"), answer.find("alu")), (Some("a=b"), None));
        let shown = answer.check("get").unwrap_err().to_string();
        assert!(shown.contains("`cmd=get_result rc=x value=…`"), "{shown}");
    }
}
