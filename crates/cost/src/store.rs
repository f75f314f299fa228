//! Costs kept between jobs.

use std::fmt;
use std::net::IpAddr;

use crate::{Cost, HostCost, Traffic};

/// A path between two addresses over one kind of rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathName<'a> {
    /// Name of the rail.
    pub rail: &'a str,
    /// Address of this end.
    pub here: IpAddr,
    /// Address of the other end.
    pub there: IpAddr,
}

/// Store of the costs of paths. Rails ask it when a link opens and give it what they have learnt: they touch no
/// disk themselves. What cannot be kept is measured again by the next job.
pub trait CostStore: fmt::Debug + Send + Sync {
    /// Returns the cost of operations on this machine.
    fn host(&self) -> HostCost;

    /// True if the costs of paths are kept.
    fn is_kept(&self) -> bool;

    /// Returns the cost of a path, as the last job has kept it.
    fn path(&self, name: &PathName<'_>) -> Option<Cost>;

    /// Keeps the cost of a path.
    fn keep_path(&self, name: &PathName<'_>, cost: &Cost);

    /// Returns the traffic statistics of a path.
    fn traffic(&self, name: &PathName<'_>) -> Option<Traffic>;

    /// Adds to the traffic statistics of a path.
    fn keep_traffic(&self, name: &PathName<'_>, traffic: &Traffic);
}

/// A store that keeps nothing, on a usual machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStore;

impl CostStore for NoStore {
    fn host(&self) -> HostCost {
        HostCost::default()
    }

    fn is_kept(&self) -> bool {
        false
    }

    fn path(&self, _name: &PathName<'_>) -> Option<Cost> {
        None
    }

    fn keep_path(&self, _name: &PathName<'_>, _cost: &Cost) {}

    fn traffic(&self, _name: &PathName<'_>) -> Option<Traffic> {
        None
    }

    fn keep_traffic(&self, _name: &PathName<'_>, _traffic: &Traffic) {}
}
