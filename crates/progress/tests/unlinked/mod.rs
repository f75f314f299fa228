//! A rail without links.

use std::os::fd::BorrowedFd;

use rail::{Event, Post, Rail, RailError};
use wire::{Frame, PeerId};

/// A rail on which no link opens, no event comes and no frame may be sent.
pub struct UnlinkedRail;

impl Rail for UnlinkedRail {
    fn name(&self) -> &'static str {
        "nowhere"
    }

    fn address(&self) -> Vec<u8> {
        Vec::new()
    }

    fn connect(&mut self, _: PeerId, _: &[u8]) -> Result<(), RailError> {
        Ok(())
    }

    fn disconnect(&mut self, _: PeerId) {}

    fn post(&mut self, peer: PeerId, _: &Frame) -> Post {
        panic!("a frame for rank {}", peer.0)
    }

    fn poll(&mut self, _: &mut dyn FnMut(Event<'_>)) -> bool {
        false
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn prepare_sleep(&mut self) -> bool {
        true
    }

    fn finish_sleep(&mut self) {}

    fn is_flushed(&self) -> bool {
        true
    }
}
