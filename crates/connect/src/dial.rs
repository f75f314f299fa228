//! Dialling a peer: the order and timing of its addresses, and when to give up.
//!
//! Time is the rail's own clock, which stops while the process computes and does not poll. A process that computes
//! for a minute has not waited for one.

use std::net::SocketAddr;
use std::time::Duration;

use crate::refusal::Refusal;

/// The addresses of a peer, tried in rounds until one leads to it.
#[derive(Debug)]
pub struct Dialling {
    candidates: Vec<DialCandidate>,
    /// Index of the next candidate in the round.
    at: usize,
    /// Time of the next attempt, even if the last is still silent.
    next: Duration,
    deadline: Duration,
    /// Deadline without listeners that accept and are silent.
    granted: Duration,
    patience: Duration,
    /// Number of last rounds in a row in which a stranger answered at every address, and in which every address closed
    /// the connection.
    strange: u32,
    closed: u32,
    /// Time of the first attempt, while path costs are awaited.
    held: Option<Duration>,
    /// State of reopening a link; `None` at its first opening.
    again: Option<Reopening>,
}

/// State of reopening a link. It ends only by refusal; the caller decides how long to wait, and what a refusal means.
#[derive(Debug)]
struct Reopening {
    /// Seed of the random part of its pauses.
    seed: u64,
    /// Number of rounds that have ended.
    rounds: u32,
    /// Number of last rounds in a row in which every address refused.
    refused: u32,
}

#[derive(Debug)]
struct DialCandidate {
    address: SocketAddr,
    under_way: bool,
    /// Failure of the last attempt.
    failure: Option<DialFailure>,
}

/// Failure of an attempt to reach an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialFailure {
    text: String,
    kind: DialFailureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialFailureKind {
    Silent,
    Refused,
    Closed,
    Stranger,
    OtherVersion,
}

impl DialFailure {
    /// A failure that says nothing of the peer.
    pub fn silent(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: DialFailureKind::Silent }
    }

    /// A refusal by the host, or in its name.
    pub fn refused(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: DialFailureKind::Refused }
    }

    /// A process is there and has closed the connection in the handshake.
    pub fn closed(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: DialFailureKind::Closed }
    }

    /// A process is there that does not belong to the job.
    pub fn stranger(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: DialFailureKind::Stranger }
    }

    /// A process is there that speaks another version of the protocol.
    pub fn other_version(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: DialFailureKind::OtherVersion }
    }
}

impl From<Refusal> for DialFailure {
    /// Says what it means for an attempt that one end has refused the other.
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::Version { .. } => Self::other_version(text),
            Refusal::Secret | Refusal::Job | Refusal::Protocol => Self::stranger(text),
            Refusal::Closed => Self::closed(text),
            Refusal::Slow
            | Refusal::Altered
            | Refusal::Clear
            | Refusal::Encrypted
            | Refusal::TooMany => Self::silent(text),
        }
    }
}

impl DialCandidate {
    /// True if the last attempt has failed in this way.
    fn has_failed(&self, kind: DialFailureKind) -> bool {
        !self.under_way && self.failure.as_ref().is_some_and(|failure| failure.kind == kind)
    }
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Wait.
    Nothing,
    /// Connect to this address.
    Try(SocketAddr),
    /// Give up; the text lists the attempts.
    GiveUp(String),
}

impl Dialling {
    /// Starts to try `candidates` at `now`, the best first, for at most `patience`.
    pub(crate) fn new(candidates: Vec<SocketAddr>, now: Duration, patience: Duration) -> Self {
        let fresh = |address| DialCandidate { address, under_way: false, failure: None };
        Self {
            candidates: candidates.into_iter().map(fresh).collect(),
            at: 0,
            next: now,
            deadline: now + patience,
            granted: now + patience,
            patience,
            strange: 0,
            closed: 0,
            held: None,
            again: None,
        }
    }

    /// Delays the first attempt until path costs arrive, at most until the given time.
    pub fn hold(&mut self, until: Duration) {
        self.held = Some(self.next);
        self.next = self.next.max(until);
    }

    /// Sorts the candidates by `order`, unless an attempt has begun, with those not listed first. If `is_said` (all
    /// costs are known), the first attempt starts at once.
    pub fn arrange(&mut self, order: &[SocketAddr], is_said: bool, now: Duration) {
        let Some(begin) = self.held.filter(|_| self.at == 0) else { return };
        let place = |one: &DialCandidate| order.iter().position(|address| *address == one.address);
        self.candidates.sort_by_key(place);
        if is_said {
            self.held = None;
            self.next = begin.max(now);
        }
    }

    /// Starts to reopen a link at `now`: soon, then ever less often, until the peer's hosts refuse repeatedly. Pauses
    /// have a random part, from `seed`.
    pub(crate) fn again(candidates: Vec<SocketAddr>, now: Duration, seed: u64) -> Self {
        let again = Some(Reopening { seed, rounds: 0, refused: 0 });
        let first = now + pause(seed, 0);
        let (deadline, granted) = (Duration::MAX, Duration::MAX);
        Self { again, next: first, deadline, granted, ..Self::new(candidates, now, ROUND) }
    }

    /// Timeout of one connection attempt.
    pub(crate) fn try_timeout(&self) -> Duration {
        if self.again.is_some() { TRY_AGAIN_TIMEOUT } else { TRY_TIMEOUT }
    }

    /// Returns the next action. To be called until it is [`Due::Nothing`], whenever time has passed or an outcome was
    /// recorded.
    pub(crate) fn due(&mut self, now: Duration) -> Due {
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
        if self.all_have_failed(DialFailureKind::OtherVersion) {
            return Due::GiveUp(self.account());
        }
        let is_strange = self.all_have_failed(DialFailureKind::Stranger);
        self.strange = if is_strange { self.strange + 1 } else { 0 };
        if self.strange >= REFUSALS {
            return Due::GiveUp(self.account());
        }
        let is_closed = self.all_have_failed(DialFailureKind::Closed);
        self.closed = if is_closed { self.closed + 1 } else { 0 };
        if self.closed >= REFUSALS {
            // Who answers so does not compute: there is nothing more to wait for.
            self.deadline = self.granted;
        }
        let is_refused = self.all_have_failed(DialFailureKind::Refused);
        let Some(again) = &mut self.again else {
            self.next = now + ROUND.min(self.patience / 4);
            return Due::Nothing;
        };
        again.refused = if is_refused { again.refused + 1 } else { 0 };
        again.rounds += 1;
        self.next = now + pause(again.seed, again.rounds);
        if again.refused < REFUSALS { Due::Nothing } else { Due::GiveUp(self.account()) }
    }

    /// Records a failed attempt; the next candidate of the round need not wait.
    pub fn handle_failure(&mut self, address: SocketAddr, failure: DialFailure, now: Duration) {
        if let Some(candidate) = self.candidates.iter_mut().find(|one| one.address == address) {
            candidate.under_way = false;
            candidate.failure = Some(failure);
        }
        let is_idle = self.candidates.iter().all(|one| !one.under_way);
        if self.at < self.candidates.len() || (self.again.is_some() && is_idle) {
            self.next = now;
        }
    }

    /// Records that a listener accepted a connection. A peer that computes may be silent for long, and is waited for
    /// while its node accepts connections. `wait` must exceed the time to the next acceptance.
    pub fn handle_connection(&mut self, now: Duration, wait: Duration) {
        self.deadline = self.deadline.max(now + wait);
    }

    fn all_have_failed(&self, kind: DialFailureKind) -> bool {
        self.candidates.iter().all(|one| one.has_failed(kind))
    }

    fn account(&self) -> String {
        let tried: Vec<String> = self
            .candidates
            .iter()
            .map(|one| match &one.failure {
                Some(failure) => format!("{} ({})", one.address, failure.text),
                None => one.address.to_string(),
            })
            .collect();
        if self.all_have_failed(DialFailureKind::OtherVersion) {
            return tried.join(", ");
        }
        if self.strange >= REFUSALS {
            return format!("no process of this job is at {}", tried.join(", "));
        }
        if self.again.is_some() {
            return format!("nobody listens at {}", tried.join(", "));
        }
        format!("no answer within {} s from {}", self.patience.as_secs_f32(), tried.join(", "))
    }
}

/// Pause between rounds of reopening: 50 ms, doubling up to 2 s, plus up to a quarter at random, so that ranks do not
/// dial in step.
fn pause(seed: u64, rounds: u32) -> Duration {
    let pause = (PAUSE_FIRST * 2_u32.saturating_pow(rounds.min(16))).min(PAUSE_MAX);
    // The high bits of a product depend on all bits of the seed.
    let random = seed.wrapping_add(rounds.into()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    pause + pause / 4 * random as u32 / 256
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Timeout of an attempt at the first opening: a few retransmissions…
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// …and none when reopening: the network may be whole at the next attempt.
const TRY_AGAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Consecutive refused rounds before the peer is given up.
const REFUSALS: u32 = 3;

/// Delay until the next candidate is tried beside a silent one.
const STAGGER: Duration = Duration::from_millis(250);
/// Time from the end of a round to the next.
const ROUND: Duration = Duration::from_secs(1);

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
    fn the_next_candidate_is_tried_after_silence_or_failure() {
        let (one, other, mut dialling) = two();
        assert_eq!(dialling.due(at(0)), Due::Try(one));
        assert_eq!(dialling.due(at(249)), Due::Nothing);
        assert_eq!(dialling.due(at(250)), Due::Try(other));
        let (one, other, mut dialling) = two();
        assert_eq!(dialling.due(at(0)), Due::Try(one));
        dialling.handle_failure(one, DialFailure::refused("refused"), at(1));
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
                    dialling.handle_failure(address, DialFailure::refused("refused"), at(now));
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
    fn a_host_that_accepts_connections_is_waited_for() {
        let (one, _, mut dialling) = two();
        assert_eq!(dialling.due(at(0)), Due::Try(one));
        dialling.handle_connection(at(4999), at(10_000));
        dialling.handle_failure(one, DialFailure::silent("silent"), at(9999));
        assert!(!matches!(dialling.due(at(14998)), Due::GiveUp(_)));
        assert!(matches!(dialling.due(at(14999)), Due::GiveUp(_)));
    }

    #[test]
    fn dialling_waits_for_path_costs_for_a_bounded_time() {
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
        // The pause before a reopening is kept.
        let mut again = Dialling::again(vec![one], at(0), 7);
        again.hold(at(10));
        again.arrange(&[one], true, at(5));
        assert_eq!(again.due(at(49)), Due::Nothing);
        assert_eq!(again.due(at(63)), Due::Try(one));
    }

    /// Simulates reopening until `end` with the given outcomes; returns the attempts and the final text.
    fn tries_again(end: u64, outcome: impl Fn(u64) -> Option<bool>) -> (Vec<u64>, Option<String>) {
        let one = "10.0.0.1:1".parse().unwrap();
        let mut dialling = Dialling::again(vec![one], at(0), 7);
        let mut tries = Vec::new();
        for now in 0..end {
            match dialling.due(at(now)) {
                Due::Nothing => {}
                Due::Try(_) => {
                    tries.push(now);
                    if let Some(is_refused) = outcome(now) {
                        let failure = match is_refused {
                            true => DialFailure::refused("failed"),
                            false => DialFailure::silent("failed"),
                        };
                        dialling.handle_failure(one, failure, at(now));
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
    fn a_peer_of_another_version_is_given_up_unless_another_address_may_lead_to_it() {
        let (one, other, mut dialling) = two();
        let other_version = || DialFailure::other_version("it speaks version 7");
        assert_eq!(dialling.due(at(0)), Due::Try(one));
        dialling.handle_connection(at(0), at(60_000));
        dialling.handle_failure(one, other_version(), at(1));
        assert_eq!(dialling.due(at(1)), Due::Try(other));
        dialling.handle_failure(other, DialFailure::silent("silent"), at(2));
        assert_eq!(dialling.due(at(300)), Due::Nothing, "the next round comes later");
        for address in [one, other] {
            assert_eq!(dialling.due(at(3000)), Due::Try(address));
            dialling.handle_failure(address, other_version(), at(3000));
        }
        let Due::GiveUp(account) = dialling.due(at(3300)) else { panic!("it goes on") };
        assert_eq!(account, "10.0.0.1:1 (it speaks version 7), 10.0.0.2:2 (it speaks version 7)");
    }

    #[test]
    fn strangers_at_all_addresses_are_given_up_soon() {
        let one = "10.0.0.1:1".parse().unwrap();
        let first = || Dialling::new(vec![one], at(0), at(30_000));
        let dials = [first(), Dialling::again(vec![one], at(0), 7)];
        for mut dialling in dials {
            let (mut now, mut tries) = (0, 0);
            let account = loop {
                match dialling.due(at(now)) {
                    Due::Nothing => now += 10,
                    Due::Try(_) => {
                        tries += 1;
                        dialling.handle_connection(at(now), at(60_000));
                        let failure = DialFailure::stranger("it has another secret");
                        dialling.handle_failure(one, failure, at(now));
                    }
                    Due::GiveUp(account) => break account,
                }
                assert!(now < 30_000, "{tries} tries");
            };
            assert_eq!(tries, 3);
            assert_eq!(account, "no process of this job is at 10.0.0.1:1 (it has another secret)");
        }
    }

    #[test]
    fn a_listener_that_closes_does_not_extend_the_patience() {
        let (one, _, mut dialling) = two();
        for now in (0..).step_by(10) {
            match dialling.due(at(now)) {
                Due::Nothing => {}
                Due::Try(address) => {
                    dialling.handle_connection(at(now), at(60_000));
                    dialling.handle_failure(address, DialFailure::closed("closed"), at(now));
                }
                Due::GiveUp(account) => {
                    assert_eq!(now, 5000);
                    return assert!(account.contains(&format!("{one} (closed)")), "{account}");
                }
            }
        }
    }

    #[test]
    fn a_peer_that_is_said_not_to_be_there_is_given_up() {
        let (tries, account) = tries_again(60_000, |_| Some(true));
        assert_eq!(tries.len(), 3);
        assert!(account.is_some_and(|text| text.contains("10.0.0.1:1 (failed)")));
        // One attempt that ends otherwise restarts the count.
        let (tries, _) = tries_again(60_000, |now| Some(!(150..300).contains(&now)));
        assert!(tries.len() > 3, "{tries:?}");
    }
}
