//! Binding of ranks to processors, by their positions among the ranks of their host.

use serde::{Deserialize, Serialize};
use topo::domains;

/// Kind of processor groups. A processor is a hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Domain {
    /// A single processor.
    Thread,
    /// A core, with all its hardware threads.
    Core,
    /// The cores that share a first- or second-level cache.
    Cache(u8),
    /// The cores that share a last-level cache.
    LastCache,
    /// The cores of a NUMA node.
    Numa,
    /// The cores of a socket.
    Package,
    /// All processors.
    Machine,
}

/// Processors that ranks are bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binding {
    /// To so many domains each.
    Domains {
        /// Their kind.
        of: Domain,
        /// Their number.
        count: u32,
    },
    /// To one processor each, in the order of their numbers.
    InTurns,
    /// To these processors.
    Listed(Vec<Vec<usize>>),
}

/// Binding of one rank on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CoreBinding {
    pub to: Binding,
    /// Domains that consecutive ranks take in turns.
    pub order: Option<Domain>,
    /// Position among the job's ranks on the host.
    pub position: u32,
    /// Number of the job's ranks on the host.
    pub ranks: u32,
}

impl Domain {
    /// Reads hwloc's name of a kind of object.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "hwthread" | "pu" => Self::Thread,
            "core" => Self::Core,
            "l1cache" => Self::Cache(1),
            "l2cache" => Self::Cache(2),
            "l3cache" => Self::LastCache,
            "numa" => Self::Numa,
            "socket" | "package" => Self::Package,
            "machine" => Self::Machine,
            _ => return None,
        })
    }

    /// Returns the domains of these processors of this machine.
    fn of(self, all: &[usize]) -> Vec<Vec<usize>> {
        match self {
            Self::Thread => {
                domains::by_core(all).into_iter().flatten().map(|one| vec![one]).collect()
            }
            Self::Core => domains::by_core(all),
            Self::Cache(level) => domains::by_cache(all, level.into()),
            Self::LastCache => domains::of_machine(all),
            Self::Numa => domains::by_memory(all),
            Self::Package => domains::by_package(all),
            Self::Machine => vec![all.to_vec()],
        }
    }
}

impl Binding {
    /// Parses the value of `-bind-to`; none if ranks are not bound.
    ///
    /// # Errors
    /// Lists the known values; the text continues "-bind-to VALUE: …".
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, String> {
        let lower = text.to_ascii_lowercase();
        if let Some(list) = lower.strip_prefix("user:") {
            let set = |word: &str| word.split('+').map(|one| one.parse().ok()).collect();
            let sets: Option<Vec<Vec<usize>>> = list.split(',').map(set).collect();
            let mistake = || "not a list of processors, such as user:0+2,1".to_owned();
            return sets.map(|sets| Some(Self::Listed(sets))).ok_or_else(mistake);
        }
        let (word, modifier) = lower.split_once(':').unwrap_or((&lower, "1"));
        let count = match modifier {
            "overload-allowed" | "if-supported" => Some(1),
            _ => modifier.parse().ok().filter(|count| (1..=1 << 16).contains(count)),
        };
        let count = count.ok_or_else(|| format!("{modifier} is no number of domains"))?;
        Ok(match word {
            "none" => None,
            "rr" => Some(Self::InTurns),
            _ => {
                let of = Domain::parse(word).ok_or_else(|| format!("not one of {KNOWN}"))?;
                Some(Self::Domains { of, count })
            }
        })
    }
}

impl CoreBinding {
    /// Returns the processors of this machine for the rank, of those that this process may use.
    ///
    /// # Errors
    /// Fails if it may use none of the processors of a list, with one line.
    pub fn processors(&self) -> Result<Vec<usize>, String> {
        let all = domains::allowed(None).unwrap_or_default();
        let (of, count) = match &self.to {
            Binding::Domains { of, count } => (*of, *count as usize),
            Binding::InTurns => {
                let one = all.get(self.position as usize % all.len().max(1));
                return Ok(one.map_or_else(Vec::new, |one| vec![*one]));
            }
            Binding::Listed(sets) => {
                let set = sets.get(self.position as usize % sets.len().max(1));
                let set = set.map_or(&[][..], Vec::as_slice);
                let usable: Vec<usize> =
                    set.iter().copied().filter(|one| all.contains(one)).collect();
                return match usable.is_empty() {
                    true => Err(format!("cannot be bound to {set:?}: it may use {all:?}")),
                    false => Ok(usable),
                };
            }
        };
        let choices = grouped(of.of(&all), count);
        let choices = match self.order {
            Some(order) => in_turns(&choices, &order.of(&all)),
            None => choices,
        };
        let at = match self.order {
            Some(_) => self.position as usize % choices.len().max(1),
            None => self.domain(choices.len()),
        };
        Ok(choices.get(at).cloned().unwrap_or(all))
    }

    /// Returns the index of the rank's domain: a domain each while they last, otherwise evenly, with
    /// neighbours next to each other.
    fn domain(&self, count: usize) -> usize {
        let (position, ranks) = (self.position as usize, self.ranks as usize);
        if ranks <= count { position } else { position * count / ranks }
    }
}

/// Joins so many domains each. Domains that are left over at the end are used by nobody.
fn grouped(domains: Vec<Vec<usize>>, count: usize) -> Vec<Vec<usize>> {
    let count = count.min(domains.len()).max(1);
    domains.chunks_exact(count).map(<[Vec<usize>]>::concat).collect()
}

/// Returns the domains in the order of ranks: one in each group of processors, then the next ones. A group within a
/// domain stands for it.
fn in_turns(domains: &[Vec<usize>], groups: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let within = |group: &Vec<usize>| -> Vec<&Vec<usize>> {
        let starts = |one: &&Vec<usize>| one.first().is_some_and(|first| group.contains(first));
        let inside: Vec<_> = domains.iter().filter(starts).collect();
        let around = |one: &&Vec<usize>| group.first().is_some_and(|first| one.contains(first));
        if inside.is_empty() { domains.iter().filter(around).collect() } else { inside }
    };
    let choices: Vec<Vec<&Vec<usize>>> =
        groups.iter().map(within).filter(|choices| !choices.is_empty()).collect();
    let rounds = choices.iter().map(Vec::len).max().unwrap_or(0);
    let round = |number: usize| choices.iter().map(move |one| one[number % one.len()].clone());
    (0..rounds).flat_map(round).collect()
}

const KNOWN: &str =
    "none, hwthread, core, l1cache, l2cache, l3cache, numa, socket, machine, rr, user:LIST";

#[cfg(test)]
mod tests {
    use super::*;

    fn core(of: Domain, count: u32) -> Binding {
        Binding::Domains { of, count }
    }

    #[test]
    fn ranks_get_a_domain_each_or_share_them_evenly() {
        let assigned = |ranks: u32, of: usize| {
            let to = || core(Domain::Core, 1);
            let place =
                |position| CoreBinding { to: to(), order: None, position, ranks }.domain(of);
            (0..ranks).map(place).collect::<Vec<_>>()
        };
        assert_eq!(assigned(3, 4), [0, 1, 2]);
        assert_eq!(assigned(4, 4), [0, 1, 2, 3]);
        assert_eq!(assigned(8, 2), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(assigned(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(assigned(2, 1), [0, 0]);
    }

    #[test]
    fn all_processors_of_this_machine_are_bound_to() {
        let all = domains::allowed(None).unwrap();
        let kinds = [Domain::Thread, Domain::Core, Domain::Cache(1), Domain::Cache(2)];
        let larger = [Domain::LastCache, Domain::Numa, Domain::Package, Domain::Machine];
        let domains = kinds.into_iter().chain(larger).map(|of| core(of, 1));
        for to in domains.chain([Binding::InTurns]) {
            let ranks = all.len() as u32;
            let bound = |position| {
                CoreBinding { to: to.clone(), order: None, position, ranks }.processors().unwrap()
            };
            let mut found: Vec<_> = (0..ranks).flat_map(bound).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, all, "{to:?}");
        }
    }

    #[test]
    fn listed_processors_are_taken_in_turns_or_named_as_missing() {
        let first = domains::allowed(None).unwrap()[0];
        let list = format!("user:{first}+99999,99999");
        let to = Binding::parse(&list).unwrap().unwrap();
        let of =
            |position| CoreBinding { to: to.clone(), order: None, position, ranks: 3 }.processors();
        assert_eq!((of(0), of(2)), (Ok(vec![first]), Ok(vec![first])));
        assert!(of(1).unwrap_err().starts_with("cannot be bound to [99999]: it may use ["));
    }

    #[test]
    fn objects_are_grouped_and_ordered() {
        let domains = |sets: &[&[usize]]| sets.iter().map(|one| one.to_vec()).collect::<Vec<_>>();
        let cores = domains(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]);
        let sockets = domains(&[&[0, 4, 1, 5], &[2, 6, 3, 7]]);
        assert_eq!(grouped(cores.clone(), 2), sockets);
        assert_eq!(grouped(cores.clone(), 3).len(), 1);
        assert_eq!(grouped(cores.clone(), 9), [cores.concat()]);
        let spread = domains(&[&[0, 4], &[2, 6], &[1, 5], &[3, 7]]);
        assert_eq!(in_turns(&cores, &sockets), spread);
        let packed = [0, 0, 1, 1].map(|socket| sockets[socket].clone());
        assert_eq!(in_turns(&sockets, &cores), packed);
        assert_eq!(in_turns(&cores, &cores), cores);
    }

    #[test]
    fn values_are_read() {
        let read = |text: &str| Binding::parse(text).unwrap();
        assert_eq!(read("none"), None);
        assert_eq!(read("core:2"), Some(core(Domain::Core, 2)));
        assert_eq!(read("socket"), Some(core(Domain::Package, 1)));
        assert_eq!(read("core:overload-allowed"), Some(core(Domain::Core, 1)));
        assert_eq!(read("user:0+2,1"), Some(Binding::Listed(vec![vec![0, 2], vec![1]])));
        for text in ["pony", "core:0", "core:x", "user:", "user:a", "user:1+", ""] {
            assert!(Binding::parse(text).is_err(), "{text}");
        }
    }
}
