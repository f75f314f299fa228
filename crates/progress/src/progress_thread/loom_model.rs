//! Loom model of two VCIs that call the one progress thread, in every order of their steps.
//!
//! It runs as [`ProgressThread`](super::ProgressThread) does, without time, so a missing wake-up is a deadlock, which
//! loom finds. The hand-over of one VCI is proved in the model of `poller`. Each protocol also runs with
//! one [`Flaw`], which it must notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::atomic::{AtomicU8, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use testing::preemptions;

use super::{ASLEEP, AWAKE, RESTS_IDLE};

/// Deliberate fault of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The eventfd is reset after the checks, not before.
    ClearsLate,
    /// A thread that sleeps on one VCI's rails does not hear calls.
    WatchesRailsOnly,
    /// The thread does not check once more before it goes to sleep.
    NoLastCheck,
    /// The thread begins an idle rest without the worker's lock.
    RestsUnlocked,
}

/// A process with two VCIs.
struct ModelProcess {
    flaw: Flaw,
    /// True if the thread begins an idle rest where nothing is pending, and sleeps otherwise. The rest is without end.
    rests: bool,
    vcis: [Vci; VCIS],
    events: Mutex<WakeEvents>,
    signalled: Condvar,
}

#[derive(Default)]
struct Vci {
    worker: Mutex<ModelWorker>,
    ended: Condvar,
    attention: AtomicU8,
}

/// State that a worker's lock guards.
#[derive(Default)]
struct ModelWorker {
    is_left_behind: bool,
    /// True if it cannot end before its rail has signaled.
    needs_rail: bool,
    has_ended: bool,
}

/// Events that end the thread's sleep.
#[derive(Default)]
struct WakeEvents {
    call: bool,
    rails: [bool; VCIS],
    is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VciPhase {
    Sleeps,
    RestsIdle,
    OnRails,
    Due,
}

impl ModelProcess {
    fn new(flaw: Flaw, rests: bool) -> Arc<Self> {
        let (vcis, events) = (<[Vci; VCIS]>::default(), Mutex::default());
        Arc::new(Self { flaw, rests, vcis, events, signalled: Condvar::new() })
    }

    /// Makes a call that leaves urgent work pending.
    fn leave(&self, vci: usize, needs_rail: bool) {
        let Vci { worker, attention, .. } = &self.vcis[vci];
        let mut worker = worker.lock().unwrap();
        *worker = ModelWorker { is_left_behind: true, needs_rail, has_ended: false };
        let is_known = attention.load(Ordering::Relaxed) == AWAKE;
        if !is_known && attention.swap(AWAKE, Ordering::AcqRel) != AWAKE {
            self.signal(|events| events.call = true);
        }
    }

    /// Waits, without another call, until the work is done.
    fn compute(&self, vci: usize) {
        let Vci { worker, ended, .. } = &self.vcis[vci];
        let mut worker = worker.lock().unwrap();
        while !worker.has_ended {
            worker = ended.wait(worker).unwrap();
        }
    }

    fn signal(&self, set: impl FnOnce(&mut WakeEvents)) {
        set(&mut self.events.lock().unwrap());
        self.signalled.notify_all();
    }

    fn run(&self) {
        let mut states = [VciPhase::Sleeps; VCIS];
        loop {
            for (vci, state) in states.iter_mut().enumerate() {
                *state = self.check_if_due(vci, *state);
            }
            if self.flaw == Flaw::ClearsLate {
                self.events.lock().unwrap().call = false;
            }
            if !states.contains(&VciPhase::Due) && !self.sleep(&mut states) {
                return;
            }
        }
    }

    /// Sleeps; false at the end.
    fn sleep(&self, states: &mut [VciPhase; VCIS]) -> bool {
        let is_on_rails = states.contains(&VciPhase::OnRails);
        let mut events = self.events.lock().unwrap();
        loop {
            let is_called = events.call && !(is_on_rails && self.flaw == Flaw::WatchesRailsOnly);
            let rails = states.iter_mut().zip(events.rails);
            let signalled = rails.filter(|(state, is_set)| **state == VciPhase::OnRails && *is_set);
            let signalled = signalled.map(|(state, _)| *state = VciPhase::Due).count();
            if is_called || signalled > 0 {
                break;
            }
            if events.is_over {
                return false;
            }
            events = self.signalled.wait(events).unwrap();
        }
        if self.flaw != Flaw::ClearsLate {
            events.call = false;
        }
        true
    }

    fn check_if_due(&self, vci: usize, state: VciPhase) -> VciPhase {
        let Vci { worker, ended, attention } = &self.vcis[vci];
        let is_called = || attention.load(Ordering::Relaxed) == AWAKE;
        match state {
            VciPhase::OnRails => return VciPhase::OnRails,
            VciPhase::Sleeps | VciPhase::RestsIdle if !is_called() => return state,
            VciPhase::Sleeps | VciPhase::RestsIdle => drop(attention.swap(AWAKE, Ordering::AcqRel)),
            VciPhase::Due => {}
        }
        let mut worker = worker.lock().unwrap();
        if worker.is_left_behind {
            if worker.needs_rail && !self.events.lock().unwrap().rails[vci] {
                return VciPhase::OnRails;
            }
            (worker.is_left_behind, worker.has_ended) = (false, true);
            ended.notify_all();
            return VciPhase::Due;
        }
        if self.rests && self.flaw != Flaw::RestsUnlocked {
            attention.store(RESTS_IDLE, Ordering::Relaxed);
            return VciPhase::RestsIdle;
        }
        drop(worker);
        if self.rests {
            attention.store(RESTS_IDLE, Ordering::Relaxed);
            return VciPhase::RestsIdle;
        }
        attention.store(ASLEEP, Ordering::Release);
        let is_unattended = self.vcis[vci].worker.lock().unwrap().is_left_behind;
        let looks = self.flaw != Flaw::NoLastCheck;
        if looks && is_unattended && attention.swap(AWAKE, Ordering::AcqRel) != AWAKE {
            return VciPhase::Due;
        }
        VciPhase::Sleeps
    }
}

/// Runs two threads of an application beside the progress thread.
fn run_both(flaw: Flaw, rests: bool, one: fn(&ModelProcess), other: fn(&ModelProcess)) {
    let process = ModelProcess::new(flaw, rests);
    let spawn = |act: fn(&ModelProcess)| {
        let process = Arc::clone(&process);
        thread::spawn(move || act(&process))
    };
    let (progress_thread, other) = (spawn(ModelProcess::run), spawn(other));
    one(&process);
    other.join().unwrap();
    process.signal(|events| events.is_over = true);
    progress_thread.join().unwrap();
}

/// Both threads leave work pending in their own VCI, one of them twice.
fn both_call(flaw: Flaw) {
    run_both(
        flaw,
        false,
        |process| (0..2).for_each(|_| act(process, 0)),
        |process| act(process, 1),
    );
}

/// The same, where the thread rests after the work is done.
fn both_call_a_resting_thread(flaw: Flaw) {
    run_both(flaw, true, |process| (0..2).for_each(|_| act(process, 0)), |process| act(process, 1));
}

fn act(process: &ModelProcess, vci: usize) {
    process.leave(vci, false);
    process.compute(vci);
}

/// One thread's work waits for a rail, which is silent until the other's work is done.
fn one_calls_while_the_rails_of_the_other_are_watched(flaw: Flaw) {
    run_both(
        flaw,
        false,
        |process| {
            process.leave(0, true);
            process.compute(0);
        },
        |process| {
            process.leave(1, false);
            process.compute(1);
            process.signal(|events| events.rails[0] = true);
        },
    );
}

/// Runs a protocol in every order with at most this number of preemptions.
fn explore(preemptions: usize, flaw: Flaw, protocol: fn(Flaw)) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    // LOOM_MAX_PREEMPTIONS raises the bound, which takes longer.
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || protocol(flaw));
}

fn notices(flaw: Flaw, protocol: fn(Flaw)) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(3, flaw, protocol))).is_err()
}

#[test]
fn no_call_is_lost() {
    explore(preemptions(), Flaw::None, both_call);
    explore(preemptions(), Flaw::None, both_call_a_resting_thread);
    explore(preemptions(), Flaw::None, one_calls_while_the_rails_of_the_other_are_watched);
}

#[test]
fn flaws_are_noticed() {
    assert!(notices(Flaw::ClearsLate, both_call));
    assert!(notices(Flaw::NoLastCheck, both_call));
    assert!(notices(Flaw::RestsUnlocked, both_call_a_resting_thread));
    assert!(notices(Flaw::WatchesRailsOnly, one_calls_while_the_rails_of_the_other_are_watched));
}

const VCIS: usize = 2;
