//! Tests of relayed data: bytes arrive unchanged through any number of gateways.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use gateway::Between;
use testing::{Random, seeds};

use relay::{Reply, STAGES_MAX};

use crate::common::{Daemon, PATIENCE, call, echo, exchange, host, open, request, request_through};

/// Writes the first `len` bytes of a seed's, in pieces of any length.
fn write_bytes(stream: &mut TcpStream, seed: u64, len: usize) -> std::io::Result<()> {
    let mut bytes = Random::new(seed);
    let mut pieces = Random::new(!seed);
    let mut left = len;
    while left > 0 {
        let piece = (1 + pieces.below(50_000) as usize).min(left);
        let piece: Vec<u8> = (0..piece).map(|_| bytes.next() as u8).collect();
        stream.write_all(&piece)?;
        left -= piece.len();
    }
    Ok(())
}

/// Reads the first bytes of a seed's until there are `len`, or the end; how many there were.
fn check_bytes(stream: &mut TcpStream, seed: u64, len: usize) -> std::io::Result<usize> {
    let mut bytes = Random::new(seed);
    let mut buffer = vec![0; 30_000];
    let mut seen = 0;
    while seen < len {
        let room = buffer.len().min(len - seen);
        let count = stream.read(&mut buffer[..room])?;
        if count == 0 {
            break;
        }
        assert!(buffer[..count].iter().all(|byte| *byte == bytes.next() as u8), "at {seen}");
        seen += count;
    }
    Ok(seen)
}

/// A host that reads a seed and two lengths, and sends and receives so many bytes at once.
fn counterpart() -> SocketAddr {
    host(|mut stream| {
        let mut plan = [0; 24];
        if stream.read_exact(&mut plan).is_err() {
            return;
        }
        let word = |at: usize| u64::from_le_bytes(*plan[at..].first_chunk().unwrap());
        let (seed, forth, back) = (word(0), word(8) as usize, word(16) as usize);
        let mut to = stream.try_clone().unwrap();
        let writer = thread::spawn(move || {
            // The other end may break off.
            if write_bytes(&mut to, !seed, back).is_ok() {
                let _ = to.shutdown(Shutdown::Write);
            }
        });
        let _ = check_bytes(&mut stream, seed, forth);
        writer.join().unwrap();
    })
}

/// Runs one connection: both directions at once, and one of several endings.
fn converse(gateway: SocketAddr, through: &[SocketAddr], host: SocketAddr, seed: u64) {
    let mut random = Random::new(seed);
    let [forth, back] = [0, 0].map(|_| {
        let bits = random.below(20);
        random.below(1 << bits) as usize
    });
    let mut stream = begin(gateway, through, host, [seed, forth as u64, back as u64]);
    if random.below(5) == 0 {
        // Breaks off somewhere in the middle.
        let part = random.below(forth as u64 + 1) as usize;
        let _ = write_bytes(&mut stream, seed, part);
        return;
    }
    say_and_hear(stream, [forth, back], seed, random.below(2) == 0);
}

fn begin(
    gateway: SocketAddr,
    through: &[SocketAddr],
    host: SocketAddr,
    plan: [u64; 3],
) -> TcpStream {
    let mut stream = open(gateway, &request_through(host, through));
    stream.write_all(&plan.map(u64::to_le_bytes).concat()).unwrap();
    stream
}

fn say_and_hear(mut stream: TcpStream, [forth, back]: [usize; 2], seed: u64, says_end: bool) {
    let mut to = stream.try_clone().unwrap();
    let writer = thread::spawn(move || {
        write_bytes(&mut to, seed, forth).unwrap();
        if says_end {
            to.shutdown(Shutdown::Write).unwrap();
        }
    });
    assert_eq!(check_bytes(&mut stream, !seed, back).unwrap(), back, "seed {seed}");
    writer.join().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "seed {seed}: more than there was");
}

fn many(gateway: &Daemon, through: &[SocketAddr]) {
    let host = counterpart();
    let mut all = 0;
    for seed in seeds(1) {
        let mut random = Random::new(seed);
        for _ in 0..3 {
            let seeds: Vec<u64> = (0..25).map(|_| random.next()).collect();
            thread::scope(|scope| {
                for seed in seeds {
                    scope.spawn(move || converse(gateway.address, through, host, seed));
                }
            });
        }
        all += 75;
    }
    gateway.until_account_has(&format!("connections: 0 now, {all} in all"));
}

#[test]
fn many_connections_come_through_one_gateway() {
    many(&Daemon::start(Between::Auto), &[]);
}

#[test]
fn many_connections_come_through_two_gateways_over_udp() {
    let (near, far) = (Daemon::start(Between::Udp), Daemon::start(Between::Auto));
    many(&near, &[far.address]);
    far.until_account_has("connections: 0 now, 75 in all");
    assert!(near.account().contains("over UDP"), "{}", near.account());
}

#[test]
fn many_connections_come_through_two_gateways_over_tcp() {
    // By choice, and because UDP does not work.
    for first in [Between::Tcp, Between::Udp] {
        let (near, far) = (Daemon::start(first), Daemon::start(Between::Tcp));
        many(&near, &[far.address]);
        far.until_account_has("connections: 0 now, 75 in all");
        assert!(near.account().contains("over TCP"), "{}", near.account());
    }
}

#[test]
fn long_streams_share_a_link() {
    for between in [Between::Udp, Between::Tcp] {
        let (near, far) = (Daemon::start(between), Daemon::start(between));
        let host = counterpart();
        thread::scope(|scope| {
            for seed in 0..6 {
                let (gateway, through) = (near.address, [far.address]);
                scope.spawn(move || {
                    let plan = [seed, LONG as u64, LONG as u64];
                    say_and_hear(begin(gateway, &through, host, plan), [LONG; 2], seed, true);
                });
            }
        });
        far.until_account_has("connections: 0 now, 6 in all");
    }
}

#[test]
fn long_streams_come_through_one_gateway() {
    let gateway = Daemon::start(Between::Auto);
    let host = counterpart();
    thread::scope(|scope| {
        for seed in 0..6 {
            let address = gateway.address;
            scope.spawn(move || {
                let plan = [seed, LONG as u64, LONG as u64];
                say_and_hear(begin(address, &[], host, plan), [LONG; 2], seed, true);
            });
        }
    });
    gateway.until_account_has("connections: 0 now, 6 in all");
}

#[test]
fn many_connections_come_through_gateways_in_between() {
    for between in [Between::Udp, Between::Tcp] {
        let (near, far) = (Daemon::start(between), Daemon::start(between));
        let middle = [0; 2].map(|_| Daemon::in_between(between));
        many(&near, &[middle[0].address, middle[1].address, far.address]);
        middle[1].until_account_has("connections: 0 now, 75 in all");
        hold_back(&near, &[middle[0].address, far.address]);
    }
}

#[test]
fn a_gateway_passes_nothing_on_unless_it_is_told_to() {
    let [near, middle, far] = [0; 3].map(|_| Daemon::start(Between::Tcp));
    let refused =
        |through: &[SocketAddr]| match call(near.address, &request_through(echo(), through))
            .unwrap()
            .1
        {
            Reply::Refused(text) => text,
            reply => panic!("{reply:?}"),
        };
    let text = refused(&[middle.address, far.address]);
    assert!(text.contains("rank 3 is of a third site, and it passes nothing on"), "{text}");
    middle.until_account_has("refused, too far: 1");
    // A gateway in between opens connections to no host, and a request that goes round ends.
    let between = Daemon::in_between(Between::Tcp);
    let text = refused(&[between.address]);
    assert!(text.contains("rank 3"), "{text}");
    let text = refused(&[between.address; STAGES_MAX]);
    assert!(text.contains("rank 3"), "{text}");
}

#[test]
fn tcp_comes_first_if_it_has_bbr() {
    let (near, far) = (Daemon::start(Between::Auto), Daemon::start(Between::Auto));
    exchange(&mut open(near.address, &request(echo(), &[far.address])));
    let first = if netpath::WanTcp::has_bbr() { "over TCP" } else { "over UDP" };
    assert!(near.account().contains(first), "{}", near.account());
}

#[test]
fn both_directions_share_a_connection() {
    let (near, far) = (Daemon::start(Between::Udp), Daemon::start(Between::Udp));
    let host = echo();
    exchange(&mut open(near.address, &request(host, &[far.address])));
    exchange(&mut open(far.address, &request(host, &[near.address])));
    let way = format!("gateway {}: over UDP", near.address);
    assert!(far.account().contains(&way), "{}", far.account());
}

#[test]
fn the_next_gateway_is_called_when_one_is_gone() {
    let (near, far) = (Daemon::start(Between::Auto), Daemon::start(Between::Auto));
    let gone = Daemon::start(Between::Auto).address;
    let host = echo();
    exchange(&mut open(near.address, &request(host, &[gone, far.address])));
}

#[test]
fn round_trips_behind_a_gateway_are_reported() {
    let (near, far) = (Daemon::start(Between::Auto), Daemon::start(Between::Auto));
    let told = |gateway: &Daemon, request| {
        let (_stream, reply) = crate::common::call(gateway.address, &request).unwrap();
        let relay::Reply::Open { beyond } = reply else { panic!("{reply:?}") };
        assert!(!beyond.round_trip.is_zero() && beyond.round_trip < PATIENCE, "{beyond:?}");
        beyond.is_measured
    };
    told(&near, request(echo(), &[far.address]));
    assert!(!told(&near, request(echo(), &[])), "who has a connection alone measures it");
}

/// A receiver that does not read stops the sender, and nothing is lost when it reads on.
fn hold_back(gateway: &Daemon, through: &[SocketAddr]) {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let host = host(move |mut stream| {
        // It takes as long as needed to fill all buffers; the end of the test ends it too.
        wait.lock().unwrap().recv().unwrap();
        let mut len = [0; 8];
        let count = check_bytes(&mut stream, 5, usize::MAX).unwrap() as u64;
        len.copy_from_slice(&count.to_le_bytes());
        stream.write_all(&len).unwrap();
    });
    let mut stream = open(gateway.address, &request_through(host, through));
    stream.set_nonblocking(true).unwrap();
    let mut bytes = Random::new(5);
    let mut piece: Vec<u8> = Vec::new();
    let (mut taken, mut since) = (0u64, Instant::now());
    while since.elapsed() < Duration::from_secs(1) {
        if piece.is_empty() {
            piece = (0..1 << 16).map(|_| bytes.next() as u8).collect();
        }
        match stream.write(&piece) {
            Ok(count) => {
                taken += count as u64;
                piece.drain(..count);
                since = Instant::now();
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(taken < BUFFERED_MAX, "{taken} bytes are under way to nobody");
    }
    go.send(()).unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.write_all(&piece).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut len = [0; 8];
    stream.read_exact(&mut len).unwrap();
    assert_eq!(u64::from_le_bytes(len), taken + piece.len() as u64);
}

#[test]
fn a_receiver_that_does_not_read_stops_the_sender() {
    hold_back(&Daemon::start(Between::Auto), &[]);
}

#[test]
fn a_receiver_behind_two_gateways_stops_the_sender_and_nobody_else() {
    for between in [Between::Udp, Between::Tcp] {
        let (near, far) = (Daemon::start(between), Daemon::start(between));
        let (_over, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let idle = host(move |stream| {
            // Until this round of the test is over.
            wait.lock().unwrap().recv().unwrap_err();
            drop(stream);
        });
        let mut stuck = open(near.address, &request(idle, &[far.address]));
        stuck.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        while stuck.write_all(&[0; 1 << 16]).is_ok() {}
        hold_back(&near, &[far.address]);
    }
}

#[test]
fn a_gateway_that_dies_breaks_connections_off_and_a_new_one_carries_again() {
    for (dies, between) in
        [(0, Between::Udp), (1, Between::Udp), (0, Between::Tcp), (1, Between::Tcp)]
    {
        let mut gateways = [between; 2].map(|between| Some(Daemon::start(between)));
        let [near, far] = gateways.each_ref().map(|one| one.as_ref().unwrap().address);
        let host = echo();
        let mut stream = open(near, &request(host, &[far]));
        exchange(&mut stream);
        let began = Instant::now();
        drop(gateways[dies].take());
        // Bytes in flight may be lost, but the end is signalled.
        let end = stream.read(&mut [0]);
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
        assert!(began.elapsed() < PATIENCE);
        gateways[dies] = Some(Daemon::on([near, far][dies], between, "127.0.0.0/8"));
        exchange(&mut open(near, &request(host, &[far])));
    }
}

/// More than all buffers on the path.
const LONG: usize = 6 << 20;
/// All kernel buffers on the path, the credit of a channel, and some.
const BUFFERED_MAX: u64 = 80 << 20;
