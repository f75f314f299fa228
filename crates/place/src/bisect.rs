//! Multilevel bisection of a graph with a small cut: coarsen, cut, and refine on the way back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::graph::Graph;
use crate::random::Xorshift;

/// Returns the side of every rank, 0 or 1, with at most `rooms` ranks on each. If one side has room
/// for all, they are there.
pub(crate) fn bisect(graph: &Graph, rooms: [u64; 2]) -> Vec<u8> {
    let size = graph.size() as usize;
    debug_assert!(rooms[0] + rooms[1] >= size as u64, "more ranks than room");
    match rooms.iter().position(|room| *room >= size as u64) {
        Some(side) => vec![side as u8; size],
        None => cut(graph, &vec![1; size], rooms, &mut Xorshift::new()),
    }
}

/// Bisects a graph whose vertices stand for `sizes` ranks each.
fn cut(graph: &Graph, sizes: &[u64], rooms: [u64; 2], random: &mut Xorshift) -> Vec<u8> {
    let coarse = coarsen(graph, sizes, random).map(|coarse| {
        let cut = cut(&coarse.graph, &coarse.sizes, rooms, random);
        coarse.stands_for.iter().map(|&vertex| cut[vertex as usize]).collect()
    });
    // A coarse cut may be uneven by less than a vertex; refining evens it out.
    let largest = sizes.iter().copied().max().unwrap_or(1);
    let rooms = rooms.map(|room| room + largest - 1);
    let mut sides = coarse.unwrap_or_else(|| best_start(graph, sizes, rooms));
    refine(graph, sizes, rooms, &mut sides);
    sides
}

/// A graph whose vertices are pairs of another's.
struct Coarse {
    graph: Graph,
    sizes: Vec<u64>,
    /// Vertex that each vertex of the other graph belongs to.
    stands_for: Vec<u32>,
}

/// Merges pairs of vertices; none if the graph is small, or there are few pairs.
fn coarsen(graph: &Graph, sizes: &[u64], random: &mut Xorshift) -> Option<Coarse> {
    let size = sizes.len();
    if size <= SMALL {
        return None;
    }
    let mates = pair(graph, sizes, random);
    let mut stands_for = vec![u32::MAX; size];
    let mut coarse_sizes: Vec<u64> = Vec::new();
    for vertex in 0..size {
        if stands_for[vertex] == u32::MAX {
            let both = [Some(vertex as u32), mates[vertex]];
            both.iter()
                .flatten()
                .for_each(|&it| stands_for[it as usize] = coarse_sizes.len() as u32);
            coarse_sizes.push(both.iter().flatten().map(|&it| sizes[it as usize]).sum());
        }
    }
    // Another level must reduce the graph enough.
    if coarse_sizes.len() * 10 > size * 9 {
        return None;
    }
    let coarse = coarse_sizes.len() as u32;
    let graph = graph.renumbered(coarse, |vertex| Some(stands_for[vertex as usize]));
    Some(Coarse { graph, sizes: coarse_sizes, stands_for })
}

/// Pairs vertices with the most traffic, as long as no pair is too large for an even cut.
fn pair(graph: &Graph, sizes: &[u64], random: &mut Xorshift) -> Vec<Option<u32>> {
    let size = sizes.len();
    let most = (sizes.iter().sum::<u64>() / SMALL as u64).max(2);
    let mut order: Vec<u32> = (0..size as u32).collect();
    random.shuffle(&mut order);
    let mut mates = vec![None; size];
    // Vertices without a free neighbour pair with each other if they have the same strongest
    // neighbour, or none.
    let mut alone: Vec<Option<u32>> = vec![None; size + 1];
    for vertex in order {
        if mates[vertex as usize].is_some() {
            continue;
        }
        let is_free = |other: u32| {
            mates[other as usize].is_none()
                && sizes[vertex as usize] + sizes[other as usize] <= most
        };
        let all = graph.neighbours(vertex).iter();
        let free = all.clone().filter(|(other, _)| is_free(*other));
        let by_weight = |edge: &&(u32, u64)| (edge.1, Reverse(edge.0));
        let chosen = free.max_by_key(by_weight).map(|edge| edge.0).or_else(|| {
            let nearest = all.max_by_key(by_weight);
            let waiting = &mut alone[nearest.map_or(size, |edge| edge.0 as usize)];
            let other = waiting.take_if(|other| is_free(*other));
            *waiting = other.is_none().then_some(vertex);
            other
        });
        if let Some(other) = chosen {
            mates[vertex as usize] = Some(other);
            mates[other as usize] = Some(vertex);
        }
    }
    mates
}

/// Returns the best cut grown from single vertices.
fn best_start(graph: &Graph, sizes: &[u64], rooms: [u64; 2]) -> Vec<u8> {
    let total: u64 = sizes.iter().sum();
    // With room to spare, either side may be full, or both equally.
    let least = total.saturating_sub(rooms[1]);
    let even = total * rooms[0] / (rooms[0] + rooms[1]).max(1);
    let mut aims = vec![rooms[0].min(total), even, least];
    aims.dedup();
    let step = sizes.len().div_ceil(SMALL).max(1);
    let starts = (0..sizes.len() as u32).step_by(step);
    let grown = starts.flat_map(|seed| {
        aims.iter().map(move |&aim| {
            let mut sides = grow(graph, sizes, seed, aim);
            refine(graph, sizes, rooms, &mut sides);
            let loads = loads(sizes, &sides);
            (overload(loads, rooms), weight(graph, &sides), sides)
        })
    });
    let best = grown.min_by_key(|(overload, cut, _)| (*overload, *cut));
    best.map_or_else(Vec::new, |(_, _, sides)| sides)
}

/// Grows side 0 from a vertex, always by the vertex with the most traffic, until it has `aim`.
fn grow(graph: &Graph, sizes: &[u64], seed: u32, aim: u64) -> Vec<u8> {
    let mut sides = vec![1; sizes.len()];
    let mut bound = vec![0; sizes.len()];
    let mut queue = BinaryHeap::from([(0, Reverse(seed))]);
    let mut next = 0..sizes.len() as u32;
    let mut load = 0;
    while load < aim {
        let found = queue.pop().map(|(_, Reverse(vertex))| vertex).or_else(|| next.next());
        let Some(vertex) = found else { break };
        if sides[vertex as usize] == 0 {
            continue;
        }
        sides[vertex as usize] = 0;
        load += sizes[vertex as usize];
        for &(other, weight) in graph.neighbours(vertex) {
            bound[other as usize] += weight;
            queue.push((bound[other as usize], Reverse(other)));
        }
    }
    sides
}

/// Makes passes as long as they help.
fn refine(graph: &Graph, sizes: &[u64], rooms: [u64; 2], sides: &mut [u8]) {
    let mut passes = 0;
    while passes < PASSES_MAX && pass(graph, sizes, rooms, sides) {
        passes += 1;
    }
}

/// Moves every vertex at most once, the largest saving first, even if the cut grows. Moves after
/// the best state are undone. True if the cut, or the excess of a side, is less than before.
fn pass(graph: &Graph, sizes: &[u64], rooms: [u64; 2], sides: &mut [u8]) -> bool {
    let mut pass = Pass::new(graph, sizes, rooms, sides);
    let patience = PATIENCE_MIN.max(sizes.len() / 4);
    let (mut saved, mut moves) = (0, Vec::new());
    let first = (overload(pass.loads, rooms), 0);
    let (mut best, mut best_at) = (first, 0);
    while moves.len() - best_at <= patience
        && let Some((gain, vertex)) = pass.next()
    {
        pass.shift(vertex);
        saved += gain;
        moves.push(vertex);
        let now = (overload(pass.loads, rooms), -saved);
        if now < best {
            (best, best_at) = (now, moves.len());
        }
    }
    for &vertex in &moves[best_at..] {
        sides[vertex as usize] ^= 1;
    }
    best < first
}

/// State of a pass.
struct Pass<'a> {
    graph: &'a Graph,
    sizes: &'a [u64],
    rooms: [u64; 2],
    sides: &'a mut [u8],
    loads: [u64; 2],
    /// Allowed excess of a side between two moves.
    slack: u64,
    /// Saving of each vertex if it changes sides.
    gains: Vec<i64>,
    has_moved: Vec<bool>,
    /// Vertices of each side by saving; entries with an outdated saving are stale.
    queues: [BinaryHeap<(i64, Reverse<u32>)>; 2],
}

impl<'a> Pass<'a> {
    fn new(graph: &'a Graph, sizes: &'a [u64], rooms: [u64; 2], sides: &'a mut [u8]) -> Self {
        let gains: Vec<i64> = (0..graph.size()).map(|it| gain(graph, sides, it)).collect();
        let mut queues = [BinaryHeap::new(), BinaryHeap::new()];
        for (vertex, &gain) in (0u32..).zip(&gains) {
            queues[usize::from(sides[vertex as usize])].push((gain, Reverse(vertex)));
        }
        let slack = sizes.iter().copied().max().unwrap_or(0);
        let (loads, has_moved) = (loads(sizes, sides), vec![false; sizes.len()]);
        Self { graph, sizes, rooms, sides, loads, slack, gains, has_moved, queues }
    }

    /// Returns the next vertex to move and its saving. A side with excess comes first.
    fn next(&mut self) -> Option<(i64, u32)> {
        for (side, queue) in self.queues.iter_mut().enumerate() {
            let is_stale = |&(gain, Reverse(vertex)): &(i64, Reverse<u32>)| {
                let vertex = vertex as usize;
                self.has_moved[vertex]
                    || usize::from(self.sides[vertex]) != side
                    || self.gains[vertex] != gain
            };
            while queue.peek().is_some_and(is_stale) {
                queue.pop();
            }
        }
        let may_leave = |side: usize| {
            let &(gain, Reverse(vertex)) = self.queues[side].peek()?;
            let (load, room) = (self.loads[1 - side], self.rooms[1 - side]);
            let is_due = self.loads[side] > self.rooms[side];
            let may_come = load <= room && load + self.sizes[vertex as usize] <= room + self.slack;
            (is_due || may_come).then_some((is_due, gain, side, vertex))
        };
        may_leave(0).max(may_leave(1)).map(|(_, gain, _, vertex)| (gain, vertex))
    }

    /// Moves a vertex to the other side.
    fn shift(&mut self, vertex: u32) {
        let side = usize::from(self.sides[vertex as usize]);
        self.has_moved[vertex as usize] = true;
        self.sides[vertex as usize] = 1 - side as u8;
        self.loads[side] -= self.sizes[vertex as usize];
        self.loads[1 - side] += self.sizes[vertex as usize];
        for &(other, weight) in self.graph.neighbours(vertex) {
            let change = 2 * weight as i64;
            let its = usize::from(self.sides[other as usize]);
            let gain = &mut self.gains[other as usize];
            *gain += if its == side { change } else { -change };
            if !self.has_moved[other as usize] {
                self.queues[its].push((*gain, Reverse(other)));
            }
        }
    }
}

/// Returns the reduction of the cut if a vertex changes sides.
fn gain(graph: &Graph, sides: &[u8], vertex: u32) -> i64 {
    let own = sides[vertex as usize];
    let signed = |&(other, weight): &(u32, u64)| {
        if sides[other as usize] == own { -(weight as i64) } else { weight as i64 }
    };
    graph.neighbours(vertex).iter().map(signed).sum()
}

/// Weight of the cut, counted from both sides.
fn weight(graph: &Graph, sides: &[u8]) -> u64 {
    let own = |vertex: u32| {
        let all = graph.neighbours(vertex).iter();
        let cut = all.filter(move |(other, _)| sides[*other as usize] != sides[vertex as usize]);
        cut.map(|(_, weight)| weight).sum::<u64>()
    };
    (0..graph.size()).map(own).sum()
}

fn loads(sizes: &[u64], sides: &[u8]) -> [u64; 2] {
    let mut loads = [0; 2];
    sizes.iter().zip(sides).for_each(|(size, side)| loads[usize::from(*side)] += size);
    loads
}

/// Number of ranks beyond the room of their sides.
fn overload(loads: [u64; 2], rooms: [u64; 2]) -> u64 {
    loads.iter().zip(rooms).map(|(load, room)| load.saturating_sub(room)).sum()
}

/// Number of vertices up to which a graph is not coarsened.
const SMALL: usize = 40;

/// Maximum number of passes over one graph.
const PASSES_MAX: usize = 12;

/// Number of moves tried beyond the best state, unless a quarter of the vertices is more.
const PATIENCE_MIN: usize = 40;
