//! Readiness probe of the rings, for threads that do not hold the rail.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rail::ReadinessProbe;

use crate::inbox::{COUNT_AT, PEERS_MAX};
use crate::ring::DATA_AT;
use crate::segment::Segment;
use crate::shared::Shared;

/// Positions of the next record of each ring and of the next announcement in the inbox. They are read through
/// mappings of their own, which live as long as the probe.
#[derive(Debug)]
pub(super) struct Cursors {
    inbox: Words,
    announced: AtomicU32,
    /// The first empty entry ends the list; entries are never removed.
    rings: Box<[OnceLock<Cursor>]>,
}

#[derive(Debug)]
struct Cursor {
    ring: Words,
    /// Position of the reader in bytes since the creation of the ring, or [`GONE`].
    at: Arc<AtomicU64>,
}

/// A segment of which only atomic words are read.
#[derive(Debug)]
struct Words(Segment);

// SAFETY: `Words` reads only atomic words of a mapping that nothing else refers to and that lives as long as it.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the segment again; `None` if the kernel gives no mapping.
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

impl Cursors {
    pub fn new(inbox: &Segment, announced: u32) -> Option<Self> {
        let rings = (0..PEERS_MAX).map(|_| OnceLock::new()).collect();
        Some(Self { inbox: Words::of(inbox)?, announced: AtomicU32::new(announced), rings })
    }

    /// Sets the number of announced rings that were handled.
    pub fn note_announced(&self, announced: u32) {
        self.announced.store(announced, Ordering::Relaxed);
    }

    /// Adds a ring, whose reader publishes its position in `at`.
    pub fn add(&self, ring: &Segment, at: &Arc<AtomicU64>) {
        let Some(ring) = Words::of(ring) else { return };
        if let Some(free) = self.rings.iter().find(|slot| slot.get().is_none()) {
            // Only the rail adds rings, so the entry is still free.
            let _ = free.set(Cursor { ring, at: Arc::clone(at) });
        }
    }
}

impl ReadinessProbe for Cursors {
    fn sees_events(&self) -> bool {
        let count = self.inbox.word32(COUNT_AT).load(Ordering::Relaxed).min(PEERS_MAX);
        count != self.announced.load(Ordering::Relaxed)
            || self.rings.iter().map_while(OnceLock::get).any(Cursor::has_events)
    }
}

impl Cursor {
    /// True if a record seems to be pending. While the reader is active this is a guess: the position may lie within
    /// a frame.
    fn has_events(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        if at == GONE {
            return false;
        }
        let at = (at % Segment::RING_LEN as u64) as usize;
        self.ring.word64(DATA_AT + at).load(Ordering::Relaxed) != 0
    }
}

/// Position of a ring that is no longer read; no ring reaches it.
pub(super) const GONE: u64 = u64::MAX;
