//! Reasons why a process could not join its job.

/// Reason why a process could not join its job. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// A launcher whose protocol this library does not support.
    #[error(
        "started by {launcher} ({name} is set), which this library does not speak to: {advice}"
    )]
    Stranger {
        /// The launcher.
        launcher: &'static str,
        /// Environment variable that identifies it.
        name: &'static str,
        /// Advice for the user.
        advice: &'static str,
    },
    /// A required variable is missing.
    #[error("{beside} is set but {name} is not: the launcher's environment is incomplete")]
    Missing {
        /// The missing variable.
        name: &'static str,
        /// The variable that is set and requires it.
        beside: &'static str,
    },
    /// A variable of the launcher has an invalid value.
    #[error("{name}={value} makes no sense: the launcher's environment is damaged")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The connection that the launcher has left open is closed.
    #[error(
        "the launcher's connection (PMI_FD={fd}) is closed: a program between the launcher and this one \
         must leave it open (in Python, subprocess with close_fds=False)"
    )]
    Closed {
        /// The descriptor.
        fd: i32,
    },
    /// The connection to the launcher failed.
    #[error("the launcher's PMI server does not answer: {0}")]
    Launcher(#[source] std::io::Error),
    /// An unexpected answer of the launcher.
    #[error("the launcher's PMI server answered `{line}` where `{expected}` was due")]
    Answer {
        /// Expected command.
        expected: &'static str,
        /// Received line.
        line: String,
    },
    /// The library of PMIx cannot be used.
    #[error(
        "the launcher speaks PMIx, whose library cannot be used: {0}; install it (Debian's libpmix2), name \
         its folder in LD_LIBRARY_PATH, or use `srun --mpi=pmi2` or `mpiexec`"
    )]
    PmixLibrary(String),
    /// The PMIx server does not serve this process.
    #[error(
        "the launcher's PMIx server does not serve this process: {function}: {status}; its step may have \
         ended, or its variables (PMIX_*) have changed"
    )]
    Pmix {
        /// Function that failed.
        function: &'static str,
        /// Reason given by the library.
        status: String,
    },
    /// A process that has left the job of a PMIx launcher.
    #[error("PMIx serves each process once; start the program with Canele's `mpiexec`")]
    Again,
    /// The launcher does not start further programs.
    #[error(
        "{launcher} starts no further processes: start this one with Canele's `mpiexec` inside the allocation"
    )]
    NoSpawn {
        /// The launcher.
        launcher: &'static str,
    },
    /// The launcher has not started the programs.
    #[error("the launcher could not start the programs; its own line says why")]
    Spawn,
    /// A text that the launcher's protocol cannot transmit.
    #[error(
        "`{value}` has a line end, which cannot be passed to a spawned program: pass it in a file"
    )]
    SpawnText {
        /// The text.
        value: String,
    },
    /// No `mpiexec` for the children of a process that was started without one.
    #[error(
        "a process started without mpiexec starts one to spawn, and none of Canele's is beside the library or in \
         PATH: add its folder to PATH, or start the program with `mpiexec -n 1`"
    )]
    NoMpiexec,
    /// An `mpiexec` that cannot be started.
    #[error("{program}, which is to start the programs: {error}")]
    Mpiexec {
        /// Its path.
        program: String,
        /// The reason.
        error: std::io::Error,
    },
    /// A process has not published a required key.
    #[error("process {rank} has published no `{key}`")]
    Unpublished {
        /// The process.
        rank: u32,
        /// The missing key.
        key: String,
    },
    /// No random numbers from the system.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}
