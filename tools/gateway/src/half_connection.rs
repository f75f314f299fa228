//! Ends of a relayed connection, before the carrier takes them.

use std::io;
use std::time::Duration;

use netpath::{TcpSample, WanTcp};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::carrier::ChannelEnd;

/// One end of a relayed connection.
pub(crate) enum HalfConnection {
    /// A TCP connection of its own, and its wide-area tuning if the round trip is long.
    Tcp(TcpStream, Option<Box<WanTcp>>),
    /// A channel of the link that two gateways share.
    Trunk(ChannelEnd),
}

/// Disables Nagle's algorithm and enables TCP keepalive.
pub(crate) fn watch(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIMEOUT / 2)
        .with_interval(KEEPALIVE_TIMEOUT / 2 / PROBES)
        .with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Prepares a TCP connection for the carrier. Returns it with its round trip, if the kernel knows it.
pub(crate) fn prepare(stream: TcpStream) -> io::Result<(HalfConnection, Duration)> {
    watch(&stream)?;
    let round_trip = Duration::from_nanos(TcpSample::of(&stream)?.round_trip_ns.unwrap_or(0));
    let wan = WanTcp::is_wan(round_trip).then(|| Box::new(WanTcp::begin(&stream)));
    Ok((HalfConnection::Tcp(stream, wan), round_trip))
}

/// Time without an answer to keepalive probes after which a host counts as dead.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(60);
const PROBES: u32 = 5;
