//! Mistakes in command lines.

use crate::host::RANKS_MAX;

/// A mistake in a command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0} (see mpiexec --help)")]
pub struct UsageError(pub(crate) String);

/// Limits of the numbers that [`number`] reads, for the help.
pub(crate) fn limits() -> String {
    format!("from 1 to {RANKS_MAX}")
}

/// Reads a positive number.
pub(crate) fn number(name: &str, value: &str) -> Result<u32, UsageError> {
    match value.parse() {
        Ok(0) | Err(_) => Err(UsageError(format!("-{name} {value}: not a positive number"))),
        Ok(number) if number > RANKS_MAX => {
            Err(UsageError(format!("-{name} {value}: more than {RANKS_MAX}")))
        }
        Ok(number) => Ok(number),
    }
}
