//! State that the ranks of a scenario share: the memory of all windows, and the reference of what all may access.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use memory::Region;
use testing::Random;

use crate::model::{Ledger, LedgerEntry};
use crate::stage::Stage;

/// Synchronization of a phase, the same for all ranks.
#[derive(Clone, Debug)]
pub enum Phase {
    Fence,
    /// `MPI_Win_lock_all`, with the lock of a target taken by its first operation.
    LockAll,
    /// Locks of single targets, shared and exclusive.
    Locks,
    /// Start and post: the origins of each target.
    Start(Vec<BTreeSet<usize>>),
}

pub struct World {
    pub size: usize,
    pub stage: Arc<Stage>,
    /// Memory of each rank's window.
    pub memories: Vec<Region>,
    /// Displacement of its first byte.
    pub bases: Vec<i64>,
    pub zone_len: usize,
    pub phases: Vec<Phase>,
    shared: Mutex<SharedState>,
}

struct SharedState {
    arrived: usize,
    /// Phase, target and origin of exposures, and of completed accesses.
    posted: BTreeSet<(usize, usize, usize)>,
    completed: BTreeSet<(usize, usize, usize)>,
    ledgers: Vec<[Ledger; LEDGERS]>,
    sums: Vec<[u64; SUMS]>,
    /// Number of times that each rank's block was rewritten.
    rewritten: Vec<u64>,
    operations: u64,
    /// Number of locks that were refused because of their holder's end.
    refused: u64,
}

impl World {
    pub fn new(
        random: &mut Random,
        stage: &Arc<Stage>,
        memories: Vec<Region>,
        bases: Vec<i64>,
        zone_len: usize,
    ) -> Self {
        let size = memories.len();
        let phases = (0..2 + random.below(3)).map(|_| match random.below(4) {
            0 => Phase::Fence,
            1 => Phase::LockAll,
            2 => Phase::Locks,
            _ => {
                let mut origins = || (0..size).filter(|_| random.one_in(2)).collect();
                Phase::Start((0..size).map(|_| origins()).collect())
            }
        });
        let phases = phases.collect();
        let shared = SharedState {
            arrived: 0,
            posted: BTreeSet::new(),
            completed: BTreeSet::new(),
            ledgers: (0..size).map(|_| Default::default()).collect(),
            sums: vec![[0; SUMS]; size],
            rewritten: vec![0; size],
            operations: 0,
            refused: 0,
        };
        let (stage, shared) = (Arc::clone(stage), Mutex::new(shared));
        Self { size, stage, memories, bases, zone_len, phases, shared }
    }

    /// Notes that a rank has arrived at a barrier.
    pub fn arrive(&self) {
        self.shared().arrived += 1;
        self.stage.tell_all();
    }

    /// True if all ranks have arrived at so many barriers.
    pub fn have_met(&self, barriers: usize) -> bool {
        self.shared().arrived >= barriers * self.size
    }

    pub fn post(&self, phase: usize, target: usize, origin: usize) {
        self.shared().posted.insert((phase, target, origin));
        self.stage.tell_all();
    }

    pub fn is_posted(&self, phase: usize, target: usize, origin: usize) -> bool {
        self.shared().posted.contains(&(phase, target, origin))
    }

    pub fn note_complete(&self, phase: usize, target: usize, origin: usize) {
        self.shared().completed.insert((phase, target, origin));
        self.stage.tell_all();
    }

    pub fn is_complete(&self, phase: usize, target: usize, origin: usize) -> bool {
        self.shared().completed.contains(&(phase, target, origin))
    }

    pub fn note_entry(&self, target: usize, cell: usize, entry: LedgerEntry) {
        self.shared().ledgers[target][cell].add(entry);
    }

    pub fn note_sum(&self, target: usize, cell: usize, operand: u64) {
        let sum = &mut self.shared().sums[target][cell];
        *sum = sum.wrapping_add(operand);
    }

    pub fn note_rewritten(&self, target: usize) -> u64 {
        let mut shared = self.shared();
        shared.rewritten[target] += 1;
        shared.rewritten[target]
    }

    pub fn rewritten(&self, target: usize) -> u64 {
        self.shared().rewritten[target]
    }

    pub fn note_operations(&self, count: u64) {
        self.shared().operations += count;
    }

    pub fn operations(&self) -> u64 {
        self.shared().operations
    }

    pub fn note_refused(&self) {
        self.shared().refused += 1;
    }

    pub fn refused(&self) -> u64 {
        self.shared().refused
    }

    /// Checks at the end what all ranks have accessed.
    pub fn check(&self) {
        let shared = self.shared();
        for (target, memory) in self.memories.iter().enumerate() {
            let words = words(&memory.slice(0, ZONES_AT));
            for (cell, ledger) in shared.ledgers[target].iter().enumerate() {
                ledger.check(words[cell]);
            }
            assert_eq!(words[LEDGERS..][..SUMS], shared.sums[target], "sums of rank {target}");
            let block = &words[BLOCK_AT / 8..];
            assert!(block.iter().all(|word| *word == shared.rewritten[target]), "{block:?}");
        }
    }

    fn shared(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// The words in a region.
pub fn words(region: &Region) -> Vec<u64> {
    region.to_vec().as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Length of a window.
pub fn window_len(size: usize, zone_len: usize) -> usize {
    ZONES_AT + size * zone_len
}

/// Cells that all combine, each with a ledger.
pub const LEDGERS: usize = 2;
/// Cells behind them to which all add.
pub const SUMS: usize = 4;
/// Offset and length of the block that locks guard.
pub const BLOCK_AT: usize = 8 * (LEDGERS + SUMS);
pub const BLOCK_LEN: usize = 256;
/// Offset of the zone of the first origin.
pub const ZONES_AT: usize = BLOCK_AT + BLOCK_LEN;
