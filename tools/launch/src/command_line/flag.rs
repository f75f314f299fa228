//! Rows of the table of options, and what they read.

use std::ffi::OsString;

use crate::launcher::Launcher;
use crate::options::{Options, Program};
use crate::usage::{UsageError, limits, number};

/// State of a command line that is being read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub options: Options,
    pub program: Program,
    /// Values of `-x` without a value of their own.
    pub exported: Vec<String>,
    /// Command of `-launcher-exec`.
    pub launcher_exec: Option<Launcher>,
    /// Words of a file that stand in place of its option.
    pub inserted: Option<Vec<OsString>>,
    /// Text that is printed instead of a run.
    pub text: Option<Text>,
}

/// A text that the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// The help on a topic, or its overview.
    Help(Option<String>),
    /// The version.
    Version,
}

/// An option with its values, as given.
pub(super) struct Given<'a> {
    pub name: &'a str,
    pub values: Vec<String>,
}

/// A row of the table.
pub(super) struct Flag {
    /// Names in the help, without dashes.
    pub names: &'static [&'static str],
    /// Names of other launchers for the same.
    pub aliases: &'static [&'static str],
    /// Names of its values, one word each.
    pub values: &'static str,
    /// Its text, with [`LIMITS`] where those of its number stand.
    pub help: &'static str,
    pub effect: Effect,
}

/// Effect of an option.
pub(super) enum Effect {
    /// It is read into the options.
    Take(fn(&mut Reading, &Given<'_>) -> Result<(), UsageError>),
    /// None, because what it asks for always holds.
    Always,
    /// None; the help is told once.
    Ignored,
    /// It is refused, with the help, which names what to use.
    Refused,
}

impl Given<'_> {
    /// The first value.
    pub fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    pub fn number(&self) -> Result<u32, UsageError> {
        number(self.name, self.value())
    }

    /// Two values: a variable's name and value.
    pub fn variable(&self) -> (String, String) {
        (self.value().to_owned(), self.values.get(1).cloned().unwrap_or_default())
    }

    /// The values of a list with commas.
    pub fn list(&self) -> Vec<String> {
        self.value().split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect()
    }

    /// A mistake in the value.
    pub fn mistake(&self, text: impl std::fmt::Display) -> UsageError {
        UsageError(format!("-{} {}: {text}", self.name, self.value()))
    }
}

impl Flag {
    pub fn is_named(&self, name: &str) -> bool {
        self.names.iter().chain(self.aliases).any(|known| *known == name)
    }

    /// Names and values, as on a command line.
    pub fn synopsis(&self) -> String {
        format!("{} {}", dashed(self.names), self.values).trim().to_owned()
    }

    /// The help for people.
    pub fn text(&self) -> String {
        self.help.replace(LIMITS, &limits())
    }
}

/// Place of a number's limits in the help of its option.
pub(super) const LIMITS: &str = "{limits}";

pub(super) fn dashed(names: &[&str]) -> String {
    names.iter().map(|name| format!("-{name}")).collect::<Vec<_>>().join(", ")
}

/// Sets a variable of the library for all ranks.
pub(super) fn set(reading: &mut Reading, setting: &settings::Setting, value: &str) {
    reading.options.environment.push((setting.variable().to_owned(), value.to_owned()));
}
