//! The `canele` command: information, the lab, and measurements.

mod chart;
mod grid;
mod info;
mod jobs;
mod limits;
#[cfg(test)]
mod page_tests;
mod plan;
mod print;
mod progress_report;
mod system_report;
mod top;
mod units;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand};

/// MPI for machines that are far apart, and for machines with more ranks than cores
#[derive(Debug, Parser)]
#[command(name = "canele", version)]
struct Cli {
    #[command(subcommand)]
    word: CaneleCommand,
}

#[derive(Debug, Subcommand)]
enum CaneleCommand {
    /// Print settings, the cost of links, how ranks wait, or the plan of a collective
    Info(info::Arguments),
    /// List the running jobs of this user on this machine
    Jobs,
    /// Print the calls in which the ranks of a job wait, for whom, and deadlocks among them
    Stack(jobs::StackArguments),
    /// Show what the ranks of a job do, how much they send, and their queues
    Top(top::TopArguments),
    /// Find sites by measuring round trips between hosts
    Grid(grid::Arguments),
    /// Emulate sites and nodes on this machine
    Lab(lab::Arguments),
    /// Print the table of a file that mpiexec -profile has written
    Profile(ProfileArguments),
    /// Measure the algorithms of collectives, and write a table of the fastest
    Tune(bench::TuneArguments),
    /// Measure Canele, other MPIs and raw TCP
    Bench(bench::BenchArguments),
}

#[derive(Debug, Args)]
struct ProfileArguments {
    /// The file
    file: PathBuf,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    // `mpiexec` reports for the jobs that other commands start.
    if matches!(cli.word, CaneleCommand::Info(_) | CaneleCommand::Grid(_)) {
        settings::unknown_here()
            .iter()
            .for_each(|variable| drop(writeln!(io::stderr(), "canele: {variable}")));
    }
    match cli.word {
        CaneleCommand::Info(arguments) => info::run(&arguments),
        CaneleCommand::Jobs => jobs::list(),
        CaneleCommand::Stack(arguments) => jobs::stack(&arguments),
        CaneleCommand::Top(arguments) => top::run(&arguments),
        CaneleCommand::Grid(arguments) => grid::run(&arguments),
        CaneleCommand::Lab(arguments) => lab::run(arguments),
        CaneleCommand::Profile(arguments) => profile(&arguments),
        CaneleCommand::Tune(arguments) => bench::tune(&arguments),
        CaneleCommand::Bench(arguments) => bench::run(arguments),
    }
}

/// Prints the table of a profile.
fn profile(arguments: &ProfileArguments) -> ExitCode {
    match launch::profile_table(&arguments.file) {
        Ok(table) => print::print(&table),
        Err(text) => {
            // A message that nobody can read is lost.
            let _ = writeln!(io::stderr(), "canele profile: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Prints help as it is, and a mistake in one line with the nearest word that exists.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let written = print::result_of(error.print());
            if error.exit_code() == 0 { written } else { ExitCode::from(error.exit_code() as u8) }
        }
        _ => {
            let text = error.to_string();
            let said = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            let said = said.collect::<Vec<_>>().join(" ");
            let said = said.trim_start_matches("error: ");
            let suggested = [
                ContextKind::SuggestedSubcommand,
                ContextKind::SuggestedArg,
                ContextKind::SuggestedValue,
            ];
            let nearest = suggested.into_iter().find_map(|kind| error.get(kind));
            let advice = nearest.map(|word| format!("; did you mean {word}?")).unwrap_or_default();
            let _ = writeln!(io::stderr(), "canele: {said}{advice} (see --help)");
            ExitCode::from(2)
        }
    }
}
