//! Order of ranks on hosts and on their cores (`-map-by`, `-rank-by`).

use crate::binding::{Binding, Domain};
use crate::usage::number;

/// Order of ranks among hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// True if consecutive places are on different hosts.
    pub(crate) by_host: bool,
    /// Numbering of the places, if it differs from their order.
    pub(crate) numbering: Option<Numbering>,
    /// Domains that consecutive bound ranks take in turns.
    pub(crate) order: Option<Domain>,
    /// Ranks per host.
    pub(crate) per_host: Option<u32>,
    /// Cores of each rank.
    pub(crate) binding: Option<Binding>,
}

/// Numbering of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// All ranks of a host are consecutive.
    HostByHost,
    /// Consecutive ranks are on different hosts.
    InTurns,
}

impl Mapping {
    /// Reads the value of `-map-by`: an object, and modifiers behind colons.
    ///
    /// # Errors
    /// Fails for anything else; the text continues "-map-by VALUE: …".
    pub(crate) fn map_by(&mut self, value: &str) -> Result<(), String> {
        let value = value.to_ascii_lowercase();
        let mut words = value.split(':');
        match words.next().unwrap_or("") {
            "slot" => self.by_host = false,
            "node" | "host" => self.by_host = true,
            "ppr" => {
                let [count, object] = [words.next(), words.next()].map(Option::unwrap_or_default);
                if !matches!(object, "node" | "host") {
                    return Err("ranks are counted per host: use ppr:N:node or -ppn N".into());
                }
                self.per_host = Some(number("map-by ppr", count).map_err(|error| error.0)?);
            }
            object => self.order = Some(Domain::parse(object).ok_or_else(|| unknown(OBJECTS))?),
        }
        for word in words {
            match word.split_once('=') {
                Some(("pe", count)) => {
                    let count = number("map-by pe", count).map_err(|error| error.0)?;
                    self.binding = Some(Binding::Domains { of: Domain::Core, count });
                }
                None if MODIFIERS.contains(&word) => {}
                None if word.parse::<u32>().is_ok_and(|count| count == 1) => {}
                _ => return Err(format!("the modifier {word} is not understood")),
            }
        }
        Ok(())
    }

    /// Reads the value of `-rank-by`.
    ///
    /// # Errors
    /// Fails for anything else; the text continues "-rank-by VALUE: …".
    pub(crate) fn rank_by(&mut self, value: &str) -> Result<(), String> {
        let value = value.to_ascii_lowercase();
        match value.split(':').next().unwrap_or("") {
            "slot" | "fill" => self.numbering = Some(Numbering::HostByHost),
            "node" | "host" => self.numbering = Some(Numbering::InTurns),
            object => {
                self.order = Some(Domain::parse(object).ok_or_else(|| unknown(OBJECTS))?);
                self.numbering = Some(Numbering::HostByHost);
            }
        }
        Ok(())
    }

    /// Returns the host of each of `size` ranks, for hosts with these numbers of slots. They are filled again from the
    /// first when ranks are left.
    pub(crate) fn hosts(&self, size: usize, slots: &[u32]) -> Vec<usize> {
        let one_round: Vec<usize> = match self.by_host {
            false => (0..slots.len()).flat_map(|host| vec![host; slots[host] as usize]).collect(),
            true => in_turns(slots.to_vec()),
        };
        let mut hosts: Vec<usize> = one_round.into_iter().cycle().take(size).collect();
        match self.numbering {
            None => {}
            Some(Numbering::HostByHost) => hosts.sort_unstable(),
            Some(Numbering::InTurns) => {
                let mut counts = vec![0; slots.len()];
                hosts.iter().for_each(|host| counts[*host] += 1);
                hosts = in_turns(counts);
            }
        }
        hosts
    }
}

/// Returns each host as often as it is to be, with one of each host in every turn.
fn in_turns(mut counts: Vec<u32>) -> Vec<usize> {
    let mut hosts = Vec::new();
    while counts.iter().any(|count| *count > 0) {
        for (host, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            *count -= 1;
            hosts.push(host);
        }
    }
    hosts
}

fn unknown(known: &str) -> String {
    format!("not one of {known}")
}

const OBJECTS: &str =
    "slot, node, hwthread, core, l1cache, l2cache, l3cache, numa, socket, machine";

/// Modifiers of other launchers for what holds anyway.
const MODIFIERS: [&str; 4] = ["oversubscribe", "nooversubscribe", "span", "hwtcpus"];

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(map: &str, rank: &str) -> Mapping {
        let mut mapping = Mapping::default();
        if !map.is_empty() {
            mapping.map_by(map).unwrap();
        }
        if !rank.is_empty() {
            mapping.rank_by(rank).unwrap();
        }
        mapping
    }

    #[test]
    fn ranks_go_to_hosts_as_mapped_and_numbered() {
        for (map, rank, expected) in [
            ("", "", [0, 0, 0, 1, 1, 0]),
            ("slot", "", [0, 0, 0, 1, 1, 0]),
            ("node", "", [0, 1, 0, 1, 0, 0]),
            ("NODE:OVERSUBSCRIBE", "slot", [0, 0, 0, 0, 1, 1]),
            ("slot", "node", [0, 1, 0, 1, 0, 0]),
            ("core", "core", [0, 0, 0, 0, 1, 1]),
        ] {
            let hosts = mapping(map, rank).hosts(6, &[3, 2]);
            assert_eq!(hosts, expected, "-map-by {map} -rank-by {rank}");
        }
    }

    #[test]
    fn objects_and_modifiers_are_read() {
        let given = mapping("socket:PE=2", "");
        assert_eq!(given.order, Some(Domain::Package));
        assert_eq!(given.binding, Some(Binding::Domains { of: Domain::Core, count: 2 }));
        assert_eq!(mapping("ppr:3:node", "").per_host, Some(3));
        assert_eq!(mapping("slot", "numa").order, Some(Domain::Numa));
        let mistake = |value: &str| Mapping::default().map_by(value).unwrap_err();
        assert!(mistake("ppr:2:socket").contains("-ppn N"));
        assert!(mistake("pony").starts_with("not one of slot, node"));
        assert!(mistake("core:pe=x").contains("x: not a positive number"));
        assert!(mistake("core:pony").contains("pony"));
        assert!(Mapping::default().rank_by("pony").is_err());
    }
}
