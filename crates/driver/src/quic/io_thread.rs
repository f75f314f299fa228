//! The thread that looks in when nobody polls.
//!
//! A process that computes for long neither acknowledges what arrives nor shows a sign of life nor answers who calls,
//! and its peers would take it for dead. The keeper serves the rail when it was not polled since the last look, and
//! sleeps longer where there is nothing to look after, or somebody sleeps on the descriptors. While what was
//! posted waits for its pace it looks in each millisecond: a send that has returned is to go on leaving.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::endpoint::Core;
use crate::threads::without_signals;

/// The thread, for the rail that it serves.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// How often the rail was polled.
    polls: AtomicU64,
    /// Something waits for its pace.
    is_called: AtomicBool,
    stops: AtomicBool,
}

impl Keeper {
    /// # Errors
    /// When the system gives no thread.
    pub fn start(core: &Arc<Mutex<Core>>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            polls: AtomicU64::new(0),
            is_called: AtomicBool::new(false),
            stops: AtomicBool::new(false),
        });
        let (core, own) = (Arc::clone(core), Arc::clone(&shared));
        let builder = thread::Builder::new().name("canele-quic".into()).stack_size(STACK_BYTES);
        let thread = without_signals(|| builder.spawn(move || keep(&core, &own)))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The rail is polled.
    pub fn note_poll(&self) {
        // Only who has the rail writes; the keeper looks whether it has changed.
        let polls = self.shared.polls.load(Ordering::Relaxed);
        self.shared.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    }

    /// Something waits for its pace.
    pub fn call(&self) {
        if !self.shared.is_called.load(Ordering::Relaxed)
            && !self.shared.is_called.swap(true, Ordering::AcqRel)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }

    /// Ends the thread and waits for it.
    pub fn stop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A keeper that has panicked keeps nothing any more.
            let _ = thread.join();
        }
    }
}

fn keep(core: &Mutex<Core>, shared: &Shared) {
    let mut seen = shared.polls.load(Ordering::Relaxed);
    let mut nap = NAP_MIN;
    loop {
        thread::park_timeout(nap);
        if shared.stops.load(Ordering::Acquire) {
            return;
        }
        let polls = shared.polls.load(Ordering::Relaxed);
        let is_polled = std::mem::replace(&mut seen, polls) != polls;
        let is_called = shared.is_called.load(Ordering::Acquire);
        if is_polled && !is_called {
            nap = NAP_MIN;
            continue;
        }
        let mut core = super::lock(core);
        let rests = core.is_asleep;
        if !is_polled && !rests {
            core.serve(Instant::now());
        }
        let waits = !rests && core.waits_for_pace();
        shared.is_called.store(waits, Ordering::Release);
        nap = match (waits, rests || !core.has_lines()) {
            (true, _) => NAP_PACED,
            (false, true) => (2 * nap).clamp(NAP_MIN, NAP_MAX),
            (false, false) => NAP_MIN,
        };
    }
}

/// From one look to the next where something waits: shorter than the pace is made up for…
const NAP_PACED: Duration = Duration::from_millis(1);
/// …elsewhere: short beside what peers wait for an answer…
const NAP_MIN: Duration = Duration::from_millis(20);
/// …and long beside what a look costs.
const NAP_MAX: Duration = Duration::from_millis(160);
const STACK_BYTES: usize = 256 << 10;
