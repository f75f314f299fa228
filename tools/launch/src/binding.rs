//! Binding of ranks to cores, by their positions among the ranks of their host.

use serde::{Deserialize, Serialize};
use topo::domains;

/// Domain that a rank is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binding {
    /// A core, with all its hardware threads.
    Core,
    /// The cores that share a last-level cache.
    LastCache,
    /// The cores of a NUMA node.
    Memory,
}

/// Binding of one rank on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CoreBinding {
    pub to: Binding,
    /// Position among the job's ranks on the host.
    pub position: u32,
    /// Number of the job's ranks on the host.
    pub ranks: u32,
}

impl Binding {
    /// Parses the value of `-bind-to`; none if ranks are not bound.
    ///
    /// # Errors
    /// Lists the known values.
    pub(crate) fn parse(word: &str) -> Result<Option<Self>, &'static str> {
        Ok(Some(match word {
            "none" => return Ok(None),
            "core" => Self::Core,
            "l3cache" => Self::LastCache,
            "numa" => Self::Memory,
            _ => return Err("none, core, l3cache, numa"),
        }))
    }
}

impl CoreBinding {
    /// Returns the processors of this machine for the rank, of those that this process may use.
    pub fn processors(self) -> Vec<usize> {
        let all = domains::allowed(None).unwrap_or_default();
        let choices = match self.to {
            Binding::Core => domains::by_core(&all),
            Binding::LastCache => domains::of_machine(&all),
            Binding::Memory => domains::by_memory(&all),
        };
        choices.get(self.domain(choices.len())).cloned().unwrap_or(all)
    }

    /// Returns the index of the rank's domain: a domain each while they last, otherwise evenly, with
    /// neighbours next to each other.
    fn domain(self, count: usize) -> usize {
        let (position, ranks) = (self.position as usize, self.ranks as usize);
        if ranks <= count { position } else { position * count / ranks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_get_a_domain_each_or_share_them_evenly() {
        let assigned = |ranks: u32, of: usize| {
            let place = |position| CoreBinding { to: Binding::Core, position, ranks }.domain(of);
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
        for to in [Binding::Core, Binding::LastCache, Binding::Memory] {
            let ranks = all.len() as u32;
            let bound = |position| CoreBinding { to, position, ranks }.processors();
            let mut found: Vec<_> = (0..ranks).flat_map(bound).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, all, "{to:?}");
        }
    }
}
