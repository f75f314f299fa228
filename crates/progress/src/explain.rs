//! What a policy comes to, and why, for whoever wonders: `canele info --progress` shows it.

use std::time::Duration;

use crate::Policy;
use crate::copies::PIECE;
use crate::cores::LOOK_EVERY;
use crate::progress_thread::{COALESCED, IDLE_LOOKS};
use crate::wait::{AWAY, MAX_SLEEP, OVERSUBSCRIBED_AWAY};
use crate::yield_rounds::TURNS;

/// One thing that a policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What is said something of.
    pub name: &'static str,
    /// How much.
    pub amount: Amount,
    /// Why.
    pub because: String,
}

/// How much of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Not at all.
    None,
    /// For so long.
    Time(Duration),
    /// So often, or so many.
    Number(u32),
}

impl Policy {
    /// All that this policy says. `wake` is what a thread of this machine is late that sleeps until a time.
    pub fn explain(&self, wake: Duration) -> Vec<Explained> {
        let mut all =
            if self.has_a_core() { self.with_a_core(wake) } else { self.without_a_core() };
        all.extend([
            say(
                "sleeps",
                Amount::Time(MAX_SLEEP),
                "at a time at most, so that a lost bell is a delay and not the end",
            ),
            say(
                "threads",
                Amount::Number(self.threads as u32),
                "can wait with a core each; of more, one polls, and gives way to those whose wait is over",
            ),
            say(
                "vcis",
                Amount::Number(self.vcis() as u32),
                "of communicators, each polled with a core, where MPI_THREAD_MULTIPLE is asked for and no other number (CANELE_VCIS)",
            ),
            say(
                "cores",
                Amount::Time(LOOK_EVERY),
                "at least from one look at those there are to the next, by threads that sleep or yield; all of this follows them",
            ),
            self.copies(),
            self.progress_thread(),
            say(
                "coalesced",
                Amount::Time(COALESCED),
                "short messages wait for company, where nobody polls sooner",
            ),
            say(
                "rests",
                Amount::Number(IDLE_LOOKS),
                "looks in a row that find nothing left behind, and the thread sleeps until it is called",
            ),
        ]);
        all
    }

    fn with_a_core(&self, wake: Duration) -> Vec<Explained> {
        let times = self.spin.as_nanos() / wake.as_nanos().max(1);
        let spins = format!(
            "some {times} times what a thread is late that sleeps: a peer that computes shortly is met awake"
        );
        vec![
            say("spins", Amount::Time(self.spin), spins),
            say(
                "if wanted",
                Amount::Time(self.brief),
                "where others want the cores: as long as sleeping costs, and not at all where it was in vain",
            ),
            say(
                "turns",
                Amount::Number(TURNS),
                "where nodes of the job share a machine with fewer cores than ranks: leaves the core to the others so often, with a poll after each, unless one takes a millisecond",
            ),
            say(
                "yields",
                Amount::None,
                "but to a peer seen on the same core, and on a guess for as long as that pays",
            ),
        ]
    }

    fn without_a_core(&self) -> Vec<Explained> {
        vec![
            say(
                "spins",
                Amount::None,
                "ranks are more than cores: it would keep from running whom it waits for",
            ),
            say(
                "yields",
                Amount::Number(self.yields),
                "times, with a poll after each, and then sleeps; at once, at a shm_coll, while yields take milliseconds",
            ),
        ]
    }

    fn copies(&self) -> Explained {
        let piece = PIECE >> 10;
        let because = match self.threads {
            1 => format!(
                "copies a neighbour's long message, {piece} KiB at a time; others have the library meanwhile"
            ),
            _ => format!(
                "can share the copying of a neighbour's long message, {piece} KiB at a time; one does where others want the cores"
            ),
        };
        say("copies", Amount::Number(self.threads as u32), because)
    }

    fn progress_thread(&self) -> Explained {
        let (away, otherwise) = match self.has_a_core() {
            true => (AWAY, format!("; {OVERSUBSCRIBED_AWAY:?} where others want the cores")),
            false => (OVERSUBSCRIBED_AWAY, ", for who waits for its turn is not away".into()),
        };
        let because = format!(
            "without a poll while something is left behind: then a thread polls and sleeps for it{otherwise}"
        );
        say("stands by", Amount::Time(away), because)
    }
}

fn say(name: &'static str, amount: Amount, because: impl Into<String>) -> Explained {
    Explained { name, amount, because: because.into() }
}

/// Whether threads of this process that wait may go before those that compute: tried on a thread of its own.
///
/// # Errors
/// The reason why not.
pub fn may_precede() -> Result<(), &'static str> {
    let tried = || match driver::Thread::current() {
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
        assert_eq!(amount(alone, "if wanted"), Some(Amount::Time(alone.brief)));
        assert_eq!(amount(alone, "turns"), Some(Amount::Number(TURNS)));
        assert_eq!(amount(alone, "yields"), Some(Amount::None));
        assert_eq!(amount(alone, "threads"), Some(Amount::Number(2)));
        assert_eq!(amount(alone, "copies"), Some(Amount::Number(2)));
        assert!(alone.explain(wake)[0].because.starts_with("some 20 times"));
        let oversubscribed = Policy::for_node(5, 4);
        assert_eq!(amount(oversubscribed, "spins"), Some(Amount::None));
        assert_eq!(amount(oversubscribed, "yields"), Some(Amount::Number(oversubscribed.yields)));
        assert_eq!(amount(oversubscribed, "stands by"), Some(Amount::Time(OVERSUBSCRIBED_AWAY)));
        assert_eq!(amount(alone, "stands by"), Some(Amount::Time(AWAY)));
        assert!(alone.explain(Duration::ZERO).len() > 5, "a cost that was not measured");
    }
}
