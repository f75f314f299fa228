//! The receiving side of a partitioned message.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use engine::{
    CallError, EndMark, EndQueueId, Envelope, ExposedMemory, Handler, IncomingCall, OpId, Outcome,
    Replies, Selector, SendMode,
};
use lock::Lock;
use memory::Region;
use progress::{Progress, Task, TaskStage, Worker};
use wire::{PeerId, RemoteKey};

use crate::fault::{Misuse, PartitionedFault};
use crate::layout::{Overlap, Partitions};
use crate::offer::{GO_LEN, OFFER_LEN, Offer, argument_of, key_of};
use crate::port::HANDLER;
use crate::route::Route;

/// The receiving side of a partitioned message, from its initialisation until it is freed.
pub struct Receiver {
    progress: Arc<Progress>,
    started: Arc<Started>,
    route: Route,
    into: Region,
    partitions: Partitions,
    /// By partition: number of the sender's partitions that have not arrived of it.
    missing: Box<[AtomicU32]>,
    is_active: AtomicBool,
    /// Locked after the worker.
    state: Lock<ReceiverState>,
}

#[derive(Debug, Default)]
struct ReceiverState {
    /// Offer of the sender, once it has arrived.
    offer: Option<Result<Offer, PartitionedFault>>,
    /// The run, once the receiver has started and the sender is known.
    run: Option<ReceiverRun>,
    /// Length of the message of the last run.
    message_bytes: u64,
}

#[derive(Debug)]
struct ReceiverRun {
    key: RemoteKey,
    sender: Partitions,
    /// Number of the sender's partitions that have not arrived.
    left: u32,
    /// One bit for each partition of the sender that has arrived.
    arrived: Box<[u64]>,
    /// Number of partitions here that any partition of the sender reaches.
    reached: u32,
    /// Receives of long partitions, and the queue of their ends.
    ops: Vec<OpId>,
    ends: Option<EndQueueId>,
    /// The sender's process, which is checked for a sign of life.
    peers: Arc<[PeerId]>,
    fault: Option<PartitionedFault>,
}

impl Receiver {
    pub(crate) fn new(
        progress: &Arc<Progress>,
        started: &Arc<Started>,
        route: Route,
        into: Region,
        count: u32,
    ) -> Option<Arc<Self>> {
        let partitions = Partitions::of(count, into.len());
        let mut missing = Vec::new();
        missing.try_reserve_exact(count as usize).ok()?;
        missing.resize_with(count as usize, || AtomicU32::new(0));
        let receiver = Arc::new(Self {
            progress: Arc::clone(progress),
            started: Arc::clone(started),
            route,
            into,
            partitions,
            missing: missing.into(),
            is_active: AtomicBool::new(false),
            state: Lock::default(),
        });
        let offer = Region::owned(OFFER_LEN);
        let task = AwaitsOffer { receiver: Arc::downgrade(&receiver), route, offer, op: None };
        receiver.progress.begin(Box::new(task));
        Some(receiver)
    }

    /// The progress engine that carries the message.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Begins a run.
    pub fn start(self: &Arc<Self>) {
        self.progress.submit(|worker| {
            self.missing.iter().for_each(|missing| missing.store(UNKNOWN, Ordering::Relaxed));
            self.is_active.store(true, Ordering::Release);
            self.begin_run(worker, &mut self.state.lock());
        });
    }

    /// Begins a run if the sender is known.
    fn begin_run(self: &Arc<Self>, worker: &mut Worker, state: &mut ReceiverState) {
        let Some(Ok(offer)) = state.offer else { return };
        let Some(mut run) = self.new_run(offer.partitions) else {
            let partitions = offer.partitions.count;
            state.offer = Some(Err(PartitionedFault::NoMemory { partitions }));
            return;
        };
        let overlap = Overlap::of(offer.partitions, self.partitions);
        for (partition, missing) in self.missing.iter().enumerate() {
            let parts = overlap.senders_of(partition as u32).len() as u32;
            run.reached += u32::from(parts > 0);
            // What no partition reaches arrives with the last.
            missing.store(parts.max(1), Ordering::Relaxed);
        }
        run.key = worker.engine.expose(self.into.clone());
        self.started.add(run.key, Arc::clone(self));
        if !run.sender.are_short() {
            self.post_receives(worker, &mut run);
        }
        worker.look_after(&run.peers);
        let go = Region::from_box(Box::<[u8; GO_LEN]>::new(argument_of(run.key).to_le_bytes()));
        let (context, source) = (self.route.go_context(), offer.number);
        let envelope = Envelope { context, source, tag: 0, is_urgent: true };
        let op = worker.engine.submit_send(self.route.peer, envelope, &go, SendMode::Standard);
        worker.engine.release(op);
        state.message_bytes = run.sender.message_bytes().min(self.into.len() as u64);
        state.run = Some(run);
    }

    fn new_run(&self, sender: Partitions) -> Option<ReceiverRun> {
        let left = sender.sent();
        let (mut arrived, mut ops) = (Vec::new(), Vec::new());
        arrived.try_reserve_exact(left.div_ceil(u64::BITS) as usize).ok()?;
        arrived.resize(left.div_ceil(u64::BITS) as usize, 0);
        if !sender.are_short() {
            ops.try_reserve_exact(left as usize).ok()?;
        }
        let message_bytes = sender.message_bytes();
        let is_too_long = message_bytes > self.into.len() as u64;
        Some(ReceiverRun {
            key: RemoteKey::default(),
            sender,
            left,
            arrived: arrived.into(),
            reached: 0,
            ops,
            ends: None,
            peers: Arc::new([self.route.peer]),
            fault: is_too_long.then_some(PartitionedFault::Truncated { message_bytes }),
        })
    }

    /// Posts a receive for each long partition.
    fn post_receives(&self, worker: &mut Worker, run: &mut ReceiverRun) {
        let queue = worker.engine.open_end_queue();
        let (context, source) = (self.route.data_context(), Some(run.key.index));
        for place in 0..run.sender.count {
            let begin = u64::from(place) * run.sender.bytes;
            let (begin, len) = self.clipped(begin, run.sender.bytes);
            let selector = Selector { context, source, tag: Some(place as i32) };
            let into = self.into.slice(begin, len);
            let op = worker.engine.submit_receive(Some(self.route.peer), selector, &into);
            run.ops.push(op);
            worker.engine.expect_end_of(op, EndMark { queue, place });
        }
        run.ends = Some(queue);
    }

    /// The part of these bytes that this side has memory for.
    fn clipped(&self, begin: u64, len: u64) -> (usize, usize) {
        let all = self.into.len() as u64;
        let begin = begin.min(all);
        (begin as usize, len.min(all - begin) as usize)
    }

    /// True while a run is going on whose sender is known.
    #[cfg(test)]
    pub(crate) fn has_begun(&self) -> bool {
        self.state.lock().run.is_some()
    }

    /// Writes short partitions where they belong.
    pub(crate) fn handle_short(
        &self,
        peer: PeerId,
        first: u64,
        count: u64,
        payload: &[u8],
    ) -> Result<(), CallError> {
        let mut state = self.state.lock();
        let run = state.run.as_mut().filter(|_| peer == self.route.peer);
        let run = run.ok_or("no such partitioned receive")?;
        let end = first.checked_add(count).filter(|end| *end <= u64::from(run.sender.sent()));
        let end = end.ok_or("partitions that were not offered")?;
        let is_whole = count.checked_mul(run.sender.bytes) == Some(payload.len() as u64);
        if !is_whole || !run.sender.are_short() {
            return Err("partitions of another length than offered".into());
        }
        let (begin, len) = self.clipped(first * run.sender.bytes, payload.len() as u64);
        if (first as u32..end as u32).any(|partition| run.has_arrived(partition)) {
            return Err("a partition came twice".into());
        }
        self.into.slice(begin, len).write(0, &payload[..len]);
        self.note_arrived(run, first as u32..end as u32);
        Ok(())
    }

    fn note_arrived(&self, run: &mut ReceiverRun, partitions: std::ops::Range<u32>) {
        let overlap = Overlap::of(run.sender, self.partitions);
        for partition in partitions {
            run.arrived[(partition / u64::BITS) as usize] |= 1 << (partition % u64::BITS);
            run.left -= 1;
            for here in overlap.receivers_of(partition) {
                // Releases the bytes to a thread that finds the partition arrived.
                if let Some(missing) = self.missing.get(here as usize) {
                    missing.fetch_sub(1, Ordering::Release);
                }
            }
        }
        if run.left == 0 {
            for missing in &self.missing[(run.reached as usize).min(self.missing.len())..] {
                missing.store(0, Ordering::Release);
            }
        }
    }

    /// True if a partition has arrived, or no run is going on.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn has_arrived(&self, partition: u32) -> Result<bool, Misuse> {
        let missing = self.missing.get(partition as usize).ok_or(Misuse::NoPartition(partition))?;
        let is_here = || missing.load(Ordering::Acquire) == 0;
        if !self.is_active.load(Ordering::Acquire) || is_here() {
            return Ok(true);
        }
        let has_arrived = self.progress.test(|worker| {
            self.collect(worker, &mut self.state.lock());
            is_here()
        });
        if !has_arrived {
            self.progress.pause();
        }
        Ok(has_arrived)
    }

    /// Notes the long partitions that have arrived.
    fn collect(&self, worker: &mut Worker, state: &mut ReceiverState) {
        let Some(run) = &mut state.run else { return };
        let Some(ends) = run.ends else { return };
        while let Some(place) = worker.engine.next_end(ends) {
            let op = run.ops.get(place as usize).copied();
            let Some(completion) = op.and_then(|op| worker.engine.take(op)) else { continue };
            match completion.outcome {
                Outcome::Ok if completion.bytes == run.sender.bytes => {
                    self.note_arrived(run, place..place + 1);
                }
                Outcome::Truncated { .. } if run.fault.is_some() => {
                    self.note_arrived(run, place..place + 1);
                }
                Outcome::Ok | Outcome::Truncated { .. } => {
                    run.fault = Some(PartitionedFault::Malformed)
                }
                Outcome::PeerFailed | Outcome::Revoked | Outcome::Refused | Outcome::Cancelled => {
                    run.fault = Some(PartitionedFault::PeerFailed);
                }
            }
        }
    }

    /// Result of the run, once the whole message has arrived: its length. `worker` is that of [`Receiver::progress`].
    pub fn poll(&self, worker: &mut Worker) -> Option<Result<u64, PartitionedFault>> {
        let mut state = self.state.lock();
        self.collect(worker, &mut state);
        let result = match (&state.offer, &state.run) {
            (Some(Err(fault)), _) => Some(Err(*fault)),
            (
                _,
                Some(ReceiverRun {
                    fault:
                        Some(fault @ (PartitionedFault::PeerFailed | PartitionedFault::Malformed)),
                    ..
                }),
            ) => Some(Err(*fault)),
            (_, Some(ReceiverRun { left: 0, fault, .. })) => {
                Some(fault.map_or(Ok(state.message_bytes), Err))
            }
            (_, Some(_)) if worker.engine.is_failed(self.route.peer) => {
                Some(Err(PartitionedFault::PeerFailed))
            }
            (_, Some(_)) | (None | Some(Ok(_)), None) => None,
        };
        if result.is_none() {
            worker.await_any(|| None);
        }
        result
    }

    /// Length of the message of the last run, as far as there was memory for it.
    pub fn message_bytes(&self) -> u64 {
        self.state.lock().message_bytes
    }

    /// Ends a run whose result is known.
    pub fn end(&self, worker: &mut Worker) {
        self.is_active.store(false, Ordering::Release);
        let Some(run) = self.state.lock().run.take() else { return };
        self.started.remove(run.key);
        worker.engine.withdraw(run.key);
        worker.forget_peers(&run.peers);
        if let Some(ends) = run.ends {
            worker.engine.close_end_queue(ends);
        }
        if run.left > 0 {
            for op in run.ops {
                worker.engine.submit_cancel(op);
                worker.engine.release(op);
            }
        }
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Receiver");
        shown.field("route", &self.route).field("partitions", &self.partitions);
        shown.finish_non_exhaustive()
    }
}

impl ReceiverRun {
    fn has_arrived(&self, partition: u32) -> bool {
        self.arrived[(partition / u64::BITS) as usize] >> (partition % u64::BITS) & 1 != 0
    }
}

/// Receivers that have started, by the index of their key.
#[derive(Debug, Default)]
pub(crate) struct Started(Lock<Vec<Option<StartedReceiver>>>);

#[derive(Debug)]
struct StartedReceiver {
    key: RemoteKey,
    receiver: Arc<Receiver>,
}

impl Started {
    /// Makes an empty table, and sets the handler of short partitions.
    pub fn new(progress: &Progress) -> Arc<Self> {
        let started = Arc::<Self>::default();
        let handler = Box::new(ShortPartitions { started: Arc::clone(&started) });
        progress.look(|worker| worker.engine.set_handler(HANDLER, handler));
        started
    }

    fn add(&self, key: RemoteKey, receiver: Arc<Receiver>) {
        let mut all = self.0.lock();
        let index = key.index as usize;
        if all.len() <= index {
            all.resize_with(index + 1, || None);
        }
        all[index] = Some(StartedReceiver { key, receiver });
    }

    fn remove(&self, key: RemoteKey) {
        if let Some(place) = self.0.lock().get_mut(key.index as usize) {
            place.take_if(|started| started.key == key);
        }
    }

    fn find(&self, key: RemoteKey) -> Option<Arc<Receiver>> {
        let all = self.0.lock();
        let started = all.get(key.index as usize)?.as_ref().filter(|started| started.key == key);
        started.map(|started| Arc::clone(&started.receiver))
    }
}

/// Handler of short partitions. Arguments of a call: key of the memory, first partition, number of partitions.
#[derive(Debug)]
struct ShortPartitions {
    started: Arc<Started>,
}

impl Handler for ShortPartitions {
    fn handle(
        &mut self,
        call: &IncomingCall<'_>,
        _: &ExposedMemory,
        _: &mut Replies,
    ) -> Result<(), CallError> {
        let [key, first, count] = call.arguments;
        let receiver = self.started.find(key_of(key)).ok_or("no such partitioned receive")?;
        receiver.handle_short(call.peer, first, count, call.payload)
    }
}

/// Waits for the sender's offer, even after the receiver was freed: the next receiver is matched with the next sender.
struct AwaitsOffer {
    receiver: Weak<Receiver>,
    route: Route,
    offer: Region,
    op: Option<OpId>,
}

impl Task for AwaitsOffer {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        let op = *self.op.get_or_insert_with(|| {
            let Route { peer, context, source, tag, .. } = self.route;
            let selector = Selector { context, source: Some(source), tag: Some(tag) };
            worker.engine.submit_receive(Some(peer), selector, &self.offer)
        });
        let Some(completion) = worker.engine.take(op) else { return TaskStage::Waits };
        let Some(receiver) = self.receiver.upgrade() else { return TaskStage::Ended };
        let mut bytes = [0; OFFER_LEN];
        self.offer.read(0, &mut bytes);
        let offer = match completion.outcome {
            Outcome::Ok if completion.bytes == OFFER_LEN as u64 => {
                Offer::parse(&bytes).ok_or(PartitionedFault::Malformed)
            }
            Outcome::Ok | Outcome::Truncated { .. } => Err(PartitionedFault::Malformed),
            Outcome::PeerFailed | Outcome::Revoked | Outcome::Refused | Outcome::Cancelled => {
                Err(PartitionedFault::PeerFailed)
            }
        };
        let mut state = receiver.state.lock();
        state.offer = Some(offer);
        if receiver.is_active.load(Ordering::Relaxed) {
            receiver.begin_run(worker, &mut state);
        }
        TaskStage::Ended
    }

    fn work(&mut self) {}

    fn awaited(&self) -> Option<OpId> {
        self.op
    }
}

/// Number of missing parts while the sender is not known.
const UNKNOWN: u32 = u32::MAX;
