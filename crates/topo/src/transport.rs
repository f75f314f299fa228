//! Choice of the protocol that is tried first between two sites, by the path's losses and its data
//! in flight.
//!
//! TCP costs a host less, and it is as fast if few packets are lost. With more losses the kernel
//! retransmits later than QUIC, whose retransmissions are this library's, and its congestion
//! control adapts later to the path's bandwidth. TCP also keeps a copy of all data in flight, up to
//! `net.ipv4.tcp_wmem`, whose default suits shorter paths. QUIC is limited by the peer's window
//! only.
//!
//! Losses are stored for each protocol, since each may have its own: a sender that overflows a
//! buffer, or a network that treats one protocol worse. Losses of both count as the path's.

use std::path::Path;

use cost::Cost;

/// Protocol that is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// TCP.
    Tcp,
    /// QUIC.
    Quic,
}

/// Known properties of a path. The losses are random ones, as a fraction of packets, for each
/// protocol that has sent enough. Bursts lost at an overflowing buffer do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathFacts {
    /// Loss with TCP.
    pub by_tcp: Option<f64>,
    /// Loss with QUIC.
    pub by_quic: Option<f64>,
    /// True if the path can have as much in flight as TCP's sockets [hold](Sockets::are_filled_by),
    /// or more.
    pub fills_sockets: bool,
}

impl PathFacts {
    /// Returns the path's own losses; none if unknown.
    pub fn loss(self) -> Option<f64> {
        match (self.by_tcp, self.by_quic) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Returns the protocol to try first, where both are possible and TCP is the default.
    pub fn first(self) -> First {
        let is_lossy = |loss: Option<f64>| loss.is_some_and(|loss| loss >= LOSSY);
        if is_lossy(self.loss()) || self.fills_sockets && !is_lossy(self.by_quic) {
            First::Quic
        } else {
            First::Tcp
        }
    }
}

/// The kernel's limit on a TCP connection's data in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Maximum send buffer of a connection in bytes, if the kernel tells.
    pub send_max: Option<u64>,
}

impl Sockets {
    /// Reads the limit of this process's network namespace.
    pub fn here() -> Self {
        Self::at(Path::new("/proc/sys/net/ipv4"))
    }

    /// Reads the limit from a settings directory.
    pub fn at(settings: &Path) -> Self {
        let setting = std::fs::read_to_string(settings.join("tcp_wmem")).unwrap_or_default();
        Self { send_max: setting.split_whitespace().last().and_then(|last| last.parse().ok()) }
    }

    /// True if a link of this cost has shown a bandwidth-delay product near or above the limit. TCP
    /// could not have shown much more.
    pub fn are_filled_by(&self, cost: &Cost) -> bool {
        let (Some(send_max), Some(rate)) = (self.send_max, cost.shown_bytes_per_s()) else {
            return false;
        };
        let carried = u128::from(rate) * u128::from(2 * cost.latency_ns()) / 1_000_000_000;
        carried >= u128::from(send_max) * FILLED_PERCENT / 100
    }
}

/// Loss from which on messages arrive clearly sooner by QUIC.
pub const LOSSY: f64 = 0.0025;
/// Payload share of the buffer in percent; the kernel's packet overhead takes the rest. Of 4 MiB
/// 2.9 MB are in flight.
const FILLED_PERCENT: u128 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lossy_path_is_tried_by_quic_first() {
        let first = |by_tcp, by_quic| PathFacts { by_tcp, by_quic, fills_sockets: false }.first();
        assert_eq!(first(None, None), First::Tcp, "nothing is known");
        assert_eq!(first(Some(0.001), None), First::Tcp);
        assert_eq!(first(Some(LOSSY), None), First::Quic);
        assert_eq!(first(None, Some(0.01)), First::Quic, "it stays so while it loses");
        assert_eq!(first(Some(0.01), Some(0.01)), First::Quic);
        assert_eq!(
            first(Some(0.01), Some(0.0)),
            First::Tcp,
            "it loses no longer, or lost by its own fault"
        );
        assert_eq!(first(Some(0.0), Some(0.05)), First::Tcp, "UDP is treated worse");
    }

    #[test]
    fn a_path_that_sockets_cannot_fill_is_tried_by_quic_first() {
        let sockets = |send_max| Sockets { send_max };
        let link = |latency_ms: u64, bytes_per_s| {
            let mut cost = Cost::linear(latency_ms * 1_000_000, 1_000, bytes_per_s);
            assert!(!sockets(Some(1)).are_filled_by(&cost), "nothing is known of its rate");
            cost.learn(1 << 20, cost.busy_ns(1 << 20));
            cost
        };
        let usual = sockets(Some(4 << 20));
        assert!(!usual.are_filled_by(&link(6, 118_000_000)));
        assert!(usual.are_filled_by(&link(50, 29_000_000)), "by TCP as fast as they let it");
        assert!(usual.are_filled_by(&link(50, 110_000_000)), "by QUIC");
        assert!(!usual.are_filled_by(&link(50, 12_000_000)), "the path is slower than they are");
        assert!(!sockets(Some(64 << 20)).are_filled_by(&link(50, 110_000_000)));
        assert!(!sockets(None).are_filled_by(&link(50, 110_000_000)));
        let first = |by_tcp, by_quic| PathFacts { by_tcp, by_quic, fills_sockets: true }.first();
        assert_eq!(first(None, None), First::Quic);
        assert_eq!(first(Some(0.0), Some(0.05)), First::Tcp, "UDP is treated worse");
    }
}
