//! Order in which operands are combined if the result's last bits depend on it.
//!
//! Message costs are measured anew in every run, and nodes may or may not have a shared segment.
//! The result of a call on the same ranks in the same places is still the same to the last bit. So
//! its order is that of the algorithm that *nominal* costs choose, as if every node had a shared
//! segment. The measured costs choose among all algorithms that combine in that order, which most
//! do.

use crate::algorithms::shmem::page_bytes;
use crate::choice::{Algorithm, Call};
use crate::costs::{Costs, MessageCost};
use crate::topology::Topology;

/// Nominal costs of messages; none of them was measured. Between nodes they lie in the middle of
/// usual networks, so that none loses much. Between sites all algorithms combine alike.
pub(crate) const NOMINAL: Costs = Costs {
    node: MessageCost { latency_ns: 600, bytes_per_s: 4_000_000_000, overhead_ns: 400 },
    site: MessageCost { latency_ns: 12_000, bytes_per_s: 500_000_000, overhead_ns: 4_000 },
    wide: MessageCost { latency_ns: 6_000_000, bytes_per_s: 117_000_000, overhead_ns: 4_000 },
    wake_ns: 30_000,
};

impl Topology {
    /// Returns the algorithm in whose order the operands of a call have to be combined, if there is
    /// such an order.
    pub(crate) fn order(&self, call: &Call, algorithms: &[Algorithm]) -> Option<Algorithm> {
        if call.is_exact {
            return None;
        }
        let nominal = self.model().with_costs(&NOMINAL);
        let (root_site, page_bytes) = (self.root_site(call), page_bytes(self.node_ranks()));
        // Prefixes along a chain are the same by messages and by a shared segment.
        let pages = |algorithm| page_bytes.filter(|_| algorithm != Algorithm::Chain);
        let nominal_ns =
            |algorithm| Some(nominal.fastest_ns(call, algorithm, root_site, pages(algorithm))?.0);
        let all = algorithms.iter().enumerate();
        let possible = all.filter_map(|(at, &one)| Some((nominal_ns(one)?, at)));
        possible.min().map(|(_, at)| algorithms[at])
    }
}

impl Algorithm {
    /// True if both combine the operands of a call in the same order.
    pub(crate) fn combines_as(self, other: Self) -> bool {
        self == other || (self.combines_pairs() && other.combines_pairs())
    }

    /// True if the order is that of `algorithms::pairs`.
    fn combines_pairs(self) -> bool {
        match self {
            Self::Linear
            | Self::Binomial
            | Self::Pairwise
            | Self::Butterfly
            | Self::Doubling
            | Self::Halving
            | Self::Tournament
            | Self::Shmem => true,
            Self::Dissemination
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
