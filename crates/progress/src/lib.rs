//! Decides which thread polls which rail, and when it sleeps.
//!
//! [`Progress`] joins the pure engine with the rails of this process. Every call takes the one lock, runs the engine
//! inline, posts the resulting frames, and returns. A call that has to wait polls for a while and then sleeps in the
//! kernel until a rail signals ([`Policy`] says how long it spins). Of several waiting threads, one polls for all;
//! the others sleep until something completes. A [`Task`] consists of several operations and advances without calls.
//! If the application leaves work pending while it computes, a progress thread of the library completes it. On free
//! cores, idle pollers watch the rails as well.
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
