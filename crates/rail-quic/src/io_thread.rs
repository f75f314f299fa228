//! The IO thread, which serves the rail while no other thread polls it.
//!
//! A process that computes for long would neither acknowledge packets, nor send keepalives, nor accept connections,
//! and its peers would count it as dead. The IO thread serves the rail if it was not polled since the last check. It
//! sleeps longer if there is no connection, or if a thread sleeps on the rail's descriptors. While posted data waits
//! for the pacer it checks every millisecond, so that a completed send keeps leaving.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cpu::without_signals;

use crate::endpoint::{EndpointDriver, lock};

/// Handle of the IO thread.
pub(super) struct IoThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Number of polls of the rail.
    polls: AtomicU64,
    /// True while posted data waits for the pacer.
    is_called: AtomicBool,
    stops: AtomicBool,
}

impl IoThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(driver: &Arc<Mutex<EndpointDriver>>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            polls: AtomicU64::new(0),
            is_called: AtomicBool::new(false),
            stops: AtomicBool::new(false),
        });
        let (driver, own) = (Arc::clone(driver), Arc::clone(&shared));
        let builder = thread::Builder::new().name("canele-quic".into()).stack_size(STACK_BYTES);
        let thread = without_signals(|| builder.spawn(move || run(&driver, &own)))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Records that the rail was polled.
    pub fn note_poll(&self) {
        // Only the thread that has locked the rail writes; the IO thread only compares.
        let polls = self.shared.polls.load(Ordering::Relaxed);
        self.shared.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    }

    /// Tells the thread that posted data waits for the pacer.
    pub fn call(&self) {
        if !self.shared.is_called.load(Ordering::Relaxed)
            && !self.shared.is_called.swap(true, Ordering::AcqRel)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }

    /// Stops the thread and waits for it.
    pub fn stop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the IO thread is reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn run(driver: &Mutex<EndpointDriver>, shared: &Shared) {
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
        let mut driver = lock(driver);
        let is_asleep = driver.is_asleep;
        if !is_polled && !is_asleep {
            driver.serve(Instant::now());
        }
        let waits = !is_asleep && driver.waits_for_pace();
        shared.is_called.store(waits, Ordering::Release);
        nap = match (waits, is_asleep || !driver.has_connections()) {
            (true, _) => NAP_PACED,
            (false, true) => (2 * nap).clamp(NAP_MIN, NAP_MAX),
            (false, false) => NAP_MIN,
        };
    }
}

/// Interval of checks while paced data waits; shorter than the delay that the pacer makes up for.
const NAP_PACED: Duration = Duration::from_millis(1);
/// Interval of checks with connections; short compared with the timeouts of peers.
const NAP_MIN: Duration = Duration::from_millis(20);
/// Longest interval of checks; long compared with their cost.
const NAP_MAX: Duration = Duration::from_millis(160);
const STACK_BYTES: usize = 256 << 10;
