//! Collectives of intercommunicators (MPI-5.0 §6.2.2): one group's input is the other group's
//! output.
//!
//! Ranks number the members of both groups, and `topology` is that of all. Within a group the
//! schedules for one group are used. Data for the other group cross once.

use std::ops::Range;

use crate::data::scatter_straight;
use crate::schedule::{Buffer, Schedule, Span, Step, starts};
use crate::topology::Topology;
use crate::{Operands, broadcast, exchange, gather, reduce, scatter};

/// The two groups, seen from a member of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Ranks of this rank's group.
    pub local: Range<u32>,
    /// Ranks of the other group.
    pub remote: Range<u32>,
}

/// Role of a process in an operation with a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The root.
    Root,
    /// A member of the root's group that takes no part.
    Idle,
    /// A member of the other group; the root has this rank.
    Partner(u32),
}

impl Groups {
    /// Sends `len` bytes of the root's output to everyone's in the other group.
    pub fn broadcast(&self, rank: u32, topology: &Topology, role: Role, len: u64) -> Schedule {
        self.with_root(rank, topology, role, |rank, topology| broadcast(rank, topology, 0, len))
    }

    /// Gathers blocks of the other group's inputs in the root's output. `sizes` are their lengths
    /// by rank of that group. The root knows all of them, its ranks their own.
    pub fn gather(&self, rank: u32, topology: &Topology, role: Role, sizes: &[u64]) -> Schedule {
        self.with_root(rank, topology, role, |rank, topology| {
            gather(rank, topology, 0, &|rank| behind_root(role, sizes, rank), false, true)
        })
    }

    /// Sends blocks of the root's input to everyone's output in the other group. The arguments are
    /// those of [`Groups::gather`].
    pub fn scatter(&self, rank: u32, topology: &Topology, role: Role, sizes: &[u64]) -> Schedule {
        self.with_root(rank, topology, role, |rank, topology| {
            scatter(rank, topology, 0, &|rank| behind_root(role, sizes, rank), false, true)
        })
    }

    /// Combines the other group's operands to the root's output.
    pub fn reduce(
        &self,
        rank: u32,
        topology: &Topology,
        role: Role,
        operands: Operands,
    ) -> Schedule {
        let mut schedule = Schedule::default();
        let result = Buffer::Output.span(0, operands.len);
        match role {
            Role::Idle => {}
            Role::Root => schedule.receive(self.remote.start, result),
            Role::Partner(root) => {
                let sum = self.reduce_here(&mut schedule, rank, topology, operands);
                if rank == self.local.start {
                    schedule.send(root, sum);
                }
            }
        }
        schedule.wait();
        schedule
    }

    /// Combines the other group's operands to everyone's output.
    pub fn allreduce(&self, rank: u32, topology: &Topology, operands: Operands) -> Schedule {
        let mut schedule = Schedule::default();
        let result = Buffer::Output.span(0, operands.len);
        let sum = self.reduce_here(&mut schedule, rank, topology, operands);
        self.exchange_leaders(&mut schedule, rank, sum, result);
        self.broadcast_here(&mut schedule, rank, topology, operands.len);
        schedule
    }

    /// Combines the other group's operands and sends parts to everyone's output. `counts` are the
    /// parts' lengths by rank of this group.
    pub fn reduce_scatter(
        &self,
        rank: u32,
        topology: &Topology,
        counts: &[u64],
        operands: Operands,
    ) -> Schedule {
        let mut schedule = Schedule::default();
        let sum = self.reduce_here(&mut schedule, rank, topology, operands);
        let is_leader = rank == self.local.start;
        let result = if is_leader { schedule.room(operands.len) } else { sum };
        self.exchange_leaders(&mut schedule, rank, sum, result);
        let topology = part(topology, self.local.clone());
        let counts = |rank: u32| counts[rank as usize];
        let mut parts = Schedule::default();
        let here = rank - self.local.start;
        scatter_straight(&mut parts, here, &topology, 0, &counts, false);
        schedule.append(parts, &|rank| self.local.start + rank, result.buffer, Buffer::Output);
        schedule
    }

    /// Gathers everyone's block of the other group in everyone's output. `sizes` are their lengths
    /// by rank of that group; `own` is the length of this rank's block.
    pub fn allgather(&self, rank: u32, topology: &Topology, own: u64, sizes: &[u64]) -> Schedule {
        let leader = self.local.start;
        let starts = starts(sizes.iter().copied());
        let blocks = starts.iter().zip(sizes).map(|(&at, &len)| Buffer::Output.span(at, len));
        let receives = self.remote.clone().zip(blocks).filter(|_| rank == leader);
        let mut schedule = exchange(receives, [(self.remote.start, Buffer::Input.span(0, own))]);
        self.broadcast_here(&mut schedule, rank, topology, starts[sizes.len()]);
        schedule
    }

    /// Sends a block of the input to each of the other group, and receives a block of the output
    /// from each. Lengths are by the other group's ranks.
    pub fn alltoall(&self, sends: &[u64], receives: &[u64]) -> Schedule {
        let blocks = |buffer: Buffer, sizes: &[u64]| {
            let spans: Vec<Span> = starts(sizes.iter().copied())
                .into_iter()
                .zip(sizes)
                .map(|(start, &len)| buffer.span(start, len))
                .collect();
            self.remote.clone().zip(spans)
        };
        exchange(blocks(Buffer::Output, receives), blocks(Buffer::Input, sends))
    }

    /// Makes a plan for the root and the other group, in which the root is rank 0.
    fn with_root(
        &self,
        rank: u32,
        topology: &Topology,
        role: Role,
        plan: impl FnOnce(u32, &Topology) -> Schedule,
    ) -> Schedule {
        let mut schedule = Schedule::default();
        let (root, others, own) = match role {
            Role::Idle => return schedule,
            Role::Root => (rank, self.remote.clone(), 0),
            Role::Partner(root) => (root, self.local.clone(), 1 + rank - self.local.start),
        };
        let first = others.start;
        let topology = part(topology, std::iter::once(root).chain(others));
        let member = |rank: u32| if rank == 0 { root } else { first + rank - 1 };
        let found = plan(own, &topology);
        schedule.append(found, &member, Buffer::Input, Buffer::Output);
        schedule
    }

    /// Combines this group's operands at its leader and returns the span of the result.
    fn reduce_here(
        &self,
        schedule: &mut Schedule,
        rank: u32,
        topology: &Topology,
        operands: Operands,
    ) -> Span {
        let topology = part(topology, self.local.clone());
        let sum = match rank == self.local.start {
            true => schedule.room(operands.len),
            // Other ranks' spans are not significant.
            false => Buffer::Output.span(0, operands.len),
        };
        let found = reduce(rank - self.local.start, &topology, 0, operands);
        schedule.append(found, &|rank| self.local.start + rank, Buffer::Input, sum.buffer);
        sum
    }

    /// Exchanges data between the two leaders.
    fn exchange_leaders(&self, schedule: &mut Schedule, rank: u32, sent: Span, received: Span) {
        if rank == self.local.start {
            schedule.receive(self.remote.start, received);
            schedule.send(self.remote.start, sent);
            schedule.wait();
        }
    }

    /// Sends the leader's output to everyone's in this group.
    fn broadcast_here(&self, schedule: &mut Schedule, rank: u32, topology: &Topology, len: u64) {
        let topology = part(topology, self.local.clone());
        let found = broadcast(rank - self.local.start, &topology, 0, len);
        schedule.append(found, &|rank| self.local.start + rank, Buffer::Input, Buffer::Output);
    }
}

/// Returns the length of a block in a plan where the root, which has none, is rank 0.
fn behind_root(role: Role, sizes: &[u64], rank: u32) -> u64 {
    match (role, rank) {
        (_, 0) | (Role::Idle, _) => 0,
        (Role::Root, rank) => sizes[rank as usize - 1],
        (Role::Partner(_), _) => sizes[0],
    }
}

/// Returns the topology of some of the ranks.
fn part(topology: &Topology, ranks: impl IntoIterator<Item = u32>) -> Topology {
    if topology.nodes() == 1 {
        let size = ranks.into_iter().count() as u32;
        return Topology::flat(size, topology.is_oversubscribed(), *topology.costs());
    }
    let locations: Vec<_> = ranks.into_iter().map(|rank| topology.location(rank)).collect();
    let is_oversubscribed = topology.outnumbers_cores();
    Topology::with_pairs(&locations, is_oversubscribed, *topology.costs(), &topology.pairs())
}

impl Schedule {
    /// Appends a plan with other rank numbers and buffers.
    fn append(
        &mut self,
        plan: Schedule,
        member: &dyn Fn(u32) -> u32,
        input: Buffer,
        output: Buffer,
    ) {
        let (steps, temporaries) = (self.steps.len() as u32, self.temporaries.len() as u32);
        let moved = |span: Span| Span {
            buffer: match span.buffer {
                Buffer::Input => input,
                Buffer::Output => output,
                Buffer::Temporary(index) => Buffer::Temporary(temporaries + index),
            },
            ..span
        };
        self.temporaries.extend(plan.temporaries);
        self.steps.extend(plan.steps.into_iter().map(|step| match step {
            Step::Send { to, span } => Step::Send { to: member(to), span: moved(span) },
            Step::Receive { from, span } => Step::Receive { from: member(from), span: moved(span) },
            Step::Wait => Step::Wait,
            Step::Await { step } => Step::Await { step: steps + step },
            Step::Copy { from, to } => Step::Copy { from: moved(from), to: moved(to) },
            Step::Post { .. }
            | Step::PostParts { .. }
            | Step::PostBlocks
            | Step::Announce { .. }
            | Step::PostMore { .. }
            | Step::Meet { .. }
            | Step::Take { .. }
            | Step::TakeBlock { .. }
            | Step::TakeMore { .. }
            | Step::Release { .. }
            | Step::Combine { .. } => unreachable!("groups have no shared segment"),
            Step::Reduce { input, inout } => {
                Step::Reduce { input: moved(input), inout: moved(inout) }
            }
        }));
    }
}
