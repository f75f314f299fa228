//! Sweep: the same measurement over several links between sites.

use std::time::Duration;

use serde::Serialize;

use crate::library::LibraryKind;
use crate::report::{Document, Report, Row};
use crate::scenario::{Crossing, Surroundings, size_text};

/// Requested links: all combinations; values not requested are the lab's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestedLinks {
    /// Round trips.
    pub rtts: Vec<Duration>,
    /// Rates, in bits a second.
    pub rates: Vec<u64>,
    /// Buffers, in bytes.
    pub buffers: Vec<u64>,
    /// Maximum socket buffers, in bytes.
    pub socket_maxima: Vec<u64>,
}

impl RequestedLinks {
    /// Returns all links in the requested order; none if nothing was requested.
    pub fn crossings(&self) -> Vec<Crossing> {
        if *self == Self::default() {
            return Vec::new();
        }
        let Crossing { rtt, rate_bits_per_s, buffer_bytes, socket_max } = Crossing::default();
        let (rtts, rates) = (or(&self.rtts, rtt), or(&self.rates, rate_bits_per_s));
        let (buffers, some) = (or(&self.buffers, buffer_bytes), |bytes: &u64| Some(*bytes));
        let sockets: Vec<Option<u64>> = self.socket_maxima.iter().map(some).collect();
        let mut all = Vec::new();
        for socket_max in or(&sockets, socket_max) {
            for &buffer_bytes in &buffers {
                for &rate_bits_per_s in &rates {
                    let of = |&rtt| Crossing { rtt, rate_bits_per_s, buffer_bytes, socket_max };
                    all.extend(rtts.iter().map(of));
                }
            }
        }
        all
    }
}

/// Reports of one measurement over several links.
#[derive(Clone, Debug)]
pub struct Sweep {
    reports: Vec<Report>,
}

/// A sweep and its rows, as they are written to a file.
#[derive(Debug, Serialize)]
pub struct Documents<'a> {
    /// A document for each link.
    links: Vec<Document<'a>>,
}

/// Parameter in which links of a sweep differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// The round trip.
    Rtt,
    /// The rate.
    Rate,
    /// The buffer.
    Buffer,
    /// The socket buffers.
    Sockets,
}

impl Knob {
    /// All parameters, in the order of preference for a plot's axis.
    pub const ALL: [Self; 4] = [Self::Rtt, Self::Rate, Self::Buffer, Self::Sockets];

    /// Returns the head of its column.
    pub fn head(self) -> &'static str {
        match self {
            Self::Rtt => "round trip",
            Self::Rate => "rate",
            Self::Buffer => "buffer",
            Self::Sockets => "sockets",
        }
    }

    /// Returns its text at a link.
    pub fn text(self, crossing: Crossing) -> String {
        match self {
            Self::Rtt => crossing.rtt_text(),
            Self::Rate => crossing.rate_text(),
            Self::Buffer => crossing.buffer_text(),
            Self::Sockets => crossing.socket_text(),
        }
    }

    /// Returns its value at a link, for an axis.
    pub fn number(self, crossing: Crossing) -> f64 {
        match self {
            Self::Rtt => crossing.rtt.as_secs_f64(),
            Self::Rate => crossing.rate_bits_per_s as f64,
            Self::Buffer => crossing.buffer_bytes as f64,
            Self::Sockets => crossing.socket_max.unwrap_or(0) as f64,
        }
    }
}

impl Sweep {
    /// Creates a sweep from the report of the first link.
    pub fn new(first: Report) -> Self {
        Self { reports: vec![first] }
    }

    /// Adds the report of the next link.
    pub fn push(&mut self, report: Report) {
        self.reports.push(report);
    }

    /// Returns the links and their reports, in the order measured.
    pub fn links(&self) -> impl Iterator<Item = (Crossing, &Report)> {
        self.reports.iter().map(|report| (report.surroundings.crossing.unwrap_or_default(), report))
    }

    /// Returns the common part of all reports, without a link of its own.
    pub fn whole(&self) -> Report {
        let (first, last) = (&self.reports[0], &self.reports[self.reports.len() - 1]);
        let mut whole = first.clone();
        whole.surroundings = Surroundings { crossing: None, ..first.surroundings };
        whole.environment.load_after = last.environment.load_after;
        whole
    }

    /// Returns the workload, the place and the conditions.
    pub fn title(&self) -> String {
        format!("{}, over {} links", self.whole().title(), self.reports.len())
    }

    /// Returns the name of its files, without an extension.
    pub fn stem(&self) -> String {
        format!("{}-links", self.whole().stem())
    }

    /// Returns the documents for a file.
    pub fn documents(&self) -> Documents<'_> {
        let document = |report| Document { report, rows: Report::rows(report) };
        Documents { links: self.reports.iter().map(document).collect() }
    }

    /// Returns the parameters in which the links differ, or the round trip.
    pub fn knobs(&self) -> Vec<Knob> {
        let differs = |knob: &Knob| {
            let mut numbers = self.links().map(|(crossing, _)| knob.number(crossing));
            let first = numbers.next();
            numbers.any(|number| Some(number) != first)
        };
        let found: Vec<Knob> = Knob::ALL.into_iter().filter(differs).collect();
        if found.is_empty() { vec![Knob::Rtt] } else { found }
    }

    /// Returns links on which eight TCP streams also miss the limit, and by how much. There the machine or
    /// TCP may be the limit rather than the link.
    pub fn beyond(&self) -> Vec<(Crossing, String)> {
        let of_streams = |row: &Row| {
            let cell = row.cells.iter().find(|cell| cell.library == LibraryKind::TcpStreams)?;
            Some(cell.time_us?.least / row.limit_us?)
        };
        let of = |(crossing, report): (Crossing, &Report)| {
            let rows = report.rows();
            let longest = rows.iter().map(|row| row.case.bytes).max()?;
            let rows = rows.iter().filter(|row| row.case.bytes == longest);
            let ratio = rows.filter_map(of_streams).min_by(f64::total_cmp)?;
            (ratio > BEYOND).then(|| {
                let size = size_text(longest);
                (
                    crossing,
                    format!("TCP in 8 streams takes {ratio:.2} × the limit for {size} at best"),
                )
            })
        };
        self.links().filter_map(of).collect()
    }
}

fn or<T: Copy>(asked: &[T], usual: T) -> Vec<T> {
    if asked.is_empty() { vec![usual] } else { asked.to_vec() }
}

/// Factor over the limit from which the limit counts as missed.
const BEYOND: f64 = 1.25;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::tests::sample;
    use crate::scenario::IdealLink;

    /// Two rates and three round trips; over the last link TCP in eight streams misses the limit.
    pub(crate) fn sweep() -> Sweep {
        let asked = RequestedLinks {
            rtts: [1, 50, 300].map(Duration::from_millis).into(),
            rates: vec![100_000_000, 10_000_000_000],
            ..RequestedLinks::default()
        };
        let reports = asked.crossings().into_iter().map(|crossing| {
            let mut report = sample();
            report.surroundings =
                Surroundings { crossing: Some(crossing), ..Surroundings::default() };
            report.link = IdealLink::of(report.place, &crossing.spec("far"));
            report.entries[3].library = LibraryKind::TcpStreams;
            let link = report.link.unwrap();
            for read in
                report.entries.iter_mut().flat_map(|entry| entry.rounds.iter_mut().flatten())
            {
                let factor =
                    if link.delay_us > 1e5 && link.goodput_mbit_per_s > 1e3 { 2.0 } else { 1.05 };
                let time_us = factor * link.limit_us(read.bytes);
                read.mean_us = time_us;
                read.median_us = time_us;
            }
            report
        });
        Sweep { reports: reports.collect() }
    }

    #[test]
    fn all_combinations_are_measured_and_what_is_not_asked_for_is_the_labs() {
        assert!(RequestedLinks::default().crossings().is_empty());
        let links = sweep();
        assert_eq!(links.knobs(), [Knob::Rtt, Knob::Rate]);
        let texts: Vec<String> = links.links().map(|(crossing, _)| crossing.title()).collect();
        assert_eq!(texts.len(), 6);
        assert_eq!(texts[0], "1 ms of round trip, 100 Mb/s, 2 MB of buffer");
        assert_eq!(texts[5], "300 ms of round trip, 10 Gb/s, 2 MB of buffer");
        assert_eq!(links.stem(), "pingpong-wan-links");
    }

    #[test]
    fn socket_buffers_are_a_condition_like_others() {
        let asked =
            RequestedLinks { socket_maxima: vec![64_000, 4_000_000], ..RequestedLinks::default() };
        let crossings = asked.crossings().into_iter();
        let texts: Vec<String> = crossings.map(|one| Knob::Sockets.text(one)).collect();
        assert_eq!(texts, ["64 kB", "4 MB"]);
        assert_eq!(Knob::Sockets.text(Crossing::default()), "usual");
    }

    #[test]
    fn links_that_tcp_does_not_fill_either_are_named() {
        let beyond = sweep().beyond();
        assert_eq!(beyond.len(), 1, "{beyond:?}");
        assert!(beyond[0].1.contains("2.00 × the limit for 1 MiB"), "{beyond:?}");
        assert_eq!(Knob::Rtt.text(beyond[0].0), "300 ms");
    }

    #[test]
    fn the_document_has_a_part_for_each_link() {
        let links = sweep();
        let value = serde_json::to_value(links.documents()).unwrap();
        let parts = value["links"].as_array().unwrap();
        assert_eq!(parts.len(), 6);
        assert_eq!(parts[3]["surroundings"]["crossing"]["rate_bits_per_s"], 10_000_000_000_u64);
        assert!(parts[0]["rows"][0]["ratio_to_limit"].as_f64().unwrap() < 1.1);
    }
}
