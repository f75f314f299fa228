//! Places of measurements, and the limits of links.

use std::str::FromStr;
use std::time::Duration;

use lab::{Conditions, Spec};
use serde::{Deserialize, Serialize};

/// Place of the ranks.
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
    /// All places.
    pub const ALL: [Self; 3] = [Self::Shm, Self::Lan, Self::Wan];

    /// Returns its short name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Lan => "lan",
            Self::Wan => "wan",
        }
    }

    /// Returns its title.
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

/// Limits of an ideal link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdealLink {
    /// One-way delay, in microseconds.
    pub delay_us: f64,
    /// Goodput of TCP, in Mb/s (10⁶ bits).
    pub goodput_mbit_per_s: f64,
    /// Sites and nodes around it.
    pub layout: Layout,
}

/// Sites, nodes and their links.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Number of sites.
    pub sites: u32,
    /// Number of nodes per site.
    pub nodes: u32,
    /// Goodput of TCP to or from a node, in Mb/s.
    pub interface_mbit_per_s: f64,
    /// One-way delay from the first site to the farthest, over other sites if that is shorter, in
    /// microseconds.
    pub farthest_us: f64,
}

/// Distribution of ranks in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Number of sites with ranks.
    pub sites: u32,
    /// Least number of ranks on a site.
    pub on_site: u64,
    /// Largest number of ranks on a node.
    pub on_node: u64,
}

impl Layout {
    fn new(spec: &Spec, sites: u32, delay: &dyn Fn(u32, u32) -> Duration) -> Self {
        let interface = spec.lan_rate * u64::from(spec.nics);
        // Bellman–Ford shortest paths from the first site.
        let mut delays: Vec<Duration> = (0..sites).map(|site| delay(0, site)).collect();
        for _ in 0..sites {
            for (from, to) in (0..sites).flat_map(|from| (1..sites).map(move |to| (from, to))) {
                delays[to as usize] =
                    delays[to as usize].min(delays[from as usize] + delay(from, to));
            }
        }
        let farthest = delays.into_iter().max().unwrap_or_default();
        Self {
            sites,
            nodes: spec.nodes,
            interface_mbit_per_s: interface as f64 * GOODPUT / 1e6,
            farthest_us: farthest.as_secs_f64() * 1e6,
        }
    }

    /// Returns the distribution of ranks: equal parts for all sites and for the nodes of a site, of which the
    /// first have one more. Two are at the ends of the link.
    pub fn distribution(&self, ranks: u32) -> Distribution {
        let sites = self.sites.min(ranks).max(1);
        let on_node = u64::from(ranks.div_ceil(sites).div_ceil(self.nodes));
        Distribution { sites, on_site: u64::from(ranks / sites), on_node }
    }

    /// Returns the time in microseconds that a node's interface takes for so many bytes.
    pub fn interface_us(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.interface_mbit_per_s
    }
}

impl IdealLink {
    /// Returns the lab's link at a place; none on one machine.
    pub fn of(place: Place, spec: &Spec) -> Option<Self> {
        let (delay, rate) = match place {
            Place::Shm => return None,
            // Every interface is on a LAN of its own, and messages may take all of them.
            Place::Lan => (Duration::ZERO, spec.lan_rate * u64::from(spec.nics)),
            Place::Wan => {
                return Some(Self::between(spec, &|from, to| spec.conditions(from, to)));
            }
        };
        let layout = Layout::new(spec, 1, &|_, _| Duration::ZERO);
        Some(Self::new(delay, rate, layout))
    }

    /// Returns the link between the first and the last site of a lab with these conditions.
    pub fn between(spec: &Spec, conditions: &dyn Fn(u32, u32) -> Conditions) -> Self {
        let Conditions { delay, rate_bits_per_s, .. } = conditions(0, spec.sites - 1);
        let delay_of = |from, to| match from == to {
            true => Duration::ZERO,
            false => conditions(from, to).delay,
        };
        let layout = Layout::new(spec, spec.sites, &delay_of);
        Self::new(delay, rate_bits_per_s.min(spec.lan_rate), layout)
    }

    fn new(delay: Duration, rate_bits_per_s: u64, layout: Layout) -> Self {
        Self {
            delay_us: delay.as_secs_f64() * 1e6,
            goodput_mbit_per_s: rate_bits_per_s as f64 * GOODPUT / 1e6,
            layout,
        }
    }

    /// Returns the least time of a message, in microseconds.
    pub fn limit_us(&self, bytes: u64) -> f64 {
        self.delay_us + self.stream_us(bytes)
    }

    /// Returns the time that the link takes for so many bytes, in microseconds.
    pub fn stream_us(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.goodput_mbit_per_s
    }

    /// Returns the least time of a collective. It is the path from the first site to the farthest plus the data
    /// of one site for another over one link, or the data of one node.
    pub fn collective_us(&self, operation: &str, bytes: u64, ranks: u32) -> f64 {
        let Distribution { sites, on_site, on_node } = self.layout.distribution(ranks);
        let ranks = u64::from(ranks);
        let foreign = ranks - on_node;
        let (crossing, network) = match operation {
            "allgather"
            | "gather"
            | "scatter"
            | "reduce_scatter"
            | "reduce_scatter_block"
            | "allgatherv"
            | "gatherv"
            | "scatterv" => (on_site * bytes, foreign * bytes),
            "alltoall" | "alltoallv" => (on_site * on_site * bytes, on_node * foreign * bytes),
            _ => (bytes, bytes),
        };
        let network_us = self.layout.interface_us(network);
        match sites {
            1 => network_us,
            2.. => network_us.max(self.layout.farthest_us + self.stream_us(crossing)),
            0 => unreachable!("ranks are somewhere"),
        }
    }
}

/// Link between sites of a lab that is created.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crossing {
    /// Round trip.
    pub rtt: Duration,
    /// Rate, with all headers.
    pub rate_bits_per_s: u64,
    /// Buffer in front of it.
    pub buffer_bytes: u64,
    /// Maximum socket buffer at either end; none for the kernel's default.
    #[serde(default)]
    pub socket_max: Option<u64>,
}

impl Default for Crossing {
    /// Returns the lab's default link.
    fn default() -> Self {
        let Spec { rtt, wan_rate, wan_buffer, socket_max, .. } = Spec::default();
        Self { rtt, rate_bits_per_s: wan_rate, buffer_bytes: wan_buffer, socket_max }
    }
}

impl Crossing {
    /// Returns a lab with this link. The nodes' own links do not limit it.
    pub fn spec(self, name: &str) -> Spec {
        let usual = Spec::default();
        let lan_rate = usual.lan_rate.max(self.rate_bits_per_s);
        let Self { rtt, rate_bits_per_s: wan_rate, buffer_bytes: wan_buffer, socket_max } = self;
        Spec { name: name.into(), rtt, wan_rate, lan_rate, wan_buffer, socket_max, ..usual }
    }

    /// Returns its title.
    pub fn title(self) -> String {
        let (rtt, rate) = (self.rtt_text(), self.rate_text());
        let sockets = self.socket_max.map(|bytes| format!(", sockets of {}", memory_text(bytes)));
        let sockets = sockets.unwrap_or_default();
        format!("{rtt} of round trip, {rate}, {} of buffer{sockets}", self.buffer_text())
    }

    /// Returns its part of a file's name.
    pub fn stem(self) -> String {
        let mut words = vec![self.rtt_text(), self.rate_text(), self.buffer_text()];
        words.extend(self.socket_max.map(memory_text));
        words.join("-").replace(' ', "").replace("/s", "it")
    }

    /// Formats its round trip: `11.6 ms`.
    pub fn rtt_text(self) -> String {
        format!("{} ms", (self.rtt.as_secs_f64() * 1e6).round() / 1e3)
    }

    /// Formats its rate: `100 Mb/s`.
    pub fn rate_text(self) -> String {
        match self.rate_bits_per_s as f64 {
            rate @ 1e9.. => format!("{} Gb/s", rate / 1e9),
            rate => format!("{} Mb/s", rate / 1e6),
        }
    }

    /// Formats its buffer.
    pub fn buffer_text(self) -> String {
        memory_text(self.buffer_bytes)
    }

    /// Formats its socket buffers.
    pub fn socket_text(self) -> String {
        self.socket_max.map_or_else(|| "usual".into(), memory_text)
    }
}

fn memory_text(bytes: u64) -> String {
    match bytes as f64 {
        bytes @ 1e6.. => format!("{} MB", bytes / 1e6),
        bytes => format!("{} kB", bytes / 1e3),
    }
}

/// Conditions of a measurement that differ from the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Link between sites, if another than the lab's own was requested.
    #[serde(default)]
    pub crossing: Option<Crossing>,
    /// Number of sites, if another than the lab's own was requested.
    #[serde(default)]
    pub sites: Option<u32>,
    /// Share of packets that the links between sites lose.
    pub loss: f64,
    /// Number of computing programs on the machine.
    pub beside: u32,
    /// Congestion control of a competing bulk flow over the link between sites.
    #[serde(default)]
    pub flow: Option<lab::Congestion>,
}

impl Surroundings {
    /// Returns the end of a title.
    pub fn title(self) -> String {
        let mut text = String::new();
        if let Some(sites) = self.sites {
            text.push_str(&format!(", {sites} sites"));
        }
        if let Some(crossing) = self.crossing {
            text.push_str(&format!(", {}", crossing.title()));
        }
        if self.loss > 0.0 {
            text.push_str(&format!(", {} % of packets lost", self.loss_percent()));
        }
        if self.beside > 0 {
            text.push_str(&format!(", beside {} busy programs", self.beside));
        }
        if let Some(flow) = self.flow {
            text.push_str(&format!(", beside a flow by {}", flow.name()));
        }
        text
    }

    /// Returns the end of a file's name.
    pub fn stem(self) -> String {
        let mut text = String::new();
        if let Some(sites) = self.sites {
            text.push_str(&format!("-{sites}sites"));
        }
        if let Some(crossing) = self.crossing {
            text.push_str(&format!("-{}", crossing.stem()));
        }
        if self.loss > 0.0 {
            text.push_str(&format!("-loss{}", self.loss_percent()));
        }
        if self.beside > 0 {
            text.push_str(&format!("-beside{}", self.beside));
        }
        if let Some(flow) = self.flow {
            text.push_str(&format!("-flow-{}", flow.name()));
        }
        text
    }

    fn loss_percent(self) -> f64 {
        (self.loss * 1e8).round() / 1e6
    }
}

/// Formats a count of bytes: `1.05 MB`.
pub fn bytes_text(bytes: f64) -> String {
    match bytes {
        ..1e4 => format!("{bytes:.0} B"),
        ..1e6 => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{:.2} MB", bytes / 1e6),
    }
}

/// TCP's share of a rate on Ethernet with packets of 1500 bytes.
const GOODPUT: f64 = 0.941;

/// Reads a size: `16`, `64k`, `4M` (binary).
///
/// # Errors
/// Fails for a text that is no number up to 2³⁰.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no number up to 1024M, such as 16, 64k or 4M");
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(factor).ok_or_else(wrong)?;
    if bytes <= 1 << 30 { Ok(bytes) } else { Err(wrong()) }
}

/// Formats a size: `64 KiB`.
pub fn size_text(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Formats a time: `10 ms`.
pub fn duration_text(time_us: u64) -> String {
    match time_us {
        0 => "0".into(),
        _ if time_us.is_multiple_of(1_000_000) => format!("{} s", time_us / 1_000_000),
        _ if time_us.is_multiple_of(1000) => format!("{} ms", time_us / 1000),
        _ => format!("{time_us} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(["1", "0", "64k", "4M"].map(|text| size(text).unwrap()), [1, 0, 65536, 4 << 20]);
        for text in ["", "x", "2048M", "-1", "99999999999999999999M"] {
            assert!(size(text).is_err(), "{text}");
        }
        let written: Vec<_> = [1, 1000, 1024, 65536, 1 << 26].map(size_text).into();
        assert_eq!(written, ["1 B", "1000 B", "1 KiB", "64 KiB", "64 MiB"]);
        let written = [0, 1500, 10_000, 3_000_000].map(duration_text);
        assert_eq!(written, ["0", "1500 µs", "10 ms", "3 s"]);
    }

    #[test]
    fn conditions_are_named_if_there_are_any() {
        assert_eq!(Surroundings::default().title() + &Surroundings::default().stem(), "");
        let flow = Some(lab::Congestion::Cubic);
        let bad = Surroundings { loss: 0.001, beside: 4, flow, ..Surroundings::default() };
        let title = ", 0.1 % of packets lost, beside 4 busy programs, beside a flow by cubic";
        assert_eq!(bad.title(), title);
        assert_eq!(bad.stem(), "-loss0.1-beside4-flow-cubic");
        assert_eq!([820.0, 65_600.0, 1_086_000.0].map(bytes_text), ["820 B", "65.6 kB", "1.09 MB"]);
    }

    #[test]
    fn links_are_named_and_their_lab_does_not_limit_them() {
        let crossing = Crossing {
            rtt: Duration::from_millis(50),
            rate_bits_per_s: 10_000_000_000,
            ..Crossing::default()
        };
        let far = Surroundings { crossing: Some(crossing), ..Surroundings::default() };
        assert_eq!(far.title(), ", 50 ms of round trip, 10 Gb/s, 2 MB of buffer");
        assert_eq!(far.stem(), "-50ms-10Gbit-2MB");
        let spec = crossing.spec("far");
        let link = IdealLink::of(Place::Wan, &spec).unwrap();
        assert_eq!((link.delay_us, link.goodput_mbit_per_s), (25_000.0, 9410.0));
        assert_eq!(Crossing::default().spec("lab"), Spec::default());
        let slow = Crossing { rate_bits_per_s: 2_500_000, buffer_bytes: 64_000, ..crossing };
        assert_eq!([slow.rate_text(), slow.buffer_text()], ["2.5 Mb/s", "64 kB"]);
        let held = Crossing { socket_max: Some(4_000_000), ..slow };
        assert_eq!(held.stem(), "50ms-2.5Mbit-64kB-4MB");
        assert!(held.title().ends_with(", sockets of 4 MB"), "{}", held.title());
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
        let wan = IdealLink::of(Place::Wan, &spec).unwrap();
        assert!((wan.limit_us(1 << 20) - 14714.6).abs() < 0.1, "{}", wan.limit_us(1 << 20));
        let lan = IdealLink::of(Place::Lan, &spec).unwrap();
        assert_eq!((lan.delay_us, lan.goodput_mbit_per_s), (0.0, 941.0));
        let two = IdealLink::of(Place::Lan, &Spec { nics: 2, ..spec.clone() }).unwrap();
        assert_eq!(two.goodput_mbit_per_s, 1882.0);
        assert_eq!(IdealLink::of(Place::Shm, &spec), None);
    }

    #[test]
    fn ranks_are_dealt_to_the_ends_or_to_all_sites() {
        let layout =
            IdealLink::of(Place::Wan, &Spec { sites: 3, ..Spec::default() }).unwrap().layout;
        let distribution = |ranks| {
            let Distribution { sites, on_site, on_node } = layout.distribution(ranks);
            (sites, on_site, on_node)
        };
        assert_eq!(
            [2, 3, 5, 6, 8].map(distribution),
            [(2, 1, 1), (3, 1, 1), (3, 1, 1), (3, 2, 1), (3, 2, 2)]
        );
    }

    fn limit_ms(spec: &Spec, place: Place, operation: &str, ranks: u32) -> f64 {
        let limit_us = IdealLink::of(place, spec).unwrap().collective_us(operation, 1 << 20, ranks);
        (limit_us / 1e2).round() / 10.0
    }

    #[test]
    fn a_collective_takes_as_long_as_its_busiest_link_or_interface() {
        let spec = Spec::default();
        let of = |operation| limit_ms(&spec, Place::Wan, operation, 8);
        assert_eq!([of("bcast"), of("scan")], [14.7, 14.7]);
        // An interface takes in six blocks, and the link carries four.
        assert_eq!([of("allgather"), of("gatherv"), of("reduce_scatter")], [53.5; 3]);
        assert_eq!(of("alltoall"), 148.4);
        assert_eq!(limit_ms(&spec, Place::Wan, "allgather", 2), 14.7);
        assert_eq!(limit_ms(&spec, Place::Lan, "allgather", 8), 35.7);
        let lone = Spec { nodes: 1, ..spec };
        assert_eq!(limit_ms(&lone, Place::Wan, "allgather", 8), 41.5);
    }

    #[test]
    fn the_farthest_site_counts_by_its_shortest_path() {
        let pair = |one, other, ms| lab::Pair {
            sites: [one, other],
            rtt: std::time::Duration::from_millis(ms),
        };
        let spec = Spec { sites: 3, pairs: vec![pair(0, 2, 80)], ..Spec::default() };
        assert_eq!(limit_ms(&spec, Place::Wan, "bcast", 6), 20.5);
        let spec = Spec { pairs: vec![pair(0, 2, 20)], ..spec };
        assert_eq!(limit_ms(&spec, Place::Wan, "bcast", 6), 18.9);
        assert_eq!(limit_ms(&spec, Place::Wan, "allgather", 6), 44.6);
    }
}
