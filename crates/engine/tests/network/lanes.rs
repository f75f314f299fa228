//! The links: how frames travel, and what becomes of them.

use std::collections::BTreeSet;

use engine::{Counters, Engine, Loss, Overdue, PeerError, Posted, RemoteReadId};
use memory::{Region, Span};
use wire::packet::{self, Packet};
use wire::{Capabilities, Frame, FrameToken, HostCost, PeerId, RailId, RemoteRegion};

use super::check::overlaps;
use super::{Event, Network, Process, Sent, Shape, Tamper, peer_id};

/// The way from one process to another.
pub struct Way {
    pub lanes: Vec<Lane>,
    /// Connections that have lost something.
    pub broken: BTreeSet<(usize, u32)>,
    /// Whether one of the two has closed all, for good.
    pub is_given_up: bool,
    pub tamper: Option<Tamper>,
    pub tampered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Closed,
    Opening,
    Open,
    Cut,
}

#[derive(Clone, Copy)]
pub struct Lane {
    pub state: State,
    /// Which of the link's connections this is.
    pub connection: u32,
    /// Whether the process knows that it is cut.
    pub is_known_cut: bool,
    pub refused: bool,
    pub in_flight: usize,
    pub free_ns: u64,
    pub last_arrival_ns: u64,
    pub late_ns: u64,
    pub swallows: bool,
    pub delivered: u64,
}

/// A frame's way over a link.
#[derive(Clone, Copy)]
pub struct Passage {
    pub from: usize,
    pub to: usize,
    pub lane: usize,
    pub connection: u32,
    /// The frame's place among all that were posted.
    pub number: u64,
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fates {
    /// Lost on a link.
    pub lost: u64,
    /// Sent once more, over another link.
    pub resent: u64,
    /// Delivered before a frame that left earlier.
    pub overtaking: u64,
}

/// A frame that was copied when it was posted, or that is read when it leaves.
pub enum Cargo {
    Copied(Vec<u8>),
    Held(Frame),
}

impl Network {
    /// Cuts what is between two processes: frames on their way are lost, and both notice, each in
    /// its time.
    pub fn cut(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.way(from, to).cut();
            self.way(from, to).is_given_up = true;
            let delay = self.random.below(5_000) as u64;
            self.schedule(delay, Event::Down(from, to));
        }
    }

    /// Cuts one of the links between two processes: frames on their way over it are lost, and both
    /// notice, each in its time.
    pub fn cut_link(&mut self, a: usize, b: usize, lane: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let way = &mut self.way(from, to).lanes[lane];
            let connection = way.connection;
            if std::mem::replace(&mut way.state, State::Cut) == State::Open {
                let delay = self.random.below(200_000) as u64;
                self.schedule(delay, Event::LinkDown(from, to, lane, connection));
            }
        }
    }

    /// Cuts an open link as [`Network::cut_link`] does, or on one way first, and mends it after a while. Both
    /// processes look at the clock until then.
    pub fn cut_for(&mut self, (a, b): (usize, usize), lane: usize, for_ns: u64) {
        let ends = [(a, b), (b, a)];
        let is_open = |state| state == State::Open;
        if !ends.iter().all(|&(from, to)| is_open(self.way(from, to).lanes[lane].state))
            || !self.mending.insert((a.min(b), a.max(b), lane))
        {
            return;
        }
        match self.random.below(3) {
            0 => self.lose(a, b, lane),
            1 => self.lose(b, a, lane),
            _ => self.cut_link(a, b, lane),
        }
        self.schedule(for_ns, Event::Mended(a, b, lane));
        self.look_at_clock(a, b, for_ns);
    }

    /// Two processes look at the clock for a while.
    pub fn look_at_clock(&mut self, a: usize, b: usize, for_ns: u64) {
        for tick in 0..for_ns / TICK_NS + 20 {
            self.schedule(tick * TICK_NS, Event::Tick(a));
            self.schedule(tick * TICK_NS, Event::Tick(b));
        }
    }

    /// A link's rails connect anew, one end before the other. Now and then only one end learns of it, and the
    /// other tries once more.
    pub(super) fn mend(&mut self, a: usize, b: usize, lane: usize) {
        self.connections += 1;
        let connection = self.connections;
        let (first, second) = if self.random.one_in(2) { (a, b) } else { (b, a) };
        let latency_ns = self.shape(a, b).of_lane(lane).latency_ns;
        let (first_ns, second_ns) = (self.now_ns + latency_ns, self.now_ns + 2 * latency_ns);
        let opened = |rank, peer, peer_ns| Event::Opened { rank, peer, lane, connection, peer_ns };
        self.schedule(latency_ns, opened(first, second, second_ns));
        if self.random.one_in(3) {
            let later_ns = latency_ns + self.random.below(400_000) as u64;
            self.schedule(later_ns, Event::LinkDown(first, second, lane, connection));
            self.schedule(later_ns + latency_ns, Event::Mended(a, b, lane));
        } else {
            self.schedule(2 * latency_ns, opened(second, first, first_ns));
        }
    }

    /// What one end of a link can do. Of two that open again, the lower rank wants frames to be kept.
    pub(super) fn capabilities(&self, rank: usize, peer: usize, lane: usize) -> Capabilities {
        let capabilities = self.shape(rank, peer).of_lane(lane).capabilities;
        let Capabilities { replay, reopens, .. } = capabilities;
        Capabilities { replay: replay && !(reopens && rank > peer), ..capabilities }
    }

    /// One end of a link is open once more; whatever it had before is over.
    pub(super) fn open_anew(
        &mut self,
        (rank, peer): (usize, usize),
        lane: usize,
        connection: u32,
        peer_ns: u64,
    ) {
        if self.way(rank, peer).is_given_up {
            return;
        }
        if !self.way(rank, peer).lanes[lane].is_known_cut
            && self.link_down(rank, peer, lane) == Loss::Final
        {
            return;
        }
        let Lane { delivered, .. } = self.way(rank, peer).lanes[lane];
        self.way(rank, peer).lanes[lane] = Lane {
            state: State::Open,
            connection,
            last_arrival_ns: peer_ns,
            delivered,
            ..Lane::CLOSED
        };
        if self.way(peer, rank).lanes[lane].connection == connection {
            self.mending.remove(&(rank.min(peer), rank.max(peer), lane));
        }
        let capabilities = self.capabilities(rank, peer, lane);
        self.processes[rank].engine.handle_up(peer_id(peer), rail(lane), capabilities);
        if self.is_spare(rank, peer, lane) {
            for other in (0..self.way(rank, peer).lanes.len()).filter(|other| *other != lane) {
                if self.way(rank, peer).lanes[other].is_known_cut {
                    self.link_down(rank, peer, other);
                }
            }
        }
        self.settle(rank);
    }

    /// Of the links between two processes one is open, and another when no way is left over the first.
    pub fn set_apart(&mut self, a: usize, b: usize) {
        (0..2).for_each(|lane| _ = self.spare.insert((a.min(b), a.max(b), lane)));
    }

    fn is_spare(&self, a: usize, b: usize, lane: usize) -> bool {
        self.spare.contains(&(a.min(b), a.max(b), lane))
    }

    fn is_open(&mut self, rank: usize, peer: usize) -> bool {
        self.way(rank, peer).lanes.iter().any(|lane| lane.state == State::Open)
    }

    /// From now on nothing passes over a link, which both find out, each in its time, or one long after the other.
    pub fn forbid(&mut self, a: usize, b: usize, lane: usize) {
        self.forbidden = Some((a.min(b), a.max(b), lane));
        self.look_at_clock(a, b, 8_000_000_000);
        let ends = [(a, b), (b, a)];
        if !ends.iter().all(|&(from, to)| self.way(from, to).lanes[lane].state == State::Open) {
            return;
        }
        match self.random.below(4) {
            0 => self.lose(a, b, lane),
            1 => self.lose(b, a, lane),
            2 => self.cut_link(a, b, lane),
            _ => {
                self.swallow(a, b, lane);
                for ((rank, peer), delay_ns) in ends.into_iter().zip([0, 4_000_000_000]) {
                    let connection = self.way(rank, peer).lanes[lane].connection;
                    self.schedule(delay_ns, Event::LinkDown(rank, peer, lane, connection));
                }
            }
        }
    }

    /// Other links are asked for a way to a peer.
    fn ask_others(&mut self, rank: usize, peer: usize) {
        let (a, b) = (rank.min(peer), rank.max(peer));
        for lane in 0..2 {
            let way = (a, b, lane);
            let leads = self.spare.contains(&way) && self.forbidden != Some(way);
            if leads && self.mending.insert(way) {
                self.mend(a, b, lane);
            }
        }
    }

    pub(super) fn find_cut(&mut self, rank: usize, peer: usize, lane: usize, connection: u32) {
        let way = &self.way(rank, peer).lanes[lane];
        if way.connection == connection && !way.is_known_cut {
            self.link_down(rank, peer, lane);
        }
    }

    /// From now on, what one process sends another over a link is lost, while the way back is whole until
    /// both notice, each in its time.
    pub fn lose(&mut self, from: usize, to: usize, lane: usize) {
        let way = &mut self.way(from, to).lanes[lane];
        if way.state != State::Open {
            return self.cut_link(from, to, lane);
        }
        if !std::mem::replace(&mut way.swallows, true) {
            for (rank, peer) in [(from, to), (to, from)] {
                let connection = self.way(rank, peer).lanes[lane].connection;
                let delay = self.random.below(200_000) as u64;
                self.schedule(delay, Event::LinkDown(rank, peer, lane, connection));
            }
        }
    }

    /// How many links carry both ways between two processes.
    pub fn links(&mut self, a: usize, b: usize) -> usize {
        let carries = |lane: &Lane| lane.state == State::Open && !lane.swallows;
        let of = |way: &Way| way.lanes.iter().map(carries).collect::<Vec<_>>();
        let both = of(self.way(a, b)).into_iter().zip(of(self.way(b, a)));
        both.filter(|carries| *carries == (true, true)).count()
    }

    /// How many frames have come from one process to another over a link.
    pub fn delivered(&mut self, from: usize, to: usize, lane: usize) -> u64 {
        self.way(from, to).lanes[lane].delivered
    }

    /// Runs until so many links lead from one process to another.
    pub fn run_until_links(&mut self, from: usize, to: usize, links: usize) {
        let is_open = |lane: &&Lane| lane.state == State::Open;
        while self.way(from, to).lanes.iter().filter(is_open).count() < links && self.step() {}
    }

    /// From now on, what leaves over a link arrives so much later.
    pub fn slow_down(&mut self, from: usize, to: usize, lane: usize, late_ns: u64) {
        self.way(from, to).lanes[lane].late_ns = late_ns;
    }

    /// From now on, what leaves over a link never arrives, and nobody is told; for half a minute both
    /// processes look at the clock.
    pub fn swallow(&mut self, a: usize, b: usize, lane: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.way(from, to).lanes[lane].swallows = true;
            for tick in 0..600 {
                self.schedule(tick * TICK_NS, Event::Tick(from));
            }
        }
    }

    /// A process does not look at its engine for a while; the others look at the clock meanwhile.
    pub fn look_away(&mut self, rank: usize, for_ns: u64) {
        self.processes[rank].away_until_ns = self.now_ns + for_ns;
        for tick in 0..for_ns / TICK_NS + 20 {
            for other in (0..self.processes.len()).filter(|other| *other != rank) {
                self.schedule(tick * TICK_NS, Event::Tick(other));
            }
        }
    }

    /// Closes links that are late, as `progress` does.
    pub(super) fn judge(&mut self, rank: usize) {
        let now_ns = self.now_ns;
        if !self.processes[rank].engine.wants_time() {
            return;
        }
        while let Some(overdue) = self.processes[rank].engine.handle_time(now_ns) {
            match overdue {
                Overdue::Link(PeerId(peer), RailId(lane)) => {
                    self.late_links += 1;
                    let loss = self.link_down(rank, peer as usize, lane as usize);
                    assert_eq!(loss, Loss::Borne, "another is left");
                }
                Overdue::Peer(PeerId(peer)) => self.give_up(rank, peer as usize),
                Overdue::Way(PeerId(peer)) => self.ask_others(rank, peer as usize),
            }
        }
    }

    /// A process finds a link gone.
    pub(super) fn link_down(&mut self, rank: usize, peer: usize, lane: usize) -> Loss {
        let way = &mut self.way(rank, peer).lanes[lane];
        (way.state, way.is_known_cut) = (State::Cut, true);
        let ends = self.is_spare(rank, peer, lane) && self.is_open(rank, peer);
        let loss = self.processes[rank].engine.handle_link_down(peer_id(peer), rail(lane), ends);
        if loss == Loss::Final {
            self.give_up(rank, peer);
        }
        self.settle(rank);
        loss
    }

    /// A process closes all that leads to a peer.
    fn give_up(&mut self, rank: usize, peer: usize) {
        for (from, to) in [(rank, peer), (peer, rank)] {
            self.way(from, to).cut();
            self.way(from, to).is_given_up = true;
        }
        self.down(rank, peer);
        self.schedule(1_000, Event::Down(peer, rank));
    }

    /// Closes links that peers have given up, as `progress` does.
    fn close_severed(&mut self, rank: usize) {
        while let Some((PeerId(peer), RailId(lane))) = self.processes[rank].engine.poll_severed() {
            self.link_down(rank, peer as usize, lane as usize);
        }
    }

    pub(super) fn down(&mut self, rank: usize, peer: usize) {
        let messages = &self.messages;
        self.held.retain(|(from, _, span)| {
            let holds = |message: &Sent| message.from == rank && overlaps(&message.region, *span);
            *from != rank || !messages.iter().any(|one| one.send.to == peer && holds(one))
        });
        let process = &mut self.processes[rank];
        process.reference.fail(peer_id(peer));
        process.engine.handle_down(peer_id(peer));
        process.watch_all();
        self.settle(rank);
    }

    /// What `progress` does after every command and event.
    pub(super) fn flush(&mut self, rank: usize) {
        self.processes[rank].flush_due = false;
        while let Some(PeerId(peer)) = self.processes[rank].engine.poll_connect() {
            self.connect(rank, peer as usize);
        }
        let mut frame = Frame::default();
        while let Some((to, rail)) = self.processes[rank].engine.poll_peer() {
            while self.poll_frame(rank, to, rail, &mut frame) {
                let posted = self.post(rank, to.0 as usize, rail, &frame);
                self.processes[rank].engine.handle_posted(to, rail, &mut frame, posted);
                if posted == Posted::Full {
                    break;
                }
            }
        }
        while let Some(remote_read) = self.processes[rank].engine.poll_remote_read() {
            let from = remote_read.peer.0 as usize;
            let shape = self.shape(rank, from);
            if shape.remote_read_works && self.random.one_in(4) {
                self.processes[rank].engine.handle_remote_read_declined(remote_read.id);
                self.settle(rank);
                continue;
            }
            assert!(shape.capabilities.remote_read, "a fetch over a link that has none");
            let delay = shape.latency_ns + remote_read.remote.len * 1000 / shape.bytes_per_us;
            let (id, remote, local) = (remote_read.id, remote_read.remote, remote_read.local);
            self.schedule(delay, Event::RemoteReadDone { rank, id, remote, from, local });
        }
        self.collect(rank);
    }

    /// Compression takes its time.
    fn poll_frame(&mut self, rank: usize, to: PeerId, rail: RailId, frame: &mut Frame) -> bool {
        let Process { engine, busy_ns, refusals, .. } = &mut self.processes[rank];
        let read = |engine: &Engine| {
            let Counters { uncompressed_bytes, incompressible_bytes, .. } = engine.counters();
            uncompressed_bytes + incompressible_bytes
        };
        let before = read(engine);
        let is_built = engine.poll_frame(to, rail, frame);
        while let Some(text) = engine.poll_refusal() {
            refusals.push(text);
        }
        let compression_ns = HostCost::default().compression_ns(read(engine) - before);
        if compression_ns > 0 {
            *busy_ns = self.now_ns.max(*busy_ns) + compression_ns;
        }
        is_built
    }

    fn connect(&mut self, from: usize, to: usize) {
        let Shape { latency_ns, links, .. } = self.shape(from, to);
        let states: Vec<_> = self.way(from, to).lanes.iter().map(|lane| lane.state).collect();
        if states.iter().all(|state| *state == State::Cut) {
            return self.schedule(latency_ns, Event::Down(from, to));
        }
        let closed = |lane: &usize| {
            states[*lane] == State::Closed && (*lane == 0 || !self.is_spare(from, to, *lane))
        };
        let closed: Vec<_> = (0..links).filter(closed).collect();
        for lane in closed {
            let late_ns = if lane == 0 { 0 } else { self.random.below(300_000) as u64 };
            self.way(from, to).lanes[lane].state = State::Opening;
            self.schedule(late_ns + 2 * latency_ns, Event::Up(from, to, lane));
            if from != to {
                let first_ns = self.now_ns + late_ns + 2 * latency_ns;
                self.way(to, from).lanes[lane].state = State::Opening;
                self.way(to, from).lanes[lane].last_arrival_ns = first_ns;
                self.schedule(late_ns + latency_ns, Event::Up(to, from, lane));
            }
        }
    }

    pub(super) fn post(&mut self, from: usize, to: usize, rail: RailId, frame: &Frame) -> Posted {
        let lane = rail.0 as usize;
        let shape = self.shape(from, to).of_lane(lane);
        assert!(!frame.is_empty(), "an empty frame was posted");
        assert!(frame.len() <= shape.capabilities.frame_max, "a frame is too long");
        assert_eq!(frame.body.is_some(), frame.token.is_some(), "a body has a token");
        match self.way(from, to).lanes[lane].state {
            State::Open => {}
            State::Cut => {
                self.fates.lost += 1;
                return Posted::Done;
            }
            State::Closed | State::Opening => panic!("a frame for a link that is not open"),
        }
        let now_ns = self.now_ns;
        let begin_ns = now_ns.max(self.processes[from].busy_ns);
        let spurious = self.random.one_in(16);
        let way = &mut self.way(from, to).lanes[lane];
        assert!(!way.refused, "a frame for a link that is full");
        if spurious || way.in_flight == shape.depth {
            way.refused = true;
            if spurious {
                self.schedule(shape.latency_ns, Event::Room(from, to, lane));
            }
            return Posted::Full;
        }
        let is_held = frame.token.is_some() && self.random.one_in(2);
        if is_held {
            let (token, span) = held(frame);
            self.held.push((from, token, span));
        }
        let jitter_ns = self.random.below(shape.jitter_ns as usize + 1) as u64;
        let way = &mut self.way(from, to).lanes[lane];
        way.in_flight += 1;
        way.free_ns =
            way.free_ns.max(begin_ns) + 1 + frame.len() as u64 * 1000 / shape.bytes_per_us;
        way.last_arrival_ns =
            (way.free_ns + shape.latency_ns + way.late_ns + jitter_ns).max(way.last_arrival_ns + 1);
        let (departure_ns, arrival_ns) = (way.free_ns, way.last_arrival_ns);
        let cargo = if is_held { Cargo::Held(frame.clone()) } else { Cargo::Copied(bytes(frame)) };
        let connection = way.connection;
        self.posted += 1;
        let passage = Passage { from, to, lane, connection, number: self.posted };
        self.schedule(departure_ns - now_ns, Event::Departed { passage, cargo, arrival_ns });
        if is_held { Posted::Held } else { Posted::Done }
    }

    pub(super) fn depart(&mut self, passage: Passage, cargo: Cargo, arrival_ns: u64) {
        let Passage { from, to, lane, connection, .. } = passage;
        let is_kept = self.shape(from, to).of_lane(lane).capabilities.replay;
        let way = &mut self.way(from, to).lanes[lane];
        let is_current = way.connection == connection;
        way.in_flight -= usize::from(is_current);
        if way.state == State::Cut || !is_current {
            self.fates.lost += 1;
            if let Cargo::Held(frame) = cargo {
                self.let_go(from, &frame);
            }
            return;
        }
        let now_room = std::mem::take(&mut way.refused);
        let bytes = match cargo {
            Cargo::Copied(bytes) => bytes,
            Cargo::Held(frame) => {
                if is_kept {
                    self.let_go(from, &frame);
                }
                let bytes = bytes(&frame);
                let delay = self.random.below(10_000) as u64;
                self.schedule(delay, Event::Sent { from, to, lane, frame });
                bytes
            }
        };
        if now_room {
            self.processes[from].engine.handle_room(peer_id(to), rail(lane));
        }
        self.settle(from);
        self.schedule(arrival_ns - self.now_ns, Event::Arrived { passage, bytes });
    }

    /// A rail reads the memory of a frame no more.
    fn let_go(&mut self, from: usize, frame: &Frame) {
        let (token, span) = held(frame);
        if let Some(at) = self.held.iter().position(|one| *one == (from, token, span)) {
            self.held.swap_remove(at);
        }
    }

    pub(super) fn sent(&mut self, from: usize, to: usize, lane: usize, frame: &Frame) {
        let (token, span) = held(frame);
        let is_this = |one: &(usize, FrameToken, Span)| *one == (from, token, span);
        if let Some(at) = self.held.iter().position(is_this) {
            self.held.swap_remove(at);
            self.processes[from].engine.handle_sent(peer_id(to), rail(lane), token);
            self.settle(from);
        }
    }

    pub(super) fn arrive(&mut self, passage: Passage, bytes: Vec<u8>) {
        let Passage { from, to, lane, connection, number } = passage;
        let away_until_ns = self.processes[to].away_until_ns;
        if self.now_ns < away_until_ns {
            // The links' order among themselves is that in which the process will look at them.
            let later_ns = away_until_ns - self.now_ns + lane as u64;
            return self.schedule(later_ns, Event::Arrived { passage, bytes });
        }
        let sender = self.way(from, to).lanes[lane];
        let receiver = self.way(to, from).lanes[lane];
        // A sender that has connected anew may have an end that still reads what it sent before.
        let is_over =
            sender.connection == connection && (sender.state == State::Cut || sender.swallows);
        let is_read = receiver.connection == connection && receiver.state == State::Open;
        let broken = &mut self.way(from, to).broken;
        // Nothing comes behind what is lost.
        if is_over || !is_read || broken.contains(&(lane, connection)) {
            broken.insert((lane, connection));
            self.fates.lost += 1;
            return;
        }
        let newest = self.newest.entry((from, to)).or_default();
        self.fates.overtaking += u64::from(number < *newest);
        *newest = number.max(*newest);
        self.way(from, to).lanes[lane].delivered += 1;
        if let Some(record) = &mut self.record {
            record.push(bytes.clone());
        }
        let Self { random, ways, .. } = self;
        let tamper = ways.get_mut(&(from, to)).and_then(|way| way.tamper.as_mut());
        let frames = match tamper {
            Some(tamper) => tamper(random, bytes),
            None => vec![bytes],
        };
        for frame in frames {
            if let Err(error) = self.take_in(from, to, lane, &frame) {
                assert!(self.is_tampered(from, to), "rank {to} accuses {from}: {error}");
                self.accusations.push((to, from, error));
                self.way(from, to).cut();
                self.way(to, from).cut();
                self.down(to, from);
                self.schedule(1_000, Event::Down(from, to));
                break;
            }
        }
        self.close_severed(to);
        self.settle(to);
    }

    fn take_in(
        &mut self,
        from: usize,
        to: usize,
        lane: usize,
        frame: &[u8],
    ) -> Result<(), PeerError> {
        if self.is_tampered(from, to) {
            self.processes[to].watch_all();
        } else {
            self.tell_reference(from, to, frame);
        }
        let mut rest = frame;
        while let Ok(Some(packet)) = packet::parse(&mut rest) {
            if let Packet::CompressedData { bytes, .. } | Packet::CompressedRtsData { bytes, .. } =
                packet
            {
                let decompression_ns =
                    u64::from(bytes) * HostCost::default().decompress_ps_per_byte / 1000;
                let busy_ns = &mut self.processes[to].busy_ns;
                *busy_ns = self.now_ns.max(*busy_ns) + decompression_ns;
            }
        }
        let (engine, rail) = (&mut self.processes[to].engine, rail(lane));
        // Every other length cuts through.
        let (beginning, rest) = frame.split_at(frame.len().min(32 + frame.len() % 100));
        if !frame.len().is_multiple_of(2)
            || !engine.handle_beginning(peer_id(from), rail, beginning, frame.len())?
        {
            return engine.handle_frame(peer_id(from), rail, frame);
        }
        rest.chunks(700).for_each(|bytes| engine.handle_rest(peer_id(from), bytes));
        Ok(())
    }

    fn tell_reference(&mut self, from: usize, to: usize, mut frame: &[u8]) {
        while let Some(packet) = packet::parse(&mut frame).expect("engines send frames") {
            let (header, asks) = match packet {
                Packet::Eager { header, .. } => (header, None),
                Packet::Rts { header, bytes, .. } => (header, Some(bytes)),
                Packet::RtsData { sequence, payload, .. } => {
                    let bytes = payload.len() as u64;
                    self.processes[to].reference.arrive_rts_data(peer_id(from), sequence, bytes);
                    continue;
                }
                Packet::CompressedRtsData { sequence, bytes, .. } => {
                    let bytes = u64::from(bytes);
                    self.processes[to].reference.arrive_rts_data(peer_id(from), sequence, bytes);
                    continue;
                }
                Packet::Ack { .. }
                | Packet::Resume { .. }
                | Packet::LinkDown { .. }
                | Packet::Cts { .. }
                | Packet::Data { .. }
                | Packet::CompressedData { .. }
                | Packet::Fin { .. }
                | Packet::Credit { .. } => continue,
                Packet::Grant { .. } => {
                    self.taken += 1;
                    continue;
                }
            };
            let is_new = self.sequences.insert((from, to, header.sequence));
            assert!(is_new, "message {} from {from} to {to} came twice", header.sequence);
            let pairs = self.processes[to].reference.arrive(peer_id(from), header, asks);
            for (receive, message) in pairs {
                self.pair(to, receive, message);
            }
        }
    }

    pub(super) fn remote_read(
        &mut self,
        rank: usize,
        id: RemoteReadId,
        remote: RemoteRegion,
        from: usize,
        local: &Region,
    ) {
        let works = self.shape(rank, from).remote_read_works
            && self.way(from, rank).lanes[0].state == State::Open
            && !self.is_tampered(from, rank);
        self.fetches += 1;
        if works {
            let region = self.memory_at(from, remote);
            local.copy_from(&region);
        }
        self.processes[rank].engine.handle_remote_read_done(id, works);
        self.settle(rank);
    }

    /// The sender's memory at an address that it has given away.
    fn memory_at(&self, rank: usize, remote: RemoteRegion) -> Region {
        let is_there = |message: &&Sent| {
            let address = message.region.as_span().map(|span| span.address as u64);
            message.from == rank && !message.complete && address == Some(remote.address)
        };
        let message = self.messages.iter().find(is_there).expect("memory of a send under way");
        message.region.slice(0, remote.len as usize)
    }

    pub(super) fn way(&mut self, from: usize, to: usize) -> &mut Way {
        let links = self.shape(from, to).links;
        self.ways.entry((from, to)).or_insert_with(|| Way {
            lanes: vec![Lane::CLOSED; links],
            broken: BTreeSet::new(),
            is_given_up: false,
            tamper: None,
            tampered: false,
        })
    }

    /// Whether all links between two processes are cut.
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        let is_cut = |way: &Way| way.lanes.iter().all(|lane| lane.state == State::Cut);
        self.ways.get(&(from, to)).is_some_and(is_cut)
    }

    pub(super) fn is_tampered(&self, from: usize, to: usize) -> bool {
        self.ways.get(&(from, to)).is_some_and(|way| way.tampered)
    }
}

impl Way {
    pub fn cut(&mut self) {
        for lane in &mut self.lanes {
            lane.state = State::Cut;
        }
    }
}

impl Lane {
    pub const CLOSED: Self = Self {
        state: State::Closed,
        connection: 0,
        is_known_cut: false,
        refused: false,
        in_flight: 0,
        free_ns: 0,
        last_arrival_ns: 0,
        late_ns: 0,
        swallows: false,
        delivered: 0,
    };
}

/// The token and the memory of a frame with a body.
fn held(frame: &Frame) -> (FrameToken, Span) {
    let body = frame.body.as_ref().expect("only frames with a body are held");
    let span = body.region.as_span().expect("messages lie in one piece");
    (frame.token.expect("a body has a token"), span)
}

fn bytes(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.head.clone();
    if let Some(body) = &frame.body {
        bytes.extend(body.region.to_vec());
    }
    bytes
}

pub fn rail(lane: usize) -> RailId {
    RailId(lane as u8)
}

/// How often processes look at the clock where somebody waits for that.
const TICK_NS: u64 = 50_000_000;
