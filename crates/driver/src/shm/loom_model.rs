//! Loom models of this rail's protocols, under every order in which the memory model lets writes become visible
//! (after Norris and Demsky, "CDSChecker", 2013).
//!
//! The rail's own code runs over [`Modelled`] memory: rings of sixteen lines, pools of three chunks, loom's atomic
//! words, and bytes whose concurrent use is an error. Each protocol also runs over memory with one [`Flaw`], which
//! its model must detect.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::io;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use memory::Region;
use wire::{Body, Frame};

use super::pool::{LINE, Pool};
use super::ring::{Arrival, Consumer, DATA_AT, Producer, USED_AT, segment_len};
use super::shared::{Shared, Word};
use super::shm_coll::{self, ShmColl};
use super::sleep::{Fences, INBOX_WORDS_LEN, begin_sleep, end_sleep};

/// Defect of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The state word of a record does not release the record.
    StateWithoutRelease,
    /// The state word of a record does not acquire the record.
    StateWithoutAcquire,
    /// Room is returned without a release.
    RoomWithoutRelease,
    /// Room is taken without an acquire.
    RoomWithoutAcquire,
    /// A record is cleared after its room was returned.
    ClearedLate,
    /// Words of later lines that a record has covered are not cleared.
    ClearedInPart,
    /// A chunk comes back without a release.
    ChunkWithoutRelease,
    /// A chunk is taken back without an acquire.
    ChunkWithoutAcquire,
    /// The flag of wanted room does not release the announcement of sleep.
    WantedWithoutRelease,
    /// A member's count does not release its contribution, or all that it has read.
    CountWithoutRelease,
    /// A member's count acquires nothing.
    CountWithoutAcquire,
    /// The writer that may have to ring runs no fence.
    NoFence,
    /// The sleeper runs no fence at all.
    NoFenceOfSleeper,
    /// The sleeper runs a fence for itself only.
    OwnFenceOfSleeper,
}

thread_local! {
    // All threads of a model run in turn on one thread of the system.
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
    static FENCES: Cell<Fences> = const { Cell::new(Fences::Sender) };
    /// Created memory, by descriptor.
    static CREATED: RefCell<Vec<Modelled>> = const { RefCell::new(Vec::new()) };
    static BARRIER: RefCell<Option<Arc<Barrier>>> = const { RefCell::new(None) };
}

/// Memory of which every clone is a mapping.
#[derive(Clone, Debug)]
struct Modelled(Rc<Contents>);

#[derive(Debug)]
struct Contents {
    descriptor: i32,
    /// The word at the beginning of each line, and two behind others.
    words64: BTreeMap<usize, Word64>,
    words32: BTreeMap<usize, Word32>,
    bytes: UnsafeCell<Box<[u8]>>,
    /// Use of the bytes of each line.
    uses: Vec<loom::cell::UnsafeCell<()>>,
    /// Words that a flaw clears later.
    late: RefCell<Vec<usize>>,
}

#[derive(Debug)]
struct Word64 {
    at: usize,
    of: i32,
    value: AtomicU64,
}

#[derive(Debug)]
struct Word32(AtomicU32);

impl Shared for Modelled {
    type Word64 = Word64;
    type Word32 = Word32;

    const RING_LEN: usize = 16 * LINE;
    const CUT_THROUGH_MIN: usize = LINE;
    const PIECE_LEN: usize = LINE;
    const CHUNKS: u16 = 3;
    const CHUNK_LEN: usize = 2 * LINE;
    const ROUNDS: u64 = 4;
    const BRIEF_LEN: usize = LINE - 16;
    const SHORT_ROUNDS: u64 = 4;
    const SHORT_LEN: usize = LINE;
    const WASTED_FENCES_MAX: u32 = 1;

    fn create_in_part(len: usize, _reserved: usize) -> io::Result<Self> {
        Self::create(len)
    }

    fn reserve(&mut self, _at: usize, _len: usize) -> io::Result<()> {
        Ok(())
    }

    fn create(len: usize) -> io::Result<Self> {
        let lines = len.div_ceil(LINE);
        let of = CREATED.with_borrow(Vec::len) as i32;
        let word = |at| (at, Word64 { at, of, value: AtomicU64::new(0) });
        let places64 = (0..lines).flat_map(|line| [0, 16, 24, 32].map(|at| line * LINE + at));
        let places = (0..lines).flat_map(|line| [0, 4, 8, 12].map(|at| line * LINE + at));
        let contents = Contents {
            descriptor: of,
            words64: places64.map(word).collect(),
            words32: places.map(|at| (at, Word32(AtomicU32::new(0)))).collect(),
            bytes: UnsafeCell::new(vec![0; lines * LINE].into()),
            uses: (0..lines).map(|_| loom::cell::UnsafeCell::new(())).collect(),
            late: RefCell::default(),
        };
        let memory = Self(Rc::new(contents));
        CREATED.with_borrow_mut(|created| created.push(memory.clone()));
        Ok(memory)
    }

    fn attach(_: i32, fd: i32, _: usize) -> io::Result<Self> {
        Ok(CREATED.with_borrow(|created| created[fd as usize].clone()))
    }

    fn descriptor(&self) -> i32 {
        self.0.descriptor
    }

    fn word64(&self, at: usize) -> &Word64 {
        &self.0.words64[&at]
    }

    fn word32(&self, at: usize) -> &Word32 {
        &self.0.words32[&at]
    }

    fn slice(&self, at: usize, len: usize) -> &[u8] {
        for line in at / LINE..(at + len).div_ceil(LINE) {
            self.0.uses[line].with(|_| ());
        }
        // SAFETY: loom has just checked that the writes to these lines happened before.
        unsafe { &(&*self.0.bytes.get())[at..at + len] }
    }

    /// Words that the bytes lie over hold what the bytes happen to be.
    fn slice_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        for line in at / LINE..(at + len).div_ceil(LINE) {
            self.0.uses[line].with_mut(|_| ());
        }
        for line in at.div_ceil(LINE)..(at + len).div_ceil(LINE) {
            self.0.words64[&(line * LINE)].value.store(BYTES, Ordering::Relaxed);
        }
        // SAFETY: loom has just checked that all uses of these lines happened before.
        unsafe { &mut (&mut *self.0.bytes.get())[at..at + len] }
    }

    fn fence() {
        if FLAW.get() != Flaw::NoFence {
            fence(Ordering::SeqCst);
        }
    }

    fn pause() {
        thread::yield_now();
    }

    fn sleeper_fence(on_all_cores: bool) {
        if FLAW.get() == Flaw::NoFenceOfSleeper {
            return;
        }
        fence(Ordering::SeqCst);
        if on_all_cores && FLAW.get() != Flaw::OwnFenceOfSleeper {
            barrier().ask();
        }
    }
}

impl Word<u64> for Word64 {
    fn load(&self, order: Ordering) -> u64 {
        let relaxed = match FLAW.get() {
            Flaw::StateWithoutAcquire => self.at >= DATA_AT,
            Flaw::RoomWithoutAcquire => self.at == USED_AT,
            Flaw::CountWithoutAcquire => true,
            _ => false,
        };
        self.value.load(if relaxed { Ordering::Relaxed } else { order })
    }

    fn store(&self, value: u64, order: Ordering) {
        let memory = || CREATED.with_borrow(|created| created[self.of as usize].clone());
        let is_clear = self.at >= DATA_AT && value == 0;
        match FLAW.get() {
            Flaw::StateWithoutRelease if self.at >= DATA_AT => {
                self.value.store(value, Ordering::Relaxed);
            }
            Flaw::RoomWithoutRelease if self.at == USED_AT => {
                self.value.store(value, Ordering::Relaxed);
            }
            Flaw::CountWithoutRelease => self.value.store(value, Ordering::Relaxed),
            Flaw::ClearedLate if is_clear => memory().0.late.borrow_mut().push(self.at),
            Flaw::ClearedLate if self.at == USED_AT => {
                self.value.store(value, order);
                for at in memory().0.late.take() {
                    memory().word64(at).value.store(0, Ordering::Relaxed);
                }
            }
            Flaw::ClearedInPart if is_clear && self.value.load(Ordering::Relaxed) == BYTES => {}
            _ => self.value.store(value, order),
        }
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.value.swap(value, order)
    }

    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.value.fetch_and(value, order)
    }

    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.value.fetch_or(value, order)
    }

    fn replace(&self, known: u64, value: u64, order: Ordering) {
        let _ = self.value.compare_exchange(known, value, order, Ordering::Relaxed);
    }
}

impl Word<u32> for Word32 {
    fn load(&self, order: Ordering) -> u32 {
        let relaxed = FLAW.get() == Flaw::ChunkWithoutAcquire;
        self.0.load(if relaxed { Ordering::Relaxed } else { order })
    }

    /// A swap: loom does not know that no store comes between a swap and the store it read, and would
    /// take a later store for an earlier one.
    fn store(&self, value: u32, order: Ordering) {
        let relaxed = matches!(FLAW.get(), Flaw::ChunkWithoutRelease | Flaw::WantedWithoutRelease);
        self.0.swap(value, if relaxed { Ordering::Relaxed } else { order });
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }

    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_and(value, order)
    }

    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_or(value, order)
    }

    fn replace(&self, known: u32, value: u32, order: Ordering) {
        let _ = self.0.compare_exchange(known, value, order, Ordering::Relaxed);
    }
}

/// `membarrier` between two threads: one asks, and the other runs a fence wherever it happens to be.
#[derive(Debug, Default)]
struct Barrier {
    asked: AtomicU32,
    answered: AtomicU32,
}

impl Barrier {
    fn ask(&self) {
        let round = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        while self.answered.load(Ordering::Acquire) < round {
            thread::yield_now();
        }
        fence(Ordering::SeqCst);
    }

    /// To be called by the thread that is asked, wherever it may be interrupted.
    fn answer(&self) {
        if FENCES.get() == Fences::Sender {
            return;
        }
        let asked = self.asked.load(Ordering::Acquire);
        if asked > self.answered.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
            self.answered.store(asked, Ordering::Release);
        }
    }

    /// A thread that has ended has run its last fence.
    fn leave(&self) {
        self.answered.store(u32::MAX, Ordering::Release);
    }
}

fn barrier() -> Arc<Barrier> {
    BARRIER.with_borrow(|barrier| barrier.clone().unwrap_or_else(|| unreachable!("in a model")))
}

/// The pipe.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.heard.notify_one();
    }

    /// Sleeps until it has been rung; loom reports it when nobody will.
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.heard.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// Runs a protocol in every order.
fn explore(protocol: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 4000;
    // More with LOOM_MAX_PREEMPTIONS, which takes longer.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(move || {
        CREATED.take();
        BARRIER.set(Some(Arc::default()));
        protocol();
        CREATED.take();
        BARRIER.take();
    });
}

/// True if the model of a protocol fails over memory with `flaw`.
fn notices(flaw: Flaw, protocol: fn()) -> bool {
    FLAW.set(flaw);
    let result = catch_unwind(AssertUnwindSafe(|| explore(protocol)));
    FLAW.set(Flaw::None);
    result.is_err()
}

fn ring() -> (Producer<Modelled>, Consumer<Modelled>) {
    let memory = Modelled::create(segment_len::<Modelled>()).unwrap();
    (Producer::new(memory.clone()), Consumer::new(memory, 0))
}

/// A frame with its number in every byte, the most of it in a body.
fn frame(number: u8, len: usize) -> Frame {
    let head = vec![number; len.min(HEAD_LEN)];
    let body = vec![number; len - head.len()];
    let body = (!body.is_empty()).then(|| Body { region: Region::from_box(body.into()) });
    Frame { head, body, token: None }
}

fn assert_is(bytes: &[u8], number: u8, len: usize) {
    assert_eq!((bytes.len(), bytes.iter().all(|byte| *byte == number)), (len, true));
}

/// Takes what comes of frame `number`, of those that cut through every other one piece by piece; whether all has come.
fn take(consumer: &mut Consumer<Modelled>, begun: &mut Vec<u8>, number: u8, len: usize) -> bool {
    let mut is_whole = false;
    consumer.pop(|arrival| match arrival {
        Arrival::Whole(bytes) => {
            assert!(begun.is_empty());
            assert_is(bytes, number, len);
            is_whole = true;
        }
        Arrival::Begun { bytes, len: all, taken } => {
            assert!(all == len && begun.is_empty() && bytes.len() >= HEAD_LEN);
            *taken = number.is_multiple_of(2);
            if *taken {
                begun.extend_from_slice(bytes);
            }
        }
        Arrival::Rest(bytes) => {
            begun.extend_from_slice(bytes);
            is_whole = begun.len() == len;
            if is_whole {
                assert_is(begun, number, len);
                begun.clear();
            }
        }
    });
    is_whole
}

/// A full ring is read while more is written: records follow others in the same lines, and one does
/// not fit before the end.
fn frames_pass_through_a_ring() {
    let (mut producer, mut consumer) = ring();
    let lens = [200, 248, 0, 248, 100, 200, 120];
    let sent_before = 4;
    for (number, &len) in lens.iter().enumerate().take(sent_before) {
        assert!(producer.push(&frame(number as u8, len)));
    }
    let sender = thread::spawn(move || {
        for (number, &len) in lens.iter().enumerate().skip(sent_before) {
            while !producer.push(&frame(number as u8, len)) {
                thread::yield_now();
            }
        }
    });
    let mut begun = Vec::new();
    for (number, &len) in lens.iter().enumerate() {
        while !take(&mut consumer, &mut begun, number as u8, len) {
            thread::yield_now();
        }
    }
    sender.join().unwrap();
    assert!(!consumer.has_events());
}

/// Four long frames through a pool that lends two chunks to one reader.
fn frames_pass_through_a_pool() {
    let (mut producer, mut consumer) = ring();
    let mut pool = Pool::<Modelled>::default();
    let sender = thread::spawn(move || {
        for number in 0..4 {
            while !push_long(&mut pool, &mut producer, number) {
                thread::yield_now();
            }
        }
    });
    let mut begun = Vec::new();
    for number in 0..4 {
        while !take(&mut consumer, &mut begun, number, LONG_LEN) {
            thread::yield_now();
        }
    }
    sender.join().unwrap();
}

fn push_long(pool: &mut Pool<Modelled>, producer: &mut Producer<Modelled>, number: u8) -> bool {
    assert!(producer.has_room_for_place());
    let Some(chunk) = pool.take(0).unwrap() else { return false };
    let frame = frame(number, LONG_LEN);
    pool.write((chunk, LINE - HEAD_LEN, LONG_LEN), |pool, at, start, past| {
        producer.push_long(&frame, (chunk, start), (pool, at), past);
    });
    true
}

/// A receiver sleeps whenever it finds nothing.
fn a_sleeping_receiver_is_woken() {
    let (mut producer, mut consumer) = ring();
    let inbox = Modelled::create(INBOX_WORDS_LEN).unwrap();
    let (doorbell, barrier) = (Arc::new(Bell::default()), barrier());
    let (its_inbox, its_bell) = (inbox.clone(), doorbell.clone());
    let sender = thread::spawn(move || {
        for number in 0..3 {
            barrier.answer();
            assert!(producer.push(&frame(number, 4)));
            if FENCES.get().must_wake(&its_inbox) {
                its_bell.ring();
            }
        }
        barrier.answer();
        barrier.leave();
    });
    for number in 0..3 {
        while !take(&mut consumer, &mut Vec::new(), number, 4) {
            begin_sleep(FENCES.get(), &inbox, iter::empty());
            if !consumer.has_events() {
                doorbell.wait();
            }
            end_sleep(&inbox);
        }
    }
    sender.join().unwrap();
}

/// A sender sleeps whenever it finds no room in the ring.
fn a_sender_that_wants_room_is_woken() {
    let (mut producer, mut consumer) = ring();
    for number in 0..4 {
        assert!(producer.push(&frame(number, 248)));
    }
    let inbox = Modelled::create(INBOX_WORDS_LEN).unwrap();
    let (doorbell, barrier) = (Arc::new(Bell::default()), barrier());
    let (its_inbox, its_bell) = (inbox.clone(), doorbell.clone());
    let receiver = thread::spawn(move || {
        for number in 0..4 {
            barrier.answer();
            assert!(take(&mut consumer, &mut Vec::new(), number, 248));
            if FENCES.get().give_room(&mut consumer) && FENCES.get().must_wake(&its_inbox) {
                its_bell.ring();
            }
        }
        barrier.answer();
        barrier.leave();
    });
    while !producer.push(&frame(4, 248)) {
        begin_sleep(FENCES.get(), &inbox, iter::once(&producer));
        if !producer.has_room_for_any() {
            doorbell.wait();
        }
        end_sleep(&inbox);
    }
    receiver.join().unwrap();
}

/// A sender sleeps whenever it finds no chunk.
fn a_sender_that_wants_a_chunk_is_woken() {
    let (mut producer, mut consumer) = ring();
    let mut pool = Pool::<Modelled>::default();
    let mut sent = 0;
    while push_long(&mut pool, &mut producer, sent) {
        sent += 1;
    }
    let inbox = Modelled::create(INBOX_WORDS_LEN).unwrap();
    let (doorbell, barrier) = (Arc::new(Bell::default()), barrier());
    let (its_inbox, its_bell) = (inbox.clone(), doorbell.clone());
    let receiver = thread::spawn(move || {
        for number in 0..sent {
            barrier.answer();
            assert!(take(&mut consumer, &mut Vec::new(), number, LONG_LEN));
            if FENCES.get().give_room(&mut consumer) && FENCES.get().must_wake(&its_inbox) {
                its_bell.ring();
            }
        }
        barrier.answer();
        barrier.leave();
    });
    while !push_long(&mut pool, &mut producer, sent) {
        begin_sleep(FENCES.get(), &inbox, iter::once(&producer));
        if !pool.has_room(0) {
            doorbell.wait();
        }
        end_sleep(&inbox);
    }
    receiver.join().unwrap();
}

/// Of a frame with a body.
const HEAD_LEN: usize = 40;
/// Length of a frame that fills a chunk but for what its head leaves of a line.
const LONG_LEN: usize = HEAD_LEN + LINE;

/// Value of a word under a frame's bytes: no state that a producer writes.
const BYTES: u64 = 77;

/// The protocols in which a process sleeps.
const SLEEPS: [fn(); 3] = [
    a_sleeping_receiver_is_woken,
    a_sender_that_wants_room_is_woken,
    a_sender_that_wants_a_chunk_is_woken,
];

#[test]
fn a_ring_passes_frames() {
    explore(frames_pass_through_a_ring);
}

#[test]
fn flaws_of_a_ring_are_noticed() {
    for flaw in [
        Flaw::StateWithoutRelease,
        Flaw::StateWithoutAcquire,
        Flaw::RoomWithoutRelease,
        Flaw::RoomWithoutAcquire,
        Flaw::ClearedLate,
        Flaw::ClearedInPart,
    ] {
        assert!(notices(flaw, frames_pass_through_a_ring), "{flaw:?}");
    }
}

#[test]
fn a_pool_passes_frames() {
    explore(frames_pass_through_a_pool);
}

#[test]
fn flaws_of_a_pool_are_noticed() {
    for flaw in [Flaw::StateWithoutRelease, Flaw::ChunkWithoutRelease, Flaw::ChunkWithoutAcquire] {
        assert!(notices(flaw, frames_pass_through_a_pool), "{flaw:?}");
    }
}

#[test]
fn sleepers_are_woken_by_those_that_run_their_own_fences() {
    SLEEPS.into_iter().for_each(explore);
    for protocol in SLEEPS {
        for flaw in [Flaw::NoFence, Flaw::NoFenceOfSleeper] {
            assert!(notices(flaw, protocol), "{flaw:?}");
        }
    }
}

#[test]
fn sleepers_are_woken_that_run_the_fences_of_all() {
    FENCES.set(Fences::Sleeper);
    SLEEPS.into_iter().for_each(explore);
    for protocol in SLEEPS {
        for flaw in [Flaw::NoFenceOfSleeper, Flaw::OwnFenceOfSleeper] {
            assert!(notices(flaw, protocol), "{flaw:?}");
        }
    }
    assert!(notices(Flaw::NoFence, a_sleeping_receiver_is_woken), "who was warned runs one");
    assert!(notices(Flaw::WantedWithoutRelease, a_sender_that_wants_room_is_woken));
}

/// Members of a shared segment of `size`, with pages of two lines.
fn members(size: u32) -> Vec<ShmColl<Modelled>> {
    let memory =
        Modelled::create(shm_coll::Layout::of::<Modelled>(size, 2 * LINE).len_bytes).unwrap();
    (0..size).map(|me| ShmColl::over(memory.clone(), size, me, 2 * LINE)).collect()
}

fn post(shm_coll: &mut ShmColl<Modelled>, number: u8) {
    // In turn on the line of the count, apart from it, and on a page.
    let len = [4, 60, 100][usize::from(number % 3)];
    while !shm_coll.has_room(len) {
        thread::yield_now();
    }
    shm_coll.post(len, |bytes, _| bytes.fill(number));
}

/// One member posts, the other reads, until places come round.
fn contributions_are_read_in_place() {
    let [mut one, mut other] = <[_; 2]>::try_from(members(2)).unwrap();
    let memory = CREATED.with_borrow(|created| created[0].clone());
    let rounds = 6;
    let writer = thread::spawn(move || (0..rounds).for_each(|number| post(&mut one, number)));
    for number in 0..rounds {
        post(&mut other, 0);
        while !other.has(0..1) {
            thread::yield_now();
        }
        let (at, len) = other.locate(0);
        assert!(memory.slice(at, len).iter().all(|byte| *byte == number));
    }
    writer.join().unwrap();
}

/// One member posts more than its pages hold, in two rounds; the other reads it, piece by piece.
fn pieces_are_read_in_place() {
    let [mut one, mut other] = <[_; 2]>::try_from(members(2)).unwrap();
    let memory = CREATED.with_borrow(|created| created[0].clone());
    let (rounds, page, pieces) = (2, 2 * LINE, 2);
    let writer = thread::spawn(move || {
        for round in 0..rounds {
            one.announce(page * pieces as usize, 1);
            while !one.has_room(page) {
                thread::yield_now();
            }
            one.post(page, |bytes, _| bytes.fill(round * 10));
            for piece in 1..pieces {
                while !one.has_room_for_more() {
                    thread::yield_now();
                }
                one.post_more(u32::from(piece), page, |bytes, _| bytes.fill(round * 10 + piece));
            }
        }
    });
    for round in 0..rounds {
        other.post(0, |_, _| ());
        while !other.has(0..1) {
            thread::yield_now();
        }
        for piece in 0..pieces {
            while piece > 0 && !other.has_more(0, u32::from(piece)) {
                thread::yield_now();
            }
            let at = match piece {
                0 => other.locate(0).0,
                _ => other.locate_piece(0, u32::from(piece), page).unwrap(),
            };
            assert!(memory.slice(at, page).iter().all(|byte| *byte == round * 10 + piece));
            other.release(u32::from(piece));
        }
    }
    writer.join().unwrap();
}

/// Each of two members sleeps for what the other does with pieces.
fn a_member_waiting_for_pieces_is_woken() {
    let [mut one, mut other] = <[_; 2]>::try_from(members(2)).unwrap();
    let page = 2 * LINE;
    let doorbells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    let [doorbell, others_bell] = doorbells.clone();
    one.announce(3 * page, 1);
    one.post(page, |_, _| ());
    one.post_more(1, page, |_, _| ());
    other.post(0, |_, _| ());
    let writer = thread::spawn(move || {
        sleep_until(&mut one, &doorbell, ShmColl::has_room_for_more);
        one.post_more(2, page, |_, _| ());
        one.tell(|_| others_bell.ring());
    });
    let [others_bell, doorbell] = doorbells;
    other.release(0);
    other.tell(|_| others_bell.ring());
    sleep_until(&mut other, &doorbell, |shm_coll| shm_coll.has_more(0, 2));
    writer.join().unwrap();
}

fn sleep_until(
    shm_coll: &mut ShmColl<Modelled>,
    doorbell: &Bell,
    mut is_there: impl FnMut(&mut ShmColl<Modelled>) -> bool,
) {
    while !is_there(shm_coll) {
        if shm_coll.begin_sleep() {
            doorbell.wait();
        }
        shm_coll.end_sleep();
    }
}

/// Two members meet, round after round, and the first that has combines for both, until places come round.
fn one_combines_for_all() {
    let [one, other] = <[_; 2]>::try_from(members(2)).unwrap();
    let rounds = Modelled::SHORT_ROUNDS as u8 + 1;
    let go = move |mut shm_coll: ShmColl<Modelled>| {
        for number in 1..=rounds {
            while !shm_coll.has_room(0) {
                thread::yield_now();
            }
            shm_coll.post(0, |_, _| ());
            while !shm_coll.has(0..2) {
                thread::yield_now();
            }
            match shm_coll.combined() {
                Some(combined) => assert_eq!(combined, [number; 4]),
                None => shm_coll.tell_combined(4, |bytes| bytes.fill(number)),
            }
        }
    };
    let member = thread::spawn(move || go(other));
    go(one);
    member.join().unwrap();
}

/// One member leaves out an operation in which the other posts, and then one is left out by both, before they meet.
fn a_member_that_skipped_an_operation_is_in_step() {
    let [one, other] = <[_; 2]>::try_from(members(2)).unwrap();
    let memory = CREATED.with_borrow(|created| created[0].clone());
    let go = move |mut shm_coll: ShmColl<Modelled>, me: u32, own: u8| {
        if me == 0 {
            shm_coll.operations().begin(1);
            post(&mut shm_coll, 9);
        }
        for operation in [2, 4] {
            if !shm_coll.operations().begin(operation) {
                shm_coll.leave_out();
            }
            post(&mut shm_coll, own);
            while !shm_coll.has(0..2) {
                thread::yield_now();
            }
            let (at, len) = shm_coll.locate(1 - me);
            assert!(len > 0 && memory.slice(at, len).iter().all(|byte| *byte == 3 - own));
        }
        memory
    };
    let memory = go.clone();
    let member = thread::spawn(move || drop(memory(other, 1, 2)));
    go(one, 0, 1);
    member.join().unwrap();
}

/// Two members post at once what a third one sleeps for.
fn a_member_waiting_for_all_is_woken() {
    let [mut sleeper, one, other] = <[_; 3]>::try_from(members(3)).unwrap();
    let doorbell = Arc::new(Bell::default());
    let posts = [one, other].map(|mut shm_coll| {
        let doorbell = doorbell.clone();
        thread::spawn(move || {
            shm_coll.post(4, |bytes, _| bytes.fill(1));
            shm_coll.tell(|member| {
                assert_eq!(member, 0);
                doorbell.ring();
            });
        })
    });
    sleeper.post(0, |_, _| ());
    sleep_until(&mut sleeper, &doorbell, |shm_coll| shm_coll.has(0..3));
    for post in posts {
        post.join().unwrap();
    }
}

#[test]
fn a_shared_segment_shows_contributions() {
    explore(contributions_are_read_in_place);
    explore(pieces_are_read_in_place);
    explore(one_combines_for_all);
    explore(a_member_that_skipped_an_operation_is_in_step);
    explore(a_member_waiting_for_all_is_woken);
    explore(a_member_waiting_for_pieces_is_woken);
}

#[test]
fn flaws_of_a_shared_segment_are_noticed() {
    for flaw in [Flaw::CountWithoutRelease, Flaw::CountWithoutAcquire] {
        assert!(notices(flaw, contributions_are_read_in_place), "{flaw:?}");
        assert!(notices(flaw, one_combines_for_all), "{flaw:?}");
    }
    assert!(notices(Flaw::NoFence, a_member_waiting_for_all_is_woken));
    assert!(notices(Flaw::NoFence, a_member_waiting_for_pieces_is_woken));
}
