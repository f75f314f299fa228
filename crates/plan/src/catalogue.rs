//! Algorithms of each operation, as one type each. Whoever carries out or predicts an operation
//! then knows all algorithms it may be asked for.

use crate::choice::{Algorithm, Call, Operation};
use crate::topology::Topology;

/// Algorithms of an operation.
pub(crate) trait Catalogue: Copy + 'static {
    /// All of them. If two have equal predicted times, the first is taken.
    const ALL: &'static [Self];

    /// The same by their common names.
    const ALGORITHMS: &'static [Algorithm];

    /// Returns the algorithm that carries out a call.
    fn of(topology: &Topology, call: &Call) -> Self {
        let at = topology.choice_among(call, Self::ALGORITHMS);
        Self::ALL[at]
    }

    /// Returns the one with this name, if there is one.
    fn named(algorithm: Algorithm) -> Option<Self> {
        let at = Self::ALGORITHMS.iter().position(|one| *one == algorithm)?;
        Some(Self::ALL[at])
    }
}

macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident: $($algorithm:ident),+;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($algorithm),+
        }

        impl Catalogue for $name {
            const ALL: &'static [Self] = &[$(Self::$algorithm),+];
            const ALGORITHMS: &'static [Algorithm] = &[$(Algorithm::$algorithm),+];
        }
    )+};
}

catalogue! {
    /// `MPI_Barrier`.
    Barrier: Linear, Dissemination, Tournament, Leaders, Hierarchical, Multisite, Shmem;
    /// `MPI_Bcast`.
    Broadcast: Linear, Binomial, Chain, TwoTree, VanDeGeijn, Leaders, Hierarchical, Multisite, Shmem;
    /// `MPI_Gather(v)`, and `MPI_Scatter(v)` in the other direction.
    Gather: Linear, Binomial, Leaders, Aggregated, Shmem;
    /// `MPI_Allgather(v)`.
    Allgather: Linear, Pairwise, Bruck, Ring, Tournament, Leaders, Hierarchical, Aggregated, Multisite, Shmem;
    /// `MPI_Alltoall(v, w)`.
    Alltoall: Pairwise, Bruck, Leaders, Aggregated, Shmem;
    /// `MPI_Reduce`.
    Reduce: Linear, Pairwise, Binomial, Chain, TwoTree, Ring, Leaders, Hierarchical, Multisite, Shmem;
    /// `MPI_Allreduce`.
    Allreduce: Linear, Pairwise, Doubling, Butterfly, Halving, Ring, Tournament, Leaders, Hierarchical, Multisite, Shmem;
    /// `MPI_Reduce_scatter(_block)`.
    ReduceScatter: Pairwise, Binomial, Ring, Leaders, Multisite, Shmem;
    /// `MPI_Scan` and `MPI_Exscan`.
    Prefix: Doubling, Chain, Leaders, Multisite, Shmem;
}

impl Operation {
    /// Returns the algorithms of an operation. If two have equal predicted times, the first is
    /// taken.
    pub fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Self::Barrier => Barrier::ALGORITHMS,
            Self::Broadcast => Broadcast::ALGORITHMS,
            Self::Gather | Self::Scatter => Gather::ALGORITHMS,
            Self::Allgather => Allgather::ALGORITHMS,
            Self::Alltoall => Alltoall::ALGORITHMS,
            Self::Reduce => Reduce::ALGORITHMS,
            Self::Allreduce => Allreduce::ALGORITHMS,
            Self::ReduceScatter => ReduceScatter::ALGORITHMS,
            Self::Scan | Self::Exscan => Prefix::ALGORITHMS,
        }
    }
}
