//! The end of a job whose hosts Slurm takes back. Its agents and ranks end then, and are noticed before or after.

use std::time::{Duration, Instant};

use super::Run;
use crate::co_allocation::Unexplained;
use crate::tree;

impl Run {
    /// Tells why the job ends. If the ranks are on hosts of Slurm, waits until it is known that the job still has them.
    pub(super) fn explain(&mut self, ranks: &[u32], text: String) {
        let is_of_slurm = |rank: &u32| {
            let host = self.hosts.get(*rank as usize);
            let site = host.and_then(|host| tree::host_and_site(host).1);
            site.is_some_and(|site| self.allocation.has(site))
        };
        match ranks.iter().any(is_of_slurm) {
            true => self.unexplained = Some(Unexplained { text, due: Instant::now() + GRACE }),
            false => tell!("mpiexec: {text}"),
        }
    }

    /// Ends the job if the hosts of a site are gone, and tells what this does not explain.
    pub(super) fn check_allocation(&mut self) {
        if let Some(text) = self.allocation.poll_ended() {
            if self.unexplained.take().is_some() || !self.is_explained {
                tell!("mpiexec: {text}; ending the job");
                (self.code, self.is_explained) = (1, true);
            }
            self.end_all(1);
        }
        if self.unexplained.as_ref().is_some_and(|one| Instant::now() >= one.due) {
            self.tell_unexplained();
        }
    }

    /// Tells of a failure that nothing has explained.
    pub(super) fn tell_unexplained(&mut self) {
        if let Some(one) = self.unexplained.take() {
            tell!("mpiexec: {}", one.text);
        }
    }
}

/// Time in which the end of an allocation becomes known: Slurm is asked for its reason for a part of it.
const GRACE: Duration = Duration::from_secs(6);
