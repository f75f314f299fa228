//! Thread that relays bytes between TCP connections and channels of the links to other gateways.
//!
//! After milliseconds of waiting, a gateway's code and data are cold in the caches. The path from epoll's
//! event to the write that forwards the bytes adds to the latency of every connection. So it is one short
//! loop: wait, read, write.

mod links;
mod messages;
mod relay;
mod streams;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ::relay::{PathCost, Session};
use auth::Identity;
use cpu::Thread;
use netpath::{QdiscDrops, WanTcp};
use rail_quic::{QuicRail, TrunkConfig};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use topo::StoredCosts;
use wire::PeerId;

use self::links::{CALLER, Call, CallOutcome, Key, Links};
use self::relay::{Relay, RelayEnd};
use self::streams::{NewLink, Streams};
use crate::account::Account;
use crate::half_connection::HalfConnection;
use crate::options::Pass;

/// Handle to the thread. The connections it relays end with it.
pub(crate) struct Carrier {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

/// Control of the thread by others.
struct Control {
    epoll: OwnedFd,
    /// Eventfd that wakes the thread.
    wake_fd: OwnedFd,
    /// Orders that the thread has not taken yet.
    inbox: Mutex<Vec<Order>>,
    is_ending: AtomicBool,
}

/// Orders to the thread.
enum Order {
    Carry(Box<Relay>),
    /// Makes a connection a link: its peer address, and the addresses at which the other gateway listens.
    NewLink(Box<NewLink>, SocketAddr, Vec<SocketAddr>),
    Call(Call),
    Reply {
        key: Key,
        reply: Vec<u8>,
    },
    /// Closes a channel that nobody wants.
    CloseChannel(Key),
    /// Asks for the path costs of the links to these gateways.
    Costs(Vec<SocketAddr>, oneshot::Sender<Vec<PathCost>>),
    Report(std::sync::mpsc::Sender<String>),
}

/// A request that another gateway has sent.
pub(crate) struct IncomingRequest {
    key: Key,
    pub from: SocketAddr,
    pub request: Vec<u8>,
}

/// An end of a relay, as epoll's events name it: the relay's slot and the side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndKey(u64);

/// This side's end of a channel that relays nothing yet.
pub(crate) struct ChannelEnd {
    key: Key,
    control: Arc<Control>,
    is_carried: bool,
}

/// Reply of another gateway to a request.
pub(crate) struct Called {
    pub end: ChannelEnd,
    pub reply: Vec<u8>,
    pub round_trip: Duration,
}

impl Carrier {
    /// Starts the thread. Other gateways call at `sockets`; without sockets there are no links over UDP.
    ///
    /// # Errors
    /// Fails if the system provides no thread or no descriptor.
    pub fn start(
        pass: &Pass,
        sockets: Vec<UdpSocket>,
        account: Arc<Account>,
    ) -> io::Result<(Self, mpsc::Receiver<IncomingRequest>)> {
        let control = Arc::new(Control::open()?);
        let rail = if sockets.is_empty() { None } else { Some(rail(pass, sockets)?) };
        let (incoming, requests) = mpsc::channel(INCOMING_MAX);
        let links = Links::new(rail, Streams::new(Arc::clone(&control)), incoming, account);
        for descriptor in links.descriptors() {
            let data = epoll::EventData::new_u64(RAIL);
            epoll::add(&control.epoll, descriptor, data, epoll::EventFlags::IN)?;
        }
        let qdisc_drops = QdiscDrops::new()?;
        let data = epoll::EventData::new_u64(QDISC_DROPS);
        epoll::add(&control.epoll, qdisc_drops.descriptor(), data, epoll::EventFlags::IN)?;
        let thread_control = Arc::clone(&control);
        let builder = thread::Builder::new().name("canele-carrier".into());
        let thread = builder.spawn(move || {
            // Takes precedence over busy ranks, as the thread that accepts callers does.
            let _ = Thread::current().map(Thread::precede);
            carry(&thread_control, links, qdisc_drops);
        })?;
        Ok((Self { control, thread: Some(thread) }, requests))
    }

    /// Relays bytes until both ends have finished sending, or one breaks off; then the other is reset, too.
    pub async fn carry(&self, one: HalfConnection, other: HalfConnection, account: Arc<Account>) {
        let (done, ended) = oneshot::channel();
        // Fails for sockets that are lost; the other end then closes, too.
        if let (Ok(one), Ok(other)) = (one.into_end(), other.into_end()) {
            let relay = Relay::new([one, other], account, done);
            self.control.order(Order::Carry(Box::new(relay)));
            // An error means that the thread ends, and all connections with it.
            let _ = ended.await;
        }
    }

    /// Takes over an authenticated connection between two gateways as a link. `called` holds the addresses at
    /// which the other gateway listens.
    ///
    /// # Errors
    /// Fails if the socket is lost.
    pub fn link(
        &self,
        stream: TcpStream,
        session: Session,
        called: Vec<SocketAddr>,
    ) -> io::Result<()> {
        let socket = stream.into_std()?;
        let from = socket.peer_addr()?;
        self.control.order(Order::NewLink(Box::new(NewLink { socket, session }), from, called));
        Ok(())
    }

    /// Sends a request over the link to another gateway. If there is no link and `opens` is set, one is
    /// opened over UDP. Returns none if there is no link.
    ///
    /// # Errors
    /// Fails if the link is lost meanwhile.
    pub async fn call(
        &self,
        gateway: SocketAddr,
        request: Vec<u8>,
        opens: bool,
    ) -> Option<io::Result<Called>> {
        let (answer, outcome) = oneshot::channel();
        self.control.order(Order::Call(Call { gateway, request, opens, answer }));
        match outcome.await {
            Ok(CallOutcome::Reply { key, reply, round_trip }) => {
                Some(Ok(Called { end: self.end_of(key), reply, round_trip }))
            }
            Ok(CallOutcome::NoLink) => None,
            Ok(CallOutcome::Lost) | Err(_) => Some(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// Returns the path costs of the links to other gateways: unknown if there never was a link, closed if it
    /// was lost.
    pub async fn costs(&self, gateways: Vec<SocketAddr>) -> Vec<PathCost> {
        let (sender, costs) = oneshot::channel();
        self.control.order(Order::Costs(gateways, sender));
        // An error means that the thread has ended, and all links with it.
        costs.await.unwrap_or_default()
    }

    /// Returns this side's end of the channel of a request.
    pub fn end_of_request(&self, request: &IncomingRequest) -> ChannelEnd {
        self.end_of(request.key)
    }

    fn end_of(&self, key: Key) -> ChannelEnd {
        ChannelEnd { key, control: Arc::clone(&self.control), is_carried: false }
    }

    /// Returns a line for each link.
    pub fn account(&self) -> String {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.control.order(Order::Report(sender));
        receiver.recv_timeout(ACCOUNT_PATIENCE).unwrap_or_default()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.control.is_ending.store(true, Ordering::Release);
        self.control.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked relays nothing any more.
            let _ = thread.join();
        }
    }
}

impl Control {
    fn open() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake_fd, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake_fd, inbox: Mutex::default(), is_ending: AtomicBool::new(false) })
    }

    fn order(&self, order: Order) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.wake();
    }

    fn wake(&self) {
        // Fails only if the counter of the eventfd overflows; then the thread wakes anyway.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }
}

impl EndKey {
    fn new(slot: usize, side: usize) -> Self {
        Self((slot * 2 + side) as u64)
    }

    fn slot(self) -> usize {
        self.0 as usize / 2
    }

    fn side(self) -> usize {
        self.0 as usize % 2
    }
}

impl ChannelEnd {
    /// Sends the reply to the request.
    pub fn reply(&self, reply: &[u8]) {
        self.control.order(Order::Reply { key: self.key, reply: reply.to_vec() });
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        if !self.is_carried {
            self.control.order(Order::CloseChannel(self.key));
        }
    }
}

impl HalfConnection {
    fn into_end(self) -> io::Result<RelayEnd> {
        match self {
            Self::Tcp(stream, wan) => Ok(RelayEnd::Tcp(stream.into_std()?, wan)),
            Self::Trunk(mut end) => {
                end.is_carried = true;
                Ok(RelayEnd::Channel(end.key))
            }
        }
    }
}

fn rail(pass: &Pass, sockets: Vec<UdpSocket>) -> io::Result<QuicRail> {
    let mut number = [0; 4];
    getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
    let config = TrunkConfig {
        own: PeerId(u32::from_le_bytes(number) | CALLER),
        job: pass.job,
        identity: Identity::of(&pass.secret, pass.job),
        sockets,
        connect_timeout: PATIENCE,
        costs: Arc::new(StoredCosts::of_environment()),
    };
    QuicRail::between_gateways(config).map_err(io::Error::other)
}

/// All relayed connections, each in a slot of its own.
pub(crate) struct Relays {
    slots: Vec<Option<Box<Relay>>>,
    free: Vec<usize>,
    /// Number of connections with an end over a long path.
    wan_count: usize,
    /// Keys of ends that were given many bytes, to be checked for qdisc drops.
    drop_checks: Vec<u64>,
    control: Arc<Control>,
}

fn carry(control: &Arc<Control>, mut links: Links, mut qdisc_drops: QdiscDrops) {
    let nothing =
        epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(WAKE) };
    let mut relays = Relays {
        slots: Vec::new(),
        free: Vec::new(),
        wan_count: 0,
        drop_checks: Vec::new(),
        control: Arc::clone(control),
    };
    let mut events = [nothing; EVENTS];
    let mut buffer = vec![0; BUFFER_LEN];
    let mut next_look = Instant::now();
    while !control.is_ending.load(Ordering::Acquire) {
        let mut until = (relays.wan_count > 0 || links.has_streams()).then(|| {
            let left = next_look.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        relays.drop_checks.drain(..).for_each(|key| qdisc_drops.add(key));
        links.streams().take_drop_checks().for_each(|key| qdisc_drops.add(key));
        qdisc_drops.prepare_sleep();
        let mut has_rail_events = !links.prepare_sleep();
        if has_rail_events {
            until = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let count = epoll::wait(&control.epoll, &mut events[..], until.as_ref());
        links.finish_sleep();
        let mut is_woken = false;
        for event in &events[..count.unwrap_or(0)] {
            match event.data.u64() {
                WAKE => is_woken = true,
                RAIL => has_rail_events = true,
                QDISC_DROPS => {
                    qdisc_drops.hear();
                    qdisc_drops.look(|key| match streams::of_key(*key) {
                        Some(id) => links.streams().push(id),
                        None => relays.push(EndKey(*key)),
                    });
                }
                key if links.serve_stream(key, event.flags, &mut relays, &mut buffer) => {}
                key => relays.serve(key, event.flags, &mut links, &mut buffer),
            }
        }
        if has_rail_events {
            links.serve(&mut relays);
        }
        // New relays may reuse slots, so they come after all events of the slots' old users.
        if is_woken {
            relays.take_orders(&mut links);
        }
        if until.is_some() && Instant::now() >= next_look {
            relays.look(&mut links);
            links.look(&mut relays);
            next_look = Instant::now() + WanTcp::LOOK_EVERY;
        }
    }
    links.streams().store_knowledge();
}

impl Relays {
    #[cold]
    fn take_orders(&mut self, links: &mut Links) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.control.wake_fd, &mut count);
        let inbox =
            std::mem::take(&mut *self.control.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        for order in inbox {
            match order {
                Order::Carry(relay) => self.begin(relay, links),
                Order::NewLink(link, from, called) => links.add(*link, from, &called),
                Order::Call(call) => links.call(call),
                Order::Reply { key, reply } => links.reply(key, &reply),
                Order::CloseChannel(key) => links.close(key, false),
                // The caller may have given up.
                Order::Costs(gateways, sender) => drop(sender.send(links.costs(&gateways))),
                Order::Report(sender) => drop(sender.send(links.account())),
            }
        }
    }

    fn begin(&mut self, relay: Box<Relay>, links: &mut Links) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.wan_count += usize::from(relay.has_wan_end());
        let relay = self.slots[slot].insert(relay);
        let begun = relay.channels().try_for_each(|(side, key)| {
            let attached = links.attach(key, EndKey::new(slot, side));
            let (early, is_over) = attached.ok_or(io::ErrorKind::ConnectionReset)?;
            relay.begin_with(side, early, is_over, links)
        });
        self.settle(slot, begun, links);
    }

    fn serve(&mut self, key: u64, flags: epoll::EventFlags, links: &mut Links, buffer: &mut [u8]) {
        let end = EndKey(key);
        let Some(Some(relay)) = self.slots.get_mut(end.slot()) else { return };
        let served = relay.serve(end.side(), flags, links, buffer);
        self.settle(end.slot(), served, links);
    }

    /// Continues sending to a channel, which may have room again.
    fn resume_channel(&mut self, end: EndKey, links: &mut Links) {
        let Some(relay) = self.relay(end) else { return };
        let flushed = relay.flush(1 - end.side(), links);
        self.settle(end.slot(), flushed, links);
    }

    /// Queues bytes that a channel has received.
    fn receive(&mut self, end: EndKey, bytes: &[u8]) {
        if let Some(relay) = self.relay(end) {
            relay.receive(end.side(), bytes);
        }
    }

    /// Notes that no more bytes come from a channel.
    fn receive_end(&mut self, end: EndKey) {
        if let Some(relay) = self.relay(end) {
            relay.receive_end(end.side());
        }
    }

    /// Forwards what a channel has received.
    fn forward(&mut self, end: EndKey, links: &mut Links) {
        let Some(relay) = self.relay(end) else { return };
        let flushed = relay.flush(end.side(), links);
        self.settle(end.slot(), flushed, links);
    }

    /// Returns the relay of an end.
    fn relay(&mut self, end: EndKey) -> Option<&mut Relay> {
        self.slots.get_mut(end.slot())?.as_deref_mut()
    }

    /// Restarts an end whose packets were dropped by the qdisc. True if it has to be checked again.
    fn push(&mut self, end: EndKey) -> bool {
        self.relay(end).is_some_and(|relay| relay.push(end.side()))
    }

    /// Updates what epoll watches of a relay that was served, or ends the relay.
    fn settle(&mut self, slot: usize, served: io::Result<()>, links: &mut Links) {
        let Some(Some(relay)) = self.slots.get_mut(slot) else { return };
        let served =
            served.and_then(|()| relay.watch(&self.control.epoll, slot, &mut self.drop_checks));
        if served.is_err() || relay.is_finished() {
            self.end(slot, served, links);
        }
    }

    /// Runs the periodic tuning of ends over long paths.
    #[cold]
    fn look(&mut self, links: &mut Links) {
        for slot in 0..self.slots.len() {
            let Some(relay) = &mut self.slots[slot] else { continue };
            let looked = relay.look();
            if looked.is_err() {
                self.end(slot, looked, links);
            }
        }
    }

    #[cold]
    fn end(&mut self, slot: usize, result: io::Result<()>, links: &mut Links) {
        let Some(relay) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        self.free.push(slot);
        self.wan_count -= usize::from(relay.has_wan_end());
        relay.channels().for_each(|(_, key)| links.close(key, result.is_ok()));
        relay.end(&result);
    }
}

/// Epoll keys of the eventfd and the rail, beyond the keys of all ends.
const WAKE: u64 = u64::MAX;
const RAIL: u64 = WAKE - 1;
/// Epoll key of the timer for checks for qdisc drops.
const QDISC_DROPS: u64 = WAKE - 2;
/// Maximum number of events per wait.
const EVENTS: usize = 64;
/// Maximum number of bytes per read.
const BUFFER_LEN: usize = 64 << 10;
/// Time to connect to another gateway over UDP: two round trips and one lost packet.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);
/// Maximum number of requests of other gateways that wait to be served.
const INCOMING_MAX: usize = 1024;
/// Time to wait for an account; longer only if the thread has ended.
const ACCOUNT_PATIENCE: Duration = Duration::from_secs(1);
