//! The path behind a gateway, as the ends of a relayed connection tell each other.

use std::time::Duration;

/// The path behind the end of a connection that ends at a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayInfo {
    /// Additional round trip.
    pub round_trip: Duration,
    /// True if most of it is the link of two gateways, which measure its bandwidth.
    pub is_measured: bool,
}

impl RelayInfo {
    /// Maximum round trip of an encoded path; longer ones are cut to it.
    pub const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);

    /// Adds a link of two gateways before it.
    #[must_use]
    pub fn behind_link(self, round_trip: Duration) -> Self {
        let is_measured = round_trip >= self.round_trip;
        Self { round_trip: round_trip + self.round_trip, is_measured }
    }

    /// The whole path, including a connection with this round trip; empty if nothing is behind the connection.
    pub fn before(self, own: Duration) -> Self {
        let own = if self.round_trip.is_zero() { Duration::ZERO } else { own };
        Self { round_trip: self.round_trip + own, ..self }
    }

    /// The part of a whole path that is behind its other end's connection.
    pub fn behind(self, own: Duration) -> Self {
        Self { round_trip: self.round_trip.saturating_sub(own), ..self }
    }

    /// Encodes the path.
    pub fn emit(self) -> [u8; RELAY_INFO_LEN] {
        let micros = u32::try_from(self.round_trip.min(Self::ROUND_TRIP_MAX).as_micros())
            .unwrap_or(u32::MAX);
        (micros | if self.is_measured { MEASURED } else { 0 }).to_le_bytes()
    }

    /// Decodes a path and limits its round trip to a plausible value.
    pub fn parse(bytes: [u8; RELAY_INFO_LEN]) -> Self {
        let word = u32::from_le_bytes(bytes);
        let round_trip = Duration::from_micros((word & !MEASURED).into()).min(Self::ROUND_TRIP_MAX);
        Self { round_trip, is_measured: word & MEASURED != 0 }
    }
}

/// Length of an encoded path in bytes.
pub const RELAY_INFO_LEN: usize = 4;
/// Flag in an encoded path: gateways measure it.
const MEASURED: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_measure_a_path_that_is_mostly_theirs() {
        let relay_info =
            |ms, is_measured| RelayInfo { round_trip: Duration::from_millis(ms), is_measured };
        let link = Duration::from_millis(12);
        assert_eq!(relay_info(1, false).behind_link(link), relay_info(13, true));
        assert_eq!(relay_info(30, false).behind_link(link), relay_info(42, false));
    }

    #[test]
    fn each_end_knows_the_path_behind_its_own_connection() {
        let (far, near) = (Duration::from_millis(12), Duration::from_millis(1));
        let beyond = RelayInfo { round_trip: near, is_measured: false };
        assert_eq!(beyond.before(far).behind(near), RelayInfo { round_trip: far, ..beyond });
        assert_eq!(RelayInfo::default().before(far).behind(near), RelayInfo::default(), "directly");
    }
}
