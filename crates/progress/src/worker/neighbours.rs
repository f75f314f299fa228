//! The processes of this node: which cores they use, and who sleeps.

use rail::{Affinities, Neighbours};
use wire::PeerId;

use super::{PolledRail, Worker};
use crate::parker::Parker;

impl Worker {
    /// Wakes a sleeping process of this node.
    pub fn wake(&mut self, peer: PeerId) {
        let Self { rails, near, directory, .. } = self;
        let Some(PolledRail { rail, name, .. }) = near.and_then(|at| rails.get_mut(at)) else {
            return;
        };
        if let Some(neighbours) = rail.neighbours() {
            neighbours.wake(peer, &mut || {
                let addresses = directory.addresses(peer).ok()?;
                addresses.into_iter().find(|(own, _)| own == name).map(|(_, address)| address)
            });
        }
    }

    /// Returns what is known of the processes on this node, if a rail connects them.
    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        self.rails.get_mut(self.near?)?.rail.neighbours()
    }

    /// Tells peers if a thread of this process stays in the library until its sends are done.
    pub(crate) fn set_attentive(&mut self, attentive: bool) {
        if let Some(neighbours) = self.neighbours() {
            neighbours.set_attentive(attentive);
        }
    }

    /// True if this thread's CPU core is shared with a peer that may have something to send.
    pub(crate) fn shares_core(&mut self) -> bool {
        self.neighbours().is_some_and(Neighbours::shares_core)
    }

    /// Moves a sleeping thread that takes over from the caller to the caller's CPU core. This is done if the thread
    /// would otherwise wake on the core of a peer that may have something to send.
    pub(crate) fn keep_apart(&mut self, next: &Parker, here: u32) {
        let Some(neighbours) = self.neighbours() else { return };
        let has_neighbour = |core| neighbours.has_neighbour_on(core);
        if next.core() != here && has_neighbour(next.core()) && !has_neighbour(here) {
            // If the system refuses, the thread wakes where it was.
            let _ = next.move_to(here);
        }
    }

    /// Publishes this process's CPU cores to its neighbours and collects theirs.
    pub(crate) fn compare_cores(&mut self, own: u64) -> Affinities {
        self.neighbours().map(|neighbours| neighbours.compare_cores(own)).unwrap_or_default()
    }
}
