//! A window as wide as a way that is known.
//!
//! What the kernel lets go at once grows with what is confirmed, and is counted in packets, however short they are
//! (Linux, `tcp_slow_start`). So where it is remembered what a way carries nobody has to fill it to have its use: as
//! many packets as it holds go, each with little padding, no more at a time than may be under way. The congestion control
//! that takes over is held to the rate that is known, and room to see that more comes through.

use std::time::{Duration, Instant};

use super::startup_cap::beyond;

/// Short packets under way, for their number.
#[derive(Debug)]
pub(super) struct Widening {
    /// The known rate, in bytes per second.
    rate: u64,
    /// Packets that are to go yet.
    left: u64,
    end: Instant,
}

/// What the kernel shows of a connection's window, in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub packets: u64,
    pub under_way: u64,
    /// The longest, in bytes.
    pub packet: u64,
    /// Something had to be sent again, and it grows no more.
    pub has_lost: bool,
}

impl Widening {
    /// For a way of such a rate, in bytes per second, and round trip.
    pub fn new(rate: u64, round_trip: Duration, window: Window, now: Instant) -> Self {
        let bytes = u128::from(beyond(rate)) * round_trip.as_nanos() / 1_000_000_000;
        let packets = u64::try_from(bytes / u128::from(window.packet.max(1))).unwrap_or(u64::MAX);
        let left = packets.saturating_sub(window.packets).min(PACKETS_MAX);
        Self { rate, left, end: now + round_trip * ROUNDS_MAX }
    }

    /// The rate to which the connection is to be held.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// How many packets are to go now; none where that is all.
    pub fn handle_look(&mut self, window: Window, now: Instant) -> Option<u64> {
        let is_over = self.left == 0 && window.under_way == 0;
        if is_over || window.has_lost || now >= self.end {
            return None;
        }
        Some(self.left.min(window.packets.saturating_sub(window.under_way)))
    }

    /// So many have gone.
    pub fn handle_sent(&mut self, packets: u64) {
        self.left = self.left.saturating_sub(packets);
    }
}

/// What a gigabit per second has under way in 24 ms: wider ways grow with what is sent.
const PACKETS_MAX: u64 = 2048;
/// Round trips at most, also where nobody has time for it.
const ROUNDS_MAX: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(10);
    const WINDOW: Window = Window { packets: 10, under_way: 0, packet: 1_000, has_lost: false };

    #[test]
    fn as_many_packets_go_as_a_way_holds_and_no_more_than_may_be_under_way() {
        let start = Instant::now();
        let mut widening = Widening::new(100_000_000, ROUND_TRIP, WINDOW, start);
        let (mut window, mut sent, mut rounds) = (WINDOW, 0, 0);
        while let Some(count) = widening.handle_look(window, start + ROUND_TRIP * rounds) {
            assert!(count <= window.packets - window.under_way, "{count} at once");
            widening.handle_sent(count);
            sent += count;
            // What was under way is confirmed.
            window.packets += window.under_way;
            window.under_way = count;
            rounds += 1;
        }
        assert_eq!((sent, window.packets), (1_240, 1_250));
        assert!(rounds < 16, "{rounds} round trips");
        assert_eq!(widening.rate(), 100_000_000);
    }

    #[test]
    fn it_is_bounded_in_packets_and_time_and_ends_where_some_are_lost() {
        let start = Instant::now();
        let mut widening = Widening::new(u64::MAX, ROUND_TRIP, WINDOW, start);
        let wide = Window { packets: 1 << 20, ..WINDOW };
        assert_eq!(widening.handle_look(wide, start), Some(PACKETS_MAX));
        let lost = Window { has_lost: true, ..WINDOW };
        assert_eq!(widening.handle_look(lost, start), None);
        assert_eq!(widening.handle_look(WINDOW, start + ROUND_TRIP * ROUNDS_MAX), None);
        widening.handle_sent(PACKETS_MAX);
        let waits = Window { under_way: 1, ..WINDOW };
        assert_eq!(widening.handle_look(waits, start), Some(0), "to be confirmed");
        assert_eq!(widening.handle_look(WINDOW, start), None);
        let mut narrow = Widening::new(1_000, ROUND_TRIP, WINDOW, start);
        assert_eq!(narrow.handle_look(WINDOW, start), None, "it is wide enough");
    }
}
