//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to `wanted`, as far as the hard limit permits. Programs may rely on a low limit, so
/// it is raised no further. Returns the limit; none if there is none.
pub fn raise_open_files(wanted: u64) -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    let current = limits.current?;
    let raised = limits.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if raised <= current {
        return Some(current);
    }
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limits }).is_ok();
    Some(if is_raised { raised } else { current })
}
