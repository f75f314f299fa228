//! The ways to other gateways: a link that all that is carried there shares, kept while nothing is.
//!
//! TCP takes a third of the processor time that UDP does, and less time on the way; but unless its congestion control
//! remembers (BBR), it begins anew after each silence, and the rail over UDP does not. So a link is tried over TCP first
//! where the system has one that remembers, and where one way does not lead, the other is tried.
//!
//! Both ends of a link have shown that they know the job's secret. A link that is lost takes what it carries with it;
//! ranks connect anew, and find the next one.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use driver::relay::{GATEWAY, PathCost, REPLY_LEN, Reply, Request};
use driver::{FarTcp, Knowledge, Refusal};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{sleep, timeout};

use crate::carrier::{Arrival, Called, PATIENCE};
use crate::connect_job::{self, Denial, Reached};
use crate::half_connection::{self, Leg};
use crate::network::Net;
use crate::options::Between;
use crate::{Desk, listener};

/// How other gateways are called.
pub(crate) struct Trunks {
    /// TCP is tried first.
    is_tcp_first: bool,
    /// There is UDP.
    has_udp: bool,
    /// Where this gateway is called, for others that have been called by it.
    doors: Vec<SocketAddr>,
    /// Who opens a link over TCP; others wait for what comes of it.
    openings: std::sync::Mutex<HashMap<SocketAddr, Arc<Mutex<()>>>>,
    /// Gateways to which no way led, and when.
    failed: std::sync::Mutex<HashMap<SocketAddr, Instant>>,
    /// What jobs before have learned of the ways to others.
    knowledge: Knowledge,
    /// Who opens links that nobody waits for.
    exploring: Mutex<()>,
}

impl Trunks {
    /// A gateway that is called at these addresses.
    pub fn new(doors: Vec<SocketAddr>, between: Between) -> Self {
        let is_tcp_first = match between {
            Between::Auto => FarTcp::remembers(),
            Between::Tcp => true,
            Between::Udp => false,
        };
        let has_udp = between != Between::Tcp;
        let (openings, failed, exploring) = Default::default();
        let knowledge = if is_tcp_first { Knowledge::of_hosts() } else { Knowledge::over_udp() };
        Self { is_tcp_first, has_udp, doors, openings, failed, knowledge, exploring }
    }

    /// A way has led to another gateway, or none has.
    fn note(&self, gateway: SocketAddr, has_led: bool) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.remove(&gateway);
        if !has_led {
            if failed.len() >= OPENINGS_MAX {
                failed.clear();
            }
            failed.insert(gateway, Instant::now());
        }
    }

    /// Whether none has, a while ago.
    fn has_failed(&self, gateway: SocketAddr) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get(&gateway).is_some_and(|at| at.elapsed() < REST)
    }

    fn opening(&self, gateway: SocketAddr) -> Arc<Mutex<()>> {
        let mut openings = self.openings.lock().unwrap_or_else(PoisonError::into_inner);
        if openings.len() >= OPENINGS_MAX {
            // Those under way go on; another may open a second link meanwhile.
            openings.clear();
        }
        openings.entry(gateway).or_default().clone()
    }
}

/// Asks another gateway for a connection. The error is for the one who wanted it.
pub(crate) async fn call(
    desk: &Arc<Desk>,
    gateway: SocketAddr,
    request: &Request,
) -> Result<Reached, String> {
    let called = find(desk, gateway, request).await;
    desk.trunks.note(gateway, called.is_ok());
    reached(called?)
}

/// What the ways to other gateways cost. Links that there are not yet are opened from now on, one after the other, so
/// that what each carries is known to those who ask later.
pub(crate) async fn path_costs(desk: &Arc<Desk>, gateways: &[SocketAddr]) -> Vec<PathCost> {
    let allowed = Net::allowed(&desk.gateways, gateways);
    let mut path_costs = desk.carrier.costs(gateways.to_vec()).await;
    let mut missing = Vec::new();
    for (gateway, path_cost) in gateways.iter().zip(&mut path_costs) {
        match path_cost {
            _ if !allowed.contains(gateway) => *path_cost = PathCost::Closed,
            PathCost::Costs { .. } => {}
            _ if desk.trunks.has_failed(*gateway) => *path_cost = PathCost::Closed,
            PathCost::Unknown | PathCost::Closed => missing.push(*gateway),
        }
        if *path_cost == PathCost::Unknown {
            let remembered = desk.trunks.knowledge.of_way(*gateway);
            *path_cost = remembered.map_or(PathCost::Unknown, |cost| PathCost::of(&cost));
        }
    }
    if !missing.is_empty() {
        tokio::spawn(explore(Arc::clone(desk), missing));
    }
    path_costs
}

/// Opens links to gateways, so that what they cost becomes known.
async fn explore(desk: Arc<Desk>, gateways: Vec<SocketAddr>) {
    // Others who ask meanwhile ask again.
    let Ok(_alone) = desk.trunks.exploring.try_lock() else { return };
    for gateway in gateways {
        if desk.trunks.doors.iter().all(|own| *own > gateway) {
            // Its own ranks have it call, mostly; of two links each would measure what the other leaves.
            sleep(OTHERS_TURN).await;
        }
        let question = Request::of_path_costs(Vec::new());
        let found = find(&desk, gateway, &question).await;
        desk.trunks.note(gateway, found.is_ok());
        sleep(MEASURING).await;
    }
}

/// Asks another gateway by whichever way leads there.
async fn find(desk: &Arc<Desk>, gateway: SocketAddr, request: &Request) -> Result<Called, String> {
    let is_tcp_first = desk.trunks.is_tcp_first;
    if let Some(called) = ask(desk, gateway, request, !is_tcp_first, PATIENT).await {
        return called;
    }
    let begun = Instant::now();
    let (patience, refusal) = match open(desk, gateway).await {
        Ok(()) => (PATIENT, None),
        Err(error) if !is_tcp_first || !is_of_the_way(&error) => return Err(error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => (PATIENT, None),
        // Either it is gone, and another one is to be called soon, or a firewall refuses TCP.
        Err(error) => (begun.elapsed() * ROUND_TRIPS + MARGIN, Some(error)),
    };
    let called = ask(desk, gateway, request, is_tcp_first, patience).await;
    called.unwrap_or_else(|| Err(SILENT.into())).map_err(|text| match refusal {
        Some(refusal) => format!("{refusal}; over UDP {text}"),
        None => text,
    })
}

/// Whether the network says so, or nobody; not the gateway.
fn is_of_the_way(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
}

/// Asks by the link; none where there is none, and none was to be opened over UDP or led there.
async fn ask(
    desk: &Arc<Desk>,
    gateway: SocketAddr,
    request: &Request,
    opens: bool,
    patience: Duration,
) -> Option<Result<Called, String>> {
    let called = desk.carrier.call(gateway, request.emit(), opens);
    match timeout(patience, called).await {
        Ok(called) => Some(called?.map_err(|error| error.to_string())),
        Err(_) => Some(Err(SILENT.into())),
    }
}

/// What another gateway has reached, if it has.
fn reached(Called { end, reply, round_trip }: Called) -> Result<Reached, String> {
    let reply: Option<[u8; REPLY_LEN]> = reply.try_into().ok();
    match reply.as_ref().and_then(Reply::parse) {
        Some(Reply::Open { beyond }) => {
            Ok(Reached { leg: Leg::Trunk(end), beyond: beyond.behind_link(round_trip) })
        }
        Some(Reply::Refused(text)) => Err(text),
        Some(Reply::PathCosts(_)) | None => Err("its reply is none".into()),
    }
}

/// Opens a link over TCP, unless somebody has meanwhile.
async fn open(desk: &Arc<Desk>, gateway: SocketAddr) -> io::Result<()> {
    let opening = desk.trunks.opening(gateway);
    let Ok(_alone) = opening.try_lock() else {
        // Whoever opens it says what comes of it by the link.
        drop(opening.lock().await);
        return Ok(());
    };
    let patience = if desk.trunks.has_udp { PATIENCE } else { connect_job::CONNECT_PATIENCE };
    let mut stream = connect_job::connect_one(gateway, patience).await?;
    let doors = desk.trunks.doors.clone();
    let request = Request { peer: GATEWAY, via: Vec::new(), listeners: doors };
    let called = timeout(PATIENCE, listener::call(&desk.porter, &mut stream, &request)).await?;
    match called.map_err(io::Error::other)? {
        (Reply::Open { .. }, session) => {
            half_connection::watch(&stream)?;
            desk.carrier.link(stream, session, vec![gateway])
        }
        (Reply::Refused(text), _) => Err(io::Error::other(text)),
        (Reply::PathCosts(_), _) => Err(io::Error::other("its reply is none")),
    }
}

/// Serves other gateways, for ever.
pub(crate) async fn keep(mut arrivals: mpsc::Receiver<Arrival>, desk: Arc<Desk>) {
    while let Some(arrival) = arrivals.recv().await {
        let end = Leg::Trunk(desk.carrier.end_of_arrival(&arrival));
        let desk = desk.clone();
        tokio::spawn(async move {
            let from = arrival.from;
            match Request::parse(&arrival.request) {
                Some(request) if request.via.is_empty() => {
                    listener::serve(&desk, end, from, &request).await;
                }
                Some(Request { peer, .. }) => desk.ledger.deny(from, &Denial::TooFar { peer }),
                None => desk.ledger.refuse(from, Refusal::Protocol),
            }
        });
    }
}

/// A socket for links.
pub(crate) fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM.cloexec(), None)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// What is said of a gateway that took longer.
const SILENT: &str = "it does not answer";
/// How long another gateway may take: its link may have to be opened, and it has a host to reach.
const PATIENT: Duration = PATIENCE.saturating_add(Duration::from_secs(12));
/// Where it has refused TCP: those of a handshake over UDP and of the request, with a packet lost.
const ROUND_TRIPS: u32 = 8;
const MARGIN: Duration = Duration::from_millis(250);
/// So long a gateway to which no way led is said not to be reached by this one.
const REST: Duration = Duration::from_secs(30);
/// How long the other side is left to open a link first.
const OTHERS_TURN: Duration = Duration::from_millis(500);
/// What a way carries is found out in about this time, some tens of round trips.
const MEASURING: Duration = Duration::from_millis(500);
/// Gateways that were called over TCP.
const OPENINGS_MAX: usize = 256;
