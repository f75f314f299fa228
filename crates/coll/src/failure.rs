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
    /// The application has revoked the team's context.
    Revoked,
    /// A peer sent another number of bytes than expected.
    Length,
    /// The system has no memory for the shared segment or for temporaries.
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
    /// A failure of this kind; the message says who is at fault.
    #[cold]
    pub fn new(fault: Fault, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { fault, message: message.into() })
    }
}

/// The failure of a collective one of whose peers cannot be reached.
#[cold]
pub(crate) fn gone(why: &str) -> Box<Failure> {
    let message = format!("a peer is gone in the middle of a collective ({why})");
    Failure::new(Fault::PeerGone, message)
}

/// The failure of a collective whose context the application has revoked.
#[cold]
pub(crate) fn revoked() -> Box<Failure> {
    Failure::new(Fault::Revoked, "the communicator is revoked")
}

/// The failure of a collective without memory for data on their way.
#[cold]
pub(crate) fn no_memory() -> Box<Failure> {
    Failure::new(Fault::NoMemory, "no memory for the temporaries of the collective")
}

/// The failure of a collective in which rank `rank` has sent, or posted, another length.
#[cold]
pub(crate) fn unfit(rank: u32, got: u64, expected: u64) -> Box<Failure> {
    let message = format!(
        "rank {rank} sent {got} bytes where {expected} were expected: counts or types differ between processes"
    );
    Failure::new(Fault::Length, message)
}
