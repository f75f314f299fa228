//! The partitioned messages of one VCI.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use memory::Region;
use progress::Progress;

use crate::receiver::{Receiver, Started};
use crate::route::Route;
use crate::sender::Sender;

/// The partitioned messages of one VCI of a process.
pub struct Channels {
    progress: Arc<Progress>,
    /// Number of the next sender.
    next: AtomicU32,
    started: Arc<Started>,
}

impl Channels {
    /// Makes the channels of a VCI, and sets the handler of its worker.
    pub fn new(progress: &Arc<Progress>) -> Self {
        let (progress, started) = (Arc::clone(progress), Started::new(progress));
        Self { progress, next: AtomicU32::new(0), started }
    }

    /// Makes a sender of `data`, which has this number of partitions, and offers it to its receiver. `None` if there is
    /// no memory.
    pub fn send(&self, route: Route, data: Region, partitions: u32) -> Option<Arc<Sender>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Sender::new(&self.progress, number, route, data, partitions)
    }

    /// Makes a receiver into memory of this number of partitions, and begins to wait for its sender's offer. `None` if
    /// there is no memory.
    pub fn receive(&self, route: Route, into: Region, partitions: u32) -> Option<Arc<Receiver>> {
        Receiver::new(&self.progress, &self.started, route, into, partitions)
    }
}
