//! What a process says on standard error when strangers call: little, and all of it.
//!
//! The process is this program again, run for its part alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use driver::{TcpConfig, TcpRail};
use engine::{Config, Engine};
use progress::{Core, Directory};
use wire::GateId;

#[test]
fn each_reason_is_told_once_and_the_rest_counted() {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--ignored", "--exact", "the_process", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the process");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let port: u16 = loop {
        let line = lines.next().expect("a port").expect("text");
        if let Some((_, port)) = line.split_once("port ") {
            break port.parse().expect("a number");
        }
    };
    // Few at a time: of many the kernel keeps some waiting, and a crowd is another reason.
    for _ in 0..SCANS / AT_ONCE {
        let connect = |_| TcpStream::connect(("127.0.0.1", port)).expect("the scanned port");
        let mut streams: Vec<TcpStream> = (0..AT_ONCE).map(connect).collect();
        for stream in &streams {
            stream.shutdown(Shutdown::Write).expect("an open connection");
        }
        for stream in &mut streams {
            let _ = stream.read(&mut [0]);
        }
    }
    for _ in 0..3 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the port");
        stream.write_all(&[b'x'; 100]).expect("garbage");
        // Reset or closed: either way the door is shut.
        let _ = stream.read(&mut [0]);
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("the process ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let told: Vec<&str> = text.lines().filter(|line| line.starts_with("canele: ")).collect();
    let has = |parts: [&str; 3]| {
        let is_it = |line: &&&str| parts.iter().all(|part| line.contains(part));
        assert_eq!(told.iter().filter(is_it).count(), 1, "{parts:?} in {told:#?}");
    };
    let first = "rank 0: refused a connection from 127.0.0.1:";
    has([first, "closed the connection in the middle", ""]);
    has([first, "does not speak this version", ""]);
    let sum = format!("refused {} more connections, the last from 127.0.0.1:", SCANS - 1 + 2);
    let scans = format!("{} times: it closed the connection", SCANS - 1);
    has([&sum, &scans, "2 times: it does not speak this version"]);
    assert_eq!(told.len(), 3, "{told:#?}");
}

/// A process of a job, whose peer never comes.
#[test]
#[ignore = "a part in the test of strangers, which starts it"]
fn the_process() {
    let config = TcpConfig {
        interface: Some("127.0.0.1".into()),
        connect_timeout: Duration::from_secs(10),
        ..TcpConfig::new(GateId(0), 5, [1; 32])
    };
    let rail = Box::new(TcpRail::new(config).expect("sockets"));
    let address = driver::Rail::address(&*rail);
    let port = u16::from_le_bytes(*address.last_chunk().expect("a port"));
    println!("\nport {port}");
    let engine = Engine::new(Config::new(2));
    let mut core = Core::new(engine, GateId(0), 2, vec![rail], Box::new(Nobody));
    let end = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let limit = Instant::now() + Duration::from_secs(120);
    // What came before the end is seen before the end.
    let mut quiet = 0;
    while quiet < 1000 {
        quiet = if core.advance() || !end.is_finished() { 0 } else { quiet + 1 };
        assert!(Instant::now() < limit);
    }
    core.close();
}

struct Nobody;

impl Directory for Nobody {
    fn addresses(&mut self, _: GateId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Err("nobody is there".into())
    }
}

const SCANS: usize = 300;
const AT_ONCE: usize = 20;
