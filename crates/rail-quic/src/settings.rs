//! Configuration of quinn.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use auth::{FirstIds, Identity, MARK_LEN};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, ConnectionId, ConnectionIdGenerator, EndpointConfig,
    IdleTimeout, MtuDiscoveryConfig, RandomConnectionIdGenerator, ServerConfig, TimeSource,
    TransportConfig, VarInt,
};
use rail::RailError;

use crate::congestion::Path;
use crate::controller::SharedController;
use crate::keepalive::PING_EVERY;
use crate::marks::{MarkedIds, OwnMark};

/// A key that both ends of connections prove, in the form that quinn takes.
pub(super) struct Keys {
    client: Arc<QuicClientConfig>,
    server: ServerConfig,
    first_ids: FirstIds,
}

impl Keys {
    /// Converts the TLS configurations.
    ///
    /// # Errors
    /// The TLS configuration lacks the initial cipher suite of QUIC.
    pub fn new(identity: &Identity) -> Result<Self, RailError> {
        let (client, server) = (identity.client(), identity.server());
        let unfit = |_| RailError::Unreachable("TLS without the first cipher of QUIC".into());
        let client = QuicClientConfig::try_from(client).map_err(unfit)?;
        let server = QuicServerConfig::try_from(server).map_err(unfit)?;
        let mut server = ServerConfig::with_crypto(Arc::new(server));
        server.max_incoming(INCOMING_MAX).incoming_buffer_size_total(INCOMING_BYTES_MAX);
        server.time_source(Arc::new(Steady { begin: Instant::now() }));
        Ok(Self { client: Arc::new(client), server, first_ids: identity.first_ids() })
    }

    /// True if a process with the key has made this ID of a first packet.
    pub fn has_made(&self, id: &[u8]) -> bool {
        self.first_ids.is_made(id)
    }

    /// The mark of the IDs that processes with the key make.
    pub fn mark(&self) -> [u8; MARK_LEN] {
        self.first_ids.mark()
    }

    /// Returns the configuration that an endpoint needs to accept connections.
    pub fn any_server(&self) -> Arc<ServerConfig> {
        Arc::new(self.server.clone())
    }

    /// Returns the configuration of a connection that this process opens.
    pub fn client(&self, controller: &SharedController, known: Option<Path>) -> ClientConfig {
        let mut config = ClientConfig::new(self.client.clone());
        let ids = self.first_ids.clone();
        config.initial_dst_cid_provider(Arc::new(move || first_id(&ids)));
        config.transport_config(Arc::new(transport(controller, known, 0)));
        config
    }

    /// Returns the configuration of a connection that another process opens.
    pub fn server(&self, controller: &SharedController, known: Option<Path>) -> Arc<ServerConfig> {
        let mut config = self.server.clone();
        config.transport_config(Arc::new(transport(controller, known, 1)));
        Arc::new(config)
    }
}

/// Clock of address validation tokens: monotonic, so that changes of the wall clock do not matter.
struct Steady {
    begin: Instant,
}

impl TimeSource for Steady {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.begin.elapsed()
    }
}

/// Returns a connection ID for a first packet.
fn first_id(ids: &FirstIds) -> ConnectionId {
    let random = RandomConnectionIdGenerator::new(NONCE_LEN).generate_cid();
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&random);
    ConnectionId::new(&ids.make(nonce))
}

/// Returns the configuration of an endpoint whose connection IDs have this mark.
pub(super) fn endpoint(mark: OwnMark) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.cid_generator(move || Box::new(MarkedIds::new(mark)));
    config
}

fn transport(controller: &SharedController, known: Option<Path>, streams: u32) -> TransportConfig {
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
        .keep_alive_interval(Some(PING_EVERY))
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(window))
        .send_window(2 * u64::from(window))
        .mtu_discovery_config(Some(discovery))
        .ack_frequency_config(Some(acknowledgements))
        .datagram_receive_buffer_size(Some(DUPLICATE_BYTES))
        .datagram_send_buffer_size(DUPLICATE_BYTES)
        .allow_spin(false)
        .congestion_controller_factory(Arc::new(controller.clone()));
    if let Some(known) = known {
        config.initial_rtt(known.round_trip.max(Duration::from_millis(1)));
    }
    config
}

/// Returns the flow-control window: 2 BDP of the path, plus a reserve for a process that is woken late.
pub(super) fn window(known: Option<Path>) -> u32 {
    let carried = known.map_or(0.0, |path| 2.0 * path.bytes_per_s * path.round_trip.as_secs_f64());
    ((carried as u64) + u64::from(WINDOW_MIN) / 2).clamp(WINDOW_MIN.into(), WINDOW_MAX.into())
        as u32
}

/// Returns the socket buffer, in bytes, that loses nothing while a process is late. It is at most what the rail asks
/// for, since no limit of the system gives a socket more.
pub(super) fn buffer_needed(bytes_per_s: f64) -> usize {
    ((bytes_per_s * LATE.as_secs_f64()) as usize).min(BUFFER_BYTES)
}

/// Lateness of a process that the socket buffer must cover.
const LATE: Duration = Duration::from_millis(20);
/// Requested size of each socket buffer: 60 ms at 1 Gb/s, for a process that computes.
pub(super) const BUFFER_BYTES: usize = 8 << 20;
/// 1 Gb/s over 64 ms, the default for an unknown path.
const WINDOW_MIN: u32 = 8 << 20;
const WINDOW_MAX: u32 = 128 << 20;
/// Ethernet MTU without IPv4 and UDP headers; path MTU discovery finds smaller limits.
const MTU_MAX: u16 = 1472;
/// Random part of the ID of a first packet.
const NONCE_LEN: usize = 8;
/// Maximum number of packets per acknowledgement; a batch received at once is acknowledged at once.
const ACKNOWLEDGED_PACKETS: u32 = 10;
/// Maximum ACK delay, which adds to the detection of a lost tail.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(2);
/// Buffer for tail duplicates, of which only the latest matter.
const DUPLICATE_BYTES: usize = 8 << 10;
/// Idle timeout: the IO thread answers for computing processes, so a reachable host is never silent for so long.
const SILENCE: Duration = Duration::from_secs(30);
/// Limits of announced connections that are not accepted yet.
const INCOMING_MAX: usize = 128;
const INCOMING_BYTES_MAX: u64 = 1 << 20;
