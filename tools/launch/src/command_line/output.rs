//! Options for what ranks read and write, and for checks.

use super::flag::{Effect, Flag, Given, set};
use crate::input::InputRanks;
use crate::label::Label;
use crate::usage::UsageError;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        names: &["s"],
        aliases: &["stdin"],
        values: "RANKS",
        help: "ranks that get standard input: all, none, or such as 0,3-5 (default: 0)",
        effect: Effect::Take(|reading, given| {
            let ranks = InputRanks::parse(given.value()).map_err(|text| given.mistake(text))?;
            reading.options.input = ranks;
            Ok(())
        }),
    },
    Flag {
        names: &["l", "prepend-rank"],
        aliases: &[],
        values: "",
        help: "label lines of output with their rank",
        effect: Effect::Take(|reading, _| {
            reading.options.label = Some(Label::rank());
            Ok(())
        }),
    },
    Flag {
        names: &["prepend-pattern"],
        aliases: &[],
        values: "PATTERN",
        help: "label lines; %r: rank, %h: host, %p: number of the host, %g: number of the world",
        effect: Effect::Take(|reading, given| {
            reading.options.label = Some(label(given)?);
            Ok(())
        }),
    },
    Flag {
        names: &["tag-output"],
        aliases: &[],
        values: "",
        help: "label lines as [1,RANK]<stdout>:",
        effect: Effect::Take(|reading, _| {
            let label = reading.options.label.take();
            reading.options.label = Some(Label::tag(label.is_some_and(|label| label.has_time())));
            Ok(())
        }),
    },
    Flag {
        names: &["timestamp-output"],
        aliases: &[],
        values: "",
        help: "label lines with the time; before other labels",
        effect: Effect::Take(|reading, _| {
            let label = reading.options.label.take();
            reading.options.label = Some(Label::with_time(label));
            Ok(())
        }),
    },
    Flag {
        names: &["outfile-pattern"],
        aliases: &["outfile"],
        values: "PATTERN",
        help: "write standard output to files, such as out.%r; as -prepend-pattern",
        effect: Effect::Take(|reading, given| {
            reading.options.files.output = Some(label(given)?);
            Ok(())
        }),
    },
    Flag {
        names: &["errfile-pattern"],
        aliases: &["errfile"],
        values: "PATTERN",
        help: "write standard error to files",
        effect: Effect::Take(|reading, given| {
            reading.options.files.error = Some(label(given)?);
            Ok(())
        }),
    },
    Flag {
        names: &["output-filename"],
        aliases: &["output-directory"],
        values: "DIR",
        help: "write output also to DIR/1/rank.N/stdout and stderr; DIR:nocopy: only there",
        effect: Effect::Take(|reading, given| {
            let (folder, copies) = match given.value().split_once(':') {
                None => (given.value(), true),
                Some((folder, "nocopy")) => (folder, false),
                Some(_) => return Err(given.mistake("not DIR or DIR:nocopy")),
            };
            reading.options.files.output = Some(Label::file(folder, "stdout"));
            reading.options.files.error = Some(Label::file(folder, "stderr"));
            reading.options.files.copies = copies;
            Ok(())
        }),
    },
    Flag {
        names: &["print-all-exitcodes"],
        aliases: &[],
        values: "",
        help: "print the exit codes of all ranks in the end",
        effect: Effect::Take(|reading, _| {
            reading.options.prints_codes = true;
            Ok(())
        }),
    },
    Flag {
        names: &["v"],
        aliases: &["verbose", "debug"],
        values: "",
        help: "print the effect of -place, and statistics of gateways",
        effect: Effect::Take(|reading, _| {
            reading.options.verbose = true;
            Ok(())
        }),
    },
    Flag {
        names: &["trace"],
        aliases: &[],
        values: "FILE",
        help: "record MPI calls and frames of all ranks, for ui.perfetto.dev",
        effect: Effect::Take(|reading, given| {
            reading.options.trace = Some(given.value().into());
            Ok(())
        }),
    },
    Flag {
        names: &["profile"],
        aliases: &[],
        values: "FILE",
        help: "count MPI calls of all ranks, and print a table at the end",
        effect: Effect::Take(|reading, given| {
            reading.options.profile = Some(given.value().into());
            Ok(())
        }),
    },
    Flag {
        names: &["check"],
        aliases: &[],
        values: "",
        help: "compare the arguments of collectives among ranks",
        effect: Effect::Take(|reading, _| {
            set(reading, &settings::CHECK, "yes");
            Ok(())
        }),
    },
];

fn label(given: &Given<'_>) -> Result<Label, UsageError> {
    Label::parse(given.value()).map_err(|text| given.mistake(text))
}
