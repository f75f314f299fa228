//! Short blocks that travel together. An aggregate holds the blocks of a node, a site or all ranks
//! in the order of the grid, so that the blocks at a leader are adjacent. Within a node they go by
//! the shared segment if `shm` is given; all ranks of a node have it, or none.

use crate::algorithms::shmem::ShmAccess;
use crate::multisite::{RootRole, Route};
use crate::schedule::{Buffer, Schedule, Span, Ticket, starts};
use crate::topology::Levels;

/// Gathers every rank's block in everyone's output.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
    shm: Option<ShmAccess>,
) {
    let route = Route { levels, leader_index: 0, root_role: RootRole::None };
    let aggregate = Aggregate::new(schedule, levels, sizes, (0, levels.ranks().len() as u32), true);
    let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
    let before = || (0..me).map(sizes).sum();
    let own = match in_place {
        true => Buffer::Output.span(before(), sizes(me)),
        false => Buffer::Input.span(0, sizes(me)),
    };
    let whole = aggregate.span(0, levels.ranks().len() as u32);
    if me == site_leader {
        for node in route.other_nodes(me) {
            schedule.receive(route.node_leader(node), aggregate.node(node));
        }
    }
    if me == leader {
        aggregate.insert(schedule, own, me);
        aggregate.receive_near(schedule, &route, me, shm);
    } else {
        route.send_to_leader(schedule, me, own, shm);
        // Received data may overwrite the block.
        schedule.wait();
    }
    if me == site_leader {
        schedule.wait();
        for site in route.other_sites(me) {
            schedule.receive(route.site_leader(site), aggregate.site(site));
        }
        for site in route.next_sites(me) {
            schedule.send(route.site_leader(site), aggregate.site(levels.site(me)));
        }
        schedule.wait();
        route.other_nodes(me).for_each(|node| schedule.send(route.node_leader(node), whole));
    } else if me == leader {
        schedule.wait();
        schedule.send(site_leader, aggregate.node(levels.node(me)));
        schedule.wait();
        schedule.receive(site_leader, whole);
        schedule.wait();
    }
    match shm {
        Some(shm) => shm.broadcast(schedule, route.leader_position(me), whole),
        None if me == leader => route.neighbours(me).for_each(|rank| schedule.send(rank, whole)),
        None => schedule.receive(leader, whole),
    }
    schedule.wait();
    aggregate.unpack(schedule, sizes);
}

/// Gathers every rank's block of `len` bytes in the root's output.
pub(crate) fn gather(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    root: u32,
    len: u64,
    in_place: bool,
    shm: Option<ShmAccess>,
) {
    let route = Route { levels, leader_index: 0, root_role: RootRole::Site(root) };
    let own = match me == root && in_place {
        true => Buffer::Output.span(u64::from(root) * len, len),
        false => Buffer::Input.span(0, len),
    };
    let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
    if me != leader {
        route.send_to_leader(schedule, me, own, shm);
        return schedule.wait();
    }
    let aggregate = Aggregate::new(schedule, levels, &|_| len, route.reach(me), me == root);
    aggregate.insert(schedule, own, me);
    if me == site_leader {
        for node in route.other_nodes(me) {
            schedule.receive(route.node_leader(node), aggregate.node(node));
        }
    }
    if me == root {
        for site in route.other_sites(me) {
            schedule.receive(route.site_leader(site), aggregate.site(site));
        }
    }
    aggregate.receive_near(schedule, &route, me, shm);
    schedule.wait();
    if me == root {
        aggregate.unpack(schedule, &|_| len);
    } else if me == site_leader {
        schedule.send(root, aggregate.site(levels.site(me)));
    } else {
        schedule.send(site_leader, aggregate.node(levels.node(me)));
    }
    schedule.wait();
}

/// Sends blocks of `len` bytes of the root's input to everyone's output.
pub(crate) fn scatter(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    root: u32,
    len: u64,
    in_place: bool,
    shm: Option<ShmAccess>,
) {
    let route = Route { levels, leader_index: 0, root_role: RootRole::Site(root) };
    let own = Buffer::Output.span(0, len);
    let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
    if me != leader {
        match shm {
            Some(shm) => shm.scatter(schedule, route.leader_position(me), own, own),
            None => schedule.receive(leader, own),
        }
        return schedule.wait();
    }
    let aggregate = Aggregate::new(schedule, levels, &|_| len, route.reach(me), false);
    if me == root {
        aggregate.pack(schedule, &|_| len);
        for site in route.other_sites(me) {
            schedule.send(route.site_leader(site), aggregate.site(site));
        }
    } else if me == site_leader {
        schedule.receive(root, aggregate.site(levels.site(me)));
    } else {
        schedule.receive(site_leader, aggregate.node(levels.node(me)));
    }
    schedule.wait();
    aggregate.deliver(schedule, &route, me, shm);
    if !(me == root && in_place) {
        schedule.copy(aggregate.block(me), own);
    }
    schedule.wait();
}

/// Gathers blocks of which only the root knows all lengths in its output. It is a [`gather`] of
/// equal slots for short blocks, while longer ones go directly from their ranks. A rank has to know
/// only its own length, and the root knows all.
pub(crate) fn gather_slots(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
    shm: Option<ShmAccess>,
) {
    let route = Route { levels, leader_index: 0, root_role: RootRole::Site(root) };
    let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
    let own = Buffer::Input.span(0, sizes(me));
    let aggregate = Aggregate::new(schedule, levels, &|_| SLOT, route.reach(me), false);
    // Between two ranks the direct message is always the first.
    if me == root {
        let starts = starts((0..levels.ranks().len() as u32).map(sizes));
        let place = |rank: u32| Buffer::Output.span(starts[rank as usize], sizes(rank));
        let others = || levels.ranks().iter().copied().filter(|&rank| rank != root);
        let long = others().filter(|&rank| sizes(rank) > SLOT);
        long.for_each(|rank| schedule.receive(rank, place(rank)));
        aggregate.collect(schedule, &route, me, shm);
        if !in_place {
            schedule.copy(own, place(root));
        }
        let short = others().filter(|&rank| sizes(rank) <= SLOT);
        short.for_each(|rank| {
            schedule.copy(aggregate.block(rank).part(0, sizes(rank)), place(rank));
        });
    } else {
        if own.len > SLOT {
            schedule.send(root, own);
        } else {
            schedule.copy(own, aggregate.block(me).part(0, own.len));
        }
        if me != leader {
            route.send_to_leader(schedule, me, aggregate.block(me), shm);
        } else if me != site_leader {
            aggregate.collect(schedule, &route, me, shm);
            schedule.send(site_leader, aggregate.node(levels.node(me)));
        } else {
            aggregate.collect(schedule, &route, me, shm);
            schedule.send(root, aggregate.site(levels.site(me)));
        }
    }
    schedule.wait();
}

/// Sends blocks of the root's input, of which only the root knows all lengths, to everyone's
/// output, like [`gather_slots`].
pub(crate) fn scatter_slots(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
    shm: Option<ShmAccess>,
) {
    let route = Route { levels, leader_index: 0, root_role: RootRole::Site(root) };
    let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
    let own = Buffer::Output.span(0, sizes(me));
    let aggregate = Aggregate::new(schedule, levels, &|_| SLOT, route.reach(me), false);
    if me == root {
        let starts = starts((0..levels.ranks().len() as u32).map(sizes));
        let place = |rank: u32| Buffer::Input.span(starts[rank as usize], sizes(rank));
        // The longest transfer leaves first.
        let (first, end) = levels.places_of_site(levels.site(root));
        let (before, rest) = levels.ranks().split_at(first as usize);
        let (own_site, after) = rest.split_at((end - first) as usize);
        let others = after.iter().chain(before).chain(own_site);
        for &rank in others.filter(|&&rank| rank != root) {
            match sizes(rank) <= SLOT {
                true => schedule.copy(place(rank), aggregate.block(rank).part(0, sizes(rank))),
                false => schedule.send(rank, place(rank)),
            }
        }
        for site in route.next_sites(me) {
            schedule.send(route.site_leader(site), aggregate.site(site));
        }
        aggregate.deliver(schedule, &route, me, shm);
        if !in_place {
            schedule.copy(place(root), own);
        }
    } else {
        if own.len > SLOT {
            schedule.receive(root, own);
        }
        let (source, slots) = match (me == leader, me == site_leader) {
            (_, true) => (root, aggregate.site(levels.site(me))),
            (true, false) => (site_leader, aggregate.node(levels.node(me))),
            (false, false) => (leader, aggregate.block(me)),
        };
        if let Some(shm) = shm.filter(|_| me != leader) {
            shm.scatter(schedule, route.leader_position(me), slots, slots);
        } else {
            let came = schedule.expect(source, slots);
            schedule.settle(came);
        }
        if me == leader {
            aggregate.deliver(schedule, &route, me, shm);
        }
        if own.len <= SLOT {
            schedule.copy(aggregate.block(me).part(0, own.len), own);
        }
    }
    schedule.wait();
}

impl Route<'_> {
    /// Returns the range, in the order of the grid, of the ranks whose blocks pass through a rank.
    fn reach(&self, rank: u32) -> (u32, u32) {
        let place = self.levels.place(rank);
        if self.root_role == RootRole::Site(rank) {
            (0, self.levels.ranks().len() as u32)
        } else if rank == self.site_leader_of(rank) {
            self.levels.places_of_site(self.levels.site(rank))
        } else if rank == self.leader_of(rank) {
            self.levels.places_of_node(self.levels.node(rank))
        } else {
            (place, place + 1)
        }
    }

    /// Sends a rank's data to the leader of its node.
    fn send_to_leader(&self, schedule: &mut Schedule, me: u32, own: Span, shm: Option<ShmAccess>) {
        match shm {
            Some(shm) => shm.hand_in(schedule, own),
            None => schedule.send(self.leader_of(me), own),
        }
    }
}

/// Adjacent blocks of neighbouring ranks of the grid.
struct Aggregate<'a> {
    levels: &'a Levels,
    /// Place of the first rank in the order of the grid.
    first: u32,
    /// Start of each block in `memory`.
    starts: Vec<u64>,
    memory: Span,
    /// True if `memory` is the output, whose order the blocks have anyway.
    is_output: bool,
}

impl<'a> Aggregate<'a> {
    fn new(
        schedule: &mut Schedule,
        levels: &'a Levels,
        sizes: &dyn Fn(u32) -> u64,
        (first, end): (u32, u32),
        goes_out: bool,
    ) -> Self {
        let ranks = &levels.ranks()[first as usize..end as usize];
        let starts = starts(ranks.iter().map(|&rank| sizes(rank)));
        let len = starts.last().copied().unwrap_or(0);
        let is_output = goes_out && (first..).zip(ranks).all(|(place, &rank)| place == rank);
        let memory = if is_output { Buffer::Output.span(0, len) } else { schedule.room(len) };
        Self { levels, first, starts, memory, is_output }
    }

    /// Returns the blocks from one place to another in the order of the grid.
    fn span(&self, first: u32, end: u32) -> Span {
        let start = self.starts[(first - self.first) as usize];
        self.memory.part(start, self.starts[(end - self.first) as usize] - start)
    }

    fn block(&self, rank: u32) -> Span {
        let place = self.levels.place(rank);
        self.span(place, place + 1)
    }

    fn node(&self, node: u32) -> Span {
        let (first, end) = self.levels.places_of_node(node);
        self.span(first, end)
    }

    fn site(&self, site: u32) -> Span {
        let (first, end) = self.levels.places_of_site(site);
        self.span(first, end)
    }

    /// Receives, at a leader, the blocks of all its ranks.
    fn collect(&self, schedule: &mut Schedule, route: &Route, me: u32, shm: Option<ShmAccess>) {
        let (is_root, is_site_leader) =
            (route.root_role == RootRole::Site(me), me == route.site_leader_of(me));
        let mut came: Vec<Ticket> = Vec::new();
        if shm.is_none() {
            let neighbours = route.neighbours(me);
            came.extend(neighbours.map(|rank| schedule.expect(rank, self.block(rank))));
        }
        if is_site_leader {
            let nodes = route.other_nodes(me);
            came.extend(
                nodes.map(|node| schedule.expect(route.node_leader(node), self.node(node))),
            );
        }
        if is_root {
            let sites = route.other_sites(me);
            came.extend(
                sites.map(|site| schedule.expect(route.site_leader(site), self.site(site))),
            );
        }
        if shm.is_some() {
            self.receive_near(schedule, route, me, shm);
        }
        came.into_iter().for_each(|one| schedule.settle(one));
        if is_root {
            schedule.wait();
        }
    }

    /// Takes, at the leader of a node, its ranks' blocks; messages are waited for later.
    fn receive_near(
        &self,
        schedule: &mut Schedule,
        route: &Route,
        me: u32,
        shm: Option<ShmAccess>,
    ) {
        let ranks = self.levels.ranks_of_node(self.levels.node(me));
        match shm {
            Some(shm) => shm.take_in(schedule, &|position| self.block(ranks[position as usize])),
            None => route.neighbours(me).for_each(|rank| schedule.receive(rank, self.block(rank))),
        }
    }

    /// Sends, at a leader, the blocks of all its ranks in its site.
    fn deliver(&self, schedule: &mut Schedule, route: &Route, me: u32, shm: Option<ShmAccess>) {
        if me == route.site_leader_of(me) {
            for node in route.other_nodes(me) {
                schedule.send(route.node_leader(node), self.node(node));
            }
        }
        match shm {
            Some(shm) => {
                let near = self.node(self.levels.node(me));
                shm.scatter(schedule, route.leader_position(me), near, self.block(me));
            }
            None => route.neighbours(me).for_each(|rank| schedule.send(rank, self.block(rank))),
        }
    }

    /// Copies a leader's own block to the others.
    fn insert(&self, schedule: &mut Schedule, own: Span, me: u32) {
        let place = self.block(me);
        if own != place {
            schedule.copy(own, place);
        }
    }

    /// Copies the blocks of all ranks to the output, if they are not there yet.
    fn unpack(&self, schedule: &mut Schedule, sizes: &dyn Fn(u32) -> u64) {
        if !self.is_output {
            let runs = self.runs(sizes);
            runs.for_each(|(start, part)| {
                schedule.copy(part, Buffer::Output.span(start, part.len));
            });
        }
    }

    /// Copies the blocks of all ranks from the input.
    fn pack(&self, schedule: &mut Schedule, sizes: &dyn Fn(u32) -> u64) {
        let runs = self.runs(sizes);
        runs.for_each(|(start, part)| schedule.copy(Buffer::Input.span(start, part.len), part));
    }

    /// Returns the start of each run of consecutive ranks in the order of ranks, and its span here.
    fn runs(&self, sizes: &dyn Fn(u32) -> u64) -> impl Iterator<Item = (u64, Span)> {
        let ranks = self.levels.ranks();
        let starts = starts((0..ranks.len() as u32).map(sizes));
        let mut place = 0;
        std::iter::from_fn(move || {
            let first = place;
            let rank = *ranks.get(first)?;
            while ranks.get(place).is_some_and(|&next| next == rank + (place - first) as u32) {
                place += 1;
            }
            Some((starts[rank as usize], self.span(first as u32, place as u32)))
        })
    }
}

/// Maximum bytes of a block of unknown length in an aggregate. A network carries so many in half
/// the time of a rank's work for one message.
pub(crate) const SLOT: u64 = 256;
