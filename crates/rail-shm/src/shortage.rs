//! Lack of open files or memory for the rings of neighbours. They are attached when there is enough again.

use std::io;
use std::time::{Duration, Instant};

/// Lack of a resource, and what the user was told of it.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Time of the next attempt.
    next_try: Option<Instant>,
    was_told: bool,
}

impl Shortage {
    /// True if neighbours may be attached now.
    pub fn is_over(&self) -> bool {
        self.next_try.is_none_or(|time| Instant::now() >= time)
    }

    /// Notes that a neighbour cannot be attached for now. Returns a text for the user, the first time.
    pub fn note(&mut self, error: &io::Error) -> Option<String> {
        self.next_try = Some(Instant::now() + REST);
        if std::mem::replace(&mut self.was_told, true) {
            return None;
        }
        let remedy = match error.raw_os_error() {
            Some(libc::ENOMEM) => "more memory (ulimit -v)",
            Some(libc::ENFILE) => "more open files on this host (sysctl fs.file-max)",
            _ => "more open files (ulimit -n)",
        };
        Some(format!(
            "a rank of this host cannot be reached: {error}; it is tried again, and {remedy} would help"
        ))
    }
}

/// True if a call failed for lack of a resource that may be there later.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| shortages.contains(&code))
}

/// Pause between attempts.
const REST: Duration = Duration::from_millis(100);
