//! Over which protocol a way between sites is tried first, by what gets lost on it and how much is under way on it.
//!
//! TCP costs a host less, and where little is lost it is as fast. Where more is, the kernel's repeats are later than QUIC's,
//! which are this library's, and its congestion control finds out later what the way carries. Of what TCP has under way it
//! keeps a copy, for which a system has a bound that suits shorter ways (`net.ipv4.tcp_wmem`); QUIC has none but the peer's window.
//!
//! Losses are remembered of each protocol by itself, for each may lose what the other would not: a sender that overflows a
//! buffer, or a network that treats one worse. What both have lost counts as the way's, and what one has as its own.

use std::path::Path;

use wire::Cost;

/// What is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// TCP.
    Tcp,
    /// QUIC.
    Quic,
}

/// What is known of a way. Which part of what is sent it loses by chance, by each protocol that has sent enough to say: what a
/// buffer loses at once where it overflows says nothing of the way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signs {
    /// By TCP.
    pub by_tcp: Option<f64>,
    /// By QUIC.
    pub by_quic: Option<f64>,
    /// And whether as much may be under way as TCP's sockets [hold](Sockets::are_filled_by), or more.
    pub fills_sockets: bool,
}

impl Signs {
    /// The way's own losses; none where nothing is known.
    pub fn loss(self) -> Option<f64> {
        match (self.by_tcp, self.by_quic) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// What follows from it, where both lead there and TCP would be first otherwise.
    pub fn first(self) -> First {
        let is_lossy = |loss: Option<f64>| loss.is_some_and(|loss| loss >= LOSSY);
        if is_lossy(self.loss()) || self.fills_sockets && !is_lossy(self.by_quic) {
            First::Quic
        } else {
            First::Tcp
        }
    }
}

/// What the kernel lets a connection over TCP have under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// The longest buffers for sending that connections grow to, in bytes, if the kernel tells.
    pub send_max: Option<u64>,
}

impl Sockets {
    /// Those of this process's network.
    pub fn here() -> Self {
        Self::at(Path::new("/proc/sys/net/ipv4"))
    }

    /// Those that the settings in a directory allow.
    pub fn at(settings: &Path) -> Self {
        let setting = std::fs::read_to_string(settings.join("tcp_wmem")).unwrap_or_default();
        Self { send_max: setting.split_whitespace().last().and_then(|last| last.parse().ok()) }
    }

    /// Whether a link of this cost has shown that it carries about as much in a round trip as they hold, or more: TCP could
    /// not have shown much more.
    pub fn are_filled_by(&self, cost: &Cost) -> bool {
        let (Some(send_max), Some(rate)) = (self.send_max, cost.shown_bytes_per_s()) else {
            return false;
        };
        let carried = u128::from(rate) * u128::from(2 * cost.latency_ns()) / 1_000_000_000;
        carried >= u128::from(send_max) * FILLED_PERCENT / 100
    }
}

/// From such losses on messages arrive clearly sooner by QUIC.
pub const LOSSY: f64 = 0.0025;
/// What packets need besides takes the rest: of 4 MiB 2.9 MB are under way.
const FILLED_PERCENT: u128 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_loses_much_is_tried_by_quic_first() {
        let first = |by_tcp, by_quic| Signs { by_tcp, by_quic, fills_sockets: false }.first();
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
    fn a_way_that_sockets_cannot_fill_is_tried_by_quic_first() {
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
        assert!(!usual.are_filled_by(&link(50, 12_000_000)), "the way is slower than they are");
        assert!(!sockets(Some(64 << 20)).are_filled_by(&link(50, 110_000_000)));
        assert!(!sockets(None).are_filled_by(&link(50, 110_000_000)));
        let first = |by_tcp, by_quic| Signs { by_tcp, by_quic, fills_sockets: true }.first();
        assert_eq!(first(None, None), First::Quic);
        assert_eq!(first(Some(0.0), Some(0.05)), First::Tcp, "UDP is treated worse");
    }
}
