//! Rails signal events while the progress thread sleeps, even after another thread prepared to sleep and did not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cost::Cost;
use engine::{Config, Engine, Selector};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::{Event, Rail};
use wire::PeerId;

use crate::unlinked::UnlinkedRail;

#[test]
fn thread_that_cancels_its_sleep_leaves_the_rail_armed_for_the_progress_thread() {
    let rail = Arc::new(Shown::default());
    let worker = Worker::new(
        Engine::new(Config::new(2)),
        PeerId(0),
        2,
        vec![Box::new(Quiet { rail: UnlinkedRail, shown: Arc::clone(&rail) })],
        Box::new(Nobody),
    );
    let progress = Progress::new(worker, Policy::for_node(2, 1)).expect("descriptors");
    // A pending receive is left to the progress thread.
    let into = Region::owned(8);
    let selector = Selector { context: 0, source: Some(1), tag: None };
    let op =
        progress.submit(|worker| worker.engine.submit_receive(Some(PeerId(1)), selector, &into));
    let seldom_woken = (0..ATTEMPTS).any(|_| {
        until(PATIENCE, || rail.is_raised());
        rail.has_events.store(true, Ordering::SeqCst);
        let refusals = rail.refusals.load(Ordering::SeqCst);
        // The thread prepares to sleep, is told of an event, and ends its wait.
        progress.wait(|_| (rail.refusals.load(Ordering::SeqCst) > refusals).then_some(()));
        // The progress thread polls by itself after half a second.
        until(Duration::from_millis(200), || rail.is_raised())
    });
    assert!(seldom_woken, "the progress thread sleeps, and the rail does not signal events");
    progress.submit(|worker| worker.engine.submit_cancel(op));
}

#[test]
fn work_of_a_rail_goes_on_while_the_application_computes() {
    let shown = Arc::new(Shown::default());
    shown.tells_cost.store(true, Ordering::SeqCst);
    let rails: Vec<Box<dyn Rail>> =
        vec![Box::new(Quiet { rail: UnlinkedRail, shown: Arc::clone(&shown) })];
    let worker = Worker::new(Engine::new(Config::new(2)), PeerId(0), 2, rails, Box::new(Nobody));
    let progress = Progress::new(worker, Policy::for_node(2, 1)).expect("descriptors");
    // The rail's work begins in this call, and no call follows.
    shown.is_busy.store(true, Ordering::SeqCst);
    progress.wait(|_| (shown.polls.load(Ordering::SeqCst) > 0).then_some(()));
    let polls = || shown.polls.load(Ordering::SeqCst);
    let before = polls();
    assert!(until(PATIENCE, || polls() > before + 100), "nobody polls");
    shown.is_busy.store(false, Ordering::SeqCst);
    let mut last = polls();
    let mut rests = || polls() == std::mem::replace(&mut last, polls());
    assert!(until(PATIENCE, &mut rests), "the work has ended, and somebody still polls");
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

/// State shared by the test and a rail.
#[derive(Default)]
struct Shown {
    /// True if a thread sleeps and the rail must signal events.
    raised: AtomicBool,
    /// True if the next thread that prepares to sleep is told of an event, once.
    has_events: AtomicBool,
    /// Number of sleeps refused for that reason.
    refusals: AtomicU32,
    /// True if the next poll reports a link's cost, once.
    tells_cost: AtomicBool,
    /// True if the rail has work that only polls advance.
    is_busy: AtomicBool,
    polls: AtomicU32,
}

impl Shown {
    fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }
}

/// A rail that carries no frames.
struct Quiet {
    rail: UnlinkedRail,
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
