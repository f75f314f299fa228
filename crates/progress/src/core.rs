//! The engine and its rails, moved on together under one lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::{Board, Event, Fault, Post, Rail};
use engine::{Completion, Engine, Envelope, Loss, OpId, Overdue, Posted, Pull};
use lock::{Lock, Uncancelled};
use memory::Region;
use wire::{Capabilities, Frame, GateId, RailId};

use crate::counters::Counters;
use crate::journal::Journal;
use crate::precedence::Precedence;
use crate::tasks::Tasks;
use crate::waiters::Waiters;

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
    /// The row of short messages that left at once last, to whatever gates; of rails that gather.
    row: Row,
    /// In which row gates were last sent one.
    posted: Vec<LastShort>,
    /// Links that rails are opening anew.
    reopening: Vec<(GateId, RailId)>,
    /// A rail had no room for a frame, or not yet for all of it.
    has_backlog: bool,
    /// That may still be so, or messages are gathered, a task has to compute, or threads wait for others.
    pub(crate) has_loose_ends: bool,
    /// How often progress was made.
    turn: u64,
    began: Instant,
    journal: Journal,
    pub(crate) tasks: Tasks,
    pub(crate) waiters: Waiters,
    pub(crate) precedence: Precedence,
    pub(crate) counters: Counters,
    /// Where threads wait for what others post.
    boards: Vec<Arc<Lock<Board>>>,
    /// Peers have been told that a thread sleeps.
    lies_down: bool,
    /// A call that submits or tests has it: who has it otherwise waits, or stands by.
    pub(crate) is_in_call: bool,
    /// What the question asked last waits for, if for one operation only.
    pub(crate) awaited: Option<OpId>,
}

/// Short messages that leave one behind the other: in the same turn, and each as soon after the one before as
/// rails still are at that.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    number: u64,
    turn: u64,
    /// When the last one had left. Looked at only where it followed another in the same turn: an answer costs no
    /// look at the clock.
    at: Option<Instant>,
}

/// What left at once for a gate.
#[derive(Clone, Copy, Debug, Default)]
struct LastShort {
    row: u64,
    /// More than one in this row.
    is_repeated: bool,
}

/// A rail and how often it is polled.
struct Station {
    rail: Box<dyn Rail>,
    name: &'static str,
    /// As [`Rail::gather_within`] says.
    gather_within: Duration,
    /// Whether it takes frames before it has sent them.
    buffers: bool,
    /// The first of the rails that carry for a peer together; each may carry what another loses.
    team: RailId,
    /// Whether there are others in its team, and whether they are of other kinds.
    has_twin: bool,
    is_mixed: bool,
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
    /// Frames go over these rails.
    Open(RailSet),
    /// There is no way, or no longer one.
    Failed,
}

/// Rails, the one that opened first before the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RailSet {
    first: RailId,
    members: u32,
}

impl RailSet {
    fn of(rail: RailId) -> Self {
        Self { first: rail, members: 1 << rail.0 }
    }

    fn insert(&mut self, rail: RailId) {
        self.members |= 1 << rail.0;
    }

    fn contains(self, rail: RailId) -> bool {
        self.members & 1 << rail.0 != 0
    }

    /// Takes one out; whether it was in.
    fn remove(&mut self, rail: RailId) -> bool {
        let was_in = self.contains(rail);
        self.members &= !(1 << rail.0);
        if self.first == rail && self.members != 0 {
            self.first = RailId(self.members.trailing_zeros() as u8);
        }
        was_in
    }

    fn iter(self) -> impl Iterator<Item = RailId> {
        (0..u32::BITS as u8).map(RailId).filter(move |rail| self.contains(*rail))
    }
}

/// What has gone wrong with a peer on a rail, to be met when the rail has told all.
enum Trouble {
    /// It has broken the protocol.
    Misbehaved(String),
    /// The link is gone.
    Down(Fault),
    /// It has failed before: its link is not wanted.
    Unwanted,
    /// It cannot be reached there; others may do.
    Refused(Attempt),
}

impl Trouble {
    fn is_misbehaviour(&self) -> bool {
        matches!(self, Self::Misbehaved(_))
    }
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
    /// The engine of process `rank` in a job of `size` over `rails`, the preferred ones first. To a peer the
    /// first that reaches it leads, and those of its kind.
    pub fn new(
        engine: Engine,
        rank: GateId,
        size: usize,
        rails: Vec<Box<dyn Rail>>,
        directory: Box<dyn Directory>,
    ) -> Self {
        let kinds: Vec<_> = rails.iter().map(|rail| kind(rail.name())).collect();
        let station = |rail: Box<dyn Rail>| {
            let gather_within = rail.gather_within();
            let (name, buffers) = (rail.name(), !gather_within.is_zero());
            let first = kinds.iter().position(|known| *known == kind(name)).unwrap_or_default();
            let team = RailId(first as u8);
            let (has_twin, is_mixed, dull, skip) = (false, false, 0, 0);
            Station { rail, name, gather_within, buffers, team, has_twin, is_mixed, dull, skip }
        };
        let rails = rails.into_iter().map(station).collect();
        let mut core = Self {
            engine,
            rails,
            routes: vec![Route::Closed; size],
            directory,
            frame: Frame::default(),
            gathering: Vec::new(),
            may_gather: true,
            row: Row::default(),
            posted: Vec::new(),
            reopening: Vec::new(),
            has_backlog: false,
            has_loose_ends: false,
            turn: FIRST_TURN,
            began: Instant::now(),
            journal: Journal::new(rank),
            tasks: Tasks::default(),
            waiters: Waiters::default(),
            precedence: Precedence::default(),
            counters: Counters::default(),
            boards: Vec::new(),
            lies_down: false,
            is_in_call: false,
            awaited: None,
        };
        core.count_teams();
        core
    }

    /// Lets the rails of some kinds carry for a peer together, each as it can.
    #[must_use]
    pub fn with_team(mut self, kinds: &[&str]) -> Self {
        let is_member = |station: &Station| kinds.contains(&kind(station.name));
        if let Some(first) = self.rails.iter().position(is_member) {
            let members = self.rails.iter_mut().filter(|station| is_member(station));
            members.for_each(|station| station.team = RailId(first as u8));
        }
        self.count_teams();
        self
    }

    fn count_teams(&mut self) {
        let teams: Vec<_> = self.rails.iter().map(|one| (one.team, kind(one.name))).collect();
        for station in &mut self.rails {
            let mut team = teams.iter().filter(|(team, _)| *team == station.team);
            station.has_twin = team.clone().count() > 1;
            station.is_mixed = team.any(|(_, other)| *other != kind(station.name));
        }
    }

    /// Takes in what the rails have to report, then sends what the engine wants sent. Returns
    /// whether anything was reported.
    pub fn advance(&mut self) -> bool {
        self.turn += 1;
        let mut moved = false;
        for index in 0..self.rails.len() {
            let station = &mut self.rails[index];
            if station.skip > 0 {
                station.skip -= 1;
            } else {
                moved |= self.poll_rail(index);
            }
        }
        if !self.boards.is_empty() {
            moved |= self.look_at_boards();
        }
        if moved || self.has_loose_ends || self.turn.is_multiple_of(TIDY_EVERY) {
            self.tidy();
        } else {
            self.settle();
        }
        moved
    }

    /// A thread waits for what others post on a board; false if that has just come.
    pub fn watch(&mut self, board: &Arc<Lock<Board>>) -> bool {
        if !self.boards.iter().any(|one| Arc::ptr_eq(one, board)) {
            self.boards.push(Arc::clone(board));
        }
        // Who sleeps already does so for this thread too.
        !self.lies_down || board.lock().lie_down()
    }

    /// It waits no more.
    pub fn unwatch(&mut self, board: &Arc<Lock<Board>>) {
        self.boards.retain(|one| !Arc::ptr_eq(one, board));
    }

    /// Whether something that a thread waits for was posted; which of them does not matter, for all ask again.
    fn look_at_boards(&mut self) -> bool {
        // Once for each: whoever waits there has to have the core next.
        let is_due = self.boards.iter().fold(false, |due, board| board.lock().take_due() | due);
        if is_due {
            self.waiters.wake_all();
            // Neighbours are at it: who is farther away has had no news.
            let far = self.rails.iter_mut().filter(|station| station.buffers);
            far.for_each(|station| station.dull = station.dull.saturating_add(1));
        }
        is_due
    }

    /// Wakes a process of this node that sleeps.
    pub fn wake(&mut self, gate: GateId) {
        let Self { rails, directory, .. } = self;
        for Station { rail, name, .. } in rails {
            let mut address = || {
                let addresses = directory.addresses(gate).ok()?;
                addresses.into_iter().find(|(own, _)| own == name).map(|(_, address)| address)
            };
            if rail.wake(gate, &mut address) {
                return;
            }
        }
    }

    /// Sends what follows from the news, and tells what is to be told.
    fn tidy(&mut self) {
        if self.engine.wants_time() {
            self.judge_links();
        }
        self.release_gathered();
        self.flush();
        if self.has_loose_ends {
            self.look_at_ends();
        }
        while let Some(refusal) = self.engine.poll_refusal() {
            self.journal.print(&[refusal]);
        }
        if self.journal.has_faults() {
            let due = self.journal.due(Instant::now());
            self.journal.print(&due);
        }
    }

    /// Sends what a question to the core has left to be sent, if it has.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.engine.has_output() || self.has_due_tasks() {
            self.flush();
        }
    }

    /// Opens links, posts frames, copies memory and lets tasks go on until nothing more can be done
    /// that the rails can take.
    #[inline]
    pub fn flush(&mut self) {
        self.send();
        while self.has_due_tasks() {
            self.advance_tasks();
            self.send();
        }
    }

    #[inline]
    fn send(&mut self) {
        while let Some(gate) = self.engine.poll_connect() {
            self.open(gate);
        }
        // Before the frames: the sender of what was copied is told at once, as the caller may be
        // about to leave the library for long.
        while let Some(pull) = self.engine.poll_pull() {
            self.pull(pull);
        }
        while let Some((gate, rail)) = self.engine.poll_gate() {
            self.drain(gate, rail);
        }
    }

    /// How often progress was made.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// What was done so far, beyond what the engine counts.
    pub fn counters(&self) -> Counters {
        Counters { polls: self.turn - FIRST_TURN, ..self.counters }
    }

    /// Whether something does not come to its end unless somebody polls.
    #[inline]
    pub(crate) fn is_left_behind(&self) -> bool {
        self.engine.has_pending() || self.has_loose_ends
    }

    /// Whether a rail has had no room for something, as far as known.
    pub(crate) fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    fn look_at_ends(&mut self) {
        let has_threads = !self.waiters.is_empty();
        self.has_loose_ends = self.has_backlog
            || self.is_gathering()
            || self.has_work()
            || has_threads
            || !self.reopening.is_empty();
    }

    /// The end of an operation that the caller waits for; if it is not there, the question that is being
    /// asked can have no answer before.
    #[inline]
    pub fn take_or_await(&mut self, op: OpId) -> Option<Completion> {
        let completion = self.engine.take(op);
        if completion.is_none() {
            self.awaited = Some(op);
        }
        completion
    }

    /// The question that is being asked may be answered by any of several operations.
    pub fn await_any(&mut self) {
        self.awaited = None;
    }

    /// Looks whether the rails have taken by now what they had no room for.
    pub(crate) fn look_at_backlog(&mut self) {
        self.has_backlog = self.has_backlog && !self.is_quiet();
        self.look_at_ends();
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
            Route::Open(rails) => Some(self.rails[rails.first.0 as usize].rail.name()),
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
        for board in &self.boards {
            asleep &= board.lock().lie_down();
        }
        self.lies_down = true;
        asleep
    }

    pub(crate) fn finish_sleep(&mut self) {
        // Time has passed.
        self.has_loose_ends |= self.engine.is_watching();
        for station in &mut self.rails {
            station.rail.finish_sleep();
            station.skip = 0;
        }
        for board in &self.boards {
            board.lock().get_up();
        }
        self.lies_down = false;
    }

    #[inline]
    fn poll_rail(&mut self, index: usize) -> bool {
        let Self { engine, rails, routes, journal, reopening, .. } = self;
        let station = &mut rails[index];
        let (rail, name) = (RailId(index as u8), station.name);
        let (replay, is_mixed) = (station.has_twin, station.is_mixed);
        let mut troubles: Vec<(GateId, Trouble)> = Vec::new();
        let moved = station.rail.poll(&mut |event| match event {
            Event::Frame { peer, bytes } => {
                if troubles
                    .iter()
                    .any(|(known, trouble)| *known == peer && trouble.is_misbehaviour())
                {
                    return;
                }
                if let Err(error) = engine.handle_frame(peer, rail, bytes) {
                    troubles.push((peer, Trouble::Misbehaved(error.to_string())));
                }
            }
            Event::Sent { peer, token } => engine.handle_sent(peer, rail, token),
            Event::Hampered { reason } => journal.print(&[format!("{name}: {reason}")]),
            Event::Refused { from, reason } => {
                let line = journal.note_refusal(Instant::now(), from, reason);
                journal.print(line.as_slice());
            }
            Event::Room { peer } => engine.handle_room(peer, rail),
            Event::Cost { peer, cost } => engine.handle_cost(peer, rail, cost),
            Event::Up { peer, capabilities } => {
                let Some(route) = routes.get_mut(peer.0 as usize) else { return };
                match route {
                    Route::Closed | Route::Opening { .. } => {
                        *route = Route::Open(RailSet::of(rail));
                    }
                    Route::Open(rails) => rails.insert(rail),
                    Route::Failed => return troubles.push((peer, Trouble::Unwanted)),
                }
                if let Some(at) = reopening.iter().position(|one| *one == (peer, rail)) {
                    reopening.swap_remove(at);
                    journal.print(&[format!("{name} to rank {} is back", peer.0)]);
                }
                let replay = replay || capabilities.replay;
                let capabilities = Capabilities { replay, ..capabilities };
                let capabilities = if is_mixed { shared(capabilities) } else { capabilities };
                engine.handle_up(peer, rail, capabilities);
            }
            Event::Down { peer, fault } => {
                let attempt = another_way(routes, (rail, name), peer, &fault);
                troubles.push((peer, attempt.map_or(Trouble::Down(fault), Trouble::Refused)));
            }
        });
        if !troubles.is_empty() {
            self.meet(rail, troubles);
        }
        if self.engine.has_severed() {
            self.close_severed();
        }
        self.reckon(index, moved);
        moved
    }

    /// Does what follows from what has gone wrong on a rail.
    #[cold]
    fn meet(&mut self, rail: RailId, troubles: Vec<(GateId, Trouble)>) {
        for (peer, trouble) in troubles {
            match trouble {
                Trouble::Misbehaved(text) => {
                    self.rails[rail.0 as usize].rail.disconnect(peer);
                    self.fail(peer, Fault::Misbehaved(text));
                }
                Trouble::Down(fault) => self.handle_down(rail, peer, fault),
                Trouble::Unwanted => self.rails[rail.0 as usize].rail.disconnect(peer),
                Trouble::Refused(attempt) => self.connect(peer, attempt),
            }
        }
    }

    /// Closes a link that has fallen far behind another to the same peer, and gives up peers that were without a
    /// link for too long.
    #[cold]
    fn judge_links(&mut self) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        while let Some(overdue) = self.engine.handle_time(now_ns) {
            match overdue {
                Overdue::Link(peer, rail) => {
                    let name = self.rails[rail.0 as usize].rail.name();
                    let text = format!("{name} delivers nothing, another does");
                    self.close_link(rail, peer, Fault::Lost(text));
                }
                Overdue::Peer(peer) => {
                    let text = "no link has opened again in time".into();
                    self.fail(peer, Fault::Lost(text));
                }
            }
        }
    }

    /// Closes a link that its rail takes to be open.
    fn close_link(&mut self, rail: RailId, peer: GateId, fault: Fault) {
        self.rails[rail.0 as usize].rail.disconnect(peer);
        self.handle_down(rail, peer, fault);
    }

    /// Closes links that their peers have given up.
    #[cold]
    fn close_severed(&mut self) {
        while let Some((peer, rail)) = self.engine.poll_severed() {
            self.close_link(rail, peer, Fault::Lost("the other end has lost it".into()));
        }
    }

    /// A link is gone. Others of the gate carry on, if there are any, or it is opened anew.
    fn handle_down(&mut self, rail: RailId, peer: GateId, fault: Fault) {
        let concerned = match self.routes.get_mut(peer.0 as usize) {
            Some(Route::Open(rails)) => {
                let was_open = rails.remove(rail);
                let ends = !matches!(fault, Fault::Lost(_));
                let loss = self.engine.handle_link_down(peer, rail, ends);
                if loss != Loss::Final {
                    return self.bear(rail, peer, (loss, was_open), &fault);
                }
                true
            }
            Some(Route::Opening { rail: opening, .. }) => *opening == rail,
            Some(Route::Closed) => true,
            Some(Route::Failed) | None => false,
        };
        if concerned {
            self.fail(peer, fault);
        }
    }

    /// Does without a link, and has it opened anew, if that may be.
    fn bear(&mut self, rail: RailId, peer: GateId, (loss, was_open): (Loss, bool), fault: &Fault) {
        let name = self.rails[rail.0 as usize].rail.name();
        let text = fault.text().unwrap_or("closed");
        self.reopening.retain(|one| *one != (peer, rail));
        if was_open {
            let rest = match loss {
                Loss::Borne => "others go on",
                Loss::Parted | Loss::Final => "it is opened anew",
            };
            self.journal.print(&[format!("{name} to rank {} is gone, {rest}: {text}", peer.0)]);
        }
        if !self.engine.may_reopen(peer, rail) {
            return;
        }
        let addresses = self.directory.addresses(peer).unwrap_or_default();
        let address = addresses.into_iter().find(|(own, _)| own == name);
        let station = &mut self.rails[rail.0 as usize];
        let connect = |(_, address): (String, Vec<u8>)| station.rail.connect(peer, &address).ok();
        // Where it cannot, the peer may find its way here, or others carry on.
        if address.and_then(connect).is_some() {
            self.reopening.push((peer, rail));
            self.has_loose_ends = true;
        }
    }

    /// There is no way to a peer any more.
    fn fail(&mut self, peer: GateId, fault: Fault) {
        let Some(route) = self.routes.get_mut(peer.0 as usize) else { return };
        if let Route::Open(rails) = std::mem::replace(route, Route::Failed) {
            let opening = self.reopening.extract_if(.., |one| one.0 == peer).map(|one| one.1);
            for rail in rails.iter().chain(opening) {
                self.rails[rail.0 as usize].rail.disconnect(peer);
            }
        }
        let text = match fault {
            Fault::Closed => None,
            Fault::Lost(text) => Some(format!("link to rank {} lost: {text}", peer.0)),
            Fault::Unreachable(text) => Some(format!("rank {} unreachable: {text}", peer.0)),
            Fault::Misbehaved(text) => {
                Some(format!("rank {} sent what no rank sends: {text}", peer.0))
            }
        };
        if let Some(text) = text {
            self.journal.note_fault(Instant::now(), text);
        }
        self.engine.handle_down(peer);
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
        let Some(&Route::Open(rails)) = self.routes.get(gate.0 as usize) else { return false };
        let station = &self.rails[rails.first.0 as usize];
        if station.buffers && self.may_gather {
            return self.send_or_gather(gate, station.gather_within, envelope, data);
        }
        self.send_at_once(gate, envelope, data)
    }

    #[inline]
    fn send_at_once(&mut self, gate: GateId, envelope: Envelope, data: &Region) -> bool {
        let rail = self.engine.submit_short(gate, envelope, data, &mut self.frame);
        if let Some(rail) = rail {
            self.post(gate, rail);
        }
        rail.is_some()
    }

    fn send_or_gather(
        &mut self,
        gate: GateId,
        within: Duration,
        envelope: Envelope,
        data: &Region,
    ) -> bool {
        let index = gate.0 as usize;
        if self.posted.len() <= index {
            self.posted.resize(index + 1, LastShort::default());
        }
        if self.engine.has_gathered(gate) {
            return self.gather_more(gate, envelope, data);
        }
        let follows = self.row.turn == self.turn;
        if !follows || self.row.at.is_some_and(|at| at.elapsed() >= within) {
            self.row = Row { number: self.row.number + 1, turn: self.turn, at: None };
        }
        let LastShort { row, is_repeated } = self.posted[index];
        let is_in_row = row == self.row.number;
        let taken = match is_in_row && is_repeated {
            true => self.gather_more(gate, envelope, data),
            false => self.send_at_once(gate, envelope, data),
        };
        if taken {
            self.row.at = follows.then(Instant::now);
            self.posted[index] = LastShort { row: self.row.number, is_repeated: is_in_row };
        }
        taken
    }

    /// Lays a short message beside others; what there is goes first if that is all a frame takes.
    fn gather_more(&mut self, gate: GateId, envelope: Envelope, data: &Region) -> bool {
        if self.gather(gate, envelope, data) {
            return true;
        }
        self.engine.release_gathered(gate);
        self.flush();
        self.gather(gate, envelope, data)
    }

    fn gather(&mut self, gate: GateId, envelope: Envelope, data: &Region) -> bool {
        let taken = self.engine.submit_gathered(gate, envelope, data);
        if taken && !self.gathering.contains(&gate) {
            self.gathering.push(gate);
            self.has_loose_ends = true;
        }
        taken
    }

    fn drain(&mut self, gate: GateId, rail: RailId) {
        while self.engine.poll_frame(gate, rail, &mut self.frame) && self.post(gate, rail) {}
    }

    /// Hands the frame just built to the rail; false when the rail is full.
    #[inline]
    fn post(&mut self, gate: GateId, rail: RailId) -> bool {
        let station = &mut self.rails[rail.0 as usize];
        let buffers = station.buffers;
        let posted = match station.rail.post(gate, &self.frame) {
            Post::Done => Posted::Done,
            Post::Held => Posted::Held,
            Post::Full => Posted::Full,
        };
        self.engine.handle_posted(gate, rail, &mut self.frame, posted);
        let is_taken = posted != Posted::Full;
        if !is_taken || buffers {
            self.note_backlog(rail, is_taken);
        }
        is_taken
    }

    /// A frame may have been left behind, or a part of it.
    #[cold]
    fn note_backlog(&mut self, rail: RailId, is_taken: bool) {
        if !is_taken || !self.rails[rail.0 as usize].rail.is_flushed() {
            self.has_backlog = true;
            self.has_loose_ends = true;
        }
    }

    fn pull(&mut self, pull: Pull) {
        let rail = &mut self.rails[pull.rail.0 as usize].rail;
        if rail.is_attentive(pull.gate) {
            self.engine.handle_pull_declined(pull.id);
            return;
        }
        let done = rail.pull(pull.gate, pull.remote, pull.offset, &pull.local).is_ok();
        self.engine.handle_pulled(pull.id, done);
    }

    #[cold]
    fn open(&mut self, gate: GateId) {
        let _uncancelled = Uncancelled::begin();
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

    /// Tries the rails that are left in turn until one begins to open; those of its team open beside it.
    fn connect(&mut self, gate: GateId, attempt: Attempt) {
        let Attempt { later, mut refusals } = attempt;
        let mut later = later.into_iter();
        while let Some((rail, address)) = later.next() {
            match self.rails[rail.0 as usize].rail.connect(gate, &address) {
                Ok(()) => {
                    let later: Vec<_> = later.collect();
                    self.connect_twins(gate, rail, &later);
                    let attempt = Attempt { later, refusals };
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

    /// Opens the other links of a rail's team; where one cannot, there is one link less.
    fn connect_twins(&mut self, gate: GateId, rail: RailId, later: &[(RailId, Vec<u8>)]) {
        let team = self.rails[rail.0 as usize].team;
        for (twin, address) in later {
            let station = &mut self.rails[twin.0 as usize];
            if station.team == team {
                let _ = station.rail.connect(gate, address);
            }
        }
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

/// What a link can do beside links of other kinds: each carries whatever another may lose, and nobody fetches
/// what several are to share.
fn shared(capabilities: Capabilities) -> Capabilities {
    let frame_max = capabilities.frame_max.min(driver::FRAME_MAX_OF_ALL);
    Capabilities { frame_max, pull: false, ..capabilities }
}

/// Rails of one kind differ by a number at the end of their names: `tcp`, `tcp1`.
fn kind(name: &str) -> &str {
    name.trim_end_matches(|digit: char| digit.is_ascii_digit())
}

/// Messages that left in turn 0 have never left.
const FIRST_TURN: u64 = 1;

/// Every so many turns all is looked after, news or not.
const TIDY_EVERY: u64 = 64;

/// A rail is dull after this many reports of other rails without one of its own.
const DULL_AFTER: u32 = 64;

/// How many polls a dull rail is left out, a few microseconds of spinning.
const DULL_SKIP: u32 = 64;
