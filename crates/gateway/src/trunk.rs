//! The connections between gateways: over TCP one for each that is carried, up to some, and one by QUIC for each other
//! gateway, shared by all that is carried there and kept while nothing is.
//!
//! TCP takes a third of QUIC's processor time, and carries more where that is short; but unless its congestion
//! control remembers (BBR), it begins anew after each silence, and that of QUIC does not. So it comes first where
//! the system has one, and where one does not lead, the other is tried. Many connections over TCP, each of which has
//! measured for itself, lose packets to each other when they send at once: beyond some they share the one. Then the shared connection watches: a gateway
//! that stops while its host runs on is silent there, and what is carried over TCP is broken off.
//!
//! Over QUIC both ends show the job's identity in TLS, so that a stream needs no proof of its own: its first bytes
//! are the request and its length, and the first back the reply. A shared connection that dies takes what it
//! carries with it; ranks connect anew, and find the next one, or TCP.

use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use driver::relay::{REPLY_LEN, REQUEST_MAX, Reply, Request};
use driver::{FarTcp, Identity, Refusal};
use quinn::congestion::BbrConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, Incoming, RecvStream,
    SendStream, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};

use crate::errand::{self, Denial, Reached};
use crate::leg::{self, Leg, Losses};
use crate::options::{Between, Pass};
use crate::{Desk, door};

/// The ways to other gateways.
pub(crate) struct Trunks {
    endpoints: Vec<Endpoint>,
    client: ClientConfig,
    /// TCP is tried first.
    is_tcp_first: bool,
    /// Gateways that were found silent.
    pub losses: Arc<Losses>,
    table: std::sync::Mutex<HashMap<SocketAddr, Arc<Mutex<Way>>>>,
    /// Strangers that may come at once over UDP.
    strangers: Arc<Semaphore>,
}

/// How another gateway is called.
enum Way {
    Unknown,
    Shared(Connection),
    /// Over TCP; where UDP did not lead there, it is not tried again before this.
    Tcp {
        until: Instant,
    },
}

impl Trunks {
    /// Listens at these sockets; without any, other gateways are called over TCP only.
    pub fn open(pass: &Pass, sockets: Vec<UdpSocket>, between: Between) -> io::Result<Self> {
        let identity = Identity::of(&pass.secret, pass.job);
        let transport = Arc::new(transport());
        let server = server(&identity, transport.clone()).map_err(io::Error::other)?;
        let client = client(&identity, transport).map_err(io::Error::other)?;
        let mut endpoints = Vec::new();
        for socket in sockets {
            let runtime = Arc::new(TokioRuntime);
            let config = EndpointConfig::default();
            endpoints.push(Endpoint::new(config, Some(server.clone()), socket, runtime)?);
        }
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        let is_tcp_first = match between {
            Between::Auto => FarTcp::remembers(),
            Between::Tcp => true,
            Between::Udp => false,
        };
        let table = std::sync::Mutex::default();
        let losses = Arc::default();
        Ok(Self { endpoints, client, is_tcp_first, losses, table, strangers })
    }

    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.clone()
    }

    pub async fn close(&self) {
        for endpoint in &self.endpoints {
            endpoint.close(VarInt::from_u32(0), b"the gateway ends");
        }
        let gone = async {
            for endpoint in &self.endpoints {
                endpoint.wait_idle().await;
            }
        };
        // Those who have not heard it find out.
        let _ = timeout(CLOSE_PATIENCE, gone).await;
    }

    /// Asks another gateway for a connection. The error is for the one who wanted it.
    pub async fn call(
        &self,
        desk: &Arc<Desk>,
        gateway: SocketAddr,
        request: &Request,
    ) -> Result<Reached, String> {
        let told = |error: io::Error| Err(error.to_string());
        if !self.is_tcp_first {
            return match self.call_over_udp(desk, gateway, request).await {
                Some(answer) => answer,
                None => {
                    let patience = errand::CONNECT_PATIENCE;
                    self.call_over_tcp(desk, gateway, request, patience).await.unwrap_or_else(told)
                }
            };
        }
        if self.losses.watched(gateway.ip()) >= OWN_MAX
            && let Some(answer) = self.call_over_udp(desk, gateway, request).await
        {
            return answer;
        }
        let patience = if self.endpoints.is_empty() { errand::CONNECT_PATIENCE } else { PATIENCE };
        match self.call_over_tcp(desk, gateway, request, patience).await {
            Ok(answer) => answer,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let called = self.call_over_udp(desk, gateway, request).await;
                called.unwrap_or_else(|| told(error))
            }
            // Whose host answers that nobody listens is not there over UDP either.
            Err(error) => told(error),
        }
    }

    /// Asks over the shared connection; none where UDP does not lead there.
    async fn call_over_udp(
        &self,
        desk: &Arc<Desk>,
        gateway: SocketAddr,
        request: &Request,
    ) -> Option<Result<Reached, String>> {
        let connection = self.shared(desk, gateway).await?;
        match timeout(REPLY_PATIENCE, ask(&connection, request)).await {
            Ok(Ok((leg, reply))) => Some(reached(leg, reply, connection.min_rtt())),
            // It has died meanwhile.
            Ok(Err(_)) if connection.close_reason().is_some() => None,
            Ok(Err(error)) => Some(Err(error.to_string())),
            Err(_) => Some(Err(SILENT.into())),
        }
    }

    /// Asks over a connection of its own. The outer error: TCP does not lead there.
    async fn call_over_tcp(
        &self,
        desk: &Arc<Desk>,
        gateway: SocketAddr,
        request: &Request,
        patience: Duration,
    ) -> io::Result<Result<Reached, String>> {
        // Counted from now on, for those who call meanwhile.
        let watched = self.losses.watch(gateway.ip());
        let mut stream = errand::connect_one(gateway, patience).await?;
        let called = timeout(REPLY_PATIENCE, door::call(&desk.porter, &mut stream, request)).await;
        let reply = match called {
            Ok(Ok(reply)) => reply,
            Ok(Err(text)) => return Ok(Err(text)),
            Err(_) => return Ok(Err(SILENT.into())),
        };
        if let Ok(mut way) = self.way(gateway).try_lock()
            && matches!(&*way, Way::Unknown)
        {
            *way = Way::Tcp { until: Instant::now() };
        }
        let (leg, round_trip) = leg::prepare(stream, Some(watched))?;
        if self.is_tcp_first && !self.endpoints.is_empty() {
            // It says when the other stops, to either side.
            let desk = desk.clone();
            tokio::spawn(async move { desk.trunks.shared(&desk, gateway).await });
        }
        Ok(reached(leg, reply, round_trip))
    }

    /// The connection shared with another gateway, if UDP leads there. Whoever asks first connects, the
    /// others wait for what comes of it.
    async fn shared(&self, desk: &Arc<Desk>, gateway: SocketAddr) -> Option<Connection> {
        let way = self.way(gateway);
        let mut way = way.lock().await;
        match &*way {
            Way::Shared(connection) if connection.close_reason().is_none() => {
                return Some(connection.clone());
            }
            Way::Tcp { until } if Instant::now() < *until => return None,
            Way::Unknown | Way::Shared(_) | Way::Tcp { .. } => {}
        }
        match self.connect(gateway).await {
            Some(connection) => {
                *way = Way::Shared(connection.clone());
                tokio::spawn(attend(desk.clone(), connection.clone()));
                Some(connection)
            }
            None => {
                *way = Way::Tcp { until: Instant::now() + UDP_REST };
                None
            }
        }
    }

    /// What is wanted of a gateway that has called goes the way on which it came.
    fn remember(&self, gateway: SocketAddr, connection: &Connection) {
        if let Ok(mut way) = self.way(gateway).try_lock()
            && !matches!(&*way, Way::Shared(other) if other.close_reason().is_none())
        {
            *way = Way::Shared(connection.clone());
        }
    }

    fn way(&self, gateway: SocketAddr) -> Arc<Mutex<Way>> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= WAYS_MAX && !table.contains_key(&gateway) {
            // Those in use go on; they are only not found any more.
            table.clear();
        }
        let unknown = || Arc::new(Mutex::new(Way::Unknown));
        table.entry(gateway).or_insert_with(unknown).clone()
    }

    async fn connect(&self, gateway: SocketAddr) -> Option<Connection> {
        let endpoint = self.towards(gateway)?;
        let connecting = endpoint.connect_with(self.client.clone(), gateway, NAME).ok()?;
        timeout(PATIENCE, connecting).await.ok()?.ok()
    }

    /// The endpoint from whose address the system would send to `gateway`.
    fn towards(&self, gateway: SocketAddr) -> Option<&Endpoint> {
        let unspecified: IpAddr = match gateway {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let probe = UdpSocket::bind((unspecified, 0)).ok()?;
        probe.connect(gateway).ok()?;
        let source = probe.local_addr().ok()?.ip();
        self.endpoints.iter().find(|one| {
            one.local_addr().is_ok_and(|own| own.ip() == source || own.ip() == unspecified)
        })
    }

    /// A line for each connection that is shared.
    pub fn account(&self) -> String {
        let mut text = String::new();
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        for (gateway, way) in table.iter() {
            let Ok(way) = way.try_lock() else { continue };
            // Writing to a string does not fail.
            let _ = match &*way {
                Way::Unknown => Ok(()),
                Way::Tcp { .. } => writeln!(text, "gateway {gateway}: over TCP"),
                Way::Shared(connection) => {
                    let path = connection.stats().path;
                    let (sent, lost) = (path.sent_packets, path.lost_packets);
                    let (window, mtu) = (path.cwnd, path.current_mtu);
                    let round_trip = path.rtt;
                    let way =
                        if self.is_tcp_first { "over TCP, watched over UDP" } else { "over UDP" };
                    writeln!(
                        text,
                        "gateway {gateway}: {way}, round trip {round_trip:.1?}, window {window} bytes, \
                         {lost} of {sent} packets of up to {mtu} bytes lost"
                    )
                }
            };
        }
        text
    }
}

/// Lets other gateways in over UDP, for ever.
pub(crate) async fn keep(endpoint: Endpoint, desk: Arc<Desk>) {
    while let Some(incoming) = endpoint.accept().await {
        // Whoever cannot be answered at its address gets no memory.
        if !incoming.remote_address_validated() {
            // Fails only where it may not be asked again, and then it is dropped.
            let _ = incoming.retry();
            continue;
        }
        let Ok(permit) = desk.trunks.strangers.clone().try_acquire_owned() else {
            desk.ledger.refuse(incoming.remote_address(), Refusal::Crowd);
            incoming.refuse();
            continue;
        };
        let desk = desk.clone();
        tokio::spawn(async move {
            let from = incoming.remote_address();
            let admitted = admit(incoming).await;
            drop(permit);
            match admitted {
                Ok(connection) => {
                    desk.trunks.remember(from, &connection);
                    attend(desk, connection).await;
                }
                Err(refusal) => desk.ledger.refuse(from, refusal),
            }
        });
    }
}

async fn admit(incoming: Incoming) -> Result<Connection, Refusal> {
    let connecting = incoming.accept().map_err(|_| Refusal::Protocol)?;
    match timeout(PATIENCE, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(_)) => Err(Refusal::Secret),
        Err(_) => Err(Refusal::Slow),
    }
}

/// Serves a gateway of the job as long as the shared connection lives, whoever has begun it.
fn attend(desk: Arc<Desk>, connection: Connection) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let from = connection.remote_address();
        while let Ok((to, stream)) = connection.accept_bi().await {
            tokio::spawn(attend_one(desk.clone(), from, to, stream));
        }
        if matches!(connection.close_reason(), Some(ConnectionError::TimedOut)) {
            desk.trunks.losses.note(from.ip());
        }
    })
}

async fn attend_one(desk: Arc<Desk>, from: SocketAddr, to: SendStream, mut stream: RecvStream) {
    match timeout(REPLY_PATIENCE, hear(&mut stream)).await.unwrap_or(Err(Refusal::Slow)) {
        Ok(request) if request.via.is_empty() => {
            door::serve(&desk, Leg::Trunk(to, stream), from, &request).await;
        }
        Ok(Request { peer, .. }) => desk.ledger.deny(from, &Denial::TooFar { peer }),
        Err(refusal) => desk.ledger.refuse(from, refusal),
    }
}

async fn hear(stream: &mut RecvStream) -> Result<Request, Refusal> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).await.map_err(|_| Refusal::Closed)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > REQUEST_MAX {
        return Err(Refusal::Protocol);
    }
    let mut words = vec![0; len];
    stream.read_exact(&mut words).await.map_err(|_| Refusal::Closed)?;
    Request::parse(&words).ok_or(Refusal::Protocol)
}

async fn ask(connection: &Connection, request: &Request) -> io::Result<(Leg, Reply)> {
    let (mut to, mut from): (SendStream, RecvStream) = connection.open_bi().await?;
    let words = request.emit();
    let said = [&(words.len() as u16).to_le_bytes()[..], &words].concat();
    to.write_all(&said).await?;
    let mut reply = [0; REPLY_LEN];
    from.read_exact(&mut reply).await.map_err(io::Error::other)?;
    let reply = Reply::parse(&reply).ok_or(io::ErrorKind::InvalidData)?;
    Ok((Leg::Trunk(to, from), reply))
}

/// What another gateway has reached, if it has.
fn reached(leg: Leg, reply: Reply, round_trip: Duration) -> Result<Reached, String> {
    match reply {
        Reply::Open { beyond } => Ok(Reached { leg, round_trip: round_trip + beyond }),
        Reply::Refused(text) => Err(text),
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(STREAMS_MAX.into())
        .max_concurrent_uni_streams(0u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into())
        .keep_alive_interval(Some(KEEPALIVE))
        .max_idle_timeout(Some(SILENCE_MS.into()))
        .congestion_controller_factory(Arc::new(BbrConfig::default()));
    transport
}

type ConfigError = Box<dyn std::error::Error + Send + Sync>;

fn server(
    identity: &Identity,
    transport: Arc<TransportConfig>,
) -> Result<ServerConfig, ConfigError> {
    let mut tls = (*identity.server()).clone();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport).max_incoming(STRANGERS_MAX);
    Ok(config)
}

fn client(
    identity: &Identity,
    transport: Arc<TransportConfig>,
) -> Result<ClientConfig, ConfigError> {
    let mut tls = (*identity.client()).clone();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport);
    Ok(config)
}

/// A socket for shared connections.
pub(crate) fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM.cloexec(), None)?;
    // The kernel gives what it allows, unless this is root's.
    for (size, force) in [
        (
            socket2::Socket::set_recv_buffer_size as fn(&_, _) -> _,
            rustix::net::sockopt::set_socket_recv_buffer_size_force as fn(_, _) -> _,
        ),
        (
            socket2::Socket::set_send_buffer_size,
            rustix::net::sockopt::set_socket_send_buffer_size_force,
        ),
    ] {
        if force(&socket, SOCKET_BYTES).is_err() {
            size(&socket, SOCKET_BYTES)?;
        }
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// What gateways speak with each other, and its version.
const ALPN: &[u8] = b"canele-gateway/1";
/// The name that a client asks for: it goes nowhere, and nobody checks it.
const NAME: &str = "canele";

/// Connections carried for one gateway at once.
const STREAMS_MAX: u32 = 1024;
/// What one connection may have under way, or waiting for a rank that does not read: 1 Gb/s for 130 ms.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
/// What all of a shared connection may have. A rank that does not read holds no more than its stream's.
const WINDOW_BYTES: u32 = 256 << 20;
/// Asked for from the kernel, for bursts: 1 Gb/s for 30 ms.
const SOCKET_BYTES: usize = 4 << 20;

/// A shared connection is kept alive by a word now and then, and is dead when none has come for so long.
const KEEPALIVE: Duration = Duration::from_secs(2);
const SILENCE_MS: VarInt = VarInt::from_u32(10_000);

/// Connections with another gateway that have one of their own over TCP each, while others share one by QUIC.
const OWN_MAX: usize = 8;
/// How long the one is tried before the other: two round trips and a packet lost.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long it is left alone where it did not lead.
const UDP_REST: Duration = Duration::from_secs(30);
/// What is said of a gateway that took longer.
const SILENT: &str = "it does not answer";
/// How long another gateway may take for an answer: it has a host to reach.
const REPLY_PATIENCE: Duration = Duration::from_secs(12);
/// How long others are given to hear that the gateway ends.
const CLOSE_PATIENCE: Duration = Duration::from_millis(200);
/// Gateways over UDP at once that have not proved themselves.
const STRANGERS_MAX: usize = 64;
/// Other gateways of which is known how they are called.
const WAYS_MAX: usize = 256;
