//! A gateway relays connections between the hosts of its site and other sites.
//!
//! A rank that cannot reach another one calls a gateway, proves that it knows the job's secret and requests a
//! connection (`relay`). The gateway connects to a host of its own site, or asks a gateway of another
//! site to, and forwards bytes in both directions. It reads none of them: the two ranks authenticate each
//! other and encrypt end to end. If one end stops reading, the gateway stops reading from the other.
//!
//! | file | does |
//! |---|---|
//! | `listener` | accepts callers that authenticate in time, and bounds the number of the others |
//! | `connect_job` | opens the requested connection, if it is allowed |
//! | `trunk` | opens the shared links to other gateways and sends requests over them |
//! | `half_connection` | one end of a relayed connection |
//! | `carrier` | the thread that relays bytes and owns the links to other gateways |
//! | `account` | counts connections and bytes, and reports the first refusal of each kind |
#![forbid(unsafe_code)]

mod account;
mod carrier;
mod connect_job;
mod half_connection;
mod listener;
mod network;
mod options;
mod trunk;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use account::Account;
use carrier::{Carrier, IncomingRequest};
use listener::UnprovenCallers;
use netpath::ListenAddress;
pub use network::{Net, NetError};
pub use options::{Between, Options, Pass, PassError};
use relay::RelayHandshake;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use trunk::Trunks;

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen at, over TCP and UDP.
    pub listen: Vec<ListenAddress>,
    /// Networks of its site; it opens connections to hosts in these.
    pub hosts: Vec<Net>,
    /// Networks of other sites' gateways that it may call.
    pub gateways: Vec<Net>,
    /// Proof of membership in the job.
    pub pass: Pass,
    /// True if it passes connections of other sites on to a third one.
    pub is_transit: bool,
    /// Protocol to other gateways.
    pub between: Between,
}

/// A gateway that listens.
pub struct Gateway {
    listeners: Vec<TcpListener>,
    incoming: mpsc::Receiver<IncomingRequest>,
    shared: Arc<Shared>,
}

/// State that all connections of a gateway share.
struct Shared {
    handshake: RelayHandshake,
    hosts: Vec<Net>,
    gateways: Vec<Net>,
    is_transit: bool,
    unproven: UnprovenCallers,
    /// Permits for further connections.
    permits: Arc<Semaphore>,
    trunks: Trunks,
    carrier: Carrier,
    account: Arc<Account>,
}

impl Gateway {
    /// Opens the listeners and starts the carrier thread.
    ///
    /// # Errors
    /// Fails if an address cannot be bound.
    pub async fn open(config: Config) -> io::Result<Self> {
        let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
        for range in &config.listen {
            let (listener, socket) = open_listener(range, config.between != Between::Tcp).await?;
            listeners.push(listener);
            sockets.extend(socket);
        }
        let listen_addresses =
            listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let account = Arc::new(Account::default());
        let (carrier, incoming) = Carrier::start(&config.pass, sockets, Arc::clone(&account))?;
        let shared = Shared {
            handshake: RelayHandshake::new(config.pass.job, config.pass.secret),
            hosts: config.hosts,
            gateways: config.gateways,
            is_transit: config.is_transit,
            unproven: UnprovenCallers::default(),
            permits: Arc::new(Semaphore::new(CARRIED_MAX)),
            trunks: Trunks::new(listen_addresses, config.between),
            carrier,
            account,
        };
        Ok(Self { listeners, incoming, shared: Arc::new(shared) })
    }

    /// Addresses it listens at over TCP.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|one| one.local_addr().ok()).collect()
    }

    /// Returns a function that prints what the gateway has done so far, in a few lines.
    pub fn account(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || format!("{}{}", shared.account.text(), shared.carrier.account())
    }

    /// Serves until `end` completes; connections still relayed break off with the runtime.
    pub async fn serve(self, end: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        for listener in self.listeners {
            tasks.spawn(listener::accept_callers(listener, self.shared.clone()));
        }
        tasks.spawn(trunk::serve_gateways(self.incoming, self.shared.clone()));
        end.await;
    }
}

/// Listens at the first TCP address of the range that is free, and at the same UDP port if `udp` is set.
async fn open_listener(
    range: &ListenAddress,
    udp: bool,
) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    let any = range.addresses().next().filter(|first| first.port() == 0);
    // A port that the system chooses for TCP may be taken for UDP.
    let more = std::iter::repeat_n(any, ANY_MAX).flatten();
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    for address in range.addresses().chain(more) {
        match open_at(address, udp).await {
            Ok(pair) => return Ok(pair),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

async fn open_at(address: SocketAddr, udp: bool) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| with_address(&format!("TCP {address}"), &error))?;
    let address = listener.local_addr()?;
    let socket = udp.then(|| trunk::socket(address)).transpose();
    Ok((listener, socket.map_err(|error| with_address(&format!("UDP {address}"), &error))?))
}

fn with_address(address: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{address}: {error}"))
}

/// Attempts to get a port that is free for both TCP and UDP.
const ANY_MAX: usize = 16;
/// Maximum number of relayed connections.
const CARRIED_MAX: usize = 4096;
