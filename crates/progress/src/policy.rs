//! Waiting policy: how long a waiting thread spins and yields before it sleeps.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::backoff::{Backoff, Decision};
use crate::contention::Contention;
use crate::cores::Cores;
use crate::yield_rounds::YIELD_ROUNDS;

/// Waiting policy of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Time of polling without yielding the core.
    pub spin: Duration,
    /// Number of yields, with a poll after each, between spinning and sleeping.
    pub yields: u32,
    /// Time of spinning under contention.
    pub brief: Duration,
    /// Number of yield rounds under contention, with a poll after each, before sleeping.
    pub yield_rounds: u32,
    /// Number of the process's threads that have a core each.
    pub threads: usize,
    /// Number of idle pollers that may run on cores nobody wants.
    pub idle_pollers: usize,
    pub(crate) inputs: PolicyInputs,
}

/// Facts from which a policy follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyInputs {
    /// Number of ranks that share `cores`.
    pub ranks: usize,
    pub cores: usize,
    /// Number of these cores that the process itself may use.
    pub own: usize,
    /// Wake-up latency of a timed sleep.
    wake: Duration,
    may_have_idle_pollers: bool,
    is_among_nodes: bool,
    /// Number of VCIs of the process in which threads wait.
    vcis: usize,
}

impl Policy {
    /// Returns the policy for a process that shares `cores` with `ranks` ranks of the job.
    ///
    /// With a core each, spinning as long as a sleep and a wake-up cost loses at most a factor of two against knowing
    /// the future (the ski-rental argument). The bound here is a generous multiple of that, so that a peer with a
    /// short computation still finds the thread awake. With more ranks than cores a spinning rank only keeps the
    /// awaited one from running, so it yields at once.
    pub fn for_node(ranks: usize, cores: usize) -> Self {
        let (wake, may_have_idle_pollers, is_among_nodes, vcis) = (WAKE, true, false, 1);
        PolicyInputs { ranks, cores, own: cores, wake, may_have_idle_pollers, is_among_nodes, vcis }
            .policy()
    }

    /// Limits the number of the node's cores that the process itself may use.
    #[must_use]
    pub fn bound_to(self, cores: usize) -> Self {
        let own = self.inputs.own.min(cores);
        PolicyInputs { own, ..self.inputs }.policy()
    }

    /// Allows no idle pollers.
    #[must_use]
    pub fn without_idle_pollers(self) -> Self {
        PolicyInputs { may_have_idle_pollers: false, ..self.inputs }.policy()
    }

    /// Adapts the policy to a machine that several nodes of the job share, with fewer cores than ranks: the other
    /// ranks that want the cores wait as well.
    #[must_use]
    pub fn among_nodes(self) -> Self {
        PolicyInputs { is_among_nodes: true, ..self.inputs }.policy()
    }

    /// Divides the cores of the process among its VCIs.
    #[must_use]
    pub fn in_vcis(self, vcis: usize) -> Self {
        PolicyInputs { vcis, ..self.inputs }.policy()
    }

    /// Sets the wake-up latency of a timed sleep.
    #[must_use]
    pub fn woken_in(self, wake: Duration) -> Self {
        PolicyInputs { wake, ..self.inputs }.policy()
    }

    /// Changes the number of ranks and of the cores that they share, all of which the process may use.
    #[must_use]
    pub(crate) fn moved(self, ranks: usize, cores: usize) -> Self {
        PolicyInputs { ranks, cores, own: cores, ..self.inputs }.policy()
    }

    /// Number of VCIs that the process's threads can poll with a core each: a power of two.
    pub fn vcis(&self) -> usize {
        let most = self.threads.min(VCIS_MAX);
        (most + 1).next_power_of_two() / 2
    }

    /// True if a waiting thread spins for a while.
    #[inline]
    pub fn has_a_core(&self) -> bool {
        !self.spin.is_zero()
    }
}

/// Maximum number of VCIs per process.
pub const VCIS_MAX: usize = 8;

impl PolicyInputs {
    fn policy(self) -> Policy {
        let Self { ranks, cores, own, wake, may_have_idle_pollers, is_among_nodes, vcis } = self;
        let (spin, yields) = match ranks > cores {
            true => (Duration::ZERO, OVERSUBSCRIBED_YIELDS),
            false => ((SPIN_WAKES * wake).clamp(SPIN_MIN, SPIN_MAX), 0),
        };
        let brief = wake.clamp(BRIEF_MIN, BRIEF_MAX);
        let threads = (cores / ranks.max(1)).min(own).max(1);
        let idle_pollers =
            if may_have_idle_pollers { threads.saturating_sub(CORES_IN_USE) } else { 0 };
        let threads = (threads / vcis).max(1);
        let yield_rounds = if is_among_nodes { YIELD_ROUNDS } else { 0 };
        Policy { spin, yields, brief, yield_rounds, threads, idle_pollers, inputs: self }
    }
}

/// Course of one wait.
pub(crate) struct SpinState<'a> {
    cores: &'a Cores,
    /// Time at which the wait began, at the latest, and time of the last clock reading.
    since: Option<(Instant, Instant)>,
    /// Time spent spinning, as far as the clock was read, that [`SpinState::take_spun`] has not returned.
    spun: Duration,
    /// Time limit of spinning under contention, once it has begun.
    limit: Duration,
    polls: u32,
    opportunities: u32,
    yields: u32,
    rounds: RoundsLeft,
    /// Time for which yields returned at once because nobody wanted the core.
    unwanted: Duration,
    /// Polls without events while the waits of other threads were over.
    held_polls: u32,
    /// Spinning under contention has failed: the thread sleeps at once until the next event.
    spin_failed: bool,
    /// True if the last event was a piece of a long message, so that the next piece is under way.
    mid_message: bool,
    /// True if that next piece did not arrive soon.
    is_late: bool,
}

/// Yield rounds that a wait has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundsLeft {
    /// Not decided yet, or rounds do not pay.
    Undecided,
    Rounds(u32),
    /// The rounds have failed.
    Failed,
}

/// Backoff for yields to unknown threads. Such a yield brings events from peers on the same core that no rail knows
/// of; threads that compute keep the core for some milliseconds. Each yield that only costs time doubles the number
/// of opportunities to skip, up to [`SKIPS_MAX`].
#[derive(Debug, Default)]
pub(crate) struct YieldPolicy {
    /// Opportunities to skip before the next yield.
    skip: AtomicU32,
    /// Opportunities that were skipped before the last yield.
    last: AtomicU32,
    /// True if the last yield brought events: the next one is not delayed.
    paid: AtomicBool,
}

impl YieldPolicy {
    /// True if the thread should yield this time.
    pub fn pays(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        self.skip.store(skip.saturating_sub(1), Ordering::Relaxed);
        skip == 0
    }

    /// True if the last yield brought events.
    pub fn paid(&self) -> bool {
        self.paid.load(Ordering::Relaxed)
    }

    /// Records the duration of a yield, and if it brought events.
    pub fn learn(&self, took: Duration, event_count: bool) {
        self.paid.store(event_count, Ordering::Relaxed);
        let last = match (event_count, took >= COSTLY_YIELD) {
            (true, _) => 0,
            (false, true) => (2 * self.last.load(Ordering::Relaxed) + 1).min(SKIPS_MAX),
            (false, false) => return,
        };
        self.last.store(last, Ordering::Relaxed);
        self.skip.store(last, Ordering::Relaxed);
    }
}

/// Next step before another poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Spin,
    /// Yields to a peer that runs on the same core, or spins if there is none.
    YieldToPeer,
    /// The same, but yields to any thread if there is no such peer and yields have paid lately.
    TryYield,
    Yield,
    /// Yields to any thread, as one of the yield rounds.
    YieldRound,
    Sleep,
}

impl<'a> SpinState<'a> {
    pub fn new(cores: &'a Cores) -> Self {
        Self {
            cores,
            since: None,
            spun: Duration::ZERO,
            limit: Duration::ZERO,
            polls: 0,
            opportunities: 0,
            yields: 0,
            rounds: RoundsLeft::Undecided,
            unwanted: Duration::ZERO,
            held_polls: 0,
            spin_failed: false,
            mid_message: false,
            is_late: false,
        }
    }

    /// Records the duration of a yield. If nobody else wanted the core, the thread keeps it for as long as sleeping
    /// costs.
    pub fn note_yield(&mut self, took: Duration) {
        let unwanted = self.unwanted + took;
        if took < YIELDED_TO_NOBODY && unwanted < self.cores.brief() {
            self.unwanted = unwanted;
            self.yields -= 1;
        }
    }

    /// Records the duration of a yield round.
    pub fn note_round(&mut self, contention: &Contention, took: Duration, now: Instant) {
        let goes_on = contention.note_round(took, now);
        if let RoundsLeft::Rounds(left) = &mut self.rounds {
            *left = if goes_on { left.saturating_sub(1) } else { 0 };
        }
    }

    /// Begins anew after an event: a completion (`has_events`), or a step on the way to one. Polls that have delayed
    /// other threads stay counted.
    pub fn renew(&mut self, contention: &Contention, has_events: bool) {
        let has_spun = self.since.is_some() && !self.spin_failed;
        if has_spun && !self.mid_message && contention.is_oversubscribed() {
            contention.learn(true);
        }
        if let RoundsLeft::Rounds(_) = self.rounds {
            contention.learn_rounds(true);
        }
        let mid_message = !has_events && !self.is_late;
        *self = Self { held_polls: self.held_polls, mid_message, ..Self::new(self.cores) };
    }

    /// True if polling is to be handed to a thread whose wait is over, after a poll without events. A peer that is
    /// awake, and answers this thread, answers sooner than threads change places.
    pub fn hands_over(&mut self, backoff: &Backoff) -> bool {
        self.held_polls += 1;
        if self.held_polls == 1 && (!self.cores.has_a_core() || backoff.decide() == Decision::Skip)
        {
            return true;
        }
        let is_over = self.held_polls > HELD_POLLS_MAX;
        if is_over {
            backoff.learn(false);
        }
        is_over
    }

    /// Ends the wait. If other threads were delayed meanwhile, that has paid.
    #[inline]
    pub fn end(&self, backoff: &Backoff) {
        if self.held_polls > 0 {
            backoff.learn(true);
        }
    }

    /// Returns the time spent spinning since the last call.
    pub fn take_spun(&mut self) -> Duration {
        std::mem::take(&mut self.spun)
    }

    /// Decides what to do after a poll without events.
    pub fn next(&mut self, yield_policy: &YieldPolicy, contention: &Contention) -> NextStep {
        if self.cores.has_a_core() {
            if contention.is_oversubscribed() {
                return self.next_when_oversubscribed(contention);
            }
            self.polls += 1;
            if !self.polls.is_multiple_of(POLLS_PER_CLOCK) {
                return NextStep::Spin;
            }
            let now = Instant::now();
            let (since, read) = self.since.get_or_insert((now, now));
            let pause = now - std::mem::replace(read, now);
            contention.note_pause(pause, now);
            self.spun += pause;
            let spun = now - *since;
            if spun < self.cores.spin() {
                let is_time =
                    yield_policy.paid() || spun >= TRY_YIELD_AFTER * (self.opportunities + 1);
                self.opportunities += u32::from(is_time);
                if !is_time {
                    return NextStep::YieldToPeer;
                }
                contention.note_wait(spun, now);
                return if contention.is_oversubscribed() {
                    NextStep::Sleep
                } else {
                    NextStep::TryYield
                };
            }
        }
        if !self.cores.has_a_core() && self.yields < OVERSUBSCRIBED_YIELDS {
            self.yields += 1;
            return NextStep::Yield;
        }
        NextStep::Sleep
    }

    /// Returns the yield rounds left. A wait decides once if it yields in rounds.
    fn rounds_left(&mut self, contention: &Contention) -> RoundsLeft {
        if self.rounds == RoundsLeft::Undecided && self.cores.yield_rounds() > 0 {
            let now = Instant::now();
            if contention.is_oversubscribed_at(now) && contention.yields_in_rounds(now) {
                self.rounds = RoundsLeft::Rounds(self.cores.yield_rounds());
            }
        }
        self.rounds
    }

    /// Decides under contention: the thread keeps the core no longer than sleeping costs.
    #[cold]
    fn next_when_oversubscribed(&mut self, contention: &Contention) -> NextStep {
        if self.since.is_none() && !self.mid_message {
            match self.rounds_left(contention) {
                RoundsLeft::Undecided => {}
                RoundsLeft::Rounds(1..) => return NextStep::YieldRound,
                RoundsLeft::Rounds(0) => {
                    contention.learn_rounds(false);
                    self.rounds = RoundsLeft::Failed;
                    return NextStep::Sleep;
                }
                RoundsLeft::Failed => return NextStep::Sleep,
            }
        }
        if self.spin_failed {
            return NextStep::Sleep;
        }
        self.polls += 1;
        if self.since.is_some() && !self.polls.is_multiple_of(POLLS_PER_CLOCK_OVERSUBSCRIBED) {
            return NextStep::Spin;
        }
        let now = Instant::now();
        let Some((since, read)) = &mut self.since else {
            if contention.is_oversubscribed_at(now) {
                self.limit = match self.mid_message {
                    true => NEXT_PIECE,
                    false => contention.spin_limit(self.cores.brief()),
                };
                if self.limit.is_zero() {
                    return NextStep::Sleep;
                }
            }
            self.since = Some((now, now));
            return NextStep::YieldToPeer;
        };
        let pause = now - std::mem::replace(read, now);
        contention.note_pause(pause, now);
        self.spun += pause;
        if now - *since < self.limit {
            return NextStep::YieldToPeer;
        }
        match self.mid_message {
            true => self.is_late = true,
            false => contention.learn(false),
        }
        self.spin_failed = true;
        NextStep::Sleep
    }
}

/// Wake-up latency if none was measured.
const WAKE: Duration = Duration::from_micros(10);

/// Time for which a rank with its own core spins, in wake-up latencies…
const SPIN_WAKES: u32 = 20;
/// …but no less than the round trip within a site, and no longer than pays on a laptop.
const SPIN_MIN: Duration = Duration::from_micros(50);
const SPIN_MAX: Duration = Duration::from_micros(500);

/// Limits of the spinning time under contention. It is the cost of sleeping and being woken, so that a wrong guess
/// loses no more than a factor of two. It is no less than the response time of a running peer, and short enough to
/// seldom lose the core to others.
const BRIEF_MIN: Duration = Duration::from_micros(2);
const BRIEF_MAX: Duration = Duration::from_micros(12);

/// Spinning time under contention in the middle of a long message: the next piece arrives sooner if the thread runs.
/// Of pieces that are late, as over slow links, only every second is waited for in this way.
const NEXT_PIECE: Duration = Duration::from_micros(30);

/// A peer that has a core answers within this time, a round trip within the site.
const TRY_YIELD_AFTER: Duration = Duration::from_micros(25);

/// Longer than a peer takes to run and answer.
const COSTLY_YIELD: Duration = Duration::from_micros(50);

/// Maximum number of opportunities to skip: such yields then cost one slice of a computing neighbour, 3 ms, in some
/// ten thousand waits.
const SKIPS_MAX: u32 = (1 << 14) - 1;

/// Yields of an oversubscribed rank before it sleeps.
const OVERSUBSCRIBED_YIELDS: u32 = 16;

/// No other thread can have run for long within this time.
const YIELDED_TO_NOBODY: Duration = Duration::from_nanos(1500);

/// Polls without events before polling is handed over; they take about as long as a change of threads.
const HELD_POLLS_MAX: u32 = 100;

/// Cores that the rank and its progress thread use. With only two cores an idle poller was in the way: it sped up
/// short messages, but long ones over TCP took a fifth longer.
const CORES_IN_USE: usize = 2;

/// Polls per clock reading.
const POLLS_PER_CLOCK: u32 = 64;
const POLLS_PER_CLOCK_OVERSUBSCRIBED: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const BRIEF: Duration = Duration::from_micros(5);

    #[test]
    fn ranks_that_are_bound_to_a_core_each_have_one() {
        let policy = Policy::for_node(2, 8).bound_to(1);
        assert!(policy.has_a_core());
        assert_eq!(policy.threads, 1);
        assert_eq!(Policy::for_node(2, 8).bound_to(8), Policy::for_node(2, 8));
    }

    #[test]
    fn idle_pollers_need_a_third_core_per_rank() {
        let idle_pollers = |ranks, cores| Policy::for_node(ranks, cores).idle_pollers;
        assert_eq!((idle_pollers(1, 3), idle_pollers(2, 8), idle_pollers(3, 9)), (1, 2, 1));
        for (ranks, cores) in [(1, 1), (1, 2), (2, 2), (2, 5), (3, 2)] {
            assert_eq!(idle_pollers(ranks, cores), 0, "{ranks} ranks on {cores} cores");
        }
        assert_eq!(Policy::for_node(2, 8).bound_to(2).idle_pollers, 0);
        assert_eq!(Policy::for_node(1, 8).without_idle_pollers().idle_pollers, 0);
    }

    #[test]
    fn vcis_are_no_more_than_cores_to_poll_them() {
        let vcis = |cores| Policy::for_node(1, cores).vcis();
        assert_eq!([1, 2, 3, 4, 7, 8, 64].map(vcis), [1, 2, 2, 4, 4, 8, 8]);
        assert_eq!(Policy::for_node(4, 8).vcis(), 2);
        assert_eq!(Policy::for_node(4, 2).vcis(), 1);
        assert_eq!(Policy::for_node(1, 8).in_vcis(4).threads, 2, "in each");
        assert_eq!(Policy::for_node(2, 2).in_vcis(8).threads, 1);
    }

    #[test]
    fn an_oversubscribed_rank_yields_and_then_sleeps() {
        let cores = Cores::new(Policy::for_node(3, 2));
        let mut state = SpinState::new(&cores);
        for _ in 0..OVERSUBSCRIBED_YIELDS {
            assert_eq!(state.next(&YieldPolicy::default(), &Contention::new()), NextStep::Yield);
        }
        assert_eq!(state.next(&YieldPolicy::default(), &Contention::new()), NextStep::Sleep);
        state.renew(&Contention::new(), true);
        assert_eq!(state.next(&YieldPolicy::default(), &Contention::new()), NextStep::Yield);
    }

    #[test]
    fn a_core_that_nobody_wants_is_kept_for_as_long_as_sleeping_costs() {
        let cores = Cores::new(Policy::for_node(3, 2));
        let yields = |took: Duration| {
            let mut state = SpinState::new(&cores);
            let mut yields = 0;
            while state.next(&YieldPolicy::default(), &Contention::new()) == NextStep::Yield {
                state.note_yield(took);
                yields += 1;
            }
            yields
        };
        assert_eq!(yields(YIELDED_TO_NOBODY), OVERSUBSCRIBED_YIELDS);
        let (brief, each) = (cores.brief(), cores.brief() / 20);
        let unwanted = (yields(each) - OVERSUBSCRIBED_YIELDS) * each;
        assert!(unwanted < brief && unwanted + 2 * each >= brief, "{unwanted:?}");
    }

    #[test]
    fn yields_go_on_while_they_pay_and_back_off_while_they_cost() {
        let yield_policy = YieldPolicy::default();
        let opportunities =
            |yield_policy: &YieldPolicy| (0..1000).take_while(|_| !yield_policy.pays()).count();
        for _ in 0..10 {
            assert!(yield_policy.pays());
            yield_policy.learn(COSTLY_YIELD, true);
            assert!(yield_policy.paid());
        }
        for left_out in [1, 3, 7, 15] {
            yield_policy.learn(COSTLY_YIELD, false);
            assert_eq!(opportunities(&yield_policy), left_out);
        }
        yield_policy.learn(Duration::ZERO, false);
        assert!(yield_policy.pays());
        yield_policy.learn(Duration::ZERO, true);
        yield_policy.learn(COSTLY_YIELD, false);
        assert_eq!(opportunities(&yield_policy), 1);
    }

    #[test]
    fn under_contention_the_next_piece_is_spun_for() {
        let contention = Contention::lasting();
        let later = Instant::now() + Duration::from_secs(3600);
        assert!(!contention.note_round(Duration::from_secs(1), later), "no rounds");
        while contention.spin_limit(BRIEF) == BRIEF {
            contention.learn(false);
        }
        let cores = Cores::new(Policy::for_node(1, 1));
        let mut state = SpinState::new(&cores);
        state.renew(&contention, true);
        assert_eq!(state.next(&YieldPolicy::default(), &contention), NextStep::Sleep);
        state.renew(&contention, false);
        assert_eq!(state.next(&YieldPolicy::default(), &contention), NextStep::YieldToPeer);
        while state.next(&YieldPolicy::default(), &contention) != NextStep::Sleep {}
        state.renew(&contention, false);
        assert_eq!(state.next(&YieldPolicy::default(), &contention), NextStep::Sleep);
        state.renew(&contention, false);
        assert_eq!(state.next(&YieldPolicy::default(), &contention), NextStep::YieldToPeer);
    }

    #[test]
    fn under_contention_rounds_end_when_one_takes_long() {
        let contention = Contention::lasting();
        let now = Instant::now();
        let cores = Cores::new(Policy::for_node(1, 1).among_nodes());
        let rounds = |took| {
            let mut state = SpinState::new(&cores);
            let mut count = 0;
            while state.next(&YieldPolicy::default(), &contention) == NextStep::YieldRound {
                state.note_round(&contention, took, now);
                count += 1;
            }
            while state.next(&YieldPolicy::default(), &contention) != NextStep::Sleep {}
            count
        };
        assert_eq!(rounds(BRIEF), YIELD_ROUNDS);
        assert_eq!(rounds(Duration::from_millis(3)), 1);
        assert_eq!(rounds(BRIEF), 0, "computing threads want the core");
    }

    #[test]
    fn under_contention_failing_spins_become_rare() {
        let contention = Contention::lasting();
        let cores = Cores::new(Policy::for_node(1, 1));
        let spins = |comes: bool| {
            let mut state = SpinState::new(&cores);
            let mut spins = 0;
            while !(comes && spins > 0)
                && state.next(&YieldPolicy::default(), &contention) != NextStep::Sleep
            {
                spins += 1;
            }
            if spins > 0 && !comes {
                assert_eq!(
                    state.next(&YieldPolicy::default(), &contention),
                    NextStep::Sleep,
                    "once"
                );
            }
            // The event that it slept for has arrived.
            state.renew(&contention, true);
            spins > 0
        };
        let often = |times: u32, comes| (0..times).filter(|_| spins(comes)).count();
        often(100, false);
        assert!((1..=10).contains(&often(100, false)));
        often(500, true);
        assert_eq!(often(100, true), 100);
    }

    #[test]
    fn a_rank_with_a_core_spins_first_and_sleeps_in_the_end() {
        let cores = Cores::new(Policy::for_node(1, 1));
        let mut state = SpinState::new(&cores);
        let mut next = || state.next(&YieldPolicy::default(), &Contention::new());
        assert_eq!(next(), NextStep::Spin);
        let begun = Instant::now();
        while next() != NextStep::Sleep {}
        assert!(begun.elapsed() >= cores.spin());
    }
}
