//! The shared file pointer and the lock of atomic accesses. Both live in a window of rank 0, whose progress thread serves
//! them.

use coll::Routine;
use datatype::{Builtin, Predefined};
use memory::Region;
use rma::{Combination, LockKind, TargetPlace, WindowMemory};

use crate::comm::Comm;
use crate::vci::Vci;
use crate::{Result, exchange};

/// A number that the processes of a file share, in etypes, and a lock.
#[derive(Debug)]
pub(super) struct SharedPointer(rma::Window);

impl SharedPointer {
    /// Makes the pointer (collective).
    pub fn open(comm: &Comm, position: u64) -> Result<Self> {
        let process = comm.process();
        let number = if comm.rank() == 0 { &position.to_le_bytes()[..] } else { &[] };
        let memory = WindowMemory::Own(Region::from_box(number.into()));
        let progress = process.vci(Vci::FIRST);
        let (mut window, card) =
            rma::Window::expose(progress, process.served(), comm.rank(), memory, 1);
        match exchange::allgather(comm, Routine::FileOpen, card) {
            Ok(cards) => {
                window.open(comm.group().iter().collect(), &cards);
                Ok(Self(window))
            }
            Err(error) => {
                window.close();
                Err(error)
            }
        }
    }

    /// Waits until rank 0 has taken note of all calls.
    pub fn flush(&self) -> Result<()> {
        Ok(self.0.flush_all()?)
    }

    /// Withdraws the pointer, which no process uses any more.
    pub fn close(&self) {
        self.0.close();
    }

    /// Adds to the pointer, and returns what it was.
    pub fn fetch_add(&self, etypes: i64) -> Result<u64> {
        self.update(etypes as u64, Predefined::Sum)
    }

    /// Sets the pointer.
    pub fn set(&self, position: u64) -> Result<()> {
        self.update(position, Predefined::Replace).map(drop)
    }

    /// Takes the lock; shared between those that read.
    pub fn lock(&self, kind: LockKind) -> Result<()> {
        Ok(self.0.lock(0, kind)?)
    }

    /// Releases the lock.
    pub fn unlock(&self, kind: LockKind) -> Result<()> {
        Ok(self.0.unlock(0, kind)?)
    }

    fn update(&self, value: u64, op: Predefined) -> Result<u64> {
        let (data, before) = (Region::from_box(value.to_le_bytes().into()), Region::owned(8));
        // Integers have sums and replacements.
        if let Some(combination) = Combination::find(Builtin::Int64T, op) {
            let place = TargetPlace::bytes(0, 0, 8);
            self.0.get_accumulate(Some(&data), &before, place, combination)?;
        }
        self.0.flush(0)?;
        let mut bytes = [0; 8];
        before.read(0, &mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }
}
