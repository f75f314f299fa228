//! How long a round trip between two hosts takes, measured by their agents.
//!
//! An agent that is asked to listens on its networks until it ends. Who connects and shows the token that came
//! over the agents' own channels gets its bytes back, and nobody else anything. The token is this
//! listener's alone: an address that means another machine where it is tried leads to a refusal.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use driver::TcpNetworks;

use crate::system;

/// What who connects has to show first.
pub(crate) type Token = [u8; 32];

/// Listens on all networks, or those of the setting; the addresses.
pub(crate) fn listen(token: Token) -> io::Result<Vec<SocketAddr>> {
    let interface = settings::IFACE.given().map(|given| given.to_string_lossy());
    let networks = TcpNetworks::find(interface.as_deref())?;
    networks.all().iter().map(|network| listen_on(network.address(), token)).collect()
}

fn listen_on(address: IpAddr, token: Token) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0))?;
    let address = listener.local_addr()?;
    let guests = Arc::new(AtomicUsize::new(0));
    system::start_thread(move || {
        for stream in listener.incoming().flatten() {
            let guests = Arc::clone(&guests);
            if guests.fetch_add(1, Ordering::Relaxed) >= GUESTS_MAX {
                guests.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let started = system::start_thread({
                let guests = Arc::clone(&guests);
                move || {
                    // Whoever it was has gone, or was none of ours.
                    let _ = serve(stream, &token);
                    guests.fetch_sub(1, Ordering::Relaxed);
                }
            });
            if started.is_err() {
                guests.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    Ok(address)
}

/// Gives back what a guest sends that has shown the token.
fn serve(mut stream: TcpStream, token: &Token) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut shown = Token::default();
    stream.read_exact(&mut shown)?;
    let differing = shown.iter().zip(token).fold(0, |bits, (one, other)| bits | (one ^ other));
    if differing != 0 {
        return Ok(());
    }
    let mut byte = [0];
    for _ in 0..=ROUNDS {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
    Ok(())
}

/// The least round trip in microseconds to a listener at one of these addresses.
pub(crate) fn round_trip_us(addresses: &[SocketAddr], token: &Token) -> Option<u64> {
    addresses.iter().find_map(|address| measure(address, token).ok())
}

fn measure(address: &SocketAddr, token: &Token) -> io::Result<u64> {
    let mut stream = TcpStream::connect_timeout(address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(token)?;
    let mut byte = [0];
    let mut least = Duration::MAX;
    // The first one begins when the token is there.
    for round in 0..=ROUNDS {
        let begin = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        if round > 0 {
            least = least.min(begin.elapsed());
        }
    }
    Ok(u64::try_from(least.as_micros()).unwrap_or(u64::MAX).max(1))
}

/// Round trips of which the least counts.
const ROUNDS: u32 = 6;
/// How long a connection, or an answer, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections at the same time.
const GUESTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shows_the_token_is_measured_and_nobody_else() {
        let token = [7; 32];
        let listener = listen_on([127, 0, 0, 1].into(), token).unwrap();
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(round_trip_us(&[nobody, listener], &token).is_some());
        assert_eq!(round_trip_us(&[listener], &[8; 32]), None);
        assert_eq!(round_trip_us(&[nobody], &token), None);
        // Strangers that say nothing keep nobody waiting, and many of them none out for long.
        let strangers: Vec<_> =
            (0..2 * GUESTS_MAX).map(|_| TcpStream::connect(listener).unwrap()).collect();
        drop(strangers);
        let until = Instant::now() + 4 * PATIENCE;
        while round_trip_us(&[listener], &token).is_none() {
            assert!(Instant::now() < until, "strangers that have gone keep the listener busy");
        }
    }
}
