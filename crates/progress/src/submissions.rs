//! What threads submit: at once, or left at the core's combining_lock for who has it.
//!
//! A thread that begins a send or a receive while another holds the worker leaves a record and goes. Who holds the worker submits
//! what was left before it gives it back, and reports what follows from it, as if the other had come just then: so
//! whoever holds the worker knows all operations that were begun before, and a thread's submissions stay in order. Where
//! all records are in use, the thread waits for the core.

use std::sync::atomic::Ordering;

use engine::{Envelope, OpId, Selector, SendMode};
use lock::{Combiner, CombiningGuard, Entered};
use memory::{Page, Region};
use wire::PeerId;

use crate::wait::Progress;
use crate::worker::Worker;

/// What a thread leaves that finds the core taken.
pub struct Record {
    /// What the operation is called that it asks for.
    op: OpId,
    wish: Wish,
    /// The bytes of a short message, whose sender is gone.
    copied: Page<COPIED_MAX>,
}

/// Memory that is named here is vouched for until the operation ends.
enum Wish {
    Nothing,
    Send { peer: PeerId, envelope: Envelope, data: Region, mode: SendMode, note: u64 },
    SendCopy { peer: PeerId, envelope: Envelope, len: usize },
    Receive { peer: Option<PeerId>, selector: Selector, into: Region, note: u64 },
}

impl Progress {
    /// Begins to send; none if the message is sent. The note is as in [`Engine::note`](engine::Engine::note).
    #[inline]
    pub fn begin_send(
        &self,
        peer: PeerId,
        envelope: Envelope,
        data: &Region,
        mode: SendMode,
        note: u64,
    ) -> Option<OpId> {
        let Some(worker) = self.worker().take_at_once() else {
            return self.leave_send(peer, envelope, data, mode, note);
        };
        self.send_seated(worker, peer, envelope, data, mode, note)
    }

    #[inline]
    fn send_seated(
        &self,
        mut worker: CombiningGuard<'_, Worker>,
        peer: PeerId,
        envelope: Envelope,
        data: &Region,
        mode: SendMode,
        note: u64,
    ) -> Option<OpId> {
        if mode == SendMode::Standard && worker.send_short(peer, envelope, data) {
            self.leave_coalesced(worker);
            return None;
        }
        let submit = |worker: &mut Worker| {
            let op = worker.engine.submit_send(peer, envelope, data, mode);
            worker.engine.note(op, note);
            op
        };
        Some(self.submit_seated(worker, submit))
    }

    #[cold]
    #[inline(never)]
    fn leave_send(
        &self,
        peer: PeerId,
        envelope: Envelope,
        data: &Region,
        mode: SendMode,
        note: u64,
    ) -> Option<OpId> {
        let fill = |record: &mut Record| match mode == SendMode::Standard && self.may_copy(data) {
            true => {
                record.send_copy(peer, envelope, data);
                None
            }
            false => Some(record.send(peer, envelope, data, mode, note)),
        };
        match self.worker().leave(|| true, fill) {
            Entered::Left(op) => op,
            Entered::Locked(worker) => self.send_seated(worker, peer, envelope, data, mode, note),
        }
    }

    /// Begins to receive. The note is as in [`Engine::note`](engine::Engine::note).
    #[inline]
    pub fn begin_receive(
        &self,
        peer: Option<PeerId>,
        selector: Selector,
        into: &Region,
        note: u64,
    ) -> OpId {
        let Some(worker) = self.worker().take_at_once() else {
            return self.leave_receive(peer, selector, into, note);
        };
        self.receive_seated(worker, peer, selector, into, note)
    }

    #[inline]
    fn receive_seated(
        &self,
        worker: CombiningGuard<'_, Worker>,
        peer: Option<PeerId>,
        selector: Selector,
        into: &Region,
        note: u64,
    ) -> OpId {
        self.submit_seated(worker, |worker| {
            let op = worker.engine.submit_receive(peer, selector, into);
            worker.engine.note(op, note);
            op
        })
    }

    #[cold]
    #[inline(never)]
    fn leave_receive(
        &self,
        peer: Option<PeerId>,
        selector: Selector,
        into: &Region,
        note: u64,
    ) -> OpId {
        match self.worker().leave(|| true, |record| record.receive(peer, selector, into, note)) {
            Entered::Left(op) => op,
            Entered::Locked(worker) => self.receive_seated(worker, peer, selector, into, note),
        }
    }

    /// Sends a short message at once, or lays it beside others; see [`Worker::send_short`].
    #[inline]
    pub fn send_short(&self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let Some(worker) = self.worker().take_at_once() else {
            return self.leave_short(peer, envelope, data);
        };
        self.send_short_seated(worker, peer, envelope, data)
    }

    #[inline]
    fn send_short_seated(
        &self,
        mut worker: CombiningGuard<'_, Worker>,
        peer: PeerId,
        envelope: Envelope,
        data: &Region,
    ) -> bool {
        let sent = worker.send_short(peer, envelope, data);
        self.leave_coalesced(worker);
        sent
    }

    /// What is copied has been sent as far as its sender is concerned, as a standard send may be (MPI-5.0 §3.4): that its
    /// peer turns out to have failed is told by what waits for that one.
    #[cold]
    #[inline(never)]
    fn leave_short(&self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let fill = |record: &mut Record| record.send_copy(peer, envelope, data);
        match self.worker().leave(|| self.may_copy(data), fill) {
            Entered::Left(()) => true,
            Entered::Locked(worker) => self.send_short_seated(worker, peer, envelope, data),
        }
    }

    /// Whether a message may be copied: it is short, and no copy waits for its peer.
    fn may_copy(&self, data: &Region) -> bool {
        data.len() <= COPIED_MAX && !self.has_held_copies().load(Ordering::Relaxed)
    }

    #[inline]
    fn leave_coalesced(&self, mut worker: CombiningGuard<'_, Worker>) {
        if worker.has_loose_ends {
            self.hand_over(&mut worker);
        }
    }

    /// Submits what other threads have left.
    fn take_in<'a>(&self, worker: &mut Worker, records: impl Iterator<Item = &'a mut Record>) {
        let before = worker.engine.event_count();
        for record in records {
            worker.counters.left_to_others += 1;
            record.submit(worker);
        }
        worker.settle();
        worker.look_at_held_copies();
        self.report(worker, before);
        self.leave(worker);
    }
}

impl Combiner for Worker {
    type Record = Record;

    fn take_in<'a>(&mut self, records: impl Iterator<Item = &'a mut Record>) {
        // Whoever holds the worker has come by what it is a part of.
        if let Some(progress) = self.owner.upgrade() {
            progress.take_in(self, records);
        }
    }
}

impl Record {
    /// As many as there are to be, which is what a combining_lock has room for.
    pub fn all(worker: &mut Worker) -> Vec<Self> {
        let record =
            |_| Self { op: worker.engine.reserve(), wish: Wish::Nothing, copied: Page::default() };
        (0..RECORDS).map(record).collect()
    }

    fn send(
        &mut self,
        peer: PeerId,
        envelope: Envelope,
        data: &Region,
        mode: SendMode,
        note: u64,
    ) -> OpId {
        self.wish = Wish::Send { peer, envelope, data: data.clone(), mode, note };
        self.op
    }

    /// The message is sent as far as its sender is concerned.
    fn send_copy(&mut self, peer: PeerId, envelope: Envelope, data: &Region) {
        let len = data.len();
        let mut bytes = [0; COPIED_MAX];
        data.read(0, &mut bytes[..len]);
        self.copied.write(0, &bytes[..len]);
        self.wish = Wish::SendCopy { peer, envelope, len };
    }

    fn receive(
        &mut self,
        peer: Option<PeerId>,
        selector: Selector,
        into: &Region,
        note: u64,
    ) -> OpId {
        self.wish = Wish::Receive { peer, selector, into: into.clone(), note };
        self.op
    }

    fn submit(&mut self, worker: &mut Worker) {
        match std::mem::replace(&mut self.wish, Wish::Nothing) {
            Wish::Nothing => {}
            Wish::Send { peer, envelope, data, mode, note } => {
                worker.engine.submit_reserved_send(self.op, peer, envelope, data, mode);
                worker.engine.note(self.op, note);
                self.op = worker.engine.reserve();
            }
            Wish::SendCopy { peer, envelope, len } => {
                let data = self.copied.region().slice(0, len);
                if !worker.send_short(peer, envelope, &data) {
                    worker.hold_copy(peer, envelope, &data);
                }
            }
            Wish::Receive { peer, selector, into, note } => {
                worker.engine.submit_reserved_receive(self.op, peer, selector, into);
                worker.engine.note(self.op, note);
                self.op = worker.engine.reserve();
            }
        }
    }
}

impl Worker {
    /// Submits a message whose record is needed again before it has left. Until it has, no more are copied: so no more than
    /// there are records wait.
    #[cold]
    fn hold_copy(&mut self, peer: PeerId, envelope: Envelope, data: &Region) {
        let mut bytes = vec![0; data.len()];
        data.read(0, &mut bytes);
        let copy = Region::from_box(bytes.into_boxed_slice());
        let op = self.engine.submit_send(peer, envelope, &copy, SendMode::Standard);
        self.held_copies.push(op);
        self.has_held_copies.store(true, Ordering::Relaxed);
    }

    /// Looks whether they have left, or never will.
    pub(crate) fn look_at_held_copies(&mut self) {
        let Self { held_copies, engine, has_held_copies, .. } = self;
        if !held_copies.is_empty() {
            held_copies.retain(|op| engine.take(*op).is_none());
            has_held_copies.store(!held_copies.is_empty(), Ordering::Relaxed);
        }
    }
}

/// A thread that finds the core taken leaves copies of messages up to this length.
const COPIED_MAX: usize = 256;

/// More than wait at once, unless who holds the worker has no processor.
const RECORDS: usize = 64;

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use driver::LoopbackRail;
    use engine::{Config, Engine};

    use super::*;
    use crate::{Directory, Policy};

    #[test]
    fn nothing_is_copied_while_a_copy_waits_for_its_peer() {
        let rail = LoopbackRail::new(HERE).expect("an event");
        let engine = Engine::new(Config::new(1));
        let worker = Worker::new(engine, HERE, 1, vec![Box::new(rail)], Box::new(Own));
        let process = Progress::new(worker, Policy::for_node(1, 2)).expect("descriptors");
        let data = Region::owned(8);
        let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
        // Another thread sends while this one holds the worker; whether the message is copied.
        let send = || {
            let begin =
                || process.begin_send(HERE, envelope, &data, SendMode::Standard, NOTE).is_none();
            thread::scope(|scope| scope.spawn(begin).join().expect("it ends well"))
        };
        process.look(|worker| {
            assert!(send());
            // No link is open.
            worker.hold_copy(HERE, envelope, &data);
            assert!(!send());
        });
        let begun = Instant::now();
        while !process.look(|_| send()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "all has left");
            process.test(|_| ());
        }
    }

    struct Own;

    impl Directory for Own {
        fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
            Ok(vec![("self".into(), peer.0.to_le_bytes().to_vec())])
        }
    }

    const HERE: PeerId = PeerId(0);
    const NOTE: u64 = 1;
}
