//! Hosts that vanish: no word of theirs says so.
//!
//! On a silent link the kernel asks for a sign of life. With bytes under way it does not ask, but
//! repeats them for a quarter of an hour before it gives up. Its timeout for that would end links to
//! peers that only compute and do not read, too; so what it knows of the repeats is looked at here. A
//! host that runs confirms them, whatever its processes do. Where there is another way to the peer,
//! silence is borne for a shorter time: what is under way waits for the verdict. And so it is between sites,
//! where links drop, and are opened anew.

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::measure::Info;

/// Asks the kernel to end the link when the peer's host shows no sign of life while nothing is under way.
pub(super) fn watch(socket: &impl AsFd, silence: Duration) -> io::Result<()> {
    ask(socket, silence, QUESTIONS)
}

/// Has the kernel ask hosts at other sites soon, so that who looks finds out within [`IDLE_FAR`] that they cannot be
/// reached; the link of one that does not look, for it computes, outlives a cut of a minute.
pub(super) fn watch_far(socket: &impl AsFd) -> io::Result<()> {
    ask(socket, IDLE_FAR, QUESTIONS_FAR)
}

/// The first [`QUESTIONS`] take so long that they have gone unanswered within `silence`.
fn ask(socket: &impl AsFd, silence: Duration, questions: u32) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(silence / 2)
        .with_interval(silence / 2 / QUESTIONS)
        .with_retries(questions);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

/// How long the peer's host has confirmed nothing of what was repeated to it, if that is too long.
pub(super) fn has_vanished(socket: &impl AsFd, silence: Duration) -> Option<Duration> {
    verdict(&signs(socket)?, silence)
}

/// What the kernel knows of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    /// Repeats and questions since the last confirmation.
    unanswered: u32,
    last_confirmation: Duration,
}

fn signs(socket: &impl AsFd) -> Option<Signs> {
    let info = Info::of(socket).ok()?;
    let repeats = info.byte_at(offset_of!(libc::tcp_info, tcpi_retransmits))?;
    let questions = info.byte_at(offset_of!(libc::tcp_info, tcpi_probes))?;
    let silence_ms = info.u32_at(offset_of!(libc::tcp_info, tcpi_last_ack_recv))?;
    Some(Signs {
        unanswered: u32::from(repeats) + u32::from(questions),
        last_confirmation: Duration::from_millis(silence_ms.into()),
    })
}

fn verdict(signs: &Signs, silence: Duration) -> Option<Duration> {
    let Signs { unanswered, last_confirmation } = *signs;
    // One that reads nothing is asked ever less often: silence alone says little.
    (unanswered >= QUESTIONS && last_confirmation >= silence).then_some(last_confirmation)
}

/// How often links are looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// No host that runs and can be reached is silent for so long.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// Nor is one on the same network, unless the network has failed.
pub(super) const SILENCE_NEARBY: Duration = Duration::from_secs(12);
/// Nor is one at another site, unless something between the two has failed: the link is opened anew, which does
/// no harm where it need not have been.
pub(super) const SILENCE_FAR: Duration = Duration::from_millis(1500);
/// Nor is one at another site where nothing is under way, as over UDP. The kernel counts in seconds.
const IDLE_FAR: Duration = Duration::from_secs(6);
/// How often links to other sites are looked at, and links that are opened anew.
pub(super) const LOOK_FAR_EVERY: Duration = Duration::from_millis(500);
/// From such a round trip on frames are kept by the engine, whichever of the two ends measures it.
pub(super) const FAR_NS: u64 = 2_000_000;
/// Unanswered questions that are taken for an answer.
const QUESTIONS: u32 = 3;
/// Those, one a second, after which the kernel gives up a host at another site at which nobody has looked.
const QUESTIONS_FAR: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn silence_counts_when_questions_go_unanswered() {
        let signs = |unanswered, seconds| Signs {
            unanswered,
            last_confirmation: Duration::from_secs(seconds),
        };
        let far = |unanswered, seconds| verdict(&signs(unanswered, seconds), SILENCE);
        assert_eq!(far(0, 3600), None, "nobody asked");
        assert_eq!(far(2, 120), None, "the window is closed and questions are rare");
        assert_eq!(far(8, 59), None, "a loss or an outage");
        assert_eq!(far(8, 61), Some(Duration::from_secs(61)));
        assert_eq!(verdict(&signs(4, 13), SILENCE_NEARBY), Some(Duration::from_secs(13)));
        assert_eq!(verdict(&signs(2, 13), SILENCE_FAR), None, "a peer that reads nothing");
        assert_eq!(verdict(&signs(3, 2), SILENCE_FAR), Some(Duration::from_secs(2)));
    }

    #[test]
    fn the_kernel_tells_of_a_link_that_it_watches() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        watch(&socket, SILENCE).unwrap();
        let option = SockRef::from(&socket);
        assert!(option.keepalive().unwrap());
        let silence = option.tcp_keepalive_time().unwrap()
            + option.tcp_keepalive_interval().unwrap() * option.tcp_keepalive_retries().unwrap();
        assert_eq!(silence, SILENCE);
        watch_far(&socket).unwrap();
        let interval = option.tcp_keepalive_interval().unwrap();
        assert_eq!(option.tcp_keepalive_time().unwrap() + interval * QUESTIONS, IDLE_FAR);
        assert!(interval * option.tcp_keepalive_retries().unwrap() >= SILENCE);
        let signs = signs(&socket).expect("the kernel's word");
        assert_eq!(signs.unanswered, 0);
        assert!(signs.last_confirmation < SILENCE, "{signs:?}");
        assert_eq!(has_vanished(&socket, SILENCE), None);
    }
}
