//! Adapter between quinn's congestion control and the path model.
//!
//! quinn reports what it sends and what is acknowledged. The adapter's window is either unlimited, or so small that
//! only acknowledgements and probes may leave. The rail decides before each transmission how much may leave, and when
//! ([`super::connection`]): quinn's own pacer would send 1.25 windows per round trip, in bursts of 2 ms.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

use crate::congestion::{Model, Path};

/// State shared by a connection's controller and the rail.
#[derive(Debug)]
pub(super) struct ControllerState {
    pub model: Model,
    /// True if more than acknowledgements and probes may leave.
    pub may_send: bool,
    /// True if the last acknowledgement covered everything sent.
    pub has_all_arrived: bool,
    /// Number of packets acknowledged. Other datagrams may arrive while none of this end's packets is acknowledged.
    pub arrived: u64,
}

/// A shared [`ControllerState`]. Only the thread that serves the rail takes its lock, so it never blocks.
#[derive(Clone, Debug)]
pub(super) struct SharedController(Arc<Mutex<ControllerState>>);

impl SharedController {
    pub fn new(known: Option<Path>) -> Self {
        let controller = ControllerState {
            model: Model::new(known),
            may_send: true,
            has_all_arrived: true,
            arrived: 0,
        };
        Self(Arc::new(Mutex::new(controller)))
    }

    pub fn lock(&self) -> MutexGuard<'_, ControllerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControllerFactory for SharedController {
    fn build(self: Arc<Self>, _: Instant, mtu: u16) -> Box<dyn Controller> {
        self.lock().model.set_mtu(mtu);
        Box::new((*self).clone())
    }
}

impl Controller for SharedController {
    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, _: bool, _: &RttEstimator) {
        let mut controller = self.lock();
        controller.arrived += 1;
        controller.model.handle_ack(sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        let mut controller = self.lock();
        controller.has_all_arrived = in_flight == 0;
        controller.model.handle_acks_end(now, in_flight);
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, has_collapsed: bool, lost: u64) {
        let mut controller = self.lock();
        if lost == 0 {
            controller.model.handle_mark();
        }
        controller.model.handle_loss(lost);
        if has_collapsed {
            controller.model.handle_collapse();
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.lock().model.set_mtu(mtu);
    }

    fn window(&self) -> u64 {
        if self.lock().may_send { UNPACED } else { SHUT }
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

/// Window beyond 32 bits, which quinn does not pace.
const UNPACED: u64 = 1 << 40;
/// Window smaller than any packet, but not zero.
const SHUT: u64 = 1;
