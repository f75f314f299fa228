//! Manual pages and completions of `canele` and `canele-gateway`, written from their options.

mod completions;
mod limits;
mod manual;

use std::collections::BTreeMap;

use clap::{Arg, Command, CommandFactory};
use expect_test::expect_file;

use super::Cli;

/// `UPDATE_EXPECT=1 cargo test -p canele` writes the completions and the manual pages.
#[test]
fn pages_and_completions_are_the_options() {
    let canele = built(Cli::command());
    let gateway = built(gateway::Options::command());
    let bash = completions::bash;
    expect_file!["../../../packaging/completions/canele.bash"].assert_eq(&bash(&canele));
    expect_file!["../../../packaging/completions/canele-gateway.bash"].assert_eq(&bash(&gateway));
    let zsh = completions::zsh;
    expect_file!["../../../packaging/completions/canele.zsh"].assert_eq(&zsh(&canele));
    expect_file!["../../../packaging/completions/canele-gateway.zsh"].assert_eq(&zsh(&gateway));
    let page = manual::page;
    expect_file!["../../../packaging/canele.1.in"].assert_eq(&page(&canele));
    expect_file!["../../../packaging/canele-gateway.1.in"].assert_eq(&page(&gateway));
}

fn built(mut command: Command) -> Command {
    command.build();
    command
}

/// A command with those below it, each with its words from the program on. Hidden ones are left out.
fn commands(command: &Command) -> Vec<(String, &Command)> {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let mut all = vec![(name, command)];
    all.extend(below(command).flat_map(commands));
    all
}

fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

/// Options and arguments of a command. Hidden ones are left out.
fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

/// Names of an option, with their dashes.
fn names(arg: &Arg) -> Vec<String> {
    let long = arg.get_long().map(|name| format!("--{name}"));
    let short = arg.get_short().map(|letter| format!("-{letter}"));
    long.into_iter().chain(short).collect()
}

/// Arguments of a command, of which `text` tells each: its own, and those that many commands have with the same text.
fn divided(
    program: &Command,
    command: &Command,
    text: &dyn Fn(&Arg) -> String,
) -> (Vec<String>, Vec<String>) {
    let mut counts = BTreeMap::new();
    for (_, command) in commands(program) {
        arguments(command).for_each(|arg| *counts.entry(text(arg)).or_insert(0) += 1);
    }
    arguments(command).map(text).partition(|text| counts[text] < COMMON_MIN)
}

/// Number of commands with the same option from which on it is told once for all.
const COMMON_MIN: usize = 12;

fn help(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}
