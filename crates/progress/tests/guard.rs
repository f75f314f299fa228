//! While the progress thread sleeps, the rails ring: also after another thread has thought better of
//! sleeping.

mod nowhere;
#[macro_use]
mod passing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use driver::{Event, Rail};
use engine::{Config, Engine, Selector};
use memory::Region;
use nowhere::Nowhere;
use progress::{Directory, Policy, Progress, Worker};
use wire::{Cost, PeerId};

#[test]
fn a_thread_that_thinks_better_of_sleeping_leaves_the_guard_its_bell() {
    let rail = Arc::new(Shown::default());
    let worker = Worker::new(
        Engine::new(Config::new(2)),
        PeerId(0),
        2,
        vec![Box::new(Quiet { rail: Nowhere, shown: Arc::clone(&rail) })],
        Box::new(Nobody),
    );
    let progress = Progress::new(worker, Policy::for_node(2, 1)).expect("descriptors");
    // Something is left behind, for the progress thread to look after.
    let into = Region::owned(8);
    let selector = Selector { context: 0, source: Some(1), tag: None };
    let op =
        progress.submit(|worker| worker.engine.submit_receive(Some(PeerId(1)), selector, &into));
    let seldom_woken = (0..ATTEMPTS).any(|_| {
        until(PATIENCE, || rail.is_raised());
        rail.has_events.store(true, Ordering::SeqCst);
        let refusals = rail.refusals.load(Ordering::SeqCst);
        // Comes to the point of sleeping, hears that there is news, and has what it wants.
        progress.wait(|_| (rail.refusals.load(Ordering::SeqCst) > refusals).then_some(()));
        // It looks by itself after half a second.
        until(Duration::from_millis(200), || rail.is_raised())
    });
    assert!(seldom_woken, "a thread sleeps, and the rail does not ring");
    progress.submit(|worker| worker.engine.submit_cancel(op));
}

#[test]
fn what_a_rail_does_of_its_own_accord_goes_on_while_the_application_computes() {
    let shown = Arc::new(Shown::default());
    shown.tells_cost.store(true, Ordering::SeqCst);
    let rails: Vec<Box<dyn Rail>> =
        vec![Box::new(Quiet { rail: Nowhere, shown: Arc::clone(&shown) })];
    let worker = Worker::new(Engine::new(Config::new(2)), PeerId(0), 2, rails, Box::new(Nobody));
    let progress = Progress::new(worker, Policy::for_node(2, 1)).expect("descriptors");
    // The call in which it begins, and nothing after it.
    shown.is_busy.store(true, Ordering::SeqCst);
    progress.wait(|_| (shown.polls.load(Ordering::SeqCst) > 0).then_some(()));
    let polls = || shown.polls.load(Ordering::SeqCst);
    let before = polls();
    assert!(until(PATIENCE, || polls() > before + 100), "nobody polls");
    shown.is_busy.store(false, Ordering::SeqCst);
    let mut last = polls();
    let mut rests = || polls() == std::mem::replace(&mut last, polls());
    assert!(until(PATIENCE, &mut rests), "it has ended, and somebody polls");
}

fn until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// What the test sees of a rail, and tells it.
#[derive(Default)]
struct Shown {
    /// Somebody sleeps, and is to be rung.
    raised: AtomicBool,
    /// There is news, for who is about to sleep, once.
    has_events: AtomicBool,
    /// How often somebody heard that.
    refusals: AtomicU32,
    /// It tells what a link costs, once.
    tells_cost: AtomicBool,
    /// It is at something of its own.
    is_busy: AtomicBool,
    polls: AtomicU32,
}

impl Shown {
    fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }
}

/// A rail over which nothing comes.
struct Quiet {
    rail: Nowhere,
    shown: Arc<Shown>,
}

impl Rail for Quiet {
    passes_on!(rail: name, address, connect, disconnect, post, descriptors, is_flushed);

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        self.shown.polls.fetch_add(1, Ordering::SeqCst);
        let tells = self.shown.tells_cost.swap(false, Ordering::SeqCst);
        if tells {
            sink(Event::Cost { peer: PeerId(1), cost: Cost::linear(1, 1, 1) });
        }
        tells || self.shown.is_busy.load(Ordering::SeqCst)
    }

    fn prepare_sleep(&mut self) -> bool {
        self.shown.raised.store(true, Ordering::SeqCst);
        let has_events = self.shown.has_events.swap(false, Ordering::SeqCst);
        self.shown.refusals.fetch_add(u32::from(has_events), Ordering::SeqCst);
        !has_events
    }

    fn finish_sleep(&mut self) {
        self.shown.raised.store(false, Ordering::SeqCst);
    }

    fn is_at_rest(&self) -> bool {
        !self.shown.is_busy.load(Ordering::SeqCst)
    }
}

struct Nobody;

impl Directory for Nobody {
    fn addresses(&mut self, _: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(Vec::new())
    }
}

const ATTEMPTS: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(20);
