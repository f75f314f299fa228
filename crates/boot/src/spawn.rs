//! Start of further programs by a process of the job (PMI-1's `mcmd=spawn`).

use zeroize::Zeroizing;

use crate::error::BootError;

/// Programs to start together, as a job of their own.
#[derive(Debug, Default)]
pub struct SpawnRequest {
    /// The programs, in the order of ranks.
    pub programs: Vec<SpawnProgram>,
    /// Values that their processes get by [`Job::given`](crate::Job::given). They may be secrets.
    pub values: Vec<(&'static str, Zeroizing<String>)>,
}

/// Key of the name of the port at which the spawning processes wait for those that they have started.
pub const PARENT_KEY: &str = "canele-parent";

/// One program.
#[derive(Debug, Default)]
pub struct SpawnProgram {
    /// Number of its processes.
    pub ranks: u32,
    /// The program and its arguments.
    pub command: Vec<Vec<u8>>,
    /// Hints about its start, by their keys.
    pub info: Vec<(String, String)>,
}

impl SpawnRequest {
    /// Returns the request as lines.
    ///
    /// # Errors
    /// Some text has a line end, which the protocol cannot transmit.
    pub(crate) fn lines(&self) -> Result<Zeroizing<Vec<u8>>, BootError> {
        let mut lines = EmittedLines(Zeroizing::new(Vec::with_capacity(self.len())));
        for (number, program) in self.programs.iter().enumerate() {
            lines.add("mcmd", b"spawn")?;
            lines.number("nprocs", program.ranks as usize)?;
            lines.add("execname", &program.command[0])?;
            lines.number("totspawns", self.programs.len())?;
            lines.number("spawnssofar", number + 1)?;
            let arguments = &program.command[1..];
            for (number, argument) in arguments.iter().enumerate() {
                lines.add(&format!("arg{}", number + 1), argument)?;
            }
            lines.number("argcnt", arguments.len())?;
            lines.number("preput_num", self.values.len())?;
            for (number, (key, value)) in self.values.iter().enumerate() {
                lines.add(&format!("preput_key_{number}"), key.as_bytes())?;
                lines.add(&format!("preput_val_{number}"), value.as_bytes())?;
            }
            lines.number("info_num", program.info.len())?;
            for (number, (key, value)) in program.info.iter().enumerate() {
                lines.add(&format!("info_key_{number}"), key.as_bytes())?;
                lines.add(&format!("info_val_{number}"), value.as_bytes())?;
            }
            lines.0.extend(b"endcmd\n");
        }
        Ok(lines.0)
    }

    /// Room for all lines: a secret must not stay behind in memory that became too small.
    fn len(&self) -> usize {
        let values: usize = self.values.iter().map(|(key, value)| key.len() + value.len()).sum();
        let program = |program: &SpawnProgram| {
            let words: usize = program.command.iter().map(Vec::len).sum();
            let info: usize = program.info.iter().map(|(key, value)| key.len() + value.len()).sum();
            let count = program.command.len() + 2 * (program.info.len() + self.values.len()) + 9;
            words + info + values + count * KEY_MAX
        };
        self.programs.iter().map(program).sum()
    }
}

struct EmittedLines(Zeroizing<Vec<u8>>);

impl EmittedLines {
    fn add(&mut self, key: &str, value: &[u8]) -> Result<(), BootError> {
        if value.contains(&b'\n') || value.contains(&0) {
            // Of the values, a secret has none.
            let value = String::from_utf8_lossy(value).into_owned();
            return Err(BootError::SpawnText { value });
        }
        for part in [key.as_bytes(), b"=", value, b"\n"] {
            self.0.extend(part);
        }
        Ok(())
    }

    fn number(&mut self, key: &str, number: usize) -> Result<(), BootError> {
        self.add(key, number.to_string().as_bytes())
    }
}

/// Room for the longest key of a line, its equals sign and line end, and a number.
const KEY_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_lines_of_pmi() {
        let program = |ranks, words: &[&str]| SpawnProgram {
            ranks,
            command: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            info: vec![("wdir".into(), "/a b".into())],
        };
        let values = vec![("key", Zeroizing::new("secret".to_owned()))];
        let request = SpawnRequest {
            programs: vec![program(2, &["./a", "x y"]), program(1, &["b"])],
            values,
        };
        let lines = request.lines().unwrap();
        let text = std::str::from_utf8(&lines).unwrap();
        let first = "mcmd=spawn\nnprocs=2\nexecname=./a\ntotspawns=2\nspawnssofar=1\narg1=x y\nargcnt=1\n\
            preput_num=1\npreput_key_0=key\npreput_val_0=secret\ninfo_num=1\ninfo_key_0=wdir\n\
            info_val_0=/a b\nendcmd\n";
        let second = text.strip_prefix(first).expect(text);
        assert!(second.starts_with(
            "mcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=2\nspawnssofar=2\nargcnt=0\n"
        ));
        assert!(lines.len() <= request.len(), "the memory has not grown");
        let strange =
            SpawnRequest { programs: vec![program(1, &["a", "x\ny"])], values: Vec::new() };
        assert!(strange.lines().unwrap_err().to_string().contains("line end"));
    }
}
