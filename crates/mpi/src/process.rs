//! A process as MPI's objects see it: an instance of the runtime, and the state of MPI that belongs to the process.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use io::Pool;
use rma::Served;
use runtime::{Instance, Vci};

use crate::buffer::Place;
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
    watched: Watched,
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
            watched: Watched::default(),
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
    pub fn pool(&self) -> &Pool {
        &self.pool
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
