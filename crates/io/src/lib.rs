//! Files that outlive the job: views of them, and the system calls that read and write described memory.
//!
//! A [`View`] says which bytes of a file a process sees. An [`OpenFile`] moves bytes between a file and a
//! [`memory::Region`]. [`Pool`] runs what may wait for a disk on threads of its own. The crate knows no communicator.
#![deny(unsafe_code)]

mod access;
mod coverage;
mod fault;
mod identity;
mod open_file;
mod pattern;
mod pattern_copy;
mod pool;
mod remote;
mod view;
mod visibility;

pub use access::{read_pattern, write_pattern};
pub use coverage::Coverage;
pub use fault::{FaultKind, FileFault, Result};
pub use identity::FileIdentity;
pub use open_file::{OpenFile, OpenMode, delete, may_create};
pub use pattern::Pattern;
pub use pool::Pool;
pub use remote::{FileReply, FileRequest, RequestedBytes, RequestedPattern};
pub use view::{View, ViewFault};
pub use visibility::{Finding, Visibility};
