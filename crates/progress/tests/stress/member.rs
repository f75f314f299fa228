//! One thread of one process, and its operations.
//!
//! In each window a thread first begins all its sends and receives without waiting for anybody. Then it
//! waits and probes, in random order and by random calls, for operations of windows up to its own. At the
//! end it waits for sends that may need their receiver's probe. A thread that waits for ever was therefore
//! not woken, or a message was lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::{Completion, Envelope, OpId, Outcome, Selector, SendMode};
use memory::Region;
use progress::{Progress, Worker};
use wire::PeerId;

use crate::job::{Job, Received, StressProcess, lock};
use crate::plan::{
    Kind, Leaves, MessageStream, OPEN_MAX, Plan, StressMessage, TAGS, context, shared_context,
};
use testing::Random;

/// A thread of the stress test.
pub struct Member<'a> {
    job: &'a Job,
    plan: &'a Plan,
    process: &'a StressProcess,
    progress: &'a Progress,
    rank: u32,
    number: u32,
    random: Random,
    window: u32,
    /// Next message number of each stream in which this thread sends.
    sent: BTreeMap<MessageStream, u32>,
    /// Next message number of each stream from which only this thread receives.
    received: BTreeMap<MessageStream, u32>,
    serial: u64,
}

/// An operation under way.
#[derive(Debug)]
pub struct Pending {
    op: OpId,
    what: What,
}

impl Pending {
    /// True if this may end only in a later window.
    ///
    /// Such an operation needs a call of another thread, or may lose its message to a receive of a later window.
    fn may_be_late(&self) -> bool {
        let kind = match &self.what {
            What::Send { stream, .. } => stream.kind,
            What::Receive { .. } => return false,
        };
        kind != Kind::Exact
    }
}

#[derive(Debug)]
enum What {
    Send { stream: MessageStream, number: u32 },
    Receive { into: Region, expected: Expected, serial: u64 },
}

/// Messages that a receive may return.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// This message, possibly truncated.
    One(MessageStream, u32),
    /// Any message sent to this process in this context.
    AnyOf(Kind, u32),
}

/// An operation to begin.
#[derive(Clone, Copy, Debug)]
enum Begin {
    Send(MessageStream),
    Receive(MessageStream),
    Open { source: Option<u32>, tag: Option<i32> },
}

/// A wait, or an action that waits.
#[derive(Debug)]
enum Item {
    Pending(Pending),
    Probed(MessageStream),
    Cancelled(MessageStream),
    Never,
    Tickets,
    /// Ping-pongs with one thread after the other. All processes begin with nearby threads, so no waits form a circle.
    Pings(Vec<(u32, u32)>),
}

impl<'a> Member<'a> {
    pub fn new(job: &'a Job, rank: u32, number: u32) -> Self {
        let process = &job.processes[rank as usize];
        Self {
            job,
            plan: &job.plan,
            process,
            progress: &process.progress,
            rank,
            number,
            random: job.plan.seed_of(&[6, u64::from(rank), u64::from(number)]),
            window: 0,
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            serial: 0,
        }
    }

    /// Acts in all windows.
    pub fn act(mut self) {
        let mut late = Vec::new();
        for window in 0..self.plan.windows {
            self.window = window;
            let (lates, begun) =
                self.begin_all().into_iter().partition::<Vec<_>, _>(Pending::may_be_late);
            late.extend(lates);
            let mut items: Vec<_> = Vec::into_iter(begun).map(Item::Pending).collect();
            items.extend(self.turns());
            while !items.is_empty() {
                self.rest();
                let item = items.swap_remove(self.random.below(items.len()));
                self.do_item(item, &mut items);
            }
            self.empty_pool();
        }
        self.wait_for_all(late);
        self.job.done.fetch_add(1, Ordering::Relaxed);
        self.process.states[self.number as usize].clear();
        // Polls until all have finished, as `MPI_Finalize` does: others may need frames that are still to be sent.
        while self.job.done.load(Ordering::Relaxed) < self.plan.processes * self.plan.threads {
            self.progress.test(|_| ());
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Begins the operations of this window and returns those to wait for.
    fn begin_all(&mut self) -> Vec<Pending> {
        let mut queues = self.beginnings();
        let mut begun = Vec::new();
        while !queues.is_empty() {
            let at = self.random.below(queues.len());
            let count = 1 + self.random.below(4);
            let queue = &mut queues[at];
            let some: Vec<Begin> = queue.drain(..count.min(queue.len())).collect();
            if queue.is_empty() {
                queues.swap_remove(at);
            }
            for pending in self.begin(&some) {
                if !pending.may_be_late() && self.random.one_in(6) {
                    lock(&self.process.pool).push((self.window, pending));
                } else {
                    begun.push(pending);
                }
            }
        }
        begun
    }

    /// Operations to begin, in queues within which order counts.
    fn beginnings(&self) -> Vec<VecDeque<Begin>> {
        let mut queues = Vec::new();
        let mine = |stream: &MessageStream| stream.thread == self.number;
        let mut add = |what: Begin, count: u32| {
            let queue: VecDeque<_> = (0..count).map(|_| what).collect();
            if !queue.is_empty() {
                queues.push(queue);
            }
        };
        for kind in [Kind::Exact, Kind::Open, Kind::Probed, Kind::Cancelled, Kind::Shared] {
            for stream in self.plan.streams(kind).filter(mine) {
                let count = self.plan.count(self.window, stream);
                if stream.from == self.rank {
                    add(Begin::Send(stream), count);
                }
                if stream.to == self.rank && kind == Kind::Exact {
                    add(Begin::Receive(stream), count);
                }
                if stream.to == self.rank && kind == Kind::Open {
                    let (source, tag) = (Some(stream.from), Some(stream.tag));
                    let open = match self.plan.leaves(self.rank, self.number) {
                        Leaves::Source => Begin::Open { source: None, tag },
                        Leaves::Tag => Begin::Open { source, tag: None },
                        Leaves::Both => Begin::Open { source: None, tag: None },
                    };
                    add(open, count);
                }
            }
        }
        queues
    }

    /// Actions besides waiting for begun operations.
    fn turns(&mut self) -> Vec<Item> {
        let mut items = vec![Item::Tickets];
        for kind in [Kind::Probed, Kind::Cancelled] {
            let to_me =
                |stream: &MessageStream| stream.thread == self.number && stream.to == self.rank;
            for stream in self.plan.streams(kind).filter(to_me) {
                for _ in 0..self.plan.count(self.window, stream) {
                    items.push(match kind {
                        Kind::Probed => Item::Probed(stream),
                        _ => Item::Cancelled(stream),
                    });
                }
            }
        }
        if self.random.one_in(3) {
            items.push(Item::Never);
        }
        let Plan { processes, threads, .. } = *self.plan;
        let nearby = Some((self.rank, self.number ^ 1)).filter(|(_, thread)| *thread < threads);
        let rank = (self.window % processes + processes - self.rank) % processes;
        let afar = Some((rank, self.number)).filter(|(rank, _)| *rank != self.rank);
        items.push(Item::Pings(nearby.into_iter().chain(afar).collect()));
        items
    }

    fn do_item(&mut self, item: Item, items: &mut Vec<Item>) {
        self.tell(&item);
        match item {
            Item::Pending(first) => {
                let mut some = vec![first];
                let more = self.random.pick(&[0, 0, 1, 3, 10]);
                while some.len() <= more
                    && let Some(at) = items.iter().position(|one| matches!(one, Item::Pending(_)))
                    && let Item::Pending(another) = items.swap_remove(at)
                {
                    some.push(another);
                }
                let left = self.wait_for_some(some);
                items.extend(left.into_iter().map(Item::Pending));
            }
            Item::Probed(stream) => self.probe_and_receive(stream),
            Item::Cancelled(stream) => self.cancel_and_receive(stream),
            Item::Never => self.cancel_in_vain(),
            Item::Tickets => self.take_shared(),
            Item::Pings(others) => others.into_iter().for_each(|other| self.ping(other)),
        }
    }

    /// Begins some operations of one queue by a random method.
    fn begin(&mut self, some: &[Begin]) -> Vec<Pending> {
        let made: Vec<Made> = some.iter().map(|one| self.make(*one)).collect();
        let submit =
            |worker: &mut Worker| made.iter().map(|one| one.submit(worker)).collect::<Vec<_>>();
        let ops = match self.random.below(8) {
            0 => self.progress.test(submit),
            1 => {
                // Submits while waiting for something else.
                let (mut ops, mut turns) = (None, 0);
                self.progress.wait_for(Duration::from_millis(1), |worker| {
                    ops.get_or_insert_with(|| submit(worker));
                    turns += 1;
                    (turns == 3).then_some(())
                });
                ops.unwrap_or_default()
            }
            2 => made
                .iter()
                .filter(|one| !one.send_short(self.progress))
                .map(|one| self.progress.submit(|worker| one.submit(worker)))
                .collect(),
            3 | 4 => self.progress.submit(submit),
            // Leaves the operations to the holder of the worker's lock, if there is one.
            _ => made.iter().filter_map(|one| one.begin(self.progress)).collect(),
        };
        ops.into_iter().collect()
    }

    fn make(&mut self, begin: Begin) -> Made {
        self.serial += 1;
        let serial = self.serial;
        match begin {
            Begin::Send(stream) => {
                let number = next(&mut self.sent, stream);
                let message = self.plan.message(stream, number);
                let (context, tag) = (stream.context(self.window), stream.wire_tag());
                Made::Send {
                    stream,
                    number,
                    envelope: Envelope { context, source: stream.from, tag, is_urgent: false },
                    mode: match message.synchronous {
                        true => SendMode::Synchronous,
                        false => SendMode::Standard,
                    },
                    data: Region::from_box(message.bytes().into()),
                }
            }
            Begin::Receive(stream) => {
                let number = next(&mut self.received, stream);
                let len = self.plan.message(stream, number).len;
                let room = match self.random.below(8) {
                    0 => len / 2,
                    1 => len + 100,
                    _ => len,
                };
                Made::Receive {
                    peer: Some(PeerId(stream.from)),
                    selector: exact(stream),
                    into: Region::owned(room),
                    expected: Expected::One(stream, number),
                    serial,
                }
            }
            Begin::Open { source, tag } => Made::Receive {
                peer: source.map(PeerId),
                selector: Selector { context: context(Kind::Open, self.number), source, tag },
                into: Region::owned(OPEN_MAX),
                expected: Expected::AnyOf(Kind::Open, self.number),
                serial,
            },
        }
    }

    /// Waits for at least one operation and returns those that are still under way.
    fn wait_for_some(&mut self, mut some: Vec<Pending>) -> Vec<Pending> {
        let mut ended = Vec::new();
        match self.random.below(6) {
            0 => ended.push(self.progress.wait(|worker| take_any(worker, &mut some))),
            1 => {
                // Waits for all of them.
                let done = |worker: &mut Worker, one: &Pending| worker.engine.is_complete(one.op);
                self.progress.wait(|worker| some.iter().all(|one| done(worker, one)).then_some(()));
                let all = std::mem::take(&mut some);
                ended = self.progress.look(|worker| {
                    all.into_iter().map(|one| taken(worker, one).expect("it was done")).collect()
                });
            }
            2 => loop {
                if let Some(one) = self.progress.test(|worker| take_any(worker, &mut some)) {
                    break ended.push(one);
                }
                self.progress.pause();
                if self.random.one_in(20) {
                    self.rest();
                }
            },
            3 => loop {
                let limit = Duration::from_micros(self.random.pick(&[0, 10, 300, 3000]));
                let one = self.progress.wait_for(limit, |worker| take_any(worker, &mut some));
                if let Some(one) = one {
                    break ended.push(one);
                }
            },
            _ => {
                let first = some.swap_remove(0);
                let completion = self.progress.wait(|worker| worker.take_or_await(first.op));
                ended.push((first, completion));
            }
        }
        for (pending, completion) in ended {
            self.check(&pending, completion);
        }
        some
    }

    /// Waits for pooled operations that threads of the process began up to this window.
    fn empty_pool(&mut self) {
        loop {
            let mut pool = lock(&self.process.pool);
            let Some(at) = pool.iter().position(|(window, _)| *window <= self.window) else {
                return;
            };
            let (_, pending) = pool.swap_remove(at);
            drop(pool);
            self.wait_for_all(vec![pending]);
        }
    }

    fn wait_for_all(&mut self, mut left: Vec<Pending>) {
        while !left.is_empty() {
            self.tell(&left);
            left = self.wait_for_some(left);
        }
    }

    /// Probes, with or without wildcards, and receives the message found; sometimes by a matched probe.
    fn probe_and_receive(&mut self, wanted: MessageStream) {
        let context = context(wanted.kind, wanted.thread);
        // If all probes use wildcards, any message will do: there are as many messages as probes.
        let selector = match self.plan.probes_openly(self.rank, self.number) {
            true => Selector { context, source: None, tag: None },
            false => exact(wanted),
        };
        let peer = selector.source.map(PeerId);
        if self.random.one_in(2) {
            let (id, found) =
                self.seek(|worker| worker.engine.submit_matched_probe(peer, selector));
            let stream = MessageStream { from: found.source, tag: found.tag, ..wanted };
            let into = Region::owned(found.bytes as usize);
            let op = self.progress.submit(|worker| worker.engine.submit_matched_receive(id, &into));
            self.finish(op.expect("nobody else has it"), stream, into);
        } else {
            let found = self.seek(|worker| worker.engine.probe(peer, selector));
            let stream = MessageStream { from: found.source, tag: found.tag, ..wanted };
            let into = Region::owned(found.bytes as usize);
            let selector = exact(stream);
            let peer = Some(PeerId(stream.from));
            let op =
                self.progress.submit(|worker| worker.engine.submit_receive(peer, selector, &into));
            self.finish(op, stream, into);
        }
    }

    /// Waits or tests until there is an answer.
    fn seek<T>(&mut self, mut question: impl FnMut(&mut Worker) -> Option<T>) -> T {
        match self.random.below(3) {
            0 => loop {
                if let Some(answer) = self.progress.test(&mut question) {
                    return answer;
                }
                self.progress.pause();
            },
            1 => loop {
                let limit = Duration::from_micros(self.random.pick(&[0, 100, 3000]));
                if let Some(answer) = self.progress.wait_for(limit, &mut question) {
                    return answer;
                }
            },
            _ => self.progress.wait(question),
        }
    }

    /// Completes the receive of the next message of a stream.
    fn finish(&mut self, op: OpId, stream: MessageStream, into: Region) {
        let number = next(&mut self.received, stream);
        self.serial += 1;
        let expected = Expected::One(stream, number);
        let pending = Pending { op, what: What::Receive { into, expected, serial: self.serial } };
        let completion = self.progress.wait(|worker| worker.engine.take(op));
        self.check(&pending, completion);
    }

    /// Posts receives and cancels them, until a message comes before the cancel.
    fn cancel_and_receive(&mut self, stream: MessageStream) {
        let number = self.received.get(&stream).copied().unwrap_or(0);
        let len = self.plan.message(stream, number).len;
        for attempt in 0.. {
            let into = Region::owned(len);
            let peer = Some(PeerId(stream.from));
            let op = self
                .progress
                .submit(|worker| worker.engine.submit_receive(peer, exact(stream), &into));
            self.rest();
            let cancels = attempt < 3 && self.random.one_in(2);
            if cancels && self.progress.submit(|worker| worker.engine.submit_cancel(op)) {
                let completion = self.progress.wait(|worker| worker.engine.take(op));
                assert_eq!(completion.outcome, Outcome::Cancelled, "{stream:?}");
                continue;
            }
            return self.finish(op, stream, into);
        }
    }

    /// Waits for a while for a message that never comes, then cancels the receive.
    fn cancel_in_vain(&mut self) {
        let into = Region::owned(8);
        let context = context(Kind::Never, self.number);
        let from = self.random.below(self.plan.processes as usize) as u32;
        let source = Some(from).filter(|_| self.random.one_in(2));
        let selector = Selector { context, source, tag: None };
        let peer = source.map(PeerId);
        let op = self.progress.submit(|worker| worker.engine.submit_receive(peer, selector, &into));
        let limit = Duration::from_micros(self.random.pick(&[0, 100, 2000]));
        assert_eq!(self.progress.wait_for(limit, |worker| worker.engine.take(op)), None);
        let begin = Instant::now();
        assert!(self.progress.submit(|worker| worker.engine.submit_cancel(op)));
        let completion = self.progress.wait(|worker| worker.engine.take(op));
        assert_eq!(completion.outcome, Outcome::Cancelled, "after {:?}", begin.elapsed());
    }

    /// Receives messages that any thread may take, as many as are sent in this window and still unclaimed.
    fn take_shared(&mut self) {
        let streams = self.plan.streams(Kind::Shared).filter(|stream| stream.to == self.rank);
        let sent: u32 = streams.map(|stream| self.plan.count(self.window, stream)).sum();
        let tickets = &self.process.tickets[self.window as usize];
        while tickets.fetch_add(1, Ordering::Relaxed) < sent {
            let context = shared_context(self.window);
            let selector = Selector { context, source: None, tag: None };
            let (id, found) =
                self.seek(|worker| worker.engine.submit_matched_probe(None, selector));
            let into = Region::owned(found.bytes as usize);
            let op = self.progress.submit(|worker| worker.engine.submit_matched_receive(id, &into));
            let op = op.expect("nobody else has it");
            self.serial += 1;
            let expected = Expected::AnyOf(Kind::Shared, 0);
            let what = What::Receive { into, expected, serial: self.serial };
            let completion = self.progress.wait(|worker| worker.engine.take(op));
            self.check(&Pending { op, what }, completion);
        }
    }

    /// Exchanges messages to and fro with another thread, which has the same exchange in its list.
    fn ping(&mut self, other: (u32, u32)) {
        let me = (self.rank, self.number);
        let pair = [me.min(other), me.max(other)];
        let what = pair.map(|(rank, thread)| u64::from(rank) << 32 | u64::from(thread));
        let window = u64::from(self.window);
        let rounds = self.plan.seed_of(&[7, what[0], what[1], window]).below(8);
        // Tags tell the threads of a process apart, sources the processes.
        let stream = |from: (u32, u32), to: (u32, u32)| MessageStream {
            kind: Kind::Ping,
            thread: to.1,
            from: from.0,
            to: to.0,
            tag: TAGS + from.1 as i32,
        };
        for turn in 0..2 * rounds {
            if (turn % 2 == 0) == (me < other) {
                self.send(stream(me, other));
            } else {
                self.receive(stream(other, me));
            }
        }
    }

    fn send(&mut self, stream: MessageStream) {
        let made = self.make(Begin::Send(stream));
        if self.random.one_in(2) && made.send_short(self.progress) {
            return;
        }
        self.begin_and_wait(&made);
    }

    fn receive(&mut self, stream: MessageStream) {
        let made = self.make(Begin::Receive(stream));
        self.begin_and_wait(&made);
    }

    /// Submits and waits in one call, or submits within a wait, as collectives do.
    fn begin_and_wait(&mut self, made: &Made) {
        let take = |worker: &mut Worker, op: OpId, awaits: bool| match awaits {
            true => worker.take_or_await(op),
            false => worker.engine.take(op),
        };
        let awaits = self.random.one_in(2);
        let (pending, completion) = if self.random.one_in(2) {
            let mut begun = None;
            let completion = self.progress.wait(|worker| {
                let pending = begun.get_or_insert_with(|| made.submit(worker));
                take(worker, pending.op, awaits)
            });
            (begun.expect("it has ended"), completion)
        } else {
            self.progress.submit_and_wait(
                |worker| made.submit(worker),
                |worker, pending| {
                    let completion = take(worker, pending.op, awaits)?;
                    Some((Pending { op: pending.op, what: made.what() }, completion))
                },
            )
        };
        self.check(&pending, completion);
    }

    /// Checks that an operation has ended as expected.
    fn check(&mut self, pending: &Pending, completion: Completion) {
        if completion.outcome == Outcome::PeerFailed {
            let notices = |process: &StressProcess| process.progress.look(Worker::take_notices);
            let why: Vec<_> = self.job.processes.iter().map(notices).collect();
            panic!("{pending:?}: {why:?}");
        }
        match &pending.what {
            What::Send { stream, number } => {
                assert_eq!(completion.outcome, Outcome::Ok, "{stream:?}, message {number}");
            }
            What::Receive { into, expected, serial } => {
                let bytes = into.to_vec();
                let (stream, number) = match *expected {
                    Expected::One(stream, number) => (stream, number),
                    Expected::AnyOf(kind, thread) => {
                        named(kind, thread, self.rank, completion, &bytes)
                    }
                };
                let expected = self.plan.message(stream, number).bytes();
                let fits = expected.len().min(bytes.len());
                let outcome = match fits < expected.len() {
                    true => Outcome::Truncated { message_bytes: expected.len() as u64 },
                    false => Outcome::Ok,
                };
                let arrived = Completion {
                    source: stream.from,
                    tag: stream.wire_tag(),
                    bytes: fits as u64,
                    outcome,
                };
                assert_eq!(completion, arrived, "{stream:?}, message {number}");
                assert!(bytes[..fits] == expected[..fits], "{stream:?}, message {number}: content");
                if stream.kind != Kind::Ping {
                    lock(&self.process.ledger).push(Received { serial: *serial, stream, number });
                }
            }
        }
    }

    /// Makes no library call for a while, now and then.
    fn rest(&mut self) {
        match self.random.below(20) {
            0 => std::thread::sleep(Duration::from_micros(self.random.pick(&[50, 500, 3000]))),
            1 => std::thread::yield_now(),
            _ => {}
        }
    }

    fn tell(&self, what: &dyn std::fmt::Debug) {
        let text = format!("window {}: {what:?}", self.window);
        self.process.states[self.number as usize].set(text);
    }
}

/// Message that a wildcard receive has got, found by the number in its bytes.
fn named(
    kind: Kind,
    thread: u32,
    to: u32,
    completion: Completion,
    bytes: &[u8],
) -> (MessageStream, u32) {
    let (from, tag) = (completion.source, completion.tag);
    let number = StressMessage::number_in(bytes).expect("at least 8 bytes");
    let (thread, tag) = match kind {
        Kind::Shared => ((tag / TAGS) as u32, tag % TAGS),
        _ => (thread, tag),
    };
    (MessageStream { kind, thread, from, to, tag }, number)
}

/// An operation to submit.
enum Made {
    Send {
        stream: MessageStream,
        number: u32,
        envelope: Envelope,
        mode: SendMode,
        data: Region,
    },
    Receive {
        peer: Option<PeerId>,
        selector: Selector,
        into: Region,
        expected: Expected,
        serial: u64,
    },
}

impl Made {
    fn submit(&self, worker: &mut Worker) -> Pending {
        let op = match self {
            Self::Send { stream, envelope, mode, data, .. } => {
                worker.engine.submit_send(PeerId(stream.to), *envelope, data, *mode)
            }
            Self::Receive { peer, selector, into, .. } => {
                worker.engine.submit_receive(*peer, *selector, into)
            }
        };
        Pending { op, what: self.what() }
    }

    /// Begins the operation as `MPI_Isend` and `MPI_Irecv` do; returns none if it is already sent.
    fn begin(&self, progress: &Progress) -> Option<Pending> {
        let op = match self {
            Self::Send { stream, envelope, mode, data, .. } => {
                progress.begin_send(PeerId(stream.to), *envelope, data, *mode, NOTE)?
            }
            Self::Receive { peer, selector, into, .. } => {
                progress.begin_receive(*peer, *selector, into, NOTE)
            }
        };
        Some(Pending { op, what: self.what() })
    }

    /// Sends a short message as `MPI_Send` does; true if it is sent.
    fn send_short(&self, progress: &Progress) -> bool {
        match self {
            Self::Send { stream, envelope, mode: SendMode::Standard, data, .. } => {
                progress.send_short(PeerId(stream.to), *envelope, data)
            }
            Self::Send { .. } | Self::Receive { .. } => false,
        }
    }

    fn what(&self) -> What {
        match self {
            Self::Send { stream, number, .. } => What::Send { stream: *stream, number: *number },
            Self::Receive { into, expected, serial, .. } => {
                What::Receive { into: into.clone(), expected: *expected, serial: *serial }
            }
        }
    }
}

fn take_any(worker: &mut Worker, some: &mut Vec<Pending>) -> Option<(Pending, Completion)> {
    let at = some.iter().position(|one| worker.engine.is_complete(one.op))?;
    taken(worker, some.swap_remove(at)).ok()
}

fn taken(worker: &mut Worker, one: Pending) -> Result<(Pending, Completion), Pending> {
    match worker.engine.take(one.op) {
        Some(completion) => Ok((one, completion)),
        None => Err(one),
    }
}

fn next(numbers: &mut BTreeMap<MessageStream, u32>, stream: MessageStream) -> u32 {
    let number = numbers.entry(stream).or_default();
    *number += 1;
    *number - 1
}

fn exact(stream: MessageStream) -> Selector {
    Selector {
        context: context(stream.kind, stream.thread),
        source: Some(stream.from),
        tag: Some(stream.wire_tag()),
    }
}

/// A note that nobody reads.
const NOTE: u64 = 1;
