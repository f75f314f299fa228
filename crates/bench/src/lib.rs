//! The instruments, on Canele, on its peers and on raw TCP.
//!
//! The programs that measure are in C (`bench/`), because one binary runs on every library of the
//! standard ABI; they print lines of JSON (`record`). Each instrument is described once (`instrument`).
//! This crate compiles the programs (`programs`), says how each library's launcher starts them at a place (`launch`), lets the libraries take turns
//! (`campaign`), over one link or several (`sweep`), and makes tables (`table`) and plots (`plot`) of what came out (`report`).
//! It knows of Canele what its users know, the installed tree and the lab; only the instrument that sets
//! the scheduler beside the bare rail (`overhead`) is built from Canele's own parts, and what measures algorithms of
//! collectives (`tune`) asks the planner which there are.
#![forbid(unsafe_code)]

mod catalogue;
mod command;
mod environment;
mod instrument;
mod launch;
mod library;
mod overhead;
mod plot;
mod programs;
mod record;
mod report;
mod run;
mod runner;
mod scenario;
mod statistics;
mod sweep;
mod table;
mod testbed;
mod tune;

pub use command::{Arguments, run};
pub use tune::{Arguments as TuneArguments, run as tune};
