//! Cores and threads of this machine: the core of a thread, its scheduling class, its signals.

mod precedence;
mod threads;

pub use precedence::{Thread, poll_when_idle};
pub use threads::{core_here, cores_online, without_signals};
