//! How soon the kernel repeats what nobody has confirmed.
//!
//! What is lost before other packets is missed by their confirmations, within a round trip. The last of a message, or a
//! repeat that is lost in its turn, is missed by a timer: after a round trip and 200 ms, for a receiver may keep its
//! confirmation back for as long. Over a long way both are set to what its ends need: the receiver keeps nothing back for
//! longer than a host takes to answer, and the sender waits for a moment more than that. Each end does so for itself; where
//! the other's kernel is older, a word that has to wait for its answer is repeated once in vain.

use std::os::fd::AsFd;
use std::time::Duration;

use super::measure;

/// Has what is lost at the end be repeated soon, and what comes be confirmed soon, on a connection over a long way. Where the
/// system does not know how (Linux before 6.15), it stays as it was.
pub(super) fn hasten(socket: &impl AsFd) {
    for (option, time) in [(TCP_DELACK_MAX_US, CONFIRMED_WITHIN), (TCP_RTO_MIN_US, REPEATED_AFTER)]
    {
        let us = time.as_micros() as u32;
        let _ = measure::set(socket, libc::IPPROTO_TCP, option, &us.to_ne_bytes());
    }
}

/// Of a round trip that a host answers late, with its own timer's grain (4 ms on many systems).
const CONFIRMED_WITHIN: Duration = Duration::from_millis(8);
/// Besides the round trip: longer than a confirmation is kept back, and than hosts are late otherwise.
const REPEATED_AFTER: Duration = Duration::from_millis(16);

/// From `linux/tcp.h`.
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::measure;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_far_connection_repeats_soon_where_the_system_knows_how() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Some(usual) = measure::number(&socket, TCP_RTO_MIN_US) else { return };
        hasten(&socket);
        let [repeated, confirmed] = [TCP_RTO_MIN_US, TCP_DELACK_MAX_US]
            .map(|option| measure::number(&socket, option).expect("it has the other"));
        let asked = [REPEATED_AFTER, CONFIRMED_WITHIN].map(|time| time.as_micros() as u32);
        assert!(usual > repeated && repeated >= asked[0], "{usual} to {repeated}");
        assert!(confirmed >= asked[1] && confirmed <= repeated, "{confirmed} within {repeated}");
    }
}
