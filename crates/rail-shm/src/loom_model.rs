//! Loom models of this rail's protocols, under every order in which the memory model lets writes become visible
//! (after Norris and Demsky, "CDSChecker", 2013).
//!
//! The rail's own code runs over [`Modelled`] memory: rings of sixteen lines, pools of three chunks, loom's atomic
//! words, and bytes whose concurrent use is an error. Each protocol also runs over memory with one [`Flaw`], which
//! its model must detect.

mod modelled;

use std::cell::{Cell, RefCell};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use memory::Region;
use testing::preemptions;
use wire::{Body, Frame};

use self::modelled::Modelled;
use crate::pool::{LINE, Pool};
use crate::ring::{Arrival, Consumer, Producer, segment_len};
use crate::shared::Shared;
use crate::shm_coll;
use crate::shm_coll::ShmColl;
use crate::sleep::{Fences, INBOX_WORDS_LEN, begin_sleep, end_sleep};

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

/// A doorbell.
#[derive(Debug, Default)]
struct Doorbell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Doorbell {
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

/// Runs a protocol in every order with at most this number of preemptions.
fn explore(preemptions: usize, protocol: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 4000;
    // More with LOOM_MAX_PREEMPTIONS, which takes longer.
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
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
    let result = catch_unwind(AssertUnwindSafe(|| explore(3, protocol)));
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
    let (doorbell, barrier) = (Arc::new(Doorbell::default()), barrier());
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
    let (doorbell, barrier) = (Arc::new(Doorbell::default()), barrier());
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
    let (doorbell, barrier) = (Arc::new(Doorbell::default()), barrier());
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
    explore(preemptions(), frames_pass_through_a_ring);
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
    explore(3, frames_pass_through_a_pool);
}

#[test]
fn flaws_of_a_pool_are_noticed() {
    for flaw in [Flaw::StateWithoutRelease, Flaw::ChunkWithoutRelease, Flaw::ChunkWithoutAcquire] {
        assert!(notices(flaw, frames_pass_through_a_pool), "{flaw:?}");
    }
}

#[test]
fn sleepers_are_woken_by_those_that_run_their_own_fences() {
    SLEEPS.into_iter().for_each(|sleep| explore(3, sleep));
    for protocol in SLEEPS {
        for flaw in [Flaw::NoFence, Flaw::NoFenceOfSleeper] {
            assert!(notices(flaw, protocol), "{flaw:?}");
        }
    }
}

#[test]
fn sleepers_are_woken_that_run_the_fences_of_all() {
    FENCES.set(Fences::Sleeper);
    SLEEPS.into_iter().for_each(|sleep| explore(3, sleep));
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
    let doorbells = [Arc::new(Doorbell::default()), Arc::new(Doorbell::default())];
    let [doorbell, others_bell] = doorbells.clone();
    one.announce(3 * page, 1);
    one.post(page, |_, _| ());
    one.post_more(1, page, |_, _| ());
    other.post(0, |_, _| ());
    let writer = thread::spawn(move || {
        sleep_until(&mut one, &doorbell, ShmColl::has_room_for_more);
        one.post_more(2, page, |_, _| ());
        one.wake_members(|_| others_bell.ring());
    });
    let [others_bell, doorbell] = doorbells;
    other.release(0);
    other.wake_members(|_| others_bell.ring());
    sleep_until(&mut other, &doorbell, |shm_coll| shm_coll.has_more(0, 2));
    writer.join().unwrap();
}

fn sleep_until(
    shm_coll: &mut ShmColl<Modelled>,
    doorbell: &Doorbell,
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
    let doorbell = Arc::new(Doorbell::default());
    let posts = [one, other].map(|mut shm_coll| {
        let doorbell = doorbell.clone();
        thread::spawn(move || {
            shm_coll.post(4, |bytes, _| bytes.fill(1));
            shm_coll.wake_members(|member| {
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
    explore(3, contributions_are_read_in_place);
    explore(3, pieces_are_read_in_place);
    explore(3, one_combines_for_all);
    explore(3, a_member_that_skipped_an_operation_is_in_step);
    explore(3, a_member_waiting_for_all_is_woken);
    explore(3, a_member_waiting_for_pieces_is_woken);
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
