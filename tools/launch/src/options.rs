//! The command line of `mpiexec`: the conventions of Hydra.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::binding::Binding;
use crate::grid::Grid;
use crate::host::RANKS_MAX;
use crate::host_list::HostList;
use crate::input::InputRanks;
use crate::label::Label;
use crate::launcher::Launcher;
use crate::mapping::Mapping;
use crate::output_files::FilePatterns;
use crate::placing::Placing;
use crate::soft::Soft;
use crate::universe::Universe;
use crate::usage::UsageError;
use crate::{allocation, hydra};

/// The options of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Programs, in the order of ranks.
    pub programs: Vec<Program>,
    /// Hosts with their numbers of ranks; empty: this machine.
    pub hosts: HostList,
    /// Hosts of the surrounding allocation.
    pub(crate) allocated: Vec<String>,
    /// Grid of the hosts.
    pub grid: Option<Grid>,
    /// Ranks per host, whatever numbers the hosts have.
    pub per_host: Option<u32>,
    /// Order of ranks among hosts.
    pub mapping: Mapping,
    /// Value of `MPI_UNIVERSE_SIZE`.
    pub universe: Universe,
    /// Launcher of agents.
    pub launcher: Option<Launcher>,
    /// Arguments for the launcher, before the host.
    pub launcher_arguments: Vec<String>,
    /// Folder where Canele is installed on other hosts, if not as here.
    pub prefix: Option<String>,
    /// Name of this machine among the hosts, if it is not that of the system.
    pub own_name: Option<String>,
    /// Binding of each rank on its host.
    pub binding: Option<Binding>,
    /// True if the processors of ranks are printed.
    pub reports_bindings: bool,
    /// True if the ranks of each host are printed.
    pub prints_map: bool,
    /// True if the exit codes of all ranks are printed.
    pub prints_codes: bool,
    /// Ranks that get standard input.
    pub input: InputRanks,
    /// Label of lines of output.
    pub label: Option<Label>,
    /// Files for output.
    pub files: FilePatterns,
    /// Variables for all programs.
    pub environment: Vec<(String, String)>,
    /// Part of the local environment that is passed to the ranks.
    pub inherited: Inherited,
    /// Time limit of the job.
    pub timeout_s: Option<u64>,
    /// True if the job continues when a rank fails.
    pub recovers: bool,
    /// File for the recorded pattern.
    pub record: Option<PathBuf>,
    /// File for the trace.
    pub trace: Option<PathBuf>,
    /// File for the profile.
    pub profile: Option<PathBuf>,
    /// Placement by a recorded pattern.
    pub(crate) placing: Option<Placing>,
    /// File of `-place`.
    pub(crate) pattern: Option<PathBuf>,
    /// Longest time in which hosts of Slurm are waited for.
    pub wait_s: Option<u64>,
    /// True if decisions are printed.
    pub verbose: bool,
    /// Lines about options without an effect.
    pub(crate) notes: Vec<String>,
}

/// The variables that ranks get of the local environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inherited {
    /// All but those of this host, this session and other launchers.
    #[default]
    All,
    /// Only these, and none that the remote host has.
    Only(Vec<String>),
    /// All but these.
    Except(Vec<String>),
}

/// Hydra's variable for the time limit of a job, in seconds.
pub(crate) const TIMEOUT: &str = "MPIEXEC_TIMEOUT";

/// One program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Number of its ranks.
    pub ranks: u32,
    /// Numbers of ranks that will do.
    pub soft: Option<Soft>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables for this program only.
    pub environment: Vec<(String, String)>,
    /// Part of the local environment, if not that of all programs.
    pub inherited: Option<Inherited>,
    /// Working directory.
    pub directory: Option<String>,
    /// Directories where the program is looked for first.
    pub path: Vec<String>,
    /// Binding, if not that of all programs.
    pub binding: Option<Binding>,
}

impl Options {
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
        let hosts = 0..self.host_names().count();
        let slots: Vec<u32> = hosts.map(|host| self.slots(host)).collect();
        self.mapping.hosts(self.size() as usize, &slots)
    }

    /// Value of `MPI_UNIVERSE_SIZE`. None without a limit.
    pub(crate) fn universe_size(&self) -> Option<u32> {
        match self.universe {
            Universe::Ranks => Some(self.size().max(self.all_slots())),
            Universe::Slots => Some(self.all_slots()),
            Universe::Infinite => None,
            Universe::Given(size) => Some(size),
        }
    }

    /// Number of ranks that all hosts take.
    fn all_slots(&self) -> u32 {
        let slots = (0..self.host_names().count()).map(|host| self.slots(host));
        slots.fold(0, u32::saturating_add)
    }

    /// Programs with their arguments, for people.
    pub(crate) fn command(&self) -> String {
        let words = |program: &Program| -> String {
            let words = program.command.iter().map(|word| word.to_string_lossy());
            words.collect::<Vec<_>>().join(" ")
        };
        self.programs.iter().map(words).collect::<Vec<_>>().join(" : ")
    }

    /// Adds a line to tell once.
    pub(crate) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Names of the hosts.
    pub(crate) fn host_names(&self) -> impl Iterator<Item = &str> {
        let here = self.hosts.is_empty().then_some("localhost");
        self.hosts.iter().map(|(name, _)| name.as_str()).chain(here)
    }

    /// Number of ranks that a host takes before the next one is filled.
    pub(crate) fn slots(&self, host: usize) -> u32 {
        let own = self.hosts.get(host).and_then(|(_, count)| *count);
        match (own, self.per_host()) {
            // A host of a grid for its gateway only.
            (Some(0), _) => 0,
            (_, Some(count)) | (Some(count), None) => count,
            (None, None) => 1,
        }
    }

    /// Passes variables of the local environment on, also those that are not passed otherwise.
    pub(crate) fn export(&mut self, names: Vec<String>, variable: &dyn Fn(&str) -> Option<String>) {
        // All that a pattern such as `NCCL_*` names is passed anyway.
        for name in names.into_iter().filter(|name| !name.ends_with('*')) {
            match variable(&name) {
                Some(value) => self.environment.push((name, value)),
                None => self.note(format!("-x {name}: no such variable is set here")),
            }
        }
    }

    /// Takes the hosts of a grid.
    pub(crate) fn take_grid(&mut self, grid: Grid) {
        let hosts = grid.sites.iter().flat_map(|site| &site.hosts);
        self.hosts.extend(hosts.map(|host| (host.name.clone(), host.slots)));
        self.grid = Some(grid);
    }

    /// Takes what Hydra's variables say where the command line does not.
    pub(crate) fn take_hydra(
        &mut self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), UsageError> {
        if self.hosts.is_empty() && self.grid.is_none() {
            self.hosts = hydra::hosts(variable)?;
        }
        if self.launcher.is_none() {
            self.launcher = hydra::launcher(variable)?;
        }
        self.launcher_arguments = hydra::arguments(variable);
        let iface = settings::IFACE.variable();
        let is_given = self.variables().any(|name| name == iface) || variable(iface).is_some();
        if let Some(name) = hydra::interface(variable).filter(|_| !is_given) {
            self.environment.push((iface.to_owned(), name));
        }
        Ok(())
    }

    /// Ranks per host, whatever numbers the hosts have.
    fn per_host(&self) -> Option<u32> {
        self.per_host.or(self.mapping.per_host)
    }

    /// Binding of each rank on its host.
    pub(crate) fn binding(&self) -> Option<Binding> {
        self.binding.clone().or(self.mapping.binding.clone())
    }

    /// Takes the time limit of Hydra's variable, unless the command line has one. -1 means none.
    pub(crate) fn take_timeout(
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
    pub(crate) fn take_allocation(
        &mut self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), UsageError> {
        let hosts = allocation::hosts(variable).map_err(UsageError)?;
        self.allocated = hosts.iter().map(|(name, _)| name.clone()).collect();
        let has_hosts = !self.hosts.is_empty() || self.grid.is_some();
        if !has_hosts && self.launcher != Some(Launcher::Fork) {
            self.hosts = match self.per_host() {
                Some(_) => hosts.into_iter().map(|(name, _)| (name, None)).collect(),
                None => hosts,
            };
        }
        Ok(())
    }

    /// Completes the options once all hosts are known: numbers of ranks, and their placement.
    ///
    /// # Errors
    /// Fails if hosts, ranks and files do not fit together, with one line.
    pub(crate) fn complete(&mut self) -> Result<(), UsageError> {
        self.count_ranks()?;
        self.check_input()?;
        if let Some(path) = self.pattern.take() {
            self.placing = Some(Placing::by_file(&path, self).map_err(UsageError)?);
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
        for program in &mut self.programs {
            let is_counted = program.ranks != UNCOUNTED;
            if let Some(soft) = &program.soft {
                let most = if is_counted { program.ranks } else { RANKS_MAX };
                let none = || UsageError(format!("-soft: no number of ranks up to -n {most}"));
                program.ranks = soft.largest(most).ok_or_else(none)?;
            } else if !is_counted {
                program.ranks = if is_alone { all.max(1) } else { 1 };
            }
        }
        Ok(())
    }

    /// Checks that the ranks exist that are to get input.
    fn check_input(&self) -> Result<(), UsageError> {
        let size = self.size();
        match self.input.largest().filter(|rank| *rank >= size as usize) {
            Some(rank) => Err(UsageError(format!("-s names rank {rank} of {size} ranks"))),
            None => Ok(()),
        }
    }

    pub(crate) fn end_program(&mut self, program: &mut Program) -> Result<(), UsageError> {
        if program.command.is_empty() {
            return Err(UsageError("no program to run is given".into()));
        }
        self.programs.push(std::mem::take(program));
        Ok(())
    }
}

/// Number of ranks of a program before one is given.
const UNCOUNTED: u32 = 0;
