//! Gateways as ranks see them: the protocol, and the routes that lead through them.
#![forbid(unsafe_code)]

mod path_cost;
mod relay;
mod route;

pub use path_cost::{PathCost, PathCosts};
pub use route::{Gateways, Routes};

pub use crate::relay::*;
