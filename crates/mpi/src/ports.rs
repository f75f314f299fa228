//! Jobs that meet: accept, connect and join (MPI-5.0 §11.9).
//!
//! The roots of the two groups meet over a connection of their own ([`runtime::MeetingChannel`]), each in a thread that may
//! block, while the waiting thread makes progress. What they exchange is said in the module `meeting`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use progress::Progress;
use runtime::{Caller, MeetingChannel, MeetingError, Port, PortName, beside};
use wire::PeerId;

use crate::comm::Comm;
use crate::open_ports::not_met;
use crate::root_channel::RootChannel;
use crate::{Error, Result};

impl Comm {
    /// Accepts a group that connects to a port (`MPI_Comm_accept`, collective): makes an intercommunicator of both. The
    /// root names the port, or why it has none, which all then return. It waits for `patience`, or without an end.
    ///
    /// # Errors
    /// `MPI_ERR_PORT` if the port is closed, or nobody comes in time.
    pub fn accept(
        &self,
        root: u32,
        port: Option<Result<Arc<Port>>>,
        patience: Option<Duration>,
    ) -> Result<Self> {
        let mut accepting = port.map(|port| {
            Ok(Accepting { progress: self.shared_progress(), port: port?, patience, met: None })
        });
        self.meet(root, accepting.as_mut().map(as_channel))
    }

    /// Connects to the group that accepts at a port (`MPI_Comm_connect`, collective): makes an intercommunicator of both.
    /// The root gives the name of the port, or why it has none, and waits for `patience` until it is accepted.
    ///
    /// # Errors
    /// `MPI_ERR_PORT` if the name is malformed, the port closed or not reached, or nobody accepts in time.
    pub fn connect_to(
        &self,
        root: u32,
        name: Option<Result<String>>,
        patience: Option<Duration>,
    ) -> Result<Self> {
        let prepare = |name: String| {
            let name = name.parse::<PortName>().map_err(failure)?;
            let caller = Caller::of(self.process()).map_err(failure)?;
            let patience = patience.unwrap_or(CONNECT_PATIENCE);
            Ok(Connecting { progress: self.shared_progress(), name, caller, patience, met: None })
        };
        let mut connecting = name.map(|name| name.and_then(prepare));
        self.meet(root, connecting.as_mut().map(as_channel))
    }

    /// Makes an intercommunicator of this process and the one at the other end of a socket (`MPI_Comm_join`); called on a
    /// communicator of one process.
    ///
    /// # Errors
    /// `MPI_ERR_PORT` if the other end is gone or no process that joins.
    pub fn join(&self, socket: OwnedFd) -> Result<Self> {
        let progress = self.shared_progress();
        let met = beside(&progress, move || MeetingChannel::on_socket(socket)).map_err(failure)?;
        self.meet(0, Some(Ok(&mut Met { progress, channel: Some(met), limit: None })))
    }

    fn shared_progress(&self) -> Arc<Progress> {
        Arc::clone(self.process().vci(self.vci()))
    }
}

fn as_channel<T: RootChannel>(channel: &mut Result<T>) -> Result<&mut dyn RootChannel> {
    channel.as_mut().map(|channel| channel as _).map_err(|error| error.clone())
}

/// A connection to the other root.
struct Met {
    progress: Arc<Progress>,
    /// None while a thread uses it, and once it has failed.
    channel: Option<MeetingChannel>,
    /// Time that the other root has for its next message.
    limit: Option<Duration>,
}

impl Met {
    fn exchange(&mut self, mine: &[u8]) -> Result<Vec<u8>, MeetingError> {
        let (mine, limit) = (mine.to_vec(), self.limit);
        let mut channel = self.channel.take().ok_or(MeetingError::Gone)?;
        let swap = move || channel.swap(&mine, limit).map(|theirs| (channel, theirs));
        let (channel, theirs) = beside(&self.progress, swap)?;
        self.channel = Some(channel);
        Ok(theirs)
    }
}

impl RootChannel for Met {
    fn leads_to(&self) -> Option<PeerId> {
        None
    }

    fn swap(&mut self, mine: &[u8], _room: usize) -> Result<Vec<u8>> {
        self.exchange(mine).map_err(failure)
    }
}

/// The channel of a root that accepts.
struct Accepting {
    progress: Arc<Progress>,
    port: Arc<Port>,
    patience: Option<Duration>,
    met: Option<Met>,
}

impl RootChannel for Accepting {
    fn leads_to(&self) -> Option<PeerId> {
        None
    }

    fn begin(&mut self, mine: &[u8], _room: usize) -> Result<Vec<u8>> {
        self.met = None;
        let (port, patience) = (Arc::clone(&self.port), self.patience);
        let caller = beside(&self.progress, move || port.await_caller(patience));
        let (progress, channel) = (Arc::clone(&self.progress), Some(caller.map_err(failure)?));
        // A caller waits for these.
        let met = self.met.insert(Met { progress, channel, limit: Some(ANSWER_PATIENCE) });
        met.exchange(mine).map_err(failure)
    }

    fn swap(&mut self, mine: &[u8], _room: usize) -> Result<Vec<u8>> {
        let met = self.met.as_mut().ok_or_else(|| failure(MeetingError::Gone))?;
        let theirs = met.exchange(mine).map_err(failure)?;
        // The members of the other group call when they like.
        met.limit = None;
        Ok(theirs)
    }

    fn has_begun(&self) -> bool {
        self.met.is_some()
    }
}

/// The channel of a root that connects.
struct Connecting {
    progress: Arc<Progress>,
    name: PortName,
    caller: Caller,
    patience: Duration,
    met: Option<Met>,
}

impl RootChannel for Connecting {
    fn leads_to(&self) -> Option<PeerId> {
        None
    }

    fn begin(&mut self, mine: &[u8], _room: usize) -> Result<Vec<u8>> {
        let deadline = Instant::now() + self.patience;
        let (name, caller) = (self.name.clone(), self.caller.clone());
        let connect = move || name.connect(&caller, deadline);
        let channel = Some(beside(&self.progress, connect).map_err(failure)?);
        let limit = Some(deadline.saturating_duration_since(Instant::now()));
        let met = self.met.insert(Met { progress: Arc::clone(&self.progress), channel, limit });
        let theirs = met.exchange(mine).map_err(|error| match error {
            MeetingError::Gone => MeetingError::Refused,
            MeetingError::Late => MeetingError::NotAccepted(self.patience.as_secs()),
            other => other,
        });
        met.limit = None;
        theirs.map_err(failure)
    }

    fn swap(&mut self, mine: &[u8], _room: usize) -> Result<Vec<u8>> {
        let met = self.met.as_mut().ok_or_else(|| failure(MeetingError::Gone))?;
        met.exchange(mine).map_err(failure)
    }
}

fn failure(error: MeetingError) -> Error {
    not_met(&error)
}

/// Time until a connection is accepted, if the user gives none; as long as in MPICH.
const CONNECT_PATIENCE: Duration = Duration::from_secs(180);
/// Time for the root of a caller to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
