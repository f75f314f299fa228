//! What a lab is to be like.

use std::time::Duration;

use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};

/// Sites, nodes and links. The default is Rennes–Nancy of the 2007 report.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// Its name, letters and digits: labs of different names stand side by side
    #[arg(long, env = "CANELE_LAB", default_value = "lab", value_parser = name)]
    pub name: String,
    /// Number of sites
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=8))]
    pub sites: u32,
    /// Nodes in each site
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=32))]
    pub nodes: u32,
    /// Network interfaces of each node, every one on a LAN of its own; the first also leads to other sites
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=4))]
    pub nics: u32,
    /// Round trip between sites, such as 11.6ms
    #[arg(long, default_value = "11.6ms", value_parser = duration)]
    pub rtt: Duration,
    /// Rate of the link between sites, such as 1Gbit
    #[arg(long, default_value = "1Gbit", value_parser = rate)]
    pub wan_rate: u64,
    /// Rate of every network interface, such as 1Gbit
    #[arg(long, default_value = "1Gbit", value_parser = rate)]
    pub lan_rate: u64,
    /// Buffer in front of the link between sites, such as 2MB; what does not fit is dropped
    #[arg(long, default_value = "2MB", value_parser = bytes)]
    pub wan_buffer: u64,
    /// Share of packets lost between sites, from 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub wan_loss: f64,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            name: "lab".into(),
            sites: 2,
            nodes: 2,
            nics: 1,
            rtt: Duration::from_micros(11_600),
            wan_rate: 1_000_000_000,
            lan_rate: 1_000_000_000,
            wan_buffer: 2_000_000,
            wan_loss: 0.0,
        }
    }
}

impl Spec {
    /// The host name of a node.
    pub fn host(&self, site: u32, node: u32) -> String {
        format!("site{site}-node{node}")
    }

    /// The address of a node on one of its LANs.
    pub fn address(&self, site: u32, node: u32, nic: u32) -> String {
        format!("10.{}.{site}.{}", FIRST_LAN + nic, node + 10)
    }
}

/// Second number of the addresses on first LANs; those on second LANs have the next.
const FIRST_LAN: u32 = 77;

/// A lab's name.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= 8
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fits { Ok(text.into()) } else { Err("a name has 1 to 8 letters and digits".into()) }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 to 1".into())
}

fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|byte: char| byte.is_ascii_alphabetic())?;
    let number: f64 = text[..at].parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some((number, &text[at..]))
}

/// A number with one of these units; `what` is an example.
fn quantity(text: &str, units: &[(&str, f64)], what: &str) -> Result<f64, String> {
    let factor = |unit: &str| units.iter().find(|(known, _)| *known == unit).map(|(_, f)| f);
    split(text)
        .and_then(|(number, unit)| Some(number * factor(unit)?))
        .ok_or_else(|| format!("not like {what}"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds = quantity(text, &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6)], "11.6ms")?;
    if seconds > 10.0 {
        return Err("longer than 10s".into());
    }
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

fn rate(text: &str) -> Result<u64, String> {
    let rate = quantity(text, &[("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3)], "1Gbit")? as u64;
    if rate < 8_000 { Err("less than 8kbit".into()) } else { Ok(rate) }
}

fn bytes(text: &str) -> Result<u64, String> {
    Ok(quantity(text, &[("MB", 1e6), ("kB", 1e3), ("B", 1.0)], "2MB")? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        spec: Spec,
    }

    fn parse(line: &str) -> Result<Spec, clap::Error> {
        Line::try_parse_from(["up"].into_iter().chain(line.split_whitespace()))
            .map(|line| line.spec)
    }

    #[test]
    fn the_default_is_what_the_options_say() {
        assert_eq!(parse("--name lab").unwrap(), Spec::default());
    }

    #[test]
    fn units_are_read() {
        let line =
            "--rtt 0.5ms --wan-rate 100Mbit --wan-buffer 64kB --wan-loss 0.01 --sites 3 --nics 2";
        let spec = parse(line).unwrap();
        assert_eq!((spec.rtt, spec.wan_rate), (Duration::from_micros(500), 100_000_000));
        assert_eq!((spec.wan_buffer, spec.wan_loss, spec.sites), (64_000, 0.01, 3));
        assert_eq!(spec.nics, 2);
    }

    #[test]
    fn no_two_interfaces_have_the_same_address() {
        let spec = parse("--sites 8 --nodes 32 --nics 4").unwrap();
        let mut seen = std::collections::HashSet::new();
        for (site, node, nic) in (0..8)
            .flat_map(|site| (0..32).map(move |node| (site, node)))
            .flat_map(|(site, node)| (0..4).map(move |nic| (site, node, nic)))
        {
            assert!(seen.insert(spec.address(site, node, nic)), "{site} {node} {nic}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for line in [
            "--rtt 5",
            "--wan-rate fast",
            "--sites 0",
            "--nics 5",
            "--wan-loss 2",
            "--frob 1",
            "--rtt",
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(line.split_whitespace().next().unwrap()), "{error}");
        }
    }
}
