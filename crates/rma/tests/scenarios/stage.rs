//! The stage on which the ranks of a scenario take turns, and the virtual time of their networks.
//!
//! Each rank is a thread, but only one runs at a time: a rank runs until its rails have no event for it, and then passes
//! the turn. The seed decides to whom. If no rank has anything to do, the next event of a network happens.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rail::{Event, Post, Rail, RailError, RemoteReader, SimNetwork, SimRail};
use testing::Random;
use wire::{Frame, PeerId};

pub struct Stage {
    state: Mutex<StageState>,
    turns: Vec<Condvar>,
}

struct StageState {
    random: Random,
    networks: Vec<SimNetwork>,
    cuts: Cuts,
    running: usize,
    /// Ranks without anything to do, and those that have ended.
    is_idle: Vec<bool>,
    has_ended: Vec<bool>,
    /// Ranks that the current poll has brought events.
    has_moved: Vec<bool>,
    has_failed: bool,
    /// Rounds of all ranks in which nothing happened.
    vain: u32,
    /// Pairs of ranks between which all links have been open, and those that have lost one.
    opened: BTreeSet<(PeerId, PeerId)>,
    cut: BTreeSet<(PeerId, PeerId)>,
    cuts_made: u64,
    /// Frames that rank 0 has sent.
    frames: Vec<Vec<u8>>,
}

/// Links that are cut at random times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    None,
    /// Any link, one in so many turns; it opens again.
    Any(usize),
    /// One link between any two ranks, which stays lost.
    OneEach(usize),
}

impl Stage {
    pub fn new(random: Random, networks: Vec<SimNetwork>, cuts: Cuts, size: usize) -> Arc<Self> {
        let state = StageState {
            random,
            networks,
            cuts,
            running: 0,
            is_idle: vec![false; size],
            has_ended: vec![false; size],
            has_moved: vec![false; size],
            has_failed: false,
            vain: 0,
            opened: BTreeSet::new(),
            cut: BTreeSet::new(),
            cuts_made: 0,
            frames: Vec::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            turns: (0..size).map(|_| Condvar::new()).collect(),
        })
    }

    /// Makes the rails of a rank.
    pub fn rails(self: &Arc<Self>, rank: usize) -> Vec<Box<dyn Rail>> {
        let networks = self.lock().networks.clone();
        let last = networks.len() - 1;
        let rail = |(at, network): (usize, &SimNetwork)| -> Box<dyn Rail> {
            let rail = network.rail(PeerId(rank as u32));
            Box::new(StageRail {
                rail,
                name: NAMES[at],
                rank,
                is_last: at == last,
                stage: Arc::clone(self),
            })
        };
        networks.iter().enumerate().map(rail).collect()
    }

    /// Addresses of a rank's rails.
    pub fn addresses(rank: PeerId) -> Vec<(String, Vec<u8>)> {
        NAMES.map(|name| (name.to_owned(), rank.0.to_le_bytes().to_vec())).into()
    }

    /// Runs the program of a rank, from its first turn on.
    pub fn run<T>(&self, rank: usize, program: impl FnOnce() -> T) -> T {
        self.await_turn(self.lock(), rank);
        let actor = Actor { stage: self, rank };
        let result = program();
        drop(actor);
        result
    }

    /// Lets another rank run, and time pass.
    pub fn pause(&self, rank: usize) {
        let mut state = self.lock();
        if state.random.one_in(2) {
            state.step();
        }
        self.pass(state, rank);
    }

    /// Ends a rank: nothing of it is heard again.
    pub fn kill(&self, rank: usize) {
        self.lock().networks.iter().for_each(|network| network.kill(PeerId(rank as u32)));
    }

    /// Makes all ranks look again at what they wait for.
    pub fn tell_all(&self) {
        self.lock().is_idle.fill(false);
    }

    /// Takes the frames that rank 0 has sent.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.lock().frames)
    }

    pub fn cuts_made(&self) -> u64 {
        self.lock().cuts_made
    }

    fn note_frame(&self, frame: &Frame) {
        let mut bytes = frame.head.clone();
        bytes.extend(frame.body.iter().flat_map(|body| body.region.to_vec()));
        self.lock().frames.push(bytes);
    }

    fn note_poll(&self, rank: usize, moved: bool, is_last: bool) {
        let mut state = self.lock();
        state.has_moved[rank] |= moved;
        if is_last && !std::mem::take(&mut state.has_moved[rank]) {
            state.is_idle[rank] = true;
            self.pass(state, rank);
        }
    }

    fn pass(&self, mut state: MutexGuard<'_, StageState>, rank: usize) {
        let next = state.next_rank();
        state.running = next;
        if next != rank {
            self.turns[next].notify_one();
            self.await_turn(state, rank);
        }
    }

    fn await_turn(&self, state: MutexGuard<'_, StageState>, rank: usize) {
        let waits = |state: &mut StageState| state.running != rank && !state.has_failed;
        let state = self.turns[rank].wait_while(state, waits);
        let has_failed = state.unwrap_or_else(|poison| poison.into_inner()).has_failed;
        assert!(!has_failed || std::thread::panicking(), "another rank has failed");
    }

    fn lock(&self) -> MutexGuard<'_, StageState> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl StageState {
    fn next_rank(&mut self) -> usize {
        loop {
            for rank in 0..self.is_idle.len() {
                let id = PeerId(rank as u32);
                self.is_idle[rank] &= !self.networks.iter().any(|network| network.has_events(id));
            }
            let ready = |rank: &usize| !self.is_idle[*rank] && !self.has_ended[*rank];
            let ready: Vec<_> = (0..self.is_idle.len()).filter(ready).collect();
            if !ready.is_empty() {
                return self.random.pick(&ready);
            }
            if self.step() {
                self.vain = 0;
                continue;
            }
            // Some rank may wait for a time to pass, or for itself.
            self.is_idle.fill(false);
            self.vain += 1;
            if self.vain > VAIN_MIN {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(self.vain < VAIN_MAX, "nothing happens any more");
        }
    }

    /// Runs the next event of some network; false if there is none.
    fn step(&mut self) -> bool {
        self.cut_some();
        let first = self.random.below(self.networks.len());
        let mut order = (first..self.networks.len()).chain(0..first);
        order.any(|at| self.networks[at].step())
    }

    fn cut_some(&mut self) {
        let (Cuts::Any(times) | Cuts::OneEach(times)) = self.cuts else { return };
        if self.cuts_made >= CUTS_MAX || !self.random.one_in(times) {
            return;
        }
        let size = self.is_idle.len();
        let (one, other) = (self.random.below(size), self.random.below(size));
        let (first, last) = (PeerId(one.min(other) as u32), PeerId(one.max(other) as u32));
        if self.networks.iter().all(|network| network.is_open(first, last)) {
            self.opened.insert((first, last));
        }
        let may_cut = match self.cuts {
            Cuts::None => false,
            // Also while it opens again.
            Cuts::Any(_) => self.opened.contains(&(first, last)),
            Cuts::OneEach(_) => {
                self.opened.remove(&(first, last)) && self.cut.insert((first, last))
            }
        };
        if may_cut {
            self.cuts_made += 1;
            let at = self.random.below(self.networks.len());
            self.networks[at].cut(first, last);
        }
    }
}

/// A rank that runs, until it ends or fails.
struct Actor<'a> {
    stage: &'a Stage,
    rank: usize,
}

impl Drop for Actor<'_> {
    fn drop(&mut self) {
        let mut state = self.stage.lock();
        state.has_ended[self.rank] = true;
        state.has_failed |= std::thread::panicking();
        if state.has_failed {
            self.stage.turns.iter().for_each(Condvar::notify_one);
        } else if !state.has_ended.iter().all(|ended| *ended) {
            state.running = state.next_rank();
            self.stage.turns[state.running].notify_one();
        }
    }
}

/// A simulated rail whose rank passes the turn when there is no event for it.
struct StageRail {
    rail: SimRail,
    name: &'static str,
    rank: usize,
    is_last: bool,
    stage: Arc<Stage>,
}

impl Rail for StageRail {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> Vec<u8> {
        self.rail.address()
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        self.rail.connect(peer, address)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.rail.disconnect(peer);
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        let posted = self.rail.post(peer, frame);
        if self.rank == 0 && posted != Post::Full {
            self.stage.note_frame(frame);
        }
        posted
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let moved = self.rail.poll(sink);
        self.stage.note_poll(self.rank, moved, self.is_last);
        moved
    }

    fn remote_reader(&self, peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        self.rail.remote_reader(peer)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn prepare_sleep(&mut self) -> bool {
        // Nobody sleeps in virtual time.
        false
    }

    fn finish_sleep(&mut self) {}

    fn is_flushed(&self) -> bool {
        self.rail.is_flushed()
    }
}

const NAMES: [&str; 2] = ["sim", "sim1"];

/// Rounds without effect before real time passes in each, and before the scenario fails.
const VAIN_MIN: u32 = 64;
const VAIN_MAX: u32 = 10_000;

/// Links that are cut in a scenario. Each costs frames that leave again.
const CUTS_MAX: u64 = 8;
