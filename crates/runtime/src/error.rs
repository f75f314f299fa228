//! Errors of joining and leaving a job.

/// Reason why a process cannot join or leave its job, one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Result of a call of the runtime.
pub type Result<T, E = Error> = std::result::Result<T, E>;
