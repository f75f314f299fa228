//! Messages on standard error about refused connections: each reason once, and a count of the rest.
//!
//! The process under test is this program, started again to run `the_process` alone.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use auth::Identity;
use connect::Patience;
use engine::{Config, Engine};
use progress::{Directory, Worker};
use rail::{Event, Rail};
use rail_quic::{QuicConfig, QuicRail};
use rail_tcp::{TcpConfig, TcpRail};
use wire::PeerId;

#[test]
fn each_reason_is_reported_once_and_the_rest_counted() {
    let process = HostileProcess::start();
    // Only a few connect at a time: too many connections at once are another reason.
    for _ in 0..SCANS / AT_ONCE {
        let connect = |_| TcpStream::connect(("127.0.0.1", process.port)).expect("the port");
        let mut streams: Vec<TcpStream> = (0..AT_ONCE).map(connect).collect();
        for stream in &streams {
            stream.shutdown(Shutdown::Write).expect("an open connection");
        }
        for stream in &mut streams {
            let _ = stream.read(&mut [0]);
        }
    }
    for _ in 0..3 {
        let mut stream = TcpStream::connect(("127.0.0.1", process.port)).expect("the port");
        stream.write_all(&[b'x'; 100]).expect("garbage");
        // The connection is reset or closed; both are refusals.
        let _ = stream.read(&mut [0]);
    }
    let told = process.end();
    let has = |parts: [&str; 3]| {
        let is_it = |line: &&String| parts.iter().all(|part| line.contains(part));
        assert_eq!(told.iter().filter(is_it).count(), 1, "{parts:?} in {told:#?}");
    };
    let first = "rank 0: refused a connection from 127.0.0.1:";
    has([first, "closed the connection in the middle", ""]);
    has([first, "does not speak the protocol", ""]);
    let sum = format!("refused {} more connections, the last from 127.0.0.1:", SCANS - 1 + 2);
    let scans = format!("{} times: it closed the connection", SCANS - 1);
    has([&sum, &scans, "2 times: it does not speak the protocol"]);
    assert_eq!(told.len(), 3, "{told:#?}");
}

/// Checks that TCP refuses the job's number, and UDP the key.
#[test]
fn key_of_an_ended_job_is_refused_and_reported_once() {
    let process = HostileProcess::start();
    let ended = (JOB - 1, [2; 32]);
    for rank in 1..4 {
        let rails: [Box<dyn Rail>; 2] = [tcp(rank, ended), quic(rank, ended)];
        for (mut rail, address) in rails.into_iter().zip(&process.addresses) {
            rail.connect(PeerId(0), address).expect("an address");
            // The rail tries again until it has been refused several times.
            let end = Instant::now() + Duration::from_millis(300);
            while Instant::now() < end {
                rail.poll(&mut |event| assert!(!matches!(event, Event::Up { .. })));
            }
        }
    }
    let told = process.end();
    let first = "rank 0: refused a connection from 127.0.0.1:";
    for reason in ["belongs to another job", "does not know the secret that the two must share"] {
        let is_it = |line: &&String| line.contains(first) && line.contains(reason);
        assert_eq!(told.iter().filter(is_it).count(), 1, "{reason} in {told:#?}");
        let times = format!("times: it {reason}");
        assert!(told.last().is_some_and(|sum| sum.contains(&times)), "{reason} in {told:#?}");
    }
    assert_eq!(told.len(), 3, "{told:#?}");
}

/// A process of a job that listens over TCP and UDP.
struct HostileProcess {
    child: Child,
    /// Standard output, kept open so that the process can still write to it.
    _said: Lines<BufReader<ChildStdout>>,
    port: u16,
    addresses: Vec<Vec<u8>>,
}

impl HostileProcess {
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--ignored", "--exact", "refused_connections::the_process", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the process");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut addresses: Vec<Vec<u8>> = Vec::new();
        while addresses.len() < 2 {
            let line = lines.next().expect("an address").expect("text");
            if let Some((_, bytes)) = line.split_once("address ") {
                let number = |byte: &str| byte.parse().expect("a number");
                addresses.push(bytes.split(' ').map(number).collect());
            }
        }
        let port = u16::from_le_bytes(*addresses[0].last_chunk().expect("a port"));
        Self { child, _said: lines, port, addresses }
    }

    /// Ends the process and returns its messages.
    fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().expect("the process ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        text.lines().filter(|line| line.starts_with("canele: ")).map(str::to_owned).collect()
    }
}

/// Runs a process of a job, whose peer never comes.
#[test]
#[ignore = "a part in the tests of strangers, which start it"]
fn the_process() {
    let rails: [Box<dyn Rail>; 2] = [tcp(0, (JOB, SECRET)), quic(0, (JOB, SECRET))];
    for rail in &rails {
        let bytes: Vec<String> = rail.address().iter().map(u8::to_string).collect();
        println!("\naddress {}", bytes.join(" "));
    }
    let engine = Engine::new(Config::new(2));
    let mut worker = Worker::new(engine, PeerId(0), 2, rails.into(), Box::new(Nobody));
    let end = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let limit = Instant::now() + Duration::from_secs(120);
    // Connections made before the end are handled before the process ends.
    let mut quiet = 0;
    while quiet < 1000 {
        quiet = if worker.advance() || !end.is_finished() { 0 } else { quiet + 1 };
        assert!(Instant::now() < limit);
    }
    worker.close();
}

fn tcp(rank: u32, (job, secret): (u64, [u8; 32])) -> Box<TcpRail> {
    let config = TcpConfig {
        interface: Some("127.0.0.1".into()),
        connect_timeout: Duration::from_secs(10),
        ..TcpConfig::new(PeerId(rank), job, secret)
    };
    Box::new(TcpRail::new(config).expect("sockets"))
}

fn quic(rank: u32, (job, secret): (u64, [u8; 32])) -> Box<QuicRail> {
    let config = QuicConfig {
        rank: PeerId(rank),
        job,
        identity: Identity::of(&secret.into(), job),
        interface: Some("127.0.0.1".into()),
        connect_timeout: Duration::from_secs(10),
        silence: Patience::default().silence(),
        passes: false,
        costs: std::sync::Arc::new(cost::NoStore),
    };
    Box::new(QuicRail::new(config).expect("sockets"))
}

struct Nobody;

impl Directory for Nobody {
    fn addresses(&mut self, _: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Err("nobody is there".into())
    }
}

const JOB: u64 = 5;
const SECRET: [u8; 32] = [1; 32];
const SCANS: usize = 300;
const AT_ONCE: usize = 20;
