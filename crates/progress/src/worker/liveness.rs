//! Liveness checks of awaited peers: which of them are asked after is decided by [`connect::LivenessState`].

use std::time::Instant;

use connect::{Fault, Purpose};
use wire::PeerId;

use super::Worker;

impl Worker {
    /// Checks the awaited peers if it is time; `probed` are those awaited by the calling thread.
    #[cold]
    pub(super) fn seek(&mut self, probed: &[PeerId]) {
        let now = Instant::now().duration_since(self.began);
        let waits = self.engine.has_pending() || !probed.is_empty() || !self.waiters.is_empty();
        if !waits || !self.liveness.is_due(now) {
            return;
        }
        let Self { engine, directory, waiters, liveness, .. } = self;
        let probed = probed.iter().copied().chain(waiters.probed()).map(|peer| (peer, false));
        let named = engine.awaited().into_iter();
        let named = named.map(|(peer, context)| (peer, directory.expects_soon(context)));
        let unknown = named.chain(probed).filter(|(peer, _)| engine.is_untried(*peer));
        for peer in liveness.look(now, unknown) {
            if self.directory.has_ended(peer) {
                self.fail(peer, &Fault::Unreachable("its process has ended".into()));
            } else if self.liveness.note_call(peer) {
                self.open(peer, Purpose::Awaited);
            }
        }
    }
}
