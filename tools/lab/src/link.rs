//! A link in user space: the kernel queues packets and keeps them until a real link would have delivered
//! them.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use rustix::time::Timespec;

use crate::nfqueue::{Packet, PacketQueue};
use crate::wire::{Conditions, Counts, Fate, Size, Wire};

/// State shared by the daemon and the carrier thread of a direction.
#[derive(Debug)]
pub(crate) struct Direction {
    state: Mutex<State>,
    /// Eventfd signalled when the conditions have changed.
    wake_fd: OwnedFd,
}

/// Conditions and counters of a direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub conditions: Conditions,
    pub is_cut: bool,
    pub counts: Counts,
    /// Time that this machine adds to each packet, which is taken off the delay.
    pub lead: Duration,
}

impl Direction {
    pub fn new(conditions: Conditions) -> io::Result<Self> {
        let (counts, lead) = (Counts::default(), Duration::ZERO);
        let state = State { conditions, is_cut: false, counts, lead };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { state: Mutex::new(state), wake_fd: rustix::event::eventfd(0, flags)? })
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        *self.lock()
    }

    /// Changes the state, from the next packet on.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        // The eventfd is full only if it is signalled already.
        let _ = rustix::io::write(&self.wake_fd, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A netfilter queue, and a raw socket for duplicates.
pub(crate) struct Source {
    queue: PacketQueue,
    raw: OwnedFd,
}

impl Source {
    /// Opens queue `number`.
    ///
    /// # Errors
    /// Fails if the kernel has no such queue, or refuses it.
    pub fn open(number: u16) -> io::Result<Self> {
        let queue = PacketQueue::open(number, PACKETS_MAX)?;
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let raw = rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
        Ok(Self { queue, raw })
    }

    /// Carries its packets until the process ends.
    ///
    /// # Errors
    /// Fails if the kernel removes the queue.
    pub fn carry(self, seed: u64, direction: &Direction) -> io::Result<()> {
        // Timers would otherwise expire up to 50 µs late.
        rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))?;
        let carrier = Carrier {
            queue: self.queue,
            raw: self.raw,
            wire: Wire::new(seed),
            direction,
            in_order: VecDeque::new(),
            late: BTreeSet::new(),
            copies: VecDeque::new(),
            start: Instant::now(),
        };
        carrier.run()
    }
}

struct Carrier<'a> {
    queue: PacketQueue,
    /// Raw socket for duplicates.
    raw: OwnedFd,
    wire: Wire,
    direction: &'a Direction,
    /// Packets on the wire in order, with the times when they leave.
    in_order: VecDeque<(u64, u32)>,
    /// Reordered packets, by the time when they leave and their number.
    late: BTreeSet<(u64, u32)>,
    /// Duplicates, and when they leave.
    copies: VecDeque<(u64, Vec<u8>)>,
    start: Instant,
}

impl Carrier<'_> {
    fn run(mut self) -> io::Result<()> {
        let mut arrived = Vec::new();
        loop {
            let conditions = self.direction.state().conditions;
            self.queue.set_detail(conditions.detail())?;
            for _ in 0..BURST {
                if !self.queue.receive(&mut |packet| arrived.push(packet))? {
                    break;
                }
            }
            for packet in arrived.drain(..) {
                self.take(packet)?;
            }
            self.release()?;
            self.wait()?;
        }
    }

    fn take(&mut self, packet: Packet) -> io::Result<()> {
        let size = Size { bytes: u64::from(packet.bytes), protocol: packet.protocol };
        let mut state = self.direction.lock();
        let State { conditions, is_cut, counts, lead } = &mut *state;
        // The wire waits neither for this thread to be scheduled nor for the machine.
        let before = age(packet.arrived) + (*lead).min(conditions.delay);
        let now = self.now().saturating_sub(before.as_nanos() as u64);
        let fate = self.wire.pass(conditions, *is_cut, now, size, counts);
        drop(state);
        match fate {
            Fate::Dropped => self.queue.drop_packet(packet.id)?,
            Fate::Passes { at_ns, is_doubled } => {
                self.in_order.push_back((at_ns, packet.id));
                // Only packets received whole can be sent again.
                if is_doubled && !packet.content.is_empty() {
                    self.copies.push_back((at_ns, packet.content));
                }
            }
            Fate::Late { at_ns } => {
                self.late.insert((at_ns, packet.id));
            }
        }
        Ok(())
    }

    /// Releases due packets: all in order by one verdict, unless earlier packets must stay.
    fn release(&mut self) -> io::Result<()> {
        let now = self.now();
        let mut last = None;
        while let Some((release, id)) = self.in_order.front()
            && *release <= now
        {
            if !self.late.is_empty() {
                self.queue.accept(*id)?;
            }
            last = Some(*id);
            self.in_order.pop_front();
        }
        if let Some(last) = last
            && self.late.is_empty()
        {
            self.queue.accept_up_to(last)?;
        }
        while let Some((release, id)) = self.late.first().copied()
            && release <= now
        {
            self.queue.accept(id)?;
            self.late.pop_first();
        }
        while let Some((release, content)) = self.copies.front()
            && *release <= now
        {
            self.send_again(content);
            self.copies.pop_front();
        }
        Ok(())
    }

    fn send_again(&self, content: &[u8]) {
        let Some(to) = content.get(16..20).and_then(|bytes| bytes.first_chunk::<4>()) else {
            return;
        };
        let to = SocketAddrV4::new(Ipv4Addr::from(*to), 0);
        // A duplicate without room in the kernel is lost, as on a real link.
        let _ = rustix::net::sendto(&self.raw, content, SendFlags::DONTWAIT, &to);
    }

    /// Waits until the next packet is due, another one arrives or the conditions change.
    fn wait(&self) -> io::Result<()> {
        let in_order = self.in_order.front().map(|(release, _)| *release);
        let late = self.late.first().map(|(release, _)| *release);
        let left = match in_order.into_iter().chain(late).min() {
            Some(release) => Duration::from_nanos(release.saturating_sub(self.now())),
            None => Duration::from_secs(1),
        };
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let wake_fd = &self.direction.wake_fd;
        let mut descriptors = [
            PollFd::from_borrowed_fd(self.queue.descriptor(), PollFlags::IN),
            PollFd::new(wake_fd, PollFlags::IN),
        ];
        match rustix::event::poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !descriptors[1].revents().is_empty() {
            // The conditions were changed before the signal.
            let _ = rustix::io::read(wake_fd, &mut [0; 8]);
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Returns the time a packet has waited; zero if it is unknown, or the system's clock was set meanwhile.
fn age(arrived: Option<Duration>) -> Duration {
    let since = arrived.and_then(|arrived| UNIX_EPOCH.checked_add(arrived));
    let age = since.and_then(|since| since.elapsed().ok());
    age.filter(|age| *age < AGE_MAX).unwrap_or_default()
}

/// Longest plausible wait; more means that the clock was set.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Maximum number of packets queued in the kernel.
const PACKETS_MAX: u32 = 65_536;
/// Number of receptions before the clock is read.
const BURST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_as_old_as_it_may_be() {
        let now = UNIX_EPOCH.elapsed().unwrap();
        let older = age(Some(now - Duration::from_millis(100)));
        assert!(Duration::from_millis(100) <= older && older < AGE_MAX, "{older:?}");
        for unbelievable in [None, Some(Duration::ZERO), Some(now + AGE_MAX), Some(Duration::MAX)] {
            assert_eq!(age(unbelievable), Duration::ZERO, "{unbelievable:?}");
        }
    }
}
