//! Execution of collectives from the planner's schedules, for any [`Team`] of processes.
#![forbid(unsafe_code)]

pub mod check;
mod executor;
mod failure;
mod plans;
mod shm_coll;
mod slot;
mod team;

pub use check::{CallArguments, Lengths};
pub use executor::{Call, Collective, Elements, Pending};
pub use failure::{Argument, Failure, Fault, Result};
pub use plans::{Listed, Routine, Shape};
pub use team::{Collectives, Form, Team};
