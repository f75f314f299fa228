//! The cost model: what links and machines cost, learnt from measurements and traffic, and what follows from it.
//!
//! [`Cost`] predicts when bytes arrive over a link, [`HostCost`] the work of this machine. [`Thresholds`] derives the
//! limits of protocols from both, [`split`] the shares of several links in one message.
#![forbid(unsafe_code)]

mod cost;
mod host_cost;
mod rate_meter;
mod split;
mod store;
mod text;
pub mod thresholds;
mod traffic;

pub use crate::cost::{Cost, KNOTS};
pub use host_cost::HostCost;
pub use rate_meter::{RateMeter, RateSample};
pub use split::{are_alike, finish_ns, split};
pub use store::{CostStore, NoStore, PathName};
pub use text::CostError;
pub use thresholds::Thresholds;
pub use traffic::Traffic;
