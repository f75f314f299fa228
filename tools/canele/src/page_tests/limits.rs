//! The help of each number names the limits that its parser checks.

use std::any::TypeId;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Arg, Command, CommandFactory};

use super::{arguments, built, commands, help};
use crate::Cli;

#[test]
fn the_help_names_the_limits_of_each_number() {
    let mut named = 0;
    for program in [Cli::command(), gateway::Options::command()].map(built) {
        for (command, arg) in commands(&program)
            .iter()
            .flat_map(|(name, command)| arguments(command).map(move |arg| (name, arg)))
        {
            let what = format!("{command} {}: {}", arg.get_id(), help(arg));
            let limits = Limits::named(&help(arg));
            if is_number(arg.get_value_parser()) {
                let unit = UNITS.iter().find(|unit| takes_some(arg, unit));
                let unit = unit.unwrap_or_else(|| panic!("no unit fits {what}"));
                let is_bounded = |number: u32| !takes(arg, &format!("{number}{unit}"));
                assert!(!is_bounded(0) || limits.least.is_some(), "least number of {what}");
                assert!(!is_bounded(u32::MAX) || limits.has_most(), "largest number of {what}");
            }
            limits.check(arg, &what);
            named += usize::from(limits != Limits::default());
        }
    }
    assert!(named > 0);
}

#[test]
fn limits_are_read() {
    let limits = Limits::named("Time, from 0.5s to 2s, such as 1s");
    assert_eq!((limits.least.as_deref(), limits.most.as_deref()), (Some("0.5s"), Some("2s")));
    assert_eq!(Limits::named("Time from here to there"), Limits::default());
    assert_eq!([next("1k", 1), next("8", -1)].map(Option::unwrap), ["2k", "7"]);
    assert_eq!((next("0.5s", -1).unwrap(), next("0", -1)), ("0.45s".into(), None));
}

/// Limits that a help names, in the words of the command line.
#[derive(Debug, Default, PartialEq)]
struct Limits {
    least: Option<String>,
    most: Option<String>,
    /// The least number that is too large.
    below: Option<String>,
}

impl Limits {
    fn named(help: &str) -> Self {
        let words: Vec<&str> = help.split_whitespace().collect();
        let mut limits = Self::default();
        let value = |word: &str| {
            let value = word.trim_end_matches([',', ';']);
            value.starts_with(|first: char| first.is_ascii_digit()).then(|| value.to_owned())
        };
        for four in words.windows(4) {
            if let ["from", least, "to", most] | ["between", least, "and", most] = four {
                (limits.least, limits.most) = (value(least), value(most));
            }
        }
        for pair in words.windows(2) {
            let [word, bound] = pair else { continue };
            match *word {
                "least" => limits.least = value(bound),
                "most" => limits.most = value(bound),
                "below" => limits.below = value(bound),
                _ => {}
            }
        }
        limits
    }

    fn has_most(&self) -> bool {
        self.most.is_some() || self.below.is_some()
    }

    /// Checks that the parser takes the limits, and nothing beyond them.
    fn check(&self, arg: &Arg, what: &str) {
        let Self { least, most, below } = self;
        for taken in least.iter().chain(most).cloned().chain(below.as_deref().and_then(less)) {
            assert!(takes(arg, &taken), "{taken} is refused by {what}");
        }
        let beyond = least.as_deref().and_then(less).into_iter();
        let beyond = beyond.chain(most.as_deref().and_then(more)).chain(below.clone());
        for refused in beyond {
            assert!(!takes(arg, &refused), "{refused} is taken by {what}");
        }
    }
}

fn less(bound: &str) -> Option<String> {
    next(bound, -1)
}

fn more(bound: &str) -> Option<String> {
    next(bound, 1)
}

/// The next number with the same unit; for a fraction, one nearby. None is below 0.
fn next(bound: &str, step: i64) -> Option<String> {
    let digits = bound.trim_end_matches(|it: char| it.is_ascii_alphabetic() || it == '%');
    let unit = &bound[digits.len()..];
    match digits.parse::<i64>() {
        Ok(number) => (number + step >= 0).then(|| format!("{}{unit}", number + step)),
        Err(_) => {
            let number: f64 = digits.parse().unwrap();
            Some(format!("{}{unit}", number * (1.0 + 0.1 * step as f64)))
        }
    }
}

fn is_number(parser: &ValueParser) -> bool {
    let integers = [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>()];
    let others =
        [TypeId::of::<i64>(), TypeId::of::<usize>(), TypeId::of::<f64>(), TypeId::of::<Duration>()];
    integers.iter().chain(&others).any(|one| parser.type_id() == *one)
}

/// Units of the numbers of options, the largest of each kind.
const UNITS: [&str; 4] = ["", "s", "Gbit", "MB"];

fn takes_some(arg: &Arg, unit: &str) -> bool {
    ["1", "3", "0.5", "1000"].iter().any(|number| takes(arg, &format!("{number}{unit}")))
}

/// True if the parser of an option takes a number; in a pair or a shape, beside fixed ones.
fn takes(arg: &Arg, number: &str) -> bool {
    let name =
        arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    let text = match name {
        "SHAPE" => format!("1x1x{number}"),
        _ if name.starts_with("SITE-SITE=") => format!("0-1={number}"),
        _ => number.to_owned(),
    };
    let value = Arg::new("value").value_parser(arg.get_value_parser().clone());
    let command = Command::new("one").no_binary_name(true).arg(value);
    command.try_get_matches_from([text]).is_ok()
}
