//! What is carried: two ends, of which each gets what the other says.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use driver::{FarTcp, StallWatch, Stalls};
use rustix::event::epoll;
use socket2::SockRef;
use tokio::sync::oneshot;

use super::links::{Key, Links};
use crate::account::Ledger;

/// One end of what is carried.
pub(super) enum End {
    /// A connection that does not block, and what looks after it if it is far.
    Tcp(TcpStream, Option<Box<FarTcp>>),
    /// A channel of the link to another gateway. Of two ends one is none.
    Channel(Key),
}

/// Two connections, of which each gets what the other says.
pub(super) struct Load {
    /// The caller's, and the one that it has asked for.
    ends: [End; 2],
    /// What each end says.
    flows: [Flow; 2],
    /// What epoll watches of each.
    watched: [epoll::EventFlags; 2],
    /// Whether what each is given leaves the kernel.
    stalls: [StallWatch; 2],
    /// Much was given to each since that was looked at.
    has_got_much: [bool; 2],
    ledger: Arc<Ledger>,
    /// Who wants to know when it has ended.
    done: oneshot::Sender<()>,
}

/// What goes one way.
#[derive(Default)]
struct Flow {
    /// Read, and not taken yet; beyond some, nothing more is read meanwhile.
    waiting: VecDeque<u8>,
    /// The source has said all.
    is_over: bool,
    /// And the sink knows.
    is_passed_on: bool,
}

impl Load {
    pub fn new(ends: [End; 2], ledger: Arc<Ledger>, done: oneshot::Sender<()>) -> Self {
        let watched = [epoll::EventFlags::empty(); 2];
        let (flows, stalls) = Default::default();
        Self { ends, flows, watched, stalls, has_got_much: [false; 2], ledger, done }
    }

    /// The channel, if one end is one, and which.
    pub fn channel(&self) -> Option<(usize, Key)> {
        self.ends.iter().enumerate().find_map(|(side, end)| match end {
            End::Channel(key) => Some((side, *key)),
            End::Tcp(..) => None,
        })
    }

    pub fn is_cared_for(&self) -> bool {
        self.ends.iter().any(|end| matches!(end, End::Tcp(_, Some(_))))
    }

    pub fn has_ended(&self) -> bool {
        self.flows.iter().all(|flow| flow.is_passed_on)
    }

    /// To be called every [`FarTcp::LOOK_EVERY`].
    pub fn look(&mut self) -> io::Result<()> {
        self.ends.iter_mut().try_for_each(|end| match end {
            End::Tcp(stream, Some(far)) => far.look(stream),
            End::Tcp(_, None) | End::Channel(_) => Ok(()),
        })
    }

    /// Does what a connection is ready for.
    #[inline]
    pub fn serve(
        &mut self,
        side: usize,
        flags: epoll::EventFlags,
        links: &mut Links,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if flags.contains(epoll::EventFlags::ERR)
            && let End::Tcp(stream, _) = &self.ends[side]
            && let Some(error) = stream.take_error()?
        {
            return Err(error);
        }
        if !self.flows[1 - side].waiting.is_empty() {
            self.flush(1 - side, links)?;
        }
        self.pass(side, links, buffer)
    }

    /// Passes on what the connection at `from` says, through the one buffer of all.
    #[inline]
    fn pass(&mut self, from: usize, links: &mut Links, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..READS {
            let flow = &self.flows[from];
            if flow.is_over || flow.waiting.len() >= WAITING_MAX {
                break;
            }
            let End::Tcp(source, _) = &self.ends[from] else { break };
            let len = match (&*source).read(buffer) {
                Ok(0) => {
                    self.flows[from].is_over = true;
                    return self.flush(from, links);
                }
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let is_first = self.flows[from].waiting.is_empty();
            let taken =
                if is_first { give(&self.ends[1 - from], &buffer[..len], links)? } else { 0 };
            self.note_given(1 - from, taken);
            self.flows[from].waiting.extend(&buffer[taken..len]);
            self.counter(from).fetch_add(len as u64, Ordering::Relaxed);
            if len < buffer.len() {
                break;
            }
        }
        Ok(())
    }

    /// Takes what the channel says, whose other side says no more than was granted, to be [passed on](Self::flush) with
    /// what follows.
    pub fn take(&mut self, channel: usize, bytes: &[u8]) {
        self.counter(channel).fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.flows[channel].waiting.extend(bytes);
    }

    /// The channel's other side has said all.
    pub fn take_end(&mut self, channel: usize) {
        self.flows[channel].is_over = true;
    }

    /// Begins with what the channel has said already.
    pub fn begin_at(
        &mut self,
        channel: usize,
        early: VecDeque<u8>,
        is_over: bool,
        links: &mut Links,
    ) -> io::Result<()> {
        self.counter(channel).fetch_add(early.len() as u64, Ordering::Relaxed);
        self.flows[channel].waiting = early;
        self.flows[channel].is_over = is_over;
        self.flush(channel, links)
    }

    /// Passes on what waits, and that it was all.
    pub fn flush(&mut self, from: usize, links: &mut Links) -> io::Result<()> {
        let mut given = 0;
        while let (first, _) = self.flows[from].waiting.as_slices()
            && !first.is_empty()
        {
            let (len, taken) = (first.len(), give(&self.ends[1 - from], first, links)?);
            self.flows[from].waiting.drain(..taken);
            given += taken;
            if taken < len {
                break;
            }
        }
        self.note_given(1 - from, given);
        if let End::Channel(key) = self.ends[from]
            && given > 0
        {
            links.note_taken(key, given);
        }
        if self.flows[from].waiting.is_empty() {
            self.flows[from].waiting = VecDeque::new();
        }
        self.pass_end_on(from, links)
    }

    fn pass_end_on(&mut self, from: usize, links: &mut Links) -> io::Result<()> {
        let flow = &mut self.flows[from];
        if !flow.is_over || flow.is_passed_on || !flow.waiting.is_empty() {
            return Ok(());
        }
        match &self.ends[1 - from] {
            End::Tcp(stream, _) => stream.shutdown(Shutdown::Write)?,
            End::Channel(key) => links.end(*key),
        }
        flow.is_passed_on = true;
        Ok(())
    }

    fn note_given(&mut self, side: usize, len: usize) {
        self.has_got_much[side] |= len >= Stalls::MUCH;
    }

    /// Pushes a connection that does not send what it could; whether it is to be looked at again.
    pub fn push(&mut self, side: usize) -> bool {
        match &self.ends[side] {
            End::Tcp(stream, _) => self.stalls[side].look(stream),
            End::Channel(_) => false,
        }
    }

    fn counter(&self, from: usize) -> &AtomicU64 {
        if from == 0 { &self.ledger.from_callers } else { &self.ledger.to_callers }
    }

    /// Has epoll watch what each end is waited for; one that is waited for by nobody is left out, for epoll would tell
    /// of its end for ever. Who was given much is `begun` to be looked at.
    pub fn watch(&mut self, epoll: &OwnedFd, at: usize, begun: &mut Vec<u64>) -> io::Result<()> {
        for side in 0..2 {
            let End::Tcp(stream, _) = &self.ends[side] else { continue };
            let key = (at * 2 + side) as u64;
            if std::mem::take(&mut self.has_got_much[side]) && self.stalls[side].begin() {
                begun.push(key);
            }
            let (says, hears) = (&self.flows[side], &self.flows[1 - side]);
            let mut wanted = epoll::EventFlags::empty();
            wanted.set(epoll::EventFlags::IN, !says.is_over && says.waiting.len() < WAITING_MAX);
            wanted.set(epoll::EventFlags::OUT, !hears.waiting.is_empty());
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

    /// Ends it, in good order or not.
    pub fn end(self, how: &io::Result<()>) {
        for end in self.ends {
            if let End::Tcp(stream, _) = end
                && how.is_err()
            {
                // Bytes may be missing, so the end must not look like one that was meant.
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
        }
        // Nobody wants to know where the gateway ends.
        let _ = self.done.send(());
    }
}

/// Gives as much as is taken at once.
#[inline]
fn give(to: &End, bytes: &[u8], links: &mut Links) -> io::Result<usize> {
    match to {
        End::Tcp(stream, _) => write(stream, bytes),
        End::Channel(key) => Ok(links.say(*key, bytes)),
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

/// What a connection says is read until so much waits: where the kernel's room for it is full, it may have promised more
/// than it has, drops what comes, and hears of it again after 200 ms.
const WAITING_MAX: usize = 256 << 10;
/// Reads from one end in a row, so that the others have their turn.
const READS: usize = 4;
