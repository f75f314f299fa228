//! Who polls what, where, and when to block.
//!
//! [`Progress`] joins the pure engine with the rails of this process. Every call takes the one lock,
//! runs the engine inline, posts what it wants posted, and returns; a call that has to wait polls
//! for a while and then sleeps in the kernel until a rail rings ([`Policy`] says how long it spins).
//! Of several threads that wait, one polls for all and the others sleep until something completes. What
//! takes several operations is a [`Task`], which goes on without calls. What the application leaves behind
//! when it computes, a thread of the library's own brings to its end, and where cores are free others look on for it.
#![forbid(unsafe_code)]

mod backoff;
mod busy_test;
mod contention;
mod copies;
mod cores;
mod counters;
mod event;
mod exit_handover;
mod explain;
mod idle_poller;
mod journal;
mod locality;
mod parker;
mod policy;
mod poller;
mod precedence;
mod progress_thread;
mod siblings;
mod submissions;
mod tasks;
mod wait;
mod waiters;
mod worker;
mod yield_rounds;

pub use counters::{Counters, TaskSteps};
pub use explain::{Amount, Explained, may_precede};
pub use policy::{Policy, VCIS_MAX};
pub use tasks::{Stage, Task};
pub use wait::Progress;
pub use worker::{Directory, Worker};
