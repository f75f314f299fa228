//! Descriptions of labs.

use std::time::Duration;

use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};

use crate::speed::speed;
use crate::wire::Conditions;

/// Sites, nodes and links of a lab. The default is the link Rennes–Nancy of the 2007 report.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// Name of the lab, letters and digits; labs of different names exist side by side
    #[arg(long, env = "CANELE_LAB", default_value = "lab", value_parser = name)]
    pub name: String,
    /// Number of sites, from 1 to 8
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=8))]
    pub sites: u32,
    /// Number of nodes per site, from 1 to 32
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=32))]
    pub nodes: u32,
    /// Network interfaces per node, from 1 to 4, each on its own LAN; the first also leads to other sites
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=4))]
    pub nics: u32,
    /// Round trip between sites, at most 10s, such as 11.6ms
    #[arg(long, help_heading = LINKS, default_value = "11.6ms", value_parser = duration)]
    pub rtt: Duration,
    /// Rate of links between sites, from 100kbit to 10Gbit, such as 1Gbit
    #[arg(long, help_heading = LINKS, default_value = "1Gbit", value_parser = rate)]
    pub wan_rate: u64,
    /// Rate of network interfaces, from 100kbit to 10Gbit, such as 1Gbit
    #[arg(long, help_heading = LINKS, default_value = "1Gbit", value_parser = rate)]
    pub lan_rate: u64,
    /// Buffer of links between sites, such as 2MB; packets that do not fit are dropped
    #[arg(long, help_heading = LINKS, default_value = "2MB", value_parser = bytes)]
    pub wan_buffer: u64,
    /// Largest TCP socket buffer (tcp_rmem, tcp_wmem), such as 4MB [default: the kernel's]
    #[arg(long, help_heading = LINKS, value_name = "BYTES", value_parser = bytes)]
    #[serde(default)]
    pub socket_max: Option<u64>,
    /// Share of packets lost between sites, below 100%, such as 0.1% or 0.001
    #[arg(long, help_heading = LINKS, default_value = "0", value_parser = share)]
    pub wan_loss: f64,
    /// Round trip between two sites, at most 10s, such as 0-2=40ms; may be repeated
    #[arg(long = "pair", help_heading = LINKS, value_name = "SITE-SITE=RTT", value_parser = pair)]
    pub pairs: Vec<Pair>,
    /// Site from 0 to 7 whose other nodes than the first are behind NAT; may be repeated
    #[arg(long = "private", value_name = "SITE", value_parser = value_parser!(u32).range(0..8))]
    pub private_sites: Vec<u32>,
    /// Cores whose processor time the nodes may use, in turn, from 0.1 to 1024, such as 1,0.6; further nodes
    /// repeat the list
    /// [default: all]
    #[arg(long = "speed", value_name = "LIST", value_delimiter = ',', value_parser = speed)]
    pub speeds: Vec<f64>,
    /// Seed of losses, duplicates and reordering
    #[arg(long, help_heading = LINKS, default_value_t = SEED)]
    pub seed: u64,
}

const LINKS: &str = "Links";

/// A pair of sites with a round trip of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The two sites.
    pub sites: [u32; 2],
    /// The round trip between them.
    pub rtt: Duration,
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
            socket_max: None,
            wan_loss: 0.0,
            pairs: Vec::new(),
            private_sites: Vec::new(),
            speeds: Vec::new(),
            seed: SEED,
        }
    }
}

impl Spec {
    /// Returns the host name of a node.
    pub fn host(&self, site: u32, node: u32) -> String {
        format!("site{site}-node{node}")
    }

    /// Returns the speed of a node, by its number over all sites; none is without limit.
    pub(crate) fn speed_of(&self, site: u32, node: u32) -> Option<f64> {
        let number = (site * self.nodes + node) as usize;
        self.speeds.get(number % self.speeds.len().max(1)).copied()
    }

    /// Checks that all named sites exist, and that the machine has the processor time that nodes may use.
    ///
    /// # Errors
    /// Names the site that does not exist, or the lack of cores.
    pub fn check(&self) -> Result<(), String> {
        let places = (0..self.sites).flat_map(|site| (0..self.nodes).map(move |node| (site, node)));
        let wanted: f64 = places.filter_map(|(site, node)| self.speed_of(site, node)).sum();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        if wanted > cores as f64 {
            let text =
                format!("--speed: the nodes want {wanted} cores together, and there are {cores}");
            return Err(text);
        }
        let named = self.pairs.iter().flat_map(|pair| pair.sites).chain(self.private_sites.clone());
        match named.into_iter().find(|site| *site >= self.sites) {
            Some(site) => Err(format!("there is no site {site}: there are {}", self.sites)),
            None => Ok(()),
        }
    }

    /// Returns the round trip between two sites.
    pub fn rtt_between(&self, one: u32, other: u32) -> Duration {
        let is_it = |pair: &&Pair| pair.sites == [one, other] || pair.sites == [other, one];
        self.pairs.iter().rfind(is_it).map_or(self.rtt, |pair| pair.rtt)
    }

    /// Returns the initial conditions of the link from one site to another.
    pub fn conditions(&self, from: u32, to: u32) -> Conditions {
        Conditions {
            rate_bits_per_s: self.wan_rate,
            delay: self.rtt_between(from, to) / 2,
            buffer_bytes: self.wan_buffer,
            loss: self.wan_loss,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: REORDER_DELAY,
            mtu_bytes: ETHERNET_MTU_BYTES,
            is_udp_forbidden: false,
            is_tcp_forbidden: false,
        }
    }

    /// Returns every direction between two sites, in the order of their queues.
    pub fn directions(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let sites = self.sites;
        let pairs = (0..sites).flat_map(move |from| (0..sites).map(move |to| (from, to)));
        pairs.filter(|(from, to)| from != to)
    }

    /// Returns the subnet of one of a site's LANs.
    pub fn subnet(&self, site: u32, nic: u32) -> String {
        format!("10.{}.{site}.0/24", FIRST_LAN + nic)
    }

    /// Returns the address of a node on one of its LANs.
    pub fn address(&self, site: u32, node: u32, nic: u32) -> String {
        format!("10.{}.{site}.{}", FIRST_LAN + nic, node + 10)
    }
}

/// Second byte of the addresses on first LANs; second LANs have the next number.
const FIRST_LAN: u32 = 77;

/// Returns the name of the bridge of a site's LAN. Rules for links between sites match the name of the first LAN's bridge.
pub(crate) fn lan(site: u32, nic: u32) -> String {
    if nic == 0 { format!("site{site}") } else { format!("site{site}-lan{nic}") }
}

/// Returns the name of the router's end of a node's cable.
pub(crate) fn port(site: u32, node: u32, nic: u32) -> String {
    format!("p{site}-{node}-{nic}")
}

/// Default seed of losses.
const SEED: u64 = 0x9e37_79b9;
/// Extra delay of reordered packets, some eighty packets at 1 Gb/s.
const REORDER_DELAY: Duration = Duration::from_millis(1);
const ETHERNET_MTU_BYTES: u32 = 1500;

/// Parses a lab's name.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= 8
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fits { Ok(text.into()) } else { Err("a name has 1 to 8 letters and digits".into()) }
}

/// Reads a share: a number from 0 to 1, or with `%`.
///
/// # Errors
/// Fails for a text that is neither.
pub fn share(text: &str) -> Result<f64, String> {
    let (digits, factor) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 0.01));
    let share = digits.parse().ok().map(|number: f64| number * factor);
    let share = share.filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 to 1, or with %, such as 0.1%".into())
}

/// Parses a round trip between two sites: `0-2=40ms`.
///
/// # Errors
/// Returns the expected format.
pub fn pair(text: &str) -> Result<Pair, String> {
    let wrong = || "not like 0-2=40ms".to_owned();
    let (sites, rtt) = text.split_once('=').ok_or_else(wrong)?;
    let (one, other) = sites.split_once('-').ok_or_else(wrong)?;
    let sites = [one, other].map(|site| site.parse().ok());
    let [Some(one), Some(other)] = sites else { return Err(wrong()) };
    if one == other {
        return Err("a pair has two sites".into());
    }
    Ok(Pair { sites: [one, other], rtt: duration(rtt)? })
}

fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|byte: char| byte.is_ascii_alphabetic())?;
    let number: f64 = text[..at].parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some((number, &text[at..]))
}

/// Parses a number with one of these units; `what` is an example.
fn quantity(text: &str, units: &[(&str, f64)], what: &str) -> Result<f64, String> {
    let factor = |unit: &str| units.iter().find(|(known, _)| *known == unit).map(|(_, f)| f);
    split(text)
        .and_then(|(number, unit)| Some(number * factor(unit)?))
        .ok_or_else(|| format!("not like {what}"))
}

/// Reads a short time: a number of `s`, `ms` or `us`.
///
/// # Errors
/// Fails for a text that is no duration, or longer than ten seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    time(text, 10.0)
}

/// Parses the length of a cut or a flow.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    time(text, 3600.0)
}

fn time(text: &str, most_s: f64) -> Result<Duration, String> {
    let seconds = quantity(text, &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6)], "11.6ms")?;
    if seconds > most_s {
        return Err(format!("longer than {most_s}s"));
    }
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// Reads a rate, in bits per second: a number of `Gbit`, `Mbit` or `kbit`.
///
/// # Errors
/// Fails for a text that is no rate, or one that no lab reaches.
pub fn rate(text: &str) -> Result<u64, String> {
    let rate = quantity(text, &[("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3)], "1Gbit")? as u64;
    match rate {
        ..100_000 => Err("less than 100kbit".into()),
        10_000_000_001.. => Err("more than 10Gbit".into()),
        rate => Ok(rate),
    }
}

/// Reads a number of bytes, of `MB`, `kB` or `B`.
///
/// # Errors
/// Fails for a text that is no size.
pub fn bytes(text: &str) -> Result<u64, String> {
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
    fn pairs_and_shares_are_read() {
        let spec = parse("--sites 3 --pair 0-2=40ms --private 1 --wan-loss 0.1%").unwrap();
        assert_eq!(spec.check(), Ok(()));
        assert!((spec.wan_loss - 0.001).abs() < 1e-12);
        let delays = [(0, 1), (0, 2), (2, 0)].map(|(from, to)| spec.conditions(from, to).delay);
        assert_eq!(delays, [5800, 20_000, 20_000].map(Duration::from_micros));
        assert_eq!(spec.directions().count(), 6);
        for line in ["--pair 0-5=1ms", "--private 2"] {
            let text = parse(line).unwrap().check().unwrap_err();
            assert!(text.contains("there are 2"), "{text}");
        }
    }

    #[test]
    fn speeds_repeat_and_are_no_more_than_the_machine_has() {
        let spec = parse("--speed 0.3,0.1").unwrap();
        let speeds = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(site, node)| spec.speed_of(site, node));
        assert_eq!(speeds, [0.3, 0.1, 0.3, 0.1].map(Some));
        assert_eq!((spec.check(), parse("").unwrap().speed_of(1, 0)), (Ok(()), None));
        let text = parse("--speed 1000").unwrap().check().unwrap_err();
        assert!(text.contains("4000 cores"), "{text}");
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
            "--wan-loss 200%",
            "--pair 0-0=1ms",
            "--pair 0=1ms",
            "--speed 0",
            "--frob 1",
            "--rtt",
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(line.split_whitespace().next().unwrap()), "{error}");
        }
    }
}
