//! The two ends of what is carried, before it is.

use std::io;
use std::time::Duration;

use driver::{FarTcp, TcpSample};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::carrier::ChannelEnd;

/// One end of a connection that is carried.
pub(crate) enum Leg {
    /// A connection of its own, and what looks after it if it is far.
    Tcp(TcpStream, Option<Box<FarTcp>>),
    /// A channel of the link that two gateways share.
    Trunk(ChannelEnd),
}

/// Has the kernel pass on at once what a connection is given, and watch the host at its other end.
pub(crate) fn watch(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let questions = TcpKeepalive::new()
        .with_time(SILENCE / 2)
        .with_interval(SILENCE / 2 / QUESTIONS)
        .with_retries(QUESTIONS);
    SockRef::from(stream).set_tcp_keepalive(&questions)
}

/// Prepares a connection for carrying; its end of what is carried, and its round trip, as far as the kernel knows.
pub(crate) fn prepare(stream: TcpStream) -> io::Result<(Leg, Duration)> {
    watch(&stream)?;
    let round_trip = Duration::from_nanos(TcpSample::of(&stream)?.round_trip_ns.unwrap_or(0));
    let far = FarTcp::is_far(round_trip).then(|| Box::new(FarTcp::begin(&stream)));
    Ok((Leg::Tcp(stream, far), round_trip))
}

/// A host that gives no sign of life for so long while nothing is under way has vanished.
const SILENCE: Duration = Duration::from_secs(60);
const QUESTIONS: u32 = 5;
