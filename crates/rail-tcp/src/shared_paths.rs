//! Links of this process that share a path, and the window of each path.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Instant;

use netpath::{LONG_FRAME, PathState, PathWindow, bytes_in_flight, shared_sight};
use rustc_hash::FxHashMap;

/// The network of the hosts at the end of a path: a site, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Prefix([u8; 8]);

impl Prefix {
    /// The first 24 bits of an IPv4 address, the first 64 of an IPv6 address.
    pub fn of(peer: SocketAddr) -> Self {
        let mut bytes = [0; 8];
        match peer.ip().to_canonical() {
            IpAddr::V4(address) => bytes[..3].copy_from_slice(&address.octets()[..3]),
            IpAddr::V6(address) => bytes.copy_from_slice(&address.octets()[..8]),
        }
        Self(bytes)
    }
}

/// Finds the connection of a link by its key.
pub(super) type Find<'a> = &'a dyn Fn(u64) -> Option<&'a TcpStream>;

/// The paths on which this process has links.
#[derive(Debug, Default)]
pub(super) struct SharedPaths(FxHashMap<Prefix, SharedPath>);

#[derive(Debug, Default)]
struct SharedPath {
    window: PathWindow,
    /// Open links on the path.
    keys: Vec<u64>,
    /// Links whose long frames the window holds back, each once.
    held: VecDeque<u64>,
    /// Bytes of long frames that have left in all.
    sent: u64,
    /// Bytes of long frames that have lately left, and that have lately come.
    lately_sent: u64,
    lately_received: u64,
    /// Bytes in flight on all links, and the poll in which they were counted.
    in_flight: u64,
    poll: Option<u32>,
}

impl SharedPaths {
    /// Adds a link to a path that holds so many bytes as far as is known.
    pub fn add(&mut self, path: Prefix, key: u64, bytes: u64) {
        let shared = self.0.entry(path).or_default();
        shared.keys.push(key);
        shared.window.expect(bytes);
    }

    pub fn remove(&mut self, path: Prefix, key: u64) {
        if let Some(shared) = self.0.get_mut(&path) {
            shared.keys.retain(|one| *one != key);
            shared.held.retain(|one| *one != key);
            if shared.keys.is_empty() {
                self.0.remove(&path);
            }
        }
    }

    /// True if there is no such link.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a long frame may leave on a link now. If not, the link is [invited](Self::invite) later.
    pub fn admit(&mut self, path: Prefix, key: u64, (find, poll): (Find<'_>, u32)) -> bool {
        let Some(shared) = self.0.get_mut(&path).filter(|shared| shared.keys.len() > 1) else {
            return true;
        };
        shared.count(find, poll);
        if shared.has_room(key, find) {
            return true;
        }
        // ACKs may have come since the poll.
        shared.poll = None;
        shared.count(find, poll);
        if shared.has_room(key, find) {
            return true;
        }
        if !shared.held.contains(&key) {
            shared.held.push_back(key);
        }
        false
    }

    /// Records that a long frame has left.
    pub fn note_sent(&mut self, path: Prefix, bytes: usize) {
        if let Some(shared) = self.0.get_mut(&path) {
            shared.in_flight += bytes as u64;
            shared.sent += bytes as u64;
            shared.lately_sent += bytes as u64;
            shared.forget_older();
        }
    }

    /// Records that a long frame has come.
    pub fn note_received(&mut self, path: Prefix, bytes: u64) {
        if let Some(shared) = self.0.get_mut(&path) {
            shared.lately_received += bytes;
            shared.forget_older();
        }
    }

    /// Returns a held link of each path that has room again.
    pub fn invite(&mut self, find: Find<'_>, poll: u32) -> Vec<u64> {
        let limited = self.0.values_mut().filter(|shared| !shared.held.is_empty());
        let next = limited.filter_map(|shared| {
            shared.count(find, poll);
            let key = shared.held.pop_front()?;
            if shared.has_room(key, find) {
                return Some(key);
            }
            shared.held.push_front(key);
            None
        });
        next.collect()
    }

    /// True if the window of its path holds back frames of a link.
    pub fn holds(&self, path: Prefix, key: u64) -> bool {
        self.0.get(&path).is_some_and(|shared| shared.held.contains(&key))
    }

    /// True if any window holds back frames.
    pub fn limits_any(&self) -> bool {
        self.0.values().any(|shared| !shared.held.is_empty())
    }
}

impl SharedPath {
    /// Counts the bytes in flight, once in each poll, and adapts the window.
    fn count(&mut self, find: Find<'_>, poll: u32) {
        if self.poll == Some(poll) {
            return;
        }
        self.poll = Some(poll);
        self.in_flight = self.keys.iter().map(|&key| in_flight(key, find)).sum();
        if self.held.is_empty() {
            self.window.end_turn();
            return;
        }
        let (keys, confirmed) = (&self.keys, self.sent.saturating_sub(self.in_flight));
        self.window.look(Instant::now(), confirmed, || state(keys, find));
    }

    fn forget_older(&mut self) {
        while self.lately_sent.max(self.lately_received) > LATELY_BYTES {
            self.lately_sent /= 2;
            self.lately_received /= 2;
        }
    }

    /// True if the processes at the other end send about as much as this one. Then it is an exchange, and others of this
    /// site send over the path, too. The root of a scatter sends alone.
    fn is_exchange(&self) -> bool {
        self.lately_received > self.lately_sent / 4
    }

    /// True if a link that sends alone, or beside others within the window, may send more.
    fn has_room(&self, key: u64, find: Find<'_>) -> bool {
        if !self.is_exchange() || self.in_flight < self.window.bytes() {
            return true;
        }
        let is_next = self.held.iter().all(|one| *one == key);
        is_next && self.in_flight.saturating_sub(in_flight(key, find)) < LONG_FRAME as u64
    }
}

/// Bytes that count as lately sent or received, more or less.
const LATELY_BYTES: u64 = 1 << 20;

fn in_flight(key: u64, find: Find<'_>) -> u64 {
    find(key).map_or(0, bytes_in_flight)
}

/// Round trips of the link that waits least, among those with bytes in flight, and the losses of all.
fn state(keys: &[u64], find: Find<'_>) -> Option<PathState> {
    let (mut least, mut lost) = (None, 0);
    for socket in keys.iter().filter_map(|key| find(*key)) {
        let Some(sight) = shared_sight(socket) else { continue };
        lost += sight.lost;
        if bytes_in_flight(socket) > 0 {
            let seen = (sight.waits, sight.least);
            least = Some(least.map_or(seen, |least| seen.min(least)));
        }
    }
    least.map(|(waits, least)| PathState { least, waits, lost })
}
