//! The connection's view of the congestion controller: it reports what it sends and hears, and is told
//! either to send all that it is asked for, or nothing but acknowledgements and probes.
//!
//! How much that is, and when, the rail decides before it asks ([`super::line`]): the protocol's own pacer
//! would let a window and a quarter leave each round trip in bursts of two milliseconds.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

use super::congestion::{Model, Path};

/// What a connection's controller and the rail share.
#[derive(Debug)]
pub(super) struct Gate {
    pub model: Model,
    /// Whether more than acknowledgements may leave.
    pub is_open: bool,
    /// Everything that had left has arrived, as of the last acknowledgement.
    pub has_all_arrived: bool,
    /// Packets that have arrived: other datagrams come also while nothing arrives there.
    pub arrived: u64,
}

/// A shared [`Gate`]. Only the thread that has the rail takes its lock, so that it never waits.
#[derive(Clone, Debug)]
pub(super) struct SharedGate(Arc<Mutex<Gate>>);

impl SharedGate {
    pub fn new(known: Option<Path>) -> Self {
        let gate =
            Gate { model: Model::new(known), is_open: true, has_all_arrived: true, arrived: 0 };
        Self(Arc::new(Mutex::new(gate)))
    }

    pub fn lock(&self) -> MutexGuard<'_, Gate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControllerFactory for SharedGate {
    fn build(self: Arc<Self>, _: Instant, mtu: u16) -> Box<dyn Controller> {
        self.lock().model.set_mtu(mtu);
        Box::new((*self).clone())
    }
}

impl Controller for SharedGate {
    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, _: bool, _: &RttEstimator) {
        let mut gate = self.lock();
        gate.arrived += 1;
        gate.model.handle_ack(sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        let mut gate = self.lock();
        gate.has_all_arrived = in_flight == 0;
        gate.model.handle_acks_end(now, in_flight);
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, has_collapsed: bool, lost: u64) {
        let mut gate = self.lock();
        if lost == 0 {
            gate.model.handle_mark();
        }
        gate.model.handle_loss(lost);
        if has_collapsed {
            gate.model.handle_collapse();
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.lock().model.set_mtu(mtu);
    }

    fn window(&self) -> u64 {
        if self.lock().is_open { UNPACED } else { SHUT }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        UNPACED
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The protocol does not pace windows beyond 32 bits.
const UNPACED: u64 = 1 << 40;
/// Less than any packet, and not nothing.
const SHUT: u64 = 1;
