//! Measures this machine's costs in a few milliseconds.
//!
//! Every number is the minimum of several runs, since disturbances only lengthen a measurement.

use std::hint::black_box;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use cost::HostCost;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::{current_timer_slack, set_current_timer_slack};
use wire::compress::Codec;

use crate::quota::quota_percent;

/// Measures copies between buffers, and sends to a socket of this process. If the system gives no
/// socket, sends have the default costs ([`HostCost::default`]).
pub fn host() -> HostCost {
    let usual = HostCost::default();
    let source = vec![1; FAR_LEN];
    let mut target = vec![2; FAR_LEN];
    let mut copy =
        |len: usize, times: u32| least_ps(ROUNDS, times, || copy(&mut target, &source, len));
    let near = copy(NEAR_LEN, 1);
    let far = copy(FAR_LEN, 1);
    let near_ps_per_byte = (near / NEAR_LEN as u64).max(1);
    let short = copy(SHORT_LEN, 64);
    let copy_ns = short.saturating_sub(near_ps_per_byte * SHORT_LEN as u64).div_ceil(1000);
    let (call_ns, vector_ns) = sends().unwrap_or((usual.call_ns, usual.vector_ns));
    let far_ps_per_byte = (far / FAR_LEN as u64).max(near_ps_per_byte);
    let (compress_ps_per_byte, decompress_ps_per_byte) =
        compression().unwrap_or((usual.compress_ps_per_byte, usual.decompress_ps_per_byte));
    HostCost {
        copy_ns,
        near_ps_per_byte,
        far_ps_per_byte,
        vector_ns,
        call_ns,
        compress_ps_per_byte,
        decompress_ps_per_byte,
        wake_ns: wake_ns().unwrap_or(usual.wake_ns),
        work_ns: work_ns(),
    }
}

/// Returns the speed of a rank that has this host to itself, in hundredths of a usual core. A
/// control group that leaves less than a core lowers it.
pub fn speed_percent(host: &HostCost) -> u32 {
    let core = u64::from(host.speed_percent());
    let share = u64::from(quota_percent().unwrap_or(100).min(100));
    (core * share / 100).max(1) as u32
}

/// Returns the name of this host, as used in the names of links.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn copy(target: &mut [u8], source: &[u8], len: usize) {
    black_box(&mut target[..len]).copy_from_slice(black_box(&source[..len]));
}

/// Measures a computation like those of programs: sums of products over an array in the cache, half
/// of them in a chain. Its length is fixed, so its time compares the cores of hosts.
fn work_ns() -> u64 {
    let factors: Vec<f64> = (0..WORK_LEN).map(|at| 1.0 / (at + 1) as f64).collect();
    let mut values = factors.clone();
    let run = || {
        let mut sum = 0.0;
        for _ in 0..WORK_PASSES {
            for (value, factor) in values.iter_mut().zip(&factors) {
                *value = *value * 0.75 + factor;
            }
            sum = black_box(&values).iter().fold(sum, |sum, value| sum * 0.75 + value);
        }
        black_box(sum);
    };
    (least_ps(WORK_ROUNDS, 1, run) / 1000).max(1)
}

/// Measures picoseconds to compress and to decompress a byte. The data are doubles of which three
/// in four are zero, which are of medium speed to compress.
fn compression() -> Option<(u64, u64)> {
    let double = |at: u32| if at.is_multiple_of(4) { f64::from(at).sqrt() } else { 0.0 };
    let bytes: Vec<u8> =
        (0..(COMPRESSED_LEN / 8) as u32).flat_map(|at| double(at).to_le_bytes()).collect();
    let mut codec = Codec::default();
    let compressed = codec.compress(&bytes, bytes.len())?;
    codec.decompress(&compressed, bytes.len())?;
    let compress_ps = least_ps(ROUNDS, 1, || {
        black_box(codec.compress(black_box(&bytes), bytes.len()));
    });
    let decompress_ps = least_ps(ROUNDS, 1, || {
        black_box(codec.decompress(black_box(&compressed), bytes.len()));
    });
    let per_byte = |ps: u64| (ps / bytes.len() as u64).max(1);
    Some((per_byte(compress_ps), per_byte(decompress_ps)))
}

/// Measures the cost of a send, and of each further element: the same bytes in one piece and in
/// many.
fn sends() -> Option<(u64, u64)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    let whole = send(&pair, 1)?;
    let pieces = send(&pair, ELEMENTS)?;
    let more = pieces.saturating_sub(whole) / (ELEMENTS as u64 - 1);
    Some((whole.div_ceil(1000), more.div_ceil(1000).max(1)))
}

/// Measures picoseconds of a send of [`SENT_LEN`] bytes from so many places; none if the send
/// fails.
fn send((from, to): &(OwnedFd, OwnedFd), elements: usize) -> Option<u64> {
    let bytes = vec![3; 2 * SENT_LEN];
    // Spread out, like an application's data.
    let stride = bytes.len() / elements;
    let slices: Vec<IoSlice<'_>> = (0..elements)
        .map(|at| IoSlice::new(&bytes[at * stride..][..SENT_LEN / elements]))
        .collect();
    let mut least = None;
    for _ in 0..ROUNDS {
        let mut sent = true;
        let time = least_ps(1, SENDS, || {
            let mut none = SendAncillaryBuffer::default();
            sent &= sendmsg(from, &slices, &mut none, SendFlags::NOSIGNAL).is_ok();
        });
        for _ in 0..SENDS {
            let mut room = [0; SENT_LEN];
            let mut none = RecvAncillaryBuffer::default();
            sent &= recvmsg(to, &mut [IoSliceMut::new(&mut room)], &mut none, RecvFlags::empty())
                .is_ok();
        }
        if !sent {
            return None;
        }
        least = Some(least.map_or(time, |least: u64| least.min(time)));
    }
    least
}

/// Measures the delay of a sleep's end with a timer without slack: the wake-up latency, from an
/// idle core if this one is idle. None if the system has no such timer.
fn wake_ns() -> Option<u64> {
    let slack_ns = current_timer_slack().ok()?;
    set_current_timer_slack(NonZeroU64::new(1)).ok()?;
    let late_ps = least_ps(NAPS, 1, || std::thread::sleep(NAP)).checked_sub(NAP_PS);
    set_current_timer_slack(NonZeroU64::new(slack_ns)).ok()?;
    late_ps.map(|late_ps| late_ps.div_ceil(1000))
}

/// Returns the minimum time of one call in picoseconds, over `rounds` of `times` calls.
fn least_ps(rounds: u32, times: u32, mut call: impl FnMut()) -> u64 {
    let round = |_| {
        let begin = Instant::now();
        (0..times).for_each(|_| call());
        begin.elapsed()
    };
    let least = (0..rounds).map(round).min().unwrap_or_default();
    u64::try_from(least.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000) / u64::from(times)
}

/// Number of rounds; the last ones run with warm caches, predictors and page tables.
const ROUNDS: u32 = 8;
const SHORT_LEN: usize = 64;
/// Length of which two buffers fit a second-level cache.
const NEAR_LEN: usize = 128 << 10;
/// Length of which two buffers do not fit most second-level caches.
const FAR_LEN: usize = 1 << 20;
/// Length of a piece of a long message.
const COMPRESSED_LEN: usize = 64 << 10;
const SENT_LEN: usize = 1024;
const ELEMENTS: usize = 16;
/// Number of packets that fit a socket's buffer at once.
const SENDS: u32 = 8;
/// Numbers in the array of the fixed computation, and passes over it.
const WORK_LEN: usize = 2048;
const WORK_PASSES: usize = 8;
/// Number of runs: a core that comes out of idle takes a while to reach its clock rate.
const WORK_ROUNDS: u32 = 16;
const NAPS: u32 = 16;
const NAP: Duration = Duration::from_micros(20);
const NAP_PS: u64 = 20_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_copies_and_longer_vectors_cost_more() {
        let cost = host();
        assert!(cost.near_ps_per_byte > 0 && cost.near_ps_per_byte <= cost.far_ps_per_byte);
        assert!(cost.copy_ns(64 << 10) < cost.copy_ns(4 << 20));
        assert!(cost.vector_ns > 0 && cost.call_ns > 0);
        assert!(cost.vector_ns < 10 * cost.call_ns, "an element is less than a call: {cost:?}");
        assert!(
            cost.copy_ns(1 << 20) > cost.call_ns,
            "a megabyte takes longer than a call: {cost:?}"
        );
        assert!(
            cost.decompress_ps_per_byte > 0
                && cost.compress_ps_per_byte > cost.decompress_ps_per_byte
        );
        assert!(cost.wake_ns > cost.call_ns, "to sleep is a call, and more: {cost:?}");
        assert_eq!(cost.to_string().parse(), Ok(cost));
        assert!(cost.work_ns > cost.call_ns, "the computation is longer than a call: {cost:?}");
        assert!((1..=cost.speed_percent()).contains(&speed_percent(&cost)), "{cost:?}");
    }
}
