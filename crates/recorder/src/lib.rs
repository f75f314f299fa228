//! Recordings of a rank in memory that it shares with its agent: events for `mpiexec -trace`, and counts of calls for
//! `mpiexec -profile` ([`Profile`]).
//!
//! The agent makes a `memfd` and leaves it open in the rank, which finds its descriptor in [`VARIABLE`]. The library and
//! the layer of MPI calls (`interpose`) append to the same recording. The agent reads it after the rank's end, so an
//! abort or a signal loses nothing, and no file is left behind.
//!
//! A trace is an array of cells of 64 bytes. The first one counts the events; each other one holds an event. An event
//! takes the next cell by one atomic addition, without a lock. When all cells are taken, further events are only
//! counted. Times are those of `CLOCK_MONOTONIC` in nanoseconds, which all processes of a host share.

mod clock;
mod event;
mod memory;
mod profile;
mod recorder;

pub use event::{EVENT_LEN, MpiCall, NameKind, Recording, TraceEvent};
pub use profile::{
    CallCounts, CallKey, CommFacts, NOBODY, PROFILE_ROOM, PROFILE_VARIABLE, Profile, ReadProfile,
    SIZE_CLASSES, STRANGER, create_profile, size_class, used_profile,
};
pub use recorder::{Cell, Recorder, VARIABLE, create, now_ns, thread, used};
