//! Launchers: what starts an agent on a host.

use std::path::Path;

use crate::usage::UsageError;

/// A launcher of agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// A child process on this machine, whatever the host's name.
    Fork,
    /// A command, followed by the host and the agent's command line.
    Command(Vec<String>),
}

impl Launcher {
    /// The default launcher for other hosts.
    pub(crate) fn ssh() -> Self {
        Self::by_command(SSH)
    }

    /// The launcher for hosts of a Slurm allocation.
    pub(crate) fn slurm() -> Self {
        Self::by_command(SRUN)
    }

    /// A launcher that is this command, with its arguments.
    pub(crate) fn by_command(text: &str) -> Self {
        Self::Command(text.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns the launcher with more arguments before the host.
    pub(crate) fn with(self, arguments: &[String]) -> Self {
        match self {
            Self::Fork => Self::Fork,
            Self::Command(words) => Self::Command([words, arguments.to_vec()].concat()),
        }
    }

    /// Parses a launcher's name or command.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "" => None,
            "fork" => Some(Self::Fork),
            "ssh" => Some(Self::ssh()),
            "slurm" => Some(Self::slurm()),
            command => Some(Self::by_command(command)),
        }
    }

    /// Returns the command that starts `agent` on `host`.
    pub(crate) fn command(&self, host: &str, agent: &str) -> Vec<String> {
        let words = match self {
            Self::Fork => return vec![agent.into()],
            Self::Command(words) => words,
        };
        let agent = if self.has_shell() { shell_quoted(agent) } else { agent.into() };
        let is_template = words.iter().any(|word| word.contains(HOST));
        let words = words.iter().map(|word| word.replace(HOST, host));
        let end = if is_template { vec![agent] } else { vec![host.into(), agent] };
        words.chain(end).collect()
    }

    /// Returns the launcher that runs a command on a host, which then gets the name of another host and its agent.
    pub(crate) fn through(&self, host: &str, then: &Self) -> Self {
        let Self::Command(then) = then else { return self.clone() };
        let Self::Command(words) = self else { return Self::Command(then.clone()) };
        let is_template = words.iter().any(|word| word.contains(HOST));
        let words = words.iter().map(|word| word.replace(HOST, host));
        let host = (!is_template).then(|| host.to_owned());
        Self::Command(words.chain(host).chain(then.iter().cloned()).collect())
    }

    /// True if a remote shell reads the command.
    pub(crate) fn has_shell(&self) -> bool {
        let Self::Command(words) = self else { return false };
        let program = words.first().and_then(|word| Path::new(word).file_name());
        program.is_some_and(|name| name == "ssh" || name == "rsh")
    }
}

/// Quotes a path for a remote shell if it has special characters. Other paths stay as they are, with `~` and
/// variables.
fn shell_quoted(path: &str) -> String {
    match path.contains(|letter: char| letter.is_whitespace() || SHELL_SPECIAL.contains(letter)) {
        true => format!("'{}'", path.replace('\'', "'\\''")),
        false => path.into(),
    }
}

/// Returns the launcher of this name.
pub(crate) fn named(name: &str) -> Result<Launcher, UsageError> {
    match name {
        "fork" => Ok(Launcher::Fork),
        "ssh" => Ok(Launcher::ssh()),
        "slurm" => Ok(Launcher::slurm()),
        "rsh" => Ok(Launcher::Command(vec!["rsh".into()])),
        _ => Err(UsageError(format!("-launcher {name}: not one of ssh, rsh, slurm, fork"))),
    }
}

const SSH: &str = "ssh -x -o BatchMode=yes -o ConnectTimeout=20";

/// Command that starts an agent on a host of a Slurm allocation. The agent shares the host with other steps, uses all
/// its cores, and writes without line buffering, since its messages have no line ends.
const SRUN: &str = "srun --quiet --nodes=1 --ntasks=1 --overlap --export=ALL --mpi=none --cpu-bind=none --unbuffered --nodelist={host}";

/// Placeholder for the host in a launcher's command.
const HOST: &str = "{host}";

/// Characters that are special to a shell.
const SHELL_SPECIAL: &str = "'\"\\`();&|<>*?[]#!";
