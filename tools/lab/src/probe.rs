//! A measurement of a link, between two processes on nodes: round trips of TCP, and the rate at which UDP comes
//! through.
//!
//! More datagrams are sent than the link can carry, so that the rate found is the link's. TCP would find its own, which
//! also depends on buffers, losses and the round trip.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// Answers a client at this address and port [`PORT`]: echoes single bytes, and tells what it received of the flood.
pub(crate) fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind((address, PORT))?;
    let flood = UdpSocket::bind((address, PORT))?;
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut byte = [0];
    for _ in 0..ECHOES {
        socket.read_exact(&mut byte)?;
        socket.write_all(&byte)?;
    }
    let received = receive(&flood, &mut socket)?;
    socket.write_all(format!("{received}\n").as_bytes())
}

/// Returns the shortest round trip, and the bits per second that arrive at a server. `rate` is the link's.
pub(crate) fn measure(address: &str, rate: u64) -> io::Result<(Duration, f64)> {
    let mut socket = connect(address)?;
    socket.set_nodelay(true)?;
    let mut least = Duration::MAX;
    let mut byte = [0];
    for _ in 0..ECHOES {
        let start = Instant::now();
        socket.write_all(&byte)?;
        socket.read_exact(&mut byte)?;
        least = least.min(start.elapsed());
    }
    flood(SocketAddr::new(socket.peer_addr()?.ip(), PORT), rate)?;
    // The link is a queue: this byte comes behind the flood.
    socket.write_all(&byte)?;
    let mut line = String::new();
    socket.read_to_string(&mut line)?;
    let received = line.trim().parse().map_err(|_| io::Error::other("the server told nothing"))?;
    Ok((least, received))
}

/// Sends datagrams for a while, more than a link of this rate carries.
fn flood(to: SocketAddr, rate: u64) -> io::Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    let state = UdpSocketState::new((&socket).into())?;
    let bytes_per_s = rate as f64 / 8.0 * EXCESS;
    // A batch of some 0.5 ms is one system call.
    let batch = (bytes_per_s * 5e-4 / DATAGRAM as f64) as usize;
    let batch = batch.clamp(1, state.max_gso_segments().min(BATCH_MAX));
    let content = vec![0; batch * DATAGRAM];
    let lasting = duration(rate);
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < lasting {
        let due = start.elapsed().as_secs_f64() * bytes_per_s;
        if (sent as f64) < due {
            let transmit = Transmit {
                destination: to,
                ecn: None,
                contents: &content,
                segment_size: (batch > 1).then_some(DATAGRAM),
                src_ip: None,
            };
            match state.try_send((&socket).into(), &transmit) {
                Ok(()) => sent += content.len(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&[PollFd::new(&socket, PollFlags::OUT)], Duration::from_millis(1))?;
                }
                Err(error) => return Err(error),
            }
        } else {
            let rest = Duration::from_secs_f64((sent as f64 - due) / bytes_per_s);
            std::thread::sleep(rest.max(Duration::from_micros(200)));
        }
    }
    Ok(())
}

/// Receives datagrams until the client sends a byte; returns the rate of those after the first [`SKIPPED`] bytes.
fn receive(flood: &UdpSocket, client: &mut TcpStream) -> io::Result<f64> {
    let state = UdpSocketState::new(flood.into())?;
    // Without permission for more, the system's limit holds.
    let _ = state.set_recv_buffer_size(flood.into(), 4 << 20);
    let mut buffer = vec![0; 1 << 16];
    let mut meta = [RecvMeta::default()];
    let (mut skipped, mut counted, mut first, mut last) = (0, 0, None, None);
    loop {
        match state.recv(flood.into(), &mut [IoSliceMut::new(&mut buffer)], &mut meta) {
            Ok(_) => {
                let now = Instant::now();
                if first.is_some() {
                    counted += meta[0].len;
                    last = Some(now);
                } else {
                    skipped += meta[0].len;
                    first = (skipped >= SKIPPED).then_some(now);
                }
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let ready = [PollFd::new(flood, PollFlags::IN), PollFd::new(&*client, PollFlags::IN)];
        let [has_datagram, is_over] = wait(&ready, PATIENCE)?;
        if is_over && !has_datagram {
            client.read_exact(&mut [0])?;
            break;
        }
        if !has_datagram && !is_over {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client is silent"));
        }
    }
    Ok(match (first, last) {
        (Some(first), Some(last)) => counted as f64 * 8.0 / (last - first).as_secs_f64(),
        _ => 0.0,
    })
}

/// Waits until a descriptor is ready; returns which are.
fn wait<const N: usize>(descriptors: &[PollFd<'_>; N], most: Duration) -> io::Result<[bool; N]> {
    let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    let mut descriptors = descriptors.clone();
    match poll(&mut descriptors, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(descriptors.map(|descriptor| !descriptor.revents().is_empty()))
}

/// The server may need a moment to listen.
fn connect(address: &str) -> io::Result<TcpStream> {
    let since = Instant::now();
    loop {
        match TcpStream::connect((address, PORT)) {
            Err(_) if since.elapsed() < Duration::from_secs(2) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

/// Time of a flood over a link of this rate: enough for the bytes that are skipped, and a hundred datagrams.
pub(crate) fn duration(rate: u64) -> Duration {
    let bytes = (SKIPPED + 100 * DATAGRAM) as f64;
    Duration::from_secs_f64((bytes * 8.0 / rate as f64).max(FLOOD_S))
}

/// Share of a link's rate that the flood's datagrams get, of which each has 28 bytes of headers and 38 of Ethernet.
pub(crate) const GOODPUT: f64 = DATAGRAM as f64 / (DATAGRAM + 28 + 38) as f64;

const PORT: u16 = 7077;
const ECHOES: usize = 30;
/// Bytes in a datagram: those of an Ethernet frame.
const DATAGRAM: usize = 1472;
/// Datagrams in a batch: a token bucket passes no more at once.
const BATCH_MAX: usize = 40;
/// Bytes that are not counted: those that a token bucket passes at line speed.
const SKIPPED: usize = 160 << 10;
/// Rate of the flood in relation to the link's.
const EXCESS: f64 = 1.3;
/// Shortest time of a flood, in seconds.
const FLOOD_S: f64 = 0.8;
/// Longest silence of the client.
const PATIENCE: Duration = Duration::from_secs(20);
