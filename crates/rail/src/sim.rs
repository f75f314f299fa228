//! A rail in virtual time: any number of ranks in one process, for tests and predictions.
//!
//! A [`SimNetwork`] holds the clock, the paths between its endpoints and all frames in flight; [`SimNetwork::rail`]
//! makes an endpoint. Nothing happens by itself: [`SimNetwork::advance`] and [`SimNetwork::step`] move the clock. The
//! same calls with the same seed give the same run.
//!
//! A frame waits in the queue of its direction, occupies the line for `len / bandwidth`, and arrives `latency` later,
//! never before the frame ahead of it. Its memory is read when its last byte leaves, as late as on a real rail. An
//! engine that frees memory early is caught by the received bytes. At most `window_bytes` have left a sender and not
//! been consumed, so a receiver that does not poll stops it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use connect::Fault;
use cost::Cost;
use memory::Region;
use wire::{Capabilities, Frame, FrameToken, Incoming, PeerId, RemoteRegion};

use crate::rail::{Event, Post, Rail, RailError, RemoteReader};

/// One direction between two endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct SimPath {
    /// Time from the departure of the last byte to its arrival.
    pub latency: Duration,
    /// Rate of the line; `None` if it costs no time.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Number of frames that may wait for the line.
    pub depth: usize,
    /// Bytes that may be in flight and not consumed; a longer frame travels alone.
    pub window_bytes: usize,
    /// Loss model of the path.
    pub loss: SimLoss,
    /// True if a link can be opened.
    pub reachable: bool,
    /// Capabilities of its links.
    pub capabilities: Capabilities,
}

/// Loss model of a path. A rail delivers whole frames in order, so a loss is a delay or the end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimLoss {
    /// No losses.
    Never,
    /// Some frames arrive later, and all frames behind them.
    Delays {
        /// Frames in a million.
        per_million: u32,
        /// Time of the retransmission.
        by: Duration,
    },
    /// Some frames end their link.
    Cuts {
        /// Frames in a million.
        per_million: u32,
    },
}

impl Default for SimPath {
    /// A LAN: 10 µs, 10 Gb/s, no losses.
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
    /// Returns the exact cost of the path's links, without losses.
    pub fn cost(&self) -> Cost {
        let latency_ns = u64::try_from(self.latency.as_nanos()).unwrap_or(u64::MAX);
        match self.bandwidth_bytes_per_s {
            Some(rate) => Cost::linear(latency_ns, 0, rate),
            None => Cost::measured(latency_ns, &[]),
        }
    }
}

/// Endpoints, the paths between them, and their common clock. Clones share one network.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    state: Arc<Mutex<NetworkState>>,
}

/// One endpoint of a [`SimNetwork`].
#[derive(Debug)]
pub struct SimRail {
    rank: PeerId,
    network: SimNetwork,
}

#[derive(Debug)]
struct NetworkState {
    seed: u64,
    /// Virtual time since the creation of the network.
    now: Duration,
    serial: u64,
    usual: SimPath,
    paths: BTreeMap<(PeerId, PeerId), SimPath>,
    /// Pairs of endpoints, the lower first, with an open or opening link.
    links: BTreeSet<(PeerId, PeerId)>,
    directions: BTreeMap<(PeerId, PeerId), Direction>,
    endpoints: BTreeMap<PeerId, VecDeque<Report>>,
    /// Future events, by time and then by the order of their creation.
    agenda: BTreeMap<(Duration, u64), SimEvent>,
}

/// One direction of a link.
#[derive(Debug)]
struct Direction {
    /// Connection number, which distinguishes this link from earlier ones between the same endpoints.
    number: u64,
    /// True if the sender has asked for the link or seen it come up; it is told of the end.
    known: bool,
    /// True once the sender has seen the link come up.
    open: bool,
    queue: VecDeque<QueuedFrame>,
    /// True while the first frame occupies the line.
    busy: bool,
    /// Bytes that have left and not been consumed.
    under_way: usize,
    last_arrival: Duration,
    refused: bool,
    random: u64,
}

#[derive(Debug)]
struct QueuedFrame {
    head: Vec<u8>,
    body: Option<Region>,
    token: Option<FrameToken>,
}

#[derive(Debug)]
enum SimEvent {
    /// The last byte of the first frame leaves.
    Departure(PeerId, PeerId),
    /// The sender learns of consumed bytes.
    Credit {
        from: PeerId,
        to: PeerId,
        connection: u64,
        bytes: usize,
    },
    Arrival {
        at: PeerId,
        reports: Report,
    },
}

/// An event that an endpoint will report, in order of arrival.
#[derive(Debug)]
enum Report {
    Up { peer: PeerId, connection: u64, capabilities: Capabilities },
    Frame { from: PeerId, connection: u64, bytes: Vec<u8> },
    Sent(PeerId, FrameToken),
    Room(PeerId),
    Down(PeerId, Fault),
}

impl SimNetwork {
    /// Creates a network without endpoints, at time zero; `seed` determines all random choices.
    pub fn new(seed: u64) -> Self {
        let state = NetworkState {
            seed,
            now: Duration::ZERO,
            serial: 0,
            usual: SimPath::default(),
            paths: BTreeMap::new(),
            links: BTreeSet::new(),
            directions: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            agenda: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Creates the endpoint of rank `rank`. Each rank has one at a time.
    pub fn rail(&self, rank: PeerId) -> SimRail {
        self.lock().endpoints.insert(rank, VecDeque::new());
        SimRail { rank, network: self.clone() }
    }

    /// Sets the path between endpoints that [`set_path`](Self::set_path) does not name.
    pub fn set_usual_path(&self, path: SimPath) {
        self.lock().usual = path;
    }

    /// Sets the path `from` → `to` from now on.
    pub fn set_path(&self, from: PeerId, to: PeerId, path: SimPath) {
        self.lock().paths.insert((from, to), path);
    }

    /// Returns the virtual time since the creation of the network.
    pub fn now(&self) -> Duration {
        self.lock().now
    }

    /// Advances the clock and runs all events on the way.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        let end = state.now + by;
        while state.next_time().is_some_and(|time| time <= end) {
            state.happen();
        }
        state.now = end;
    }

    /// Advances the clock to the next event and runs it; false if there is none.
    pub fn step(&self) -> bool {
        self.lock().happen()
    }

    /// Ends the link between two endpoints: frames in flight are lost, and both ends notice it one latency later. A
    /// new link can be opened.
    pub fn cut(&self, one: PeerId, other: PeerId) {
        self.lock().cut(one, other, "the network was cut");
    }

    /// Ends the process `rank`: its links end, and nothing of it is heard again.
    pub fn kill(&self, rank: PeerId) {
        let mut state = self.lock();
        state.end_links(rank, |_| Fault::Lost(format!("process {} has ended", rank.0)));
    }

    /// True if a link between two endpoints is open at both.
    pub fn is_open(&self, one: PeerId, other: PeerId) -> bool {
        let state = self.lock();
        let is_open = |ends| state.directions.get(&ends).is_some_and(|direction| direction.open);
        is_open((one, other)) && is_open((other, one))
    }

    /// True if the endpoint `rank` has events to report.
    pub fn has_events(&self, rank: PeerId) -> bool {
        self.lock().endpoints.get(&rank).is_some_and(|endpoint| !endpoint.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl NetworkState {
    fn path(&self, from: PeerId, to: PeerId) -> &SimPath {
        self.paths.get(&(from, to)).unwrap_or(&self.usual)
    }

    fn next_time(&self) -> Option<Duration> {
        self.agenda.first_key_value().map(|(&(time, _), _)| time)
    }

    fn plan(&mut self, time: Duration, event: SimEvent) {
        self.serial += 1;
        self.agenda.insert((time, self.serial), event);
    }

    fn happen(&mut self) -> bool {
        let Some(((time, _), event)) = self.agenda.pop_first() else { return false };
        self.now = time;
        match event {
            SimEvent::Departure(from, to) => {
                self.depart(from, to);
                self.kick(from, to);
            }
            SimEvent::Credit { from, to, connection: number, bytes } => {
                let direction = self.directions.get_mut(&(from, to));
                if let Some(direction) = direction.filter(|direction| direction.number == number) {
                    direction.under_way -= bytes;
                    self.kick(from, to);
                }
            }
            SimEvent::Arrival { at, reports } => {
                if let Report::Up { peer, connection: number, .. } = &reports
                    && self.endpoints.contains_key(&at)
                    && let Some(direction) = self.directions.get_mut(&(at, *peer))
                {
                    direction.known |= direction.number == *number;
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

    /// Starts to open a link: the other end learns of it after one latency, this end after two.
    fn open(&mut self, from: PeerId, to: PeerId) {
        if self.links.contains(&pair(from, to)) {
            if let Some(direction) = self.directions.get_mut(&(from, to)) {
                direction.known = true;
            }
            return;
        }
        let there = self.path(from, to).latency;
        let back = self.path(to, from).latency;
        let (up, known) = (self.now + there, self.now + there + back);
        if !self.path(from, to).reachable || !self.endpoints.contains_key(&to) {
            let fault = Fault::Unreachable(format!("no answer from rank {}", to.0));
            let reports = Report::Down(to, fault);
            return self.plan(self.now + CONNECT_PATIENCE, SimEvent::Arrival { at: from, reports });
        }
        self.links.insert(pair(from, to));
        for (one, other) in [(from, to), (to, from)] {
            let random = mix(self.seed ^ u64::from(one.0) << 32 ^ u64::from(other.0));
            self.serial += 1;
            let direction = Direction { known: one == from, ..Direction::new(self.serial, random) };
            self.directions.insert((one, other), direction);
        }
        let reports = |at: PeerId, peer: PeerId| {
            let connection =
                self.directions.get(&(at, peer)).map_or(0, |direction| direction.number);
            Report::Up { peer, connection, capabilities: self.path(at, peer).capabilities }
        };
        let (up_there, up_here) = (reports(to, from), reports(from, to));
        self.plan(up, SimEvent::Arrival { at: to, reports: up_there });
        self.plan(known, SimEvent::Arrival { at: from, reports: up_here });
    }

    fn post(&mut self, from: PeerId, to: PeerId, frame: &Frame) -> Post {
        let depth = self.path(from, to).depth;
        let direction = self.directions.get_mut(&(from, to)).filter(|direction| direction.open);
        let Some(direction) = direction else { return Post::Full };
        if direction.queue.len() >= depth {
            direction.refused = true;
            return Post::Full;
        }
        let body = frame.body.as_ref().map(|body| body.region.clone());
        let token = frame.token.filter(|_| body.is_some());
        let waiting = QueuedFrame { head: frame.head.clone(), body, token };
        direction.queue.push_back(waiting);
        let alone = direction.queue.len() == 1 && !direction.busy;
        if alone && self.path(from, to).bandwidth_bytes_per_s.is_none() && self.fits(from, to) {
            // The frame leaves before the call returns, so the result reports it and not [`Event::Sent`].
            if let Some(first) =
                self.directions.get_mut(&(from, to)).and_then(|l| l.queue.front_mut())
            {
                first.token = None;
            }
            self.depart(from, to);
            return Post::Done;
        }
        self.kick(from, to);
        if frame.body.is_some() { Post::Held } else { Post::Done }
    }

    /// True if the window has room for the first frame.
    fn fits(&self, from: PeerId, to: PeerId) -> bool {
        let window = self.path(from, to).window_bytes;
        self.directions.get(&(from, to)).is_some_and(|direction| {
            let first = direction.queue.front().map(QueuedFrame::len);
            first.is_some_and(|len| direction.under_way == 0 || direction.under_way + len <= window)
        })
    }

    /// Puts the first frame on the line, if both are ready.
    fn kick(&mut self, from: PeerId, to: PeerId) {
        if !self.fits(from, to) {
            return;
        }
        let bandwidth = self.path(from, to).bandwidth_bytes_per_s;
        let Some(direction) =
            self.directions.get_mut(&(from, to)).filter(|direction| !direction.busy)
        else {
            return;
        };
        direction.busy = true;
        let bytes = direction.queue.front().map_or(0, QueuedFrame::len) as u64;
        let takes = bandwidth.map_or(Duration::ZERO, |rate| {
            Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1))
        });
        self.plan(self.now + takes, SimEvent::Departure(from, to));
    }

    /// Sends the last byte of the first frame.
    fn depart(&mut self, from: PeerId, to: PeerId) {
        let SimPath { latency, depth, loss, .. } = *self.path(from, to);
        let now = self.now;
        let Some(direction) = self.directions.get_mut(&(from, to)) else { return };
        direction.busy = false;
        let Some(first) = direction.queue.pop_front() else { return };
        let bytes = first.bytes();
        let number = direction.number;
        direction.under_way += bytes.len();
        let mut arrival = (now + latency).max(direction.last_arrival);
        let mut cut = false;
        match loss {
            SimLoss::Never => {}
            SimLoss::Delays { per_million, by } => {
                if direction.chance(per_million) {
                    arrival += by;
                }
            }
            SimLoss::Cuts { per_million } => cut = direction.chance(per_million),
        }
        direction.last_arrival = arrival;
        let room = direction.refused && direction.queue.len() < depth;
        direction.refused &= !room;
        if let Some(token) = first.token {
            self.tell(from, Report::Sent(to, token));
        }
        if room {
            self.tell(from, Report::Room(to));
        }
        if cut {
            return self.cut(from, to, "a frame was lost for good");
        }
        let reports = Report::Frame { from, connection: number, bytes };
        self.plan(arrival, SimEvent::Arrival { at: to, reports });
    }

    fn cut(&mut self, one: PeerId, other: PeerId, why: &str) {
        if !self.links.remove(&pair(one, other)) {
            return;
        }
        let known = |key| self.directions.get(&key).is_some_and(|direction| direction.known);
        let ends = [(one, other), (other, one)].map(|key| (key, known(key)));
        self.clear(one, other);
        for ((at, peer), _) in ends.into_iter().filter(|(_, known)| *known) {
            let time = self.now + self.path(peer, at).latency;
            let fault = Fault::Lost(format!("ranks {} and {}: {why}", at.0, peer.0));
            self.plan(time, SimEvent::Arrival { at, reports: Report::Down(peer, fault) });
        }
    }

    /// Drops everything in flight between two endpoints, except the ends of earlier links.
    fn clear(&mut self, one: PeerId, other: PeerId) {
        self.agenda.retain(|_, event| {
            let between = match event {
                SimEvent::Departure(from, to) | SimEvent::Credit { from, to, .. } => {
                    pair(*from, *to)
                }
                SimEvent::Arrival { reports: Report::Down(..), .. } => return true,
                SimEvent::Arrival { at, reports } => pair(*at, reports.peer()),
            };
            between != pair(one, other)
        });
        self.directions.remove(&(one, other));
        self.directions.remove(&(other, one));
    }

    /// Removes the endpoint `rank`. If its queue is empty, a link ends after the last sent frame.
    fn end_links(&mut self, rank: PeerId, fault: impl Fn(bool) -> Fault) {
        let ended = |(low, high): &(PeerId, PeerId)| *low == rank || *high == rank;
        let pairs: Vec<_> = self.links.iter().filter(|pair| ended(pair)).copied().collect();
        self.agenda.retain(|_, event| match event {
            SimEvent::Departure(from, to) => *from != rank && *to != rank,
            SimEvent::Arrival { at, .. } => *at != rank,
            SimEvent::Credit { .. } => true,
        });
        for (low, high) in pairs {
            let peer = if low == rank { high } else { low };
            self.links.remove(&(low, high));
            let direction = self.directions.remove(&(rank, peer));
            self.directions.remove(&(peer, rank));
            let flushed = direction.as_ref().is_none_or(|direction| direction.queue.is_empty());
            // What is under way arrives before, also the event that opens the link.
            let of_link = |event: &SimEvent| match event {
                SimEvent::Arrival { at, reports } => *at == peer && reports.peer() == rank,
                SimEvent::Departure(..) | SimEvent::Credit { .. } => false,
            };
            let under_way = self.agenda.iter().filter(|(_, event)| of_link(event));
            let behind = under_way.map(|(&(time, _), _)| time).max().unwrap_or_default();
            let time = behind.max(self.now + self.path(rank, peer).latency);
            let reports = Report::Down(rank, fault(flushed));
            self.plan(time, SimEvent::Arrival { at: peer, reports });
        }
        self.endpoints.remove(&rank);
    }

    /// Returns pending reports of one endpoint: at most a burst, and none after the end of a link, which the caller
    /// must handle first. Credits the consumed bytes to their senders.
    fn take(&mut self, at: PeerId) -> Vec<Report> {
        let Some(endpoint) = self.endpoints.get_mut(&at) else { return Vec::new() };
        let end = endpoint.iter().position(|reports| matches!(reports, Report::Down(..)));
        let count = end.map_or(endpoint.len(), |end| end + 1).min(BURST);
        let taken: Vec<Report> = endpoint.drain(..count).collect();
        for reports in &taken {
            match reports {
                Report::Frame { from, connection, bytes } => {
                    let time = self.now + self.path(at, *from).latency;
                    let (from, connection, bytes) = (*from, *connection, bytes.len());
                    self.plan(time, SimEvent::Credit { from, to: at, connection, bytes });
                }
                // If the link has already ended, a newer link may have replaced its direction.
                Report::Up { peer, connection: number, .. } => {
                    if let Some(direction) = self.directions.get_mut(&(at, *peer)) {
                        direction.open |= direction.number == *number;
                    }
                }
                Report::Sent(..) | Report::Room(_) | Report::Down(..) => {}
            }
        }
        taken
    }
}

impl Direction {
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

impl QueuedFrame {
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
        state.agenda.retain(|_, event| match event {
            SimEvent::Arrival { at, reports } => *at != own || reports.peer() != peer,
            SimEvent::Departure(..) | SimEvent::Credit { .. } => true,
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
            Arc::new(SimReader { network: self.network.clone(), to: self.rank, from: peer })
        })
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn prepare_sleep(&mut self) -> bool {
        !self.network.has_events(self.rank)
    }

    fn finish_sleep(&mut self) {}

    fn is_flushed(&self) -> bool {
        let state = self.network.lock();
        state
            .directions
            .iter()
            .all(|((from, _), direction)| *from != self.rank || direction.queue.is_empty())
    }
}

/// Reader of an endpoint's memory while the link to it is open.
struct SimReader {
    network: SimNetwork,
    to: PeerId,
    from: PeerId,
}

impl RemoteReader for SimReader {
    fn remote_read(
        &self,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError> {
        // The lock delays the end of the link until the copy is done.
        let state = self.network.lock();
        if !state.directions.get(&(self.to, self.from)).is_some_and(|direction| direction.open) {
            return Err(RailError::Unreachable("no open link for a remote read".into()));
        }
        crate::own_memory::copy_own(remote, offset, local)
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

/// Reports a frame; a long one in pieces, if the sink takes it so.
fn show_frame(peer: PeerId, bytes: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
    let len = bytes.len();
    let mut taken = false;
    let (beginning, rest) = bytes.split_at(len.min(BEGINNING));
    if len >= THROUGH_MIN {
        sink(Event::Begun { peer, bytes: beginning, len, taken: &mut taken });
    }
    if taken {
        for piece in rest.chunks(PIECE) {
            sink(Event::Rest { peer, bytes: Incoming::Here(piece) });
        }
    } else {
        sink(Event::Frame { peer, bytes });
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// Length from which on a frame is reported in pieces, and the length of the first.
const THROUGH_MIN: usize = 4 << 10;
const BEGINNING: usize = 60;
/// Length of the further pieces.
const PIECE: usize = 1500;

/// Maximum number of events that one poll reports.
const BURST: usize = 16;

/// Virtual time after which an unreachable endpoint is given up.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
