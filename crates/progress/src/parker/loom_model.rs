//! Loom model of a sleeping thread and its waker, in every order of their steps.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{ParkEvent, ParkState};

/// State that the worker's lock guards.
#[derive(Default)]
struct Worker {
    is_due: bool,
    is_moved: bool,
}

struct Process {
    worker: Mutex<Worker>,
    state: ParkState<AtomicU8>,
    /// Bytes in the pipe.
    calls: Mutex<u32>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl Process {
    fn new() -> Arc<Self> {
        let (calls, changed) = (Mutex::new(0), Condvar::new());
        let worker = Mutex::new(Worker { is_due: true, is_moved: false });
        Arc::new(Self {
            worker,
            state: ParkState::new(),
            calls,
            changed,
            is_over: AtomicBool::new(false),
        })
    }

    fn wake(&self) {
        if self.state.end() {
            *self.calls.lock().unwrap() += 1;
            self.changed.notify_one();
        }
    }

    /// Ends the time limit.
    fn end_time(&self) {
        let _calls = self.calls.lock().unwrap();
        self.is_over.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    fn listen(&self, is_timed: bool) -> ParkEvent {
        let mut calls = self.calls.lock().unwrap();
        loop {
            if *calls > 0 {
                *calls -= 1;
                return ParkEvent::Wakeup;
            }
            if is_timed && self.is_over.load(Ordering::Relaxed) {
                return ParkEvent::Timeout;
            }
            calls = self.changed.wait(calls).unwrap();
        }
    }
}

#[test]
fn a_woken_thread_continues() {
    loom::model(|| {
        let process = Process::new();
        let waker = Arc::clone(&process);
        let waker = thread::spawn(move || waker.wake());
        assert!(process.state.sleep(|is_timed| process.listen(is_timed)));
        waker.join().unwrap();
        assert_eq!(*process.calls.lock().unwrap(), 0);
    });
}

#[test]
fn no_wakeup_is_left_after_a_timeout() {
    loom::model(time_ends_meanwhile(|process| {
        process.state.sleep(|is_timed| process.listen(is_timed))
    }));
}

#[test]
fn a_wakeup_that_is_left_is_noticed() {
    let flawed = time_ends_meanwhile(|process| {
        process.state.sleep(|is_timed| match process.listen(is_timed) {
            // The thread does not wait for the byte that is on its way.
            ParkEvent::Timeout if process.state.has_ended() => ParkEvent::Wakeup,
            event => event,
        })
    });
    assert!(catch_unwind(AssertUnwindSafe(|| loom::model(flawed))).is_err());
}

/// A thread sleeps while its time ends and another wakes it. It continues, and no byte is left in the pipe.
fn time_ends_meanwhile(sleep: fn(&Process) -> bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let process = Process::new();
        let (waker, clock) = (Arc::clone(&process), Arc::clone(&process));
        let waker = thread::spawn(move || waker.wake());
        let clock = thread::spawn(move || clock.end_time());
        let was_woken = sleep(&process);
        waker.join().unwrap();
        clock.join().unwrap();
        assert_eq!(*process.calls.lock().unwrap(), 0);
        assert!(!was_woken || process.state.has_ended());
    }
}

#[test]
fn a_thread_that_continues_is_not_moved() {
    loom::model(a_thread_hands_over(|process| {
        let mut worker = process.worker.lock().unwrap();
        let is_due = std::mem::take(&mut worker.is_due);
        worker.is_moved = is_due;
        is_due
    }));
}

#[test]
fn a_late_move_is_noticed() {
    let flawed = a_thread_hands_over(|process| {
        let is_due = std::mem::take(&mut process.worker.lock().unwrap().is_due);
        // The flag is read and the thread is moved under two separate locks.
        process.worker.lock().unwrap().is_moved = is_due;
        is_due
    });
    assert!(catch_unwind(AssertUnwindSafe(|| loom::model(flawed))).is_err());
}

/// A thread hands over to one whose time ends meanwhile. It takes it out if it is still due, moves it, and then
/// wakes it.
fn a_thread_hands_over(take: fn(&Process) -> bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let process = Process::new();
        let (waker, clock) = (Arc::clone(&process), Arc::clone(&process));
        let waker = thread::spawn(move || {
            if take(&waker) {
                waker.wake();
            }
        });
        let clock = thread::spawn(move || clock.end_time());
        process.state.sleep(|is_timed| process.listen(is_timed));
        {
            let mut worker = process.worker.lock().unwrap();
            worker.is_due = false;
            worker.is_moved = false;
        }
        waker.join().unwrap();
        clock.join().unwrap();
        assert!(!process.worker.lock().unwrap().is_moved);
    }
}
