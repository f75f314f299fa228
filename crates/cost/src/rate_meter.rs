//! The rate that a path sustains, measured on what arrives while the sender has more to send.
//!
//! A token bucket (RFC 2697), such as shapers and clouds have, lets the first bytes after silence pass at the speed of the line. The
//! rate of a burst is therefore no rate of the path. As in BBR (Cardwell et al., 2016), samples during which the sender
//! had too little to send are discarded, and old results expire. A **run** is what arrives while unsent bytes wait. Its
//! first bytes may have passed a bucket, so only its tail counts. A run that began with the largest bucket is
//! conclusive. Until there is one, the longest of the short runs gives the estimate.

use std::collections::VecDeque;

/// State of a connection at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Time, in nanoseconds.
    pub at_ns: u64,
    /// Bytes acknowledged since the connection opened.
    pub arrived: u64,
    /// Bytes sent and not acknowledged.
    pub in_flight: u64,
    /// True if bytes wait for the connection to take them.
    pub is_backlogged: bool,
    /// Time since the connection opened in which it had nothing to send, or the receiver took nothing.
    pub limited_ns: u64,
}

/// Rate of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunRate {
    bytes_per_s: u64,
    /// Bytes that arrived before the part that was measured.
    skipped: u64,
    /// True if the rate still grew: the path carries at least as much.
    is_floor: bool,
}

/// Estimator of the rate that a path sustains.
#[derive(Clone, Debug, Default)]
pub struct RateMeter {
    /// Samples of the current run, thinned as it grows.
    run: Vec<RateSample>,
    /// Number of bytes that the run ends at, if nothing is unsent.
    covered: u64,
    current: Option<RunRate>,
    /// Results of the last conclusive runs, newest last.
    settled: VecDeque<u64>,
    /// Result of the longest recent run, while none was conclusive.
    brief: Option<RunRate>,
    /// Conclusive rate of earlier connections, until this one has its own.
    remembered: Option<u64>,
}

impl RateMeter {
    /// Creates the meter of a path whose rate an earlier connection has measured, in bytes per second.
    pub fn new(remembered: Option<u64>) -> Self {
        Self { remembered, ..Self::default() }
    }

    /// Rate in bytes per second, if anything has shown one.
    pub fn bytes_per_s(&self) -> Option<u64> {
        self.conclusive().or(self.remembered).or_else(|| self.briefly())
    }

    /// True if the rate is that of a run which no bucket has helped.
    pub fn is_conclusive(&self) -> bool {
        self.conclusive().or(self.remembered).is_some()
    }

    /// True if this connection has shown a rate.
    pub fn has_measured(&self) -> bool {
        self.conclusive().or_else(|| self.briefly()).is_some()
    }

    /// Records a rate that was found by other means, with so many bytes.
    pub fn handle_found(&mut self, bytes_per_s: u64, bytes: u64) {
        self.keep(RunRate { bytes_per_s, skipped: bytes / 2, is_floor: false });
    }

    /// Records the state of the connection. Called often while bytes wait.
    pub fn handle_sample(&mut self, sample: RateSample) {
        let Some(&last) = self.run.last() else {
            if sample.is_backlogged {
                self.run.push(sample);
                self.covered = u64::MAX;
            }
            return;
        };
        if sample.arrived < last.arrived || sample.at_ns < last.at_ns || self.was_limited(&sample) {
            return self.end_run();
        }
        if sample.is_backlogged {
            self.covered = u64::MAX;
        } else {
            // What is in flight still arrives at the rate of the path.
            self.covered = self.covered.min(sample.arrived + sample.in_flight);
        }
        if sample.arrived >= self.covered {
            return self.end_run();
        }
        if sample.arrived > last.arrived {
            self.run.push(sample);
            self.thin();
            self.current = self.measure();
        }
        if sample.arrived.saturating_sub(self.run[0].arrived) >= RUN_MAX {
            let covered = self.covered;
            self.end_run();
            self.run.push(sample);
            self.covered = covered;
        }
    }

    /// True if more samples are wanted: a run has begun.
    pub fn is_running(&self) -> bool {
        !self.run.is_empty()
    }

    /// Ends the run: what follows was limited by an end of the connection.
    pub fn end_run(&mut self) {
        self.run.clear();
        if let Some(rate) = self.current.take() {
            self.keep(rate);
        }
    }

    /// True if an end of the connection has limited the run until this sample.
    fn was_limited(&self, sample: &RateSample) -> bool {
        let Some(first) = self.run.first() else { return false };
        let limited_ns = sample.limited_ns.saturating_sub(first.limited_ns);
        limited_ns > LIMITED_MAX_NS.max((sample.at_ns - first.at_ns) / LIMITED_SHARE)
    }

    fn keep(&mut self, rate: RunRate) {
        if rate.is_conclusive() {
            self.settled.push_back(rate.bytes_per_s);
            if self.settled.len() > SETTLED_MAX {
                self.settled.pop_front();
            }
        }
        self.brief = match self.brief {
            None if rate.is_floor => None,
            Some(brief) if !rate.succeeds(&brief) => {
                // The path may have changed since.
                Some(RunRate { skipped: brief.skipped - brief.skipped / AGEING, ..brief })
            }
            _ => Some(rate),
        };
    }

    fn conclusive(&self) -> Option<u64> {
        let current = self.current.filter(RunRate::is_conclusive).map(|rate| rate.bytes_per_s);
        self.settled.iter().copied().chain(current).max()
    }

    fn briefly(&self) -> Option<u64> {
        let rate = match (self.current, self.brief) {
            (Some(current), Some(brief)) if current.succeeds(&brief) => current,
            (Some(current), None) if !current.is_floor => current,
            (_, brief) => brief?,
        };
        Some(rate.bytes_per_s)
    }

    /// Halves the number of samples when there are many.
    fn thin(&mut self) {
        if self.run.len() > SAMPLES_MAX {
            let last = self.run.len() - 1;
            let mut at = 0;
            self.run.retain(|_| {
                at += 1;
                at % 2 == 1 || at == last + 1
            });
        }
    }

    /// Measures the tail of the current run: behind the bytes that a bucket may hold, or its last third.
    fn measure(&self) -> Option<RunRate> {
        let (first, last) = (self.run.first()?, self.run.last()?);
        let bytes = last.arrived - first.arrived;
        let skip = (bytes / 3 * 2).min(BUCKET_MAX);
        let from = self.run.partition_point(|one| one.arrived - first.arrived < skip);
        let tail = &self.run[from..];
        let begin = tail.first()?;
        let len = last.arrived - begin.arrived;
        if len < TAIL_MIN || last.at_ns - begin.at_ns < TAIL_MIN_NS {
            return None;
        }
        let blocks = blocks(tail, len / BLOCKS);
        let is_floor = is_growing(tail, len);
        Some(RunRate {
            bytes_per_s: middle_rate(blocks),
            skipped: begin.arrived - first.arrived,
            is_floor,
        })
    }
}

impl RunRate {
    /// True if the largest bucket has been emptied before the measured part.
    fn is_conclusive(&self) -> bool {
        self.skipped >= CONCLUSIVE && !self.is_floor
    }

    /// True if this rate replaces an earlier one: it is of at least half as many bytes, or higher though it still grew.
    fn succeeds(&self, earlier: &Self) -> bool {
        if self.is_floor {
            return self.bytes_per_s > earlier.bytes_per_s;
        }
        2 * self.skipped >= earlier.skipped || earlier.is_floor
    }
}

/// Bytes and nanoseconds of successive parts of a run.
fn blocks(tail: &[RateSample], block: u64) -> Vec<(u64, u64)> {
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    let Some(mut begin) = tail.first() else { return blocks };
    for one in tail {
        let (bytes, took) = (one.arrived - begin.arrived, one.at_ns - begin.at_ns);
        if bytes >= block.max(1) && took >= BLOCK_MIN_NS {
            blocks.push((bytes, took));
            begin = one;
        }
    }
    if let (Some(last), Some(block)) = (tail.last(), blocks.last_mut()) {
        // The rest belongs to the last block.
        block.0 += last.arrived - begin.arrived;
        block.1 += last.at_ns - begin.at_ns;
    } else if let Some(last) = tail.last() {
        blocks.push((last.arrived - begin.arrived, last.at_ns - begin.at_ns));
    }
    blocks
}

/// Mean rate of the middle half of the bytes, by the rate of their blocks: it follows neither a stall of a host nor
/// the burst behind it.
fn middle_rate(mut blocks: Vec<(u64, u64)>) -> u64 {
    blocks.sort_by_key(|&(bytes, took_ns)| rate(bytes, took_ns));
    let all = blocks.iter().map(|&(bytes, _)| bytes).sum::<u64>();
    let (from, to) = (all / 4, all - all / 4);
    let (mut at, mut counted, mut took) = (0, 0, 0.0);
    for (bytes, took_ns) in blocks {
        let part = (at + bytes).min(to).saturating_sub(at.max(from));
        counted += part;
        took += part as f64 / bytes.max(1) as f64 * took_ns as f64;
        at += bytes;
    }
    rate(counted, took as u64)
}

/// True if the second half of the bytes came clearly faster than the first, as in slow start.
fn is_growing(tail: &[RateSample], len: u64) -> bool {
    let (Some(first), Some(last)) = (tail.first(), tail.last()) else { return false };
    let half = tail.partition_point(|one| one.arrived - first.arrived < len / 2);
    let Some(middle) = tail.get(half).filter(|middle| middle.arrived < last.arrived) else {
        return false;
    };
    let before = rate(middle.arrived - first.arrived, middle.at_ns - first.at_ns);
    rate(last.arrived - middle.arrived, last.at_ns - middle.at_ns)
        > before.saturating_add(before / 4)
}

fn rate(bytes: u64, took_ns: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(took_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Largest bucket that is expected. It has passed all it holds when twice as much has arrived, if the line is twice
/// as fast as the bucket fills.
const BUCKET_MAX: u64 = 2 << 20;
/// Bytes before the measured part from which a run is conclusive.
const CONCLUSIVE: u64 = BUCKET_MAX / 8 * 7;
/// Length of a run after which the next one begins, so that results follow a path that changes.
const RUN_MAX: u64 = 8 << 20;
/// Number of conclusive results of which the highest counts: other flows lower the rate for a while.
const SETTLED_MAX: usize = 3;
/// Share (1/n) of its weight that an earlier result loses with every short run.
const AGEING: u64 = 8;
/// Shortest part that is measured: acknowledgements come in clumps of up to 64 KiB.
const TAIL_MIN: u64 = 64 << 10;
const TAIL_MIN_NS: u64 = 500_000;
/// Parts of the tail, and the shortest: several times as long as a clump takes.
const BLOCKS: u64 = 8;
const BLOCK_MIN_NS: u64 = 2_000_000;
/// Time for which an end may limit a run: the kernel counts it in ticks of up to 10 ms.
const LIMITED_MAX_NS: u64 = 12_000_000;
/// Share (1/n) of a run for which an end may limit it.
const LIMITED_SHARE: u64 = 10;
const SAMPLES_MAX: usize = 128;
