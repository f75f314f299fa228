//! Messages between `mpiexec` and agents: a kind, a rank and bytes.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use boot::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::binding::CoreBinding;
use crate::host_status::StatusRequest;
use crate::slurm_holder::AllocationRequest;

/// A message in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub kind: MessageKind,
    /// The process it concerns, or the first process of a world; 0 if none. The ranks of the job's first world are its
    /// first processes, and those of each world that they spawn follow.
    pub rank: u32,
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MessageKind {
    /// From the agent: it runs, and speaks this version. The number is the same in all versions.
    Hello = 9,
    /// To the agent: the secret of a world, before its [`Start`].
    Secret = 15,
    /// To the agent: the [`Start`] of its ranks.
    Start,
    /// To the agent: bytes for a rank's standard input, empty at its end. From the agent: they were taken.
    Input,
    /// To the agent: a signal's number, for all ranks of a world, or of [`ALL_WORLDS`].
    Signal,
    /// To the agent: a line for a rank's PMI connection.
    PmiAnswer,
    /// To the agent: a line for the PMI connections of all ranks of a world.
    PmiForAll,
    /// To the agent: values of a world that it may answer itself, as [`SharedValues`](crate::pmi::SharedValues).
    PmiShared,
    /// From the agent: a line from a rank's PMI connection that it has answered.
    PmiNotice,
    /// From the agent: a piece of a rank's standard output.
    Output,
    /// From the agent: a piece of a rank's standard error.
    Error,
    /// From the agent: a line from a rank's PMI connection, or the lines of one request.
    PmiRequest,
    /// From the agent: a rank's [`Ended`].
    Exit,
    /// From the agent: one of its child agents is [`Lost`].
    Lost,
    /// From the agent: a gateway [`Serving`].
    Serving,
    /// To the agent: the setting for the gateways of each site; ranks of a world that waited for it start.
    Gateways,
    /// To the agent: listen for agents that present this token.
    Listen,
    /// From the agent: its addresses, or why it cannot listen.
    Listening,
    /// To the agent: a [`Probe`](crate::discovery::Probe).
    Probe,
    /// From the agent: the round trip in microseconds, if there was one.
    Probed,
    /// From the agent: a piece of the recording of a rank that has ended, empty at its end.
    Trace,
    /// From the agent: the same of its profile.
    Profile,
    /// To the agent of a rank: read the clock. From the agent: a [`ClockReading`](crate::trace::ClockReading).
    Clock,
    /// From the agent: the processors that a rank may use, as text.
    Bound,
    /// To the agent: ask the ranks for their reports; the body is the request. From the agent: a rank's
    /// [`RankState`](crate::reports::RankState).
    Report,
    /// To the agent: a signal's number, for the ranks that handle or ignore it.
    SignalTaken,
    /// From the agent: the [`HostState`](crate::host_status::HostState) of the host with this number.
    HostState,
    /// From the agent: an [`AllocationEvent`](crate::slurm_holder::AllocationEvent).
    Allocation,
    /// From the agent: a spawned process was started.
    Started,
    /// To the agent: all ranks of a world have ended.
    WorldEnded,
}

/// The processes that an agent starts: its node's ranks, gateways and child agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// First process of the world.
    pub first: u32,
    /// Number of ranks of the world.
    pub size: u32,
    /// True if the world was spawned by ranks that wait for its start.
    pub is_spawned: bool,
    pub ranks: Vec<RankStart>,
    pub branches: Vec<Branch>,
    /// Time within which child agents must answer.
    pub patience_s: u64,
    /// Gateways on its host.
    pub gateways: Vec<GatewayStart>,
    /// Site whose gateways the ranks must know before they start, if it has some.
    pub awaits: Option<String>,
    /// Room for the recording of each rank in bytes, if the job is traced.
    pub trace_bytes: Option<u64>,
    /// True if the calls of each rank are counted.
    pub has_profile: bool,
    /// Request for the state of its host, in the place of ranks.
    pub status: Option<StatusRequest>,
    /// Request for hosts of the Slurm there, in the place of ranks.
    pub allocation: Option<AllocationRequest>,
}

/// A gateway to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GatewayStart {
    /// Index among the job's gateways.
    pub number: usize,
    /// Name in messages.
    pub name: String,
    /// Listen addresses, each as on its command line.
    pub listen: Vec<String>,
    pub arguments: Vec<String>,
    /// Number of the job.
    pub job: u64,
}

/// A gateway that serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Serving {
    /// Index among the job's gateways.
    pub number: usize,
    /// Actual address for each listen address.
    pub addresses: Vec<SocketAddr>,
}

/// An agent to start, on another host or on this one in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Branch {
    /// Name in messages: the host, with its site if it has one.
    pub host: String,
    /// Command that starts it.
    pub command: Vec<String>,
    pub start: Start,
}

/// An agent that was lost or never answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lost {
    /// Its ranks, with those of its child agents.
    pub ranks: Vec<u32>,
    /// A line that names the host and the reason.
    pub text: String,
}

/// A rank to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankStart {
    /// Number of the process: its rank behind the first process of its world.
    pub rank: u32,
    pub command: Vec<OsString>,
    /// Directories where a program without an absolute path is looked for first.
    pub binaries: Vec<String>,
    pub directory: Option<String>,
    pub environment: Vec<(String, String)>,
    /// True if the agent's own environment is passed on.
    pub inherit: bool,
    /// Variables of the agent's environment that are not.
    pub without: Vec<String>,
    /// True if the rank gets standard input.
    pub has_input: bool,
    /// Binding, if the rank is bound.
    pub bound: Option<CoreBinding>,
    /// True if the agent reports its processors.
    pub reports_binding: bool,
}

/// A rank's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub exit: Exit,
    /// True if it was signalled to end, so its end does not explain the job's.
    pub was_signalled: bool,
    /// Reason of its exit code, if the agent knows it.
    pub reason: Option<String>,
}

/// Ways in which a rank ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Exit {
    Code(i32),
    Signal {
        signal: i32,
        /// Id of the process on its host; 0 if it was not started.
        process: u32,
    },
    /// Not started: exit code and reason.
    NotStarted(i32, String),
}

impl Start {
    /// Returns all ranks that are started here and by child agents, or the numbers of the hosts whose state is requested.
    pub fn all_ranks(&self) -> Vec<u32> {
        let children = self.branches.iter().flat_map(|branch| branch.start.all_ranks());
        let own = self.ranks.iter().map(|one| one.rank);
        own.chain(self.status.iter().map(|one| one.number)).chain(children).collect()
    }
}

impl Message {
    pub fn new(kind: MessageKind, rank: u32, body: impl Into<Vec<u8>>) -> Self {
        Self { kind, rank, body: body.into() }
    }

    /// Writes the message.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.body.len());
        bytes.extend(header(self.kind, self.rank, self.body.len()));
        bytes.extend(&self.body);
        to.write_all(&bytes)?;
        to.flush()
    }

    /// Reads the next message. None if the channel was closed between messages.
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
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let kind =
            MessageKind::of(header[0]).ok_or_else(|| invalid("a message of an unknown kind"))?;
        let len = word(5) as usize;
        if len > BODY_MAX {
            return Err(invalid("a message longer than any"));
        }
        let mut body = vec![0; len];
        from.read_exact(&mut body)?;
        Ok(Some(Self { kind, rank: word(1), body }))
    }
}

/// Writes the message with the secret of a world to an agent. Its bytes are in no queue, and are wiped.
pub(crate) fn write_secret(first: u32, secret: &Secret, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = Zeroizing::new([0; HEADER_LEN + Secret::LEN]);
    bytes[..HEADER_LEN].copy_from_slice(&header(MessageKind::Secret, first, Secret::LEN));
    bytes[HEADER_LEN..].copy_from_slice(secret.expose());
    to.write_all(&bytes[..])?;
    to.flush()
}

/// Returns the secret that a message brought, whose bytes are wiped.
pub(crate) fn secret_in(body: Vec<u8>) -> Option<Secret> {
    let body = Zeroizing::new(body);
    let bytes: &[u8; Secret::LEN] = body.as_slice().try_into().ok()?;
    Some(Secret::made(|key| key.copy_from_slice(bytes)))
}

fn header(kind: MessageKind, rank: u32, len: usize) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[0] = kind as u8;
    header[1..5].copy_from_slice(&rank.to_le_bytes());
    header[5..].copy_from_slice(&(len as u32).to_le_bytes());
    header
}

impl MessageKind {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Hello,
            Self::Secret,
            Self::Start,
            Self::Input,
            Self::Signal,
            Self::PmiAnswer,
            Self::PmiForAll,
            Self::PmiShared,
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
            Self::Trace,
            Self::Profile,
            Self::Clock,
            Self::Bound,
            Self::Report,
            Self::SignalTaken,
            Self::HostState,
            Self::Allocation,
            Self::Started,
            Self::WorldEnded,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

const HEADER_LEN: usize = 9;

/// Stands for all worlds where a message names one.
pub(crate) const ALL_WORLDS: u32 = u32::MAX;

/// Longest message: the start of some thousands of ranks with their environments.
pub(crate) const BODY_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written() {
        let sent = [
            Message::new(MessageKind::Output, 3, "text\n"),
            Message::new(MessageKind::Input, 0, ""),
        ];
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
    fn a_secret_is_read_as_written() {
        let mut bytes = Vec::new();
        write_secret(5, &[7; 32].into(), &mut bytes).unwrap();
        let message = Message::read(&mut &bytes[..]).unwrap().unwrap();
        assert_eq!((message.kind, message.rank), (MessageKind::Secret, 5));
        assert_eq!(secret_in(message.body).unwrap().expose(), &[7; 32]);
        assert!(secret_in(vec![7; 31]).is_none());
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(Message::read(&mut &[99u8, 0, 0, 0, 0, 0, 0, 0, 0][..]).is_err());
        assert!(Message::read(&mut &[16u8, 0, 0][..]).is_err());
        assert!(Message::read(&mut &[16u8, 0, 0, 0, 0, 255, 255, 255, 255][..]).is_err());
    }
}
