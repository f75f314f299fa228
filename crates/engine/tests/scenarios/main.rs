//! What engines do to one another, told as scenarios. Every completion in them is checked by the
//! network against what was sent and against a reference model of matching; see `network`.

mod credits;
mod faults;
mod matching;
#[path = "../network/mod.rs"]
mod network;
mod parting;
mod protocols;
mod strategies;
mod thresholds;
