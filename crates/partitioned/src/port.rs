//! Ways to the engine: for a thread without the worker's lock, and for a task with it.

use engine::{Envelope, HandlerId, OpId, SendMode, Short, Wanted};
use memory::Region;
use progress::{Progress, Worker};
use wire::PeerId;

/// Submits what a sender sends. An operation is returned unless it is complete.
pub(crate) trait Port {
    /// Sends short partitions.
    fn call(&mut self, peer: PeerId, arguments: [u64; 3], data: &Region) -> Option<OpId>;

    /// Sends a long partition.
    fn send(&mut self, peer: PeerId, envelope: Envelope, data: &Region, note: u64) -> Option<OpId>;

    /// Lets waiting threads look again.
    fn tell(&mut self);
}

impl Port for &Progress {
    fn call(&mut self, peer: PeerId, arguments: [u64; 3], data: &Region) -> Option<OpId> {
        if self.access_short(peer, Short::Call(HANDLER, arguments), data) {
            return None;
        }
        Some(self.submit(|worker| {
            worker.engine.submit_call(peer, HANDLER, arguments, data, Wanted::Nothing)
        }))
    }

    fn send(&mut self, peer: PeerId, envelope: Envelope, data: &Region, note: u64) -> Option<OpId> {
        self.begin_send(peer, envelope, data, SendMode::Standard, note)
    }

    fn tell(&mut self) {
        self.submit(|worker| worker.engine.submit_event());
    }
}

impl Port for &mut Worker {
    fn call(&mut self, peer: PeerId, arguments: [u64; 3], data: &Region) -> Option<OpId> {
        Some(self.engine.submit_call(peer, HANDLER, arguments, data, Wanted::Nothing))
    }

    fn send(&mut self, peer: PeerId, envelope: Envelope, data: &Region, note: u64) -> Option<OpId> {
        let op = self.engine.submit_send(peer, envelope, data, SendMode::Standard);
        self.engine.note(op, note);
        Some(op)
    }

    fn tell(&mut self) {
        self.engine.submit_event();
    }
}

/// Number of the handler of short partitions; those of windows have lower ones, and that of files is 64.
pub(crate) const HANDLER: HandlerId = HandlerId(65);
