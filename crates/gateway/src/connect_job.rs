//! What is done for a request: a connection to a host of this site, or through another site's gateway.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use driver::relay::{Detour, Request};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use wire::PeerId;

use crate::Desk;
use crate::half_connection::{self, Leg};
use crate::network::{self, Net};
use crate::trunk;

/// A connection to where somebody wanted it, and what there is between here and there.
pub(crate) struct Reached {
    pub leg: Leg,
    pub beyond: Detour,
}

/// Why a member of the job does not get its connection. The first words must do: a caller hears one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denial {
    /// The addresses are not of this site.
    #[error("rank {} is on none of its networks ({allowed}); --allow adds one", peer.0)]
    Forbidden { peer: PeerId, allowed: String },
    /// The other site's gateways are not to be called.
    #[error("the gateways to rank {} are on no network it may call ({allowed}); --gateways adds one", peer.0)]
    Estranged { peer: PeerId, allowed: String },
    /// The request has come through as many gateways as it may.
    #[error("rank {} would be behind a third gateway", peer.0)]
    TooFar { peer: PeerId },
    /// Nobody answers at the addresses.
    #[error("no way to rank {}:{tried}", peer.0)]
    Unreached { peer: PeerId, tried: String },
    /// It carries as much as it may.
    #[error("it carries {} connections, and no more", crate::CARRIED_MAX)]
    Full,
}

impl Denial {
    /// Its kind, in a word.
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

/// Opens what is asked for.
pub(crate) async fn run(desk: &Arc<Desk>, request: &Request) -> Result<Reached, Denial> {
    let peer = request.peer;
    if !request.via.is_empty() {
        return call_one(desk, request).await;
    }
    let listeners = Net::allowed(&desk.hosts, &request.listeners);
    if listeners.is_empty() {
        return Err(Denial::Forbidden { peer, allowed: network::list(&desk.hosts) });
    }
    let unreached = |tried| Denial::Unreached { peer, tried };
    let stream = connect(&listeners).await.map_err(unreached)?;
    let (leg, round_trip) =
        half_connection::prepare(stream).map_err(|error| unreached(format!(" {error}")))?;
    Ok(Reached { leg, beyond: Detour { round_trip, is_measured: false } })
}

/// Calls the named gateways one after the other, until one has a connection.
async fn call_one(desk: &Arc<Desk>, request: &Request) -> Result<Reached, Denial> {
    let peer = request.peer;
    let gateways = Net::allowed(&desk.gateways, &request.via);
    if gateways.is_empty() {
        return Err(Denial::Estranged { peer, allowed: network::list(&desk.gateways) });
    }
    let last = Request { via: Vec::new(), ..request.clone() };
    let mut tried = String::new();
    for gateway in gateways {
        match trunk::call(desk, gateway, &last).await {
            Ok(reached) => return Ok(reached),
            // Writing to a string does not fail.
            Err(text) => drop(write!(tried, " {gateway} ({text})")),
        }
    }
    Err(Denial::Unreached { peer, tried })
}

/// The first connection to one of `addresses`, which get company by the next when they are silent. The
/// error tells of all.
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

/// A connection to one address, in bounded time.
///
/// # Errors
/// The system's, and [`io::ErrorKind::TimedOut`] when nobody answers.
pub(crate) async fn connect_one(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let silent = |_| {
        let text = format!("no answer within {} s", patience.as_secs_f32());
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    timeout(patience, TcpStream::connect(address)).await.map_err(silent)?
}

/// How long the network may take to bring about a connection.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(8);
/// An address that is silent for so long gets company by the next.
const STAGGER: Duration = Duration::from_millis(250);
