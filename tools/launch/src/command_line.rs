//! The options of `mpiexec`, in one table that the parser, the help and the manual read.
//!
//! Options follow Hydra, and take those of Open MPI for the same. A long name has one dash or two, and `--name=value` and
//! `-n2` are one word. Options end where the program begins, or at `--`.

#[cfg(test)]
mod completion_tests;
mod environment;
mod flag;
mod launching;
mod output;
mod parse;
mod placement;
mod ranks;
mod received;

use std::collections::VecDeque;
use std::ffi::OsString;

pub(crate) use self::flag::Text;
use self::flag::{Effect, Flag, Given, Reading, dashed};
pub use self::parse::Parsed;
use crate::usage::UsageError;

/// A topic of the help.
struct Topic {
    name: &'static str,
    title: &'static str,
    flags: &'static [Flag],
}

impl Reading {
    /// Reads the option `word`, and its values from `rest`.
    pub(crate) fn take(
        &mut self,
        word: &OsString,
        rest: &mut VecDeque<OsString>,
    ) -> Result<(), UsageError> {
        let option = word.to_string_lossy();
        let (name, joined) = split(option.trim_start_matches('-'));
        let flag = find(name).ok_or_else(|| unknown(&option, name))?;
        let is_optional = flag.values.starts_with('[');
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
            let Some(value) = rest.pop_front() else {
                if is_optional {
                    break;
                }
                return Err(UsageError(format!("option -{name} needs a value")));
            };
            let strange = || UsageError(format!("-{name} {}: not in UTF-8", value.display()));
            values.push(value.to_str().ok_or_else(strange)?.to_owned());
        }
        let said = || format!("{} {}", option.trim(), values.join(" ")).trim().to_owned();
        match flag.effect {
            Effect::Take(take) => take(self, &Given { name, values })?,
            Effect::Always => {}
            Effect::Ignored => self.options.note(format!("{}: {}", said(), flag.help)),
            Effect::Refused => return Err(UsageError(format!("{}: {}", said(), flag.help))),
        }
        Ok(())
    }
}

/// Text of `mpiexec --help`, or of `mpiexec --help TOPIC`.
///
/// # Errors
/// Fails for an unknown topic, with one line that names the topics.
pub(crate) fn help(topic: Option<&str>) -> Result<String, UsageError> {
    let names = || TOPICS.iter().map(|topic| topic.name);
    let mut text = String::from(USAGE);
    let shown: Vec<&Topic> = match topic {
        None => TOPICS.iter().filter(|topic| topic.name != RECEIVED).collect(),
        Some("all") => TOPICS.iter().collect(),
        Some(word) => {
            let name = word.trim_start_matches('-');
            let flag = |topic: &&Topic| topic.flags.iter().any(|flag| flag.is_named(name));
            let named = TOPICS.iter().find(|topic| topic.name == word);
            let topics = names().collect::<Vec<_>>().join(", ");
            let unknown = || UsageError(format!("no help on {word}; topics are {topics} and all"));
            vec![named.or_else(|| TOPICS.iter().find(flag)).ok_or_else(unknown)?]
        }
    };
    for Topic { title, flags, .. } in shown {
        text += &format!("\n{title}:\n");
        for flag in *flags {
            let synopsis = flag.synopsis();
            // The text of an option that needs more room is on a line of its own.
            let indent =
                if synopsis.len() > WIDTH { format!("\n{:WIDTH$}    ", "") } else { "  ".into() };
            text += &format!("  {synopsis:<WIDTH$}{indent}{}\n", flag.text());
            if topic.is_some() && !flag.aliases.is_empty() {
                text += &format!("  {:<WIDTH$}  (also {})\n", "", dashed(flag.aliases));
            }
        }
    }
    if topic.is_none() {
        let topics = names().collect::<Vec<_>>().join(" | ");
        text += &format!("\nMore, with the names of other launchers:\n  --help {topics} | all\n");
    }
    Ok(text)
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
    flags().find(|flag| flag.is_named(name))
}

fn unknown(option: &str, name: &str) -> UsageError {
    let near = settings::nearest(name, flags().flat_map(names));
    let advice = near.map(|near| format!("; did you mean -{near}?")).unwrap_or_default();
    UsageError(format!("unknown option {option}{advice}"))
}

fn flags() -> impl Iterator<Item = &'static Flag> {
    TOPICS.iter().flat_map(|topic| topic.flags)
}

fn names(flag: &'static Flag) -> impl Iterator<Item = &'static str> {
    flag.names.iter().chain(flag.aliases).copied()
}

const USAGE: &str = "\
Usage: mpiexec [options] program [arguments] [: [options] program [arguments]]...
";

const TOPICS: &[Topic] = &[
    Topic { name: "ranks", title: "Ranks and hosts", flags: ranks::FLAGS },
    Topic { name: "placement", title: "Placement", flags: placement::FLAGS },
    Topic { name: "environment", title: "Environment of ranks", flags: environment::FLAGS },
    Topic { name: "launching", title: "Launching", flags: launching::FLAGS },
    Topic { name: "output", title: "Input, output and checks", flags: output::FLAGS },
    Topic { name: RECEIVED, title: "Options of other launchers", flags: received::FLAGS },
];

/// Width of the column of options in the help.
const WIDTH: usize = 30;

/// Topic of options that are not in the overview.
const RECEIVED: &str = "others";

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;
    use crate::host::RANKS_MAX;
    use crate::usage::limits;

    #[test]
    fn names_are_unique_and_lines_short() {
        let mut all: Vec<&str> = flags().flat_map(names).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        let text = help(Some("all")).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn the_help_names_the_limits_of_each_number() {
        let least_and_most = [1, RANKS_MAX].map(|number| number.to_string());
        let outside = [0, RANKS_MAX + 1].map(|number| number.to_string());
        let mut found = Vec::new();
        for flag in flags().filter(|flag| !flag.values.is_empty()) {
            let name = flag.names[0];
            let read = |value: &String| {
                let mut rest = [value.into(), "more".into()].into();
                Reading::default().take(&format!("-{name}").into(), &mut rest)
            };
            let refusals = outside.iter().filter_map(|value| read(value).err());
            let refusals = refusals.map(|error| error.to_string()).collect::<String>();
            let is_number = refusals.contains("not a positive number");
            assert_eq!(is_number, refusals.contains("more than"), "-{name}: {refusals}");
            assert_eq!(is_number, flag.text().contains(&limits()), "-{name}: {}", flag.text());
            if is_number {
                assert!(least_and_most.iter().all(|value| read(value).is_ok()), "-{name}");
                found.push(name);
            }
        }
        assert_eq!(found, ["n", "ppn", "usize", "timeout", "wait"]);
    }

    #[test]
    fn an_unknown_option_is_named_with_the_nearest() {
        let told = |word: &str| unknown(word, word.trim_start_matches('-')).to_string();
        assert!(told("-hots").starts_with("unknown option -hots; did you mean -hosts?"));
        assert!(told("--bind-too").contains("did you mean -bind-to?"));
        assert!(told("-frobnicate").starts_with("unknown option -frobnicate (see"));
    }

    #[test]
    fn help_is_divided_into_topics() {
        let overview = help(None).unwrap();
        for topic in TOPICS {
            assert_eq!(overview.contains(topic.title), topic.name != RECEIVED, "{}", topic.name);
            let text = help(Some(topic.name)).unwrap();
            let titles = TOPICS.iter().filter(|topic| text.contains(&format!("{}:", topic.title)));
            assert_eq!(titles.count(), 1, "{text}");
            for flag in topic.flags {
                assert!(text.contains(&flag.synopsis()) && text.contains(&flag.text()), "{text}");
                assert_eq!(help(Some(flag.names[0])).unwrap(), text, "{}", flag.names[0]);
            }
        }
        let mistake = help(Some("pony")).unwrap_err().to_string();
        assert!(mistake.contains("no help on pony; topics are ranks, placement"), "{mistake}");
    }

    /// `UPDATE_EXPECT=1 cargo test -p launch` writes the page and the manual page.
    #[test]
    fn the_manual_is_the_table() {
        expect_file!["../../../docs/user/options.md"].assert_eq(&page());
        expect_file!["../../../packaging/mpiexec.1.in"].assert_eq(&manual());
    }

    /// Page of the user's documentation.
    fn page() -> String {
        let mut text = String::from(PAGE);
        for Topic { title, flags, .. } in TOPICS {
            text += &format!("\n## {title}\n\n| option | also | effect |\n|---|---|---|\n");
            for flag in *flags {
                let ticked = |names: &[&str]| -> Vec<String> {
                    names.iter().map(|name| format!("`-{name}`")).collect()
                };
                let mut option = ticked(flag.names).join(", ");
                if !flag.values.is_empty() {
                    option += &format!(" `{}`", flag.values.replace('|', "\\|"));
                }
                let also = ticked(flag.aliases).join(", ");
                text += &format!("| {option} | {also} | {} |\n", flag.text().replace('|', "\\|"));
            }
        }
        text
    }

    /// Manual page in the language of man(7).
    fn manual() -> String {
        let escaped = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
        let mut text = String::from(MANUAL);
        for Topic { title, flags, .. } in TOPICS {
            text += &format!(".SH {}\n", title.to_uppercase());
            for flag in *flags {
                let all = [flag.names, flag.aliases].concat();
                let (names, values) = (escaped(&dashed(&all)), escaped(flag.values));
                text += &format!(".TP\n.B {names}\n.I {values}\n").replace(".I \n", "");
                text += &format!("{}\n", escaped(&flag.text()));
            }
        }
        text + MANUAL_END
    }

    const PAGE: &str = "\
# Options of mpiexec

Options follow Hydra's and take those of Open MPI for the same. A name has one dash or two. A value may stand in the word of its
option: `--name=value`, `-n4`. Options end where the program begins, or at `--`. `mpiexec --help` prints the first five tables,
and `mpiexec --help placement` one of them.
";
    const MANUAL: &str = "\
.TH MPIEXEC 1 \"\" \"Canele @VERSION@\"
.SH NAME
mpiexec, mpirun \\- start the ranks of an MPI program
.SH SYNOPSIS
.B mpiexec
[options] program [arguments] [: [options] program [arguments]]...
.SH DESCRIPTION
Starts one agent on each host, which starts the ranks of the host. The exit code is that of the rank that failed first. A name
has one dash or two, and a value may stand in the word of its option, as in \\-n4 and \\-\\-name=value.
";
    const MANUAL_END: &str = "\
.SH SEE ALSO
.BR canele (1),
the pages of the user's documentation, installed in share/doc/canele/user.
";
}
