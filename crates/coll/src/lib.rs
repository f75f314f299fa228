//! Execution of collectives from the planner's schedules, for any [`Team`] of processes.
#![forbid(unsafe_code)]

mod buffers;
mod call;
pub mod check;
mod entry;
mod executor;
mod failure;
mod plans;
mod running;
mod shm_coll;
mod slot;
mod team;

pub use buffers::Elements;
pub use call::{Call, Collective};
pub use check::{CallArguments, Lengths};
pub use executor::Pending;
pub use failure::{Argument, Failure, Fault, Result};
pub use plans::{Listed, Routine, Shape};
pub use team::{Collectives, Form, Team};
