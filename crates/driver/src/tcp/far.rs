//! A connection over a long way of somebody who only passes bytes on. It gets what the links of ranks get there:
//! a congestion control that remembers, little that waits in the kernel, and somebody who notices when the
//! other host has vanished.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::congestion::{self, Steady};
use super::measure::Pace;
use super::pacing::{UNSENT_MIN, UNSENT_NS};
use super::vigil;

/// What is kept of such a connection; it is to be [looked after](Self::look).
#[derive(Debug)]
pub struct FarTcp {
    /// None where the system has none that remembers.
    steady: Option<Steady>,
    begun: Instant,
    unsent_most: u32,
}

impl FarTcp {
    /// How often it is to be looked after.
    pub const LOOK_EVERY: Duration = vigil::LOOK_FAR_EVERY;

    /// Whether a way of such a round trip is long.
    pub fn is_far(round_trip: Duration) -> bool {
        round_trip > congestion::FAR
    }

    /// Whether the system has a congestion control that remembers, and allows it.
    pub fn remembers() -> bool {
        congestion::check(congestion::STEADY).is_ok()
    }

    /// Takes a connection into care.
    pub fn begin(socket: &impl AsFd) -> Self {
        let steady = Steady::begin(socket, None, Duration::ZERO);
        let mut far = Self { steady, begun: Instant::now(), unsent_most: 0 };
        far.limit_unsent(socket, UNSENT_MIN);
        far
    }

    /// Looks after it.
    ///
    /// # Errors
    /// When the other host has given no sign of life for longer than one that can be reached does.
    pub fn look(&mut self, socket: &impl AsFd) -> io::Result<()> {
        if let Some(silence) = vigil::has_vanished(socket, vigil::SILENCE_FAR) {
            let text = format!("no sign of life for {:.1} s", silence.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let Some(steady) = &mut self.steady else { return Ok(()) };
        steady.look(socket, None, self.begun.elapsed());
        if let Some(pace) = Pace::of(socket).filter(|pace| pace.bytes_per_s > 0) {
            let carried = u128::from(pace.bytes_per_s) * u128::from(UNSENT_NS) / 1_000_000_000;
            self.limit_unsent(socket, u32::try_from(carried).unwrap_or(u32::MAX).max(UNSENT_MIN));
        }
        Ok(())
    }

    /// What the kernel takes beyond what is under way: what comes later waits behind it.
    fn limit_unsent(&mut self, socket: &impl AsFd, most: u32) {
        if self.unsent_most != most {
            // Fails for no TCP socket.
            let _ = SockRef::from(socket).set_tcp_notsent_lowat(most);
            self.unsent_most = most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_far_connection_remembers_where_the_system_allows_it_and_holds_little() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = FarTcp::begin(&socket);
        let control = rustix::net::sockopt::tcp_congestion(&socket).unwrap();
        assert_eq!(control == congestion::STEADY, FarTcp::remembers(), "{control}");
        let most = || SockRef::from(&socket).tcp_notsent_lowat().unwrap();
        assert_eq!(most(), UNSENT_MIN);
        far.look(&socket).unwrap();
        assert!(most() >= UNSENT_MIN);
    }
}
