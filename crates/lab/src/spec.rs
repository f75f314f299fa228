//! What a lab is to be like.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Sites, nodes and links. The default is Rennes–Nancy of the 2007 report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name: labs of different names stand side by side.
    pub name: String,
    /// Number of sites.
    pub sites: u32,
    /// Nodes in each site.
    pub nodes: u32,
    /// Round trip between sites.
    pub rtt: Duration,
    /// Rate of the link between sites, in bits per second.
    pub wan_rate: u64,
    /// Rate of every node's link, in bits per second.
    pub lan_rate: u64,
    /// Buffer in front of the link between sites, in bytes; what does not fit is dropped.
    pub wan_buffer: u64,
    /// Share of packets lost between sites.
    pub wan_loss: f64,
}

/// What is wrong with a lab's option.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct SpecError(pub String);

impl Default for Spec {
    fn default() -> Self {
        Self {
            name: "lab".into(),
            sites: 2,
            nodes: 2,
            rtt: Duration::from_micros(11_600),
            wan_rate: 1_000_000_000,
            lan_rate: 1_000_000_000,
            wan_buffer: 2_000_000,
            wan_loss: 0.0,
        }
    }
}

impl Spec {
    /// Reads options, `--rtt 11.6ms` and so on.
    ///
    /// # Errors
    /// For an unknown option, or a value that makes no sense; the text names both.
    pub fn parse(arguments: &[String]) -> Result<Self, SpecError> {
        let mut spec = Self::default();
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or_else(|| SpecError(format!("{option} needs a value")))?;
            let wrong = |what| SpecError(format!("{option} {value}: {what}"));
            match option.as_str() {
                "--name" => {
                    spec.name = name(value).ok_or_else(|| wrong("letters and digits only"))?
                }
                "--sites" => spec.sites = within(value, 1, 8).ok_or_else(|| wrong("1 to 8"))?,
                "--nodes" => spec.nodes = within(value, 1, 32).ok_or_else(|| wrong("1 to 32"))?,
                "--rtt" => {
                    spec.rtt = duration(value).ok_or_else(|| wrong("a time such as 11.6ms"))?;
                }
                "--wan-rate" => {
                    spec.wan_rate = rate(value).ok_or_else(|| wrong("a rate such as 1Gbit"))?;
                }
                "--lan-rate" => {
                    spec.lan_rate = rate(value).ok_or_else(|| wrong("a rate such as 1Gbit"))?;
                }
                "--wan-buffer" => {
                    spec.wan_buffer = bytes(value).ok_or_else(|| wrong("a size such as 2MB"))?;
                }
                "--wan-loss" => {
                    let loss = value.parse().ok().filter(|loss| (0.0..1.0).contains(loss));
                    spec.wan_loss = loss.ok_or_else(|| wrong("a share from 0 to 1"))?;
                }
                _ => return Err(SpecError(format!("unknown option {option}"))),
            }
        }
        Ok(spec)
    }

    /// The host name of a node.
    pub fn host(&self, site: u32, node: u32) -> String {
        format!("site{site}-node{node}")
    }

    /// The address of a node.
    pub fn address(&self, site: u32, node: u32) -> String {
        format!("10.77.{site}.{}", node + 10)
    }
}

fn name(text: &str) -> Option<String> {
    let fits = !text.is_empty()
        && text.len() <= 8
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    fits.then(|| text.into())
}

fn within(text: &str, least: u32, most: u32) -> Option<u32> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|byte: char| byte.is_ascii_alphabetic())?;
    let number: f64 = text[..at].parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some((number, &text[at..]))
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "s" => number,
        "ms" => number / 1e3,
        "us" => number / 1e6,
        _ => return None,
    };
    (seconds <= 10.0).then(|| Duration::from_secs_f64(seconds))
}

fn rate(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "Gbit" => 1e9,
        "Mbit" => 1e6,
        "kbit" => 1e3,
        _ => return None,
    };
    Some((number * factor) as u64).filter(|rate| *rate >= 8_000)
}

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "MB" => 1e6,
        "kB" => 1e3,
        "B" => 1.0,
        _ => return None,
    };
    Some((number * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Spec, SpecError> {
        Spec::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn units_are_read() {
        let line = "--rtt 0.5ms --wan-rate 100Mbit --wan-buffer 64kB --wan-loss 0.01 --sites 3";
        let spec = parse(line).unwrap();
        assert_eq!((spec.rtt, spec.wan_rate), (Duration::from_micros(500), 100_000_000));
        assert_eq!((spec.wan_buffer, spec.wan_loss, spec.sites), (64_000, 0.01, 3));
    }

    #[test]
    fn mistakes_are_named() {
        for line in ["--rtt 5", "--wan-rate fast", "--sites 0", "--wan-loss 2", "--frob 1", "--rtt"]
        {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(line.split_whitespace().next().unwrap()), "{error}");
        }
    }
}
