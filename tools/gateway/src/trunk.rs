//! Links to other gateways: all connections to a gateway share one link, which stays open while idle.
//!
//! TCP takes a third of the processor time of UDP and has the lower latency. But its congestion window
//! collapses after each silence unless the congestion control keeps its model (BBR), which the QUIC rail over
//! UDP does itself. So a link is tried over TCP first if the system has BBR, and over the other protocol if
//! the first one fails.
//!
//! Both ends of a link have shown that they know the job's secret. If a link is lost, the connections it
//! relays are lost too; ranks connect anew and find the next one.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use netpath::{Knowledge, WanTcp};
use rail::Refusal;
use relay::{GATEWAY, PathCost, REPLY_LEN, Reply, Request};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{sleep, timeout};

use crate::carrier::{Called, IncomingRequest, PATIENCE};
use crate::connect_job::{self, Reached};
use crate::half_connection::{self, HalfConnection};
use crate::network::Net;
use crate::options::Between;
use crate::{Shared, listener};
use topo::StoredCosts;

/// Links to other gateways, and the attempts to open them.
pub(crate) struct Trunks {
    /// True if TCP is tried first.
    is_tcp_first: bool,
    /// True if UDP may be used.
    has_udp: bool,
    /// Listen addresses of this gateway, told to gateways that it calls.
    listen_addresses: Vec<SocketAddr>,
    /// Lock per gateway, held while a link over TCP is opened; others wait for its result.
    openings: std::sync::Mutex<HashMap<SocketAddr, Arc<Mutex<()>>>>,
    /// Gateways that could not be reached, and when that was found.
    failed: std::sync::Mutex<HashMap<SocketAddr, Instant>>,
    /// Path properties that earlier jobs have learned.
    knowledge: Knowledge,
    /// Lock held while links are opened only to measure them.
    measuring: Mutex<()>,
}

impl Trunks {
    /// Creates the state of a gateway that listens at these addresses.
    pub fn new(listen_addresses: Vec<SocketAddr>, between: Between) -> Self {
        let is_tcp_first = match between {
            Between::Auto => WanTcp::has_bbr(),
            Between::Tcp => true,
            Between::Udp => false,
        };
        let has_udp = between != Between::Tcp;
        let (openings, failed, measuring) = Default::default();
        let costs = Arc::new(StoredCosts::of_environment());
        let knowledge =
            if is_tcp_first { Knowledge::of_hosts(costs) } else { Knowledge::over_udp(costs) };
        Self { is_tcp_first, has_udp, listen_addresses, openings, failed, knowledge, measuring }
    }

    /// Notes whether another gateway could be reached.
    fn note_reached(&self, gateway: SocketAddr, is_reached: bool) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.remove(&gateway);
        if !is_reached {
            if failed.len() >= OPENINGS_MAX {
                failed.clear();
            }
            failed.insert(gateway, Instant::now());
        }
    }

    /// True if the gateway could not be reached recently.
    fn has_failed(&self, gateway: SocketAddr) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get(&gateway).is_some_and(|at| at.elapsed() < FAILED_FOR)
    }

    fn opening(&self, gateway: SocketAddr) -> Arc<Mutex<()>> {
        let mut openings = self.openings.lock().unwrap_or_else(PoisonError::into_inner);
        if openings.len() >= OPENINGS_MAX {
            // Attempts under way continue; another caller may open a second link meanwhile.
            openings.clear();
        }
        openings.entry(gateway).or_default().clone()
    }
}

/// Asks another gateway for a connection. The error text is meant for the caller.
pub(crate) async fn call(
    shared: &Arc<Shared>,
    gateway: SocketAddr,
    request: &Request,
) -> Result<Reached, String> {
    let called = send_request(shared, gateway, request).await;
    shared.trunks.note_reached(gateway, called.is_ok());
    reached(called?)
}

/// Returns the path costs to other gateways. Missing links are opened in the background, one after the other,
/// so that their costs are known to later callers.
pub(crate) async fn path_costs(shared: &Arc<Shared>, gateways: &[SocketAddr]) -> Vec<PathCost> {
    let allowed = Net::allowed(&shared.gateways, gateways);
    let mut path_costs = shared.carrier.costs(gateways.to_vec()).await;
    let mut missing = Vec::new();
    for (gateway, path_cost) in gateways.iter().zip(&mut path_costs) {
        match path_cost {
            _ if !allowed.contains(gateway) => *path_cost = PathCost::Closed,
            PathCost::Costs { .. } => {}
            _ if shared.trunks.has_failed(*gateway) => *path_cost = PathCost::Closed,
            PathCost::Unknown | PathCost::Closed => missing.push(*gateway),
        }
        if *path_cost == PathCost::Unknown {
            let remembered = shared.trunks.knowledge.of_path(*gateway);
            *path_cost = remembered.map_or(PathCost::Unknown, |cost| PathCost::of(&cost));
        }
    }
    if !missing.is_empty() {
        tokio::spawn(explore(Arc::clone(shared), missing));
    }
    path_costs
}

/// Opens links to gateways, so that what they cost becomes known.
async fn explore(shared: Arc<Shared>, gateways: Vec<SocketAddr>) {
    // Others who ask meanwhile ask again.
    let Ok(_alone) = shared.trunks.measuring.try_lock() else { return };
    for gateway in gateways {
        if shared.trunks.listen_addresses.iter().all(|own| *own > gateway) {
            // Usually its own ranks make it call this gateway. Two links at once would each measure only what
            // the other leaves.
            sleep(HEAD_START).await;
        }
        let request = Request::of_path_costs(Vec::new());
        let found = send_request(&shared, gateway, &request).await;
        shared.trunks.note_reached(gateway, found.is_ok());
        sleep(MEASURING).await;
    }
}

/// Sends a request to another gateway over the first protocol that reaches it.
async fn send_request(
    shared: &Arc<Shared>,
    gateway: SocketAddr,
    request: &Request,
) -> Result<Called, String> {
    let is_tcp_first = shared.trunks.is_tcp_first;
    // Each further gateway may take as long.
    let reply_timeout = REPLY_TIMEOUT * (1 + request.via.len() as u32);
    if let Some(called) =
        send_over_link(shared, gateway, request, !is_tcp_first, reply_timeout).await
    {
        return called;
    }
    let begun = Instant::now();
    let (patience, refusal) = match open(shared, gateway).await {
        Ok(()) => (reply_timeout, None),
        Err(error) if !is_tcp_first || !is_path_error(&error) => return Err(error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => (reply_timeout, None),
        // The gateway is gone, so another one should be called soon, or a firewall refuses TCP.
        Err(error) => (begun.elapsed() * ROUND_TRIPS + MARGIN, Some(error)),
    };
    let called = send_over_link(shared, gateway, request, is_tcp_first, patience).await;
    called.unwrap_or_else(|| Err(SILENT.into())).map_err(|text| match refusal {
        Some(refusal) => format!("{refusal}; over UDP {text}"),
        None => text,
    })
}

/// True if the error comes from the network or from silence, not from the gateway.
fn is_path_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
}

/// Sends the request over the link. None if there is no link, and none may be or was opened over UDP.
async fn send_over_link(
    shared: &Arc<Shared>,
    gateway: SocketAddr,
    request: &Request,
    opens: bool,
    patience: Duration,
) -> Option<Result<Called, String>> {
    let called = shared.carrier.call(gateway, request.emit(), opens);
    match timeout(patience, called).await {
        Ok(called) => Some(called?.map_err(|error| error.to_string())),
        Err(_) => Some(Err(SILENT.into())),
    }
}

/// Converts the reply of another gateway into the connection it has opened.
fn reached(Called { end, reply, round_trip }: Called) -> Result<Reached, String> {
    let reply: Option<[u8; REPLY_LEN]> = reply.try_into().ok();
    match reply.as_ref().and_then(Reply::parse) {
        Some(Reply::Open { beyond }) => {
            Ok(Reached { half: HalfConnection::Trunk(end), beyond: beyond.behind_link(round_trip) })
        }
        Some(Reply::Refused(text)) => Err(text),
        Some(Reply::PathCosts(_)) | None => Err("its reply is malformed".into()),
    }
}

/// Opens a link over TCP, unless another task does so already.
async fn open(shared: &Arc<Shared>, gateway: SocketAddr) -> io::Result<()> {
    let opening = shared.trunks.opening(gateway);
    let Ok(_alone) = opening.try_lock() else {
        // The other task leaves its result in the link table.
        drop(opening.lock().await);
        return Ok(());
    };
    let patience = if shared.trunks.has_udp { PATIENCE } else { connect_job::CONNECT_PATIENCE };
    let mut stream = connect_job::connect_one(gateway, patience).await?;
    let listen_addresses = shared.trunks.listen_addresses.clone();
    let request = Request { peer: GATEWAY, via: Vec::new(), listeners: listen_addresses };
    let called =
        timeout(PATIENCE, listener::call(&shared.handshake, &mut stream, &request)).await?;
    match called.map_err(io::Error::other)? {
        (Reply::Open { .. }, session) => {
            half_connection::watch(&stream)?;
            shared.carrier.link(stream, session, vec![gateway])
        }
        (Reply::Refused(text), _) => Err(io::Error::other(text)),
        (Reply::PathCosts(_), _) => Err(io::Error::other("its reply is malformed")),
    }
}

/// Serves the requests of other gateways, for ever.
pub(crate) async fn serve_gateways(
    mut incoming: mpsc::Receiver<IncomingRequest>,
    shared: Arc<Shared>,
) {
    while let Some(incoming_request) = incoming.recv().await {
        let end = HalfConnection::Trunk(shared.carrier.end_of_request(&incoming_request));
        let shared = shared.clone();
        tokio::spawn(async move {
            let from = incoming_request.from;
            match Request::parse(&incoming_request.request) {
                Some(request) => listener::serve(&shared, end, from, &request).await,
                None => shared.account.refuse(from, Refusal::Protocol),
            }
        });
    }
}

/// Opens a UDP socket for links.
pub(crate) fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM.cloexec(), None)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Error text for a gateway that did not answer in time.
const SILENT: &str = "it does not answer";
/// Time another gateway may take: its link may have to be opened, and it has to reach a host.
const REPLY_TIMEOUT: Duration = PATIENCE.saturating_add(Duration::from_secs(12));
/// Round trips to wait over UDP after TCP was refused: the handshake and the request, with one packet lost.
const ROUND_TRIPS: u32 = 8;
const MARGIN: Duration = Duration::from_millis(250);
/// Time for which a gateway counts as unreachable after a failure.
const FAILED_FOR: Duration = Duration::from_secs(30);
/// Head start of the other side in opening a link.
const HEAD_START: Duration = Duration::from_millis(500);
/// Time to measure a path's bandwidth: some tens of round trips.
const MEASURING: Duration = Duration::from_millis(500);
/// Maximum number of gateways in either table.
const OPENINGS_MAX: usize = 256;
