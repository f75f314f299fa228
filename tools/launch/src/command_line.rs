//! The options of `mpiexec`, in one table that both the parser and the help read.
//!
//! Options follow Hydra: a long name has one dash or two, `--name=value` and `-n2` are one word, and options end where the
//! program begins, or at `--`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::slice::Iter;

use crate::binding::Binding;
use crate::grid::Grid;
use crate::options::{
    Launcher, Options, Program, UsageError, hosts_in, hosts_of, launcher, number,
};

/// State of a command line that is being read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub options: Options,
    pub program: Program,
    /// File of `-place`.
    pub pattern: Option<PathBuf>,
    /// Text that is printed instead of a run.
    pub text: Option<Text>,
}

/// A text that the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Help,
    Version,
}

/// An option with its values, as given.
struct Given<'a> {
    name: &'a str,
    values: Vec<String>,
}

/// A row of the table.
struct Flag {
    /// Names in the help, without dashes.
    names: &'static [&'static str],
    /// Names of other launchers for the same.
    aliases: &'static [&'static str],
    /// Names of its values, one word each.
    values: &'static str,
    help: &'static str,
    take: fn(&mut Reading, &Given<'_>) -> Result<(), UsageError>,
}

struct Group {
    title: &'static str,
    flags: &'static [Flag],
}

impl Reading {
    /// Reads the option `word`, and its values from `rest`.
    pub(crate) fn take(
        &mut self,
        word: &OsString,
        rest: &mut Iter<'_, OsString>,
    ) -> Result<(), UsageError> {
        let option = word.to_string_lossy();
        let (name, joined) = split(option.trim_start_matches('-'));
        let flag = find(name).ok_or_else(|| unknown(&option, name))?;
        let wanted = flag.values.split_whitespace().count();
        if joined.is_some() && wanted == 0 {
            return Err(UsageError(format!("{option}: -{name} takes no value")));
        }
        let mut values: Vec<String> = joined.into_iter().map(str::to_owned).collect();
        while values.len() < wanted {
            // A variable is set by two words, or by one with an equals sign.
            if let [assignment] = &values[..]
                && let Some((name, value)) = assignment.split_once('=')
            {
                values = vec![name.to_owned(), value.to_owned()];
                break;
            }
            let missing = || UsageError(format!("option -{name} needs a value"));
            let value = rest.next().ok_or_else(missing)?;
            let strange = || UsageError(format!("-{name} {}: not in UTF-8", value.display()));
            values.push(value.to_str().ok_or_else(strange)?.to_owned());
        }
        (flag.take)(self, &Given { name, values })
    }
}

impl Given<'_> {
    /// The first value.
    fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    fn number(&self) -> Result<u32, UsageError> {
        number(self.name, self.value())
    }

    /// Two values: a variable's name and value.
    fn variable(&self) -> (String, String) {
        (self.value().to_owned(), self.values.get(1).cloned().unwrap_or_default())
    }
}

/// Text of `mpiexec -help`.
pub fn help() -> String {
    let mut text = String::from(USAGE);
    for Group { title, flags } in GROUPS {
        text += &format!("\n{title}:\n");
        for Flag { names, values, help, .. } in *flags {
            let names: Vec<String> = names.iter().map(|name| format!("-{name}")).collect();
            text += &format!("  {:<24}  {help}\n", format!("{} {values}", names.join(", ")).trim());
        }
    }
    text
}

/// Splits an option without its dashes from a value in the same word: `name=value`, or a number behind a known name.
fn split(option: &str) -> (&str, Option<&str>) {
    if let Some((name, value)) = option.split_once('=') {
        return (name, Some(value));
    }
    let name = option.trim_end_matches(|byte: char| byte.is_ascii_digit());
    let is_number = name.len() < option.len() && find(option).is_none();
    match find(name).filter(|flag| is_number && flag.values == "N") {
        Some(_) => (name, Some(&option[name.len()..])),
        None => (option, None),
    }
}

fn find(name: &str) -> Option<&'static Flag> {
    flags().find(|flag| names(flag).any(|known| known == name))
}

fn unknown(option: &str, name: &str) -> UsageError {
    let near = settings::nearest(name, flags().flat_map(names));
    let advice = near.map(|near| format!("; did you mean -{near}?")).unwrap_or_default();
    UsageError(format!("unknown option {option}{advice}"))
}

fn flags() -> impl Iterator<Item = &'static Flag> {
    GROUPS.iter().flat_map(|group| group.flags)
}

fn names(flag: &'static Flag) -> impl Iterator<Item = &'static str> {
    flag.names.iter().chain(flag.aliases).copied()
}

/// Sets a variable of the library for all ranks.
fn set(reading: &mut Reading, setting: &settings::Setting, value: &str) {
    reading.options.environment.push((setting.variable().to_owned(), value.to_owned()));
}

const USAGE: &str = "\
Usage: mpiexec [options] program [arguments] [: [options] program [arguments]]...
";

const GROUPS: &[Group] = &[
    Group { title: "Ranks and hosts", flags: RANKS },
    Group { title: "Placement", flags: PLACEMENT },
    Group { title: "Environment of ranks", flags: ENVIRONMENT },
    Group { title: "Launching", flags: LAUNCHING },
    Group { title: "Output and checks", flags: OUTPUT },
];

const RANKS: &[Flag] = &[
    Flag {
        names: &["n", "np"],
        aliases: &[],
        values: "N",
        help: "number of ranks (default: all slots of the hosts, or 1)",
        take: |reading, given| {
            reading.program.ranks = given.number()?;
            Ok(())
        },
    },
    Flag {
        names: &["hosts"],
        aliases: &["host"],
        values: "A:2,B:2",
        help: "hosts, and number of ranks on each",
        take: |reading, given| {
            reading.options.hosts.extend(hosts_of(given.value())?);
            Ok(())
        },
    },
    Flag {
        names: &["f", "hostfile"],
        aliases: &["machinefile"],
        values: "FILE",
        help: "read hosts from a file: host, host:2 or host slots=2 per line",
        take: |reading, given| {
            reading.options.hosts.extend(hosts_in(&PathBuf::from(given.value()))?);
            Ok(())
        },
    },
    Flag {
        names: &["grid"],
        aliases: &[],
        values: "FILE",
        help: "read sites and hosts from a grid file",
        take: |reading, given| {
            let grid = Grid::read(Path::new(given.value()));
            reading.options.take_grid(grid.map_err(|error| UsageError(error.to_string()))?);
            Ok(())
        },
    },
    Flag {
        names: &["ppn"],
        aliases: &[],
        values: "N",
        help: "ranks per host, for hosts without a number",
        take: |reading, given| {
            reading.options.per_host = Some(given.number()?);
            Ok(())
        },
    },
];

const PLACEMENT: &[Flag] = &[
    Flag {
        names: &["bind-to"],
        aliases: &[],
        values: "WHAT",
        help: "bind each rank: none, core, l3cache or numa",
        take: |reading, given| {
            let word = given.value();
            let wrong = |known| UsageError(format!("-bind-to {word}: not one of {known}"));
            reading.options.binding = Binding::parse(word).map_err(wrong)?;
            Ok(())
        },
    },
    Flag {
        names: &["record"],
        aliases: &[],
        values: "FILE",
        help: "record the bytes that ranks send each other",
        take: |reading, given| {
            reading.options.record = Some(given.value().into());
            Ok(())
        },
    },
    Flag {
        names: &["place"],
        aliases: &[],
        values: "FILE",
        help: "place ranks by a recorded file",
        take: |reading, given| {
            reading.pattern = Some(given.value().into());
            Ok(())
        },
    },
];

const ENVIRONMENT: &[Flag] = &[
    Flag {
        names: &["genv"],
        aliases: &[],
        values: "NAME VALUE",
        help: "set a variable for all programs; also NAME=VALUE",
        take: |reading, given| {
            reading.options.environment.push(given.variable());
            Ok(())
        },
    },
    Flag {
        names: &["env"],
        aliases: &[],
        values: "NAME VALUE",
        help: "set a variable for this program; also NAME=VALUE",
        take: |reading, given| {
            reading.program.environment.push(given.variable());
            Ok(())
        },
    },
    Flag {
        names: &["genvall"],
        aliases: &[],
        values: "",
        help: "pass the local environment (default)",
        take: |reading, _| {
            reading.options.no_environment = false;
            Ok(())
        },
    },
    Flag {
        names: &["genvnone"],
        aliases: &[],
        values: "",
        help: "do not pass the local environment",
        take: |reading, _| {
            reading.options.no_environment = true;
            Ok(())
        },
    },
    Flag {
        names: &["wdir"],
        aliases: &["wd"],
        values: "DIR",
        help: "working directory of the program",
        take: |reading, given| {
            reading.program.directory = Some(given.value().to_owned());
            Ok(())
        },
    },
];

const LAUNCHING: &[Flag] = &[
    Flag {
        names: &["launcher"],
        aliases: &["rmk", "bootstrap"],
        values: "NAME",
        help: "start agents by ssh, rsh, slurm or fork",
        take: |reading, given| {
            reading.options.launcher = Some(launcher(given.value())?);
            Ok(())
        },
    },
    Flag {
        names: &["launcher-exec"],
        aliases: &["bootstrap-exec"],
        values: "CMD",
        help: "start agents by the command CMD HOST AGENT",
        take: |reading, given| {
            let words = given.value().split_whitespace().map(str::to_owned).collect();
            reading.options.launcher = Some(Launcher::Command(words));
            Ok(())
        },
    },
    Flag {
        names: &["iface"],
        aliases: &[],
        values: "NAME",
        help: "network interface of TCP and QUIC",
        take: |reading, given| {
            set(reading, &settings::IFACE, given.value());
            Ok(())
        },
    },
    Flag {
        names: &["encrypt"],
        aliases: &[],
        values: "WHICH",
        help: "encrypt TCP between sites, all TCP, or none: sites, all, none",
        take: |reading, given| {
            let which = given.value();
            if !ENCRYPTED.contains(&which) {
                let known = ENCRYPTED.join(", ");
                return Err(UsageError(format!("-encrypt {which}: not one of {known}")));
            }
            set(reading, &settings::ENCRYPT, which);
            Ok(())
        },
    },
    Flag {
        names: &["disable-auto-cleanup"],
        aliases: &["enable-recovery"],
        values: "",
        help: "continue when a rank fails, for programs that handle errors",
        take: |reading, _| {
            reading.options.recovers = true;
            Ok(())
        },
    },
    Flag {
        names: &["timeout"],
        aliases: &[],
        values: "SECONDS",
        help: "end the job after this time (default: that of MPIEXEC_TIMEOUT)",
        take: |reading, given| {
            reading.options.timeout_s = Some(u64::from(given.number()?));
            Ok(())
        },
    },
];

const OUTPUT: &[Flag] = &[
    Flag {
        names: &["l", "prepend-rank"],
        aliases: &[],
        values: "",
        help: "label lines of output with their rank",
        take: |reading, _| {
            reading.options.label = true;
            Ok(())
        },
    },
    Flag {
        names: &["v"],
        aliases: &[],
        values: "",
        help: "print the effect of -place, and statistics of gateways",
        take: |reading, _| {
            reading.options.verbose = true;
            Ok(())
        },
    },
    Flag {
        names: &["trace"],
        aliases: &[],
        values: "FILE",
        help: "record MPI calls and frames of all ranks, for ui.perfetto.dev",
        take: |reading, given| {
            reading.options.trace = Some(given.value().into());
            Ok(())
        },
    },
    Flag {
        names: &["check"],
        aliases: &[],
        values: "",
        help: "compare the arguments of collectives among ranks",
        take: |reading, _| {
            set(reading, &settings::CHECK, "yes");
            Ok(())
        },
    },
    Flag {
        names: &["V", "version"],
        aliases: &[],
        values: "",
        help: "print the version",
        take: |reading, _| {
            reading.text = Some(Text::Version);
            Ok(())
        },
    },
    Flag {
        names: &["h", "help"],
        aliases: &[],
        values: "",
        help: "print this help",
        take: |reading, _| {
            reading.text = Some(Text::Help);
            Ok(())
        },
    },
];

/// Values of `-encrypt`.
const ENCRYPTED: [&str; 3] = ["sites", "all", "none"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lines_short() {
        let mut all: Vec<&str> = flags().flat_map(names).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(help().lines().all(|line| line.chars().count() <= 90), "{}", help());
    }

    #[test]
    fn an_unknown_option_is_named_with_the_nearest() {
        let told = |word: &str| unknown(word, word.trim_start_matches('-')).to_string();
        assert!(told("-hots").starts_with("unknown option -hots; did you mean -hosts?"));
        assert!(told("--bind-too").contains("did you mean -bind-to?"));
        assert!(told("-frobnicate").starts_with("unknown option -frobnicate (see"));
    }
}
