//! The `canele` command: what this installation is, its instruments, and the emulated grid.

mod chart;
mod grid;
mod info;
mod limits;
mod plan;
mod progress_report;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Canele: an MPI for machines that are far apart, and for machines that are oversubscribed.
#[derive(Debug, Parser)]
#[command(name = "canele", version)]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// What this installation is, what links cost, and how ranks wait
    Info(info::Arguments),
    /// Find sites by measuring between hosts
    Grid(grid::Arguments),
    /// The emulated grid: up, run, status, set, cut, heal, flow, down
    Lab(lab::Arguments),
    /// Measure what carries out collectives, and write the table of the fastest
    Tune(bench::TuneArguments),
    /// The instruments: measure Canele, its peers and raw TCP
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    match cli.word {
        Word::Info(arguments) => info::run(&arguments),
        Word::Grid(arguments) => grid::run(&arguments),
        Word::Lab(arguments) => lab::run(arguments),
        Word::Tune(arguments) => bench::tune(&arguments),
        Word::Bench(arguments) => bench::run(arguments),
    }
}

/// Help is printed as it is; a mistake is one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // A closed output is no mistake of the user's.
            let _ = error.print();
            ExitCode::from(error.exit_code() as u8)
        }
        _ => {
            let text = error.to_string();
            let said = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            let said = said.collect::<Vec<_>>().join(" ");
            eprintln!("canele: {} (see --help)", said.trim_start_matches("error: "));
            ExitCode::from(2)
        }
    }
}
