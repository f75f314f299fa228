//! Options for the host and the cores of each rank.

use super::flag::{Effect, Flag};
use crate::binding::Binding;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        names: &["bind-to"],
        aliases: &["binding"],
        values: "WHAT",
        help: "none, hwthread, core, core:2, l1cache, l2cache, l3cache, numa, socket, rr, user:0+2",
        effect: Effect::Take(|reading, given| {
            let parsed = Binding::parse(given.value()).map_err(|text| given.mistake(text))?;
            reading.options.binding = parsed;
            Ok(())
        }),
    },
    Flag {
        names: &["map-by"],
        aliases: &[],
        values: "WHAT",
        help: "slot, node, ppr:2:node; objects such as socket order bound ranks",
        effect: Effect::Take(|reading, given| {
            let mapping = &mut reading.options.mapping;
            mapping.map_by(given.value()).map_err(|text| given.mistake(text))
        }),
    },
    Flag {
        names: &["rank-by"],
        aliases: &[],
        values: "WHAT",
        help: "slot: number ranks host by host; node: in turns; objects order bound ranks",
        effect: Effect::Take(|reading, given| {
            let mapping = &mut reading.options.mapping;
            mapping.rank_by(given.value()).map_err(|text| given.mistake(text))
        }),
    },
    Flag {
        names: &["report-bindings"],
        aliases: &[],
        values: "",
        help: "print the processors that each rank may use",
        effect: Effect::Take(|reading, _| {
            reading.options.reports_bindings = true;
            Ok(())
        }),
    },
    Flag {
        names: &["print-rank-map"],
        aliases: &["display-map"],
        values: "",
        help: "print the ranks of each host",
        effect: Effect::Take(|reading, _| {
            reading.options.prints_map = true;
            Ok(())
        }),
    },
    Flag {
        names: &["record"],
        aliases: &[],
        values: "FILE",
        help: "record the bytes that ranks send each other",
        effect: Effect::Take(|reading, given| {
            reading.options.record = Some(given.value().into());
            Ok(())
        }),
    },
    Flag {
        names: &["place"],
        aliases: &[],
        values: "FILE",
        help: "place ranks by a recorded file",
        effect: Effect::Take(|reading, given| {
            reading.options.pattern = Some(given.value().into());
            Ok(())
        }),
    },
];
