//! Choice of the algorithm for a call: the one with the shortest predicted time, unless a table
//! names another.
//!
//! The choice is a function of the call and of data that all ranks share, so that all choose the
//! same.

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

/// An algorithm of collective operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// One rank receives from all and sends to all.
    Linear,
    /// Binomial trees.
    Binomial,
    /// Up a tree and down again.
    Tournament,
    /// Every rank signals others over doubling distances.
    Dissemination,
    /// From each rank to the next, in segments.
    Chain,
    /// Down or up two trees at once, in segments.
    TwoTree,
    /// Scattered down a tree and gathered around a ring.
    VanDeGeijn,
    /// Around a ring, block by block.
    Ring,
    /// Doubling distances, with everything received so far.
    Bruck,
    /// Every pair directly.
    Pairwise,
    /// All operands to all in the fewest rounds.
    Butterfly,
    /// Pairs over doubling distances.
    Doubling,
    /// Pairs over doubling distances, with half of the data each time.
    Halving,
    /// Within nodes by their leaders, which exchange directly with each other.
    Leaders,
    /// Within nodes by their leaders, which run an algorithm as a team of their own.
    Hierarchical,
    /// Within sites by their leaders, which exchange directly with each other.
    Multisite,
    /// Like `Multisite`, with the blocks of all ranks of a site in one message.
    Aggregated,
    /// By a shared segment that all ranks of a node read.
    Shmem,
}

/// A collective call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// Bytes of a block, or the average, for operations that move blocks; else of all data of a
    /// rank.
    pub bytes: u64,
    /// Bytes of the longest block if they differ and all ranks know them; else the same as `bytes`.
    pub longest: u64,
    /// Number of indivisible units in `bytes`.
    pub units: u64,
    /// True if the blocks of all ranks are equal, or there are none, or all ranks know them.
    pub is_uniform: bool,
    /// True if operands may be combined in any order.
    pub commutes: bool,
    /// True if the result is the same to the last bit in any order, or nothing is combined.
    pub is_exact: bool,
    /// Rank of the root, if there is one and it is known.
    pub root: Option<u32>,
}

/// The user's choice for some operations: `OPERATION BYTES ALGORITHM` on each line. The bytes are
/// `*`, a number or a range (`0..4096`, `65536..`, the end included). The first line that fits
/// counts.
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
    /// Makes a call on `bytes` bytes of data that can be cut anywhere.
    pub fn of(operation: Operation, bytes: u64) -> Self {
        let (is_uniform, commutes, is_exact) = (true, true, true);
        let (longest, units, root) = (bytes, bytes, None);
        Self { operation, bytes, longest, units, is_uniform, commutes, is_exact, root }
    }

    /// Sets the root.
    #[must_use]
    pub fn with_root(self, root: u32) -> Self {
        Self { root: Some(root), ..self }
    }
}

impl Topology {
    /// Returns the algorithms that can carry out a call, with predicted times, in a fixed order.
    pub fn candidates(&self, call: &Call) -> Vec<(Algorithm, u64)> {
        let predicted =
            |&algorithm: &Algorithm| Some((algorithm, self.predicted_ns(call, algorithm)?));
        call.operation.algorithms().iter().filter_map(predicted).collect()
    }

    /// Returns the table's algorithm for a call, if there is one; it may be impossible here.
    pub fn wanted(&self, call: &Call) -> Option<Algorithm> {
        self.plans().wanted(call)
    }

    /// Returns the algorithm that carries out a call.
    pub fn choice(&self, call: &Call) -> Algorithm {
        let algorithms = call.operation.algorithms();
        algorithms[self.choice_among(call, algorithms)]
    }

    /// Returns the index of the algorithm that carries out a call.
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

    /// Returns the name in tables.
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
    /// Returns the name in tables.
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

/// Writes the table that [`Plans`] reads, without its comments.
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

/// Lists all known names, after the one nearest to `word`.
fn among(word: &str, names: impl IntoIterator<Item = &'static str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let distance = |name: &&&str| strsim::osa_distance(word, name);
    let nearest = names.iter().min_by_key(distance);
    let nearest = nearest.filter(|name| distance(name) <= word.len().max(3) / 3);
    let advice = nearest.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
    format!("{advice}: {}", names.join(", "))
}

/// Maximum number of rules.
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
    fn errors_in_a_table_name_the_line() {
        let reason = |text: &str| text.parse::<Plans>().unwrap_err();
        assert!(reason("\nfetch * ring").starts_with("line 2: no operation `fetch`: barrier, "));
        let message = reason("barrier * ring");
        assert!(
            message.ends_with(
                "no `ring` for barrier: linear, dissemination, tournament, leaders, hierarchical, multisite, shmem"
            ),
            "{message}"
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
