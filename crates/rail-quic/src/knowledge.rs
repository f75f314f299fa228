//! Estimates of paths, loaded from earlier jobs and stored for later ones.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cost::{Cost, CostStore, PathName, Traffic};
use netpath::QUIC_NAME;
use rustc_hash::FxHashMap;

use crate::congestion::Path;

/// Stores path estimates between jobs and converts them to costs.
pub(super) struct Knowledge {
    costs: Arc<dyn CostStore>,
    /// Estimates of this process, of paths whose links have ended.
    lately: FxHashMap<[IpAddr; 2], Path>,
}

impl Knowledge {
    pub fn new(costs: Arc<dyn CostStore>) -> Self {
        Self { costs, lately: FxHashMap::default() }
    }

    /// Returns the stored estimate of the path between two addresses.
    pub fn recall(&self, here: SocketAddr, there: SocketAddr) -> Option<Path> {
        if let Some(path) = self.lately.get(&[here.ip(), there.ip()]) {
            return Some(*path);
        }
        let cost = self.costs.path(&name(here, there))?;
        Some(Path {
            bytes_per_s: cost.bytes_per_s(OBSERVED_LEN) as f64,
            is_conclusive: cost.is_rate_conclusive(),
            round_trip: Duration::from_nanos(2 * cost.latency_ns()),
        })
    }

    /// Returns the stored random loss rate between two addresses, if known.
    pub fn loss(&self, here: SocketAddr, there: SocketAddr) -> Option<f64> {
        self.costs.traffic(&name(here, there))?.chance()
    }

    /// Stores the estimate of a path.
    pub fn keep(&mut self, here: SocketAddr, there: SocketAddr, path: &Path) {
        self.lately.insert([here.ip(), there.ip()], *path);
        self.costs.keep_path(&name(here, there), &self.measured_cost(path));
    }

    /// Stores the traffic statistics of a connection.
    pub fn keep_traffic(&self, here: SocketAddr, there: SocketAddr, traffic: &Traffic) {
        self.costs.keep_traffic(&name(here, there), traffic);
    }

    /// Returns the cost of frames on a path whose rate was measured.
    pub fn measured_cost(&self, path: &Path) -> Cost {
        let mut cost = self.cost(path);
        cost.set_rate(path.bytes_per_s as u64, path.is_conclusive);
        cost
    }

    /// Returns the cost of frames on a path. Encrypting and sending a packet takes a few system calls.
    pub fn cost(&self, path: &Path) -> Cost {
        let one_way_ns = path.round_trip.as_nanos() as u64 / 2;
        Cost::linear(one_way_ns, GAP_CALLS * self.costs.host().call_ns, path.bytes_per_s as u64)
    }
}

/// Name of a path: both addresses, without ports.
fn name(here: SocketAddr, there: SocketAddr) -> PathName<'static> {
    PathName { rail: QUIC_NAME, here: here.ip(), there: there.ip() }
}

/// Frame length at which the rate is stored: long enough that the gap does not matter.
const OBSERVED_LEN: u64 = 1 << 20;
/// Gap of a packet, in system calls.
const GAP_CALLS: u64 = 4;
