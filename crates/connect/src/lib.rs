//! Connections between processes as state machines, without IO: time and outcomes are arguments, actions are results.
//!
//! [`Links`] are those of one rail: it dials, and decides which of several connections is the link. [`Peers`] manages
//! the connections of a process over all its rails: which rail is asked for a link, when another one, and when a peer
//! has failed. [`LivenessState`] says which silent peers are probed. [`HelloPrefix`] begins each handshake; then a
//! connection is [`Asked`] until both ends have [`Agreed`] that it is the link.
#![forbid(unsafe_code)]

mod dial;
mod facts;
mod failback;
mod fault;
mod hello;
mod links;
mod liveness;
mod names;
mod outage;
mod peers;
mod rails;
mod refusal;
mod search;

pub use dial::{DialFailure, Dialling};
pub use facts::{Candidate, PeerFacts};
pub use fault::Fault;
pub use hello::{HelloPrefix, VERSION_LEN, other_version, version_word};
pub use links::{Agreed, Asked, DialAction, Links, RailLink, Verdict};
pub use liveness::LivenessState;
pub use names::PeerName;
pub use outage::{Outage, OutageStep, Patience};
pub use peers::{Action, LostLink, Opened, Peers};
pub use rails::RailTraits;
pub use refusal::Refusal;
pub use search::Purpose;
