//! Groups of near cores: those that share the last-level cache within a NUMA node.
//!
//! The data come from sysfs, which hwloc reads as well. A C library that users would have to
//! install is not worth it for this alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::core_list::numbers;

/// Known location of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Number of its NUMA node.
    pub node: Option<usize>,
    /// First core that shares its last-level cache.
    pub cache: Option<usize>,
}

/// Returns the cores that a thread may run on, by number; the calling thread's without an id. None
/// if the system does not tell, or the thread has ended.
pub fn allowed(thread: Option<Pid>) -> Option<Vec<usize>> {
    let set = sched_getaffinity(thread).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Returns the cores that any thread of this process may run on, by number. None if the system does
/// not tell.
pub fn of_process() -> Option<Vec<usize>> {
    let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
    let id = |thread: fs::DirEntry| Pid::from_raw(thread.file_name().to_str()?.parse().ok()?);
    let sets: Vec<_> = threads.filter_map(|thread| sched_getaffinity(id(thread)).ok()).collect();
    let is_of_any = |core: &usize| sets.iter().any(|set| set.is_set(*core));
    Some((0..CpuSet::MAX_CPU).filter(is_of_any).collect())
}

/// Groups cores by location, in the order of their first cores. Cores of unknown location form one
/// domain.
pub fn divide(cores: &[usize], location: impl Fn(usize) -> Location) -> Vec<Vec<usize>> {
    group(cores, location)
}

/// Groups cores by a key, in the order of their first ones.
fn group<K: Ord>(cores: &[usize], key: impl Fn(usize) -> K) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for core in cores {
        groups.entry(key(*core)).or_default().push(*core);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| group.first().copied());
    groups
}

/// Returns the domains of these cores of this machine.
pub fn of_machine(cores: &[usize]) -> Vec<Vec<usize>> {
    divide(cores, locate())
}

/// Groups the cores by NUMA node alone.
pub fn by_memory(cores: &[usize]) -> Vec<Vec<usize>> {
    let location = locate();
    divide(cores, |core| Location { cache: None, ..location(core) })
}

/// Groups the cores by socket.
pub fn by_package(cores: &[usize]) -> Vec<Vec<usize>> {
    let package = |core: usize| {
        let path = Path::new(CORES).join(format!("cpu{core}/topology/physical_package_id"));
        fs::read_to_string(path).ok()?.trim().parse::<usize>().ok()
    };
    group(cores, package)
}

/// Groups hardware threads by the cache of a level that they share; by core where the machine does not tell.
pub fn by_cache(threads: &[usize], level: usize) -> Vec<Vec<usize>> {
    let cache = |thread: &usize| {
        cache(&Path::new(CORES).join(format!("cpu{thread}/cache")), |one| one == level)
    };
    match threads.iter().all(|thread| cache(thread).is_some()) {
        true => group(threads, |thread| cache(&thread)),
        false => by_core(threads),
    }
}

/// Groups hardware threads by core; near cores come one after the other.
pub fn by_core(threads: &[usize]) -> Vec<Vec<usize>> {
    let first = |thread: usize| {
        let siblings = Path::new(CORES).join(format!("cpu{thread}/topology/thread_siblings_list"));
        listed(&siblings).and_then(|them| them.first().copied()).unwrap_or(thread)
    };
    of_machine(threads).iter().flat_map(|near| group(near, first)).collect()
}

/// Returns the function that locates a core of this machine.
pub fn locate() -> impl Fn(usize) -> Location {
    let nodes = nodes(Path::new(NODES));
    move |core| Location {
        node: nodes.iter().find(|(_, cores)| cores.contains(&core)).map(|(node, _)| *node),
        cache: cache(&Path::new(CORES).join(format!("cpu{core}/cache")), |_| true),
    }
}

/// Returns the NUMA nodes with their cores.
fn nodes(directory: &Path) -> Vec<(usize, Vec<usize>)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        Some((number, listed(&entry.path().join("cpulist"))?))
    };
    entries.filter_map(node).collect()
}

/// Returns the first core that shares the last of these levels of the caches described in `directory`.
fn cache(directory: &Path, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let cache = |entry: fs::DirEntry| {
        let level: usize =
            fs::read_to_string(entry.path().join("level")).ok()?.trim().parse().ok()?;
        Some((level, *listed(&entry.path().join("shared_cpu_list"))?.first()?))
    };
    let caches = entries.filter_map(cache).filter(|(level, _)| is_wanted(*level));
    caches.max_by_key(|(level, _)| *level).map(|(_, first)| first)
}

fn listed(path: &Path) -> Option<Vec<usize>> {
    numbers(fs::read_to_string(path).ok()?.trim())
}

const CORES: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

#[cfg(test)]
mod tests {
    use rustix::thread::sched_setaffinity;

    use super::*;

    #[test]
    fn cores_are_divided_by_node_and_shared_cache() {
        // Two nodes of eight cores with two caches each. Of the last cache only one core is this
        // process's.
        let location = |core: usize| Location { node: Some(core / 8), cache: Some(core / 4 * 4) };
        let cores: Vec<_> = (0..13).collect();
        let expected = [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 10, 11], vec![12]].to_vec();
        assert_eq!(divide(&cores, location), expected);
        assert_eq!(divide(&[9, 2], location), [vec![2], vec![9]]);
        assert!(divide(&[], location).is_empty());
    }

    #[test]
    fn hardware_threads_of_a_core_are_together() {
        assert_eq!(group(&[0, 1, 2, 4, 5, 6], |one| one % 4), [[0, 4], [1, 5], [2, 6]]);
        let all = allowed(None).unwrap();
        let mut found = by_core(&all).concat();
        found.sort_unstable();
        assert_eq!(found, all);
    }

    #[test]
    fn a_cache_over_several_nodes_is_not_one_domain() {
        let location = |core: usize| Location { node: Some(core % 2), cache: Some(0) };
        assert_eq!(divide(&[0, 1, 2, 3], location), [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn cores_of_unknown_location_are_one_domain() {
        assert_eq!(divide(&[3, 5], |_| Location::default()), [vec![3, 5]]);
    }

    #[test]
    fn sysfs_is_read() {
        let machine = tempfile::tempdir().unwrap();
        let cache = machine.path().join("cpu5/cache");
        for (index, level, shared) in [(0, "1\n", "5\n"), (1, "3\n", "4-7\n"), (2, "2\n", "5\n")] {
            let directory = cache.join(format!("index{index}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("level"), level).unwrap();
            fs::write(directory.join("shared_cpu_list"), shared).unwrap();
        }
        assert_eq!(super::cache(&cache, |_| true), Some(4));
        assert_eq!(super::cache(machine.path(), |_| true), None);
        let node = machine.path().join("node1");
        fs::create_dir(&node).unwrap();
        fs::write(node.join("cpulist"), "4-5,8\n").unwrap();
        assert_eq!(nodes(machine.path()), [(1, vec![4, 5, 8])]);
        assert!(nodes(&machine.path().join("none")).is_empty());
    }

    #[test]
    fn a_thread_that_binds_itself_takes_no_core_from_its_process() {
        let all = of_process().unwrap();
        let bind = || {
            let mut one = CpuSet::new();
            one.set(all[0]);
            sched_setaffinity(None, &one).unwrap();
            assert_eq!(allowed(None).unwrap(), all[..1]);
            assert_eq!(of_process().unwrap(), all);
        };
        std::thread::scope(|scope| scope.spawn(bind).join()).unwrap();
    }

    #[test]
    fn the_domains_of_this_machine_hold_its_cores() {
        let cores = allowed(None).unwrap();
        let mut all: Vec<_> = of_machine(&cores).concat();
        all.sort_unstable();
        assert_eq!(all, cores);
        let mut all: Vec<_> = by_memory(&cores).concat();
        all.sort_unstable();
        assert_eq!(all, cores);
        assert!(by_memory(&cores).len() <= of_machine(&cores).len());
    }
}
