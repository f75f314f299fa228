//! Submission of operations: at once, or as a record left at the combining lock.
//!
//! A thread that begins a send or a receive while another holds the worker's lock leaves a record and returns. The
//! holder submits all records before it releases the lock, and reports the results as if the other thread had come
//! just then. So the holder of the lock knows all operations that were begun before, and a thread's submissions stay
//! in order. If all records are in use, the thread waits for the lock.

use std::sync::atomic::Ordering;

use engine::{Envelope, OpId, Selector, SendMode, Short};
use lock::{Combiner, CombiningGuard, Entered};
use memory::{Page, Region};
use wire::PeerId;

use crate::wait::Progress;
use crate::worker::Worker;

/// A submission left by a thread that finds the lock taken.
pub struct Record {
    /// Reserved id of the operation.
    op: OpId,
    request: SubmittedRequest,
    /// Bytes of a short message whose sender has returned; allocated at the first one.
    copied: Option<Page<COPIED_MAX>>,
}

/// A requested operation. The caller guarantees that its memory stays valid until the operation ends.
enum SubmittedRequest {
    Nothing,
    Send { peer: PeerId, envelope: Envelope, data: Region, mode: SendMode, note: u64 },
    SendCopy { peer: PeerId, envelope: Envelope, len: usize },
    Receive { peer: Option<PeerId>, selector: Selector, into: Region, note: u64 },
}

impl Progress {
    /// Begins to send; returns none if the message is sent already. The note is that of
    /// [`Engine::note`](engine::Engine::note).
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
        self.send_locked(worker, peer, envelope, data, mode, note)
    }

    #[inline]
    fn send_locked(
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
        Some(self.submit_locked(worker, submit))
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
            Entered::Locked(worker) => self.send_locked(worker, peer, envelope, data, mode, note),
        }
    }

    /// Begins to receive. The note is that of [`Engine::note`](engine::Engine::note).
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
        self.receive_locked(worker, peer, selector, into, note)
    }

    #[inline]
    fn receive_locked(
        &self,
        worker: CombiningGuard<'_, Worker>,
        peer: Option<PeerId>,
        selector: Selector,
        into: &Region,
        note: u64,
    ) -> OpId {
        self.submit_locked(worker, |worker| {
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
            Entered::Locked(worker) => self.receive_locked(worker, peer, selector, into, note),
        }
    }

    /// Sends a short message at once, or coalesces it; see [`Worker::send_short`].
    #[inline]
    pub fn send_short(&self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let Some(worker) = self.worker().take_at_once() else {
            return self.leave_short(peer, envelope, data);
        };
        self.send_short_locked(worker, peer, envelope, data)
    }

    /// Sends a short put or call at once, or coalesces it like a short message; false if it must be submitted as usual.
    #[inline]
    pub fn access_short(&self, peer: PeerId, access: Short, data: &Region) -> bool {
        let mut worker = self.worker().lock();
        let sent = worker.access_short(peer, access, data);
        self.leave_coalesced(worker);
        sent
    }

    #[inline]
    fn send_short_locked(
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

    /// Leaves a copy of a short message. For its sender the message is sent, as a standard send permits (MPI-5.0
    /// §3.4). A later failure of its peer is reported by operations that wait for that peer. Once a peer has failed,
    /// nothing is copied any more.
    #[cold]
    #[inline(never)]
    fn leave_short(&self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let fill = |record: &mut Record| record.send_copy(peer, envelope, data);
        match self.worker().leave(|| self.may_copy(data), fill) {
            Entered::Left(()) => true,
            Entered::Locked(worker) => self.send_short_locked(worker, peer, envelope, data),
        }
    }

    /// True if a message may be copied: it is short, no copy waits for its peer, and no peer has failed.
    fn may_copy(&self, data: &Region) -> bool {
        data.len() <= COPIED_MAX && !self.refuses_copies().load(Ordering::Relaxed)
    }

    #[inline]
    fn leave_coalesced(&self, mut worker: CombiningGuard<'_, Worker>) {
        if worker.has_loose_ends {
            self.hand_over(&mut worker);
        }
    }

    /// Submits the records of other threads.
    fn take_in<'a>(&self, worker: &mut Worker, records: impl Iterator<Item = &'a mut Record>) {
        let before = worker.engine.event_count();
        for record in records {
            worker.counters.submissions_delegated += 1;
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
        // The holder of the lock also holds a reference to the owner.
        if let Some(progress) = self.owner.upgrade() {
            progress.take_in(self, records);
        }
    }
}

impl Record {
    /// Returns all records, as many as a combining lock has room for.
    pub fn all(worker: &mut Worker) -> Vec<Self> {
        let record = |_| Self {
            op: worker.engine.reserve(),
            request: SubmittedRequest::Nothing,
            copied: None,
        };
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
        self.request = SubmittedRequest::Send { peer, envelope, data: data.clone(), mode, note };
        self.op
    }

    /// Fills the record with a copy, after which the message is sent for its sender.
    fn send_copy(&mut self, peer: PeerId, envelope: Envelope, data: &Region) {
        let len = data.len();
        let mut bytes = [0; COPIED_MAX];
        data.read(0, &mut bytes[..len]);
        self.copied.get_or_insert_default().write(0, &bytes[..len]);
        self.request = SubmittedRequest::SendCopy { peer, envelope, len };
    }

    fn receive(
        &mut self,
        peer: Option<PeerId>,
        selector: Selector,
        into: &Region,
        note: u64,
    ) -> OpId {
        self.request = SubmittedRequest::Receive { peer, selector, into: into.clone(), note };
        self.op
    }

    fn submit(&mut self, worker: &mut Worker) {
        match std::mem::replace(&mut self.request, SubmittedRequest::Nothing) {
            SubmittedRequest::Nothing => {}
            SubmittedRequest::Send { peer, envelope, data, mode, note } => {
                worker.engine.submit_reserved_send(self.op, peer, envelope, data, mode);
                worker.engine.note(self.op, note);
                self.op = worker.engine.reserve();
            }
            SubmittedRequest::SendCopy { peer, envelope, len } => {
                // A record without a page has no copy.
                let Some(page) = &self.copied else { return };
                let data = page.region().slice(0, len);
                if !worker.send_short(peer, envelope, &data) {
                    worker.hold_copy(peer, envelope, &data);
                }
            }
            SubmittedRequest::Receive { peer, selector, into, note } => {
                worker.engine.submit_reserved_receive(self.op, peer, selector, into);
                worker.engine.note(self.op, note);
                self.op = worker.engine.reserve();
            }
        }
    }
}

impl Worker {
    /// Submits a message whose record is needed again before it has left. Until it has left, no more messages are
    /// copied, so that at most one per record waits.
    #[cold]
    fn hold_copy(&mut self, peer: PeerId, envelope: Envelope, data: &Region) {
        let mut bytes = vec![0; data.len()];
        data.read(0, &mut bytes);
        let copy = Region::from_box(bytes.into_boxed_slice());
        let op = self.engine.submit_send(peer, envelope, &copy, SendMode::Standard);
        self.held_copies.push(op);
        self.refuses_copies.store(true, Ordering::Relaxed);
    }

    /// Checks if the held copies have left, or never will.
    pub(crate) fn look_at_held_copies(&mut self) {
        let Self { held_copies, engine, refuses_copies, has_failed_peer, .. } = self;
        if !held_copies.is_empty() {
            held_copies.retain(|op| engine.take(*op).is_none());
            refuses_copies.store(*has_failed_peer || !held_copies.is_empty(), Ordering::Relaxed);
        }
    }
}

/// Longest message that a thread copies when it finds the lock taken.
const COPIED_MAX: usize = 256;

/// Number of records: more than wait at once, unless the holder of the lock is preempted.
const RECORDS: usize = 64;

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use engine::{Config, Engine, Outcome};
    use rail::LoopbackRail;

    use super::*;
    use crate::{Directory, Policy};

    #[test]
    fn messages_are_not_copied_while_a_copy_waits_for_its_peer() {
        let rail = LoopbackRail::new(HERE).expect("an event");
        let engine = Engine::new(Config::new(1));
        let worker = Worker::new(engine, HERE, 1, vec![Box::new(rail)], Box::new(Own));
        let process = Progress::new(worker, Policy::for_node(1, 2)).expect("descriptors");
        let data = Region::owned(8);
        let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
        // Another thread sends while this one holds the lock; true if the message is copied.
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

    #[test]
    fn messages_are_not_copied_once_a_peer_has_failed() {
        let rail = LoopbackRail::new(HERE).expect("an event");
        let engine = Engine::new(Config::new(1));
        let worker = Worker::new(engine, HERE, 1, vec![Box::new(rail)], Box::new(Nowhere));
        let process = Progress::new(worker, Policy::for_node(1, 2)).expect("descriptors");
        let data = Region::owned(8);
        let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
        let outcome = process.submit_and_wait(
            |worker| worker.engine.submit_send(HERE, envelope, &data, SendMode::Standard),
            |worker, op| worker.engine.take(*op).map(|completion| completion.outcome),
        );
        assert_eq!(outcome, Outcome::PeerFailed);
        let is_copied = process.look(|_| {
            let begin =
                || process.begin_send(HERE, envelope, &data, SendMode::Standard, NOTE).is_none();
            thread::scope(|scope| scope.spawn(begin).join().expect("it ends well"))
        });
        assert!(!is_copied, "nobody would hear of its failure");
    }

    /// A directory without addresses: no peer can be reached.
    struct Nowhere;

    impl Directory for Nowhere {
        fn addresses(&mut self, _: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
            Ok(Vec::new())
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
