//! The program `mpiexec`: reads its command line, gets the hosts, and runs the job.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::co_allocation::{CoAllocation, NotAllocated};
use crate::command_line::{Parsed, Text, help};
use crate::options::Options;
use crate::run::Run;
use crate::usage::UsageError;
use crate::{foreign, signals, system};

/// Runs `mpiexec` with these arguments, without its own name. A process that was started without it may start it for its
/// children, with no other options than the surroundings give.
pub fn mpiexec_main(arguments: &[OsString]) -> ExitCode {
    let (arguments, singleton) = match arguments {
        [option, rest @ ..] if option == boot::FOR_SINGLETON => (rest, true),
        _ => (arguments, false),
    };
    let mut options = match Options::parse(arguments) {
        Ok(Parsed::Run(options)) => options,
        Ok(Parsed::Print(Text::Version)) => return printed(VERSION),
        Ok(Parsed::Print(Text::Help(topic))) => match help(topic.as_deref()) {
            Ok(text) => return printed(&text),
            Err(error) => return refuse(&error),
        },
        Err(error) => return refuse(&error),
    };
    let own = std::env::vars_os().map(|(name, _)| name);
    for variable in settings::unknown(own.chain(options.variables().map(OsString::from))) {
        tell!("mpiexec: {variable}");
    }
    if let Some(text) = topo::Cache::complaint() {
        tell!("mpiexec: {text}");
    }
    // Recorded from here on, and obeyed while hosts are awaited and while the job runs.
    let mut signals = match signals::receive() {
        Ok(signals) => signals,
        Err(error) => {
            tell!("mpiexec: signal handlers: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The hosts go back when this is dropped.
    let allocation = match CoAllocation::of(&mut options, &mut signals) {
        Ok(allocation) => allocation,
        Err(NotAllocated { code, text }) => {
            tell!("mpiexec: {text}");
            return ExitCode::from(code);
        }
    };
    for text in options.notes.iter().cloned().chain(foreign::warnings(&options)) {
        tell!("mpiexec: {text}");
    }
    let started = match singleton {
        true => Run::serve_singleton(*options),
        false => Run::start(&options, allocation),
    };
    match started {
        Ok(run) => ExitCode::from(run.finish(&mut signals)),
        Err(text) => {
            tell!("mpiexec: {text}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(error: &UsageError) -> ExitCode {
    tell!("mpiexec: {error}");
    ExitCode::from(2)
}

/// Text of `mpiexec --version`. Tools choose their options by Hydra's first line and by the word MPICH, and parse the
/// version behind it.
const VERSION: &str = concat!(
    "mpiexec (Canele) ",
    env!("CARGO_PKG_VERSION"),
    ", with the options of MPICH's Hydra\n",
    "HYDRA build details:\n",
    "    Version:                                 4.3.0\n",
    "    Process Manager:                         pmi\n",
    "    Launchers available:                     ssh rsh slurm fork\n",
    "    Resource management kernels available:   slurm\n",
);

fn printed(text: &str) -> ExitCode {
    if system::print(text) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
