//! Seeds of all random decisions of a scenario.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Random number below `end`, which is positive.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True with probability 1/`times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Runs a scenario with `count` seeds (`testing::seeds`).
pub fn for_seeds(count: u64, mut scenario: impl FnMut(u64)) {
    for seed in testing::seeds(count) {
        let guard = PrintedOnFailure(seed);
        scenario(seed);
        drop(guard);
    }
}

struct PrintedOnFailure(u64);

impl Drop for PrintedOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {0}; CANELE_SEED={0} runs it alone", self.0);
        }
    }
}
