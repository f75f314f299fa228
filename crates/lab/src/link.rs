//! A link in user space: the kernel queues packets to us and keeps them; they are let out when a real
//! link would have carried them.

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

/// What the daemon and the carrier of a direction share.
#[derive(Debug)]
pub(crate) struct Direction {
    state: Mutex<State>,
    /// Rung when the conditions have changed.
    bell: OwnedFd,
}

/// What a direction is like now, and what it has carried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub conditions: Conditions,
    pub is_cut: bool,
    pub counts: Counts,
}

impl Direction {
    pub fn new(conditions: Conditions) -> io::Result<Self> {
        let state = State { conditions, is_cut: false, counts: Counts::default() };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { state: Mutex::new(state), bell: rustix::event::eventfd(0, flags)? })
    }

    /// What it is like now.
    pub fn state(&self) -> State {
        *self.lock()
    }

    /// Changes it; from the next packet on it is so.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        // It is full only when it has been rung and not heard.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue of netfilter's, and what is needed to send packets of it once more.
pub(crate) struct Source {
    queue: PacketQueue,
    raw: OwnedFd,
}

impl Source {
    /// Takes queue `number`.
    ///
    /// # Errors
    /// When the kernel has no such queue, or refuses it.
    pub fn open(number: u16) -> io::Result<Self> {
        let queue = PacketQueue::open(number, PACKETS_MAX)?;
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let raw = rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
        Ok(Self { queue, raw })
    }

    /// Carries its packets until the process ends.
    ///
    /// # Errors
    /// When the kernel takes the queue away.
    pub fn carry(self, seed: u64, direction: &Direction) -> io::Result<()> {
        // Timers otherwise come up to 50 µs late.
        rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))?;
        let carrier = Carrier {
            queue: self.queue,
            raw: self.raw,
            wire: Wire::new(seed),
            direction,
            in_turn: VecDeque::new(),
            late: BTreeSet::new(),
            copies: VecDeque::new(),
            start: Instant::now(),
        };
        carrier.run()
    }
}

struct Carrier<'a> {
    queue: PacketQueue,
    /// Sends what comes a second time.
    raw: OwnedFd,
    wire: Wire,
    direction: &'a Direction,
    /// Packets on the wire in their turn: when each comes out.
    in_turn: VecDeque<(u64, u32)>,
    /// Packets that others overtake, by when they come out and their number.
    late: BTreeSet<(u64, u32)>,
    /// What comes once more, and when.
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
        // The wire does not wait for this thread's core.
        let now = self.now().saturating_sub(age(packet.arrived).as_nanos() as u64);
        let size = Size { bytes: u64::from(packet.bytes), protocol: packet.protocol };
        let mut state = self.direction.lock();
        let State { conditions, is_cut, counts } = &mut *state;
        let fate = self.wire.pass(conditions, *is_cut, now, size, counts);
        drop(state);
        match fate {
            Fate::Dropped => self.queue.drop_packet(packet.id)?,
            Fate::Passes { at_ns, is_doubled } => {
                self.in_turn.push_back((at_ns, packet.id));
                // What has not come up whole cannot be sent again.
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

    /// Lets out what is due: all that is in its turn by one verdict, unless packets before it stay.
    fn release(&mut self) -> io::Result<()> {
        let now = self.now();
        let mut last = None;
        while let Some((release, id)) = self.in_turn.front()
            && *release <= now
        {
            if !self.late.is_empty() {
                self.queue.accept(*id)?;
            }
            last = Some(*id);
            self.in_turn.pop_front();
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
        // A copy that the kernel has no room for is lost, as it would be on a real link.
        let _ = rustix::net::sendto(&self.raw, content, SendFlags::DONTWAIT, &to);
    }

    /// Until the next packet is due, another one comes or the conditions change.
    fn wait(&self) -> io::Result<()> {
        let in_turn = self.in_turn.front().map(|(release, _)| *release);
        let late = self.late.first().map(|(release, _)| *release);
        let left = match in_turn.into_iter().chain(late).min() {
            Some(release) => Duration::from_nanos(release.saturating_sub(self.now())),
            None => Duration::from_secs(1),
        };
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let bell = &self.direction.bell;
        let mut descriptors = [
            PollFd::from_borrowed_fd(self.queue.descriptor(), PollFlags::IN),
            PollFd::new(bell, PollFlags::IN),
        ];
        match rustix::event::poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !descriptors[1].revents().is_empty() {
            // Who rings has changed the conditions before.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// How long a packet has waited to be taken; none if that is not known, or the system's clock was set meanwhile.
fn age(arrived: Option<Duration>) -> Duration {
    let since = arrived.and_then(|arrived| UNIX_EPOCH.checked_add(arrived));
    let age = since.and_then(|since| since.elapsed().ok());
    age.filter(|age| *age < AGE_MAX).unwrap_or_default()
}

/// A packet that has waited longer has not: the clock was set.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Packets queued in the kernel.
const PACKETS_MAX: u32 = 65_536;
/// Receptions before the clock is looked at.
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
