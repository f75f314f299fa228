//! The cores of a process, which may change while it runs, and the policy that follows from them.
//!
//! The launcher says how many ranks share how many cores; the first policy is made from that. A control group, or a
//! user who moves threads, may change it. So a thread that is about to sleep, or has yielded its core, checks now and
//! then on which cores the threads of its process may run. All threads count together: one that binds itself takes no
//! core from the others. Affinities exchange their cores through the rails. A process that has as many cores as at
//! the start, and no more neighbours on them than cores, keeps its first policy. Nobody checks while waits are short
//! and every thread has a core.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock::Uncancelled;
use rail::Affinities;

use crate::policy::{Policy, PolicyInputs};

/// The current policy. Its fields are guarded by the worker's lock.
#[derive(Debug)]
pub(crate) struct Cores {
    first: Policy,
    /// Cores of the process when the first policy was made.
    had: Option<Vec<usize>>,
    /// Time for which a thread spins that has a core.
    spin: Duration,
    began: Instant,
    /// Time of the next check, in µs since `began`.
    look_at_us: AtomicU64,
    has_a_core: AtomicBool,
    threads: AtomicUsize,
    idle_pollers: AtomicUsize,
}

/// Result of a check.
struct CoreCheck {
    /// True if the process has the cores that it had at the start.
    is_as_at_start: bool,
    /// Number of its cores.
    own: usize,
    neighbours: Affinities,
}

impl Cores {
    pub fn new(first: Policy) -> Self {
        let cores = Self {
            first,
            had: topo::domains::of_process(),
            spin: first.moved(1, 1).spin,
            began: Instant::now(),
            look_at_us: AtomicU64::new(0),
            has_a_core: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            idle_pollers: AtomicUsize::new(0),
        };
        cores.adopt(first);
        cores
    }

    /// True if a waiting thread spins for a while.
    #[inline]
    pub fn has_a_core(&self) -> bool {
        self.has_a_core.load(Ordering::Relaxed)
    }

    /// Returns the time for which it spins.
    pub fn spin(&self) -> Duration {
        if self.has_a_core() { self.spin } else { Duration::ZERO }
    }

    /// Returns the time for which it spins under contention.
    pub fn brief(&self) -> Duration {
        self.first.brief
    }

    /// Number of yield rounds before sleeping.
    pub fn yield_rounds(&self) -> u32 {
        self.first.yield_rounds
    }

    /// Number of threads of the process that have a core each.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Number of idle pollers that the process may have.
    pub fn idle_pollers(&self) -> usize {
        self.idle_pollers.load(Ordering::Relaxed)
    }

    /// Checks the cores now and then, as the calling thread has the time. `compare` exchanges a digest of them with
    /// the neighbours. True if the policy has changed.
    pub fn look(&self, now: Instant, compare: impl FnOnce(u64) -> Affinities) -> bool {
        let now_us = u64::try_from((now - self.began).as_micros()).unwrap_or(u64::MAX);
        if now_us < self.look_at_us.load(Ordering::Relaxed) {
            return false;
        }
        self.look_at_us.store(now_us + LOOK_EVERY.as_micros() as u64, Ordering::Relaxed);
        self.compare(compare)
    }

    #[cold]
    fn compare(&self, compare: impl FnOnce(u64) -> Affinities) -> bool {
        let _uncancelled = Uncancelled::begin();
        let Some(cores) = topo::domains::of_process() else { return false };
        let neighbours = compare(digest(&cores));
        let is_as_at_start = self.had.as_ref() == Some(&cores);
        let own = cores.len().min(self.usable_max());
        self.adopt(judge(self.first, &CoreCheck { is_as_at_start, own, neighbours }))
    }

    /// Number of cores that the process may use up: fewer than it may run on if a control group limits its CPU time.
    fn usable_max(&self) -> usize {
        let own = self.first.inputs.own;
        let is_bound = self.had.as_ref().is_some_and(|had| own < had.len());
        if is_bound { own } else { usize::MAX }
    }

    fn adopt(&self, policy: Policy) -> bool {
        self.threads.store(policy.threads, Ordering::Relaxed);
        self.idle_pollers.store(policy.idle_pollers, Ordering::Relaxed);
        self.has_a_core.swap(policy.has_a_core(), Ordering::Relaxed) != policy.has_a_core()
    }
}

/// Returns the policy that follows. Affinities on the same cores certainly share them. Other ranks of this node that
/// the process has not spoken to are assumed to have moved with it, unless those that it knows are elsewhere.
fn judge(first: Policy, check: &CoreCheck) -> Policy {
    let CoreCheck { is_as_at_start, own, neighbours } = check;
    let PolicyInputs { ranks, cores, own: had, .. } = first.inputs;
    let seen = 1 + neighbours.alike;
    if *is_as_at_start && (seen <= *own || !first.has_a_core()) {
        return first;
    }
    let sharing = (ranks * had.min(cores)).div_ceil(cores.max(1));
    let is_alone = neighbours.alike == 0 && neighbours.others > 0;
    first.moved(if is_alone { 1 } else { sharing.max(seen) }, *own)
}

/// Returns a digest by which neighbours compare their cores; it is never 0.
fn digest(cores: &[usize]) -> u64 {
    // FNV-1a.
    let add = |hash: u64, core: &usize| (hash ^ *core as u64).wrapping_mul(0x0100_0000_01b3);
    cores.iter().fold(0xcbf2_9ce4_8422_2325, add) | 1
}

/// Time between two checks. Each takes a system call per thread of the process.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(
        first: Policy,
        is_as_at_start: bool,
        own: usize,
        alike: usize,
        others: usize,
    ) -> Policy {
        judge(first, &CoreCheck { is_as_at_start, own, neighbours: Affinities { alike, others } })
    }

    #[test]
    fn ranks_yield_on_one_core_and_spin_when_theirs_are_back() {
        let first = Policy::for_node(2, 2);
        for alike in [0, 1] {
            let left = seen(first, false, 1, alike, 0);
            assert!(first.has_a_core() && !left.has_a_core());
            assert_eq!(left, first.moved(2, 1));
            assert_eq!(seen(first, true, 2, alike, 0), first);
        }
        let oversubscribed = Policy::for_node(4, 2);
        assert_eq!(seen(oversubscribed, true, 2, 3, 0), oversubscribed);
        let given = seen(oversubscribed, false, 4, 3, 0);
        assert!(given.has_a_core());
        assert_eq!(given.threads, 1);
    }

    #[test]
    fn ranks_bound_to_cores_of_their_own_share_one_when_they_meet_on_it() {
        let first = Policy::for_node(2, 2).bound_to(1);
        assert_eq!(seen(first, true, 1, 0, 1), first);
        let stays = seen(first, true, 1, 1, 0);
        let comes = seen(first, false, 1, 1, 0);
        assert!(!stays.has_a_core() && !comes.has_a_core());
        let elsewhere = seen(first, false, 1, 0, 1);
        assert!(elsewhere.has_a_core(), "it has moved to another core, and nobody is there");
    }

    #[test]
    fn a_single_moved_rank_and_the_others_keep_a_core() {
        let first = Policy::for_node(2, 2);
        assert!(seen(first, false, 1, 0, 1).has_a_core());
        assert_eq!(seen(first, true, 2, 0, 1), first);
    }

    #[test]
    fn ranks_that_were_never_spoken_to_have_lost_cores_as_well() {
        let first = Policy::for_node(64, 64);
        assert!(!seen(first, false, 32, 6, 0).has_a_core());
        let of_a_socket = Policy::for_node(32, 32).bound_to(16);
        assert!(seen(of_a_socket, true, 16, 6, 6).has_a_core());
        assert!(!seen(of_a_socket, false, 8, 6, 6).has_a_core());
        let of_eight = Policy::for_node(8, 64).bound_to(8);
        assert_eq!(seen(of_eight, false, 4, 0, 3).threads, 4);
    }

    #[test]
    fn threads_and_idle_pollers_are_as_many_as_cores_are_left() {
        let first = Policy::for_node(2, 16);
        let left = seen(first, false, 4, 1, 0);
        assert_eq!(
            (first.threads, first.idle_pollers, left.threads, left.idle_pollers),
            (8, 6, 2, 0)
        );
        let given = seen(first.without_idle_pollers(), false, 32, 1, 0);
        assert_eq!((given.threads, given.idle_pollers), (16, 0));
    }

    #[test]
    fn looks_are_seldom() {
        let cores = Cores::new(Policy::for_node(1, 1));
        let mut looks = 0;
        let mut look = |at| {
            cores.look(cores.began + at, |_| {
                looks += 1;
                Affinities::default()
            })
        };
        for at in 0..1000 {
            assert!(!look(at * LOOK_EVERY / 100), "nothing has changed");
        }
        assert_eq!(looks, 10);
    }

    #[test]
    fn neighbours_are_noticed_when_they_come_and_leave() {
        let many = topo::domains::of_process().map_or(1, |cores| cores.len());
        let cores = Cores::new(Policy::for_node(many, many));
        let mut at = cores.began;
        let mut contention = |alike, others| {
            at += LOOK_EVERY;
            cores.look(at, |own| {
                assert_ne!(own, 0);
                Affinities { alike, others }
            })
        };
        assert!(contention(many, 0) && !cores.has_a_core());
        assert_eq!(cores.spin(), Duration::ZERO);
        assert!(!contention(many, 0), "still");
        assert!(contention(many - 1, 0) && cores.has_a_core());
    }

    #[test]
    fn digests_tell_sets_of_cores_apart() {
        assert_eq!(digest(&[0, 1]), digest(&[0, 1]));
        let words = [digest(&[]), digest(&[0]), digest(&[1]), digest(&[0, 1]), digest(&[2, 3])];
        let mut known = words.to_vec();
        known.sort_unstable();
        known.dedup();
        assert_eq!((known.len(), words.contains(&0)), (words.len(), false));
    }
}
