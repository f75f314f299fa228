//! Scenarios of several engines. The network checks every completion against the sent data and a
//! reference model of matching; see `network`.

mod credits;
mod faults;
mod link_down;
mod matching;
#[path = "../network/mod.rs"]
mod network;
mod protocols;
mod strategies;
mod thresholds;
