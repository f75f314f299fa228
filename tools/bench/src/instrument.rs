//! Instruments, each described once (`catalogue`): its program, its options, and how its table and plot are
//! read. The command line, the runs, the tables and the plots follow from the description.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::catalogue;
use crate::library::LibraryKind;
use crate::record::{Case, Measurement};
use crate::scenario::{IdealLink, Place, duration_text, size, size_text};
use crate::statistics::{bandwidth_mbit_per_s, messages_per_us};

/// An instrument: a measurement that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Instrument {
    /// Ping-pong between two ranks.
    Pingpong,
    /// Bursts of messages between two ranks.
    Burst,
    /// Collective operations and ping-pongs of pairs on many ranks.
    Oversubscribed,
    /// A message in one packet, and in many.
    Cut,
    /// A short message behind a long one.
    Behind,
    /// A ping-pong beside receives and messages that do not match.
    Queues,
    /// A ping-pong of one module while another does not receive.
    Modules,
    /// A ping-pong under several settings of Canele.
    Rails,
    /// A ping-pong over a bare rail, and over one below the scheduler.
    Overhead,
    /// A put into polled memory, beside a message and a bare rail.
    Addressed,
    /// Packets that are each needed at once, as one message and one by one.
    Express,
    /// Share of a transfer that overlaps with computation.
    Overlap,
    /// Operations that complete while the application computes.
    Progress,
    /// A ping-pong beside computing threads.
    Reactivity,
    /// Ping-pongs of many threads, and waiting threads.
    Threads,
    /// Partitions of a message that threads make ready.
    Partitioned,
    /// Time until a send returns.
    Offload,
    /// CPU time spent waiting.
    Idle,
    /// A ping-pong over a long link, at once and after silence.
    Wan,
    /// Long messages in a row, from the first on a new connection.
    Slowstart,
    /// The start of a job and its first messages.
    First,
    /// Collective operations.
    Coll,
    /// Two collective operations on numbers of ranks that are no powers of two.
    Torres,
    /// All ranks of one half with all of the other.
    Pairs,
    /// One-sided operations.
    Onesided,
    /// Random updates of a common table.
    Gups,
    /// Kernels of the NAS Parallel Benchmarks.
    Nas,
    /// Rays traced for a master, and a merged mesh.
    Ray2mesh,
    /// An image by magnetic resonance, simulated line by line for a master.
    Simri,
    /// Files by all ranks.
    Io,
}

/// An instrument, as a value.
#[derive(Debug)]
pub struct Description {
    /// Name of the command and of its files.
    pub name: &'static str,
    /// Subject of the measurement, in a line.
    pub about: &'static str,
    /// Measured quantities with their units.
    pub details: &'static str,
    /// Name of its C source, or of the command that runs instead if it is Canele's own.
    pub program: &'static str,
    /// True if only Canele can run it, on this machine, by a command of its own.
    pub is_own: bool,
    /// Meaning of its times, in a title.
    pub title: &'static str,
    /// Meaning of its times, beside an axis.
    pub time: &'static str,
    /// Option for sizes; none if it has sizes of its own.
    pub sizes: Option<Numbers>,
    /// Option for counts, beside each size.
    pub counts: Option<Numbers>,
    /// True if the case exists for the instrument.
    pub has_case: fn(Case) -> bool,
    /// Option for numbers of ranks, each in a run of its own; none means two.
    pub ranks: Option<Numbers>,
    /// Default place.
    pub place: Place,
    /// Number of network interfaces that each node needs.
    pub nics: u32,
    /// Number of nodes per site in a lab created for it.
    pub nodes: u32,
    /// Instrument that follows if it is measured alone.
    pub then: Option<Instrument>,
    /// Sizes for a thorough run, if they differ.
    pub long_sizes: Option<&'static str>,
    /// Number of settings of Canele that it needs.
    pub least_variants: usize,
    /// Number of measurements, or of reasons for missing ones, that the program prints for a case.
    pub operations: fn(Case) -> usize,
    /// Statistics of its samples that have a row each.
    pub statistics: &'static [Statistic],
    /// Columns of the table whose values have a panel of the plot each.
    pub panels: &'static [Column],
    /// The other columns that name a row; the last is the axis of the plot's panels.
    pub axis: &'static [Column],
    /// Style of its panels.
    pub shape: Shape,
    /// Quantity that is shown and drawn beside the time.
    pub figure: Option<Quantity>,
    /// True if the time is drawn, too.
    pub draws_time: bool,
    /// True if the plot shows the time over the limit, if there is one.
    pub draws_of_limit: bool,
    /// Base that the other cases of the same size are compared with.
    pub base: Option<Base>,
    /// Bytes that a sample moves, approximately.
    pub moved_bytes: fn(Case) -> u64,
    /// Least duration of a sample, in seconds, with any library.
    pub sample_s: fn(Case) -> f64,
    /// Least time of an operation that a link allows, if that is known.
    pub least_us: Option<fn(&IdealLink, &str, Case) -> f64>,
    /// Programs that can do the same at a place, without any MPI.
    pub bare: fn(Place) -> &'static [LibraryKind],
    /// True if its program can stop for the counters of links.
    pub has_crossing: bool,
    /// True if rows of a case and statistic are drawn.
    pub is_drawn: fn(Case, Statistic) -> bool,
}

/// Base of a comparison between cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The base.
    pub against: Against,
    /// Head of the column.
    pub head: &'static str,
    /// Relation to the base.
    pub relation: Relation,
}

/// Base of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The same operation and size at this count.
    Count(u64),
    /// This operation in the same case.
    Operation(&'static str),
    /// The same operation, size and count on this number of ranks.
    Ranks(u32),
}

/// Statistic over the samples of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// The first sample of its size, before any warm-up.
    First,
    /// The minimum.
    Least,
    /// The median.
    Median,
    /// The mean.
    Mean,
    /// The 99th percentile.
    P99,
}

impl Statistic {
    /// Returns its value, in microseconds.
    pub fn of(self, read: &Measurement) -> f64 {
        match self {
            Self::First => read.first_us,
            Self::Least => read.min_us,
            Self::Median => read.median_us,
            Self::Mean => read.mean_us,
            Self::P99 => read.p99_us,
        }
    }

    /// Returns its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Least => "least",
            Self::Median => "median",
            Self::Mean => "mean",
            Self::P99 => "99th percentile",
        }
    }
}

/// Relation of a time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Divided by it.
    Ratio,
    /// The difference, in µs.
    Difference,
}

impl Relation {
    /// Returns the ratio or the difference.
    pub fn of(self, time_us: f64, base_us: f64) -> f64 {
        match self {
            Self::Ratio => time_us / base_us,
            Self::Difference => time_us - base_us,
        }
    }
}

/// A list of numbers on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Name of the option.
    pub option: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Default values.
    pub default: &'static str,
    /// Values for a trial of a few seconds.
    pub quick: &'static str,
    /// The minimum.
    pub least: u64,
    /// The maximum.
    pub most: u64,
    /// Words that stand for the numbers from 0 on; none if they are given as numbers.
    pub words: &'static [&'static str],
}

/// A column that names rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The operation.
    Operation,
    /// The size, under this head.
    Bytes(&'static str),
    /// The count, under this head.
    Count(&'static str),
    /// The count, which is of bytes, under this head.
    Length(&'static str),
    /// The count as one of these words, under this head.
    Word(&'static str, &'static [&'static str]),
    /// The count, which is of microseconds, under this head.
    Duration(&'static str),
    /// The statistic.
    Statistic,
    /// The number of ranks.
    Ranks,
}

/// Style of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line for each library over the axis, both scales logarithmic.
    Lines,
    /// Bars for each library beside each other.
    Bars,
    /// A line for each library over the time that the samples took in their order, both scales linear.
    Trace,
}

/// Quantity that is drawn, or shown beside the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The time as measured, in µs.
    Time,
    /// The message's bytes over the time, in Mb/s.
    Bandwidth,
    /// Messages over the time, in millions a second.
    Rate,
    /// The time over the least that the link allows.
    OfLimit,
    /// A share that the program measured.
    Share(Share),
}

/// Description of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The head of its column.
    pub head: &'static str,
    /// Its meaning, beside an axis.
    pub label: &'static str,
    /// True if values that noise has put below 0 or above 1 are clamped.
    pub is_clamped: bool,
    /// A part shown beside it, likewise: the head of its column, and its name.
    pub beside: Option<(&'static str, &'static str)>,
}

impl Share {
    /// Returns the share as it is shown.
    pub fn shown(self, share: f64) -> f64 {
        if self.is_clamped { share.clamp(0.0, 1.0) } else { share }
    }
}

impl Quantity {
    /// Returns the quantity for a time. None for a share and for the time over the limit, which do not follow
    /// from it.
    pub fn of(self, case: Case, time_us: f64) -> Option<f64> {
        match self {
            Self::Time => Some(time_us),
            Self::Bandwidth => Some(bandwidth_mbit_per_s(case.bytes, time_us)),
            Self::Rate => Some(messages_per_us(case.count, time_us)),
            Self::OfLimit | Self::Share(_) => None,
        }
    }

    /// Returns its unit, in a table.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Time => "µs",
            Self::Bandwidth => "Mb/s",
            Self::Rate => "M/s",
            Self::OfLimit => "/ limit",
            Self::Share(share) => share.head,
        }
    }
}

impl Column {
    /// Returns its head.
    pub fn head(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Statistic => "of the samples",
            Self::Ranks => "ranks",
            Self::Bytes(head)
            | Self::Count(head)
            | Self::Length(head)
            | Self::Word(head, _)
            | Self::Duration(head) => head,
        }
    }

    /// Returns the text of a cell.
    pub fn text(self, operation: &str, case: Case, statistic: Statistic) -> String {
        match self {
            Self::Operation => operation.to_owned(),
            Self::Bytes(_) => size_text(case.bytes),
            Self::Count(_) => case.count.to_string(),
            Self::Length(_) => size_text(case.count),
            Self::Word(_, words) => words.get(case.count as usize).copied().unwrap_or("?").into(),
            Self::Duration(_) => duration_text(case.count),
            Self::Statistic => statistic.name().into(),
            Self::Ranks => case.ranks.to_string(),
        }
    }

    /// Returns the number for an axis; 0 for an operation and a statistic.
    pub fn number(self, case: Case) -> u64 {
        match self {
            Self::Operation | Self::Statistic => 0,
            Self::Bytes(_) => case.bytes,
            Self::Ranks => u64::from(case.ranks),
            Self::Count(_) | Self::Length(_) | Self::Word(..) | Self::Duration(_) => case.count,
        }
    }
}

impl Description {
    /// Returns the columns that name a row.
    pub fn columns(&self) -> impl Iterator<Item = Column> {
        self.panels.iter().chain(self.axis).copied()
    }
}

impl Numbers {
    /// Reads a list: `16,64k,4M` (binary), or words.
    ///
    /// # Errors
    /// Fails for a text that is no number, or out of bounds.
    pub fn parse(self, text: &str) -> Result<Vec<u64>, String> {
        let number = |word: &str| {
            if !self.words.is_empty() {
                let index = self.words.iter().position(|known| known.eq_ignore_ascii_case(word));
                let index = index.ok_or_else(|| format!("{word} is not {}", self.bounds()))?;
                return Ok(index as u64);
            }
            let number = size(word)?;
            if (self.least..=self.most).contains(&number) {
                return Ok(number);
            }
            Err(format!("{word} is not {}", self.bounds()))
        };
        text.split(',').map(number).collect()
    }

    /// Returns the bounds of each number: `between 1 and 64k`, or the words.
    pub fn bounds(self) -> String {
        if !self.words.is_empty() {
            return format!("one of {}", self.words.join(", "));
        }
        let [least, most] = [self.least, self.most].map(short_text);
        format!("between {least} and {most}")
    }
}

/// Formats a number as on the command line: `64k`.
fn short_text(number: u64) -> String {
    match number {
        0 => "0".into(),
        _ if number.is_multiple_of(1 << 20) => format!("{}M", number >> 20),
        _ if number.is_multiple_of(1 << 10) => format!("{}k", number >> 10),
        _ => number.to_string(),
    }
}

impl Instrument {
    /// All instruments.
    pub const ALL: [Self; 30] = [
        Self::Pingpong,
        Self::Burst,
        Self::Oversubscribed,
        Self::Cut,
        Self::Behind,
        Self::Queues,
        Self::Modules,
        Self::Rails,
        Self::Overhead,
        Self::Addressed,
        Self::Express,
        Self::Overlap,
        Self::Progress,
        Self::Reactivity,
        Self::Threads,
        Self::Partitioned,
        Self::Offload,
        Self::Idle,
        Self::Wan,
        Self::Slowstart,
        Self::First,
        Self::Coll,
        Self::Torres,
        Self::Pairs,
        Self::Onesided,
        Self::Gups,
        Self::Nas,
        Self::Ray2mesh,
        Self::Simri,
        Self::Io,
    ];

    /// Returns its description.
    pub fn description(self) -> &'static Description {
        match self {
            Self::Pingpong => &catalogue::PINGPONG,
            Self::Burst => &catalogue::BURST,
            Self::Oversubscribed => &catalogue::OVERSUBSCRIBED,
            Self::Cut => &catalogue::CUT,
            Self::Behind => &catalogue::BEHIND,
            Self::Queues => &catalogue::QUEUES,
            Self::Modules => &catalogue::MODULES,
            Self::Rails => &catalogue::RAILS,
            Self::Overhead => &catalogue::OVERHEAD,
            Self::Addressed => &catalogue::ADDRESSED,
            Self::Express => &catalogue::EXPRESS,
            Self::Overlap => &catalogue::OVERLAP,
            Self::Progress => &catalogue::PROGRESS,
            Self::Reactivity => &catalogue::REACTIVITY,
            Self::Threads => &catalogue::THREADS,
            Self::Partitioned => &catalogue::PARTITIONED,
            Self::Offload => &catalogue::OFFLOAD,
            Self::Idle => &catalogue::IDLE,
            Self::Wan => &catalogue::WAN,
            Self::Slowstart => &catalogue::SLOWSTART,
            Self::First => &catalogue::FIRST,
            Self::Coll => &catalogue::COLL,
            Self::Torres => &catalogue::TORRES,
            Self::Pairs => &catalogue::PAIRS,
            Self::Onesided => &catalogue::ONESIDED,
            Self::Gups => &catalogue::GUPS,
            Self::Nas => &catalogue::NAS,
            Self::Ray2mesh => &catalogue::RAY2MESH,
            Self::Simri => &catalogue::SIMRI,
            Self::Io => &catalogue::IO,
        }
    }
}

impl FromStr for Instrument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.description().name == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(|known| known.description().name).join(", ");
            format!("no instrument `{text}`: there are {names}")
        })
    }
}

/// Cases of an instrument to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The instrument.
    pub instrument: Instrument,
    /// Numbers of ranks, each in a run of its own.
    pub ranks: Vec<u32>,
    /// Sizes, in bytes.
    pub sizes: Vec<u64>,
    /// Counts.
    pub counts: Vec<u64>,
}

impl Workload {
    /// Returns the default workload.
    pub fn new(instrument: Instrument) -> Self {
        Self::of(instrument, |numbers| numbers.default)
    }

    /// Returns the workload of a trial of a few seconds.
    pub fn quick(instrument: Instrument) -> Self {
        Self::of(instrument, |numbers| numbers.quick)
    }

    /// Returns the workload of a thorough run.
    pub fn long(instrument: Instrument) -> Self {
        let description = instrument.description();
        let sizes = description.sizes.zip(description.long_sizes);
        let sizes = sizes.and_then(|(numbers, text)| numbers.parse(text).ok());
        let workload = Self::new(instrument);
        Self { sizes: sizes.unwrap_or(workload.sizes.clone()), ..workload }
    }

    fn of(instrument: Instrument, text: fn(&Numbers) -> &'static str) -> Self {
        let list = |numbers: Option<Numbers>| {
            let list = numbers.map(|numbers| numbers.parse(text(&numbers)));
            list.and_then(Result::ok).unwrap_or_default()
        };
        let description = instrument.description();
        let (sizes, counts) = (list(description.sizes), list(description.counts));
        let mut workload = Self { instrument, ranks: vec![2], sizes, counts };
        if description.ranks.is_some() {
            workload.run_on(&list(description.ranks));
        }
        workload
    }

    /// Sets the numbers of ranks.
    pub fn run_on(&mut self, ranks: &[u64]) {
        self.ranks = ranks.iter().map(|ranks| *ranks as u32).collect();
    }

    /// The instrument, as a value.
    pub fn description(&self) -> &'static Description {
        self.instrument.description()
    }

    /// Returns the meaning of its times, in a title.
    pub fn title(&self) -> String {
        let Description { title, ranks, .. } = self.description();
        match (ranks, &self.ranks[..]) {
            (Some(_), [ranks]) => format!("{title}, on {ranks} ranks"),
            _ => (*title).into(),
        }
    }

    /// Returns the program's arguments.
    pub fn arguments(&self, seconds: f64) -> Vec<String> {
        let word = |case: Case| match self.counts[..] {
            [] => case.bytes.to_string(),
            _ => format!("{}/{}", case.bytes, case.count),
        };
        std::iter::once(seconds.to_string()).chain(self.cases().into_iter().map(word)).collect()
    }

    /// Returns a case for people: the word of its count, or its size.
    pub fn case_text(&self, case: Case) -> String {
        let words = self.description().counts.map_or(&[][..], |counts| counts.words);
        match words.get(case.count as usize) {
            Some(word) => (*word).into(),
            None => size_text(case.bytes),
        }
    }

    /// Returns the number of measurements, or of reasons for missing ones, that the program prints in a run.
    pub fn measurements(&self) -> usize {
        let Description { sizes, operations, .. } = self.description();
        match sizes {
            Some(_) => self.cases().into_iter().map(operations).sum(),
            None => operations(Case { bytes: 0, count: 0, ranks: 0 }),
        }
    }

    /// Returns the time limit of a run. It is generous: over a long link, a message may take several seconds,
    /// and a few are sent whatever the budget is.
    pub fn limit(&self, seconds: f64, link: Option<&IdealLink>) -> Duration {
        let Description { moved_bytes, sample_s, operations, .. } = self.description();
        let moved: u64 = self.cases().into_iter().map(moved_bytes).sum();
        let transfers = moved as f64 * 100.0 / 50e6;
        let budgets = self.measurements() as f64 * seconds * 10.0;
        let samples = |case: Case| operations(case) as f64 * sample_s(case) * 20.0;
        let samples: f64 = self.cases().into_iter().map(samples).sum();
        let on_link = link.map_or(0.0, |link| {
            self.cases().into_iter().map(|case| self.on_link_s(case, link)).sum()
        });
        Duration::from_secs_f64(60.0 + budgets + transfers + samples + 10.0 * on_link)
    }

    /// Estimates the duration of a run without its start, if messages take as long as the link allows; `link` is `None`
    /// on one machine.
    pub fn estimate(&self, seconds: f64, link: Option<&IdealLink>) -> Duration {
        let Description { sample_s, operations, .. } = self.description();
        let of = |case: Case| {
            let silent_s = operations(case) as f64 * sample_s(case) * (SAMPLES_LEAST + WARMING);
            let on_link_s = link.map_or(0.0, |link| self.on_link_s(case, link));
            (silent_s + on_link_s).max(operations(case) as f64 * seconds)
        };
        Duration::from_secs_f64(self.cases().into_iter().map(of).sum())
    }

    /// Returns the time that the fewest samples of a case spend on a fully used link, in seconds.
    fn on_link_s(&self, case: Case, link: &IdealLink) -> f64 {
        let Description { shape, operations, .. } = self.description();
        let samples = match shape {
            Shape::Trace => case.count as f64,
            Shape::Lines | Shape::Bars => operations(case) as f64 * (SAMPLES_LEAST + WARMING),
        };
        2e-6 * samples * link.limit_us(case.bytes)
    }

    /// Returns the least duration of a run with any library and budget: silences and computing of the fewest
    /// samples.
    pub fn least(&self) -> Duration {
        let Description { sample_s, operations, .. } = self.description();
        let least = |case: Case| operations(case) as f64 * sample_s(case) * SAMPLES_LEAST;
        Duration::from_secs_f64(self.cases().into_iter().map(least).sum())
    }

    fn cases(&self) -> Vec<Case> {
        let counts: &[u64] = if self.counts.is_empty() { &[0] } else { &self.counts };
        let of = |bytes: &u64| {
            let bytes = *bytes;
            counts.iter().map(move |count| Case { bytes, count: *count, ranks: 0 })
        };
        let has_case = self.description().has_case;
        self.sizes.iter().flat_map(of).filter(|case| has_case(*case)).collect()
    }
}

/// Minimum number of samples per case (`bench/samples.h`).
const SAMPLES_LEAST: f64 = 3.0;
/// Number of warm-up samples before them.
const WARMING: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_links_take_longer_and_are_given_longer() {
        let usual = IdealLink::of(Place::Wan, &lab::Spec::default()).unwrap();
        let near = IdealLink { delay_us: 500.0, ..usual };
        let far = IdealLink { delay_us: 150_000.0, goodput_mbit_per_s: 94.1, ..usual };
        let wan = Workload { sizes: vec![1, 4 << 20], ..Workload::new(Instrument::Wan) };
        let row = Workload::new(Instrument::Slowstart);
        for workload in [wan, row] {
            let times = [near, far].map(|link| {
                let (took, limit) =
                    (workload.estimate(0.2, Some(&link)), workload.limit(0.2, Some(&link)));
                assert!(limit > 2 * took, "{limit:?} for {took:?}");
                took
            });
            assert!(times[1] > times[0], "{times:?}");
        }
    }

    #[test]
    fn every_description_is_complete_and_its_defaults_are_allowed() {
        for instrument in Instrument::ALL {
            let description = instrument.description();
            assert_eq!(description.name.parse(), Ok(instrument));
            for text in
                [description.about, description.details, description.program, description.title]
            {
                assert!(!text.is_empty(), "{instrument:?}");
            }
            let lists = [description.sizes, description.counts, description.ranks];
            for numbers in lists.into_iter().flatten() {
                for text in [numbers.default, numbers.quick] {
                    let list = numbers.parse(text);
                    assert!(list.is_ok_and(|list| !list.is_empty()), "{instrument:?}");
                }
            }
            assert!(!description.statistics.is_empty(), "{instrument:?}");
            let (whole, quick) = (Workload::new(instrument), Workload::quick(instrument));
            assert!((1..=whole.measurements()).contains(&quick.measurements()), "{instrument:?}");
            let long = Workload::long(instrument).measurements();
            assert_eq!(long > whole.measurements(), description.long_sizes.is_some());
        }
        let error = "moon".parse::<Instrument>().unwrap_err();
        assert!(error.contains("moon") && error.contains("burst"), "{error}");
    }

    #[test]
    fn numbers_out_of_bounds_are_named_with_the_bounds() {
        let numbers = catalogue::BURST.sizes.unwrap();
        assert_eq!(numbers.parse("8,64k"), Ok(vec![8, 65536]));
        let error = numbers.parse("8,1M").unwrap_err();
        assert_eq!(error, "1M is not between 1 and 64k");
        assert!(numbers.parse("5x").unwrap_err().contains("5x"));
    }

    #[test]
    fn arguments_have_the_format_that_programs_read() {
        let burst = Workload {
            counts: vec![1000],
            sizes: vec![8, 1024],
            ..Workload::new(Instrument::Burst)
        };
        assert_eq!(burst.arguments(0.5), ["0.5", "8/1000", "1024/1000"]);
        assert_eq!((&burst.ranks[..], burst.measurements()), (&[2][..], 2));
        let pingpong = Workload { sizes: vec![8], ..Workload::new(Instrument::Pingpong) };
        assert_eq!(pingpong.arguments(0.5), ["0.5", "8"]);
        let cut = Workload {
            sizes: vec![2, 64],
            counts: vec![1, 2, 4],
            ..Workload::new(Instrument::Cut)
        };
        assert_eq!(cut.arguments(1.0), ["1", "2/1", "2/2", "64/1", "64/2", "64/4"]);
        let mut oversubscribed = Workload::new(Instrument::Oversubscribed);
        assert_eq!(
            (oversubscribed.arguments(1.0), oversubscribed.measurements()),
            (vec!["1".to_owned()], 4)
        );
        assert!(!oversubscribed.title().contains("ranks"));
        oversubscribed.run_on(&[16]);
        assert!(oversubscribed.title().contains("16 ranks"));
        let progress = Workload {
            sizes: vec![0, 8],
            counts: vec![100],
            ..Workload::new(Instrument::Progress)
        };
        assert_eq!(progress.measurements(), 2 + 6);
    }
}
