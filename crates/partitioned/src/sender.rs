//! The sending side of a partitioned message.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use engine::{CALL_MAX, Envelope, OpId, Outcome, Selector, SendMode};
use lock::Lock;
use memory::Region;
use progress::{Progress, Task, TaskStage, Worker};

use crate::fault::{Misuse, PartitionedFault};
use crate::layout::Partitions;
use crate::offer::{GO_LEN, Offer};
use crate::port::Port;
use crate::ready::Ready;
use crate::route::Route;

/// The sending side of a partitioned message, from its initialisation until it is freed.
pub struct Sender {
    progress: Arc<Progress>,
    route: Route,
    /// Number by which the receiver names this sender.
    number: u32,
    data: Region,
    partitions: Partitions,
    ready: Ready,
    /// Memory for the receiver's go of the current run, and the key in it.
    go: Region,
    key: AtomicU64,
    /// Number of partitions that the engine has got in the current run.
    sent: AtomicU32,
    /// Locked after the worker.
    run: Lock<SenderRun>,
}

/// State of a run.
#[derive(Debug, Default)]
struct SenderRun {
    /// Operations whose ends have not been seen.
    ops: Vec<OpId>,
    fault: Option<PartitionedFault>,
    /// Empty lists, for the next taker.
    spare: Option<(Vec<u32>, Vec<OpId>)>,
}

impl Sender {
    pub(crate) fn new(
        progress: &Arc<Progress>,
        number: u32,
        route: Route,
        data: Region,
        count: u32,
    ) -> Option<Arc<Self>> {
        let partitions = Partitions::of(count, data.len());
        let ready = Ready::new(partitions.sent())?;
        let offer = Offer { number, partitions }.emit();
        let Route { context, source, tag, .. } = route;
        let envelope = Envelope { context, source, tag, is_urgent: true };
        progress.submit(|worker| {
            let offer = Region::from_box(offer.into());
            let op = worker.engine.submit_send(route.peer, envelope, &offer, SendMode::Standard);
            worker.engine.release(op);
        });
        Some(Arc::new(Self {
            progress: Arc::clone(progress),
            route,
            number,
            data,
            partitions,
            ready,
            go: Region::owned(GO_LEN),
            key: AtomicU64::new(0),
            sent: AtomicU32::new(0),
            run: Lock::default(),
        }))
    }

    /// The progress engine that carries the message.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Begins a run.
    pub fn start(self: &Arc<Self>) {
        self.run.lock().fault = None;
        self.sent.store(0, Ordering::Relaxed);
        self.ready.begin();
        if self.partitions.count == 0 {
            // The partition that stands for none. Nobody takes it before the receiver has started.
            let _ = self.ready.mark(std::iter::once(0));
        }
        self.progress.begin(Box::new(AwaitsGo { sender: Arc::clone(self), op: None }));
    }

    /// Marks partitions as ready, all or none. They leave at once if the receiver has started.
    ///
    /// # Errors
    /// The run has not begun, or a partition does not exist or is ready already.
    pub fn mark(&self, partitions: impl Iterator<Item = u32> + Clone) -> Result<(), Misuse> {
        if let Some(beyond) = partitions.clone().find(|one| *one >= self.partitions.count) {
            return Err(Misuse::NoPartition(beyond));
        }
        if self.ready.mark(partitions)? {
            self.send_ready(&mut &*self.progress);
        }
        Ok(())
    }

    /// Result of the run, once all partitions have left; `worker` is that of [`Sender::progress`].
    pub fn poll(&self, worker: &mut Worker) -> Option<Result<(), PartitionedFault>> {
        let is_all_sent = self.sent.load(Ordering::Acquire) == self.ready.len();
        let SenderRun { ops, fault, .. } = &mut *self.run.lock();
        while let Some(&op) = ops.last() {
            match worker.take_or_await(op)?.outcome {
                Outcome::Ok => {}
                Outcome::PeerFailed
                | Outcome::Revoked
                | Outcome::Refused
                | Outcome::Cancelled
                | Outcome::Truncated { .. } => *fault = Some(PartitionedFault::PeerFailed),
            }
            ops.pop();
        }
        match *fault {
            Some(fault) => Some(Err(fault)),
            None if is_all_sent => Some(Ok(())),
            None => {
                worker.await_any(|| None);
                None
            }
        }
    }

    /// Ends a run whose result is known.
    pub fn end(&self) {
        self.ready.end();
    }

    /// Lets partitions leave, now that the receiver has started.
    fn open(&self, worker: &mut Worker) {
        let mut key = [0; GO_LEN];
        self.go.read(0, &mut key);
        self.key.store(u64::from_le_bytes(key), Ordering::Relaxed);
        // Whoever becomes the taker later reads the key after this.
        if self.ready.open() {
            self.send_ready(&mut &mut *worker);
        }
    }

    /// Sends all that is ready. The calling thread is the taker.
    fn send_ready(&self, port: &mut impl Port) {
        let (mut batch, mut ops) = self.run.lock().spare.take().unwrap_or_default();
        while self.ready.take(&mut batch) {
            batch.sort_unstable();
            let mut rest = &batch[..];
            while let Some((&first, _)) = rest.split_first() {
                let count = self.run_len(rest);
                ops.extend(self.send(port, first, count as u32));
                rest = &rest[count..];
            }
            self.run.lock().ops.append(&mut ops);
            let sent = batch.len() as u32;
            if self.sent.fetch_add(sent, Ordering::AcqRel) + sent == self.ready.len() {
                // A thread that waits may have seen the ends of all operations before.
                port.tell();
            }
        }
        self.run.lock().spare = Some((batch, ops));
    }

    /// Number of partitions, from the first of an ordered list on, that are sent together.
    fn run_len(&self, list: &[u32]) -> usize {
        if !self.partitions.are_short() {
            return 1;
        }
        let most = CALL_MAX.checked_div(self.partitions.bytes as usize).unwrap_or(usize::MAX);
        let follows = |pair: &&[u32]| pair[0] + 1 == pair[1];
        let following = list.windows(2).take_while(follows).count();
        most.min(1 + following)
    }

    fn send(&self, port: &mut impl Port, first: u32, count: u32) -> Option<OpId> {
        let (Route { peer, note, .. }, key) = (self.route, self.key.load(Ordering::Relaxed));
        let bytes = self.partitions.bytes as usize;
        let data = self.data.slice(first as usize * bytes, count as usize * bytes);
        if self.partitions.are_short() {
            return port.call(peer, [key, u64::from(first), u64::from(count)], &data);
        }
        let (context, source, tag) = (self.route.data_context(), key as u32, first as i32);
        port.send(peer, Envelope { context, source, tag, is_urgent: false }, &data, note)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Sender");
        shown.field("route", &self.route).field("partitions", &self.partitions);
        shown.finish_non_exhaustive()
    }
}

/// Waits for the receiver to start.
struct AwaitsGo {
    sender: Arc<Sender>,
    op: Option<OpId>,
}

impl Task for AwaitsGo {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        let sender = &self.sender;
        let op = *self.op.get_or_insert_with(|| {
            let context = sender.route.go_context();
            let selector = Selector { context, source: Some(sender.number), tag: Some(0) };
            worker.engine.submit_receive(Some(sender.route.peer), selector, &sender.go)
        });
        let Some(completion) = worker.engine.take(op) else { return TaskStage::Waits };
        match completion.outcome {
            Outcome::Ok if completion.bytes == GO_LEN as u64 => sender.open(worker),
            Outcome::Ok
            | Outcome::PeerFailed
            | Outcome::Revoked
            | Outcome::Refused
            | Outcome::Cancelled
            | Outcome::Truncated { .. } => {
                sender.run.lock().fault = Some(PartitionedFault::PeerFailed);
            }
        }
        TaskStage::Ended
    }

    fn work(&mut self) {}

    fn awaited(&self) -> Option<OpId> {
        self.op
    }
}
