//! Who decides how fast a connection sends.
//!
//! On a long way the usual congestion controls begin anew after each silence, and a message of a megabyte
//! takes several round trips where the way would carry it in one. BBR (Cardwell et al., "BBR:
//! congestion-based congestion control", 2016) sends at the rate that it has measured, also after silence.
//! Near by it has nothing to win, and there the system's choice stands.
//!
//! Every ten seconds BBR pauses for a fifth of one to see the round trip without a queue of its own, and where
//! that falls into a message of some megabytes it takes twice as long. The kernel knows the least round trip of
//! the last minutes anyway: BBR that begins anew takes it from there. So it is begun anew before it would pause,
//! and goes on at the rate that it knows.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_congestion;

use super::measure::{self, Pace};
use super::probe::{Probe, Way};
use super::relay::Detour;
use super::startup_cap::{Hold, Verdict, beyond, may_renew};
use crate::fairness::{Fairness, Sight};

/// The congestion control of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// Over long ways one that does not forget, where the system has it; near by the system's.
    #[default]
    Auto,
    /// The one of this name, everywhere.
    Named(String),
}

impl Congestion {
    /// Tries a name out, before any connection needs it.
    ///
    /// # Errors
    /// The system's, when it does not know or does not allow it.
    pub(super) fn check(&self) -> io::Result<()> {
        match self {
            Self::Auto => Ok(()),
            Self::Named(name) => check(name),
        }
    }

    /// Chooses for a connection that has just opened, and says whether it should learn what its way carries.
    /// What the system refuses leaves it as it is. What remembers knows nothing yet, and would only hold up
    /// short messages: it is [taken up](Steady::begin) when the learning begins. Where the long part of the way, of
    /// such a `detour`, is behind a gateway, that is who learns, and has what systems here have; unless it measures the
    /// way itself.
    pub(super) fn choose(&self, socket: &TcpStream, round_trip: Duration, detour: Detour) -> Probe {
        let Detour { round_trip: detour, is_measured } = detour;
        let will_remember = match self {
            Self::Auto => round_trip + detour > FAR && is_available(STEADY),
            Self::Named(name) => set_tcp_congestion(socket, name).is_ok() && name == STEADY,
        };
        // On a busy host a short way may look long; the longer part of it is behind the gateway then.
        let is_own = round_trip > FAR && round_trip >= detour;
        let way = if is_own { Way::Own } else { Way::Behind };
        let (round_trip, has_to) = (round_trip + detour, is_own || !is_measured);
        if round_trip > FAR && will_remember && has_to {
            Probe::Due { round_trip, way }
        } else {
            Probe::Done
        }
    }
}

/// Tries a name out.
///
/// # Errors
/// The system's, when it does not know or does not allow it.
pub(super) fn check(name: &str) -> io::Result<()> {
    let domain = socket2::Domain::IPV4;
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM.cloexec(), None)?;
    Ok(set_tcp_congestion(&socket, name)?)
}

/// The congestion control that remembers, on one connection.
#[derive(Debug)]
pub(super) struct Steady {
    /// When it was begun, or begun anew.
    since: Duration,
    /// To what it is held while it begins.
    hold: Hold,
    /// What it leaves to others.
    fairness: Fairness,
}

/// At which rate, in bytes per second, a connection of such a round trip overflows nothing: what is known of its way may
/// be of a busy moment, and short messages, which show nothing, would be slow for ever.
fn harmless(round_trip: Duration) -> u64 {
    let us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
    if round_trip > FAR { HARMLESS * 1_000_000 / us } else { 0 }
}

impl Steady {
    /// Gives a connection the congestion control that remembers what it has measured, if the system allows it. Its
    /// beginning is held to what the way is known to carry, in bytes per second, and room to see that more comes through.
    pub fn begin(socket: &impl AsFd, known: Option<u64>, now: Duration) -> Option<Self> {
        let (hold, fairness) = (Hold::default(), Fairness::default());
        let mut steady = Self { since: now, hold, fairness };
        if let Some(rate) = known {
            let verdict = steady.hold.begin(rate);
            steady.follow(socket, verdict);
        }
        begin_anew(socket).ok()?;
        Some(steady)
    }

    /// Leaves to others what is theirs, of a way that is remembered to carry so much, in bytes per second. To be called now
    /// and then from when a long frame leaves.
    pub fn share(
        &mut self,
        socket: &impl AsFd,
        sight: &Sight,
        remembered: Option<u64>,
        now: Instant,
    ) {
        if self.fairness.look(now, sight, remembered) {
            // What fails here has failed before.
            let _ = self.pace(socket, self.hold.rate());
        }
    }

    /// Lets through what comes through. To be called now and then from when a long frame leaves; whether to go on.
    pub fn ease(&mut self, socket: &impl AsFd, now: Instant) -> bool {
        let Some(pace) = Pace::of(socket) else { return false };
        if let Some(verdict) = self.hold.judge_end(&pace) {
            self.follow(socket, verdict);
            return self.hold.rate().is_some();
        }
        let verdict = self.hold.look(now, &pace);
        self.follow(socket, verdict);
        self.hold.awaits(now)
    }

    fn follow(&mut self, socket: &impl AsFd, verdict: Verdict) {
        match verdict {
            Verdict::Stay => {}
            Verdict::Hold(rate) => drop(self.hold_to(socket, rate)),
            Verdict::Renew(rate) => self.renew(socket, Some(rate)),
            Verdict::Release => {
                if self.pace(socket, None).is_ok() {
                    self.hold.set(None);
                }
            }
        }
    }

    /// Holds it to a rate, or to what overflows nothing if that is more; whether the system has.
    fn hold_to(&mut self, socket: &impl AsFd, rate: u64) -> bool {
        let harmless = measure::least_round_trip(socket).map_or(0, harmless);
        let held = rate.max(harmless);
        let is_held = self.pace(socket, Some(held)).is_ok();
        if is_held {
            self.hold.set(Some(held));
        }
        is_held
    }

    /// Has the kernel send no faster than at a rate, if there is one, and than others leave room for.
    fn pace(&self, socket: &impl AsFd, rate: Option<u64>) -> io::Result<()> {
        let most = [rate, self.fairness.most()].into_iter().flatten().min();
        measure::hold(socket, most.unwrap_or(u64::MAX))
    }

    /// Lets a connection send twice as much every round trip, paced, to have it remember that [afterwards](Self::begin);
    /// whether the system allows it. What remembers grows slower as long as it has measured little.
    pub fn prepare(socket: &impl AsFd) -> bool {
        // Once it was asked for, the kernel paces whatever comes after it too.
        set_tcp_congestion(socket, STEADY).is_ok() && set_tcp_congestion(socket, OTHER).is_ok()
    }

    /// Begins anew what would pause soon. The connection was last seen to carry so many bytes per second, if it was; to
    /// be called every second at least.
    pub fn look(&mut self, socket: &impl AsFd, rate: Option<u64>, now: Duration) {
        let is_due = now >= self.since + RENEWED_EVERY;
        if !is_due && self.hold.rate().is_none() {
            return;
        }
        let Some(pace) = Pace::of(socket) else { return };
        if is_due && may_renew(&pace) {
            // Who sends little at a time never comes to the end of its beginning, and stays held: it has shown little.
            let seen = rate.map_or(pace.bytes_per_s, |rate| rate.max(pace.bytes_per_s));
            let has_seen = self.hold.rate().is_none() && !pace.is_beginning && seen > 0;
            if has_seen {
                self.hold.learn(seen);
            }
            self.renew(socket, has_seen.then_some(beyond(seen)));
            self.since = now;
        } else if let Some(verdict) = self.hold.judge_end(&pace) {
            self.follow(socket, verdict);
        }
    }

    /// Makes it forget, and take up what the kernel knows of the connection. Until it has seen the way anew, it is
    /// held to a rate, or as it was.
    fn renew(&mut self, socket: &impl AsFd, held: Option<u64>) {
        if held.is_some_and(|held| !self.hold_to(socket, held)) {
            return;
        }
        let _ = begin_anew(socket);
    }
}

/// Has the one that remembers begin, also where it is at work already.
fn begin_anew(socket: &impl AsFd) -> io::Result<()> {
    set_tcp_congestion(socket, OTHER)?;
    Ok(set_tcp_congestion(socket, STEADY)?)
}

/// Whether the kernel has it loaded: to ask for what it has not would load it.
fn is_available(name: &str) -> bool {
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    names.is_ok_and(|names| names.split_whitespace().any(|one| one == name))
}

pub(super) const STEADY: &str = "bbr";
/// Every system has it.
const OTHER: &str = "reno";
/// Sooner than BBR pauses, which is every ten seconds.
const RENEWED_EVERY: Duration = Duration::from_secs(7);
/// What buffers on a long way have room for, in bytes in a round trip.
const HARMLESS: u64 = 512 << 10;
/// Ways are long from here on: it matters what is under way.
pub(super) const FAR: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::tcp_congestion;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn long_ways_get_what_remembers_when_they_are_measured_and_others_keep_what_the_system_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, far, named) = (connect(), connect(), connect());
        let usual = tcp_congestion(&near).unwrap();
        let probe = Congestion::Auto.choose(&near, Duration::from_micros(200), Detour::default());
        assert!(matches!(probe, Probe::Done));
        let probe = Congestion::Auto.choose(&far, Duration::from_millis(12), Detour::default());
        let is_due = |probe, way| matches!(probe, Probe::Due { way: one, .. } if one == way);
        assert_eq!(is_due(probe, Way::Own), is_available(STEADY));
        let behind = Detour { round_trip: Duration::from_millis(12), is_measured: false };
        let probe = Congestion::Auto.choose(&near, Duration::from_micros(200), behind);
        assert_eq!(is_due(probe, Way::Behind), is_available(STEADY));
        let probe = Congestion::Auto.choose(&near, Duration::from_millis(2), behind);
        assert_eq!(is_due(probe, Way::Behind), is_available(STEADY), "on a busy host");
        // Gateways measure what is between them, and nobody else need to.
        let measured = Detour { is_measured: true, ..behind };
        let probe = Congestion::Auto.choose(&near, Duration::from_micros(200), measured);
        assert!(matches!(probe, Probe::Done));
        let probe = Congestion::Auto.choose(&far, Duration::from_millis(13), measured);
        assert_eq!(is_due(probe, Way::Own), is_available(STEADY), "but this part is longer");
        assert_eq!([&near, &far].map(|one| tcp_congestion(one).unwrap()), [&usual[..]; 2]);
        let begun = Steady::begin(&far, None, Duration::ZERO);
        let steady = if begun.is_some() { STEADY } else { &usual };
        assert_eq!(tcp_congestion(&far).unwrap(), steady);
        // Every kernel has this one.
        let probe = Congestion::Named("reno".into()).choose(
            &named,
            Duration::from_millis(12),
            Detour::default(),
        );
        assert!(matches!(probe, Probe::Done), "it would forget");
        assert_eq!(tcp_congestion(&named).unwrap(), "reno");
    }

    #[test]
    fn while_it_is_measured_a_connection_has_what_grows_fastest() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        if Steady::prepare(&one) {
            assert_eq!(tcp_congestion(&one).unwrap(), OTHER);
            assert!(Steady::begin(&one, None, Duration::ZERO).is_some());
            assert_eq!(tcp_congestion(&one).unwrap(), STEADY);
        }
    }

    #[test]
    fn what_begins_anew_is_held_until_it_has_seen_the_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Some(mut steady) = Steady::begin(&one, None, Duration::ZERO) else { return };
        let known = Steady::begin(&one, Some(1 << 20), Duration::ZERO).unwrap();
        let held = (known.hold.rate(), measure::held(&one).unwrap());
        assert_eq!(held, (Some(beyond(1 << 20)), beyond(1 << 20)));
        measure::hold(&one, u64::MAX).unwrap();
        let pace = Pace::of(&one).expect("of the kernel's BBR");
        assert!(pace.is_beginning && !pace.is_pausing, "{pace:?}");
        // It has seen nothing yet to be held to.
        steady.look(&one, Some(1 << 20), RENEWED_EVERY);
        assert_eq!((steady.hold.rate(), measure::held(&one).unwrap()), (None, u64::MAX));
        assert_eq!(steady.since, RENEWED_EVERY, "it would pause");
        steady.renew(&one, Some(beyond(1 << 20)));
        assert_eq!(tcp_congestion(&one).unwrap(), STEADY);
        let held = beyond(1 << 20);
        assert_eq!((steady.hold.rate(), measure::held(&one).unwrap()), (Some(held), held));
        steady.look(&one, None, 2 * RENEWED_EVERY - Duration::from_secs(1));
        assert_eq!(measure::held(&one).unwrap(), held, "it has not seen the way");
        // It has shown next to nothing meanwhile.
        steady.look(&one, None, 2 * RENEWED_EVERY);
        assert_eq!(
            (steady.hold.rate(), steady.since),
            (Some(held), 2 * RENEWED_EVERY),
            "it would pause"
        );
        assert_eq!(measure::held(&one).unwrap(), held);
    }

    #[test]
    fn what_is_left_to_others_is_left_to_them_whatever_it_is_held_to_besides() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Some(mut steady) = Steady::begin(&one, None, Duration::ZERO) else { return };
        let (mut now, mut confirmed) = (Instant::now(), 0);
        let mut shares = |steady: &mut Steady, rate, waits| {
            for _ in 0..100 {
                now += Duration::from_millis(5);
                confirmed += rate / 200;
                let (least, waits) = (Duration::from_millis(10), Duration::from_millis(waits));
                let sight = Sight { least, waits, confirmed, lost: 0, is_busy: true };
                steady.share(&one, &sight, None, now);
            }
            measure::held(&one).unwrap()
        };
        assert_eq!(shares(&mut steady, 100_000_000, 0), u64::MAX);
        let part = shares(&mut steady, 70_000_000, 10);
        assert!(part < 70_000_000, "{part}");
        steady.hold_to(&one, 100_000_000);
        assert_eq!(measure::held(&one).unwrap(), part);
        // The others have gone.
        shares(&mut steady, part, 0);
        assert_eq!(shares(&mut steady, part, 0), 100_000_000);
    }

    #[test]
    fn short_messages_leave_at_once_whatever_is_known_of_a_long_way() {
        let ms = Duration::from_millis;
        let time = |len: u64, round_trip| ms(len * 1000 / harmless(round_trip));
        assert!(time(16 << 10, ms(100)) <= ms(100) / 32);
        assert!(time(64 << 10, ms(300)) <= ms(300) / 8);
        assert_eq!(harmless(Duration::from_micros(20)), 0, "there the kernel learns fast");
    }

    #[test]
    fn a_train_that_comes_through_has_the_next_one_leave_faster() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let held = 10_000_000;
        let Some(mut steady) = Steady::begin(&one, Some(held), Duration::ZERO) else { return };
        let reader = std::thread::spawn(move || other.read_to_end(&mut Vec::new()).unwrap());
        // 80 ms at that rate: a train that is long enough however late this thread looks.
        one.write_all(&[7; 1_000_000]).unwrap();
        while steady.ease(&one, Instant::now()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let now = (steady.hold.rate(), measure::held(&one).unwrap());
        assert!(now.0.is_none_or(|now| now > held), "{now:?}");
        assert_eq!(now.0.unwrap_or(u64::MAX), now.1);
        drop(one);
        assert_eq!(reader.join().unwrap(), 1_000_000);
    }

    #[test]
    fn what_the_system_does_not_have_is_found_before_it_is_needed() {
        assert!(Congestion::Auto.check().is_ok());
        assert!(Congestion::Named("reno".into()).check().is_ok());
        assert!(Congestion::Named("of-no-kernel".into()).check().is_err());
    }
}
