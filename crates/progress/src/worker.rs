//! The engine and its rails, moved on together under one lock.

mod coalescing;
mod failback;
mod liveness;
mod revoke;
mod routes;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use driver::{Event, Neighbours, Post, Rail, ReadinessProbe, ShmColl};
use engine::{Completion, Engine, OpId, Posted, RemoteRead, Selector};
use lock::Lock;
use wire::{Capabilities, Frame, PeerId, RailId};

use crate::copies::Copies;
use crate::counters::Counters;
use crate::idle_poller::Idle;
use crate::journal::Journal;
use crate::locality::Places;
use crate::parker::Sleeper;
use crate::poller::Watch;
use crate::precedence::Precedence;
use crate::tasks::Tasks;
use crate::wait::Progress;
use crate::waiters::{Awaited, Waiters};

use coalescing::{LastShort, Row};
use failback::Left;
use liveness::Seeking;
use routes::{Purpose, RailSet, Reopening, Route, Trouble, another_way};

/// Where the addresses of peers come from, asked at the first message to a peer.
pub trait Directory: Send {
    /// What the rails of `peer` published, as pairs of rail name and address, best rail first.
    ///
    /// # Errors
    /// One line that says why the peer's addresses cannot be had.
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String>;

    /// A rail has found no way to a peer: of those that are like it, others may come first.
    fn note_no_way(&mut self, _peer: PeerId, _rail: &str) {}

    /// Whether whoever has started a peer has seen its process end. Asked where no link leads to it, and the answer is
    /// at hand.
    fn has_ended(&mut self, _peer: PeerId) -> bool {
        false
    }

    /// Whether a message of a context that is waited for comes soon, if its sender is there.
    fn expects_soon(&self, _context: u64) -> bool {
        false
    }

    /// The processes that messages of a context go between, this one first and the others as in a ring; none if it is not
    /// known here.
    fn members(&mut self, _context: u64) -> Option<Vec<PeerId>> {
        None
    }
}

/// The engine, the rails, and which rail leads to which peer.
pub struct Worker {
    /// The engine; commands go to it directly, followed by [`Worker::flush`].
    pub engine: Engine,
    rails: Vec<Station>,
    routes: Vec<Route>,
    directory: Box<dyn Directory>,
    frame: Frame,
    /// Gates with messages that wait for company.
    coalescing: Vec<PeerId>,
    /// Whether somebody sends them if the application stays away.
    may_coalesce: bool,
    /// The row of short messages that left at once last, to whatever peers; of rails that gather.
    row: Row,
    /// In which row peers were last sent one.
    posted: Vec<LastShort>,
    /// It has been told that a rail does not lead to a peer, and another is tried.
    has_told_detour: bool,
    /// Links that rails are opening anew.
    reopening: Vec<Reopening>,
    /// Rails that others have taken the place of, to be gone back to.
    left: Vec<Left>,
    /// Peers to which the link that passes the others was asked for.
    passed: BTreeSet<PeerId>,
    /// Peers that are waited for, and were never spoken to.
    seeking: Seeking,
    /// Closed contexts whose members were not known.
    untold: BTreeSet<u64>,
    /// A rail had no room for a frame, or not yet for all of it, or is at something of its own.
    has_backlog: bool,
    /// That may still be so, or messages are coalesced, a task has to compute, or a long message is to be copied.
    pub(crate) has_loose_ends: bool,
    /// How often progress was made.
    turn: u64,
    /// How often it was put off since.
    put_off: u32,
    began: Instant,
    journal: Journal,
    pub(crate) tasks: Tasks,
    pub(crate) copies: Copies,
    pub(crate) places: Places,
    pub(crate) waiters: Waiters,
    pub(crate) watch: Watch,
    pub(crate) precedence: Precedence,
    pub(crate) counters: Counters,
    /// Who looks on without it.
    pub(crate) idle: Option<Arc<Idle>>,
    /// Messages that were copied and have not left, and whether there are any: for who has not the core.
    pub(crate) held_copies: Vec<OpId>,
    pub(crate) has_held_copies: Arc<AtomicBool>,
    /// What it is the core of.
    pub(crate) owner: Weak<Progress>,
    /// Where threads wait for what others post.
    shm_colls: Vec<Arc<Lock<ShmColl>>>,
    /// Peers have been told that a thread sleeps.
    lies_down: bool,
    /// A call that submits or tests has it: who has it otherwise waits, or stands by.
    pub(crate) is_in_call: bool,
    /// What the question asked last waits for.
    pub(crate) awaited: Awaited,
    /// Who asks polls for all.
    pub(crate) asker_polls: bool,
}

/// A rail and how often it is polled.
struct Station {
    rail: Box<dyn Rail>,
    name: &'static str,
    /// As [`Rail::coalesce_within`] says.
    coalesce_within: Duration,
    /// Whether it takes frames before it has sent them.
    buffers: bool,
    /// The first of the rails that carry for a peer together; each may carry what another loses.
    team: RailId,
    /// Whether there are others in its team, and whether they are of other kinds.
    has_twin: bool,
    is_mixed: bool,
    /// Whether its links pass those of another, and the rail whose links pass its own.
    passes: bool,
    passed_by: Option<RailId>,
    /// Polls of others' news in a row without any of its own.
    dull: u32,
    /// Skips left before it is polled again.
    skip: u32,
}

impl Worker {
    /// The engine of process `rank` in a job of `size` over `rails`, the preferred ones first. To a peer the
    /// first that reaches it leads, and those of its kind.
    pub fn new(
        engine: Engine,
        rank: PeerId,
        size: usize,
        rails: Vec<Box<dyn Rail>>,
        directory: Box<dyn Directory>,
    ) -> Self {
        let kinds: Vec<_> = rails.iter().map(|rail| kind(rail.name())).collect();
        let station = |rail: Box<dyn Rail>| {
            let coalesce_within = rail.coalesce_within();
            let (name, buffers) = (rail.name(), !coalesce_within.is_zero());
            let first = kinds.iter().position(|known| *known == kind(name)).unwrap_or_default();
            Station {
                name,
                coalesce_within,
                buffers,
                team: RailId(first as u8),
                has_twin: false,
                is_mixed: false,
                passes: rail.passes(),
                passed_by: None,
                dull: 0,
                skip: 0,
                rail,
            }
        };
        let rails = rails.into_iter().map(station).collect();
        let mut worker = Self {
            engine,
            rails,
            routes: vec![Route::Closed; size],
            directory,
            frame: Frame::default(),
            coalescing: Vec::new(),
            may_coalesce: true,
            row: Row::default(),
            posted: Vec::new(),
            has_told_detour: false,
            reopening: Vec::new(),
            left: Vec::new(),
            passed: BTreeSet::default(),
            untold: BTreeSet::new(),
            seeking: Seeking::new(rank, Instant::now()),
            has_backlog: false,
            has_loose_ends: false,
            turn: FIRST_TURN,
            put_off: 0,
            began: Instant::now(),
            journal: Journal::new(rank),
            tasks: Tasks::default(),
            copies: Copies::default(),
            places: Places::default(),
            waiters: Waiters::default(),
            watch: Watch::default(),
            precedence: Precedence::new(),
            counters: Counters::default(),
            idle: None,
            held_copies: Vec::new(),
            has_held_copies: Arc::default(),
            owner: Weak::new(),
            shm_colls: Vec::new(),
            lies_down: false,
            is_in_call: false,
            awaited: Awaited::Events,
            asker_polls: false,
        };
        worker.count_teams();
        worker
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
        let carriers = self.rails.iter().filter(|one| !one.passes);
        let teams: Vec<_> = carriers.map(|one| (one.team, kind(one.name))).collect();
        let passing = |(at, one): (usize, &Station)| one.passes.then_some((one.name, at));
        let passing: Vec<_> = self.rails.iter().enumerate().filter_map(passing).collect();
        for station in &mut self.rails {
            let by = passing.iter().find(|(name, _)| kind(name) == kind(station.name));
            station.passed_by = by.filter(|_| !station.passes).map(|&(_, at)| RailId(at as u8));
            let mut team = teams.iter().filter(|(team, _)| *team == station.team);
            station.has_twin = team.clone().count() > 1;
            station.is_mixed = team.any(|(_, other)| *other != kind(station.name));
        }
    }

    /// Takes in what the rails have to report, then sends what the engine wants sent. Returns
    /// whether anything was reported.
    pub fn advance(&mut self) -> bool {
        self.turn += 1;
        self.put_off = 0;
        let mut moved = false;
        for index in 0..self.rails.len() {
            let station = &mut self.rails[index];
            if station.skip > 0 {
                station.skip -= 1;
            } else {
                moved |= self.poll_rail(index);
            }
        }
        if !self.shm_colls.is_empty() {
            moved |= self.look_at_shm_colls();
        }
        if moved || self.has_loose_ends || self.turn.is_multiple_of(TIDY_EVERY) {
            self.tidy();
        } else {
            self.settle();
        }
        moved
    }

    /// As [`Worker::advance`], for a thread that is about to leave its processor's core to those who post on a shared segment what it waits
    /// for. While nothing is under way on the rails they are asked only where that has been put off again and again.
    #[inline]
    pub(crate) fn advance_in_shm_coll(&mut self) -> bool {
        let is_at_rest = !self.engine.has_pending() && !self.has_loose_ends;
        let has_time = is_at_rest && self.waiters.is_empty() && self.put_off < PUT_OFF_MAX;
        if !has_time || self.shm_colls.is_empty() {
            return self.advance();
        }
        self.put_off += 1;
        false
    }

    /// A thread waits for what others post on a shared segment; false if that has just come.
    pub fn watch(&mut self, shm_coll: &Arc<Lock<ShmColl>>) -> bool {
        if !self.shm_colls.iter().any(|one| Arc::ptr_eq(one, shm_coll)) {
            self.shm_colls.push(Arc::clone(shm_coll));
        }
        // Who sleeps already does so for this thread too.
        !self.lies_down || shm_coll.lock().begin_sleep()
    }

    /// Whether a thread waits for posts.
    #[inline]
    pub(crate) fn is_in_shmem(&self) -> bool {
        !self.shm_colls.is_empty()
    }

    /// Such a thread has yielded its core to ranks that share it.
    pub(crate) fn even_out(&self, now: Instant) {
        for shm_coll in &self.shm_colls {
            shm_coll.lock().balance(now);
        }
    }

    /// It waits no more.
    pub fn unwatch(&mut self, shm_coll: &Arc<Lock<ShmColl>>) {
        self.shm_colls.retain(|one| !Arc::ptr_eq(one, shm_coll));
    }

    /// Whether something that a thread waits for was posted; which of them does not matter, for all ask again.
    fn look_at_shm_colls(&mut self) -> bool {
        // Once for each: whoever waits there has to have the core next.
        let is_due =
            self.shm_colls.iter().fold(false, |due, shm_coll| shm_coll.lock().take_due() | due);
        if is_due {
            self.waiters.wake_all();
            // Neighbours are at it: who is farther away has had no news.
            let far = self.rails.iter_mut().filter(|station| station.buffers);
            far.for_each(|station| station.dull = station.dull.saturating_add(1));
        }
        is_due
    }

    /// Wakes a process of this node that sleeps.
    pub fn wake(&mut self, peer: PeerId) {
        let Self { rails, directory, .. } = self;
        for Station { rail, name, .. } in rails {
            let mut address = || {
                let addresses = directory.addresses(peer).ok()?;
                addresses.into_iter().find(|(own, _)| own == name).map(|(_, address)| address)
            };
            if rail.wake(peer, &mut address) {
                return;
            }
        }
    }

    /// Sends what follows from the news, and tells what is to be told.
    fn tidy(&mut self) {
        if self.engine.wants_time() {
            self.judge_links();
        }
        if self.turn.is_multiple_of(SEEK_EVERY) {
            self.seek(self.awaited.probed());
            self.look_at_held_copies();
        }
        self.release_coalesced();
        self.tell_on();
        self.flush();
        if self.has_loose_ends {
            self.look_at_ends();
        }
        while let Some(refusal) = self.engine.poll_violation() {
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

    /// Opens links, posts frames, copies short messages from their senders' memory and lets tasks go on until nothing
    /// more can be done that the rails can take.
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
        while let Some(peer) = self.engine.poll_connect() {
            self.open(peer, Purpose::Wanted);
        }
        // Before the frames: the sender of what was copied is told at once, as the caller may be
        // about to leave the library for long.
        while let Some(remote_read) = self.engine.poll_remote_read() {
            self.remote_read(remote_read);
        }
        while let Some((peer, rail)) = self.engine.poll_peer() {
            self.drain(peer, rail);
        }
    }

    /// How often progress was made.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// What was done so far, beyond what the engine counts.
    pub fn counters(&self) -> Counters {
        let (looks_by_idle, rings_by_idle) =
            self.idle.as_ref().map_or((0, 0), |idle| idle.counted());
        let polls = self.turn - FIRST_TURN;
        Counters { polls, looks_by_idle, rings_by_idle, ..self.counters }
    }

    /// Whether something does not come to its end unless somebody polls.
    #[inline]
    pub(crate) fn is_left_behind(&self) -> bool {
        self.engine.has_pending() || self.has_loose_ends || !self.waiters.is_empty()
    }

    /// Whether a rail has had no room for something, as far as known.
    pub(crate) fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    pub(crate) fn look_at_ends(&mut self) {
        self.has_loose_ends = self.has_backlog
            || self.is_coalescing()
            || self.has_work()
            || !self.copies.is_empty()
            || !self.reopening.is_empty()
            || self.is_returning();
    }

    /// The end of an operation that the caller waits for; if it is not there, the question that is being
    /// asked can have no answer before.
    #[inline]
    pub fn take_or_await(&mut self, op: OpId) -> Option<Completion> {
        let completion = self.engine.take(op);
        if completion.is_none() {
            self.awaited = Awaited::Op(op);
        }
        completion
    }

    /// As [`Worker::take_or_await`], of an operation with a note; none at all where the name is of no such operation.
    #[inline]
    pub fn take_noted_or_await(&mut self, op: OpId) -> Option<Option<(Completion, u64)>> {
        let taken = self.engine.take_noted(op)?;
        if taken.is_none() {
            self.awaited = Awaited::Op(op);
        }
        Some(taken)
    }

    /// The question that is being asked can have no answer before this operation has ended; without one, any news
    /// may bring it. It is only looked for where other threads wait or poll.
    #[inline]
    pub fn await_op(&mut self, op: impl FnOnce() -> Option<OpId>) {
        if self.has_company() {
            self.awaited = op().map_or(Awaited::Events, Awaited::Op);
        }
    }

    /// As [`Worker::await_op`], before any of these has ended.
    #[inline]
    pub fn await_any(&mut self, ops: impl FnOnce() -> Option<Vec<OpId>>) {
        let ops = if self.has_company() { ops() } else { None };
        self.awaited = ops.map_or(Awaited::Events, Awaited::AnyOf);
    }

    /// Whether who asks may be about to leave polling to another thread.
    #[inline]
    fn has_company(&self) -> bool {
        self.has_loose_ends
            || !self.waiters.is_empty()
            || (!self.asker_polls && self.watch.is_polled())
    }

    /// As [`Worker::await_op`], before such a message is there or its peer has failed.
    pub fn await_message(&mut self, peer: Option<PeerId>, selector: Selector) {
        self.awaited = Awaited::Message(peer, selector);
    }

    /// Looks whether the rails have taken by now what they had no room for.
    pub(crate) fn look_at_backlog(&mut self) {
        let is_at_rest = |station: &Station| station.rail.is_at_rest();
        let is_done = || self.engine.is_idle() && self.rails.iter().all(is_at_rest);
        self.has_backlog = self.has_backlog && !is_done();
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

    /// The calling thread leaves its core to another, which sleeps: where that would wake on the core of a peer that may
    /// have something to send, it gets this one.
    pub(crate) fn keep_apart(&self, next: &Sleeper, here: u32) {
        let has_neighbour =
            |core| self.rails.iter().any(|station| station.rail.has_neighbour_on(core));
        if next.core() != here && has_neighbour(next.core()) && !has_neighbour(here) {
            // Where the system refuses, it wakes where it was.
            let _ = next.move_to(here);
        }
    }

    /// Tells neighbours which cores this process has, and asks for theirs.
    pub(crate) fn compare_cores(&mut self, own: u64) -> Neighbours {
        let all = self.rails.iter_mut().map(|station| station.rail.compare_cores(own));
        all.fold(Neighbours::default(), |sum, one| Neighbours {
            alike: sum.alike + one.alike,
            others: sum.others + one.others,
        })
    }

    /// Failures of links since the last call, one line each, for the error that reports them; what
    /// nobody takes for a while is printed.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.journal.take_faults()
    }

    /// Whether nothing is left to send and no transfer is in flight.
    pub fn is_quiet(&self) -> bool {
        self.engine.is_idle() && self.is_flushed()
    }

    /// As [`Worker::is_quiet`], but for what would be said in closed contexts to peers to which no way is found yet.
    pub fn is_quiet_but_for_closed(&self) -> bool {
        self.engine.is_idle_but_for_revoked() && self.is_flushed()
    }

    fn is_flushed(&self) -> bool {
        let is_flushed = |station: &Station| station.rail.is_flushed();
        self.copies.is_empty() && self.rails.iter().all(is_flushed)
    }

    /// Closes all links; nothing can be sent or received any more.
    pub fn close(&mut self) {
        if let Some(idle) = &self.idle {
            idle.end();
        }
        self.rails.clear();
        self.copies.clear();
        self.routes.fill(Route::Failed);
        let rest = self.journal.close();
        self.journal.print(&rest);
    }

    /// Which rail frames to `peer` take, once a link is open.
    pub fn rail_name(&self, peer: PeerId) -> Option<&'static str> {
        match self.routes.get(peer.0 as usize)? {
            Route::Open(rails) => Some(self.rails[rails.first.0 as usize].rail.name()),
            Route::Closed | Route::Opening { .. } | Route::Failed => None,
        }
    }

    pub(crate) fn descriptors(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.rails.iter().flat_map(|station| station.rail.descriptors()).collect()
    }

    /// What looks on for each rail over which something may come.
    pub(crate) fn readiness_probes(&mut self) -> Vec<Arc<dyn ReadinessProbe>> {
        self.rails.iter_mut().filter_map(|station| station.rail.readiness_probe()).collect()
    }

    /// Tells all rails that this process is about to sleep; false when one has news already.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        let mut asleep = true;
        for station in &mut self.rails {
            asleep &= station.rail.prepare_sleep();
        }
        for shm_coll in &self.shm_colls {
            asleep &= shm_coll.lock().begin_sleep();
        }
        self.lies_down = true;
        asleep
    }

    /// It has slept; `probed` is the peer that the thread waits for a message of which is to wait for its receive.
    pub(crate) fn finish_sleep(&mut self, probed: Option<PeerId>) {
        // Time has passed.
        self.has_loose_ends |= self.engine.is_watching();
        self.seek(probed);
        self.look_at_held_copies();
        for station in &mut self.rails {
            station.rail.finish_sleep();
            station.skip = 0;
        }
        for shm_coll in &self.shm_colls {
            shm_coll.lock().end_sleep();
        }
        self.lies_down = false;
    }

    #[inline]
    fn poll_rail(&mut self, index: usize) -> bool {
        let Self { engine, rails, routes, journal, reopening, passed, .. } = self;
        let station = &mut rails[index];
        let (rail, name) = (RailId(index as u8), station.name);
        let (replay, is_mixed) = (station.has_twin, station.is_mixed);
        let is_passed = station.passed_by.is_some();
        let mut troubles: Vec<(PeerId, Trouble)> = Vec::new();
        let mut may_be_busy = false;
        let moved = station.rail.poll(&mut |event| match event {
            Event::Frame { peer, .. } | Event::Begun { peer, .. }
                if troubles.iter().any(|(known, it)| *known == peer && it.is_misbehaviour()) => {}
            Event::Frame { peer, bytes } => {
                if let Err(error) = engine.handle_frame(peer, rail, bytes) {
                    troubles.push((peer, Trouble::Misbehaved(error.to_string())));
                }
            }
            Event::Begun { peer, bytes, len, taken } => {
                match engine.handle_beginning(peer, rail, bytes, len) {
                    Ok(is_taken) => *taken = is_taken,
                    Err(error) => troubles.push((peer, Trouble::Misbehaved(error.to_string()))),
                }
            }
            Event::Rest { peer, bytes } => engine.handle_rest(peer, bytes),
            Event::Sent { peer, token } => engine.handle_sent(peer, rail, token),
            Event::Hampered { reason } => journal.print(&[format!("{name}: {reason}")]),
            Event::Refused { from, reason } => {
                let line = journal.note_refusal(Instant::now(), from, reason);
                journal.print(line.as_slice());
            }
            Event::Room { peer } => engine.handle_room(peer, rail),
            Event::Cost { peer, cost } => {
                may_be_busy = true;
                engine.handle_cost(peer, rail, cost);
            }
            Event::Up { peer, capabilities } => {
                let Some(route) = routes.get_mut(peer.0 as usize) else { return };
                match route {
                    Route::Closed | Route::Opening { .. } => {
                        *route = Route::Open(RailSet::of(rail));
                    }
                    Route::Open(rails) => rails.insert(rail),
                    Route::Failed => return troubles.push((peer, Trouble::Unwanted)),
                }
                if let Some(at) = reopening.iter().position(|one| one.is_of(peer, rail)) {
                    reopening.swap_remove(at);
                    if engine.may_reopen(peer, rail) {
                        journal.print(&[format!("{name} to rank {} is back", peer.0)]);
                    }
                }
                let takes_over = reopening.iter().any(|one| one.peer == peer);
                if takes_over {
                    troubles.push((peer, Trouble::Outdone));
                }
                let replay = replay || takes_over || capabilities.replay;
                let capabilities = Capabilities { replay, ..capabilities };
                let capabilities = if is_mixed { shared(capabilities) } else { capabilities };
                engine.handle_up(peer, rail, capabilities);
                if is_passed {
                    passed.remove(&peer);
                }
            }
            Event::Down { peer, fault } => {
                let attempt = another_way(routes, (rail, name), peer, &fault);
                troubles.push((peer, attempt.map_or(Trouble::Down(fault), Trouble::Refused)));
            }
        });
        if may_be_busy {
            self.note_backlog(rail, true);
        }
        if !troubles.is_empty() {
            self.meet(rail, troubles);
        }
        if self.engine.has_severed() {
            self.close_severed();
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

    fn drain(&mut self, peer: PeerId, rail: RailId) {
        while self.engine.poll_frame(peer, rail, &mut self.frame) && self.post(peer, rail) {}
    }

    /// Hands the frame just built to the rail; false when the rail is full.
    #[inline]
    fn post(&mut self, peer: PeerId, rail: RailId) -> bool {
        let station = &mut self.rails[rail.0 as usize];
        let buffers = station.buffers;
        let posted = match station.rail.post(peer, &self.frame) {
            Post::Done => Posted::Done,
            Post::Held => Posted::Held,
            Post::Full => Posted::Full,
        };
        self.engine.handle_posted(peer, rail, &mut self.frame, posted);
        let is_taken = posted != Posted::Full;
        if !is_taken || buffers {
            self.note_backlog(rail, is_taken);
            self.note_long(peer, rail);
        }
        is_taken
    }

    /// A frame may have been left behind, or a part of it.
    #[cold]
    fn note_backlog(&mut self, rail: RailId, is_taken: bool) {
        if !is_taken || !self.rails[rail.0 as usize].rail.is_at_rest() {
            self.has_backlog = true;
            self.has_loose_ends = true;
        }
    }

    /// A frame was posted that may be long.
    #[cold]
    fn note_long(&mut self, peer: PeerId, rail: RailId) {
        if let (Some(_), Some(passing)) = (&self.frame.body, self.rails[rail.0 as usize].passed_by)
        {
            self.open_passing(peer, rail, passing);
        }
    }

    fn remote_read(&mut self, remote_read: RemoteRead) {
        let rail = &self.rails[remote_read.rail.0 as usize].rail;
        if rail.is_attentive(remote_read.peer, remote_read.remote.len) {
            self.engine.handle_remote_read_declined(remote_read.id);
            return;
        }
        match rail.remote_reader(remote_read.peer) {
            Some(remote_reader) => self.fetch(remote_read, remote_reader),
            None => self.engine.handle_remote_read_done(remote_read.id, false),
        }
    }
}

/// What a link can do beside links of other kinds: each carries whatever another may lose, and nobody fetches
/// what several are to share.
fn shared(capabilities: Capabilities) -> Capabilities {
    let frame_max = capabilities.frame_max.min(driver::FRAME_MAX_OF_ALL);
    Capabilities { frame_max, remote_read: false, ..capabilities }
}

/// Rails of one kind differ by a number at the end of their names: `tcp`, `tcp1`.
fn kind(name: &str) -> &str {
    name.trim_end_matches(|digit: char| digit.is_ascii_digit())
}

/// Messages that left in turn 0 have never left.
const FIRST_TURN: u64 = 1;

/// So many waits at a shared segment in a row ask no rail: some turns of all who share a core.
const PUT_OFF_MAX: u32 = 8;

/// Every so many turns all is looked after, news or not.
const TIDY_EVERY: u64 = 64;

/// Who never sleeps looks for peers that are waited for in so many turns.
const SEEK_EVERY: u64 = 16 * TIDY_EVERY;

/// A rail is dull after this many reports of other rails without one of its own.
const DULL_AFTER: u32 = 64;

/// How many polls a dull rail is left out, a few microseconds of spinning.
const DULL_SKIP: u32 = 64;
