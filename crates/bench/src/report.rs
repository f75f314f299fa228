//! What came out: every round of every library, and what they come to beside each other.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::library::Kind;
use crate::record::{Clock, Measurement};
use crate::scenario::{Link, Place, Workload};
use crate::statistics::{Across, bandwidth_mbit_per_s};

/// A measurement of several libraries at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where and when.
    pub environment: Environment,
    /// What was done.
    pub workload: Workload,
    /// Where the ranks were.
    pub place: Place,
    /// How often each library had its turn.
    pub rounds: u32,
    /// The time for each size in each round.
    pub seconds_per_size: f64,
    /// What the link allows.
    pub link: Option<Link>,
    /// What the lab said of its links.
    pub lab: Vec<String>,
    /// The libraries, ours first.
    pub entries: Vec<Entry>,
}

/// A library's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Which.
    pub library: Kind,
    /// What it calls itself.
    pub version: String,
    /// The clock it was measured by.
    pub clock: Option<Clock>,
    /// The command that was run.
    pub command: String,
    /// The measurements of each round.
    pub rounds: Vec<Vec<Measurement>>,
    /// Why there are none, or no more.
    pub failure: Option<String>,
}

/// One operation and size: all libraries beside each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was done.
    pub operation: String,
    /// With messages of how many bytes.
    pub bytes: u64,
    /// The least time the link allows, in microseconds.
    pub limit_us: Option<f64>,
    /// The median over the rounds of each round's median, in microseconds; none where it failed.
    pub median_us: Vec<(Kind, Option<Across>)>,
    /// Bandwidth of ours, in Mb/s.
    pub bandwidth_mbit_per_s: Option<f64>,
    /// The fastest peer.
    pub best_peer: Option<Kind>,
    /// Our time over that of the fastest peer.
    pub ratio_to_best_peer: Option<f64>,
    /// The same of the least disturbed rounds: our fastest over the fastest of any peer.
    pub ratio_of_least: Option<f64>,
    /// Our time over that of raw TCP.
    pub ratio_to_raw_tcp: Option<f64>,
}

/// Which of several rounds stands for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The median.
    Median,
    /// The least disturbed, for a machine that does other work beside.
    Least,
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "median" => Ok(Self::Median),
            "least" => Ok(Self::Least),
            _ => Err(format!("`{text}` is neither median nor least")),
        }
    }
}

impl Row {
    /// A library's time, in microseconds; none where it was not measured.
    pub fn time_us(&self, library: Kind, by: By) -> Option<f64> {
        let across = self.median_us.iter().find(|(kind, _)| *kind == library)?.1?;
        Some(match by {
            By::Median => across.median,
            By::Least => across.least,
        })
    }
}

/// A report and its rows, as they are written to a file.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    /// The report.
    #[serde(flatten)]
    pub report: &'a Report,
    /// Its rows.
    pub rows: Vec<Row>,
}

impl Report {
    /// A row for each operation and size that any library was measured at, in the order measured.
    pub fn rows(&self) -> Vec<Row> {
        let mut keys: Vec<(&str, u64)> = Vec::new();
        for read in self.entries.iter().flat_map(|entry| entry.rounds.iter().flatten()) {
            let key = (read.operation.as_str(), read.bytes);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys.into_iter().map(|(operation, bytes)| self.row(operation, bytes)).collect()
    }

    /// Whether several libraries stand beside each other.
    pub fn is_comparison(&self) -> bool {
        self.entries.iter().any(|entry| entry.library.is_peer())
    }

    /// The name of its files, without an ending.
    pub fn stem(&self) -> String {
        format!("{}-{}", self.workload.name(), self.place.name())
    }

    fn row(&self, operation: &str, bytes: u64) -> Row {
        let median_us: Vec<_> = self
            .entries
            .iter()
            .map(|entry| (entry.library, entry.across(operation, bytes)))
            .collect();
        let of = |kind: Kind| {
            let found = median_us.iter().find(|(library, _)| *library == kind);
            found.and_then(|(_, across)| *across)
        };
        let peers = || {
            let peers = median_us.iter().filter(|(library, _)| library.is_peer());
            peers.filter_map(|(library, across)| Some((*library, (*across)?)))
        };
        let ours = of(Kind::Canele).map(|across| across.median);
        let best = peers()
            .map(|(library, across)| (library, across.median))
            .min_by(|one, other| one.1.total_cmp(&other.1));
        let least = peers().map(|(_, across)| across.least).min_by(f64::total_cmp);
        let ratio = |other: Option<f64>| Some(ours? / other?);
        let is_pingpong = matches!(self.workload, Workload::Pingpong { .. });
        Row {
            operation: operation.into(),
            bytes,
            limit_us: self.link.filter(|_| is_pingpong).map(|link| link.limit_us(bytes)),
            bandwidth_mbit_per_s: ours
                .filter(|_| is_pingpong)
                .map(|time_us| bandwidth_mbit_per_s(bytes, time_us)),
            best_peer: best.map(|(library, _)| library),
            ratio_to_best_peer: ratio(best.map(|(_, time_us)| time_us)),
            ratio_of_least: of(Kind::Canele).and_then(|ours| Some(ours.least / least?)),
            ratio_to_raw_tcp: ratio(of(Kind::RawTcp).map(|across| across.median)),
            median_us,
        }
    }
}

impl Entry {
    /// One that has not been measured yet.
    pub fn new(library: Kind) -> Self {
        Self {
            library,
            version: String::new(),
            clock: None,
            command: String::new(),
            rounds: Vec::new(),
            failure: None,
        }
    }

    fn across(&self, operation: &str, bytes: u64) -> Option<Across> {
        let of_round = |round: &Vec<Measurement>| {
            let mut reads = round.iter();
            let read = reads.find(|read| read.operation == operation && read.bytes == bytes);
            read.map(|read| read.median_us)
        };
        Across::of(&self.rounds.iter().filter_map(of_round).collect::<Vec<_>>())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::measurement;

    /// Canele, one peer, one that is missing, and raw TCP over two rounds.
    pub(crate) fn sample() -> Report {
        let sizes = vec![16, 1 << 20];
        let entry = |library: Kind, factor: f64| Entry {
            version: format!("{} 1.0", library.name()),
            rounds: [1.0, 1.2]
                .map(|round| {
                    let time_us = |bytes: u64| (5800.0 + bytes as f64 / 117.0) * factor * round;
                    sizes.iter().map(|s| measurement("pingpong", *s, time_us(*s))).collect()
                })
                .into(),
            ..Entry::new(library)
        };
        Report {
            environment: Environment::now(),
            workload: Workload::Pingpong { sizes: sizes.clone() },
            place: Place::Wan,
            rounds: 2,
            seconds_per_size: 0.1,
            link: Link::of(Place::Wan, &lab::Spec::default()),
            lab: vec!["wide area ok".into()],
            entries: vec![
                entry(Kind::Canele, 1.0),
                entry(Kind::Mpich, 2.0),
                Entry { failure: Some("not installed".into()), ..Entry::new(Kind::OpenMpi) },
                entry(Kind::RawTcp, 0.8),
            ],
        }
    }

    #[test]
    fn ratios_are_to_the_fastest_peer_and_to_tcp() {
        let rows = sample().rows();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].best_peer, Some(Kind::Mpich));
        assert!((rows[0].ratio_to_best_peer.unwrap() - 0.5).abs() < 1e-9);
        assert!((rows[0].ratio_of_least.unwrap() - 0.5).abs() < 1e-9);
        assert!((rows[1].ratio_to_raw_tcp.unwrap() - 1.25).abs() < 1e-9);
        assert_eq!(rows[1].median_us[2], (Kind::OpenMpi, None));
        let across = rows[0].median_us[0].1.unwrap();
        assert_eq!(across.rounds, 2);
        assert!((across.spread - 0.2 / 1.1).abs() < 1e-9, "{across:?}");
    }

    #[test]
    fn the_document_has_all_rounds_and_the_rows() {
        let report = sample();
        let document = Document { report: &report, rows: report.rows() };
        let value: serde_json::Value =
            serde_json::from_str(&serde_json::to_string(&document).unwrap()).unwrap();
        assert_eq!(value["entries"][0]["rounds"].as_array().unwrap().len(), 2);
        assert_eq!(value["rows"][0]["best_peer"], "Mpich");
        let read: Report = serde_json::from_value(value).unwrap();
        assert_eq!((read.workload, read.environment), (report.workload, report.environment));
        assert_eq!(read.entries[2], report.entries[2]);
    }
}
