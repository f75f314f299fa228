//! Collective algorithms as pure functions: from sizes to the steps of one rank.
//!
//! A [`Schedule`] lists one rank's steps: sends and receives that run together until the next wait,
//! and local steps between. It names memory by [`Span`]s of three kinds of buffers, in *units*. For
//! operations that move data a unit is a byte of the packed stream. Block `i` of a buffer begins at
//! the sum of the sizes of the blocks before it. For reductions a unit is an element of the
//! datatype. The executor handles displacements, datatypes and memory.
//!
//! Every algorithm is checked against its operation's definition: `tests/definition.rs` runs the
//! schedules of all ranks.
#![forbid(unsafe_code)]

mod algorithms;
mod catalogue;
mod choice;
mod costs;
mod crossings;
mod data;
mod hierarchical;
mod intercomm;
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
pub use costs::{Costs, Distance, MessageCost};
pub use crossings::Pairs;
pub use data::{allgather, alltoall, barrier, broadcast, gather, scatter};
pub use hierarchical::broadcast_in_node;
pub use intercomm::{Groups, Role};
pub use neighbor::exchange;
pub use predict::{Deed, Doing, Prediction, predict, watch};
pub use reduction::{Operands, allreduce, exscan, reduce, reduce_scatter, scan};
pub use schedule::{Buffer, Fold, Operand, Schedule, Span, Step};
pub use topology::{Location, Topology};
