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
}

#[derive(Debug)]
struct Candidate {
    address: SocketAddr,
    under_way: bool,
    failure: Option<String>,
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
        let fresh = |address| Candidate { address, under_way: false, failure: None };
        Self {
            candidates: candidates.into_iter().map(fresh).collect(),
            at: 0,
            next: now,
            deadline: now + patience,
            patience,
        }
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
                candidate.under_way = true;
                self.next = now + STAGGER;
                return Due::Try(candidate.address);
            }
        }
        self.at = 0;
        self.next = now + ROUND.min(self.patience / 4);
        Due::Nothing
    }

    /// A try has failed: the next candidate of the round need not wait.
    pub fn handle_failure(&mut self, address: SocketAddr, text: String, now: Duration) {
        if let Some(candidate) = self.candidates.iter_mut().find(|one| one.address == address) {
            candidate.under_way = false;
            candidate.failure = Some(text);
        }
        if self.at < self.candidates.len() {
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
        format!("no answer within {} s from {}", self.patience.as_secs(), tried.join(", "))
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
        dialling.handle_failure(one, "refused".into(), at(1));
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
                    dialling.handle_failure(address, "refused".into(), at(now));
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
        dialling.handle_failure(one, "silent".into(), at(9999));
        assert!(!matches!(dialling.due(at(14998)), Due::GiveUp(_)));
        assert!(matches!(dialling.due(at(14999)), Due::GiveUp(_)));
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
