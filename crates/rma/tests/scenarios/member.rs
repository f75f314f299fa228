//! Program of one rank: random operations, each checked against the reference once it is complete.

use std::cell::Cell;
use std::sync::Arc;

use datatype::{Builtin, Datatype, Predefined};
use engine::{Envelope, SendMode};
use memory::{Layout, Region, Segment};
use progress::Progress;
use rma::{AccessFault, Combination, LockKind, PendingAccess, TargetPlace, Window};
use testing::Random;
use wire::PeerId;

use crate::model::{Change, LedgerEntry, PendingKind, Zone, ZonePlace};
use crate::world::{BLOCK_AT, BLOCK_LEN, LEDGERS, Phase, SUMS, World, words};

pub struct Member<'a> {
    rank: usize,
    world: &'a World,
    progress: Arc<Progress>,
    window: &'a Window,
    random: Random,
    zones: Vec<Zone>,
    /// Submitted operations that are not complete here, by target.
    incomplete: Vec<Vec<Incomplete>>,
    /// Latest values that were found in each target's ledgers.
    seen: Vec<[u64; LEDGERS]>,
    entries: usize,
    barriers: usize,
    operations: u64,
    is_idle: bool,
    /// The rank that ends without a word, if any, and true once an operation has failed with it.
    victim: Option<usize>,
    has_lost: Cell<bool>,
}

/// An operation whose memory is in use.
struct Incomplete {
    request: Option<PendingAccess>,
    /// Data, which are overwritten as soon as that is permitted.
    data: Region,
    result: Option<Found>,
}

/// Memory for what an operation finds.
enum Found {
    Bytes { into: Region, expected: Vec<u8> },
    Entry { into: Region, cell: usize, number: usize, change: Change },
}

impl<'a> Member<'a> {
    pub fn new(
        rank: usize,
        world: &'a World,
        progress: &Arc<Progress>,
        window: &'a Window,
        seed: u64,
    ) -> Self {
        let at = crate::world::ZONES_AT + rank * world.zone_len;
        let zones = (0..world.size).map(|_| Zone::new(at, world.zone_len)).collect();
        Self {
            rank,
            world,
            progress: Arc::clone(progress),
            window,
            random: Random::new(seed ^ (rank as u64 + 1) << 32),
            zones,
            incomplete: (0..world.size).map(|_| Vec::new()).collect(),
            seen: vec![[0; LEDGERS]; world.size],
            entries: 0,
            barriers: 0,
            operations: 0,
            is_idle: false,
            victim: None,
            has_lost: Cell::new(false),
        }
    }

    /// Submits nothing, and only serves the others.
    pub fn idle(mut self) -> Self {
        self.is_idle = true;
        self
    }

    /// Random number of operations, lower than `end`.
    fn count(&mut self, end: usize) -> usize {
        if self.is_idle { 0 } else { self.random.below(end) }
    }

    /// Runs all phases.
    pub fn run(mut self) {
        for (number, phase) in self.world.phases.iter().enumerate() {
            match phase {
                Phase::Fence => self.run_fence(),
                Phase::LockAll => self.run_lock_all(),
                Phase::Locks => self.run_locks(),
                Phase::Start(origins) => self.run_start(number, origins),
            }
            self.barrier();
        }
        self.world.note_operations(self.operations);
    }

    /// Runs operations on all ranks, one of which ends at a random time, perhaps with a lock. Those on other ranks
    /// succeed, but for locks that it holds.
    pub fn run_beside(mut self, victim: usize) {
        self.victim = Some(victim);
        (0..self.world.size).for_each(|target| self.greet(target));
        for _ in 0..2 * OPERATIONS {
            if self.rank == victim && self.random.one_in(OPERATIONS) {
                break;
            }
            let target = self.random.below(self.world.size);
            match self.random.below(10) {
                0..=4 | 8 | 9 if target == victim && self.has_lost.get() => {}
                0..=4 => {
                    let with_request = self.random.one_in(3);
                    self.access(target, with_request);
                }
                5 => self.flush(target),
                6 => self.flush_all(),
                7 => self.world.stage.pause(self.rank),
                _ if self.visit(target) => {}
                _ => break,
            }
        }
        if self.rank == victim {
            // It is waited for no more.
            (0..2).for_each(|_| self.world.arrive());
            return self.world.stage.kill(self.rank);
        }
        self.barrier();
        if !self.has_lost.get() {
            self.access(victim, false);
        }
        self.flush_all();
        // The others serve until all have ended.
        self.barrier();
        self.world.note_operations(u64::from(self.has_lost.get()));
    }

    /// Sends a rank a message, so that its end is noticed.
    fn greet(&self, target: usize) {
        let envelope = Envelope { context: 1, source: self.rank as u32, tag: 0, is_urgent: false };
        self.progress.submit(|worker| {
            let (peer, none, mode) = (PeerId(target as u32), Region::empty(), SendMode::Standard);
            let send = worker.engine.submit_send(peer, envelope, &none, mode);
            worker.engine.release(send);
        });
    }

    /// Locks a target, and unlocks it, unless this is the rank that ends, and it ends now.
    fn visit(&mut self, target: usize) -> bool {
        let kind = self.random.pick(&[LockKind::Shared, LockKind::Exclusive]);
        match self.window.lock(target as u32, kind) {
            Ok(()) if self.victim == Some(self.rank) && self.random.one_in(4) => return false,
            Ok(()) => self.unlock(target, kind),
            Err(AccessFault::HolderFailed(rank)) => {
                assert!(rank as usize == target && self.victim != Some(self.rank));
                self.world.note_refused();
            }
            Err(fault) => self.done(Err(fault)),
        }
        true
    }

    fn run_fence(&mut self) {
        for _ in 0..self.count(OPERATIONS) {
            let target = self.random.below(self.world.size);
            self.act(target);
        }
        self.flush_all();
    }

    fn run_lock_all(&mut self) {
        let mut is_locked = vec![false; self.world.size];
        for _ in 0..self.count(OPERATIONS) {
            let target = self.random.below(self.world.size);
            if !std::mem::replace(&mut is_locked[target], true) {
                self.done(self.window.lock(target as u32, LockKind::Shared));
            }
            self.act(target);
        }
        for target in (0..self.world.size).filter(|target| is_locked[*target]) {
            self.unlock(target, LockKind::Shared);
        }
    }

    fn run_locks(&mut self) {
        for _ in 0..self.count(10) {
            let first = self.random.below(self.world.size);
            // Several locks are taken in the order of ranks, so that no circle waits.
            let count = if self.random.one_in(3) { self.world.size - first } else { 1 };
            let targets = first..first + count;
            let kind = self.random.pick(&[LockKind::Shared, LockKind::Exclusive]);
            for target in targets.clone() {
                self.done(self.window.lock(target as u32, kind));
                self.access_block(target, kind);
                for _ in 0..self.random.below(4) {
                    self.act(target);
                }
            }
            targets.for_each(|target| self.unlock(target, kind));
        }
    }

    fn run_start(&mut self, phase: usize, origins: &[std::collections::BTreeSet<usize>]) {
        let own = &origins[self.rank];
        own.iter().for_each(|&origin| self.world.post(phase, self.rank, origin));
        let targets = (0..self.world.size).filter(|target| origins[*target].contains(&self.rank));
        let targets: Vec<_> = targets.collect();
        for &target in &targets {
            self.until(|me| me.world.is_posted(phase, target, me.rank));
        }
        for _ in 0..if targets.is_empty() { 0 } else { self.count(OPERATIONS) } {
            let target = self.random.pick(&targets);
            self.act(target);
        }
        self.flush_all();
        targets.iter().for_each(|&target| self.world.note_complete(phase, target, self.rank));
        for &origin in own {
            self.until(|me| me.world.is_complete(phase, me.rank, origin));
        }
    }

    fn unlock(&mut self, target: usize, kind: LockKind) {
        self.done(self.window.unlock(target as u32, kind));
        self.complete(target, true);
    }

    fn barrier(&mut self) {
        self.barriers += 1;
        self.world.arrive();
        self.until(|me| me.world.have_met(me.barriers));
    }

    /// Expects an operation to succeed, unless the victim has failed it.
    fn done(&self, result: rma::Result<()>) {
        let Err(fault) = result else { return };
        let is_victim = |rank| self.victim == Some(rank as usize);
        if matches!(fault, AccessFault::PeerFailed(rank) if is_victim(rank)) {
            return self.has_lost.set(true);
        }
        let notices = self.progress.look(progress::Worker::take_notices);
        panic!("rank {}: {fault:?}: {notices:?}", self.rank);
    }

    /// True if the operations on a target have failed.
    fn has_failed(&self, target: usize) -> bool {
        self.has_lost.get() && self.victim == Some(target)
    }

    /// Makes progress until a condition holds.
    fn until(&self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            self.progress.test(|_| ());
        }
    }

    /// Does something with a target.
    fn act(&mut self, target: usize) {
        self.operations += 1;
        match self.random.below(16) {
            0..=5 => self.access(target, false),
            6..=7 => self.access(target, true),
            8..=9 => self.combine_ledger(target),
            10 => self.add(target),
            11 => self.end_request(target),
            12 => {
                self.done(self.window.flush_local(target as u32));
                self.complete(target, false);
            }
            13 => self.flush(target),
            14 if self.random.one_in(2) => self.flush_all(),
            14 => {
                self.done(self.window.flush_local_all());
                (0..self.world.size).for_each(|target| self.complete(target, false));
            }
            _ => self.world.stage.pause(self.rank),
        }
    }

    fn flush(&mut self, target: usize) {
        self.done(self.window.flush(target as u32));
        self.complete(target, true);
    }

    fn flush_all(&mut self) {
        self.done(self.window.flush_all());
        (0..self.world.size).for_each(|target| self.complete(target, true));
    }

    /// Accesses bytes that no other rank does.
    fn access(&mut self, target: usize, with_request: bool) {
        let kind = self.random.below(4);
        let (place, builtin) = self.place(kind >= 2);
        let access = match kind {
            0 => PendingKind::Put,
            1 => PendingKind::Get,
            _ => PendingKind::Combine(builtin),
        };
        if !self.zones[target].admits(&place, access) {
            self.flush(target);
        }
        self.zones[target].note(&place, access);
        let (bytes, op) = (self.random_bytes(place.len()), self.op(builtin, kind == 3));
        let zone = &self.zones[target];
        let former = zone.stream(&place).to_vec();
        let (data, into) = (Region::from_box(bytes.clone().into()), Region::owned(place.len()));
        let displacement = self.world.bases[target] + (zone.offset + place.displacement) as i64;
        let to = TargetPlace::elements(target as u32, displacement, place.count, &place.layout);
        let run = |window: &Window| match kind {
            0 => window.put(&data, to),
            1 => window.get(&into, to),
            2 => window.accumulate(&data, to, combination(builtin, op)),
            _ => window.get_accumulate(Some(&data), &into, to, combination(builtin, op)),
        };
        let submitted = match with_request {
            true => self.window.with_request(run).map(Some),
            false => run(self.window).map(|()| None),
        };
        let request = submitted.expect("a place in the window");
        match kind {
            0 => zone.stream(&place).write(0, &bytes),
            1 => {}
            _ => zone.combine(&place, &bytes, builtin, op),
        }
        let finds = kind == 1 || kind == 3;
        let result = finds.then_some(Found::Bytes { into, expected: former });
        self.incomplete[target].push(Incomplete { request, data, result });
    }

    /// Operation that is defined for a type.
    fn op(&mut self, builtin: Builtin, with_none: bool) -> Predefined {
        loop {
            let op = self.random.pick(Predefined::ALL);
            let is_moved = op == Predefined::Replace || (with_none && op == Predefined::NoOp);
            if is_moved || (op != Predefined::NoOp && op.combines(builtin)) {
                return op;
            }
        }
    }

    /// Random elements in a zone. With `are_typed` they consist of elements of the type.
    fn place(&mut self, are_typed: bool) -> (ZonePlace, Builtin) {
        let zone_len = self.world.zone_len;
        let builtin = if are_typed { self.random.pick(&TYPES) } else { Builtin::Byte };
        let datatype = Datatype::builtin(builtin);
        let (size, extent) = (datatype.size(), datatype.layout().extent() as usize);
        let (len_max, is_dense) =
            (self.random.pick(&[1, 8, 64, 700, 3000, usize::MAX]), size == extent);
        let (layout, gap) = match is_dense && self.random.one_in(2) {
            true => {
                let segments = (0..1 + self.random.below(4)).map(|at| Segment {
                    offset: (size * (at * 12 + self.random.below(3))) as isize,
                    len: size * (1 + self.random.below(9)),
                });
                let segments: Vec<_> = segments.collect();
                let gap = size * (48 + self.random.below(20));
                (Arc::new(Layout::new(segments, gap as isize)), gap)
            }
            false => (Arc::clone(datatype.layout()), extent),
        };
        let runs_max = if layout.is_contiguous() { usize::MAX } else { RUNS_MAX };
        let count_max = (zone_len / gap).min(len_max.div_ceil(gap)).min(runs_max);
        let count = self.random.below(count_max + 1);
        // Elements of a type lie on a grid, so that they overlap wholly or not at all.
        let room = (zone_len - count * gap) / extent;
        let displacement = extent * self.random.below(room + 1);
        (ZonePlace { displacement, count, layout }, builtin)
    }

    fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.random.next().to_ne_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// Combines a cell that all combine.
    fn combine_ledger(&mut self, target: usize) {
        let cell = self.random.below(LEDGERS);
        let to = TargetPlace::bytes(target as u32, self.world.bases[target] + 8 * cell as i64, 8);
        let (operand, into) = (self.random.next(), Region::owned(8));
        let data = Region::from_box(Box::new(operand.to_ne_bytes()));
        let change = if self.random.one_in(3) {
            let compare = self.seen[target][cell];
            let other = Region::from_box(Box::new(compare.to_ne_bytes()));
            self.done(self.window.compare_and_swap(
                &data,
                &other,
                &into,
                to,
                number(Predefined::Sum),
            ));
            Change::Swapped { compare, new: operand }
        } else {
            let ops = [Predefined::Sum, Predefined::Bxor, Predefined::Replace, Predefined::NoOp];
            let op = self.random.pick(&ops);
            self.done(self.window.get_accumulate(Some(&data), &into, to, number(op)));
            Change::Combined(op, operand)
        };
        self.entries += 1;
        let result = Some(Found::Entry { into, cell, number: self.entries, change });
        self.incomplete[target].push(Incomplete { request: None, data, result });
    }

    /// Adds to cells to which all add, without a result.
    fn add(&mut self, target: usize) {
        let displacement = self.world.bases[target] + 8 * LEDGERS as i64;
        let to = TargetPlace::bytes(target as u32, displacement, 8 * SUMS);
        let operands = [(); SUMS].map(|()| self.random.next());
        let data = Region::from_box(operands.map(u64::to_ne_bytes).concat().into());
        self.done(self.window.accumulate(&data, to, number(Predefined::Sum)));
        operands.iter().enumerate().for_each(|(cell, one)| self.world.note_sum(target, cell, *one));
        self.incomplete[target].push(Incomplete { request: None, data, result: None });
    }

    /// Reads the block that a lock guards, and rewrites it if the lock is exclusive.
    fn access_block(&mut self, target: usize, kind: LockKind) {
        let displacement = self.world.bases[target] + BLOCK_AT as i64;
        let whole = TargetPlace::bytes(target as u32, displacement, BLOCK_LEN);
        let into = Region::owned(BLOCK_LEN);
        self.done(self.window.get(&into, whole));
        self.done(self.window.flush_local(target as u32));
        self.complete(target, false);
        let number = self.world.rewritten(target);
        let found = words(&into);
        assert!(found.iter().all(|word| *word == number), "block {number} of {target}: {found:?}");
        if kind == LockKind::Shared {
            return;
        }
        self.world.stage.pause(self.rank);
        let number = self.world.note_rewritten(target);
        for at in (0..BLOCK_LEN).step_by(64) {
            let data = Region::from_box(number.to_ne_bytes().repeat(8).into());
            let part = TargetPlace::bytes(target as u32, displacement + at as i64, 64);
            self.done(self.window.put(&data, part));
            self.incomplete[target].push(Incomplete { request: None, data, result: None });
        }
    }

    /// Waits for one of the requests.
    fn end_request(&mut self, target: usize) {
        let mut listed = self.incomplete[target].iter();
        let Some(at) = listed.position(|one| one.request.is_some()) else { return };
        let mut one = self.incomplete[target].remove(at);
        let request = one.request.as_mut().expect("a request");
        let result = self.progress.wait(|worker| request.poll(worker));
        self.done(result);
        self.finish(target, one);
    }

    /// Checks all operations on a target that a flush has completed, here or also there.
    fn complete(&mut self, target: usize, is_there: bool) {
        if self.has_failed(target) {
            return self.incomplete[target].clear();
        }
        for mut one in std::mem::take(&mut self.incomplete[target]) {
            if let Some(request) = &mut one.request {
                let result = self.progress.look(|worker| request.poll(worker));
                self.done(result.expect("a flush completes requests"));
            }
            self.finish(target, one);
        }
        if is_there && !self.has_failed(target) {
            self.zones[target].complete();
            let (rank, memory) = (self.rank, &self.world.memories[target]);
            self.zones[target].check(memory, &format!("zone of rank {rank} at {target}"));
        }
    }

    fn finish(&mut self, target: usize, one: Incomplete) {
        if self.has_failed(target) {
            return;
        }
        // What leaves later would be seen.
        one.data.write(0, &vec![0xdd; one.data.len()]);
        match one.result {
            None => {}
            Some(Found::Bytes { into, expected }) => {
                let rank = self.rank;
                assert!(into.to_vec() == expected, "found by rank {rank} at {target}");
            }
            Some(Found::Entry { into, cell, number, change }) => {
                let found = words(&into)[0];
                self.seen[target][cell] = found;
                let entry = LedgerEntry { origin: self.rank, number, change, found };
                self.world.note_entry(target, cell, entry);
            }
        }
    }
}

fn combination(builtin: Builtin, op: Predefined) -> &'static Combination {
    Combination::find(builtin, op).expect("an operation that is defined for the type")
}

/// Combination of the numbers in ledgers and sums.
fn number(op: Predefined) -> &'static Combination {
    combination(Builtin::Int64T, op)
}

/// Types of accumulated elements.
const TYPES: [Builtin; 6] = [
    Builtin::Int64T,
    Builtin::Int,
    Builtin::Short,
    Builtin::Byte,
    Builtin::DoubleInt,
    Builtin::Logical,
];

/// Upper limit of the operations of an epoch.
const OPERATIONS: usize = 30;

/// Upper limit of the elements with gaps between them, which move one by one.
const RUNS_MAX: usize = 100;
