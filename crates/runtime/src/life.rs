//! The life of a process, which others on its host can watch without asking anybody.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process, told from others that had or will have its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessLife {
    /// Boot of the host, and its namespace of process numbers.
    pub host: String,
    pub process: u32,
    /// Time of its start, in ticks since the boot.
    pub began: u64,
}

impl ProcessLife {
    /// The life of this process.
    pub fn this() -> Self {
        let process = std::process::id();
        Self { host: host(), process, began: began(process).unwrap_or(0) }
    }

    /// True if the process was one of this host and has ended.
    pub fn has_ended(&self) -> bool {
        began(self.process) != Some(self.began) && self.host == host()
    }

    /// Encodes it as three words.
    pub fn emit(&self) -> String {
        let Self { host, process, began } = self;
        format!("{host} {process} {began}")
    }

    /// Decodes it; `None` if malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (host, process, began) = (words.next()?, words.next()?, words.next()?);
        let (process, began) = (process.parse().ok()?, began.parse().ok()?);
        words.next().is_none().then(|| Self { host: host.into(), process, began })
    }
}

/// Boot of this host, and the namespace of process numbers.
fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |facts| facts.ino());
    format!("{}/{namespace}", boot.trim())
}

/// Time at which a process has started, unless it has ended (`proc_pid_stat(5)`, fields 3 and 22).
fn began(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    // A zombie or dead process has ended, though nobody has asked how.
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_lives_until_it_ends() {
        let own = ProcessLife::this();
        assert!(!own.has_ended() && ProcessLife::parse(&own.emit()) == Some(own.clone()));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let life = ProcessLife {
            process: child.id(),
            began: began(child.id()).unwrap(),
            host: own.host.clone(),
        };
        assert!(!life.has_ended());
        assert!(ProcessLife { began: life.began - 1, ..life.clone() }.has_ended(), "another one");
        child.kill().unwrap();
        while !life.has_ended() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(life.has_ended());
        assert!(!ProcessLife { host: "elsewhere".into(), ..life }.has_ended());
        for wrong in ["", "a b c", "a 1", "a 1 2 3", "a -1 2"] {
            assert_eq!(ProcessLife::parse(wrong), None);
        }
    }
}
