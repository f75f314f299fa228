//! Buffer sizes of the rail on this system, for diagnostics.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use cost::Cost;

use crate::congestion::Path;
use crate::settings;
use crate::socket::Socket;

/// Buffers of a UDP socket of this process on this system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicBuffers {
    /// Receive buffer.
    pub receive: u64,
    /// Send buffer.
    pub send: u64,
}

/// Buffers that a link of some cost needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicNeeds {
    /// Stream flow-control window granted to the peer.
    pub window: u64,
    /// Receive buffer for the data that arrives while a process is late.
    pub receive: u64,
    /// Send buffer for the data that leaves between two polls.
    pub send: u64,
}

impl QuicBuffers {
    /// Measures the buffers with a socket opened as the rail opens its own.
    ///
    /// # Errors
    /// The system gives no socket.
    pub fn here() -> io::Result<Self> {
        let socket = Socket::bind(Ipv4Addr::LOCALHOST.into())?;
        let send = socket.send_buffer_bytes()? as u64;
        Ok(Self { receive: socket.receive_buffer_bytes as u64, send })
    }
}

impl QuicNeeds {
    /// Returns the needs of a link of this cost.
    pub fn of(cost: &Cost) -> Self {
        let bytes_per_s = cost.bytes_within(1_000_000_000) as f64;
        let round_trip = Duration::from_nanos(2 * cost.latency_ns());
        Self {
            window: settings::window(Some(Path { bytes_per_s, is_conclusive: false, round_trip }))
                .into(),
            receive: settings::buffer_needed(bytes_per_s) as u64,
            send: cost.bytes_within(LOOK_NS).min(settings::BUFFER_BYTES as u64),
        }
    }
}

/// Returns advice to the user if a socket's receive buffer of `got` bytes loses data that arrive at this rate.
pub(super) fn advice(got: usize, bytes_per_s: f64) -> Option<String> {
    let needed = settings::buffer_needed(bytes_per_s);
    (got < needed).then(|| {
        format!(
            "the system gives a UDP socket {got} bytes, where {needed} would keep what arrives while this process \
             computes; sysctl net.core.rmem_max={needed} would help"
        )
    })
}

/// Twice the poll interval of a progress thread, in nanoseconds.
const LOOK_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_follow_from_the_cost_and_the_system_gives_something() {
        let far = QuicNeeds::of(&Cost::linear(150_000_000, 2_000, 125_000_000));
        assert!((75 << 20..85 << 20).contains(&far.window), "{far:?}");
        assert!((2_400_000..2_600_000).contains(&far.receive), "{far:?}");
        assert!((100_000..130_000).contains(&far.send), "{far:?}");
        let near = QuicNeeds::of(&Cost::linear(100_000, 2_000, 125_000_000));
        assert_eq!(near.window, 8 << 20);
        let got = QuicBuffers::here().unwrap();
        assert!(got.receive > 0 && got.send > 0, "{got:?}");
    }
    /// Whoever follows the advice is not told again, at whatever rate.
    #[test]
    fn advice_is_what_the_system_can_give() {
        let is_told = |text: Option<String>| text.is_some_and(|text| text.contains("rmem_max="));
        assert!(is_told(advice(212_992, 125e6)));
        assert!(!is_told(advice(212_992, 10e6)));
        for bytes_per_s in [1e6, 125e6, 1.25e9, 5e9, f64::MAX] {
            let granted = settings::buffer_needed(bytes_per_s);
            assert_eq!(advice(granted, bytes_per_s), None);
            assert_eq!(advice(settings::BUFFER_BYTES, bytes_per_s), None);
        }
    }
}
