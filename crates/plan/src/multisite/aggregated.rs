//! Short blocks that travel together: a bundle holds the blocks of a node, a site or all ranks in the
//! order of the grid, so that what a head collects lies beside each other. Within a node they go by its shmem, if a
//! rank has a `seat` there: all of a node have.

use crate::algorithms::shmem::Seat;
use crate::multisite::{Pin, Way};
use crate::schedule::{Buffer, Schedule, Span, Ticket, starts};
use crate::topology::Levels;

/// Every rank's block to everyone's output.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
    seat: Option<Seat>,
) {
    let way = Way { levels, lane: 0, pin: Pin::None };
    let bundle = Bundle::new(schedule, levels, sizes, (0, levels.ranks().len() as u32), true);
    let (head, site_head) = (way.head_of(me), way.site_head_of(me));
    let before = || (0..me).map(sizes).sum();
    let own = match in_place {
        true => Buffer::Output.span(before(), sizes(me)),
        false => Buffer::Input.span(0, sizes(me)),
    };
    let whole = bundle.span(0, levels.ranks().len() as u32);
    if me == site_head {
        for node in way.other_nodes(me) {
            schedule.receive(way.node_head(node), bundle.node(node));
        }
    }
    if me == head {
        bundle.take(schedule, own, me);
        bundle.take_near(schedule, &way, me, seat);
    } else {
        way.give_head(schedule, me, own, seat);
        // What comes may lie where that was.
        schedule.wait();
    }
    if me == site_head {
        schedule.wait();
        for site in way.other_sites(me) {
            schedule.receive(way.site_head(site), bundle.site(site));
        }
        for site in way.next_sites(me) {
            schedule.send(way.site_head(site), bundle.site(levels.site(me)));
        }
        schedule.wait();
        way.other_nodes(me).for_each(|node| schedule.send(way.node_head(node), whole));
    } else if me == head {
        schedule.wait();
        schedule.send(site_head, bundle.node(levels.node(me)));
        schedule.wait();
        schedule.receive(site_head, whole);
        schedule.wait();
    }
    match seat {
        Some(seat) => seat.broadcast(schedule, way.head_position(me), whole),
        None if me == head => way.neighbours(me).for_each(|rank| schedule.send(rank, whole)),
        None => schedule.receive(head, whole),
    }
    schedule.wait();
    bundle.unpack(schedule, sizes);
}

/// Every rank's block of `len` bytes to the root's output.
pub(crate) fn gather(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    root: u32,
    len: u64,
    in_place: bool,
    seat: Option<Seat>,
) {
    let way = Way { levels, lane: 0, pin: Pin::Site(root) };
    let own = match me == root && in_place {
        true => Buffer::Output.span(u64::from(root) * len, len),
        false => Buffer::Input.span(0, len),
    };
    let (head, site_head) = (way.head_of(me), way.site_head_of(me));
    if me != head {
        way.give_head(schedule, me, own, seat);
        return schedule.wait();
    }
    let bundle = Bundle::new(schedule, levels, &|_| len, way.reach(me), me == root);
    bundle.take(schedule, own, me);
    if me == site_head {
        for node in way.other_nodes(me) {
            schedule.receive(way.node_head(node), bundle.node(node));
        }
    }
    if me == root {
        for site in way.other_sites(me) {
            schedule.receive(way.site_head(site), bundle.site(site));
        }
    }
    bundle.take_near(schedule, &way, me, seat);
    schedule.wait();
    if me == root {
        bundle.unpack(schedule, &|_| len);
    } else if me == site_head {
        schedule.send(root, bundle.site(levels.site(me)));
    } else {
        schedule.send(site_head, bundle.node(levels.node(me)));
    }
    schedule.wait();
}

/// Blocks of `len` bytes of the root's input to everyone's output.
pub(crate) fn scatter(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    root: u32,
    len: u64,
    in_place: bool,
    seat: Option<Seat>,
) {
    let way = Way { levels, lane: 0, pin: Pin::Site(root) };
    let own = Buffer::Output.span(0, len);
    let (head, site_head) = (way.head_of(me), way.site_head_of(me));
    if me != head {
        match seat {
            Some(seat) => seat.scatter(schedule, way.head_position(me), own, own),
            None => schedule.receive(head, own),
        }
        return schedule.wait();
    }
    let bundle = Bundle::new(schedule, levels, &|_| len, way.reach(me), false);
    if me == root {
        bundle.pack(schedule, &|_| len);
        for site in way.other_sites(me) {
            schedule.send(way.site_head(site), bundle.site(site));
        }
    } else if me == site_head {
        schedule.receive(root, bundle.site(levels.site(me)));
    } else {
        schedule.receive(site_head, bundle.node(levels.node(me)));
    }
    schedule.wait();
    bundle.give(schedule, &way, me, seat);
    if !(me == root && in_place) {
        schedule.copy(bundle.block(me), own);
    }
    schedule.wait();
}

/// Blocks of which only the root knows all lengths, to the root's output: [`gather`] of equal slots, in which
/// short blocks travel, while longer ones go straight from their ranks. So nobody has to know more than its
/// own block's length, and the root finds all by theirs.
pub(crate) fn gather_slots(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
    seat: Option<Seat>,
) {
    let way = Way { levels, lane: 0, pin: Pin::Site(root) };
    let (head, site_head) = (way.head_of(me), way.site_head_of(me));
    let own = Buffer::Input.span(0, sizes(me));
    let bundle = Bundle::new(schedule, levels, &|_| SLOT, way.reach(me), false);
    // Between two ranks what goes straight is always the first.
    if me == root {
        let starts = starts((0..levels.ranks().len() as u32).map(sizes));
        let place = |rank: u32| Buffer::Output.span(starts[rank as usize], sizes(rank));
        let others = || levels.ranks().iter().copied().filter(|&rank| rank != root);
        let long = others().filter(|&rank| sizes(rank) > SLOT);
        long.for_each(|rank| schedule.receive(rank, place(rank)));
        bundle.collect(schedule, &way, me, seat);
        if !in_place {
            schedule.copy(own, place(root));
        }
        let short = others().filter(|&rank| sizes(rank) <= SLOT);
        short.for_each(|rank| {
            schedule.copy(bundle.block(rank).part(0, sizes(rank)), place(rank));
        });
    } else {
        if own.len > SLOT {
            schedule.send(root, own);
        } else {
            schedule.copy(own, bundle.block(me).part(0, own.len));
        }
        if me != head {
            way.give_head(schedule, me, bundle.block(me), seat);
        } else if me != site_head {
            bundle.collect(schedule, &way, me, seat);
            schedule.send(site_head, bundle.node(levels.node(me)));
        } else {
            bundle.collect(schedule, &way, me, seat);
            schedule.send(root, bundle.site(levels.site(me)));
        }
    }
    schedule.wait();
}

/// Blocks of the root's input, of which only the root knows all lengths, to everyone's output, as
/// [`gather_slots`].
pub(crate) fn scatter_slots(
    schedule: &mut Schedule,
    levels: &Levels,
    me: u32,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
    seat: Option<Seat>,
) {
    let way = Way { levels, lane: 0, pin: Pin::Site(root) };
    let (head, site_head) = (way.head_of(me), way.site_head_of(me));
    let own = Buffer::Output.span(0, sizes(me));
    let bundle = Bundle::new(schedule, levels, &|_| SLOT, way.reach(me), false);
    if me == root {
        let starts = starts((0..levels.ranks().len() as u32).map(sizes));
        let place = |rank: u32| Buffer::Input.span(starts[rank as usize], sizes(rank));
        // What is longest under way leaves first.
        let (first, end) = levels.places_of_site(levels.site(root));
        let (before, rest) = levels.ranks().split_at(first as usize);
        let (own_site, after) = rest.split_at((end - first) as usize);
        let others = after.iter().chain(before).chain(own_site);
        for &rank in others.filter(|&&rank| rank != root) {
            match sizes(rank) <= SLOT {
                true => schedule.copy(place(rank), bundle.block(rank).part(0, sizes(rank))),
                false => schedule.send(rank, place(rank)),
            }
        }
        for site in way.next_sites(me) {
            schedule.send(way.site_head(site), bundle.site(site));
        }
        bundle.give(schedule, &way, me, seat);
        if !in_place {
            schedule.copy(place(root), own);
        }
    } else {
        if own.len > SLOT {
            schedule.receive(root, own);
        }
        let (source, slots) = match (me == head, me == site_head) {
            (_, true) => (root, bundle.site(levels.site(me))),
            (true, false) => (site_head, bundle.node(levels.node(me))),
            (false, false) => (head, bundle.block(me)),
        };
        if let Some(seat) = seat.filter(|_| me != head) {
            seat.scatter(schedule, way.head_position(me), slots, slots);
        } else {
            let came = schedule.expect(source, slots);
            schedule.settle(came);
        }
        if me == head {
            bundle.give(schedule, &way, me, seat);
        }
        if own.len <= SLOT {
            schedule.copy(bundle.block(me).part(0, own.len), own);
        }
    }
    schedule.wait();
}

impl Way<'_> {
    /// From where to where, in the order of the grid, are the ranks whose blocks go through a rank.
    fn reach(&self, rank: u32) -> (u32, u32) {
        let place = self.levels.place(rank);
        if self.pin == Pin::Site(rank) {
            (0, self.levels.ranks().len() as u32)
        } else if rank == self.site_head_of(rank) {
            self.levels.places_of_site(self.levels.site(rank))
        } else if rank == self.head_of(rank) {
            self.levels.places_of_node(self.levels.node(rank))
        } else {
            (place, place + 1)
        }
    }

    /// What a rank has, to the head of its node.
    fn give_head(&self, schedule: &mut Schedule, me: u32, own: Span, seat: Option<Seat>) {
        match seat {
            Some(seat) => seat.hand_in(schedule, own),
            None => schedule.send(self.head_of(me), own),
        }
    }
}

/// Blocks of neighbouring ranks of the grid, beside each other.
struct Bundle<'a> {
    levels: &'a Levels,
    /// The first rank's place in the order of the grid.
    first: u32,
    /// Where each block begins in `memory`.
    starts: Vec<u64>,
    memory: Span,
    /// Whether `memory` is the output, in whose order the blocks are anyway.
    is_output: bool,
}

impl<'a> Bundle<'a> {
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

    /// The blocks from one place to another in the order of the grid.
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

    /// Receives, at a head, the blocks of all that it is head of.
    fn collect(&self, schedule: &mut Schedule, way: &Way, me: u32, seat: Option<Seat>) {
        let (is_root, is_site_head) = (way.pin == Pin::Site(me), me == way.site_head_of(me));
        let mut came: Vec<Ticket> = Vec::new();
        if seat.is_none() {
            let neighbours = way.neighbours(me);
            came.extend(neighbours.map(|rank| schedule.expect(rank, self.block(rank))));
        }
        if is_site_head {
            let nodes = way.other_nodes(me);
            came.extend(nodes.map(|node| schedule.expect(way.node_head(node), self.node(node))));
        }
        if is_root {
            let sites = way.other_sites(me);
            came.extend(sites.map(|site| schedule.expect(way.site_head(site), self.site(site))));
        }
        if seat.is_some() {
            self.take_near(schedule, way, me, seat);
        }
        came.into_iter().for_each(|one| schedule.settle(one));
        if is_root {
            schedule.wait();
        }
    }

    /// At the head of a node what its ranks have: what comes by messages is waited for later.
    fn take_near(&self, schedule: &mut Schedule, way: &Way, me: u32, seat: Option<Seat>) {
        let ranks = self.levels.ranks_of_node(self.levels.node(me));
        match seat {
            Some(seat) => seat.take_in(schedule, &|position| self.block(ranks[position as usize])),
            None => way.neighbours(me).for_each(|rank| schedule.receive(rank, self.block(rank))),
        }
    }

    /// Sends, at a head, the blocks of all that it is head of in its site.
    fn give(&self, schedule: &mut Schedule, way: &Way, me: u32, seat: Option<Seat>) {
        if me == way.site_head_of(me) {
            for node in way.other_nodes(me) {
                schedule.send(way.node_head(node), self.node(node));
            }
        }
        match seat {
            Some(seat) => {
                let near = self.node(self.levels.node(me));
                seat.scatter(schedule, way.head_position(me), near, self.block(me));
            }
            None => way.neighbours(me).for_each(|rank| schedule.send(rank, self.block(rank))),
        }
    }

    /// Puts a head's own block to the others.
    fn take(&self, schedule: &mut Schedule, own: Span, me: u32) {
        let place = self.block(me);
        if own != place {
            schedule.copy(own, place);
        }
    }

    /// The blocks of all ranks to the output, where they are not there yet.
    fn unpack(&self, schedule: &mut Schedule, sizes: &dyn Fn(u32) -> u64) {
        if !self.is_output {
            let runs = self.runs(sizes);
            runs.for_each(|(start, part)| {
                schedule.copy(part, Buffer::Output.span(start, part.len));
            });
        }
    }

    /// The blocks of all ranks from the input.
    fn pack(&self, schedule: &mut Schedule, sizes: &dyn Fn(u32) -> u64) {
        let runs = self.runs(sizes);
        runs.for_each(|(start, part)| schedule.copy(Buffer::Input.span(start, part.len), part));
    }

    /// Where runs of consecutive ranks begin in the order of ranks, and where they are here.
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

/// Blocks of unknown lengths travel in bundles up to here, in bytes: so many pass a network in half the time
/// that a rank works for a message.
pub(crate) const SLOT: u64 = 256;
