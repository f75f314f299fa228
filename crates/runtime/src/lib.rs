//! The runtime: a process in its job, whatever interfaces of the library it uses.
//!
//! An [`Instance`] joins the job through the launcher, opens the rails, exchanges addresses and localities with the
//! other processes, and runs the progress engines. MPI and the native interface share it.
#![forbid(unsafe_code)]

mod cards;
mod contact;
pub mod context;
mod encryption;
mod error;
mod instance;
mod life;
mod load;
mod log;
mod meeting;
mod modex;
mod names;
mod other_jobs;
mod peers;
mod port;
mod rails;
pub mod record;
mod report;
pub mod shared;
pub mod strategy;
mod traced;
mod vci;

pub use boot::{Job, NameAnswer, NameQuestion, PARENT_KEY, SpawnProgram, SpawnRequest};
pub use contact::Contact;
pub use error::{Error, Result};
pub use instance::{Instance, Needs};
pub use meeting::{MeetingChannel, MeetingError, beside};
pub use names::{NameError, PublishedNames};
pub use other_jobs::Surroundings;
pub use port::{Caller, Port, PortName};
pub use rails::wanted_rails;
pub use topo::sites::SiteMap;
pub use vci::{VCIS_MAX, Vci, VciSet};
