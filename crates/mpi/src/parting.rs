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

    /// Ends the connection with other jobs. True if there were some.
    pub(crate) fn part_jobs(&self) -> bool {
        let jobs = self.replace_other_jobs(Vec::new());
        if !jobs.is_empty() {
            self.process().part_from(&jobs);
        }
        !jobs.is_empty()
    }

    /// Waits until this process's messages are complete, and all have come so far. Afterwards a failure of one job does not
    /// end the others.
    ///
    /// # Errors
    /// A process of the communicator has failed.
    pub fn disconnect(&self) -> Result<()> {
        let context = self.context();
        self.progress().wait(|worker| (!worker.engine.has_pending_in(context)).then_some(()));
        let has_parted = self.part_jobs();
        // All have told the launcher once the first one leaves the barrier.
        collective::barrier(self)?;
        if has_parted {
            // One that leaves may end, and its job with it, while others still are in the first barrier. Nobody is when
            // the first one leaves the second. Whoever ends now, this process is through.
            let _ = collective::barrier(self);
        }
        Ok(())
    }
}
