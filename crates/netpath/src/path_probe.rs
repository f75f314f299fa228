//! Detection of hosts that vanish without closing their connections.
//!
//! On an idle link the kernel sends keepalives. With bytes in flight it sends none, but retransmits for a quarter of
//! an hour before it gives up. `TCP_USER_TIMEOUT` would also end links to peers that compute and do not read. So this
//! module reads the kernel's count of retransmissions. A host that runs acknowledges them, whatever its processes do.
//! If another path to the peer exists, less silence is allowed, because bytes in flight wait for the decision. The
//! same holds between sites, where links drop and are reopened.

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::measure::Info;

/// Makes the kernel close an idle link when the peer's host answers no keepalives.
pub fn watch(socket: &impl AsFd, silence: Duration) -> io::Result<()> {
    ask(socket, silence, QUESTIONS)
}

/// Makes the kernel send keepalives to hosts at other sites early, so that a poll finds within `IDLE_WAN` that they
/// are unreachable. The link of a process that computes and does not poll outlives a cut of a minute.
pub fn watch_wan(socket: &impl AsFd) -> io::Result<()> {
    ask(socket, IDLE_WAN, QUESTIONS_WAN)
}

/// Sets keepalives so that the first [`QUESTIONS`] go unanswered within `silence`.
fn ask(socket: &impl AsFd, silence: Duration, questions: u32) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(silence / 2)
        .with_interval(silence / 2 / QUESTIONS)
        .with_retries(questions);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

/// Returns the time since the last ACK, if the host has not answered retransmissions or keepalives for too long.
pub fn has_vanished(socket: &impl AsFd, silence: Duration) -> Option<Duration> {
    verdict(&life_signs(socket)?, silence)
}

/// Returns the text of a link that has ended because its host was silent.
pub fn text(silence: Duration) -> String {
    format!("its host has shown no sign of life for {:.1} s", silence.as_secs_f64())
}

/// The kernel's signs of life of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct LifeSigns {
    /// Retransmissions and keepalives since the last ACK.
    unanswered: u32,
    last_confirmation: Duration,
}

fn life_signs(socket: &impl AsFd) -> Option<LifeSigns> {
    let info = Info::of(socket).ok()?;
    let retransmits = info.byte_at(offset_of!(libc::tcp_info, tcpi_retransmits))?;
    let questions = info.byte_at(offset_of!(libc::tcp_info, tcpi_probes))?;
    let silence_ms = info.u32_at(offset_of!(libc::tcp_info, tcpi_last_ack_recv))?;
    Some(LifeSigns {
        unanswered: u32::from(retransmits) + u32::from(questions),
        last_confirmation: Duration::from_millis(silence_ms.into()),
    })
}

fn verdict(life_signs: &LifeSigns, silence: Duration) -> Option<Duration> {
    let LifeSigns { unanswered, last_confirmation } = *life_signs;
    // A peer with a closed window is probed ever less often: silence alone proves little.
    (unanswered >= QUESTIONS && last_confirmation >= silence).then_some(last_confirmation)
}

/// Interval between checks of links.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Silence after which a host counts as vanished.
pub const SILENCE: Duration = Duration::from_secs(60);
/// The same for a host on a network of its own, whose failure is the other cause.
pub const SILENCE_NEARBY: Duration = Duration::from_secs(12);
/// The same for a host at another site. Something between the two may have failed; reopening the link does no harm if
/// it has not.
pub const SILENCE_WAN: Duration = Duration::from_millis(1500);
/// Silence of an idle link to another site, as over UDP. The kernel counts in seconds.
const IDLE_WAN: Duration = Duration::from_secs(6);
/// Interval between checks of links to other sites, and of links being reopened.
pub const LOOK_WAN_EVERY: Duration = Duration::from_millis(500);
/// Round trip from which the engine keeps frames for replay, whichever end measures it, in ns.
pub const WAN_RTT_NS: u64 = 2_000_000;
/// Unanswered keepalives or retransmissions that prove that a host is gone.
const QUESTIONS: u32 = 3;
/// Keepalives, one a second, after which the kernel gives up a host at another site that nobody has polled.
const QUESTIONS_WAN: u32 = 60;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn silence_counts_when_keepalives_go_unanswered() {
        let life_signs = |unanswered, seconds| LifeSigns {
            unanswered,
            last_confirmation: Duration::from_secs(seconds),
        };
        let far = |unanswered, seconds| verdict(&life_signs(unanswered, seconds), SILENCE);
        assert_eq!(far(0, 3600), None, "nobody asked");
        assert_eq!(far(2, 120), None, "the window is closed and questions are rare");
        assert_eq!(far(8, 59), None, "a loss or an outage");
        assert_eq!(far(8, 61), Some(Duration::from_secs(61)));
        assert_eq!(verdict(&life_signs(4, 13), SILENCE_NEARBY), Some(Duration::from_secs(13)));
        assert_eq!(verdict(&life_signs(2, 13), SILENCE_WAN), None, "a peer that reads nothing");
        assert_eq!(verdict(&life_signs(3, 2), SILENCE_WAN), Some(Duration::from_secs(2)));
    }

    #[test]
    fn the_kernel_reports_life_signs_of_a_watched_link() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        watch(&socket, SILENCE).unwrap();
        let option = SockRef::from(&socket);
        assert!(option.keepalive().unwrap());
        let silence = option.tcp_keepalive_time().unwrap()
            + option.tcp_keepalive_interval().unwrap() * option.tcp_keepalive_retries().unwrap();
        assert_eq!(silence, SILENCE);
        watch_wan(&socket).unwrap();
        let interval = option.tcp_keepalive_interval().unwrap();
        assert_eq!(option.tcp_keepalive_time().unwrap() + interval * QUESTIONS, IDLE_WAN);
        assert!(interval * option.tcp_keepalive_retries().unwrap() >= SILENCE);
        let life_signs = life_signs(&socket).expect("the kernel's word");
        assert_eq!(life_signs.unanswered, 0);
        assert!(life_signs.last_confirmation < SILENCE, "{life_signs:?}");
        assert_eq!(has_vanished(&socket, SILENCE), None);
    }
}
