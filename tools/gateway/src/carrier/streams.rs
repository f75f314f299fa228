//! Links over TCP: frames on a connection between two gateways, as the QUIC rail has them on a stream.
//!
//! The kernel paces and retransmits. On a long path the connection uses BBR, and little waits in the kernel.
//! The path's bandwidth is measured by padding in both directions when the link begins, as ranks do on their
//! own links; so ranks behind gateways need not. Each side sends a keepalive now and then, because a gateway
//! may stop while its host runs on, which TCP does not detect. Messages that open connections are sealed, so
//! nobody on the path can forge one.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cost::Cost;
use netpath::{DropWatch, Knowledge, QdiscDrops, TcpSample, WanTcp};
use rail::{Event, Fault, Post};
use rail_quic::{Inbox, Outbox};
use relay::Session;
use rustix::event::epoll;
use topo::StoredCosts;
use wire::PeerId;

use super::{Control, messages};

/// A connection that becomes a link.
pub(super) struct NewLink {
    pub socket: TcpStream,
    pub session: Session,
}

/// All links over TCP.
pub(super) struct Streams {
    control: Arc<Control>,
    knowledge: Knowledge,
    streams: HashMap<PeerId, Stream>,
    next: u32,
    /// Keys of links that were given many bytes, to be checked for qdisc drops.
    drop_checks: Vec<u64>,
}

struct Stream {
    link: NewLink,
    /// Wide-area tuning, if the round trip is long.
    wan: Option<WanTcp>,
    outbox: Outbox,
    inbox: Inbox,
    /// Bytes posted since the last flush.
    posted: usize,
    drop_watch: DropWatch,
    is_watched_for_room: bool,
    last_received: Instant,
    last_sent: Instant,
}

impl Streams {
    pub fn new(control: Arc<Control>) -> Self {
        let knowledge = Knowledge::of_hosts(Arc::new(StoredCosts::of_environment()));
        Self { control, knowledge, streams: HashMap::new(), next: 0, drop_checks: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// True if the identifier is that of a link over TCP.
    pub fn has(id: PeerId) -> bool {
        id.0 & NUMBERS == STREAM
    }

    /// Adds a link. Returns its identifier and its cost as far as the kernel knows it.
    ///
    /// # Errors
    /// Returns the system's error, or [`io::ErrorKind::QuotaExceeded`] if there are too many links.
    pub fn add(&mut self, link: NewLink) -> io::Result<(PeerId, Cost)> {
        if self.streams.len() >= STREAMS_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let id = PeerId(STREAM | self.next & !NUMBERS);
        self.next = self.next.wrapping_add(1);
        let round_trip_ns = TcpSample::of(&link.socket)?.round_trip_ns.unwrap_or(0);
        let round_trip = Duration::from_nanos(round_trip_ns);
        let mut wan = WanTcp::is_wan(round_trip)
            .then(|| WanTcp::begin_shared(&link.socket, round_trip, &self.knowledge));
        let usual = Cost::linear(round_trip_ns / 2, 0, RATE_GUESSED);
        let cost = wan.as_ref().and_then(WanTcp::cost).unwrap_or(usual);
        // Links that are measured at once share the path, and each sees only its part.
        let measured = self.streams.values().filter(|stream| stream.is_padding()).count();
        if let Some(wan) = &mut wan
            && measured < MEASURED_AT_ONCE
        {
            wan.begin_padding(&link.socket);
        }
        epoll::add(&self.control.epoll, &link.socket, key(id), epoll::EventFlags::IN)?;
        let now = Instant::now();
        let (outbox, inbox, drop_watch) =
            (Outbox::new(DEPTH), Inbox::default(), DropWatch::default());
        let is_watched_for_room = false;
        let (last_received, last_sent, posted) = (now, now, 0);
        let mut stream = Stream {
            link,
            wan,
            outbox,
            inbox,
            posted,
            drop_watch,
            is_watched_for_room,
            last_received,
            last_sent,
        };
        stream.watch(&self.control.epoll, id)?;
        self.streams.insert(id, stream);
        Ok((id, cost))
    }

    pub fn remove(&mut self, id: PeerId) {
        // Epoll forgets the socket when it closes.
        if let Some(mut stream) = self.streams.remove(&id) {
            stream.store_knowledge(&self.knowledge);
        }
    }

    /// Stores what was learned about all paths, for later links.
    pub fn store_knowledge(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.store_knowledge(&self.knowledge));
    }

    /// Queues a message in two parts, as a rail does. It is sent when the link is [flushed](Self::flush).
    pub fn post(&mut self, id: PeerId, parts: [&[u8]; 2]) -> Post {
        let Some(stream) = self.streams.get_mut(&id) else { return Post::Full };
        if !stream.outbox.has_room() {
            // The reader finds a lost socket.
            let _ = stream.flush();
        }
        let [head, _] = parts;
        if !messages::is_sealed(head) {
            return stream.post(parts);
        }
        let seal = stream.link.session.seal(head);
        let posted = stream.post([head, &seal]);
        if posted != Post::Full {
            stream.link.session.note_sent();
        }
        posted
    }

    /// Sends the queued messages.
    pub fn flush(&mut self, id: PeerId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let posted = std::mem::take(&mut stream.posted);
        if let Some(wan) = &mut stream.wan {
            wan.handle_frame(&stream.link.socket, posted);
        }
        // The reader finds a lost socket.
        let _ = stream.pump(&self.control.epoll, id);
        if posted >= QdiscDrops::MUCH && stream.drop_watch.begin() {
            self.drop_checks.push(key(id).u64());
        }
    }

    /// Handles epoll's events of a link.
    pub fn serve(
        &mut self,
        id: PeerId,
        flags: epoll::EventFlags,
        buffer: &mut [u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut served = Ok(());
        if flags.contains(epoll::EventFlags::OUT) {
            served = stream.flush();
            // Refused messages go before more padding.
            if stream.outbox.invite(0) {
                sink(Event::Room { peer: id });
            } else if let Some(cost) = stream.pad() {
                sink(Event::Cost { peer: id, cost });
            }
        }
        let served = served.and_then(|()| stream.read(id, buffer, sink));
        let served = served.and_then(|()| stream.watch(&self.control.epoll, id));
        if let Err(error) = served {
            self.remove(id);
            sink(Event::Down { peer: id, fault: fault(&error) });
        }
    }

    /// Returns the epoll keys of links that are to be [pushed](Self::push) from now on.
    pub fn take_drop_checks(&mut self) -> std::vec::Drain<'_, u64> {
        self.drop_checks.drain(..)
    }

    /// Restarts a link whose packets were dropped by the qdisc. True if it has to be checked again.
    pub fn push(&mut self, id: PeerId) -> bool {
        let Some(Stream { link, wan, outbox, drop_watch, .. }) = self.streams.get_mut(&id) else {
            return false;
        };
        let is_awaited = wan.as_mut().is_some_and(|wan| wan.adapt_cap(&link.socket));
        drop_watch.look(&link.socket) || (is_awaited || !outbox.is_empty()) && drop_watch.begin()
    }

    /// Runs the periodic work of all links. To be called every [`WanTcp::LOOK_EVERY`].
    pub fn look(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        let now = Instant::now();
        let mut lost = Vec::new();
        for (&id, stream) in &mut self.streams {
            if let Err(error) = stream.look(&self.control.epoll, id, now) {
                lost.push((id, error));
            }
        }
        for (id, error) in lost {
            self.remove(id);
            sink(Event::Down { peer: id, fault: fault(&error) });
        }
    }
}

impl Stream {
    fn post(&mut self, parts: [&[u8]; 2]) -> Post {
        let posted = self.outbox.post_parts(parts);
        if posted != Post::Full {
            self.posted += parts.iter().map(|part| part.len()).sum::<usize>();
        }
        posted
    }

    /// Writes as much as the kernel accepts, and waits for room for the rest.
    fn pump(&mut self, epoll: &OwnedFd, id: PeerId) -> io::Result<()> {
        self.flush()?;
        self.watch(epoll, id)
    }

    /// Writes as much as the kernel accepts.
    fn flush(&mut self) -> io::Result<()> {
        while let Some(chunk) = self.outbox.take(CHUNK_LEN) {
            let mut rest = chunk;
            match self.link.socket.write(&rest) {
                Ok(len) => drop(rest.split_to(len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.outbox.put_back(rest);
                    break;
                }
                Err(error) => return Err(error),
            }
            self.outbox.put_back(rest);
        }
        Ok(())
    }

    /// Sends padding as far as the kernel accepts it, after all other messages. Returns the link's cost once
    /// it is measured.
    fn pad(&mut self) -> Option<Cost> {
        let wan = self.wan.as_mut().filter(|wan| wan.is_padding())?;
        let (most, mut count) = (wan.allowance(), 0);
        while count < most && self.outbox.is_empty() {
            self.outbox.post_parts([&messages::padding(), &[]]);
            count += messages::PADDING_LEN;
            // The next reader gets the same error.
            self.flush().ok()?;
        }
        self.wan.as_mut()?.handle_padded(&self.link.socket, count)
    }

    fn is_padding(&self) -> bool {
        self.wan.as_ref().is_some_and(WanTcp::is_padding)
    }

    /// Stores what was learned about the path, for later links.
    fn store_knowledge(&mut self, knowledge: &Knowledge) {
        if let Some(wan) = &mut self.wan {
            wan.keep(&self.link.socket, knowledge);
        }
    }

    /// Watches for room in the socket while bytes wait here or at their source.
    fn watch(&mut self, epoll: &OwnedFd, id: PeerId) -> io::Result<()> {
        let waits = !self.outbox.is_empty() || self.outbox.has_refused() || self.is_padding();
        if std::mem::replace(&mut self.is_watched_for_room, waits) != waits {
            let mut wanted = epoll::EventFlags::IN;
            wanted.set(epoll::EventFlags::OUT, waits);
            epoll::modify(epoll, &self.link.socket, key(id), wanted)?;
        }
        Ok(())
    }

    fn read(
        &mut self,
        id: PeerId,
        buffer: &mut [u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> io::Result<()> {
        for _ in 0..READS {
            let len = match self.link.socket.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.last_received = Instant::now();
            let session = &mut self.link.session;
            let (mut is_authentic, mut is_padded) = (true, false);
            let taken = self.inbox.take(&buffer[..len], &mut |frame| {
                let message =
                    if messages::is_sealed(frame) { session.check(frame) } else { Ok(frame) };
                match message {
                    // A keepalive.
                    Ok([]) => {}
                    Ok(message) if messages::is_padding(message) => is_padded = true,
                    Ok(bytes) => sink(Event::Frame { peer: id, bytes }),
                    Err(_) => is_authentic = false,
                }
            });
            if taken.is_err() || !is_authentic {
                return Err(io::Error::new(ErrorKind::InvalidData, "an invalid message"));
            }
            // The other side measures its direction, so this side measures the other one.
            if let Some(wan) = self.wan.as_mut().filter(|_| is_padded) {
                wan.begin_padding(&self.link.socket);
            }
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    fn look(&mut self, epoll: &OwnedFd, id: PeerId, now: Instant) -> io::Result<()> {
        if let Some(wan) = &mut self.wan {
            wan.look(&self.link.socket)?;
        }
        if now.saturating_duration_since(self.last_received) > SILENCE {
            return Err(ErrorKind::TimedOut.into());
        }
        if now.saturating_duration_since(self.last_sent) > KEEPALIVE_EVERY {
            self.last_sent = now;
            // Without room, other bytes are on their way.
            self.outbox.post_parts([&[], &[]]);
            self.pump(epoll, id)?;
        }
        Ok(())
    }
}

fn fault(error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::InvalidData => Fault::Misbehaved(error.to_string()),
        _ => Fault::Lost(error.to_string()),
    }
}

/// Returns the epoll key of a link.
fn key(id: PeerId) -> epoll::EventData {
    epoll::EventData::new_u64(LINKS | u64::from(id.0))
}

/// Returns the link of an epoll key, if it is a link's.
pub(super) fn of_key(key: u64) -> Option<PeerId> {
    (key & !u64::from(u32::MAX) == LINKS).then_some(PeerId(key as u32))
}

/// Epoll keys of links, beyond those of relay slots.
const LINKS: u64 = 1 << 62;

/// Bits that mark identifiers of links over TCP; the QUIC rail's identifiers have others.
const NUMBERS: u32 = 0b11 << 30;
const STREAM: u32 = 1 << 30;

/// Maximum number of links over TCP.
const STREAMS_MAX: usize = 256;
/// Bytes that may wait here beyond the socket's buffer; short messages go first from then on.
const DEPTH: usize = 64 << 10;
const CHUNK_LEN: usize = 256 << 10;
/// Reads in a row; then the others follow.
const READS: usize = 4;
/// Interval of keepalives, and the silence after which a link is lost.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(10);
/// Maximum number of links that are measured at once.
const MEASURED_AT_ONCE: usize = 4;
/// Assumed bandwidth of a link that was not measured: 1 Gb/s.
const RATE_GUESSED: u64 = 125_000_000;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use relay::RelayHandshake;

    use super::*;

    /// Returns a link, the other end of its connection and the session that seals there.
    fn link() -> (Streams, PeerId, TcpStream, Session) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        for socket in [&socket, &other] {
            socket.set_nonblocking(true).unwrap();
        }
        let handshake = RelayHandshake::new(1, [7; 32]);
        let hello = handshake.hello([1; 32]);
        let answer = handshake.answer(&hello, [2; 32]).unwrap();
        let [own, other_session] =
            [true, false].map(|calls| handshake.session(&hello, &answer, calls));
        let mut streams = Streams::new(Arc::new(Control::open().unwrap()));
        let (id, _) = streams.add(NewLink { socket, session: own }).unwrap();
        assert!(Streams::has(id) && of_key(key(id).u64()) == Some(id));
        (streams, id, other, other_session)
    }

    /// Waits for epoll's events of a link and returns what they are.
    fn events_of(streams: &mut Streams, id: PeerId) -> Vec<String> {
        let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: key(id) };
        let mut events = [nothing; 4];
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        let control = Arc::clone(&streams.control);
        let count = epoll::wait(&control.epoll, &mut events[..], Some(&second)).unwrap();
        let mut texts = Vec::new();
        for event in &events[..count] {
            assert_eq!(of_key(event.data.u64()), Some(id));
            streams.serve(id, event.flags, &mut vec![0; 1 << 16], &mut |event| match event {
                Event::Frame { bytes, .. } => texts.push(format!("frame {bytes:?}")),
                Event::Room { .. } => texts.push("room".into()),
                Event::Cost { .. } => texts.push("cost".into()),
                Event::Down { fault, .. } => texts.push(format!("down: {}", fault.text().unwrap())),
                other => panic!("{other:?}"),
            });
        }
        texts
    }

    /// Posts a message and flushes the link.
    fn post(streams: &mut Streams, id: PeerId, message: &[u8]) -> Post {
        let posted = streams.post(id, [message, &[]]);
        streams.flush(id);
        posted
    }

    fn send(mut to: &TcpStream, frame: &[u8]) {
        to.write_all(&[&(frame.len() as u32).to_le_bytes(), frame].concat()).unwrap();
    }

    #[test]
    fn a_refused_sender_is_invited_once_even_if_the_queue_drained_meanwhile() {
        let (mut streams, id, mut other, _) = link();
        let long = vec![9; 60_000];
        while post(&mut streams, id, &long) != Post::Full {}
        let mut sink = vec![0; 1 << 20];
        // The queue drains with another flush, before epoll has reported room.
        for _ in 0..200 {
            while other.read(&mut sink).is_ok() {}
            streams.look(&mut |_| {});
            post(&mut streams, id, &[9]);
        }
        assert_eq!(events_of(&mut streams, id), ["room"]);
        let empty: [&str; 0] = [];
        assert_eq!(events_of(&mut streams, id), empty, "no further events");
    }

    /// Tunes a link as if its path were long. True if the system has BBR.
    fn tune_as_wan(streams: &mut Streams, id: PeerId) -> bool {
        let has_bbr = WanTcp::has_bbr();
        let stream = streams.streams.get_mut(&id).unwrap();
        let (socket, round_trip) = (&stream.link.socket, Duration::from_millis(3));
        stream.wan = Some(WanTcp::begin_shared(socket, round_trip, &streams.knowledge));
        has_bbr
    }

    /// Returns the number of padding frames that the other end has received, and the lengths of the others.
    fn last_received(mut other: &TcpStream, inbox: &mut Inbox) -> (usize, Vec<usize>) {
        let (mut padding, mut lens, mut buffer) = (0, Vec::new(), vec![0; 1 << 20]);
        while let Ok(len) = other.read(&mut buffer) {
            let hear = &mut |frame: &[u8]| match messages::is_padding(frame) {
                true => padding += 1,
                false => lens.push(frame.len()),
            };
            inbox.take(&buffer[..len], hear).unwrap();
        }
        (padding, lens)
    }

    #[test]
    fn padding_follows_all_other_messages_and_ends() {
        let (mut streams, id, other, _) = link();
        if !tune_as_wan(&mut streams, id) {
            return;
        }
        let long = vec![9; 60_000];
        let mut posted = 0;
        while post(&mut streams, id, &long) != Post::Full {
            posted += 1;
        }
        assert!(streams.streams[&id].is_padding(), "long messages have the way measured");
        let (mut inbox, mut padding, mut came, mut all) = (Inbox::default(), 0, 0, Vec::new());
        let limit = Instant::now() + Duration::from_secs(20);
        while streams.streams[&id].is_padding() {
            let (more, lens) = last_received(&other, &mut inbox);
            came += lens.len();
            assert!(more == 0 || came == posted && all == ["room"], "{came} of {posted}, {all:?}");
            padding += more;
            all.extend(events_of(&mut streams, id));
            assert!(Instant::now() < limit, "padding does not end");
        }
        assert_eq!(all, ["room", "cost"], "what was learned is events_of");
        assert!(
            padding > 0 && padding * messages::PADDING_LEN < PADDED_MAX,
            "{padding} of padding"
        );
        // One measurement is enough.
        assert_ne!(post(&mut streams, id, &long), Post::Full);
        assert!(!streams.streams[&id].is_padding());
    }

    #[test]
    fn padding_is_dropped_and_answered() {
        let (mut streams, id, other, _) = link();
        let padding = messages::padding();
        send(&other, &padding);
        assert_eq!(events_of(&mut streams, id), [""; 0], "a short path is not measured");
        let has_bbr = tune_as_wan(&mut streams, id);
        post(&mut streams, id, &[9; 100]);
        send(&other, &[]);
        assert_eq!(events_of(&mut streams, id), [""; 0]);
        assert!(
            !streams.streams[&id].is_padding(),
            "neither short messages nor keepalives ask for it"
        );
        send(&other, &padding);
        assert_eq!(events_of(&mut streams, id), [""; 0]);
        let is_answered = streams.streams[&id].is_padding();
        assert_eq!(is_answered, has_bbr);
        if is_answered {
            events_of(&mut streams, id);
            assert!(last_received(&other, &mut Inbox::default()).0 > 0);
        }
    }

    /// More padding than any path gets.
    const PADDED_MAX: usize = 16 << 20;

    #[test]
    fn messages_that_open_connections_cannot_be_replayed() {
        let (mut streams, id, other, mut session) = link();
        let open = messages::TrunkMessage::Open(b"request").head(messages::ChannelId::own(0));
        let end = messages::TrunkMessage::End.head(messages::ChannelId::own(0));
        let sealed = [&open[..], &session.seal(&open)].concat();
        session.note_sent();
        send(&other, &sealed);
        send(&other, &[]);
        send(&other, &end);
        assert_eq!(
            events_of(&mut streams, id),
            [format!("frame {open:?}"), format!("frame {end:?}")]
        );
        // A replay of the message is refused.
        send(&other, &sealed);
        assert_eq!(events_of(&mut streams, id), ["down: an invalid message"]);
        assert!(streams.is_empty());
    }

    #[test]
    fn a_gateway_without_keepalives_is_lost() {
        let (mut streams, id, mut other, _) = link();
        let stream = streams.streams.get_mut(&id).unwrap();
        stream.last_sent -= 2 * KEEPALIVE_EVERY;
        let mut down = 0;
        streams.look(&mut |_| down += 1);
        let mut sign = [1; 8];
        assert_eq!((other.read(&mut sign).unwrap(), &sign[..4], down), (4, &[0; 4][..], 0));
        streams.streams.get_mut(&id).unwrap().last_received -= 2 * SILENCE;
        streams.look(&mut |event| down += usize::from(matches!(event, Event::Down { .. })));
        assert_eq!((down, streams.is_empty()), (1, true));
    }
}
