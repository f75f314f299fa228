//! Hosts.

/// A host that takes ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Number of its site: equal for hosts of one site, and below the number of hosts.
    pub site: u32,
    /// Number of ranks that it takes.
    pub slots: u32,
}
