//! How connections are set up: what the protocol's implementation is told.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig,
    RandomConnectionIdGenerator, ServerConfig, TimeSource, TransportConfig, VarInt,
};
use rustls::{ClientConfig as TlsClient, ServerConfig as TlsServer};

use super::congestion::Path;
use super::controller::SharedGate;
use crate::rail::RailError;

/// The job's keys, as the protocol's implementation wants them.
pub(super) struct Keys {
    client: Arc<QuicClientConfig>,
    server: ServerConfig,
}

impl Keys {
    /// # Errors
    /// When the keys' configuration is of no use to QUIC.
    pub fn new(client: Arc<TlsClient>, server: Arc<TlsServer>) -> Result<Self, RailError> {
        let unfit = |_| RailError::Unreachable("TLS without the first cipher of QUIC".into());
        let client = QuicClientConfig::try_from(client).map_err(unfit)?;
        let server = QuicServerConfig::try_from(server).map_err(unfit)?;
        let mut server = ServerConfig::with_crypto(Arc::new(server));
        server.max_incoming(INCOMING_MAX).incoming_buffer_size_total(INCOMING_BYTES_MAX);
        server.time_source(Arc::new(Steady { begin: Instant::now() }));
        Ok(Self { client: Arc::new(client), server })
    }

    /// What endpoints need to accept connections at all.
    pub fn any_server(&self) -> Arc<ServerConfig> {
        Arc::new(self.server.clone())
    }

    /// For a connection that this process opens.
    pub fn client(&self, gate: &SharedGate, known: Option<Path>) -> ClientConfig {
        let mut config = ClientConfig::new(self.client.clone());
        config.transport_config(Arc::new(transport(gate, known, 0)));
        config
    }

    /// For a connection that another has opened.
    pub fn server(&self, gate: &SharedGate, known: Option<Path>) -> Arc<ServerConfig> {
        let mut config = self.server.clone();
        config.transport_config(Arc::new(transport(gate, known, 1)));
        Arc::new(config)
    }
}

/// Dates the proofs of addresses that this process gives out, and nobody sets it.
struct Steady {
    begin: Instant,
}

impl TimeSource for Steady {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.begin.elapsed()
    }
}

/// How the endpoint takes part.
pub(super) fn endpoint() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(CONNECTION_ID_LEN)));
    config
}

fn transport(gate: &SharedGate, known: Option<Path>, streams: u32) -> TransportConfig {
    let window = window(known);
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(MTU_MAX).black_hole_cooldown(Duration::from_secs(10));
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements
        .ack_eliciting_threshold(VarInt::from_u32(ACKNOWLEDGED_PACKETS))
        .max_ack_delay(Some(ACKNOWLEDGED_WITHIN));
    let Ok(idle) = IdleTimeout::try_from(SILENCE) else { unreachable!("a minute is no long time") };
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(streams.into())
        .max_concurrent_uni_streams(0u32.into())
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(window))
        .send_window(2 * u64::from(window))
        .mtu_discovery_config(Some(discovery))
        .ack_frequency_config(Some(acknowledgements))
        .datagram_receive_buffer_size(Some(ECHO_BYTES))
        .datagram_send_buffer_size(ECHO_BYTES)
        .allow_spin(false)
        .congestion_controller_factory(Arc::new(gate.clone()));
    if let Some(known) = known {
        config.initial_rtt(known.round_trip.max(Duration::from_millis(1)));
    }
    config
}

/// What a peer may send before this process has read it: what the path carries in two round trips, and
/// what a process that is woken late needs besides.
pub(super) fn window(known: Option<Path>) -> u32 {
    let carried = known.map_or(0.0, |path| 2.0 * path.bytes_per_s * path.round_trip.as_secs_f64());
    ((carried as u64) + u64::from(WINDOW_MIN) / 2).clamp(WINDOW_MIN.into(), WINDOW_MAX.into())
        as u32
}

/// What a socket has to hold, in bytes, for nothing to be lost while a process comes late.
pub(super) fn buffer_needed(bytes_per_s: f64) -> usize {
    (bytes_per_s * LATE.as_secs_f64()) as usize
}

/// What a process may be late, for the buffer to hold what arrives meanwhile.
const LATE: Duration = Duration::from_millis(20);
/// 1 Gb/s over 64 ms, which an unknown path may be.
const WINDOW_MIN: u32 = 8 << 20;
const WINDOW_MAX: u32 = 128 << 20;
/// Ethernet's, without the headers of IPv4 and UDP; what the path does not carry is found out.
const MTU_MAX: u16 = 1472;
/// Half the usual length: it is in every packet.
const CONNECTION_ID_LEN: usize = 5;
/// Packets until an acknowledgement at the latest; a batch that came at once is acknowledged at once anyway.
const ACKNOWLEDGED_PACKETS: u32 = 10;
/// What a lost tail waits for besides the round trip.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(2);
/// Of echoes only the latest are of use.
const ECHO_BYTES: usize = 8 << 10;
/// A host that runs and can be reached is not silent for so long: the rail answers for processes that compute.
const SILENCE: Duration = Duration::from_secs(30);
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Connections that have been announced and not yet looked at.
const INCOMING_MAX: usize = 128;
const INCOMING_BYTES_MAX: u64 = 1 << 20;
