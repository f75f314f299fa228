//! Bytes that the kernel has taken, could send, and does not.
//!
//! A queue of the host's own (a shaper, as containers and virtual machines have them) drops what does not fit it, and
//! tells the kernel. Where anything of the connection is under way, the confirmation of that has it tried again; else
//! a timer does, after 200 ms (Linux, `tcp_check_probe_timer`). Many links that begin to send at once, on one host,
//! overflow such a queue. So links are looked at until all of a long frame has left, and pushed when nothing is under way.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use socket2::SockRef;

use super::measure::Info;

/// Connections that are watched, by their keys, and what wakes who sleeps meanwhile.
#[derive(Debug)]
pub struct Stalls {
    keys: Vec<u64>,
    timer: OwnedFd,
    is_set: bool,
}

/// What is to be seen of a connection that was handed much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallWatch {
    /// 0 where there is nothing to be looked for.
    looks_left: u8,
    /// As of the last look.
    is_stalled: bool,
}

/// What the kernel has of a connection, in bytes and packets.
struct Holds {
    unsent: u32,
    under_way: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Sent,
    Going,
    Stalled,
}

impl Stalls {
    /// Watches nothing.
    ///
    /// # Errors
    /// When the system gives no timer.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { keys: Vec::new(), timer, is_set: false })
    }

    /// What becomes readable when it is time to [look](Self::look).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Watches a connection whose [`StallWatch`] has begun.
    pub fn add(&mut self, key: u64) {
        self.keys.push(key);
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// To be called before a sleep: who sleeps is woken for the next look.
    pub fn prepare_sleep(&mut self) {
        if !self.keys.is_empty() && !self.is_set {
            let next = Timespec { tv_sec: 0, tv_nsec: Self::LOOK_EVERY.subsec_nanos().into() };
            let once = Itimerspec { it_interval: Timespec::default(), it_value: next };
            // Fails for no timer.
            self.is_set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok();
        }
    }

    /// To be called when the descriptor is readable.
    pub fn hear(&mut self) {
        self.is_set = false;
        // Fails where nothing has rung.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
    }

    /// Looks at all; `goes_on` says whether one is to be watched on.
    pub fn look(&mut self, goes_on: impl FnMut(&u64) -> bool) {
        self.keys.retain(goes_on);
    }

    /// From one look to the next: a fraction of what a queue takes to drain.
    pub const LOOK_EVERY: Duration = Duration::from_millis(2);
    /// What is shorter has company before and behind it, or is gone at once.
    pub const MUCH: usize = 4 << 10;
}

impl StallWatch {
    /// Much was handed over; whether the connection was not watched before.
    pub fn begin(&mut self) -> bool {
        std::mem::replace(&mut self.looks_left, LOOKS) == 0
    }

    /// Looks, and pushes a connection that has stalled; whether it is to be looked at again.
    pub fn look(&mut self, socket: &impl AsFd) -> bool {
        let verdict = holds(socket).map_or(Verdict::Sent, |holds| holds.verdict());
        self.is_stalled = verdict == Verdict::Stalled;
        match verdict {
            Verdict::Sent => self.looks_left = 0,
            Verdict::Going => self.looks_left = LOOKS,
            Verdict::Stalled => {
                // Whose peer reads nothing is not moved by this, and left to the kernel after a while.
                self.looks_left = self.looks_left.saturating_sub(1);
                // Not for its value, which it has had from the beginning: it has the kernel send what it may. Fails
                // for no TCP socket.
                let _ = SockRef::from(socket).set_tcp_nodelay(true);
            }
        }
        self.looks_left > 0
    }

    /// Whether it had stalled at the last look, and is to be looked at again.
    pub fn is_stalled(&self) -> bool {
        self.is_stalled && self.looks_left > 0
    }
}

impl Holds {
    fn verdict(&self) -> Verdict {
        match (self.unsent, self.under_way) {
            (0, _) => Verdict::Sent,
            (_, 0) => Verdict::Stalled,
            _ => Verdict::Going,
        }
    }
}

fn holds(socket: &impl AsFd) -> Option<Holds> {
    let info = Info::of(socket).ok()?;
    let unsent = info.u32_at(offset_of!(libc::tcp_info, tcpi_notsent_bytes))?;
    let under_way = info.u32_at(offset_of!(libc::tcp_info, tcpi_unacked))?;
    Some(Holds { unsent, under_way })
}

/// Looks at a connection that has stalled: a queue that has not let anything in meanwhile has another fault.
const LOOKS: u8 = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_a_link_with_nothing_under_way_has_stalled() {
        let verdict = |unsent, under_way| Holds { unsent, under_way }.verdict();
        assert_eq!(verdict(0, 0), Verdict::Sent);
        assert_eq!(verdict(0, 9), Verdict::Sent, "the kernel repeats what is lost");
        assert_eq!(verdict(70_000, 1), Verdict::Going);
        assert_eq!(verdict(70_000, 0), Verdict::Stalled);
    }

    /// A connection whose other end has read nothing of more than there is room for.
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
        let mut watch = StallWatch::default();
        assert!(watch.begin() && !watch.begin());
        assert!(watch.look(&socket));
        // What fills the other end's room may still be under way.
        while !watch.is_stalled() {
            watch.look(&socket);
        }
        other.set_nonblocking(true).unwrap();
        let mut sink = vec![0; 1 << 20];
        while watch.look(&socket) {
            while other.read(&mut sink).is_ok() {}
            // However many looks that takes.
            watch.begin();
        }
        assert_eq!((holds(&socket).unwrap().unsent, watch.is_stalled()), (0, false));
        assert!(watch.begin(), "it is watched no more");
    }

    #[test]
    fn a_peer_that_reads_nothing_is_left_to_the_kernel() {
        let (socket, _other) = closed_window();
        let mut watch = StallWatch::default();
        watch.begin();
        // What the kernel asks the peer meanwhile may be under way.
        let looks = (0..1_000_000).find(|_| !watch.look(&socket));
        assert!(looks.is_some_and(|looks| looks + 1 >= usize::from(LOOKS)), "{looks:?}");
        assert!(holds(&socket).unwrap().unsent > 0 && !watch.is_stalled());
    }
}
