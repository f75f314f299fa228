//! Loom model of the partitions that several threads mark and one takes (after Norris and Demsky, "CDSChecker", 2013).
//!
//! The crate's own code runs, built on loom's atomics, and again with each [`ReadyFlaw`], which the model must notice.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::thread;

use ready::Ready;

#[path = "ready.rs"]
#[allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the crate's own source again, here with loom's atomics for `parts`"
)]
mod ready;

/// PartitionedFault that is put into the list of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadyFlaw {
    None,
    /// Releasing writes are relaxed.
    NoRelease,
    /// Acquiring reads are relaxed.
    NoAcquire,
    /// The taker leaves without another look at the list.
    NoLook,
}

thread_local! {
    // All threads of a model run alternately on one thread of the system.
    static FLAW: Cell<ReadyFlaw> = const { Cell::new(ReadyFlaw::None) };
}

/// Building blocks of the list.
mod parts {
    use std::sync::atomic::Ordering;

    use super::{FLAW, ReadyFlaw};

    fn flawed(order: Ordering) -> Ordering {
        match (FLAW.get(), order) {
            (ReadyFlaw::NoRelease, Ordering::Release) => Ordering::Relaxed,
            (ReadyFlaw::NoRelease, Ordering::AcqRel) => Ordering::Acquire,
            (ReadyFlaw::NoAcquire, Ordering::Acquire) => Ordering::Relaxed,
            (ReadyFlaw::NoAcquire, Ordering::AcqRel) => Ordering::Release,
            (_, order) => order,
        }
    }

    macro_rules! atomics {
        ($($name:ident $value:ident;)*) => {$(
            #[derive(Debug)]
            pub struct $name(loom::sync::atomic::$name);

            impl $name {
                pub fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    self.0.load(flawed(order))
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, flawed(order));
                }

                pub fn compare_exchange(
                    &self,
                    old: $value,
                    new: $value,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    let leaves = u64::from(old) & super::TAKEN > u64::from(new) & super::TAKEN;
                    if FLAW.get() == ReadyFlaw::NoLook && leaves {
                        return Ok(self.0.swap(new, flawed(done)));
                    }
                    self.0.compare_exchange(old, new, flawed(done), flawed(failed))
                }
            }
        )*};
    }

    atomics! {
        AtomicU32 u32;
        AtomicU64 u64;
    }
}

/// The flag of the taker.
const TAKEN: u64 = 1 << 34;

/// A message of two partitions. Its bytes are not atomic: each is a number that a taker must see.
struct MarkedMessage {
    ready: Ready,
    /// Number that the receiver has told.
    key: parts::AtomicU32,
    bytes: [parts::AtomicU32; 2],
    sent: [parts::AtomicU32; 2],
}

impl MarkedMessage {
    fn mark(&self, partition: u32) {
        self.bytes[partition as usize].store(1, Ordering::Relaxed);
        if self.ready.mark(std::iter::once(partition)).unwrap() {
            self.send();
        }
    }

    fn open(&self) {
        self.key.store(1, Ordering::Relaxed);
        if self.ready.open() {
            self.send();
        }
    }

    fn send(&self) {
        let mut batch = Vec::new();
        while self.ready.take(&mut batch) {
            for partition in batch.iter().map(|partition| *partition as usize) {
                assert_eq!(self.key.load(Ordering::Relaxed), 1, "what the receiver has told");
                assert_eq!(self.bytes[partition].load(Ordering::Relaxed), 1, "its bytes");
                let before = self.sent[partition].load(Ordering::Relaxed);
                self.sent[partition].store(before + 1, Ordering::Relaxed);
            }
        }
    }
}

/// Two threads mark a partition each, while a third lets them leave.
fn each_partition_is_sent_once() {
    let numbers = || [parts::AtomicU32::new(0), parts::AtomicU32::new(0)];
    let ready = Ready::new(2).unwrap();
    ready.begin();
    let message = Arc::new(MarkedMessage {
        ready,
        key: parts::AtomicU32::new(0),
        bytes: numbers(),
        sent: numbers(),
    });
    let others = [0, 1].map(|partition| {
        let message = Arc::clone(&message);
        thread::spawn(move || message.mark(partition))
    });
    message.open();
    for other in others {
        other.join().unwrap();
    }
    for sent in &message.sent {
        assert_eq!(sent.load(Ordering::Relaxed), 1, "sent once");
    }
}

/// Runs the protocol in every order.
fn explore() {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 4000;
    // LOOM_MAX_PREEMPTIONS raises the bound, at the cost of time.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(each_partition_is_sent_once);
}

#[test]
fn partitions_that_threads_mark_are_sent_once_with_their_bytes() {
    explore();
    for flaw in [ReadyFlaw::NoRelease, ReadyFlaw::NoAcquire, ReadyFlaw::NoLook] {
        FLAW.set(flaw);
        let result = catch_unwind(AssertUnwindSafe(explore));
        FLAW.set(ReadyFlaw::None);
        assert!(result.is_err(), "{flaw:?} is not noticed");
    }
}
