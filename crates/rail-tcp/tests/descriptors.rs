//! A process without free descriptors: connections wait, and cost it nothing meanwhile.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rail::{Event, Rail, Refusal};
use rail_tcp::{TcpConfig, TcpRail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wire::PeerId;

#[test]
fn connections_wait_for_descriptors_without_keeping_the_process_awake() {
    let mut rail = TcpRail::new(TcpConfig {
        interface: Some("127.0.0.1".into()),
        connect_timeout: Duration::from_secs(10),
        ..TcpConfig::new(PeerId(0), 7, [1; 32])
    })
    .expect("sockets");
    let address = rail.address();
    let port = u16::from_le_bytes(*address.last_chunk().expect("a port"));
    let target = SocketAddr::from(([127, 0, 0, 1], port));
    let mut clients: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(target).expect("the listener's queue")).collect();
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum: limits.maximum })
        .expect("a lower limit");
    let fillers: Vec<File> = (0..300).map_while(|_| File::open("/dev/null").ok()).collect();
    assert!(fillers.len() < 300);

    let mut reasons = Vec::new();
    let mut readable = 0;
    for _ in 0..LOOKS {
        rail.poll(&mut |event| match event {
            Event::Hampered { reason } => reasons.push(reason),
            Event::Cost { .. } => {}
            other => panic!("{other:?}"),
        });
        readable += u32::from(is_readable(&rail));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains("os error 24") && reasons[0].contains("ulimit -n"), "{reasons:?}");
    assert!(readable < LOOKS / 10, "the bell rings at {readable} of {LOOKS} looks");

    drop(fillers);
    let limit = Instant::now() + Duration::from_secs(30);
    let mut refused = 0;
    clients.iter_mut().for_each(|one| one.write_all(&[b'x'; 100]).expect("garbage"));
    while refused < clients.len() {
        rail.poll(&mut |event| match event {
            Event::Refused { reason: Refusal::Protocol, .. } => refused += 1,
            Event::Cost { .. } => {}
            other => panic!("{other:?}"),
        });
        assert!(Instant::now() < limit, "{refused} of {} were heard", clients.len());
    }
    // The connections are closed or reset: read, and refused.
    clients.iter_mut().for_each(|one| assert!(!matches!(one.read(&mut [0]), Ok(1..))));
}

fn is_readable(rail: &TcpRail) -> bool {
    let descriptors = rail.descriptors();
    let mut ends: Vec<PollFd> =
        descriptors.iter().map(|one| PollFd::new(one, PollFlags::IN)).collect();
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll") > 0
}

const LOOKS: u32 = 500;
