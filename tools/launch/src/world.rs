//! A world of a job: ranks that were started together.

use std::collections::BTreeSet;
use std::time::Instant;

use boot::Secret;

use crate::launch_context::random;
use crate::options::Options;
use crate::pmi::{Server, Values};
use crate::rank_map::mapping;
use crate::tree::Tree;

/// Ranks that were started together, with a PMI of their own: those of one `MPI_COMM_WORLD`.
pub(crate) struct World {
    /// Its first process.
    pub first: u32,
    /// Number of the job that it is for libraries; 0 while a process without `mpiexec` has not told it.
    pub job: u64,
    pub server: Server,
    /// Time of its start.
    pub since: Instant,
    /// Number of its ranks that have not ended.
    pub left: u32,
    pub birth: Birth,
    /// Processes that have still to meet those that have spawned them.
    pub unmet: BTreeSet<u32>,
    pub end: WorldEnd,
}

/// State of the end of a world.
#[derive(Clone, Copy, Default)]
pub(crate) struct WorldEnd {
    /// True if the failure was told, other than that ranks miss a peer.
    pub explained: bool,
    /// Time since which ranks miss a peer whose own end is not known yet.
    pub missing: Option<Instant>,
    /// Time since which it is being ended.
    pub ending: Option<Instant>,
    /// Time since which all its ranks should be dead.
    pub killed: Option<Instant>,
}

impl World {
    /// Returns a world that begins now, with its first process and size.
    pub fn new((first, left): (u32, u32), job: u64, server: Server, birth: Birth) -> Self {
        let (since, unmet, end) = (Instant::now(), BTreeSet::new(), WorldEnd::default());
        Self { first, job, server, since, left, birth, unmet, end }
    }

    /// True if it is being ended.
    pub fn is_ending(&self) -> bool {
        self.end.ending.is_some()
    }
}

/// State of the start of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Birth {
    /// Process `parent` waits until `missing` ranks were started.
    Awaited {
        parent: u32,
        missing: u32,
    },
    Done,
    /// It could not be started whole. What was started of it ends.
    Failed,
}

/// The secret of a world, and its name at PMI.
pub(crate) struct WorldName {
    pub secret: Secret,
    pub name: String,
}

impl WorldName {
    pub fn draw() -> Result<Self, String> {
        let secret = Secret::random().map_err(|error| format!("random numbers: {error}"))?;
        Ok(Self { secret, name: format!("canele_{}", &hex::encode(random()?)[..16]) })
    }

    /// Number of the job that it is for libraries and gateways.
    pub fn job(&self) -> u64 {
        boot::job_number(&self.secret, &self.name)
    }
}

/// Returns the PMI server of a world that a tree starts.
pub(crate) fn server(
    name: &WorldName,
    options: &Options,
    tree: &Tree,
    mut values: Values,
    universe_size: Option<u32>,
) -> Server {
    values.insert("PMI_process_mapping".to_owned(), mapping(&tree.nodes));
    let programs = (0u32..).zip(&options.programs);
    let programs = programs.flat_map(|(number, one)| vec![number; one.ranks as usize]).collect();
    Server::new(name.name.clone(), programs, universe_size, values)
}
