//! File pointers (MPI-5.0 §14.4.3, §14.4.4).

use coll::Routine;

use super::agreement::{agree, agree_on};
use super::object::File;
use crate::{Error, ErrorClass, Result};

/// Origin of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The beginning of the view.
    Set,
    /// The pointer.
    Current,
    /// The end of the file.
    End,
}

impl File {
    /// Moves the own pointer.
    ///
    /// # Errors
    /// A place before the view.
    pub fn seek(&self, offset: i64, whence: Whence) -> Result<()> {
        self.check_random()?;
        let current = self.state().position;
        let position = self.target_of(offset, whence, || Ok(current))?;
        self.state().position = position;
        Ok(())
    }

    /// The own pointer, in etypes from the beginning of the view.
    ///
    /// # Errors
    /// The file is sequential.
    pub fn position(&self) -> Result<u64> {
        self.check_random()?;
        Ok(self.state().position)
    }

    /// Moves the shared pointer (collective).
    ///
    /// # Errors
    /// Arguments that differ between processes, or a place before the view; on all processes alike.
    pub fn seek_shared(&self, offset: i64, whence: Result<Whence>) -> Result<()> {
        let (comm, shared) = (&self.0.comm, &self.0.shared);
        let whence = self.check_random().and(self.check_collective()).and(whence);
        let argument = (offset as u64) << 2 ^ whence.as_ref().map_or(0, |whence| *whence as u64);
        let whence = agree_on(comm, Routine::FileSeekShared, argument, whence)?;
        let moved = match comm.rank() {
            0 => {
                self.target_of(offset, whence, || shared.fetch_add(0)).and_then(|to| shared.set(to))
            }
            _ => Ok(()),
        };
        agree(comm, Routine::FileSeekShared, moved)
    }

    /// The shared pointer, in etypes from the beginning of the view.
    ///
    /// # Errors
    /// The file is sequential, or rank 0 has failed.
    pub fn shared_position(&self) -> Result<u64> {
        self.check_random()?;
        self.0.shared.fetch_add(0)
    }

    /// The byte of the file at a place in the view, which counts etypes.
    ///
    /// # Errors
    /// A place before the view, or beyond the range of offsets.
    pub fn byte_offset(&self, offset: i64) -> Result<i64> {
        self.check_random()?;
        let state = self.state();
        let outside = || Error::argument(format!("offset = {offset} is outside the view"));
        let etypes = u64::try_from(offset).map_err(|_| outside())?;
        let stream = etypes.checked_mul(state.view.etype().size() as u64).ok_or_else(outside)?;
        state.view.byte_offset(stream).ok_or_else(outside)
    }

    /// Checks that the file may be accessed in any order.
    pub(super) fn check_random(&self) -> Result<()> {
        match self.0.mode.is_sequential() {
            false => Ok(()),
            true => {
                let message = "the file is open in MPI_MODE_SEQUENTIAL, which permits the shared \
                               file pointer only";
                Err(Error::new(ErrorClass::UnsupportedOperation, message))
            }
        }
    }

    fn target_of(
        &self,
        offset: i64,
        whence: Whence,
        current: impl FnOnce() -> Result<u64>,
    ) -> Result<u64> {
        let origin = match whence {
            Whence::Set => 0,
            Whence::Current => current()?,
            Whence::End => self.state().view.etypes_before(self.size()?),
        };
        let position = (origin as i64).checked_add(offset).and_then(|at| u64::try_from(at).ok());
        let before = || Error::argument(format!("offset = {offset} leads outside the view"));
        position.ok_or_else(before)
    }
}
