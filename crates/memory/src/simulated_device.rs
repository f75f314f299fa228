//! A device for tests: its memory has addresses that no processor may use, and its copies end late.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::{CopyDirection, CopyPiece, HostStage, Mover, Ticket};
use crate::{Keeper, Layout, Region};

/// Memory of `len` bytes in a simulated device. A copy takes place when it is finished, or some time before, as an own random
/// sequence says: whoever does not wait for one finds old bytes.
#[derive(Debug)]
pub struct SimulatedDevice {
    base: usize,
    state: Mutex<DeviceState>,
}

#[derive(Debug)]
struct DeviceState {
    memory: Vec<u8>,
    begun: VecDeque<(Ticket, Vec<CopyPiece>)>,
    next: u64,
    random: u64,
    copies: u64,
}

// SAFETY: the pieces' addresses are used under the lock, and `Mover::begin` demands that they are valid until then.
unsafe impl Send for DeviceState {}

impl SimulatedDevice {
    /// Makes a device with memory of zeros.
    pub fn new(len: usize, seed: u64) -> Arc<Self> {
        // No two devices have the same addresses.
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let base = NEXT.fetch_add(1, Ordering::Relaxed) << BASE_SHIFT;
        let state = DeviceState {
            memory: vec![0; len],
            begun: VecDeque::new(),
            next: 0,
            random: seed | 1,
            copies: 0,
        };
        Arc::new(Self { base, state: Mutex::new(state) })
    }

    /// A region of `count` elements of a layout, the first at byte `at` of the device's memory.
    ///
    /// # Panics
    /// If they lie outside.
    pub fn elements(self: &Arc<Self>, at: usize, count: usize, layout: &Arc<Layout>) -> Region {
        let address = std::ptr::without_provenance_mut::<u8>(self.base + at);
        // SAFETY: only the mover uses the addresses, and it checks them.
        let places = unsafe { Region::elements(address, count, layout) };
        // SAFETY: the mover checks that the elements lie in its memory.
        unsafe { Region::on_device(places, Arc::clone(self) as Arc<dyn Mover>) }
    }

    /// A region of contiguous bytes.
    ///
    /// # Panics
    /// If they lie outside.
    pub fn bytes(self: &Arc<Self>, at: usize, len: usize) -> Region {
        let address = std::ptr::without_provenance_mut::<u8>(self.base + at);
        // SAFETY: only the mover uses the addresses, and it checks them.
        let places = unsafe { Region::new(address, len) };
        // SAFETY: the mover checks that the bytes lie in its memory.
        unsafe { Region::on_device(places, Arc::clone(self) as Arc<dyn Mover>) }
    }

    /// Copies the memory as it is, without copies that have not taken place.
    pub fn contents(&self) -> Vec<u8> {
        self.state().memory.clone()
    }

    /// Sets the memory.
    pub fn fill(&self, contents: &[u8]) {
        self.state().memory.copy_from_slice(contents);
    }

    /// Number of copies that have taken place.
    pub fn copies(&self) -> u64 {
        self.state().copies
    }

    fn state(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mover for SimulatedDevice {
    unsafe fn begin(&self, direction: CopyDirection, pieces: &[CopyPiece]) -> Ticket {
        let mut state = self.state();
        for piece in pieces {
            let at = (piece.device as usize).wrapping_sub(self.base);
            assert!(
                at <= state.memory.len() && piece.len <= state.memory.len() - at,
                "{} bytes at {at} lie outside a device's memory of {} bytes",
                piece.len,
                state.memory.len()
            );
        }
        let ticket = Ticket { direction, number: state.next };
        state.next += 1;
        state.begun.push_back((ticket, pieces.to_vec()));
        // Some older ones take place now.
        while state.chance() && !state.begun.is_empty() {
            let ways = [CopyDirection::ToHost, CopyDirection::ToDevice];
            let way = ways[usize::from(state.chance())];
            state.copy_oldest(self.base, way);
        }
        ticket
    }

    fn finish(&self, ticket: Ticket) {
        let mut state = self.state();
        let is_left = |state: &DeviceState| {
            let mut of_way =
                state.begun.iter().filter(|(one, _)| one.direction == ticket.direction);
            of_way.any(|(one, _)| one.number <= ticket.number)
        };
        while is_left(&state) {
            state.copy_oldest(self.base, ticket.direction);
        }
    }

    fn stage(&self, len: usize) -> Option<HostStage> {
        // Now and then there is no memory.
        let mut state = self.state();
        let has_memory = state.chance() || state.chance() || state.chance();
        has_memory.then(|| {
            let mut memory = vec![0xdb; len].into_boxed_slice();
            let address = memory.as_mut_ptr();
            // SAFETY: the box holds so many bytes, and nobody else has it.
            unsafe { HostStage::new(address, len, Arc::new(Owned { _memory: memory })) }
        })
    }
}

/// Memory of a stage.
#[derive(Debug)]
struct Owned {
    _memory: Box<[u8]>,
}

impl Keeper for Owned {}

impl DeviceState {
    /// Lets the oldest copy of a direction take place, if there is one.
    fn copy_oldest(&mut self, base: usize, direction: CopyDirection) {
        let Some(at) = self.begun.iter().position(|(one, _)| one.direction == direction) else {
            return;
        };
        let Some((_, pieces)) = self.begun.remove(at) else { return };
        for CopyPiece { device, host, len } in pieces {
            let from = (device as usize) - base;
            let own = &mut self.memory[from..from + len];
            // SAFETY: whoever began the copy vouched for the host's memory until it is finished.
            let host = unsafe { std::slice::from_raw_parts_mut(host, len) };
            match direction {
                CopyDirection::ToHost => host.copy_from_slice(own),
                CopyDirection::ToDevice => own.copy_from_slice(host),
            }
        }
        self.copies += 1;
    }

    /// True in one of two cases (xorshift, Marsaglia 2003).
    fn chance(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 33 & 1 == 0
    }
}

/// Devices are so far apart. The addresses are above those of any process.
const BASE_SHIFT: u32 = 48;
