//! Facts about the process of `mpiexec`, for agents and ranks.

use crate::options::Options;

/// Facts about the process of `mpiexec`.
#[derive(Clone)]
pub(crate) struct LaunchContext {
    /// Path of the agent on this machine.
    pub agent: String,
    /// Name of this machine.
    pub host: String,
    pub directory: Option<String>,
    /// Environment variables for ranks.
    pub environment: Vec<(String, String)>,
    pub patience_s: u64,
}

impl LaunchContext {
    /// Collects the facts.
    ///
    /// # Errors
    /// Fails if the agent is missing, with one line.
    pub fn new(options: &Options, patience_s: u64) -> Result<Self, String> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let directory = std::env::current_dir().ok();
        Ok(Self {
            agent: agent_path()?,
            host: options.own_name.clone().unwrap_or_else(|| host.trim().to_owned()),
            directory: directory.map(|path| path.to_string_lossy().into_owned()),
            environment: shared_environment(),
            patience_s,
        })
    }
}

/// Returns the environment for all ranks: ours, without variables of this host, of this session or of another
/// launcher.
fn shared_environment() -> Vec<(String, String)> {
    let foreign = ["PMI_", "PMIX_", "HYDRA_", "HYDI_", "OMPI_", "PRTE_"];
    let own = ["HOSTNAME", "DISPLAY", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SHLVL", "_"];
    let ours = [
        settings::SITE.variable(),
        boot::RECORD_VARIABLE,
        recorder::VARIABLE,
        boot::SOCKET_VARIABLE,
    ];
    let own = |name: &str| own.contains(&name) || ours.contains(&name);
    let given = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let is_passed =
        |name: &str| !foreign.iter().any(|prefix| name.starts_with(prefix)) && !own(name);
    given.filter(|(name, _)| is_passed(name)).collect()
}

/// Returns the path of the agent, which is installed beside `mpiexec`.
fn agent_path() -> Result<String, String> {
    let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let beside = own.with_file_name("canele-agent");
    match beside.is_file() {
        true => Ok(beside.to_string_lossy().into_owned()),
        false => Err(format!("{} is missing: install Canele again", beside.display())),
    }
}

/// Returns 256 random bits.
pub(crate) fn random() -> Result<[u8; 32], String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("random numbers: {error}"))?;
    Ok(bytes)
}
