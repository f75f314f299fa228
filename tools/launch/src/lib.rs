//! `mpiexec` and its agents.
//!
//! `mpiexec` starts one agent per node, directly or through a launcher such as ssh, and speaks with it over
//! the agent's standard streams. No port is opened, and the job's secret appears on no command line. On a
//! grid it starts one agent per site, which starts the agents of the site's other hosts. The agent starts the
//! node's ranks and forwards their output, input, exits and PMI-1 requests. It ends everything it started
//! when its channel closes, for whatever reason.

/// Prints a line on standard error, as `eprintln!`, but ignores that nobody may read it.
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod agent;
mod allocation;
mod binding;
mod channel;
mod child_agents;
mod co_allocation;
mod collected;
mod command_line;
mod connections;
mod discovery;
mod foreign;
mod gateway;
mod grid;
mod grid_status;
mod hang;
mod host;
mod host_list;
mod host_status;
mod hydra;
mod input;
mod job_report;
pub mod jobs;
mod label;
mod launch_context;
mod launcher;
mod mapping;
mod mpiexec;
mod names;
mod node;
mod options;
mod output;
mod output_files;
mod pattern;
mod placing;
mod pmi;
mod probe;
mod profile;
mod rank_map;
mod recording;
mod refusal;
mod reports;
mod result_file;
mod run;
mod signals;
mod singleton;
mod slurm_holder;
mod soft;
mod spawn_options;
mod spawn_request;
mod system;
mod trace;
mod traced_rank;
mod tree;
mod universe;
mod usage;
mod world;

pub use agent::agent_main;
pub use binding::Binding;
pub use discovery::Discovery;
pub use foreign::replaced_library;
pub use grid::routes::TransitRoute;
pub use grid::{Gateway, Grid, GridError, Host, Network, Site};
pub use grid_status::{GridHost, grid_status};
pub use hang::RankView;
pub use host_status::HostState;
pub use mpiexec::mpiexec_main;
pub use options::Options;
pub use profile::profile_table;
pub use usage::UsageError;
