//! Loom model of two communications that call the one progress thread, in every order of their steps.
//!
//! It runs as [`ProgressThread`](super::ProgressThread) does, without time, so a missing wake-up is a deadlock, which
//! loom finds. The hand-over of one communication is proved in the model of `poller`. Each protocol also runs with
//! one [`Flaw`], which it must notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// Deliberate fault of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The eventfd is reset after the looks, not before.
    SilencesLate,
    /// A thread that sleeps on one communication's rails does not hear calls.
    HearsRailsOnly,
    /// The thread does not look once more before it goes to sleep.
    LooksNoMore,
}

/// A process with two communications.
struct Process {
    flaw: Flaw,
    vcis: [Vci; VCIS],
    bells: Mutex<Bells>,
    rung: Condvar,
}

#[derive(Default)]
struct Vci {
    worker: Mutex<Worker>,
    ended: Condvar,
    awake: AtomicBool,
}

/// State that a worker's lock guards.
#[derive(Default)]
struct Worker {
    is_left_behind: bool,
    /// True if it cannot end before its rail has signaled.
    needs_rail: bool,
    has_ended: bool,
}

/// Events that end the thread's sleep.
#[derive(Default)]
struct Bells {
    call: bool,
    rails: [bool; VCIS],
    is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Sleeps,
    Guards,
    Due,
}

impl Process {
    fn new(flaw: Flaw) -> Arc<Self> {
        let (vcis, bells) = (<[Vci; VCIS]>::default(), Mutex::default());
        Arc::new(Self { flaw, vcis, bells, rung: Condvar::new() })
    }

    /// Makes a call that leaves work pending.
    fn leave(&self, vci: usize, needs_rail: bool) {
        let Vci { worker, awake, .. } = &self.vcis[vci];
        let mut worker = worker.lock().unwrap();
        *worker = Worker { is_left_behind: true, needs_rail, has_ended: false };
        if !awake.load(Ordering::Relaxed) && !awake.swap(true, Ordering::AcqRel) {
            self.ring(|bells| bells.call = true);
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

    fn ring(&self, bell: impl FnOnce(&mut Bells)) {
        bell(&mut self.bells.lock().unwrap());
        self.rung.notify_all();
    }

    fn stand_by(&self) {
        let mut states = [State::Sleeps; VCIS];
        loop {
            for (vci, state) in states.iter_mut().enumerate() {
                *state = self.look_if_due(vci, *state);
            }
            if self.flaw == Flaw::SilencesLate {
                self.bells.lock().unwrap().call = false;
            }
            if !states.contains(&State::Due) && !self.sleep(&mut states) {
                return;
            }
        }
    }

    /// Sleeps; false at the end.
    fn sleep(&self, states: &mut [State; VCIS]) -> bool {
        let guards = states.contains(&State::Guards);
        let mut bells = self.bells.lock().unwrap();
        loop {
            let is_called = bells.call && !(guards && self.flaw == Flaw::HearsRailsOnly);
            let rails = states.iter_mut().zip(bells.rails);
            let rung = rails.filter(|(state, rings)| **state == State::Guards && *rings);
            let rung = rung.map(|(state, _)| *state = State::Due).count();
            if is_called || rung > 0 {
                break;
            }
            if bells.is_over {
                return false;
            }
            bells = self.rung.wait(bells).unwrap();
        }
        if self.flaw != Flaw::SilencesLate {
            bells.call = false;
        }
        true
    }

    fn look_if_due(&self, vci: usize, state: State) -> State {
        let Vci { worker, ended, awake } = &self.vcis[vci];
        match state {
            State::Guards => return State::Guards,
            State::Sleeps if !awake.load(Ordering::Relaxed) => return State::Sleeps,
            State::Sleeps => drop(awake.swap(true, Ordering::AcqRel)),
            State::Due => {}
        }
        let mut worker = worker.lock().unwrap();
        if worker.is_left_behind {
            if worker.needs_rail && !self.bells.lock().unwrap().rails[vci] {
                return State::Guards;
            }
            (worker.is_left_behind, worker.has_ended) = (false, true);
            ended.notify_all();
            return State::Due;
        }
        drop(worker);
        awake.store(false, Ordering::Release);
        let is_deserted = self.vcis[vci].worker.lock().unwrap().is_left_behind;
        let looks = self.flaw != Flaw::LooksNoMore;
        if looks && is_deserted && !awake.swap(true, Ordering::AcqRel) {
            return State::Due;
        }
        State::Sleeps
    }
}

/// Runs two threads of an application beside the progress thread.
fn beside(flaw: Flaw, one: fn(&Process), other: fn(&Process)) {
    let process = Process::new(flaw);
    let spawn = |act: fn(&Process)| {
        let process = Arc::clone(&process);
        thread::spawn(move || act(&process))
    };
    let (progress_thread, other) = (spawn(Process::stand_by), spawn(other));
    one(&process);
    other.join().unwrap();
    process.ring(|bells| bells.is_over = true);
    progress_thread.join().unwrap();
}

/// Both threads leave work pending in their own communication, one of them twice.
fn both_call(flaw: Flaw) {
    fn act(process: &Process, vci: usize) {
        process.leave(vci, false);
        process.compute(vci);
    }
    beside(flaw, |process| (0..2).for_each(|_| act(process, 0)), |process| act(process, 1));
}

/// One thread's work waits for a rail, which is silent until the other's work is done.
fn one_calls_while_the_other_is_guarded(flaw: Flaw) {
    beside(
        flaw,
        |process| {
            process.leave(0, true);
            process.compute(0);
        },
        |process| {
            process.leave(1, false);
            process.compute(1);
            process.ring(|bells| bells.rails[0] = true);
        },
    );
}

fn explore(flaw: Flaw, protocol: fn(Flaw)) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    // LOOM_MAX_PREEMPTIONS raises the bound, which takes longer.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(move || protocol(flaw));
}

fn notices(flaw: Flaw, protocol: fn(Flaw)) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(flaw, protocol))).is_err()
}

#[test]
fn no_call_is_lost() {
    explore(Flaw::None, both_call);
    explore(Flaw::None, one_calls_while_the_other_is_guarded);
}

#[test]
fn flaws_are_noticed() {
    assert!(notices(Flaw::SilencesLate, both_call));
    assert!(notices(Flaw::LooksNoMore, both_call));
    assert!(notices(Flaw::HearsRailsOnly, one_calls_while_the_other_is_guarded));
}

const VCIS: usize = 2;
