//! The completions of `mpiexec` for bash and zsh, written from the table of options.

use std::collections::VecDeque;
use std::ffi::OsString;

use expect_test::expect_file;

use super::{Effect, Flag, Reading, flags, names};

/// `UPDATE_EXPECT=1 cargo test -p launch` writes the completions.
#[test]
fn the_completions_are_the_table() {
    expect_file!["../../../../packaging/completions/mpiexec.bash"].assert_eq(&bash());
    expect_file!["../../../../packaging/completions/mpiexec.zsh"].assert_eq(&zsh());
}

#[test]
fn completed_words_are_accepted() {
    for (name, words) in CHOICES {
        for word in *words {
            let mut rest = VecDeque::from([OsString::from(word)]);
            let taken = Reading::default().take(&format!("-{name}").into(), &mut rest);
            assert_eq!(taken, Ok(()), "-{name} {word}");
        }
    }
}

/// Options that take effect, and are offered.
fn offered() -> impl Iterator<Item = &'static Flag> {
    flags().filter(|flag| matches!(flag.effect, Effect::Take(_)))
}

fn bash() -> String {
    let mut values = String::new();
    for flag in flags().filter(|flag| !flag.values.is_empty()) {
        let all: Vec<&str> = names(flag).collect();
        let kinds: Vec<String> = flag.values.split(' ').map(|value| kind(flag, value)).collect();
        values += &format!("        {}) kinds='{}' ;;\n", all.join(" | "), kinds.join(" "));
    }
    let options: Vec<String> =
        offered().flat_map(|flag| flag.names).map(|name| format!("-{name}")).collect();
    let choices = CHOICES.iter().map(|(name, words)| {
        format!(
            "        ={name}) COMPREPLY=($(compgen -W '{}' -- \"$current\")) ;;\n",
            words.join(" ")
        )
    });
    BASH.replace("@VALUES@", &values)
        .replace("@OPTIONS@", &options.join(" "))
        .replace("@CHOICES@", &choices.collect::<String>())
}

/// Returns the kind of a value, by which the completion finds words.
fn kind(flag: &Flag, value: &str) -> String {
    match value {
        _ if choices(flag).is_some() => format!("={}", flag.names[0]),
        "FILE" | "DIR" | "CMD" => value.to_lowercase(),
        "A:2,B:2" => "hosts".to_owned(),
        "NAME" if flag.names[0].ends_with("env") => "variable".to_owned(),
        _ => "none".to_owned(),
    }
}

fn zsh() -> String {
    let mut text = String::from(ZSH);
    for flag in offered() {
        let help = zsh_word(&flag.text());
        let values: String =
            flag.values.split_whitespace().map(|value| zsh_value(flag, value)).collect();
        for name in flag.names {
            text += &format!("    '*-{name}[{help}]{values}' \\\n");
        }
    }
    text + ZSH_END
}

fn zsh_value(flag: &Flag, value: &str) -> String {
    let action = match (&*kind(flag, value), choices(flag)) {
        (_, Some(words)) => format!("({})", words.join(" ").replace(':', "\\:")),
        ("file", None) => "_files".to_owned(),
        ("dir", None) => "_files -/".to_owned(),
        ("cmd", None) => "_command_names -e".to_owned(),
        ("hosts", None) => "_hosts".to_owned(),
        ("variable", None) => "_parameters -g \"*export*\"".to_owned(),
        _ => " ".to_owned(),
    };
    let optional = if value.starts_with('[') { ":" } else { "" };
    format!("{optional}:{}:{action}", zsh_word(value.trim_matches(['[', ']'])))
}

/// Escapes the letters that have a meaning in a specification of `_arguments`.
fn zsh_word(text: &str) -> String {
    let escaped = |letter| match letter {
        '[' | ']' | ':' | '\\' => format!("\\{letter}"),
        '\'' => "'\\''".to_owned(),
        letter => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

fn choices(flag: &Flag) -> Option<&'static [&'static str]> {
    CHOICES.iter().find(|(name, _)| *name == flag.names[0]).map(|(_, words)| *words)
}

/// Options whose values are words, which are completed.
const CHOICES: &[(&str, &[&str])] = &[
    (
        "bind-to",
        &["none", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "rr"],
    ),
    ("map-by", &["slot", "node", "core", "numa", "socket"]),
    ("rank-by", &["slot", "node", "core", "numa", "socket"]),
    ("launcher", &["ssh", "rsh", "slurm", "fork"]),
    ("encrypt", &["sites", "all", "none"]),
    ("usize", &["SYSTEM", "INFINITE"]),
    ("s", &["all", "none"]),
    ("h", &["ranks", "placement", "environment", "launching", "output", "others", "all"]),
];

const BASH: &str = r#"# Completion of mpiexec for bash, written from the table of its options by `UPDATE_EXPECT=1 cargo test -p launch`.

# Sets `kinds` to the kinds of the values of an option, one word each.
_mpiexec_kinds() {
    kinds=
    case $1 in
@VALUES@    esac
}

_mpiexec() {
    # Bash divides words also at colons and equals signs.
    local line=${COMP_LINE:0:COMP_POINT} current kinds word name
    local -a words wanted=()
    read -ra words <<<"$line"
    current=${words[-1]}
    [[ $line != *[[:space:]] ]] || current=
    [ -z "$current" ] || unset 'words[-1]'
    COMPREPLY=()
    local has_program=
    for word in "${words[@]:1}"; do
        if [ "$word" = : ]; then
            has_program= wanted=()
        elif [ ${#wanted[@]} -gt 0 ]; then
            wanted=("${wanted[@]:1}")
            # A variable and its value may be one word.
            [[ $word != *=* ]] || wanted=()
        elif [ -z "$has_program" ] && [[ $word == -* ]]; then
            name=${word#-}
            name=${name#-}
            kinds=
            [[ $word == *=* ]] || _mpiexec_kinds "$name"
            read -ra wanted <<<"$kinds"
        else
            has_program=yes
        fi
    done
    # Arguments of a program are completed as files are, by readline.
    [ -z "$has_program" ] || return 0
    case ${wanted[0]:-} in
        '')
            local options='@OPTIONS@'
            case $current in
                --*) COMPREPLY=($(compgen -P - -W "$options" -- "${current#-}")) ;;
                -*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
                */*) COMPREPLY=($(compgen -f -- "$current")) ;;
                *) COMPREPLY=($(compgen -c -- "$current")) ;;
            esac
            ;;
        dir) COMPREPLY=($(compgen -d -- "$current")) ;;
        cmd) COMPREPLY=($(compgen -c -- "$current")) ;;
        hosts) COMPREPLY=($(compgen -A hostname -P "${current%"${current##*,}"}" -- "${current##*,}")) ;;
        variable) COMPREPLY=($(compgen -e -- "$current")) ;;
@CHOICES@    esac
}
complete -o default -F _mpiexec mpiexec mpirun
"#;

const ZSH: &str = r#"#compdef mpiexec mpirun
# Completion of mpiexec for zsh, written from the table of its options by `UPDATE_EXPECT=1 cargo test -p launch`.

_arguments -S \
"#;
const ZSH_END: &str = "    '(-)1:program:_command_names -e' \\\n    '*::arguments:_normal'\n";
