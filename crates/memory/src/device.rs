//! Memory of a device, which the processor does not reach: a mover copies it.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::panic::RefUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::copy::copy_few;
use crate::keeper::Keeper;
use crate::strided::Strided;
use crate::{Layout, Span};

/// Copies between the memory of a device and the host's.
pub trait Mover: Debug + Send + Sync + RefUnwindSafe {
    /// Begins to copy pieces. Those of one direction end in the order in which they began.
    ///
    /// # Safety
    /// All memory of the pieces is valid until [`Mover::finish`] returns for the ticket, and nobody else uses the host's.
    unsafe fn begin(&self, direction: CopyDirection, pieces: &[CopyPiece]) -> Ticket;

    /// Waits until the pieces of a ticket, and those that began before in its direction, are copied.
    fn finish(&self, ticket: Ticket);

    /// Returns host memory of `len` bytes that the device copies fast; none if there is none.
    fn stage(&self, len: usize) -> Option<HostStage>;
}

/// Memory of the host through which a device's bytes go.
#[derive(Debug)]
pub struct HostStage {
    pub(crate) address: *mut u8,
    pub(crate) len: usize,
    pub(crate) keeper: Arc<dyn Keeper>,
}

// SAFETY: the memory is this stage's alone, wherever it is.
unsafe impl Send for HostStage {}

impl HostStage {
    /// Memory of `len` bytes at `address`.
    ///
    /// # Safety
    /// Nobody else uses the memory while `keeper` lives.
    pub unsafe fn new(address: *mut u8, len: usize, keeper: Arc<dyn Keeper>) -> Self {
        Self { address, len, keeper }
    }
}

/// CopyDirection of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// From the device's memory to the host's.
    ToHost,
    /// From the host's memory to the device's.
    ToDevice,
}

/// Copy of `len` contiguous bytes.
#[derive(Clone, Copy, Debug)]
pub struct CopyPiece {
    /// First byte in the device's memory: an address for the mover, not for the processor.
    pub device: *mut u8,
    /// First byte in the host's memory.
    pub host: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// Names a copy to its mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// CopyDirection of the copy.
    pub direction: CopyDirection,
    /// Number by which the mover knows it.
    pub number: u64,
}

/// A stream of bytes in a device's memory, with the copies of it that have begun.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    mover: Arc<dyn Mover>,
    places: DevicePlaces,
    begun: Mutex<BegunCopies>,
}

/// Addresses of a stream's bytes in the device, which only the mover uses.
#[derive(Clone, Debug)]
pub(crate) enum DevicePlaces {
    Flat(*mut u8),
    Strided { base: *mut u8, layout: Arc<Layout> },
}

// SAFETY: the region's maker guaranteed that the mover may use the addresses from any of the library's threads.
unsafe impl Send for DevicePlaces {}
// SAFETY: places are addresses, which nobody changes.
unsafe impl Sync for DevicePlaces {}

/// Copies that have begun.
#[derive(Debug, Default)]
struct BegunCopies {
    /// To the host, for reads to come.
    fetched: Vec<Fetched>,
    /// To the device, oldest first.
    writing: VecDeque<Writing>,
    /// Bytes that are being written.
    writing_bytes: usize,
}

#[derive(Debug)]
struct Fetched {
    /// Bytes `start..start + stage.len` of the stream.
    start: usize,
    stage: HostStage,
    ticket: Ticket,
}

#[derive(Debug)]
struct Writing {
    stage: HostStage,
    ticket: Ticket,
}

impl DeviceMemory {
    pub fn new(mover: Arc<dyn Mover>, places: DevicePlaces) -> Self {
        Self { mover, places, begun: Mutex::default() }
    }

    pub fn places(&self) -> &DevicePlaces {
        &self.places
    }

    pub fn mover(&self) -> &Arc<dyn Mover> {
        &self.mover
    }

    /// Begins a copy of bytes from `offset` on.
    ///
    /// # Safety
    /// So many bytes of host memory are valid until the copy is finished, and nobody else uses them.
    unsafe fn begin(
        &self,
        direction: CopyDirection,
        offset: usize,
        host: *mut u8,
        len: usize,
    ) -> Ticket {
        let (mut pieces, mut next) = (Vec::<CopyPiece>::new(), host);
        let mut add = |Span { address, len }| {
            match pieces.last_mut() {
                Some(CopyPiece { device, len: before, .. })
                    if device.wrapping_add(*before) == address =>
                {
                    *before += len;
                }
                _ => pieces.push(CopyPiece { device: address, host: next, len }),
            }
            next = next.wrapping_add(len);
            true
        };
        match &self.places {
            DevicePlaces::Flat(address) => {
                add(Span { address: address.wrapping_add(offset), len });
            }
            DevicePlaces::Strided { base, layout } => {
                Strided { base: *base, layout, offset, len }.visit(add);
            }
        }
        // SAFETY: the region's maker guaranteed the device's memory, and the caller the host's.
        unsafe { self.mover.begin(direction, &pieces) }
    }

    /// Copies bytes `offset..offset + len` of the stream to host memory.
    ///
    /// # Safety
    /// So many bytes at `host` are writable.
    pub unsafe fn read(&self, offset: usize, host: *mut u8, len: usize) {
        let mut begun = self.begun();
        self.finish_writes(&mut begun, 0);
        let holds =
            |one: &Fetched| one.start <= offset && offset + len <= one.start + one.stage.len;
        if let Some(at) = begun.fetched.iter().position(holds) {
            let one = &begun.fetched[at];
            self.mover.finish(one.ticket);
            // SAFETY: the entry holds the bytes, and the caller vouched for the target, which is no stage.
            unsafe {
                copy_few(one.stage.address.wrapping_add(offset - one.start), host, len);
            }
            if offset + len == one.start + one.stage.len {
                begun.fetched.swap_remove(at);
            }
            return;
        }
        drop(begun);
        // SAFETY: the caller vouched for the memory, and the copy is finished here.
        let ticket = unsafe { self.begin(CopyDirection::ToHost, offset, host, len) };
        self.mover.finish(ticket);
    }

    /// Takes the copy of exactly these bytes, if one has begun, and waits for its end.
    pub fn take_fetched(&self, offset: usize, len: usize) -> Option<HostStage> {
        let mut begun = self.begun();
        let is_it = |one: &Fetched| (one.start, one.stage.len) == (offset, len);
        let at = begun.fetched.iter().position(is_it)?;
        let Fetched { stage, ticket, .. } = begun.fetched.swap_remove(at);
        self.mover.finish(ticket);
        Some(stage)
    }

    /// Copies host memory over bytes `offset..offset + len` of the stream.
    ///
    /// # Safety
    /// So many bytes at `host` are readable.
    pub unsafe fn write(&self, offset: usize, host: *mut u8, len: usize) {
        // SAFETY: the caller vouched for the memory, and the copy is finished here.
        let ticket = unsafe { self.begin(CopyDirection::ToDevice, offset, host, len) };
        self.mover.finish(ticket);
    }

    /// Begins to copy bytes of the stream to the host, for a read to come.
    pub fn fetch(&self, offset: usize, len: usize) {
        let mut begun = self.begun();
        if len == 0 || len > STAGE_MAX || begun.fetched.len() == FETCHES_MAX {
            return;
        }
        let Some(stage) = self.mover.stage(len) else { return };
        self.finish_writes(&mut begun, 0);
        // SAFETY: the stage is this entry's, which is dropped when the copy is finished.
        let ticket = unsafe { self.begin(CopyDirection::ToHost, offset, stage.address, len) };
        begun.fetched.push(Fetched { start: offset, stage, ticket });
    }

    /// Begins to copy bytes over those of the stream from `offset` on. [`DeviceMemory::settle`] ends it.
    pub fn begin_write(&self, offset: usize, source: &[u8]) {
        let Some(stage) = self.mover.stage(source.len()).filter(|_| source.len() <= STAGE_MAX)
        else {
            // SAFETY: the slice is readable, and a copy to the device writes no host memory.
            return unsafe { self.write(offset, source.as_ptr().cast_mut(), source.len()) };
        };
        // SAFETY: the stage has room for as many bytes.
        unsafe { copy_few(source.as_ptr(), stage.address, source.len()) };
        let mut begun = self.begun();
        // SAFETY: the stage is this entry's, which is dropped when the copy is finished.
        let ticket =
            unsafe { self.begin(CopyDirection::ToDevice, offset, stage.address, source.len()) };
        begun.writing.push_back(Writing { stage, ticket });
        begun.writing_bytes += source.len();
        self.finish_writes(&mut begun, WRITING_MAX);
    }

    /// Ends all copies that have begun.
    pub fn settle(&self) {
        let mut begun = self.begun();
        self.finish_writes(&mut begun, 0);
        for one in begun.fetched.drain(..) {
            self.mover.finish(one.ticket);
        }
    }

    /// Finishes the oldest writes, until at most so many bytes are left.
    fn finish_writes(&self, begun: &mut BegunCopies, most: usize) {
        while begun.writing_bytes > most
            && let Some(Writing { stage, ticket }) = begun.writing.pop_front()
        {
            self.mover.finish(ticket);
            begun.writing_bytes -= stage.len;
        }
    }

    fn begun(&self) -> MutexGuard<'_, BegunCopies> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Longest piece that is copied by a stage.
const STAGE_MAX: usize = 1 << 20;
/// Pieces of one buffer that are fetched before they are read.
const FETCHES_MAX: usize = 4;
/// Bytes of one buffer that are written later.
const WRITING_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests;
