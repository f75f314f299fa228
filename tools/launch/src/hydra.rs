//! Variables of Hydra and of Intel MPI for what a command line leaves open.

use std::path::Path;

use crate::host_list::{self, HostList};
use crate::launcher::{self, Launcher};
use crate::usage::UsageError;

/// Returns the hosts of a hosts file that a variable names; none otherwise.
///
/// # Errors
/// Fails if the file cannot be read, with one line that names the variable.
pub(crate) fn hosts(variable: Variables<'_>) -> Result<HostList, UsageError> {
    let Some((name, path)) = first(variable, &HOST_FILES) else { return Ok(HostList::new()) };
    host_list::in_file(Path::new(&path)).map_err(|mistake| of_variable(name, &mistake))
}

/// Returns the launcher that variables name.
///
/// # Errors
/// Fails if it is unknown, with one line that names the variable.
pub(crate) fn launcher(variable: Variables<'_>) -> Result<Option<Launcher>, UsageError> {
    let named = first(variable, &LAUNCHERS).map(|(name, word)| {
        launcher::named(word.trim()).map_err(|mistake| of_variable(name, &mistake))
    });
    let named = named.transpose()?;
    let command = first(variable, &COMMANDS).map(|(_, command)| Launcher::by_command(&command));
    Ok(command.filter(|_| named != Some(Launcher::Fork)).or(named))
}

/// Returns arguments for the launcher.
pub(crate) fn arguments(variable: Variables<'_>) -> Vec<String> {
    let words = first(variable, &ARGUMENTS).map(|(_, words)| words).unwrap_or_default();
    words.split_whitespace().map(str::to_owned).collect()
}

/// Returns the network interface.
pub(crate) fn interface(variable: Variables<'_>) -> Option<String> {
    first(variable, &INTERFACES).map(|(_, name)| name)
}

/// Lookup of a variable.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the first of these variables that is set, with its value.
fn first(variable: Variables<'_>, names: &[&'static str]) -> Option<(&'static str, String)> {
    let found = |name: &&'static str| Some((*name, variable(name)?));
    names.iter().filter_map(found).find(|(_, text)| !text.trim().is_empty())
}

fn of_variable(name: &str, UsageError(text): &UsageError) -> UsageError {
    UsageError(format!("{name}: {text}"))
}

const HOST_FILES: [&str; 2] = ["HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"];
const LAUNCHERS: [&str; 3] = ["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP"];
const COMMANDS: [&str; 3] =
    ["HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC"];
const ARGUMENTS: [&str; 3] = [
    "HYDRA_LAUNCH_EXTRA_ARGS",
    "HYDRA_LAUNCHER_EXTRA_ARGS",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
];
const INTERFACES: [&str; 2] = ["HYDRA_IFACE", "I_MPI_HYDRA_IFACE"];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<(String, String)> = variables.iter().map(owned).collect();
        move |name| variables.iter().find(|one| one.0 == name).map(|one| one.1.clone())
    }

    #[test]
    fn hosts_and_launchers_come_from_variables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        std::fs::write(&path, "a:2\nb\n").unwrap();
        for name in HOST_FILES {
            let hosts = hosts(&of(&[(name, path.to_str().unwrap())])).unwrap();
            assert_eq!(hosts, [("a".into(), Some(2)), ("b".into(), None)]);
        }
        for name in ARGUMENTS {
            assert_eq!(arguments(&of(&[(name, "-o A=1")])), ["-o", "A=1"]);
        }
        let command = |text| Some(Launcher::by_command(text));
        for (variables, expected) in [
            (&[][..], None),
            (&[("HYDRA_LAUNCHER", "fork")], Some(Launcher::Fork)),
            (&[("HYDRA_LAUNCHER_EXEC", "/k e")], command("/k e")),
            (&[("HYDRA_LAUNCHER", "ssh"), ("HYDRA_LAUNCHER_EXEC", "/k")], command("/k")),
            (&[("HYDRA_LAUNCHER", "fork"), ("HYDRA_LAUNCHER_EXEC", "/k")], Some(Launcher::Fork)),
        ] {
            assert_eq!(launcher(&of(variables)), Ok(expected), "{variables:?}");
        }
        assert_eq!(interface(&of(&[("HYDRA_IFACE", "eth0")])).as_deref(), Some("eth0"));
    }

    #[test]
    fn mistakes_name_the_variable() {
        let unread = hosts(&of(&[("HYDRA_HOST_FILE", "/nowhere")])).unwrap_err().to_string();
        assert!(unread.starts_with("HYDRA_HOST_FILE: "), "{unread}");
        let unknown = launcher(&of(&[("HYDRA_LAUNCHER", "pony")])).unwrap_err().to_string();
        assert!(unknown.starts_with("HYDRA_LAUNCHER: "), "{unknown}");
    }
}
