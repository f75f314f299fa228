//! What this process knows of paths: from jobs before, and for jobs to come.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustc_hash::FxHashMap;
use topo::sample::host_name;
use topo::{Cache, Pair};
use wire::{Cost, HostCost, Traffic};

use super::congestion::Path;

/// Remembers paths between jobs, and predicts what they cost.
pub(super) struct Knowledge {
    host: HostCost,
    cache: Option<Cache>,
    /// What this process has learned of paths whose links have ended.
    lately: FxHashMap<[IpAddr; 2], Path>,
}

impl Knowledge {
    pub fn new() -> Self {
        let cache = Cache::of_environment();
        Self { host: topo::cache::host_cost(cache.as_ref()), cache, lately: FxHashMap::default() }
    }

    /// What is remembered of the path from here to there.
    pub fn recall(&self, here: SocketAddr, there: SocketAddr) -> Option<Path> {
        if let Some(path) = self.lately.get(&[here.ip(), there.ip()]) {
            return Some(*path);
        }
        let cost = self.cache.as_ref()?.link(&pair(here, there)).ok()??.value;
        Some(Path {
            bytes_per_s: cost.bytes_per_s(OBSERVED_LEN) as f64,
            round_trip: Duration::from_nanos(2 * cost.latency_ns()),
        })
    }

    /// Which part gets lost by chance of what goes from here to there, if that is remembered.
    pub fn loss(&self, here: SocketAddr, there: SocketAddr) -> Option<f64> {
        self.cache.as_ref()?.traffic(&pair(here, there)).ok()??.value.chance()
    }

    /// Keeps what was learned of a path.
    pub fn keep(&mut self, here: SocketAddr, there: SocketAddr, path: &Path) {
        self.lately.insert([here.ip(), there.ip()], *path);
        if let Some(cache) = &self.cache {
            let mut cost = self.cost(path);
            cost.learn(OBSERVED_LEN, cost.busy_ns(OBSERVED_LEN));
            // What cannot be remembered is measured again by the next job.
            let _ = cache.keep_link(&pair(here, there), &cost);
        }
    }

    /// Keeps what the traffic of a connection has shown.
    pub fn keep_traffic(&self, here: SocketAddr, there: SocketAddr, traffic: &Traffic) {
        if let Some(cache) = &self.cache {
            let _ = cache.keep_traffic(&pair(here, there), traffic);
        }
    }

    /// What frames cost on a path. A packet takes some system calls' time to be sealed and sent.
    pub fn cost(&self, path: &Path) -> Cost {
        let one_way_ns = path.round_trip.as_nanos() as u64 / 2;
        Cost::linear(one_way_ns, GAP_CALLS * self.host.call_ns, path.bytes_per_s as u64)
    }
}

/// The ends of a path, without ports.
fn pair(here: SocketAddr, there: SocketAddr) -> Pair {
    Pair::new(NAME, &format!("{}/{}", host_name(), here.ip()), &there.ip().to_string())
}

/// The rail's name.
pub(crate) const NAME: &str = "quic";

/// The rate is that of frames as long as this: long enough for the gap not to count.
const OBSERVED_LEN: u64 = 1 << 20;
const GAP_CALLS: u64 = 4;
