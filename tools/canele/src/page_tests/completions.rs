//! Completions for bash and zsh.

use std::collections::BTreeMap;

use clap::{Arg, Command, ValueHint};

use super::{about, arguments, below, commands, divided, help, names};

/// Completion of a program for bash.
pub(super) fn bash(program: &Command) -> String {
    let words = |command: &Command| {
        let names = below(command).map(|it| it.get_name().to_owned()).collect::<Vec<_>>();
        let options: Vec<String> = arguments(command).flat_map(names_with_help).collect();
        format!("commands='{}' options='{}'", names.join(" "), options.join(" "))
    };
    let mut values = BTreeMap::new();
    for (_, command) in commands(program) {
        for arg in arguments(command).filter(|arg| takes_value(arg)) {
            for name in names(arg) {
                let found = values.entry(name).or_insert_with(|| value(arg));
                // An option of the same name elsewhere may have other values: files are what all shells offer.
                if *found != value(arg) {
                    *found = ValueKind::Other;
                }
            }
        }
    }
    let values = grouped(values.into_iter().map(|(name, value)| (name, value.bash())));
    let cases =
        grouped(commands(program).into_iter().map(|(name, it)| (format!("'{name}'"), words(it))));
    let name = program.get_name();
    BASH.replace("@COMMANDS@", &cases)
        .replace("@VALUES@", &values)
        .replace("@FUNCTION@", &name.replace('-', "_"))
        .replace("@PROGRAM@", name)
}

/// Completion of a program for zsh.
pub(super) fn zsh(program: &Command) -> String {
    // Sets of options that many commands share.
    let mut sets: Vec<Vec<String>> = Vec::new();
    let mut words = |command: &Command| {
        let below: Vec<String> = below(command)
            .map(|it| format!("'{}:{}'", it.get_name(), quoted(&about(it)).replace(':', "\\:")))
            .collect();
        let commands = match below.is_empty() {
            true => String::new(),
            false => format!("commands=({}) ", below.join(" ")),
        };
        let (own, many) = divided(program, command, &zsh_specs);
        let shared = match (many.is_empty(), sets.iter().position(|set| *set == many)) {
            (true, _) => String::new(),
            (false, Some(number)) => format!("$set{number} "),
            (false, None) => {
                sets.push(many);
                format!("$set{} ", sets.len() - 1)
            }
        };
        format!("{commands}specs=({shared}{})", own.concat())
    };
    let cases =
        grouped(commands(program).into_iter().map(|(name, it)| (format!("'{name}'"), words(it))));
    let name = program.get_name();
    let paths: Vec<String> =
        commands(program).into_iter().skip(1).map(|(name, _)| format!("'{name}'")).collect();
    let set = |(number, set): (usize, Vec<String>)| {
        format!("    local -a set{number}=({}\n    )\n", set.concat())
    };
    let sets: String = sets.into_iter().enumerate().map(set).collect();
    let paths = if paths.is_empty() { "none".to_owned() } else { paths.join(" | ") };
    ZSH.replace("@COMMANDS@", &cases)
        .replace("@SETS@", &sets)
        .replace("@PATHS@", &paths)
        .replace("@FUNCTION@", &name.replace('-', "_"))
        .replace("@PROGRAM@", name)
}

/// The cases of a shell's `case`, of which those with the same text share one.
fn grouped(cases: impl Iterator<Item = (String, String)>) -> String {
    let mut groups: Vec<(Vec<String>, String)> = Vec::new();
    for (pattern, text) in cases {
        match groups.iter_mut().find(|(_, known)| *known == text) {
            Some((patterns, _)) => patterns.push(pattern),
            None => groups.push((vec![pattern], text)),
        }
    }
    let case = |(patterns, text): (Vec<String>, String)| {
        format!("        {}) {text} ;;\n", patterns.join(" | "))
    };
    groups.into_iter().map(case).collect()
}

/// Kind of a value, by which words are found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ValueKind {
    Words(Vec<String>),
    Folder,
    Other,
}

impl ValueKind {
    fn bash(&self) -> String {
        match self {
            Self::Words(words) => format!("wanted=words words='{}'", words.join(" ")),
            Self::Folder => "wanted=folder".into(),
            Self::Other => "wanted=file".into(),
        }
    }

    fn zsh(&self) -> String {
        match self {
            Self::Words(words) => format!("({})", words.join(" ")),
            Self::Folder => "_files -/".into(),
            Self::Other => "_files".into(),
        }
    }
}

fn value(arg: &Arg) -> ValueKind {
    let words = arg.get_possible_values();
    match arg.get_value_hint() {
        _ if !words.is_empty() => {
            ValueKind::Words(words.iter().map(|word| word.get_name().to_owned()).collect())
        }
        ValueHint::DirPath => ValueKind::Folder,
        _ => ValueKind::Other,
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_positional()
}

/// Names of an option as they are offered; `-h` is known to all.
fn names_with_help(arg: &Arg) -> Vec<String> {
    names(arg).into_iter().filter(|name| name != "-h").collect()
}

/// Specifications of an argument for `_arguments`, each on a line of its own.
fn zsh_specs(arg: &Arg) -> String {
    let escaped =
        |text: &str| quoted(text).replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    if arg.is_positional() {
        let many = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
        let place = if many { "*" } else { "" };
        return format!("\n            '{place}:{}:{}'", arg.get_id(), value(arg).zsh());
    }
    let wanted = match takes_value(arg) {
        true => format!(":{}:{}", arg.get_id(), value(arg).zsh()),
        false => String::new(),
    };
    let one = |name: String| format!("\n            '*{name}[{}]{wanted}'", escaped(&help(arg)));
    names_with_help(arg).into_iter().map(one).collect()
}

fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''").replace('\n', " ")
}

const BASH: &str = r#"# Completion of @PROGRAM@ for bash, written from its options by `UPDATE_EXPECT=1 cargo test -p canele`.
_@FUNCTION@() {
    local current=${COMP_WORDS[COMP_CWORD]} place=@PROGRAM@ wanted= words= commands options word
    _@FUNCTION@_place
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [ -n "$wanted" ]; then
            wanted=
        elif [[ $word == -* ]]; then
            _@FUNCTION@_option "$word"
        elif [[ " $commands " == *" $word "* ]]; then
            place="$place $word"
            _@FUNCTION@_place
        fi
    done
    COMPREPLY=()
    case $wanted,$current in
        words,*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
        folder,*) COMPREPLY=($(compgen -d -- "$current")) ;;
        file,*) ;;
        ,-*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
        *) COMPREPLY=($(compgen -W "$commands" -- "$current")) ;;
    esac
}
# Sets the commands and options of the command `place`.
_@FUNCTION@_place() {
    commands= options=
    case $place in
@COMMANDS@    esac
}
# Sets the kind of the value that an option wants.
_@FUNCTION@_option() {
    case $1 in
@VALUES@    esac
}
complete -o default -F _@FUNCTION@ @PROGRAM@
"#;

const ZSH: &str = r#"#compdef @PROGRAM@
# Completion of @PROGRAM@ for zsh, written from its options by `UPDATE_EXPECT=1 cargo test -p canele`.
_@FUNCTION@() {
    local place=@PROGRAM@
    local -a commands specs
@SETS@    while (( CURRENT > 2 )); do
        case "$place $words[2]" in
            @PATHS@) place="$place $words[2]"; shift words; (( CURRENT-- )) ;;
            *) break ;;
        esac
    done
    case $place in
@COMMANDS@    esac
    if (( $#commands && CURRENT == 2 )) && [[ $words[2] != -* ]]; then
        _describe command commands
    else
        _arguments -S $specs
    fi
}
_@FUNCTION@ "$@"
"#;
