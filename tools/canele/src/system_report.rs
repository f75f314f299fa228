//! `canele info --system`: settings of this system that cost much, each with the command that mends it.

use std::path::Path;

use cost::Cost;
use rail_quic::QuicNeeds;

use crate::units::size;

/// Report on this system.
pub fn text() -> String {
    let cores = topo::processor::cores();
    let root = Path::new("/");
    Facts { allowed: cores.allowed.len(), machine: cores.machine, ..Facts::at(root) }.text()
}

/// Settings of a system, as far as it tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    /// `tcp_wmem` and `tcp_rmem`: least, first and largest buffer of a socket.
    tcp: [Option<[u64; 3]>; 2],
    /// Largest buffers of UDP sockets: `wmem_max` and `rmem_max`.
    udp: [Option<u64>; 2],
    /// Names of the congestion controls that are loaded.
    congestion: Option<String>,
    /// True if connections lose their congestion window while they are silent.
    restarts: bool,
    /// Restriction on reading the memory of other processes of the same user (Yama).
    ptrace_scope: Option<u64>,
    /// True if this process may read any memory, whatever the restriction.
    may_read_all: bool,
    /// Hard limit of open files.
    files: Option<u64>,
    /// Number of cores that this process may run on.
    allowed: usize,
    /// Number of cores of the machine.
    machine: usize,
}

/// A setting.
struct Row {
    name: &'static str,
    value: String,
    /// Effect and command, if the setting costs something.
    advice: Option<(String, String)>,
}

impl Facts {
    /// Reads the settings below `root`.
    fn at(root: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse().ok();
        let three = |name: &str| {
            let numbers =
                read(name)?.split_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>();
            numbers.ok()?.try_into().ok()
        };
        let of = |file: &str, title: &str| {
            let text = read(file)?;
            let line = text.lines().find_map(|line| line.strip_prefix(title))?.to_owned();
            Some(line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let capabilities = of("proc/self/status", "CapEff:");
        let capabilities =
            capabilities.and_then(|words| u64::from_str_radix(words.first()?, 16).ok());
        let limits = of("proc/self/limits", "Max open files");
        let restarts = number("proc/sys/net/ipv4/tcp_slow_start_after_idle");
        Self {
            tcp: ["tcp_wmem", "tcp_rmem"].map(|name| three(&format!("proc/sys/net/ipv4/{name}"))),
            udp: ["wmem_max", "rmem_max"].map(|name| number(&format!("proc/sys/net/core/{name}"))),
            congestion: read("proc/sys/net/ipv4/tcp_available_congestion_control"),
            restarts: restarts != Some(0),
            ptrace_scope: number("proc/sys/kernel/yama/ptrace_scope"),
            may_read_all: capabilities.is_some_and(|bits| bits & CAP_SYS_PTRACE != 0),
            files: limits.and_then(|words| words.get(1)?.parse().ok()),
            allowed: 0,
            machine: 0,
        }
    }

    fn text(&self) -> String {
        let rows: Vec<Row> =
            [self.sockets(), self.datagrams(), self.others()].into_iter().flatten().collect();
        let costly = rows.iter().filter(|row| row.advice.is_some()).count();
        let mut text = String::from("system\n");
        for Row { name, value, advice } in &rows {
            let state = if advice.is_some() { "costs" } else { "ok" };
            text += &format!("  {name:<22} {value:>10}  {state}\n");
            if let Some((effect, command)) = advice {
                text += &format!("      {effect}\n      {command}\n");
            }
        }
        let conclusion = match costly {
            0 => "nothing here costs much".to_owned(),
            count => format!(
                "settings that cost much: {count} of {}; the commands are for root",
                rows.len()
            ),
        };
        text + &format!("{conclusion}\n")
    }

    /// Buffers of TCP on a far link.
    fn sockets(&self) -> Vec<Row> {
        let far = far();
        let carried = far.bytes_within(2 * far.latency_ns());
        let names = ["net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem"];
        // The kernel advertises half of a receive buffer as window; it needs the rest itself.
        let needed = [2 * carried, 2 * carried];
        let rows = names.into_iter().zip(self.tcp).zip(needed);
        let row = |((name, found), needed): ((_, Option<[u64; 3]>), u64)| {
            let [least, first, most] = found?;
            let advice = (most < needed).then(|| {
                (
                    format!("one link carries at most {} Mbit/s over {FAR}", mbit(most / 2)),
                    format!("sysctl -w {name}=\"{least} {first} {}\"", needed.next_power_of_two()),
                )
            });
            Some(Row { name, value: size(most), advice })
        };
        rows.filter_map(row).collect()
    }

    /// Buffers of QUIC's sockets on a far link.
    fn datagrams(&self) -> Vec<Row> {
        let needs = QuicNeeds::of(&far());
        let effects = [
            "what leaves in a millisecond waits for the next look",
            "what comes while a process is late is lost, and sent again",
        ];
        let names = ["net.core.wmem_max", "net.core.rmem_max"];
        let rows = names.into_iter().zip(self.udp).zip([needs.send, needs.receive]).zip(effects);
        let row = |(((name, found), needed), effect): (((_, Option<u64>), u64), &str)| {
            let found = found?;
            let advice = (found < needed).then(|| {
                (format!("QUIC at 1 Gbit/s: {effect}"), format!("sysctl -w {name}={needed}"))
            });
            Some(Row { name, value: size(found), advice })
        };
        rows.filter_map(row).collect()
    }

    fn others(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        if let Some(names) = &self.congestion {
            let has_bbr = names.split_whitespace().any(|name| name == "bbr");
            let effect = match self.restarts {
                true => {
                    "TCP between sites halves its rate at each loss, and begins anew after silence"
                }
                false => "TCP between sites halves its rate at each loss",
            };
            let advice = (!has_bbr).then(|| (effect.into(), "modprobe tcp_bbr".into()));
            rows.push(Row {
                name: "congestion control",
                value: names.trim().replace(' ', ","),
                advice,
            });
        }
        if let Some(scope) = self.ptrace_scope {
            let advice = (scope > 0 && !self.may_read_all).then(|| {
                (
                    "ranks may not read each other's memory (CMA): a sender that computes delays long messages"
                        .into(),
                    "sysctl -w kernel.yama.ptrace_scope=0".into(),
                )
            });
            rows.push(Row { name: "kernel.yama.ptrace_scope", value: scope.to_string(), advice });
        }
        if let Some(files) = self.files {
            let advice = (files < FILES_MIN).then(|| {
                (
                    "each rank of a large job has several files for each peer".into(),
                    format!("ulimit -Hn {FILES_MIN}, or a line in /etc/security/limits.d"),
                )
            });
            rows.push(Row { name: "open files (hard limit)", value: files.to_string(), advice });
        }
        if self.allowed > 0 {
            let advice = (self.allowed == 1).then(|| {
                let command = match self.machine {
                    0 | 1 => "mpiexec -hosts A,B spreads ranks over machines".into(),
                    cores => format!("taskset -pc 0-{} $$", cores - 1),
                };
                (
                    "ranks take turns on the one core, and each message costs a switch".into(),
                    command,
                )
            });
            let value = format!("{} of {}", self.allowed, self.machine);
            rows.push(Row { name: "cores", value, advice });
        }
        rows
    }
}

/// A far link by which settings are judged.
fn far() -> Cost {
    Cost::linear(25_000_000, 2_000, 125_000_000)
}

/// Rate in Mbit/s of a link that carries these bytes in a round trip of [`far`].
fn mbit(bytes: u64) -> u64 {
    bytes * 8 / 50_000
}

/// The round trip of [`far`].
const FAR: &str = "a round trip of 50 ms";
/// Bit of `CAP_SYS_PTRACE`.
const CAP_SYS_PTRACE: u64 = 1 << 19;
/// Number of open files that suffices for some hundred ranks.
const FILES_MIN: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            tcp: [Some([4096, 16384, 64 << 20]); 2],
            udp: [Some(64 << 20); 2],
            congestion: Some("reno cubic bbr\n".into()),
            restarts: false,
            ptrace_scope: Some(0),
            may_read_all: false,
            files: Some(1 << 20),
            allowed: 2,
            machine: 2,
        }
    }

    #[test]
    fn a_good_system_has_no_advice() {
        let text = good().text();
        assert!(text.ends_with("\nnothing here costs much\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.ends_with("  ok")).count(), 8, "{text}");
        assert!(Facts::default().text().ends_with("nothing here costs much\n"));
    }

    #[test]
    fn each_costly_setting_has_its_command() {
        let bad = [
            (
                Facts { tcp: [Some([4096, 16384, 4 << 20]), None], ..good() },
                "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 16777216\"",
            ),
            (
                Facts { tcp: [None, Some([4096, 131072, 6 << 20])], ..good() },
                "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 16777216\"",
            ),
            (Facts { udp: [None, Some(212_992)], ..good() }, "sysctl -w net.core.rmem_max="),
            (Facts { udp: [Some(10_000), None], ..good() }, "sysctl -w net.core.wmem_max="),
            (Facts { congestion: Some("reno cubic\n".into()), ..good() }, "modprobe tcp_bbr"),
            (Facts { ptrace_scope: Some(1), ..good() }, "sysctl -w kernel.yama.ptrace_scope=0"),
            (Facts { files: Some(1024), ..good() }, "ulimit -Hn 4096"),
            (Facts { allowed: 1, machine: 8, ..good() }, "taskset -pc 0-7 $$"),
            (Facts { allowed: 1, machine: 1, ..good() }, "mpiexec -hosts"),
        ];
        for (facts, command) in bad {
            let text = facts.text();
            assert!(text.contains(command), "{text}");
            assert_eq!(text.lines().filter(|line| line.ends_with("  costs")).count(), 1, "{text}");
            assert!(text.contains("1 of "), "{text}");
        }
        let root = Facts { ptrace_scope: Some(1), may_read_all: true, ..good() };
        assert!(!root.text().contains("yama.ptrace_scope=0"));
    }

    #[test]
    fn settings_are_read_as_the_kernel_writes_them() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join("proc").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
        write("sys/net/ipv4/tcp_rmem", "nonsense\n");
        write("sys/net/core/rmem_max", "212992\n");
        write("sys/net/ipv4/tcp_slow_start_after_idle", "0\n");
        write("self/status", "Name:\tx\nCapEff:\t0000000000080000\n");
        write(
            "self/limits",
            "Limit   Soft  Hard  Units\nMax open files            1024                 524288               files\n",
        );
        let found = Facts::at(root.path());
        let expected = Facts {
            tcp: [Some([4096, 16384, 4_194_304]), None],
            udp: [None, Some(212_992)],
            may_read_all: true,
            files: Some(524_288),
            ..Facts::default()
        };
        assert_eq!(found, expected);
    }
}
