//! Two processes that dial each other over a network which cuts connections: both end with one and the same link.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use auth::{DECLINES, Handshake, HandshakeEnd, Opening, Outcome, Step, verdict};
use connect::{Agreed, Links, RailLink, Verdict};
use testing::Random;
use wire::PeerId;

use crate::pipe::{DEADLINE, PROOFS, Proof, keys, nonce, own};

#[test]
fn crossing_and_cut_attempts_end_with_one_link() {
    for seed in testing::seeds(500) {
        for proof in PROOFS {
            let mut pair = TwoProcesses::new(proof, seed);
            pair.disturb();
            pair.settle();
        }
    }
}

/// Bytes on the way to one end of a connection.
#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    /// True if nothing follows: the other end has closed.
    is_closed: bool,
    /// True if the reader has seen the end, or has closed.
    is_done: bool,
}

enum Stage {
    Handshake(Handshake),
    /// It is the link before its verdict.
    Anticipated(Handshake),
    Open,
}

struct Process {
    rank: PeerId,
    links: Links<usize>,
    /// Connections by number, which is the same at both ends.
    connections: BTreeMap<usize, Stage>,
}

struct TwoProcesses {
    proof: Proof,
    random: Random,
    processes: [Process; 2],
    /// Bytes on the way to each end, by connection.
    pipes: Vec<[Pipe; 2]>,
}

impl TwoProcesses {
    fn new(proof: Proof, seed: u64) -> Self {
        let process = |rank| Process {
            rank: PeerId(rank),
            links: Links::new(PeerId(rank), DEADLINE),
            connections: BTreeMap::new(),
        };
        let random = Random::new(seed);
        Self { proof, random, processes: [process(0), process(1)], pipes: Vec::new() }
    }

    /// Dials, delivers and cuts at random.
    fn disturb(&mut self) {
        for _ in 0..60 {
            let at = self.random.below(2usize);
            match self.random.below(10) {
                0 | 1 => self.dial(at),
                2 if !self.pipes.is_empty() => self.cut(),
                _ => self.deliver(at),
            }
        }
    }

    /// Lets everything arrive and both dial until there is a link, which both take for the link.
    fn settle(&mut self) {
        for _ in 0..200 {
            while (0..2).any(|at| self.has_something(at)) {
                let at = self.random.below(2usize);
                self.deliver(at);
            }
            let keys =
                self.processes.each_ref().map(|one| one.links.open_key(PeerId(1 - one.rank.0)));
            if let [Some(one), Some(other)] = keys {
                assert_eq!(one, other, "two links");
                return;
            }
            let dialler = self.random.below(2usize);
            for at in [dialler, 1 - dialler] {
                if keys[at].is_none() {
                    self.dial(at);
                }
            }
        }
        panic!("no link");
    }

    fn dial(&mut self, at: usize) {
        let peer = PeerId(1 - at as u32);
        let process = &mut self.processes[at];
        match process.links.get(peer) {
            Some(RailLink::Open { .. }) => return,
            Some(RailLink::Dialling(_)) => {}
            None => {
                let address: SocketAddr = "10.0.0.1:1".parse().expect("an address");
                process.links.dial(peer, vec![address], (Duration::ZERO, DEADLINE), 0);
            }
        }
        let asked_before =
            |stage: &Stage| matches!(stage, Stage::Handshake(one) if one.asked().is_some());
        let attempts = process.connections.values().filter(|stage| asked_before(stage)).count();
        if attempts >= 2 {
            return;
        }
        let asked = process.links.ask(peer, attempts > 0);
        let (note, nonce) = ([0; 4], nonce(&mut self.random));
        let encrypts = self.proof.encrypts();
        let opening = Opening { asked, wanted: peer, encrypts, note, nonce };
        let keys = keys(process.rank);
        let own = own(self.proof, &keys);
        let (handshake, hello) = Handshake::call(&own, &opening, DEADLINE);
        let key = self.pipes.len();
        process.connections.insert(key, Stage::Handshake(handshake));
        let listening = Stage::Handshake(Handshake::listen(DEADLINE));
        self.processes[1 - at].connections.insert(key, listening);
        self.pipes.push([Pipe::default(), Pipe::default()]);
        self.say(key, at, &hello);
        if self.proof == Proof::Keys {
            self.agree(key, at);
        }
    }

    /// One end of a connection has keys, or goes without them.
    fn agree(&mut self, key: usize, at: usize) {
        let Process { rank, connections, .. } = &mut self.processes[at];
        let Some(Stage::Handshake(handshake)) = connections.get_mut(&key) else { return };
        let nonce = nonce(&mut self.random);
        let said = handshake.handle_keys(&keys(*rank), &self.proof.binding(), nonce);
        let asked = handshake.asked().filter(|_| handshake.is_proved());
        self.say(key, at, &said.expect("a handshake that awaits keys"));
        let Process { links, connections, .. } = &mut self.processes[at];
        if let Some(agreed) = asked.and_then(|asked| links.anticipate(asked))
            && let Some(Stage::Handshake(handshake)) = connections.remove(&key)
        {
            self.open(key, at, agreed, Stage::Anticipated(handshake));
        }
    }

    fn say(&mut self, key: usize, from: usize, bytes: &[u8]) {
        self.pipes[key][1 - from].bytes.extend_from_slice(bytes);
    }

    /// The network loses a connection, with what is under way on it.
    fn cut(&mut self) {
        let key = self.random.below(self.pipes.len());
        for pipe in &mut self.pipes[key] {
            pipe.bytes.clear();
            pipe.is_closed = true;
        }
    }

    fn has_something(&self, at: usize) -> bool {
        self.pipes.iter().any(|pipes| pipes[at].is_pending())
    }

    /// Delivers something to a process, on a random connection.
    fn deliver(&mut self, at: usize) {
        let pending: Vec<usize> =
            (0..self.pipes.len()).filter(|&key| self.pipes[key][at].is_pending()).collect();
        if pending.is_empty() {
            return;
        }
        let key = self.random.pick(&pending);
        let pipe = &mut self.pipes[key][at];
        if pipe.bytes.is_empty() {
            pipe.is_done = true;
            return self.handle_end(key, at);
        }
        let len = 1 + self.random.below(pipe.bytes.len());
        let bytes: Vec<u8> = pipe.bytes.drain(..len).collect();
        self.handle_bytes(key, at, &bytes);
    }

    fn handle_bytes(&mut self, key: usize, at: usize, bytes: &[u8]) {
        let keys = keys(self.processes[at].rank);
        let own = own(self.proof, &keys);
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let Some(Stage::Handshake(handshake) | Stage::Anticipated(handshake)) =
                self.processes[at].connections.get_mut(&key)
            else {
                return;
            };
            match handshake.handle_bytes(&own, &mut bytes, || Ok(self.proof.binding())) {
                Ok(Step::Waits) => {}
                Ok(Step::Proves(proof)) => self.say(key, at, &proof),
                Ok(Step::Introduced(_)) => self.agree(key, at),
                Ok(Step::Identified { peer, generation }) => self.judge(key, at, peer, generation),
                Ok(Step::Accepted { asked, generation }) if self.is_open(key, at) => {
                    let process = &mut self.processes[at];
                    process.links.handle_acceptance(asked, generation);
                    process.connections.insert(key, Stage::Open);
                }
                Ok(Step::Accepted { asked, generation }) => {
                    match self.processes[at].links.conclude(asked, generation) {
                        Some(agreed) => self.open(key, at, agreed, Stage::Open),
                        None => self.close(key, at),
                    }
                }
                Err(HandshakeEnd::Declined) if self.is_open(key, at) => self.handle_end(key, at),
                Err(HandshakeEnd::Declined) => self.fail(key, at, HandshakeEnd::Declined),
                Err(end) => panic!("honest ends: {end:?}"),
            }
        }
    }

    fn judge(&mut self, key: usize, at: usize, peer: PeerId, generation: u32) {
        let Process { links, connections, .. } = &mut self.processes[at];
        let has_proved = || {
            let is_proved =
                |stage: &Stage| matches!(stage, Stage::Handshake(one) if one.is_proved());
            connections.values().any(is_proved)
        };
        let agreed = match links.judge(peer, generation, has_proved) {
            Verdict::Accepted(agreed) => agreed,
            Verdict::Replaces(old, agreed) => {
                links.remove(peer);
                self.close(old, at);
                agreed
            }
            Verdict::Declined => {
                self.say(key, at, &DECLINES);
                return self.close(key, at);
            }
        };
        self.say(key, at, &verdict(agreed.generation()));
        self.open(key, at, agreed, Stage::Open);
    }

    /// True if a connection is the link of a process.
    fn is_open(&self, key: usize, at: usize) -> bool {
        let stage = self.processes[at].connections.get(&key);
        matches!(stage, Some(Stage::Open | Stage::Anticipated(_)))
    }

    fn open(&mut self, key: usize, at: usize, agreed: Agreed, stage: Stage) {
        let process = &mut self.processes[at];
        process.links.open(agreed, key);
        process.connections.insert(key, stage);
        let is_own =
            |stage: &Stage| matches!(stage, Stage::Handshake(one) if one.asked().is_some());
        let attempts: Vec<usize> = process
            .connections
            .iter()
            .filter(|(_, stage)| is_own(stage))
            .map(|(&key, _)| key)
            .collect();
        attempts.into_iter().for_each(|key| self.close(key, at));
    }

    /// One end closes: the other one sees that behind what was said.
    fn close(&mut self, key: usize, at: usize) {
        self.processes[at].connections.remove(&key);
        self.pipes[key][1 - at].is_closed = true;
        self.pipes[key][at].is_done = true;
    }

    fn handle_end(&mut self, key: usize, at: usize) {
        match self.processes[at].connections.get(&key) {
            Some(Stage::Open | Stage::Anticipated(_)) => {
                let peer = PeerId(1 - at as u32);
                if self.processes[at].links.open_key(peer) == Some(key) {
                    self.processes[at].links.remove(peer);
                }
                self.close(key, at);
            }
            Some(Stage::Handshake(_)) => self.fail(key, at, HandshakeEnd::Failed("cut".into())),
            None => {}
        }
    }

    fn fail(&mut self, key: usize, at: usize, end: HandshakeEnd) {
        let process = &mut self.processes[at];
        if let Some(Stage::Handshake(handshake)) = process.connections.remove(&key) {
            let calls = handshake.asked().is_some();
            let outcome = handshake.end(end, &mut process.links);
            assert_eq!(matches!(outcome, Outcome::Attempt(..)), calls, "{outcome:?}");
        }
        self.close(key, at);
    }
}

impl Pipe {
    fn is_pending(&self) -> bool {
        !self.is_done && (self.is_closed || !self.bytes.is_empty())
    }
}
