//! Files that outlive the job: views of them, and the system calls that read and write described memory.
//!
//! A [`View`] says which bytes of a file a process sees. An [`OpenFile`] moves bytes between a file and a
//! [`memory::Region`]. [`Pool`] runs what may wait for a disk on threads of its own. The crate knows no communicator.
#![deny(unsafe_code)]

mod access;
mod coverage;
mod fault;
mod open_file;
mod pattern;
mod pattern_copy;
mod pool;
mod view;

pub use access::{read_view, write_view};
pub use coverage::Coverage;
pub use fault::{FaultKind, FileFault, Result};
pub use open_file::{OpenFile, OpenMode, delete};
pub use pattern::Pattern;
pub use pool::Pool;
pub use view::{View, ViewFault};
