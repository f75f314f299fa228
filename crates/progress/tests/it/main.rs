//! Tests of the crate's interface, in one program: a program for each file would compile the same code again.
//!
//! Tests that count the threads of their process, or that need idle cores, are programs of their own.

#[path = "../pair/mod.rs"]
mod pair;
#[path = "../simulated/mod.rs"]
mod simulated;
mod traffic;
#[path = "../unlinked/mod.rs"]
mod unlinked;
#[macro_use]
#[path = "../wrapped_rail/mod.rs"]
mod wrapped_rail;

mod coalescing;
mod computing;
mod counters;
mod distance;
mod final_frames;
mod hostile_peer;
mod link_cuts;
mod liveness;
mod other_path;
mod rail_wakeups;
mod refused_connections;
mod revoke;
mod several_vcis;
mod submissions;
mod take_over;
mod tasks;
mod waiting;
