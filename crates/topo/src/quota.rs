//! CPU time that control groups leave this process (`cpu.max`, `cpu.cfs_quota_us`).

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the CPU time that this process may use, in hundredths of a core. None without a limit.
///
/// The smallest limit of its control group and of the groups around it counts. A container sees
/// its own groups only.
pub fn quota_percent() -> Option<u32> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let limits = Hierarchy::all(&mounts).into_iter().filter_map(|hierarchy| {
        let group = hierarchy.group(&groups)?;
        group.ancestors().filter_map(|path| hierarchy.limit_percent(path)).min()
    });
    limits.min()
}

/// A mounted hierarchy of control groups that may limit CPU time.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    /// True for the second version of control groups.
    is_unified: bool,
}

impl Hierarchy {
    /// Finds the hierarchies among the lines of `/proc/self/mounts`.
    fn all(mounts: &str) -> Vec<Self> {
        let of = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            let (root, kind, options) = (words.next()?, words.next()?, words.next()?);
            let is_unified = kind == "cgroup2";
            let is_first = kind == "cgroup" && options.split(',').any(|option| option == "cpu");
            (is_unified || is_first).then(|| Self { root: root.into(), is_unified })
        };
        mounts.lines().filter_map(of).collect()
    }

    /// Returns the path of the group among the lines of `/proc/self/cgroup`, without the root.
    fn group<'a>(&self, groups: &'a str) -> Option<&'a Path> {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_it = match self.is_unified {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|one| one == "cpu"),
            };
            is_it.then(|| Path::new(path.trim_start_matches('/')))
        })
    }

    fn limit_percent(&self, group: &Path) -> Option<u32> {
        let read = |name: &str| fs::read_to_string(self.root.join(group).join(name)).ok();
        if self.is_unified {
            return percent(&read("cpu.max")?);
        }
        let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
        percent(&format!("{} {}", quota.trim(), period.trim()))
    }
}

/// Parses a quota and its period. A quota of `max` or -1 is none.
fn percent(text: &str) -> Option<u32> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    let percent = quota.checked_mul(100)?.checked_div(period)?;
    Some(u32::try_from(percent).unwrap_or(u32::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_parts_of_a_core() {
        assert_eq!(percent("6000 10000\n"), Some(60));
        assert_eq!(percent("250000 100000"), Some(250));
        assert_eq!(percent("1 100000"), Some(1), "not nothing");
        for unlimited in ["max 100000\n", "-1 100000", "", "5", "5 0"] {
            assert_eq!(percent(unlimited), None, "{unlimited}");
        }
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let groups = "3:cpuset:/set\n2:cpu,cpuacct:/job/step\n0::/user:slice\n";
        let all = Hierarchy::all(mounts);
        let found = all.iter().map(|one| (one.is_unified, one.group(groups).unwrap()));
        let expected = [(false, Path::new("job/step")), (true, Path::new("user:slice"))];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(all[0].group("0::/only\n"), None);
    }

    #[test]
    fn the_smallest_limit_of_all_groups_counts() {
        let place = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy { root: place.path().into(), is_unified: true };
        let inner = place.path().join("job/step");
        fs::create_dir_all(&inner).unwrap();
        fs::write(place.path().join("job/cpu.max"), "30000 100000\n").unwrap();
        fs::write(inner.join("cpu.max"), "max 100000\n").unwrap();
        let least = |group: &str| {
            Path::new(group).ancestors().filter_map(|path| hierarchy.limit_percent(path)).min()
        };
        assert_eq!((least("job/step"), least("job"), least("")), (Some(30), Some(30), None));
    }
}
