//! Value of `MPI_UNIVERSE_SIZE` (`-usize`).

/// Kinds of universe sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Universe {
    /// The number of ranks, or the slots of the hosts if these are more.
    #[default]
    Ranks,
    /// All slots of the hosts.
    Slots,
    /// No limit: the attribute is not set.
    Infinite,
    /// A number.
    Given(u32),
}
