//! Warm-up of the congestion window to the known bandwidth-delay product of a path.
//!
//! The kernel's cwnd grows with what is acknowledged and counts packets, however short they are (Linux,
//! `tcp_slow_start`). If the rate of a path is remembered, the connection need not fill the path to open cwnd. It
//! sends as many packets as the path holds, each with little padding, and never more than cwnd allows in flight. BBR
//! then takes over, capped at the known rate plus headroom to see whether more comes through.

use std::time::{Duration, Instant};

use crate::measure::Cwnd;
use crate::startup_cap::beyond;

/// A cwnd warm-up in progress: short packets that count as segments.
#[derive(Debug)]
pub struct CwndWarmup {
    /// Known rate of the path, in bytes per second.
    rate: u64,
    /// Packets still to be sent.
    left: u64,
    end: Instant,
}

impl CwndWarmup {
    /// Plans the warm-up of a path with this rate, in bytes per second, and round trip.
    pub fn new(rate: u64, round_trip: Duration, window: Cwnd, now: Instant) -> Self {
        let bytes = u128::from(beyond(rate)) * round_trip.as_nanos() / 1_000_000_000;
        let packets = u64::try_from(bytes / u128::from(window.packet.max(1))).unwrap_or(u64::MAX);
        let left = packets.saturating_sub(window.packets).min(PACKETS_MAX);
        Self { rate, left, end: now + round_trip * ROUNDS_MAX }
    }

    /// Rate at which the connection is capped afterwards, in bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Number of packets to send now; `None` when the warm-up is over.
    pub fn handle_look(&mut self, window: Cwnd, now: Instant) -> Option<u64> {
        let is_over = self.left == 0 && window.under_way == 0;
        if is_over || window.has_lost || now >= self.end {
            return None;
        }
        Some(self.left.min(window.packets.saturating_sub(window.under_way)))
    }

    /// Records that `packets` were sent.
    pub fn handle_sent(&mut self, packets: u64) {
        self.left = self.left.saturating_sub(packets);
    }
}

/// Packets in flight of a gigabit per second over 24 ms; wider paths open cwnd with their traffic.
const PACKETS_MAX: u64 = 2048;
/// Limit in round trips, also if the sender is too slow.
const ROUNDS_MAX: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(10);
    const WINDOW: Cwnd = Cwnd { packets: 10, under_way: 0, packet: 1_000, has_lost: false };

    #[test]
    fn packets_fill_the_path_and_stay_within_cwnd() {
        let start = Instant::now();
        let mut warmup = CwndWarmup::new(100_000_000, ROUND_TRIP, WINDOW, start);
        let (mut window, mut sent, mut rounds) = (WINDOW, 0, 0);
        while let Some(count) = warmup.handle_look(window, start + ROUND_TRIP * rounds) {
            assert!(count <= window.packets - window.under_way, "{count} at once");
            warmup.handle_sent(count);
            sent += count;
            // The packets in flight are acknowledged.
            window.packets += window.under_way;
            window.under_way = count;
            rounds += 1;
        }
        assert_eq!((sent, window.packets), (1_240, 1_250));
        assert!(rounds < 16, "{rounds} round trips");
        assert_eq!(warmup.rate(), 100_000_000);
    }

    #[test]
    fn the_warmup_is_bounded_in_packets_and_time_and_ends_on_loss() {
        let start = Instant::now();
        let mut warmup = CwndWarmup::new(u64::MAX, ROUND_TRIP, WINDOW, start);
        let wide = Cwnd { packets: 1 << 20, ..WINDOW };
        assert_eq!(warmup.handle_look(wide, start), Some(PACKETS_MAX));
        let lost = Cwnd { has_lost: true, ..WINDOW };
        assert_eq!(warmup.handle_look(lost, start), None);
        assert_eq!(warmup.handle_look(WINDOW, start + ROUND_TRIP * ROUNDS_MAX), None);
        warmup.handle_sent(PACKETS_MAX);
        let waits = Cwnd { under_way: 1, ..WINDOW };
        assert_eq!(warmup.handle_look(waits, start), Some(0), "to be confirmed");
        assert_eq!(warmup.handle_look(WINDOW, start), None);
        let mut narrow = CwndWarmup::new(1_000, ROUND_TRIP, WINDOW, start);
        assert_eq!(narrow.handle_look(WINDOW, start), None, "it is wide enough");
    }
}
