//! A simulated network of processes, each with a connection manager and rails that dial and shake hands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use connect::{
    Action, Agreed, Asked, Candidate, DialAction, DialFailure, Fault, Links, Patience, PeerFacts,
    Peers, Purpose, RailLink, RailTraits, Verdict,
};
use testing::Random;
use wire::{PeerId, RailId};

/// Processes, connections, and events of the future. Events of one instant come in random order, except those of one
/// connection.
pub struct VirtualNetwork {
    pub now: Duration,
    pub random: Random,
    pub processes: Vec<VirtualProcess>,
    rails: usize,
    agenda: BTreeMap<(Duration, u64), NetworkEvent>,
    connections: Vec<Connection>,
    /// Ends of outages by pair and rail: `None` while the path is cut.
    whole_since: BTreeMap<(usize, usize, usize), Option<Duration>>,
    /// Number of links that have ended.
    pub ended: usize,
}

pub struct VirtualProcess {
    pub peers: Peers,
    /// Links of each rail, by connection.
    pub links: Vec<Links<usize>>,
    /// Port on which each rail listens; it was published at the start.
    ports: Vec<u16>,
    /// Links that were ever open, by peer and rail.
    known: BTreeMap<(usize, usize), KnownLink>,
    /// True for each peer that has shown since the last loss that a link works.
    restored: Vec<bool>,
    /// Peers that have failed.
    pub failed: Vec<bool>,
}

#[derive(Clone, Copy)]
struct KnownLink {
    is_open: bool,
    reopens: bool,
}

struct Connection {
    /// The process that dials, and the one that is called.
    processes: [usize; 2],
    rail: usize,
    address: SocketAddr,
    ends: [ConnectionEnd; 2],
    /// True once something was lost on it.
    is_dead: bool,
    /// Arrival of the last message to each end.
    last: [(Duration, u64); 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ConnectionEnd {
    /// Not there yet, or no longer.
    Gone,
    Connecting,
    HelloSent(Asked),
    AwaitsHello,
    Open,
}

#[derive(Clone, Copy, Debug)]
pub enum NetworkEvent {
    Message {
        connection: usize,
        end: usize,
        message: Handshake,
    },
    /// An end notices that a connection is dead.
    Notice {
        connection: usize,
        end: usize,
    },
    /// An attempt is out of time.
    Expire {
        connection: usize,
    },
    Tick {
        process: usize,
    },
    Want {
        process: usize,
        peer: usize,
    },
    Cut {
        pair: (usize, usize),
        rail: usize,
        lasts: Duration,
    },
    Heal {
        pair: (usize, usize),
        rail: usize,
    },
    /// A connection breaks: each end notices, now or later.
    Drop {
        pair: (usize, usize),
        rail: usize,
        is_noticed: bool,
    },
    /// The published address of a rail leads nowhere any more.
    Move {
        process: usize,
        rail: usize,
    },
    /// Somebody repeats the hello of an earlier opening.
    Replay {
        process: usize,
        peer: usize,
        rail: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Handshake {
    Syn,
    SynAck,
    Refused,
    Hello { generation: u32 },
    Verdict { generation: Option<u32> },
    Beat,
    Close,
}

impl VirtualNetwork {
    pub fn new(seed: u64, size: usize, teams: &[u8]) -> Self {
        let process = |rank: usize| {
            let mut peers = Peers::new(size, PATIENCE);
            let traits = |(rail, team): (usize, &u8)| RailTraits {
                name: ["one", "two", "three"][rail],
                team: RailId(*team),
                passes: false,
            };
            peers.set_rails(teams.iter().enumerate().map(traits).collect());
            let links = || Links::new(PeerId(rank as u32), CONNECT_TIMEOUT);
            VirtualProcess {
                peers,
                links: teams.iter().map(|_| links()).collect(),
                ports: vec![FIRST_PORT; teams.len()],
                known: BTreeMap::new(),
                restored: vec![true; size],
                failed: vec![false; size],
            }
        };
        let mut network = Self {
            now: Duration::ZERO,
            random: Random::new(seed),
            processes: (0..size).map(process).collect(),
            rails: teams.len(),
            agenda: BTreeMap::new(),
            connections: Vec::new(),
            whole_since: BTreeMap::new(),
            ended: 0,
        };
        for process in 0..size {
            network.schedule(Duration::ZERO, NetworkEvent::Tick { process });
            for peer in process + 1..size {
                for rail in 0..teams.len() {
                    network.whole_since.insert((process, peer, rail), Some(Duration::ZERO));
                }
            }
        }
        network
    }

    /// Schedules an event after `delay`, rounded to the instants at which processes poll.
    pub fn schedule(&mut self, delay: Duration, event: NetworkEvent) -> (Duration, u64) {
        let at = rounded(self.now + delay);
        let key = (at, self.random.next() >> 8);
        self.agenda.insert(key, event);
        key
    }

    pub fn run_until(&mut self, end: Duration) {
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.handle(event);
        }
        self.now = end;
    }

    /// Makes all paths whole.
    pub fn heal_all(&mut self) {
        let now = self.now;
        self.whole_since.values_mut().for_each(|since| *since = Some(since.unwrap_or(now)));
        self.agenda.retain(|_, event| {
            !matches!(event, NetworkEvent::Cut { .. } | NetworkEvent::Drop { .. })
        });
    }

    fn handle(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Message { connection, end, message } => {
                self.arrive(connection, end, message)
            }
            NetworkEvent::Notice { connection, end } => {
                if self.connections[connection].ends[end] == ConnectionEnd::Open {
                    self.end_link(connection, end, "nobody answers");
                }
            }
            NetworkEvent::Expire { connection } => {
                let Connection { processes, rail, address, ends, .. } =
                    &self.connections[connection];
                let (process, peer, rail, address) = (processes[0], processes[1], *rail, *address);
                if matches!(ends[0], ConnectionEnd::Connecting | ConnectionEnd::HelloSent(_)) {
                    self.close_end(connection, 0);
                    self.fail_attempt(
                        process,
                        peer,
                        (rail, address),
                        DialFailure::silent("no answer"),
                    );
                }
            }
            NetworkEvent::Tick { process } => self.tick(process),
            NetworkEvent::Want { process, peer } => self.want(process, peer),
            NetworkEvent::Cut { pair, rail, lasts } => {
                self.whole_since.insert((pair.0, pair.1, rail), None);
                self.schedule(lasts, NetworkEvent::Heal { pair, rail });
            }
            NetworkEvent::Heal { pair, rail } => {
                let since = self.whole_since.entry((pair.0, pair.1, rail)).or_default();
                since.get_or_insert(self.now);
            }
            NetworkEvent::Drop { pair, rail, is_noticed } => {
                let key = self.processes[pair.0].links[rail].open_key(PeerId(pair.1 as u32));
                let Some(connection) = key else { return };
                self.kill(connection, is_noticed);
            }
            NetworkEvent::Move { process, rail } => self.processes[process].ports[rail] += 1,
            NetworkEvent::Replay { process, peer, rail } => {
                let links = &mut self.processes[process].links[rail];
                let peer = PeerId(peer as u32);
                if links.open_key(peer).is_some() {
                    for generation in 0..=links.generation(peer) {
                        let verdict = links.judge(peer, generation, || false);
                        assert_eq!(verdict, Verdict::Declined, "opening {generation} is repeated");
                    }
                }
            }
        }
    }

    fn tick(&mut self, process: usize) {
        for rail in 0..self.rails {
            if self.processes[process].links[rail].dialled() > 0 {
                self.poll_dials(process, rail);
            }
        }
        let now = self.now;
        let (peers, mut facts) = self.processes[process].split(self.rails);
        peers.handle_time(now, &mut facts);
        self.carry_out(process);
        for rail in 0..self.rails {
            for peer in 0..self.processes.len() {
                let key = self.processes[process].links[rail].open_key(PeerId(peer as u32));
                if let Some(connection) = key {
                    let end = usize::from(self.connections[connection].processes[0] == process);
                    self.send(connection, end, Handshake::Beat);
                }
            }
        }
        self.schedule(TICK, NetworkEvent::Tick { process });
    }

    fn want(&mut self, process: usize, peer: usize) {
        let id = PeerId(peer as u32);
        let has_moved = self.processes[peer].ports.iter().any(|port| *port != FIRST_PORT);
        if self.processes[process].peers.is_closed(id) && !has_moved {
            let (peers, mut facts) = self.processes[process].split(self.rails);
            peers.submit_search(id, Purpose::Wanted, facts.addresses(id));
            self.carry_out(process);
        }
    }
}

/// Connections.
impl VirtualNetwork {
    fn is_whole(&self, connection: usize) -> bool {
        let Connection { processes: [a, b], rail, .. } = self.connections[connection];
        self.whole_since[&(a.min(b), a.max(b), rail)].is_some()
    }

    /// Sends a message to an end of a connection. Messages arrive in order, or kill the connection.
    fn send(&mut self, connection: usize, end: usize, message: Handshake) {
        if self.connections[connection].is_dead {
            return;
        }
        if !self.is_whole(connection) {
            return self.kill(connection, false);
        }
        let delay = Duration::from_millis(1 + self.random.below(60_u64));
        let (last_at, last_key) = self.connections[connection].last[end];
        let at = rounded(self.now + delay).max(last_at);
        let key = if at == last_at { last_key + 1 } else { self.random.next() >> 8 };
        self.connections[connection].last[end] = (at, key);
        self.agenda.insert((at, key), NetworkEvent::Message { connection, end, message });
    }

    /// Lets nothing pass any more. Each open end notices after a while, or now. One of two open ends may never notice,
    /// unless nobody else can dial.
    fn kill(&mut self, connection: usize, is_noticed: bool) {
        self.connections[connection].is_dead = true;
        let blind = self.random.below(5_usize);
        let Connection { processes, ends, .. } = self.connections[connection];
        let may_be_blind = ends == [ConnectionEnd::Open; 2] && !processes.contains(&MOVING);
        for end in (0..2).filter(|end| *end != blind || !may_be_blind) {
            let delay = if is_noticed { 0 } else { self.random.below(5_000_u64) };
            self.schedule(Duration::from_millis(delay), NetworkEvent::Notice { connection, end });
        }
    }

    fn arrive(&mut self, connection: usize, end: usize, message: Handshake) {
        let Connection { processes, rail, address, ends, is_dead, .. } =
            &self.connections[connection];
        let (process, peer, rail, address) = (processes[end], processes[1 - end], *rail, *address);
        let own = ends[end];
        if *is_dead {
            return;
        }
        if !self.is_whole(connection) {
            return self.kill(connection, false);
        }
        let id = PeerId(peer as u32);
        match (message, own) {
            (Handshake::Syn, _) if self.processes[process].ports[rail] != address.port() => {
                self.send(connection, 0, Handshake::Refused);
            }
            (Handshake::Syn, _) => {
                self.connections[connection].ends[1] = ConnectionEnd::AwaitsHello;
                self.send(connection, 0, Handshake::SynAck);
            }
            (Handshake::Refused, ConnectionEnd::Connecting) => {
                self.connections[connection].ends[0] = ConnectionEnd::Gone;
                self.fail_attempt(process, peer, (rail, address), DialFailure::refused("refused"));
            }
            (Handshake::SynAck, ConnectionEnd::Connecting) => {
                let is_asked = self.has_proved(process, peer, rail);
                let links = &mut self.processes[process].links[rail];
                if let Some(dialling) = links.dialling(id) {
                    dialling.handle_connection(self.now, 2 * CONNECT_TIMEOUT);
                }
                let asked = links.ask(id, is_asked);
                let generation = asked.generation();
                self.connections[connection].ends[0] = ConnectionEnd::HelloSent(asked);
                self.send(connection, 1, Handshake::Hello { generation });
            }
            (Handshake::Hello { generation }, ConnectionEnd::AwaitsHello) => {
                self.judge(connection, generation);
            }
            (Handshake::Verdict { generation: Some(count) }, ConnectionEnd::HelloSent(asked)) => {
                match self.processes[process].links[rail].conclude(asked, count) {
                    Some(agreed) => self.open(connection, 0, agreed),
                    None => self.close_end(connection, 0),
                }
            }
            (Handshake::Verdict { generation: None }, ConnectionEnd::HelloSent(_)) => {
                self.connections[connection].ends[0] = ConnectionEnd::Gone;
                self.fail_attempt(process, peer, (rail, address), DialFailure::silent("declined"));
            }
            (Handshake::Beat, ConnectionEnd::Open) => self.hear(process, peer),
            (Handshake::Close, ConnectionEnd::Open) => self.end_link(connection, end, "closed"),
            (Handshake::Close, ConnectionEnd::Connecting | ConnectionEnd::HelloSent(_)) => {
                self.connections[connection].ends[0] = ConnectionEnd::Gone;
                self.fail_attempt(process, peer, (rail, address), DialFailure::silent("closed"));
            }
            (Handshake::Close, ConnectionEnd::AwaitsHello) => {
                self.connections[connection].ends[1] = ConnectionEnd::Gone
            }
            (
                Handshake::Refused
                | Handshake::SynAck
                | Handshake::Hello { .. }
                | Handshake::Verdict { .. }
                | Handshake::Beat
                | Handshake::Close,
                _,
            ) => {}
        }
    }

    /// Handles a sign of life over a link, which also tells of the links that the peer has lost.
    fn hear(&mut self, process: usize, peer: usize) {
        self.processes[process].restored[peer] = true;
        for rail in 0..self.rails {
            let key = self.processes[process].links[rail].open_key(PeerId(peer as u32));
            let Some(connection) = key else { continue };
            let Connection { processes, ends, .. } = &self.connections[connection];
            let own = usize::from(processes[0] != process);
            if ends[1 - own] == ConnectionEnd::Gone {
                self.end_link(connection, own, "the other end has lost it");
            }
        }
    }

    /// Decides on an accepted connection, as the rails do.
    fn judge(&mut self, connection: usize, generation: u32) {
        let Connection { processes: [caller, own], rail, .. } = self.connections[connection];
        let id = PeerId(caller as u32);
        let has_proved = self.has_proved(own, caller, rail);
        let agreed = match self.processes[own].links[rail].judge(id, generation, || has_proved) {
            Verdict::Accepted(agreed) => agreed,
            Verdict::Replaces(old, agreed) => {
                let end = usize::from(self.connections[old].processes[0] == caller);
                self.close_end(old, end);
                self.processes[own].links[rail].remove(id);
                self.down(own, caller, rail, &Fault::Lost("the peer has lost it".into()));
                // The manager has dialled meanwhile; the new connection is the link all the same.
                agreed
            }
            Verdict::Declined => {
                self.send(connection, 0, Handshake::Verdict { generation: None });
                self.connections[connection].ends[1] = ConnectionEnd::Gone;
                return;
            }
        };
        let generation = Some(agreed.generation());
        self.send(connection, 0, Handshake::Verdict { generation });
        self.open(connection, 1, agreed);
    }

    /// Makes a connection the link at one end.
    fn open(&mut self, connection: usize, end: usize, agreed: Agreed) {
        let Connection { processes, rail, .. } = self.connections[connection];
        let (process, peer) = (processes[end], processes[1 - end]);
        self.connections[connection].ends[end] = ConnectionEnd::Open;
        self.processes[process].links[rail].open(agreed, connection);
        self.drop_dials(process, peer, rail);
        self.up(process, peer, rail);
    }

    /// Ends the link at one end.
    fn end_link(&mut self, connection: usize, end: usize, text: &str) {
        let Connection { processes, rail, .. } = self.connections[connection];
        let (process, peer) = (processes[end], processes[1 - end]);
        self.close_end(connection, end);
        let links = &mut self.processes[process].links[rail];
        assert_eq!(links.open_key(PeerId(peer as u32)), Some(connection), "two links of a rail");
        links.remove(PeerId(peer as u32));
        self.down(process, peer, rail, &Fault::Lost(text.into()));
    }

    /// Closes one end of a connection; the other one learns of it.
    fn close_end(&mut self, connection: usize, end: usize) {
        self.connections[connection].ends[end] = ConnectionEnd::Gone;
        self.send(connection, 1 - end, Handshake::Close);
    }

    fn attempts(&self, process: usize, peer: usize, rail: usize) -> impl Iterator<Item = usize> {
        // Earlier attempts are long out of time.
        let first = self.connections.len().saturating_sub(400);
        (first..self.connections.len()).filter(move |at| {
            let one = &self.connections[*at];
            (one.processes, one.rail) == ([process, peer], rail)
                && matches!(one.ends[0], ConnectionEnd::Connecting | ConnectionEnd::HelloSent(_))
        })
    }

    fn has_proved(&self, process: usize, peer: usize, rail: usize) -> bool {
        self.attempts(process, peer, rail)
            .any(|at| matches!(self.connections[at].ends[0], ConnectionEnd::HelloSent(_)))
    }

    fn drop_dials(&mut self, process: usize, peer: usize, rail: usize) {
        for connection in self.attempts(process, peer, rail).collect::<Vec<_>>() {
            self.close_end(connection, 0);
        }
    }
}

/// Rails.
impl VirtualNetwork {
    fn poll_dials(&mut self, process: usize, rail: usize) {
        let size = self.processes.len();
        let proved: Vec<_> = (0..size).map(|peer| self.has_proved(process, peer, rail)).collect();
        let links = &mut self.processes[process].links[rail];
        for (peer, action) in links.poll_dials(self.now, |peer| proved[peer.0 as usize]) {
            let peer = peer.0 as usize;
            match action {
                DialAction::Try { address, timeout } => {
                    let connection = self.connections.len();
                    self.connections.push(Connection {
                        processes: [process, peer],
                        rail,
                        address,
                        ends: [ConnectionEnd::Connecting, ConnectionEnd::Gone],
                        is_dead: false,
                        last: [(Duration::ZERO, 0); 2],
                    });
                    self.schedule(timeout, NetworkEvent::Expire { connection });
                    self.send(connection, 1, Handshake::Syn);
                }
                DialAction::GiveUp(account) => {
                    self.drop_dials(process, peer, rail);
                    self.down(process, peer, rail, &Fault::Unreachable(account));
                }
            }
        }
    }

    fn fail_attempt(
        &mut self,
        process: usize,
        peer: usize,
        (rail, address): (usize, SocketAddr),
        failure: DialFailure,
    ) {
        let now = self.now;
        let links = &mut self.processes[process].links[rail];
        if let Some(dialling) = links.dialling(PeerId(peer as u32)) {
            dialling.handle_failure(address, failure, now);
        }
    }

    fn connect(&mut self, process: usize, peer: usize, rail: usize, address: &[u8]) {
        let id = PeerId(peer as u32);
        if self.processes[process].links[rail].get(id).is_none() {
            let port = u16::from_le_bytes([address[0], address[1]]);
            let address = SocketAddr::from(([10, 0, rail as u8, peer as u8], port));
            let (now, seed) = (self.now, self.random.next());
            let links = &mut self.processes[process].links[rail];
            links.dial(id, vec![address], (now, CONNECT_TIMEOUT), seed);
            self.poll_dials(process, rail);
        }
    }

    fn disconnect(&mut self, process: usize, peer: usize, rail: usize) {
        match self.processes[process].links[rail].remove(PeerId(peer as u32)) {
            Some(RailLink::Dialling(_)) => self.drop_dials(process, peer, rail),
            Some(RailLink::Open { key }) => {
                let end = usize::from(self.connections[key].processes[0] != process);
                self.close_end(key, end);
            }
            None => {}
        }
    }
}

/// Processes.
impl VirtualNetwork {
    fn up(&mut self, process: usize, peer: usize, rail: usize) {
        let id = PeerId(peer as u32);
        if let Some(opened) = self.processes[process].peers.handle_up(id, RailId(rail as u8)) {
            let link = KnownLink { is_open: true, reopens: true };
            self.processes[process].known.insert((peer, rail), link);
            let (peers, facts) = self.processes[process].split(self.rails);
            if opened.takes_over {
                peers.handle_takeover(id, RailId(rail as u8), &facts);
            }
        }
        self.carry_out(process);
    }

    fn down(&mut self, process: usize, peer: usize, rail: usize, fault: &Fault) {
        self.handle_down(process, peer, rail, fault);
        self.carry_out(process);
    }

    fn handle_down(&mut self, process: usize, peer: usize, rail: usize, fault: &Fault) {
        self.ended += usize::from(matches!(fault, Fault::Lost(_)));
        let (id, rail_id, now) = (PeerId(peer as u32), RailId(rail as u8), self.now);
        let (peers, mut facts) = self.processes[process].split(self.rails);
        let Some(lost) = peers.handle_down(id, rail_id, fault, &mut facts) else { return };
        let own = &mut self.processes[process];
        if let Some(link) = own.known.get_mut(&(peer, rail)) {
            *link = KnownLink { is_open: false, reopens: !lost.ends };
            own.restored[peer] = false;
        }
        let mut links = own.known.iter().filter(|((other, _), _)| *other == peer);
        let is_final = !links.any(|(_, link)| link.is_open || link.reopens);
        let (peers, mut facts) = own.split(self.rails);
        peers.handle_loss(lost, is_final, fault, now, &mut facts);
    }

    fn carry_out(&mut self, process: usize) {
        while let Some(action) = self.processes[process].peers.poll_action() {
            match action {
                Action::Connect { peer, rail, address } => {
                    self.connect(process, peer.0 as usize, rail.0.into(), &address);
                }
                Action::Disconnect { peer, rail } => {
                    self.disconnect(process, peer.0 as usize, rail.0.into());
                }
                Action::Close { peer, rail, reason } => {
                    self.disconnect(process, peer.0 as usize, rail.0.into());
                    let fault = Fault::Lost(reason);
                    self.handle_down(process, peer.0 as usize, rail.0.into(), &fault);
                }
                Action::Fail { peer, text } => self.note_failed(process, peer.0 as usize, text),
                Action::EndSearch { .. } => panic!("each search is wanted"),
                Action::NoteUnreachable { .. } | Action::Print(_) => {}
            }
        }
    }

    /// Checks that a peer fails only if no path has led there for as long as the patience.
    fn note_failed(&mut self, process: usize, peer: usize, text: Option<String>) {
        let (a, b) = (process.min(peer), process.max(peer));
        // A peer that has given up this process rejects all its connections.
        let is_rejected = self.processes[peer].failed[process];
        for rail in (0..self.rails).filter(|_| !is_rejected) {
            let since = self.whole_since[&(a, b, rail)];
            let is_open = since.is_some_and(|since| self.now - since >= PATIENCE.limit);
            assert!(
                !is_open,
                "{process} gives up {peer} at {:?}: {text:?}, but {rail} is whole since {since:?}",
                self.now
            );
        }
        self.processes[process].failed[peer] = true;
        for rail in 0..self.rails {
            self.processes[process].known.remove(&(peer, rail));
        }
    }

    /// Pairs whose ends disagree on the link of a rail, or have none left, with the rail and the links.
    pub fn disagreements(&self) -> Vec<Disagreement> {
        let mut found = Vec::new();
        let links = |from: usize, to: usize| -> Vec<_> {
            let links = self.processes[from].links.iter();
            links.map(|links| links.open_key(PeerId(to as u32))).collect()
        };
        for (a, b) in self.pairs() {
            if self.processes[a].failed[b] || self.processes[b].failed[a] {
                continue;
            }
            let (forth, back) = (links(a, b), links(b, a));
            let has_met = !self.processes[a].peers.is_closed(PeerId(b as u32));
            let has_none = has_met && forth.iter().all(Option::is_none);
            for (rail, (forth, back)) in forth.into_iter().zip(back).enumerate() {
                let is_dead = |key: usize| self.connections[key].is_dead;
                if has_none || forth != back || forth.is_some_and(is_dead) {
                    found.push(((a, b), rail, [forth, back]));
                }
            }
        }
        found
    }

    /// Number of pairs that have met.
    pub fn met(&self) -> usize {
        let has_met = |&(a, b): &(usize, usize)| {
            self.processes[a].peers.leading_rail(PeerId(b as u32)).is_some()
        };
        self.pairs().filter(has_met).count()
    }

    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let size = self.processes.len();
        (0..size).flat_map(move |a| (a + 1..size).map(move |b| (a, b)))
    }
}

/// A pair, a rail, and the links of both ends.
pub type Disagreement = ((usize, usize), usize, [Option<usize>; 2]);

impl VirtualProcess {
    fn split(&mut self, rails: usize) -> (&mut Peers, Known<'_>) {
        let Self { peers, known, restored, .. } = self;
        (peers, Known { known, restored, rails })
    }
}

/// Knowledge of a process about its peers, all of them far.
struct Known<'a> {
    known: &'a BTreeMap<(usize, usize), KnownLink>,
    restored: &'a [bool],
    rails: usize,
}

impl Known<'_> {
    fn of(&self, peer: PeerId) -> impl Iterator<Item = &KnownLink> {
        self.known.range((peer.0 as usize, 0)..(peer.0 as usize + 1, 0)).map(|(_, link)| link)
    }

    fn link(&self, peer: PeerId, rail: RailId) -> Option<&KnownLink> {
        self.known.get(&(peer.0 as usize, rail.0.into()))
    }
}

impl PeerFacts for Known<'_> {
    fn addresses(&mut self, _: PeerId) -> Vec<Candidate> {
        (0..self.rails).map(|rail| (RailId(rail as u8), FIRST_PORT.to_le_bytes().into())).collect()
    }

    fn has_ended(&mut self, _: PeerId) -> bool {
        false
    }

    fn is_down(&self, peer: PeerId) -> bool {
        self.of(peer).count() > 0 && !self.of(peer).any(|link| link.is_open)
    }

    fn is_cut_off(&self, peer: PeerId) -> bool {
        self.is_down(peer) && self.of(peer).any(|link| link.reopens)
    }

    fn is_restored(&self, peer: PeerId) -> bool {
        self.restored[peer.0 as usize]
    }

    fn may_reopen(&self, peer: PeerId, rail: RailId) -> bool {
        self.link(peer, rail).is_some_and(|link| !link.is_open && link.reopens)
    }

    fn has_been_open(&self, peer: PeerId, rail: RailId) -> bool {
        self.link(peer, rail).is_some()
    }

    fn carries(&self, peer: PeerId, rail: RailId) -> bool {
        self.link(peer, rail).is_some_and(|link| link.is_open)
    }
}

/// Processes poll every 20 ms, so that events meet in one poll.
fn rounded(at: Duration) -> Duration {
    Duration::from_millis((at.as_millis() as u64).next_multiple_of(20))
}

pub const PATIENCE: Patience =
    Patience { limit: Duration::from_secs(15), detour: Duration::from_millis(1500) };
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const TICK: Duration = Duration::from_millis(500);
const FIRST_PORT: u16 = 7000;
/// The only process whose addresses change.
pub const MOVING: usize = 0;
