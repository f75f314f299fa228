//! A forked child holds none of the parent's connections open, and accepts none at its ports.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rail::{Event, Rail};
use rail_tcp::{TcpConfig, TcpRail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::PeerId;

#[test]
fn a_connection_ends_though_a_forked_child_lives() {
    let mut rails = [0, 1].map(rail);
    let readiness_probe = rails[0].readiness_probe().expect("a readiness_probe");
    let address = rails[1].address();
    rails[0].connect(PeerId(1), &address).unwrap();
    let mut up = 0;
    until("both are up", || {
        for rail in &mut rails {
            rail.poll(&mut |event| up += u32::from(matches!(event, Event::Up { .. })));
        }
        up == 2
    });
    let port = listener(&rails[1]);
    assert!(TcpStream::connect(port).is_ok());
    let child = Child::make();
    let [mut rail, peer] = rails;
    drop(peer);
    let mut is_down = false;
    until("the end is seen", || {
        rail.poll(&mut |event| is_down |= matches!(event, Event::Down { .. }));
        is_down
    });
    until("nothing is left to be told", || {
        rail.poll(&mut |_| ());
        !is_readable(rail.descriptors()[0])
    });
    assert!(!readiness_probe.sees_events());
    assert!(TcpStream::connect(port).is_err(), "somebody listens");
    drop(child);
}

fn rail(rank: u32) -> TcpRail {
    let config = TcpConfig {
        interface: Some("127.0.0.1".into()),
        connect_timeout: PATIENCE,
        ..TcpConfig::new(PeerId(rank), 7, [9; 32])
    };
    TcpRail::new(config).expect("a rail over the loopback")
}

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&at_once)).is_ok_and(|count| count > 0)
}

/// Returns the address where a rail listens: it has one, and the port is published last.
fn listener(rail: &TcpRail) -> SocketAddr {
    let address = rail.address();
    let port = address.last_chunk::<2>().expect("a port");
    SocketAddr::from(([127, 0, 0, 1], u16::from_le_bytes(*port)))
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
    }
}

/// A forked child, which does nothing until it is dropped.
struct Child(libc::pid_t);

impl Child {
    fn make() -> Self {
        // SAFETY: the child only calls pause, which is async-signal-safe.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: pause has no arguments.
                unsafe { libc::pause() };
            },
            child => Self(child),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the process is this one's child, and nobody else waits for it.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
