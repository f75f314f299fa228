//! Communicators: a group and a context of their own (MPI-5.0 §7.4).

use std::hash::{DefaultHasher, Hasher};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use memory::Region;
use plan::{Groups, Schedule};
use progress::Progress;
use wire::PeerId;

use crate::attribute::Attributes;
use crate::buffer;
use crate::check::Told;
use crate::collective::Call;
use crate::errhandler::Errhandler;
use crate::exchange::{self, Span};
use crate::group::{Comparison, Group};
use crate::info::Info;
use crate::inter::Pair;
use crate::plans::{Listed, Operation, Plans, Shape};
use crate::process::{self, Process};
use crate::record;
use crate::request::Request;
use crate::shm_coll::Seat;
use crate::table::{Handle, Kind, Table};
use crate::topology::Topology;
use crate::vci::{Place, Vci};
use crate::{Error, ErrorClass, Result};

/// A communicator of this process. Clones are the same communicator.
#[derive(Clone, Debug)]
pub struct Comm(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Point-to-point messages carry this number, collectives the next one up; unique in the job:
    /// `leader's rank in the job << 34 | counter << 2`, where the leader is rank 0 of the group. Set once, by
    /// the end of what makes the communicator.
    context: AtomicU64,
    /// Where it lies; set with the context.
    place: Place,
    rank: u32,
    /// As the group says.
    size: u32,
    group: Group,
    /// Whom point-to-point messages go to: the group or, from an intercommunicator, the other one.
    peers: Group,
    /// As `peers` say.
    peer_count: u32,
    /// Of an intercommunicator: its two groups, and the merged communicator.
    inter: Option<(Pair, Comm)>,
    /// Of a merged communicator: which ranks are whose.
    halves: Option<Groups>,
    /// How many collectives there were, by their form.
    collectives: [AtomicI32; 3],
    handle: OnceLock<Handle>,
    /// The handle was given back.
    is_freed: AtomicBool,
    buffer: buffer::Place,
    topology: OnceLock<Arc<Topology>>,
    places: OnceLock<plan::Topology>,
    plans: Plans,
    /// The seat at its shared segment, once that was to be founded, if it was.
    seat: OnceLock<Option<Seat>>,
    details: Mutex<Details>,
}

/// What is seldom asked for.
#[derive(Debug)]
struct Details {
    name: Vec<u8>,
    errhandler: Errhandler,
    attributes: Attributes,
    /// Which of [`ASSERTIONS`] the application makes.
    assertions: [bool; ASSERTIONS.len()],
}

impl Comm {
    /// `MPI_COMM_WORLD` of a job of `size` processes, seen from `rank`.
    pub(crate) fn world(rank: u32, size: u32) -> Self {
        let comm = Self::new(WORLD_CONTEXT, Group::world(size), rank, Errhandler::Fatal);
        comm.set_name(b"MPI_COMM_WORLD");
        // A new communicator has no handle yet.
        let _ = comm.0.handle.set(WORLD);
        comm
    }

    /// `MPI_COMM_SELF` of process `rank`.
    pub(crate) fn myself(rank: u32) -> Self {
        let context = context_of(rank, 1);
        let comm = Self::new(context, Group::of(vec![rank]), 0, Errhandler::Fatal);
        comm.set_name(b"MPI_COMM_SELF");
        // As above.
        let _ = comm.0.handle.set(SELF);
        comm
    }

    pub(crate) fn new(context: u64, group: Group, rank: u32, errhandler: Errhandler) -> Self {
        let peers = group.clone();
        Self::assemble(context, (group, rank), peers, None, None, errhandler)
    }

    /// An intercommunicator of this process, which is in its group of the pair.
    pub(crate) fn between(context: u64, pair: Pair, errhandler: Errhandler) -> Self {
        let (group, peers, halves) = (pair.local().clone(), pair.remote().clone(), pair.halves());
        let own = process::current().map_or(0, |process| process.rank());
        let rank = group.rank_of(own).unwrap_or(0);
        let (all, place) = (pair.merged(), halves.local.start + rank);
        let merged = Self::assemble(
            context,
            (all.clone(), place),
            all,
            None,
            Some(halves),
            errhandler.clone(),
        );
        Self::assemble(context, (group, rank), peers, Some((pair, merged)), None, errhandler)
    }

    fn assemble(
        context: u64,
        (group, rank): (Group, u32),
        peers: Group,
        inter: Option<(Pair, Self)>,
        halves: Option<Groups>,
        errhandler: Errhandler,
    ) -> Self {
        let comm = Self(Arc::new(Inner {
            context: AtomicU64::new(context),
            place: Place::default(),
            rank,
            size: group.size(),
            group,
            peer_count: peers.size(),
            peers,
            inter,
            halves,
            collectives: Default::default(),
            handle: OnceLock::new(),
            is_freed: AtomicBool::new(false),
            buffer: buffer::Place::default(),
            topology: OnceLock::new(),
            places: OnceLock::new(),
            plans: Plans::default(),
            seat: OnceLock::new(),
            details: Mutex::new(Details {
                name: Vec::new(),
                errhandler,
                attributes: Attributes::default(),
                assertions: [false; ASSERTIONS.len()],
            }),
        }));
        comm.find_vci();
        comm
    }

    /// The context of point-to-point messages.
    #[inline]
    pub fn context(&self) -> u64 {
        self.0.context.load(Ordering::Relaxed)
    }

    /// The vci of its messages.
    #[inline]
    pub fn vci(&self) -> Vci {
        self.0.place.vci()
    }

    /// What its messages go by.
    ///
    /// # Errors
    /// When not initialised.
    #[inline]
    pub fn progress(&self) -> Result<&'static Progress> {
        self.0.place.progress()
    }

    /// Those that there are from the beginning are in the first, for the process is not in its job yet.
    fn find_vci(&self) {
        let Ok(process) = process::current() else { return };
        let ranks = self.group().iter().chain(self.0.peers.iter());
        self.0.place.settle(Vci::of(process, self.context(), ranks));
    }

    /// The context of collective messages.
    pub fn collective_context(&self) -> u64 {
        self.context() | 1
    }

    /// Whether the messages of a context are those of collectives.
    pub(crate) fn has_collectives_in(context: u64) -> bool {
        context & (1 | GROUP_CONTEXT) == 1 && context >> 63 == 0
    }

    /// The communicator's context, if a message of `context` belongs to a collective on it, or to making a
    /// communicator from it. The native interface has contexts of its own.
    pub(crate) fn context_if_collective(context: u64) -> Option<u64> {
        let is_ours = context & (1 | GROUP_CONTEXT) != 0 && context >> 63 == 0;
        is_ours.then_some(context & !(1 | GROUP_CONTEXT))
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

    /// How many processes messages can go to: as many as are in the group, or in the other.
    #[inline]
    pub fn peer_count(&self) -> u32 {
        self.0.peer_count
    }

    /// The way to peer `rank`, which is below `peer_count`.
    #[inline]
    pub fn peer(&self, rank: u32) -> PeerId {
        PeerId(self.0.peers.world_rank(rank))
    }

    /// The other group of an intercommunicator.
    pub fn remote_group(&self) -> Option<&Group> {
        self.pair().map(Pair::remote)
    }

    /// The two groups of an intercommunicator.
    pub(crate) fn pair(&self) -> Option<&Pair> {
        self.0.inter.as_ref().map(|(pair, _)| pair)
    }

    /// What the collectives of an intercommunicator run on.
    #[inline]
    pub(crate) fn merged(&self) -> Option<&Self> {
        self.0.inter.as_ref().map(|(_, merged)| merged)
    }

    /// Which ranks are of which group, where this is what the collectives of an intercommunicator run on.
    #[inline]
    pub fn halves(&self) -> Option<&Groups> {
        self.0.halves.as_ref()
    }

    /// Point-to-point messages of the library's own: to peer `with`, and from it.
    pub(crate) fn swap(&self, with: u32, tag: i32, bytes: &[u8]) -> Result<Vec<u8>> {
        let (vci, context) = (self.vci(), self.context() | GROUP_CONTEXT);
        Span { vci, context, tag, group: &self.0.peers, rank: self.rank() }.swap(with, bytes)
    }

    /// The communicator's handle.
    pub fn handle(&self) -> Handle {
        self.0.handle.get().copied().unwrap_or(NULL)
    }

    /// The number of the next collective of its form on this communicator, which its messages carry as
    /// tag. Those of different forms never match (MPI-5.0 §6.12), whatever the order of the calls; and
    /// one that is kept may meet others that have come round to its count.
    #[inline]
    pub fn next_collective(&self, form: Form) -> i32 {
        let count = self.0.collectives[form as usize].fetch_add(1, Ordering::Relaxed);
        match form {
            Form::Blocking => count & (BEGUN - 1),
            Form::Begun => BEGUN | count & (BEGUN - 1),
            Form::Kept => !(count & (BEGUN - 1)),
        }
    }

    /// The name; empty until one is set.
    pub fn name(&self) -> Vec<u8> {
        self.details().name.clone()
    }

    /// Names the communicator for debuggers and messages.
    pub fn set_name(&self, name: &[u8]) {
        self.details().name = name.to_vec();
    }

    /// Who gets the errors raised on this communicator.
    pub fn errhandler(&self) -> Errhandler {
        self.details().errhandler.clone()
    }

    /// Sets who gets the errors raised on this communicator.
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        self.details().errhandler = errhandler;
    }

    /// The hints that hold for this communicator: every one the library knows, with its default where
    /// none was given, and, where it is short enough, what collectives are planned from. The assertions are kept for the application; none has an effect yet.
    pub fn info(&self) -> Result<Info> {
        let info = Info::default();
        for (assertion, holds) in ASSERTIONS.iter().zip(self.details().assertions) {
            info.set(assertion, if holds { "true" } else { "false" })?;
        }
        info.set(MEMORY_KINDS.0, MEMORY_KINDS.1)?;
        let places = self.seat().map_or(self.places()?, |seat| &seat.places).to_string();
        if places.len() < crate::info::VALUE_MAX {
            info.set(PLACES, &places)?;
        }
        Ok(info)
    }

    /// Takes the hints it knows; those that `info` does not give stay as they are (MPI-5.0 §7.4.4).
    pub fn set_info(&self, info: &Info) {
        let mut details = self.details();
        for (assertion, holds) in ASSERTIONS.iter().zip(&mut details.assertions) {
            match info.value(assertion).ok().flatten().as_deref() {
                Some("true") => *holds = true,
                Some("false") => *holds = false,
                // A value that means nothing is as good as no hint.
                Some(_) | None => {}
            }
        }
    }

    /// Where a buffer for buffered sends on this communicator can be attached.
    pub fn buffer(&self) -> &buffer::Place {
        &self.0.buffer
    }

    /// Who is whose neighbour, if that was told.
    pub fn topology(&self) -> Option<&Arc<Topology>> {
        self.0.topology.get()
    }

    /// The communicator, just made, with a topology.
    pub(crate) fn with_topology(self, topology: impl Into<Arc<Topology>>) -> Self {
        // A new communicator has none yet.
        let _ = self.0.topology.set(topology.into());
        self
    }

    /// Where the members run: what collectives are planned from.
    ///
    /// # Errors
    /// When not initialised.
    #[inline]
    pub fn places(&self) -> Result<&plan::Topology> {
        match self.0.places.get() {
            Some(places) => Ok(places),
            None => self.find_places(),
        }
    }

    /// What this process does in a collective of this shape: planned by `make` unless it has been lately.
    ///
    /// # Errors
    /// As [`Comm::places`].
    #[inline]
    pub fn plan(
        &self,
        shape: Shape,
        make: impl FnOnce(u32, &plan::Topology) -> Schedule,
    ) -> Result<Arc<Schedule>> {
        let places = self.places_of(shape)?;
        Ok(self.0.plans.find(shape, || make(self.rank(), places)))
    }

    /// As [`Comm::plan`], of blocks of such lengths.
    ///
    /// # Errors
    /// As [`Comm::places`].
    pub fn plan_listed(
        &self,
        shape: Shape,
        listed: Listed<'_>,
        make: impl FnOnce(u32, &plan::Topology) -> Schedule,
    ) -> Result<Arc<Schedule>> {
        let places = self.places_of(shape)?;
        Ok(self.0.plans.find_listed(shape, listed, || make(self.rank(), places)))
    }

    #[inline]
    fn places_of(&self, shape: Shape) -> Result<&plan::Topology> {
        match shape.in_shm_coll.then(|| self.seat()).flatten() {
            Some(seat) => Ok(&seat.places),
            None => self.places(),
        }
    }

    /// Founds a shared segment with all processes, if it can be, in their collective `tag`.
    pub(crate) fn found_shm_coll(&self, tag: i32) {
        if self.0.seat.get().is_none() {
            // One thread at a time calls collectives on a communicator.
            let _ = self.0.seat.set(Seat::found(self, tag));
        }
    }

    /// This process's seat at the shared segment, if there is one.
    #[inline]
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.0.seat.get().and_then(Option::as_ref)
    }

    #[cold]
    fn find_places(&self) -> Result<&plan::Topology> {
        let process = process::current()?;
        let (map, is_oversubscribed) = (process.sites(), process.is_oversubscribed());
        let find = || {
            let costs = *process.costs();
            let places = if map.nodes() == 1 {
                plan::Topology::flat(self.size(), is_oversubscribed, costs)
            } else {
                let locate = |rank| plan::Location { node: map.node(rank), site: map.site(rank) };
                let locations: Vec<plan::Location> = self.group().iter().map(locate).collect();
                plan::Topology::with_pairs(&locations, is_oversubscribed, costs, process.pairs())
            };
            places.with_plans(process.plans().clone())
        };
        Ok(self.0.places.get_or_init(find))
    }

    /// Runs `access` on the attributes. Callbacks must not run inside it.
    pub fn with_attributes<T>(&self, access: impl FnOnce(&mut Attributes) -> T) -> T {
        access(&mut self.details().attributes)
    }

    /// How this communicator relates to `other` (MPI-5.0 §7.4.1).
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

    /// A communicator of the same group and topology (collective). Attributes are the caller's affair.
    ///
    /// # Errors
    /// When a peer fails, or no more communicators fit.
    pub fn duplicate(&self) -> Result<Self> {
        let copy = self.duplicate_plain()?;
        Ok(match self.topology() {
            Some(topology) => copy.with_topology(Arc::clone(topology)),
            None => copy,
        })
    }

    /// As [`Comm::duplicate`], without the topology.
    pub(crate) fn duplicate_plain(&self) -> Result<Self> {
        let mine = draw_context(process::current()?).to_le_bytes();
        let told = exchange::broadcast(self, Operation::CommDup, mine)?;
        let (context, errhandler) = (u64::from_le_bytes(told), self.errhandler());
        let copy = match self.pair() {
            Some(pair) => Self::between(context, pair.clone(), errhandler),
            None => Self::new(context, self.group().clone(), self.rank(), errhandler),
        };
        copy.register()
    }

    /// As [`Comm::duplicate`], begun: the copy is made at once, and can be used when the request has ended.
    ///
    /// # Errors
    /// As [`Comm::duplicate`].
    pub fn begin_duplicate(&self) -> Result<(Self, Request)> {
        let call = Call::new(CommRef::Derived(self.clone()), Form::Begun);
        call.tell(|| Told::new(Operation::CommIdup, None, None, None));
        let process = process::current()?;
        let mine = if call.rank() == 0 { draw_context(process) } else { 0 };
        let told = Region::from_box(Box::new(mine.to_le_bytes()));
        let copy = match self.pair() {
            Some(pair) => Self::between(mine, pair.clone(), self.errhandler()),
            None => Self::new(mine, self.group().clone(), self.rank(), self.errhandler()),
        };
        let copy = copy.register()?;
        let copy = match self.topology() {
            Some(topology) => copy.with_topology(Arc::clone(topology)),
            None => copy,
        };
        let shape = Shape::of(Operation::Bcast).with_len(8);
        let schedule = call.plan(shape, |rank, places| plan::broadcast(rank, places, 0, 8))?;
        let (heard, made) = (told.clone(), copy.clone());
        let settle = move || {
            let bytes = heard.to_vec().try_into().unwrap_or_default();
            made.settle_context(u64::from_le_bytes(bytes));
        };
        let collective = call.bytes(schedule, Region::empty(), told);
        Ok((copy, collective.begin_with_end(Box::new(settle))?))
    }

    fn settle_context(&self, context: u64) {
        // Whoever uses the communicator has seen the end of what made it.
        self.0.context.store(context, Ordering::Relaxed);
        self.find_vci();
        if let Some(merged) = self.merged() {
            merged.settle_context(context);
        }
    }

    /// A communicator of `group`, a subset of this one's (collective over this communicator);
    /// `None` for processes outside.
    ///
    /// # Errors
    /// `MPI_ERR_GROUP` when the group has members from outside this communicator.
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        if let Some(stranger) = group.iter().find(|&world| self.group().rank_of(world).is_none()) {
            let message = format!("process {stranger} of the group is not in the communicator");
            return Err(Error::new(ErrorClass::Group, message));
        }
        if self.merged().is_some() {
            return self.create_between(group);
        }
        self.create_distinct(group)
    }

    /// Disjoint communicators, one per `color`, ordered by `key` and then by rank (collective);
    /// `None` where `color` is.
    ///
    /// # Errors
    /// When a peer fails, or no more communicators fit.
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Self>> {
        let context = draw_context(process::current()?);
        let mine = Wish { color, key, context }.emit();
        let told = exchange::allgather(self, Operation::CommSplit, mine)?;
        let all: Vec<Wish> = told.iter().map(Wish::parse).collect();
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
        let group = Group::of(ranks.iter().map(|&rank| self.group().world_rank(rank)).collect());
        self.part(context, &group)
    }

    /// Which of the processes, of both groups if there are two, share memory (collective): some may do that are of several
    /// sites.
    ///
    /// # Errors
    /// When a peer fails.
    pub fn nodes(&self) -> Result<Nodes> {
        let mut hasher = DefaultHasher::new();
        hasher.write(process::current()?.node_identity());
        let mine = hasher.finish().to_le_bytes();
        let all = exchange::allgather(self, Operation::CommSplit, mine)?;
        // This process is one of all.
        let first = all.iter().position(|other| *other == mine).unwrap_or(0);
        Ok(Nodes { first: first as i32, several: all.iter().any(|other| *other != mine) })
    }

    /// A communicator of `group`, called by its members only (MPI-5.0 §7.4.2, `create_group`).
    ///
    /// # Errors
    /// As [`Comm::create`].
    pub fn create_group(&self, group: &Group, tag: i32) -> Result<Option<Self>> {
        let process = process::current()?;
        let Some(rank) = group.rank_of(process.rank()) else { return Ok(None) };
        if let Some(stranger) = group.iter().find(|&world| self.group().rank_of(world).is_none()) {
            let message = format!("process {stranger} of the group is not in the communicator");
            return Err(Error::new(ErrorClass::Group, message));
        }
        let mine = if rank == 0 { draw_context(process).to_le_bytes() } else { [0; 8] };
        let (vci, context) = (self.vci(), self.context() | GROUP_CONTEXT);
        let span = Span { vci, context, tag, group, rank };
        let context = span.broadcast(&mine)?;
        let context = u64::from_le_bytes(context.try_into().map_err(|_| strange_length())?);
        let comm = Self::new(context, group.clone(), rank, self.errhandler());
        comm.register().map(Some)
    }

    /// Every process of this communicator calls this with the group it will be in; groups of
    /// different processes are equal or disjoint.
    pub(crate) fn create_distinct(&self, group: &Group) -> Result<Option<Self>> {
        let mine = draw_context(process::current()?).to_le_bytes();
        let drawn = exchange::allgather(self, Operation::CommCreate, mine)?;
        let leader = group.iter().next().and_then(|world| self.group().rank_of(world));
        let context = leader.map_or(mine, |rank| drawn[rank as usize]);
        self.part(u64::from_le_bytes(context), group)
    }

    /// The communicator of a part of this one's processes; none where this process is not one of them.
    pub(crate) fn part(&self, context: u64, group: &Group) -> Result<Option<Self>> {
        let Some(rank) = group.rank_of(process::current()?.rank()) else { return Ok(None) };
        Self::new(context, group.clone(), rank, self.errhandler()).register().map(Some)
    }

    pub(crate) fn register(self) -> Result<Self> {
        let handle = COMMS.insert(self.clone())?;
        // A new communicator has no handle yet.
        let _ = self.0.handle.set(handle);
        record::note_comm(&self);
        if let Some(merged) = self.merged() {
            // Its failures are those of the intercommunicator.
            let _ = merged.0.handle.set(handle);
        }
        Ok(self)
    }

    /// Gives the handle back. Pending operations keep the communicator alive.
    ///
    /// # Errors
    /// `MPI_ERR_COMM` for the predefined ones and for one freed before.
    pub fn free(&self) -> Result<()> {
        if self.handle().is_predefined() {
            return Err(Error::new(ErrorClass::Comm, "a predefined communicator cannot be freed"));
        }
        COMMS.remove(self.handle())?;
        self.0.is_freed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether its handle leads to it still.
    #[inline]
    pub fn is_live(&self) -> bool {
        !self.0.is_freed.load(Ordering::Relaxed)
    }

    fn details(&self) -> MutexGuard<'_, Details> {
        self.0.details.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// The forms of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The call is the operation.
    Blocking,
    /// The call begins the operation.
    Begun,
    /// The call makes a request to be started again and again.
    Kept,
}

/// What a process says in a split of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    color: Option<i32>,
    key: i32,
    /// It draws a context number, which counts if it comes first in its part.
    context: u64,
}

impl Wish {
    fn emit(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&i32::from(self.color.is_some()).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.color.unwrap_or(0).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_le_bytes());
        bytes[12..].copy_from_slice(&self.context.to_le_bytes());
        bytes
    }

    fn parse(&[a, b, c, d, e, f, g, h, i, j, k, l, context @ ..]: &[u8; 20]) -> Self {
        let is_some = i32::from_le_bytes([a, b, c, d]) != 0;
        let color = is_some.then_some(i32::from_le_bytes([e, f, g, h]));
        let key = i32::from_le_bytes([i, j, k, l]);
        Self { color, key, context: u64::from_le_bytes(context) }
    }
}

/// Where the processes of a communicator run, seen from one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// The lowest rank that shares memory with this process.
    pub first: i32,
    /// Whether some process does not share memory with this one.
    pub several: bool,
}

/// A communicator found by its handle: borrowed for the predefined ones, so that they cost no
/// reference count.
#[derive(Debug)]
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

/// The communicator behind a handle.
///
/// # Errors
/// `MPI_ERR_COMM` for the null, a stale or a foreign handle; `MPI_ERR_OTHER` before initialisation.
#[inline(always)]
pub fn find(handle: Handle) -> Result<CommRef> {
    match handle {
        WORLD => Ok(CommRef::Predefined(process::current()?.world())),
        _ => find_other(handle),
    }
}

fn find_other(handle: Handle) -> Result<CommRef> {
    match handle {
        SELF => Ok(CommRef::Predefined(process::current()?.myself())),
        NULL => Err(Error::new(ErrorClass::Comm, "the communicator is MPI_COMM_NULL")),
        _ => {
            process::current()?;
            COMMS.find(handle).map(CommRef::Derived)
        }
    }
}

/// The handle whose Fortran integer is `value`.
pub fn from_int(value: i32) -> Handle {
    COMMS.from_int(value)
}

/// The processes of a communicator whose collectives have this context, as a ring that begins with `own`.
pub(crate) fn members(context: u64, own: u32) -> Option<Vec<PeerId>> {
    let is_it = |comm: &Comm| comm.collective_context() == context;
    let comm = COMMS.find_where(is_it)?;
    let comm = comm.merged().unwrap_or(&comm);
    let (size, rank) = (comm.size(), comm.group().rank_of(own)?);
    Some((0..size).map(|step| comm.peer((rank + step) % size)).collect())
}

pub(crate) fn draw_context(process: &Process) -> u64 {
    context_of(process.rank(), NEXT_CONTEXT.fetch_add(1, Ordering::Relaxed))
}

/// The bit between leader and counter is for messages of `create_group`, which must not meet the
/// application's; hence two bits below the counter.
fn context_of(leader: u32, counter: u32) -> u64 {
    u64::from(leader) << 34 | u64::from(counter) << 2
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

/// What an application may promise of a communicator (MPI-5.0 §7.4.4).
const ASSERTIONS: [&str; 5] = [
    "mpi_assert_no_any_tag",
    "mpi_assert_no_any_source",
    "mpi_assert_exact_length",
    "mpi_assert_allow_overtaking",
    "mpi_assert_strict_persistent_collective_ordering",
];

/// Memory that the library takes (MPI-5.0 §12.4.3).
const MEMORY_KINDS: (&str, &str) = ("mpi_memory_alloc_kinds", "mpi,system");

/// What collectives are planned from, for tools (`plan::Topology` as text).
const PLACES: &str = "canele_places";

/// The context of `MPI_COMM_WORLD`.
pub(crate) const WORLD_CONTEXT: u64 = 0;

const GROUP_CONTEXT: u64 = 2;

/// The bit in the tags of collectives that were begun.
const BEGUN: i32 = 1 << 30;

/// Locked after the core.
static COMMS: Table<Comm> = Table::new(Kind::Comm, ErrorClass::Comm);

/// Counters 0 and 1 are the predefined communicators'.
static NEXT_CONTEXT: AtomicU32 = AtomicU32::new(16);
