//! The cores of this machine, who wants them, and what it costs a thread to sleep and to be woken on them.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::domains;

/// Which cores there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Those that this process may run on, by their numbers.
    pub allowed: Vec<usize>,
    /// How many of them it may use up: fewer where a control group bounds its processor time.
    pub usable: usize,
    /// How many the machine has in all.
    pub machine: usize,
}

/// The cores of this machine and process.
pub fn cores() -> Cores {
    let allowed = domains::allowed(None).unwrap_or_default();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let listed = online.and_then(|text| numbers(text.trim()));
    let machine = listed.map_or(allowed.len(), |cores| cores.len());
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    Cores { allowed, usable, machine }
}

/// What tells how many threads of the machine run or could run (proc_loadavg(5)).
#[derive(Debug)]
pub struct Runnable(File);

impl Runnable {
    /// None where the machine does not tell.
    pub fn open() -> Option<Self> {
        File::open("/proc/loadavg").ok().map(Self)
    }

    /// How many do now, the calling thread included; a system call.
    pub fn count(&self) -> Option<usize> {
        let mut text = [0; 64];
        let len = rustix::io::pread(&self.0, &mut text, 0).ok()?;
        runnable(std::str::from_utf8(&text[..len]).ok()?)
    }
}

/// The runnable threads of `averages runnable/all last`.
fn runnable(text: &str) -> Option<usize> {
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// What it costs from the call that wakes a thread until that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// At least.
    pub least: Duration,
    /// In half of the cases at most.
    pub median: Duration,
}

/// Lets two threads wake each other in turn, each asleep in the kernel as a waiting rank is, for some
/// milliseconds. None where the system gives no thread or event.
pub fn wake() -> Option<Wake> {
    let [there, back] = [event()?, event()?];
    let mut halves = std::thread::scope(|scope| {
        let echo = || while hear(&there) == Some(PING) && call(&back, PING) {};
        let builder = std::thread::Builder::new().name("canele-echo".into());
        builder.spawn_scoped(scope, echo).ok()?;
        let begun = Instant::now();
        let mut halves = Vec::new();
        while halves.len() < ROUNDS && (halves.is_empty() || begun.elapsed() < ENOUGH) {
            let sent = Instant::now();
            if !call(&there, PING) || hear(&back).is_none() {
                break;
            }
            halves.push(sent.elapsed() / 2);
        }
        call(&there, STOP);
        Some(halves)
    })?;
    halves.sort_unstable();
    Some(Wake { least: *halves.first()?, median: halves[halves.len() / 2] })
}

/// The cores that a list such as `0-3,8` names.
pub(crate) fn numbers(text: &str) -> Option<Vec<usize>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < CORES_MAX).then_some(first..=last)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

fn event() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()
}

fn call(event: &OwnedFd, word: u64) -> bool {
    rustix::io::write(event, &word.to_ne_bytes()).is_ok()
}

/// Sleeps until somebody calls; none if nobody does.
fn hear(event: &OwnedFd) -> Option<u64> {
    let limit = rustix::time::Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)], Some(&limit)).ok()?;
    let mut word = [0; 8];
    rustix::io::read(event, &mut word).ok()?;
    Some(u64::from_ne_bytes(word))
}

/// More than Linux can be built for.
const CORES_MAX: usize = 1 << 16;

const PING: u64 = 1;
const STOP: u64 = 2;
/// The first find caches and cores cold.
const ROUNDS: usize = 400;
/// On a busy machine some rounds take milliseconds.
const ENOUGH: Duration = Duration::from_millis(50);
const PATIENCE_S: i64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-1"), Some(vec![0, 1]));
        assert_eq!(numbers("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        for text in ["", "3-1", "a", "0-", "0-99999999"] {
            assert_eq!(numbers(text), None, "{text}");
        }
    }

    #[test]
    fn this_process_has_cores_of_this_machine() {
        let Cores { allowed, usable, machine } = cores();
        assert!(!allowed.is_empty() && allowed.len() <= machine);
        assert!(usable >= 1 && usable <= allowed.len());
        assert!(Runnable::open().unwrap().count().is_some_and(|threads| threads >= 1));
    }

    #[test]
    fn runnable_threads_are_read() {
        assert_eq!(runnable("0.41 1.74 4.40 3/210 1234\n"), Some(3));
        assert_eq!(runnable("0.41 1.74 4.40"), None);
        assert_eq!(runnable("0.41 1.74 4.40 x/y 1"), None);
    }

    #[test]
    fn to_wake_a_thread_takes_time() {
        let Wake { least, median } = wake().expect("threads and events");
        assert!(!least.is_zero() && least <= median);
    }
}
