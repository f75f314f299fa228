//! To which cores ranks are bound: by their positions among the ranks of their host.

use serde::{Deserialize, Serialize};
use topo::domains;

/// What a rank is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binding {
    /// A core, with all its hardware threads.
    Core,
    /// The cores that share a last level of cache.
    LastCache,
    /// The cores of a node of memory.
    Memory,
}

/// Where a rank of a host is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub to: Binding,
    /// Among the job's ranks on the host, and how many these are.
    pub position: u32,
    pub ranks: u32,
}

impl Binding {
    /// What `-bind-to` says; none where ranks are not bound.
    ///
    /// # Errors
    /// The words that are known.
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

impl Bound {
    /// The processors of this machine, of those that this process may use.
    pub fn processors(self) -> Vec<usize> {
        let all = domains::allowed(None).unwrap_or_default();
        let places = match self.to {
            Binding::Core => domains::by_core(&all),
            Binding::LastCache => domains::of_machine(&all),
            Binding::Memory => domains::by_memory(&all),
        };
        places.get(self.place(places.len())).cloned().unwrap_or(all)
    }

    /// Which of so many places: one each as long as there are, and otherwise each as many, neighbours beside each other.
    fn place(self, places: usize) -> usize {
        let (position, ranks) = (self.position as usize, self.ranks as usize);
        if ranks <= places { position } else { position * places / ranks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_a_place_each_and_share_them_evenly_beyond() {
        let places = |ranks: u32, of: usize| {
            let place = |position| Bound { to: Binding::Core, position, ranks }.place(of);
            (0..ranks).map(place).collect::<Vec<_>>()
        };
        assert_eq!(places(3, 4), [0, 1, 2]);
        assert_eq!(places(4, 4), [0, 1, 2, 3]);
        assert_eq!(places(8, 2), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(places(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(places(2, 1), [0, 0]);
    }

    #[test]
    fn all_processors_of_this_machine_are_bound_to() {
        let all = domains::allowed(None).unwrap();
        for to in [Binding::Core, Binding::LastCache, Binding::Memory] {
            let ranks = all.len() as u32;
            let bound = |position| Bound { to, position, ranks }.processors();
            let mut found: Vec<_> = (0..ranks).flat_map(bound).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, all, "{to:?}");
        }
    }
}
