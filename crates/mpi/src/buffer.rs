//! Buffers for buffered sends (MPI-5.0 §3.6): of the process, and of communicators.
//!
//! The bytes of an attached buffer are counted, not used: the library keeps its own copies. Locks are
//! taken in one order, the worker's first and then the buffer.

use std::sync::Arc;

use engine::{Envelope, OpId, SendMode};
use lock::{Guard, Lock};
use memory::Region;
use progress::Worker;
use runtime::Instance;
use wire::PeerId;

use crate::vci::{Vci, VciSet};
use crate::{Error, ErrorClass, Result};

/// A place where a buffer can be attached. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct Place(Arc<Lock<Option<Attached>>>);

/// A buffer that the application lends, or that the library makes as it needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Memory of the application.
    Lent {
        /// Address of the buffer.
        address: usize,
        /// Length in bytes.
        bytes: usize,
    },
    /// `MPI_BUFFER_AUTOMATIC`.
    Automatic,
}

#[derive(Debug)]
struct Attached {
    buffer: Buffer,
    /// In the order of their serial numbers.
    sends: Vec<Sent>,
    /// Bytes of the buffer that they take.
    used: usize,
    /// Number of sends so far.
    serial: u64,
    /// With so many sends in the list it is looked through.
    look_at: usize,
}

/// A message that may be on its way still.
#[derive(Clone, Copy, Debug)]
struct Sent {
    vci: Vci,
    op: OpId,
    bytes: usize,
    serial: u64,
}

/// Waits for the messages that were in a buffer when it was made.
#[derive(Clone, Debug)]
pub struct Flush {
    place: Place,
    before: u64,
}

impl Place {
    /// Attaches a buffer.
    ///
    /// # Errors
    /// `MPI_ERR_BUFFER` when one is attached already.
    pub fn attach(&self, buffer: Buffer) -> Result<()> {
        let mut attached = self.lock();
        if attached.is_some() {
            return Err(Error::new(ErrorClass::Buffer, "a buffer is attached already"));
        }
        *attached = Some(Attached {
            buffer,
            sends: Vec::new(),
            used: 0,
            serial: 0,
            look_at: LOOK_AT_LEAST,
        });
        Ok(())
    }

    /// Waits until all messages in the buffer have left, and gives it back.
    ///
    /// # Errors
    /// `MPI_ERR_BUFFER` when none is attached.
    pub fn detach(&self, instance: &Instance) -> Result<Buffer> {
        let flush = self.begin_flush();
        if self.lock().is_none() {
            return Err(nothing_to_detach());
        }
        // What other threads sent meanwhile goes with the buffer.
        let take =
            |vci, worker: &mut Worker| flush.is_done(vci, worker).then(|| self.lock().take());
        let taken = instance.wait_in(VciSet::all(instance.vcis()), take);
        taken.map(|attached| attached.buffer).ok_or_else(nothing_to_detach)
    }

    /// Gives the buffer of a session back that has not communicated.
    ///
    /// # Errors
    /// `MPI_ERR_BUFFER` when none is attached.
    pub fn take(&self) -> Result<Buffer> {
        self.lock().take().map(|attached| attached.buffer).ok_or_else(nothing_to_detach)
    }

    /// Waits until all messages that are in the buffer have left.
    pub fn flush(&self, instance: &Instance) {
        let flush = self.begin_flush();
        let all = VciSet::all(instance.vcis());
        instance.wait_in(all, |vci, worker| flush.is_done(vci, worker).then_some(()));
    }

    /// A wait for the messages that are in the buffer now.
    pub fn begin_flush(&self) -> Flush {
        let before = self.lock().as_ref().map_or(0, |attached| attached.serial);
        Flush { place: self.clone(), before }
    }

    /// Sends a copy of the data in a VCI, which counts in this buffer until it has left.
    pub(crate) fn send(
        &self,
        (instance, vci): (&Instance, Vci),
        (peer, envelope): (PeerId, Envelope),
        data: &Region,
    ) -> Result<()> {
        self.check_length(data.len())?;
        let full = || Error::new(ErrorClass::NoMem, format!("no memory for {} bytes", data.len()));
        let copy = Region::scratch(data.len()).ok_or_else(full)?;
        copy.copy_from(data);
        let send = |worker: &mut Worker| {
            let mut attached = self.lock();
            let attached = attached.as_mut().ok_or_else(not_attached)?;
            let bytes = data.len() + BSEND_OVERHEAD;
            attached.reserve(bytes, vci, worker)?;
            let op = worker.engine.submit_send(peer, envelope, &copy, SendMode::Standard);
            attached.used += bytes;
            attached.sends.push(Sent { vci, op, bytes, serial: attached.serial });
            attached.serial += 1;
            Ok(())
        };
        let sent = instance.vci(vci).submit(send);
        if sent.is_ok() || instance.vcis() == 1 {
            return sent;
        }
        // There may be room where messages of other vcis have left.
        for other in VciSet::all(instance.vcis()).iter().filter(|other| *other != vci) {
            let forget = |worker: &mut Worker| {
                self.lock().iter_mut().for_each(|attached| attached.forget_complete(other, worker));
            };
            instance.vci(other).test(forget);
        }
        instance.vci(vci).submit(send)
    }

    /// Checks that a buffer is attached, and would hold a message of this length if it were empty.
    fn check_length(&self, len: usize) -> Result<()> {
        match self.lock().as_ref().map(|attached| attached.buffer) {
            None => Err(not_attached()),
            Some(Buffer::Automatic) => Ok(()),
            Some(Buffer::Lent { bytes, .. }) => {
                let needed = len.saturating_add(BSEND_OVERHEAD);
                if needed > bytes { Err(too_long(needed, bytes, bytes)) } else { Ok(()) }
            }
        }
    }

    /// True if a buffer is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> Guard<'_, Option<Attached>> {
        self.0.lock()
    }
}

impl Flush {
    /// True if the messages have been sent, as far as known: each VCI's worker must be asked for its own.
    pub(crate) fn is_done(&self, vci: Vci, worker: &mut Worker) -> bool {
        let mut attached = self.place.lock();
        let Some(attached) = attached.as_mut() else { return true };
        attached.forget_before(self.before, vci, worker);
        attached.sends.first().is_none_or(|sent| sent.serial >= self.before)
    }
}

impl Attached {
    fn forget_complete(&mut self, vci: Vci, worker: &mut Worker) {
        let Self { sends, used, .. } = self;
        sends.retain(|sent| {
            let is_under_way = sent.vci != vci || worker.engine.take(sent.op).is_none();
            *used -= if is_under_way { 0 } else { sent.bytes };
            is_under_way
        });
        self.look_at = LOOK_AT_LEAST.max(2 * self.sends.len());
    }

    /// Forgets messages that have been sent, from the last before a serial number on until one has not: a wait for all
    /// of them looks at each once.
    fn forget_before(&mut self, before: u64, vci: Vci, worker: &mut Worker) {
        loop {
            let count = self.sends.partition_point(|sent| sent.serial < before);
            let Some(&sent) = self.sends[..count].last() else { return };
            if sent.vci != vci {
                return self.forget_complete(vci, worker);
            }
            if worker.engine.take(sent.op).is_none() {
                return;
            }
            self.sends.remove(count - 1);
            self.used -= sent.bytes;
        }
    }

    fn free_bytes(&self) -> usize {
        match self.buffer {
            Buffer::Automatic => usize::MAX,
            Buffer::Lent { bytes, .. } => bytes.saturating_sub(self.used),
        }
    }

    /// Makes room for a message.
    fn reserve(&mut self, needed: usize, vci: Vci, worker: &mut Worker) -> Result<()> {
        if self.sends.len() >= self.look_at || self.free_bytes() < needed {
            worker.advance();
            self.forget_complete(vci, worker);
        }
        match (self.buffer, self.free_bytes()) {
            (Buffer::Lent { bytes, .. }, free) if free < needed => {
                Err(too_long(needed, bytes, free))
            }
            (Buffer::Lent { .. } | Buffer::Automatic, _) => Ok(()),
        }
    }
}

#[cold]
fn nothing_to_detach() -> Error {
    Error::new(ErrorClass::Buffer, "no buffer is attached")
}

#[cold]
fn not_attached() -> Error {
    Error::new(ErrorClass::Buffer, "no buffer is attached for a buffered send")
}

#[cold]
fn too_long(needed: usize, bytes: usize, free: usize) -> Error {
    let message = format!(
        "a buffered send needs {needed} bytes, of the attached {bytes} only {free} are free"
    );
    Error::new(ErrorClass::Buffer, message)
}

/// `MPI_BSEND_OVERHEAD`.
const BSEND_OVERHEAD: usize = 512;

/// Length of the list that triggers a check for completed messages.
const LOOK_AT_LEAST: usize = 64;
