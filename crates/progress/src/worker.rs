//! The engine and its rails, advanced together under one lock.

mod coalescing;
mod left_behind;
mod liveness;
mod neighbours;
mod peers;
mod revoke;
mod routes;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use coalescing::{LastShort, ShortRun};
use connect::{LivenessState, Patience, Peers, Purpose, RailTraits};
use engine::{Completion, EndQueueId, Engine, OpId, Posted, RemoteRead, Selector};
use lock::Lock;
use rail::{Clock, Event, Neighbours, Post, Rail, ReadinessProbe};
use rail_shm::ShmColl;
use routes::Trouble;
use tracing::debug;
use wire::{Capabilities, Frame, PeerId, RailId};

use crate::copies::Copies;
use crate::counters::Counters;
use crate::idle_poller::IdlePollers;
use crate::journal::Journal;
use crate::locality::Locality;
use crate::poller::PollState;
use crate::precedence::Precedence;
use crate::tasks::Tasks;
use crate::wait::Progress;
use crate::wait_report::WaitReport;
use crate::waiters::{Awaited, Waiters};

/// Own addresses of a worker's rails, as pairs of rail name and address.
pub type OwnAddresses = Vec<(String, Vec<u8>)>;

/// Source of peer addresses, asked at the first message to a peer.
pub trait Directory: Send {
    /// Returns the published addresses of `peer` as pairs of rail name and address, best rail first.
    ///
    /// # Errors
    /// One line that says why the peer's addresses are unavailable.
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String>;

    /// Learns what a process of another job tells of itself, in its own form.
    fn add_peer(&mut self, _peer: PeerId, _card: Vec<u8>) {}

    /// Notes that a rail found no route to a peer, so that an equivalent rail may be preferred.
    fn note_unreachable(&mut self, _peer: PeerId, _rail: &str) {}

    /// True if the launcher has seen the process of `peer` end. Called when no link leads to the peer; answers
    /// without delay.
    fn has_ended(&mut self, _peer: PeerId) -> bool {
        false
    }

    /// True if an awaited message of a context comes soon, provided that its sender is alive.
    fn expects_soon(&self, _context: u64) -> bool {
        false
    }

    /// Returns the processes that exchange messages of a context, this one first and the others in ring order.
    /// Returns none if the context is unknown here.
    fn members(&mut self, _context: u64) -> Option<Vec<PeerId>> {
        None
    }

    /// Learns that the application of this process or of another one has revoked a context.
    fn note_revoked(&mut self, _context: u64) {}
}

/// The engine, the rails, and the routes from peers to rails.
pub struct Worker {
    /// The engine; commands go to it directly, followed by [`Worker::flush`].
    pub engine: Engine,
    rails: Vec<PolledRail>,
    /// Index of the rail that connects the processes of this node.
    near: Option<usize>,
    /// The connection manager.
    peers: Peers,
    directory: Box<dyn Directory>,
    frame: Frame,
    /// Peers with short messages that wait to be coalesced.
    coalescing: Vec<PeerId>,
    /// True while some thread would send coalesced messages if the application stays away.
    may_coalesce: bool,
    /// The latest run of short messages sent at once, to any peers, on rails that coalesce.
    row: ShortRun,
    /// Run in which each peer was last sent a short message.
    posted: Vec<LastShort>,
    /// Peers for which the bypass link was requested (see [`Rail::passes`]).
    passed: BTreeSet<PeerId>,
    /// Peers whose end nobody is told of.
    may_end: BTreeSet<PeerId>,
    /// Awaited peers that were never contacted.
    liveness: LivenessState,
    /// Peers whose failure threads wait for.
    looked_after: Vec<Arc<[PeerId]>>,
    /// Revoked contexts whose members were unknown.
    unannounced: BTreeSet<u64>,
    /// True if a rail had no room for all of a frame, or has pending work of its own.
    has_backlog: bool,
    /// True if a backlog is possible, messages are coalesced, a task has to compute, or a long message is to be
    /// copied.
    pub(crate) has_loose_ends: bool,
    /// Number of poll ticks.
    tick: u64,
    /// Number of polls skipped since the last tick.
    deferred: u32,
    began: Instant,
    /// Clock of outages, which stops while nobody polls.
    clock: Clock,
    journal: Journal,
    pub(crate) tasks: Tasks,
    pub(crate) copies: Copies,
    pub(crate) locality: Locality,
    pub(crate) waiters: Waiters,
    pub(crate) poll_state: PollState,
    pub(crate) precedence: Precedence,
    pub(crate) counters: Counters,
    /// The idle pollers, which watch the rails without the worker's lock.
    pub(crate) idle_pollers: Option<Arc<IdlePollers>>,
    /// Copied messages that have not left.
    pub(crate) held_copies: Vec<OpId>,
    /// For threads without the lock: true if a copy is held, or a peer has failed. A copy counts as sent, so the failure
    /// of its peer would be reported to nobody.
    pub(crate) refuses_copies: Arc<AtomicBool>,
    pub(crate) has_failed_peer: bool,
    /// The `Progress` that owns this worker.
    pub(crate) owner: Weak<Progress>,
    /// Shared segments on which threads wait for posts.
    shm_colls: Vec<Arc<Lock<ShmColl>>>,
    /// True while peers have been told that a thread sleeps.
    has_announced_sleep: bool,
    /// True while a submitting or testing call holds the worker's lock, false for a waiting thread or the progress
    /// thread.
    pub(crate) is_in_call: bool,
    /// Event for which the latest question waits.
    pub(crate) awaited: Awaited,
    /// True if the asking thread polls for all.
    pub(crate) asker_polls: bool,
    /// Report that waiting threads contribute to.
    pub(crate) wait_report: WaitReport,
}

/// A rail and its polling frequency.
struct PolledRail {
    rail: Box<dyn Rail>,
    name: &'static str,
    /// Coalescing time of the rail; see [`Rail::coalesce_within`].
    coalesce_within: Duration,
    /// True if the rail accepts frames before it has sent them.
    buffers: bool,
    /// First rail of the team. Rails of a team carry for a peer together; each may carry what another loses.
    team: RailId,
    /// True if the team has other members, and true if they are of other kinds.
    has_twin: bool,
    is_mixed: bool,
    /// True if its links bypass those of another rail, and the rail whose links bypass its own.
    passes: bool,
    passed_by: Option<RailId>,
    /// Consecutive polls in which other rails had events and this one had none.
    idle_polls: u32,
    /// Skips left before it is polled again.
    skip: u32,
}

impl Worker {
    /// The engine of process `rank` in a job of `size` over `rails`, preferred rails first. The first rail that
    /// reaches a peer carries its frames, together with the rails of its kind.
    pub fn new(
        mut engine: Engine,
        rank: PeerId,
        size: usize,
        rails: Vec<Box<dyn Rail>>,
        directory: Box<dyn Directory>,
    ) -> Self {
        let tasks = Tasks::new(&mut engine);
        let peers = Peers::new(size, Patience::default());
        let mut worker = Self {
            engine,
            rails: Vec::new(),
            near: None,
            journal: Journal::new(peers.name(rank)),
            peers,
            directory,
            frame: Frame::default(),
            coalescing: Vec::new(),
            may_coalesce: true,
            row: ShortRun::default(),
            posted: Vec::new(),
            passed: BTreeSet::default(),
            may_end: BTreeSet::default(),
            unannounced: BTreeSet::new(),
            liveness: LivenessState::new(rank, Duration::ZERO),
            looked_after: Vec::new(),
            has_backlog: false,
            has_loose_ends: false,
            tick: FIRST_TICK,
            deferred: 0,
            began: Instant::now(),
            clock: Clock::new(),
            tasks,
            copies: Copies::default(),
            locality: Locality::default(),
            waiters: Waiters::default(),
            poll_state: PollState::default(),
            precedence: Precedence::new(),
            counters: Counters::default(),
            idle_pollers: None,
            held_copies: Vec::new(),
            refuses_copies: Arc::default(),
            has_failed_peer: false,
            owner: Weak::new(),
            shm_colls: Vec::new(),
            has_announced_sleep: false,
            is_in_call: false,
            awaited: Awaited::Events,
            asker_polls: false,
            wait_report: WaitReport::default(),
        };
        worker.append_rails(rails);
        worker
    }

    /// Lets the rails of some kinds carry for a peer together, each within its capabilities.
    #[must_use]
    pub fn with_team(mut self, kinds: &[&str]) -> Self {
        self.join_team(kinds);
        self
    }

    /// Sets how long a peer that has lost its links is waited for.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.peers.set_patience(patience);
        self
    }

    /// Writes no lines for the user, for simulated ranks whose links are lost on purpose.
    #[must_use]
    pub fn silenced(mut self) -> Self {
        self.journal.is_silent = true;
        self
    }

    fn count_teams(&mut self) {
        let carriers = self.rails.iter().filter(|one| !one.passes);
        let teams: Vec<_> = carriers.map(|one| (one.team, kind(one.name))).collect();
        let passing = |(at, one): (usize, &PolledRail)| one.passes.then_some((one.name, at));
        let passing: Vec<_> = self.rails.iter().enumerate().filter_map(passing).collect();
        for polled in &mut self.rails {
            let by = passing.iter().find(|(name, _)| kind(name) == kind(polled.name));
            polled.passed_by = by.filter(|_| !polled.passes).map(|&(_, at)| RailId(at as u8));
            let mut team = teams.iter().filter(|(team, _)| *team == polled.team);
            polled.has_twin = team.clone().count() > 1;
            polled.is_mixed = team.any(|(_, other)| *other != kind(polled.name));
        }
        let traits =
            |one: &PolledRail| RailTraits { name: one.name, team: one.team, passes: one.passes };
        self.peers.set_rails(self.rails.iter().map(traits).collect());
    }

    /// Handles the events of the rails, then sends what the engine wants sent. Returns true if there was any event.
    pub fn advance(&mut self) -> bool {
        self.tick += 1;
        self.deferred = 0;
        let mut moved = false;
        for index in 0..self.rails.len() {
            let polled = &mut self.rails[index];
            if polled.skip > 0 {
                polled.skip -= 1;
            } else {
                moved |= self.poll_rail(index);
            }
        }
        if !self.shm_colls.is_empty() {
            moved |= self.check_shm_colls();
        }
        if moved || self.has_loose_ends || self.tick.is_multiple_of(TIDY_EVERY) {
            self.tidy();
        } else {
            self.settle();
        }
        moved
    }

    /// Advances like [`Worker::advance`], for a thread about to give its CPU core to ranks that post on its shared
    /// segment. While no traffic is pending, the rails are polled only after [`DEFERRED_MAX`] skipped polls in a
    /// row.
    #[inline]
    pub(crate) fn advance_in_shm_coll(&mut self) -> bool {
        let is_at_rest = !self.engine.has_pending() && !self.has_loose_ends;
        let has_time = is_at_rest && self.waiters.is_empty() && self.deferred < DEFERRED_MAX;
        if !has_time || self.shm_colls.is_empty() {
            return self.advance();
        }
        self.deferred += 1;
        false
    }

    /// Registers a thread that waits for posts on a shared segment. Returns false if a post has just come.
    pub fn watch(&mut self, shm_coll: &Arc<Lock<ShmColl>>) -> bool {
        if !self.shm_colls.iter().any(|one| Arc::ptr_eq(one, shm_coll)) {
            self.shm_colls.push(Arc::clone(shm_coll));
        }
        // The sleeping thread also waits on behalf of this one.
        !self.has_announced_sleep || shm_coll.lock().begin_sleep()
    }

    /// True if a thread waits for posts.
    #[inline]
    pub(crate) fn is_in_shmem(&self) -> bool {
        !self.shm_colls.is_empty()
    }

    /// Records that a waiting thread has yielded its CPU core to ranks that share it.
    pub(crate) fn balance_shm_colls(&self, now: Instant) {
        for shm_coll in &self.shm_colls {
            shm_coll.lock().balance(now);
        }
    }

    /// Removes the registration made by [`Worker::watch`].
    pub fn unwatch(&mut self, shm_coll: &Arc<Lock<ShmColl>>) {
        self.shm_colls.retain(|one| !Arc::ptr_eq(one, shm_coll));
    }

    /// Wakes all waiting threads if an awaited post has come; each of them asks again. Returns true if one has.
    fn check_shm_colls(&mut self) -> bool {
        // The fold visits every segment: each waiter must get the lock next.
        let is_due =
            self.shm_colls.iter().fold(false, |due, shm_coll| shm_coll.lock().take_due() | due);
        if is_due {
            self.waiters.wake_all();
            // Local neighbours are active, so that remote rails count as without events.
            let far = self.rails.iter_mut().filter(|polled| polled.buffers);
            far.for_each(|polled| polled.idle_polls = polled.idle_polls.saturating_add(1));
        }
        is_due
    }

    /// Sends what follows from the events, and reports violations and faults.
    fn tidy(&mut self) {
        if self.engine.wants_time() {
            self.judge_links();
        }
        if self.tick.is_multiple_of(CHECK_LIVENESS_EVERY) {
            self.seek(self.awaited.probed());
            self.look_at_held_copies();
        }
        self.release_coalesced();
        self.forward_revocations();
        self.flush();
        if self.has_loose_ends {
            self.look_at_ends();
        }
        while let Some((peer, text)) = self.engine.poll_violation() {
            self.journal.print(&[format!("{text}; to {} fifo goes on", self.peers.name(peer))]);
        }
        if self.journal.has_faults() {
            let due = self.journal.due(Instant::now());
            self.journal.print(&due);
        }
    }

    /// Ends the operations with a peer that has failed, or to which no path exists.
    fn fail_peer(&mut self, peer: PeerId) {
        self.engine.handle_down(peer);
        self.has_failed_peer = true;
        self.refuses_copies.store(true, Ordering::Relaxed);
    }

    /// Sends the output of a question to the worker, if there is any.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.engine.has_output() || self.has_due_tasks() {
            self.flush();
        }
    }

    /// Opens links, posts frames, copies short messages from their senders' memory and advances tasks until the
    /// rails accept no more.
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
        // Remote reads precede the frames, so that the sender of a copied message hears at once: the caller may be
        // about to leave the library for long.
        while let Some(remote_read) = self.engine.poll_remote_read() {
            self.remote_read(remote_read);
        }
        while let Some((peer, rail)) = self.engine.poll_peer() {
            self.drain(peer, rail);
        }
    }

    /// Counts requests that a call for any or some of several has looked at.
    pub fn note_request_looks(&mut self, looks: usize) {
        self.counters.request_looks += looks as u64;
    }

    /// Number of poll ticks.
    #[inline]
    pub(crate) fn tick(&self) -> u64 {
        self.tick
    }

    /// Returns the counters of this worker, beyond those of the engine.
    pub fn counters(&self) -> Counters {
        let (polls_by_idle_pollers, wakeups_by_idle_pollers) =
            self.idle_pollers.as_ref().map_or((0, 0), |idle| idle.counts());
        let polls = self.tick - FIRST_TICK;
        Counters { polls, polls_by_idle_pollers, wakeups_by_idle_pollers, ..self.counters }
    }

    /// True if waiting threads are to say what they wait for.
    #[inline]
    pub fn is_reporting(&self) -> bool {
        self.wait_report.is_open()
    }

    /// Notes, for a report, the processes that the current question waits for in a shared segment.
    #[cold]
    pub fn note_awaited_members(&mut self, context: u64, peers: Vec<PeerId>) {
        self.wait_report.members = Some((context, peers));
    }

    /// Takes the completion of an operation that the caller waits for. If there is none, the current question waits
    /// for this operation.
    #[inline]
    pub fn take_or_await(&mut self, op: OpId) -> Option<Completion> {
        let completion = self.engine.take(op);
        if completion.is_none() {
            self.awaited = Awaited::Op(op);
        }
        completion
    }

    /// Takes a completion like [`Worker::take_or_await`], for an operation with a note. Returns none if there is no
    /// such operation.
    #[inline]
    pub fn take_noted_or_await(&mut self, op: OpId) -> Option<Option<(Completion, u64)>> {
        let taken = self.engine.take_noted(op)?;
        if taken.is_none() {
            self.awaited = Awaited::Op(op);
        }
        Some(taken)
    }

    /// Declares that the current question waits for this operation; without one, any event may answer it. The
    /// operation is looked up only if other threads wait or poll.
    #[inline]
    pub fn await_op(&mut self, op: impl FnOnce() -> Option<OpId>) {
        if self.has_company() {
            self.awaited = op().map_or(Awaited::Events, Awaited::Op);
        }
    }

    /// Has these peers checked for a sign of life, as those that receives name are, until [`Worker::forget_peers`]. Their
    /// failure is an event like any other.
    pub fn look_after(&mut self, peers: &Arc<[PeerId]>) {
        self.looked_after.push(Arc::clone(peers));
    }

    /// Takes [`Worker::look_after`] back.
    pub fn forget_peers(&mut self, peers: &Arc<[PeerId]>) {
        self.looked_after.retain(|known| !Arc::ptr_eq(known, peers));
    }

    /// Declares that the current question waits for the first end in this queue; see [`Worker::await_op`].
    pub fn await_end_in(&mut self, queue: EndQueueId) {
        self.awaited = Awaited::EndIn(queue);
    }

    /// Declares that the current question waits for the first of these operations; see [`Worker::await_op`].
    #[inline]
    pub fn await_any(&mut self, ops: impl FnOnce() -> Option<Vec<OpId>>) {
        let ops = if self.has_company() { ops() } else { None };
        self.awaited = ops.map_or(Awaited::Events, Awaited::AnyOf);
    }

    /// True if the asking thread may be about to leave polling to another one.
    #[inline]
    fn has_company(&self) -> bool {
        self.has_loose_ends
            || !self.waiters.is_empty()
            || (!self.asker_polls && self.poll_state.is_polled())
    }

    /// Declares that the current question waits for such a message or for the failure of its peer; see
    /// [`Worker::await_op`].
    pub fn await_message(&mut self, peer: Option<PeerId>, selector: Selector) {
        self.awaited = Awaited::Message(peer, selector);
    }

    /// Checks if the rails have accepted their backlog by now.
    pub(crate) fn look_at_backlog(&mut self) {
        let is_at_rest = |polled: &PolledRail| polled.rail.is_at_rest();
        let is_done = || self.engine.is_idle() && self.rails.iter().all(is_at_rest);
        self.has_backlog = self.has_backlog && !is_done();
        self.look_at_ends();
    }

    /// Returns the link failures since the last call, one line each, for the error that reports them. Failures that
    /// no call takes for a while are printed.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.journal.take_faults()
    }

    /// True if nothing is left to send and no transfer is in flight.
    pub fn is_quiet(&self) -> bool {
        self.engine.is_idle() && self.is_flushed()
    }

    /// True if [`Worker::is_quiet`] holds, disregarding messages of revoked contexts to peers without a route.
    pub fn is_quiet_but_for_revoked(&self) -> bool {
        self.engine.is_idle_but_for_revoked() && self.is_flushed()
    }

    fn is_flushed(&self) -> bool {
        let is_flushed = |polled: &PolledRail| polled.rail.is_flushed();
        self.copies.is_empty() && self.rails.iter().all(is_flushed)
    }

    /// Closes all links; nothing can be sent or received any more.
    pub fn close(&mut self) {
        if let Some(idle) = &self.idle_pollers {
            idle.end();
        }
        self.rails.clear();
        self.copies.clear();
        self.peers.close();
        let rest = self.journal.close();
        self.journal.print(&rest);
    }

    pub(crate) fn descriptors(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.rails.iter().flat_map(|polled| polled.rail.descriptors()).collect()
    }

    /// Returns the readiness probe of each rail on which events may come.
    pub(crate) fn readiness_probes(&mut self) -> Vec<Arc<dyn ReadinessProbe>> {
        self.rails.iter_mut().filter_map(|polled| polled.rail.readiness_probe()).collect()
    }

    /// Tells all rails that this process is about to sleep. Returns false if one has an event already.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        let mut asleep = true;
        for polled in &mut self.rails {
            asleep &= polled.rail.prepare_sleep();
        }
        for shm_coll in &self.shm_colls {
            asleep &= shm_coll.lock().begin_sleep();
        }
        self.has_announced_sleep = true;
        asleep
    }

    /// Ends the sleep. `probed` is the peer whose message the waiting thread probes for.
    pub(crate) fn finish_sleep(&mut self, probed: Option<PeerId>) {
        // Time has passed, so that deadlines may be due.
        self.has_loose_ends |= self.engine.is_watching();
        self.seek(probed);
        self.look_at_held_copies();
        for polled in &mut self.rails {
            polled.rail.finish_sleep();
            polled.skip = 0;
        }
        for shm_coll in &self.shm_colls {
            shm_coll.lock().end_sleep();
        }
        self.has_announced_sleep = false;
    }

    #[inline]
    fn poll_rail(&mut self, index: usize) -> bool {
        let Self { engine, rails, peers, journal, passed, .. } = self;
        let polled = &mut rails[index];
        let (rail, name) = (RailId(index as u8), polled.name);
        let (replay, is_mixed) = (polled.has_twin, polled.is_mixed);
        let is_passed = polled.passed_by.is_some();
        let mut troubles: Vec<(PeerId, Trouble)> = Vec::new();
        let (mut may_be_busy, mut has_actions) = (false, false);
        let moved = polled.rail.poll(&mut |event| match event {
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
            Event::Rest { peer, bytes } => {
                if let Err(error) = engine.handle_rest(peer, rail, bytes) {
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
            Event::Cost { peer, cost } => {
                may_be_busy = true;
                engine.handle_cost(peer, rail, cost);
            }
            Event::Up { peer, capabilities } => {
                debug!(peer = %peers.name(peer), rail = name, "the link is open");
                let Some(opened) = peers.handle_up(peer, rail) else {
                    has_actions = true;
                    return;
                };
                if opened.is_back && engine.may_reopen(peer, rail) {
                    journal.print(&[format!("{name} to {} is back", peers.name(peer))]);
                }
                if opened.takes_over {
                    troubles.push((peer, Trouble::TakesOver));
                }
                let replay = replay || opened.takes_over || capabilities.replay;
                let capabilities = Capabilities { replay, ..capabilities };
                let capabilities = if is_mixed { shared(capabilities) } else { capabilities };
                engine.handle_up(peer, rail, capabilities);
                if is_passed {
                    passed.remove(&peer);
                }
            }
            Event::Down { peer, fault } => {
                debug!(peer = %peers.name(peer), rail = name, ?fault, "the link has ended");
                troubles.push((peer, Trouble::Down(fault)));
            }
        });
        if may_be_busy {
            self.note_backlog(rail, true);
        }
        if !troubles.is_empty() {
            self.handle_troubles(rail, troubles);
        } else if has_actions {
            self.carry_out();
        }
        if self.engine.has_severed() {
            self.close_severed();
        }
        self.note_poll(index, moved);
        moved
    }

    /// Polls a rail less often while it has no events and others do.
    fn note_poll(&mut self, index: usize, moved: bool) {
        if !moved {
            let polled = &mut self.rails[index];
            if polled.idle_polls >= SKIP_AFTER {
                polled.skip = SKIPS;
            }
            return;
        }
        for (other, polled) in self.rails.iter_mut().enumerate() {
            polled.idle_polls =
                if other == index { 0 } else { polled.idle_polls.saturating_add(1) };
        }
    }

    fn drain(&mut self, peer: PeerId, rail: RailId) {
        while self.engine.poll_frame(peer, rail, &mut self.frame) && self.post(peer, rail) {}
    }

    /// Posts the frame just built; false if the rail is full.
    #[inline]
    fn post(&mut self, peer: PeerId, rail: RailId) -> bool {
        let polled = &mut self.rails[rail.0 as usize];
        let buffers = polled.buffers;
        let posted = match polled.rail.post(peer, &self.frame) {
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

    /// Notes that a frame, or a part of it, may not have been sent.
    #[cold]
    fn note_backlog(&mut self, rail: RailId, is_taken: bool) {
        if !is_taken || !self.rails[rail.0 as usize].rail.is_at_rest() {
            self.has_backlog = true;
            self.has_loose_ends = true;
        }
    }

    /// Opens the bypass link if a long frame was posted.
    #[cold]
    fn note_long(&mut self, peer: PeerId, rail: RailId) {
        if let (Some(_), Some(passing)) = (&self.frame.body, self.rails[rail.0 as usize].passed_by)
        {
            self.open_passing(peer, rail, passing);
        }
    }

    fn remote_read(&mut self, remote_read: RemoteRead) {
        let rail = &mut self.rails[remote_read.rail.0 as usize].rail;
        let is_attentive = |neighbours: &mut dyn Neighbours| {
            neighbours.is_attentive(remote_read.peer, remote_read.remote.len)
        };
        if rail.neighbours().is_some_and(is_attentive) {
            self.engine.handle_remote_read_declined(remote_read.id);
            return;
        }
        match rail.remote_reader(remote_read.peer) {
            Some(remote_reader) => self.fetch(remote_read, remote_reader),
            None => self.engine.handle_remote_read_done(remote_read.id, false),
        }
    }
}

/// Restricts a link's capabilities for a team of several kinds: each link carries what another may lose, and shared
/// messages are not read remotely.
fn shared(capabilities: Capabilities) -> Capabilities {
    let frame_max = capabilities.frame_max.min(rail::FRAME_MAX_OF_ALL);
    Capabilities { frame_max, remote_read: false, ..capabilities }
}

/// Rails of one kind differ by a number at the end of their names: `tcp`, `tcp1`.
fn kind(name: &str) -> &str {
    name.trim_end_matches(|digit: char| digit.is_ascii_digit())
}

/// Messages that left in tick 0 have never left.
const FIRST_TICK: u64 = 1;

/// Limit of consecutive waits at a shared segment without polling the rails: some yield rounds of all ranks on a
/// core.
const DEFERRED_MAX: u32 = 8;

/// Number of ticks between unconditional calls of `tidy`.
const TIDY_EVERY: u64 = 64;

/// Number of ticks between liveness checks of awaited peers, for a process that never sleeps.
const CHECK_LIVENESS_EVERY: u64 = 16 * TIDY_EVERY;

/// Number of reports of other rails without an own one after which a rail is dull.
const SKIP_AFTER: u32 = 64;

/// Number of polls for which a dull rail is skipped, a few microseconds of spinning.
const SKIPS: u32 = 64;
