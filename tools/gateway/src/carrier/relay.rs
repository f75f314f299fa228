//! Relayed connections: bytes from each of two ends go to the other.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use netpath::{DropWatch, QdiscDrops, WanTcp};
use rustix::event::epoll;
use socket2::SockRef;
use tokio::sync::oneshot;

use super::EndKey;
use super::links::{Key, Links};
use crate::account::Account;

/// One end of a relayed connection.
pub(super) enum RelayEnd {
    /// A non-blocking TCP connection, and its wide-area tuning if its round trip is long.
    Tcp(TcpStream, Option<Box<WanTcp>>),
    /// A channel of the link to another gateway.
    Channel(Key),
}

/// A relayed connection: bytes from each end go to the other.
pub(super) struct Relay {
    /// The caller's end, and the end that it has requested.
    ends: [RelayEnd; 2],
    /// Bytes from each end.
    flows: [Flow; 2],
    /// Events that epoll watches for at each end.
    watched: [epoll::EventFlags; 2],
    /// Checks for packets dropped by the qdisc, for each end.
    drop_watches: [DropWatch; 2],
    /// True if an end was given many bytes since the last check.
    has_sent_much: [bool; 2],
    account: Arc<Account>,
    /// Signals the end to the task that waits for it.
    done: oneshot::Sender<()>,
}

/// One direction of a relayed connection.
#[derive(Default)]
struct Flow {
    /// Bytes read but not yet sent; above a limit, reading pauses.
    waiting: VecDeque<u8>,
    /// True if the source has ended.
    has_ended: bool,
    /// True if the sink was told so.
    is_end_sent: bool,
}

impl Relay {
    pub fn new(ends: [RelayEnd; 2], account: Arc<Account>, done: oneshot::Sender<()>) -> Self {
        let watched = [epoll::EventFlags::empty(); 2];
        let (flows, drop_watches) = Default::default();
        Self { ends, flows, watched, drop_watches, has_sent_much: [false; 2], account, done }
    }

    /// Returns the ends that are channels, with their indexes.
    pub fn channels(&self) -> impl Iterator<Item = (usize, Key)> + use<> {
        let channels = self.ends.each_ref().map(|end| match end {
            RelayEnd::Channel(key) => Some(*key),
            RelayEnd::Tcp(..) => None,
        });
        (0..).zip(channels).filter_map(|(side, key)| Some((side, key?)))
    }

    pub fn has_wan_end(&self) -> bool {
        self.ends.iter().any(|end| matches!(end, RelayEnd::Tcp(_, Some(_))))
    }

    pub fn is_finished(&self) -> bool {
        self.flows.iter().all(|flow| flow.is_end_sent)
    }

    /// Runs the periodic tuning of long paths. To be called every [`WanTcp::LOOK_EVERY`].
    pub fn look(&mut self) -> io::Result<()> {
        self.ends.iter_mut().try_for_each(|end| match end {
            RelayEnd::Tcp(stream, Some(wan)) => wan.look(stream),
            RelayEnd::Tcp(_, None) | RelayEnd::Channel(_) => Ok(()),
        })
    }

    /// Handles epoll's events of a connection.
    #[inline]
    pub fn serve(
        &mut self,
        side: usize,
        flags: epoll::EventFlags,
        links: &mut Links,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if flags.contains(epoll::EventFlags::ERR)
            && let RelayEnd::Tcp(stream, _) = &self.ends[side]
            && let Some(error) = stream.take_error()?
        {
            return Err(error);
        }
        if !self.flows[1 - side].waiting.is_empty() {
            self.flush(1 - side, links)?;
        }
        self.forward(side, links, buffer)
    }

    /// Forwards what the connection at `from` has sent, through the one buffer of the thread.
    #[inline]
    fn forward(&mut self, from: usize, links: &mut Links, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..READS {
            let flow = &self.flows[from];
            if flow.has_ended || flow.waiting.len() >= WAITING_MAX {
                break;
            }
            let RelayEnd::Tcp(source, _) = &self.ends[from] else { break };
            let len = match (&*source).read(buffer) {
                Ok(0) => {
                    self.flows[from].has_ended = true;
                    return self.flush(from, links);
                }
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let is_first = self.flows[from].waiting.is_empty();
            let taken =
                if is_first { send(&self.ends[1 - from], &buffer[..len], links)? } else { 0 };
            self.note_sent(1 - from, taken);
            self.flows[from].waiting.extend(&buffer[taken..len]);
            self.counter(from).fetch_add(len as u64, Ordering::Relaxed);
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    /// Queues bytes that the channel has received, to be [forwarded](Self::flush) with what follows. Credit
    /// bounds them.
    pub fn receive(&mut self, channel: usize, bytes: &[u8]) {
        self.counter(channel).fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.flows[channel].waiting.extend(bytes);
    }

    /// Notes that the channel's other side has ended.
    pub fn receive_end(&mut self, channel: usize) {
        self.flows[channel].has_ended = true;
    }

    /// Begins with the bytes that the channel has received already.
    pub fn begin_with(
        &mut self,
        channel: usize,
        early: VecDeque<u8>,
        has_ended: bool,
        links: &mut Links,
    ) -> io::Result<()> {
        self.counter(channel).fetch_add(early.len() as u64, Ordering::Relaxed);
        self.flows[channel].waiting = early;
        self.flows[channel].has_ended = has_ended;
        self.flush(channel, links)
    }

    /// Forwards queued bytes, and the end behind them.
    pub fn flush(&mut self, from: usize, links: &mut Links) -> io::Result<()> {
        let mut sent = 0;
        while let (first, _) = self.flows[from].waiting.as_slices()
            && !first.is_empty()
        {
            let (len, taken) = (first.len(), send(&self.ends[1 - from], first, links)?);
            self.flows[from].waiting.drain(..taken);
            sent += taken;
            if taken < len {
                break;
            }
        }
        self.note_sent(1 - from, sent);
        if let RelayEnd::Channel(key) = self.ends[from]
            && sent > 0
        {
            links.note_consumed(key, sent);
        }
        if self.flows[from].waiting.is_empty() {
            self.flows[from].waiting = VecDeque::new();
        }
        self.forward_end(from, links)
    }

    fn forward_end(&mut self, from: usize, links: &mut Links) -> io::Result<()> {
        let flow = &mut self.flows[from];
        if !flow.has_ended || flow.is_end_sent || !flow.waiting.is_empty() {
            return Ok(());
        }
        match &self.ends[1 - from] {
            RelayEnd::Tcp(stream, _) => stream.shutdown(Shutdown::Write)?,
            RelayEnd::Channel(key) => links.end(*key),
        }
        flow.is_end_sent = true;
        Ok(())
    }

    fn note_sent(&mut self, side: usize, len: usize) {
        self.has_sent_much[side] |= len >= QdiscDrops::MUCH;
    }

    /// Restarts a connection whose packets were dropped by the qdisc. True if it has to be checked again.
    pub fn push(&mut self, side: usize) -> bool {
        match &self.ends[side] {
            RelayEnd::Tcp(stream, _) => self.drop_watches[side].look(stream),
            RelayEnd::Channel(_) => false,
        }
    }

    fn counter(&self, from: usize) -> &AtomicU64 {
        if from == 0 { &self.account.from_callers } else { &self.account.to_callers }
    }

    /// Updates the events that epoll watches at each end. An end without any is removed, because epoll would
    /// report its hang-up for ever. Ends that were given many bytes are added to `drop_checks`.
    pub fn watch(
        &mut self,
        epoll: &OwnedFd,
        slot: usize,
        drop_checks: &mut Vec<u64>,
    ) -> io::Result<()> {
        for side in 0..2 {
            let RelayEnd::Tcp(stream, _) = &self.ends[side] else { continue };
            let key = EndKey::new(slot, side).0;
            if std::mem::take(&mut self.has_sent_much[side]) && self.drop_watches[side].begin() {
                drop_checks.push(key);
            }
            let (outgoing, incoming) = (&self.flows[side], &self.flows[1 - side]);
            let mut wanted = epoll::EventFlags::empty();
            wanted.set(
                epoll::EventFlags::IN,
                !outgoing.has_ended && outgoing.waiting.len() < WAITING_MAX,
            );
            wanted.set(epoll::EventFlags::OUT, !incoming.waiting.is_empty());
            let before = std::mem::replace(&mut self.watched[side], wanted);
            if wanted == before {
                continue;
            }
            let data = epoll::EventData::new_u64(key);
            match (before.is_empty(), wanted.is_empty()) {
                (true, _) => epoll::add(epoll, stream, data, wanted),
                (false, true) => epoll::delete(epoll, stream),
                (false, false) => epoll::modify(epoll, stream, data, wanted),
            }?;
        }
        Ok(())
    }

    /// Closes both ends, by a reset if `result` is an error.
    pub fn end(self, result: &io::Result<()>) {
        for end in self.ends {
            if let RelayEnd::Tcp(stream, _) = end
                && result.is_err()
            {
                // Bytes may be missing, so the end must not look like an orderly one: close by RST.
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
        }
        // The receiver is gone if the gateway ends.
        let _ = self.done.send(());
    }
}

/// Sends as much as the end accepts at once.
#[inline]
fn send(to: &RelayEnd, bytes: &[u8], links: &mut Links) -> io::Result<usize> {
    match to {
        RelayEnd::Tcp(stream, _) => write(stream, bytes),
        RelayEnd::Channel(key) => Ok(links.send(*key, bytes)),
    }
}

/// Writes as much as the kernel accepts at once.
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

/// Bytes queued from one end above which reading pauses. With a full receive buffer, the kernel may have
/// advertised more window than it has memory for; it then drops packets, and their retransmission takes 200
/// ms.
const WAITING_MAX: usize = 256 << 10;
/// Reads from one end in a row; then the others follow.
const READS: usize = 4;
