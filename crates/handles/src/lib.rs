//! Handles of objects, as the C interfaces pass them: an index and a generation, so that a stale or foreign one is
//! recognised.
#![forbid(unsafe_code)]

use std::fmt;

use lock::{Guard, Lock};

/// The result of a look-up.
pub type Result<T> = std::result::Result<T, TableError>;

/// Failure of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The handle names no live object of this kind.
    Unknown(Kind, Handle),
    /// [`MAX_OBJECTS`] objects of this kind are alive.
    Full(Kind),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(kind, Handle(handle)) => write!(
                f,
                "handle {handle:#x} is not a live {kind:?} (stale, freed, or of another kind)"
            ),
            Self::Full(_) => write!(f, "{MAX_OBJECTS} objects of this kind are alive; free some"),
        }
    }
}

impl std::error::Error for TableError {}

/// A handle as the ABI carries it, in the 64 bits of a pointer:
/// `generation << 32 | 0x4000_0000 | index << 4 | kind`, the index of 25 bits. Predefined objects are below `0x1000`.
///
/// The low 32 bits are a positive `int` of their own, for Fortran (`MPI_Comm_toint` and siblings).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Handle(pub u64);

/// Kind of object behind a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A window.
    Window = 0,
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
    /// A session, or an object of the tool interface.
    Tool,
    /// A channel of the native interface.
    Channel,
    /// A message of the native interface being packed or unpacked.
    MadMessage,
    /// A file.
    File,
    /// A send of the engine's, in its table of operations.
    Send,
    /// A receive of the engine's, in its table of operations.
    Receive,
    /// A request that was complete when it began. All of them share handles.
    Done,
}

impl Handle {
    /// Lowest handle of our own; smaller values are predefined constants of the ABI.
    pub const FIRST_DYNAMIC: u64 = 0x1000;

    /// True if the value is a predefined constant of the ABI.
    pub const fn is_predefined(self) -> bool {
        self.0 < Self::FIRST_DYNAMIC
    }

    /// The value as a Fortran integer.
    pub const fn to_int(self) -> i32 {
        self.0 as u32 as i32
    }

    /// The first handle of a slot.
    pub const fn new(kind: Kind, index: usize) -> Self {
        Self(MARK | (index as u64) << 4 | kind as u64)
    }

    /// The handle of the same slot in this generation.
    pub const fn again(self, generation: u32) -> Self {
        Self(self.0 as u32 as u64 | (generation as u64) << 32)
    }

    /// Number of earlier objects in this slot (generation).
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// True if the handle is of this kind.
    #[inline]
    pub const fn is_of(self, kind: Kind) -> bool {
        self.0 as u32 & !(INDEX_MASK as u32) == MARK as u32 | kind as u32
    }

    /// Index of the object's slot, counted over all tables of its kind.
    pub const fn index(self) -> usize {
        (self.0 as usize & INDEX_MASK) >> 4
    }

    /// The handle of the next object in the same place.
    const fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << 32))
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
    /// Index of the first slot: tables of one kind share a range of indices.
    first: usize,
    slots: Vec<Slot<T>>,
    /// The first free slot; [`NONE`] if all are in use.
    free: u32,
    live: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// Handle of the object here, or of the next one if the slot is free.
    handle: Handle,
    /// The free slot after this one.
    next_free: u32,
    object: Option<T>,
}

impl<T> Objects<T> {
    /// Adds an object.
    ///
    /// # Errors
    /// [`TableError::Full`].
    #[inline(always)]
    pub fn insert(&mut self, object: T) -> Result<Handle> {
        if self.free == NONE {
            self.grow()?;
        }
        let slot = &mut self.slots[self.free as usize];
        self.free = slot.next_free;
        self.live += 1;
        // A free slot has nothing to drop.
        std::mem::forget(slot.object.replace(object));
        Ok(slot.handle)
    }

    /// The object behind a handle.
    ///
    /// # Errors
    /// [`TableError::Unknown`] for a handle that is stale, of another kind, or was never one.
    #[inline]
    pub fn find(&mut self, handle: Handle) -> Result<&mut T> {
        let kind = self.kind;
        let place = self.place(handle);
        match self.slots.get_mut(place) {
            Some(Slot { handle: known, object: Some(object), .. }) if *known == handle => {
                Ok(object)
            }
            Some(_) | None => Err(TableError::Unknown(kind, handle)),
        }
    }

    /// Applies `question` to the object behind a handle. Drops the object, and makes the handle stale, if `is_last` is true
    /// for the answer.
    ///
    /// # Errors
    /// As [`Objects::find`].
    #[inline(always)]
    pub fn ask<A>(
        &mut self,
        handle: Handle,
        question: impl FnOnce(&mut T) -> A,
        is_last: impl FnOnce(&A) -> bool,
    ) -> Result<A> {
        let at = self.place(handle);
        let Some(Slot { handle: known, next_free, object }) = self.slots.get_mut(at) else {
            return Err(TableError::Unknown(self.kind, handle));
        };
        let Some(asked) = object.as_mut().filter(|_| *known == handle) else {
            return Err(TableError::Unknown(self.kind, handle));
        };
        let answer = question(asked);
        if is_last(&answer) {
            *object = None;
            *known = handle.next();
            *next_free = self.free;
            self.free = at as u32;
            self.live -= 1;
        }
        Ok(answer)
    }

    /// Removes and returns the object behind a handle, which becomes stale.
    ///
    /// # Errors
    /// As [`Objects::find`].
    #[inline]
    pub fn remove(&mut self, handle: Handle) -> Result<T> {
        self.find(handle)?;
        let at = self.place(handle);
        let slot = &mut self.slots[at];
        slot.handle = handle.next();
        slot.next_free = self.free;
        self.free = at as u32;
        self.live -= 1;
        slot.object.take().ok_or(TableError::Unknown(self.kind, handle))
    }

    /// Returns the slot of a handle's object, if it is in this table.
    #[inline(always)]
    fn place(&self, handle: Handle) -> usize {
        handle.index().wrapping_sub(self.first)
    }

    /// Makes room for another object.
    #[cold]
    fn grow(&mut self) -> Result<()> {
        let place = self.slots.len();
        if place == MAX_OBJECTS {
            return Err(TableError::Full(self.kind));
        }
        let handle = Handle::new(self.kind, self.first + place);
        self.slots.push(Slot { handle, next_free: NONE, object: None });
        self.free = place as u32;
        Ok(())
    }
}

impl<T> Table<T> {
    /// An empty table.
    pub const fn new(kind: Kind) -> Self {
        Self::part(kind, 0)
    }

    /// An empty table, number `part` of several that share the indices of a kind.
    pub const fn part(kind: Kind, part: usize) -> Self {
        let slots = Vec::new();
        let objects = Objects { kind, first: part * MAX_OBJECTS, slots, free: NONE, live: 0 };
        Self { objects: Lock::new(objects) }
    }

    /// Locks the table, for several steps that belong together.
    #[inline]
    pub fn lock(&self) -> Guard<'_, Objects<T>> {
        self.objects.lock()
    }

    /// Adds an object.
    ///
    /// # Errors
    /// As [`Objects::insert`].
    #[inline(always)]
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

    /// Drops all objects, whose handles become stale.
    pub fn clear(&self) {
        let mut objects = self.lock();
        let live =
            objects.slots.iter().filter(|slot| slot.object.is_some()).map(|slot| slot.handle);
        let removed: Vec<T> = live
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|handle| objects.remove(handle).ok())
            .collect();
        drop(objects);
        // Without the lock: the end of an object may look up others.
        drop(removed);
    }

    /// The handle whose low 32 bits are `value`, or the value itself where no object has it (it
    /// then fails at its use).
    pub fn from_int(&self, value: i32) -> Handle {
        let low = Handle(u64::from(value as u32));
        let objects = self.lock();
        let known = objects.slots.get(objects.place(low)).map(|slot| slot.handle);
        known.filter(|known| known.to_int() == value).unwrap_or(low)
    }

    /// A clone of the first object of which this is true.
    pub fn find_where(&self, is_it: impl Fn(&T) -> bool) -> Option<T>
    where
        T: Clone,
    {
        let objects = self.lock();
        let mut live = objects.slots.iter().filter_map(|slot| slot.object.as_ref());
        live.find(|object| is_it(object)).cloned()
    }

    /// Number of live objects.
    pub fn len(&self) -> usize {
        self.lock().live
    }

    /// True if there are no live objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Maximum number of live objects per table: 22 bits of a handle.
pub const MAX_OBJECTS: usize = 1 << 22;

const MARK: u64 = 0x4000_0000;
const INDEX_MASK: usize = 0x1fff_fff0;
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_stale_or_foreign_handle_is_an_error() {
        let table = Table::new(Kind::Comm);
        let first = table.insert(1).unwrap();
        assert_eq!(table.remove(first).unwrap(), 1);
        let second = table.insert(2).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.find(first).unwrap_err(), TableError::Unknown(Kind::Comm, first));
        assert_eq!(table.find(second).unwrap(), 2);
        let groups = Table::<i32>::new(Kind::Group);
        assert_eq!(groups.find(second).unwrap_err(), TableError::Unknown(Kind::Group, second));
        assert!(table.remove(Handle(0x101)).is_err());
    }

    #[test]
    fn a_cleared_table_has_no_objects_and_knows_no_handle_of_before() {
        let table = Table::new(Kind::Channel);
        let handles: Vec<_> =
            (0..3).map(|object| table.insert(Arc::new(object)).unwrap()).collect();
        let held = table.find(handles[1]).unwrap();
        table.remove(handles[0]).unwrap();
        table.clear();
        assert!(table.is_empty());
        assert_eq!(Arc::strong_count(&held), 1, "dropped here");
        let again: Vec<_> = (0..3).map(|object| table.insert(Arc::new(object)).unwrap()).collect();
        assert!(handles.iter().all(|handle| table.find(*handle).is_err()), "stale");
        assert!(again.iter().all(|handle| table.find(*handle).is_ok()));
    }

    #[test]
    fn the_fortran_integer_leads_back_to_the_handle() {
        let table = Table::new(Kind::Datatype);
        let stale = table.insert(0).unwrap();
        table.remove(stale).unwrap();
        let handle = table.insert(7).unwrap();
        assert!(handle.to_int() > 0);
        assert_eq!(table.from_int(handle.to_int()), handle);
    }
}
