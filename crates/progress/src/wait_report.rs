//! Reports on waiting threads, for jobs that hang.
//!
//! A report is opened under the worker's lock, and all waiting threads are woken. Each asks again, finds nothing, and
//! notes what it waits for before it sleeps again. Without an open report, a thread about to sleep pays for one
//! comparison, and a thread that does not sleep pays nothing.

use std::sync::OnceLock;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use engine::{PendingOp, Selector};
use wire::PeerId;

/// A thread that waits in the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingThread {
    /// The call that it is in, and the place that has called it, if they are known.
    pub call: Option<(String, String)>,
    /// Time in which nothing has completed in this process.
    pub quiet: Duration,
    /// Things that it waits for.
    pub awaited: Vec<AwaitedThing>,
    /// True if one of them suffices.
    pub is_any: bool,
}

/// A thing that a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwaitedThing {
    /// An operation.
    Op(PendingOp),
    /// A message that is probed for.
    Message(Option<PeerId>, Selector),
    /// Steps of a collective by these processes, in the shared segment of a context.
    Members(u64, Vec<PeerId>),
}

/// State of the report.
#[derive(Debug, Default)]
pub(crate) struct WaitReport {
    pub open: Option<Vec<(ThreadId, WaitingThread)>>,
    /// Processes that the latest question waits for in a shared segment.
    pub members: Option<(u64, Vec<PeerId>)>,
    /// Event count when a thread was last about to sleep, and the time since which it is the same.
    pub quiet: Option<(u64, Instant)>,
}

impl WaitReport {
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

/// Names the call that the calling thread is in, and the place that has called it.
pub type CallFinder = fn() -> Option<(String, String)>;

/// Sets the function that names the call which the calling thread is in, and the place that has called it.
pub fn set_call_finder(find: CallFinder) {
    // All interfaces of a process set the same.
    let _ = CALL_FINDER.set(find);
}

/// Names the call that the calling thread is in, and the place that has called it.
pub(crate) fn find_call() -> Option<(String, String)> {
    CALL_FINDER.get().and_then(|find| find())
}

static CALL_FINDER: OnceLock<CallFinder> = OnceLock::new();

/// Maximum number of threads in a report.
pub(crate) const THREADS_MAX: usize = 64;
