//! Instruments that measure Canele, its peers and raw TCP.
//!
//! The measuring programs are in C (`bench/`), because one binary runs on every library of the standard ABI;
//! they print lines of JSON (`record`). Each instrument is described once (`instrument`). This crate compiles
//! the programs (`programs`), starts them by each library's launcher (`launch`), and lets the libraries take
//! turns (`runner`), over one link or several (`sweep`), one plan after the other (`series`). An interruption leaves what is
//! measured (`kept`). It makes tables (`table`) and plots (`plot`) of the
//! results (`report`). It knows Canele as its users do: the installed tree and the lab. Three instruments are
//! exceptions. `overhead` and `addressed`, which compare the scheduler with the bare rail, are built from
//! Canele's own parts (`paths`), and `tune` asks the planner for the algorithms of collectives.
#![forbid(unsafe_code)]

mod catalogue;
mod command;
mod environment;
mod estimate;
mod instrument;
mod kept;
mod launch;
mod library;
mod page;
mod paths;
mod planned;
mod plot;
mod programs;
mod record;
mod report;
mod run;
mod runner;
mod scenario;
mod series;
mod statistics;
mod sweep;
mod table;
mod testbed;
mod tune;

pub use command::{BenchArguments, run};
pub use tune::{TuneArguments, run as tune};
