//! Simulation of the schedules of all ranks.
//!
//! Time is virtual. A rank works for its messages, sent and received, one after the other. A node
//! sends and receives bytes at the rate of its site's network, and two sites exchange them at the
//! rate between them. A rank that waits long sleeps, and continues after the wake-up latency.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ops::Range;

use crate::costs::{Distance, MessageCost};
use crate::model::{LINE_NS, SPINS};
use crate::schedule::{Schedule, Step};
use crate::topology::Topology;

/// Predicted course of a collective, from the simultaneous call of all ranks to the last one's
/// return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// Duration.
    pub time_ns: u64,
    /// Messages between nodes, including those between sites.
    pub messages: u64,
    /// Messages between sites.
    pub wide_messages: u64,
    /// Bytes between sites, in all directions.
    pub wide_bytes: u64,
}

/// An activity of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The rank.
    pub rank: u32,
    /// Start of the activity.
    pub from_ns: u64,
    /// End of the activity.
    pub to_ns: u64,
    /// Kind of activity.
    pub doing: Doing,
}

/// Kinds of activities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Sends over this distance, or waits for its data to leave.
    Sends(Distance),
    /// Processes received data.
    Receives,
    /// Copies or combines.
    Computes,
    /// Waits for data that another sends or posts.
    Waits {
        /// The sending rank.
        other: u32,
        /// Time at which that rank was ready to send.
        since_ns: u64,
    },
}

/// Predicts the schedules of all ranks, in the order of ranks. A unit has `unit_bytes` bytes.
pub fn predict(schedules: &[Schedule], topology: &Topology, unit_bytes: u64) -> Prediction {
    watch(schedules, topology, unit_bytes, &mut |_| {})
}

/// Does the same and reports all activities to `tell`, in order for each rank.
pub fn watch(
    schedules: &[Schedule],
    topology: &Topology,
    unit_bytes: u64,
    tell: &mut dyn FnMut(Deed),
) -> Prediction {
    let mut simulation = Simulation::new(schedules, topology, unit_bytes, tell);
    while let Some(Reverse((now_ns, event))) = simulation.events.pop() {
        match event {
            Event::Arrives(message) => simulation.take_in(now_ns, message),
            Event::Continues(rank) => simulation.step(rank),
        }
    }
    let time_ns = simulation.ranks.iter().map(|rank| rank.clock_ns).max().unwrap_or(0);
    Prediction { time_ns, ..simulation.prediction }
}

struct Simulation<'a> {
    schedules: &'a [Schedule],
    topology: &'a Topology,
    unit_bytes: u64,
    ranks: Vec<RankState>,
    /// Future events.
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// Arrivals of messages between two ranks, and steps that wait for them.
    wires: HashMap<(u32, u32), Wire>,
    /// Times at which nodes have sent and received everything so far, and sites have sent to each
    /// other.
    channels: HashMap<Resource, u64>,
    prediction: Prediction,
    /// Ranks at the shared segment of each rank's node, by their positions.
    neighbours: Vec<Vec<u32>>,
    /// Number of messages so far.
    sent: u64,
    tell: &'a mut dyn FnMut(Deed),
}

#[derive(Default)]
struct RankState {
    clock_ns: u64,
    at: usize,
    /// True if the rank is among those that can continue.
    is_ready: bool,
    begun: Vec<Begun>,
    /// Times of its posts in the shared segment, by round.
    posts: Vec<u64>,
    /// Times of its further pieces, and of its releases of others' pieces, by round and piece.
    pieces: Pieces,
    releases: Pieces,
}

type Pieces = HashMap<(usize, u32), u64>;

/// An operation that was started and not yet waited for.
#[derive(Clone, Copy)]
struct Begun {
    step: u32,
    /// Time at which it has left or arrived, if known.
    end: Option<Completion>,
    /// Work of the rank after that.
    work_ns: u64,
}

/// End of a started operation, and the activity of a rank that waits for it.
#[derive(Clone, Copy)]
struct Completion {
    ends_ns: u64,
    meanwhile: Doing,
}

#[derive(Default)]
struct Wire {
    arrivals: VecDeque<Completion>,
    expected: VecDeque<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A message arrives at the node of its receiver.
    Arrives(SimulatedTransfer),
    /// A rank continues.
    Continues(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SimulatedTransfer {
    /// Number of messages before it.
    number: u64,
    from: u32,
    to: u32,
    bytes: u64,
    since_ns: u64,
}

/// A resource that carries one message at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Resource {
    Out(u32),
    In(u32),
    Between(u32, u32),
}

impl<'a> Simulation<'a> {
    fn new(
        schedules: &'a [Schedule],
        topology: &'a Topology,
        unit_bytes: u64,
        tell: &'a mut dyn FnMut(Deed),
    ) -> Self {
        let ranks = schedules
            .iter()
            .map(|_| RankState { is_ready: true, ..RankState::default() })
            .collect();
        let goes = |rank| Reverse((0, Event::Continues(rank)));
        let events = (0..schedules.len() as u32).map(goes).collect();
        let (wires, channels) = (HashMap::new(), HashMap::new());
        let prediction = Prediction::default();
        let neighbours =
            (0..schedules.len() as u32).map(|rank| topology.neighbours(rank)).collect();
        Self {
            schedules,
            topology,
            unit_bytes,
            ranks,
            events,
            wires,
            channels,
            prediction,
            neighbours,
            sent: 0,
            tell,
        }
    }

    /// Executes one step of the rank with the earliest clock.
    fn step(&mut self, me: u32) {
        let rank = &mut self.ranks[me as usize];
        rank.is_ready = false;
        let Some(&step) = self.schedules[me as usize].steps.get(rank.at) else { return };
        let at = rank.at as u32;
        match step {
            Step::Send { to, span } => {
                let end = self.send(me, to, span.len.saturating_mul(self.unit_bytes));
                let begun = Begun { step: at, end: Some(end), work_ns: 0 };
                self.ranks[me as usize].begun.push(begun);
            }
            Step::Receive { from, span } => {
                let wire = self.wires.entry((from, me)).or_default();
                let arrival = wire.arrivals.pop_front();
                if arrival.is_none() {
                    wire.expected.push_back(at);
                }
                let bytes = span.len.saturating_mul(self.unit_bytes);
                let work_ns = self.work_ns(from, me, bytes);
                let begun = Begun { step: at, end: arrival, work_ns };
                self.ranks[me as usize].begun.push(begun);
            }
            Step::Wait if !self.settle(me, None) => return,
            Step::Await { step } if !self.settle(me, Some(step)) => return,
            Step::Wait | Step::Await { .. } => {}
            Step::Post { span } => self.post(me, span.len.saturating_mul(self.unit_bytes)),
            Step::PostParts { first, count } => {
                self.post_blocks(me, first as usize..(first + count) as usize);
            }
            Step::PostBlocks => {
                self.post_blocks(me, 0..self.schedules[me as usize].blocks.len());
            }
            Step::Announce { .. } => {}
            Step::PostMore { piece, .. }
                if piece > 1
                    && !self.meet_piece(me, self.reader(me), piece - 2, |rank| &rank.releases) =>
            {
                return;
            }
            Step::PostMore { piece, span, .. } => {
                let bytes = span.len.saturating_mul(self.unit_bytes);
                let takes_ns = self.topology.costs().node.stream_ns(bytes);
                self.spend(me, takes_ns, Doing::Sends(Distance::Node));
                self.note_piece(me, piece, |rank| &mut rank.pieces);
            }
            Step::Release { piece } => self.note_piece(me, piece, |rank| &mut rank.releases),
            Step::TakeMore { from, piece, .. }
                if !self.meet_piece(me, from, piece, |rank| &rank.pieces) =>
            {
                return;
            }
            Step::Meet { first, end } if !self.meet(me, first..end) => return,
            Step::Meet { .. } => {}
            Step::Copy { to: span, .. }
            | Step::Take { to: span, .. }
            | Step::TakeBlock { to: span, .. }
            | Step::TakeMore { to: span, .. }
            | Step::Reduce { inout: span, .. } => self.compute(me, span.len),
            Step::Combine { to, .. } => {
                let folds = self.schedules[me as usize].order.len() as u64;
                self.compute(me, to.len.saturating_mul(folds));
            }
        }
        self.ranks[me as usize].at += 1;
        self.make_ready(me);
    }

    /// Lets a rank copy or combine so many units.
    fn compute(&mut self, rank: u32, units: u64) {
        let bytes = units.saturating_mul(self.unit_bytes);
        let takes_ns = self.topology.costs().node.stream_ns(bytes);
        self.spend(rank, takes_ns, Doing::Computes);
    }

    /// Advances a rank's clock by an activity.
    fn spend(&mut self, rank: u32, takes_ns: u64, doing: Doing) {
        let clock_ns = &mut self.ranks[rank as usize].clock_ns;
        let from_ns = *clock_ns;
        *clock_ns = from_ns.saturating_add(takes_ns);
        if takes_ns > 0 {
            (self.tell)(Deed { rank, from_ns, to_ns: *clock_ns, doing });
        }
    }

    /// Posts some of a schedule's blocks.
    fn post_blocks(&mut self, me: u32, which: Range<usize>) {
        let blocks = &self.schedules[me as usize].blocks[which];
        let units: u64 = blocks.iter().map(|span| span.len).sum();
        self.post(me, units.saturating_mul(self.unit_bytes));
    }

    /// Posts, and wakes the ranks that wait for it.
    fn post(&mut self, me: u32, bytes: u64) {
        let takes_ns = self.topology.costs().node.stream_ns(bytes);
        self.spend(me, takes_ns, Doing::Sends(Distance::Node));
        let rank = &mut self.ranks[me as usize];
        rank.posts.push(rank.clock_ns);
        self.let_go_on(me);
    }

    /// Returns the rank that takes the pieces of this one.
    fn reader(&self, me: u32) -> u32 {
        let announced = |step: &Step| match *step {
            Step::Announce { reader, .. } => Some(reader),
            _ => None,
        };
        let steps = &self.schedules[me as usize].steps[..self.ranks[me as usize].at];
        steps.iter().rev().find_map(announced).unwrap_or(0)
    }

    /// Makes the ranks ready that wait at the shared segment.
    fn let_go_on(&mut self, me: u32) {
        for position in 0..self.neighbours[me as usize].len() {
            let other = self.neighbours[me as usize][position];
            let at = self.ranks[other as usize].at;
            if let Some(Step::Meet { .. } | Step::PostMore { .. } | Step::TakeMore { .. }) =
                self.schedules[other as usize].steps.get(at)
            {
                self.make_ready(other);
            }
        }
    }

    /// Records that a rank has posted a further piece of its round, or has released one.
    fn note_piece(&mut self, me: u32, piece: u32, of: impl Fn(&mut RankState) -> &mut Pieces) {
        let rank = &mut self.ranks[me as usize];
        let (key, clock_ns) = ((rank.posts.len(), piece), rank.clock_ns);
        of(rank).insert(key, clock_ns);
        self.let_go_on(me);
    }

    /// Advances to the time at which the rank at a position has posted or released that piece in
    /// this round; false if unknown.
    fn meet_piece(
        &mut self,
        me: u32,
        position: u32,
        piece: u32,
        of: impl Fn(&RankState) -> &Pieces,
    ) -> bool {
        let key = (self.ranks[me as usize].posts.len(), piece);
        let other = self.neighbours[me as usize][position as usize];
        let Some(&since_ns) = of(&self.ranks[other as usize]).get(&key) else { return false };
        let there = since_ns + self.topology.costs().node.latency_ns;
        let late_ns = there.saturating_sub(self.ranks[me as usize].clock_ns);
        self.spend(me, late_ns, Doing::Waits { other, since_ns });
        self.spend(me, LINE_NS, Doing::Receives);
        true
    }

    /// Advances to the time at which the ranks at these positions have posted in this round; false
    /// if unknown.
    fn meet(&mut self, me: u32, positions: Range<u32>) -> bool {
        let round = self.ranks[me as usize].posts.len().saturating_sub(1);
        let lines_ns = u64::from(positions.end - positions.start) * LINE_NS;
        let ranks = positions.map(|position| self.neighbours[me as usize][position as usize]);
        let post = |rank: u32| Some((*self.ranks[rank as usize].posts.get(round)?, rank));
        let Some(posts) = ranks.map(post).collect::<Option<Vec<_>>>() else { return false };
        let (since_ns, other) = posts.into_iter().max().unwrap_or((0, me));
        let there = since_ns + self.topology.costs().node.latency_ns;
        let late_ns = there.saturating_sub(self.ranks[me as usize].clock_ns);
        self.spend(me, late_ns, Doing::Waits { other, since_ns });
        self.spend(me, lines_ns, Doing::Receives);
        true
    }

    /// Returns the work of a rank for a received message, which includes the copy within a node.
    fn work_ns(&self, from: u32, to: u32, bytes: u64) -> u64 {
        let cost = self.topology.cost(from, to);
        match self.topology.distance(from, to) {
            Distance::Node => cost.overhead_ns + cost.stream_ns(bytes),
            Distance::Site | Distance::Wide => cost.overhead_ns,
        }
    }

    fn make_ready(&mut self, rank: u32) {
        let RankState { clock_ns, is_ready, .. } = &mut self.ranks[rank as usize];
        if !std::mem::replace(is_ready, true) {
            self.events.push(Reverse((*clock_ns, Event::Continues(rank))));
        }
    }

    /// Sends a message and returns the completion.
    fn send(&mut self, me: u32, to: u32, bytes: u64) -> Completion {
        let distance = self.topology.distance(me, to);
        let cost = self.topology.cost(me, to);
        let sends = Doing::Sends(distance);
        self.spend(me, cost.overhead_ns, sends);
        let start = self.ranks[me as usize].clock_ns;
        let (ends_ns, comes) = match distance {
            Distance::Node => {
                // The receiver copies behind the sender.
                self.spend(me, cost.stream_ns(bytes), sends);
                (self.ranks[me as usize].clock_ns, start + cost.latency_ns)
            }
            Distance::Site | Distance::Wide => self.travel(me, to, bytes, start, cost),
        };
        self.prediction.messages += u64::from(distance != Distance::Node);
        if distance == Distance::Wide {
            self.prediction.wide_messages += 1;
            self.prediction.wide_bytes += bytes;
        }
        let message = SimulatedTransfer { number: self.sent, from: me, to, bytes, since_ns: start };
        self.sent += 1;
        self.events.push(Reverse((comes, Event::Arrives(message))));
        Completion { ends_ns, meanwhile: sends }
    }

    /// Returns the time at which a message between nodes has left, and at which it begins to
    /// arrive.
    fn travel(
        &mut self,
        me: u32,
        to: u32,
        bytes: u64,
        start: u64,
        cost: MessageCost,
    ) -> (u64, u64) {
        let (one, other) = (self.topology.location(me), self.topology.location(to));
        let near_ns = self.topology.costs().site.stream_ns(bytes);
        let leaves = self.occupy(Resource::Out(one.node), start, near_ns);
        let crosses = match one.site == other.site {
            true => leaves,
            false => {
                self.occupy(Resource::Between(one.site, other.site), leaves, cost.stream_ns(bytes))
            }
        };
        (leaves + near_ns, crosses + cost.latency_ns)
    }

    /// Occupies a channel after its earlier messages and returns the start.
    fn occupy(&mut self, line: Resource, from: u64, takes: u64) -> u64 {
        let free = self.channels.entry(line).or_default();
        let begins = from.max(*free);
        *free = begins + takes;
        begins
    }

    /// Delivers a message to its receiver's node.
    fn take_in(&mut self, now_ns: u64, message: SimulatedTransfer) {
        let SimulatedTransfer { from, to, bytes, since_ns, .. } = message;
        let distance = self.topology.distance(from, to);
        let (costs, cost) = (*self.topology.costs(), self.topology.cost(from, to));
        let ends_ns = match distance {
            Distance::Node => now_ns,
            Distance::Site | Distance::Wide => {
                let node = self.topology.location(to).node;
                let near_ns = costs.site.stream_ns(bytes);
                self.occupy(Resource::In(node), now_ns, near_ns)
                    + near_ns.max(cost.stream_ns(bytes))
            }
        };
        let arrival = Completion { ends_ns, meanwhile: Doing::Waits { other: from, since_ns } };
        let wire = self.wires.entry((from, to)).or_default();
        match wire.expected.pop_front() {
            Some(step) => self.arrive(to, step, arrival),
            None => wire.arrivals.push_back(arrival),
        }
    }

    /// Gives a rank the end of an operation that it waits for.
    fn arrive(&mut self, to: u32, step: u32, arrival: Completion) {
        let rank = &mut self.ranks[to as usize];
        if let Some(begun) = rank.begun.iter_mut().find(|begun| begun.step == step) {
            begun.end = Some(arrival);
        }
        let waits = self.schedules[to as usize].steps.get(rank.at);
        if let Some(Step::Wait | Step::Await { .. }) = waits {
            self.make_ready(to);
        }
    }

    /// Advances to the end of one started operation, or of all; false if unknown.
    fn settle(&mut self, me: u32, step: Option<u32>) -> bool {
        let rank = &mut self.ranks[me as usize];
        let counts = |begun: &Begun| step.is_none_or(|step| begun.step == step);
        let waited = rank.begun.iter().filter(|begun| counts(begun));
        let known = waited.map(|begun| Some((begun.end?, begun.work_ns)));
        let Some(mut known) = known.collect::<Option<Vec<_>>>() else { return false };
        rank.begun.retain(|begun| !counts(begun));
        known.sort_unstable_by_key(|(end, work_ns)| (end.ends_ns, *work_ns));
        let wake_ns = self.topology.costs().wake_ns;
        for (Completion { ends_ns, meanwhile }, work_ns) in known {
            let late_ns = ends_ns.saturating_sub(self.ranks[me as usize].clock_ns);
            let is_asleep = late_ns > SPINS * wake_ns;
            self.spend(me, late_ns + u64::from(is_asleep) * wake_ns, meanwhile);
            self.spend(me, work_ns, Doing::Receives);
        }
        true
    }
}
