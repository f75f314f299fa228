//! Decoding of request handles. The handle of an engine operation contains its identifier, so that no table is needed
//! between the two.

use engine::OpId;
use handles::{Handle, Kind, MAX_OBJECTS, TableError};
use progress::{Progress, Worker};

use super::requests::REQUESTS;
use super::{Done, Ended, NULL, Operation, Status};
use crate::process::Process;
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result};

/// Contents of a handle; the request may not exist.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    /// `MPI_REQUEST_NULL`.
    Null,
    /// Complete when it was started.
    Done(Done),
    /// An operation of the engine's.
    Operation(NamedOperation),
    /// A request in the table of a VCI, if it exists.
    Stored(Vci),
}

/// An operation that a handle names; the engine knows whether there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedOperation {
    handle: Handle,
    pub op: OpId,
    pub vci: Vci,
    receives: bool,
}

impl Named {
    #[inline(always)]
    pub fn of(handle: Handle) -> Self {
        let vci = Vci::numbered(handle.index() / MAX_OBJECTS);
        if handle.is_of(Kind::Receive) || handle.is_of(Kind::Send) {
            let place = (handle.index() % MAX_OBJECTS) as u64;
            let op = OpId::from_bits(u64::from(handle.generation()) << 32 | place);
            let receives = handle.is_of(Kind::Receive);
            return Self::Operation(NamedOperation { handle, op, vci, receives });
        }
        match handle {
            NULL => Self::Null,
            SENT => Self::Done(Done::Sent),
            NOBODYS => Self::Done(Done::OfNobody),
            _ => Self::Stored(vci),
        }
    }

    /// The vci that it is in; none where any vci tells of its end.
    #[inline]
    pub fn vci(&self) -> Option<Vci> {
        match self {
            Self::Null | Self::Done(_) => None,
            Self::Operation(named) => Some(named.vci),
            Self::Stored(vci) => Some(*vci),
        }
    }
}

impl NamedOperation {
    /// The communication that it is under way in, if it is one.
    #[inline]
    pub fn progress(self, process: &Process) -> Result<&Progress> {
        if self.vci.number() < process.vcis() {
            Ok(process.vci(self.vci))
        } else {
            Err(unknown(self.handle))
        }
    }

    /// Its end, once, if it is there.
    #[inline(always)]
    pub fn end(self, worker: &mut Worker) -> Result<Option<Ended>> {
        let taken = worker.take_noted_or_await(self.op);
        let Some((completion, note)) = taken.ok_or_else(|| unknown(self.handle))? else {
            let may_be_held_up = worker.engine.may_be_held_up(self.op);
            return if may_be_held_up { self.held_up(worker) } else { Ok(None) };
        };
        let (status, error) = self.operation(note).interpret(completion, worker);
        Ok(Some(Ended { status, ending: error.into(), freed: true }))
    }

    #[cold]
    fn held_up(self, worker: &mut Worker) -> Result<Option<Ended>> {
        self.known(worker).map(|operation| operation.held_up(worker))
    }

    /// The status if it has ended, which is left as it is.
    pub fn peek(self, worker: &mut Worker) -> Result<Option<Status>> {
        self.known(worker).map(|operation| operation.peek(worker))
    }

    /// The operation, if it is one that has not been told the end of.
    pub fn known(self, worker: &Worker) -> Result<Operation> {
        let note = worker.engine.noted(self.op);
        note.map(|note| self.operation(note)).ok_or_else(|| unknown(self.handle))
    }

    #[inline]
    fn operation(self, note: u64) -> Operation {
        let Self { op, vci, receives, .. } = self;
        Operation { op, receives, vci, comm: Handle(note) }
    }
}

impl Operation {
    /// Its handle.
    ///
    /// # Errors
    /// When more operations are under way than handles can tell apart.
    #[inline]
    pub(super) fn handle(&self) -> Result<Handle> {
        let (bits, kind) =
            (self.op.to_bits(), if self.receives { Kind::Receive } else { Kind::Send });
        let place = bits as u32 as usize;
        if place >= MAX_OBJECTS {
            return Err(too_many());
        }
        Ok(Handle::new(kind, self.vci.number() * MAX_OBJECTS + place).again((bits >> 32) as u32))
    }
}

impl Done {
    /// The handle of all that are so.
    pub(super) fn handle(self) -> Handle {
        match self {
            Self::Sent => SENT,
            Self::OfNobody => NOBODYS,
        }
    }
}

/// The handle whose Fortran integer is `value`, or one that names nothing where there is none. Operations exist in an
/// initialised process only.
pub fn from_int(process: Option<&Process>, value: i32) -> Handle {
    let low = Handle(u64::from(value as u32));
    match Named::of(low) {
        Named::Null | Named::Done(_) => low,
        Named::Stored(vci) => REQUESTS.of(vci).from_int(value),
        Named::Operation(named) => {
            let place = named.op.to_bits() as u32;
            let progress = process.and_then(|process| named.progress(process).ok());
            let known = progress.and_then(|it| it.look(|worker| worker.engine.noted_at(place)));
            known.map_or(low, |op| low.again((op.to_bits() >> 32) as u32))
        }
    }
}

#[cold]
pub(super) fn unknown(handle: Handle) -> Error {
    TableError::Unknown(Kind::Request, handle).into()
}

#[cold]
fn too_many() -> Error {
    let message = format!("{MAX_OBJECTS} operations are under way; complete some");
    Error::new(ErrorClass::NoMem, message)
}

const SENT: Handle = Handle::new(Kind::Done, 0);
const NOBODYS: Handle = Handle::new(Kind::Done, 1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_handle_says_which_operation_it_is_of(
            place in 0..MAX_OBJECTS as u64, generation: u32, vci in 0..8usize, receives: bool,
        ) {
            let op = OpId::from_bits(u64::from(generation) << 32 | place);
            let vci = Vci::numbered(vci);
            let operation = Operation { op, receives, vci, comm: Handle(0x101) };
            let handle = operation.handle().unwrap();
            prop_assert!(handle.to_int() > 0 && !handle.is_predefined());
            let Named::Operation(named) = Named::of(handle) else { panic!("it is one") };
            prop_assert_eq!((named.op, named.vci, named.receives), (op, vci, receives));
        }

        #[test]
        fn whatever_names_no_operation_is_looked_for_in_a_table(handle: u64) {
            let is_marked = handle as u32 >> 29 == 2;
            let is_operation = is_marked && [13, 14].contains(&(handle & 0xf));
            match Named::of(Handle(handle)) {
                Named::Operation(_) => prop_assert!(is_operation),
                Named::Stored(_) => prop_assert!(!is_operation),
                Named::Null | Named::Done(_) => prop_assert!(false, "which are a few of 2^64"),
            }
        }
    }

    #[test]
    fn handles_tell_complete_requests_from_operations() {
        for done in [Done::Sent, Done::OfNobody] {
            assert!(matches!(Named::of(done.handle()), Named::Done(known) if known == done));
        }
        assert!(matches!(Named::of(NULL), Named::Null));
        let op = OpId::from_bits(MAX_OBJECTS as u64);
        let operation = Operation { op, receives: true, vci: Vci::FIRST, comm: Handle(0x101) };
        assert_eq!(operation.handle().unwrap_err().class, ErrorClass::NoMem);
    }
}
