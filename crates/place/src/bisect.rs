//! A graph in two, so that little is cut: made coarse, cut, and refined while it becomes fine again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Random;
use crate::graph::Graph;

/// The side of every rank, 0 or 1, with no more than `rooms` on each. Where all have room on one side they
/// are there.
pub(crate) fn bisect(graph: &Graph, rooms: [u64; 2]) -> Vec<u8> {
    let size = graph.size() as usize;
    debug_assert!(rooms[0] + rooms[1] >= size as u64, "more ranks than room");
    match rooms.iter().position(|room| *room >= size as u64) {
        Some(side) => vec![side as u8; size],
        None => cut(graph, &vec![1; size], rooms, &mut Random::new()),
    }
}

/// As [`bisect`], where each vertex stands for so many ranks.
fn cut(graph: &Graph, sizes: &[u64], rooms: [u64; 2], random: &mut Random) -> Vec<u8> {
    let coarse = coarsen(graph, sizes, random).map(|coarse| {
        let cut = cut(&coarse.graph, &coarse.sizes, rooms, random);
        coarse.stands_for.iter().map(|&vertex| cut[vertex as usize]).collect()
    });
    // What is coarse may be uneven by less than a vertex: it becomes even when it is fine.
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
    /// Which vertex each one of the other is part of.
    stands_for: Vec<u32>,
}

/// Pairs those that exchange most; none where the graph is small, or no pairs can be made.
fn coarsen(graph: &Graph, sizes: &[u64], random: &mut Random) -> Option<Coarse> {
    let size = graph.size() as usize;
    if size <= SMALL {
        return None;
    }
    let total: u64 = sizes.iter().sum();
    let most = (total / SMALL as u64).max(2);
    let mut order: Vec<u32> = (0..size as u32).collect();
    random.shuffle(&mut order);
    let mut mate = vec![None; size];
    // Those without a free neighbour pair with each other, if they are bound to the same one most, or to none.
    let mut alone: Vec<Option<u32>> = vec![None; size + 1];
    for vertex in order {
        if mate[vertex as usize].is_some() {
            continue;
        }
        let fits = |other: u32| sizes[vertex as usize] + sizes[other as usize] <= most;
        let free = graph.neighbours(vertex).iter();
        let free = free.filter(|(other, _)| mate[*other as usize].is_none() && fits(*other));
        let nearest = free.max_by_key(|(other, weight)| (*weight, Reverse(*other)));
        let chosen = nearest.map(|edge| edge.0).or_else(|| {
            let all = graph.neighbours(vertex).iter();
            let most = all.max_by_key(|(other, weight)| (*weight, Reverse(*other)));
            let waiting = &mut alone[most.map_or(size, |edge| edge.0 as usize)];
            let other = waiting.take_if(|other| mate[*other as usize].is_none() && fits(*other));
            *waiting = other.is_none().then_some(vertex);
            other
        });
        if let Some(other) = chosen {
            mate[vertex as usize] = Some(other);
            mate[other as usize] = Some(vertex);
        }
    }
    let mut stands_for = vec![u32::MAX; size];
    let mut coarse_sizes: Vec<u64> = Vec::new();
    for vertex in 0..size {
        if stands_for[vertex] == u32::MAX {
            stands_for[vertex] = coarse_sizes.len() as u32;
            let mut sum = sizes[vertex];
            if let Some(mate) = mate[vertex] {
                stands_for[mate as usize] = coarse_sizes.len() as u32;
                sum += sizes[mate as usize];
            }
            coarse_sizes.push(sum);
        }
    }
    // Another level has to be worth its while.
    if coarse_sizes.len() * 10 > size * 9 {
        return None;
    }
    let coarse = coarse_sizes.len() as u32;
    let graph = graph.renumbered(coarse, |vertex| Some(stands_for[vertex as usize]));
    Some(Coarse { graph, sizes: coarse_sizes, stands_for })
}

/// The best of what grows from single vertices.
fn best_start(graph: &Graph, sizes: &[u64], rooms: [u64; 2]) -> Vec<u8> {
    let total: u64 = sizes.iter().sum();
    // With room to spare either side may be full, or both may be equally so.
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

/// Side 0 grows from a vertex by what it is bound to most, until it has `aim`.
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

/// Passes of moves as long as they help.
fn refine(graph: &Graph, sizes: &[u64], rooms: [u64; 2], sides: &mut [u8]) {
    let mut passes = 0;
    while passes < PASSES_MAX && pass(graph, sizes, rooms, sides) {
        passes += 1;
    }
}

/// Moves every vertex once at most, the one that saves most first, even where that costs; what comes
/// after the best moment is taken back. Whether the cut, or the excess of a side, is less than before.
fn pass(graph: &Graph, sizes: &[u64], rooms: [u64; 2], sides: &mut [u8]) -> bool {
    let mut gains: Vec<i64> = (0..sizes.len() as u32).map(|it| gain(graph, sides, it)).collect();
    let mut queues = [BinaryHeap::new(), BinaryHeap::new()];
    for (vertex, &gain) in (0u32..).zip(&gains) {
        queues[usize::from(sides[vertex as usize])].push((gain, Reverse(vertex)));
    }
    let mut has_moved = vec![false; sizes.len()];
    let mut loads = loads(sizes, sides);
    // As much a side may have in excess between two moves.
    let slack = sizes.iter().copied().max().unwrap_or(0);
    let (mut saved, mut moves) = (0, Vec::new());
    let (first, mut best, mut best_at) = (overload(loads, rooms), (overload(loads, rooms), 0), 0);
    let patience = PATIENCE_MIN.max(sizes.len() / 4);
    while moves.len() - best_at <= patience {
        for (side, queue) in queues.iter_mut().enumerate() {
            let is_stale = |&(gain, Reverse(vertex)): &(i64, Reverse<u32>)| {
                let vertex = vertex as usize;
                has_moved[vertex] || usize::from(sides[vertex]) != side || gains[vertex] != gain
            };
            while queue.peek().is_some_and(is_stale) {
                queue.pop();
            }
        }
        let may_leave = |side: usize| {
            let &(gain, Reverse(vertex)) = queues[side].peek()?;
            let arrives = loads[1 - side] + sizes[vertex as usize];
            let is_due = loads[side] > rooms[side];
            let may_come = loads[1 - side] <= rooms[1 - side] && arrives <= rooms[1 - side] + slack;
            (is_due || may_come).then_some((is_due, gain, side, vertex))
        };
        let Some((_, gain, side, vertex)) = may_leave(0).max(may_leave(1)) else { break };
        has_moved[vertex as usize] = true;
        sides[vertex as usize] = 1 - side as u8;
        loads[side] -= sizes[vertex as usize];
        loads[1 - side] += sizes[vertex as usize];
        saved += gain;
        moves.push(vertex);
        for &(other, weight) in graph.neighbours(vertex) {
            let change = 2 * weight as i64;
            let follows = usize::from(sides[other as usize]) == side;
            gains[other as usize] += if follows { change } else { -change };
            if !has_moved[other as usize] {
                let queue = &mut queues[usize::from(sides[other as usize])];
                queue.push((gains[other as usize], Reverse(other)));
            }
        }
        let now = (overload(loads, rooms), -saved);
        if now < best {
            (best, best_at) = (now, moves.len());
        }
    }
    for &vertex in &moves[best_at..] {
        sides[vertex as usize] ^= 1;
    }
    best < (first, 0)
}

/// What the cut loses when a vertex changes its side.
fn gain(graph: &Graph, sides: &[u8], vertex: u32) -> i64 {
    let own = sides[vertex as usize];
    let signed = |&(other, weight): &(u32, u64)| {
        if sides[other as usize] == own { -(weight as i64) } else { weight as i64 }
    };
    graph.neighbours(vertex).iter().map(signed).sum()
}

/// What the cut weighs, counted from both sides.
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

/// How many have no room where they are.
fn overload(loads: [u64; 2], rooms: [u64; 2]) -> u64 {
    loads.iter().zip(rooms).map(|(load, room)| load.saturating_sub(room)).sum()
}

/// So many vertices are cut as they are.
const SMALL: usize = 40;

/// Passes over one graph.
const PASSES_MAX: usize = 12;

/// So many moves are tried beyond the best moment, or a quarter of the vertices.
const PATIENCE_MIN: usize = 40;
