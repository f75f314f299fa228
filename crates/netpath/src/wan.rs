//! A WAN connection of a process that only forwards bytes, such as a gateway. It is treated like the WAN links of
//! ranks: BBR, few unsent bytes in the kernel, and a check for vanished hosts. If many flows share it, its path is
//! probed, too.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cost::Cost;

use crate::congestion::{Bbr, Congestion};
use crate::knowledge::{Knowledge, KnownPath};
use crate::pacing::Pacing;
use crate::probe::Probe;
use crate::relay_info::RelayInfo;
use crate::{congestion, path_probe, probe};

/// State of a WAN connection, which needs a regular [look](Self::look).
pub struct WanTcp {
    pacing: Pacing,
    since: Instant,
}

impl WanTcp {
    /// Interval between looks.
    pub const LOOK_EVERY: Duration = path_probe::LOOK_WAN_EVERY;

    /// True if a path with this round trip is a WAN path.
    pub fn is_wan(round_trip: Duration) -> bool {
        round_trip > congestion::WAN_RTT_MIN
    }

    /// True if the kernel has BBR and allows it.
    pub fn has_bbr() -> bool {
        congestion::check(congestion::BBR).is_ok()
    }

    /// Starts on one of many connections, whose ends probe the path if they want to.
    pub fn begin(socket: &impl AsFd) -> Self {
        Self::with(socket, None, Probe::Done)
    }

    /// Starts on a connection that many share, over a path with this round trip. Its path is to be
    /// [probed](Self::begin_padding).
    pub fn begin_shared(socket: &TcpStream, round_trip: Duration, knowledge: &Knowledge) -> Self {
        let probe = Congestion::Auto.choose(socket, round_trip, RelayInfo::default());
        Self::with(socket, knowledge.first(socket, Duration::ZERO), probe)
    }

    fn with(socket: &impl AsFd, known: Option<KnownPath>, probe: Probe) -> Self {
        // A probe starts BBR with its result. BBR is absent if the kernel has none.
        let bbr = if probe.is_due() { None } else { Bbr::begin(socket, None, Duration::ZERO) };
        let pacing = Pacing::with(known, true, probe, bbr);
        pacing.set(socket);
        // Cannot fail for a TCP socket, and only those are WAN connections.
        let _ = path_probe::watch_wan(socket);
        Self { pacing, since: Instant::now() }
    }

    /// Predicted cost of the connection, if known.
    pub fn cost(&self) -> Option<Cost> {
        self.pacing.cost()
    }

    /// Starts the probe if it is due. Returns true if it started.
    pub fn begin_padding(&mut self, socket: &TcpStream) -> bool {
        self.pacing.begin_probe(socket)
    }

    /// True if padding is to be sent while nothing else is.
    pub fn is_padding(&self) -> bool {
        self.pacing.probe.is_running()
    }

    /// Bytes of padding that may be sent now.
    pub fn allowance(&self) -> usize {
        self.pacing.probe.allowance()
    }

    /// Records that `count` bytes of padding were sent. Returns the cost of the connection once it is known.
    pub fn handle_padded(&mut self, socket: &TcpStream, count: usize) -> Option<Cost> {
        let is_last = self.pacing.handle_padded(socket, count, true, self.since.elapsed());
        if is_last { self.cost() } else { None }
    }

    /// Records a frame of `len` bytes; a long one starts the probe.
    pub fn handle_frame(&mut self, socket: &TcpStream, len: usize) {
        if len >= probe::LONG_FRAME {
            self.pacing.begin_probe(socket);
        }
    }

    /// Adapts the startup cap and the fairness limit. Called repeatedly from the moment a long frame leaves. Returns
    /// true if further calls are needed.
    pub fn adapt_cap(&mut self, socket: &TcpStream) -> bool {
        self.pacing.adapt_cap(socket)
    }

    /// Stores what was learned of the connection, for later ones.
    pub fn keep(&mut self, socket: &TcpStream, knowledge: &Knowledge) {
        self.pacing.keep(socket, knowledge);
    }

    /// Checks that the other host is alive and keeps the connection at its known rate.
    ///
    /// # Errors
    /// Returned when the other host has shown no sign of life for too long.
    pub fn look(&mut self, socket: &TcpStream) -> io::Result<()> {
        if let Some(silence) = path_probe::has_vanished(socket, path_probe::SILENCE_WAN) {
            let text = format!("no sign of life for {:.1} s", silence.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        self.pacing.keep_pace(socket, self.since.elapsed());
        self.pacing.limit_unsent(socket);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::SockRef;

    use super::*;
    use crate::pacing::UNSENT_MIN;

    #[test]
    fn a_wan_connection_uses_bbr_if_allowed_and_keeps_little_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = WanTcp::begin(&socket);
        let control = rustix::net::sockopt::tcp_congestion(&socket).unwrap();
        assert_eq!(control == congestion::BBR, WanTcp::has_bbr(), "{control}");
        let most = || SockRef::from(&socket).tcp_notsent_lowat().unwrap();
        assert_eq!(most(), UNSENT_MIN);
        far.look(&socket).unwrap();
        assert!(most() >= UNSENT_MIN);
    }
}
