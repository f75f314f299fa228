//! Algorithms over a team, one in each file. Each ends with a wait for everything it began, so that
//! another can follow.

pub(crate) mod binomial;
pub(crate) mod bruck;
pub(crate) mod butterfly;
pub(crate) mod chain;
pub(crate) mod dissemination;
pub(crate) mod doubling;
pub(crate) mod halving;
pub(crate) mod linear;
pub(crate) mod pairs;
pub(crate) mod pairwise;
pub(crate) mod prefix;
pub(crate) mod ring;
pub(crate) mod shmem;
pub(crate) mod tournament;
pub(crate) mod two_tree;
pub(crate) mod van_de_geijn;
