//! What the programs print: a line of JSON that describes the program, then one per operation and size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::instrument::Case;

/// The first line: who measures, with which library, where, by which clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The program's name.
    pub program: String,
    /// The number of ranks.
    pub ranks: u32,
    /// What the library calls itself.
    pub library: String,
    /// The hosts of the first and of the last rank.
    pub hosts: Vec<String>,
    /// The clock.
    pub clock: Clock,
}

/// What a clock is worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// What it reads.
    pub source: String,
    /// How fast it ticks.
    pub ticks_per_us: f64,
    /// How long a reading takes.
    pub overhead_ns: f64,
    /// The least time it tells from nothing.
    pub resolution_ns: f64,
    /// A known sleep: what was asked for.
    pub sleep_asked_ms: f64,
    /// How long it was by the system's clock.
    pub sleep_system_ms: f64,
    /// How long it was by this one.
    pub sleep_clock_ms: f64,
}

impl Clock {
    /// By how many parts of one this clock differs from the system's.
    pub fn error(&self) -> f64 {
        (self.sleep_clock_ms / self.sleep_system_ms - 1.0).abs()
    }
}

/// An operation at one size. Times are in microseconds: of half a round trip, or of the operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was done.
    pub operation: String,
    /// With messages of how many bytes.
    pub bytes: u64,
    /// Of how many, or whatever else the instrument counts.
    pub count: u64,
    /// On how many ranks, which the program's first line says.
    #[serde(default)]
    pub ranks: u32,
    /// How many samples the figures are made of.
    pub samples: u64,
    /// The first of this size, before any warm-up; not among the samples.
    pub first_us: f64,
    /// The least.
    pub min_us: f64,
    /// A quarter of the samples are not above.
    pub p25_us: f64,
    /// Half of the samples are not above.
    pub median_us: f64,
    /// Three quarters are not above.
    pub p75_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// 99 % are not above.
    pub p99_us: f64,
    /// The greatest.
    pub max_us: f64,
    /// The share that the instrument is about, as it was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// What the share was made of, and what else belongs to it, by name with its unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, f64>,
    /// The samples in their order, where that is what the instrument is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace_us: Vec<f64>,
}

/// A measurement that the library could not make, while it goes on with others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Missing {
    /// What was to be done.
    pub operation: String,
    /// With messages of how many bytes.
    pub bytes: u64,
    /// Of how many.
    pub count: u64,
    /// On how many ranks, which the program's first line says.
    #[serde(default)]
    pub ranks: u32,
    /// Why it is not there.
    pub missing: String,
}

impl Missing {
    /// What it was to be a measurement of.
    pub fn case(&self) -> Case {
        Case { bytes: self.bytes, count: self.count, ranks: self.ranks }
    }
}

impl Measurement {
    /// Of samples in microseconds, of which there must be one at least; as `bench/samples.h` has it.
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

    /// What it was a measurement of.
    pub fn case(&self) -> Case {
        Case { bytes: self.bytes, count: self.count, ranks: self.ranks }
    }
}

/// A line of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// Its first.
    Description(Description),
    /// One of the others.
    Measurement(Measurement),
    /// That there is none.
    Missing(Missing),
    /// That what crosses links counts from now on, until the next measurement.
    Mark,
    /// Not ours: a launcher may say something too.
    Foreign,
}

/// A line that looks like ours and is not.
#[derive(Debug, thiserror::Error)]
#[error("the program printed what cannot be read ({reason}): {line}")]
pub struct RecordError {
    line: String,
    reason: String,
}

impl Line {
    /// Reads a line.
    ///
    /// # Errors
    /// When it is an object, but none that our programs print, or with figures that no clock gives.
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
        let Line::Description(description) = Line::parse(DESCRIPTION).unwrap() else {
            panic!("not a description");
        };
        assert_eq!(description.hosts, ["a", "b"]);
        assert_eq!(description.clock.error(), 0.0);
        let Line::Measurement(read) = Line::parse(MEASUREMENT).unwrap() else {
            panic!("not a measurement");
        };
        assert_eq!((read.bytes, read.samples, read.p99_us), (8, 50, 0.4));
        assert_eq!((read.share, read.parts.len()), (None, 0));
        let shared = MEASUREMENT.replace('}', r#", "share": -0.1, "parts": {"computing_us": 7}}"#);
        let Line::Measurement(read) = Line::parse(&shared).unwrap() else {
            panic!("not a measurement");
        };
        assert_eq!((read.share, read.parts["computing_us"]), (Some(-0.1), 7.0));
        let missing = r#"{"operation": "x", "bytes": 1, "count": 2, "missing": "no such call"}"#;
        let Line::Missing(missing) = Line::parse(missing).unwrap() else {
            panic!("not a missing one");
        };
        assert_eq!(
            (missing.case(), &missing.missing[..]),
            (Case { bytes: 1, count: 2, ranks: 0 }, "no such call")
        );
        assert_eq!(Line::parse(r#"{"mark": "crossing"}"#).unwrap(), Line::Mark);
        assert_eq!(Line::parse("[warn] a launcher's word").unwrap(), Line::Foreign);
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
            let error = Line::parse(line).unwrap_err().to_string();
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
        assert_eq!(Line::parse(&text).unwrap(), Line::Measurement(made));
    }
}
