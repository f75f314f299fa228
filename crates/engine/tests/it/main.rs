//! Tests of several engines, in one program: a program for each file would compile the same code again. The network
//! checks every completion against the sent data and a reference model of matching; see `network`.
//!
//! `bounded` measures the memory of its process, and is a program of its own.

#[path = "../network/mod.rs"]
mod network;

mod added_peers;
mod addressed;
mod cancelled;
mod credits;
mod faults;
mod generations;
mod granted;
mod hostile;
mod hostile_links;
mod lent;
mod link_down;
mod matching;
mod protocols;
mod send_observer;
mod strategies;
mod thresholds;
mod through;
mod two_links;
