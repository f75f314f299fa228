//! A process as MPI's objects see it: an instance of the runtime, and the state of MPI that belongs to the process.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use io::Pool;
use rma::Served;
use runtime::{Instance, Port, Vci};
use zeroize::Zeroizing;

use crate::Result;
use crate::buffer::Place;
use crate::file::serving::FileServers;
use crate::open_ports::{OpenPorts, not_met};
use crate::watched::Watched;

/// Level of thread support (MPI-5.0 §11.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// The process has one thread.
    Single,
    /// Only the thread that initialised MPI calls it.
    Funneled,
    /// One thread calls at a time.
    Serialized,
    /// Any thread calls at any time.
    Multiple,
}

/// This process in its job: what all its communicators share.
pub struct Process {
    instance: Arc<Instance>,
    level: ThreadLevel,
    main_thread: ThreadId,
    buffer: Place,
    /// Windows that peers access, from the first one on.
    served: OnceLock<Arc<Served>>,
    /// Threads for operations on files.
    pool: Pool,
    /// Files that this process accesses for others, from the first one on.
    file_servers: OnceLock<Arc<FileServers>>,
    watched: Watched,
    ports: OpenPorts,
}

impl Process {
    /// Begins to use an instance, in the thread that initialises MPI.
    pub fn new(instance: Arc<Instance>, level: ThreadLevel) -> Self {
        Self {
            instance,
            level,
            main_thread: std::thread::current().id(),
            buffer: Place::default(),
            served: OnceLock::new(),
            pool: Pool::default(),
            file_servers: OnceLock::new(),
            watched: Watched::default(),
            ports: OpenPorts::default(),
        }
    }

    /// Level of thread support.
    pub fn level(&self) -> ThreadLevel {
        self.level
    }

    /// True if the calling thread initialised MPI.
    pub fn is_main_thread(&self) -> bool {
        std::thread::current().id() == self.main_thread
    }

    /// Place of the buffer for buffered sends on communicators that have none of their own.
    pub fn buffer(&self) -> &Place {
        &self.buffer
    }

    /// Threads for operations on files.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The files that this process accesses for others. The first VCI carries their messages.
    pub(crate) fn file_servers(&self) -> &Arc<FileServers> {
        self.file_servers.get_or_init(|| FileServers::new(self.instance.vci(Vci::FIRST)))
    }

    /// Opens a port, and returns its name.
    ///
    /// # Errors
    /// This process has no network, or the system lacks a resource.
    pub fn open_port(&self) -> Result<Zeroizing<String>> {
        let port = Port::open(self).map_err(|error| not_met(&error))?;
        Ok(self.ports.add(port))
    }

    /// The open ports of this process, and the names that it has published.
    pub fn ports(&self) -> &OpenPorts {
        &self.ports
    }

    /// Ends the threads for operations on files.
    pub fn end_file_threads(&self) {
        self.pool.end();
        if let Some(servers) = self.file_servers.get() {
            servers.end();
        }
    }

    /// Arrays of requests that calls name repeatedly.
    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    /// The windows of this process that peers access. The first VCI carries their messages.
    pub(crate) fn served(&self) -> &Arc<Served> {
        self.served.get_or_init(|| Served::new(self.instance.vci(Vci::FIRST)))
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
        f.debug_struct("Process").field("rank", &self.rank()).field("level", &self.level).finish()
    }
}
