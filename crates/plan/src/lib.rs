//! Collective algorithms as pure functions: from sizes to the steps of one rank.
//!
//! A [`Schedule`] is what one rank does: sends and receives that run together until the next wait, and
//! local steps between. It names memory by [`Span`]s of three kinds of buffers, in *units*: bytes of
//! the packed stream for operations that move data (block `i` of a buffer begins at the sum of the
//! sizes of the blocks before it), elements of the datatype for reductions. Displacements, datatypes
//! and memory are the executor's business.
//!
//! Every algorithm is checked against its operation's definition by running the schedules of all
//! ranks in `tests/definition.rs`.
#![forbid(unsafe_code)]

mod algorithms;
mod catalogue;
mod choice;
mod costs;
mod crossings;
mod data;
mod intercomm;
mod levels;
mod model;
mod multisite;
mod neighbor;
mod order;
mod predict;
mod reduction;
mod schedule;
mod team;
mod text;
mod topology;

pub use algorithms::shmem::page_bytes;
pub use choice::{Algorithm, Call, Operation, Plans};
pub use costs::{Cost, Costs, Distance};
pub use crossings::Pairs;
pub use data::{allgather, alltoall, barrier, broadcast, gather, scatter};
pub use intercomm::{Groups, Role};
pub use levels::tell_neighbours;
pub use neighbor::direct;
pub use predict::{Deed, Doing, Prediction, predict, watch};
pub use reduction::{Operands, allreduce, exscan, reduce, reduce_scatter, scan};
pub use schedule::{Buffer, Fold, Operand, Schedule, Span, Step};
pub use topology::{Location, Topology};
