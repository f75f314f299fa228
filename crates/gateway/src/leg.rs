//! The two ends of what is carried, and the carrying.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use driver::{FarTcp, TcpSample};
use quinn::{RecvStream, SendStream, VarInt};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::carrier::{BUFFER_LEN, Carrier, End};
use crate::ledger::Ledger;

/// One end of a connection that is carried.
#[derive(Debug)]
pub(crate) enum Leg {
    /// A connection of its own, and who looks after it.
    Tcp(TcpStream, Option<Box<Care>>),
    /// A stream of the connection that two gateways share.
    Trunk(SendStream, RecvStream),
}

enum In {
    Tcp(OwnedReadHalf),
    Cared(OwnedReadHalf, Box<Care>, Interval),
    Trunk(RecvStream),
}

/// Looks now and then after a connection that is far, or may be another gateway's.
#[derive(Debug)]
pub(crate) struct Care {
    far: Option<FarTcp>,
    watched: Option<Watched>,
}

/// A gateway that may be at the other end: it may stop while its host runs on, of which TCP says nothing.
#[derive(Debug)]
pub(crate) struct Watched {
    losses: Arc<Losses>,
    address: IpAddr,
    since: Instant,
}

/// When gateways at these addresses were last found silent, and how many connections with each are watched.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    last: Mutex<HashMap<IpAddr, Instant>>,
    watched: Mutex<HashMap<IpAddr, usize>>,
}

impl Losses {
    /// A gateway there gives no sign of life.
    pub fn note(&self, address: IpAddr) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= LOSSES_MAX {
            last.clear();
        }
        last.insert(address, Instant::now());
    }

    /// Watches a connection with somebody there that begins now.
    pub fn watch(self: &Arc<Self>, address: IpAddr) -> Watched {
        *self.counts().entry(address).or_default() += 1;
        Watched { losses: self.clone(), address, since: Instant::now() }
    }

    /// How many connections with somebody there are watched.
    pub fn watched(&self, address: IpAddr) -> usize {
        self.counts().get(&address).copied().unwrap_or(0)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.losses.counts().entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Watched {
    fn is_lost(&self) -> bool {
        let last = self.losses.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(&self.address).is_some_and(|lost| *lost >= self.since)
    }
}

enum Out {
    Tcp(OwnedWriteHalf),
    Trunk(SendStream),
}

/// Carries bytes between the leg of a caller and another until both ends have said all, or one breaks off: then the
/// other is broken off, too. Between two connections over TCP the carrier does.
pub(crate) async fn carry(carrier: &Carrier, caller: Leg, other: Leg, ledger: &Arc<Ledger>) {
    let (one, other) = match (caller, other) {
        (Leg::Tcp(one, care_of_one), Leg::Tcp(other, care_of_other)) => {
            // Fails for sockets that are lost; with them goes what is carried.
            if let (Ok(one), Ok(other)) = (one.into_std(), other.into_std()) {
                let one = End { stream: one, care: care_of_one };
                let other = End { stream: other, care: care_of_other };
                carrier.carry(one, other, Arc::clone(ledger)).await;
            }
            return;
        }
        legs => legs,
    };
    let (mut one_in, mut one_out) = one.split();
    let (mut other_in, mut other_out) = other.split();
    let carried = tokio::try_join!(
        pass(&mut one_in, &mut other_out, &ledger.from_callers),
        pass(&mut other_in, &mut one_out, &ledger.to_callers)
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
                    Some(care) => {
                        let mut due = interval(FarTcp::LOOK_EVERY);
                        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
                        In::Cared(from, care, due)
                    }
                    None => In::Tcp(from),
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
            Self::Tcp(from) => from.read(room).await,
            Self::Cared(from, care, due) => loop {
                tokio::select! {
                    biased;
                    read = from.read(room) => return read,
                    _ = due.tick() => care.look(from.as_ref())?,
                }
            },
            Self::Trunk(from) => Ok(from.read(room).await?.unwrap_or(0)),
        }
    }

    fn break_off(&mut self) {
        match self {
            // Bytes may be missing, so the end must not look like one that was meant.
            Self::Tcp(from) | Self::Cared(from, ..) => {
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
    /// To be called every [`FarTcp::LOOK_EVERY`].
    ///
    /// # Errors
    /// When the other end is lost.
    pub fn look(&mut self, stream: &impl AsFd) -> io::Result<()> {
        if self.watched.as_ref().is_some_and(Watched::is_lost) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.far.as_mut().map_or(Ok(()), |far| far.look(stream))
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
pub(crate) fn prepare(stream: TcpStream, watched: Option<Watched>) -> io::Result<(Leg, Duration)> {
    stream.set_nodelay(true)?;
    let questions = TcpKeepalive::new()
        .with_time(SILENCE / 2)
        .with_interval(SILENCE / 2 / QUESTIONS)
        .with_retries(QUESTIONS);
    SockRef::from(&stream).set_tcp_keepalive(&questions)?;
    let round_trip = Duration::from_nanos(TcpSample::of(&stream)?.round_trip_ns.unwrap_or(0));
    let far = FarTcp::is_far(round_trip).then(|| FarTcp::begin(&stream));
    let is_cared_for = far.is_some() || watched.is_some();
    let care = is_cared_for.then(|| Box::new(Care { far, watched }));
    Ok((Leg::Tcp(stream, care), round_trip))
}

/// Addresses of which losses are known.
const LOSSES_MAX: usize = 256;
/// A host that gives no sign of life for so long while nothing is under way has vanished.
const SILENCE: Duration = Duration::from_secs(60);
const QUESTIONS: u32 = 5;
/// What a stream's other end is told when the connection behind it has broken off.
const BROKEN: VarInt = VarInt::from_u32(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_was_silent_loses_what_began_before_and_nothing_else() {
        let losses = Arc::new(Losses::default());
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 77, 0, last]));
        let (before, elsewhere) = (losses.watch(one), losses.watch(other));
        assert!(!before.is_lost());
        losses.note(one);
        assert!(before.is_lost() && !elsewhere.is_lost());
        let mut after = losses.watch(one);
        after.since += Duration::from_nanos(1);
        assert!(!after.is_lost());
        for last in 0..=LOSSES_MAX {
            losses.note(IpAddr::from([10, 78, (last >> 8) as u8, last as u8]));
        }
        assert!(losses.last.lock().unwrap().len() <= LOSSES_MAX);
    }

    #[test]
    fn connections_with_a_host_are_counted_as_long_as_they_last() {
        let losses = Arc::new(Losses::default());
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 77, 0, last]));
        let held = [one, other, one].map(|address| losses.watch(address));
        assert_eq!((losses.watched(one), losses.watched(other)), (2, 1));
        drop(held);
        assert_eq!((losses.watched(one), losses.counts().len()), (0, 0));
    }
}
