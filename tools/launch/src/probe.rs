//! Round trips between two hosts, measured by their agents.
//!
//! On request an agent listens on its networks until it ends. A caller that presents the token, which came
//! over the agents' own channels, gets its bytes back; nobody else gets anything. Each listener has its own
//! token, so an address that means another machine elsewhere leads to a refusal.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use netpath::TcpNetworks;

use crate::system;

/// Token that a caller has to present first.
pub(crate) type Token = [u8; 32];

/// Callers that have not presented the token, in order of arrival.
#[derive(Default)]
struct UnprovenCallers {
    queue: Mutex<CallerQueue>,
}

#[derive(Default)]
struct CallerQueue {
    next: u64,
    unproved: VecDeque<(u64, TcpStream)>,
    refused: u64,
}

impl UnprovenCallers {
    /// Admits a caller and returns its number. If there are too many, the oldest one is expelled.
    fn enter(&self, stream: &TcpStream) -> io::Result<u64> {
        let stream = stream.try_clone()?;
        let mut queue = self.queue();
        if queue.unproved.len() >= UNPROVED_MAX
            && let Some((_, oldest)) = queue.unproved.pop_front()
        {
            // Its thread reads the end of the stream.
            let _ = oldest.shutdown(Shutdown::Both);
            queue.refuse(&oldest);
        }
        let number = queue.next;
        queue.next += 1;
        queue.unproved.push_back((number, stream));
        Ok(number)
    }

    /// Removes a caller that has presented the token or failed to.
    fn leave(&self, number: u64, is_proved: bool) {
        let mut queue = self.queue();
        let Some(index) = queue.unproved.iter().position(|one| one.0 == number) else { return };
        if let Some((_, stream)) = queue.unproved.remove(index).filter(|_| !is_proved) {
            queue.refuse(&stream);
        }
    }

    fn queue(&self) -> MutexGuard<'_, CallerQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallerQueue {
    /// Counts a refused caller, and reports the first, the tenth, the hundredth.
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

/// Listens on all networks, or those of the setting. Returns the addresses.
pub(crate) fn listen(token: Token) -> io::Result<Vec<SocketAddr>> {
    let interface = settings::IFACE.given().map(|given| given.to_string_lossy());
    let networks = TcpNetworks::find(interface.as_deref())?;
    let callers = Arc::new(UnprovenCallers::default());
    networks.all().iter().map(|network| listen_on(network.address(), token, &callers)).collect()
}

fn listen_on(
    address: IpAddr,
    token: Token,
    callers: &Arc<UnprovenCallers>,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0))?;
    let address = listener.local_addr()?;
    let callers = Arc::clone(callers);
    system::start_thread(move || {
        for stream in listener.incoming() {
            // No descriptors, memory or threads, usually; or the caller has already left.
            if stream.and_then(|stream| receive(stream, token, &callers)).is_err() {
                thread::sleep(REST);
            }
        }
    })?;
    Ok(address)
}

fn receive(mut stream: TcpStream, token: Token, callers: &Arc<UnprovenCallers>) -> io::Result<()> {
    let number = callers.enter(&stream)?;
    let callers_of_thread = Arc::clone(callers);
    let started = system::start_thread(move || {
        let is_proved = presents_token(&mut stream, &token).unwrap_or(false);
        callers_of_thread.leave(number, is_proved);
        if is_proved {
            // A caller that leaves is not measured.
            let _ = echo(stream);
        }
    });
    if started.is_err() {
        callers.leave(number, false);
    }
    started
}

/// True if the caller presents the token.
fn presents_token(stream: &mut TcpStream, token: &Token) -> io::Result<bool> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut presented = Token::default();
    stream.read_exact(&mut presented)?;
    Ok(presented.iter().zip(token).fold(0, |bits, (one, other)| bits | (one ^ other)) == 0)
}

/// Echoes byte for byte.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut byte = [0];
    for _ in 0..=ROUNDS {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
    Ok(())
}

/// Returns the shortest round trip in microseconds to a listener at one of these addresses.
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
    // The first round begins once the token has arrived.
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

/// Number of round trips; the shortest counts.
const ROUNDS: u32 = 6;
/// Time limit of a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of connections without the token.
const UNPROVED_MAX: usize = 64;
/// Pause after a failed `accept`.
const REST: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_with_the_token_are_measured_and_no_others() {
        let token = [7; 32];
        let listener = listen_on(HERE, token, &Arc::default()).unwrap();
        let nobody = SocketAddr::from((HERE, 1));
        assert!(round_trip_us(&[nobody, listener], &token).is_some());
        assert_eq!(round_trip_us(&[listener], &[8; 32]), None);
        assert_eq!(round_trip_us(&[nobody], &token), None);
    }

    #[test]
    fn silent_callers_are_bounded_in_number_and_keep_nobody_out() {
        let (token, callers) = ([7; 32], Arc::default());
        let listener = listen_on(HERE, token, &callers).unwrap();
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
                assert!(callers.queue().unproved.len() <= UNPROVED_MAX);
            }
        }
        // A thread each, and the listener's; the last may still be on their way in.
        let limit = Instant::now() + 10 * PATIENCE;
        let refused = || callers.queue().refused;
        while Arc::strong_count(&callers) > 2 + UNPROVED_MAX
            || refused() < (SILENT - UNPROVED_MAX) as u64
        {
            let threads = Arc::strong_count(&callers);
            assert!(Instant::now() < limit, "{threads} threads, {} refused", refused());
            thread::sleep(REST);
        }
        assert!(refused() <= SILENT as u64, "{}", refused());
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const SILENT: usize = 2000;
}
