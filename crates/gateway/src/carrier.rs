//! The thread that carries bytes between connections over TCP.
//!
//! A gateway that has waited for bytes for milliseconds finds its code and data cold in the caches, and the way from the
//! kernel's word that they have come to the write that passes them on is what it costs whoever waits for them. Here
//! that way is one short loop: a wait, a read, a write.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use driver::{FarTcp, Thread};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use socket2::SockRef;
use tokio::sync::oneshot;

use crate::ledger::Ledger;
use crate::leg::Care;

/// The thread; with it ends what it carries.
pub(crate) struct Carrier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    epoll: OwnedFd,
    bell: OwnedFd,
    /// What is to be carried from now on.
    inbox: Mutex<Vec<Load>>,
    ends: AtomicBool,
}

/// One end of what is carried: a connection that does not block, and who looks after it.
pub(crate) struct End {
    pub stream: TcpStream,
    pub care: Option<Box<Care>>,
}

/// Two connections, of which each gets what the other says.
struct Load {
    /// The caller's, and the one that it has asked for.
    ends: [End; 2],
    /// What each end says.
    flows: [Flow; 2],
    /// What epoll watches of each.
    watched: [epoll::EventFlags; 2],
    ledger: Arc<Ledger>,
    /// Who wants to know when it has ended.
    done: oneshot::Sender<()>,
}

/// What goes one way.
#[derive(Default)]
struct Flow {
    /// Read, and not taken yet; nothing more is read meanwhile.
    waiting: Vec<u8>,
    /// The source has said all.
    is_over: bool,
    /// And the sink knows.
    is_passed_on: bool,
}

impl Carrier {
    /// Begins with nothing.
    ///
    /// # Errors
    /// When the system gives no thread, or no descriptor.
    pub fn start() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let (inbox, ends) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { epoll, bell, inbox, ends });
        let own = Arc::clone(&shared);
        let builder = thread::Builder::new().name("canele-carrier".into());
        let thread = builder.spawn(move || {
            // As the thread that lets callers in does.
            let _ = Thread::current().map(Thread::precede);
            Loads::default().carry(&own);
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Carries until both ends have said all, or one breaks off: then the other is broken off, too.
    pub async fn carry(&self, one: End, other: End, ledger: Arc<Ledger>) {
        let (done, ended) = oneshot::channel();
        let nothing = epoll::EventFlags::empty();
        let load = Load {
            ends: [one, other],
            flows: Default::default(),
            watched: [nothing; 2],
            ledger,
            done,
        };
        self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(load);
        self.shared.ring();
        // An error: the thread ends, and what it carries with it.
        let _ = ended.await;
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
    fn ring(&self) {
        // Fails for a bell that has rung too often to be overheard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// All that is carried, each in a place of its own.
#[derive(Default)]
struct Loads {
    places: Vec<Option<Load>>,
    free: Vec<usize>,
    /// How many have an end that is looked after.
    cared_for: usize,
}

impl Loads {
    fn carry(&mut self, shared: &Shared) {
        let nothing = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(BELL),
        };
        let mut events = [nothing; EVENTS];
        let mut buffer = vec![0; BUFFER_LEN];
        let mut next_look = Instant::now();
        while !shared.ends.load(Ordering::Acquire) {
            let until_look = (self.cared_for > 0).then(|| {
                let left = next_look.saturating_duration_since(Instant::now());
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
            });
            let count = epoll::wait(&shared.epoll, &mut events[..], until_look.as_ref());
            let mut is_rung = false;
            for event in &events[..count.unwrap_or(0)] {
                match event.data.u64() {
                    BELL => is_rung = true,
                    key => self.serve(&shared.epoll, key, event.flags, &mut buffer),
                }
            }
            // Behind all events, so that none is for who had the place before.
            if is_rung {
                self.take_in(shared);
            }
            if self.cared_for > 0 && Instant::now() >= next_look {
                self.look();
                next_look = Instant::now() + FarTcp::LOOK_EVERY;
            }
        }
    }

    #[cold]
    fn take_in(&mut self, shared: &Shared) {
        let mut rung = [0; 8];
        let _ = rustix::io::read(&shared.bell, &mut rung);
        let inbox =
            std::mem::take(&mut *shared.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        for load in inbox {
            let at = self.free.pop().unwrap_or_else(|| {
                self.places.push(None);
                self.places.len() - 1
            });
            self.cared_for += usize::from(load.is_cared_for());
            let load = self.places[at].insert(load);
            if let Err(error) = load.watch(&shared.epoll, at) {
                self.end(at, Err(error));
            }
        }
    }

    fn serve(&mut self, epoll: &OwnedFd, key: u64, flags: epoll::EventFlags, buffer: &mut [u8]) {
        let (at, side) = (key as usize / 2, key as usize % 2);
        let Some(Some(load)) = self.places.get_mut(at) else { return };
        let served = load.serve(side, flags, buffer);
        let served = served.and_then(|()| load.watch(epoll, at));
        if served.is_err() || load.has_ended() {
            self.end(at, served);
        }
    }

    /// Looks after those that are.
    #[cold]
    fn look(&mut self) {
        for at in 0..self.places.len() {
            let Some(load) = &mut self.places[at] else { continue };
            let looked = load.look();
            if looked.is_err() {
                self.end(at, looked);
            }
        }
    }

    #[cold]
    fn end(&mut self, at: usize, how: io::Result<()>) {
        let Some(load) = self.places[at].take() else { return };
        self.free.push(at);
        self.cared_for -= usize::from(load.is_cared_for());
        if how.is_err() {
            // Bytes may be missing, so the end must not look like one that was meant.
            for End { stream, .. } in &load.ends {
                let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
            }
        }
        drop(load.ends);
        // Nobody wants to know where the gateway ends.
        let _ = load.done.send(());
    }
}

impl Load {
    fn is_cared_for(&self) -> bool {
        self.ends.iter().any(|end| end.care.is_some())
    }

    fn has_ended(&self) -> bool {
        self.flows.iter().all(|flow| flow.is_passed_on)
    }

    fn look(&mut self) -> io::Result<()> {
        self.ends.iter_mut().try_for_each(|End { stream, care }| match care {
            Some(care) => care.look(stream),
            None => Ok(()),
        })
    }

    /// Does what an end is ready for.
    #[inline]
    fn serve(
        &mut self,
        side: usize,
        flags: epoll::EventFlags,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if flags.contains(epoll::EventFlags::ERR)
            && let Some(error) = self.ends[side].stream.take_error()?
        {
            return Err(error);
        }
        if !self.flows[1 - side].waiting.is_empty() {
            self.flush(1 - side)?;
        }
        self.pass(side, buffer)
    }

    /// Passes on what the end at `from` says, through the one buffer of all: what is not taken is not read.
    #[inline]
    fn pass(&mut self, from: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..READS {
            let flow = &self.flows[from];
            if flow.is_over || !flow.waiting.is_empty() {
                break;
            }
            let len = match (&self.ends[from].stream).read(buffer) {
                Ok(0) => {
                    self.flows[from].is_over = true;
                    return self.flush(from);
                }
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let taken = write(&self.ends[1 - from].stream, &buffer[..len])?;
            self.flows[from].waiting.extend_from_slice(&buffer[taken..len]);
            self.counter(from).fetch_add(len as u64, Ordering::Relaxed);
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    /// Passes on what waits, and that it was all.
    fn flush(&mut self, from: usize) -> io::Result<()> {
        let (flow, to) = (&mut self.flows[from], &self.ends[1 - from].stream);
        let taken = write(to, &flow.waiting)?;
        if taken < flow.waiting.len() {
            flow.waiting.drain(..taken);
            return Ok(());
        }
        flow.waiting = Vec::new();
        if flow.is_over && !flow.is_passed_on {
            to.shutdown(Shutdown::Write)?;
            flow.is_passed_on = true;
        }
        Ok(())
    }

    fn counter(&self, from: usize) -> &AtomicU64 {
        if from == 0 { &self.ledger.from_callers } else { &self.ledger.to_callers }
    }

    /// Has epoll watch what each end is waited for; one that is waited for by nobody is left out, for epoll would tell
    /// of its end for ever.
    fn watch(&mut self, epoll: &OwnedFd, at: usize) -> io::Result<()> {
        for side in 0..2 {
            let (says, hears) = (&self.flows[side], &self.flows[1 - side]);
            let mut wanted = epoll::EventFlags::empty();
            wanted.set(epoll::EventFlags::IN, !says.is_over && says.waiting.is_empty());
            wanted.set(epoll::EventFlags::OUT, !hears.waiting.is_empty());
            let before = std::mem::replace(&mut self.watched[side], wanted);
            if wanted == before {
                continue;
            }
            let stream = &self.ends[side].stream;
            let data = epoll::EventData::new_u64((at * 2 + side) as u64);
            match (before.is_empty(), wanted.is_empty()) {
                (true, _) => epoll::add(epoll, stream, data, wanted),
                (false, true) => epoll::delete(epoll, stream),
                (false, false) => epoll::modify(epoll, stream, data, wanted),
            }?;
        }
        Ok(())
    }
}

/// Writes as much as is taken at once.
#[inline]
fn write(mut to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        match to.write(&bytes[taken..]) {
            Ok(len) => taken += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// The bell's key, beyond all ends'.
const BELL: u64 = u64::MAX;
/// Events of one look.
const EVENTS: usize = 64;
/// Reads from one end in a row, so that the others have their turn.
const READS: usize = 4;
/// On one way of a connection at most so much waits in the gateway itself.
pub(crate) const BUFFER_LEN: usize = 64 << 10;
