//! Which algorithm carries out a call: the one predicted to end first, unless a table says otherwise.
//!
//! The choice is a function of the call and of what all ranks know alike, so that all choose the same.

use std::fmt;
use std::str::FromStr;

use crate::topology::Topology;

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Broadcast,
    /// `MPI_Gather(v)`.
    Gather,
    /// `MPI_Scatter(v)`.
    Scatter,
    /// `MPI_Allgather(v)`.
    Allgather,
    /// `MPI_Alltoall(v, w)`.
    Alltoall,
    /// `MPI_Reduce`.
    Reduce,
    /// `MPI_Allreduce`.
    Allreduce,
    /// `MPI_Reduce_scatter(_block)`.
    ReduceScatter,
    /// `MPI_Scan`.
    Scan,
    /// `MPI_Exscan`.
    Exscan,
}

/// How an operation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// One rank hears all and tells all.
    Linear,
    /// Binomial trees.
    Binomial,
    /// A tree up and a tree down.
    Tournament,
    /// Everybody tells others over doubling distances.
    Dissemination,
    /// From each to the next, in segments.
    Chain,
    /// Down or up two trees at once, in segments.
    TwoTree,
    /// Scattered down a tree and gathered around a ring.
    VanDeGeijn,
    /// Around a ring, block by block.
    Ring,
    /// Doubling distances, with all that was heard.
    Bruck,
    /// Every pair for itself.
    Pairwise,
    /// All operands to all in the least rounds.
    Butterfly,
    /// Pairs over doubling distances.
    Doubling,
    /// The same, with halves of halves.
    Halving,
    /// Within nodes by their heads, which exchange with each other at once.
    Leaders,
    /// Within nodes by their heads, which are a team of their own.
    Hierarchical,
    /// Within sites by their heads, which exchange with each other at once.
    Multisite,
    /// The same with the blocks of all ranks of a site together.
    Aggregated,
    /// On a shmem that all ranks of a node read.
    Shmem,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// A block's bytes, for those that move blocks, or the average; else all that a rank has or gets.
    pub bytes: u64,
    /// The longest block's bytes, where they differ and all know them; else as many.
    pub longest: u64,
    /// Those are so many units that cannot be divided.
    pub units: u64,
    /// Whether the blocks of all ranks are equal; there are none, or all know them.
    pub is_uniform: bool,
    /// Whether operands may be combined in any order.
    pub commutes: bool,
    /// Whether the result is the same to the last bit in whatever order they are; there is none, or nothing is combined.
    pub is_exact: bool,
    /// The root's rank, where there is one and it is known.
    pub root: Option<u32>,
}

/// What the user wants for some operations: `OPERATION BYTES ALGORITHM` on each line, the bytes as `*`, a
/// number or a range (`0..4096`, `65536..`, the end included); the first line that fits counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plans {
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    operation: Operation,
    from: u64,
    to: u64,
    algorithm: Algorithm,
}

impl Call {
    /// A call on one piece of data of `bytes` bytes that can be cut anywhere.
    pub fn of(operation: Operation, bytes: u64) -> Self {
        let (is_uniform, commutes, is_exact) = (true, true, true);
        let (longest, units, root) = (bytes, bytes, None);
        Self { operation, bytes, longest, units, is_uniform, commutes, is_exact, root }
    }

    /// The same with this root.
    #[must_use]
    pub fn with_root(self, root: u32) -> Self {
        Self { root: Some(root), ..self }
    }
}

impl Topology {
    /// What may carry out a call, with its predicted time, in a fixed order.
    pub fn candidates(&self, call: &Call) -> Vec<(Algorithm, u64)> {
        let predicted =
            |&algorithm: &Algorithm| Some((algorithm, self.predicted_ns(call, algorithm)?));
        call.operation.algorithms().iter().filter_map(predicted).collect()
    }

    /// What the table says that carries out a call, if it says anything; it may be something that cannot here.
    pub fn wanted(&self, call: &Call) -> Option<Algorithm> {
        self.plans().wanted(call)
    }

    /// What carries out a call.
    pub fn choice(&self, call: &Call) -> Algorithm {
        let algorithms = call.operation.algorithms();
        algorithms[self.choice_among(call, algorithms)]
    }

    /// Which of an operation's algorithms carries out a call, by its index.
    pub(crate) fn choice_among(&self, call: &Call, algorithms: &[Algorithm]) -> usize {
        let predicted_ns = |algorithm| self.predicted_ns(call, algorithm);
        if let Some(wanted) = self.wanted(call)
            && predicted_ns(wanted).is_some()
            && let Some(at) = algorithms.iter().position(|one| *one == wanted)
        {
            return at;
        }
        let order = self.order(call, algorithms);
        let fits = |one: Algorithm| order.is_none_or(|order| one.combines_as(order));
        let all = algorithms.iter().enumerate().filter(|(_, one)| fits(**one));
        let possible = all.filter_map(|(at, &one)| Some((predicted_ns(one)?, at)));
        possible.min().map_or(0, |(_, at)| at)
    }
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 11] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Gather,
        Self::Scatter,
        Self::Allgather,
        Self::Alltoall,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "bcast",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }
}

impl Algorithm {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Binomial => "binomial",
            Self::Tournament => "tournament",
            Self::Dissemination => "dissemination",
            Self::Chain => "chain",
            Self::TwoTree => "two_tree",
            Self::VanDeGeijn => "van_de_geijn",
            Self::Ring => "ring",
            Self::Bruck => "bruck",
            Self::Pairwise => "pairwise",
            Self::Butterfly => "butterfly",
            Self::Doubling => "doubling",
            Self::Halving => "halving",
            Self::Leaders => "leaders",
            Self::Hierarchical => "hierarchical",
            Self::Multisite => "multisite",
            Self::Aggregated => "aggregated",
            Self::Shmem => "shmem",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Plans {
    fn wanted(&self, call: &Call) -> Option<Algorithm> {
        let fits = |rule: &&Rule| {
            rule.operation == call.operation && (rule.from..=rule.to).contains(&call.bytes)
        };
        self.rules.iter().find(fits).map(|rule| rule.algorithm)
    }
}

impl FromStr for Plans {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                rules.push(rule(line).map_err(|reason| format!("line {number}: {reason}"))?);
            }
        }
        if rules.len() > RULES_MAX {
            return Err(format!("{} rules, more than {RULES_MAX}", rules.len()));
        }
        Ok(Self { rules })
    }
}

/// The table that [`Plans`] reads, with its comments gone.
impl fmt::Display for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.iter().try_for_each(|Rule { operation, from, to, algorithm }| {
            writeln!(f, "{operation} {from}..{to} {algorithm}")
        })
    }
}

fn rule(line: &str) -> Result<Rule, String> {
    let mut words = line.split_whitespace();
    let (Some(operation), Some(bytes), Some(algorithm), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(format!("`{line}`: say operation, bytes and algorithm"));
    };
    let known = Operation::ALL.into_iter().find(|one| one.name() == operation);
    let known = known.ok_or_else(|| {
        format!(
            "no operation `{operation}`{}",
            among(operation, Operation::ALL.map(Operation::name))
        )
    })?;
    let algorithms = known.algorithms();
    let wanted = algorithms.iter().find(|one| one.name() == algorithm);
    let wanted = wanted.ok_or_else(|| {
        let names = algorithms.iter().map(|one| one.name());
        format!("no `{algorithm}` for {operation}{}", among(algorithm, names))
    })?;
    let (from, to) = range(bytes).ok_or_else(|| {
        format!("`{bytes}`: say *, a number of bytes, or a range such as 0..4096")
    })?;
    Ok(Rule { operation: known, from, to, algorithm: *wanted })
}

fn range(text: &str) -> Option<(u64, u64)> {
    let or = |text: &str, number: u64| match text {
        "" => Some(number),
        text => text.parse().ok(),
    };
    match text.split_once("..") {
        None if text == "*" => Some((0, u64::MAX)),
        None => text.parse().ok().map(|number| (number, number)),
        Some((from, to)) => or(from, 0).zip(or(to, u64::MAX)).filter(|(from, to)| from <= to),
    }
}

/// All names that are known, and before them the nearest to `word`.
fn among(word: &str, names: impl IntoIterator<Item = &'static str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let distance = |name: &&&str| strsim::osa_distance(word, name);
    let nearest = names.iter().min_by_key(distance);
    let nearest = nearest.filter(|name| distance(name) <= word.len().max(3) / 3);
    let advice = nearest.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
    format!("{advice}: {}", names.join(", "))
}

/// More rules are not written by hand.
const RULES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_algorithms_by_operation_and_size() {
        let text = "# ours\nallreduce 0..99 ring  # short\n\nallreduce * halving\nbcast 7 chain\n";
        let plans: Plans = text.parse().unwrap();
        let wanted = |operation, bytes| plans.wanted(&Call::of(operation, bytes));
        assert_eq!(wanted(Operation::Allreduce, 99), Some(Algorithm::Ring));
        assert_eq!(wanted(Operation::Allreduce, 100), Some(Algorithm::Halving));
        assert_eq!(wanted(Operation::Broadcast, 7), Some(Algorithm::Chain));
        assert_eq!(wanted(Operation::Broadcast, 8), None);
        assert_eq!(plans.to_string().parse(), Ok(plans));
    }

    #[test]
    fn what_is_wrong_in_a_table_is_named_with_its_line() {
        let reason = |text: &str| text.parse::<Plans>().unwrap_err();
        assert!(reason("\nfetch * ring").starts_with("line 2: no operation `fetch`: barrier, "));
        let told = reason("barrier * ring");
        assert!(
            told.ends_with(
                "no `ring` for barrier: linear, dissemination, tournament, leaders, hierarchical, multisite, shmem"
            ),
            "{told}"
        );
        assert!(
            reason("bcst * chain").contains("no operation `bcst` (did you mean bcast?): barrier, ")
        );
        assert!(
            reason("allreduce * rin").contains("no `rin` for allreduce (did you mean ring?): ")
        );
        assert!(reason("bcast 5..4 chain").contains("`5..4`: say *"));
        assert!(reason("bcast chain").contains("say operation, bytes and algorithm"));
        assert!(reason(&"scan * leaders\n".repeat(257)).contains("257 rules"));
    }

    #[test]
    fn every_operation_has_algorithms_and_every_name_is_one_word() {
        for operation in Operation::ALL {
            assert!(!operation.algorithms().is_empty());
            for algorithm in operation.algorithms() {
                assert!(
                    algorithm
                        .name()
                        .chars()
                        .all(|letter| letter.is_ascii_lowercase() || letter == '_')
                );
            }
        }
    }
}
