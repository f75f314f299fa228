//! Handles: an index and a generation, so that a stale or foreign one is recognised.

use lock::{Guard, Lock};

use crate::{Error, ErrorClass, Result};

/// A handle as the ABI carries it, in the 64 bits of a pointer:
/// `generation << 32 | 0x4000_0000 | index << 4 | kind`. Predefined objects are below `0x1000`.
///
/// The low 32 bits are a positive `int` of their own, for Fortran (`MPI_Comm_toint` and siblings).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Handle(pub u64);

/// What a handle refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A communicator.
    Comm = 1,
    /// A group.
    Group,
    /// A derived datatype.
    Datatype,
    /// A user-defined operation.
    Op,
    /// A request.
    Request,
    /// A matched message.
    Message,
    /// An error handler.
    Errhandler,
    /// An info object.
    Info,
    /// A session of the tool interface.
    ToolSession,
    /// A channel of the native interface.
    Channel,
    /// A message of the native interface being packed.
    Packing,
    /// A message of the native interface being unpacked.
    Unpacking,
}

impl Handle {
    /// Where handles of our own begin; smaller values are predefined constants of the ABI.
    pub const FIRST_DYNAMIC: u64 = 0x1000;

    /// Whether the value is one of the ABI's small constants.
    pub const fn is_predefined(self) -> bool {
        self.0 < Self::FIRST_DYNAMIC
    }

    /// The value as a Fortran integer.
    pub const fn to_int(self) -> i32 {
        self.0 as u32 as i32
    }

    const fn new(kind: Kind, index: usize, generation: u32) -> Self {
        Self((generation as u64) << 32 | MARK | (index as u64) << 4 | kind as u64)
    }

    const fn index_of(self, kind: Kind) -> Option<usize> {
        let low = self.0 & 0xffff_ffff;
        if low & 0xc000_000f != MARK | kind as u64 {
            return None;
        }
        Some(((low & !MARK) >> 4) as usize)
    }

    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The live objects of one kind.
#[derive(Debug)]
pub struct Table<T> {
    objects: Lock<Objects<T>>,
}

/// The objects of a table, while it is locked.
#[derive(Debug)]
pub struct Objects<T> {
    kind: Kind,
    class: ErrorClass,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    object: Option<T>,
}

impl<T> Objects<T> {
    /// Adds an object.
    ///
    /// # Errors
    /// `MPI_ERR_NO_MEM` when [`MAX_OBJECTS`] of the kind are alive.
    #[inline]
    pub fn insert(&mut self, object: T) -> Result<Handle> {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None => self.grow()?,
        };
        let slot = &mut self.slots[index];
        slot.object = Some(object);
        Ok(Handle::new(self.kind, index, slot.generation))
    }

    /// The object behind a handle.
    ///
    /// # Errors
    /// The table's class for a handle that is stale, of another kind, or was never one.
    #[inline]
    pub fn find(&mut self, handle: Handle) -> Result<&mut T> {
        let (kind, class) = (self.kind, self.class);
        let slot = handle.index_of(kind).and_then(|index| self.slots.get_mut(index));
        match slot {
            Some(Slot { generation, object: Some(object) })
                if *generation == handle.generation() =>
            {
                Ok(object)
            }
            Some(_) | None => Err(unknown(kind, class, handle)),
        }
    }

    /// Removes and returns the object behind a handle, which becomes stale.
    ///
    /// # Errors
    /// As [`Objects::find`].
    #[inline]
    pub fn remove(&mut self, handle: Handle) -> Result<T> {
        let index = handle.index_of(self.kind);
        let slot = index.and_then(|index| self.slots.get_mut(index));
        if let Some(slot) = slot.filter(|slot| slot.generation == handle.generation())
            && let Some(object) = slot.object.take()
            && let Some(index) = index
        {
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(index as u32);
            return Ok(object);
        }
        Err(unknown(self.kind, self.class, handle))
    }

    #[cold]
    fn grow(&mut self) -> Result<usize> {
        if self.slots.len() == MAX_OBJECTS {
            let message = format!("{MAX_OBJECTS} objects of this kind are alive; free some");
            return Err(Error::new(ErrorClass::NoMem, message));
        }
        self.slots.push(Slot { generation: 0, object: None });
        Ok(self.slots.len() - 1)
    }
}

impl<T> Table<T> {
    /// An empty table; unknown handles give an error of `class`.
    pub const fn new(kind: Kind, class: ErrorClass) -> Self {
        let objects = Objects { kind, class, slots: Vec::new(), free: Vec::new() };
        Self { objects: Lock::new(objects) }
    }

    /// The table, for several steps that belong together.
    #[inline]
    pub fn lock(&self) -> Guard<'_, Objects<T>> {
        self.objects.lock()
    }

    /// Adds an object.
    ///
    /// # Errors
    /// As [`Objects::insert`].
    #[inline]
    pub fn insert(&self, object: T) -> Result<Handle> {
        self.lock().insert(object)
    }

    /// A clone of the object behind a handle.
    ///
    /// # Errors
    /// As [`Objects::find`].
    #[inline]
    pub fn find(&self, handle: Handle) -> Result<T>
    where
        T: Clone,
    {
        self.lock().find(handle).map(|object| object.clone())
    }

    /// Removes and returns the object behind a handle, which becomes stale.
    ///
    /// # Errors
    /// As [`Objects::find`].
    pub fn remove(&self, handle: Handle) -> Result<T> {
        self.lock().remove(handle)
    }

    /// The handle whose low 32 bits are `value`, or the value itself where no object has it (it
    /// then fails at its use).
    pub fn from_int(&self, value: i32) -> Handle {
        let low = Handle(u64::from(value as u32));
        let table = self.lock();
        match low.index_of(table.kind).and_then(|index| table.slots.get(index)) {
            Some(slot) => Handle(u64::from(slot.generation) << 32 | low.0),
            None => low,
        }
    }

    /// How many objects are alive.
    pub fn len(&self) -> usize {
        let table = self.lock();
        table.slots.len() - table.free.len()
    }

    /// Whether no object is alive.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cold]
fn unknown(kind: Kind, class: ErrorClass, handle: Handle) -> Error {
    let message =
        format!("handle {:#x} is not a live {kind:?} (stale, freed, or of another kind)", handle.0);
    Error::new(class, message)
}

/// How many objects of one kind may be alive at once: 22 bits of a handle.
pub const MAX_OBJECTS: usize = 1 << 22;

const MARK: u64 = 0x4000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_or_foreign_handle_is_an_error() {
        let table = Table::new(Kind::Comm, ErrorClass::Comm);
        let first = table.insert(1).unwrap();
        assert_eq!(table.remove(first).unwrap(), 1);
        let second = table.insert(2).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.find(first).unwrap_err().class, ErrorClass::Comm);
        assert_eq!(table.find(second).unwrap(), 2);
        let groups = Table::<i32>::new(Kind::Group, ErrorClass::Group);
        assert_eq!(groups.find(second).unwrap_err().class, ErrorClass::Group);
        assert!(table.remove(Handle(0x101)).is_err());
    }

    #[test]
    fn the_fortran_integer_leads_back_to_the_handle() {
        let table = Table::new(Kind::Datatype, ErrorClass::Type);
        let stale = table.insert(0).unwrap();
        table.remove(stale).unwrap();
        let handle = table.insert(7).unwrap();
        assert!(handle.to_int() > 0);
        assert_eq!(table.from_int(handle.to_int()), handle);
    }
}
