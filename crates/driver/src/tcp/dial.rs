//! The course of an attempt to reach a peer: which address is tried when, and when to give up.
//!
//! Time is the rail's own, which stands still while the process computes and does not look at its
//! sockets: whoever computes for a minute has not waited for one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The addresses of a peer, tried in rounds until one leads to it.
#[derive(Debug)]
pub(crate) struct Dialling {
    candidates: Vec<Candidate>,
    /// The next of the round.
    at: usize,
    /// When the next candidate is tried though the last is still silent.
    next: Duration,
    deadline: Duration,
    patience: Duration,
    /// When the first would have been tried, if it is being found out which is the best.
    held: Option<Duration>,
    /// The course of opening a link anew; none of opening it first.
    again: Option<Again>,
}

/// Opening a link anew: there is no end but by refusal, for others say how long it is waited for, and what a
/// refusal means.
#[derive(Debug, Default)]
struct Again {
    /// Rounds that have ended.
    rounds: u32,
    /// Of these, the last in which all that was said is that nobody listens.
    refused: u32,
}

#[derive(Debug)]
struct Candidate {
    address: SocketAddr,
    under_way: bool,
    failure: Option<String>,
    /// Whether it was said, the last time, that nobody listens there: by its host, or as if by it.
    is_refused: bool,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Try(SocketAddr),
    /// Give up; the text says what was tried.
    GiveUp(String),
}

impl Dialling {
    /// Begins at `now` to try `candidates`, the best first, for as long as `patience`.
    pub fn new(candidates: Vec<SocketAddr>, now: Duration, patience: Duration) -> Self {
        let fresh =
            |address| Candidate { address, under_way: false, failure: None, is_refused: false };
        Self {
            candidates: candidates.into_iter().map(fresh).collect(),
            at: 0,
            next: now,
            deadline: now + patience,
            patience,
            held: None,
            again: None,
        }
    }

    /// Leaves it until then to be said which candidate is the best.
    pub fn hold(&mut self, until: Duration) {
        self.held = Some(self.next);
        self.next = self.next.max(until);
    }

    /// Tries candidates that are among these in their order, behind others, unless it has begun; at once if all `is_said`.
    pub fn arrange(&mut self, order: &[SocketAddr], is_said: bool, now: Duration) {
        let Some(begin) = self.held.filter(|_| self.at == 0) else { return };
        let place = |one: &Candidate| order.iter().position(|address| *address == one.address);
        self.candidates.sort_by_key(place);
        if is_said {
            self.held = None;
            self.next = begin.max(now);
        }
    }

    /// Begins at `now` to try `candidates` to open a link anew: soon, then ever more rarely, until it is said again
    /// and again that the peer is not there.
    pub fn again(candidates: Vec<SocketAddr>, now: Duration) -> Self {
        let again = Some(Again::default());
        let first = now + pause(0);
        Self { again, next: first, deadline: Duration::MAX, ..Self::new(candidates, now, ROUND) }
    }

    /// How long one try may take to bring about a connection.
    pub fn try_timeout(&self) -> Duration {
        if self.again.is_some() { TRY_AGAIN_TIMEOUT } else { TRY_TIMEOUT }
    }

    pub fn due(&mut self, now: Duration) -> Due {
        if now >= self.deadline {
            return Due::GiveUp(self.account());
        }
        if now < self.next {
            return Due::Nothing;
        }
        while let Some(candidate) = self.candidates.get_mut(self.at) {
            self.at += 1;
            if !candidate.under_way {
                self.held = None;
                candidate.under_way = true;
                self.next = now + STAGGER;
                return Due::Try(candidate.address);
            }
        }
        self.at = 0;
        let Some(again) = &mut self.again else {
            self.next = now + ROUND.min(self.patience / 4);
            return Due::Nothing;
        };
        let is_refused = self.candidates.iter().all(|one| one.is_refused && !one.under_way);
        again.refused = if is_refused { again.refused + 1 } else { 0 };
        again.rounds += 1;
        self.next = now + pause(again.rounds);
        if again.refused < REFUSALS { Due::Nothing } else { Due::GiveUp(self.account()) }
    }

    /// A try has failed: the next candidate of the round need not wait.
    pub fn handle_failure(
        &mut self,
        address: SocketAddr,
        (text, is_refused): (String, bool),
        now: Duration,
    ) {
        if let Some(candidate) = self.candidates.iter_mut().find(|one| one.address == address) {
            candidate.under_way = false;
            candidate.failure = Some(text);
            candidate.is_refused = is_refused;
        }
        let is_idle = self.candidates.iter().all(|one| !one.under_way);
        if self.at < self.candidates.len() || (self.again.is_some() && is_idle) {
            self.next = now;
        }
    }

    /// Something has accepted a connection. It may say nothing for long: a peer that computes looks
    /// like this, and is waited for as long as its node accepts connections for it: `wait` is longer
    /// than until the next.
    pub fn handle_connection(&mut self, now: Duration, wait: Duration) {
        self.deadline = self.deadline.max(now + wait);
    }

    fn account(&self) -> String {
        let tried: Vec<String> = self
            .candidates
            .iter()
            .map(|one| match &one.failure {
                Some(failure) => format!("{} ({failure})", one.address),
                None => one.address.to_string(),
            })
            .collect();
        if self.again.is_some() {
            return format!("nobody listens at {}", tried.join(", "));
        }
        format!("no answer within {} s from {}", self.patience.as_secs_f32(), tried.join(", "))
    }
}

/// Time during which somebody looked.
#[derive(Debug)]
pub(crate) struct Clock {
    looked: Duration,
    last: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Self { looked: Duration::ZERO, last: Instant::now() }
    }

    /// The time now, that is at a look.
    pub fn look(&mut self, now: Instant) -> Duration {
        self.looked += now.saturating_duration_since(self.last).min(GAP_MAX);
        self.last = now;
        self.looked
    }

    /// The time of the last look.
    pub fn now(&self) -> Duration {
        self.looked
    }
}

/// From one round to the next where a link is opened anew: 50 ms, doubling up to two seconds, and up to a
/// quarter more, so that many do not come at once.
fn pause(rounds: u32) -> Duration {
    let pause = (PAUSE_FIRST * 2_u32.saturating_pow(rounds.min(16))).min(PAUSE_MAX);
    let mut lot = [0];
    // Where there is no chance to be had, all come at once.
    let _ = getrandom::fill(&mut lot);
    pause + pause / 4 * u32::from(lot[0]) / 256
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long the network may take to bring about one connection: a few retransmissions…
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// …or none, for the next try may come when it is whole again.
const TRY_AGAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// So often in a row it is said that nobody listens before it is told.
const REFUSALS: u32 = 3;

/// A candidate that is silent for so long gets company by the next.
const STAGGER: Duration = Duration::from_millis(250);
/// From a round's end to the next.
const ROUND: Duration = Duration::from_secs(1);
/// A process that waits looks more often than this.
const GAP_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn two() -> (SocketAddr, SocketAddr, Dialling) {
        let (one, other) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
        (one, other, Dialling::new(vec![one, other], at(0), at(5000)))
    }

    #[test]
    fn a_silent_candidate_gets_company_and_a_failed_one_a_successor() {
        let (one, other, mut dialling) = two();
        assert_eq!(dialling.due(at(0)), Due::Try(one));
        assert_eq!(dialling.due(at(249)), Due::Nothing);
        assert_eq!(dialling.due(at(250)), Due::Try(other));
        let (one, other, mut dialling) = two();
        assert_eq!(dialling.due(at(0)), Due::Try(one));
        dialling.handle_failure(one, ("refused".into(), true), at(1));
        assert_eq!(dialling.due(at(1)), Due::Try(other));
    }

    #[test]
    fn failed_candidates_are_tried_again_until_the_deadline() {
        let (one, other, mut dialling) = two();
        let mut tries = Vec::new();
        let mut now = 0;
        let account = loop {
            match dialling.due(at(now)) {
                Due::Nothing => now += 10,
                Due::Try(address) => {
                    tries.push(address);
                    dialling.handle_failure(address, ("refused".into(), true), at(now));
                }
                Due::GiveUp(account) => break account,
            }
        };
        assert_eq!(now, 5000);
        assert!((8..=12).contains(&tries.len()), "{tries:?}");
        assert!(tries.chunks(2).all(|round| round == [one, other]));
        assert_eq!(account, "no answer within 5 s from 10.0.0.1:1 (refused), 10.0.0.2:2 (refused)");
    }

    #[test]
    fn whoever_accepts_connections_is_waited_for() {
        let (one, _, mut dialling) = two();
        assert_eq!(dialling.due(at(0)), Due::Try(one));
        dialling.handle_connection(at(4999), at(10_000));
        dialling.handle_failure(one, ("silent".into(), false), at(9999));
        assert!(!matches!(dialling.due(at(14998)), Due::GiveUp(_)));
        assert!(matches!(dialling.due(at(14999)), Due::GiveUp(_)));
    }

    #[test]
    fn who_waits_for_word_of_the_best_candidate_begins_with_that_or_in_time() {
        let (one, other, mut dialling) = two();
        dialling.hold(at(100));
        assert_eq!(dialling.due(at(10)), Due::Nothing);
        dialling.arrange(&[other, one], false, at(20));
        assert_eq!(dialling.due(at(30)), Due::Nothing);
        dialling.arrange(&[other, one], true, at(40));
        assert_eq!(dialling.due(at(40)), Due::Try(other));
        dialling.arrange(&[one, other], true, at(50));
        assert_eq!(dialling.due(at(50)), Due::Nothing, "it has begun");
        let (one, _, mut dialling) = two();
        dialling.hold(at(100));
        assert_eq!(dialling.due(at(100)), Due::Try(one));
        // The pause before a link is opened anew is kept.
        let mut again = Dialling::again(vec![one], at(0));
        again.hold(at(10));
        again.arrange(&[one], true, at(5));
        assert_eq!(again.due(at(49)), Due::Nothing);
        assert_eq!(again.due(at(63)), Due::Try(one));
    }

    /// Tries to open a link anew until `end`, with what becomes of each try: when each began, and how it ended.
    fn tries_again(end: u64, outcome: impl Fn(u64) -> Option<bool>) -> (Vec<u64>, Option<String>) {
        let one = "10.0.0.1:1".parse().unwrap();
        let mut dialling = Dialling::again(vec![one], at(0));
        let mut tries = Vec::new();
        for now in 0..end {
            match dialling.due(at(now)) {
                Due::Nothing => {}
                Due::Try(_) => {
                    tries.push(now);
                    if let Some(is_refused) = outcome(now) {
                        dialling.handle_failure(one, ("failed".into(), is_refused), at(now));
                    }
                }
                Due::GiveUp(account) => return (tries, Some(account)),
            }
        }
        (tries, None)
    }

    #[test]
    fn a_lost_link_is_tried_soon_and_then_ever_more_rarely() {
        let (tries, account) = tries_again(60_000, |_| Some(false));
        assert_eq!(account, None, "nobody has said that the peer is gone");
        assert!((50..=63).contains(&tries[0]), "{tries:?}");
        let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.iter().all(|pause| (100..=2501).contains(pause)), "{pauses:?}");
        assert!((25..=40).contains(&tries.len()), "{tries:?}");
    }

    #[test]
    fn a_peer_that_is_said_not_to_be_there_is_given_up() {
        let (tries, account) = tries_again(60_000, |_| Some(true));
        assert_eq!(tries.len(), 3);
        assert!(account.is_some_and(|text| text.contains("10.0.0.1:1 (failed)")));
        // One try that ends otherwise, and it begins anew.
        let (tries, _) = tries_again(60_000, |now| Some(!(150..300).contains(&now)));
        assert!(tries.len() > 3, "{tries:?}");
    }

    #[test]
    fn time_stands_still_while_nobody_looks() {
        let mut clock = Clock::new();
        let start = clock.last;
        clock.look(start + at(300));
        clock.look(start + Duration::from_secs(90));
        assert_eq!(clock.now(), at(1300));
    }
}
