//! Opens the connection that a request asks for, to a host of this site or through another site's gateway.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use netpath::RelayInfo;
use relay::Request;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use wire::PeerId;

use crate::half_connection::{self, HalfConnection};
use crate::network::{self, Net};
use crate::{Shared, trunk};

/// An open connection to the requested rank, and the path behind it.
pub(crate) struct Reached {
    pub half: HalfConnection,
    pub beyond: RelayInfo,
}

/// Reasons to deny a member's request. A caller shows only one line, so the first words must suffice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denial {
    /// The addresses are outside this site's networks.
    #[error("rank {} is on none of its networks ({allowed}); --allow adds one", peer.0)]
    Forbidden { peer: PeerId, allowed: String },
    /// The other site's gateways are outside the allowed networks.
    #[error("the gateways to rank {} are on no network it may call ({allowed}); --gateways adds one", peer.0)]
    Estranged { peer: PeerId, allowed: String },
    /// Another site's gateway asks for a third site.
    #[error("rank {} is of a third site, and it passes nothing on; --transit lets it", peer.0)]
    TooFar { peer: PeerId },
    /// No address answers.
    #[error("no path to rank {}:{tried}", peer.0)]
    Unreached { peer: PeerId, tried: String },
    /// The gateway relays its maximum number of connections.
    #[error("it carries {} connections, and no more", crate::CARRIED_MAX)]
    Full,
}

impl Denial {
    /// Returns the kind in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Forbidden { .. } => "forbidden",
            Self::Estranged { .. } => "estranged",
            Self::TooFar { .. } => "too far",
            Self::Unreached { .. } => "unreached",
            Self::Full => "full",
        }
    }
}

/// Opens the requested connection.
pub(crate) async fn run(shared: &Arc<Shared>, request: &Request) -> Result<Reached, Denial> {
    let peer = request.peer;
    if let Some((stage, rest)) = request.via.split_first() {
        return call_gateways(shared, request, (stage, rest)).await;
    }
    let listeners = Net::allowed(&shared.hosts, &request.listeners);
    if listeners.is_empty() {
        return Err(Denial::Forbidden { peer, allowed: network::list(&shared.hosts) });
    }
    let unreached = |tried| Denial::Unreached { peer, tried };
    let stream = connect(&listeners).await.map_err(unreached)?;
    let (half, round_trip) =
        half_connection::prepare(stream).map_err(|error| unreached(format!(" {error}")))?;
    Ok(Reached { half, beyond: RelayInfo { round_trip, is_measured: false } })
}

/// Calls the gateways of a stage one after the other until one has opened the connection. Each hop has one stage
/// less to go, so no request goes round.
async fn call_gateways(
    shared: &Arc<Shared>,
    request: &Request,
    (stage, rest): (&[SocketAddr], &[Vec<SocketAddr>]),
) -> Result<Reached, Denial> {
    let peer = request.peer;
    let gateways = Net::allowed(&shared.gateways, stage);
    if gateways.is_empty() {
        return Err(Denial::Estranged { peer, allowed: network::list(&shared.gateways) });
    }
    let passed_on = Request { via: rest.to_vec(), ..request.clone() };
    let mut tried = String::new();
    for gateway in gateways {
        match trunk::call(shared, gateway, &passed_on).await {
            Ok(reached) => return Ok(reached),
            // Writing to a string does not fail.
            Err(text) => drop(write!(tried, " {gateway} ({text})")),
        }
    }
    Err(Denial::Unreached { peer, tried })
}

/// Returns the first connection to one of `addresses`. The next address is tried as well while the earlier
/// ones are silent. The error lists all attempts.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let end = Instant::now() + CONNECT_PATIENCE;
    let mut rest = addresses.iter().copied();
    let mut tries = JoinSet::new();
    let mut next = Instant::now();
    let mut tried = String::new();
    loop {
        tokio::select! {
            () = sleep_until(next), if rest.len() > 0 => {
                if let Some(address) = rest.next() {
                    tries.spawn(async move { (address, TcpStream::connect(address).await) });
                }
                next = Instant::now() + STAGGER;
            }
            Some(ended) = tries.join_next() => match ended {
                Ok((_, Ok(stream))) => return Ok(stream),
                Ok((address, Err(error))) => {
                    // Writing to a string does not fail.
                    let _ = write!(tried, " {address} ({error})");
                    next = Instant::now();
                }
                Err(_) => {}
            },
            () = sleep_until(end) => {
                return Err(format!("{tried} no answer within {} s", CONNECT_PATIENCE.as_secs()));
            }
            else => return Err(tried),
        }
    }
}

/// Connects to one address, in bounded time.
///
/// # Errors
/// Returns the system's error, and [`io::ErrorKind::TimedOut`] if nobody answers.
pub(crate) async fn connect_one(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let silent = |_| {
        let text = format!("no answer within {} s", patience.as_secs_f32());
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    timeout(patience, TcpStream::connect(address)).await.map_err(silent)?
}

/// Time within which a connection must be established.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(8);
/// Silence of an address after which the next one is tried as well.
const STAGGER: Duration = Duration::from_millis(250);
