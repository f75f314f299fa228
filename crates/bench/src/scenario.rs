//! What is measured, where, and what the link would allow.

use std::str::FromStr;
use std::time::Duration;

use lab::Spec;
use serde::{Deserialize, Serialize};

/// Where the ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// On this machine, in shared memory.
    Shm,
    /// On nodes of one site.
    Lan,
    /// On nodes of two sites.
    Wan,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Shm, Self::Lan, Self::Wan];

    /// Its short name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Lan => "lan",
            Self::Wan => "wan",
        }
    }

    /// What it is, in a title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Shm => "within a node (shared memory)",
            Self::Lan => "within a site",
            Self::Wan => "across the WAN",
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|place| place.name() == text);
        known.ok_or_else(|| format!("no place `{text}`: there are shm, lan, wan"))
    }
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Messages to and fro between two ranks.
    Pingpong {
        /// Of these sizes, in bytes.
        sizes: Vec<u64>,
    },
    /// Many messages at once between two ranks.
    Burst {
        /// How many.
        messages: u32,
        /// Of these sizes, in bytes.
        sizes: Vec<u64>,
    },
    /// Barrier and allreduce on many ranks.
    Crowd {
        /// How many.
        ranks: u32,
    },
}

impl Workload {
    /// Its name, which is its program's.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pingpong { .. } => "pingpong",
            Self::Burst { .. } => "burst",
            Self::Crowd { .. } => "crowd",
        }
    }

    /// What its times are, in a title.
    pub fn title(&self) -> String {
        match self {
            Self::Pingpong { .. } => "Ping-pong: half a round trip".into(),
            Self::Burst { messages, .. } => {
                format!("Burst: {messages} messages and the word that they are there")
            }
            Self::Crowd { ranks } => format!("Crowd: a collective operation on {ranks} ranks"),
        }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        match self {
            Self::Pingpong { .. } | Self::Burst { .. } => 2,
            Self::Crowd { ranks } => *ranks,
        }
    }

    /// The program's arguments.
    pub fn arguments(&self, seconds: f64) -> Vec<String> {
        let mut words = vec![seconds.to_string()];
        match self {
            Self::Pingpong { sizes } => words.extend(sizes.iter().map(u64::to_string)),
            Self::Burst { messages, sizes } => {
                words.push(messages.to_string());
                words.extend(sizes.iter().map(u64::to_string));
            }
            Self::Crowd { .. } => {}
        }
        words
    }

    /// How many measurements the program prints.
    pub fn measurements(&self) -> usize {
        match self {
            Self::Pingpong { sizes } | Self::Burst { sizes, .. } => sizes.len(),
            Self::Crowd { .. } => 2,
        }
    }

    /// A run that takes longer than this is ended. Generous: a message of a size may cost several
    /// seconds where the link is long, and a few of them are sent whatever the budget is.
    pub fn limit(&self, seconds: f64) -> Duration {
        let moved: u64 = match self {
            Self::Pingpong { sizes } => sizes.iter().sum(),
            Self::Burst { messages, sizes } => sizes.iter().sum::<u64>() * u64::from(*messages),
            Self::Crowd { .. } => 0,
        };
        let transfers = moved as f64 * 100.0 / 50e6;
        let budgets = self.measurements() as f64 * seconds * 10.0;
        Duration::from_secs_f64(30.0 + budgets + transfers)
    }
}

/// What a link would allow, were nothing but it in the way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// One way, in microseconds.
    pub delay_us: f64,
    /// What TCP can carry, in Mb/s (10⁶ bits).
    pub goodput_mbit_per_s: f64,
}

impl Link {
    /// The lab's link at a place; none on one machine.
    pub fn of(place: Place, spec: &Spec) -> Option<Self> {
        let (delay, rate) = match place {
            Place::Shm => return None,
            Place::Lan => (Duration::ZERO, spec.lan_rate),
            Place::Wan => (spec.rtt / 2, spec.wan_rate.min(spec.lan_rate)),
        };
        Some(Self {
            delay_us: delay.as_secs_f64() * 1e6,
            goodput_mbit_per_s: rate as f64 * GOODPUT / 1e6,
        })
    }

    /// The least time a message needs, in microseconds.
    pub fn limit_us(&self, bytes: u64) -> f64 {
        self.delay_us + bytes as f64 * 8.0 / self.goodput_mbit_per_s
    }
}

/// Of a rate on Ethernet with packets of 1500 bytes, what TCP can carry.
const GOODPUT: f64 = 0.941;

/// Reads sizes: `16`, `64k`, `4M` (binary), separated by commas.
///
/// # Errors
/// For what is no size between 1 byte and 1 GiB.
pub fn sizes(text: &str) -> Result<Vec<u64>, String> {
    text.split(',').map(size).collect()
}

fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size between 1 and 1024M, such as 16, 64k or 4M");
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(factor).ok_or_else(wrong)?;
    if (1..=1 << 30).contains(&bytes) { Ok(bytes) } else { Err(wrong()) }
}

/// A size for people: `64 KiB`.
pub fn size_text(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(sizes("1,16,64k,4M").unwrap(), [1, 16, 65536, 4 << 20]);
        for text in ["", "0", "x", "2048M", "1,,2", "-1", "99999999999999999999M"] {
            assert!(sizes(text).is_err(), "{text}");
        }
        let written: Vec<_> = [1, 1000, 1024, 65536, 1 << 26].map(size_text).into();
        assert_eq!(written, ["1 B", "1000 B", "1 KiB", "64 KiB", "64 MiB"]);
    }

    #[test]
    fn an_unknown_place_is_named() {
        let error = "moon".parse::<Place>().unwrap_err();
        assert!(error.contains("moon") && error.contains("wan"), "{error}");
        assert_eq!("lan".parse(), Ok(Place::Lan));
    }

    #[test]
    fn the_limit_is_delay_and_transfer() {
        let spec = Spec::default();
        let wan = Link::of(Place::Wan, &spec).unwrap();
        assert!((wan.limit_us(1 << 20) - 14714.6).abs() < 0.1, "{}", wan.limit_us(1 << 20));
        let lan = Link::of(Place::Lan, &spec).unwrap();
        assert_eq!(lan.delay_us, 0.0);
        assert_eq!(Link::of(Place::Shm, &spec), None);
    }

    #[test]
    fn arguments_are_what_the_programs_read() {
        let burst = Workload::Burst { messages: 1000, sizes: vec![8, 1024] };
        assert_eq!(burst.arguments(0.5), ["0.5", "1000", "8", "1024"]);
        assert_eq!((burst.ranks(), burst.measurements()), (2, 2));
    }
}
