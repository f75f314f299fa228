//! Polling, waiting and sleeping: the layer between the pure engine and the rails.
//!
//! [`Progress`] joins the engine with the rails of one VCI. Each call takes one lock, runs the engine inline, posts
//! the frames that the engine has built, and returns. A call that has to wait polls for a while ([`Policy`] says how
//! long) and then sleeps in the kernel until a rail wakes it. Of several waiting threads, one polls for all; the
//! others sleep until their operation completes. A [`Task`] takes several operations and goes on without calls. A
//! progress thread completes what the application leaves pending while it computes. Where cores are free, idle
//! pollers help it.
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
mod wait_report;
mod waiters;
mod worker;
mod yield_rounds;

pub use counters::{Counters, TaskSteps};
pub use explain::{Amount, Explained, may_precede};
pub use policy::{Policy, VCIS_MAX};
pub use tasks::{Task, TaskStage};
pub use wait::Progress;
pub use wait_report::{AwaitedThing, CallFinder, WaitingThread, set_call_finder};
pub use worker::{Directory, OwnAddresses, Worker};
