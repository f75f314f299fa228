//! Links over TCP: frames on a connection that two gateways keep, as the rail has them on a stream over UDP.
//!
//! The kernel paces and repeats; where the way is far the connection has a congestion control that remembers, and little
//! waits in the kernel. What the way carries is found out when the link begins, by padding both ways, as ranks do it on
//! links of their own; so those behind gateways need not. Each side gives a sign of life now and then, for a gateway may
//! stop while its host runs on, of which TCP says nothing. Words by which connections are opened are sealed: nobody on the
//! way can have one opened.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::relay::Session;
use driver::{Event, FarTcp, Fault, Inbox, Knowledge, Outbox, Post, StallWatch, Stalls, TcpSample};
use rustix::event::epoll;
use wire::{Cost, PeerId};

use super::Shared;
use super::words;

/// A connection that has become a link.
pub(super) struct Link {
    pub socket: TcpStream,
    pub session: Session,
}

/// All links over TCP.
pub(super) struct Streams {
    shared: Arc<Shared>,
    knowledge: Knowledge,
    streams: HashMap<PeerId, Stream>,
    next: u32,
    /// Links that were given much, to be looked at.
    begun: Vec<u64>,
}

struct Stream {
    link: Link,
    /// What looks after it if it is far.
    far: Option<FarTcp>,
    outbox: Outbox,
    inbox: Inbox,
    /// Bytes of words taken since it was last flushed.
    posted: usize,
    stall: StallWatch,
    is_watched_for_room: bool,
    heard: Instant,
    said: Instant,
}

impl Streams {
    pub fn new(shared: Arc<Shared>) -> Self {
        let knowledge = Knowledge::of_hosts();
        Self { shared, knowledge, streams: HashMap::new(), next: 0, begun: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether it is the number of such a link.
    pub fn has(id: PeerId) -> bool {
        id.0 & NUMBERS == STREAM
    }

    /// Takes a connection over; its number, and what it costs, as far as the kernel knows.
    ///
    /// # Errors
    /// The system's, and when there are too many.
    pub fn add(&mut self, link: Link) -> io::Result<(PeerId, Cost)> {
        if self.streams.len() >= STREAMS_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let id = PeerId(STREAM | self.next & !NUMBERS);
        self.next = self.next.wrapping_add(1);
        let round_trip_ns = TcpSample::of(&link.socket)?.round_trip_ns.unwrap_or(0);
        let round_trip = Duration::from_nanos(round_trip_ns);
        let mut far = FarTcp::is_far(round_trip)
            .then(|| FarTcp::begin_shared(&link.socket, round_trip, &self.knowledge));
        let usual = Cost::linear(round_trip_ns / 2, 0, RATE_GUESSED);
        let cost = far.as_ref().and_then(FarTcp::cost).unwrap_or(usual);
        // They share the way, and each sees what it gets of it.
        let measured = self.streams.values().filter(|stream| stream.is_padding()).count();
        if let Some(far) = &mut far
            && measured < MEASURED_AT_ONCE
        {
            far.begin_padding(&link.socket);
        }
        epoll::add(&self.shared.epoll, &link.socket, key(id), epoll::EventFlags::IN)?;
        let now = Instant::now();
        let (outbox, inbox, stall) = (Outbox::new(DEPTH), Inbox::default(), StallWatch::default());
        let is_watched_for_room = false;
        let (heard, said, posted) = (now, now, 0);
        let mut stream =
            Stream { link, far, outbox, inbox, posted, stall, is_watched_for_room, heard, said };
        stream.watch(&self.shared.epoll, id)?;
        self.streams.insert(id, stream);
        Ok((id, cost))
    }

    pub fn remove(&mut self, id: PeerId) {
        // Its socket closes, and with that epoll forgets it.
        if let Some(mut stream) = self.streams.remove(&id) {
            stream.keep(&self.knowledge);
        }
    }

    /// Keeps what was learned of all ways, for links to come.
    pub fn keep(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.keep(&self.knowledge));
    }

    /// Takes a word that lies in two parts, as a rail does; it leaves when the link is [flushed](Self::flush).
    pub fn post(&mut self, id: PeerId, parts: [&[u8]; 2]) -> Post {
        let Some(stream) = self.streams.get_mut(&id) else { return Post::Full };
        if !stream.outbox.has_room() {
            // A socket that is lost is found so by its reader.
            let _ = stream.flush();
        }
        let [head, _] = parts;
        if !words::is_weighty(head) {
            return stream.post(parts);
        }
        let seal = stream.link.session.seal(head);
        let posted = stream.post([head, &seal]);
        if posted != Post::Full {
            stream.link.session.note_said();
        }
        posted
    }

    /// Has leave what was taken.
    pub fn flush(&mut self, id: PeerId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let posted = std::mem::take(&mut stream.posted);
        if let Some(far) = &mut stream.far {
            far.handle_frame(&stream.link.socket, posted);
        }
        // A socket that is lost is found so by its reader.
        let _ = stream.pump(&self.shared.epoll, id);
        if posted >= Stalls::MUCH && stream.stall.begin() {
            self.begun.push(key(id).u64());
        }
    }

    /// Does what a link is ready for.
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
            // What was refused goes before more padding.
            if stream.outbox.invite(0) {
                sink(Event::Room { peer: id });
            } else if let Some(cost) = stream.pad() {
                sink(Event::Cost { peer: id, cost });
            }
        }
        let served = served.and_then(|()| stream.read(id, buffer, sink));
        let served = served.and_then(|()| stream.watch(&self.shared.epoll, id));
        if let Err(error) = served {
            self.remove(id);
            sink(Event::Down { peer: id, fault: fault(&error) });
        }
    }

    /// Links that are to be [pushed](Self::push) from now on, by their keys in epoll.
    pub fn take_begun(&mut self) -> std::vec::Drain<'_, u64> {
        self.begun.drain(..)
    }

    /// Pushes a link that does not send what it could; whether it is to be looked at again.
    pub fn push(&mut self, id: PeerId) -> bool {
        let Some(Stream { link, far, outbox, stall, .. }) = self.streams.get_mut(&id) else {
            return false;
        };
        let is_awaited = far.as_mut().is_some_and(|far| far.ease(&link.socket));
        stall.look(&link.socket) || (is_awaited || !outbox.is_empty()) && stall.begin()
    }

    /// To be called every [`FarTcp::LOOK_EVERY`].
    pub fn look(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        let now = Instant::now();
        let mut lost = Vec::new();
        for (&id, stream) in &mut self.streams {
            if let Err(error) = stream.look(&self.shared.epoll, id, now) {
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

    /// Writes what the kernel takes, and waits for room for the rest.
    fn pump(&mut self, epoll: &OwnedFd, id: PeerId) -> io::Result<()> {
        self.flush()?;
        self.watch(epoll, id)
    }

    /// Writes what the kernel takes.
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

    /// Sends padding as far as the kernel takes it, behind all else; what the link costs when that is known with it.
    fn pad(&mut self) -> Option<Cost> {
        let far = self.far.as_mut().filter(|far| far.is_padding())?;
        let (most, mut count) = (far.allowance(), 0);
        while count < most && self.outbox.is_empty() {
            self.outbox.post_parts([&words::padding(), &[]]);
            count += words::PADDING_LEN;
            // What fails here fails whoever reads next.
            self.flush().ok()?;
        }
        self.far.as_mut()?.handle_padded(&self.link.socket, count)
    }

    fn is_padding(&self) -> bool {
        self.far.as_ref().is_some_and(FarTcp::is_padding)
    }

    /// Keeps what was learned of the way, for links to come.
    fn keep(&mut self, knowledge: &Knowledge) {
        if let Some(far) = &mut self.far {
            far.keep(&self.link.socket, knowledge);
        }
    }

    /// Has epoll tell when there is room for what waits, here or where it comes from.
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
            self.heard = Instant::now();
            let session = &mut self.link.session;
            let (mut is_honest, mut is_padded) = (true, false);
            let taken = self.inbox.take(&buffer[..len], &mut |frame| {
                let word = if words::is_weighty(frame) { session.check(frame) } else { Ok(frame) };
                match word {
                    // A sign of life.
                    Ok([]) => {}
                    Ok(word) if words::is_padding(word) => is_padded = true,
                    Ok(bytes) => sink(Event::Frame { peer: id, bytes }),
                    Err(_) => is_honest = false,
                }
            });
            if taken.is_err() || !is_honest {
                return Err(io::Error::new(ErrorKind::InvalidData, "what no gateway says"));
            }
            // The other side measures the way here, and nobody but this side the way there.
            if let Some(far) = self.far.as_mut().filter(|_| is_padded) {
                far.begin_padding(&self.link.socket);
            }
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    fn look(&mut self, epoll: &OwnedFd, id: PeerId, now: Instant) -> io::Result<()> {
        if let Some(far) = &mut self.far {
            far.look(&self.link.socket)?;
        }
        if now.saturating_duration_since(self.heard) > SILENCE {
            return Err(ErrorKind::TimedOut.into());
        }
        if now.saturating_duration_since(self.said) > SIGN_EVERY {
            self.said = now;
            // Where there is no room, something else is on its way.
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

/// What epoll tells of a link.
fn key(id: PeerId) -> epoll::EventData {
    epoll::EventData::new_u64(LINKS | u64::from(id.0))
}

/// The link that an event is about, if it is about one.
pub(super) fn of_key(key: u64) -> Option<PeerId> {
    (key & !u64::from(u32::MAX) == LINKS).then_some(PeerId(key as u32))
}

/// In epoll, beyond the places of loads.
const LINKS: u64 = 1 << 62;

/// The numbers of links over TCP, in whose place gateways over UDP have their own.
const NUMBERS: u32 = 0b11 << 30;
const STREAM: u32 = 1 << 30;

/// Links over TCP at once.
const STREAMS_MAX: usize = 256;
/// What waits here beyond what the kernel takes: so much is let before what is short.
const DEPTH: usize = 64 << 10;
const CHUNK_LEN: usize = 256 << 10;
/// Reads in a row, so that the others have their turn.
const READS: usize = 4;
/// From one sign of life to the next, and how long there may be none.
const SIGN_EVERY: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(10);
/// Links whose way is measured when they begin, at one time.
const MEASURED_AT_ONCE: usize = 4;
/// Told of a link that nobody has measured: 1 Gb/s.
const RATE_GUESSED: u64 = 125_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use driver::relay::Porter;
    use std::net::TcpListener;

    /// A link, and the other end of its connection with what is sealed there.
    fn link() -> (Streams, PeerId, TcpStream, Session) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        for socket in [&socket, &other] {
            socket.set_nonblocking(true).unwrap();
        }
        let porter = Porter::new(1, [7; 32]);
        let hello = porter.hello([1; 32]);
        let answer = porter.answer(&hello, [2; 32]).unwrap();
        let [own, others] = [true, false].map(|calls| porter.session(&hello, &answer, calls));
        let mut streams = Streams::new(Arc::new(Shared::open().unwrap()));
        let (id, _) = streams.add(Link { socket, session: own }).unwrap();
        assert!(Streams::has(id) && of_key(key(id).u64()) == Some(id));
        (streams, id, other, others)
    }

    /// What a link has to tell, when epoll has something of it.
    fn told(streams: &mut Streams, id: PeerId) -> Vec<String> {
        let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: key(id) };
        let mut events = [nothing; 4];
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        let shared = Arc::clone(&streams.shared);
        let count = epoll::wait(&shared.epoll, &mut events[..], Some(&second)).unwrap();
        let mut told = Vec::new();
        for event in &events[..count] {
            assert_eq!(of_key(event.data.u64()), Some(id));
            streams.serve(id, event.flags, &mut vec![0; 1 << 16], &mut |event| match event {
                Event::Frame { bytes, .. } => told.push(format!("frame {bytes:?}")),
                Event::Room { .. } => told.push("room".into()),
                Event::Cost { .. } => told.push("cost".into()),
                Event::Down { fault, .. } => told.push(format!("down: {}", fault.text().unwrap())),
                other => panic!("{other:?}"),
            });
        }
        told
    }

    /// Says a word, as whoever has nothing more to say.
    fn post(streams: &mut Streams, id: PeerId, word: &[u8]) -> Post {
        let posted = streams.post(id, [word, &[]]);
        streams.flush(id);
        posted
    }

    fn say(mut to: &TcpStream, frame: &[u8]) {
        to.write_all(&[&(frame.len() as u32).to_le_bytes(), frame].concat()).unwrap();
    }

    #[test]
    fn who_was_refused_is_invited_once_whatever_has_left_meanwhile() {
        let (mut streams, id, mut other, _) = link();
        let long = vec![9; 60_000];
        while post(&mut streams, id, &long) != Post::Full {}
        let mut sink = vec![0; 1 << 20];
        // What waits leaves with something else, before epoll has told of room.
        for _ in 0..200 {
            while other.read(&mut sink).is_ok() {}
            streams.look(&mut |_| {});
            post(&mut streams, id, &[9]);
        }
        assert_eq!(told(&mut streams, id), ["room"]);
        let empty: [&str; 0] = [];
        assert_eq!(told(&mut streams, id), empty, "nothing more to tell");
    }

    /// Has a link looked after as if its way were long; whether the system can measure that.
    fn take_for_far(streams: &mut Streams, id: PeerId) -> bool {
        let remembers = FarTcp::remembers();
        let stream = streams.streams.get_mut(&id).unwrap();
        let (socket, round_trip) = (&stream.link.socket, Duration::from_millis(3));
        stream.far = Some(FarTcp::begin_shared(socket, round_trip, &streams.knowledge));
        remembers
    }

    /// The frames that have come to the other end: of padding their number, and the lengths of others.
    fn heard(mut other: &TcpStream, inbox: &mut Inbox) -> (usize, Vec<usize>) {
        let (mut padding, mut lens, mut buffer) = (0, Vec::new(), vec![0; 1 << 20]);
        while let Ok(len) = other.read(&mut buffer) {
            let hear = &mut |frame: &[u8]| match words::is_padding(frame) {
                true => padding += 1,
                false => lens.push(frame.len()),
            };
            inbox.take(&buffer[..len], hear).unwrap();
        }
        (padding, lens)
    }

    #[test]
    fn padding_goes_behind_all_else_and_comes_to_an_end() {
        let (mut streams, id, other, _) = link();
        if !take_for_far(&mut streams, id) {
            return;
        }
        let long = vec![9; 60_000];
        let mut posted = 0;
        while post(&mut streams, id, &long) != Post::Full {
            posted += 1;
        }
        assert!(streams.streams[&id].is_padding(), "long words have the way measured");
        let (mut inbox, mut padding, mut came, mut all) = (Inbox::default(), 0, 0, Vec::new());
        let limit = Instant::now() + Duration::from_secs(20);
        while streams.streams[&id].is_padding() {
            let (more, lens) = heard(&other, &mut inbox);
            came += lens.len();
            assert!(more == 0 || came == posted && all == ["room"], "{came} of {posted}, {all:?}");
            padding += more;
            all.extend(told(&mut streams, id));
            assert!(Instant::now() < limit, "it has no end");
        }
        assert_eq!(all, ["room", "cost"], "what was learned is told");
        assert!(padding > 0 && padding * words::PADDING_LEN < PADDED_MAX, "{padding} of padding");
        // Once is enough.
        assert_ne!(post(&mut streams, id, &long), Post::Full);
        assert!(!streams.streams[&id].is_padding());
    }

    #[test]
    fn padding_is_thrown_away_and_answered() {
        let (mut streams, id, other, _) = link();
        let padding = words::padding();
        say(&other, &padding);
        assert_eq!(told(&mut streams, id), [""; 0], "a near way is not measured");
        let remembers = take_for_far(&mut streams, id);
        post(&mut streams, id, &[9; 100]);
        say(&other, &[]);
        assert_eq!(told(&mut streams, id), [""; 0]);
        assert!(
            !streams.streams[&id].is_padding(),
            "neither short words nor signs of life ask for it"
        );
        say(&other, &padding);
        assert_eq!(told(&mut streams, id), [""; 0]);
        let is_answered = streams.streams[&id].is_padding();
        assert_eq!(is_answered, remembers);
        if is_answered {
            told(&mut streams, id);
            assert!(heard(&other, &mut Inbox::default()).0 > 0);
        }
    }

    /// More than a way is shown at most.
    const PADDED_MAX: usize = 16 << 20;

    #[test]
    fn words_that_open_connections_are_the_other_gateways_own() {
        let (mut streams, id, other, mut session) = link();
        let open = words::Word::Open(b"request").head(words::ChannelId::own(0));
        let end = words::Word::End.head(words::ChannelId::own(0));
        let sealed = [&open[..], &session.seal(&open)].concat();
        session.note_said();
        say(&other, &sealed);
        say(&other, &[]);
        say(&other, &end);
        assert_eq!(told(&mut streams, id), [format!("frame {open:?}"), format!("frame {end:?}")]);
        // The same again is somebody else's.
        say(&other, &sealed);
        assert_eq!(told(&mut streams, id), ["down: what no gateway says"]);
        assert!(streams.is_empty());
    }

    #[test]
    fn a_gateway_that_gives_no_sign_of_life_is_lost() {
        let (mut streams, id, mut other, _) = link();
        let stream = streams.streams.get_mut(&id).unwrap();
        stream.said -= 2 * SIGN_EVERY;
        let mut down = 0;
        streams.look(&mut |_| down += 1);
        let mut sign = [1; 8];
        assert_eq!((other.read(&mut sign).unwrap(), &sign[..4], down), (4, &[0; 4][..], 0));
        streams.streams.get_mut(&id).unwrap().heard -= 2 * SILENCE;
        streams.look(&mut |event| down += usize::from(matches!(event, Event::Down { .. })));
        assert_eq!((down, streams.is_empty()), (1, true));
    }
}
