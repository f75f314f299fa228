//! Stepping aside: of two processes that spin on one core while another is idle, the one of higher rank goes
//! to the other. The kernel would get to it, after milliseconds of taking turns.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often this process has found a neighbour of lower rank on its core.
#[derive(Debug)]
pub struct Aside {
    habit: u32,
    meetings: u32,
    moved: Option<Instant>,
}

impl Aside {
    /// So many meetings in a row of looks are no chance.
    pub fn after(habit: u32) -> Self {
        Self { habit, meetings: 0, moved: None }
    }

    /// A neighbour of lower rank, awake, is on this thread's core as well; `taken` are the cores of all that
    /// are awake. Once it is a habit, the thread moves, if it may.
    pub fn meet(&mut self, core: u32, taken: impl Iterator<Item = u32>) {
        self.meetings += 1;
        if self.meetings < self.habit {
            return;
        }
        self.meetings = 0;
        let now = Instant::now();
        if self.moved.is_some_and(|moved| now - moved < PAUSE) {
            return;
        }
        self.moved = Some(now);
        // Where the system refuses, the kernel's own balancing is waited for.
        let _ = step(core, taken);
    }

    /// There is none any more.
    pub fn part(&mut self) {
        self.meetings = 0;
    }
}

/// Moves this thread from a core to one that nobody takes, and leaves it as free as it was.
fn step(core: u32, taken: impl Iterator<Item = u32>) -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut free = allowed;
    for core in taken.chain([core]).filter(|core| (*core as usize) < CpuSet::MAX_CPU) {
        free.unset(core as usize);
    }
    // Those next to it first, where a cache may be shared.
    let cores = 1..CpuSet::MAX_CPU;
    let mut cores = cores.map(|step| (core as usize + step) % CpuSet::MAX_CPU);
    let Some(target) = cores.find(|core| free.is_set(*core)) else { return Ok(()) };
    let mut only = CpuSet::new();
    only.set(target);
    sched_setaffinity(None, &only)?;
    sched_setaffinity(None, &allowed)
}

/// Not more often than this: what comes back is put there by somebody.
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_to_a_free_core_and_stays_free() {
        std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let here = rustix::thread::sched_getcpu() as u32;
            step(here, [].into_iter()).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            let all = (0..CpuSet::MAX_CPU as u32).filter(|core| allowed.is_set(*core as usize));
            step(here, all).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed, "there is no core left");
            step(u32::MAX - 2000, [u32::MAX].into_iter()).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
        })
        .join()
        .unwrap();
    }

    const HABIT: u32 = 5;

    #[test]
    fn it_takes_a_habit_and_then_a_while() {
        let mut aside = Aside::after(HABIT);
        for _ in 1..HABIT {
            aside.meet(0, [].into_iter());
            assert!(aside.moved.is_none());
        }
        aside.meet(0, 0..CpuSet::MAX_CPU as u32);
        let moved = aside.moved.expect("a habit");
        for _ in 0..HABIT {
            aside.meet(0, 0..CpuSet::MAX_CPU as u32);
        }
        assert_eq!(aside.moved, Some(moved));
    }
}
