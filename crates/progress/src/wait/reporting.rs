//! Contributions of waiting threads to a report, its collection, and samples of whether any thread waits.

use std::thread;
use std::time::{Duration, Instant};

use engine::OpId;

use crate::wait::Progress;
use crate::wait_report::{self, AwaitedThing, THREADS_MAX, WaitingThread};
use crate::waiters::Awaited;
use crate::worker::Worker;

impl Worker {
    /// Notes the time at which the polling thread is about to sleep.
    pub(crate) fn note_quiet(&mut self, now: Instant) {
        let count = self.engine.event_count();
        if self.wait_report.quiet.is_none_or(|(known, _)| known != count) {
            self.wait_report.quiet = Some((count, now));
        }
    }

    /// Notes that the calling thread is about to sleep, and what it waits for if a report is open.
    #[inline]
    pub(crate) fn note_wait(&mut self) {
        if self.is_reporting() {
            self.add_to_report();
        }
    }

    #[cold]
    fn add_to_report(&mut self) {
        let members = self.wait_report.members.take();
        let op = |op: &OpId| self.engine.describe(*op).map(AwaitedThing::Op);
        let (mut awaited, is_any): (Vec<AwaitedThing>, bool) = match &self.awaited {
            // A queue of ends does not tell its operations; unmatched ones are in the report.
            Awaited::Events | Awaited::EndIn(_) => (Vec::new(), false),
            Awaited::Op(id) => (op(id).into_iter().collect(), false),
            Awaited::AnyOf(ids) => (ids.iter().filter_map(op).collect(), true),
            Awaited::Message(peer, selector) => {
                (vec![AwaitedThing::Message(*peer, *selector)], false)
            }
        };
        awaited.extend(members.map(|(context, peers)| AwaitedThing::Members(context, peers)));
        let (count, since) = self.wait_report.quiet.unwrap_or((0, Instant::now()));
        let is_quiet = count == self.engine.event_count();
        let quiet = if is_quiet { since.elapsed() } else { Duration::ZERO };
        let myself = thread::current().id();
        let Some(threads) = &mut self.wait_report.open else { return };
        if threads.len() < THREADS_MAX && threads.iter().all(|(thread, _)| *thread != myself) {
            let call = wait_report::find_call();
            threads.push((myself, WaitingThread { call, quiet, awaited, is_any }));
        }
    }
}

impl Progress {
    /// True if a thread waits here now, or holds the lock, as calls and the progress thread do while they move messages.
    pub fn is_in_use(&self) -> bool {
        let worker = self.worker().try_lock();
        worker.is_none_or(|worker| worker.poll_state.is_polled() || !worker.waiters.is_empty())
    }

    /// Returns the threads that wait here, each with what it waits for. Gives them a moment to say so.
    pub fn waiting_threads(&self, patience: Duration) -> Vec<WaitingThread> {
        let expected = self.look(|worker| {
            worker.wait_report.open = Some(Vec::new());
            worker.look_at_ends();
            worker.waiters.len() + usize::from(worker.poll_state.is_polled())
        });
        self.wake();
        let end = Instant::now() + patience;
        let has_all = |worker: &mut Worker| {
            worker.wait_report.open.as_ref().is_none_or(|threads| threads.len() >= expected)
        };
        while !self.look(has_all) && Instant::now() < end {
            thread::sleep(LOOK_EVERY);
        }
        let threads = self.look(|worker| {
            let threads = worker.wait_report.open.take();
            worker.look_at_ends();
            threads
        });
        threads.unwrap_or_default().into_iter().map(|(_, thread)| thread).collect()
    }
}

/// Interval of checks if all waiting threads have contributed.
const LOOK_EVERY: Duration = Duration::from_millis(1);
