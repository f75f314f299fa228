//! What agents, and `mpiexec` above them, say to each other: messages of a kind, a rank and bytes.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::binding::Bound;

/// A message in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub kind: Kind,
    /// The rank it concerns; 0 where none is.
    pub rank: u32,
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// From the agent: it is there, and speaks this version. The same number in all versions.
    Hello = 9,
    /// To the agent: the [`Start`] of its ranks.
    Start = 16,
    /// To the agent: bytes for a rank's standard input, empty at its end; back: they were taken.
    Input,
    /// To the agent: a signal's number, for all ranks.
    Signal,
    /// To the agent: a line for a rank's PMI connection.
    PmiAnswer,
    /// To the agent: a line for the PMI connections of all ranks.
    PmiForAll,
    /// To the agent: what it may answer itself, as [`Given`](crate::pmi::Given).
    PmiGiven,
    /// From the agent: a line from a rank's PMI connection that it has answered.
    PmiNotice,
    /// From the agent: a piece of a rank's standard output.
    Output,
    /// From the agent: a piece of a rank's standard error.
    Error,
    /// From the agent: a line from a rank's PMI connection.
    PmiRequest,
    /// From the agent: a rank's [`Ended`].
    Exit,
    /// From the agent: one below it is [`Lost`].
    Lost,
    /// From the agent: a gateway [`Serving`].
    Serving,
    /// To the agent: for each site that has gateways, by what ranks find them; those that waited start.
    Gateways,
    /// To the agent: listen for those who show this token.
    Listen,
    /// From the agent: where it listens, or why not.
    Listening,
    /// To the agent: a [`Probe`](crate::discovery::Probe).
    Probe,
    /// From the agent: the round trip in microseconds, if there was one.
    Probed,
}

/// What an agent starts: ranks beside it, and agents below it with theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub size: u32,
    pub ranks: Vec<RankStart>,
    pub branches: Vec<Branch>,
    /// How long agents below may take to answer.
    pub patience_s: u64,
    /// The gateways beside it.
    pub gateways: Vec<GatewayStart>,
    /// The site whose gateways the ranks have to know before they start, if it has some.
    pub awaits: Option<String>,
}

/// A gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GatewayStart {
    /// Its place among those of the job.
    pub number: usize,
    /// What messages call it.
    pub name: String,
    /// Where it listens, each as on its command line.
    pub listen: Vec<String>,
    pub arguments: Vec<String>,
    pub pass: Pass,
}

/// A gateway that serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Serving {
    /// Its place among those of the job.
    pub number: usize,
    /// What it has got, for each of the places where it was to listen.
    pub addresses: Vec<SocketAddr>,
}

/// What proves to ranks that a gateway is of their job.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pass(pub String);

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass(…)")
    }
}

/// An agent on another host, or on this one in another's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Branch {
    /// What messages call it: the host, and its site where it has one.
    pub host: String,
    /// The command that starts it.
    pub command: Vec<String>,
    pub start: Start,
}

/// An agent that is gone, or never came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lost {
    /// The ranks that it had, or should have had, with those below it.
    pub ranks: Vec<u32>,
    /// A line that names the host and says why.
    pub text: String,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankStart {
    pub rank: u32,
    pub command: Vec<OsString>,
    /// Where a program without an absolute path is looked for first.
    pub binaries: Option<String>,
    pub directory: Option<String>,
    pub environment: Vec<(String, String)>,
    /// Whether the agent's own environment is passed on.
    pub inherit: bool,
    /// Where it is bound, if it is.
    pub bound: Option<Bound>,
}

/// A rank's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub how: Exit,
    /// Whether it was told to end, so that its end says nothing about why the job did.
    pub told: bool,
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    /// It could not be started: exit code and reason.
    NotStarted(i32, String),
}

impl Start {
    /// All ranks that this leads to.
    pub fn all_ranks(&self) -> Vec<u32> {
        let below = self.branches.iter().flat_map(|branch| branch.start.all_ranks());
        self.ranks.iter().map(|one| one.rank).chain(below).collect()
    }
}

impl Message {
    pub fn new(kind: Kind, rank: u32, body: impl Into<Vec<u8>>) -> Self {
        Self { kind, rank, body: body.into() }
    }

    /// Writes the message whole.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.body.len());
        bytes.push(self.kind as u8);
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend((self.body.len() as u32).to_le_bytes());
        bytes.extend(&self.body);
        to.write_all(&bytes)?;
        to.flush()
    }

    /// Reads the next message; none when the channel was closed between messages.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER_LEN];
        match from.read(&mut header[..1])? {
            0 => return Ok(None),
            _ => from.read_exact(&mut header[1..])?,
        }
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&header[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let strange = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let kind = Kind::of(header[0]).ok_or_else(|| strange("a message of an unknown kind"))?;
        let len = word(5) as usize;
        if len > BODY_MAX {
            return Err(strange("a message longer than any"));
        }
        let mut body = vec![0; len];
        from.read_exact(&mut body)?;
        Ok(Some(Self { kind, rank: word(1), body }))
    }
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Hello,
            Self::Start,
            Self::Input,
            Self::Signal,
            Self::PmiAnswer,
            Self::PmiForAll,
            Self::PmiGiven,
            Self::PmiNotice,
            Self::Output,
            Self::Error,
            Self::PmiRequest,
            Self::Exit,
            Self::Lost,
            Self::Serving,
            Self::Gateways,
            Self::Listen,
            Self::Listening,
            Self::Probe,
            Self::Probed,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

const HEADER_LEN: usize = 9;

/// The longest message: the start of some thousands of ranks with their environments.
pub(crate) const BODY_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in() {
        let sent = [Message::new(Kind::Output, 3, "text\n"), Message::new(Kind::Input, 0, "")];
        let mut bytes = Vec::new();
        for message in &sent {
            message.write(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        for message in sent {
            assert_eq!(Message::read(&mut rest).unwrap(), Some(message));
        }
        assert_eq!(Message::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(Message::read(&mut &[99u8, 0, 0, 0, 0, 0, 0, 0, 0][..]).is_err());
        assert!(Message::read(&mut &[16u8, 0, 0][..]).is_err());
        assert!(Message::read(&mut &[16u8, 0, 0, 0, 0, 255, 255, 255, 255][..]).is_err());
    }
}
