//! The emulated grid: sites and nodes on one machine.
//!
//! A node is a set of namespaces (network, host name, System V IPC, mounts with a `/dev/shm` of its own),
//! kept alive by a holder process. A site is a bridge with its nodes, each connected at the LAN's rate. A
//! router between the sites has links with delay, rate limit and loss.
//!
//! The router's packets are queued to a process in user space, the daemon. They stay in the kernel, and only
//! their lengths are copied unless packets must be distinguished. Links can be changed while they carry
//! packets, and they count them. If the kernel cannot queue packets to user space, its emulator (netem) makes
//! the links, which then cannot be changed.
#![forbid(unsafe_code)]

/// Writes a line to standard output. If that fails, `run` says so at its end.
macro_rules! write_line {
    ($($text:tt)*) => {{
        let written = std::io::Write::write_fmt(
            &mut std::io::stdout(),
            format_args!("{}\n", format_args!($($text)*)),
        );
        crate::command::note_written(written);
    }};
}

mod check;
mod command;
mod daemon;
mod error;
mod flow;
mod grid;
mod grid_file;
mod link;
mod namespace;
mod netem;
mod nfqueue;
mod probe;
mod spec;
mod speed;
mod wire;

pub use command::{Arguments, run};
pub use daemon::{Change, Cut, Link, Way, Which};
pub use error::LabError;
pub use flow::{Congestion, Goodput, Stream};
pub use grid::{Lab, Node};
pub use grid_file::grid_file;
pub use spec::{Pair, Spec, bytes, duration, pair, rate, share};
pub use wire::{Conditions, Counts};
