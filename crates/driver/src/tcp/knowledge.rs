//! What this process knows of its connections' costs: from jobs before, from the kernel when a connection
//! opens, and from the traffic.

use std::net::TcpStream;
use std::time::Duration;

use topo::sample::host_name;
use topo::{Cache, Pair};
use wire::{Cost, HostCost};

use super::measure::TcpSample;

/// Predicts what connections cost, and remembers it between jobs.
pub struct Knowledge {
    host: HostCost,
    cache: Option<Cache>,
    rail: &'static str,
}

/// What is known of one connection.
pub struct Known {
    pub cost: Cost,
    /// Of the connection itself, from its handshake, if the kernel knows.
    pub round_trip: Option<Duration>,
    /// The round trip behind the connection's end.
    detour: Duration,
    /// Looks at the traffic.
    looks: u32,
    /// The network has shown its rate.
    has_learned: bool,
    /// Jobs before have left something.
    was_remembered: bool,
}

impl Knowledge {
    pub fn new(rail: &'static str) -> Self {
        let cache = Cache::of_environment();
        Self { host: topo::cache::host_cost(cache.as_ref()), cache, rail }
    }

    /// What a connection costs that has just opened, and behind whose end the way is so much longer. Through
    /// a gateway many ways lead, so nothing is remembered of them.
    pub fn first(&self, socket: &TcpStream, detour: Duration) -> Option<Known> {
        let sample = TcpSample::of(socket).ok()?;
        let round_trip = sample.round_trip_ns.map(Duration::from_nanos);
        let sample = sample.behind(detour);
        let remembered = || self.cache.as_ref()?.link(&self.pair(socket)?).ok()?;
        let entry = remembered().filter(|_| detour.is_zero());
        let was_remembered = entry.is_some();
        let cost = match entry {
            Some(entry) => {
                let mut cost = entry.value;
                sample.refine(&mut cost);
                cost
            }
            None => sample.cost(&self.host),
        };
        Some(Known { cost, round_trip, detour, looks: 0, has_learned: false, was_remembered })
    }

    /// Keeps what was learned of a connection that ends: of one that is new to this host, the latency at least,
    /// which short messages have shown too.
    pub fn keep(&self, socket: &TcpStream, known: &mut Known) {
        if !known.was_remembered {
            known.learn(socket);
        }
        if (known.has_learned || !known.was_remembered)
            && known.detour.is_zero()
            && let (Some(cache), Some(pair)) = (&self.cache, self.pair(socket))
        {
            // What cannot be remembered is measured again by the next job.
            let _ = cache.keep_link(&pair, &known.cost);
        }
    }

    /// The ends of a connection: this host's address and the peer's, without ports.
    fn pair(&self, socket: &TcpStream) -> Option<Pair> {
        let here = format!("{}/{}", host_name(), socket.local_addr().ok()?.ip());
        let there = socket.peer_addr().ok()?.ip().to_string();
        Some(Pair::new(self.rail, &here, &there))
    }
}

impl Known {
    /// The network has taken more: now and then the kernel is asked at which rate. True when what is
    /// predicted has changed.
    pub fn look(&mut self, socket: &TcpStream) -> bool {
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOK_EVERY) {
            return false;
        }
        let before = self.cost;
        self.learn(socket);
        self.cost != before
    }

    /// Asks the kernel at which rate the peer confirms; none where this side was what limited it.
    pub fn learn(&mut self, socket: &TcpStream) -> Option<u64> {
        let sample = TcpSample::of(socket).ok()?.behind(self.detour);
        sample.refine(&mut self.cost);
        self.has_learned |= !sample.is_limited_by_sender;
        sample.delivery_bytes_per_s.filter(|_| !sample.is_limited_by_sender)
    }
}

/// How often the socket has room again before the kernel is asked how fast it was: each time is some
/// hundred kilobytes later.
const LOOK_EVERY: u32 = 4;
