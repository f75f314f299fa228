//! Communicators: a group and a context of their own (MPI-5.0 §7.4).

use std::hash::{DefaultHasher, Hasher};
use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use coll::Collectives;
use handles::{Handle, Kind, Table};
use memory::Region;
use plan::Groups;
use progress::Progress;
use runtime::{SiteMap, Surroundings, context, record};
use wire::PeerId;

use crate::attribute::Attributes;
use crate::collective::{self, CallArguments, Form, Routine, Shape};
use crate::errhandler::Errhandler;
use crate::exchange::{self, Span};
use crate::failures::{self, Failures};
use crate::group::{Comparison, Group};
use crate::inter::GroupPair;
use crate::process::Process;
use crate::request::Request;
use crate::split::{Nodes, Wish};
use crate::topology::Topology;
use crate::vci::{CommVci, Vci};
use crate::{Error, ErrorClass, Result, buffer};

mod assertions;
mod hints;

use assertions::Assertions;

/// A communicator of this process. Clones are the same communicator.
#[derive(Clone, Debug)]
pub struct Comm(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    process: Arc<Process>,
    /// Context number of point-to-point messages; collectives use the next one. No other communicator of these processes
    /// has it ([`runtime::context`]). Set once, when the operation that makes the communicator completes.
    context: AtomicU64,
    /// VCI of the communicator; set with the context.
    vci: CommVci,
    rank: u32,
    /// Number of processes in `group`.
    size: u32,
    group: Group,
    /// Processes that point-to-point messages address: the group, or an intercommunicator's remote group.
    peers: Group,
    /// Number of processes in `peers`; none once the application has revoked the communicator.
    peer_count: AtomicU32,
    /// Two groups and merged communicator of an intercommunicator.
    inter: Option<(GroupPair, Comm)>,
    /// Ranks of each group, in a merged communicator.
    halves: Option<Groups>,
    collectives: Collectives,
    handle: OnceLock<Handle>,
    /// True once the handle has been freed.
    is_freed: AtomicBool,
    buffer: buffer::Place,
    topology: OnceLock<Arc<Topology>>,
    places: OnceLock<plan::Topology>,
    /// Nodes and sites of the members, if some are of other jobs.
    surroundings: OnceLock<Option<Box<Surroundings>>>,
    details: Mutex<Details>,
    failures: Arc<Failures>,
}

/// Rarely used properties.
#[derive(Debug)]
struct Details {
    name: Vec<u8>,
    errhandler: Errhandler,
    /// True once the application has set the error handler.
    has_set_errhandler: bool,
    attributes: Attributes,
    /// Other jobs that members are of, until it is freed.
    other_jobs: Vec<u64>,
    assertions: Assertions,
}

impl Comm {
    /// `MPI_COMM_WORLD` of a process.
    pub(crate) fn world(process: &Arc<Process>) -> Self {
        let members = (Group::of(process.job_peers().collect()), process.rank());
        Self::predefined(process, context::WORLD, members, ("MPI_COMM_WORLD", WORLD))
    }

    /// `MPI_COMM_SELF` of a process.
    pub(crate) fn myself(process: &Arc<Process>) -> Self {
        let group = Group::of(vec![process.own_peer()]);
        let context = context::number(process.rank(), 1);
        Self::predefined(process, context, (group, 0), ("MPI_COMM_SELF", SELF))
    }

    /// Makes a predefined communicator, which has the first VCI.
    fn predefined(
        process: &Arc<Process>,
        context: u64,
        (group, rank): (Group, u32),
        (name, handle): (&str, Handle),
    ) -> Self {
        let (members, peers) = ((group.clone(), rank), group);
        let comm = Self::assemble(process, context, members, peers, None, None, Errhandler::Fatal);
        comm.set_name(name.as_bytes());
        comm.set_handle(handle);
        comm
    }

    /// Makes a communicator of `group`, in which this process has rank `rank`.
    pub(crate) fn new(
        process: &Arc<Process>,
        context: u64,
        group: Group,
        rank: u32,
        errhandler: Errhandler,
    ) -> Self {
        let (members, peers) = ((group.clone(), rank), group);
        let comm = Self::assemble(process, context, members, peers, None, None, errhandler);
        comm.find_vci();
        comm
    }

    /// Makes an intercommunicator; this process is in the pair's local group.
    pub(crate) fn between(
        process: &Arc<Process>,
        context: u64,
        pair: GroupPair,
        errhandler: Errhandler,
    ) -> Self {
        let (group, peers, halves) = (pair.local().clone(), pair.remote().clone(), pair.halves());
        let rank = group.rank_of(process.own_peer()).unwrap_or(0);
        let (all, place) = (pair.merged(), halves.local.start + rank);
        let (members, halves) = ((all.clone(), place), Some(halves));
        let merged =
            Self::assemble(process, context, members, all, None, halves, errhandler.clone());
        merged.find_vci();
        let (members, inter) = ((group, rank), Some((pair, merged)));
        let comm = Self::assemble(process, context, members, peers, inter, None, errhandler);
        comm.find_vci();
        comm
    }

    fn assemble(
        process: &Arc<Process>,
        context: u64,
        (group, rank): (Group, u32),
        peers: Group,
        inter: Option<(GroupPair, Self)>,
        halves: Option<Groups>,
        errhandler: Errhandler,
    ) -> Self {
        let collectives = match halves {
            Some(_) => Collectives::without_shm_coll(),
            None => Collectives::default(),
        };
        let all = inter.as_ref().map_or_else(|| group.clone(), |(pair, _)| pair.merged());
        let failures = Failures::of(all, peers.clone());
        Self(Arc::new(Inner {
            process: Arc::clone(process),
            context: AtomicU64::new(context),
            vci: CommVci::default(),
            rank,
            size: group.size(),
            group,
            peer_count: AtomicU32::new(peers.size()),
            peers,
            inter,
            halves,
            collectives,
            handle: OnceLock::new(),
            is_freed: AtomicBool::new(false),
            buffer: buffer::Place::default(),
            topology: OnceLock::new(),
            places: OnceLock::new(),
            surroundings: OnceLock::new(),
            details: Mutex::new(Details {
                name: Vec::new(),
                errhandler,
                has_set_errhandler: false,
                attributes: Attributes::default(),
                other_jobs: Vec::new(),
                assertions: Assertions::default(),
            }),
            failures,
        }))
    }

    /// The process that it belongs to.
    pub fn process(&self) -> &Arc<Process> {
        &self.0.process
    }

    /// The context of point-to-point messages.
    #[inline]
    pub fn context(&self) -> u64 {
        self.0.context.load(Ordering::Relaxed)
    }

    /// The VCI of its messages.
    #[inline]
    pub fn vci(&self) -> Vci {
        self.0.vci.vci()
    }

    /// The progress engine that carries its messages.
    #[inline]
    pub fn progress(&self) -> &Progress {
        self.0.vci.progress(&*self.0.process)
    }

    /// Assigns the VCI.
    fn find_vci(&self) {
        let peers = self.group().iter().chain(self.0.peers.iter());
        self.0.vci.settle(self.process().vci_of(self.context(), peers));
    }

    /// The context of collective messages.
    pub fn collective_context(&self) -> u64 {
        self.context() | 1
    }

    /// This process's rank.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Number of processes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.0.size
    }

    /// The members.
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// The members, as a group that derives from the communicator's session if it has one.
    pub fn derived_group(&self) -> Group {
        self.group().clone().of_session(self.process().session())
    }

    /// Number of processes that messages can address: the size of the group, or of the remote group, or none if the
    /// communicator is revoked.
    #[inline]
    pub fn peer_count(&self) -> u32 {
        // Relaxed suffices: a message after the revocation ends in the engine.
        self.0.peer_count.load(Ordering::Relaxed)
    }

    /// Lets `peer_count` be none, so that each call that names a peer sees that the communicator is revoked.
    pub(crate) fn end_addressing(&self) {
        self.0.peer_count.store(0, Ordering::Relaxed);
    }

    /// The peer of rank `rank`, which is below `peer_count`.
    #[inline]
    pub fn peer(&self, rank: u32) -> PeerId {
        self.0.peers.peer(rank)
    }

    /// The other group of an intercommunicator.
    pub fn remote_group(&self) -> Option<&Group> {
        self.pair().map(GroupPair::remote)
    }

    /// The two groups of an intercommunicator.
    pub(crate) fn pair(&self) -> Option<&GroupPair> {
        self.0.inter.as_ref().map(|(pair, _)| pair)
    }

    /// The merged communicator, on which an intercommunicator's collectives run.
    #[inline]
    pub(crate) fn merged(&self) -> Option<&Self> {
        self.0.inter.as_ref().map(|(_, merged)| merged)
    }

    /// The ranks of each group, if this is the merged communicator of an intercommunicator.
    #[inline]
    pub fn halves(&self) -> Option<&Groups> {
        self.0.halves.as_ref()
    }

    /// Exchanges internal point-to-point messages with peer `with`, which sends at most `room` bytes.
    pub(crate) fn swap(&self, with: u32, tag: i32, bytes: &[u8], room: usize) -> Result<Vec<u8>> {
        let (process, vci) = (self.process(), self.vci());
        let (context, group) = (self.context() | context::CREATION, &self.0.peers);
        Span { process, vci, context, tag, group, rank: self.rank() }.swap(with, bytes, room)
    }

    /// The communicator's handle.
    pub fn handle(&self) -> Handle {
        self.0.handle.get().copied().unwrap_or(NULL)
    }

    /// The name; empty until one is set.
    pub fn name(&self) -> Vec<u8> {
        self.details().name.clone()
    }

    /// Names the communicator for debuggers and messages.
    pub fn set_name(&self, name: &[u8]) {
        self.details().name = name.to_vec();
    }

    /// The error handler of this communicator.
    pub fn errhandler(&self) -> Errhandler {
        self.details().errhandler.clone()
    }

    /// Sets the error handler of this communicator.
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        let mut details = self.details();
        details.errhandler = errhandler;
        details.has_set_errhandler = true;
    }

    /// True once the application has set the error handler of this communicator.
    pub fn has_set_errhandler(&self) -> bool {
        self.details().has_set_errhandler
    }

    /// The buffer attached for buffered sends on this communicator, if any.
    pub fn buffer(&self) -> &buffer::Place {
        &self.0.buffer
    }

    /// The process topology, if the communicator has one.
    pub fn topology(&self) -> Option<&Arc<Topology>> {
        self.0.topology.get()
    }

    /// Attaches a topology to a new communicator.
    pub(crate) fn with_topology(self, topology: impl Into<Arc<Topology>>) -> Self {
        // A new communicator has none yet.
        let _ = self.0.topology.set(topology.into());
        self
    }

    /// The nodes and sites of the members, from which collectives are planned.
    #[inline]
    pub fn places(&self) -> &plan::Topology {
        match self.0.places.get() {
            Some(places) => places,
            None => self.find_places(),
        }
    }

    /// State of its collectives.
    #[inline]
    pub(crate) fn collectives(&self) -> &Collectives {
        &self.0.collectives
    }

    #[cold]
    fn find_places(&self) -> &plan::Topology {
        self.0.places.get_or_init(|| self.locate())
    }

    fn locate(&self) -> plan::Topology {
        let (process, no_pairs) = (self.process(), plan::Pairs::default());
        let (is_oversubscribed, costs, pairs, plans) = match self.surroundings() {
            // Choices of one job's user mean nothing to the other's.
            Some(it) => (it.is_oversubscribed, it.costs, &no_pairs, Arc::default()),
            None => {
                let costs = *process.costs();
                (process.is_oversubscribed(), costs, process.pairs(), process.plans().clone())
            }
        };
        let places = if self.site_map().nodes() == 1 {
            plan::Topology::flat(self.size(), is_oversubscribed, costs)
        } else {
            let locations: Vec<plan::Location> =
                (0..self.size()).map(|rank| self.location(rank)).collect();
            plan::Topology::with_pairs(&locations, is_oversubscribed, costs, pairs)
        };
        places.with_plans(plans)
    }

    /// Nodes and sites of the members, if some are of other jobs.
    fn surroundings(&self) -> Option<&Surroundings> {
        let find = || {
            let (process, group) = (self.process(), self.group());
            let is_mixed = group.iter().any(|peer| !process.is_of_job(peer));
            // The meeting in which they became peers has told their contacts.
            let found = || process.surroundings(group.iter()).ok().map(Box::new);
            is_mixed.then(found).flatten()
        };
        self.0.surroundings.get_or_init(find).as_deref()
    }

    /// Nodes and sites: of the members, or of the whole job if all members are of it.
    pub(crate) fn site_map(&self) -> &SiteMap {
        self.surroundings().map_or_else(|| self.process().sites(), |it| &it.sites)
    }

    /// Node and site of a member. The numbers only tell nodes and sites apart.
    pub fn location(&self, rank: u32) -> plan::Location {
        match self.surroundings() {
            Some(it) => plan::Location { node: it.sites.node(rank), site: it.sites.site(rank) },
            None => {
                let (process, peer) = (self.process(), self.group().peer(rank));
                plan::Location { node: process.node(peer), site: process.site(peer) }
            }
        }
    }

    /// Runs `access` on the attributes. Callbacks must not run inside it.
    pub fn with_attributes<T>(&self, access: impl FnOnce(&mut Attributes) -> T) -> T {
        access(&mut self.details().attributes)
    }

    /// Compares this communicator to `other` (MPI-5.0 §7.4.1).
    pub fn compare(&self, other: &Self) -> Comparison {
        if self.context() == other.context() {
            return Comparison::Identical;
        }
        match (self.pair(), other.pair()) {
            (Some(one), Some(other)) => return self.compare_pairs(one, other),
            (Some(_), None) | (None, Some(_)) => return Comparison::Unequal,
            (None, None) => {}
        }
        match self.group().compare(other.group()) {
            Comparison::Identical => Comparison::Congruent,
            comparison => comparison,
        }
    }

    /// Makes a communicator of the same group and topology (collective). The caller copies attributes.
    ///
    /// # Errors
    /// A peer failed, or the table of communicators is full.
    pub fn duplicate(&self) -> Result<Self> {
        let copy = self.duplicate_plain()?;
        Ok(match self.topology() {
            Some(topology) => copy.with_topology(Arc::clone(topology)),
            None => copy,
        })
    }

    /// [`Comm::duplicate`] without the topology.
    pub(crate) fn duplicate_plain(&self) -> Result<Self> {
        let mine = self.process().draw_context().to_le_bytes();
        let received = exchange::broadcast(self, Routine::CommDup, mine)?;
        let (context, errhandler) = (u64::from_le_bytes(received), self.errhandler());
        let copy = match self.pair() {
            Some(pair) => Self::between(self.process(), context, pair.clone(), errhandler),
            None => {
                Self::new(self.process(), context, self.group().clone(), self.rank(), errhandler)
            }
        };
        copy.register()
    }

    /// Nonblocking [`Comm::duplicate`]: returns the copy at once, which is usable when the request completes, and the VCI
    /// that carries the request.
    ///
    /// # Errors
    /// Those of [`Comm::duplicate`].
    pub fn begin_duplicate(&self) -> Result<(Self, Request, Vci)> {
        let call = collective::call(CommRef::Derived(self.clone()), Form::Nonblocking);
        call.note_arguments(|| CallArguments::new(Routine::CommIdup, None, None, None));
        let process = self.process();
        let mine = if call.rank() == 0 { process.draw_context() } else { 0 };
        let received = Region::from_box(Box::new(mine.to_le_bytes()));
        let copy = match self.pair() {
            Some(pair) => Self::between(process, mine, pair.clone(), self.errhandler()),
            None => Self::new(process, mine, self.group().clone(), self.rank(), self.errhandler()),
        };
        let copy = copy.enter_table()?;
        let copy = match self.topology() {
            Some(topology) => copy.with_topology(Arc::clone(topology)),
            None => copy,
        };
        let shape = Shape::of(Routine::Bcast).with_len(8);
        let schedule = call.plan(shape, |rank, places| plan::broadcast(rank, places, 0, 8));
        let (heard, made) = (received.clone(), copy.clone());
        let settle = move |is_ok| {
            if is_ok {
                let bytes = heard.to_vec().try_into().unwrap_or_default();
                made.settle_context(u64::from_le_bytes(bytes));
                made.learn_of_revocation();
            }
        };
        let copying = call.bytes(schedule, Region::empty(), received);
        let vci = copying.team().vci();
        Ok((copy, collective::begin_with_end(copying, Box::new(settle)), vci))
    }

    fn settle_context(&self, context: u64) {
        // Relaxed suffices: a thread uses the communicator only after it has seen the creating request complete.
        self.0.context.store(context, Ordering::Relaxed);
        self.find_vci();
        if let Some(merged) = self.merged() {
            merged.settle_context(context);
        }
    }

    /// Makes a communicator of `group`, a subset of this one's (collective over this communicator);
    /// `None` for processes outside.
    ///
    /// # Errors
    /// `MPI_ERR_GROUP` when the group has members from outside this communicator.
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        self.check_within(group)?;
        if self.merged().is_some() {
            return self.create_between(group);
        }
        self.create_distinct(group)
    }

    /// Checks that all members of a group are in this communicator.
    fn check_within(&self, group: &Group) -> Result<()> {
        let stranger = group.iter().find(|&peer| self.group().rank_of(peer).is_none());
        stranger.map_or(Ok(()), |stranger| {
            let name = self.process().peer_name(stranger);
            let message = format!("{name} is not in the communicator");
            Err(Error::new(ErrorClass::Group, message))
        })
    }

    /// Makes disjoint communicators, one per `color`, ordered by `key` and then by rank (collective);
    /// `None` if `color` is `None`.
    ///
    /// # Errors
    /// A peer failed, or the table of communicators is full.
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Self>> {
        let context = self.process().draw_context();
        let mine = Wish { color, key, context }.emit();
        let received = exchange::allgather(self, Routine::CommSplit, mine)?;
        let all: Vec<Wish> = received.iter().map(Wish::parse).collect();
        if color.is_none() {
            return Ok(None);
        }
        let alike = (0..).zip(&all).filter(|(_, wish)| wish.color == color);
        let mut members: Vec<(i32, u32)> = alike.map(|(rank, wish)| (wish.key, rank)).collect();
        members.sort_unstable();
        let ranks: Vec<u32> = members.into_iter().map(|(_, rank)| rank).collect();
        let drawn = |rank: u32| all[rank as usize].context;
        if self.merged().is_some() {
            return self.select(&ranks, drawn);
        }
        let context = ranks.first().map_or(context, |&leader| drawn(leader));
        let group = Group::of(ranks.iter().map(|&rank| self.group().peer(rank)).collect());
        self.part(context, &group)
    }

    /// Finds the processes, of both groups if there are two, that share memory (collective). Processes of different
    /// sites may share memory.
    ///
    /// # Errors
    /// A peer failed.
    pub fn nodes(&self) -> Result<Nodes> {
        let mine = self.node_number().to_le_bytes();
        let all = exchange::allgather(self, Routine::CommSplit, mine)?;
        // This process is one of all.
        let first = all.iter().position(|other| *other == mine).unwrap_or(0);
        Ok(Nodes { first: first as i32, several: all.iter().any(|other| *other != mine) })
    }

    /// Number of this process's node: the same for all processes that share memory.
    pub(crate) fn node_number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.process().node_identity());
        hasher.finish()
    }

    /// Makes a communicator of `group`, called by its members only (MPI-5.0 §7.4.2, `create_group`).
    ///
    /// # Errors
    /// Those of [`Comm::create`].
    pub fn create_group(&self, group: &Group, tag: i32) -> Result<Option<Self>> {
        let process = self.process();
        let Some(rank) = group.rank_of(process.own_peer()) else { return Ok(None) };
        self.check_within(group)?;
        let mine = if rank == 0 { process.draw_context().to_le_bytes() } else { [0; 8] };
        let (vci, context) = (self.vci(), self.context() | context::CREATION);
        let span = Span { process, vci, context, tag, group, rank };
        let context = span.broadcast(&mine)?;
        let context = u64::from_le_bytes(context.try_into().map_err(|_| strange_length())?);
        let comm = Self::new(process, context, group.clone(), rank, self.errhandler());
        comm.register().map(Some)
    }

    /// Makes a communicator of the group that each process passes; groups of different processes are equal or
    /// disjoint (collective).
    pub(crate) fn create_distinct(&self, group: &Group) -> Result<Option<Self>> {
        let mine = self.process().draw_context().to_le_bytes();
        let drawn = exchange::allgather(self, Routine::CommCreate, mine)?;
        let leader = group.iter().next().and_then(|peer| self.group().rank_of(peer));
        let context = leader.map_or(mine, |rank| drawn[rank as usize]);
        self.part(u64::from_le_bytes(context), group)
    }

    /// Makes a communicator of some of this one's processes; `None` if this process is not a member.
    pub(crate) fn part(&self, context: u64, group: &Group) -> Result<Option<Self>> {
        let process = self.process();
        let Some(rank) = group.rank_of(process.own_peer()) else { return Ok(None) };
        Self::new(process, context, group.clone(), rank, self.errhandler()).register().map(Some)
    }

    pub(crate) fn register(self) -> Result<Self> {
        let comm = self.enter_table()?;
        comm.learn_of_revocation();
        Ok(comm)
    }

    /// Gives the communicator a handle. Its context, and so its VCI, need not be settled yet.
    fn enter_table(self) -> Result<Self> {
        let handle = COMMS.insert(self.clone())?;
        self.set_handle(handle);
        record::note_context(self.context(), self.size());
        self.join_jobs();
        Ok(self)
    }

    fn set_handle(&self, handle: Handle) {
        // A new communicator has no handle yet.
        let _ = self.0.handle.set(handle);
        failures::register(handle, &self.0.failures);
        if let Some(merged) = self.merged() {
            // Failures on the merged communicator are raised on the intercommunicator.
            let _ = merged.0.handle.set(handle);
        }
    }

    /// Reserves a handle for a communicator that is yet to be made. Until then it names a copy of this one that cannot
    /// communicate.
    pub(crate) fn reserve_handle(&self) -> Result<Handle> {
        let context = self.process().draw_context();
        let copy = Self::new(
            self.process(),
            context,
            self.group().clone(),
            self.rank(),
            self.errhandler(),
        );
        copy.end_addressing();
        copy.0.is_freed.store(true, Ordering::Relaxed);
        Ok(COMMS.insert(copy)?)
    }

    /// Gives a new communicator the handle that was reserved for it.
    pub(crate) fn take_handle(self, reserved: Handle) -> Result<()> {
        self.set_handle(reserved);
        record::note_context(self.context(), self.size());
        *COMMS.lock().find(reserved)? = self.clone();
        self.join_jobs();
        self.learn_of_revocation();
        Ok(())
    }

    /// Frees the handle. Pending operations keep the communicator alive.
    ///
    /// # Errors
    /// `MPI_ERR_COMM` for predefined communicators and for a handle already freed.
    pub fn free(&self) -> Result<()> {
        if self.handle().is_predefined() {
            return Err(Error::new(ErrorClass::Comm, "a predefined communicator cannot be freed"));
        }
        COMMS.remove(self.handle())?;
        if self.details().assertions.allows_overtaking() {
            self.set_overtaking(false);
        }
        failures::forget(self.handle());
        self.0.is_freed.store(true, Ordering::Relaxed);
        self.part_jobs();
        Ok(())
    }

    /// Sets the other jobs that members are of; returns the former value.
    pub(crate) fn replace_other_jobs(&self, jobs: Vec<u64>) -> Vec<u64> {
        mem::replace(&mut self.details().other_jobs, jobs)
    }

    /// True until the handle is freed.
    #[inline]
    pub fn is_live(&self) -> bool {
        !self.0.is_freed.load(Ordering::Relaxed)
    }

    /// Failures of its members.
    pub(crate) fn failures(&self) -> &Failures {
        &self.0.failures
    }

    fn details(&self) -> MutexGuard<'_, Details> {
        self.0.details.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// A communicator found by its handle. Predefined communicators are borrowed, which saves the
/// reference count.
#[derive(Clone, Debug)]
pub enum CommRef {
    /// `MPI_COMM_WORLD` or `MPI_COMM_SELF`.
    Predefined(&'static Comm),
    /// Any other.
    Derived(Comm),
}

impl Deref for CommRef {
    type Target = Comm;

    #[inline]
    fn deref(&self) -> &Comm {
        match self {
            Self::Predefined(comm) => comm,
            Self::Derived(comm) => comm,
        }
    }
}

/// The communicator behind the handle of one that is not predefined.
///
/// # Errors
/// `MPI_ERR_COMM` for the null, a stale or a foreign handle.
pub fn find(handle: Handle) -> Result<Comm> {
    match handle {
        NULL => Err(Error::new(ErrorClass::Comm, "the communicator is MPI_COMM_NULL")),
        _ => Ok(COMMS.find(handle)?),
    }
}

/// The handle whose Fortran integer is `value`.
pub fn from_int(value: i32) -> Handle {
    COMMS.from_int(value)
}

/// Drops all communicators; their handles are stale.
pub(crate) fn clear() {
    free_where(|_| true);
}

/// Frees all communicators of which this is true.
pub(crate) fn free_where(is_it: impl Fn(&Comm) -> bool) {
    while find_where(&is_it).is_some_and(|comm| comm.free().is_ok()) {}
}

/// A communicator of which this is true.
pub(crate) fn find_where(is_it: impl Fn(&Comm) -> bool) -> Option<Comm> {
    COMMS.find_where(is_it)
}

#[cold]
fn strange_length() -> Error {
    Error::new(ErrorClass::Intern, "a context number of another length arrived")
}

/// `MPI_COMM_NULL`.
pub const NULL: Handle = Handle(0x100);
/// `MPI_COMM_WORLD`.
pub const WORLD: Handle = Handle(0x101);
/// `MPI_COMM_SELF`.
pub const SELF: Handle = Handle(0x102);

/// Info key of the kinds of memory that the library accepts in buffers (MPI-5.0 §12.4.3).
pub(crate) const MEMORY_KINDS: &str = "mpi_memory_alloc_kinds";

/// Info key of the topology used in collective plans, for tools (`plan::Topology` as text).
const PLACES: &str = "canele_places";

/// Locked after the worker.
static COMMS: Table<Comm> = Table::new(Kind::Comm);
