//! The minimum RTO and the delayed-ACK timer of WAN connections.
//!
//! A packet lost before others is detected by their ACKs within a round trip. The last packet of a message, or a lost
//! retransmission, needs the retransmission timer. It fires after a round trip plus 200 ms, because a receiver may
//! delay its ACK that long. On a WAN path each end lowers both timers. The receiver delays ACKs no longer than a host
//! takes to answer, and the sender waits a little longer than that. If the other end's kernel is older, a message
//! that waits for its answer is retransmitted once needlessly.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::measure;

/// Lowers the minimum RTO and the delayed-ACK timer of a WAN connection (Linux ≥ 6.15). Older kernels keep their
/// defaults.
pub fn lower_rto(socket: &impl AsFd) {
    for (option, time) in [(TCP_DELACK_MAX_US, DELAYED_ACK_MAX), (TCP_RTO_MIN_US, RTO_MIN)] {
        let us = time.as_micros() as u32;
        let _ = measure::set(socket, libc::IPPROTO_TCP, option, &us.to_ne_bytes());
    }
}

/// Maximum ACK delay: a host answers late by its timer's tick (4 ms on many systems).
const DELAYED_ACK_MAX: Duration = Duration::from_millis(8);
/// Minimum RTO beyond the round trip: longer than an ACK is delayed, and than hosts are late otherwise.
const RTO_MIN: Duration = Duration::from_millis(16);

/// From `linux/tcp.h`.
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::measure;

    #[test]
    fn a_wan_connection_has_a_low_rto_where_the_kernel_supports_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let Some(usual) = measure::number(&socket, TCP_RTO_MIN_US) else {
            return testing::skip("this kernel has no TCP_RTO_MIN_US (Linux 6.15)");
        };
        lower_rto(&socket);
        let [repeated, confirmed] = [TCP_RTO_MIN_US, TCP_DELACK_MAX_US]
            .map(|option| measure::number(&socket, option).expect("it has the other"));
        let asked = [RTO_MIN, DELAYED_ACK_MAX].map(|time| time.as_micros() as u32);
        assert!(usual > repeated && repeated >= asked[0], "{usual} to {repeated}");
        assert!(confirmed >= asked[1] && confirmed <= repeated, "{confirmed} within {repeated}");
    }
}
