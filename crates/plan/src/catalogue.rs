//! Which algorithms there are for each operation: a type for each, so that whoever carries it out or predicts
//! it knows all that it may be asked for.

use crate::choice::{Algorithm, Call, Operation};
use crate::topology::Topology;

/// The algorithms of an operation.
pub(crate) trait Ways: Copy + 'static {
    /// All of them; of two that are predicted to take as long the first is taken.
    const ALL: &'static [Self];

    /// The same by their common names.
    const ALGORITHMS: &'static [Algorithm];

    /// What carries out a call.
    fn of(topology: &Topology, call: &Call) -> Self {
        let at = topology.choice_among(call, Self::ALGORITHMS);
        Self::ALL[at]
    }

    /// The one of this name, if there is one.
    fn named(algorithm: Algorithm) -> Option<Self> {
        let at = Self::ALGORITHMS.iter().position(|one| *one == algorithm)?;
        Some(Self::ALL[at])
    }
}

macro_rules! ways {
    ($($(#[$doc:meta])* $name:ident: $($way:ident),+;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($way),+
        }

        impl Ways for $name {
            const ALL: &'static [Self] = &[$(Self::$way),+];
            const ALGORITHMS: &'static [Algorithm] = &[$(Algorithm::$way),+];
        }
    )+};
}

ways! {
    /// `MPI_Barrier`.
    Barrier: Linear, Dissemination, Tournament, Leaders, Hierarchical, Multisite, Shmem;
    /// `MPI_Bcast`.
    Broadcast: Linear, Binomial, Chain, TwoTree, VanDeGeijn, Leaders, Hierarchical, Multisite, Shmem;
    /// `MPI_Gather(v)`, and `MPI_Scatter(v)` the other way round.
    Gather: Linear, Binomial, Leaders, Aggregated, Shmem;
    /// `MPI_Allgather(v)`.
    Allgather: Linear, Pairwise, Bruck, Ring, Leaders, Hierarchical, Aggregated, Multisite, Shmem;
    /// `MPI_Alltoall(v, w)`.
    Alltoall: Pairwise, Bruck, Leaders, Aggregated, Shmem;
    /// `MPI_Reduce`.
    Reduce: Linear, Pairwise, Binomial, Chain, TwoTree, Ring, Leaders, Hierarchical, Multisite, Shmem;
    /// `MPI_Allreduce`.
    Allreduce: Linear, Pairwise, Doubling, Butterfly, Halving, Ring, Leaders, Hierarchical, Multisite, Shmem;
    /// `MPI_Reduce_scatter(_block)`.
    ReduceScatter: Pairwise, Binomial, Ring, Leaders, Multisite, Shmem;
    /// `MPI_Scan` and `MPI_Exscan`.
    Prefix: Doubling, Chain, Leaders, Multisite, Shmem;
}

impl Operation {
    /// What there is for an operation; of two that are predicted to take as long the first is taken.
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
