//! Who polls what, where, and when to block.
//!
//! [`Progress`] joins the pure engine with the rails of this process. Every call takes the one lock,
//! runs the engine inline, posts what it wants posted, and returns; a call that has to wait polls
//! for a while and then sleeps in the kernel until a rail rings ([`Policy`] says how long it spins).
//! Of several threads that wait, one polls for all and the others sleep until something completes. What
//! takes several operations is a [`Task`], which goes on without calls. What the application leaves behind
//! when it computes, a thread of the library's own brings to its end, and where cores are free others look on for it.
#![forbid(unsafe_code)]

mod beside;
mod contention;
mod copies;
mod cores;
mod counters;
mod event;
mod explain;
mod idle;
mod journal;
mod places;
mod policy;
mod precedence;
mod progress_thread;
mod sleeper;
mod submissions;
mod succession;
mod tasks;
mod trust;
mod turns;
mod vain;
mod wait;
mod waiters;
mod watch;
mod worker;

pub use counters::{Counters, TaskSteps};
pub use explain::{Amount, Explained, may_precede};
pub use policy::{Policy, VCIS_MAX};
pub use tasks::{Stage, Task};
pub use wait::Progress;
pub use worker::{Directory, Worker};
