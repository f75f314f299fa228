//! Requests of ranks to start programs: PMI-1's `mcmd=spawn`, one for each program.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::host::RANKS_MAX;

/// Programs that a rank wants to be started together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SpawnRequest {
    pub programs: Vec<SpawnedProgram>,
    /// Values that the new ranks find.
    pub values: Vec<(String, String)>,
    /// Number of programs that it will have.
    total: u32,
}

/// One of the programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SpawnedProgram {
    pub ranks: u32,
    pub command: Vec<OsString>,
    info: Vec<(String, String)>,
}

impl SpawnRequest {
    /// Adds a part of the request, which names one program. Returns true if that was the last.
    ///
    /// # Errors
    /// Fails for a part that cannot be read, with one line.
    pub fn add(&mut self, part: &[u8]) -> Result<bool, String> {
        let lines = part.split(|byte| *byte == b'\n');
        let words: HashMap<&[u8], &[u8]> = lines.filter_map(split).collect();
        let word = |key: &str| words.get(key.as_bytes()).copied();
        let text = |key: &str| word(key).map(|value| String::from_utf8_lossy(value).into_owned());
        let needed = |key: &str| text(key).ok_or_else(|| format!("it has no {key}"));
        let number = |key: &str| {
            let text = needed(key)?;
            let number = text.trim().parse().ok().filter(|number| *number <= RANKS_MAX);
            number.ok_or_else(|| format!("{key}={text} is no number up to {RANKS_MAX}"))
        };
        let count = |key: &str| if word(key).is_some() { number(key) } else { Ok(0) };
        let pairs = |what: &str, first: &str, second: &str| {
            let pair = |at| {
                let key = needed(&format!("{what}_{first}_{at}"))?;
                Ok((key, needed(&format!("{what}_{second}_{at}"))?))
            };
            (0..count(&format!("{what}_num"))?).map(pair).collect::<Result<Vec<_>, String>>()
        };
        if needed("mcmd")? != "spawn" {
            return Err("it is no spawn".into());
        }
        let ranks = number("nprocs")?;
        let argument = |at| {
            let key = format!("arg{at}");
            word(&key).map(os).ok_or_else(|| format!("it has no {key}"))
        };
        let program = word("execname").filter(|name| !name.is_empty()).ok_or("no execname")?;
        let arguments = (1..=count("argcnt")?).map(argument);
        let command =
            std::iter::once(Ok(os(program))).chain(arguments).collect::<Result<_, _>>()?;
        let known: u32 = self.programs.iter().map(|program| program.ranks).sum();
        if known + ranks > RANKS_MAX {
            return Err(format!("more than {RANKS_MAX} ranks"));
        }
        self.programs.push(SpawnedProgram { ranks, command, info: pairs("info", "key", "val")? });
        if self.programs.len() == 1 {
            self.values = pairs("preput", "key", "val")?;
            self.total = count("totspawns")?;
        }
        Ok(self.programs.len() >= self.total as usize)
    }
}

impl SpawnedProgram {
    /// Returns the value of an info key.
    pub fn info(&self, key: &str) -> Option<&str> {
        self.info.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b'=')?;
    Some((&line[..at], &line[at + 1..]))
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &str = "mcmd=spawn\nnprocs=2\nexecname=./a b\ntotspawns=2\nspawnssofar=1\narg1=x = y\n\
        arg2=\nargcnt=2\npreput_num=1\npreput_key_0=PARENT\npreput_val_0=tag#0$port=7\ninfo_num=1\n\
        info_key_0=wdir\ninfo_val_0=/a b\nendcmd\n";

    #[test]
    fn programs_have_their_arguments_and_hints() {
        let mut request = SpawnRequest::default();
        assert_eq!(request.add(PART.as_bytes()), Ok(false));
        let more =
            "mcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=2\nspawnssofar=2\nargcnt=0\nendcmd\n";
        assert_eq!(request.add(more.as_bytes()), Ok(true));
        assert_eq!(request.values, [("PARENT".to_owned(), "tag#0$port=7".to_owned())]);
        let [first, second] = &request.programs[..] else { panic!("{request:?}") };
        assert_eq!(
            (first.ranks, &first.command[..]),
            (2, &["./a b".into(), "x = y".into(), "".into()][..])
        );
        assert_eq!((first.info("wdir"), first.info("host")), (Some("/a b"), None));
        assert_eq!((second.ranks, &second.command[..]), (1, &["b".into()][..]));
    }

    #[test]
    fn strange_requests_are_refused() {
        for (old, new, words) in [
            ("nprocs=2", "nprocs=x", "nprocs=x is no number"),
            ("nprocs=2", "nprocs=99999999", "is no number up to"),
            ("mcmd=spawn", "mcmd=spin", "no spawn"),
            ("argcnt=2", "argcnt=3", "arg3"),
            ("execname=./a b", "execname=", "execname"),
            ("info_num=1", "info_num=2", "info_key_1"),
            ("preput_num=1", "preput_num=4000000000", "is no number"),
        ] {
            let part = PART.replace(old, new);
            let refused = SpawnRequest::default().add(part.as_bytes()).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
