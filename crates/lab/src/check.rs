//! What a lab's links really do: round trips and goodput of TCP, measured inside it.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Answers a client at this address and port [`PORT`]: echoes single bytes, swallows the rest.
pub(crate) fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind((address, PORT))?;
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut byte = [0];
    for _ in 0..ECHOES {
        socket.read_exact(&mut byte)?;
        socket.write_all(&byte)?;
    }
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        total += count;
        if total >= BULK {
            socket.write_all(&[1])?;
            break;
        }
    }
    Ok(())
}

/// Round trip (the least of several) and goodput in bits per second, towards a server.
pub(crate) fn measure(address: &str) -> io::Result<(Duration, f64)> {
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
    let piece = vec![0; 1 << 20];
    let (mut sent, mut half) = (0, None);
    while sent < BULK {
        socket.write_all(&piece)?;
        sent += piece.len();
        // The second half counts: by then TCP has found its rate.
        if sent >= BULK / 2 && half.is_none() {
            half = Some((Instant::now(), sent));
        }
    }
    socket.read_exact(&mut byte)?;
    let (since, from) = half.unwrap_or((Instant::now(), 0));
    Ok((least, (sent - from) as f64 * 8.0 / since.elapsed().as_secs_f64()))
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

const PORT: u16 = 7077;
const ECHOES: usize = 30;
/// Bytes sent to find the goodput: half a second at 1 Gb/s for the part that counts.
const BULK: usize = 128 << 20;
