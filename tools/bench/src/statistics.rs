//! Statistics over several rounds of the same measurement.

use serde::{Deserialize, Serialize};

/// A value measured in several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Across {
    /// The median over the rounds.
    pub median: f64,
    /// The minimum: the least disturbed round.
    pub least: f64,
    /// The maximum.
    pub greatest: f64,
    /// The difference between maximum and minimum, as a share of the median.
    pub spread: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Across {
    /// Computes the statistics; none without a value.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, greatest) = (*sorted.first()?, *sorted.last()?);
        let median = middle(&sorted);
        let spread = if median > 0.0 { (greatest - least) / median } else { 0.0 };
        Some(Self { median, least, greatest, spread, rounds: sorted.len() })
    }
}

/// Returns the median of sorted values, at least one.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// Returns the bandwidth in Mb/s (10⁶ bits).
pub fn bandwidth_mbit_per_s(bytes: u64, time_us: f64) -> f64 {
    bytes as f64 * 8.0 / time_us
}

/// Returns millions of messages per second.
pub fn messages_per_us(count: u64, time_us: f64) -> f64 {
    count as f64 / time_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_sorted_values() {
        let across = Across::of(&[4.0, 1.0, 2.0]).unwrap();
        assert_eq!((across.median, across.rounds), (2.0, 3));
        assert_eq!((across.least, across.spread), (1.0, 1.5));
        assert_eq!(Across::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn one_round_has_no_spread_and_none_has_no_median() {
        assert_eq!(
            Across::of(&[7.5]),
            Some(Across { median: 7.5, least: 7.5, greatest: 7.5, spread: 0.0, rounds: 1 })
        );
        assert_eq!(Across::of(&[]), None);
    }

    #[test]
    fn bandwidth_is_bits_over_time() {
        assert_eq!(bandwidth_mbit_per_s(1_000_000, 8000.0), 1000.0);
    }
}
