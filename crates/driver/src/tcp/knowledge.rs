//! What this process knows of its connections' costs: from jobs before, from the kernel when a connection
//! opens, and from the traffic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use topo::sample::host_name;
use topo::{Cache, Pair};
use wire::{Cost, HostCost, Traffic};

use super::measure::{TcpSample, learn_rate};
use super::networks::NAMES;
use super::probe_lock::Claim;
use crate::fairness::Sight;
use crate::loss_pattern::Spread;

/// Predicts what connections cost, and remembers it between jobs.
pub struct Knowledge {
    host: HostCost,
    cache: Option<Cache>,
    rail: &'static str,
    job: u64,
}

/// What is known of one connection.
pub struct Known {
    pub cost: Cost,
    /// What it was when the connection opened.
    first: Cost,
    /// Of the connection itself, from its handshake, if the kernel knows.
    pub round_trip: Option<Duration>,
    /// The round trip behind the connection's end.
    detour: Duration,
    /// Looks at the traffic.
    looks: u32,
    /// The highest rate that the network has shown, in bytes per second, since the connection's beginning was over: losses,
    /// and whoever shares the way, make it slower for a while.
    shown: Option<u64>,
    /// The latency that jobs before have left, if they have left something, and that of this connection: the
    /// prediction goes from one to the other in small steps.
    remembered_ns: Option<u64>,
    seen_ns: Option<u64>,
    /// For how long packets have waited on the way, at the longest.
    queued_ns: u64,
    spread: Spread,
}

impl Knowledge {
    pub(super) fn new(rail: &'static str, job: u64) -> Self {
        let cache = Cache::of_environment();
        Self { host: topo::cache::host_cost(cache.as_ref()), cache, rail, job }
    }

    /// What a process knows whose memory is in such a place, or in none.
    #[cfg(test)]
    pub(super) fn at(cache: Option<Cache>, job: u64) -> Self {
        Self { host: HostCost::default(), cache, rail: NAMES[0], job }
    }

    /// Of ways between hosts, whichever processes connect them.
    pub fn of_hosts() -> Self {
        Self::new(NAMES[0], 0)
    }

    /// Of ways between hosts over UDP.
    pub fn over_udp() -> Self {
        Self::new(crate::quic::NAME, 0)
    }

    /// What is remembered of the way to another host.
    pub fn of_way(&self, to: SocketAddr) -> Option<Cost> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Nothing is sent by this; the system says from which address it would be.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        let pair = self.ends(socket.local_addr().ok()?.ip(), to.ip());
        Some(self.cache.as_ref()?.link(&pair).ok()??.value)
    }

    /// What a connection costs that has just opened, and behind whose end the way is so much longer. Through
    /// a gateway many ways lead, so nothing is remembered of them.
    pub fn first(&self, socket: &TcpStream, detour: Duration) -> Option<Known> {
        let sample = TcpSample::of(socket).ok()?;
        let round_trip = sample.round_trip_ns.map(Duration::from_nanos);
        let sample = sample.behind(detour);
        let remembered = self.link(socket).filter(|_| detour.is_zero());
        let remembered_ns = remembered.as_ref().map(Cost::latency_ns);
        let cost = match remembered {
            Some(mut cost) => {
                sample.refine(&mut cost);
                cost
            }
            None => sample.cost(&self.host),
        };
        let seen_ns = None;
        Some(Known {
            cost,
            first: cost,
            round_trip,
            detour,
            looks: 0,
            shown: None,
            remembered_ns,
            seen_ns,
            queued_ns: 0,
            spread: Spread::default(),
        })
    }

    /// Claims the way of a connection among this host's processes of the job; none where another has it. What they have no
    /// place to leave word at is each one's own.
    pub(super) fn claim(&self, socket: &TcpStream) -> Option<Claim> {
        if self.cache.is_none() {
            return Some(Claim::nobody());
        }
        let (here, there) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
        Claim::of(self.job, here.ip(), there.ip()).ok()
    }

    /// What is remembered of a connection.
    fn link(&self, socket: &TcpStream) -> Option<Cost> {
        Some(self.cache.as_ref()?.link(&self.pair(socket)?).ok()??.value)
    }

    /// Keeps what was found of a way that is measured, for this host's other processes.
    pub(super) fn keep_found(&self, socket: &TcpStream, known: &Known) {
        if let (Some(cache), Some(pair)) = (&self.cache, self.pair(socket))
            && known.shown.is_some()
        {
            let _ = cache.keep_link(&pair, &known.cost);
        }
    }

    /// Keeps what was learned of a connection that ends, maybe in its beginning: the latency at least, which short messages
    /// have shown too.
    pub fn keep(&self, socket: &TcpStream, known: &mut Known, is_beginning: bool) {
        if known.shown.is_none() {
            known.learn(socket, is_beginning);
        }
        let Ok(sample) = TcpSample::of(socket) else { return };
        let (Some(cache), Some(pair)) = (&self.cache, self.pair(socket)) else { return };
        if !known.detour.is_zero() {
            return;
        }
        // What cannot be remembered is measured again by the next job.
        if known.has_events() {
            let _ = cache.keep_link(&pair, &known.lasting(sample.is_lossy()));
        }
        let _ = cache.keep_traffic(&pair, &known.traffic(&sample));
    }

    /// The ends of a connection: this host's address and the peer's, without ports.
    fn pair(&self, socket: &TcpStream) -> Option<Pair> {
        Some(self.ends(socket.local_addr().ok()?.ip(), socket.peer_addr().ok()?.ip()))
    }

    fn ends(&self, here: IpAddr, there: IpAddr) -> Pair {
        Pair::new(self.rail, &format!("{}/{here}", host_name()), &there.to_string())
    }
}

impl Known {
    /// The network has taken more: now and then the kernel is asked at which rate. True when what is
    /// predicted has changed. In its beginning the connection says little of the way.
    pub fn look(&mut self, socket: &TcpStream, is_beginning: bool) -> bool {
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOK_EVERY) {
            return false;
        }
        let before = self.cost;
        self.learn(socket, is_beginning);
        self.cost != before
    }

    /// Whether it is worth being remembered: the network has shown its rate, or another latency than it had.
    fn has_events(&self) -> bool {
        let is_other = |before: u64| {
            self.seen_ns.is_some_and(|seen| seen.abs_diff(before) > before / LATENCY_SHARE)
        };
        self.shown.is_some() || self.remembered_ns.is_none_or(is_other)
    }

    /// What is to be remembered. Where much was lost the way may carry more than it has shown, and who begins with too little
    /// is slower than who knows nothing.
    fn lasting(&self, is_lossy: bool) -> Cost {
        let mut cost = if is_lossy { self.first } else { self.cost };
        if let Some(latency_ns) = self.seen_ns.filter(|_| is_lossy) {
            (0..MEASURED_LOOKS).for_each(|_| cost.learn_latency(latency_ns));
        }
        let before = cost.shown_bytes_per_s();
        let says_more = |rate: &u64| !is_lossy || before.is_some_and(|before| *rate > before);
        if let Some(rate) = self.shown.filter(says_more) {
            (0..MEASURED_LOOKS).for_each(|_| learn_rate(&mut cost, rate));
        }
        cost
    }

    /// Asks the kernel at which rate the peer confirms, if this side is not what limits it.
    fn learn(&mut self, socket: &TcpStream, is_beginning: bool) {
        let Ok(sample) = TcpSample::of(socket) else { return };
        let sample = sample.behind(self.detour);
        sample.refine(&mut self.cost);
        self.seen_ns = sample.round_trip_ns.map(|round_trip_ns| round_trip_ns / 2);
        self.queued_ns = self.queued_ns.max(sample.queued_ns);
        if !is_beginning {
            self.shown = self.shown.max(sample.observed_rate());
        }
    }

    /// Sees what has come through, and what is lost.
    pub(super) fn see(&mut self, sight: &Sight) {
        self.spread.look(sight.confirmed, sight.lost);
    }

    /// The way was measured: it carries so much, in bytes per second.
    pub fn learn_found(&mut self, rate: u64) {
        (0..MEASURED_LOOKS).for_each(|_| learn_rate(&mut self.cost, rate));
        self.shown = self.shown.max(Some(rate));
    }

    /// What the connection has shown of the way besides. What has waited is known once the way's rate is.
    fn traffic(&self, sample: &TcpSample) -> Traffic {
        let bytes_per_s = self.cost.shown_bytes_per_s().unwrap_or(0);
        let queued = u128::from(bytes_per_s) * u128::from(self.queued_ns) / 1_000_000_000;
        let queue_bytes = u64::try_from(queued).unwrap_or(u64::MAX);
        let seen = Traffic::new(sample.sent_bytes, sample.lost_bytes, queue_bytes);
        let mut spread = self.spread;
        spread.look(sample.confirmed_bytes, sample.repeats);
        seen.with_stretches(spread.counted())
    }

    /// What jobs before have left as the way's rate, in bytes per second, if they have seen it: short messages leave a
    /// latency, beside which the rate is a guess.
    pub fn remembered_rate(&self) -> Option<u64> {
        self.remembered_ns.and(self.cost.shown_bytes_per_s())
    }

    /// The same, where another process may have left it meanwhile.
    pub(super) fn recall(&mut self, socket: &TcpStream, knowledge: &Knowledge) -> Option<u64> {
        if self.remembered_rate().is_none()
            && let Some(cost) = knowledge.link(socket).filter(|_| self.detour.is_zero())
        {
            (self.cost, self.first) = (cost, cost);
            self.remembered_ns = Some(cost.latency_ns());
        }
        self.remembered_rate()
    }
}

/// How often the socket has room again before the kernel is asked how fast it was: each time is some
/// hundred kilobytes later.
const LOOK_EVERY: u32 = 4;
/// So many looks correct a rate of a third or of three times as much to a tenth.
const MEASURED_LOOKS: u32 = 16;
/// A latency is another one when it differs by more than this part of what it was: an eighth.
const LATENCY_SHARE: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_short_messages_show_is_kept_when_it_is_other_than_what_was_remembered() {
        let cost = Cost::linear(1, 2_000, 125_000_000);
        let known = |remembered_ns, shown| Known {
            cost,
            first: cost,
            round_trip: None,
            detour: Duration::ZERO,
            looks: 0,
            shown,
            remembered_ns,
            seen_ns: Some(5_800_000),
            queued_ns: 0,
            spread: Spread::default(),
        };
        assert!(known(None, None).has_events());
        assert!(!known(Some(5_800_000), None).has_events());
        assert!(!known(Some(5_500_000), None).has_events(), "it varies by as much");
        assert!(known(Some(50_000_000), None).has_events(), "the way has become shorter");
        assert!(known(Some(100_000), None).has_events(), "and longer");
        assert!(known(Some(5_800_000), Some(125_000_000)).has_events(), "its rate was seen");
        let unseen = Known { seen_ns: None, ..known(Some(100_000), None) };
        assert!(!unseen.has_events(), "the kernel has not said");
    }

    #[test]
    fn a_rate_is_remembered_if_somebody_has_seen_it() {
        let guessed = Cost::linear(5_800_000, 2_000, 125_000_000);
        let mut seen = guessed;
        for _ in 0..8 {
            seen.learn(1 << 20, (1 << 20) * 80);
        }
        let rate = |cost, remembered_ns| {
            let (round_trip, detour, seen_ns) = (None, Duration::ZERO, None);
            let (first, looks, shown, queued_ns) = (cost, 0, None, 0);
            let known = Known {
                cost,
                first,
                round_trip,
                detour,
                looks,
                shown,
                remembered_ns,
                seen_ns,
                queued_ns,
                spread: Spread::default(),
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
            let known = Known {
                cost: learned(4_000_000),
                first,
                round_trip: None,
                detour: Duration::ZERO,
                looks: 0,
                shown: Some(shown),
                remembered_ns: None,
                seen_ns: Some(2_900_000),
                queued_ns: 0,
                spread: Spread::default(),
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
    fn what_has_waited_is_known_once_the_rate_is() {
        let (listener, sample) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), |socket| {
            let sample = TcpSample::of(socket).unwrap();
            let confirmed_bytes = 10 << 20;
            let (sent_bytes, lost_bytes, repeats) = (confirmed_bytes, 10 << 10, 8);
            TcpSample { sent_bytes, lost_bytes, confirmed_bytes, repeats, ..sample }
        });
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let knowledge = Knowledge::at(None, 0);
        let mut known = knowledge.first(&socket, Duration::ZERO).unwrap();
        (known.cost, known.queued_ns) = (Cost::linear(5_800_000, 0, 125_000_000), 8_000_000);
        let lost = |queue| Traffic::new(10 << 20, 10 << 10, queue).with_stretches((40, 8));
        assert_eq!(known.traffic(&sample(&socket)), lost(0));
        known.cost.learn(1 << 20, (1 << 20) * 8);
        assert_eq!(known.traffic(&sample(&socket)), lost(1_000_000));
    }
}
