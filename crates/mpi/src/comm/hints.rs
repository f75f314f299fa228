//! Hints of a communicator.

use super::{Comm, MEMORY_KINDS, PLACES};
use crate::Result;
use crate::info::{Info, VALUE_MAX};

impl Comm {
    /// The hints of this communicator: every hint the library knows, with its default if none was given. The
    /// topology for collective plans is included if it is short enough.
    pub fn info(&self) -> Result<Info> {
        let info = Info::default();
        self.details().assertions.tell(&info)?;
        info.set(MEMORY_KINDS, device::memory_kinds())?;
        let places = self.collectives().shared_places().unwrap_or(self.places()).to_string();
        if places.len() < VALUE_MAX {
            info.set(PLACES, &places)?;
        }
        Ok(info)
    }

    /// Sets the hints that the library knows; hints missing from `info` do not change (MPI-5.0 §7.4.4).
    pub fn set_info(&self, info: &Info) {
        let before = self.details().assertions;
        let mut assertions = before;
        assertions.take(info);
        self.details().assertions = assertions;
        if assertions.allows_overtaking() != before.allows_overtaking() {
            self.set_overtaking(assertions.allows_overtaking());
        }
    }

    /// Sets the hints of a communicator whose context is not known yet. It ignores the one that concerns the engine,
    /// which knows communicators by their contexts.
    pub fn set_info_before_use(&self, info: &Info) {
        let assertions = &mut self.details().assertions;
        assertions.take(info);
        assertions.forbid_overtaking();
    }

    /// Sets whether messages may match before those that were sent earlier.
    #[cold]
    pub(super) fn set_overtaking(&self, is_allowed: bool) {
        let context = self.context();
        self.progress().submit(|worker| worker.engine.set_overtaking(context, is_allowed));
    }
}
