//! A rail in virtual time: any number of processes of a job inside one, for tests and predictions.
//!
//! A [`SimNetwork`] holds the clock, the paths between its endpoints and all that is under way;
//! [`SimNetwork::rail`] makes an endpoint. Nothing happens by itself: [`SimNetwork::advance`] and
//! [`SimNetwork::step`] move the clock, and the same calls from the same seed give the same run.
//!
//! A frame waits in its lane's queue, occupies the line for `len / bandwidth`, and arrives `latency`
//! later, never before the frame ahead of it. Its memory is read when its last byte leaves, as late
//! as a real rail may: an engine that gives memory back early is caught by what arrives. At most
//! `window_bytes` have left a sender and not been consumed, so a receiver that does not poll stops it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use memory::Region;
use wire::{Capabilities, Cost, Frame, FrameToken, PeerId, RemoteRegion};

use crate::rail::{Event, Fault, Post, Rail, RailError, RemoteReader};

/// One direction between two endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct SimPath {
    /// From the last byte's departure to its arrival.
    pub latency: Duration,
    /// The line's rate; none for one that costs no time.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Frames that may wait for the line.
    pub depth: usize,
    /// Bytes that may be under way and not consumed; a longer frame travels alone.
    pub window_bytes: usize,
    /// What becomes of frames now and then.
    pub loss: SimLoss,
    /// Whether a link can be opened.
    pub reachable: bool,
    /// What links state of themselves when they come up.
    pub capabilities: Capabilities,
}

/// How a path loses data. A rail delivers whole and in order, so a loss is a delay or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimLoss {
    /// It does not.
    Never,
    /// So many frames in a million arrive later, and with them all that is behind.
    Delays {
        /// Frames in a million.
        per_million: u32,
        /// The retransmission's time.
        by: Duration,
    },
    /// So many frames in a million end their link.
    Cuts {
        /// Frames in a million.
        per_million: u32,
    },
}

impl Default for SimPath {
    /// A site's network: 10 µs, 10 Gb/s, nothing lost.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(10),
            bandwidth_bytes_per_s: Some(1_250_000_000),
            depth: 4,
            window_bytes: 4 << 20,
            loss: SimLoss::Never,
            reachable: true,
            capabilities: Capabilities {
                frame_max: 64 << 10,
                inline_max: 4 << 10,
                eager_max: 16 << 10,
                rts_data_max: 0,
                aggregate_max: 64 << 10,
                piece_min: 64 << 10,
                piece_max: 64 << 10,
                credit_bytes: 1 << 20,
                credit_wanted: 1 << 20,
                remote_read: false,
                adapts: false,
                replay: false,
                reopens: false,
                copies: false,
                passes: false,
            },
        }
    }
}

impl SimPath {
    /// What the path's links cost, as scripted: losses apart.
    pub fn cost(&self) -> Cost {
        let latency_ns = u64::try_from(self.latency.as_nanos()).unwrap_or(u64::MAX);
        match self.bandwidth_bytes_per_s {
            Some(rate) => Cost::linear(latency_ns, 0, rate),
            None => Cost::measured(latency_ns, &[]),
        }
    }
}

/// Endpoints, the paths between them, and their common clock. Clones are the same network.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    state: Arc<Mutex<State>>,
}

/// One endpoint of a [`SimNetwork`].
#[derive(Debug)]
pub struct SimRail {
    rank: PeerId,
    network: SimNetwork,
}

#[derive(Debug)]
struct State {
    seed: u64,
    /// Virtual time since the network was made.
    now: Duration,
    serial: u64,
    usual: SimPath,
    paths: BTreeMap<(PeerId, PeerId), SimPath>,
    /// Pairs of endpoints, the lower first, that have a link or are getting one.
    links: BTreeSet<(PeerId, PeerId)>,
    lanes: BTreeMap<(PeerId, PeerId), Lane>,
    endpoints: BTreeMap<PeerId, VecDeque<Report>>,
    /// What will happen, by time and then by the order in which it was decided.
    agenda: BTreeMap<(Duration, u64), Happening>,
}

/// The frames of one direction of a link.
#[derive(Debug)]
struct Lane {
    /// Tells this link's lane from those of earlier links between the same endpoints.
    number: u64,
    /// The sender has asked for the link or was told of it: it will be told of the end.
    known: bool,
    /// The sender has seen the link come up.
    open: bool,
    queue: VecDeque<Waiting>,
    /// The first of the queue is on the line.
    busy: bool,
    /// Bytes that have left and not been consumed.
    under_way: usize,
    last_arrival: Duration,
    refused: bool,
    random: u64,
}

#[derive(Debug)]
struct Waiting {
    head: Vec<u8>,
    body: Option<Region>,
    token: Option<FrameToken>,
}

#[derive(Debug)]
enum Happening {
    /// The first frame of the lane has left.
    Departure(PeerId, PeerId),
    /// Consumed bytes become known to the sender.
    Credit {
        from: PeerId,
        to: PeerId,
        lane: u64,
        bytes: usize,
    },
    Arrival {
        at: PeerId,
        reports: Report,
    },
}

/// What an endpoint will report, in the order of its arrival.
#[derive(Debug)]
enum Report {
    Up { peer: PeerId, lane: u64, capabilities: Capabilities },
    Frame { from: PeerId, lane: u64, bytes: Vec<u8> },
    Sent(PeerId, FrameToken),
    Room(PeerId),
    Down(PeerId, Fault),
}

impl SimNetwork {
    /// A network without endpoints, at time zero; `seed` decides all that is left to chance.
    pub fn new(seed: u64) -> Self {
        let state = State {
            seed,
            now: Duration::ZERO,
            serial: 0,
            usual: SimPath::default(),
            paths: BTreeMap::new(),
            links: BTreeSet::new(),
            lanes: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            agenda: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The endpoint of process `rank`. There is one of each rank at a time.
    pub fn rail(&self, rank: PeerId) -> SimRail {
        self.lock().endpoints.insert(rank, VecDeque::new());
        SimRail { rank, network: self.clone() }
    }

    /// What all paths are like that [`set_path`](Self::set_path) does not name.
    pub fn set_usual_path(&self, path: SimPath) {
        self.lock().usual = path;
    }

    /// What the path `from` → `to` is like from now on.
    pub fn set_path(&self, from: PeerId, to: PeerId, path: SimPath) {
        self.lock().paths.insert((from, to), path);
    }

    /// Virtual time since the network was made.
    pub fn now(&self) -> Duration {
        self.lock().now
    }

    /// Lets time pass, and happen what happens meanwhile.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        let end = state.now + by;
        while state.next_time().is_some_and(|time| time <= end) {
            state.happen();
        }
        state.now = end;
    }

    /// Lets time pass until the next thing has happened; false when nothing will.
    pub fn step(&self) -> bool {
        self.lock().happen()
    }

    /// Ends the link between two endpoints: what is under way is lost, and both ends notice it one
    /// latency later. A new link can be opened.
    pub fn cut(&self, one: PeerId, other: PeerId) {
        self.lock().cut(one, other, "the network was cut");
    }

    /// The process `rank` dies: its links end, and nothing of it is heard again.
    pub fn kill(&self, rank: PeerId) {
        let mut state = self.lock();
        state.end_links(rank, |_| Fault::Lost(format!("process {} has ended", rank.0)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl State {
    fn path(&self, from: PeerId, to: PeerId) -> &SimPath {
        self.paths.get(&(from, to)).unwrap_or(&self.usual)
    }

    fn next_time(&self) -> Option<Duration> {
        self.agenda.first_key_value().map(|(&(time, _), _)| time)
    }

    fn plan(&mut self, time: Duration, happening: Happening) {
        self.serial += 1;
        self.agenda.insert((time, self.serial), happening);
    }

    fn happen(&mut self) -> bool {
        let Some(((time, _), happening)) = self.agenda.pop_first() else { return false };
        self.now = time;
        match happening {
            Happening::Departure(from, to) => {
                self.depart(from, to);
                self.kick(from, to);
            }
            Happening::Credit { from, to, lane: number, bytes } => {
                let lane = self.lanes.get_mut(&(from, to));
                if let Some(lane) = lane.filter(|lane| lane.number == number) {
                    lane.under_way -= bytes;
                    self.kick(from, to);
                }
            }
            Happening::Arrival { at, reports } => {
                if let Report::Up { peer, lane: number, .. } = &reports
                    && self.endpoints.contains_key(&at)
                    && let Some(lane) = self.lanes.get_mut(&(at, *peer))
                {
                    lane.known |= lane.number == *number;
                }
                self.tell(at, reports);
            }
        }
        true
    }

    fn tell(&mut self, at: PeerId, reports: Report) {
        if let Some(endpoint) = self.endpoints.get_mut(&at) {
            endpoint.push_back(reports);
        }
    }

    /// Asks for a link: the asked end knows of it one latency later, the asking one after two.
    fn open(&mut self, from: PeerId, to: PeerId) {
        if self.links.contains(&pair(from, to)) {
            if let Some(lane) = self.lanes.get_mut(&(from, to)) {
                lane.known = true;
            }
            return;
        }
        let there = self.path(from, to).latency;
        let back = self.path(to, from).latency;
        let (up, known) = (self.now + there, self.now + there + back);
        if !self.path(from, to).reachable || !self.endpoints.contains_key(&to) {
            let fault = Fault::Unreachable(format!("no answer from rank {}", to.0));
            let reports = Report::Down(to, fault);
            return self
                .plan(self.now + CONNECT_PATIENCE, Happening::Arrival { at: from, reports });
        }
        self.links.insert(pair(from, to));
        for (one, other) in [(from, to), (to, from)] {
            let random = mix(self.seed ^ u64::from(one.0) << 32 ^ u64::from(other.0));
            self.serial += 1;
            let lane = Lane { known: one == from, ..Lane::new(self.serial, random) };
            self.lanes.insert((one, other), lane);
        }
        let reports = |at: PeerId, peer: PeerId| {
            let lane = self.lanes.get(&(at, peer)).map_or(0, |lane| lane.number);
            Report::Up { peer, lane, capabilities: self.path(at, peer).capabilities }
        };
        let (up_there, up_here) = (reports(to, from), reports(from, to));
        self.plan(up, Happening::Arrival { at: to, reports: up_there });
        self.plan(known, Happening::Arrival { at: from, reports: up_here });
    }

    fn post(&mut self, from: PeerId, to: PeerId, frame: &Frame) -> Post {
        let depth = self.path(from, to).depth;
        let lane = self.lanes.get_mut(&(from, to)).filter(|lane| lane.open);
        let Some(lane) = lane else { return Post::Full };
        if lane.queue.len() >= depth {
            lane.refused = true;
            return Post::Full;
        }
        let body = frame.body.as_ref().map(|body| body.region.clone());
        let token = frame.token.filter(|_| body.is_some());
        let waiting = Waiting { head: frame.head.clone(), body, token };
        lane.queue.push_back(waiting);
        let alone = lane.queue.len() == 1 && !lane.busy;
        if alone && self.path(from, to).bandwidth_bytes_per_s.is_none() && self.fits(from, to) {
            // Gone before the call returns: the caller learns it from the answer.
            if let Some(first) = self.lanes.get_mut(&(from, to)).and_then(|l| l.queue.front_mut()) {
                first.token = None;
            }
            self.depart(from, to);
            return Post::Done;
        }
        self.kick(from, to);
        if frame.body.is_some() { Post::Held } else { Post::Done }
    }

    /// Whether the window has room for the first frame of the lane.
    fn fits(&self, from: PeerId, to: PeerId) -> bool {
        let window = self.path(from, to).window_bytes;
        self.lanes.get(&(from, to)).is_some_and(|lane| {
            let first = lane.queue.front().map(Waiting::len);
            first.is_some_and(|len| lane.under_way == 0 || lane.under_way + len <= window)
        })
    }

    /// Puts the first frame of the lane on the line, if both are ready.
    fn kick(&mut self, from: PeerId, to: PeerId) {
        if !self.fits(from, to) {
            return;
        }
        let bandwidth = self.path(from, to).bandwidth_bytes_per_s;
        let Some(lane) = self.lanes.get_mut(&(from, to)).filter(|lane| !lane.busy) else { return };
        lane.busy = true;
        let bytes = lane.queue.front().map_or(0, Waiting::len) as u64;
        let takes = bandwidth.map_or(Duration::ZERO, |rate| {
            Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1))
        });
        self.plan(self.now + takes, Happening::Departure(from, to));
    }

    /// The last byte of the lane's first frame leaves.
    fn depart(&mut self, from: PeerId, to: PeerId) {
        let SimPath { latency, depth, loss, .. } = *self.path(from, to);
        let now = self.now;
        let Some(lane) = self.lanes.get_mut(&(from, to)) else { return };
        lane.busy = false;
        let Some(first) = lane.queue.pop_front() else { return };
        let bytes = first.bytes();
        let number = lane.number;
        lane.under_way += bytes.len();
        let mut arrival = (now + latency).max(lane.last_arrival);
        let mut cut = false;
        match loss {
            SimLoss::Never => {}
            SimLoss::Delays { per_million, by } => {
                if lane.chance(per_million) {
                    arrival += by;
                }
            }
            SimLoss::Cuts { per_million } => cut = lane.chance(per_million),
        }
        lane.last_arrival = arrival;
        let room = lane.refused && lane.queue.len() < depth;
        lane.refused &= !room;
        if let Some(token) = first.token {
            self.tell(from, Report::Sent(to, token));
        }
        if room {
            self.tell(from, Report::Room(to));
        }
        if cut {
            return self.cut(from, to, "a frame was lost for good");
        }
        let reports = Report::Frame { from, lane: number, bytes };
        self.plan(arrival, Happening::Arrival { at: to, reports });
    }

    fn cut(&mut self, one: PeerId, other: PeerId, why: &str) {
        if !self.links.remove(&pair(one, other)) {
            return;
        }
        let known = |key| self.lanes.get(&key).is_some_and(|lane| lane.known);
        let ends = [(one, other), (other, one)].map(|key| (key, known(key)));
        self.clear(one, other);
        for ((at, peer), _) in ends.into_iter().filter(|(_, known)| *known) {
            let time = self.now + self.path(peer, at).latency;
            let fault = Fault::Lost(format!("ranks {} and {}: {why}", at.0, peer.0));
            self.plan(time, Happening::Arrival { at, reports: Report::Down(peer, fault) });
        }
    }

    /// Forgets everything under way between two endpoints, but that earlier links have ended.
    fn clear(&mut self, one: PeerId, other: PeerId) {
        self.agenda.retain(|_, happening| {
            let between = match happening {
                Happening::Departure(from, to) | Happening::Credit { from, to, .. } => {
                    pair(*from, *to)
                }
                Happening::Arrival { reports: Report::Down(..), .. } => return true,
                Happening::Arrival { at, reports } => pair(*at, reports.peer()),
            };
            between != pair(one, other)
        });
        self.lanes.remove(&(one, other));
        self.lanes.remove(&(other, one));
    }

    /// Takes the endpoint `rank` away. A link on which nothing waits ends behind what was sent.
    fn end_links(&mut self, rank: PeerId, fault: impl Fn(bool) -> Fault) {
        let ended = |(low, high): &(PeerId, PeerId)| *low == rank || *high == rank;
        let pairs: Vec<_> = self.links.iter().filter(|pair| ended(pair)).copied().collect();
        self.agenda.retain(|_, happening| match happening {
            Happening::Departure(from, to) => *from != rank && *to != rank,
            Happening::Arrival { at, .. } => *at != rank,
            Happening::Credit { .. } => true,
        });
        for (low, high) in pairs {
            let peer = if low == rank { high } else { low };
            self.links.remove(&(low, high));
            let lane = self.lanes.remove(&(rank, peer));
            self.lanes.remove(&(peer, rank));
            let flushed = lane.as_ref().is_none_or(|lane| lane.queue.is_empty());
            let behind = lane.map_or(Duration::ZERO, |lane| lane.last_arrival);
            let time = behind.max(self.now + self.path(rank, peer).latency);
            let reports = Report::Down(rank, fault(flushed));
            self.plan(time, Happening::Arrival { at: peer, reports });
        }
        self.endpoints.remove(&rank);
    }

    /// The news of one endpoint, at most a burst, and nothing behind the end of a link: whoever hears of it acts on it
    /// first. Consumed bytes are credited to their senders.
    fn take(&mut self, at: PeerId) -> Vec<Report> {
        let Some(endpoint) = self.endpoints.get_mut(&at) else { return Vec::new() };
        let end = endpoint.iter().position(|reports| matches!(reports, Report::Down(..)));
        let count = end.map_or(endpoint.len(), |end| end + 1).min(BURST);
        let taken: Vec<Report> = endpoint.drain(..count).collect();
        for reports in &taken {
            match reports {
                Report::Frame { from, lane, bytes } => {
                    let time = self.now + self.path(at, *from).latency;
                    let (from, lane, bytes) = (*from, *lane, bytes.len());
                    self.plan(time, Happening::Credit { from, to: at, lane, bytes });
                }
                // One whose end is told next has no lane any more: the next link has its own.
                Report::Up { peer, lane: number, .. } => {
                    if let Some(lane) = self.lanes.get_mut(&(at, *peer)) {
                        lane.open |= lane.number == *number;
                    }
                }
                Report::Sent(..) | Report::Room(_) | Report::Down(..) => {}
            }
        }
        taken
    }
}

impl Lane {
    fn new(number: u64, random: u64) -> Self {
        Self {
            number,
            known: false,
            open: false,
            queue: VecDeque::new(),
            busy: false,
            under_way: 0,
            last_arrival: Duration::ZERO,
            refused: false,
            random,
        }
    }

    fn chance(&mut self, per_million: u32) -> bool {
        self.random = mix(self.random);
        self.random % 1_000_000 < u64::from(per_million)
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, Region::len)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        if let Some(body) = &self.body {
            bytes.resize(self.len(), 0);
            body.read(0, &mut bytes[self.head.len()..]);
        }
        bytes
    }
}

impl Report {
    fn peer(&self) -> PeerId {
        match self {
            Self::Up { peer, .. }
            | Self::Frame { from: peer, .. }
            | Self::Sent(peer, _)
            | Self::Room(peer)
            | Self::Down(peer, _) => *peer,
        }
    }

    fn show(&self, sink: &mut dyn FnMut(Event<'_>)) {
        match self {
            Self::Up { peer, capabilities, .. } => {
                sink(Event::Up { peer: *peer, capabilities: *capabilities });
            }
            Self::Frame { from, bytes, .. } => show_frame(*from, bytes, sink),
            Self::Sent(peer, token) => sink(Event::Sent { peer: *peer, token: *token }),
            Self::Room(peer) => sink(Event::Room { peer: *peer }),
            Self::Down(peer, fault) => sink(Event::Down { peer: *peer, fault: fault.clone() }),
        }
    }
}

impl Rail for SimRail {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn address(&self) -> Vec<u8> {
        self.rank.0.to_le_bytes().to_vec()
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        if address != peer.0.to_le_bytes() || peer == self.rank {
            return Err(RailError::Unreachable("no address of this network".into()));
        }
        self.network.lock().open(self.rank, peer);
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        let mut state = self.network.lock();
        state.cut(self.rank, peer, "the other end closed it");
        let own = self.rank;
        state.agenda.retain(|_, happening| match happening {
            Happening::Arrival { at, reports } => *at != own || reports.peer() != peer,
            Happening::Departure(..) | Happening::Credit { .. } => true,
        });
        if let Some(endpoint) = state.endpoints.get_mut(&own) {
            endpoint.retain(|reports| reports.peer() != peer);
        }
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        self.network.lock().post(self.rank, peer, frame)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let reports = self.network.lock().take(self.rank);
        for one in &reports {
            one.show(sink);
        }
        !reports.is_empty()
    }

    fn remote_reader(&self, peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        let can = self.network.lock().path(self.rank, peer).capabilities.remote_read;
        can.then(|| -> Arc<dyn RemoteReader> {
            Arc::new(Fetch { network: self.network.clone(), to: self.rank, from: peer })
        })
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.network.lock().endpoints.get(&self.rank).is_none_or(VecDeque::is_empty)
    }

    fn finish_sleep(&mut self) {}

    fn is_flushed(&self) -> bool {
        let state = self.network.lock();
        state.lanes.iter().all(|((from, _), lane)| *from != self.rank || lane.queue.is_empty())
    }
}

/// Copies from an endpoint's memory as long as the link to it is open.
struct Fetch {
    network: SimNetwork,
    to: PeerId,
    from: PeerId,
}

impl RemoteReader for Fetch {
    fn remote_read(
        &self,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError> {
        // Who ends the link waits until it is copied.
        let state = self.network.lock();
        if !state.lanes.get(&(self.to, self.from)).is_some_and(|lane| lane.open) {
            return Err(RailError::Unreachable("no link that can fetch".into()));
        }
        crate::memory::copy_own(remote, offset, local)
    }
}

impl Drop for SimRail {
    fn drop(&mut self) {
        let text = || format!("rank {} left before all was sent", self.rank.0);
        let fault = |flushed| if flushed { Fault::Closed } else { Fault::Lost(text()) };
        self.network.lock().end_links(self.rank, fault);
    }
}

fn pair(one: PeerId, other: PeerId) -> (PeerId, PeerId) {
    (one.min(other), one.max(other))
}

/// One step of splitmix64 (Steele, Lea, Flood 2014).
/// A long frame is shown piece by piece to who takes it so.
fn show_frame(peer: PeerId, bytes: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
    let len = bytes.len();
    let mut taken = false;
    let (beginning, rest) = bytes.split_at(len.min(BEGINNING));
    if len >= THROUGH_MIN {
        sink(Event::Begun { peer, bytes: beginning, len, taken: &mut taken });
    }
    if taken {
        rest.chunks(PIECE).for_each(|bytes| sink(Event::Rest { peer, bytes }));
    } else {
        sink(Event::Frame { peer, bytes });
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// Frames of so many bytes cut through: of these first…
const THROUGH_MIN: usize = 4 << 10;
const BEGINNING: usize = 60;
/// …and then of so many.
const PIECE: usize = 1500;

/// Frames and other news of one endpoint reported in one look.
const BURST: usize = 16;

/// When an endpoint that cannot be reached is given up, in virtual time.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Body;

    const A: PeerId = PeerId(0);
    const B: PeerId = PeerId(1);

    /// 1 ms there and back again, 1 byte in a microsecond.
    fn slow() -> SimPath {
        SimPath {
            latency: Duration::from_millis(1),
            bandwidth_bytes_per_s: Some(1_000_000),
            depth: 2,
            window_bytes: 10_000,
            ..SimPath::default()
        }
    }

    fn pair(seed: u64, path: SimPath) -> (SimNetwork, SimRail, SimRail) {
        let network = SimNetwork::new(seed);
        network.set_usual_path(path);
        let (mut a, mut b) = (network.rail(A), network.rail(B));
        a.connect(B, &b.address()).unwrap();
        while network.step() {}
        assert_eq!([told(&mut a), told(&mut b)], [["up"], ["up"]]);
        (network, a, b)
    }

    #[test]
    fn frames_arrive_when_the_cost_of_their_path_predicts() {
        for len in [1, 100, 5_000] {
            let (network, mut a, mut b) = pair(1, slow());
            let posted = network.now();
            assert_eq!(a.post(B, &frame(len)), Post::Done);
            while told(&mut b).is_empty() {
                assert!(network.step(), "the frame arrives");
            }
            let predicted = slow().cost().arrival_ns(len as u64);
            assert_eq!((network.now() - posted).as_nanos(), u128::from(predicted));
        }
        let free = SimPath { bandwidth_bytes_per_s: None, ..slow() };
        assert_eq!(free.cost().arrival_ns(1 << 40), 1_000_000);
    }

    fn frame(len: usize) -> Frame {
        Frame { head: vec![7; len], body: None, token: None }
    }

    fn held(region: &Region) -> Frame {
        let body = Some(Body { region: region.clone() });
        Frame { head: Vec::new(), body, token: Some(FrameToken(4)) }
    }

    /// Everything that a rail has to report, in words.
    fn told(rail: &mut SimRail) -> Vec<String> {
        let mut told = Vec::new();
        while rail.poll(&mut |event| {
            told.push(match event {
                Event::Up { .. } => "up".into(),
                Event::Cost { .. } => "cost".into(),
                Event::Frame { bytes, .. } => format!("{} × {}", bytes.len(), bytes[0]),
                Event::Sent { token, .. } => format!("sent {}", token.0),
                Event::Room { .. } => "room".into(),
                Event::Down { fault: Fault::Lost(_), .. } => "lost".into(),
                Event::Down { fault: Fault::Unreachable(_), .. } => "unreachable".into(),
                Event::Down { fault, .. } => format!("{fault:?}"),
                Event::Begun { .. } => return,
                Event::Rest { .. } => unreachable!("nobody takes a beginning"),
                Event::Refused { .. } => unreachable!("there are no strangers here"),
                Event::Hampered { .. } => unreachable!("nothing runs out here"),
            });
        }) {}
        told
    }

    #[test]
    fn a_frame_takes_the_line_for_its_length_and_then_the_latency() {
        let (network, mut a, mut b) = pair(0, slow());
        let start = network.now();
        assert_eq!(a.post(B, &frame(500)), Post::Done);
        assert_eq!(a.post(B, &frame(300)), Post::Done);
        network.advance(Duration::from_micros(1499));
        assert!(told(&mut b).is_empty());
        network.advance(Duration::from_micros(1));
        assert_eq!(told(&mut b), ["500 × 7"]);
        while network.step() && told(&mut b).is_empty() {}
        assert_eq!(network.now() - start, Duration::from_micros(1800));
    }

    #[test]
    fn a_line_at_its_depth_is_full_until_a_frame_has_left() {
        let (network, mut a, mut b) = pair(0, slow());
        assert_eq!([0; 3].map(|_| a.post(B, &frame(100))), [Post::Done, Post::Done, Post::Full]);
        network.advance(Duration::from_micros(99));
        assert!(told(&mut a).is_empty());
        network.advance(Duration::from_micros(1));
        assert_eq!(told(&mut a), ["room"]);
        while network.step() {}
        assert_eq!(told(&mut b).len(), 2);
    }

    #[test]
    fn memory_is_read_when_the_last_byte_leaves() {
        let (network, mut a, mut b) = pair(0, slow());
        let region = Region::owned(100);
        assert_eq!(a.post(B, &held(&region)), Post::Held);
        network.advance(Duration::from_micros(99));
        region.write(0, &[9; 100]);
        network.advance(Duration::from_micros(1));
        assert_eq!(told(&mut a), ["sent 4"]);
        region.write(0, &[1; 100]);
        while network.step() {}
        assert_eq!(told(&mut b), ["100 × 9"]);
    }

    #[test]
    fn a_receiver_that_does_not_poll_stops_the_sender() {
        let (network, mut a, mut b) = pair(0, slow());
        let mut posted = 0;
        for _ in 0..100 {
            posted += usize::from(a.post(B, &frame(1000)) == Post::Done);
            network.advance(Duration::from_millis(2));
        }
        // The window's worth is under way, and the depth's waits.
        assert_eq!(posted, 12);
        assert_eq!(told(&mut b).len(), 10);
        while network.step() {}
        assert_eq!(told(&mut b).len(), 2);
    }

    #[test]
    fn a_cut_loses_what_is_under_way_and_is_noticed_once_at_both_ends() {
        let (network, mut a, mut b) = pair(0, slow());
        a.post(B, &frame(100));
        network.advance(Duration::from_micros(1100));
        a.post(B, &frame(100));
        network.advance(Duration::from_micros(500));
        network.cut(A, B);
        network.cut(A, B);
        while network.step() {}
        assert_eq!(told(&mut b), ["100 × 7", "lost"]);
        assert_eq!(told(&mut a), ["lost"]);
        assert_eq!(a.post(B, &frame(1)), Post::Full);
        b.connect(A, &a.address()).unwrap();
        while network.step() {}
        assert_eq!([told(&mut a), told(&mut b)], [["up"], ["up"]]);
    }

    #[test]
    fn the_dead_and_the_unreachable_are_told_apart() {
        let (network, mut a, b) = pair(0, slow());
        network.kill(B);
        while network.step() {}
        assert_eq!(told(&mut a), ["lost"]);
        drop(b);
        a.connect(B, &B.0.to_le_bytes()).unwrap();
        let before = network.now();
        while network.step() {}
        assert_eq!(told(&mut a), ["unreachable"]);
        assert_eq!(network.now() - before, CONNECT_PATIENCE);
    }

    #[test]
    fn a_seed_decides_which_frames_are_lost() {
        let run = |seed, loss| {
            let (network, mut a, mut b) = pair(seed, SimPath { loss, ..slow() });
            let mut arrivals = Vec::new();
            for _ in 0..200 {
                a.post(B, &frame(10));
                while network.step() {
                    arrivals.extend(told(&mut b).into_iter().map(|what| (what, network.now())));
                }
            }
            arrivals
        };
        let delays = SimLoss::Delays { per_million: 200_000, by: Duration::from_millis(50) };
        assert_eq!(run(1, delays), run(1, delays));
        assert_ne!(run(1, delays), run(2, delays));
        assert_eq!(run(1, delays).len(), 200);
        let cut = run(1, SimLoss::Cuts { per_million: 50_000 });
        assert!(cut.len() < 200 && cut.last().unwrap().0 == "lost", "{}", cut.len());
    }
}
