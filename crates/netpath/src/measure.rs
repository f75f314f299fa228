//! Samples of what the kernel knows of a connection (`TCP_INFO`), without traffic.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use cost::{Cost, HostCost, RateSample};
use socket2::SockRef;

use crate::fairness;

/// The state of a connection as the kernel sees it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSample {
    /// Minimum round trip of the last minutes, between the kernels; `None` before the first.
    pub round_trip_ns: Option<u64>,
    /// Excess of the smoothed round trip over the minimum, caused by queues.
    pub queued_ns: u64,
    /// Number of retransmitted packets.
    pub retransmits: u64,
    /// Bytes that the peer has acknowledged.
    pub confirmed_bytes: u64,
    /// Bytes sent, retransmissions included.
    pub sent_bytes: u64,
    /// Bytes retransmitted, without those that had arrived after all.
    pub lost_bytes: u64,
    /// Recent delivery rate; `None` before the first.
    pub delivery_bytes_per_s: Option<u64>,
    /// True if the sender limited that rate because it had nothing more to send.
    pub is_limited_by_sender: bool,
    /// Congestion window, in bytes.
    pub window_bytes: u64,
    /// Packets in flight.
    pub unconfirmed_packets: u64,
    /// Maximum segment size.
    pub segment_bytes: u64,
    /// Send buffer of the kernel, for unacknowledged bytes; grows with use.
    pub send_buffer_bytes: u64,
    /// Receive buffer of the kernel; grows with use.
    pub receive_buffer_bytes: u64,
}

impl TcpSample {
    /// Reads the sample from the kernel.
    ///
    /// # Errors
    /// The kernel's error if the socket is no TCP connection.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let info = Info::of(socket)?;
        let option = SockRef::from(socket);
        let round_trip_us = info.u32_at(offset_of!(libc::tcp_info, tcpi_min_rtt));
        let known = round_trip_us.filter(|&us| us != 0 && us != u32::MAX);
        let segment = info.u32_at(offset_of!(libc::tcp_info, tcpi_snd_mss)).unwrap_or(0);
        let window = info.u32_at(offset_of!(libc::tcp_info, tcpi_snd_cwnd)).unwrap_or(0);
        let rate = info.u64_at(offset_of!(libc::tcp_info, tcpi_delivery_rate));
        let unconfirmed = info.u32_at(offset_of!(libc::tcp_info, tcpi_unacked));
        let retransmitted = info.u32_at(offset_of!(libc::tcp_info, tcpi_total_retrans));
        let usual_us = info.u32_at(offset_of!(libc::tcp_info, tcpi_rtt)).unwrap_or(0);
        let sent = info.u64_at(offset_of!(libc::tcp_info, tcpi_bytes_sent));
        let acked = info.u64_at(offset_of!(libc::tcp_info, tcpi_bytes_acked));
        Ok(Self {
            round_trip_ns: known.map(|us| u64::from(us) * 1000),
            queued_ns: known.map_or(0, |us| queued_us(usual_us, us) * 1000),
            retransmits: retransmitted.unwrap_or(0).into(),
            confirmed_bytes: acked.unwrap_or(0),
            sent_bytes: sent.unwrap_or(0),
            lost_bytes: info.lost_bytes(segment.into()),
            delivery_bytes_per_s: rate.filter(|&rate| rate != 0),
            is_limited_by_sender: info.is_limited_by_sender(),
            window_bytes: u64::from(window) * u64::from(segment),
            unconfirmed_packets: unconfirmed.unwrap_or(0).into(),
            segment_bytes: u64::from(segment),
            send_buffer_bytes: option.send_buffer_size()? as u64,
            receive_buffer_bytes: option.recv_buffer_size()? as u64,
        })
    }

    /// The sample of a path that goes on behind the connection's end, with a round trip longer by `relay_info`.
    pub fn behind(mut self, relay_info: Duration) -> Self {
        let detour_ns = u64::try_from(relay_info.as_nanos()).unwrap_or(u64::MAX);
        if detour_ns > 0 {
            self.round_trip_ns = self.round_trip_ns.map(|ns| ns.saturating_add(detour_ns));
        }
        self
    }

    /// Returns a first guess for a link of which nothing is remembered. It consists of half the round trip, a gap of
    /// two system calls, and the rate of usual LANs and WANs. A send through the TCP stack costs about twice a send
    /// between neighbours.
    pub fn cost(&self, host: &HostCost) -> Cost {
        let gap_ns = 2 * host.call_ns;
        let usual =
            if self.round_trip_ns.is_some_and(|ns| ns > WAN_RTT_NS) { WAN_RATE } else { LAN_RATE };
        let one_way_ns = self.round_trip_ns.unwrap_or(4 * gap_ns) / 2;
        Cost::linear(one_way_ns, gap_ns, usual)
    }

    /// Refines the latency of a remembered or guessed cost.
    pub fn refine(&self, cost: &mut Cost) {
        if let Some(round_trip_ns) = self.round_trip_ns {
            cost.learn_latency(round_trip_ns / 2);
        }
    }

    /// True if the losses slow down the sender.
    pub fn is_lossy(&self) -> bool {
        is_lossy(self.sent_bytes, self.lost_bytes)
    }

    /// The part of the sample that a bandwidth probe needs.
    pub fn sight(&self) -> PathSample {
        PathSample {
            rate: self.observed_rate(),
            window: self.window_bytes,
            confirmed: self.confirmed_bytes,
            is_under_way: self.unconfirmed_packets > 0,
            is_queued: self.queued_ns > 0,
        }
    }

    /// The part of the sample that a cwnd warm-up needs.
    pub fn window(&self) -> Cwnd {
        Cwnd {
            packets: self.window_bytes / self.segment_bytes.max(1),
            under_way: self.unconfirmed_packets,
            packet: self.segment_bytes,
            has_lost: self.retransmits > 0,
        }
    }

    /// Delivery rate, if the network and not the sender was the limit.
    fn observed_rate(&self) -> Option<u64> {
        self.delivery_bytes_per_s.filter(|_| !self.is_limited_by_sender)
    }
}

/// A sample of a connection under measurement (`TCP_INFO`).
#[derive(Clone, Copy, Debug)]
pub struct PathSample {
    /// Delivery rate in bytes per second; `None` if the sender was the limit.
    pub rate: Option<u64>,
    /// Congestion window, in bytes.
    pub window: u64,
    /// Bytes acknowledged since the connection opened.
    pub confirmed: u64,
    /// True if bytes are in flight.
    pub is_under_way: bool,
    /// True if round trips have become longer.
    pub is_queued: bool,
}

/// The congestion window of a connection, in packets (`TCP_INFO`).
#[derive(Clone, Copy, Debug)]
pub struct Cwnd {
    pub packets: u64,
    pub under_way: u64,
    /// Maximum segment size, in bytes.
    pub packet: u64,
    /// A packet was retransmitted, and cwnd grows no more.
    pub has_lost: bool,
}

impl Cwnd {
    /// Bytes that may be in flight.
    pub fn bytes(self) -> u64 {
        self.packets * self.packet
    }
}

/// The part of a sample that shows the rate of the path. `has_more` tells that bytes wait outside the kernel. Returns
/// `None` if the kernel does not report it, or if this thread was held up meanwhile.
pub fn rate_sample(socket: &impl AsFd, begin: Instant, has_more: bool) -> Option<RateSample> {
    let before = Instant::now();
    let info = Info::of(socket).ok()?;
    if before.elapsed() > LOOK_MAX {
        return None;
    }
    let at_ns = u64::try_from(before.saturating_duration_since(begin).as_nanos()).ok()?;
    let unconfirmed = info.u32_at(offset_of!(libc::tcp_info, tcpi_unacked))?;
    let segment = info.u32_at(offset_of!(libc::tcp_info, tcpi_snd_mss))?;
    let unsent = info.u32_at(offset_of!(libc::tcp_info, tcpi_notsent_bytes))?;
    let ns_at = |at| info.u64_at(at).map(|us| us.saturating_mul(1000));
    let busy_ns = ns_at(offset_of!(libc::tcp_info, tcpi_busy_time))?;
    let refused_ns = ns_at(offset_of!(libc::tcp_info, tcpi_rwnd_limited))?;
    Some(RateSample {
        at_ns,
        arrived: info.u64_at(offset_of!(libc::tcp_info, tcpi_bytes_acked))?,
        in_flight: u64::from(unconfirmed) * u64::from(segment),
        is_backlogged: unsent > 0 || has_more,
        // The connection may be older than the clock.
        limited_ns: (LIMITED_FROM_NS + at_ns + refused_ns).saturating_sub(busy_ns),
    })
}

/// The state of BBR on a connection (`tcp_bbr_info` in linux/inet_diag.h, with `TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bandwidth estimate of BBR.
    pub bytes_per_s: u64,
    /// True in startup: BBR has not seen the path full and keeps accelerating.
    pub is_beginning: bool,
    /// True in PROBE_RTT: BBR drains the path to measure its round trip.
    pub is_pausing: bool,
    /// Pacing rate, in bytes per second.
    pub paced: u64,
    /// Bytes acknowledged since the connection opened.
    pub confirmed: u64,
    /// True if bytes are in flight or unsent.
    pub is_under_way: bool,
    /// True if round trips are longer than the minimum of the last minutes.
    pub is_queued: bool,
    /// True if round trips take more than duplicates the minimum.
    pub is_clogged: bool,
    /// True if losses slow down the sender, and are fewer than those of a full path without a buffer, which shows no
    /// queue.
    pub is_lossy: bool,
    /// True during loss recovery, when little may be in flight.
    pub is_repairing: bool,
}

impl Pace {
    /// Reads the state from the kernel; `None` under another congestion control.
    pub fn of(socket: &impl AsFd) -> Option<Self> {
        let bbr = Info::read(socket, libc::TCP_CC_INFO).ok().filter(|info| info.len == BBR_LEN)?;
        let word = |at: usize| bbr.u32_at(4 * at);
        let (low, high, pacing, window) = (word(0)?, word(1)?, word(3)?, word(4)?);
        let info = Info::of(socket).ok()?;
        let usual = info.u32_at(offset_of!(libc::tcp_info, tcpi_rtt))?;
        let least = info.u32_at(offset_of!(libc::tcp_info, tcpi_min_rtt))?;
        let unconfirmed = info.u32_at(offset_of!(libc::tcp_info, tcpi_unacked))?;
        let unsent = info.u32_at(offset_of!(libc::tcp_info, tcpi_notsent_bytes))?;
        let bytes_per_s = u64::from(high) << 32 | u64::from(low);
        let has_measured = bytes_per_s > 0;
        Some(Self {
            bytes_per_s,
            is_beginning: !has_measured || pacing > 2 * BBR_UNIT,
            is_pausing: has_measured && window == BBR_UNIT,
            paced: info.u64_at(offset_of!(libc::tcp_info, tcpi_pacing_rate))?,
            confirmed: info.u64_at(offset_of!(libc::tcp_info, tcpi_bytes_acked))?,
            is_under_way: unconfirmed > 0 || unsent > 0,
            is_queued: is_queued(usual, least),
            is_clogged: usual / 2 > least,
            is_lossy: info.is_lossy(),
            is_repairing: info.byte_at(offset_of!(libc::tcp_info, tcpi_ca_state))? != 0,
        })
    }

    /// Bytes that the estimated bandwidth carries in `time_ns`.
    pub fn bytes_within(&self, time_ns: u64) -> u64 {
        let bytes = u128::from(self.bytes_per_s) * u128::from(time_ns) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// The part of a sample that shows whether a connection shares its path, if the kernel reports it.
pub fn shared_sight(socket: &impl AsFd) -> Option<fairness::ShareSample> {
    let info = Info::of(socket).ok()?;
    let us = |at| info.u32_at(at).map(|us| Duration::from_micros(us.into()));
    let least = us(offset_of!(libc::tcp_info, tcpi_min_rtt))?;
    Some(fairness::ShareSample {
        least,
        waits: us(offset_of!(libc::tcp_info, tcpi_rtt))?.saturating_sub(least),
        confirmed: info.u64_at(offset_of!(libc::tcp_info, tcpi_bytes_acked))?,
        lost: info.u32_at(offset_of!(libc::tcp_info, tcpi_total_retrans))?.into(),
        is_busy: info.u32_at(offset_of!(libc::tcp_info, tcpi_notsent_bytes))? > 0,
    })
}

/// Minimum round trip of a connection in the last minutes, if known.
pub fn least_round_trip(socket: &impl AsFd) -> Option<Duration> {
    let least_us = Info::of(socket).ok()?.u32_at(offset_of!(libc::tcp_info, tcpi_min_rtt));
    let known_us = least_us.filter(|&us| us != 0 && us != u32::MAX)?;
    Some(Duration::from_micros(known_us.into()))
}

/// True if a smoothed round trip so much above the minimum means a queue.
pub fn is_queued(usual_us: u32, least_us: u32) -> bool {
    queued_us(usual_us, least_us) > 0
}

/// True if the lost share of the bytes sent slows down the sender.
fn is_lossy(sent_bytes: u64, lost_bytes: u64) -> bool {
    lost_bytes > sent_bytes / LOSSY_SHARE
}

/// Queueing delay in microseconds; 0 if it proves no queue.
fn queued_us(usual_us: u32, least_us: u32) -> u64 {
    let waits_us = usual_us.saturating_sub(least_us);
    if waits_us > (least_us / QUEUED_SHARE).max(QUEUED_US) { waits_us.into() } else { 0 }
}

/// Caps the pacing rate of a connection in bytes per second (`SO_MAX_PACING_RATE`); `u64::MAX` removes the cap.
///
/// # Errors
/// The kernel's error.
pub fn set_pacing_cap(socket: &impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_s.to_ne_bytes())
}

/// Opens the receive window as wide as a long path, however little has come before. The kernel expects a reader with
/// a high `SO_RCVLOWAT` to wait for so many bytes (Linux, `tcp_set_rcvlowat`). The system's limit on receive buffers
/// holds here, too.
pub fn open_receive_window(socket: &impl AsFd) {
    for bytes in [RECEIVE_WINDOW, 1] {
        // Cannot fail for a TCP socket; otherwise the window grows with the bytes received.
        let _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes.to_ne_bytes());
    }
}

/// Bytes that the kernel holds of a connection: unacknowledged or unsent (`SIOCOUTQ`). 0 if it does not tell.
pub fn bytes_in_flight(socket: &impl AsFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if answer == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Sets a socket option to a number.
///
/// # Errors
/// The kernel's error.
pub fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    number: &[u8],
) -> io::Result<()> {
    let len = number.len() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, the length of `number`, and returns an error if the option has another
    // length.
    let answer = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, number.as_ptr().cast(), len)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Pacing cap of a connection (`SO_MAX_PACING_RATE`).
#[cfg(test)]
pub fn pacing_cap(socket: &impl AsFd) -> io::Result<u64> {
    let mut bytes_per_s = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to the number, which has as many.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw mut bytes_per_s).cast(),
            &mut len,
        )
    };
    if answer == 0 { Ok(bytes_per_s) } else { Err(io::Error::last_os_error()) }
}

/// Value of a TCP option, if the kernel knows it.
#[cfg(test)]
pub fn number(socket: &impl AsFd, option: libc::c_int) -> Option<u32> {
    let info = Info::read(socket, option).ok()?;
    info.u32_at(0)
}

/// A `tcp_info` or another answer about a connection, as far as the kernel fills it.
pub struct Info {
    bytes: [u8; size_of::<libc::tcp_info>()],
    len: usize,
}

impl Info {
    /// Reads the `tcp_info` of a connection.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        Self::read(socket, libc::TCP_INFO)
    }

    fn read(socket: &impl AsFd, option: libc::c_int) -> io::Result<Self> {
        let mut bytes = [0; size_of::<libc::tcp_info>()];
        let mut len = bytes.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to the array, which has as many.
        let answer = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                option,
                bytes.as_mut_ptr().cast(),
                &mut len,
            )
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { bytes, len: len as usize })
    }

    fn is_limited_by_sender(&self) -> bool {
        self.byte_at(FLAGS_AT).is_none_or(|flags| flags & 1 != 0)
    }

    /// Bytes lost: retransmitted bytes without those that the peer reported as duplicates (DSACK), counted in
    /// segments.
    fn lost_bytes(&self, segment: u64) -> u64 {
        let retransmitted =
            self.u64_at(offset_of!(libc::tcp_info, tcpi_bytes_retrans)).unwrap_or(0);
        let duplicates = self.u32_at(offset_of!(libc::tcp_info, tcpi_dsack_dups)).unwrap_or(0);
        retransmitted.saturating_sub(u64::from(duplicates).saturating_mul(segment))
    }

    fn is_lossy(&self) -> bool {
        let segment = self.u32_at(offset_of!(libc::tcp_info, tcpi_snd_mss)).unwrap_or(0);
        let sent = self.u64_at(offset_of!(libc::tcp_info, tcpi_bytes_sent)).unwrap_or(0);
        let lost = self.lost_bytes(segment.into());
        is_lossy(sent, lost) && lost < sent / FULL_SHARE
    }

    /// A field at an offset; `None` if the kernel is older than the field.
    fn field<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes[..self.len].get(at..at + N)?.try_into().ok()
    }

    pub fn byte_at(&self, at: usize) -> Option<u8> {
        self.field(at).map(|[byte]| byte)
    }

    pub fn u32_at(&self, at: usize) -> Option<u32> {
        self.field(at).map(u32::from_ne_bytes)
    }

    fn u64_at(&self, at: usize) -> Option<u64> {
        self.field(at).map(u64::from_ne_bytes)
    }
}

/// `tcpi_delivery_rate_app_limited` is the lowest bit of the byte behind the window scales (linux/tcp.h;
/// the bit-field has no name in `libc`).
const FLAGS_AT: usize = offset_of!(libc::tcp_info, tcpi_snd_rcv_wscale) + 1;

/// Length of a `tcp_bbr_info`, and the unit of its gains. In startup BBR sends at 2.89 times its rate. In PROBE_RTT
/// its cwnd gain is 1, otherwise 2.
const BBR_LEN: usize = 20;
const BBR_UNIT: u32 = 256;

/// Excess of the round trip that proves a queue: an eighth, and a millisecond, which a busy host may need to answer.
const QUEUED_SHARE: u32 = 8;
const QUEUED_US: u32 = 1000;

/// Longest time that reading a sample takes.
const LOOK_MAX: Duration = Duration::from_micros(200);
/// Offset of the time in which a connection was limited: an hour.
const LIMITED_FROM_NS: u64 = 3_600_000_000_000;

/// Bytes in flight over a long path: as much as a warm-up asks for by its [`Cwnd`].
const RECEIVE_WINDOW: libc::c_int = 3 << 20;

/// Loss share (1/n) above which a connection is lossy.
const LOSSY_SHARE: u64 = 256;
/// Loss share (1/n) of a full path without a buffer: a sixteenth of the excess.
const FULL_SHARE: u64 = 16;

/// Round trip above which a path leaves the site, in ns.
const WAN_RTT_NS: u64 = 2_000_000;
/// 10 Gb/s.
const LAN_RATE: u64 = 1_250_000_000;
/// 1 Gb/s.
const WAN_RATE: u64 = 125_000_000;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn the_kernel_knows_the_round_trip_of_a_connection_that_was_just_opened() {
        let (one, _other) = connection();
        let sample = TcpSample::of(&one).unwrap();
        let round_trip_ns = sample.round_trip_ns.expect("of the handshake");
        assert!(round_trip_ns < 1_000_000_000, "{sample:?}");
        assert!(sample.segment_bytes >= 500, "{sample:?}");
        assert!(sample.window_bytes >= sample.segment_bytes, "{sample:?}");
        assert!(sample.send_buffer_bytes > 0 && sample.receive_buffer_bytes > 0, "{sample:?}");
        let cost = sample.cost(&HostCost::default());
        assert_eq!(cost.latency_ns(), round_trip_ns / 2);
    }

    #[test]
    fn a_rate_is_known_once_something_was_sent() {
        let (mut one, mut other) = connection();
        let reader = std::thread::spawn(move || {
            let mut sum = 0;
            let mut room = vec![0; 1 << 16];
            while let Ok(count @ 1..) = other.read(&mut room) {
                sum += count;
            }
            sum
        });
        one.write_all(&vec![7; 8 << 20]).unwrap();
        let sample = TcpSample::of(&one).unwrap();
        drop(one);
        assert_eq!(reader.join().unwrap(), 8 << 20);
        assert!(sample.delivery_bytes_per_s.is_some(), "{sample:?}");
    }

    #[test]
    fn a_sample_refines_only_what_it_measured() {
        let slow = TcpSample {
            round_trip_ns: Some(11_600_000),
            queued_ns: 0,
            retransmits: 0,
            confirmed_bytes: 0,
            sent_bytes: 0,
            lost_bytes: 0,
            delivery_bytes_per_s: Some(118_000_000),
            is_limited_by_sender: false,
            window_bytes: 14_480,
            unconfirmed_packets: 0,
            segment_bytes: 1448,
            send_buffer_bytes: 87_040,
            receive_buffer_bytes: 131_072,
        };
        let guess = Cost::linear(100_000, 2_000, 1_250_000_000);
        let mut cost = guess;
        (0..200).for_each(|_| slow.refine(&mut cost));
        let within = |value: u64, wanted: u64| value.abs_diff(wanted) < wanted / 10;
        assert!(within(cost.latency_ns(), 5_800_000), "{cost}");
        assert_eq!(cost.shown_bytes_per_s(), None, "{cost}");
        let mut cost = guess;
        let idle = TcpSample { is_limited_by_sender: true, round_trip_ns: None, ..slow };
        idle.refine(&mut cost);
        assert_eq!(cost, guess);
        assert_eq!(idle.cost(&HostCost::default()).bytes_per_s(1 << 30) / 10_000_000, 124);
        let far = TcpSample { round_trip_ns: Some(11_600_000), ..idle };
        assert!(within(far.cost(&HostCost::default()).bytes_per_s(1 << 20), WAN_RATE));
    }

    #[test]
    fn a_socket_of_another_family_has_no_sample() {
        let closed =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        assert!(TcpSample::of(&closed).is_err());
    }
}
