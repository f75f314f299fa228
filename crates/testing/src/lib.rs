//! Shared by the tests of all crates: random numbers, the seeds of random tests, their budget, and the skips that tests
//! report.

#![forbid(unsafe_code)]

use std::fmt::{Debug, Display};
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::sync::Once;
use std::thread;
use std::time::Duration;

/// Pseudorandom numbers that a seed repeats: SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number
/// Generators*, 2014). Snapshots depend on the sequence.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless sequence needs no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..end`.
    ///
    /// # Panics
    ///
    /// If `end` is not positive.
    pub fn below<N>(&mut self, end: N) -> N
    where
        N: TryInto<u64, Error: Debug> + TryFrom<u64, Error: Debug>,
    {
        let end = end.try_into().expect("a positive end");
        N::try_from(self.next() % end).expect("a number below `end`")
    }

    /// Returns a number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }

    /// True with probability 1 in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the items.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Seeds for `count` random cases, from 0 on, times the budget. `CANELE_SEED=7` gives seed 7 alone,
/// `CANELE_SEED=7+` gives as many seeds from 7 on.
///
/// # Panics
///
/// If `CANELE_SEED` or the budget is malformed.
pub fn seeds(count: u64) -> Seeds {
    let wish = std::env::var("CANELE_SEED").ok();
    Seeds { left: seeds_of(wish.as_deref(), count.saturating_mul(budget())), last: None }
}

/// True if `CANELE_SEED` is set: tests that need many seeds to find something do not look for it.
pub fn is_seed_given() -> bool {
    std::env::var_os("CANELE_SEED").is_some()
}

/// Iterator of [`seeds`]. If its loop panics, it prints the seed of the panic.
#[derive(Debug)]
pub struct Seeds {
    left: Range<u64>,
    last: Option<u64>,
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.last = self.left.next();
        self.last
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let Some(seed) = self.last.filter(|_| std::thread::panicking()) {
            eprintln!("failed with seed {seed}; CANELE_SEED={seed} runs it alone");
        }
    }
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

/// Maximum number of preemptions in the largest models of lock-free code, whose orders grow with its power: 2, and 3 if
/// the budget is raised. `LOOM_MAX_PREEMPTIONS` overrides it.
///
/// # Panics
///
/// If the budget is malformed.
pub fn preemptions() -> usize {
    if budget() > 1 { 3 } else { 2 }
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

/// Ends all tests of the program at the first failure, for the other ranks of a job within it would wait. Also ends them
/// after `patience`.
pub fn end_together(patience: Duration) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| fail(&panic.to_string())));
        thread::spawn(move || {
            thread::sleep(patience);
            fail(&format!("not done after {patience:?}"));
        });
    });
}

fn fail(why: &str) {
    // What goes through `eprintln!` is kept until the test ends.
    let _ = writeln!(std::io::stderr(), "{why}");
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers() {
        let draws = |seed| {
            let mut random = Random::new(seed);
            [(); 3].map(|()| random.next())
        };
        // The first outputs of Vigna's reference implementation for the seed 1234567.
        assert_eq!(draws(1_234_567)[..2], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_eq!(draws(7), draws(7));
        let mut random = Random::new(5);
        let dice: [u8; 100] = [(); 100].map(|()| random.below(6));
        assert!((0..6).all(|face| dice.contains(&face)) && dice.iter().all(|face| *face < 6));
    }

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
