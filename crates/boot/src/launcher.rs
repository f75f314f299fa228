//! The launcher of a job, as its processes see it.

use zeroize::Zeroizing;

use crate::environment::NodePlace;
use crate::error::BootError;
use crate::names::{NameAnswer, NameQuestion};
use crate::spawn::SpawnRequest;

/// A connection to the launcher. A method fails if the launcher does.
pub trait Launcher: Send {
    /// Name of the job, the same in all its processes.
    fn job_name(&self) -> &str;

    /// Maximum length of a published value.
    fn value_max(&self) -> usize;

    /// Number of processes the system would start, if known.
    ///
    /// # Errors
    /// The launcher fails.
    fn universe_size(&mut self) -> Result<Option<u32>, BootError>;

    /// Number of the program that this process runs (`MPI_APPNUM`).
    ///
    /// # Errors
    /// The launcher fails.
    fn application_number(&mut self) -> Result<Option<u32>, BootError>;

    /// Place of this process among those of its node, if the launcher tells it.
    ///
    /// # Errors
    /// The launcher fails.
    fn place(&mut self) -> Result<Option<NodePlace>, BootError>;

    /// Tells the launcher the number of this process. Returns true if the launcher watches it and tells others of its
    /// end.
    ///
    /// # Errors
    /// The launcher fails.
    fn introduce(&mut self) -> Result<bool, BootError>;

    /// Publishes a value; visible to others after the barrier.
    ///
    /// # Errors
    /// The launcher fails.
    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError>;

    /// Returns a value that process `rank` has published, if there is one. It may be the job's secret.
    ///
    /// # Errors
    /// The launcher fails.
    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Zeroizing<String>>, BootError>;

    /// Returns a value of the launcher itself, if there is one. It may be the job's secret.
    ///
    /// # Errors
    /// The launcher fails.
    fn get_served(&mut self, key: &str) -> Result<Option<Zeroizing<String>>, BootError>;

    /// Starts programs, and waits until all their processes run.
    ///
    /// # Errors
    /// The launcher fails, or has not started them.
    fn spawn(&mut self, request: &SpawnRequest) -> Result<(), BootError>;

    /// Tells our launcher that this process, of job `own`, has communicators with another job, or none any more.
    ///
    /// # Errors
    /// The launcher fails.
    fn tell_connection(
        &mut self,
        own: u64,
        other: u64,
        is_connected: bool,
    ) -> Result<(), BootError>;

    /// Asks our launcher about the name of a service.
    ///
    /// # Errors
    /// The launcher fails.
    fn ask_name(&mut self, question: NameQuestion<'_>) -> Result<NameAnswer, BootError>;

    /// Waits for all processes of the job.
    ///
    /// # Errors
    /// The launcher fails.
    fn barrier(&mut self) -> Result<(), BootError>;

    /// Tells the launcher that this process ends as it should.
    ///
    /// # Errors
    /// The launcher fails.
    fn finalize(&mut self) -> Result<(), BootError>;

    /// Asks the launcher to end the job with `code`.
    ///
    /// # Errors
    /// The launcher fails.
    fn abort(&mut self, code: i32) -> Result<(), BootError>;
}

/// Command by which a process tells our `mpiexec` that it is connected with another job.
pub const CONNECTED: &str = "connected";
/// Command by which it tells that it is not any more.
pub const DISCONNECTED: &str = "disconnected";
