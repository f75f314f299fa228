//! A link in user space: packets are held back for as long as a real link would take.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use crate::nfqueue::PacketQueue;

/// One direction of a link: a first-in first-out queue in front of a wire. Pure; times are handed in,
/// in nanoseconds.
#[derive(Debug)]
pub struct Wire {
    rate_bits_per_s: u64,
    delay_ns: u64,
    buffer_bytes: u64,
    loss: f64,
    seed: u64,
    /// When the last packet accepted has left the sender's end.
    free_at_ns: u64,
}

impl Wire {
    /// A wire that is free at time 0.
    pub fn new(
        rate_bits_per_s: u64,
        delay: Duration,
        buffer_bytes: u64,
        loss: f64,
        seed: u64,
    ) -> Self {
        let delay_ns = delay.as_nanos() as u64;
        Self { rate_bits_per_s, delay_ns, buffer_bytes, loss, seed, free_at_ns: 0 }
    }

    /// When a packet of `bytes` that arrives at `now_ns` comes out; none when it is lost or does not
    /// fit the buffer.
    pub fn pass(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        if self.loss > 0.0 && self.draw() < self.loss {
            return None;
        }
        let backlog_ns = self.free_at_ns.saturating_sub(now_ns);
        let backlog = u128::from(backlog_ns) * u128::from(self.rate_bits_per_s) / 8_000_000_000;
        if backlog as u64 + bytes > self.buffer_bytes && backlog > 0 {
            return None;
        }
        let on_wire = bytes.div_ceil(SEGMENT).max(1) * OVERHEAD + bytes;
        let serial = u128::from(on_wire) * 8_000_000_000 / u128::from(self.rate_bits_per_s);
        self.free_at_ns = self.free_at_ns.max(now_ns) + serial as u64;
        Some(self.free_at_ns + self.delay_ns)
    }

    /// A number from 0 to 1 (xorshift64*).
    fn draw(&mut self) -> f64 {
        self.seed ^= self.seed >> 12;
        self.seed ^= self.seed << 25;
        self.seed ^= self.seed >> 27;
        (self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Carries the packets of netfilter's queue `number` over a wire until the process ends.
///
/// # Errors
/// When the kernel has no such queue, or refuses it.
pub fn carry(number: u16, wire: Wire) -> io::Result<()> {
    let queue = PacketQueue::open(number, PACKETS_MAX)?;
    // Timers otherwise come up to 50 µs late.
    rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))?;
    Carrier { queue, wire, held: VecDeque::new(), start: Instant::now() }.run()
}

struct Carrier {
    queue: PacketQueue,
    wire: Wire,
    /// Packets on the wire: when each comes out.
    held: VecDeque<(u64, u32)>,
    start: Instant,
}

impl Carrier {
    fn run(mut self) -> io::Result<()> {
        let mut arrived = Vec::new();
        loop {
            for _ in 0..BURST {
                if !self.queue.receive(&mut |packet| arrived.push(packet))? {
                    break;
                }
            }
            for packet in arrived.drain(..) {
                match self.wire.pass(self.now(), u64::from(packet.bytes)) {
                    Some(release) => self.held.push_back((release, packet.id)),
                    None => self.queue.drop_packet(packet.id)?,
                }
            }
            self.release()?;
            self.wait()?;
        }
    }

    /// Lets out what is due, all of it by one verdict.
    fn release(&mut self) -> io::Result<()> {
        let now = self.now();
        let mut last = None;
        while let Some((release, id)) = self.held.front()
            && *release <= now
        {
            last = Some(*id);
            self.held.pop_front();
        }
        last.map_or(Ok(()), |id| self.queue.accept_up_to(id))
    }

    /// Until the next packet is due or another one comes.
    fn wait(&self) -> io::Result<()> {
        let left = match self.held.front() {
            Some((release, _)) => Duration::from_nanos(release.saturating_sub(self.now())),
            None => Duration::from_secs(1),
        };
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut descriptors = [PollFd::from_borrowed_fd(self.queue.descriptor(), PollFlags::IN)];
        match rustix::event::poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// A packet's share of Ethernet besides IP: preamble, header, check sequence and gap.
const OVERHEAD: u64 = 38;
/// What the kernel cuts long packets into, in bytes of IP.
const SEGMENT: u64 = 1500;
/// Packets queued in the kernel.
const PACKETS_MAX: u32 = 65_536;
/// Receptions before the clock is looked at.
const BURST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_takes_its_serialisation_and_the_delay() {
        let mut wire = Wire::new(1_000_000_000, Duration::from_millis(5), 2_000_000, 0.0, 1);
        let serial = (1500 + 38) * 8;
        assert_eq!(wire.pass(0, 1500), Some(5_000_000 + serial));
        assert_eq!(wire.pass(0, 1500), Some(5_000_000 + 2 * serial));
        assert_eq!(wire.pass(1_000_000, 1500), Some(6_000_000 + serial));
    }

    #[test]
    fn a_full_buffer_drops_its_tail() {
        let mut wire = Wire::new(8_000_000, Duration::ZERO, 4_000, 0.0, 1);
        let passed = (0..10).filter(|_| wire.pass(0, 1500).is_some()).count();
        assert!((2..=4).contains(&passed), "{passed}");
        assert!(wire.pass(10_000_000_000, 1500).is_some());
    }

    #[test]
    fn losses_are_as_many_as_asked() {
        let mut wire = Wire::new(1_000_000_000, Duration::ZERO, u64::MAX, 0.1, 42);
        let lost = (0..10_000).filter(|i| wire.pass(i * 100_000, 100).is_none()).count();
        assert!((800..1200).contains(&lost), "{lost} of 10000 with seed 42");
    }

    proptest! {
        #[test]
        fn nothing_overtakes(packets in proptest::collection::vec((0u64..100_000, 1u64..65_000), 1..200)) {
            let mut wire = Wire::new(100_000_000, Duration::from_micros(700), 300_000, 0.05, 7);
            let (mut now, mut last) = (0, 0);
            for (gap, bytes) in packets {
                now += gap;
                if let Some(release) = wire.pass(now, bytes) {
                    prop_assert!(release >= last && release >= now + 700_000);
                    last = release;
                }
            }
        }
    }
}
