//! How long a round trip between two hosts takes, measured by their agents.
//!
//! An agent that is asked to listens on its networks until it ends. Who connects and shows the token that came
//! over the agents' own channels gets its bytes back, and nobody else anything. The token is this
//! listener's alone: an address that means another machine where it is tried leads to a refusal.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use driver::TcpNetworks;

use crate::system;

/// What who connects has to show first.
pub(crate) type Token = [u8; 32];

/// Those that have connected and have not shown the token, in the order in which they came.
#[derive(Default)]
struct Guests {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    next: u64,
    unproved: VecDeque<(u64, TcpStream)>,
    refused: u64,
}

impl Guests {
    /// Lets somebody in: by which number it leaves. In a crowd the one that has been here longest has to go.
    fn enter(&self, stream: &TcpStream) -> io::Result<u64> {
        let stream = stream.try_clone()?;
        let mut inside = self.inside();
        if inside.unproved.len() >= UNPROVED_MAX
            && let Some((_, oldest)) = inside.unproved.pop_front()
        {
            // Whoever reads from it reads its end.
            let _ = oldest.shutdown(Shutdown::Both);
            inside.refuse(&oldest);
        }
        let number = inside.next;
        inside.next += 1;
        inside.unproved.push_back((number, stream));
        Ok(number)
    }

    /// It has shown the token, or will not.
    fn leave(&self, number: u64, is_proved: bool) {
        let mut inside = self.inside();
        let Some(at) = inside.unproved.iter().position(|one| one.0 == number) else { return };
        if let Some((_, stream)) = inside.unproved.remove(at).filter(|_| !is_proved) {
            inside.refuse(&stream);
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Counts who was refused, and tells of the first, the tenth, the hundredth.
    fn refuse(&mut self, stream: &TcpStream) {
        self.refused += 1;
        if 10u64.pow(self.refused.ilog10()) == self.refused
            && let Ok(from) = stream.peer_addr()
        {
            tell!(
                "canele-agent: refused {from}, which is no agent (refused so far: {})",
                self.refused
            );
        }
    }
}

/// Listens on all networks, or those of the setting; the addresses.
pub(crate) fn listen(token: Token) -> io::Result<Vec<SocketAddr>> {
    let interface = settings::IFACE.given().map(|given| given.to_string_lossy());
    let networks = TcpNetworks::find(interface.as_deref())?;
    let guests = Arc::new(Guests::default());
    networks.all().iter().map(|network| listen_on(network.address(), token, &guests)).collect()
}

fn listen_on(address: IpAddr, token: Token, guests: &Arc<Guests>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0))?;
    let address = listener.local_addr()?;
    let guests = Arc::clone(guests);
    system::start_thread(move || {
        for stream in listener.incoming() {
            // For want of descriptors, memory or threads, mostly; or the caller has left already.
            if stream.and_then(|stream| receive(stream, token, &guests)).is_err() {
                thread::sleep(REST);
            }
        }
    })?;
    Ok(address)
}

fn receive(mut stream: TcpStream, token: Token, guests: &Arc<Guests>) -> io::Result<()> {
    let number = guests.enter(&stream)?;
    let within = Arc::clone(guests);
    let started = system::start_thread(move || {
        let is_proved = shows(&mut stream, &token).unwrap_or(false);
        within.leave(number, is_proved);
        if is_proved {
            // Who does not stay to be measured is not.
            let _ = give_back(stream);
        }
    });
    if started.is_err() {
        guests.leave(number, false);
    }
    started
}

/// Whether a guest shows the token.
fn shows(stream: &mut TcpStream, token: &Token) -> io::Result<bool> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut shown = Token::default();
    stream.read_exact(&mut shown)?;
    Ok(shown.iter().zip(token).fold(0, |bits, (one, other)| bits | (one ^ other)) == 0)
}

/// Gives back what comes, byte for byte.
fn give_back(mut stream: TcpStream) -> io::Result<()> {
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
/// Connections at the same time that have not shown the token.
const UNPROVED_MAX: usize = 64;
/// How long nobody is let in when somebody could not be.
const REST: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shows_the_token_is_measured_and_nobody_else() {
        let token = [7; 32];
        let listener = listen_on(HERE, token, &Arc::default()).unwrap();
        let nobody = SocketAddr::from((HERE, 1));
        assert!(round_trip_us(&[nobody, listener], &token).is_some());
        assert_eq!(round_trip_us(&[listener], &[8; 32]), None);
        assert_eq!(round_trip_us(&[nobody], &token), None);
    }

    #[test]
    fn the_silent_are_bounded_in_number_and_keep_nobody_out() {
        let (token, guests) = ([7; 32], Arc::default());
        let listener = listen_on(HERE, token, &guests).unwrap();
        let mut strangers = VecDeque::new();
        for number in 0..SILENT {
            let mut stranger = TcpStream::connect(listener).unwrap();
            if number % 2 == 0 {
                // Refused already, perhaps.
                let _ = stranger.write_all(&token[..number % token.len()]);
            }
            strangers.push_back(stranger);
            if strangers.len() > 2 * UNPROVED_MAX {
                strangers.pop_front();
            }
            if number % 50 == 0 {
                assert!(round_trip_us(&[listener], &token).is_some(), "after {number}");
                assert!(guests.inside().unproved.len() <= UNPROVED_MAX);
            }
        }
        // A thread each, and the listener's; the last may still be on their way in.
        let limit = Instant::now() + 10 * PATIENCE;
        let refused = || guests.inside().refused;
        while Arc::strong_count(&guests) > 2 + UNPROVED_MAX
            || refused() < (SILENT - UNPROVED_MAX) as u64
        {
            let threads = Arc::strong_count(&guests);
            assert!(Instant::now() < limit, "{threads} threads, {} refused", refused());
            thread::sleep(REST);
        }
        assert!(refused() <= SILENT as u64, "{}", refused());
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const SILENT: usize = 2000;
}
