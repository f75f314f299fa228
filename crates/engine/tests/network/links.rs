//! Simulated links: how frames travel, and how they are lost.

use std::collections::BTreeSet;

use cost::HostCost;
use engine::{Counters, Engine, Loss, PeerError, Posted, RemoteReadId};
use memory::{Region, Span};
use wire::packet::{self, Packet};
use wire::{Capabilities, Frame, FrameToken, Incoming, PeerId, RailId, RemoteRegion};

use super::check::overlaps;
use super::{Event, Sent, Shape, SimulatedNetwork, SimulatedProcess, Tamper, peer_id};

/// One direction between two processes, with its links.
pub struct Direction {
    pub links: Vec<SimulatedLink>,
    /// Connections that have lost a frame.
    pub broken: BTreeSet<(usize, u32)>,
    /// True if one of the two has closed all links for good.
    pub is_given_up: bool,
    pub tamper: Option<Tamper>,
    pub tampered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Closed,
    Opening,
    Open,
    Cut,
}

#[derive(Clone, Copy)]
pub struct SimulatedLink {
    pub state: LinkState,
    /// Number of the link's current connection.
    pub connection: u32,
    /// True if the process knows that the link is cut.
    pub is_known_cut: bool,
    pub refused: bool,
    pub in_flight: usize,
    pub free_ns: u64,
    pub last_arrival_ns: u64,
    pub late_ns: u64,
    pub drops_frames: bool,
    pub delivered: u64,
}

/// Path of a frame over a link.
#[derive(Clone, Copy)]
pub struct Passage {
    pub from: usize,
    pub to: usize,
    pub link: usize,
    pub connection: u32,
    /// Position of the frame among all posted ones.
    pub number: u64,
}

/// Counters of lost and resent frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fates {
    /// Lost on a link.
    pub lost: u64,
    /// Resent over another link.
    pub resent: u64,
    /// Delivered before a frame that left earlier.
    pub overtaking: u64,
    /// Frames of which only a part arrived.
    pub parts: u64,
}

/// A frame that was copied when it was posted, or that is read when it leaves.
pub enum Cargo {
    Copied(Vec<u8>),
    Held(Frame),
}

impl SimulatedNetwork {
    /// Cuts all links between two processes: frames in flight are lost, and each process notices
    /// after a delay of its own.
    pub fn cut(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.direction(from, to).cut();
            self.direction(from, to).is_given_up = true;
            let delay = self.random.below(5_000) as u64;
            self.schedule(delay, Event::Down(from, to));
        }
    }

    /// Cuts one of the links between two processes: frames in flight over it are lost, and each
    /// process notices after a delay of its own.
    pub fn cut_link(&mut self, a: usize, b: usize, link: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let simulated = &mut self.direction(from, to).links[link];
            let connection = simulated.connection;
            if std::mem::replace(&mut simulated.state, LinkState::Cut) == LinkState::Open {
                let delay = self.random.below(200_000) as u64;
                self.schedule(delay, Event::LinkDown(from, to, link, connection));
            }
        }
    }

    /// Cuts an open link like [`SimulatedNetwork::cut_link`], or one direction first, and mends it after a
    /// while. Both processes check the clock until then.
    pub fn cut_for(&mut self, (a, b): (usize, usize), link: usize, for_ns: u64) {
        let ends = [(a, b), (b, a)];
        let is_open = |state| state == LinkState::Open;
        if !ends.iter().all(|&(from, to)| is_open(self.direction(from, to).links[link].state))
            || !self.mending.insert((a.min(b), a.max(b), link))
        {
            return;
        }
        match self.random.below(3) {
            0 => self.lose(a, b, link),
            1 => self.lose(b, a, link),
            _ => self.cut_link(a, b, link),
        }
        self.schedule(for_ns, Event::Mended(a, b, link));
        self.look_at_clock(a, b, for_ns);
    }

    /// Schedules clock checks of two processes for a while.
    pub fn look_at_clock(&mut self, a: usize, b: usize, for_ns: u64) {
        for tick in 0..for_ns / TICK_NS + 20 {
            self.schedule(tick * TICK_NS, Event::Tick(a));
            self.schedule(tick * TICK_NS, Event::Tick(b));
        }
    }

    /// Reconnects a link's rails, one end before the other. Now and then only one end learns of it,
    /// and the other tries again.
    pub(super) fn mend(&mut self, a: usize, b: usize, link: usize) {
        self.connections += 1;
        let connection = self.connections;
        let (first, second) = if self.random.one_in(2) { (a, b) } else { (b, a) };
        let latency_ns = self.shape(a, b).of_link(link).latency_ns;
        let (first_ns, second_ns) = (self.now_ns + latency_ns, self.now_ns + 2 * latency_ns);
        let opened = |rank, peer, peer_ns| Event::Opened { rank, peer, link, connection, peer_ns };
        self.schedule(latency_ns, opened(first, second, second_ns));
        if self.random.one_in(3) {
            let later_ns = latency_ns + self.random.below(400_000) as u64;
            self.schedule(later_ns, Event::LinkDown(first, second, link, connection));
            self.schedule(later_ns + latency_ns, Event::Mended(a, b, link));
        } else {
            self.schedule(2 * latency_ns, opened(second, first, first_ns));
        }
    }

    /// Capabilities of one end of a link. Of two ends that reopen, the lower rank wants frames
    /// stored.
    pub(super) fn capabilities(&self, rank: usize, peer: usize, link: usize) -> Capabilities {
        let capabilities = self.shape(rank, peer).of_link(link).capabilities;
        let Capabilities { replay, reopens, .. } = capabilities;
        Capabilities { replay: replay && !(reopens && rank > peer), ..capabilities }
    }

    /// Reopens one end of a link; its earlier connection is over.
    pub(super) fn open_anew(
        &mut self,
        (rank, peer): (usize, usize),
        link: usize,
        connection: u32,
        peer_ns: u64,
    ) {
        if self.direction(rank, peer).is_given_up {
            return;
        }
        if !self.direction(rank, peer).links[link].is_known_cut
            && self.link_down(rank, peer, link) == Loss::Final
        {
            return;
        }
        let SimulatedLink { delivered, .. } = self.direction(rank, peer).links[link];
        self.direction(rank, peer).links[link] = SimulatedLink {
            state: LinkState::Open,
            connection,
            last_arrival_ns: peer_ns,
            delivered,
            ..SimulatedLink::CLOSED
        };
        if self.direction(peer, rank).links[link].connection == connection {
            self.mending.remove(&(rank.min(peer), rank.max(peer), link));
        }
        let capabilities = self.capabilities(rank, peer, link);
        self.processes[rank].engine.handle_up(peer_id(peer), rail(link), capabilities);
        if self.is_spare(rank, peer, link) {
            for other in (0..self.direction(rank, peer).links.len()).filter(|other| *other != link)
            {
                if self.direction(rank, peer).links[other].is_known_cut {
                    self.link_down(rank, peer, other);
                }
            }
        }
        self.settle(rank);
    }

    /// Marks the links between two processes as spares: one is open, and another opens when the
    /// first leads nowhere.
    pub fn set_spare(&mut self, a: usize, b: usize) {
        (0..2).for_each(|link| _ = self.spare.insert((a.min(b), a.max(b), link)));
    }

    fn is_spare(&self, a: usize, b: usize, link: usize) -> bool {
        self.spare.contains(&(a.min(b), a.max(b), link))
    }

    fn is_open(&mut self, rank: usize, peer: usize) -> bool {
        self.direction(rank, peer).links.iter().any(|link| link.state == LinkState::Open)
    }

    /// Blocks a link for good; the two processes notice at times of their own, or one long after
    /// the other.
    pub fn forbid(&mut self, a: usize, b: usize, link: usize) {
        self.forbidden = Some((a.min(b), a.max(b), link));
        self.look_at_clock(a, b, 8_000_000_000);
        let ends = [(a, b), (b, a)];
        if !ends
            .iter()
            .all(|&(from, to)| self.direction(from, to).links[link].state == LinkState::Open)
        {
            return;
        }
        match self.random.below(4) {
            0 => self.lose(a, b, link),
            1 => self.lose(b, a, link),
            2 => self.cut_link(a, b, link),
            _ => {
                self.drop_frames(a, b, link);
                for ((rank, peer), delay_ns) in ends.into_iter().zip([0, 4_000_000_000]) {
                    let connection = self.direction(rank, peer).links[link].connection;
                    self.schedule(delay_ns, Event::LinkDown(rank, peer, link, connection));
                }
            }
        }
    }

    pub(super) fn find_cut(&mut self, rank: usize, peer: usize, link: usize, connection: u32) {
        let simulated = &self.direction(rank, peer).links[link];
        if simulated.connection == connection && !simulated.is_known_cut {
            self.link_down(rank, peer, link);
        }
    }

    /// Drops what one process sends another over a link. The other direction is whole until both
    /// notice, each at a time of its own.
    pub fn lose(&mut self, from: usize, to: usize, link: usize) {
        let simulated = &mut self.direction(from, to).links[link];
        if simulated.state != LinkState::Open {
            return self.cut_link(from, to, link);
        }
        if !std::mem::replace(&mut simulated.drops_frames, true) {
            for (rank, peer) in [(from, to), (to, from)] {
                let connection = self.direction(rank, peer).links[link].connection;
                let delay = self.random.below(200_000) as u64;
                self.schedule(delay, Event::LinkDown(rank, peer, link, connection));
            }
        }
    }

    /// Number of links that carry frames in both directions between two processes.
    pub fn links(&mut self, a: usize, b: usize) -> usize {
        let carries = |link: &SimulatedLink| link.state == LinkState::Open && !link.drops_frames;
        let of = |direction: &Direction| direction.links.iter().map(carries).collect::<Vec<_>>();
        let both = of(self.direction(a, b)).into_iter().zip(of(self.direction(b, a)));
        both.filter(|carries| *carries == (true, true)).count()
    }

    /// Number of frames delivered from one process to another over a link.
    pub fn delivered(&mut self, from: usize, to: usize, link: usize) -> u64 {
        self.direction(from, to).links[link].delivered
    }

    /// Runs until `links` links lead from one process to another.
    pub fn run_until_links(&mut self, from: usize, to: usize, links: usize) {
        let is_open = |link: &&SimulatedLink| link.state == LinkState::Open;
        while self.direction(from, to).links.iter().filter(is_open).count() < links && self.step() {
        }
    }

    /// Delays all later frames over a link.
    pub fn slow_down(&mut self, from: usize, to: usize, link: usize, late_ns: u64) {
        self.direction(from, to).links[link].late_ns = late_ns;
    }

    /// Drops all later frames over a link silently; for half a minute both processes check the
    /// clock.
    pub fn drop_frames(&mut self, a: usize, b: usize, link: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.direction(from, to).links[link].drops_frames = true;
            for tick in 0..600 {
                self.schedule(tick * TICK_NS, Event::Tick(from));
            }
        }
    }

    /// Stops a process for a while; the others check the clock meanwhile.
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
        while let Some((PeerId(peer), RailId(link))) =
            self.processes[rank].engine.handle_time(now_ns)
        {
            self.late_links += 1;
            let loss = self.link_down(rank, peer as usize, link as usize);
            assert_eq!(loss, Loss::Tolerated, "another is left");
        }
        self.follow_outages(rank);
    }

    /// Handles the loss of a link at one process.
    pub(super) fn link_down(&mut self, rank: usize, peer: usize, link: usize) -> Loss {
        let simulated = &mut self.direction(rank, peer).links[link];
        (simulated.state, simulated.is_known_cut) = (LinkState::Cut, true);
        let ends = self.is_spare(rank, peer, link) && self.is_open(rank, peer);
        let loss = self.processes[rank].lose_link(peer_id(peer), rail(link), ends);
        if loss == Loss::Final {
            self.give_up(rank, peer);
        }
        self.settle(rank);
        loss
    }

    /// Closes all links of a process to a peer.
    pub(super) fn give_up(&mut self, rank: usize, peer: usize) {
        for (from, to) in [(rank, peer), (peer, rank)] {
            self.direction(from, to).cut();
            self.direction(from, to).is_given_up = true;
        }
        self.down(rank, peer);
        self.schedule(1_000, Event::Down(peer, rank));
    }

    /// Closes links that peers have given up, as `progress` does.
    fn close_severed(&mut self, rank: usize) {
        while let Some((PeerId(peer), RailId(link))) = self.processes[rank].engine.poll_severed() {
            self.link_down(rank, peer as usize, link as usize);
        }
    }

    pub(super) fn down(&mut self, rank: usize, peer: usize) {
        let messages = &self.messages;
        self.held.retain(|(from, _, span)| {
            let holds = |message: &Sent| message.from == rank && overlaps(&message.region, *span);
            *from != rank || !messages.iter().any(|one| one.send.to == peer && holds(one))
        });
        let process = &mut self.processes[rank];
        process.outages.forget(peer_id(peer));
        process.reference.fail(peer_id(peer));
        process.engine.handle_down(peer_id(peer));
        process.watch_all();
        self.settle(rank);
    }

    /// Handles all outputs of an engine, as `progress` does after every command and event.
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
            assert!(shape.capabilities.remote_read, "a remote read over a link that has none");
            let delay = shape.latency_ns + remote_read.remote.len * 1000 / shape.bytes_per_us;
            let (id, remote, local) = (remote_read.id, remote_read.remote, remote_read.local);
            self.schedule(delay, Event::RemoteReadDone { rank, id, remote, from, local });
        }
        self.collect(rank);
    }

    /// Polls a frame, and charges the time of compression.
    fn poll_frame(&mut self, rank: usize, to: PeerId, rail: RailId, frame: &mut Frame) -> bool {
        let SimulatedProcess { engine, busy_ns, refusals, .. } = &mut self.processes[rank];
        let read = |engine: &Engine| {
            let Counters { uncompressed_bytes, incompressible_bytes, .. } = engine.counters();
            uncompressed_bytes + incompressible_bytes
        };
        let before = read(engine);
        let is_built = engine.poll_frame(to, rail, frame);
        while let Some((peer, text)) = engine.poll_violation() {
            refusals.push(format!("{text}; to peer {}", peer.0));
        }
        let compression_ns = HostCost::default().compression_ns(read(engine) - before);
        if compression_ns > 0 {
            *busy_ns = self.now_ns.max(*busy_ns) + compression_ns;
        }
        is_built
    }

    fn connect(&mut self, from: usize, to: usize) {
        let Shape { latency_ns, links, .. } = self.shape(from, to);
        let states: Vec<_> = self.direction(from, to).links.iter().map(|link| link.state).collect();
        if states.iter().all(|state| *state == LinkState::Cut) {
            return self.schedule(latency_ns, Event::Down(from, to));
        }
        let closed = |link: &usize| {
            states[*link] == LinkState::Closed && (*link == 0 || !self.is_spare(from, to, *link))
        };
        let closed: Vec<_> = (0..links).filter(closed).collect();
        for link in closed {
            let late_ns = if link == 0 { 0 } else { self.random.below(300_000) as u64 };
            self.direction(from, to).links[link].state = LinkState::Opening;
            self.schedule(late_ns + 2 * latency_ns, Event::Up(from, to, link));
            if from != to {
                let first_ns = self.now_ns + late_ns + 2 * latency_ns;
                self.direction(to, from).links[link].state = LinkState::Opening;
                self.direction(to, from).links[link].last_arrival_ns = first_ns;
                self.schedule(late_ns + latency_ns, Event::Up(to, from, link));
            }
        }
    }

    pub(super) fn post(&mut self, from: usize, to: usize, rail: RailId, frame: &Frame) -> Posted {
        let link = rail.0 as usize;
        let shape = self.shape(from, to).of_link(link);
        assert!(!frame.is_empty(), "an empty frame was posted");
        assert!(frame.len() <= shape.capabilities.frame_max, "a frame is too long");
        assert_eq!(frame.body.is_some(), frame.token.is_some(), "a body has a token");
        match self.direction(from, to).links[link].state {
            LinkState::Open => {}
            LinkState::Cut => {
                self.fates.lost += 1;
                return Posted::Done;
            }
            LinkState::Closed | LinkState::Opening => panic!("a frame for a link that is not open"),
        }
        let now_ns = self.now_ns;
        let begin_ns = now_ns.max(self.processes[from].busy_ns);
        let spurious = self.random.one_in(16);
        let simulated = &mut self.direction(from, to).links[link];
        assert!(!simulated.refused, "a frame for a link that is full");
        if spurious || simulated.in_flight == shape.depth {
            simulated.refused = true;
            if spurious {
                self.schedule(shape.latency_ns, Event::Room(from, to, link));
            }
            return Posted::Full;
        }
        let is_held = frame.token.is_some() && self.random.one_in(2);
        if is_held {
            let (token, span) = held(frame);
            self.held.push((from, token, span));
        }
        let jitter_ns = self.random.below(shape.jitter_ns as usize + 1) as u64;
        let simulated = &mut self.direction(from, to).links[link];
        simulated.in_flight += 1;
        simulated.free_ns =
            simulated.free_ns.max(begin_ns) + 1 + frame.len() as u64 * 1000 / shape.bytes_per_us;
        simulated.last_arrival_ns =
            (simulated.free_ns + shape.latency_ns + simulated.late_ns + jitter_ns)
                .max(simulated.last_arrival_ns + 1);
        let (departure_ns, arrival_ns) = (simulated.free_ns, simulated.last_arrival_ns);
        let cargo = if is_held { Cargo::Held(frame.clone()) } else { Cargo::Copied(bytes(frame)) };
        let connection = simulated.connection;
        self.posted += 1;
        let passage = Passage { from, to, link, connection, number: self.posted };
        self.schedule(departure_ns - now_ns, Event::Departed { passage, cargo, arrival_ns });
        if is_held { Posted::Held } else { Posted::Done }
    }

    pub(super) fn depart(&mut self, passage: Passage, cargo: Cargo, arrival_ns: u64) {
        let Passage { from, to, link, connection, .. } = passage;
        let has_replay = self.shape(from, to).of_link(link).capabilities.replay;
        let simulated = &mut self.direction(from, to).links[link];
        let is_current = simulated.connection == connection;
        simulated.in_flight -= usize::from(is_current);
        if simulated.state == LinkState::Cut || !is_current {
            self.fates.lost += 1;
            if let Cargo::Held(frame) = cargo {
                self.let_go(from, &frame);
            }
            return;
        }
        let now_room = std::mem::take(&mut simulated.refused);
        let bytes = match cargo {
            Cargo::Copied(bytes) => bytes,
            Cargo::Held(frame) => {
                if has_replay {
                    self.let_go(from, &frame);
                }
                let bytes = bytes(&frame);
                let delay = self.random.below(10_000) as u64;
                self.schedule(delay, Event::Sent { from, to, link, frame });
                bytes
            }
        };
        if now_room {
            self.processes[from].engine.handle_room(peer_id(to), rail(link));
        }
        self.settle(from);
        self.schedule(arrival_ns - self.now_ns, Event::Arrived { passage, bytes });
    }

    /// Releases the memory of a frame at its rail.
    fn let_go(&mut self, from: usize, frame: &Frame) {
        let (token, span) = held(frame);
        if let Some(at) = self.held.iter().position(|one| *one == (from, token, span)) {
            self.held.swap_remove(at);
        }
    }

    pub(super) fn sent(&mut self, from: usize, to: usize, link: usize, frame: &Frame) {
        let (token, span) = held(frame);
        let is_this = |one: &(usize, FrameToken, Span)| *one == (from, token, span);
        if let Some(at) = self.held.iter().position(is_this) {
            self.held.swap_remove(at);
            self.processes[from].engine.handle_sent(peer_id(to), rail(link), token);
            self.settle(from);
        }
    }

    pub(super) fn arrive(&mut self, passage: Passage, bytes: Vec<u8>) {
        let Passage { from, to, link, connection, number } = passage;
        let away_until_ns = self.processes[to].away_until_ns;
        if self.now_ns < away_until_ns {
            // The process will look at its links in this order.
            let later_ns = away_until_ns - self.now_ns + link as u64;
            return self.schedule(later_ns, Event::Arrived { passage, bytes });
        }
        let sender = self.direction(from, to).links[link];
        let receiver = self.direction(to, from).links[link];
        // A sender that has reconnected may have an end that still reads earlier frames.
        let is_over = sender.connection == connection
            && (sender.state == LinkState::Cut || sender.drops_frames);
        let is_read = receiver.connection == connection && receiver.state == LinkState::Open;
        let broken = &mut self.direction(from, to).broken;
        // A connection delivers nothing after a lost frame.
        if is_over || !is_read || broken.contains(&(link, connection)) {
            let is_first = broken.insert((link, connection));
            self.fates.lost += 1;
            if is_first && is_read {
                self.receive_part(from, to, link, &bytes);
            }
            return;
        }
        let newest = self.newest.entry((from, to)).or_default();
        self.fates.overtaking += u64::from(number < *newest);
        *newest = number.max(*newest);
        self.direction(from, to).links[link].delivered += 1;
        if let Some(record) = &mut self.record {
            record.push(bytes.clone());
        }
        let Self { random, directions, .. } = self;
        let tamper =
            directions.get_mut(&(from, to)).and_then(|direction| direction.tamper.as_mut());
        let frames = match tamper {
            Some(tamper) => tamper(random, bytes),
            None => vec![bytes],
        };
        for frame in frames {
            let retracted = self.processes[to].engine.counters().retracted;
            let received = self.receive_frame(from, to, link, &frame);
            if !self.is_tampered(from, to) {
                self.drop_retracted(to, retracted);
            }
            if let Err(error) = received {
                assert!(self.is_tampered(from, to), "rank {to} accuses {from}: {error}");
                self.accusations.push((to, from, error));
                self.direction(from, to).cut();
                self.direction(to, from).cut();
                self.down(to, from);
                self.schedule(1_000, Event::Down(from, to));
                break;
            }
        }
        self.close_severed(to);
        self.settle(to);
    }

    fn receive_frame(
        &mut self,
        from: usize,
        to: usize,
        link: usize,
        frame: &[u8],
    ) -> Result<(), PeerError> {
        if self.is_tampered(from, to) {
            self.processes[to].watch_all();
        } else {
            self.update_reference(from, to, frame);
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
        let (engine, rail) = (&mut self.processes[to].engine, rail(link));
        // Every other length cuts through.
        let (beginning, rest) = frame.split_at(frame.len().min(32 + frame.len() % 100));
        if !frame.len().is_multiple_of(2)
            || !engine.handle_beginning(peer_id(from), rail, beginning, frame.len())?
        {
            return engine.handle_frame(peer_id(from), rail, frame);
        }
        for piece in rest.chunks(700) {
            engine.handle_rest(peer_id(from), rail, Incoming::Here(piece))?;
        }
        Ok(())
    }

    /// Receives the first half of a frame whose rest is lost with its link, if the engine takes frames in pieces.
    fn receive_part(&mut self, from: usize, to: usize, link: usize, frame: &[u8]) {
        let (engine, rail) = (&mut self.processes[to].engine, rail(link));
        let (beginning, rest) = frame.split_at(frame.len().min(64));
        if engine.handle_beginning(peer_id(from), rail, beginning, frame.len()) == Ok(true) {
            self.fates.parts += 1;
            let half = Incoming::Here(&rest[..rest.len() / 2]);
            assert_eq!(engine.handle_rest(peer_id(from), rail, half), Ok(()));
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
            && self.direction(from, rank).links[0].state == LinkState::Open
            && !self.is_tampered(from, rank);
        self.remote_reads += 1;
        if works {
            let region = self.memory_at(from, remote);
            local.copy_from(&region);
        }
        self.processes[rank].engine.handle_remote_read_done(id, works);
        self.settle(rank);
    }

    /// Finds the sender's memory at an address that it has announced.
    fn memory_at(&self, rank: usize, remote: RemoteRegion) -> Region {
        let is_there = |message: &&Sent| {
            let address = message.region.as_span().map(|span| span.address as u64);
            message.from == rank && !message.complete && address == Some(remote.address)
        };
        let message =
            self.messages.iter().find(is_there).expect("memory of a send under simulated");
        message.region.slice(0, remote.len as usize)
    }

    pub(super) fn direction(&mut self, from: usize, to: usize) -> &mut Direction {
        let links = self.shape(from, to).links;
        self.directions.entry((from, to)).or_insert_with(|| Direction {
            links: vec![SimulatedLink::CLOSED; links],
            broken: BTreeSet::new(),
            is_given_up: false,
            tamper: None,
            tampered: false,
        })
    }

    /// True if all links between two processes are cut.
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        let is_cut =
            |direction: &Direction| direction.links.iter().all(|link| link.state == LinkState::Cut);
        self.directions.get(&(from, to)).is_some_and(is_cut)
    }

    pub(super) fn is_tampered(&self, from: usize, to: usize) -> bool {
        self.directions.get(&(from, to)).is_some_and(|direction| direction.tampered)
    }
}

impl Direction {
    pub fn cut(&mut self) {
        for link in &mut self.links {
            link.state = LinkState::Cut;
        }
    }
}

impl SimulatedLink {
    pub const CLOSED: Self = Self {
        state: LinkState::Closed,
        connection: 0,
        is_known_cut: false,
        refused: false,
        in_flight: 0,
        free_ns: 0,
        last_arrival_ns: 0,
        late_ns: 0,
        drops_frames: false,
        delivered: 0,
    };
}

/// Token and memory of a frame with a body.
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

pub fn rail(link: usize) -> RailId {
    RailId(link as u8)
}

/// Interval of clock checks.
const TICK_NS: u64 = 50_000_000;
