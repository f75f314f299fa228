//! The two ends of what is carried, and the carrying.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use driver::{FarTcp, TcpSample};
use quinn::{RecvStream, SendStream, VarInt};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// One end of a connection that is carried.
#[derive(Debug)]
pub(crate) enum Leg {
    /// A connection of its own; a far one is in care.
    Tcp(TcpStream, Option<FarTcp>),
    /// A stream of the connection that two gateways share.
    Trunk(SendStream, RecvStream),
}

enum In {
    Near(OwnedReadHalf),
    Far(OwnedReadHalf, Box<Care>),
    Trunk(RecvStream),
}

/// Looks after a far connection now and then.
struct Care {
    far: FarTcp,
    due: Interval,
}

enum Out {
    Tcp(OwnedWriteHalf),
    Trunk(SendStream),
}

/// Carries bytes between two legs until both ends have said all, or one breaks off: then the other is
/// broken off, too. `forth` counts what comes from `one`, `back` what goes to it.
pub(crate) async fn carry(one: Leg, other: Leg, forth: &AtomicU64, back: &AtomicU64) {
    let (mut one_in, mut one_out) = one.split();
    let (mut other_in, mut other_out) = other.split();
    let carried = tokio::try_join!(
        pass(&mut one_in, &mut other_out, forth),
        pass(&mut other_in, &mut one_out, back)
    );
    if carried.is_err() {
        for (from, to) in [(&mut one_in, &mut one_out), (&mut other_in, &mut other_out)] {
            from.break_off();
            to.break_off();
        }
    }
}

/// Carries one direction, through one buffer: what is not taken is not read.
async fn pass(from: &mut In, to: &mut Out, count: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let len = from.read(&mut buffer).await?;
        if len == 0 {
            return to.finish().await;
        }
        to.write(&buffer[..len]).await?;
        count.fetch_add(len as u64, Ordering::Relaxed);
    }
}

impl Leg {
    fn split(self) -> (In, Out) {
        match self {
            Self::Tcp(stream, care) => {
                let (from, to) = stream.into_split();
                let from = match care {
                    Some(far) => In::Far(from, Box::new(Care::new(far))),
                    None => In::Near(from),
                };
                (from, Out::Tcp(to))
            }
            Self::Trunk(to, from) => (In::Trunk(from), Out::Trunk(to)),
        }
    }
}

impl In {
    async fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Near(from) => from.read(room).await,
            Self::Far(from, care) => loop {
                tokio::select! {
                    biased;
                    read = from.read(room) => return read,
                    _ = care.due.tick() => care.far.look(from.as_ref())?,
                }
            },
            Self::Trunk(from) => Ok(from.read(room).await?.unwrap_or(0)),
        }
    }

    fn break_off(&mut self) {
        match self {
            // Bytes may be missing, so the end must not look like one that was meant.
            Self::Near(from) | Self::Far(from, _) => {
                let _ = SockRef::from(from.as_ref()).set_linger(Some(Duration::ZERO));
            }
            // Fails for a stream that has ended.
            Self::Trunk(from) => {
                let _ = from.stop(BROKEN);
            }
        }
    }
}

impl Care {
    fn new(far: FarTcp) -> Self {
        let mut due = interval(FarTcp::LOOK_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { far, due }
    }
}

impl Out {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(to) => to.write_all(bytes).await,
            Self::Trunk(to) => Ok(to.write_all(bytes).await?),
        }
    }

    async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(to) => to.shutdown().await,
            // Fails for a stream that the other end has stopped: it wants no more.
            Self::Trunk(to) => to.finish().map_err(io::Error::from),
        }
    }

    fn break_off(&mut self) {
        match self {
            // Its other half breaks off both.
            Self::Tcp(_) => {}
            // Fails for a stream that has ended.
            Self::Trunk(to) => {
                let _ = to.reset(BROKEN);
            }
        }
    }
}

/// Prepares a connection for carrying; its end of what is carried, and its round trip, as far as the kernel knows.
pub(crate) fn prepare(stream: TcpStream) -> io::Result<(Leg, Duration)> {
    stream.set_nodelay(true)?;
    let questions = TcpKeepalive::new()
        .with_time(SILENCE / 2)
        .with_interval(SILENCE / 2 / QUESTIONS)
        .with_retries(QUESTIONS);
    SockRef::from(&stream).set_tcp_keepalive(&questions)?;
    let round_trip = Duration::from_nanos(TcpSample::of(&stream)?.round_trip_ns.unwrap_or(0));
    let care = FarTcp::is_far(round_trip).then(|| FarTcp::begin(&stream));
    Ok((Leg::Tcp(stream, care), round_trip))
}

/// On one way of a connection at most so much waits in the gateway itself.
const BUFFER_LEN: usize = 64 << 10;
/// A host that gives no sign of life for so long while nothing is under way has vanished.
const SILENCE: Duration = Duration::from_secs(60);
const QUESTIONS: u32 = 5;
/// What a stream's other end is told when the connection behind it has broken off.
const BROKEN: VarInt = VarInt::from_u32(1);
