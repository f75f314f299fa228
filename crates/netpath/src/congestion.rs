//! The congestion control of each connection.
//!
//! On a path with a long round trip the usual congestion controls restart slow start after each silence. A message of
//! a megabyte then takes several round trips instead of one. BBR (Cardwell et al., "BBR: congestion-based congestion
//! control", 2016) sends at the rate that it has measured, also after silence. On short paths it gains nothing, and
//! the system's default stays.
//!
//! Every ten seconds BBR drains its queue for 200 ms (PROBE_RTT) to measure the minimum round trip. A message of some
//! megabytes that meets this pause takes twice as long. The kernel already keeps the minimum round trip of the last
//! minutes, and a restarted BBR takes it from there. The connection therefore restarts BBR before the pause is due,
//! and goes on at the known rate.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_congestion;

use crate::fairness::{Fairness, ShareSample};
use crate::measure;
use crate::measure::Pace;
use crate::probe::{LongSegment, Probe};
use crate::relay_info::RelayInfo;
use crate::startup_cap::{CapAction, StartupCap, beyond, may_renew};

/// The congestion control of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// BBR on paths with a long round trip, if the kernel has it; the system's default elsewhere.
    #[default]
    Auto,
    /// The named algorithm on every connection.
    Named(String),
}

impl Congestion {
    /// Checks that the kernel accepts the named algorithm, before any connection needs it.
    ///
    /// # Errors
    /// The kernel's error if the algorithm is unknown or not allowed.
    pub fn check(&self) -> io::Result<()> {
        match self {
            Self::Auto => Ok(()),
            Self::Named(name) => check(name),
        }
    }

    /// Chooses the congestion control of a connection that has just opened, and returns whether its path should be
    /// probed. If the kernel refuses, the connection keeps its default. BBR that has measured nothing would only
    /// delay short messages, so it is started when the probe begins. If the long segment of the path
    /// (`relay_info`) lies behind a gateway, the gateway measures it with its kernel's congestion control. If the
    /// gateways do not, this connection probes it.
    pub fn choose(&self, socket: &TcpStream, round_trip: Duration, relay_info: RelayInfo) -> Probe {
        let RelayInfo { round_trip: relay_info, is_measured } = relay_info;
        let will_remember = match self {
            Self::Auto => round_trip + relay_info > WAN_RTT_MIN && is_available(BBR),
            Self::Named(name) => set_tcp_congestion(socket, name).is_ok() && name == BBR,
        };
        // On a busy host a short path may look long; the longer segment is then behind the gateway.
        let is_own = round_trip > WAN_RTT_MIN && round_trip >= relay_info;
        let segment = if is_own { LongSegment::Own } else { LongSegment::Behind };
        let (round_trip, has_to) = (round_trip + relay_info, is_own || !is_measured);
        if round_trip > WAN_RTT_MIN && will_remember && has_to {
            Probe::Due { round_trip, segment }
        } else {
            Probe::Done
        }
    }
}

/// Checks that the kernel accepts the named algorithm.
///
/// # Errors
/// The kernel's error if the algorithm is unknown or not allowed.
pub fn check(name: &str) -> io::Result<()> {
    let domain = socket2::Domain::IPV4;
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM.cloexec(), None)?;
    Ok(set_tcp_congestion(&socket, name)?)
}

/// BBR on one connection, with its startup cap and fairness limit.
#[derive(Debug)]
pub struct Bbr {
    /// Time of the last start or restart.
    since: Duration,
    /// Upper limit on the pacing rate during BBR startup.
    cap: StartupCap,
    /// Pacing limit that leaves bandwidth to other flows.
    fairness: Fairness,
}

/// Rate in bytes per second that overflows no buffer on a path with this round trip. The remembered rate may stem
/// from a busy moment, and short messages show no rate: a cap below this would slow them for ever.
fn harmless(round_trip: Duration) -> u64 {
    let us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
    if round_trip > WAN_RTT_MIN { HARMLESS_BYTES * 1_000_000 / us } else { 0 }
}

impl Bbr {
    /// Starts BBR on a connection if the kernel allows it. Startup is capped at the `known` rate of the path, in
    /// bytes per second, plus headroom to see whether more comes through.
    pub fn begin(socket: &impl AsFd, known: Option<u64>, now: Duration) -> Option<Self> {
        let (cap, fairness) = (StartupCap::default(), Fairness::default());
        let mut bbr = Self { since: now, cap, fairness };
        if let Some(rate) = known {
            let verdict = bbr.cap.begin(rate);
            bbr.follow(socket, verdict);
        }
        restart_bbr(socket).ok()?;
        Some(bbr)
    }

    /// Limits the rate to a fair share of a path whose `remembered` rate is in bytes per second. Called repeatedly
    /// from the moment a long frame leaves.
    pub fn share(
        &mut self,
        socket: &impl AsFd,
        sight: &ShareSample,
        remembered: Option<u64>,
        now: Instant,
    ) {
        if self.fairness.look(now, sight, remembered) {
            // The same call has failed before if it fails here.
            let _ = self.pace(socket, self.cap.rate());
        }
    }

    /// True if the rate is limited to leave bandwidth to other flows.
    pub fn is_sharing(&self) -> bool {
        self.fairness.most().is_some()
    }

    /// Raises the startup cap as ACKs show that the rate comes through. Called repeatedly from the moment a long
    /// frame leaves. Returns true if further calls are needed.
    pub fn adapt_cap(&mut self, socket: &impl AsFd, now: Instant) -> bool {
        let Some(pace) = Pace::of(socket) else { return false };
        if let Some(verdict) = self.cap.judge_end(&pace) {
            self.follow(socket, verdict);
            return self.cap.rate().is_some();
        }
        let verdict = self.cap.look(now, &pace);
        self.follow(socket, verdict);
        self.cap.awaits(now)
    }

    fn follow(&mut self, socket: &impl AsFd, verdict: CapAction) {
        match verdict {
            CapAction::Stay => {}
            CapAction::Cap(rate) => drop(self.cap_at(socket, rate)),
            CapAction::Renew(rate) => self.renew(socket, Some(rate)),
            CapAction::Release => {
                if self.pace(socket, None).is_ok() {
                    self.cap.set(None);
                }
            }
        }
    }

    /// Caps the rate, but never below the harmless rate of the path. Returns true if the kernel accepted the cap.
    fn cap_at(&mut self, socket: &impl AsFd, rate: u64) -> bool {
        let harmless = measure::least_round_trip(socket).map_or(0, harmless);
        let held = rate.max(harmless);
        let is_held = self.pace(socket, Some(held)).is_ok();
        if is_held {
            self.cap.set(Some(held));
        }
        is_held
    }

    /// Sets the kernel's pacing limit (`SO_MAX_PACING_RATE`) to the lower of `rate` and the fairness limit.
    fn pace(&self, socket: &impl AsFd, rate: Option<u64>) -> io::Result<()> {
        let most = [rate, self.fairness.most()].into_iter().flatten().min();
        measure::set_pacing_cap(socket, most.unwrap_or(u64::MAX))
    }

    /// Doubles the sending rate every round trip, paced, until BBR [starts](Self::begin). Returns true if the kernel
    /// allows it. BBR itself grows more slowly while it has measured little.
    pub fn prepare(socket: &impl AsFd) -> bool {
        // Once BBR was set, the kernel keeps pacing under the algorithm that follows it.
        set_tcp_congestion(socket, BBR).is_ok() && set_tcp_congestion(socket, RENO).is_ok()
    }

    /// Restarts BBR before its PROBE_RTT pause. `rate` is the last known rate of the path in bytes per second. Must
    /// be called at least every second.
    pub fn look(&mut self, socket: &impl AsFd, rate: Option<u64>, now: Duration) {
        let is_due = now >= self.since + RESTART_EVERY;
        if !is_due && self.cap.rate().is_none() {
            return;
        }
        let Some(pace) = Pace::of(socket) else { return };
        if is_due && may_renew(&pace) {
            // A sender of short messages never leaves startup and stays capped: it has shown little.
            let seen = rate.map_or(pace.bytes_per_s, |rate| rate.max(pace.bytes_per_s));
            let has_seen = self.cap.rate().is_none() && !pace.is_beginning && seen > 0;
            if has_seen {
                self.cap.learn(seen);
            }
            self.renew(socket, has_seen.then_some(beyond(seen)));
            self.since = now;
        } else if let Some(verdict) = self.cap.judge_end(&pace) {
            self.follow(socket, verdict);
        }
    }

    /// Restarts BBR, which then takes up what the kernel knows of the connection. Until it has measured the path
    /// again, the rate is capped at `held`, or as before.
    fn renew(&mut self, socket: &impl AsFd, held: Option<u64>) {
        if held.is_some_and(|held| !self.cap_at(socket, held)) {
            return;
        }
        let _ = restart_bbr(socket);
    }
}

/// Starts BBR, or restarts it by switching to another algorithm and back.
fn restart_bbr(socket: &impl AsFd) -> io::Result<()> {
    set_tcp_congestion(socket, RENO)?;
    Ok(set_tcp_congestion(socket, BBR)?)
}

/// True if the kernel module is loaded; asking for one that is not would load it.
fn is_available(name: &str) -> bool {
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    names.is_ok_and(|names| names.split_whitespace().any(|one| one == name))
}

pub const BBR: &str = "bbr";
/// Reno, which every kernel has.
const RENO: &str = "reno";
/// Restart interval, shorter than BBR's ten seconds between pauses.
const RESTART_EVERY: Duration = Duration::from_secs(7);
/// Bytes per round trip that buffers on a long path can hold.
const HARMLESS_BYTES: u64 = 512 << 10;
/// Round trip above which a path is a WAN path and the amount in flight matters.
pub const WAN_RTT_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use rustix::net::sockopt::tcp_congestion;

    use super::*;

    const NO_BBR: &str = "this kernel offers no BBR";

    #[test]
    fn long_paths_get_bbr_when_probed_and_others_keep_the_default() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, far, named) = (connect(), connect(), connect());
        let usual = tcp_congestion(&near).unwrap();
        let probe =
            Congestion::Auto.choose(&near, Duration::from_micros(200), RelayInfo::default());
        assert!(matches!(probe, Probe::Done));
        let probe = Congestion::Auto.choose(&far, Duration::from_millis(12), RelayInfo::default());
        let is_due =
            |probe, segment| matches!(probe, Probe::Due { segment: one, .. } if one == segment);
        assert_eq!(is_due(probe, LongSegment::Own), is_available(BBR));
        let behind = RelayInfo { round_trip: Duration::from_millis(12), is_measured: false };
        let probe = Congestion::Auto.choose(&near, Duration::from_micros(200), behind);
        assert_eq!(is_due(probe, LongSegment::Behind), is_available(BBR));
        let probe = Congestion::Auto.choose(&near, Duration::from_millis(2), behind);
        assert_eq!(is_due(probe, LongSegment::Behind), is_available(BBR), "on a busy host");
        // Gateways measure the path between them, and nobody else needs to.
        let measured = RelayInfo { is_measured: true, ..behind };
        let probe = Congestion::Auto.choose(&near, Duration::from_micros(200), measured);
        assert!(matches!(probe, Probe::Done));
        let probe = Congestion::Auto.choose(&far, Duration::from_millis(13), measured);
        assert_eq!(is_due(probe, LongSegment::Own), is_available(BBR), "but this part is longer");
        assert_eq!([&near, &far].map(|one| tcp_congestion(one).unwrap()), [&usual[..]; 2]);
        let begun = Bbr::begin(&far, None, Duration::ZERO);
        let bbr = if begun.is_some() { BBR } else { &usual };
        assert_eq!(tcp_congestion(&far).unwrap(), bbr);
        // Every kernel has Reno.
        let probe = Congestion::Named("reno".into()).choose(
            &named,
            Duration::from_millis(12),
            RelayInfo::default(),
        );
        assert!(matches!(probe, Probe::Done), "it would forget");
        assert_eq!(tcp_congestion(&named).unwrap(), "reno");
    }

    #[test]
    fn a_connection_uses_reno_slow_start_while_it_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        if !Bbr::prepare(&one) {
            return testing::skip(NO_BBR);
        }
        assert_eq!(tcp_congestion(&one).unwrap(), RENO);
        assert!(Bbr::begin(&one, None, Duration::ZERO).is_some());
        assert_eq!(tcp_congestion(&one).unwrap(), BBR);
    }

    #[test]
    fn a_restarted_bbr_is_capped_until_it_has_measured_the_path() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Some(mut bbr) = Bbr::begin(&one, None, Duration::ZERO) else {
            return testing::skip(NO_BBR);
        };
        let known = Bbr::begin(&one, Some(1 << 20), Duration::ZERO).unwrap();
        let held = (known.cap.rate(), measure::pacing_cap(&one).unwrap());
        assert_eq!(held, (Some(beyond(1 << 20)), beyond(1 << 20)));
        measure::set_pacing_cap(&one, u64::MAX).unwrap();
        let pace = Pace::of(&one).expect("of the kernel's BBR");
        assert!(pace.is_beginning && !pace.is_pausing, "{pace:?}");
        // It has measured nothing yet that a cap could be set to.
        bbr.look(&one, Some(1 << 20), RESTART_EVERY);
        assert_eq!((bbr.cap.rate(), measure::pacing_cap(&one).unwrap()), (None, u64::MAX));
        assert_eq!(bbr.since, RESTART_EVERY, "it would pause");
        bbr.renew(&one, Some(beyond(1 << 20)));
        assert_eq!(tcp_congestion(&one).unwrap(), BBR);
        let held = beyond(1 << 20);
        assert_eq!((bbr.cap.rate(), measure::pacing_cap(&one).unwrap()), (Some(held), held));
        bbr.look(&one, None, 2 * RESTART_EVERY - Duration::from_secs(1));
        assert_eq!(measure::pacing_cap(&one).unwrap(), held, "it has not seen the path");
        // It has shown next to nothing meanwhile.
        bbr.look(&one, None, 2 * RESTART_EVERY);
        assert_eq!((bbr.cap.rate(), bbr.since), (Some(held), 2 * RESTART_EVERY), "it would pause");
        assert_eq!(measure::pacing_cap(&one).unwrap(), held);
    }

    #[test]
    fn the_fairness_limit_holds_beside_the_startup_cap() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Some(mut bbr) = Bbr::begin(&one, None, Duration::ZERO) else {
            return testing::skip(NO_BBR);
        };
        let (mut now, mut confirmed) = (Instant::now(), 0);
        let mut shares = |bbr: &mut Bbr, rate, waits| {
            for _ in 0..100 {
                now += Duration::from_millis(5);
                confirmed += rate / 200;
                let (least, waits) = (Duration::from_millis(10), Duration::from_millis(waits));
                let sight = ShareSample { least, waits, confirmed, lost: 0, is_busy: true };
                bbr.share(&one, &sight, None, now);
            }
            measure::pacing_cap(&one).unwrap()
        };
        assert_eq!(shares(&mut bbr, 100_000_000, 0), u64::MAX);
        let part = shares(&mut bbr, 70_000_000, 10);
        assert!(part < 70_000_000, "{part}");
        bbr.cap_at(&one, 100_000_000);
        assert_eq!(measure::pacing_cap(&one).unwrap(), part);
        // The other flows have ended.
        shares(&mut bbr, part, 0);
        assert_eq!(shares(&mut bbr, part, 0), 100_000_000);
    }

    #[test]
    fn short_messages_leave_at_once_whatever_rate_is_known() {
        let ms = Duration::from_millis;
        let time = |len: u64, round_trip| ms(len * 1000 / harmless(round_trip));
        assert!(time(16 << 10, ms(100)) <= ms(100) / 32);
        assert!(time(64 << 10, ms(300)) <= ms(300) / 8);
        assert_eq!(harmless(Duration::from_micros(20)), 0, "there the kernel learns fast");
    }

    #[test]
    fn a_train_that_comes_through_raises_the_cap() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let held = 10_000_000;
        let Some(mut bbr) = Bbr::begin(&one, Some(held), Duration::ZERO) else {
            return testing::skip(NO_BBR);
        };
        let reader = std::thread::spawn(move || other.read_to_end(&mut Vec::new()).unwrap());
        // 80 ms at that rate: a train that is long enough however late this thread looks.
        one.write_all(&[7; 1_000_000]).unwrap();
        while bbr.adapt_cap(&one, Instant::now()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let now = (bbr.cap.rate(), measure::pacing_cap(&one).unwrap());
        assert!(now.0.is_none_or(|now| now > held), "{now:?}");
        assert_eq!(now.0.unwrap_or(u64::MAX), now.1);
        drop(one);
        assert_eq!(reader.join().unwrap(), 1_000_000);
    }

    #[test]
    fn an_unknown_algorithm_is_reported_before_it_is_needed() {
        assert!(Congestion::Auto.check().is_ok());
        assert!(Congestion::Named("reno".into()).check().is_ok());
        assert!(Congestion::Named("of-no-kernel".into()).check().is_err());
    }
}
