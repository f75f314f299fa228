//! Records that the programs print: a line of JSON that describes the program, then one per operation and
//! size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One case of a program: a count and a size; the instrument defines what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Size of a message, in bytes.
    pub bytes: u64,
    /// Count, or the length of what precedes; 0 if nothing is counted.
    pub count: u64,
    /// Number of ranks; 0 if it is not known yet.
    pub ranks: u32,
}

/// First line of a program: its name, library, hosts and clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The program's name.
    pub program: String,
    /// The number of ranks.
    pub ranks: u32,
    /// Version that the library reports.
    pub library: String,
    /// The hosts of the first and of the last rank.
    pub hosts: Vec<String>,
    /// The clock.
    pub clock: Clock,
}

/// Properties of a clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Source of the clock.
    pub source: String,
    /// Ticks per microsecond.
    pub ticks_per_us: f64,
    /// Duration of a reading.
    pub overhead_ns: f64,
    /// Least time that it resolves.
    pub resolution_ns: f64,
    /// A known sleep: the requested duration.
    pub sleep_asked_ms: f64,
    /// Its duration by the system's clock.
    pub sleep_system_ms: f64,
    /// Its duration by this clock.
    pub sleep_clock_ms: f64,
}

impl Clock {
    /// Returns the relative difference between this clock and the system's.
    pub fn error(&self) -> f64 {
        (self.sleep_clock_ms / self.sleep_system_ms - 1.0).abs()
    }
}

/// An operation at one size. Times are in microseconds: of half a round trip, or of the operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Operation.
    pub operation: String,
    /// Size of messages, in bytes.
    pub bytes: u64,
    /// Count of messages, or of what else the instrument counts.
    pub count: u64,
    /// Number of ranks, from the program's first line.
    #[serde(default)]
    pub ranks: u32,
    /// Number of samples.
    pub samples: u64,
    /// First sample of this size, before any warm-up; not among the samples.
    pub first_us: f64,
    /// Minimum.
    pub min_us: f64,
    /// First quartile.
    pub p25_us: f64,
    /// Median.
    pub median_us: f64,
    /// Third quartile.
    pub p75_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// Share that the instrument measures, as computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Parts of the share and further values, by name with its unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, f64>,
    /// Samples in their order, if the instrument needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace_us: Vec<f64>,
}

/// A measurement that the library could not make, while it goes on with others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Missing {
    /// Operation.
    pub operation: String,
    /// Size of messages, in bytes.
    pub bytes: u64,
    /// Count of messages.
    pub count: u64,
    /// Number of ranks, from the program's first line.
    #[serde(default)]
    pub ranks: u32,
    /// Reason why it is missing.
    pub missing: String,
}

impl Missing {
    /// Returns the case that was to be measured.
    pub fn case(&self) -> Case {
        Case { bytes: self.bytes, count: self.count, ranks: self.ranks }
    }
}

impl Measurement {
    /// Builds a measurement from samples in microseconds, at least one; as in `bench/samples.h`.
    pub fn of(operation: &str, case: Case, first_us: f64, samples_us: &[f64]) -> Self {
        let mut sorted = samples_us.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let quantile = |share: f64| {
            let index = (share * count as f64).ceil() as usize;
            sorted[index.saturating_sub(1).min(count - 1)]
        };
        Self {
            operation: operation.into(),
            bytes: case.bytes,
            count: case.count,
            ranks: case.ranks,
            samples: count as u64,
            first_us,
            min_us: sorted[0],
            p25_us: quantile(0.25),
            median_us: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
            p75_us: quantile(0.75),
            mean_us: sorted.iter().sum::<f64>() / count as f64,
            p99_us: quantile(0.99),
            max_us: sorted[count - 1],
            share: None,
            parts: BTreeMap::new(),
            trace_us: Vec::new(),
        }
    }

    /// Returns the measured case.
    pub fn case(&self) -> Case {
        Case { bytes: self.bytes, count: self.count, ranks: self.ranks }
    }
}

/// A parsed line of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordLine {
    /// The first line.
    Description(Description),
    /// A measurement.
    Measurement(Measurement),
    /// A missing measurement.
    Missing(Missing),
    /// Start of counting traffic on links, until the next measurement.
    Mark,
    /// Another line, such as a launcher's output.
    Foreign,
}

/// A malformed line of a program.
#[derive(Debug, thiserror::Error)]
#[error("the program printed what cannot be read ({reason}): {line}")]
pub struct RecordError {
    line: String,
    reason: String,
}

impl RecordLine {
    /// Reads a line.
    ///
    /// # Errors
    /// Fails if it is a JSON object of unknown form, or has figures that no clock gives.
    pub fn parse(line: &str) -> Result<Self, RecordError> {
        let line = line.trim();
        if !line.starts_with('{') {
            return Ok(Self::Foreign);
        }
        let wrong = |reason: String| RecordError { line: line.chars().take(200).collect(), reason };
        if line.starts_with("{\"program\"") {
            return serde_json::from_str(line)
                .map(Self::Description)
                .map_err(|error| wrong(error.to_string()));
        }
        if line.starts_with("{\"mark\"") {
            return Ok(Self::Mark);
        }
        if let Ok(missing) = serde_json::from_str(line) {
            return Ok(Self::Missing(missing));
        }
        let read: Measurement =
            serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        if read.samples == 0 || !(read.min_us >= 0.0 && read.median_us > 0.0) {
            return Err(wrong("no samples, or no time".into()));
        }
        Ok(Self::Measurement(read))
    }
}

#[cfg(test)]
pub(crate) fn measurement(operation: &str, case: Case, median_us: f64) -> Measurement {
    Measurement {
        operation: operation.into(),
        bytes: case.bytes,
        count: case.count,
        ranks: case.ranks,
        samples: 100,
        first_us: median_us * 3.0,
        min_us: median_us * 0.9,
        p25_us: median_us * 0.95,
        median_us,
        p75_us: median_us * 1.1,
        mean_us: median_us * 1.05,
        p99_us: median_us * 2.0,
        max_us: median_us * 4.0,
        share: None,
        parts: BTreeMap::new(),
        trace_us: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTION: &str = r#"{"program": "pingpong", "ranks": 2, "library": "MPICH Version:      5.0.2", "hosts": ["a", "b"], "clock": {"source": "time-stamp counter", "ticks_per_us": 2596.1, "overhead_ns": 18.9, "resolution_ns": 10.0, "sleep_asked_ms": 20.0, "sleep_system_ms": 20.1, "sleep_clock_ms": 20.1}}"#;
    const MEASUREMENT: &str = r#"{"operation": "pingpong", "bytes": 8, "count": 0, "samples": 50, "first_us": 38.0, "min_us": 0.1, "p25_us": 0.2, "median_us": 0.2, "p75_us": 0.3, "mean_us": 0.25, "p99_us": 0.4, "max_us": 9.7}"#;

    #[test]
    fn the_lines_of_a_program_are_told_apart() {
        let RecordLine::Description(description) = RecordLine::parse(DESCRIPTION).unwrap() else {
            panic!("not a description");
        };
        assert_eq!(description.hosts, ["a", "b"]);
        assert_eq!(description.clock.error(), 0.0);
        let RecordLine::Measurement(read) = RecordLine::parse(MEASUREMENT).unwrap() else {
            panic!("not a measurement");
        };
        assert_eq!((read.bytes, read.samples, read.p99_us), (8, 50, 0.4));
        assert_eq!((read.share, read.parts.len()), (None, 0));
        let shared = MEASUREMENT.replace('}', r#", "share": -0.1, "parts": {"computing_us": 7}}"#);
        let RecordLine::Measurement(read) = RecordLine::parse(&shared).unwrap() else {
            panic!("not a measurement");
        };
        assert_eq!((read.share, read.parts["computing_us"]), (Some(-0.1), 7.0));
        let missing = r#"{"operation": "x", "bytes": 1, "count": 2, "missing": "no such call"}"#;
        let RecordLine::Missing(missing) = RecordLine::parse(missing).unwrap() else {
            panic!("not a missing one");
        };
        assert_eq!(
            (missing.case(), &missing.missing[..]),
            (Case { bytes: 1, count: 2, ranks: 0 }, "no such call")
        );
        assert_eq!(RecordLine::parse(r#"{"mark": "crossing"}"#).unwrap(), RecordLine::Mark);
        assert_eq!(RecordLine::parse("[warn] a launcher's word").unwrap(), RecordLine::Foreign);
    }

    #[test]
    fn a_broken_line_is_an_error_that_shows_it() {
        for line in [
            &MEASUREMENT[..60],
            "{\"bytes\": 1}",
            "{\"program\": 3}",
            &MEASUREMENT.replace("\"median_us\": 0.2", "\"median_us\": 0"),
            &MEASUREMENT.replace("\"samples\": 50", "\"samples\": 0"),
        ] {
            let error = RecordLine::parse(line).unwrap_err().to_string();
            assert!(error.contains(&line[..8]), "{error}");
        }
    }

    #[test]
    fn statistics_are_those_of_the_programs() {
        let samples_us: Vec<f64> = (0..100).map(|at| f64::from(100 - at)).collect();
        let read =
            Measurement::of("known", Case { bytes: 3, count: 7, ranks: 2 }, 7.0, &samples_us);
        assert_eq!((read.samples, read.first_us, read.min_us, read.max_us), (100, 7.0, 1.0, 100.0));
        assert_eq!((read.p25_us, read.median_us, read.p75_us), (25.0, 50.5, 75.0));
        assert_eq!((read.mean_us, read.p99_us), (50.5, 99.0));
    }

    #[test]
    fn a_measurement_survives_its_own_json() {
        let made = measurement("burst", Case { bytes: 8, count: 10, ranks: 16 }, 4.0);
        let text = serde_json::to_string(&made).unwrap();
        assert_eq!(RecordLine::parse(&text).unwrap(), RecordLine::Measurement(made));
    }
}
