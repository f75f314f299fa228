//! A process as MPI's objects see it: an instance of the runtime, and the state of MPI that belongs to the process.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use handles::Handle;
use io::Pool;
use partitioned::Channels;
use rma::Served;
use runtime::{Instance, Port, VCIS_MAX, Vci};
use zeroize::Zeroizing;

use crate::Result;
use crate::buffer::Place;
use crate::file::serving::FileServers;
use crate::open_ports::{OpenPorts, not_met};
use crate::watched::Watched;

/// This process in its job, as the communicators of the World Model or of one session see it.
pub struct Process {
    instance: Arc<Instance>,
    /// The session, and its buffer for buffered sends; none in the World Model.
    session: Option<(Handle, Place)>,
    shared: Arc<Common>,
}

/// State that the World Model and all sessions share.
#[derive(Default)]
struct Common {
    buffer: Place,
    /// Windows that peers access, from the first one on.
    served: OnceLock<Arc<Served>>,
    /// Threads for operations on files.
    pool: Pool,
    /// Files that this process accesses for others, from the first one on.
    file_servers: OnceLock<Arc<FileServers>>,
    watched: Watched,
    ports: OpenPorts,
    /// Partitioned messages of each VCI, from the first one on.
    channels: [OnceLock<Channels>; VCIS_MAX],
}

impl Process {
    /// Begins to use an instance.
    pub fn new(instance: Arc<Instance>) -> Self {
        Self { instance, session: None, shared: Arc::default() }
    }

    /// The same process for a session, which may have a buffer of its own for buffered sends.
    pub(crate) fn in_session(&self, session: Handle, buffer: &Place) -> Self {
        let (instance, shared) = (Arc::clone(&self.instance), Arc::clone(&self.shared));
        Self { instance, session: Some((session, buffer.clone())), shared }
    }

    /// The instance.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// The session; none in the World Model.
    pub fn session(&self) -> Option<Handle> {
        self.session.as_ref().map(|(session, _)| *session)
    }

    /// Place of the buffer for buffered sends of the whole process.
    pub fn buffer(&self) -> &Place {
        &self.shared.buffer
    }

    /// Place of the buffer for a buffered send on a communicator that has none of its own: the session's if it has one, or that of
    /// the whole process (MPI-5.0 §3.6).
    pub(crate) fn buffer_of_send(&self) -> &Place {
        let of_session = self.session.as_ref().map(|(_, buffer)| buffer);
        of_session.filter(|buffer| buffer.is_attached()).unwrap_or(&self.shared.buffer)
    }

    /// Threads for operations on files.
    pub(crate) fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// The files that this process accesses for others. The first VCI carries their messages.
    pub(crate) fn file_servers(&self) -> &Arc<FileServers> {
        self.shared.file_servers.get_or_init(|| FileServers::new(self.instance.vci(Vci::FIRST)))
    }

    /// Opens a port, and returns its name.
    ///
    /// # Errors
    /// This process has no network, or the system lacks a resource.
    pub fn open_port(&self) -> Result<Zeroizing<String>> {
        let port = Port::open(self).map_err(|error| not_met(&error))?;
        Ok(self.shared.ports.add(port))
    }

    /// The open ports of this process, and the names that it has published.
    pub fn ports(&self) -> &OpenPorts {
        &self.shared.ports
    }

    /// Ends the threads for operations on files.
    pub fn end_file_threads(&self) {
        self.shared.pool.end();
        if let Some(servers) = self.shared.file_servers.get() {
            servers.end();
        }
    }

    /// Arrays of requests that calls name repeatedly.
    pub(crate) fn watched(&self) -> &Watched {
        &self.shared.watched
    }

    /// The partitioned messages of a VCI.
    pub(crate) fn channels(&self, vci: Vci) -> &Channels {
        let channels = &self.shared.channels[vci.number()];
        channels.get_or_init(|| Channels::new(self.instance.vci(vci)))
    }

    /// The windows of this process that peers access. The first VCI carries their messages.
    pub(crate) fn served(&self) -> &Arc<Served> {
        self.shared.served.get_or_init(|| Served::new(self.instance.vci(Vci::FIRST)))
    }
}

impl Deref for Process {
    type Target = Instance;

    #[inline]
    fn deref(&self) -> &Instance {
        &self.instance
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("rank", &self.rank()).finish_non_exhaustive()
    }
}
