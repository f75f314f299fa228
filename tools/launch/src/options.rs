//! The command line of `mpiexec`: the conventions of Hydra.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::allocation;
use crate::binding::Binding;
use crate::command_line::{Reading, Text};
use crate::grid::Grid;
use crate::host::{self, RANKS_MAX};
use crate::placing::Placing;

/// The options of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Programs, in the order of ranks.
    pub programs: Vec<Program>,
    /// Hosts with their numbers of ranks; empty: this machine.
    pub hosts: Vec<(String, Option<u32>)>,
    /// Hosts of the surrounding allocation.
    pub(crate) allocated: Vec<String>,
    /// Grid of the hosts.
    pub grid: Option<Grid>,
    /// Ranks per host, for hosts without a number.
    pub per_host: Option<u32>,
    /// Launcher of agents.
    pub launcher: Option<Launcher>,
    /// Binding of each rank on its host.
    pub binding: Option<Binding>,
    /// True if lines of output are labelled with their rank.
    pub label: bool,
    /// Variables for all programs.
    pub environment: Vec<(String, String)>,
    /// True if the local environment is not passed to the ranks.
    pub no_environment: bool,
    /// Time limit of the job.
    pub timeout_s: Option<u64>,
    /// True if the job continues when a rank fails.
    pub recovers: bool,
    /// File for the recorded pattern.
    pub record: Option<PathBuf>,
    /// File for the trace.
    pub trace: Option<PathBuf>,
    /// Placement by a recorded pattern.
    pub(crate) placing: Option<Placing>,
    /// True if decisions are printed.
    pub verbose: bool,
}

/// Hydra's variable for the time limit of a job, in seconds.
pub(crate) const TIMEOUT: &str = "MPIEXEC_TIMEOUT";

/// One program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Number of its ranks.
    pub ranks: u32,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables for this program only.
    pub environment: Vec<(String, String)>,
    /// Working directory.
    pub directory: Option<String>,
}

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
        Self::Command(SSH.split_whitespace().map(str::to_owned).collect())
    }

    /// The launcher for hosts of a Slurm allocation.
    pub(crate) fn slurm() -> Self {
        Self::Command(SRUN.split_whitespace().map(str::to_owned).collect())
    }

    /// True if a remote shell reads the command.
    pub(crate) fn has_shell(&self) -> bool {
        let Self::Command(words) = self else { return false };
        let program = words.first().and_then(|word| Path::new(word).file_name());
        program.is_some_and(|name| name == "ssh" || name == "rsh")
    }
}

/// A mistake in a command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0} (see mpiexec --help)")]
pub struct UsageError(pub(crate) String);

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A run.
    Run(Box<Options>),
    /// The help.
    Help,
    /// The version.
    Version,
}

impl Options {
    /// Reads a command line, without the program's own name.
    ///
    /// # Errors
    /// For an unknown option, a missing or malformed value, a hosts file that cannot be read, or no
    /// program.
    pub fn parse(arguments: &[OsString]) -> Result<Parsed, UsageError> {
        Self::parse_within(arguments, &|name| std::env::var(name).ok())
    }

    /// Reads a command line, where `variable` looks up what an allocation has left in the environment.
    pub(crate) fn parse_within(
        arguments: &[OsString],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Parsed, UsageError> {
        let mut reading = Reading::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Reading { options, program, .. } = &mut reading;
            if argument == ":" {
                options.end_program(program)?;
                continue;
            }
            let has_options = program.command.is_empty();
            if has_options && argument == "--" {
                // The program's name may begin with a dash.
                program.command.extend(rest.next().cloned());
                continue;
            }
            let is_option = has_options && argument.as_encoded_bytes().starts_with(b"-");
            if !is_option {
                program.command.push(argument.clone());
                continue;
            }
            reading.take(argument, &mut rest)?;
            match reading.text {
                Some(Text::Help) => return Ok(Parsed::Help),
                Some(Text::Version) => return Ok(Parsed::Version),
                None => {}
            }
        }
        let Reading { mut options, mut program, pattern, .. } = reading;
        options.end_program(&mut program)?;
        let of_grid = options.grid.iter().flat_map(|grid| &grid.sites).map(|site| site.hosts.len());
        if options.grid.is_some() && options.hosts.len() != of_grid.sum::<usize>() {
            return Err(UsageError("-grid names the hosts: leave -hosts and -hostfile out".into()));
        }
        options.take_allocation(variable)?;
        options.take_timeout(variable)?;
        options.count_ranks()?;
        if let Some(path) = pattern {
            options.placing = Some(Placing::by_file(&path, &options).map_err(UsageError)?);
        }
        Ok(Parsed::Run(Box::new(options)))
    }

    /// Names of the variables that the command line and the grid set for ranks.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        let of_programs = self.programs.iter().flat_map(|program| &program.environment);
        let own = self.environment.iter().chain(of_programs).map(|(name, _)| name);
        let sites = self.grid.iter().flat_map(|grid| &grid.sites);
        own.chain(sites.flat_map(|site| site.environment.keys())).map(String::as_str)
    }

    /// Total number of ranks.
    pub fn size(&self) -> u32 {
        self.programs.iter().map(|program| program.ranks).sum()
    }

    /// The host of every rank, as an index into the hosts. Uses the recorded pattern, or fills hosts one after the
    /// other, again from the first when ranks are left.
    pub fn placement(&self) -> Vec<usize> {
        if let Some(placing) = &self.placing {
            return placing.homes.clone();
        }
        let size = self.size() as usize;
        let hosts = 0..self.host_names().count();
        let one_round = hosts.flat_map(|index| vec![index; self.slots(index) as usize]);
        one_round.collect::<Vec<_>>().into_iter().cycle().take(size).collect()
    }

    /// Names of the hosts.
    pub(crate) fn host_names(&self) -> impl Iterator<Item = &str> {
        let here = self.hosts.is_empty().then_some("localhost");
        self.hosts.iter().map(|(name, _)| name.as_str()).chain(here)
    }

    /// Number of ranks that a host takes before the next one is filled.
    pub(crate) fn slots(&self, host: usize) -> u32 {
        let own = self.hosts.get(host).and_then(|(_, count)| *count);
        own.unwrap_or_else(|| self.per_host.unwrap_or(1).max(1))
    }

    /// Takes the hosts of a grid.
    pub(crate) fn take_grid(&mut self, grid: Grid) {
        let hosts = grid.sites.iter().flat_map(|site| &site.hosts);
        self.hosts.extend(hosts.map(|host| (host.name.clone(), host.slots)));
        self.grid = Some(grid);
    }

    /// Takes the time limit of Hydra's variable, unless the command line has one. -1 means none.
    fn take_timeout(
        &mut self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), UsageError> {
        let Some(text) = variable(TIMEOUT).filter(|text| self.timeout_s.is_none() && text != "-1")
        else {
            return Ok(());
        };
        let refused = |_| UsageError(format!("{TIMEOUT}={text}: a number of seconds is needed"));
        self.timeout_s = Some(text.trim().parse::<u32>().map_err(refused)?.into());
        Ok(())
    }

    /// Takes the hosts of the allocation around us where none are named.
    fn take_allocation(
        &mut self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), UsageError> {
        let hosts = allocation::hosts(variable).map_err(UsageError)?;
        self.allocated = hosts.iter().map(|(name, _)| name.clone()).collect();
        if self.hosts.is_empty() && self.launcher != Some(Launcher::Fork) {
            self.hosts = match self.per_host {
                Some(_) => hosts.into_iter().map(|(name, _)| (name, None)).collect(),
                None => hosts,
            };
        }
        Ok(())
    }

    /// A program alone takes all that its hosts do where the command line does not say how many ranks it has;
    /// one beside others has one.
    fn count_ranks(&mut self) -> Result<(), UsageError> {
        let all: u64 = (0..self.hosts.len()).map(|host| u64::from(self.slots(host))).sum();
        let all = u32::try_from(all).ok().filter(|all| *all <= RANKS_MAX);
        let all =
            all.ok_or_else(|| UsageError(format!("hosts for more than {RANKS_MAX} ranks")))?;
        let is_alone = self.programs.len() == 1;
        for program in self.programs.iter_mut().filter(|program| program.ranks == UNCOUNTED) {
            program.ranks = if is_alone { all.max(1) } else { 1 };
        }
        Ok(())
    }

    fn end_program(&mut self, program: &mut Program) -> Result<(), UsageError> {
        if program.command.is_empty() {
            return Err(UsageError("no program to run is given".into()));
        }
        self.programs.push(std::mem::take(program));
        Ok(())
    }
}

pub(crate) fn number(name: &str, value: &str) -> Result<u32, UsageError> {
    match value.parse() {
        Ok(0) | Err(_) => Err(UsageError(format!("-{name} {value}: not a positive number"))),
        Ok(number) if number > RANKS_MAX => {
            Err(UsageError(format!("-{name} {value}: more than {RANKS_MAX}")))
        }
        Ok(number) => Ok(number),
    }
}

pub(crate) fn launcher(name: &str) -> Result<Launcher, UsageError> {
    match name {
        "fork" => Ok(Launcher::Fork),
        "ssh" => Ok(Launcher::ssh()),
        "slurm" => Ok(Launcher::slurm()),
        "rsh" => Ok(Launcher::Command(vec!["rsh".into()])),
        _ => Err(UsageError(format!("-launcher {name}: not one of ssh, rsh, slurm, fork"))),
    }
}

pub(crate) fn hosts_of(list: &str) -> Result<Vec<(String, Option<u32>)>, UsageError> {
    let hosts: Vec<&str> = list.split(',').filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        return Err(UsageError(format!("-hosts: `{list}` names no host")));
    }
    hosts.into_iter().map(|host| host_of(host, "-hosts")).collect()
}

/// Reads a host that takes ranks.
fn host_of(text: &str, place: &str) -> Result<(String, Option<u32>), UsageError> {
    match host::parse(text) {
        Ok((_, Some(0))) => {
            Err(UsageError(format!("{place}: `{text}` takes no ranks: leave it out")))
        }
        Ok(host) => Ok(host),
        Err(mistake) => Err(UsageError(format!("{place}: `{text}` {mistake}"))),
    }
}

pub(crate) fn hosts_in(path: &PathBuf) -> Result<Vec<(String, Option<u32>)>, UsageError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| UsageError(format!("hosts file {}: {error}", path.display())))?;
    hosts_from(&text, &path.display().to_string())
}

fn hosts_from(text: &str, name: &str) -> Result<Vec<(String, Option<u32>)>, UsageError> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{name}:{number}");
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(first) = words.next() else { continue };
        let mut host = host_of(first, &place)?;
        for word in words {
            match word.split_once('=') {
                Some(("slots", count)) => {
                    let wrong =
                        |_| UsageError(format!("{place}: `{word}`: the count is no number"));
                    host.1 = Some(self::number("slots", count).map_err(wrong)?);
                }
                _ => return Err(UsageError(format!("{place}: `{word}` is not understood"))),
            }
        }
        hosts.push(host);
    }
    if hosts.is_empty() {
        return Err(UsageError(format!("hosts file {name} names no host")));
    }
    Ok(hosts)
}

const SSH: &str = "ssh -x -o BatchMode=yes -o ConnectTimeout=20";

/// Command that starts an agent on a host of a Slurm allocation. The agent shares the host with other steps, uses all
/// its cores, and writes without line buffering, since its messages have no line ends.
const SRUN: &str = "srun --quiet --nodes=1 --ntasks=1 --overlap --export=ALL --mpi=none --cpu-bind=none --unbuffered --nodelist={host}";

/// Number of ranks of a program before one is given.
const UNCOUNTED: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Parsed, UsageError> {
        within(line, &[])
    }

    fn within(line: &str, variables: &[(&str, &str)]) -> Result<Parsed, UsageError> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Options::parse_within(&words, &|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn a_program_alone_takes_all_that_its_hosts_do() {
        let size = |line: &str| run(line).size();
        assert_eq!(
            (size("./a"), size("-hosts a:2,b ./a"), size("-ppn 3 -hosts a,b ./a")),
            (1, 3, 6)
        );
        assert_eq!((size("-n 2 -hosts a:2,b ./a"), size("-hosts a:2 ./a : ./b")), (2, 2));
        assert!(parse("-hosts a:1000000,b:1000000 ./a").is_err());
    }

    #[test]
    fn an_allocation_gives_hosts_where_none_are_named() {
        let slurm = [("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_TASKS_PER_NODE", "2,1")];
        let run = |line: &str| match within(line, &slurm).unwrap() {
            Parsed::Run(options) => *options,
            other => panic!("{other:?}"),
        };
        assert_eq!(run("./a").placement(), [0, 0, 1]);
        assert_eq!(run("-ppn 1 ./a").placement(), [0, 1]);
        assert_eq!(run("-n 2 ./a").hosts[1].0, "n2");
        assert_eq!(run("-hosts n2 ./a").hosts, [("n2".to_owned(), None)]);
        assert!(run("-launcher fork ./a").hosts.is_empty());
        let wrong = within("./a", &[("SLURM_JOB_NODELIST", "n[")]).unwrap_err().to_string();
        assert!(wrong.contains("SLURM_JOB_NODELIST=n["), "{wrong}");
    }

    fn run(line: &str) -> Options {
        match parse(line).unwrap() {
            Parsed::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let options = run("-n 2 -l -genv A b ./a -n 3 : -np 1 -env C d ./b");
        assert_eq!(options.size(), 3);
        assert_eq!(options.programs[0].command, ["./a", "-n", "3"]);
        assert_eq!(options.programs[1].environment, [("C".into(), "d".into())]);
        assert!(options.label);
    }

    #[test]
    fn a_value_may_stand_in_the_word_of_its_option() {
        for line in ["--encrypt=all -n 2 ./a --b=c", "-encrypt all --n=2 ./a --b=c"] {
            let options = run(line);
            let variable = settings::ENCRYPT.variable().to_owned();
            assert_eq!(options.environment, [(variable, "all".to_owned())]);
            assert_eq!((options.size(), options.programs[0].command.len()), (2, 2));
        }
    }

    #[test]
    fn values_may_be_joined_as_other_launchers_permit() {
        for line in ["-n2 ./a", "-n=2 ./a", "--np=2 ./a", "-np2 ./a", "-n 2 -- ./a"] {
            let options = run(line);
            assert_eq!(
                (options.size(), &options.programs[0].command[..]),
                (2, &["./a".into()][..])
            );
        }
        let options = run("-genv A=b -env C=d=e -genv F g ./a");
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(options.environment, [variable("A", "b"), variable("F", "g")]);
        assert_eq!(options.programs[0].environment, [variable("C", "d=e")]);
        assert_eq!(run("-- -x -n 3").programs[0].command, ["-x", "-n", "3"]);
        for (line, word) in [("-l2 ./a", "-l2"), ("-n2x ./a", "-n2x"), ("-n 2 --", "no program")] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn arguments_of_programs_are_bytes_and_options_text() {
        use std::os::unix::ffi::OsStringExt;
        let bytes = || OsString::from_vec(vec![b'-', 0xff, 0xfe]);
        let words = [OsString::from("./a"), bytes()];
        let Ok(Parsed::Run(options)) = Options::parse(&words) else { panic!("no run") };
        assert_eq!(options.programs[0].command, words);
        for words in [vec![bytes()], vec!["-wdir".into(), bytes(), "./a".into()]] {
            assert!(Options::parse(&words).is_err());
        }
    }

    #[test]
    fn ranks_are_bound_if_that_is_asked_for() {
        assert_eq!(run("-n 2 x").binding, None);
        assert_eq!(run("-bind-to core -n 2 x").binding, Some(Binding::Core));
        assert_eq!(run("--bind-to=l3cache -n 2 x").binding, Some(Binding::LastCache));
        assert_eq!(run("-bind-to numa -bind-to none -n 2 x").binding, None);
        assert!(parse("-bind-to socket x").unwrap_err().to_string().contains("numa"));
    }

    #[test]
    fn ranks_fill_hosts_in_turn() {
        assert_eq!(run("-n 5 -hosts a:2,b:1 x").placement(), [0, 0, 1, 0, 0]);
        assert_eq!(run("-n 4 -ppn 2 -hosts a,b x").placement(), [0, 0, 1, 1]);
        assert_eq!(run("-n 2 x").placement(), [0, 0]);
    }

    #[test]
    fn hosts_files_have_comments_and_slots() {
        let hosts = hosts_from("# all\na\nb:2 # two\n\nc slots=3\n", "f").unwrap();
        assert_eq!(hosts, [("a".into(), None), ("b".into(), Some(2)), ("c".into(), Some(3))]);
        let error = |text: &str| hosts_from(text, "f").unwrap_err().to_string();
        assert!(error("a\nb weight=2\n").starts_with("f:2: `weight=2` is not"));
        assert!(error("a\n[::1\n").starts_with("f:2: `[::1` has colons"));
        assert!(error("a:0\n").starts_with("f:1: `a:0` takes no ranks"));
        let hosts = hosts_from("::1\n[::2]:3\nfe80::1%eth0 slots=4", "f").unwrap();
        assert_eq!(
            hosts,
            [("::1".into(), None), ("::2".into(), Some(3)), ("fe80::1%eth0".into(), Some(4))]
        );
        assert_eq!(run("-n 3 -hosts ::1,[::2]:2 x").placement(), [0, 1, 1]);
    }

    #[test]
    fn no_hosts_are_not_this_machine() {
        let words = ["-hosts", "", "./a"].map(OsString::from);
        let error = Options::parse(&words).unwrap_err().to_string();
        assert!(error.contains("-hosts: `` names no host"), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("-n x ./a", "-n x"),
            ("-n 0 ./a", "-n 0"),
            ("-frobnicate ./a", "-frobnicate"),
            ("-hotfile h ./a", "unknown option -hotfile; did you mean -hostfile?"),
            ("-n 2", "no program"),
            ("-n", "-n needs"),
            ("-launcher pony ./a", "pony"),
            ("-encrypt some ./a", "-encrypt some: not one of sites, all, none"),
            ("--encrypt ./a", "-encrypt ./a"),
            ("--l=yes ./a", "-l takes no value"),
            ("-grid /nowhere ./a", "/nowhere: cannot be read"),
            ("-place /nowhere ./a", "-place /nowhere: cannot be read"),
            ("-place Cargo.toml ./a", "-place Cargo.toml: is no recorded pattern"),
            ("-record", "-record needs"),
            ("-trace", "-trace needs"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert_eq!(parse("--help"), Ok(Parsed::Help));
    }
}
