//! Tests of hostile callers: the job's own connections are served all the while.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use gateway::Between;
use relay::{RESUME_LEN, RelayHandshake, Reply, Request};
use wire::PeerId;

use crate::common::{
    Daemon, PATIENCE, RankProcess, SECRET, call, call_as, echo, exchange, handshake, open, request,
};

/// Sends `bytes` and waits for the connection to be closed. Returns the number of bytes received.
fn say(gateway: SocketAddr, bytes: &[u8]) -> usize {
    let mut stream = TcpStream::connect(gateway).unwrap();
    // The gateway may close before all bytes are sent.
    let _ = stream.write_all(bytes);
    wait_for_end(&mut stream)
}

fn wait_for_end(stream: &mut TcpStream) -> usize {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut heard, mut sink) = (0, [0; 1024]);
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return heard,
            Ok(count) => heard += count,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return heard,
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }
}

/// Checks that members are served while `attack` runs, and afterwards.
fn suffer(gateway: &Daemon, attack: impl FnOnce(SocketAddr) + Send) {
    suffer_and_open(gateway, open, attack);
}

/// The same for members that connect by `open`.
fn suffer_and_open(
    gateway: &Daemon,
    open: impl Fn(SocketAddr, &Request) -> TcpStream,
    attack: impl FnOnce(SocketAddr) + Send,
) {
    let host = echo();
    let mut before = open(gateway.address, &request(host, &[]));
    thread::scope(|scope| {
        let attacker = scope.spawn(|| attack(gateway.address));
        loop {
            exchange(&mut before);
            exchange(&mut open(gateway.address, &request(host, &[])));
            if attacker.is_finished() {
                break;
            }
        }
    });
    exchange(&mut before);
}

/// Opens a connection and retries, as ranks do, if the gateway closed because the thread was not scheduled in
/// time.
fn open_oversubscribed(gateway: SocketAddr, request: &Request) -> TcpStream {
    let began = Instant::now();
    loop {
        match call(gateway, request) {
            Ok((stream, Reply::Open { .. })) => return stream,
            Ok((_, reply)) => panic!("{reply:?}"),
            Err(error) => assert!(began.elapsed() < PATIENCE, "not let in: {error}"),
        }
    }
}

/// Returns a member's connection after its hello, and the proof and request that it has to send next.
fn send_hello(gateway: &Daemon) -> (TcpStream, Vec<u8>) {
    let handshake = handshake(7);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let hello = handshake.hello([4; 32]);
    stream.write_all(&hello).unwrap();
    let mut answer = [0; relay::CHALLENGE_LEN];
    stream.read_exact(&mut answer).unwrap();
    let said = handshake.ask(&hello, &answer, &request(echo(), &[])).unwrap();
    (stream, said)
}

#[test]
fn garbage_other_jobs_and_wrong_secrets_are_refused() {
    let gateway = Daemon::start(Between::Auto);
    suffer(&gateway, |target| {
        let http = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(relay::RESUME_LEN));
        assert_eq!(say(target, http.as_bytes()), 0);
        assert_eq!(say(target, &vec![0xff; 1 << 20]), 0);
        let other = relay::RelayHandshake::new(2, [7; 32]);
        assert_eq!(say(target, &other.hello([1; 32])), 0);
        // A caller with a wrong secret notices that the gateway knows another one; a caller that does not
        // check is refused.
        assert!(call_as(&handshake(8), target, &request(target, &[])).is_err());
        let mut stream = TcpStream::connect(target).unwrap();
        stream.write_all(&handshake(8).hello([1; 32])).unwrap();
        stream.write_all(&[3; 400]).unwrap();
        wait_for_end(&mut stream);
    });
    gateway.until_account_has("refused, protocol: 2");
    gateway.until_account_has("refused, job: 1");
    gateway.until_account_has("refused, secret: 1");
}

#[test]
fn a_recorded_call_is_of_no_use() {
    let gateway = Daemon::start(Between::Auto);
    let host = echo();
    let (stream, _, said) = call_as(&handshake(7), gateway.address, &request(host, &[])).unwrap();
    drop(stream);
    suffer(&gateway, |target| {
        say(target, &said);
    });
    gateway.until_account_has("refused, secret: 1");
}

#[test]
fn an_altered_request_is_refused() {
    let gateway = Daemon::start(Between::Auto);
    let (mut stream, mut said) = send_hello(&gateway);
    let at = said.len() - 40;
    said[at] ^= 1;
    stream.write_all(&said).unwrap();
    assert_eq!(wait_for_end(&mut stream), 0);
    gateway.until_account_has("refused, altered: 1");
}

#[test]
fn connections_are_opened_only_to_the_sites_own_networks() {
    let gateway = Daemon::on("127.0.0.1:0".parse().unwrap(), Between::Auto, "127.0.5.0/24");
    let denied = |request: &Request| match call(gateway.address, request).unwrap().1 {
        Reply::Refused(text) => text,
        reply => panic!("{reply:?}"),
    };
    let text = denied(&request(echo(), &[]));
    assert!(text.contains("rank 3") && text.contains("127.0.5.0/24"), "{text}");
    gateway.until_account_has("refused, forbidden: 1");
    let text = denied(&request(echo(), &["192.0.2.1:9".parse().unwrap()]));
    assert!(text.contains("rank 3") && text.contains("--gateways"), "{text}");
    gateway.until_account_has("refused, estranged: 1");
    // Nobody listens there.
    let text = denied(&request("127.0.5.1:1".parse().unwrap(), &[]));
    assert!(text.contains("127.0.5.1:1") && text.contains("refused"), "{text}");
    gateway.until_account_has("refused, unreached: 1");
    let nowhere = Request { peer: PeerId(1), via: Vec::new(), listeners: Vec::new() };
    assert!(denied(&nowhere).contains("rank 1"));
}

#[test]
fn half_open_connections_are_bounded_in_number() {
    let gateway = Daemon::start(Between::Auto);
    suffer_and_open(&gateway, open_oversubscribed, |target| {
        let mut strangers = Vec::new();
        for number in 0..3000 {
            let mut stream = TcpStream::connect(target).unwrap();
            if number % 2 == 0 {
                let hello = handshake(7).hello([number as u8; 32]);
                // It may have been expelled already.
                let _ = stream.write_all(&hello[..number % RESUME_LEN]);
            }
            strangers.push(stream);
            if strangers.len() == 400 {
                drop(strangers.drain(..200));
            }
        }
    });
    let account = gateway.account();
    let too_many = account.lines().find_map(|line| line.strip_prefix("refused, too many: "));
    assert!(too_many.is_some_and(|count| count.parse::<u64>().unwrap() > 100), "{account}");
}

#[test]
fn a_caller_with_a_hello_outlasts_many_without() {
    let gateway = Daemon::start(Between::Auto);
    let (mut member, proof) = send_hello(&gateway);
    // Its proof takes a while, as if it were far away.
    let mut strangers: Vec<_> =
        (0..600).map(|_| TcpStream::connect(gateway.address).unwrap()).collect();
    for stranger in &mut strangers[..300] {
        wait_for_end(stranger);
    }
    member.write_all(&proof).unwrap();
    let mut reply = [0; relay::REPLY_LEN];
    member.read_exact(&mut reply).unwrap();
    assert!(matches!(Reply::parse(&reply), Some(Reply::Open { .. })), "{reply:?}");
}

#[test]
fn slow_callers_are_refused() {
    let gateway = Daemon::start(Between::Auto);
    suffer(&gateway, |target| {
        let mut stream = TcpStream::connect(target).unwrap();
        let hello = handshake(7).hello([1; 32]);
        let began = Instant::now();
        // One byte now and then, for longer than the time limit.
        for byte in hello.iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(200));
            assert!(began.elapsed() < PATIENCE);
        }
    });
    gateway.until_account_has("refused, slow: 1");
}

#[test]
fn strangers_over_udp_are_refused() {
    let gateway = Daemon::start(Between::Udp);
    let far = Daemon::start(Between::Udp);
    suffer(&gateway, |target| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut byte = 1u8;
        for len in 0..1400 {
            let noise: Vec<u8> = (0..len)
                .map(|at| {
                    byte = byte.wrapping_mul(31).wrapping_add(at as u8);
                    byte
                })
                .collect();
            socket.send_to(&noise, target).unwrap();
        }
    });
    // Links over UDP still work.
    exchange(&mut open(far.address, &request(echo(), &[gateway.address])));
    assert!(far.account().contains("over UDP"), "{}", far.account());
}

#[test]
fn the_key_of_an_ended_job_is_refused_and_reported_once() {
    let host = echo();
    let ended = Daemon::start(Between::Udp);
    exchange(&mut open(ended.address, &request(host, &[])));
    drop(ended);
    let gateway = RankProcess::start(2, SECRET + 1);
    let target = request(host, &[]);
    for _ in 0..3 {
        assert!(call_as(&handshake(SECRET), gateway.address, &target).is_err());
        // A caller with another job number that does not check the gateway's secret.
        let hello = RelayHandshake::new(2, [SECRET; 32]).hello([1; 32]);
        say(gateway.address, &[&hello[..], &[3; 400]].concat());
    }
    let left = Daemon::start(Between::Udp);
    for _ in 0..3 {
        let (_, reply) = call(left.address, &request(host, &[gateway.address])).unwrap();
        assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    }
    let told = gateway.end();
    let counted = |kind: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(&format!("refused, {kind}: ")));
        line.map_or(0, |count| count.parse::<u32>().unwrap())
    };
    // A gateway that fails over UDP has tried TCP as well.
    assert!(counted("job") >= 3, "{told}");
    assert!(counted("secret") >= 6, "{told}");
    for reason in ["belongs to another job", "does not know the secret that the two must share"] {
        assert_eq!(told.lines().filter(|line| line.contains(reason)).count(), 1, "{told}");
    }
}
