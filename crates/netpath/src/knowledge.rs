//! Known costs of this process's connections: from earlier jobs, from the kernel when a connection opens, and from
//! the traffic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use cost::{Cost, CostStore, PathName, Traffic};

use crate::fairness::ShareSample;
use crate::loss_pattern::LossPattern;
use crate::measure::{TcpSample, learn_rate};
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
    /// Highest delivery rate since startup, in bytes per second. Losses and other flows lower the rate only for a
    /// while.
    shown: Option<u64>,
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
        let measured_ns = None;
        Some(KnownPath {
            cost,
            first: cost,
            round_trip,
            relay_info,
            looks: 0,
            shown: None,
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
            && known.shown.is_some()
        {
            self.costs.keep_path(&pair, &known.cost);
        }
    }

    /// Stores what was learned of a connection that ends, perhaps in startup: at least the latency, which short
    /// messages show too.
    pub fn keep(&self, socket: &TcpStream, known: &mut KnownPath, is_beginning: bool) {
        if known.shown.is_none() {
            known.learn(socket, is_beginning);
        }
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
    /// Records that the network took more bytes, and now and then asks the kernel for the rate. Returns true if the
    /// prediction changed. During startup the connection says little of the path.
    pub fn look(&mut self, socket: &TcpStream, is_beginning: bool) -> bool {
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOK_EVERY) {
            return false;
        }
        let before = self.cost;
        self.learn(socket, is_beginning);
        self.cost != before
    }

    /// True if it is worth storing: the network has shown its rate, or a new latency.
    fn is_worth_storing(&self) -> bool {
        let is_other = |before: u64| {
            self.measured_ns.is_some_and(|seen| seen.abs_diff(before) > before / LATENCY_SHARE)
        };
        self.shown.is_some() || self.remembered_ns.is_none_or(is_other)
    }

    /// Returns the cost to store. After heavy losses the path may carry more than it showed. A later connection that
    /// starts too low is slower than one that knows nothing.
    fn lasting(&self, is_lossy: bool) -> Cost {
        let mut cost = if is_lossy { self.first } else { self.cost };
        if let Some(latency_ns) = self.measured_ns.filter(|_| is_lossy) {
            (0..MEASURED_LOOKS).for_each(|_| cost.learn_latency(latency_ns));
        }
        let before = cost.shown_bytes_per_s();
        let says_more = |rate: &u64| !is_lossy || before.is_some_and(|before| *rate > before);
        if let Some(rate) = self.shown.filter(says_more) {
            (0..MEASURED_LOOKS).for_each(|_| learn_rate(&mut cost, rate));
        }
        cost
    }

    /// Reads the delivery rate from the kernel, if this side does not limit it.
    fn learn(&mut self, socket: &TcpStream, is_beginning: bool) {
        let Ok(sample) = TcpSample::of(socket) else { return };
        let sample = sample.behind(self.relay_info);
        sample.refine(&mut self.cost);
        self.measured_ns = sample.round_trip_ns.map(|round_trip_ns| round_trip_ns / 2);
        self.queued_ns = self.queued_ns.max(sample.queued_ns);
        if !is_beginning {
            self.shown = self.shown.max(sample.observed_rate());
        }
    }

    /// Records the bytes acknowledged and the packets lost.
    pub fn record(&mut self, sight: &ShareSample) {
        self.losses.look(sight.confirmed, sight.lost);
    }

    /// Records the measured rate of the path, in bytes per second.
    pub fn learn_found(&mut self, rate: u64) {
        (0..MEASURED_LOOKS).for_each(|_| learn_rate(&mut self.cost, rate));
        self.shown = self.shown.max(Some(rate));
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
            self.remembered_ns = Some(cost.latency_ns());
        }
        self.remembered_rate()
    }
}

/// Number of times the socket has room again per look at the kernel; each time is some hundred kilobytes later.
const LOOK_EVERY: u32 = 4;
/// Number of looks that correct a rate wrong by a factor of three to within a tenth.
const MEASURED_LOOKS: u32 = 16;
/// Share (1/n) by which a latency must differ to count as new: an eighth.
const LATENCY_SHARE: u64 = 8;

#[cfg(test)]
mod tests {
    use cost::NoStore;

    use super::*;

    #[test]
    fn a_latency_is_stored_if_it_differs_from_the_remembered_one() {
        let cost = Cost::linear(1, 2_000, 125_000_000);
        let known = |remembered_ns, shown| KnownPath {
            cost,
            first: cost,
            round_trip: None,
            relay_info: Duration::ZERO,
            looks: 0,
            shown,
            remembered_ns,
            measured_ns: Some(5_800_000),
            queued_ns: 0,
            losses: LossPattern::default(),
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
            let (round_trip, relay_info, measured_ns) = (None, Duration::ZERO, None);
            let (first, looks, shown, queued_ns) = (cost, 0, None, 0);
            let known = KnownPath {
                cost,
                first,
                round_trip,
                relay_info,
                looks,
                shown,
                remembered_ns,
                measured_ns,
                queued_ns,
                losses: LossPattern::default(),
            };
            known.remembered_rate()
        };
        assert_eq!(rate(guessed, Some(5_800_000)), None);
        assert_eq!(rate(seen, None), None, "this job's own");
        let remembered = rate(seen, Some(5_800_000)).unwrap();
        assert!(remembered < 125_000_000 / 2, "{remembered}");
    }

    #[test]
    fn the_highest_rate_is_remembered_and_none_where_much_was_lost() {
        let first = Cost::linear(5_800_000, 2_000, 125_000_000);
        let learned = |rate| {
            let mut cost = first;
            (0..MEASURED_LOOKS).for_each(|_| learn_rate(&mut cost, rate));
            cost
        };
        let lasting = |first, shown, is_lossy| {
            let known = KnownPath {
                cost: learned(4_000_000),
                first,
                round_trip: None,
                relay_info: Duration::ZERO,
                looks: 0,
                shown: Some(shown),
                remembered_ns: None,
                measured_ns: Some(2_900_000),
                queued_ns: 0,
                losses: LossPattern::default(),
            };
            known.lasting(is_lossy)
        };
        let is_about = |cost: Cost, rate: u64| {
            cost.shown_bytes_per_s().is_some_and(|shown| shown.abs_diff(rate) < rate / 8)
        };
        let quiet = lasting(first, 110_000_000, false);
        assert!(is_about(quiet, 110_000_000), "{:?}", quiet.shown_bytes_per_s());
        assert_eq!(lasting(first, 30_000_000, true).shown_bytes_per_s(), None);
        let before = learned(100_000_000);
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
