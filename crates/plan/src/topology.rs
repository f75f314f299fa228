//! Where the ranks of a communicator run.
//!
//! All ranks plan from equal topologies: what they do fits together only because they decide alike.

/// Where the ranks of a communicator run.
#[derive(Clone, Debug)]
pub struct Topology {
    size: u32,
    is_crowded: bool,
}

impl Topology {
    /// The ranks of one node. `is_crowded` says that they outnumber its cores.
    pub fn flat(size: u32, is_crowded: bool) -> Self {
        Self { size, is_crowded }
    }

    /// The number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether all ranks are on one node and outnumber its cores.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }
}
