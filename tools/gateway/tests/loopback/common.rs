//! Gateways on the loopback, hosts behind them, and callers.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gateway::{Between, Config, Gateway, Pass};
use relay::{CHALLENGE_LEN, REPLY_LEN, RelayHandshake, Reply, Request};
use tokio::sync::oneshot;
use wire::PeerId;

/// A gateway in a thread of its own, until it is dropped.
pub struct Daemon {
    pub address: SocketAddr,
    account: Box<dyn Fn() -> String + Send + Sync>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub fn start(between: Between) -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), between, "127.0.0.0/8")
    }

    /// A gateway at `listen` that opens connections to `allow`.
    pub fn on(listen: SocketAddr, between: Between, allow: &str) -> Self {
        Self::calling(listen, between, allow, "127.0.0.1")
    }

    /// A gateway that may call others on such a network.
    pub fn calling(listen: SocketAddr, between: Between, allow: &str, gateways: &str) -> Self {
        Self::of(Config {
            listen: vec![listen.into()],
            hosts: vec![allow.parse().unwrap()],
            gateways: vec![gateways.parse().unwrap()],
            is_transit: false,
            pass: pass(SECRET),
            between,
        })
    }

    /// A gateway that passes on what others' gateways send to a third, and connects to no host.
    pub fn in_between(between: Between) -> Self {
        Self::of(Config {
            listen: vec!["127.0.0.1:0".parse::<SocketAddr>().unwrap().into()],
            hosts: Vec::new(),
            gateways: vec!["127.0.0.1".parse().unwrap()],
            is_transit: true,
            pass: pass(SECRET),
            between,
        })
    }

    fn of(config: Config) -> Self {
        let (told, ready) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let gateway = Gateway::open(config).await.unwrap();
                let account: Box<dyn Fn() -> String + Send + Sync> = Box::new(gateway.account());
                told.send((gateway.addresses()[0], account)).unwrap();
                gateway.serve(async { drop(ended.await) }).await;
            });
        });
        let (address, account) = ready.recv_timeout(PATIENCE).unwrap();
        Self { address, account, end: Some(end), thread: Some(thread) }
    }

    pub fn account(&self) -> String {
        (self.account)()
    }

    /// Returns the number of connections that it relays.
    pub fn carries(&self) -> u32 {
        let account = self.account();
        let now = account.strip_prefix("connections: ").and_then(|rest| rest.split(' ').next());
        now.and_then(|now| now.parse().ok()).unwrap_or_else(|| panic!("{account}"))
    }

    /// Waits until the account has this line.
    pub fn until_account_has(&self, line: &str) {
        self.until_account(line, |account| account.lines().any(|one| one == line));
    }

    fn until_account(&self, wanted: &str, has: impl Fn(&str) -> bool) {
        let limit = Instant::now() + PATIENCE;
        while !has(&self.account()) {
            assert!(Instant::now() < limit, "no `{wanted}` in\n{}", self.account());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A gateway in a process of its own.
pub struct RankProcess {
    pub address: SocketAddr,
    child: Child,
}

impl RankProcess {
    /// Starts a gateway of a job with this number, and a secret of such bytes.
    pub fn start(job: u64, secret: u8) -> Self {
        let listen = ["--listen", "127.0.0.1:0", "--allow", "127.0.0.0/8"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_canele-gateway"))
            .args(listen)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pass = format!("{job:016x} {}\n", format!("{secret:02x}").repeat(32));
        child.stdin.as_mut().unwrap().write_all(pass.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { address: line.trim().parse().unwrap(), child }
    }

    /// Returns the peak resident memory.
    pub fn peak_kb(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    /// Ends the process. Returns its standard error, with the account.
    pub fn end(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
        let mut account = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut account).unwrap();
        account
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pass of job 1, with a secret of such bytes.
pub fn pass(byte: u8) -> Pass {
    Pass::parse(&format!("{:016x} {}", 1, format!("{byte:02x}").repeat(32))).unwrap()
}

pub fn handshake(byte: u8) -> RelayHandshake {
    let pass = pass(byte);
    RelayHandshake::new(pass.job, pass.secret)
}

/// A request for the host at `address`, through another gateway or not.
pub fn request(address: SocketAddr, via: &[SocketAddr]) -> Request {
    let via = Some(via.to_vec()).filter(|via| !via.is_empty()).into_iter().collect();
    Request { peer: PeerId(3), via, listeners: vec![address] }
}

/// A request for the host at `address`, through these gateways one after the other.
pub fn request_through(address: SocketAddr, hops: &[SocketAddr]) -> Request {
    let via = hops.iter().map(|hop| vec![*hop]).collect();
    Request { peer: PeerId(3), via, listeners: vec![address] }
}

/// Calls a gateway; the connection, and what it replies.
pub fn call(gateway: SocketAddr, request: &Request) -> io::Result<(TcpStream, Reply)> {
    call_as(&handshake(7), gateway, request).map(|(stream, reply, _)| (stream, reply))
}

/// The same; returns all bytes sent, too.
pub fn call_as(
    handshake: &RelayHandshake,
    gateway: SocketAddr,
    request: &Request,
) -> io::Result<(TcpStream, Reply, Vec<u8>)> {
    let mut stream = TcpStream::connect(gateway)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let hello = handshake.hello([9; 32]);
    stream.write_all(&hello)?;
    let mut answer = [0; CHALLENGE_LEN];
    stream.read_exact(&mut answer)?;
    let said = handshake.ask(&hello, &answer, request).map_err(io::Error::other)?;
    stream.write_all(&said)?;
    let mut reply = [0; REPLY_LEN];
    stream.read_exact(&mut reply)?;
    let reply = Reply::parse(&reply).ok_or(io::ErrorKind::InvalidData)?;
    Ok((stream, reply, [&hello[..], &said].concat()))
}

/// Opens a connection, which must succeed.
pub fn open(gateway: SocketAddr, request: &Request) -> TcpStream {
    let (stream, reply) = call(gateway, request).unwrap();
    assert!(matches!(reply, Reply::Open { .. }), "{reply:?}");
    stream
}

/// A host that serves each connection in a thread of its own.
pub fn host(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, stream) = (serve.clone(), stream.unwrap());
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// A host that echoes all bytes.
pub fn echo() -> SocketAddr {
    host(|mut stream| {
        let mut to = stream.try_clone().unwrap();
        // The caller may have gone.
        let _ = io::copy(&mut stream, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    })
}

/// Sends a few bytes and receives them back.
pub fn exchange(stream: &mut TcpStream) {
    stream.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
}

/// Byte that the job's secret consists of.
pub const SECRET: u8 = 7;
/// Time limit: a test that takes longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(90);
