//! Looking at rings, without who reads them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::readiness_probe::ReadinessProbe;

use super::ring::DATA_AT;
use super::segment::Segment;
use super::shared::Shared;
use super::{COUNT_AT, PEERS_MAX};

/// Where the next record of each ring begins, and of the inbox the next announcement: seen through mappings of their
/// own, which last as long as somebody looks.
#[derive(Debug)]
pub(super) struct Heads {
    inbox: Words,
    announced: AtomicU32,
    /// The first that is empty ends them; none is taken out.
    rings: Box<[OnceLock<Head>]>,
}

#[derive(Debug)]
struct Head {
    ring: Words,
    /// Where its reader is, in bytes from the ring's beginning, or [`GONE`].
    at: Arc<AtomicU64>,
}

/// A segment of which only words are looked at.
#[derive(Debug)]
struct Words(Segment);

// SAFETY: `Words` shows words, atomically, of a mapping that nothing else refers to, and is unmapped with it.
unsafe impl Sync for Words {}

impl Words {
    /// None where the kernel gives no second mapping.
    fn of(segment: &Segment) -> Option<Self> {
        segment.again().ok().map(Self)
    }

    fn word64(&self, at: usize) -> &AtomicU64 {
        self.0.word64(at)
    }

    fn word32(&self, at: usize) -> &AtomicU32 {
        self.0.word32(at)
    }
}

impl Heads {
    pub fn new(inbox: &Segment, announced: u32) -> Option<Self> {
        let rings = (0..PEERS_MAX).map(|_| OnceLock::new()).collect();
        Some(Self { inbox: Words::of(inbox)?, announced: AtomicU32::new(announced), rings })
    }

    /// So many rings have been looked for.
    pub fn note_announced(&self, announced: u32) {
        self.announced.store(announced, Ordering::Relaxed);
    }

    /// Looks at another ring, whose reader tells here where it is.
    pub fn add(&self, ring: &Segment, at: &Arc<AtomicU64>) {
        let Some(ring) = Words::of(ring) else { return };
        if let Some(free) = self.rings.iter().find(|slot| slot.get().is_none()) {
            // The rail alone adds.
            let _ = free.set(Head { ring, at: Arc::clone(at) });
        }
    }
}

impl ReadinessProbe for Heads {
    fn sees_events(&self) -> bool {
        let count = self.inbox.word32(COUNT_AT).load(Ordering::Relaxed).min(PEERS_MAX);
        count != self.announced.load(Ordering::Relaxed)
            || self.rings.iter().map_while(OnceLock::get).any(Head::has_events)
    }
}

impl Head {
    /// A guess while the reader is at it: then this may be the middle of a frame.
    fn has_events(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        if at == GONE {
            return false;
        }
        let at = (at % Segment::RING_LEN as u64) as usize;
        self.ring.word64(DATA_AT + at).load(Ordering::Relaxed) != 0
    }
}

/// A ring that nobody reads any more; no ring gets there.
pub(super) const GONE: u64 = u64::MAX;
