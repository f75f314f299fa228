//! Costs of this machine and its links: measured here, and stored on disk between jobs.
//!
//! The numbers themselves and their use are defined in `cost`. [`sample`] measures this machine's
//! in a few milliseconds. [`cache`] stores them, and those of links, so that a job begins with the
//! last one's results. [`processor`] counts cores and measures wake-ups, [`quota_percent`] reads limits of CPU time; [`domains`] groups cores
//! by cache and NUMA node. [`sites`] finds the node and the site of each process of a job.
//! [`transport`] chooses the protocol that is tried first between sites.
#![forbid(unsafe_code)]

pub mod cache;
pub mod core_list;
pub mod domains;
mod file;
mod link_costs;
pub mod processor;
mod quota;
pub mod sample;
pub mod sites;
mod stored;
pub mod transport;

pub use cache::{Cache, Entry, Pair};
pub use file::Ignored;
pub use link_costs::{CachedCosts, KnownLink, LinkCost, NetworkCosts};
pub use quota::quota_percent;
pub use stored::StoredCosts;
