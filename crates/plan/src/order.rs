//! In which order operands are combined where the result's last bits follow from it.
//!
//! What messages cost is measured anew in every run, and a shmem is there or not; the result of a call on the same
//! ranks in the same places is the same to the last bit. So its order is that of the algorithm which *nominal* costs
//! choose, as if the ranks of a node always had a shmem, and what was measured chooses among all that combine in that
//! order: most do.

use crate::algorithms::shmem::page_bytes;
use crate::choice::{Algorithm, Call};
use crate::costs::{Cost, Costs};
use crate::topology::Topology;

/// What stands for what messages cost: none of it was measured. Between nodes it is in the middle of what networks are
/// like, so that none loses much; between sites all algorithms combine alike.
pub(crate) const NOMINAL: Costs = Costs {
    node: Cost { latency_ns: 600, bytes_per_s: 4_000_000_000, overhead_ns: 400 },
    site: Cost { latency_ns: 12_000, bytes_per_s: 500_000_000, overhead_ns: 4_000 },
    wide: Cost { latency_ns: 6_000_000, bytes_per_s: 117_000_000, overhead_ns: 4_000 },
    wake_ns: 30_000,
};

impl Topology {
    /// The algorithm in whose order the operands of a call have to be combined, if there is such an order.
    pub(crate) fn order(&self, call: &Call, algorithms: &[Algorithm]) -> Option<Algorithm> {
        if call.is_exact {
            return None;
        }
        let nominal = self.model().with_costs(&NOMINAL);
        let (home, page_bytes) = (self.home(call), page_bytes(self.node_ranks()));
        // Prefixes along a chain come out alike by messages and by a shmem.
        let pages = |algorithm| page_bytes.filter(|_| algorithm != Algorithm::Chain);
        let nominal_ns =
            |algorithm| Some(nominal.soonest_ns(call, algorithm, home, pages(algorithm))?.0);
        let all = algorithms.iter().enumerate();
        let possible = all.filter_map(|(at, &one)| Some((nominal_ns(one)?, at)));
        possible.min().map(|(_, at)| algorithms[at])
    }
}

impl Algorithm {
    /// Whether both combine the operands of a call in the same order.
    pub(crate) fn combines_as(self, other: Self) -> bool {
        self == other || (self.combines_pairs() && other.combines_pairs())
    }

    /// In the order of `pieces::pairs`.
    fn combines_pairs(self) -> bool {
        match self {
            Self::Linear
            | Self::Binomial
            | Self::Pairwise
            | Self::Butterfly
            | Self::Doubling
            | Self::Halving
            | Self::Shmem => true,
            Self::Tournament
            | Self::Dissemination
            | Self::Chain
            | Self::TwoTree
            | Self::VanDeGeijn
            | Self::Ring
            | Self::Bruck
            | Self::Leaders
            | Self::Hierarchical
            | Self::Multisite
            | Self::Aggregated => false,
        }
    }
}
