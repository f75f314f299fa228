//! A connection between the roots of two groups that meet, over which they tell each other of their processes.
//!
//! It has nothing to do with rails: it lives as long as the meeting, and only moves a few messages of some kilobytes. Over a
//! port it is encrypted, and both ends have proved the key of the port (TLS with raw public keys, `auth::Identity`).
//! Its reads and writes block, so a thread of their own runs them while the caller makes progress ([`beside`]).

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use auth::{Channel, Identity, Secret};
use progress::Progress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

/// A connection to the root of another group.
#[derive(Debug)]
pub struct MeetingChannel {
    channel: Channel,
    /// True if this side sends first.
    speaks_first: bool,
}

/// Reason why a meeting fails, one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeetingError {
    /// The text is no name of a port.
    #[error("the port name is malformed: pass it whole, as MPI_Open_port has returned it")]
    Name,
    /// No address of the port answers.
    #[error(
        "the port is not reached ({0}): it is closed, or its job has ended, or no network leads from this host to its own"
    )]
    Unreachable(String),
    /// The other side does not have the key of the port's name.
    #[error(
        "the process that listens at its address does not know the key in the port name: the port is closed"
    )]
    Key,
    /// The port was closed before the connection was accepted.
    #[error("the port was closed before MPI_Comm_accept, or its job has ended")]
    Refused,
    /// Nobody accepted in time.
    #[error(
        "nobody has accepted within {0} s: the other job has to call MPI_Comm_accept (the info key `timeout` of \
         MPI_Comm_connect gives it more seconds)"
    )]
    NotAccepted(u64),
    /// Nobody connected in time.
    #[error("nobody has connected within {0} s, the limit of the info key `timeout`")]
    NotConnected(u64),
    /// The port was closed during the call.
    #[error("the port is closed")]
    Closed,
    /// The other side is gone.
    #[error("the root of the other group has gone during the meeting")]
    Gone,
    /// The other side did not answer in time.
    #[error("the root of the other group does not answer")]
    Late,
    /// The other side sent something else.
    #[error("the other group speaks another protocol: both jobs need the same version of Canele")]
    Malformed,
    /// The system lacks a resource.
    #[error("{0}")]
    System(String),
}

impl MeetingChannel {
    /// Begins a meeting on a connected socket of the user, which both sides do. Nothing is encrypted; no secret is sent.
    ///
    /// # Errors
    /// The other side is gone, or speaks another protocol.
    pub fn on_socket(socket: OwnedFd) -> Result<Self, MeetingError> {
        let mut it = Self { channel: Channel::new(TcpStream::from(socket)), speaks_first: false };
        let random = Secret::random().map_err(|error| MeetingError::System(error.to_string()))?;
        let mine = [JOIN_MAGIC, &random.expose()[..16]].concat();
        it.write(&mine, None)?;
        let mut theirs = [0; JOIN_MAGIC.len() + 16];
        it.read(&mut theirs, None)?;
        if !theirs.starts_with(JOIN_MAGIC) || theirs[..] == mine {
            return Err(MeetingError::Malformed);
        }
        it.speaks_first = theirs[..] < mine[..];
        Ok(it)
    }

    /// Encrypts a connection, and proves the key of a port. Both ends have `deadline` for it.
    pub(crate) fn prove(
        socket: TcpStream,
        identity: &Identity,
        is_acceptor: bool,
        deadline: Instant,
    ) -> Result<Self, MeetingError> {
        let prepare = || {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)
        };
        prepare().map_err(|error| MeetingError::System(error.to_string()))?;
        // Of a host that dies, nothing else tells.
        let _ = sockopt::set_socket_keepalive(&socket, true);
        let _ = sockopt::set_tcp_keepidle(&socket, KEEPALIVE);
        let _ = sockopt::set_tcp_keepintvl(&socket, KEEPALIVE);
        let _ = sockopt::set_tcp_keepcnt(&socket, 3);
        let mut channel = Channel::new(socket);
        let begun = match is_acceptor {
            true => channel.encrypt_as_server(identity),
            false => channel.encrypt_as_client(identity),
        };
        begun.map_err(|_| MeetingError::Key)?;
        let mut it = Self { channel, speaks_first: is_acceptor };
        while !it.channel.agree().map_err(|error| fault(&error))? {
            it.await_socket(!it.channel.is_flushed(), Some(deadline))?;
        }
        it.flush(Some(deadline))?;
        Ok(it)
    }

    /// Sends a message and receives one. The side that accepts sends first.
    ///
    /// # Errors
    /// The other side is gone, or sends nothing within the limit.
    pub fn swap(&mut self, mine: &[u8], limit: Option<Duration>) -> Result<Vec<u8>, MeetingError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        if self.speaks_first {
            self.send(mine, deadline)?;
        }
        let theirs = self.receive(deadline)?;
        if !self.speaks_first {
            self.send(mine, deadline)?;
        }
        Ok(theirs)
    }

    fn send(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<(), MeetingError> {
        let len = (bytes.len() as u32).to_le_bytes();
        self.write(&len, deadline)?;
        self.write(bytes, deadline)
    }

    fn receive(&mut self, deadline: Option<Instant>) -> Result<Vec<u8>, MeetingError> {
        let mut len = [0; 4];
        self.read(&mut len, deadline)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > MESSAGE_MAX {
            return Err(MeetingError::Malformed);
        }
        let mut bytes = vec![0; len];
        self.read(&mut bytes, deadline)?;
        Ok(bytes)
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Option<Instant>) -> Result<(), MeetingError> {
        while !bytes.is_empty() {
            match self.channel.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_busy(&error) => self.await_socket(true, deadline)?,
                Err(error) => return Err(fault(&error)),
            }
        }
        self.flush(deadline)
    }

    fn flush(&mut self, deadline: Option<Instant>) -> Result<(), MeetingError> {
        while !self.channel.is_flushed() {
            self.channel.flush().map_err(|error| fault(&error))?;
            if !self.channel.is_flushed() {
                self.await_socket(true, deadline)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, mut room: &mut [u8], deadline: Option<Instant>) -> Result<(), MeetingError> {
        while !room.is_empty() {
            // The socket of a user may block.
            if !self.channel.holds_more() {
                self.await_socket(false, deadline)?;
            }
            match self.channel.read(room) {
                Ok(0) => return Err(MeetingError::Gone),
                Ok(count) => room = &mut room[count..],
                Err(error) if is_busy(&error) => {}
                Err(error) => return Err(fault(&error)),
            }
        }
        Ok(())
    }

    /// Waits until the socket takes or has bytes.
    fn await_socket(&self, writes: bool, deadline: Option<Instant>) -> Result<(), MeetingError> {
        let flags = if writes { PollFlags::OUT } else { PollFlags::IN };
        let mut events = [PollFd::new(&*self.channel.socket, flags)];
        if await_any(&mut events, deadline)? { Ok(()) } else { Err(MeetingError::Late) }
    }
}

/// Waits for one of these events; false at the deadline.
pub(crate) fn await_any(
    events: &mut [PollFd<'_>],
    deadline: Option<Instant>,
) -> Result<bool, MeetingError> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(events, limit.as_ref()) {
            Ok(0) if left.is_some_and(|left| left.is_zero()) => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(MeetingError::System(error.to_string())),
        }
    }
}

/// Runs work that blocks on a thread of its own, while this one makes progress. Without a thread, this one blocks.
pub fn beside<T: Send + 'static>(
    progress: &Arc<Progress>,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (result, work) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Some(work))));
    let run = {
        let (result, work, progress) = (result.clone(), work.clone(), Arc::clone(progress));
        move || {
            let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
            let done = work.map(|work| work());
            *result.lock().unwrap_or_else(PoisonError::into_inner) = done;
            progress.wake();
        }
    };
    let builder = thread::Builder::new().name("canele-meeting".into()).stack_size(STACK_BYTES);
    let started = cpu::without_signals(|| builder.spawn(run));
    if started.is_err()
        && let Some(work) = work.lock().unwrap_or_else(PoisonError::into_inner).take()
    {
        return work();
    }
    progress.wait(|_| result.lock().unwrap_or_else(PoisonError::into_inner).take())
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The other end has refused this one, sends strange bytes, or is gone.
fn fault(error: &io::Error) -> MeetingError {
    match auth::refusal_in(error) {
        Some(_) => MeetingError::Key,
        None => MeetingError::Gone,
    }
}

/// First bytes of a meeting on a socket of the user.
const JOIN_MAGIC: &[u8] = b"canele join 1\n";
/// Maximum length of a message: the contacts of some 100 000 processes.
const MESSAGE_MAX: usize = 64 << 20;
/// Time after which a silent host is asked whether it lives, and between two questions.
const KEEPALIVE: Duration = Duration::from_secs(15);
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> [UnixStream; 2] {
        UnixStream::pair().unwrap().into()
    }

    #[test]
    fn both_ends_of_a_socket_exchange_messages_and_leave_no_byte() {
        for is_blocking in [true, false] {
            let ends = pair();
            let kept = ends.each_ref().map(|end| end.try_clone().unwrap());
            kept.iter().for_each(|end| end.set_nonblocking(!is_blocking).unwrap());
            let threads = ends.map(|end| {
                thread::spawn(move || {
                    let mut it = MeetingChannel::on_socket(end.into()).unwrap();
                    let mine = vec![u8::from(it.speaks_first); 300_000];
                    let theirs = it.swap(&mine, None).unwrap();
                    assert_eq!(theirs, vec![u8::from(!it.speaks_first); 300_000]);
                    it.swap(b"", None).unwrap()
                })
            });
            for thread in threads {
                assert_eq!(thread.join().unwrap(), b"");
            }
            for mut end in &kept {
                end.set_nonblocking(true).unwrap();
                assert_eq!(end.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
        }
    }

    #[test]
    fn strangers_on_a_socket_are_told_from_processes() {
        let [one, mut other] = pair();
        other.write_all(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").unwrap();
        assert_eq!(MeetingChannel::on_socket(one.into()).unwrap_err(), MeetingError::Malformed);
        let [one, other] = pair();
        drop(other);
        assert_eq!(MeetingChannel::on_socket(one.into()).unwrap_err(), MeetingError::Gone);
    }
}
