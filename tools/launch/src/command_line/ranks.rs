//! Options for the number of ranks, and their hosts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::flag::{Effect, Flag};
use crate::grid::Grid;
use crate::host_list;
use crate::soft::Soft;
use crate::universe::Universe;
use crate::usage::UsageError;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        names: &["n", "np"],
        aliases: &["ntasks"],
        values: "N",
        help: "number of ranks, {limits} (default: all slots of the hosts, or 1)",
        effect: Effect::Take(|reading, given| {
            reading.program.ranks = given.number()?;
            Ok(())
        }),
    },
    Flag {
        names: &["soft"],
        aliases: &[],
        values: "FROM:TO:STEP",
        help: "numbers of ranks that will do, such as 2,4:16:4, of at most -n",
        effect: Effect::Take(|reading, given| {
            let soft = Soft::parse(given.value()).map_err(|text| given.mistake(text))?;
            reading.program.soft = Some(soft);
            Ok(())
        }),
    },
    Flag {
        names: &["hosts"],
        aliases: &["host", "H", "machines", "machine", "machinelist", "hostlist"],
        values: "A:2,B:2",
        help: "hosts, and number of ranks on each",
        effect: Effect::Take(|reading, given| {
            reading.options.hosts.extend(host_list::named(given.value())?);
            Ok(())
        }),
    },
    Flag {
        names: &["f", "hostfile"],
        aliases: &["machinefile"],
        values: "FILE",
        help: "read hosts from a file: host, host:2 or host slots=2 per line",
        effect: Effect::Take(|reading, given| {
            let path = PathBuf::from(given.value());
            reading.options.hosts.extend(host_list::in_file(&path)?);
            Ok(())
        }),
    },
    Flag {
        names: &["grid"],
        aliases: &[],
        values: "FILE",
        help: "read sites and hosts from a grid file",
        effect: Effect::Take(|reading, given| {
            let grid = Grid::read(Path::new(given.value()));
            reading.options.take_grid(grid.map_err(|error| UsageError(error.to_string()))?);
            Ok(())
        }),
    },
    Flag {
        names: &["ppn", "N"],
        aliases: &["perhost", "npernode", "ntasks-per-node", "grr"],
        values: "N",
        help: "ranks per host, {limits}, whatever numbers the hosts have",
        effect: Effect::Take(|reading, given| {
            reading.options.per_host = Some(given.number()?);
            Ok(())
        }),
    },
    Flag {
        names: &["rr"],
        aliases: &["pernode"],
        values: "",
        help: "one rank per host and round, as -ppn 1",
        effect: Effect::Take(|reading, _| {
            reading.options.per_host = Some(1);
            Ok(())
        }),
    },
    Flag {
        names: &["configfile"],
        aliases: &["app"],
        values: "FILE",
        help: "read programs with their options from a file, one per line",
        effect: Effect::Take(|reading, given| {
            let path = Path::new(given.value());
            reading.inserted = Some(config_words(path).map_err(|text| given.mistake(text))?);
            Ok(())
        }),
    },
    Flag {
        names: &["usize"],
        aliases: &[],
        values: "SIZE",
        help: "universe: SYSTEM (slots), INFINITE or {limits} (default: ranks or slots)",
        effect: Effect::Take(|reading, given| {
            reading.options.universe = match given.value() {
                "SYSTEM" => Universe::Slots,
                "INFINITE" => Universe::Infinite,
                _ => Universe::Given(given.number()?),
            };
            Ok(())
        }),
    },
    Flag {
        names: &["arch"],
        aliases: &[],
        values: "NAME",
        help: "architecture of the hosts, which has to be that of this machine",
        effect: Effect::Take(|_, given| {
            let own = std::env::consts::ARCH;
            match given.value().replace('-', "_").contains(own) {
                true => Ok(()),
                false => Err(given.mistake(format!("the programs of a job are all for {own}"))),
            }
        }),
    },
];

/// Reads the words of a file with a program and its options in each line. Programs are separated by colons.
fn config_words(path: &Path) -> Result<Vec<OsString>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let lines = text.lines().map(|line| line.split_whitespace().map(OsString::from));
    let lines = lines.map(Iterator::collect::<Vec<_>>);
    let is_used = |words: &Vec<OsString>| {
        words.first().is_some_and(|word| !word.as_encoded_bytes().starts_with(b"#"))
    };
    let lines: Vec<_> = lines.filter(is_used).collect();
    if lines.is_empty() {
        return Err("names no program".into());
    }
    Ok(lines.join(&OsString::from(":")))
}
