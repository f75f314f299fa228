//! `canele info --progress`: how ranks wait on this node, and why.

use std::time::Duration;

use progress::{Amount, Explained, Policy};
use topo::Cache;
use topo::processor::{self, Cores, Wake};

/// Rules of waiting for a rank on this node: of the job that started this process, or of any job.
pub fn text() -> String {
    let cores = processor::cores();
    let found = Found {
        host: topo::sample::host_name(),
        domains: topo::domains::of_machine(&cores.allowed),
        nodes: topo::domains::by_memory(&cores.allowed),
        leaves_idle_cores: settings::IDLE_CORES.text().trim() == "leave",
        cores,
        runnable: processor::Runnable::open().and_then(|runnable| runnable.count()),
        wake: processor::wake(),
        late: Duration::from_nanos(
            topo::cache::host_cost(Cache::of_environment().as_ref()).wake_ns,
        ),
        may_precede: progress::may_precede(),
        shared: boot::node_cores(),
        ranks: boot::node_place().map(|place| place.ranks as usize),
    };
    found.tell()
}

/// Facts about the node.
struct Found {
    host: String,
    cores: Cores,
    /// Cores that share a cache and memory.
    domains: Vec<Vec<usize>>,
    /// Cores that share memory.
    nodes: Vec<Vec<usize>>,
    /// True if the user excludes idle pollers.
    leaves_idle_cores: bool,
    runnable: Option<usize>,
    wake: Option<Wake>,
    /// Wake-up latency of a timed sleep; ranks derive their spin time from it.
    late: Duration,
    may_precede: Result<(), &'static str>,
    /// Number of cores that the ranks of this node share.
    shared: usize,
    /// Number of the job's ranks on this node, if the launcher says.
    ranks: Option<usize>,
}

impl Found {
    fn tell(&self) -> String {
        let shared = self.shared;
        let policies = match self.ranks {
            Some(ranks) => self.policy(&format!("{ranks} ranks on this node"), ranks),
            None => {
                let few = self.policy(&format!("up to {shared} ranks on this node"), 1);
                few + &self.policy(&format!("more than {shared} ranks"), shared + 1)
            }
        };
        self.machine() + &policies
    }

    fn machine(&self) -> String {
        let Cores { allowed, usable, machine } = &self.cores;
        let bound = if *usable < allowed.len() {
            format!(", {usable} of them at once by its control group")
        } else if self.shared > *usable {
            format!(", of {} that the job's ranks share", self.shared)
        } else {
            String::new()
        };
        let runnable = self.runnable.map_or("unknown".into(), |threads| {
            let wanted = if threads > *machine { "more than cores" } else { "not more than cores" };
            format!("{threads} are runnable: {wanted}")
        });
        let wake = self.wake.map_or("not measured".into(), |Wake { least, median }| {
            format!(
                "{} at least, {} in the median, from the wake-up call until the thread runs; {} by a timer",
                time(least),
                time(median),
                time(self.late)
            )
        });
        let precedence = match self.may_precede {
            Ok(()) => "threads that wait for messages run before those that compute".into(),
            Err(reason) => format!("none: {reason}"),
        };
        format!(
            "host        {}\n\
             cores       {}: {} of the machine's {machine} are this process's{bound}\n\
             domains     {}\n\
             work        {}\n\
             threads     {runnable}\n\
             wake-up     {wake}\n\
             precedence  {precedence}\n",
            self.host,
            ranges(allowed),
            allowed.len(),
            groups(&self.domains),
            self.work(),
        )
    }

    /// Rule by which threads take tasks and pieces of long messages.
    fn work(&self) -> String {
        match &self.domains[..] {
            [] | [_] => "taken by any free thread: all cores are equally near".into(),
            domains => format!(
                "taken by the nearest free thread: on the core that offers it, then in its domain of {}, then in its NUMA node \
                 of {}",
                groups(domains),
                groups(&self.nodes)
            ),
        }
    }

    /// Number of idle pollers of a policy, and their cores or the reason for none.
    fn idle_pollers(&self, policy: &Policy, ranks: usize) -> (String, String) {
        let many = policy.idle_pollers.min(self.domains.len());
        let none = "never".into();
        if self.leaves_idle_cores {
            return (none, format!("{} says so", settings::IDLE_CORES.variable()));
        }
        if many == 0 {
            let because =
                format!("{ranks} ranks on {} cores have fewer than three each", self.shared);
            return (none, because);
        }
        let because = format!(
            "with up to {} ranks, on cores {} while nobody wants them, for a while after events; they wake the rank concerned",
            self.shared / 3,
            groups(&self.domains[..many])
        );
        (many.to_string(), because)
    }

    fn policy(&self, title: &str, ranks: usize) -> String {
        let mut text = format!("\n{title}\n");
        let policy =
            Policy::for_node(ranks, self.shared).bound_to(self.cores.usable).woken_in(self.late);
        for Explained { name, amount, because } in policy.explain(self.late) {
            let amount = match amount {
                Amount::None => "never".into(),
                Amount::Time(span) => time(span),
                Amount::Number(number) => number.to_string(),
            };
            text += &format!("  {name:<16}{amount:>9}  {because}\n");
        }
        let (amount, because) = self.idle_pollers(&policy, ranks);
        text + &format!("  idle pollers    {amount:>9}  {because}\n")
    }
}

fn groups(all: &[Vec<usize>]) -> String {
    all.iter().map(|numbers| ranges(numbers)).collect::<Vec<_>>().join(" | ")
}

/// Numbers in order as `0-3,8`.
fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        match run {
            [only] => parts.push(only.to_string()),
            [first, .., last] => parts.push(format!("{first}-{last}")),
            [] => {}
        }
    }
    parts.join(",")
}

fn time(span: Duration) -> String {
    crate::units::time(span.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ranks: Option<usize>) -> Found {
        let wake = Wake { least: Duration::from_micros(3), median: Duration::from_micros(4) };
        Found {
            host: "here".into(),
            cores: Cores { allowed: vec![0, 1, 2, 8], usable: 2, machine: 16 },
            domains: vec![vec![0, 1, 2], vec![8]],
            nodes: vec![vec![0, 1, 2, 8]],
            leaves_idle_cores: false,
            runnable: Some(17),
            wake: Some(wake),
            late: Duration::from_micros(10),
            may_precede: Err("it is not allowed"),
            shared: 2,
            ranks,
        }
    }

    #[test]
    fn the_node_is_told_with_what_follows_for_few_ranks_and_many() {
        let text = found(None).tell();
        let expected = [
            "0-2,8: 4 of the machine's 16 are this process's, 2 of them at once",
            "domains     0-2 | 8\n",
            "that offers it, then in its domain of 0-2 | 8, then in its NUMA node of 0-2,8\n",
            "  idle pollers        never  1 ranks on 2 cores have fewer than three each\n",
            "  idle pollers        never  3 ranks on 2 cores have fewer than three each\n",
            "17 are runnable: more than cores",
            "3.0 µs at least, 4.0 µs in the median",
            "precedence  none: it is not allowed\n",
            "\nup to 2 ranks on this node\n  spins            200.0 µs  some 20 times",
            "\nmore than 2 ranks\n  spins               never  ranks outnumber the cores",
        ];
        for part in expected {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_job_prints_the_rules_of_its_ranks() {
        let text = found(Some(3)).tell();
        let one = Found { domains: vec![vec![0, 1]], ..found(None) }.tell();
        assert!(one.contains("work        taken by any free thread: all cores"), "{one}");
        assert!(text.contains("\n3 ranks on this node\n  spins               never"), "{text}");
        assert!(!text.contains("more than 2 ranks"));
        let unknown = Found { wake: None, runnable: None, ..found(Some(1)) }.tell();
        assert!(unknown.contains("wake-up     not measured"), "{unknown}");
        let cores = Cores { allowed: vec![3], usable: 1, machine: 16 };
        let bound = Found { cores, shared: 4, ..found(Some(4)) }.tell();
        assert!(bound.contains("this process's, of 4 that the job's ranks share\n"), "{bound}");
        assert!(bound.contains("\n4 ranks on this node\n  spins            200.0 µs"), "{bound}");
    }

    #[test]
    fn idle_pollers_are_told_with_their_cores_or_the_reason_for_none() {
        let many = Found { shared: 16, ..found(Some(4)) };
        let (amount, because) = many.idle_pollers(&Policy::for_node(4, 16), 4);
        assert_eq!(amount, "2", "one for each domain");
        assert!(
            because.contains("with up to 5 ranks, on cores 0-2 | 8 while nobody wants them"),
            "{because}"
        );
        let left = Found { leaves_idle_cores: true, ..found(Some(1)) };
        let text = left.tell();
        assert!(
            text.contains("  idle pollers        never  CANELE_IDLE_CORES says so\n"),
            "{text}"
        );
    }

    #[test]
    fn numbers_are_told_in_ranges() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[4]), "4");
        assert_eq!(ranges(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
    }
}
