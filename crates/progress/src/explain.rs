//! Explains a waiting policy in words, for `canele info --progress`.

use std::time::Duration;

use crate::Policy;
use crate::copies::PIECE;
use crate::cores::LOOK_EVERY;
use crate::progress_thread::{COALESCED, IDLE_CHECKS};
use crate::wait::{AWAY, MAX_SLEEP, OVERSUBSCRIBED_AWAY};
use crate::yield_rounds::YIELD_ROUNDS;

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Subject of the rule.
    pub name: &'static str,
    /// Time or number.
    pub amount: Amount,
    /// Reason.
    pub because: String,
}

/// An amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Never.
    None,
    /// A time.
    Time(Duration),
    /// A number.
    Number(u32),
}

impl Policy {
    /// All rules of this policy. `wake` is the wake-up latency of a timed sleep on this machine.
    pub fn explain(&self, wake: Duration) -> Vec<Explained> {
        let mut all =
            if self.has_a_core() { self.with_a_core(wake) } else { self.without_a_core() };
        all.extend([
            say(
                "sleeps",
                Amount::Time(MAX_SLEEP),
                "at most at a time, so a lost wake-up is a delay only",
            ),
            say(
                "threads",
                Amount::Number(self.threads as u32),
                "can wait with a core each; with more threads, one polls and lets completed ones go first",
            ),
            say(
                "vcis",
                Amount::Number(self.vcis() as u32),
                "per process under MPI_THREAD_MULTIPLE, unless CANELE_VCIS says otherwise",
            ),
            say(
                "cores",
                Amount::Time(LOOK_EVERY),
                "between two checks of the available cores, by threads that sleep or yield; all rules follow them",
            ),
            self.copies(),
            self.progress_thread(),
            self.one_sided(),
            say(
                "coalesced",
                Amount::Time(COALESCED),
                "is the longest time that a short message waits for others to share its frame",
            ),
            say(
                "idle checks",
                Amount::Number(IDLE_CHECKS),
                "in a row without pending work, and the progress thread sleeps until it is woken",
            ),
        ]);
        all
    }

    fn with_a_core(&self, wake: Duration) -> Vec<Explained> {
        let times = self.spin.as_nanos() / wake.as_nanos().max(1);
        let spins = format!(
            "some {times} times the wake-up latency, so a peer with a short computation finds the thread awake"
        );
        vec![
            say("spins", Amount::Time(self.spin), spins),
            say(
                "contended",
                Amount::Time(self.brief),
                "of spinning where others want the cores: one wake-up latency, and none if it did not pay",
            ),
            say(
                "yield rounds",
                Amount::Number(YIELD_ROUNDS),
                "with a poll after each, where nodes of the job share a machine with fewer cores than ranks; fewer if one takes a millisecond",
            ),
            say(
                "yields",
                Amount::None,
                "except to a peer on the same core, and on trial for as long as that pays",
            ),
        ]
    }

    fn without_a_core(&self) -> Vec<Explained> {
        vec![
            say(
                "spins",
                Amount::None,
                "ranks outnumber the cores: spinning would keep the awaited rank from running",
            ),
            say(
                "yields",
                Amount::Number(self.yields),
                "times with a poll after each, then sleeps; sleeps at once in a shared segment while yields take milliseconds",
            ),
        ]
    }

    fn copies(&self) -> Explained {
        let piece = PIECE >> 10;
        let because = match self.threads {
            1 => format!(
                "copies a neighbor's long message, {piece} KiB at a time; other threads can use the library meanwhile"
            ),
            _ => format!(
                "can share the copy of a neighbor's long message, {piece} KiB at a time; one copies where others want the cores"
            ),
        };
        say("copies", Amount::Number(self.threads as u32), because)
    }

    fn progress_thread(&self) -> Explained {
        let (away, otherwise) = match self.has_a_core() {
            true => (AWAY, format!("; {OVERSUBSCRIBED_AWAY:?} where others want the cores")),
            false => {
                (OVERSUBSCRIBED_AWAY, "; a rank that waits for its core counts as present".into())
            }
        };
        let because = format!(
            "without a poll while work is pending, and the progress thread polls{otherwise}"
        );
        say("progress thread", Amount::Time(away), because)
    }

    fn one_sided(&self) -> Explained {
        let away = if self.has_a_core() { AWAY } else { OVERSUBSCRIBED_AWAY };
        say(
            "one-sided",
            Amount::Time(away),
            "without a poll while a window exists, and the progress thread serves what peers put, get and combine; it sleeps until they do",
        )
    }
}

fn say(name: &'static str, amount: Amount, because: impl Into<String>) -> Explained {
    Explained { name, amount, because: because.into() }
}

/// Checks if waiting threads of this process may go before computing threads, by trying it on a new thread.
///
/// # Errors
/// The reason if they may not.
pub fn may_precede() -> Result<(), &'static str> {
    let tried = || match cpu::Thread::current() {
        None => Err("this process has a standing of its own, which is left alone"),
        Some(thread) => thread.precede().map_err(|_| "it takes CAP_SYS_NICE, or RLIMIT_NICE of 30"),
    };
    std::thread::spawn(tried).join().unwrap_or(Err("there is no thread to try it on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_a_core_spin_and_others_yield() {
        let wake = Duration::from_micros(10);
        let amount = |policy: Policy, name| {
            let all = policy.explain(wake);
            all.iter().find(|one| one.name == name).map(|one| one.amount)
        };
        let alone = Policy::for_node(2, 4);
        assert_eq!(amount(alone, "spins"), Some(Amount::Time(alone.spin)));
        assert_eq!(amount(alone, "contended"), Some(Amount::Time(alone.brief)));
        assert_eq!(amount(alone, "yield rounds"), Some(Amount::Number(YIELD_ROUNDS)));
        assert_eq!(amount(alone, "yields"), Some(Amount::None));
        assert_eq!(amount(alone, "threads"), Some(Amount::Number(2)));
        assert_eq!(amount(alone, "copies"), Some(Amount::Number(2)));
        assert!(alone.explain(wake)[0].because.starts_with("some 20 times the wake-up latency"));
        let oversubscribed = Policy::for_node(5, 4);
        assert_eq!(amount(oversubscribed, "spins"), Some(Amount::None));
        assert_eq!(amount(oversubscribed, "yields"), Some(Amount::Number(oversubscribed.yields)));
        for name in ["progress thread", "one-sided"] {
            assert_eq!(amount(alone, name), Some(Amount::Time(AWAY)));
            assert_eq!(amount(oversubscribed, name), Some(Amount::Time(OVERSUBSCRIBED_AWAY)));
        }
        assert!(alone.explain(Duration::ZERO).len() > 5, "a cost that was not measured");
    }
}
