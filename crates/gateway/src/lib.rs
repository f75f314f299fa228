//! The gateway: carries connections between the hosts of its site and others.
//!
//! A rank that cannot or may not reach another calls a gateway, proves the job's secret and asks for a
//! connection (`driver::relay`). The gateway opens it, to a host of its own site or through a gateway of
//! another, and passes bytes both ways as they come. It reads none of them: the two ranks prove themselves
//! to each other, and encrypt, through it. Where one end takes nothing, nothing is read from the other.
//!
//! | file | does |
//! |---|---|
//! | `door` | lets callers in that prove themselves, and refuses others, in bounded number and time |
//! | `errand` | opens what they ask for, where that is allowed |
//! | `trunk` | calls other gateways by links that all share, and opens them |
//! | `leg` | the two ends of what is carried |
//! | `carrier` | the thread that carries, and keeps the links to other gateways |
//! | `ledger` | counts, and tells of refusals once for each kind |
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

use driver::Door;
use driver::relay::Porter;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use account::Ledger;
use carrier::{Arrival, Carrier};
use listener::Antechamber;
pub use network::{Net, NetError};
pub use options::{Between, Options, Pass, PassError};
use trunk::Trunks;

/// What a gateway has to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it is called, over TCP and over UDP.
    pub listen: Vec<Door>,
    /// The networks of its site: it opens connections to these.
    pub hosts: Vec<Net>,
    /// The networks of other sites' gateways, which it may call.
    pub gateways: Vec<Net>,
    /// What proves that somebody belongs to the job.
    pub pass: Pass,
    /// How gateways are called.
    pub between: Between,
}

/// A gateway that can be called.
pub struct Gateway {
    listeners: Vec<TcpListener>,
    arrivals: mpsc::Receiver<Arrival>,
    desk: Arc<Desk>,
}

/// What all connections of a gateway share.
struct Desk {
    porter: Porter,
    hosts: Vec<Net>,
    gateways: Vec<Net>,
    antechamber: Antechamber,
    /// Connections that may still be carried.
    room: Arc<Semaphore>,
    trunks: Trunks,
    carrier: Carrier,
    ledger: Arc<Ledger>,
}

impl Gateway {
    /// Begins to listen.
    ///
    /// # Errors
    /// When an address cannot be had.
    pub async fn open(config: Config) -> io::Result<Self> {
        let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
        for door in &config.listen {
            let (listener, socket) = open_door(door, config.between != Between::Tcp).await?;
            listeners.push(listener);
            sockets.extend(socket);
        }
        let doors = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let ledger = Arc::new(Ledger::default());
        let (carrier, arrivals) = Carrier::start(&config.pass, sockets, Arc::clone(&ledger))?;
        let desk = Desk {
            porter: Porter::new(config.pass.job, *config.pass.secret),
            hosts: config.hosts,
            gateways: config.gateways,
            antechamber: Antechamber::default(),
            room: Arc::new(Semaphore::new(CARRIED_MAX)),
            trunks: Trunks::new(doors, config.between),
            carrier,
            ledger,
        };
        Ok(Self { listeners, arrivals, desk: Arc::new(desk) })
    }

    /// Where it is called.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|one| one.local_addr().ok()).collect()
    }

    /// What it has done so far, in a few lines, whenever that is called.
    pub fn account(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let desk = self.desk.clone();
        move || format!("{}{}", desk.ledger.account(), desk.carrier.account())
    }

    /// Serves until `end`; what it carries then breaks off with the runtime.
    pub async fn serve(self, end: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        for listener in self.listeners {
            tasks.spawn(listener::keep(listener, self.desk.clone()));
        }
        tasks.spawn(trunk::keep(self.arrivals, self.desk.clone()));
        end.await;
    }
}

/// Listens at the first address of a door that is free over TCP, and over UDP where that is wanted.
async fn open_door(door: &Door, udp: bool) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    let any = door.addresses().next().filter(|first| first.port() == 0);
    // A port that the system gives for TCP may be another's for UDP.
    let more = std::iter::repeat_n(any, ANY_MAX).flatten();
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    for address in door.addresses().chain(more) {
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
    let listener = listener.map_err(|error| named(&format!("TCP {address}"), &error))?;
    let address = listener.local_addr()?;
    let socket = udp.then(|| trunk::socket(address)).transpose();
    Ok((listener, socket.map_err(|error| named(&format!("UDP {address}"), &error))?))
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// How often the system is asked for a port that is free for both.
const ANY_MAX: usize = 16;
/// Connections carried at once.
const CARRIED_MAX: usize = 4096;
