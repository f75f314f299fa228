//! Connections with other jobs: a communicator is one until it is freed (MPI-5.0 §11.10.4).

use crate::Result;
use crate::collective;
use crate::comm::Comm;

impl Comm {
    /// Notes that the communicator connects this process with other jobs, if members are of others.
    pub(crate) fn join_jobs(&self) {
        let members = self.group().iter();
        let jobs = match self.remote_group() {
            Some(remote) => self.process().connect_with(members.chain(remote.iter())),
            None => self.process().connect_with(members),
        };
        self.replace_other_jobs(jobs);
    }

    /// Ends the connection with other jobs.
    pub(crate) fn part_jobs(&self) {
        let jobs = self.replace_other_jobs(Vec::new());
        if !jobs.is_empty() {
            self.process().part_from(&jobs);
        }
    }

    /// Waits until this process's messages are complete, and all have come so far. Afterwards a failure of one job does not
    /// end the others.
    ///
    /// # Errors
    /// A process of the communicator has failed.
    pub fn disconnect(&self) -> Result<()> {
        let context = self.context();
        self.progress().wait(|worker| (!worker.engine.has_pending_in(context)).then_some(()));
        // All have told the launcher once the first one leaves the barrier.
        self.part_jobs();
        collective::barrier(self)
    }
}
