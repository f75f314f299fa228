//! The engine and its rails, moved on together under one lock.

use std::time::{Duration, Instant};

use driver::{Event, Fault, Post, Rail};
use engine::{Engine, Envelope, Posted, Pull};
use memory::Region;
use wire::{Frame, GateId, RailId};

use crate::journal::Journal;

/// Where the addresses of peers come from, asked at the first message to a peer.
pub trait Directory: Send {
    /// What the rails of `peer` published, as pairs of rail name and address, best rail first.
    ///
    /// # Errors
    /// One line that says why the peer's addresses cannot be had.
    fn addresses(&mut self, peer: GateId) -> Result<Vec<(String, Vec<u8>)>, String>;
}

/// The engine, the rails, and which rail leads to which peer.
pub struct Core {
    /// The engine; commands go to it directly, followed by [`Core::flush`].
    pub engine: Engine,
    rails: Vec<Station>,
    routes: Vec<Route>,
    directory: Box<dyn Directory>,
    frame: Frame,
    /// Gates with messages that wait for company.
    gathering: Vec<GateId>,
    /// Whether somebody sends them if the application stays away.
    may_gather: bool,
    /// When gates were last sent a short message; of rails that gather.
    posted: Vec<LastShort>,
    /// How often progress was made.
    turn: u64,
    journal: Journal,
}

/// A short message that left at once.
#[derive(Clone, Copy, Debug, Default)]
struct LastShort {
    turn: u64,
    /// Looked at only where it follows another in the same turn: an answer costs no look at the clock.
    at: Option<Instant>,
}

/// A rail and how often it is polled.
struct Station {
    rail: Box<dyn Rail>,
    /// As [`Rail::gather_within`] says.
    gather_within: Duration,
    /// Polls of others' news in a row without any of its own.
    dull: u32,
    /// Skips left before it is polled again.
    skip: u32,
}

/// The way to one peer.
#[derive(Clone, Debug, PartialEq)]
enum Route {
    /// Not asked for yet.
    Closed,
    /// A rail is opening the link.
    Opening { rail: RailId, attempt: Attempt },
    /// Frames go over this rail.
    Open(RailId),
    /// There is no way, or no longer one.
    Failed,
}

/// The search for a way to a peer.
#[derive(Clone, Debug, Default, PartialEq)]
struct Attempt {
    /// The rails to try if the one that is opening the link fails, and the peer's addresses there.
    later: Vec<(RailId, Vec<u8>)>,
    /// What the rails tried before said.
    refusals: Vec<String>,
}

impl Core {
    /// The engine of process `rank` in a job of `size` over `rails`, the preferred ones first.
    pub fn new(
        engine: Engine,
        rank: GateId,
        size: usize,
        rails: Vec<Box<dyn Rail>>,
        directory: Box<dyn Directory>,
    ) -> Self {
        let station = |rail: Box<dyn Rail>| {
            let gather_within = rail.gather_within();
            Station { rail, gather_within, dull: 0, skip: 0 }
        };
        let rails = rails.into_iter().map(station).collect();
        Self {
            engine,
            rails,
            routes: vec![Route::Closed; size],
            directory,
            frame: Frame::default(),
            gathering: Vec::new(),
            may_gather: true,
            posted: Vec::new(),
            turn: 1,
            journal: Journal::new(rank),
        }
    }

    /// Takes in what the rails have to report, then sends what the engine wants sent. Returns
    /// whether anything was reported.
    pub fn advance(&mut self) -> bool {
        self.turn += 1;
        let mut moved = false;
        for index in 0..self.rails.len() {
            moved |= self.poll_rail(index);
        }
        self.release_gathered();
        self.flush();
        if self.journal.has_faults() {
            let due = self.journal.due(Instant::now());
            self.journal.print(&due);
        }
        moved
    }

    /// Opens links, posts frames and copies memory until the engine wants nothing more that the
    /// rails can take.
    #[inline]
    pub fn flush(&mut self) {
        while let Some(gate) = self.engine.poll_connect() {
            self.open(gate);
        }
        // Before the frames: the sender of what was copied is told at once, as the caller may be
        // about to leave the library for long.
        while let Some(pull) = self.engine.poll_pull() {
            self.pull(pull);
        }
        while let Some(gate) = self.engine.poll_gate() {
            self.drain(gate);
        }
    }

    /// Tells peers whether a thread of this process stays in the library until its sends are done.
    pub(crate) fn set_attentive(&mut self, attentive: bool) {
        for station in &mut self.rails {
            station.rail.set_attentive(attentive);
        }
    }

    /// Whether this thread's core is also that of a peer which may have something to send.
    pub(crate) fn shares_core(&mut self) -> bool {
        self.rails.iter_mut().any(|station| station.rail.shares_core())
    }

    /// Failures of links since the last call, one line each, for the error that reports them; what
    /// nobody takes for a while is printed.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.journal.take_faults()
    }

    /// Whether nothing is left to send and no transfer is in flight.
    pub fn is_quiet(&self) -> bool {
        self.engine.is_idle() && self.rails.iter().all(|station| station.rail.is_flushed())
    }

    /// Closes all links; nothing can be sent or received any more.
    pub fn close(&mut self) {
        self.rails.clear();
        self.routes.fill(Route::Failed);
        let rest = self.journal.close();
        self.journal.print(&rest);
    }

    /// Which rail frames to `gate` take, once a link is open.
    pub fn rail_name(&self, gate: GateId) -> Option<&'static str> {
        match self.routes.get(gate.0 as usize)? {
            Route::Open(rail) => Some(self.rails[rail.0 as usize].rail.name()),
            Route::Closed | Route::Opening { .. } | Route::Failed => None,
        }
    }

    pub(crate) fn descriptors(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.rails.iter().flat_map(|station| station.rail.descriptors()).collect()
    }

    /// Tells all rails that this process is about to sleep; false when one has news already.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        let mut asleep = true;
        for station in &mut self.rails {
            asleep &= station.rail.prepare_sleep();
        }
        asleep
    }

    pub(crate) fn finish_sleep(&mut self) {
        for station in &mut self.rails {
            station.rail.finish_sleep();
            station.skip = 0;
        }
    }

    fn poll_rail(&mut self, index: usize) -> bool {
        let Self { engine, rails, routes, journal, .. } = self;
        let station = &mut rails[index];
        if station.skip > 0 {
            station.skip -= 1;
            return false;
        }
        let (rail, name) = (RailId(index as u8), station.rail.name());
        let mut misbehaved: Vec<(GateId, String)> = Vec::new();
        let mut refused: Vec<(GateId, Attempt)> = Vec::new();
        let moved = station.rail.poll(&mut |event| match event {
            Event::Frame { peer, bytes } => {
                if misbehaved.iter().any(|(known, _)| *known == peer) {
                    return;
                }
                if let Err(error) = engine.handle_frame(peer, bytes) {
                    misbehaved.push((peer, error.to_string()));
                }
            }
            Event::Sent { peer, token } => engine.handle_sent(peer, token),
            Event::Hampered { reason } => journal.print(&[format!("{name}: {reason}")]),
            Event::Refused { from, reason } => {
                let line = journal.note_refusal(Instant::now(), from, reason);
                journal.print(line.as_slice());
            }
            Event::Room { peer } => engine.handle_room(peer),
            Event::Up { peer, capabilities } => {
                if let Some(route) = routes.get_mut(peer.0 as usize)
                    && !matches!(route, Route::Open(_))
                {
                    *route = Route::Open(rail);
                    engine.handle_up(peer, capabilities);
                }
            }
            Event::Down { peer, fault } => match another_way(routes, (rail, name), peer, &fault) {
                Some(attempt) => refused.push((peer, attempt)),
                None => handle_down(engine, routes, journal, rail, peer, fault),
            },
        });
        for (peer, text) in misbehaved {
            station.rail.disconnect(peer);
            handle_down(engine, routes, journal, rail, peer, Fault::Misbehaved(text));
        }
        for (peer, attempt) in refused {
            self.connect(peer, attempt);
        }
        self.reckon(index, moved);
        moved
    }

    /// A rail that stays dull while others have news is polled less often.
    fn reckon(&mut self, index: usize, moved: bool) {
        if !moved {
            let station = &mut self.rails[index];
            if station.dull >= DULL_AFTER {
                station.skip = DULL_SKIP;
            }
            return;
        }
        for (other, station) in self.rails.iter_mut().enumerate() {
            station.dull = if other == index { 0 } else { station.dull.saturating_add(1) };
        }
    }

    /// Whether messages wait for company.
    #[inline]
    pub fn is_gathering(&self) -> bool {
        !self.gathering.is_empty()
    }

    /// Lets what was gathered go at the next flush.
    #[inline]
    pub fn release_gathered(&mut self) {
        while let Some(gate) = self.gathering.pop() {
            self.engine.release_gathered(gate);
        }
    }

    /// Gathers nothing any more: nobody would send it.
    pub(crate) fn stop_gathering(&mut self) {
        self.may_gather = false;
        self.release_gathered();
        self.flush();
    }

    /// Sends a short message at once, if nothing stands before it, or lays it beside others where the
    /// rail is still at the last; false when it must be submitted as any other.
    #[inline]
    pub fn send_short(&mut self, gate: GateId, envelope: Envelope, data: &Region) -> bool {
        let Some(&Route::Open(rail)) = self.routes.get(gate.0 as usize) else { return false };
        let gather_within = self.rails[rail.0 as usize].gather_within;
        if !gather_within.is_zero() && self.may_gather {
            return self.send_or_gather(gate, rail, gather_within, envelope, data);
        }
        let sent = self.engine.submit_short(gate, envelope, data, &mut self.frame);
        if sent {
            self.post(gate, rail);
        }
        sent
    }

    fn send_or_gather(
        &mut self,
        gate: GateId,
        rail: RailId,
        within: Duration,
        envelope: Envelope,
        data: &Region,
    ) -> bool {
        let index = gate.0 as usize;
        if self.posted.len() <= index {
            self.posted.resize(index + 1, LastShort::default());
        }
        let LastShort { turn, at } = self.posted[index];
        let follows = turn == self.turn;
        let at_once = follows && at.is_some_and(|at| at.elapsed() < within);
        if at_once || self.engine.has_gathered(gate) {
            if self.gather(gate, envelope, data) {
                return true;
            }
            // Full: what there is goes, and this message begins the next frame.
            self.engine.release_gathered(gate);
            self.drain(gate);
            return self.gather(gate, envelope, data);
        }
        let sent = self.engine.submit_short(gate, envelope, data, &mut self.frame);
        if sent {
            self.post(gate, rail);
            let at = follows.then(Instant::now);
            self.posted[index] = LastShort { turn: self.turn, at };
        }
        sent
    }

    fn gather(&mut self, gate: GateId, envelope: Envelope, data: &Region) -> bool {
        let taken = self.engine.submit_gathered(gate, envelope, data);
        if taken && !self.gathering.contains(&gate) {
            self.gathering.push(gate);
        }
        taken
    }

    fn drain(&mut self, gate: GateId) {
        let Some(&Route::Open(rail)) = self.routes.get(gate.0 as usize) else { return };
        while self.engine.poll_frame(gate, &mut self.frame) && self.post(gate, rail) {}
    }

    /// Hands the frame just built to the rail; false when the rail is full.
    #[inline]
    fn post(&mut self, gate: GateId, rail: RailId) -> bool {
        let posted = match self.rails[rail.0 as usize].rail.post(gate, &self.frame) {
            Post::Done => Posted::Done,
            Post::Held => Posted::Held,
            Post::Full => Posted::Full,
        };
        self.engine.handle_posted(gate, &mut self.frame, posted);
        posted != Posted::Full
    }

    fn pull(&mut self, pull: Pull) {
        let Some(Route::Open(rail)) = self.routes.get(pull.gate.0 as usize) else {
            self.engine.handle_pulled(pull.id, false);
            return;
        };
        let rail = &mut self.rails[rail.0 as usize].rail;
        if rail.is_attentive(pull.gate) {
            self.engine.handle_pull_declined(pull.id);
            return;
        }
        let done = rail.pull(pull.gate, pull.remote, pull.offset, &pull.local).is_ok();
        self.engine.handle_pulled(pull.id, done);
    }

    #[cold]
    fn open(&mut self, gate: GateId) {
        let index = gate.0 as usize;
        match self.routes.get(index) {
            Some(Route::Closed) => {}
            Some(Route::Failed) | None => return self.engine.handle_down(gate),
            Some(Route::Opening { .. } | Route::Open(_)) => return,
        }
        let candidates = match self.directory.addresses(gate) {
            Ok(addresses) => addresses
                .into_iter()
                .filter_map(|(name, address)| Some((self.rail_named(&name)?, address)))
                .collect(),
            Err(text) => {
                self.journal
                    .note_fault(Instant::now(), format!("rank {}: no address: {text}", gate.0));
                Vec::new()
            }
        };
        self.connect(gate, Attempt { later: candidates, refusals: Vec::new() });
    }

    /// Tries the rails that are left in turn until one begins to open.
    fn connect(&mut self, gate: GateId, attempt: Attempt) {
        let Attempt { later, mut refusals } = attempt;
        let mut later = later.into_iter();
        while let Some((rail, address)) = later.next() {
            match self.rails[rail.0 as usize].rail.connect(gate, &address) {
                Ok(()) => {
                    let attempt = Attempt { later: later.collect(), refusals };
                    self.routes[gate.0 as usize] = Route::Opening { rail, attempt };
                    return;
                }
                Err(error) => {
                    let name = self.rails[rail.0 as usize].rail.name();
                    refusals.push(format!("{name}: {error}"));
                }
            }
        }
        self.routes[gate.0 as usize] = Route::Failed;
        let tried =
            if refusals.is_empty() { "no rail in common".into() } else { refusals.join("; ") };
        let text = format!("rank {} cannot be reached: {tried}", gate.0);
        self.journal.note_fault(Instant::now(), text);
        self.engine.handle_down(gate);
    }

    fn rail_named(&self, name: &str) -> Option<RailId> {
        let index = self.rails.iter().position(|station| station.rail.name() == name)?;
        Some(RailId(index as u8))
    }
}

/// What is left to try when the rail that was opening the link says that it cannot.
fn another_way(
    routes: &mut [Route],
    (rail, name): (RailId, &str),
    peer: GateId,
    fault: &Fault,
) -> Option<Attempt> {
    let Some(Route::Opening { rail: opening, attempt }) = routes.get_mut(peer.0 as usize) else {
        return None;
    };
    let reason = match fault {
        Fault::Lost(text) | Fault::Unreachable(text) => text,
        // The peer is done, or no peer.
        Fault::Closed | Fault::Misbehaved(_) => return None,
    };
    if *opening != rail || (attempt.later.is_empty() && attempt.refusals.is_empty()) {
        return None;
    }
    attempt.refusals.push(format!("{name}: {reason}"));
    Some(std::mem::take(attempt))
}

fn handle_down(
    engine: &mut Engine,
    routes: &mut [Route],
    journal: &mut Journal,
    rail: RailId,
    peer: GateId,
    fault: Fault,
) {
    let Some(route) = routes.get_mut(peer.0 as usize) else { return };
    let concerned = match route {
        Route::Open(open) => *open == rail,
        Route::Opening { rail: opening, .. } => *opening == rail,
        Route::Closed => true,
        Route::Failed => false,
    };
    if !concerned {
        return;
    }
    *route = Route::Failed;
    let text = match fault {
        Fault::Closed => None,
        Fault::Lost(text) => Some(format!("link to rank {} lost: {text}", peer.0)),
        Fault::Unreachable(text) => Some(format!("rank {} unreachable: {text}", peer.0)),
        Fault::Misbehaved(text) => Some(format!("rank {} sent what no rank sends: {text}", peer.0)),
    };
    if let Some(text) = text {
        journal.note_fault(Instant::now(), text);
    }
    engine.handle_down(peer);
}

/// A rail is dull after this many reports of other rails without one of its own.
const DULL_AFTER: u32 = 64;

/// How many polls a dull rail is left out, a few microseconds of spinning.
const DULL_SKIP: u32 = 64;
