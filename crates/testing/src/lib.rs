//! Shared by the tests of all crates: the seeds of random tests, their budget, and the skips that tests report.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;

/// Seeds for `count` random cases, from 0 on, times the budget. `CANELE_SEED=7` gives seed 7 alone,
/// `CANELE_SEED=7+` gives as many seeds from 7 on.
///
/// # Panics
///
/// If `CANELE_SEED` or the budget is malformed.
pub fn seeds(count: u64) -> Range<u64> {
    seeds_of(std::env::var("CANELE_SEED").ok().as_deref(), count.saturating_mul(budget()))
}

/// Number of cases of a property test: `count` times the budget.
///
/// # Panics
///
/// If the budget is malformed.
pub fn cases(count: u32) -> u32 {
    count * u32::try_from(budget()).expect("a smaller CANELE_TEST_BUDGET")
}

/// Factor by which random tests run more cases than in CI: `CANELE_TEST_BUDGET`, a whole number, 1 by default.
///
/// # Panics
///
/// If it is no positive whole number.
pub fn budget() -> u64 {
    budget_of(std::env::var("CANELE_TEST_BUDGET").ok().as_deref())
}

/// Reports that the running test, or a part of it, cannot run here. Appends the line `skip TEST: REASON` to the file
/// that `CANELE_SKIP_LOG` names, since the harness hides what passing tests print. `scripts/test.sh` counts these lines.
///
/// # Panics
///
/// If the file cannot be written.
pub fn skip(reason: impl Display) {
    let thread = std::thread::current();
    let line = format!("skip {}: {reason}\n", thread.name().unwrap_or("test"));
    print!("{line}");
    if let Some(path) = std::env::var_os("CANELE_SKIP_LOG") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("CANELE_SKIP_LOG");
    }
}

fn seeds_of(wish: Option<&str>, count: u64) -> Range<u64> {
    let wish = wish.unwrap_or("0+");
    let (first, count) = match wish.strip_suffix('+') {
        Some(first) => (first, count),
        None => (wish, 1),
    };
    let first = first.parse().unwrap_or_else(|_| panic!("CANELE_SEED={wish} is neither 7 nor 7+"));
    first..count.saturating_add(first)
}

fn budget_of(wish: Option<&str>) -> u64 {
    let budget = wish.unwrap_or("1").parse().ok().filter(|budget| *budget > 0);
    budget.unwrap_or_else(|| {
        panic!("CANELE_TEST_BUDGET={}: not a whole number above 0", wish.unwrap_or(""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_one_or_many() {
        assert_eq!(seeds_of(None, 5), 0..5);
        assert_eq!(seeds_of(Some("7"), 5), 7..8);
        assert_eq!(seeds_of(Some("7+"), 5), 7..12);
    }

    #[test]
    #[should_panic = "CANELE_SEED=seven is neither 7 nor 7+"]
    fn a_malformed_seed_is_an_error() {
        seeds_of(Some("seven"), 5);
    }

    #[test]
    fn the_budget_is_a_whole_number() {
        assert_eq!((budget_of(None), budget_of(Some("10"))), (1, 10));
    }

    #[test]
    #[should_panic = "CANELE_TEST_BUDGET=0: not a whole number above 0"]
    fn no_budget_drops_a_test() {
        budget_of(Some("0"));
    }
}
