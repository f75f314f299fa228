//! The clock of counted calls: the time stamp counter of the CPU where the kernel keeps its time by it, and
//! `CLOCK_MONOTONIC` elsewhere. A reading of the counter takes half as long as one of the kernel's clock.

use std::time::{Duration, Instant};

use crate::recorder::now_ns;

/// Converts readings of the counter to times of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Nanoseconds for a tick, times 2^32; 0 if readings are times.
    pub ns_per_tick: u64,
    /// A reading, and its time.
    pub base: (u64, u64),
}

impl Scale {
    /// The scale of readings that are times.
    pub const NONE: Self = Self { ns_per_tick: 0, base: (0, 0) };

    /// Measures the scale, in half a millisecond.
    pub fn measure() -> Self {
        if !has_counter() {
            return Self::NONE;
        }
        let (base, began) = (pair(), Instant::now());
        while began.elapsed() < MEASURE_FOR {
            std::hint::spin_loop();
        }
        let (ticks, time_ns) = pair();
        let elapsed_ns = u128::from(time_ns.saturating_sub(base.1));
        match u128::from(ticks.saturating_sub(base.0)) {
            0 => Self::NONE,
            elapsed => Self { ns_per_tick: ((elapsed_ns << 32) / elapsed) as u64, base },
        }
    }

    /// Reads the clock.
    #[inline(always)]
    pub fn read(self) -> u64 {
        if self.ns_per_tick == 0 { now_ns() } else { ticks() }
    }

    /// The nanoseconds between two readings.
    pub fn duration_ns(self, difference: u64) -> u64 {
        match self.ns_per_tick {
            0 => difference,
            ns_per_tick => ((u128::from(difference) * u128::from(ns_per_tick)) >> 32) as u64,
        }
    }

    /// The time of a reading.
    pub fn time_ns(self, reading: u64) -> u64 {
        self.base.1.saturating_add(self.duration_ns(reading.saturating_sub(self.base.0)))
    }
}

/// A reading of the counter and its time: of several pairs, the one whose readings were closest.
fn pair() -> (u64, u64) {
    let read = |_| {
        let (before, time_ns, after) = (ticks(), now_ns(), ticks());
        (after.saturating_sub(before), before + after.saturating_sub(before) / 2, time_ns)
    };
    let closest = (0..8).map(read).min_by_key(|(width, ..)| *width);
    closest.map_or((0, 0), |(_, ticks, time_ns)| (ticks, time_ns))
}

/// True if the kernel keeps its time by the counter: it then runs at one rate, and is the same on all CPUs.
fn has_counter() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64") && std::fs::read(source).is_ok_and(|name| name == b"tsc\n")
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: all CPUs of this architecture have the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

const MEASURE_FOR: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_become_times() {
        let scale = Scale { ns_per_tick: 1 << 31, base: (1000, 50) };
        assert_eq!((scale.duration_ns(9), scale.time_ns(1100)), (4, 100));
        assert_eq!(scale.time_ns(0), 50);
        assert_eq!((Scale::NONE.duration_ns(9), Scale::NONE.time_ns(1100)), (9, 1100));
        assert_eq!(scale.duration_ns(u64::MAX), u64::MAX / 2);
    }

    #[test]
    fn a_measured_scale_gives_the_time() {
        let scale = Scale::measure();
        let before = now_ns();
        let read = scale.time_ns(scale.read());
        let after = now_ns();
        // Half a millisecond and a hundredth of what has passed since.
        let slack = 500_000 + after.saturating_sub(scale.base.1) / 100;
        assert!(read + slack >= before && read <= after + slack, "{before} {read} {after}");
    }
}
