//! Failures of collectives.

/// The result of a collective.
pub type Result<T> = std::result::Result<T, Box<Failure>>;

/// A failure of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the failure.
    pub fault: Fault,
    /// Says which rank is at fault, with which value.
    pub message: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A peer cannot be reached any more.
    PeerGone,
    /// A peer sent another number of bytes than expected.
    Length,
    /// The system has no memory for the shared segment.
    NoMemory,
    /// Processes have called with different arguments.
    Differ(Argument),
}

/// Arguments that are compared between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The routine itself.
    Routine,
    /// The root.
    Root,
    /// The reduction operation.
    Op,
    /// The length of the data.
    Count,
}

impl Failure {
    #[cold]
    pub(crate) fn new(fault: Fault, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { fault, message: message.into() })
    }
}
