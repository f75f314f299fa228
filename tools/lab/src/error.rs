//! Errors of a lab.

use std::io;

/// Errors of a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A command of the system failed.
    #[error("`{command}` failed: {text}")]
    Command {
        /// The command line.
        command: String,
        /// Its error output.
        text: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// Failed action.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
    /// No such lab.
    #[error("no lab `{0}` is up: raise it with `canele lab up`")]
    Missing(String),
    /// No such node.
    #[error("no node `{0}`: there are {1}")]
    Node(String, String),
    /// The request names something that does not exist.
    #[error("{0}")]
    Spec(String),
    /// The links of the lab refused the request.
    #[error("{0}")]
    Refused(String),
    /// Not allowed here.
    #[error("the lab needs root, or a kernel that gives user namespaces to users: {0}")]
    Privilege(String),
}
