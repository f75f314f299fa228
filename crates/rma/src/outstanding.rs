//! Operations on one target that may not be complete, as the threads of a process share them.

use std::sync::atomic::Ordering;

use super::parts::{AtomicU8, Mutex, MutexGuard, PoisonError};

/// Operations on one target. `T` identifies an operation.
#[derive(Debug)]
pub(crate) struct Outstanding<T> {
    /// [`UNFLUSHED`], [`LISTED`], [`FAILED`] and [`DELAYED`], without which a flush has nothing to do, and what is expected.
    flags: AtomicU8,
    listed: Mutex<Listed<T>>,
    /// Held by the thread that completes operations.
    completing: Mutex<()>,
}

/// Operations that may not be complete here.
#[derive(Debug)]
struct Listed<T> {
    own: Vec<T>,
    /// Those that requests stand for.
    of_requests: Vec<T>,
}

/// The target has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TargetFailed;

impl<T> Outstanding<T> {
    /// Makes an empty list.
    pub fn new() -> Self {
        let listed = Listed { own: Vec::new(), of_requests: Vec::new() };
        Self { flags: AtomicU8::new(0), listed: Mutex::new(listed), completing: Mutex::new(()) }
    }

    /// True if a flush has nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has(UNFLUSHED | LISTED | FAILED | DELAYED)
    }

    /// Notes that an accumulate waits.
    #[inline]
    pub fn note_delayed(&self) {
        self.set(DELAYED);
    }

    /// Notes that no accumulate waits.
    pub fn forget_delayed(&self) {
        self.flags.fetch_and(!DELAYED, Ordering::AcqRel);
    }

    /// Notes that a put or call was sent, which only a flush completes at the target. It may have been covered by a flush of
    /// another thread meanwhile.
    #[inline]
    pub fn note_sent(&self) {
        if self.has(UNFLUSHED) {
            self.set(SEVERAL);
        } else {
            self.set(UNFLUSHED);
        }
    }

    /// True if the last flush was of one operation, and nothing was submitted since.
    pub fn expects_flush(&self) -> bool {
        self.flags.load(Ordering::Relaxed) == SINGLE
    }

    /// Notes that an operation has failed. The thread that completes the others is told.
    pub fn note_failed(&self) {
        self.set(FAILED);
    }

    /// Lists an operation. Returns the number of those that no request stands for.
    pub fn list(&self, op: T) -> usize {
        let mut listed = lock(&self.listed);
        self.set(LISTED);
        listed.own.push(op);
        listed.own.len()
    }

    /// Lists an operation that a request stands for.
    pub fn list_of_request(&self, op: T) {
        let mut listed = lock(&self.listed);
        self.set(LISTED);
        listed.of_requests.push(op);
    }

    /// Lists the flush that `submit` returns, if anything was sent since the last one.
    pub fn begin_flush(&self, submit: impl FnOnce() -> T) {
        if !self.has(UNFLUSHED) {
            return;
        }
        let mut listed = lock(&self.listed);
        let is_single = !self.has(SEVERAL | LISTED);
        // A thread that finds the one flag gone finds the other, and waits for the list.
        self.set(LISTED);
        let former = self.flags.fetch_and(!(UNFLUSHED | SEVERAL | SINGLE), Ordering::AcqRel);
        if former & UNFLUSHED != 0 {
            listed.own.push(submit());
        }
        if is_single {
            self.set(SINGLE);
        }
    }

    /// Waits for the listed operations: by `take` for those that are to be taken from the engine, which returns false for a
    /// failure; by `await_request` for those that requests take. One thread at a time does so, and none returns
    /// while another waits for its operations.
    pub fn complete(
        &self,
        mut take: impl FnMut(T) -> bool,
        await_request: impl FnMut(T),
    ) -> Result<(), TargetFailed> {
        if !self.has(LISTED | FAILED) {
            return Ok(());
        }
        let _completing = lock(&self.completing);
        let mut has_failed = self.flags.fetch_and(!FAILED, Ordering::AcqRel) & FAILED != 0;
        let (own, of_requests) = {
            let mut listed = lock(&self.listed);
            (std::mem::take(&mut listed.own), std::mem::take(&mut listed.of_requests))
        };
        own.into_iter().for_each(|op| has_failed |= !take(op));
        of_requests.into_iter().for_each(await_request);
        let listed = lock(&self.listed);
        if listed.own.is_empty() && listed.of_requests.is_empty() {
            self.flags.fetch_and(!LISTED, Ordering::AcqRel);
        }
        if has_failed { Err(TargetFailed) } else { Ok(()) }
    }

    /// True if any of these flags is set.
    #[inline]
    fn has(&self, flags: u8) -> bool {
        self.flags.load(Ordering::Acquire) & flags != 0
    }

    #[inline]
    fn set(&self, flag: u8) {
        if !self.has(flag) {
            self.flags.fetch_or(flag, Ordering::AcqRel);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts or calls were sent since the last flush.
const UNFLUSHED: u8 = 1;
/// Operations are listed, or a thread completes some that were.
const LISTED: u8 = 2;
/// An operation has failed, and nobody was told yet.
const FAILED: u8 = 4;
/// Accumulates may wait in this process.
const DELAYED: u8 = 32;
/// Several puts or calls were sent since the last flush.
const SEVERAL: u8 = 8;
/// The last flush was of one put or call.
const SINGLE: u8 = 16;
