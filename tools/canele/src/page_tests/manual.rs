//! Manual pages in the language of man(7).

use clap::{Arg, ArgAction, Command};

use super::{about, commands, divided, help};

/// Page of a program, with a section for each command below it.
pub(super) fn page(program: &Command) -> String {
    let mut text = String::new();
    let mut common: Vec<String> = Vec::new();
    for (name, command) in commands(program) {
        let (own, many) = divided(program, command, &option);
        if text.is_empty() {
            text += &head(&name, command);
            text += ".SH OPTIONS\n";
        } else {
            let (title, about) = (escaped(&name.to_uppercase()), escaped(&about(command)));
            text += &format!(".SH {title}\n{about}.\n.PP\n{}\n", synopsis(command));
        }
        text += &own.concat();
        let many: Vec<String> = many.into_iter().filter(|it| !it.is_empty()).collect();
        if !many.is_empty() {
            let names: Vec<&str> =
                many.iter().filter_map(|it| it.split([' ', '\n']).nth(2)).collect();
            let names = names.join(", ");
            text += &format!(".PP\nOptions of several commands, see there: {names}.\n");
        }
        for option in many {
            if !common.contains(&option) {
                common.push(option);
            }
        }
    }
    if !common.is_empty() {
        text += &format!(".SH OPTIONS OF SEVERAL COMMANDS\n{}", common.concat());
    }
    text + "\
.SH SEE ALSO
.BR mpiexec (1),
the pages of the user's documentation, installed in share/doc/canele/user.
"
}

fn head(name: &str, command: &Command) -> String {
    let title = escaped(&name.to_uppercase());
    let (name, about) = (escaped(name), escaped(&about(command)));
    let mut text =
        format!(".TH {title} 1 \"\" \"Canele @VERSION@\"\n.SH NAME\n{name} \\- {about}\n");
    text += &format!(".SH SYNOPSIS\n{}\n", synopsis(command));
    if let Some(more) = command.get_after_help() {
        text += &format!(".SH DESCRIPTION\n{}\n", escaped(&more.to_string()));
    }
    text
}

fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let lines = usage.trim_start_matches("Usage: ").lines().map(|line| escaped(line.trim()));
    lines.collect::<Vec<_>>().join("\n.br\n")
}

/// An option or argument; nothing for `--help`, which all commands have.
fn option(arg: &Arg) -> String {
    if matches!(arg.get_action(), ArgAction::Help) {
        return String::new();
    }
    format!(".TP\n.B {}\n{}\n", escaped(&arg.to_string()), escaped(&help(arg)))
}

/// Escapes the letters that have a meaning in man(7).
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins with a dot or an apostrophe would be a request.
    let is_request = |line: &str| line.starts_with(['.', '\'']);
    let line = |line: &str| if is_request(line) { format!("\\&{line}") } else { line.to_owned() };
    let text = text.lines().map(line).collect::<Vec<_>>().join("\n");
    let letter = |letter: char| match letter.is_ascii() {
        true => letter.to_string(),
        false => format!("\\[u{:04X}]", u32::from(letter)),
    };
    text.chars().map(letter).collect()
}
