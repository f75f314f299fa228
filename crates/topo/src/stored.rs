//! The store of costs that rails use: the cache on disk.

use cost::{Cost, CostStore, HostCost, PathName, Traffic};

use crate::cache::{Cache, Pair, host_cost};
use crate::sample::host_name;

/// Costs in the cache of this machine, if there is one.
#[derive(Debug)]
pub struct StoredCosts {
    cache: Option<Cache>,
    host: HostCost,
}

impl StoredCosts {
    /// The store of the cache that the settings name.
    pub fn of_environment() -> Self {
        Self::of(Cache::of_environment())
    }

    /// The store of this cache. The machine is measured if the cache does not know it.
    pub fn of(cache: Option<Cache>) -> Self {
        Self { host: host_cost(cache.as_ref()), cache }
    }
}

impl CostStore for StoredCosts {
    fn host(&self) -> HostCost {
        self.host
    }

    fn is_kept(&self) -> bool {
        self.cache.is_some()
    }

    fn path(&self, name: &PathName<'_>) -> Option<Cost> {
        Some(self.cache.as_ref()?.link(&pair(name)).ok()??.value)
    }

    fn keep_path(&self, name: &PathName<'_>, cost: &Cost) {
        if let Some(cache) = &self.cache {
            // What cannot be stored is measured again by the next job.
            let _ = cache.keep_link(&pair(name), cost);
        }
    }

    fn traffic(&self, name: &PathName<'_>) -> Option<Traffic> {
        Some(self.cache.as_ref()?.traffic(&pair(name)).ok()??.value)
    }

    fn keep_traffic(&self, name: &PathName<'_>, traffic: &Traffic) {
        if let Some(cache) = &self.cache {
            let _ = cache.keep_traffic(&pair(name), traffic);
        }
    }
}

/// Name in the cache: the rail, and both addresses without ports.
fn pair(name: &PathName<'_>) -> Pair {
    let PathName { rail, here, there } = name;
    Pair::new(rail, &format!("{}/{here}", host_name()), &there.to_string())
}
