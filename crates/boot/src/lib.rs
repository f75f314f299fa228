//! Startup of a rank: PMI-1 or PMIx, the job secret, the exchange of addresses.
//!
//! [`Job::join`] looks at the environment the launcher left: PMI-1 (our `mpiexec`, Hydra, and
//! whatever else speaks it), PMIx (Slurm), or nothing at all, which makes a job of one. Under a launcher it
//! recognises but does not speak to, it says so and stops: a job of many must never become many jobs
//! of one.

mod environment;
mod error;
mod identity;
mod job;
mod launcher;
mod limits;
mod lines;
mod names;
mod own_launcher;
mod pmi;
mod pmix;
mod pmix_library;
mod rank_load;
mod report;
mod spawn;

pub use environment::{
    Detected, NODE_CORES_VARIABLE, NodePlace, detect, node_cores, node_place, own_cores,
};
pub use error::BootError;
pub use identity::{SOCKET_VARIABLE, socket_inode};
pub use job::{
    Job, PEER_IS_GONE, RECORD_VARIABLE, SECRET_KEY, TRAFFIC_KEY, ended_name, is_ended_name,
    is_published_as, job_number, published,
};
pub use launcher::{CONNECTED, DISCONNECTED, Launcher};
pub use limits::{raise_open_files, shortage};
pub use names::{LOOKUP_NAME, NameAnswer, NameQuestion, PUBLISH_NAME, UNPUBLISH_NAME};
pub use own_launcher::FOR_SINGLETON;
pub use pmi::process_space;
pub use rank_load::{RankLoad, Reach, SentTo};
pub use report::{REPORT_VARIABLE, RankReport, RankWait, ReportRequest, ReportSocket, ask_rank};
pub use secret::Secret;
pub use spawn::{PARENT_KEY, SpawnProgram, SpawnRequest};
