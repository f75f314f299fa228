//! The predefined communicators of a process.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use handles::Handle;

use crate::comm::{self, Comm};
use crate::process::Process;
use crate::thread_level::ThreadLevel;
use crate::{Result, contexts, file, point_to_point, request, spawn, window};

/// The World Model (MPI-5.0 §11.2): a process with its predefined communicators.
#[derive(Debug)]
pub struct WorldModel {
    process: Arc<Process>,
    world: Comm,
    myself: Comm,
    level: ThreadLevel,
    main_thread: ThreadId,
    /// The processes that have spawned this job.
    parent: OnceLock<Handle>,
}

impl WorldModel {
    /// Makes the predefined communicators of a process, in the thread that initialises MPI.
    pub fn new(process: &Arc<Process>, level: ThreadLevel) -> Self {
        let (world, myself) = (Comm::world(process), Comm::myself(process));
        contexts::set_world(Some(world.clone()));
        let (main_thread, parent) = (std::thread::current().id(), OnceLock::new());
        Self { process: Arc::clone(process), world, myself, level, main_thread, parent }
    }

    /// Frees the communicators of the World Model that the application has left, while sessions go on.
    pub fn drop_communicators(&self) {
        comm::free_where(|comm| comm.process().session().is_none());
    }

    /// The process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Level of thread support.
    pub fn level(&self) -> ThreadLevel {
        self.level
    }

    /// True if the calling thread initialised MPI.
    pub fn is_main_thread(&self) -> bool {
        std::thread::current().id() == self.main_thread
    }

    /// `MPI_COMM_WORLD`.
    #[inline]
    pub fn world(&self) -> &Comm {
        &self.world
    }

    /// Meets the processes that have spawned this job, if there are some (collective over the world).
    ///
    /// # Errors
    /// They cannot be reached.
    pub fn meet_parent(&self) -> Result<()> {
        if let Some(parent) = spawn::meet_parents(&self.world, &self.myself)? {
            self.parent.get_or_init(|| parent.handle());
        }
        Ok(())
    }

    /// Handle of the intercommunicator with the processes that have spawned this job. It may be stale.
    pub fn parent(&self) -> Option<Handle> {
        self.parent.get().copied()
    }

    /// `MPI_COMM_SELF`.
    pub fn myself(&self) -> &Comm {
        &self.myself
    }
}

/// Drops what an ended process has left: nothing of it can communicate any more. The handles are stale from then on,
/// and no later object gets one of them.
pub fn drop_objects() {
    request::clear();
    point_to_point::clear();
    window::clear();
    file::clear();
    comm::clear();
    contexts::set_world(None);
}

impl Deref for WorldModel {
    type Target = Process;

    #[inline]
    fn deref(&self) -> &Process {
        &self.process
    }
}
