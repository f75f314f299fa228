//! Ports: places where processes that have a name meet this one (MPI-5.0 §11.9).
//!
//! The name of a port has addresses of its process, and a key that was drawn for this port. Whoever has the name can connect,
//! and nobody else. A thread accepts connections while the port is open and lets callers prove the key, each in a thread of
//! its own. Those who have proved it wait until this process accepts them. The numbers of callers that prove and that wait
//! are bounded.

use std::collections::VecDeque;
use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use auth::{ANSWER_LEN, Credentials, Identity, Secret};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use netpath::interfaces;
use rail::Unshared;
use relay::{GATEWAY, REPLY_LEN, Reply, Request, Routes};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{Shutdown, shutdown};
use wire::{PeerId, ProcessId};
use zeroize::Zeroizing;

use crate::cards::gateways;
use crate::instance::Instance;
use crate::meeting::{MeetingChannel, MeetingError, await_any};
use crate::rails::interface;

/// An open port. It closes when it is dropped.
pub struct Port {
    name: PortName,
    state: Arc<PortState>,
}

/// The name of a port: where its process listens, and the key of the port. It is a secret like a password.
#[derive(Clone)]
pub struct PortName {
    /// The process.
    process: ProcessId,
    /// Network namespace of the process.
    network: [u8; 16],
    listeners: Vec<SocketAddr>,
    key: Secret,
}

/// The part of a port that its threads share.
struct PortState {
    identity: Identity,
    listeners: Vec<Unshared<TcpListener>>,
    callers: Mutex<Callers>,
    /// Signals a caller that has proved the key, or the end of the port.
    event: Condvar,
}

/// Processes that have connected.
#[derive(Default)]
struct Callers {
    /// Those that have proved the key.
    waiting: VecDeque<MeetingChannel>,
    /// Number of those that are about to.
    proving: usize,
    is_closed: bool,
}

impl Callers {
    /// True if no more are to be admitted.
    fn are_many(&self) -> bool {
        self.proving >= PROVING_MAX || self.waiting.len() >= WAITING_MAX
    }
}

impl Port {
    /// Opens a port on the networks of this process.
    ///
    /// # Errors
    /// There is no network, or the system lacks a resource.
    pub fn open(instance: &Instance) -> Result<Self, MeetingError> {
        Self::of(ProcessId { job: instance.job().id(), rank: instance.rank() })
    }

    fn of(process: ProcessId) -> Result<Self, MeetingError> {
        let system = |error: std::io::Error| MeetingError::System(error.to_string());
        let all = interfaces::list().map_err(system)?;
        let chosen = interfaces::choose(&all, interface().as_deref());
        let bound: Vec<TcpListener> =
            chosen.into_iter().filter_map(|address| TcpListener::bind((address, 0)).ok()).collect();
        let mut listeners: Vec<SocketAddr> =
            bound.iter().filter_map(|one| one.local_addr().ok()).collect();
        listeners.truncate(LISTENERS_MAX);
        if listeners.is_empty() {
            let text = "a port needs a network, and this process has none (CANELE_IFACE?)";
            return Err(MeetingError::System(text.into()));
        }
        let key = Secret::random().map_err(system)?;
        let network = interfaces::network_identity();
        let name = PortName { process, network, listeners, key };
        for listener in &bound {
            listener.set_nonblocking(true).map_err(system)?;
        }
        let state = Arc::new(PortState {
            identity: name.identity(),
            listeners: bound.into_iter().map(Unshared::new).collect(),
            callers: Mutex::default(),
            event: Condvar::new(),
        });
        let listening = Arc::clone(&state);
        spawn(move || listening.listen()).map_err(system)?;
        Ok(Self { name, state })
    }

    /// The name, which others need in order to connect.
    pub fn name(&self) -> &PortName {
        &self.name
    }

    /// Closes the port: nobody connects any more, and calls that wait for a caller end.
    pub fn close(&self) {
        let mut callers = self.state.callers();
        callers.is_closed = true;
        callers.waiting.clear();
        drop(callers);
        self.state.event.notify_all();
        for listener in &self.state.listeners {
            // It ends a wait for connections; the socket closes with its last owner.
            let _ = shutdown(&**listener, Shutdown::Both);
        }
    }

    /// Waits for a process that has proved the key of the port.
    ///
    /// # Errors
    /// The port is closed, or nobody has come within `patience`.
    pub fn await_caller(&self, patience: Option<Duration>) -> Result<MeetingChannel, MeetingError> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut callers = self.state.callers();
        loop {
            if callers.is_closed {
                return Err(MeetingError::Closed);
            }
            if let Some(caller) = callers.waiting.pop_front() {
                self.state.event.notify_all();
                return Ok(caller);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(MeetingError::NotConnected(patience.unwrap_or_default().as_secs()));
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            let waited = self.state.event.wait_timeout(callers, left);
            callers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PortState {
    fn callers(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until the port is closed.
    fn listen(self: Arc<Self>) {
        loop {
            let listeners = self.listeners.iter();
            let mut events: Vec<PollFd<'_>> =
                listeners.map(|one| PollFd::new(&**one, PollFlags::IN)).collect();
            let is_ready = await_any(&mut events, Some(Instant::now() + Duration::from_secs(3600)));
            // The others wait in the kernel's queue.
            let is_full = |callers: &mut Callers| !callers.is_closed && callers.are_many();
            let callers = self.event.wait_while(self.callers(), is_full);
            if callers.unwrap_or_else(PoisonError::into_inner).is_closed {
                return;
            }
            let accepted = self.listeners.iter().filter_map(|one| one.accept().ok());
            let count = accepted.map(|(socket, _)| self.clone().admit(socket)).count();
            if count == 0 && is_ready != Ok(false) {
                // A resource is short, or another error stays.
                thread::sleep(REST);
            }
        }
    }

    /// Lets a caller prove the key.
    fn admit(self: Arc<Self>, socket: TcpStream) {
        self.callers().proving += 1;
        let state = Arc::clone(&self);
        let spawned = spawn(move || {
            let deadline = Instant::now() + PROOF_PATIENCE;
            let proved = MeetingChannel::prove(socket, &state.identity, true, deadline);
            let mut callers = state.callers();
            callers.proving -= 1;
            if !callers.is_closed {
                callers.waiting.extend(proved.ok());
            }
            drop(callers);
            state.event.notify_all();
        });
        if spawned.is_err() {
            self.callers().proving -= 1;
        }
    }
}

impl PortName {
    /// Connects to the port and proves its key. The result waits to be accepted.
    ///
    /// # Errors
    /// The port is not reached, or is closed.
    pub fn connect(
        &self,
        caller: &Caller,
        deadline: Instant,
    ) -> Result<MeetingChannel, MeetingError> {
        let all = interfaces::list().unwrap_or_default();
        let is_here = self.network == interfaces::network_identity();
        let direct = interfaces::order(is_here, self.listeners.clone(), &all);
        let mut tried = Vec::new();
        for address in direct {
            match TcpStream::connect_timeout(&address, limit(deadline)) {
                Ok(socket) => return self.prove(socket, deadline),
                Err(error) => tried.push(format!("{address}: {error}")),
            }
        }
        for gateway in &caller.gateways {
            match caller.call_through(*gateway, self, deadline) {
                Ok(socket) => return self.prove(socket, deadline),
                Err(text) => tried.push(format!("gateway {gateway}: {text}")),
            }
        }
        if tried.is_empty() {
            tried.push("it listens on another host's loopback only".into());
        }
        Err(MeetingError::Unreachable(tried.join(", ")))
    }

    fn prove(&self, socket: TcpStream, deadline: Instant) -> Result<MeetingChannel, MeetingError> {
        let deadline = deadline.min(Instant::now() + PROOF_PATIENCE);
        match MeetingChannel::prove(socket, &self.identity(), false, deadline) {
            Err(MeetingError::Gone | MeetingError::Late) => Err(MeetingError::Refused),
            proved => proved,
        }
    }

    fn identity(&self) -> Identity {
        Identity::of(&self.key, self.process.job)
    }

    /// The name as text, of less than 256 printable characters.
    pub fn emit(&self) -> Zeroizing<String> {
        let ProcessId { job, rank } = self.process;
        let mut bytes = Zeroizing::new(Vec::with_capacity(BYTES_MAX));
        bytes.extend(job.to_le_bytes());
        bytes.extend(rank.to_le_bytes());
        bytes.extend(self.network);
        bytes.extend(self.key.expose());
        self.listeners.iter().for_each(|one| interfaces::emit_one(&mut bytes, *one));
        let mut text = Zeroizing::new(String::with_capacity(NAME_MAX));
        text.push_str(PREFIX);
        BASE64_URL_SAFE_NO_PAD.encode_string(&*bytes, &mut text);
        text
    }
}

impl FromStr for PortName {
    type Err = MeetingError;

    fn from_str(text: &str) -> Result<Self, MeetingError> {
        let text = text.trim().strip_prefix(PREFIX).filter(|text| text.len() < NAME_MAX);
        let bytes = text.and_then(|text| BASE64_URL_SAFE_NO_PAD.decode(text).ok());
        let bytes = Zeroizing::new(bytes.ok_or(MeetingError::Name)?);
        parse(&bytes).ok_or(MeetingError::Name)
    }
}

fn parse(bytes: &[u8]) -> Option<PortName> {
    let (job, rest) = bytes.split_first_chunk::<8>()?;
    let (rank, rest) = rest.split_first_chunk::<4>()?;
    let (network, rest) = rest.split_first_chunk::<16>()?;
    let (key, rest) = rest.split_first_chunk::<32>()?;
    let process = ProcessId { job: u64::from_le_bytes(*job), rank: u32::from_le_bytes(*rank) };
    let listeners = interfaces::parse_all(rest).filter(|listeners| !listeners.is_empty())?;
    let key = Secret::made(|made| made.copy_from_slice(key));
    Some(PortName { process, network: *network, listeners, key })
}

impl fmt::Debug for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, listeners, .. } = self;
        f.debug_struct("PortName").field("process", process).field("at", listeners).finish()
    }
}

/// The identity of a process that connects, as its gateways know it.
#[derive(Clone)]
pub struct Caller {
    credentials: Arc<Credentials>,
    gateways: Vec<SocketAddr>,
}

impl Caller {
    /// The process of an instance.
    ///
    /// # Errors
    /// The setting of gateways is malformed.
    pub fn of(instance: &Instance) -> Result<Self, MeetingError> {
        let job = instance.job();
        let credentials =
            Credentials { rank: PeerId(job.rank()), job: job.id(), secret: job.secret().clone() };
        let led = gateways().map_err(MeetingError::System)?.lead(vec![("tcp".into(), vec![])], &[]);
        let address = led.unwrap_or_default().pop().unwrap_or_default().1;
        let gateways = Routes::parse(&address).map(|(routes, _)| routes.gateways().collect());
        Ok(Self { credentials: Arc::new(credentials), gateways: gateways.unwrap_or_default() })
    }

    /// Asks a gateway of this process's site for a connection to a port.
    fn call_through(
        &self,
        gateway: SocketAddr,
        name: &PortName,
        deadline: Instant,
    ) -> Result<TcpStream, String> {
        use std::io::{Read, Write};
        let text = |error: std::io::Error| error.to_string();
        let refused = |refusal: connect::Refusal| refusal.to_string();
        let mut socket = TcpStream::connect_timeout(&gateway, limit(deadline)).map_err(text)?;
        socket.set_read_timeout(Some(limit(deadline))).map_err(text)?;
        let nonce = *Secret::random().map_err(text)?.expose();
        let hello = self.credentials.hello(GATEWAY, false, 0, nonce);
        socket.write_all(&hello).map_err(text)?;
        let mut answer = [0; ANSWER_LEN];
        socket.read_exact(&mut answer).map_err(text)?;
        let (peer, listeners) = (PeerId(name.process.rank), name.listeners.clone());
        let request = Request { peer, via: Vec::new(), listeners };
        let asked = relay::ask(&self.credentials, &hello, &answer, &request).map_err(refused)?;
        socket.write_all(&asked).map_err(text)?;
        let mut reply = [0; REPLY_LEN];
        socket.read_exact(&mut reply).map_err(text)?;
        match Reply::parse(&reply) {
            Some(Reply::Open { .. }) => Ok(socket),
            Some(Reply::Refused(text)) => Err(text),
            Some(Reply::PathCosts(_)) | None => Err("it answers something else".into()),
        }
    }
}

/// Time for one attempt.
fn limit(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    left.clamp(Duration::from_millis(1), ATTEMPT_PATIENCE)
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = thread::Builder::new().name("canele-port".into()).stack_size(STACK_BYTES);
    cpu::without_signals(|| builder.spawn(work)).map(drop)
}

/// Beginning of names, with their version.
const PREFIX: &str = "canele1:";
/// `MPI_MAX_PORT_NAME` of MPICH's ABI, without the zero at the end.
const NAME_MAX: usize = 255;
/// Bytes in a name.
const BYTES_MAX: usize = (NAME_MAX - PREFIX.len()) * 3 / 4;
/// Maximum number of addresses in a name: that many of IPv6 fit.
const LISTENERS_MAX: usize = (BYTES_MAX - 60) / 19;

/// Maximum number of callers that are proving the key. Strangers hold no more threads than that.
const PROVING_MAX: usize = 32;
/// Maximum number of callers that wait to be accepted.
const WAITING_MAX: usize = 64;
/// Time to prove the key.
const PROOF_PATIENCE: Duration = Duration::from_secs(10);
/// Time for one address of a port.
const ATTEMPT_PATIENCE: Duration = Duration::from_secs(5);
/// Pause of a listener when nothing can be accepted.
const REST: Duration = Duration::from_millis(200);
const STACK_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(listeners: &[SocketAddr]) -> PortName {
        let process = ProcessId { job: 7, rank: 3 };
        PortName { process, network: [9; 16], listeners: listeners.to_vec(), key: [5; 32].into() }
    }

    #[test]
    fn the_longest_name_fits_mpich_and_shows_its_key_to_no_debugger() {
        let six: SocketAddr = "[2001:db8::1]:65535".parse().unwrap();
        let long = name(&[six; LISTENERS_MAX]);
        let text = long.emit();
        assert!(text.len() <= NAME_MAX && text.bytes().all(|byte| byte.is_ascii_graphic()));
        let read: PortName = text.parse().unwrap();
        assert_eq!((read.process, &read.listeners), (long.process, &long.listeners));
        assert_eq!(read.key.expose(), long.key.expose());
        let shown = format!("{read:?}");
        assert!(shown.contains("rank: 3") && !shown.contains("BQUF") && !shown.contains("05"));
    }

    #[test]
    fn broken_names_are_refused() {
        let text = name(&["10.1.2.3:4".parse().unwrap()]).emit().to_string();
        assert!(text.parse::<PortName>().is_ok());
        assert!(format!(" {text}\n").parse::<PortName>().is_ok(), "copied with blanks");
        for wrong in ["", "canele1:", &text[1..], &text[..text.len() - 3], &text.replace('1', "2")]
        {
            assert_eq!(wrong.parse::<PortName>().unwrap_err(), MeetingError::Name, "{wrong}");
        }
    }

    fn caller() -> Caller {
        let credentials = Credentials { rank: PeerId(0), job: 1, secret: [1; 32].into() };
        Caller { credentials: Arc::new(credentials), gateways: Vec::new() }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn only_those_with_the_key_reach_a_port_whatever_strangers_do() {
        use std::io::Write;
        let port = Port::of(ProcessId { job: 7, rank: 3 }).unwrap();
        let mut strangers = Vec::new();
        for _ in 0..PROVING_MAX / 2 {
            let mut stranger = TcpStream::connect(port.name().listeners[0]).unwrap();
            stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            strangers.push(stranger);
            strangers.push(TcpStream::connect(port.name().listeners[0]).unwrap());
        }
        let other_key = PortName { key: [6; 32].into(), ..port.name().clone() };
        assert_eq!(other_key.connect(&caller(), soon()).unwrap_err(), MeetingError::Key);
        assert_eq!(
            port.await_caller(Some(Duration::ZERO)).unwrap_err(),
            MeetingError::NotConnected(0)
        );
        let mut one = port.name().connect(&caller(), soon()).unwrap();
        let mut other = port.await_caller(Some(Duration::from_secs(60))).unwrap();
        let swapped = thread::spawn(move || one.swap(b"hello", None).unwrap());
        assert_eq!(other.swap(&[7; 100_000], None).unwrap(), b"hello");
        assert_eq!(swapped.join().unwrap(), [7; 100_000]);
    }

    #[test]
    fn a_closed_port_lets_nobody_wait() {
        let port = Arc::new(Port::of(ProcessId { job: 7, rank: 3 }).unwrap());
        let name = port.name().clone();
        let mut early = name.connect(&caller(), soon()).unwrap();
        let waiting = port.clone();
        let accepted = thread::spawn(move || {
            let first = waiting.await_caller(None);
            drop(first);
            waiting.await_caller(None)
        });
        // The first was accepted, and given up.
        assert_eq!(early.swap(b"", None).unwrap_err(), MeetingError::Gone);
        port.close();
        assert_eq!(accepted.join().unwrap().unwrap_err(), MeetingError::Closed);
        drop(port);
        let refused = name.connect(&caller(), soon()).unwrap_err();
        assert!(
            matches!(refused, MeetingError::Unreachable(_) | MeetingError::Refused),
            "{refused}"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_refused(text in "(canele1:)?[ -~]{0,300}") {
            if let Ok(name) = text.parse::<PortName>() {
                prop_assert!(name.emit().parse::<PortName>().is_ok());
            }
        }

        #[test]
        fn any_bytes_are_a_name_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(&bytes));
            if let Ok(name) = text.parse::<PortName>() {
                prop_assert_eq!(&*name.emit(), &text);
            }
        }
    }
}
