//! Known costs of this process's connections: from earlier jobs, from the kernel when a connection opens, and from
//! the traffic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cost::{Cost, CostStore, PathName, RateMeter, Traffic};

use crate::fairness::ShareSample;
use crate::loss_pattern::LossPattern;
use crate::measure::{TcpSample, rate_sample};
use crate::networks::{QUIC_NAME, TCP_NAMES};
use crate::probe_lock::ProbeLock;

/// Predicts the cost of connections, and remembers it between jobs.
pub struct Knowledge {
    costs: Arc<dyn CostStore>,
    rail: &'static str,
    job: u64,
}

/// Known properties of one connection's path.
pub struct KnownPath {
    pub cost: Cost,
    /// Cost when the connection opened.
    first: Cost,
    /// Round trip of the connection itself, from its handshake, if the kernel knows.
    pub round_trip: Option<Duration>,
    /// Round trip of the path behind the connection's end.
    relay_info: Duration,
    /// Number of looks at the traffic.
    looks: u32,
    /// The rate that the path has shown, and the clock of its samples.
    meter: RateMeter,
    begin: Instant,
    /// Latency remembered from earlier jobs, if any, and that of this connection. The prediction moves from one to
    /// the other in small steps.
    remembered_ns: Option<u64>,
    measured_ns: Option<u64>,
    /// Longest queueing delay on the path.
    queued_ns: u64,
    losses: LossPattern,
}

impl Knowledge {
    /// Knowledge of the connections of one rail and job.
    pub fn new(costs: Arc<dyn CostStore>, rail: &'static str, job: u64) -> Self {
        Self { costs, rail, job }
    }

    /// Knowledge of paths between hosts, whichever processes they connect.
    pub fn of_hosts(costs: Arc<dyn CostStore>) -> Self {
        Self::new(costs, TCP_NAMES[0], 0)
    }

    /// Knowledge of paths over UDP.
    pub fn over_udp(costs: Arc<dyn CostStore>) -> Self {
        Self::new(costs, QUIC_NAME, 0)
    }

    /// Remembered cost of the path to another host.
    pub fn of_path(&self, to: SocketAddr) -> Option<Cost> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Connecting a UDP socket sends nothing; it tells the source address.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        self.costs.path(&self.ends(socket.local_addr().ok()?.ip(), to.ip()))
    }

    /// Cost of a connection that has just opened, with the path behind its end. Many routes lead through a gateway,
    /// so nothing is remembered of them.
    pub fn first(&self, socket: &TcpStream, relay_info: Duration) -> Option<KnownPath> {
        let sample = TcpSample::of(socket).ok()?;
        let round_trip = sample.round_trip_ns.map(Duration::from_nanos);
        let sample = sample.behind(relay_info);
        let remembered = self.link(socket).filter(|_| relay_info.is_zero());
        let remembered_ns = remembered.as_ref().map(Cost::latency_ns);
        let cost = match remembered {
            Some(mut cost) => {
                sample.refine(&mut cost);
                cost
            }
            None => sample.cost(&self.costs.host()),
        };
        let meter = RateMeter::new(conclusive_rate(&cost));
        let (begin, measured_ns) = (Instant::now(), None);
        Some(KnownPath {
            cost,
            first: cost,
            round_trip,
            relay_info,
            looks: 0,
            meter,
            begin,
            remembered_ns,
            measured_ns,
            queued_ns: 0,
            losses: LossPattern::default(),
        })
    }

    /// Takes the probe lock of a connection's path among this host's processes of the job; `None` if another has it.
    /// Without a cache the processes cannot share results, and each probes for itself.
    pub fn probe_lock(&self, socket: &TcpStream) -> Option<ProbeLock> {
        if !self.costs.is_kept() {
            return Some(ProbeLock::unlocked());
        }
        let (here, there) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
        ProbeLock::of(self.job, here.ip(), there.ip()).ok()
    }

    /// Remembered cost of a connection's path.
    fn link(&self, socket: &TcpStream) -> Option<Cost> {
        self.costs.path(&self.pair(socket)?)
    }

    /// Stores the result of a probe for this host's other processes.
    pub fn keep_found(&self, socket: &TcpStream, known: &KnownPath) {
        if let Some(pair) = self.pair(socket)
            && known.meter.has_measured()
        {
            self.costs.keep_path(&pair, &known.cost);
        }
    }

    /// Stores what was learned of a connection that ends, perhaps in startup: at least the latency, which short
    /// messages show too.
    pub fn keep(&self, socket: &TcpStream, known: &mut KnownPath) {
        known.learn(socket);
        let Ok(sample) = TcpSample::of(socket) else { return };
        let Some(pair) = self.pair(socket) else { return };
        if !known.relay_info.is_zero() {
            return;
        }
        if known.is_worth_storing() {
            self.costs.keep_path(&pair, &known.lasting(sample.is_lossy()));
        }
        self.costs.keep_traffic(&pair, &known.traffic(&sample));
    }

    /// Ends of a connection: this host's address and the peer's, without ports.
    fn pair(&self, socket: &TcpStream) -> Option<PathName<'static>> {
        Some(self.ends(socket.local_addr().ok()?.ip(), socket.peer_addr().ok()?.ip()))
    }

    fn ends(&self, here: IpAddr, there: IpAddr) -> PathName<'static> {
        PathName { rail: self.rail, here, there }
    }
}

impl KnownPath {
    /// Records that the network took more bytes, and now and then asks the kernel for round trip and queue.
    pub fn look(&mut self, socket: &TcpStream) {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOK_EVERY) {
            self.learn(socket);
        }
    }

    /// Measures the rate on what was acknowledged. Returns true if the prediction changed clearly. `has_more` tells
    /// that bytes wait outside the kernel.
    pub fn measure(&mut self, socket: &TcpStream, has_more: bool) -> bool {
        let Some(sample) = rate_sample(socket, self.begin, has_more) else { return false };
        self.meter.handle_sample(sample);
        self.take_rate()
    }

    /// Ends the measurement: this end limits the connection from now on.
    pub fn stop_measuring(&mut self) {
        self.meter.end_run();
    }

    /// True if more samples are wanted soon.
    pub fn is_measuring(&self) -> bool {
        self.meter.is_running()
    }

    /// Takes the measured rate into the prediction if it differs clearly, or is conclusive now.
    fn take_rate(&mut self) -> bool {
        let Some(rate) = self.meter.bytes_per_s() else { return false };
        let is_conclusive = self.meter.is_conclusive();
        let differs = |known: u64| rate.abs_diff(known) > known / TELLING_SHARE;
        let is_new = self.cost.shown_bytes_per_s().is_none_or(differs)
            || is_conclusive != self.cost.is_rate_conclusive();
        if is_new {
            self.cost.set_rate(rate, is_conclusive);
        }
        is_new
    }

    /// True if it is worth storing: the network has shown its rate, or a new latency.
    fn is_worth_storing(&self) -> bool {
        let is_other = |before: u64| {
            self.measured_ns.is_some_and(|seen| seen.abs_diff(before) > before / LATENCY_SHARE)
        };
        self.meter.has_measured() || self.remembered_ns.is_none_or(is_other)
    }

    /// Returns the cost to store. After heavy losses the path may carry more than it showed. A later connection that
    /// starts too low is slower than one that knows nothing.
    fn lasting(&self, is_lossy: bool) -> Cost {
        let says_more = self.cost.shown_bytes_per_s() > self.first.shown_bytes_per_s();
        if !is_lossy || says_more && self.first.shown_bytes_per_s().is_some() {
            return self.cost;
        }
        let mut cost = self.first;
        if let Some(latency_ns) = self.measured_ns {
            (0..MEASURED_LOOKS).for_each(|_| cost.learn_latency(latency_ns));
        }
        cost
    }

    /// Reads round trip and queue from the kernel.
    fn learn(&mut self, socket: &TcpStream) {
        let Ok(sample) = TcpSample::of(socket) else { return };
        let sample = sample.behind(self.relay_info);
        sample.refine(&mut self.cost);
        self.measured_ns = sample.round_trip_ns.map(|round_trip_ns| round_trip_ns / 2);
        self.queued_ns = self.queued_ns.max(sample.queued_ns);
    }

    /// Records the bytes acknowledged and the packets lost.
    pub fn record(&mut self, sight: &ShareSample) {
        self.losses.look(sight.confirmed, sight.lost);
    }

    /// Records the rate of the path that a probe has found with so many bytes, in bytes per second.
    pub fn learn_found(&mut self, rate: u64, bytes: u64) {
        self.meter.handle_found(rate, bytes);
        self.take_rate();
    }

    /// Traffic statistics of the connection. The bytes queued follow from the queueing delay once the rate is known.
    fn traffic(&self, sample: &TcpSample) -> Traffic {
        let bytes_per_s = self.cost.shown_bytes_per_s().unwrap_or(0);
        let queued = u128::from(bytes_per_s) * u128::from(self.queued_ns) / 1_000_000_000;
        let queue_bytes = u64::try_from(queued).unwrap_or(u64::MAX);
        let seen = Traffic::new(sample.sent_bytes, sample.lost_bytes, queue_bytes);
        let mut losses = self.losses;
        losses.look(sample.confirmed_bytes, sample.retransmits);
        seen.with_stretches(losses.counted())
    }

    /// Rate of the path from earlier jobs, in bytes per second, if they measured it. Short messages leave a latency,
    /// beside which the rate is a guess.
    pub fn remembered_rate(&self) -> Option<u64> {
        self.remembered_ns.and(self.cost.shown_bytes_per_s())
    }

    /// Remembered rate, read again because another process may have stored it meanwhile.
    pub fn recall(&mut self, socket: &TcpStream, knowledge: &Knowledge) -> Option<u64> {
        if self.remembered_rate().is_none()
            && let Some(cost) = knowledge.link(socket).filter(|_| self.relay_info.is_zero())
        {
            (self.cost, self.first) = (cost, cost);
            self.meter = RateMeter::new(conclusive_rate(&cost));
            self.remembered_ns = Some(cost.latency_ns());
        }
        self.remembered_rate()
    }
}

/// Rate of a cost if it is conclusive, in bytes per second.
fn conclusive_rate(cost: &Cost) -> Option<u64> {
    cost.shown_bytes_per_s().filter(|_| cost.is_rate_conclusive())
}

/// Number of times the socket has room again per look at the kernel; each time is some hundred kilobytes later.
const LOOK_EVERY: u32 = 4;
/// Number of looks that correct a latency wrong by a factor of three to within a tenth.
const MEASURED_LOOKS: u32 = 16;
/// Share (1/n) by which a rate must differ to be reported.
const TELLING_SHARE: u64 = 16;
/// Share (1/n) by which a latency must differ to count as new: an eighth.
const LATENCY_SHARE: u64 = 8;

#[cfg(test)]
mod tests {
    use cost::NoStore;

    use super::*;

    /// A path of which the cost is known and nothing was measured.
    fn known_path(cost: Cost, first: Cost) -> KnownPath {
        KnownPath {
            cost,
            first,
            round_trip: None,
            relay_info: Duration::ZERO,
            looks: 0,
            meter: RateMeter::new(conclusive_rate(&first)),
            begin: Instant::now(),
            remembered_ns: None,
            measured_ns: None,
            queued_ns: 0,
            losses: LossPattern::default(),
        }
    }

    #[test]
    fn a_latency_is_stored_if_it_differs_from_the_remembered_one() {
        let cost = Cost::linear(1, 2_000, 125_000_000);
        let known = |remembered_ns, shown: Option<u64>| {
            let mut known =
                KnownPath { remembered_ns, measured_ns: Some(5_800_000), ..known_path(cost, cost) };
            if let Some(rate) = shown {
                known.learn_found(rate, 1 << 20);
            }
            known
        };
        assert!(known(None, None).is_worth_storing());
        assert!(!known(Some(5_800_000), None).is_worth_storing());
        assert!(!known(Some(5_500_000), None).is_worth_storing(), "it varies by as much");
        assert!(known(Some(50_000_000), None).is_worth_storing(), "the way has become shorter");
        assert!(known(Some(100_000), None).is_worth_storing(), "and longer");
        assert!(known(Some(5_800_000), Some(125_000_000)).is_worth_storing(), "its rate was seen");
        let unseen = KnownPath { measured_ns: None, ..known(Some(100_000), None) };
        assert!(!unseen.is_worth_storing(), "the kernel has not said");
    }

    #[test]
    fn a_rate_is_remembered_if_it_was_measured() {
        let guessed = Cost::linear(5_800_000, 2_000, 125_000_000);
        let mut seen = guessed;
        for _ in 0..8 {
            seen.learn(1 << 20, (1 << 20) * 80);
        }
        let rate = |cost, remembered_ns| {
            KnownPath { remembered_ns, ..known_path(cost, cost) }.remembered_rate()
        };
        assert_eq!(rate(guessed, Some(5_800_000)), None);
        assert_eq!(rate(seen, None), None, "this job's own");
        let remembered = rate(seen, Some(5_800_000)).unwrap();
        assert!(remembered < 125_000_000 / 2, "{remembered}");
    }

    #[test]
    fn the_measured_rate_is_remembered_unless_much_was_lost() {
        let first = Cost::linear(5_800_000, 2_000, 125_000_000);
        let lasting = |first: Cost, shown, is_lossy| {
            let mut known = KnownPath { measured_ns: Some(2_900_000), ..known_path(first, first) };
            known.learn_found(shown, 8 << 20);
            known.lasting(is_lossy)
        };
        let is_about = |cost: Cost, rate: u64| {
            cost.shown_bytes_per_s().is_some_and(|shown| shown.abs_diff(rate) < rate / 8)
        };
        let quiet = lasting(first, 110_000_000, false);
        assert!(is_about(quiet, 110_000_000), "{:?}", quiet.shown_bytes_per_s());
        assert!(is_about(lasting(quiet, 600_000, false), 600_000), "however much lower");
        assert_eq!(lasting(first, 30_000_000, true).shown_bytes_per_s(), None);
        let before = lasting(first, 100_000_000, false);
        assert!(is_about(lasting(before, 30_000_000, true), 100_000_000), "as it was");
        let more = lasting(before, 200_000_000, true);
        assert!(is_about(more, 200_000_000), "{:?}", more.shown_bytes_per_s());
        let latency_ns = lasting(first, 30_000_000, true).latency_ns();
        assert!(latency_ns.abs_diff(2_900_000) < 300_000, "{latency_ns}");
    }

    #[test]
    fn queued_bytes_are_known_once_the_rate_is() {
        let (listener, sample) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), |socket| {
            let sample = TcpSample::of(socket).unwrap();
            let confirmed_bytes = 10 << 20;
            let (sent_bytes, lost_bytes, retransmits) = (confirmed_bytes, 10 << 10, 8);
            TcpSample { sent_bytes, lost_bytes, confirmed_bytes, retransmits, ..sample }
        });
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let knowledge = Knowledge::of_hosts(Arc::new(NoStore));
        let mut known = knowledge.first(&socket, Duration::ZERO).unwrap();
        (known.cost, known.queued_ns) = (Cost::linear(5_800_000, 0, 125_000_000), 8_000_000);
        let lost = |queue| Traffic::new(10 << 20, 10 << 10, queue).with_stretches((40, 8));
        assert_eq!(known.traffic(&sample(&socket)), lost(0));
        known.cost.learn(1 << 20, (1 << 20) * 8);
        assert_eq!(known.traffic(&sample(&socket)), lost(1_000_000));
    }
}
