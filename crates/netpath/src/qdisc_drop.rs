//! Bytes that a local qdisc has dropped and the kernel does not resend soon.
//!
//! A queue of the host's own (a shaper, as containers and virtual machines have) drops packets that do not fit, and
//! tells the kernel. If the connection has packets in flight, their ACKs trigger the resend. Otherwise a timer does,
//! after 200 ms (Linux, `tcp_check_probe_timer`). Many links that start to send at once on one host overflow such a
//! queue. So links are checked until all of a long frame has left, and pushed when nothing is in flight.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use socket2::SockRef;

use crate::measure::Info;

/// The watched connections, by key, and a timer that wakes a sleeper for the next look.
#[derive(Debug)]
pub struct QdiscDrops {
    keys: Vec<u64>,
    timer: OwnedFd,
    is_set: bool,
}

/// Watch state of a connection that was handed many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropWatch {
    /// Looks left; 0 if the connection is not watched.
    looks_left: u8,
    /// True if the last look found a drop.
    is_dropped: bool,
}

/// Unsent bytes and packets in flight of a connection.
struct Unsent {
    unsent: u32,
    under_way: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum SendState {
    Sent,
    Going,
    Dropped,
}

impl QdiscDrops {
    /// Creates an empty set of watched connections.
    ///
    /// # Errors
    /// Returned when the kernel gives no timer.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { keys: Vec::new(), timer, is_set: false })
    }

    /// Descriptor that becomes readable when it is time to [look](Self::look).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Adds a connection whose [`DropWatch`] has begun.
    pub fn add(&mut self, key: u64) {
        self.keys.push(key);
    }

    /// True if no connection is watched.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Sets the timer for the next look; called before a sleep.
    pub fn prepare_sleep(&mut self) {
        if !self.keys.is_empty() && !self.is_set {
            let next = Timespec { tv_sec: 0, tv_nsec: Self::LOOK_EVERY.subsec_nanos().into() };
            let once = Itimerspec { it_interval: Timespec::default(), it_value: next };
            // Cannot fail for a timer.
            self.is_set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok();
        }
    }

    /// Clears the timer; called when the descriptor is readable.
    pub fn hear(&mut self) {
        self.is_set = false;
        // Fails if the timer has not fired.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
    }

    /// Looks at all connections; keeps those for which `goes_on` returns true.
    pub fn look(&mut self, goes_on: impl FnMut(&u64) -> bool) {
        self.keys.retain(goes_on);
    }

    /// Interval between looks: a fraction of the time in which a queue drains.
    pub const LOOK_EVERY: Duration = Duration::from_millis(2);
    /// Length from which a frame is watched; shorter ones are followed by others or gone at once.
    pub const MUCH: usize = 4 << 10;
}

impl DropWatch {
    /// Starts the watch of a connection that was handed many bytes. Returns true if it was not watched before.
    pub fn begin(&mut self) -> bool {
        std::mem::replace(&mut self.looks_left, LOOKS_MAX) == 0
    }

    /// Looks at a connection, and pushes it after a drop. Returns true if it is to be looked at again.
    pub fn look(&mut self, socket: &impl AsFd) -> bool {
        let state = unsent(socket).map_or(SendState::Sent, |unsent| unsent.state());
        self.is_dropped = state == SendState::Dropped;
        match state {
            SendState::Sent => self.looks_left = 0,
            SendState::Going => self.looks_left = LOOKS_MAX,
            SendState::Dropped => {
                // A peer with a closed window is not moved by this, and is left to the kernel after a while.
                self.looks_left = self.looks_left.saturating_sub(1);
                // The option has this value already; setting it makes the kernel send what it may. Cannot fail for a
                // TCP socket.
                let _ = SockRef::from(socket).set_tcp_nodelay(true);
            }
        }
        self.looks_left > 0
    }

    /// True if the last look found a drop, and further looks are due.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped && self.looks_left > 0
    }
}

impl Unsent {
    fn state(&self) -> SendState {
        match (self.unsent, self.under_way) {
            (0, _) => SendState::Sent,
            (_, 0) => SendState::Dropped,
            _ => SendState::Going,
        }
    }
}

fn unsent(socket: &impl AsFd) -> Option<Unsent> {
    let info = Info::of(socket).ok()?;
    let unsent = info.u32_at(offset_of!(libc::tcp_info, tcpi_notsent_bytes))?;
    let under_way = info.u32_at(offset_of!(libc::tcp_info, tcpi_unacked))?;
    Some(Unsent { unsent, under_way })
}

/// Looks at a connection after a drop: a queue that stays full longer has another fault.
const LOOKS_MAX: u8 = 50;

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_a_link_with_nothing_in_flight_counts_as_dropped() {
        let state = |unsent, under_way| Unsent { unsent, under_way }.state();
        assert_eq!(state(0, 0), SendState::Sent);
        assert_eq!(state(0, 9), SendState::Sent, "the kernel retransmits what is lost");
        assert_eq!(state(70_000, 1), SendState::Going);
        assert_eq!(state(70_000, 0), SendState::Dropped);
    }

    /// Returns a connection whose other end has read nothing, with a closed window.
    fn closed_window() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        loop {
            match socket.write(&[0; 1 << 16]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        (socket, other)
    }

    #[test]
    fn a_link_is_looked_at_until_all_has_left() {
        let (socket, mut other) = closed_window();
        let mut watch = DropWatch::default();
        assert!(watch.begin() && !watch.begin());
        assert!(watch.look(&socket));
        // The last bytes may still be in flight.
        while !watch.is_dropped() {
            watch.look(&socket);
        }
        other.set_nonblocking(true).unwrap();
        let mut sink = vec![0; 1 << 20];
        while watch.look(&socket) {
            while other.read(&mut sink).is_ok() {}
            // The number of looks is not limited here.
            watch.begin();
        }
        assert_eq!((unsent(&socket).unwrap().unsent, watch.is_dropped()), (0, false));
        assert!(watch.begin(), "it is watched no more");
    }

    #[test]
    fn a_peer_that_reads_nothing_is_left_to_the_kernel() {
        let (socket, _other) = closed_window();
        let mut watch = DropWatch::default();
        watch.begin();
        // Window probes of the kernel may be in flight.
        let looks = (0..1_000_000).find(|_| !watch.look(&socket));
        assert!(looks.is_some_and(|looks| looks + 1 >= usize::from(LOOKS_MAX)), "{looks:?}");
        assert!(unsent(&socket).unwrap().unsent > 0 && !watch.is_dropped());
    }
}
