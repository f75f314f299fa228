//! Cores of this machine, the load on them, and the cost of sleeping and being woken.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::core_list::numbers;
use crate::domains;

/// Numbers of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Cores that this process may run on, by number.
    pub allowed: Vec<usize>,
    /// Number of them that it may use fully: fewer if a cgroup limits its CPU time.
    pub usable: usize,
    /// Number of cores of the machine.
    pub machine: usize,
}

/// Returns the cores of this machine and process.
pub fn cores() -> Cores {
    let allowed = domains::allowed(None).unwrap_or_default();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let listed = online.and_then(|text| numbers(text.trim()));
    let machine = listed.map_or(allowed.len(), |cores| cores.len());
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    Cores { allowed, usable, machine }
}

/// Counter of the machine's runnable threads (proc_loadavg(5)).
#[derive(Debug)]
pub struct Runnable(File);

impl Runnable {
    /// Opens the counter; none if the machine has none.
    pub fn open() -> Option<Self> {
        File::open("/proc/loadavg").ok().map(Self)
    }

    /// Returns the number of runnable threads, the calling one included; one system signal.
    pub fn count(&self) -> Option<usize> {
        let mut text = [0; 64];
        let len = rustix::io::pread(&self.0, &mut text, 0).ok()?;
        runnable(std::str::from_utf8(&text[..len]).ok()?)
    }
}

/// Parses the runnable threads of `averages runnable/all last`.
fn runnable(text: &str) -> Option<usize> {
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Time from the signal that wakes a thread until that thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Minimum.
    pub least: Duration,
    /// Median.
    pub median: Duration,
}

/// Lets two threads wake each other alternately for some milliseconds. Each sleeps in the kernel as
/// a waiting rank does. None if the system gives no thread or eventfd.
pub fn wake() -> Option<Wake> {
    let [there, back] = [event()?, event()?];
    let mut halves = std::thread::scope(|scope| {
        let echo = || while receive(&there) == Some(PING) && signal(&back, PING) {};
        let builder = std::thread::Builder::new().name("canele-echo".into());
        builder.spawn_scoped(scope, echo).ok()?;
        let begun = Instant::now();
        let mut halves = Vec::new();
        while halves.len() < ROUNDS && (halves.is_empty() || begun.elapsed() < TIME_MAX) {
            let sent = Instant::now();
            if !signal(&there, PING) || receive(&back).is_none() {
                break;
            }
            halves.push(sent.elapsed() / 2);
        }
        signal(&there, STOP);
        Some(halves)
    })?;
    halves.sort_unstable();
    Some(Wake { least: *halves.first()?, median: halves[halves.len() / 2] })
}

fn event() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()
}

fn signal(event: &OwnedFd, value: u64) -> bool {
    rustix::io::write(event, &value.to_ne_bytes()).is_ok()
}

/// Sleeps until an event arrives; none on timeout.
fn receive(event: &OwnedFd) -> Option<u64> {
    let limit = rustix::time::Timespec { tv_sec: TIMEOUT_S, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)], Some(&limit)).ok()?;
    let mut value = [0; 8];
    rustix::io::read(event, &mut value).ok()?;
    Some(u64::from_ne_bytes(value))
}

const PING: u64 = 1;
const STOP: u64 = 2;
/// Number of rounds. The first ones find caches and cores cold.
const ROUNDS: usize = 400;
/// Time limit: on a busy machine some rounds take milliseconds.
const TIME_MAX: Duration = Duration::from_millis(50);
const TIMEOUT_S: i64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

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
