//! Speeds of nodes: the processor time that all processes of a node may use together, limited by a control group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// A control group that limits the processor time of its processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpeedGroup(PathBuf);

impl SpeedGroup {
    /// Creates a group with the processor time of so many cores. The first process that joins begins with it.
    ///
    /// # Errors
    /// Fails where the kernel has no cpu controller, or the caller may not use it.
    pub fn make(name: &str, cores: f64) -> Result<Self, LabError> {
        let mounts = read(Path::new("/proc/mounts"))?;
        let hierarchy = Hierarchy::find(&mounts).ok_or_else(|| {
            LabError::Refused("--speed needs the cpu controller of control groups (cgroup)".into())
        })?;
        let quota_us = (cores * f64::from(PERIOD_US)).round() as u32;
        let Hierarchy { root, is_unified } = hierarchy;
        if is_unified {
            write(&root.join("cgroup.subtree_control"), "+cpu")?;
        }
        let path = root.join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let what = format!("create {}", path.display());
                return Err(LabError::System { what, source: error });
            }
            _ => {}
        }
        let group = Self(path);
        let limits: &[(&str, String)] = if is_unified {
            &[("cpu.max", format!("{quota_us} {PERIOD_US}"))]
        } else {
            &[
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota_us.to_string()),
            ]
        };
        let limited = limits.iter().try_for_each(|(file, text)| write(&group.0.join(file), text));
        match limited {
            Ok(()) => Ok(group),
            Err(error) => {
                group.remove();
                Err(error)
            }
        }
    }

    /// Returns the words that run a command in the group: they come before it.
    pub fn prefix(&self) -> [String; 4] {
        let join = "echo $$ >\"$0\" && exec \"$@\"";
        let processes = self.0.join("cgroup.procs").display().to_string();
        ["sh".into(), "-c".into(), join.into(), processes]
    }

    /// Removes the group. Its processes must have ended; one that is still ending leaves an idle group behind.
    pub fn remove(&self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A mounted hierarchy of control groups with the cpu controller.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    /// True for the second version of control groups.
    is_unified: bool,
}

impl Hierarchy {
    /// Finds it among lines of `/proc/mounts`. One of the first version comes first: the second has no cpu controller then.
    fn find(mounts: &str) -> Option<Self> {
        let of = |is_unified: bool| {
            mounts.lines().find_map(|line| {
                let mut words = line.split_whitespace().skip(1);
                let (root, kind, options) = (words.next()?, words.next()?, words.next()?);
                let is_it = match is_unified {
                    true => kind == "cgroup2",
                    false => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
                };
                is_it.then(|| Self { root: root.into(), is_unified })
            })
        };
        of(false).or_else(|| of(true))
    }
}

fn read(path: &Path) -> Result<String, LabError> {
    let what = || format!("read {}", path.display());
    fs::read_to_string(path).map_err(|source| LabError::System { what: what(), source })
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    let what = || format!("--speed: write {text} to {}", path.display());
    fs::write(path, text).map_err(|source| LabError::System { what: what(), source })
}

/// Parses the speed of a node.
pub(crate) fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (LEAST..=MOST).contains(speed));
    speed.ok_or_else(|| format!("a speed is a number of cores from {LEAST} to {MOST}, such as 0.6"))
}

/// Time in which a node may use its share. A short one keeps the pauses short that follow.
const PERIOD_US: u32 = 10_000;
/// Limits of speeds; the kernel gives no less than a millisecond in a period.
const LEAST: f64 = 0.1;
const MOST: f64 = 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let second = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let first = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n";
        let unlike = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        let found = |text: &str| Hierarchy::find(text).map(|found| (found.root, found.is_unified));
        assert_eq!(found(second), Some(("/sys/fs/cgroup".into(), true)));
        let of_first = Some(("/sys/fs/cgroup/cpu,cpuacct".into(), false));
        assert_eq!(found(&format!("{second}{unlike}{first}")), of_first);
        assert_eq!(found(unlike), None);
        assert_eq!(found("nonsense\n\n"), None);
    }

    #[test]
    fn speeds_have_limits() {
        assert_eq!(speed("0.6"), Ok(0.6));
        for wrong in ["0", "-1", "0.05", "fast", "NaN", "1e9", ""] {
            assert!(speed(wrong).unwrap_err().contains("such as 0.6"), "{wrong}");
        }
    }
}
