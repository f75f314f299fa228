//! Synchronization of windows (MPI-5.0 §12.5): calls that open and close epochs.

use memory::Region;
use rma::LockKind;

use super::object::Window;
use crate::group::Group;
use crate::point_to_point::{self, From, Mode};
use crate::{Error, ErrorClass, Result, collective};

impl Window {
    /// Completes all operations of all processes, and opens the next epoch if operations may follow (collective). An
    /// epoch without operations has nothing to complete, whatever `MPI_MODE_NOPRECEDE` says.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` while an epoch of another kind is open, and a peer failed.
    pub fn fence(&self, opens: bool) -> Result<()> {
        let is_used = self.0.epochs.look().check_fence()?;
        let flushed = if is_used { self.0.rma.flush_all() } else { Ok(()) };
        self.0.rma.sync();
        // The others wait for this process, whatever became of its operations.
        collective::barrier(&self.0.comm)?;
        self.0.rma.sync();
        self.0.epochs.change().fence(opens);
        Ok(flushed?)
    }

    /// Opens an access epoch for the members of a group, once each has posted. With `no_check`, all have.
    ///
    /// # Errors
    /// `MPI_ERR_GROUP` for a group with strangers, `MPI_ERR_RMA_SYNC` while an access epoch is open, and a peer failed.
    pub fn start(&self, group: &Group, no_check: bool) -> Result<()> {
        let targets = self.ranks_of(group)?;
        self.0.epochs.change().start(targets.clone())?;
        if no_check {
            return Ok(());
        }
        let posted = targets.iter().try_for_each(|&target| self.receive(target, POSTED));
        if posted.is_err() {
            self.0.epochs.change().close();
        }
        posted
    }

    /// Closes the access epoch of [`Window::start`].
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` without such an epoch, and a peer failed.
    pub fn complete(&self) -> Result<()> {
        let targets = self.0.epochs.look().started()?;
        let flushed = self.0.rma.flush_all();
        let told =
            targets.iter().map(|&target| self.send(target, COMPLETE)).fold(Ok(()), Result::and);
        self.0.epochs.change().close();
        flushed?;
        told
    }

    /// Exposes the window to the members of a group.
    ///
    /// # Errors
    /// `MPI_ERR_GROUP` for a group with strangers, `MPI_ERR_RMA_SYNC` while the window is exposed, and a peer failed.
    pub fn post(&self, group: &Group, no_check: bool) -> Result<()> {
        let origins = self.ranks_of(group)?;
        self.0.epochs.change().post(origins.clone())?;
        self.0.rma.sync();
        if no_check {
            return Ok(());
        }
        let told = origins.iter().try_for_each(|&origin| self.send(origin, POSTED));
        if told.is_err() {
            self.0.epochs.change().end_exposure();
        }
        told
    }

    /// Waits until all origins have completed their accesses, and ends the exposure.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` while the window is not exposed, and a peer failed.
    pub fn wait(&self) -> Result<()> {
        let awaited = self.0.epochs.look().awaited()?;
        for origin in awaited {
            self.receive(origin, COMPLETE)?;
            self.0.epochs.change().note_complete(origin);
        }
        self.end_exposure();
        Ok(())
    }

    /// True if all origins have completed their accesses, which ends the exposure.
    ///
    /// # Errors
    /// As [`Window::wait`].
    pub fn test(&self) -> Result<bool> {
        let awaited = self.0.epochs.look().awaited()?;
        for origin in awaited {
            let (comm, from) = (&self.0.comm, From::Rank(origin));
            let found = point_to_point::immediate_probe(comm, from, Some(COMPLETE));
            if found.map_err(of_window)?.is_none() {
                return Ok(false);
            }
            self.receive(origin, COMPLETE)?;
            self.0.epochs.change().note_complete(origin);
        }
        self.end_exposure();
        Ok(true)
    }

    fn end_exposure(&self) {
        self.0.rma.sync();
        self.0.epochs.change().end_exposure();
    }

    /// Opens a passive target epoch for one target; none is `MPI_PROC_NULL`. With `no_check` no lock is taken.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` if the target is locked or another epoch is open, and the target failed.
    pub fn lock(&self, target: Option<u32>, kind: LockKind, no_check: bool) -> Result<()> {
        let hold = target.filter(|_| !no_check).map(|_| kind);
        self.0.epochs.change().lock(target, hold)?;
        let locked = match (target, hold) {
            (Some(target), Some(kind)) => self.0.rma.lock(target, kind),
            (Some(_) | None, _) => Ok(()),
        };
        if locked.is_err() {
            self.0.epochs.change().unlock(target);
        }
        self.0.rma.sync();
        Ok(locked?)
    }

    /// Completes the operations on a target, and closes its epoch.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` if the target is not locked, and the target failed.
    pub fn unlock(&self, target: Option<u32>) -> Result<()> {
        let hold = self.0.epochs.look().hold(target)?;
        self.0.rma.sync();
        let ended = match (target, hold) {
            (Some(target), Some(kind)) => self.0.rma.unlock(target, kind),
            (Some(target), None) => self.0.rma.flush(target),
            (None, _) => Ok(()),
        };
        self.0.epochs.change().unlock(target);
        Ok(ended?)
    }

    /// Opens a passive target epoch for all targets. The locks of those whose memory this process maps are taken at
    /// once, in the order of ranks, because loads and stores need no call. All others are taken by the first operation.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` while an access epoch is open, and a target failed.
    pub fn lock_all(&self, no_check: bool) -> Result<()> {
        self.0.epochs.change().lock_all(!no_check)?;
        let mut mapped = (0..self.size()).filter(|&rank| self.0.rma.memory(rank).is_some());
        let locked = match no_check {
            true => Ok(()),
            false => mapped.try_for_each(|rank| self.take_lock(rank)),
        };
        if locked.is_err() {
            self.unlock_all()?;
        }
        self.0.rma.sync();
        locked
    }

    /// Completes all operations, and closes the epoch of [`Window::lock_all`].
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` without such an epoch, and a target failed.
    pub fn unlock_all(&self) -> Result<()> {
        let taken = self.0.epochs.look().taken()?;
        self.0.rma.sync();
        let flushed = self.0.rma.flush_all();
        let unlock = |&target| self.0.rma.unlock(target, LockKind::Shared);
        let unlocked = taken.iter().map(unlock).fold(Ok(()), rma::Result::and);
        self.0.epochs.change().close();
        Ok(flushed.and(unlocked)?)
    }

    /// Completes all operations on a target.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` without a passive target epoch for the target, and the target failed.
    #[inline(always)]
    pub fn flush(&self, target: Option<u32>) -> Result<()> {
        // Puts that are compared with others are never permitted at once.
        match target {
            Some(target) if self.0.epochs.is_passive(target) => Ok(self.0.rma.flush(target)?),
            _ => self.flush_unusual(target),
        }
    }

    /// Completes operations like [`Window::flush`], with all checks.
    #[inline(never)]
    fn flush_unusual(&self, target: Option<u32>) -> Result<()> {
        self.0.epochs.look().check_passive(target)?;
        let Some(target) = target else { return Ok(()) };
        if let Some(puts) = &self.0.puts {
            puts.clear(Some(target));
        }
        Ok(self.0.rma.flush(target)?)
    }

    /// Completes all operations.
    ///
    /// # Errors
    /// As [`Window::flush`].
    pub fn flush_all(&self) -> Result<()> {
        self.0.epochs.look().check_passive(None)?;
        if let Some(puts) = &self.0.puts {
            puts.clear(None);
        }
        Ok(self.0.rma.flush_all()?)
    }

    /// Completes all operations on a target as far as this process's memory is concerned.
    ///
    /// # Errors
    /// As [`Window::flush`].
    pub fn flush_local(&self, target: Option<u32>) -> Result<()> {
        self.check_passive(target)?;
        Ok(target.map_or(Ok(()), |target| self.0.rma.flush_local(target))?)
    }

    /// Completes all operations as far as this process's memory is concerned.
    ///
    /// # Errors
    /// As [`Window::flush`].
    pub fn flush_local_all(&self) -> Result<()> {
        self.0.epochs.look().check_passive(None)?;
        Ok(self.0.rma.flush_local_all()?)
    }

    /// Checks that a passive target epoch is open for a target.
    #[inline]
    fn check_passive(&self, target: Option<u32>) -> Result<()> {
        match target {
            Some(target) if self.0.epochs.is_passive(target) => Ok(()),
            _ => self.0.epochs.look().check_passive(target),
        }
    }

    /// Orders this process's loads and stores in the window with accesses of others.
    pub fn sync(&self) {
        self.0.rma.sync();
    }

    /// The ranks in the window of a group's members.
    fn ranks_of(&self, group: &Group) -> Result<Vec<u32>> {
        let members = self.group();
        let rank = |peer| members.rank_of(peer);
        group.iter().map(rank).collect::<Option<_>>().ok_or_else(|| {
            Error::new(ErrorClass::Group, "group has a process that is not in the window")
        })
    }

    fn send(&self, to: u32, tag: i32) -> Result<()> {
        let (comm, none) = (&self.0.comm, Region::empty());
        point_to_point::send(comm, Some(to), tag, &none, Mode::Standard).map_err(of_window)
    }

    fn receive(&self, from: u32, tag: i32) -> Result<()> {
        let (comm, none) = (&self.0.comm, Region::empty());
        let (_, error) = point_to_point::receive(comm, From::Rank(from), Some(tag), &none);
        error.map_or(Ok(()), |error| Err(of_window(error)))
    }
}

/// The error of a message, to be raised on the window of the call.
fn of_window(mut error: Error) -> Error {
    error.on = None;
    error
}

/// Tag of the message that `MPI_Win_post` sends to each origin.
const POSTED: i32 = 0;
/// Tag of the message that `MPI_Win_complete` sends to each target.
const COMPLETE: i32 = 1;
