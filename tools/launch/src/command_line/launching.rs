//! Options for starting and ending the job.

use super::flag::{Effect, Flag, Text, set};
use crate::launcher::{self, Launcher};

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        names: &["launcher"],
        aliases: &["rmk", "bootstrap"],
        values: "NAME",
        help: "start agents by ssh, rsh, slurm or fork",
        effect: Effect::Take(|reading, given| {
            reading.options.launcher = Some(launcher::named(given.value())?);
            Ok(())
        }),
    },
    Flag {
        names: &["launcher-exec"],
        aliases: &["bootstrap-exec", "launch-agent"],
        values: "CMD",
        help: "start agents by the command CMD HOST AGENT",
        effect: Effect::Take(|reading, given| {
            reading.launcher_exec = Some(Launcher::by_command(given.value()));
            Ok(())
        }),
    },
    Flag {
        names: &["prefix"],
        aliases: &[],
        values: "DIR",
        help: "folder of Canele on other hosts (default: as here)",
        effect: Effect::Take(|reading, given| {
            reading.options.prefix = Some(given.value().trim_end_matches('/').to_owned());
            Ok(())
        }),
    },
    Flag {
        names: &["localhost"],
        aliases: &[],
        values: "NAME",
        help: "name of this machine among the hosts",
        effect: Effect::Take(|reading, given| {
            reading.options.own_name = Some(given.value().to_owned());
            Ok(())
        }),
    },
    Flag {
        names: &["iface"],
        aliases: &[],
        values: "NAME",
        help: "network interface of TCP and QUIC",
        effect: Effect::Take(|reading, given| {
            set(reading, &settings::IFACE, given.value());
            Ok(())
        }),
    },
    Flag {
        names: &["encrypt"],
        aliases: &[],
        values: "WHICH",
        help: "encrypt TCP between sites, all TCP, or none: sites, all, none",
        effect: Effect::Take(|reading, given| {
            let which = given.value();
            if !ENCRYPTED.contains(&which) {
                return Err(given.mistake(format!("not one of {}", ENCRYPTED.join(", "))));
            }
            set(reading, &settings::ENCRYPT, which);
            Ok(())
        }),
    },
    Flag {
        names: &["disable-auto-cleanup"],
        aliases: &["enable-recovery", "dac"],
        values: "",
        help: "continue when a rank fails, for programs that handle errors",
        effect: Effect::Take(|reading, _| {
            reading.options.recovers = true;
            Ok(())
        }),
    },
    Flag {
        names: &["with-ft"],
        aliases: &[],
        values: "WHICH",
        help: "the same, as users of Open MPI know it: ulfm, or none for the default",
        effect: Effect::Take(|reading, given| {
            reading.options.recovers = match given.value() {
                "ulfm" | "mpi" | "true" | "yes" | "1" => true,
                "none" | "false" | "no" | "0" => false,
                _ => return Err(given.mistake("neither ulfm nor none")),
            };
            Ok(())
        }),
    },
    Flag {
        names: &["enable-auto-cleanup"],
        aliases: &["disable-recovery"],
        values: "",
        help: "end the job when a rank fails (default)",
        effect: Effect::Take(|reading, _| {
            reading.options.recovers = false;
            Ok(())
        }),
    },
    Flag {
        names: &["timeout"],
        aliases: &[],
        values: "SECONDS",
        help: "time limit, {limits}; prints where ranks wait (default: MPIEXEC_TIMEOUT)",
        effect: Effect::Take(|reading, given| {
            reading.options.timeout_s = Some(u64::from(given.number()?));
            Ok(())
        }),
    },
    Flag {
        names: &["wait"],
        aliases: &[],
        values: "SECONDS",
        help: "longest wait for hosts of a -grid from Slurm, {limits} (default: any)",
        effect: Effect::Take(|reading, given| {
            reading.options.wait_s = Some(u64::from(given.number()?));
            Ok(())
        }),
    },
    Flag {
        names: &["V", "version"],
        aliases: &["info"],
        values: "",
        help: "print the version",
        effect: Effect::Take(|reading, _| {
            reading.text = Some(Text::Version);
            Ok(())
        }),
    },
    Flag {
        names: &["h", "help"],
        aliases: &["?"],
        values: "[TOPIC]",
        help: "print this help, or all about a topic or an option",
        effect: Effect::Take(|reading, given| {
            reading.text = Some(Text::Help(given.values.first().cloned()));
            Ok(())
        }),
    },
];

/// Values of `-encrypt`.
const ENCRYPTED: [&str; 3] = ["sites", "all", "none"];
