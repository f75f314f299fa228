//! The thread that carries bytes: between connections over TCP, and channels of the links to other gateways.
//!
//! A gateway that has waited for bytes for milliseconds finds its code and data cold in the caches, and the way from the
//! kernel's word that they have come to the write that passes them on is what it costs whoever waits for them. Here
//! that way is one short loop: a wait, a read, a write.

mod links;
mod load;
mod streams;
mod words;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use driver::relay::{PathCost, Session};
use driver::{FarTcp, Identity, QuicRail, Stalls, Thread, TrunkConfig};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use wire::PeerId;

use self::links::{Answer, CALLER, Call, Key, Links};
use self::load::{End, Load};
use self::streams::{Link, Streams};
use crate::account::Ledger;
use crate::half_connection::Leg;
use crate::options::Pass;

/// The thread; with it ends what it carries.
pub(crate) struct Carrier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    epoll: OwnedFd,
    bell: OwnedFd,
    /// What is to be done from now on.
    inbox: Mutex<Vec<Order>>,
    ends: AtomicBool,
}

/// What the thread is asked for.
enum Order {
    Carry(Box<Load>),
    /// A connection is a link from now on, whence it came, and how the other gateway is called.
    Link(Box<Link>, SocketAddr, Vec<SocketAddr>),
    Call(Call),
    Reply {
        key: Key,
        reply: Vec<u8>,
    },
    /// Nobody wants the channel.
    Leave(Key),
    /// What the links to these gateways cost.
    Costs(Vec<SocketAddr>, oneshot::Sender<Vec<PathCost>>),
    Account(std::sync::mpsc::Sender<String>),
}

/// A request that another gateway has made.
pub(crate) struct Arrival {
    key: Key,
    pub from: SocketAddr,
    pub request: Vec<u8>,
}

/// This side's end of a channel that nothing is carried on yet.
pub(crate) struct ChannelEnd {
    key: Key,
    shared: Arc<Shared>,
    is_carried: bool,
}

/// What another gateway has replied, if there is a way to it.
pub(crate) struct Called {
    pub end: ChannelEnd,
    pub reply: Vec<u8>,
    pub round_trip: Duration,
}

impl Carrier {
    /// Begins with nothing. Other gateways call at `sockets`; without any there are no links to others.
    ///
    /// # Errors
    /// When the system gives no thread, or no descriptor.
    pub fn start(
        pass: &Pass,
        sockets: Vec<UdpSocket>,
        ledger: Arc<Ledger>,
    ) -> io::Result<(Self, mpsc::Receiver<Arrival>)> {
        let shared = Arc::new(Shared::open()?);
        let rail = if sockets.is_empty() { None } else { Some(rail(pass, sockets)?) };
        let (arrivals, arrived) = mpsc::channel(ARRIVALS_MAX);
        let links = Links::new(rail, Streams::new(Arc::clone(&shared)), arrivals, ledger);
        for descriptor in links.descriptors() {
            let data = epoll::EventData::new_u64(RAIL);
            epoll::add(&shared.epoll, descriptor, data, epoll::EventFlags::IN)?;
        }
        let stalls = Stalls::new()?;
        let data = epoll::EventData::new_u64(STALLS);
        epoll::add(&shared.epoll, stalls.descriptor(), data, epoll::EventFlags::IN)?;
        let own = Arc::clone(&shared);
        let builder = thread::Builder::new().name("canele-carrier".into());
        let thread = builder.spawn(move || {
            // As the thread that lets callers in does.
            let _ = Thread::current().map(Thread::precede);
            carry(&own, links, stalls);
        })?;
        Ok((Self { shared, thread: Some(thread) }, arrived))
    }

    /// Carries until both ends have said all, or one breaks off: then the other is broken off, too.
    pub async fn carry(&self, one: Leg, other: Leg, ledger: Arc<Ledger>) {
        let (done, ended) = oneshot::channel();
        // Fails for sockets that are lost; with them goes what is carried.
        if let (Ok(one), Ok(other)) = (one.into_end(), other.into_end()) {
            let load = Load::new([one, other], ledger, done);
            self.shared.order(Order::Carry(Box::new(load)));
            // An error: the thread ends, and what it carries with it.
            let _ = ended.await;
        }
    }

    /// Takes a connection over, on which two gateways have proved themselves, as a link. The other gateway is called by
    /// it at these addresses.
    ///
    /// # Errors
    /// When the socket is lost.
    pub fn link(
        &self,
        stream: TcpStream,
        session: Session,
        called: Vec<SocketAddr>,
    ) -> io::Result<()> {
        let socket = stream.into_std()?;
        let from = socket.peer_addr()?;
        self.shared.order(Order::Link(Box::new(Link { socket, session }), from, called));
        Ok(())
    }

    /// Asks another gateway by the link to it, which is opened over UDP where there is none if `opens` says so. None
    /// where no link leads there.
    ///
    /// # Errors
    /// When the link to it is lost meanwhile.
    pub async fn call(
        &self,
        gateway: SocketAddr,
        request: Vec<u8>,
        opens: bool,
    ) -> Option<io::Result<Called>> {
        let (answer, answered) = oneshot::channel();
        self.shared.order(Order::Call(Call { gateway, request, opens, answer }));
        match answered.await {
            Ok(Answer::Reply { key, reply, round_trip }) => {
                Some(Ok(Called { end: self.end_of(key), reply, round_trip }))
            }
            Ok(Answer::NoWay) => None,
            Ok(Answer::Lost) | Err(_) => Some(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// What the links to other gateways cost; unknown where there never was one, closed where it was lost.
    pub async fn costs(&self, gateways: Vec<SocketAddr>) -> Vec<PathCost> {
        let (sender, told) = oneshot::channel();
        self.shared.order(Order::Costs(gateways, sender));
        // An error: the thread has ended, and all links.
        told.await.unwrap_or_default()
    }

    /// This side's end of what somebody has asked for.
    pub fn end_of_arrival(&self, arrival: &Arrival) -> ChannelEnd {
        self.end_of(arrival.key)
    }

    fn end_of(&self, key: Key) -> ChannelEnd {
        ChannelEnd { key, shared: Arc::clone(&self.shared), is_carried: false }
    }

    /// A line for each link.
    pub fn account(&self) -> String {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.shared.order(Order::Account(sender));
        receiver.recv_timeout(ACCOUNT_PATIENCE).unwrap_or_default()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // One that has panicked carries nothing any more.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn open() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Self { epoll, bell, inbox: Mutex::default(), ends: AtomicBool::new(false) })
    }

    fn order(&self, order: Order) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.ring();
    }

    fn ring(&self) {
        // Fails for a bell that has rung too often to be overheard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl ChannelEnd {
    /// Replies to the request.
    pub fn reply(&self, reply: &[u8]) {
        self.shared.order(Order::Reply { key: self.key, reply: reply.to_vec() });
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        if !self.is_carried {
            self.shared.order(Order::Leave(self.key));
        }
    }
}

impl Leg {
    fn into_end(self) -> io::Result<End> {
        match self {
            Self::Tcp(stream, far) => Ok(End::Tcp(stream.into_std()?, far)),
            Self::Trunk(mut end) => {
                end.is_carried = true;
                Ok(End::Channel(end.key))
            }
        }
    }
}

fn rail(pass: &Pass, sockets: Vec<UdpSocket>) -> io::Result<QuicRail> {
    let mut own = [0; 4];
    getrandom::fill(&mut own).map_err(|error| io::Error::other(error.to_string()))?;
    let config = TrunkConfig {
        own: PeerId(u32::from_le_bytes(own) | CALLER),
        job: pass.job,
        identity: Identity::of(&pass.secret, pass.job),
        sockets,
        connect_timeout: PATIENCE,
    };
    QuicRail::between_gateways(config).map_err(io::Error::other)
}

/// All that is carried, each in a place of its own.
pub(crate) struct Loads {
    places: Vec<Option<Box<Load>>>,
    free: Vec<usize>,
    /// How many have an end that is looked after.
    cared_for: usize,
    /// Ends that were given much, to be looked at.
    begun: Vec<u64>,
    shared: Arc<Shared>,
}

fn carry(shared: &Arc<Shared>, mut links: Links, mut stalls: Stalls) {
    let nothing =
        epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(BELL) };
    let mut loads = Loads {
        places: Vec::new(),
        free: Vec::new(),
        cared_for: 0,
        begun: Vec::new(),
        shared: Arc::clone(shared),
    };
    let mut events = [nothing; EVENTS];
    let mut buffer = vec![0; BUFFER_LEN];
    let mut next_look = Instant::now();
    while !shared.ends.load(Ordering::Acquire) {
        let mut until = (loads.cared_for > 0 || links.are_cared_for()).then(|| {
            let left = next_look.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        loads.begun.drain(..).for_each(|key| stalls.add(key));
        links.streams().take_begun().for_each(|key| stalls.add(key));
        stalls.prepare_sleep();
        let mut has_rail_events = !links.prepare_sleep();
        if has_rail_events {
            until = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let count = epoll::wait(&shared.epoll, &mut events[..], until.as_ref());
        links.finish_sleep();
        let mut is_rung = false;
        for event in &events[..count.unwrap_or(0)] {
            match event.data.u64() {
                BELL => is_rung = true,
                RAIL => has_rail_events = true,
                STALLS => {
                    stalls.hear();
                    stalls.look(|key| match streams::of_key(*key) {
                        Some(id) => links.streams().push(id),
                        None => loads.push(*key),
                    });
                }
                key if links.serve_stream(key, event.flags, &mut loads, &mut buffer) => {}
                key => loads.serve(key, event.flags, &mut links, &mut buffer),
            }
        }
        if has_rail_events {
            links.serve(&mut loads);
        }
        // Behind all events, so that none is for who had the place before.
        if is_rung {
            loads.take_in(&mut links);
        }
        if until.is_some() && Instant::now() >= next_look {
            loads.look(&mut links);
            links.look(&mut loads);
            next_look = Instant::now() + FarTcp::LOOK_EVERY;
        }
    }
    links.streams().keep();
}

impl Loads {
    #[cold]
    fn take_in(&mut self, links: &mut Links) {
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.shared.bell, &mut rung);
        let inbox =
            std::mem::take(&mut *self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        for order in inbox {
            match order {
                Order::Carry(load) => self.begin(load, links),
                Order::Link(link, from, called) => links.add(*link, from, &called),
                Order::Call(call) => links.call(call),
                Order::Reply { key, reply } => links.reply(key, &reply),
                Order::Leave(key) => links.leave(key, false),
                // Who has given up does not want to know.
                Order::Costs(gateways, sender) => drop(sender.send(links.costs(&gateways))),
                Order::Account(sender) => drop(sender.send(links.account())),
            }
        }
    }

    fn begin(&mut self, load: Box<Load>, links: &mut Links) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.cared_for += usize::from(load.is_cared_for());
        let load = self.places[at].insert(load);
        let begun = match load.channel() {
            None => Ok(()),
            Some((side, key)) => match links.join(key, at) {
                None => Err(io::ErrorKind::ConnectionReset.into()),
                Some((early, is_over)) => load.begin_at(side, early, is_over, links),
            },
        };
        self.settle(at, begun, links);
    }

    fn serve(&mut self, key: u64, flags: epoll::EventFlags, links: &mut Links, buffer: &mut [u8]) {
        let (at, side) = (key as usize / 2, key as usize % 2);
        let Some(Some(load)) = self.places.get_mut(at) else { return };
        let served = load.serve(side, flags, links, buffer);
        self.settle(at, served, links);
    }

    /// There may be room for what waits to be said on the load's channel.
    fn stir(&mut self, at: usize, links: &mut Links) {
        let Some((load, channel)) = self.with_channel(at) else { return };
        let flushed = load.flush(1 - channel, links);
        self.settle(at, flushed, links);
    }

    /// The load's channel says this.
    fn take(&mut self, at: usize, bytes: &[u8]) {
        if let Some((load, channel)) = self.with_channel(at) {
            load.take(channel, bytes);
        }
    }

    /// The load's channel has said all.
    fn take_end(&mut self, at: usize) {
        if let Some((load, channel)) = self.with_channel(at) {
            load.take_end(channel);
        }
    }

    /// Passes on what the load's channel has said.
    fn pass_on(&mut self, at: usize, links: &mut Links) {
        let Some((load, channel)) = self.with_channel(at) else { return };
        let flushed = load.flush(channel, links);
        self.settle(at, flushed, links);
    }

    /// The load at a place, and which of its ends is a channel.
    fn with_channel(&mut self, at: usize) -> Option<(&mut Load, usize)> {
        let load = self.places.get_mut(at)?.as_mut()?;
        let (channel, _) = load.channel()?;
        Some((load, channel))
    }

    /// Pushes an end that does not send what it could; whether it is to be looked at again.
    fn push(&mut self, key: u64) -> bool {
        let (at, side) = (key as usize / 2, key as usize % 2);
        let load = self.places.get_mut(at).and_then(Option::as_mut);
        load.is_some_and(|load| load.push(side))
    }

    /// Goes on with a load that was served, or ends it.
    fn settle(&mut self, at: usize, served: io::Result<()>, links: &mut Links) {
        let Some(Some(load)) = self.places.get_mut(at) else { return };
        let served = served.and_then(|()| load.watch(&self.shared.epoll, at, &mut self.begun));
        if served.is_err() || load.has_ended() {
            self.end(at, served, links);
        }
    }

    /// Looks after those that are.
    #[cold]
    fn look(&mut self, links: &mut Links) {
        for at in 0..self.places.len() {
            let Some(load) = &mut self.places[at] else { continue };
            let looked = load.look();
            if looked.is_err() {
                self.end(at, looked, links);
            }
        }
    }

    #[cold]
    fn end(&mut self, at: usize, how: io::Result<()>, links: &mut Links) {
        let Some(load) = self.places.get_mut(at).and_then(Option::take) else { return };
        self.free.push(at);
        self.cared_for -= usize::from(load.is_cared_for());
        if let Some((_, key)) = load.channel() {
            links.leave(key, how.is_ok());
        }
        load.end(&how);
    }
}

/// The bell's key, and the rail's, beyond all ends'.
const BELL: u64 = u64::MAX;
const RAIL: u64 = BELL - 1;
/// That of what tells that connections are to be looked at.
const STALLS: u64 = BELL - 2;
/// Events of one look.
const EVENTS: usize = 64;
/// On one way of a connection at most so much is read at once.
const BUFFER_LEN: usize = 64 << 10;
/// How long another gateway is called over UDP: two round trips and a packet lost.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);
/// Requests of other gateways that wait to be heard.
const ARRIVALS_MAX: usize = 1024;
/// An account is told at once, unless the thread has ended.
const ACCOUNT_PATIENCE: Duration = Duration::from_secs(1);
