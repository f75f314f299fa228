//! Reading and writing (MPI-5.0 §14.4).

use std::ops::Range;
use std::sync::Arc;

use io::{Pattern, View};
use memory::Region;
use rma::LockKind;

use super::agreement::agree;
use super::object::File;
use super::pending::PendingTransfer;
use super::place::{AccessKind, At};
use super::representation::{Representation, TypedMemory, room};
use crate::request::{Request, Status};
use crate::{Error, ErrorClass, Result, exchange};

/// An access that is ready to run, on any thread.
#[derive(Debug)]
pub(super) struct FileTransfer {
    file: File,
    kind: AccessKind,
    view: View,
    /// First etype in the view.
    position: u64,
    /// The bytes of the file: the application's memory, or converted ones.
    memory: Region,
    is_atomic: bool,
    /// Bytes in the application's memory.
    native_len: usize,
    /// Elements to be converted once they are read.
    decoded: Option<(Representation, TypedMemory)>,
}

impl File {
    /// Reads or writes, and waits until the memory may be reused.
    ///
    /// # Errors
    /// The system's; the file is not open for this; the memory holds no whole number of etypes.
    pub fn access(&self, kind: AccessKind, at: At, memory: TypedMemory) -> Result<Status> {
        let transfer = self.prepare(kind, at, memory)?;
        let moved = transfer.run()?;
        if at == At::Own {
            self.correct_pointer(transfer.place(), moved);
        }
        Ok(status_of(transfer.finish(moved)?))
    }

    /// Begins to read or write.
    ///
    /// # Errors
    /// Those of [`File::access`] that are known at once.
    pub fn begin_access(&self, kind: AccessKind, at: At, memory: TypedMemory) -> Result<Request> {
        Ok(Request::Transfer(self.begin(self.prepare(kind, at, memory)?)))
    }

    /// [`File::access`] by all processes together (collective).
    ///
    /// # Errors
    /// Those of [`File::access`], on all processes alike.
    pub fn access_all(
        &self,
        kind: AccessKind,
        at: At,
        memory: Result<TypedMemory>,
    ) -> Result<Status> {
        let prepared = self.prepare_all(kind, at, memory);
        let place = prepared.as_ref().ok().map(|own| own.place());
        let (moved, bytes) = match at {
            // Data in the order of ranks are not interleaved.
            At::Ordered => {
                let done = prepared.and_then(|transfer| transfer.run_to_end());
                agree(&self.0.comm, kind.routine(), done)?
            }
            At::Offset(_) | At::Own | At::Shared => self.run_together(kind, prepared)?,
        };
        if let (At::Own, Some(place)) = (at, place) {
            self.correct_pointer(place, moved);
        }
        Ok(status_of(bytes))
    }

    /// [`File::begin_access`] by all processes together (collective).
    ///
    /// # Errors
    /// Those of [`File::begin_access`].
    pub fn begin_access_all(
        &self,
        kind: AccessKind,
        at: At,
        memory: TypedMemory,
    ) -> Result<Request> {
        self.check_collective()?;
        self.begin_access(kind, at, memory)
    }

    /// Makes an access of a collective call ready. Only that in the order of ranks communicates.
    pub(super) fn prepare_all(
        &self,
        kind: AccessKind,
        at: At,
        memory: Result<TypedMemory>,
    ) -> Result<FileTransfer> {
        let checked = memory.and_then(|memory| {
            self.check_collective()?;
            self.check_direction(kind)?;
            Ok(memory)
        });
        match at {
            At::Ordered => self.prepare_ordered(kind, checked),
            At::Offset(_) | At::Own | At::Shared => self.prepare(kind, at, checked?),
        }
    }

    /// Makes an access ready. Pointers move past it.
    fn prepare(&self, kind: AccessKind, at: At, memory: TypedMemory) -> Result<FileTransfer> {
        self.check_direction(kind)?;
        let etypes = self.etypes_of(&memory)?;
        let position = match at {
            At::Offset(offset) => {
                self.check_random()?;
                u64::try_from(offset)
                    .map_err(|_| Error::argument(format!("offset = {offset} is negative")))?
            }
            At::Own => {
                self.check_random()?;
                let mut state = self.state();
                let position = state.position;
                state.position = position.saturating_add(etypes);
                position
            }
            At::Shared | At::Ordered => self.0.shared.fetch_add(etypes as i64)?,
        };
        self.transfer(kind, position, memory)
    }

    /// Makes an access ready whose place depends on those of lower ranks (collective).
    fn prepare_ordered(
        &self,
        kind: AccessKind,
        memory: Result<TypedMemory>,
    ) -> Result<FileTransfer> {
        let (comm, routine) = (&self.0.comm, kind.routine());
        let counted = memory.and_then(|memory| {
            let etypes = self.etypes_of(&memory)?;
            Ok((memory, etypes))
        });
        let (memory, etypes) = agree(comm, routine, counted)?;
        let all = exchange::allgather(comm, routine, etypes.to_le_bytes())?;
        let sum = |ranks: &[[u8; 8]]| ranks.iter().map(|one| u64::from_le_bytes(*one)).sum::<u64>();
        let first = match comm.rank() {
            0 => self.0.shared.fetch_add(sum(&all) as i64),
            _ => Ok(0),
        };
        let first = agree(comm, routine, first)?;
        let first = u64::from_le_bytes(exchange::broadcast(comm, routine, first.to_le_bytes())?);
        self.transfer(kind, first + sum(&all[..comm.rank() as usize]), memory)
    }

    /// Makes an access ready that begins at a place of the view. Data to be written are converted.
    fn transfer(&self, kind: AccessKind, position: u64, own: TypedMemory) -> Result<FileTransfer> {
        let (view, representation, is_atomic) = self.shape();
        let native_len = own.memory.len();
        let (memory, decoded) = match kind {
            _ if representation.is_native() => (own.memory, None),
            AccessKind::Write => (representation.encode(&own)?, None),
            AccessKind::Read => {
                (room(representation.file_len(&own)?)?, Some((representation, own)))
            }
        };
        let stream = position.checked_mul(view.etype().size() as u64);
        if !stream.is_some_and(|stream| view.reaches(stream, memory.len())) {
            let (path, len) = (self.0.path.display(), memory.len());
            let message = match view.filetype().size() {
                0 => format!("{len} bytes of {path}, whose view has no bytes"),
                _ => {
                    format!(
                        "{len} bytes of {path} from etype {position} exceed the range of offsets"
                    )
                }
            };
            return Err(Error::argument(message));
        }
        let file = self.clone();
        Ok(FileTransfer { file, kind, view, position, memory, is_atomic, native_len, decoded })
    }

    /// The view, the representation and the atomicity of the next access.
    fn shape(&self) -> (View, Representation, bool) {
        let state = self.state();
        (state.view.clone(), state.representation.clone(), state.is_atomic)
    }

    /// Number of etypes that elements have in the file.
    fn etypes_of(&self, memory: &TypedMemory) -> Result<u64> {
        let (view, representation, _) = self.shape();
        let len = match representation.is_native() {
            true => memory.memory.len(),
            false => representation.file_len(memory)?,
        };
        let etype = view.etype().size();
        match len.checked_div(etype) {
            Some(etypes) if etypes * etype == len => Ok(etypes as u64),
            None if len == 0 => Ok(0),
            Some(_) | None => {
                let message = format!("{len} bytes are no whole number of etypes of {etype} bytes");
                Err(Error::new(ErrorClass::Type, message))
            }
        }
    }

    /// Moves the own pointer back to the end of what was read, unless another call has moved it.
    fn correct_pointer(&self, (position, etypes): (u64, u64), bytes: u64) {
        let mut state = self.state();
        let moved = bytes.checked_div(state.view.etype().size() as u64).unwrap_or(0);
        if state.position == position + etypes {
            state.position = position + moved;
        }
    }

    fn check_direction(&self, kind: AccessKind) -> Result<()> {
        match kind {
            AccessKind::Write => self.check_writable(),
            AccessKind::Read if self.0.mode.reads() => Ok(()),
            AccessKind::Read => {
                let message = format!("{} is open for writing only", self.0.path.display());
                Err(Error::new(ErrorClass::Access, message))
            }
        }
    }

    /// Runs an access on a thread of the pool.
    pub(super) fn begin(&self, transfer: FileTransfer) -> PendingTransfer {
        let process = Arc::clone(self.0.comm.process());
        let pending = PendingTransfer::new(self.handle());
        let end = pending.clone();
        let progress = Arc::clone(process.vci(crate::vci::Vci::FIRST));
        process.pool().run(move || {
            end.set(transfer.run().and_then(|moved| transfer.finish(moved)));
            // The memory is the application's again before it learns of the end.
            drop(transfer);
            progress.submit(|worker| end.announce(worker));
        });
        pending
    }
}

impl FileTransfer {
    /// Moves the data. Returns the number of bytes in the file.
    pub fn run(&self) -> Result<u64> {
        if !self.is_atomic {
            return self.run_unlocked();
        }
        let kind = match self.kind {
            AccessKind::Read => LockKind::Shared,
            AccessKind::Write => LockKind::Exclusive,
        };
        let shared = &self.file.0.shared;
        shared.lock(kind)?;
        let done = self.run_unlocked();
        shared.unlock(kind)?;
        done
    }

    /// Moves the data, and ends the access. Returns the numbers of bytes in the file and in memory.
    pub fn run_to_end(&self) -> Result<(u64, u64)> {
        let moved = self.run()?;
        Ok((moved, self.finish(moved)?))
    }

    fn run_unlocked(&self) -> Result<u64> {
        let Self { file, kind, view, memory, .. } = self;
        let stream = self.position * view.etype().size() as u64;
        let (store, pattern) = (&file.0.store, view.pattern());
        match kind {
            AccessKind::Read => store
                .read(pattern, stream, memory)
                .map(|bytes| bytes as u64)
                .map_err(|fault| file.fault("read", fault)),
            AccessKind::Write => store
                .write(pattern, stream, memory)
                .map(|()| memory.len() as u64)
                .map_err(|fault| file.fault("write", fault)),
        }
    }

    /// Ends an access that has moved so many bytes of the file: elements that were read are converted. Returns the number of
    /// bytes in the application's memory.
    pub fn finish(&self, moved: u64) -> Result<u64> {
        match &self.decoded {
            Some((representation, own)) => {
                representation.decode(&self.memory.slice(0, moved as usize), own)
            }
            None if moved == self.memory.len() as u64 => Ok(self.native_len as u64),
            None => Ok(moved),
        }
    }

    /// The first etype, and the number of etypes.
    fn place(&self) -> (u64, u64) {
        let bytes = self.memory.len() as u64;
        (self.position, bytes.checked_div(self.view.etype().size() as u64).unwrap_or(0))
    }

    /// The pattern of bytes of the file.
    pub fn pattern(&self) -> &Pattern {
        self.view.pattern()
    }

    /// The bytes of the pattern's stream.
    pub fn stream(&self) -> Range<u64> {
        let first = self.position * self.view.etype().size() as u64;
        first..first + self.memory.len() as u64
    }

    /// Memory for the bytes of the file.
    pub fn memory(&self) -> &Region {
        &self.memory
    }

    /// True if no other access may come between.
    pub fn is_atomic(&self) -> bool {
        self.is_atomic
    }
}

/// The status of an access.
pub(super) fn status_of(bytes: u64) -> Status {
    Status { bytes, ..Status::EMPTY }
}
