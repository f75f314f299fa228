//! Datagrams of strangers: told from those of peers before any other work, counted, and dropped in the kernel if many come.
//!
//! A few strangers are answered, so that they learn why they are refused. More than [`FLOOD_BEGINS`] are a flood.
//! While it lasts, a filter in the kernel drops datagrams without a mark ([`Marks`]): they take neither room in the
//! socket's buffer nor time of this process. The filter lets a sample pass, which tells how many come and when the
//! flood ends. Without permission for a filter the process drops them itself.
//!
//! A first packet that somebody has overheard and repeats has a mark and a valid code. Each may come a few times a
//! second ([`REPEATS_MAX`]), as its sender may repeat it. In a flood its nonce is then denied, in the kernel too.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use auth::MARK_LEN;
use socket2::SockFilter;

use crate::marks::{Marks, Nonce, OwnMark, SAMPLED};

/// Datagrams of strangers in the last moments.
pub(super) struct Strangers {
    own: OwnMark,
    marks: Marks,
    /// First packets of the last second.
    seen: Vec<Seen>,
    /// Number of datagrams of strangers since `since`. Those that the kernel has dropped are estimated.
    count: u64,
    since: Instant,
    /// Sender of the last one.
    last: Option<SocketAddr>,
    flood: Option<Flood>,
    /// True once the user was told of a flood.
    has_told: bool,
}

/// A flood of datagrams of strangers.
struct Flood {
    /// Nonces of first packets that somebody repeats.
    denied: Vec<Nonce>,
    /// True while a filter in the kernel drops datagrams, or the reason for which there is none.
    filter: Result<(), String>,
    /// True while datagrams from before the filter may be in the buffers of the sockets. They are no samples.
    is_settling: bool,
}

/// A first packet, and how often it has come in the second from `since` on.
#[derive(Clone, Copy)]
struct Seen {
    nonce: Nonce,
    count: u32,
    since: Instant,
}

impl Strangers {
    pub fn new(own: OwnMark, keys: impl Iterator<Item = [u8; MARK_LEN]>, now: Instant) -> Self {
        Self {
            own,
            marks: Marks::new(own, keys),
            seen: Vec::new(),
            count: 0,
            since: now,
            last: None,
            flood: None,
            has_told: false,
        }
    }

    /// Replaces the marks of keys.
    pub fn set_keys(&mut self, keys: impl Iterator<Item = [u8; MARK_LEN]>) {
        self.marks = Marks::new(self.own, keys);
    }

    /// True if a datagram has one of the marks.
    pub fn has_mark(&self, datagram: &[u8]) -> bool {
        self.marks.are_on(datagram)
    }

    /// True while many strangers come.
    pub fn is_flood(&self) -> bool {
        self.flood.is_some()
    }

    /// Returns the filter of a flood.
    pub fn filter(&self) -> Option<Result<Vec<SockFilter>, String>> {
        let filter = self.marks.filter(&self.flood.as_ref()?.denied, true);
        Some(filter.ok_or_else(|| "too many keys".into()))
    }

    /// Notes that the sockets have the filter of a flood, or why they have not.
    pub fn set_filtered(&mut self, filter: Result<(), String>) {
        if let Some(flood) = &mut self.flood {
            (flood.filter, flood.is_settling) = (filter, true);
        }
    }

    /// Ends a flood.
    pub fn end_flood(&mut self) {
        self.flood = None;
    }

    /// Counts a datagram of a stranger; returns true if a flood begins with it.
    pub fn count(&mut self, from: SocketAddr, is_filtered: bool, now: Instant) -> bool {
        let is_sample = is_filtered && self.flood.as_ref().is_some_and(|one| one.filter.is_ok());
        self.count += if is_sample { SAMPLED.into() } else { 1 };
        self.last = Some(from);
        if self.flood.is_some() {
            return false;
        }
        if now.saturating_duration_since(self.since) > FLOOD_BEGINS_WITHIN {
            (self.count, self.since) = (1, now);
        }
        if self.count < FLOOD_BEGINS {
            return false;
        }
        (self.count, self.since) = (0, now);
        self.flood =
            Some(Flood { denied: Vec::new(), filter: Err(String::new()), is_settling: true });
        true
    }

    /// True if the first packet with this nonce has come too often.
    pub fn is_repeated(&self, nonce: Nonce, now: Instant) -> bool {
        self.seen.get(slot(nonce)).is_some_and(|seen| {
            seen.nonce == nonce && seen.count >= REPEATS_MAX && now < seen.since + REPEATS_WITHIN
        })
    }

    /// Counts a first packet that proves a key.
    pub fn note_first(&mut self, nonce: Nonce, now: Instant) {
        if self.seen.is_empty() {
            self.seen = vec![Seen { nonce, count: 0, since: now }; SEEN_MAX];
        }
        let seen = &mut self.seen[slot(nonce)];
        if seen.nonce != nonce || now >= seen.since + REPEATS_WITHIN {
            *seen = Seen { nonce, count: 0, since: now };
        }
        seen.count += 1;
    }

    /// Denies a nonce for the rest of a flood; returns true if the filter has to be made again.
    pub fn deny(&mut self, nonce: Nonce) -> bool {
        let Some(flood) = &mut self.flood else { return false };
        let is_new = flood.denied.len() < DENIED_MAX && !flood.denied.contains(&nonce);
        if is_new {
            flood.denied.push(nonce);
        }
        is_new
    }

    /// True if the nonce is denied.
    pub fn is_denied(&self, nonce: Nonce) -> bool {
        self.flood.as_ref().is_some_and(|flood| flood.denied.contains(&nonce))
    }

    /// Checks the limits of what is kept.
    #[cfg(test)]
    pub fn check_bounds(&self) {
        assert!(self.seen.len() <= SEEN_MAX);
        if let Some(flood) = &self.flood {
            assert!(flood.denied.len() <= DENIED_MAX);
            assert!(self.marks.filter(&flood.denied, true).is_some());
        }
    }

    /// Returns the rate of a flood, in datagrams per second, once it was measured for a while.
    pub fn rate(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.since);
        let flood = self.flood.as_mut().filter(|_| passed >= REVIEW_EVERY)?;
        let rate = (self.count as f64 / passed.as_secs_f64()) as u64;
        (self.count, self.since) = (0, now);
        (!std::mem::replace(&mut flood.is_settling, false)).then_some(rate)
    }

    /// Says that there is a flood, and what to do. Says so once.
    pub fn text(&mut self, rate: u64) -> Option<String> {
        if std::mem::replace(&mut self.has_told, true) {
            return None;
        }
        let from = self.last.map(|from| format!(", the last from {from}")).unwrap_or_default();
        let by = match &self.flood.as_ref()?.filter {
            Ok(()) => "a filter in the kernel drops them".into(),
            Err(error) => {
                format!("this process drops them, because the kernel takes no filter ({error})")
            }
        };
        Some(format!(
            "strangers send some {rate} datagrams a second to this process{from}; {by}. Keep them off the port by a \
             firewall, or choose another network (CANELE_IFACE)"
        ))
    }
}

/// Returns the place of a nonce in the table of first packets. Only processes of the job make nonces that get there.
fn slot(nonce: Nonce) -> usize {
    u32::from_le_bytes(nonce) as usize % SEEN_MAX
}

/// Number of datagrams of strangers that are a flood, and the time in which they come.
const FLOOD_BEGINS: u64 = 200;
const FLOOD_BEGINS_WITHIN: Duration = Duration::from_millis(100);
/// Datagrams of strangers per second below which a flood has ended, and the interval of looks at it.
pub(super) const FLOOD_ENDS: u64 = 1000;
const REVIEW_EVERY: Duration = Duration::from_secs(1);
/// Number of first packets that are remembered.
const SEEN_MAX: usize = 256;
/// Limit of the arrivals of one first packet in some time. Its sender repeats it until it is answered.
const REPEATS_MAX: u32 = 16;
const REPEATS_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of nonces denied in a flood; packets with others are dropped after they are read.
const DENIED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn strangers(now: Instant) -> Strangers {
        Strangers::new([1, 2], std::iter::once([3; 4]), now)
    }

    fn from() -> SocketAddr {
        ([10, 0, 0, 1], 9).into()
    }

    #[test]
    fn few_strangers_are_no_flood_and_many_are_one_until_they_cease() {
        let mut now = Instant::now();
        let mut few = strangers(now);
        for _ in 0..10 * FLOOD_BEGINS {
            now += Duration::from_millis(1);
            assert!(!few.count(from(), true, now));
        }
        let mut many = strangers(now);
        let begun = (0..FLOOD_BEGINS).filter(|_| many.count(from(), true, now)).count();
        assert_eq!(begun, 1);
        many.flood.as_mut().unwrap().filter = Ok(());
        assert_eq!(many.rate(now), None);
        many.count(from(), true, now);
        now += REVIEW_EVERY;
        assert_eq!(many.rate(now), None, "what came before the filter is no sample");
        for _ in 0..10 {
            many.count(from(), true, now);
        }
        now += REVIEW_EVERY;
        let rate = many.rate(now).unwrap();
        assert_eq!(rate, 10 * u64::from(SAMPLED), "one stands for those that were dropped");
        assert!(many.text(rate).unwrap().contains("10.0.0.1:9"));
        assert_eq!(many.text(rate), None, "said once");
        now += REVIEW_EVERY;
        assert_eq!(many.rate(now), Some(0));
    }

    #[test]
    fn a_first_packet_comes_a_few_times_a_second_and_is_denied_in_a_flood() {
        let mut now = Instant::now();
        let mut strangers = strangers(now);
        let (nonce, other) = ([1, 2, 3, 4], [1, 2, 3, 5]);
        for _ in 0..REPEATS_MAX {
            assert!(!strangers.is_repeated(nonce, now));
            strangers.note_first(nonce, now);
        }
        assert!(strangers.is_repeated(nonce, now) && !strangers.is_repeated(other, now));
        assert!(!strangers.deny(nonce), "no flood");
        while !strangers.count(from(), false, now) {}
        assert!(strangers.deny(nonce) && !strangers.deny(nonce));
        assert!(strangers.is_denied(nonce) && !strangers.is_denied(other));
        now += REPEATS_WITHIN;
        assert!(!strangers.is_repeated(nonce, now));
        let new = (0..2 * DENIED_MAX as u32).filter(|nonce| strangers.deny(nonce.to_le_bytes()));
        assert_eq!(new.count(), DENIED_MAX - 1);
    }
}
