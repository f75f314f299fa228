//! The predefined communicators of a process.

use std::ops::Deref;
use std::sync::Arc;

use crate::comm::{self, Comm};
use crate::process::Process;
use crate::{file, point_to_point, request, window};

/// The World Model (MPI-5.0 §11.2): a process with its predefined communicators.
#[derive(Debug)]
pub struct WorldModel {
    process: Arc<Process>,
    world: Comm,
    myself: Comm,
}

impl WorldModel {
    /// Makes the predefined communicators of a process.
    pub fn new(process: Process) -> Self {
        let process = Arc::new(process);
        Self { world: Comm::world(&process), myself: Comm::myself(&process), process }
    }

    /// Drops what an ended process has left: nothing of it can communicate any more. The handles are stale from then on,
    /// and no later object gets one of them.
    pub fn drop_objects(&self) {
        request::clear();
        point_to_point::clear();
        window::clear();
        file::clear();
        comm::clear();
    }

    /// The process.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// `MPI_COMM_WORLD`.
    #[inline]
    pub fn world(&self) -> &Comm {
        &self.world
    }

    /// `MPI_COMM_SELF`.
    pub fn myself(&self) -> &Comm {
        &self.myself
    }
}

impl Deref for WorldModel {
    type Target = Process;

    #[inline]
    fn deref(&self) -> &Process {
        &self.process
    }
}
