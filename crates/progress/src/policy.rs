//! How long a waiting thread spins before it sleeps.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::backoff::{Trust, Try};
use crate::contention::Contention;
use crate::cores::Cores;
use crate::yield_rounds::TURNS;

/// How a thread waits when nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Polls without giving up the core.
    pub spin: Duration,
    /// After spinning, how often the core is yielded between polls before sleeping.
    pub yields: u32,
    /// As `spin`, where others want the core.
    pub brief: Duration,
    /// Where others want the core, how often it is left to them, with a poll after each, before sleeping.
    pub turns: u32,
    /// How many of the process's threads have a core each.
    pub threads: usize,
    /// How many others may look on, from cores that nobody wants.
    pub idle_pollers: usize,
    pub(crate) terms: Terms,
}

/// What a policy follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Ranks of the job, and the cores that they share.
    pub ranks: usize,
    pub cores: usize,
    /// How many of these the process may use itself.
    pub own: usize,
    /// What a thread is late that sleeps until a time.
    wake: Duration,
    may_look_on: bool,
    is_among_nodes: bool,
    /// In how many communications of the process threads wait.
    vcis: usize,
}

impl Policy {
    /// The policy for a process that shares `cores` with `ranks` ranks of the job.
    ///
    /// With a core each, spinning as long as a sleep and a wake-up cost loses at most a factor of two
    /// against knowing the future (the ski-rental argument); the bound here is a generous multiple of
    /// it, so that a peer that computes shortly is still met awake. With ranks beyond cores a spinning
    /// rank only keeps the one it waits for from running: the core is yielded at once.
    pub fn for_node(ranks: usize, cores: usize) -> Self {
        let (wake, may_look_on, is_among_nodes, vcis) = (WAKE, true, false, 1);
        Terms { ranks, cores, own: cores, wake, may_look_on, is_among_nodes, vcis }.policy()
    }

    /// The same for a process that may use so many of the node's cores itself.
    #[must_use]
    pub fn bound_to(self, cores: usize) -> Self {
        let own = self.terms.own.min(cores);
        Terms { own, ..self.terms }.policy()
    }

    /// The same, and nobody looks on.
    #[must_use]
    pub fn without_idle_pollers(self) -> Self {
        Terms { may_look_on: false, ..self.terms }.policy()
    }

    /// The same on a machine with several nodes of the job, where its ranks are more than the cores: those who want
    /// these wait as well.
    #[must_use]
    pub fn among_nodes(self) -> Self {
        Terms { is_among_nodes: true, ..self.terms }.policy()
    }

    /// The same in one of so many communications that the process has side by side, with a part of its cores each.
    #[must_use]
    pub fn in_vcis(self, vcis: usize) -> Self {
        Terms { vcis, ..self.terms }.policy()
    }

    /// The same on a machine where a thread that sleeps is woken so late.
    #[must_use]
    pub fn woken_in(self, wake: Duration) -> Self {
        Terms { wake, ..self.terms }.policy()
    }

    /// The same where so many ranks share so many cores, all of which this process may use.
    #[must_use]
    pub(crate) fn moved(self, ranks: usize, cores: usize) -> Self {
        Terms { ranks, cores, own: cores, ..self.terms }.policy()
    }

    /// How many communications side by side the process's threads can poll with a core each: a power of two.
    pub fn vcis(&self) -> usize {
        let most = self.threads.min(VCIS_MAX);
        (most + 1).next_power_of_two() / 2
    }

    /// Whether a waiting thread keeps its core for a while.
    #[inline]
    pub fn has_a_core(&self) -> bool {
        !self.spin.is_zero()
    }
}

/// A process has so many communications side by side at most.
pub const VCIS_MAX: usize = 8;

impl Terms {
    fn policy(self) -> Policy {
        let Self { ranks, cores, own, wake, may_look_on, is_among_nodes, vcis } = self;
        let (spin, yields) = match ranks > cores {
            true => (Duration::ZERO, OVERSUBSCRIBED_YIELDS),
            false => ((SPIN_WAKES * wake).clamp(SPIN_MIN, SPIN_MAX), 0),
        };
        let brief = wake.clamp(BRIEF_MIN, BRIEF_MAX);
        let threads = (cores / ranks.max(1)).min(own).max(1);
        let idle_pollers = if may_look_on { threads.saturating_sub(CORES_IN_USE) } else { 0 };
        let threads = (threads / vcis).max(1);
        let turns = if is_among_nodes { TURNS } else { 0 };
        Policy { spin, yields, brief, turns, threads, idle_pollers, terms: self }
    }
}

/// The course of one wait.
pub(crate) struct Patience<'a> {
    cores: &'a Cores,
    /// When it began, or at least had begun, and when the clock was read last.
    since: Option<(Instant, Instant)>,
    /// What it has spun, as far as the clock was looked at, and not told.
    spun: Duration,
    /// How long it spins where others want the core; known once it has begun to.
    limit: Duration,
    polls: u32,
    guesses: u32,
    yields: u32,
    turns: Left,
    /// How long the core was yielded to nobody.
    kept: Duration,
    /// Polls that brought nothing while others were due.
    held_up: u32,
    /// It has spun where others want the core, in vain: it sleeps at once until something happens.
    in_vain: bool,
    /// What moved last was a piece of a long message: the next is on its way.
    mid_message: bool,
    /// It was, and did not come soon.
    is_late: bool,
}

/// What is left of the turns for which a wait leaves the core to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It has not come to that, or they do not pay.
    Unasked,
    Turns(u32),
    /// They were in vain.
    Over,
}

/// Whether it pays to yield to whoever else wants the core. Peers on the same core that no rail knows of
/// bring news by it; threads that compute keep the core for some milliseconds. Each yield that only cost
/// time doubles the number of guesses until the next, up to [`GUESSES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Courtesy {
    /// Guesses to leave out.
    skip: AtomicU32,
    /// How many were left out before the last.
    last: AtomicU32,
    /// The last yield brought news: the next is not put off.
    paid: AtomicBool,
}

impl Courtesy {
    /// Whether to yield this time.
    pub fn pays(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        self.skip.store(skip.saturating_sub(1), Ordering::Relaxed);
        skip == 0
    }

    /// Whether the last yield brought news.
    pub fn paid(&self) -> bool {
        self.paid.load(Ordering::Relaxed)
    }

    /// What a yield has cost, and whether there was news after it.
    pub fn learn(&self, took: Duration, event_count: bool) {
        self.paid.store(event_count, Ordering::Relaxed);
        let last = match (event_count, took >= COSTLY) {
            (true, _) => 0,
            (false, true) => (2 * self.last.load(Ordering::Relaxed) + 1).min(GUESSES_MAX),
            (false, false) => return,
        };
        self.last.store(last, Ordering::Relaxed);
        self.skip.store(last, Ordering::Relaxed);
    }
}

/// What to do before polling again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Spin,
    /// Leave the core to a peer that runs on the same one, else spin.
    Look,
    /// As `Look`, and if none is known, yield all the same if that has paid lately.
    Guess,
    Yield,
    /// Leave the core to whoever wants it, for a turn.
    OwnedCell,
    Sleep,
}

impl<'a> Patience<'a> {
    pub fn new(cores: &'a Cores) -> Self {
        Self {
            cores,
            since: None,
            spun: Duration::ZERO,
            limit: Duration::ZERO,
            polls: 0,
            guesses: 0,
            yields: 0,
            turns: Left::Unasked,
            kept: Duration::ZERO,
            held_up: 0,
            in_vain: false,
            mid_message: false,
            is_late: false,
        }
    }

    /// The core was yielded for so long. Where nobody else wanted it, it is kept for as long as sleeping costs.
    pub fn note_yield(&mut self, took: Duration) {
        let kept = self.kept + took;
        if took < YIELDED_TO_NOBODY && kept < self.cores.brief() {
            self.kept = kept;
            self.yields -= 1;
        }
    }

    /// The core was left to others for a turn of so long.
    pub fn note_turn(&mut self, contention: &Contention, took: Duration, now: Instant) {
        let goes_on = contention.note_turn(took, now);
        if let Left::Turns(left) = &mut self.turns {
            *left = if goes_on { left.saturating_sub(1) } else { 0 };
        }
    }

    /// Something happened, of which others hear (`has_events`) or which was on the way there: the patience is fresh
    /// again, but for those who are held up.
    pub fn renew(&mut self, contention: &Contention, has_events: bool) {
        let has_spun = self.since.is_some() && !self.in_vain;
        if has_spun && !self.mid_message && contention.is_oversubscribed() {
            contention.learn(true);
        }
        if let Left::Turns(_) = self.turns {
            contention.learn_turns(true);
        }
        let mid_message = !has_events && !self.is_late;
        *self = Self { held_up: self.held_up, mid_message, ..Self::new(self.cores) };
    }

    /// Nothing happened, and another thread is due: whether it is its turn. A peer that is awake answers
    /// sooner than threads change places, if it answers this thread.
    pub fn gives_way(&mut self, trust: &Trust) -> bool {
        self.held_up += 1;
        if self.held_up == 1 && (!self.cores.has_a_core() || trust.ask() == Try::No) {
            return true;
        }
        let is_over = self.held_up > HELD_UP_MAX;
        if is_over {
            trust.learn(false);
        }
        is_over
    }

    /// What this thread waited for has come: if others were due meanwhile, it was right to let them wait.
    #[inline]
    pub fn end(&self, trust: &Trust) {
        if self.held_up > 0 {
            trust.learn(true);
        }
    }

    /// How long it has spun since it was last asked.
    pub fn take_spun(&mut self) -> Duration {
        std::mem::take(&mut self.spun)
    }

    /// Nothing happened at the last poll.
    pub fn next(&mut self, courtesy: &Courtesy, contention: &Contention) -> Next {
        if self.cores.has_a_core() {
            if contention.is_oversubscribed() {
                return self.next_when_oversubscribed(contention);
            }
            self.polls += 1;
            if !self.polls.is_multiple_of(POLLS_PER_CLOCK) {
                return Next::Spin;
            }
            let now = Instant::now();
            let (since, read) = self.since.get_or_insert((now, now));
            let pause = now - std::mem::replace(read, now);
            contention.note_pause(pause, now);
            self.spun += pause;
            let spun = now - *since;
            if spun < self.cores.spin() {
                let is_time = courtesy.paid() || spun >= GUESS_AFTER * (self.guesses + 1);
                self.guesses += u32::from(is_time);
                if !is_time {
                    return Next::Look;
                }
                contention.note_wait(spun, now);
                return if contention.is_oversubscribed() { Next::Sleep } else { Next::Guess };
            }
        }
        if !self.cores.has_a_core() && self.yields < OVERSUBSCRIBED_YIELDS {
            self.yields += 1;
            return Next::Yield;
        }
        Next::Sleep
    }

    /// For how many turns it is left to others; whether for any is settled when a wait begins.
    fn turns_left(&mut self, contention: &Contention) -> Left {
        if self.turns == Left::Unasked && self.cores.turns() > 0 {
            let now = Instant::now();
            if contention.is_oversubscribed_at(now) && contention.takes_turns(now) {
                self.turns = Left::Turns(self.cores.turns());
            }
        }
        self.turns
    }

    /// Others want the core: it is kept for no longer than it costs to sleep.
    #[cold]
    fn next_when_oversubscribed(&mut self, contention: &Contention) -> Next {
        if self.since.is_none() && !self.mid_message {
            match self.turns_left(contention) {
                Left::Unasked => {}
                Left::Turns(1..) => return Next::OwnedCell,
                Left::Turns(0) => {
                    contention.learn_turns(false);
                    self.turns = Left::Over;
                    return Next::Sleep;
                }
                Left::Over => return Next::Sleep,
            }
        }
        if self.in_vain {
            return Next::Sleep;
        }
        self.polls += 1;
        if self.since.is_some() && !self.polls.is_multiple_of(POLLS_PER_CLOCK_OVERSUBSCRIBED) {
            return Next::Spin;
        }
        let now = Instant::now();
        let Some((since, read)) = &mut self.since else {
            if contention.is_oversubscribed_at(now) {
                self.limit = match self.mid_message {
                    true => NEXT_PIECE,
                    false => contention.patience(self.cores.brief()),
                };
                if self.limit.is_zero() {
                    return Next::Sleep;
                }
            }
            self.since = Some((now, now));
            return Next::Look;
        };
        let pause = now - std::mem::replace(read, now);
        contention.note_pause(pause, now);
        self.spun += pause;
        if now - *since < self.limit {
            return Next::Look;
        }
        match self.mid_message {
            true => self.is_late = true,
            false => contention.learn(false),
        }
        self.in_vain = true;
        Next::Sleep
    }
}

/// How late a thread is woken where nothing else is known.
const WAKE: Duration = Duration::from_micros(10);

/// How long a rank with a core of its own spins…
const SPIN_WAKES: u32 = 20;
/// …no less than a site's round trip, and no longer than pays on a laptop.
const SPIN_MIN: Duration = Duration::from_micros(50);
const SPIN_MAX: Duration = Duration::from_micros(500);

/// How long where others want the core: what sleeping and being woken costs, so that who is wrong about what comes loses
/// no more than a factor of two; no less than a peer takes that runs, and no longer than would lose the core to others
/// often.
const BRIEF_MIN: Duration = Duration::from_micros(2);
const BRIEF_MAX: Duration = Duration::from_micros(12);

/// In the middle of a long message, where others want the core: the next piece comes sooner from who runs. Of those
/// that are late, as over slow links, every second is waited for so long.
const NEXT_PIECE: Duration = Duration::from_micros(30);

/// A peer that has a core answers within a site's round trip.
const GUESS_AFTER: Duration = Duration::from_micros(25);

/// Longer than a peer takes to run and answer.
const COSTLY: Duration = Duration::from_micros(50);

/// With so many left out, guessing costs a computing neighbour's slice of 3 ms once in some ten thousand
/// waits.
const GUESSES_MAX: u32 = (1 << 14) - 1;

/// How often a rank without a core of its own lets others run before it sleeps.
const OVERSUBSCRIBED_YIELDS: u32 = 16;

/// The core is back sooner than another thread could have had it for a while.
const YIELDED_TO_NOBODY: Duration = Duration::from_nanos(1500);

/// Polls that take about as long as a change of threads.
const HELD_UP_MAX: u32 = 100;

/// That of the rank, and that of the progress thread. With no third one who looks on was seen to be in the way:
/// beside a gain for short messages, long ones over TCP took a fifth longer.
const CORES_IN_USE: usize = 2;

/// The clock is read once in so many polls.
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
    fn others_look_on_where_each_rank_has_a_third_core() {
        let idle_pollers = |ranks, cores| Policy::for_node(ranks, cores).idle_pollers;
        assert_eq!((idle_pollers(1, 3), idle_pollers(2, 8), idle_pollers(3, 9)), (1, 2, 1));
        for (ranks, cores) in [(1, 1), (1, 2), (2, 2), (2, 5), (3, 2)] {
            assert_eq!(idle_pollers(ranks, cores), 0, "{ranks} ranks on {cores} cores");
        }
        assert_eq!(Policy::for_node(2, 8).bound_to(2).idle_pollers, 0);
        assert_eq!(Policy::for_node(1, 8).without_idle_pollers().idle_pollers, 0);
    }

    #[test]
    fn there_are_no_more_vcis_than_cores_to_poll_them() {
        let vcis = |cores| Policy::for_node(1, cores).vcis();
        assert_eq!([1, 2, 3, 4, 7, 8, 64].map(vcis), [1, 2, 2, 4, 4, 8, 8]);
        assert_eq!(Policy::for_node(4, 8).vcis(), 2);
        assert_eq!(Policy::for_node(4, 2).vcis(), 1);
        assert_eq!(Policy::for_node(1, 8).in_vcis(4).threads, 2, "in each");
        assert_eq!(Policy::for_node(2, 2).in_vcis(8).threads, 1);
    }

    #[test]
    fn a_crowded_rank_yields_and_then_sleeps() {
        let cores = Cores::new(Policy::for_node(3, 2));
        let mut patience = Patience::new(&cores);
        for _ in 0..OVERSUBSCRIBED_YIELDS {
            assert_eq!(patience.next(&Courtesy::default(), &Contention::new()), Next::Yield);
        }
        assert_eq!(patience.next(&Courtesy::default(), &Contention::new()), Next::Sleep);
        patience.renew(&Contention::new(), true);
        assert_eq!(patience.next(&Courtesy::default(), &Contention::new()), Next::Yield);
    }

    #[test]
    fn a_core_that_nobody_wants_is_kept_for_as_long_as_sleeping_costs() {
        let cores = Cores::new(Policy::for_node(3, 2));
        let yields = |took: Duration| {
            let mut patience = Patience::new(&cores);
            let mut yields = 0;
            while patience.next(&Courtesy::default(), &Contention::new()) == Next::Yield {
                patience.note_yield(took);
                yields += 1;
            }
            yields
        };
        assert_eq!(yields(YIELDED_TO_NOBODY), OVERSUBSCRIBED_YIELDS);
        let (brief, each) = (cores.brief(), cores.brief() / 20);
        let kept = (yields(each) - OVERSUBSCRIBED_YIELDS) * each;
        assert!(kept < brief && kept + 2 * each >= brief, "{kept:?}");
    }

    #[test]
    fn yielding_goes_on_while_it_brings_news_and_backs_off_where_it_costs() {
        let courtesy = Courtesy::default();
        let guesses = |courtesy: &Courtesy| (0..1000).take_while(|_| !courtesy.pays()).count();
        for _ in 0..10 {
            assert!(courtesy.pays());
            courtesy.learn(COSTLY, true);
            assert!(courtesy.paid());
        }
        for left_out in [1, 3, 7, 15] {
            courtesy.learn(COSTLY, false);
            assert_eq!(guesses(&courtesy), left_out);
        }
        courtesy.learn(Duration::ZERO, false);
        assert!(courtesy.pays());
        courtesy.learn(Duration::ZERO, true);
        courtesy.learn(COSTLY, false);
        assert_eq!(guesses(&courtesy), 1);
    }

    #[test]
    fn in_a_crowd_the_next_piece_is_waited_for_though_waiting_was_in_vain() {
        let contention = Contention::lasting();
        let later = Instant::now() + Duration::from_secs(3600);
        assert!(!contention.note_turn(Duration::from_secs(1), later), "no turns");
        while contention.patience(BRIEF) == BRIEF {
            contention.learn(false);
        }
        let cores = Cores::new(Policy::for_node(1, 1));
        let mut patience = Patience::new(&cores);
        patience.renew(&contention, true);
        assert_eq!(patience.next(&Courtesy::default(), &contention), Next::Sleep);
        patience.renew(&contention, false);
        assert_eq!(patience.next(&Courtesy::default(), &contention), Next::Look);
        while patience.next(&Courtesy::default(), &contention) != Next::Sleep {}
        patience.renew(&contention, false);
        assert_eq!(patience.next(&Courtesy::default(), &contention), Next::Sleep);
        patience.renew(&contention, false);
        assert_eq!(patience.next(&Courtesy::default(), &contention), Next::Look);
    }

    #[test]
    fn in_a_crowd_the_core_is_left_to_others_until_that_takes_long() {
        let contention = Contention::lasting();
        let now = Instant::now();
        let cores = Cores::new(Policy::for_node(1, 1).among_nodes());
        let turns = |took| {
            let mut patience = Patience::new(&cores);
            let mut turns = 0;
            while patience.next(&Courtesy::default(), &contention) == Next::OwnedCell {
                patience.note_turn(&contention, took, now);
                turns += 1;
            }
            while patience.next(&Courtesy::default(), &contention) != Next::Sleep {}
            turns
        };
        assert_eq!(turns(BRIEF), TURNS);
        assert_eq!(turns(Duration::from_millis(3)), 1);
        assert_eq!(turns(BRIEF), 0, "who wants the core computes");
    }

    #[test]
    fn in_a_crowd_who_spins_in_vain_does_so_ever_more_seldom() {
        let contention = Contention::lasting();
        let cores = Cores::new(Policy::for_node(1, 1));
        let spins = |comes: bool| {
            let mut patience = Patience::new(&cores);
            let mut spins = 0;
            while !(comes && spins > 0)
                && patience.next(&Courtesy::default(), &contention) != Next::Sleep
            {
                spins += 1;
            }
            if spins > 0 && !comes {
                assert_eq!(patience.next(&Courtesy::default(), &contention), Next::Sleep, "once");
            }
            // What it slept for has come.
            patience.renew(&contention, true);
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
        let mut patience = Patience::new(&cores);
        let mut next = || patience.next(&Courtesy::default(), &Contention::new());
        assert_eq!(next(), Next::Spin);
        let begun = Instant::now();
        while next() != Next::Sleep {}
        assert!(begun.elapsed() >= cores.spin());
    }
}
