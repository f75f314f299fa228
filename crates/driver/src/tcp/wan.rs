//! A connection over a long way of somebody who only passes bytes on. It gets what the links of ranks get there:
//! a congestion control that remembers, little that waits in the kernel, and somebody who notices when the
//! other host has vanished. Where many share it, its way is measured, too.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use wire::Cost;

use super::congestion::{self, Congestion, Steady};
use super::knowledge::{Knowledge, Known};
use super::pacing::Pacing;
use super::path_probe;
use super::probe::{self, Probe};
use super::relay::Detour;

/// What is kept of such a connection; it is to be [looked after](Self::look).
pub struct FarTcp {
    pacing: Pacing,
    begun: Instant,
}

impl FarTcp {
    /// How often it is to be looked after.
    pub const LOOK_EVERY: Duration = path_probe::LOOK_FAR_EVERY;

    /// Whether a way of such a round trip is long.
    pub fn is_far(round_trip: Duration) -> bool {
        round_trip > congestion::FAR
    }

    /// Whether the system has a congestion control that remembers, and allows it.
    pub fn remembers() -> bool {
        congestion::check(congestion::STEADY).is_ok()
    }

    /// Takes a connection into care that is one of many, whose ends measure the way if they want to.
    pub fn begin(socket: &impl AsFd) -> Self {
        Self::with(socket, None, Probe::Done)
    }

    /// Takes a connection into care that many share, over a way of such a round trip: its way is to be
    /// [measured](Self::begin_padding).
    pub fn begin_shared(socket: &TcpStream, round_trip: Duration, knowledge: &Knowledge) -> Self {
        let probe = Congestion::Auto.choose(socket, round_trip, Detour::default());
        Self::with(socket, knowledge.first(socket, Duration::ZERO), probe)
    }

    fn with(socket: &impl AsFd, known: Option<Known>, probe: Probe) -> Self {
        // Who measures takes it up with what was measured. Where the system has none that remembers, there is none.
        let steady =
            if probe.is_due() { None } else { Steady::begin(socket, None, Duration::ZERO) };
        let pacing = Pacing::with(known, true, probe, steady);
        pacing.set(socket);
        // Fails for no TCP socket, and no other is far.
        let _ = path_probe::watch_far(socket);
        Self { pacing, begun: Instant::now() }
    }

    /// What the connection costs, as far as is known.
    pub fn cost(&self) -> Option<Cost> {
        self.pacing.cost()
    }

    /// Begins to measure the way, if that is due; whether it has.
    pub fn begin_padding(&mut self, socket: &TcpStream) -> bool {
        self.pacing.begin_probe(socket)
    }

    /// Whether padding is to go, while nothing else is to be sent.
    pub fn is_padding(&self) -> bool {
        self.pacing.probe.is_running()
    }

    /// How much padding may go now.
    pub fn allowance(&self) -> usize {
        self.pacing.probe.allowance()
    }

    /// So much padding has gone; what the connection costs when that is known with it.
    pub fn handle_padded(&mut self, socket: &TcpStream, count: usize) -> Option<Cost> {
        let is_last = self.pacing.handle_padded(socket, count, true, self.begun.elapsed());
        if is_last { self.cost() } else { None }
    }

    /// A frame of such a length goes; if it is long, the way is measured from now on.
    pub fn handle_frame(&mut self, socket: &TcpStream, len: usize) {
        if len >= probe::LONG {
            self.pacing.begin_probe(socket);
        }
    }

    /// Lets through what the way has been seen to carry; to be called now and then from when a long frame leaves. Whether
    /// to go on.
    pub fn ease(&mut self, socket: &TcpStream) -> bool {
        self.pacing.ease(socket)
    }

    /// Keeps what was learned of the connection, for those to come.
    pub fn keep(&mut self, socket: &TcpStream, knowledge: &Knowledge) {
        self.pacing.keep(socket, knowledge);
    }

    /// Looks after it.
    ///
    /// # Errors
    /// When the other host has given no sign of life for longer than one that can be reached does.
    pub fn look(&mut self, socket: &TcpStream) -> io::Result<()> {
        if let Some(silence) = path_probe::has_vanished(socket, path_probe::SILENCE_FAR) {
            let text = format!("no sign of life for {:.1} s", silence.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        self.pacing.keep_pace(socket, self.begun.elapsed());
        self.pacing.limit_unsent(socket);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::pacing::UNSENT_MIN;
    use socket2::SockRef;
    use std::net::TcpListener;

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
