//! Migration off a shared CPU core: if two processes spin on one core while another is idle, the one of higher rank
//! moves there. The kernel would do so only after milliseconds of time slices.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Counts consecutive checks that found a neighbour of lower rank on this core.
#[derive(Debug)]
pub struct Migrator {
    threshold: u32,
    meetings: u32,
    moved: Option<Instant>,
}

impl Migrator {
    /// Creates a migrator that moves after `threshold` such checks in a row.
    pub fn after(threshold: u32) -> Self {
        Self { threshold, meetings: 0, moved: None }
    }

    /// Records that an awake neighbour of lower rank shares this thread's core; `taken` are the cores of all awake
    /// neighbours. The thread migrates once the threshold is reached, if its affinity permits.
    pub fn note_shared_core(&mut self, core: u32, taken: impl Iterator<Item = u32>) {
        self.meetings += 1;
        if self.meetings < self.threshold {
            return;
        }
        self.meetings = 0;
        let now = Instant::now();
        if self.moved.is_some_and(|moved| now - moved < PAUSE) {
            return;
        }
        self.moved = Some(now);
        // If the system refuses, the kernel balances later.
        let _ = migrate(core, taken);
    }

    /// Records that no such neighbour shares the core.
    pub fn reset(&mut self) {
        self.meetings = 0;
    }
}

/// Moves this thread from `core` to a core that nobody uses, and restores its affinity.
fn migrate(core: u32, taken: impl Iterator<Item = u32>) -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut free = allowed;
    for core in taken.chain([core]).filter(|core| (*core as usize) < CpuSet::MAX_CPU) {
        free.unset(core as usize);
    }
    // The nearest cores come first: they may share a cache.
    let cores = 1..CpuSet::MAX_CPU;
    let mut cores = cores.map(|offset| (core as usize + offset) % CpuSet::MAX_CPU);
    let Some(target) = cores.find(|core| free.is_set(*core)) else { return Ok(()) };
    let mut only = CpuSet::new();
    only.set(target);
    sched_setaffinity(None, &only)?;
    sched_setaffinity(None, &allowed)
}

/// Minimum interval of migrations: a thread that comes back was placed there on purpose.
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_migrates_to_a_free_core_and_keeps_its_affinity() {
        std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let here = rustix::thread::sched_getcpu() as u32;
            migrate(here, [].into_iter()).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            let all = (0..CpuSet::MAX_CPU as u32).filter(|core| allowed.is_set(*core as usize));
            migrate(here, all).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed, "there is no core left");
            migrate(u32::MAX - 2000, [u32::MAX].into_iter()).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
        })
        .join()
        .unwrap();
    }

    const THRESHOLD: u32 = 5;

    #[test]
    fn it_takes_a_threshold_and_then_a_while() {
        let mut migrator = Migrator::after(THRESHOLD);
        for _ in 1..THRESHOLD {
            migrator.note_shared_core(0, [].into_iter());
            assert!(migrator.moved.is_none());
        }
        migrator.note_shared_core(0, 0..CpuSet::MAX_CPU as u32);
        let moved = migrator.moved.expect("a move");
        for _ in 0..THRESHOLD {
            migrator.note_shared_core(0, 0..CpuSet::MAX_CPU as u32);
        }
        assert_eq!(migrator.moved, Some(moved));
    }
}
