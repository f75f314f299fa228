//! Liveness checks of awaited peers: which of them are asked after is decided by [`connect::LivenessState`].

use std::time::Instant;

use connect::{Fault, Purpose};
use wire::PeerId;

use super::Worker;

impl Worker {
    /// Checks the awaited peers if it is time; `probed` is the peer awaited by the calling thread.
    #[cold]
    pub(super) fn seek(&mut self, probed: Option<PeerId>) {
        let now = Instant::now().duration_since(self.began);
        let waits = self.engine.has_pending() || probed.is_some() || !self.waiters.is_empty();
        if !waits || !self.liveness.is_due(now) {
            return;
        }
        let Self { engine, directory, waiters, liveness, looked_after, .. } = self;
        let looked_after = looked_after.iter().flat_map(|peers| peers.iter().copied());
        let probed = probed.into_iter().chain(waiters.probed()).chain(looked_after);
        let probed = probed.map(|peer| (peer, false));
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
        self.ask_launcher();
    }

    /// Asks after peers whose links do not open, and after the members of communicators in which receives from any source
    /// wait. A link to each of these would be too much.
    fn ask_launcher(&mut self) {
        let Self { engine, directory, .. } = self;
        let contexts = engine.contexts_of_any_source().into_iter();
        let members = contexts.filter_map(|context| directory.members(context));
        // Each list begins with this process.
        let others = members.flat_map(|ring| ring.into_iter().skip(1));
        let untried = others.filter(|peer| engine.is_untried(*peer));
        let peers = untried.chain(engine.wanted_peers()).collect();
        for peer in self.liveness.look_in_turn(peers) {
            if self.directory.has_ended(peer) {
                self.fail(peer, &Fault::Unreachable("its process has ended".into()));
            }
        }
    }
}
