//! Cost model of links and machines: predicts when bytes arrive, and learns from traffic.
//!
//! A frame of `n` bytes keeps its link busy for `busy(n)` and arrives `latency` after its last byte
//! left: `arrival(n) = busy(n) + latency`. The gap of LogGP is `busy(0)`. The busy time is a
//! rising, piecewise-linear curve over powers of four, because 4 KB pages, segments and caches all
//! bend it. Beyond its end the curve is straight.
//!
//! Traffic refines the curve where it was observed; elsewhere the curve is scaled until
//! observations exist. A process that slept while its frame was in flight observes nonsense, so one
//! sample moves a prediction by an eighth at most. Twenty samples that agree follow a link that
//! became ten times slower.

use std::fmt;
use std::str::FromStr;

use crate::text::{CostError, fields, number};

/// Cost of one link in one direction. Times are stored in picoseconds, since a byte takes less than
/// a nanosecond in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    latency_ns: u64,
    /// Busy time of a frame of each size in [`KNOTS`]; never falls.
    busy_ps: [u64; KNOTS.len()],
    /// Number of recent observations of each, up to [`HEARD_MAX`].
    heard: [u8; KNOTS.len()],
    latency_heard: u8,
}

impl Cost {
    /// Creates the cost of a link with one rate for all sizes: the first guess for a kind of link.
    pub fn linear(latency_ns: u64, gap_ns: u64, bytes_per_s: u64) -> Self {
        let gap_ps = gap_ns.saturating_mul(1000);
        let time = |bytes: u64| scale(bytes, PS_PER_S, bytes_per_s.max(1));
        let busy_ps = KNOTS.map(|bytes| gap_ps.saturating_add(time(bytes)).min(BUSY_MAX_PS));
        Self::of(latency_ns, busy_ps)
    }

    /// Creates the cost of a link whose busy time was measured at some sizes, in rising order and
    /// without duplicates. The curve is straight between them; without points the link costs
    /// nothing.
    pub fn measured(latency_ns: u64, points: &[(u64, u64)]) -> Self {
        let known: Vec<(u64, u64)> =
            points.iter().map(|&(bytes, ns)| (bytes, ns.saturating_mul(1000))).collect();
        let mut floor = 0;
        let busy_ps = KNOTS.map(|bytes| {
            floor = interpolate(&known, bytes).clamp(floor, BUSY_MAX_PS);
            floor
        });
        Self::of(latency_ns, busy_ps)
    }

    fn of(latency_ns: u64, busy_ps: [u64; KNOTS.len()]) -> Self {
        let latency_ns = latency_ns.min(LATENCY_MAX_NS);
        Self { latency_ns, busy_ps, heard: [0; KNOTS.len()], latency_heard: 0 }
    }

    /// One-way time from a frame's last byte leaving to its arrival.
    pub fn latency_ns(&self) -> u64 {
        self.latency_ns
    }

    /// Time for which an empty frame delays the next one.
    pub fn gap_ns(&self) -> u64 {
        self.busy_ps[0].div_ceil(1000)
    }

    /// Time for which a frame of `bytes` bytes delays the next one.
    pub fn busy_ns(&self, bytes: u64) -> u64 {
        self.busy_ps(bytes).div_ceil(1000)
    }

    /// One-way time from posting a frame on the idle link to its arrival.
    pub fn arrival_ns(&self, bytes: u64) -> u64 {
        self.busy_ns(bytes).saturating_add(self.latency_ns)
    }

    /// Round-trip time of a request and a reply of a few bytes.
    pub fn round_trip_ns(&self) -> u64 {
        self.arrival_ns(KNOTS[1]).saturating_mul(2)
    }

    /// Rate of back-to-back frames of this length.
    pub fn bytes_per_s(&self, bytes: u64) -> u64 {
        scale(bytes, PS_PER_S, self.busy_ps(bytes).max(1))
    }

    /// Observed rate of long back-to-back frames; `None` if none was observed.
    pub fn shown_bytes_per_s(&self) -> Option<u64> {
        let is_shown = KNOTS.iter().zip(self.heard).any(|(&knot, heard)| knot >= LONG && heard > 0);
        is_shown.then(|| self.bytes_per_s(LONG))
    }

    /// True if that rate is one which the path sustains, and not that of a short burst.
    pub fn is_rate_conclusive(&self) -> bool {
        KNOTS.iter().zip(self.heard).any(|(&knot, heard)| knot >= LONG && heard >= CONCLUSIVE)
    }

    /// Takes a measured rate of long frames, in bytes per second. The busy time beyond the gap follows it at all
    /// sizes.
    pub fn set_rate(&mut self, bytes_per_s: u64, is_conclusive: bool) {
        let mut measured = Self::linear(self.latency_ns, self.gap_ns(), bytes_per_s);
        measured.latency_heard = self.latency_heard;
        let heard = if is_conclusive { CONCLUSIVE } else { 1 };
        for (of_knot, knot) in measured.heard.iter_mut().zip(KNOTS) {
            *of_knot = if knot >= LONG { heard } else { 0 };
        }
        *self = measured;
    }

    /// Longest frame with at most this busy time; 0 if even the gap is longer.
    pub fn bytes_within(&self, busy_ns: u64) -> u64 {
        self.bytes_within_ps(busy_ns.saturating_mul(1000))
    }

    pub(crate) fn busy_ps(&self, bytes: u64) -> u64 {
        let at = segment(bytes);
        let (from, to) = (KNOTS[at], KNOTS[at + 1]);
        let rise = self.busy_ps[at + 1] - self.busy_ps[at];
        self.busy_ps[at].saturating_add(scale(rise, bytes - from, to - from))
    }

    pub(crate) fn bytes_within_ps(&self, busy_ps: u64) -> u64 {
        let reached = self.busy_ps.partition_point(|&knot| knot <= busy_ps);
        let Some(last) = reached.checked_sub(1) else { return 0 };
        let at = last.min(KNOTS.len() - 2);
        let rise = self.busy_ps[at + 1] - self.busy_ps[at];
        if rise == 0 {
            return u64::MAX;
        }
        let more = scale(busy_ps - self.busy_ps[at], KNOTS[at + 1] - KNOTS[at], rise);
        KNOTS[at].saturating_add(more)
    }

    /// Learns from one frame's observed busy time. It runs until the link takes the next frame, or
    /// until the memory is free on an otherwise idle link.
    pub fn learn(&mut self, bytes: u64, busy_ns: u64) {
        let longest = KNOTS[KNOTS.len() - 1];
        let predicted = self.busy_ps(bytes).max(1);
        let observed = busy_ns.saturating_mul(1000).clamp(1, BUSY_MAX_PS);
        if bytes > longest {
            let equivalent = scale(observed, self.busy_ps(longest).max(1), predicted);
            self.learn_ps(longest, equivalent);
        } else {
            self.learn_ps(bytes, observed);
        }
    }

    /// Takes one step of an average in the logarithm. The uncertainty of every knot, of the gap and
    /// of the rate is proportional to its value, as in a Kalman filter. The largest part of the
    /// prediction is corrected most.
    fn learn_ps(&mut self, bytes: u64, observed: u64) {
        let at = segment(bytes);
        let before = self.busy_ps.map(|busy| busy.max(1) as f64);
        let upper = (bytes - KNOTS[at]) as f64 / (KNOTS[at + 1] - KNOTS[at]) as f64;
        let (low, high) = ((1.0 - upper) * before[at], upper * before[at + 1]);
        let is_new = self.heard[at] == 0 && self.heard[at + 1] == 0;
        let step = step((observed as f64 / (low + high)).ln(), is_new, GAIN_UP);
        let doubt = |knot: usize| 1.0 / f64::from(1 + self.heard[knot].min(3));
        let (by_low, by_high) = apportion(step, (low, doubt(at)), (high, doubt(at + 1)));
        let gap = before[0];
        let (by_gap, by_line) = apportion(step, (gap, 1.0), ((low + high - gap).max(0.0), 1.0));
        for (knot, busy) in self.busy_ps.iter_mut().enumerate() {
            let of_gap = gap / before[knot];
            let alike = of_gap * by_gap + (1.0 - of_gap) * by_line;
            let step = if knot == at {
                by_low
            } else if knot == at + 1 {
                by_high
            } else {
                alike / f64::from(1 + self.heard[knot])
            };
            *busy = (before[knot] * step.exp()).clamp(1.0, BUSY_MAX_PS as f64) as u64;
        }
        self.keep_rising(at, step > 0.0);
        self.note(if upper < 0.5 { at } else { at + 1 });
    }

    /// Restores a rising curve: the latest observation next to knot `at` stays, contradicting knots
    /// change.
    fn keep_rising(&mut self, at: usize, is_slower: bool) {
        let holds = if is_slower { at } else { at + 1 };
        for knot in (0..holds).rev() {
            self.busy_ps[knot] = self.busy_ps[knot].min(self.busy_ps[knot + 1]);
        }
        for knot in holds + 1..KNOTS.len() {
            self.busy_ps[knot] = self.busy_ps[knot].max(self.busy_ps[knot - 1]);
        }
    }

    /// Counts an observation. Knots that were not observed for long follow the others again.
    fn note(&mut self, knot: usize) {
        if self.heard[knot] == HEARD_MAX {
            self.heard = self.heard.map(|heard| if heard > 1 { heard / 2 } else { heard });
        }
        self.heard[knot] += 1;
    }

    /// Learns from a one-way latency (half of a round trip less the busy times). Samples may be
    /// late for many reasons but never early, so the prediction stays near the minimum.
    pub fn learn_latency(&mut self, latency_ns: u64) {
        let observed = latency_ns.clamp(1, LATENCY_MAX_NS) as f64;
        let predicted = self.latency_ns.max(1) as f64;
        let step = step((observed / predicted).ln(), self.latency_heard == 0, GAIN_LATE);
        let latency_ns = (predicted * step.exp()).clamp(1.0, LATENCY_MAX_NS as f64);
        self.latency_ns = if step > 0.0 { latency_ns.ceil() } else { latency_ns.floor() } as u64;
        self.latency_heard = (self.latency_heard + 1).min(HEARD_MAX);
    }
}

/// Fraction of a sample's surprise that a prediction follows; both are logarithms.
fn step(surprise: f64, is_new: bool, gain_up: f64) -> f64 {
    let (trust, up, down) =
        if is_new { (TRUST_NEW, GAIN_NEW, 1.0) } else { (TRUST, gain_up, GAIN_DOWN) };
    surprise.clamp(-trust, trust) * if surprise > 0.0 { up } else { down }
}

/// Splits `step` between two summands, in proportion to each one's share of the sum and its
/// uncertainty.
fn apportion(step: f64, one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let sum = one.0 + other.0;
    let (first, second) = (one.0 / sum, other.0 / sum);
    let by = step / (first * first * one.1 + second * second * other.1);
    (by * first * one.1, by * second * other.1)
}

/// Interpolates between the two points next to `bytes`.
fn interpolate(points: &[(u64, u64)], bytes: u64) -> u64 {
    let above = points.partition_point(|&(size, _)| size < bytes);
    match points {
        [] => 0,
        [(size, ps)] => {
            if bytes > *size {
                scale(*ps, bytes, (*size).max(1))
            } else {
                *ps
            }
        }
        [(first, ps), ..] if bytes <= *first => *ps,
        _ => {
            let upper = above.min(points.len() - 1);
            let (from, low) = points[upper - 1];
            let (to, high) = points[upper];
            low.saturating_add(scale(
                high.saturating_sub(low),
                bytes.saturating_sub(from),
                to.saturating_sub(from).max(1),
            ))
        }
    }
}

/// Index of the curve segment that holds a size: from that knot to the next.
fn segment(bytes: u64) -> usize {
    KNOTS.partition_point(|&knot| knot <= bytes).clamp(1, KNOTS.len() - 1) - 1
}

/// Returns `value × by / over`, rounded down and saturating.
fn scale(value: u64, by: u64, over: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(by) / u128::from(over);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Writes `cost/1 LATENCY:HEARD BUSY:HEARD …`, in nanoseconds and picoseconds.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{COST_WORD} {}:{}", self.latency_ns, self.latency_heard)?;
        for (busy_ps, heard) in self.busy_ps.iter().zip(&self.heard) {
            write!(f, " {busy_ps}:{heard}")?;
        }
        Ok(())
    }
}

impl FromStr for Cost {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let mut heard = [0; KNOTS.len() + 1];
        let fields = fields::<{ KNOTS.len() + 1 }>(text, COST_WORD, |at, field| {
            let (value, count) = field.split_once(':')?;
            heard[at] = u8::try_from(number(count)?).ok().filter(|&count| count <= HEARD_MAX)?;
            let max = if at == 0 { LATENCY_MAX_NS } else { BUSY_MAX_PS };
            number(value).filter(|&value| value <= max)
        })?;
        let [latency_ns, busy_ps @ ..] = fields;
        if let Some(at) = busy_ps.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(CostError::Falling { field: at + 3 });
        }
        let [latency_heard, heard @ ..] = heard;
        Ok(Self { heard, latency_heard, ..Self::of(latency_ns, busy_ps) })
    }
}

/// Sizes at which the busy time is stored.
pub const KNOTS: [u64; 10] =
    [0, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Frame length at which the rate is taken, since the gap hardly counts.
pub(crate) const LONG: u64 = 1 << 20;
/// A sample counts as at most e times the prediction, and at least 1/e of it.
const TRUST: f64 = 1.0;
/// Before the first observation the bound is e².
const TRUST_NEW: f64 = 2.0;
/// One sample raises a prediction by 13 % at most, and lowers it by 22 %: samples are never early
/// by accident.
const GAIN_UP: f64 = 0.125;
const GAIN_DOWN: f64 = 0.25;
const GAIN_NEW: f64 = 0.5;
/// Latencies rise by 3 % at most.
const GAIN_LATE: f64 = 0.031_25;
/// Observations remembered of one size; at this count all counts are halved.
const HEARD_MAX: u8 = 31;
/// Observations by which a rate counts as conclusive.
const CONCLUSIVE: u8 = 16;
const PS_PER_S: u64 = 1_000_000_000_000;
/// A quarter of an hour for 4 MB; anything slower is no usable link.
const BUSY_MAX_PS: u64 = 1000 * PS_PER_S;
/// Time for which TCP retransmits, in nanoseconds.
const LATENCY_MAX_NS: u64 = 1_000_000_000_000;
const COST_WORD: &str = "cost/1";
