//! Who decides how fast a connection sends.
//!
//! On a long way the usual congestion controls begin anew after each silence, and a message of a megabyte
//! takes several round trips where the way would carry it in one. BBR (Cardwell et al., "BBR:
//! congestion-based congestion control", 2016) sends at the rate that it has measured, also after silence.
//! Near by it has nothing to win, and there the system's choice stands.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt::set_tcp_congestion;

use super::probe::Probe;

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
            Self::Named(name) => {
                let domain = socket2::Domain::IPV4;
                let socket = socket2::Socket::new(domain, socket2::Type::STREAM.cloexec(), None)?;
                Ok(set_tcp_congestion(&socket, name)?)
            }
        }
    }

    /// Chooses for a connection that has just opened, and says whether it should learn what its way carries.
    /// What the system refuses leaves it as it is. What remembers knows nothing yet, and would only hold up
    /// short messages: it is [taken up](remember) when the learning begins.
    pub(super) fn choose(&self, socket: &TcpStream, round_trip: Duration) -> Probe {
        let will_remember = match self {
            Self::Auto => round_trip > FAR && is_available(STEADY),
            Self::Named(name) => set_tcp_congestion(socket, name).is_ok() && name == STEADY,
        };
        if round_trip > FAR && will_remember { Probe::Due { round_trip } } else { Probe::Done }
    }
}

/// Gives a connection the congestion control that remembers what it has measured; whether the system allows it.
pub(super) fn remember(socket: &TcpStream) -> bool {
    set_tcp_congestion(socket, STEADY).is_ok()
}

/// Whether the kernel has it loaded: to ask for what it has not would load it.
fn is_available(name: &str) -> bool {
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    names.is_ok_and(|names| names.split_whitespace().any(|one| one == name))
}

const STEADY: &str = "bbr";
/// Ways are long from here on: it matters what is under way.
const FAR: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::tcp_congestion;
    use std::net::TcpListener;

    #[test]
    fn long_ways_get_what_remembers_when_they_are_measured_and_others_keep_what_the_system_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, far, named) = (connect(), connect(), connect());
        let usual = tcp_congestion(&near).unwrap();
        let probe = Congestion::Auto.choose(&near, Duration::from_micros(200));
        assert!(matches!(probe, Probe::Done));
        let probe = Congestion::Auto.choose(&far, Duration::from_millis(12));
        assert_eq!(matches!(probe, Probe::Due { .. }), is_available(STEADY));
        assert_eq!([&near, &far].map(|one| tcp_congestion(one).unwrap()), [&usual[..]; 2]);
        let steady = if remember(&far) { STEADY } else { &usual };
        assert_eq!(tcp_congestion(&far).unwrap(), steady);
        // Every kernel has this one.
        let probe = Congestion::Named("reno".into()).choose(&named, Duration::from_millis(12));
        assert!(matches!(probe, Probe::Done), "it would forget");
        assert_eq!(tcp_congestion(&named).unwrap(), "reno");
    }

    #[test]
    fn what_the_system_does_not_have_is_found_before_it_is_needed() {
        assert!(Congestion::Auto.check().is_ok());
        assert!(Congestion::Named("reno".into()).check().is_ok());
        assert!(Congestion::Named("of-no-kernel".into()).check().is_err());
    }
}
