//! Reports: every round of every library, and their comparison.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::instrument::{Against, Base, Quantity, Share, Statistic, Workload};
use crate::library::{LibraryKind, Variant};
use crate::record::{Case, Clock, Measurement, Missing};
use crate::scenario::{IdealLink, Place, Surroundings};
use crate::statistics::Across;

/// A measurement of several libraries at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Machine and time.
    pub environment: Environment,
    /// Measured workload.
    pub workload: Workload,
    /// Places of the ranks.
    pub place: Place,
    /// Conditions beside the measurement.
    #[serde(default)]
    pub surroundings: Surroundings,
    /// Number of turns of each library.
    pub rounds: u32,
    /// Time per size in each round.
    pub seconds_per_size: f64,
    /// Limits of the link.
    pub link: Option<IdealLink>,
    /// Lines of the lab's check of its links.
    pub lab: Vec<String>,
    /// The libraries, ours first.
    pub entries: Vec<Entry>,
}

/// A library's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The library.
    pub library: LibraryKind,
    /// Its settings, if any.
    pub variant: Option<Variant>,
    /// Version that it reports.
    pub version: String,
    /// The clock it was measured by.
    pub clock: Option<Clock>,
    /// The command that was run.
    pub command: String,
    /// The measurements of each round; the last may have ended early.
    pub rounds: Vec<Vec<Measurement>>,
    /// Measurements that failed while others succeeded, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// Goodput of a competing flow in each run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<lab::Goodput>,
    /// Reason why there are none, or no more.
    pub failure: Option<String>,
}

/// One operation, case and statistic: all libraries beside each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Operation.
    pub operation: String,
    /// Size and count.
    #[serde(flatten)]
    pub case: Case,
    /// Statistic over the samples.
    pub statistic: Statistic,
    /// The least time the link allows, in microseconds.
    pub limit_us: Option<f64>,
    /// The libraries, in the order of the report.
    pub cells: Vec<Cell>,
    /// The fastest peer.
    pub best_peer: Option<LibraryKind>,
    /// Our time (of several settings, that of the first) over that of the fastest peer.
    pub ratio_to_best_peer: Option<f64>,
    /// The same of the least disturbed rounds: our fastest over the fastest of any peer.
    pub ratio_of_least: Option<f64>,
    /// Our time over that of the reference: raw TCP, or bare memory.
    pub ratio_to_reference: Option<f64>,
    /// Our time over the least that the link allows.
    pub ratio_to_limit: Option<f64>,
}

/// One library in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its name for people.
    pub name: String,
    /// The library.
    pub library: LibraryKind,
    /// Each round's statistic, in microseconds; none where it failed.
    pub time_us: Option<Across>,
    /// Figure of the median time: Mb/s, millions of messages per second, or the median share.
    pub figure: Option<f64>,
    /// The share of each round, as it was computed.
    pub share: Option<Across>,
    /// The part that is shown beside the share, of the median round.
    pub beside: Option<f64>,
    /// The bytes that an operation put on the links between sites, of the median round.
    pub crossing_bytes: Option<f64>,
    /// Packets per operation on these links, of the median round.
    pub crossing_packets: Option<f64>,
    /// Time compared with that of the base case, of each round.
    pub against_base: Option<Across>,
    /// Our time over this one's.
    pub ratio: Option<f64>,
}

/// Statistic over rounds.
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

impl Cell {
    /// Returns the time in microseconds; none if it was not measured.
    pub fn time_us(&self, by: By) -> Option<f64> {
        let across = self.time_us?;
        Some(match by {
            By::Median => across.median,
            By::Least => across.least,
        })
    }

    /// Returns a quantity as it is drawn; none if it was not measured. A share is that of the median round.
    pub fn value(&self, quantity: Quantity, case: Case, by: By) -> Option<f64> {
        match quantity {
            Quantity::Share(share) => Some(share.shown(self.share?.median)),
            Quantity::Time | Quantity::Bandwidth | Quantity::Rate | Quantity::OfLimit => {
                quantity.of(case, self.time_us(by)?)
            }
        }
    }
}

impl Row {
    /// Returns a library's quantity as it is drawn; none if it was not measured.
    pub fn value(&self, index: usize, quantity: Quantity, by: By) -> Option<f64> {
        let cell = &self.cells[index];
        match quantity {
            Quantity::OfLimit => Some(cell.time_us(by)? / self.limit_us?),
            Quantity::Time | Quantity::Bandwidth | Quantity::Rate | Quantity::Share(_) => {
                cell.value(quantity, self.case, by)
            }
        }
    }

    /// Returns the quantity at the limit.
    pub fn limit(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::OfLimit => self.limit_us.map(|_| 1.0),
            Quantity::Time | Quantity::Bandwidth | Quantity::Rate | Quantity::Share(_) => {
                quantity.of(self.case, self.limit_us?)
            }
        }
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
    /// Returns a row for each operation, case and statistic that was measured or missed, in the order of
    /// measurement.
    pub fn rows(&self) -> Vec<Row> {
        let reads = self.entries.iter().flat_map(|entry| entry.rounds.iter().flatten());
        let reads = reads.map(|read| (read.operation.as_str(), read.case()));
        let missing = self.entries.iter().flat_map(|entry| &entry.missing);
        let missing = missing.map(|missing| (missing.operation.as_str(), missing.case()));
        let mut keys: Vec<(&str, Case)> = Vec::new();
        for key in reads.chain(missing) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let statistics = self.workload.description().statistics;
        let of = |(operation, case)| {
            statistics.iter().map(move |statistic| self.row(operation, case, *statistic))
        };
        keys.into_iter().flat_map(of).collect()
    }

    /// True if several rounds or several MPIs are compared.
    pub fn is_comparison(&self) -> bool {
        let mpis = self.entries.iter().filter(|entry| LibraryKind::MPI.contains(&entry.library));
        self.rounds > 1 || mpis.count() > 1
    }

    /// True if peers are part of the measurement.
    pub fn has_peers(&self) -> bool {
        self.entries.iter().any(|entry| entry.library.is_peer())
    }

    /// Returns the reference that is part of the measurement: raw TCP, or bare memory.
    pub fn reference(&self) -> Option<LibraryKind> {
        let mut kinds = self.entries.iter().map(|entry| entry.library);
        kinds.find(|kind| kind.reference().is_some())
    }

    /// True if the limit of the link is known for the instrument.
    pub fn has_limit(&self) -> bool {
        self.link.is_some() && self.workload.description().least_us.is_some()
    }

    /// True if traffic on links was counted.
    pub fn has_crossing(&self) -> bool {
        let mut reads = self.entries.iter().flat_map(|entry| entry.rounds.iter().flatten());
        reads.any(|read| read.parts.contains_key(CROSSING_BYTES))
    }

    /// Returns the workload, the place and the conditions.
    pub fn title(&self) -> String {
        let (workload, place) = (self.workload.title(), self.place.title());
        format!("{workload}, {place}{}", self.surroundings.title())
    }

    /// Returns the name of its files, without an extension.
    pub fn stem(&self) -> String {
        let (name, place) = (self.workload.description().name, self.place.name());
        format!("{name}-{place}{}", self.surroundings.stem())
    }

    fn row(&self, operation: &str, case: Case, statistic: Statistic) -> Row {
        let description = self.workload.description();
        let mut entries = self.entries.iter();
        let ours = entries.find(|entry| entry.library == LibraryKind::Canele);
        let ours = ours.and_then(|entry| entry.across(operation, case, statistic));
        let cell = |entry: &Entry| {
            let time_us = entry.across(operation, case, statistic);
            // A measurement has one share, whatever statistics are shown of its times.
            let is_first = description.statistics.first() == Some(&statistic);
            let share = is_first.then(|| entry.share(operation, case)).flatten();
            let beside = match description.figure {
                Some(Quantity::Share(Share { beside: Some((_, name)), .. })) if is_first => {
                    let part = |round: &_| find(round, operation, case)?.parts.get(name).copied();
                    entry.each(part).map(|across| across.median)
                }
                _ => None,
            };
            let against_base =
                description.base.and_then(|base| entry.against(operation, case, statistic, base));
            let ratio = time_us.and_then(|across| Some(ours?.median / across.median));
            let crossing = |name: &str| {
                let part = |round: &_| find(round, operation, case)?.parts.get(name).copied();
                Some(entry.each(part).filter(|_| is_first)?.median)
            };
            let cell = Cell {
                name: entry.name(),
                library: entry.library,
                time_us,
                figure: None,
                share,
                beside,
                crossing_bytes: crossing(CROSSING_BYTES),
                crossing_packets: crossing(CROSSING_PACKETS),
                against_base,
                ratio,
            };
            let figure = |quantity| cell.value(quantity, case, By::Median);
            Cell { figure: description.figure.and_then(figure), ..cell }
        };
        let cells: Vec<Cell> = self.entries.iter().map(cell).collect();
        let of = |kind: LibraryKind| cells.iter().find(|cell| cell.library == kind)?.time_us;
        let reference = self.reference().and_then(of);
        let peers = || {
            let peers = cells.iter().filter(|cell| cell.library.is_peer());
            peers.filter_map(|cell| Some((cell.library, cell.time_us?)))
        };
        let best = peers()
            .map(|(library, across)| (library, across.median))
            .min_by(|one, other| one.1.total_cmp(&other.1));
        let least = peers().map(|(_, across)| across.least).min_by(f64::total_cmp);
        let ratio = |other: Option<f64>| Some(ours?.median / other?);
        let limit_us = self.link.zip(description.least_us);
        let limit_us = limit_us.map(|(link, least_us)| least_us(&link, operation, case));
        Row {
            operation: operation.into(),
            case,
            statistic,
            limit_us,
            best_peer: best.map(|(library, _)| library),
            ratio_to_best_peer: ratio(best.map(|(_, time_us)| time_us)),
            ratio_of_least: ours.and_then(|ours| Some(ours.least / least?)),
            ratio_to_reference: ratio(reference.map(|across| across.median)),
            ratio_to_limit: ratio(limit_us.filter(|limit_us| *limit_us > 0.0)),
            cells,
        }
    }
}

impl Entry {
    /// Creates an entry without measurements.
    pub fn new(library: LibraryKind, variant: Option<Variant>) -> Self {
        Self {
            library,
            variant,
            version: String::new(),
            clock: None,
            command: String::new(),
            rounds: Vec::new(),
            missing: Vec::new(),
            kept: Vec::new(),
            failure: None,
        }
    }

    /// Returns the goodput of a competing flow in Mb/s; none if there was none.
    pub fn kept_mbit_per_s(&self) -> Option<f64> {
        let bytes = self.kept.iter().map(|one| one.bytes).sum();
        let seconds = self.kept.iter().map(|one| one.seconds).sum();
        (!self.kept.is_empty()).then(|| lab::Goodput { bytes, seconds }.mbit_per_s())
    }

    /// Its name for people.
    pub fn name(&self) -> String {
        match &self.variant {
            Some(variant) => format!("{} {}", self.library.name(), variant.name),
            None => self.library.name().into(),
        }
    }

    fn across(&self, operation: &str, case: Case, statistic: Statistic) -> Option<Across> {
        self.each(|round| Some(statistic.of(find(round, operation, case)?)))
    }

    fn share(&self, operation: &str, case: Case) -> Option<Across> {
        self.each(|round| find(round, operation, case)?.share)
    }

    fn each(&self, of_round: impl Fn(&[Measurement]) -> Option<f64>) -> Option<Across> {
        Across::of(&self.rounds.iter().filter_map(|round| of_round(round)).collect::<Vec<_>>())
    }

    /// Compares a case with its base, round by round.
    fn against(
        &self,
        operation: &str,
        case: Case,
        statistic: Statistic,
        base: Base,
    ) -> Option<Across> {
        let (based_operation, based_case) = match base.against {
            Against::Count(count) => (operation, Case { count, ..case }),
            Against::Operation(operation) => (operation, case),
            Against::Ranks(ranks) => (operation, Case { ranks, ..case }),
        };
        self.each(|round| {
            let time_us = statistic.of(find(round, operation, case)?);
            let base_us = statistic.of(find(round, based_operation, based_case)?);
            Some(base.relation.of(time_us, base_us))
        })
    }
}

/// Name of the part with the bytes on links.
pub const CROSSING_BYTES: &str = "crossing_bytes";

/// Name of the part with the packets on links.
pub const CROSSING_PACKETS: &str = "crossing_packets";

fn find<'a>(round: &'a [Measurement], operation: &str, case: Case) -> Option<&'a Measurement> {
    round.iter().find(|read| read.operation == operation && read.case() == case)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::instrument::{Instrument, Relation};
    use crate::record::measurement;

    /// Canele, one peer, one that is missing, and raw TCP over two rounds.
    pub(crate) fn sample() -> Report {
        let sizes = vec![16, 1 << 20];
        let entry = |library: LibraryKind, factor: f64| Entry {
            version: format!("{} 1.0", library.name()),
            rounds: [1.0, 1.2]
                .map(|round| {
                    let time_us = |bytes: u64| (5800.0 + bytes as f64 / 117.0) * factor * round;
                    let read = |bytes: &u64| {
                        let case = Case { bytes: *bytes, count: 0, ranks: 0 };
                        measurement("pingpong", case, time_us(*bytes))
                    };
                    sizes.iter().map(read).collect()
                })
                .into(),
            ..Entry::new(library, None)
        };
        Report {
            environment: Environment::now(),
            workload: Workload { sizes: sizes.clone(), ..Workload::new(Instrument::Pingpong) },
            place: Place::Wan,
            surroundings: Surroundings::default(),
            rounds: 2,
            seconds_per_size: 0.1,
            link: IdealLink::of(Place::Wan, &lab::Spec::default()),
            lab: vec!["wide area ok".into()],
            entries: vec![
                entry(LibraryKind::Canele, 1.0),
                entry(LibraryKind::Mpich, 2.0),
                Entry {
                    failure: Some("not installed".into()),
                    ..Entry::new(LibraryKind::OpenMpi, None)
                },
                entry(LibraryKind::RawTcp, 0.8),
            ],
        }
    }

    #[test]
    fn ratios_are_to_the_fastest_peer_and_to_tcp() {
        let rows = sample().rows();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].best_peer, Some(LibraryKind::Mpich));
        assert!((rows[0].ratio_to_best_peer.unwrap() - 0.5).abs() < 1e-9);
        assert!((rows[0].ratio_of_least.unwrap() - 0.5).abs() < 1e-9);
        assert!((rows[1].ratio_to_reference.unwrap() - 1.25).abs() < 1e-9);
        assert_eq!(
            (rows[1].cells[2].library, rows[1].cells[2].time_us),
            (LibraryKind::OpenMpi, None)
        );
        let across = rows[0].cells[0].time_us.unwrap();
        assert_eq!(across.rounds, 2);
        assert!((across.spread - 0.2 / 1.1).abs() < 1e-9, "{across:?}");
    }

    #[test]
    fn several_settings_are_distinguished_and_the_first_is_compared() {
        let mut report = sample();
        let variant = |name: &str| Some(Variant { name: name.into(), settings: Vec::new() });
        report.entries[1].library = LibraryKind::Canele;
        report.entries.remove(2);
        for (entry, name) in report.entries.iter_mut().zip(["auto", "fifo"]) {
            entry.variant = variant(name);
        }
        let row = &report.rows()[0];
        let names: Vec<&str> = row.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["Canele auto", "Canele fifo", "raw TCP"]);
        assert!((row.cells[1].ratio.unwrap() - 0.5).abs() < 1e-9);
        assert!((row.ratio_to_reference.unwrap() - 1.25).abs() < 1e-9);
        assert!(report.is_comparison() && !report.has_peers());
    }

    #[test]
    fn numbers_of_ranks_are_compared_with_another() {
        let of =
            |ranks, time_us| measurement("allgather", Case { bytes: 4, count: 0, ranks }, time_us);
        let rounds = vec![vec![of(5, 3.0), of(8, 4.0)]];
        let entry = Entry { rounds, ..Entry::new(LibraryKind::Canele, None) };
        let base = Base { against: Against::Ranks(8), head: "", relation: Relation::Ratio };
        let against = |ranks| {
            let case = Case { bytes: 4, count: 0, ranks };
            entry.against("allgather", case, Statistic::Least, base).map(|across| across.median)
        };
        assert_eq!([5, 8, 7].map(against), [Some(0.75), Some(1.0), None]);
    }

    #[test]
    fn a_case_is_compared_with_its_base_round_by_round() {
        let round = |alone: f64, behind: f64| {
            let of =
                |count, time_us| measurement("short", Case { bytes: 4, count, ranks: 2 }, time_us);
            vec![of(0, alone), of(7, behind)]
        };
        let rounds = vec![round(1.0, 3.0), round(2.0, 8.0)];
        let entry = Entry { rounds, ..Entry::new(LibraryKind::Canele, None) };
        let base = |relation| Base { against: Against::Count(0), head: "", relation };
        let across = |relation| {
            let case = Case { bytes: 4, count: 7, ranks: 2 };
            entry.against("short", case, Statistic::Median, base(relation)).unwrap().median
        };
        assert_eq!((across(Relation::Ratio), across(Relation::Difference)), (3.5, 4.0));
    }

    #[test]
    fn the_document_has_all_rounds_and_the_rows() {
        let report = sample();
        let document = Document { report: &report, rows: report.rows() };
        let value: serde_json::Value =
            serde_json::from_str(&serde_json::to_string(&document).unwrap()).unwrap();
        assert_eq!(value["entries"][0]["rounds"].as_array().unwrap().len(), 2);
        assert_eq!(value["rows"][0]["best_peer"], "Mpich");
        assert_eq!(value["rows"][0]["bytes"], 16);
        assert!(value["rows"][0]["cells"][0]["figure"].as_f64().unwrap() > 0.0);
        let read: Report = serde_json::from_value(value).unwrap();
        assert_eq!((read.workload, read.environment), (report.workload, report.environment));
        assert_eq!(read.entries[2], report.entries[2]);
    }
}
