//! Limits of the system that a process may reach.

use std::io;

use rustix::io::Errno;
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

/// Returns the limit that an error is about, and the remedy; none if it is about no limit.
pub fn shortage(error: &io::Error) -> Option<String> {
    let limit = |resource| match getrlimit(resource).current {
        Some(limit) => limit.to_string(),
        None => "unlimited".to_owned(),
    };
    match Errno::from_io_error(error)? {
        Errno::MFILE => {
            let limit = limit(Resource::Nofile);
            Some(format!(
                "the limit of {limit} open files is reached; raise the hard limit (ulimit -Hn)"
            ))
        }
        Errno::NFILE => {
            Some("all open files of the host are in use; raise fs.file-max (sysctl)".to_owned())
        }
        Errno::AGAIN => {
            let limit = limit(Resource::Nproc);
            Some(format!(
                "a limit of processes and threads is reached; raise ulimit -u ({limit}), or pids.max \
                 of the container"
            ))
        }
        Errno::NOMEM => Some("memory is exhausted; raise its limit (ulimit -v)".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_with_their_remedy() {
        for (code, words) in [
            (Errno::MFILE, "ulimit -Hn"),
            (Errno::NFILE, "fs.file-max"),
            (Errno::AGAIN, "ulimit -u"),
            (Errno::NOMEM, "memory"),
        ] {
            let text = shortage(&io::Error::from(code)).unwrap();
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(shortage(&io::Error::from(Errno::NOENT)), None);
        assert_eq!(shortage(&io::Error::other("x")), None);
    }
}
