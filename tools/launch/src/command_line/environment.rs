//! Options for variables and folders of ranks.

use super::flag::{Effect, Flag};
use crate::options::Inherited;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        names: &["genv"],
        aliases: &[],
        values: "NAME VALUE",
        help: "set a variable for all programs; also NAME=VALUE",
        effect: Effect::Take(|reading, given| {
            reading.options.environment.push(given.variable());
            Ok(())
        }),
    },
    Flag {
        names: &["env"],
        aliases: &[],
        values: "NAME VALUE",
        help: "set a variable for this program; also NAME=VALUE",
        effect: Effect::Take(|reading, given| {
            reading.program.environment.push(given.variable());
            Ok(())
        }),
    },
    Flag {
        names: &["x"],
        aliases: &[],
        values: "NAME[=VALUE]",
        help: "set a variable for all programs, or pass its value here",
        effect: Effect::Take(|reading, given| {
            match given.value().split_once('=') {
                Some((name, value)) => {
                    reading.options.environment.push((name.to_owned(), value.to_owned()));
                }
                None => reading.exported.push(given.value().to_owned()),
            }
            Ok(())
        }),
    },
    Flag {
        names: &["genvall"],
        aliases: &[],
        values: "",
        help: "pass the local environment to all programs (default)",
        effect: Effect::Take(|reading, _| {
            reading.options.inherited = Inherited::All;
            Ok(())
        }),
    },
    Flag {
        names: &["genvnone"],
        aliases: &[],
        values: "",
        help: "do not pass the local environment",
        effect: Effect::Take(|reading, _| {
            reading.options.inherited = Inherited::Only(Vec::new());
            Ok(())
        }),
    },
    Flag {
        names: &["genvlist"],
        aliases: &[],
        values: "NAMES",
        help: "pass only these variables of the local environment: A,B",
        effect: Effect::Take(|reading, given| {
            reading.options.inherited = Inherited::Only(given.list());
            Ok(())
        }),
    },
    Flag {
        names: &["genvexcl"],
        aliases: &[],
        values: "NAMES",
        help: "pass the local environment without these variables: A,B",
        effect: Effect::Take(|reading, given| {
            reading.options.inherited = Inherited::Except(given.list());
            Ok(())
        }),
    },
    Flag {
        names: &["envall"],
        aliases: &[],
        values: "",
        help: "pass the local environment to this program",
        effect: Effect::Take(|reading, _| {
            reading.program.inherited = Some(Inherited::All);
            Ok(())
        }),
    },
    Flag {
        names: &["envnone"],
        aliases: &[],
        values: "",
        help: "do not pass the local environment to this program",
        effect: Effect::Take(|reading, _| {
            reading.program.inherited = Some(Inherited::Only(Vec::new()));
            Ok(())
        }),
    },
    Flag {
        names: &["envlist"],
        aliases: &[],
        values: "NAMES",
        help: "pass only these variables to this program: A,B",
        effect: Effect::Take(|reading, given| {
            reading.program.inherited = Some(Inherited::Only(given.list()));
            Ok(())
        }),
    },
    Flag {
        names: &["envexcl"],
        aliases: &[],
        values: "NAMES",
        help: "pass all but these variables to this program: A,B",
        effect: Effect::Take(|reading, given| {
            reading.program.inherited = Some(Inherited::Except(given.list()));
            Ok(())
        }),
    },
    Flag {
        names: &["wdir"],
        aliases: &["wd", "cwd"],
        values: "DIR",
        help: "working directory of the program",
        effect: Effect::Take(|reading, given| {
            reading.program.directory = Some(given.value().to_owned());
            Ok(())
        }),
    },
    Flag {
        names: &["path"],
        aliases: &[],
        values: "DIR:DIR",
        help: "directories where the program is looked for first",
        effect: Effect::Take(|reading, given| {
            let folders = given.value().split(':').filter(|one| !one.is_empty());
            reading.program.path = folders.map(str::to_owned).collect();
            Ok(())
        }),
    },
];
