//! Recording of a rank for `mpiexec -trace`: events in memory that the rank shares with its agent.
//!
//! The agent makes a `memfd` and leaves it open in the rank, which finds its descriptor in [`VARIABLE`]. The library and
//! the layer of MPI calls (`interpose`) append to the same recording. The agent reads it after the rank's end, so an
//! abort or a signal loses nothing, and no file is left behind.
//!
//! A recording is an array of cells of 64 bytes. The first one counts the events; each other one holds an event. An event
//! takes the next cell by one atomic addition, without a lock. When all cells are taken, further events are only
//! counted. Times are those of `CLOCK_MONOTONIC` in nanoseconds, which all processes of a host share.

mod event;
mod recorder;

pub use event::{EVENT_LEN, MpiCall, NameKind, Recording, TraceEvent};
pub use recorder::{Cell, Recorder, VARIABLE, create, now_ns, thread, used};
