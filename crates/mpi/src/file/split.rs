//! Split collectives: one call begins, another completes (MPI-5.0 §14.4.5).

use super::access::status_of;
use super::agreement::agree;
use super::object::File;
use super::place::{AccessKind, At};
use super::representation::TypedMemory;
use super::split_call::{Split, SplitCall};
use crate::request::Status;
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result};

impl File {
    /// Begins a split collective (collective). An error at its beginning is also that of its end, on all processes.
    ///
    /// # Errors
    /// Another is under way on this file, or the arguments are wrong.
    pub fn begin_split(&self, kind: AccessKind, at: At, memory: Result<TypedMemory>) -> Result<()> {
        self.check_collective()?;
        let prepared = self.prepare_all(kind, at, memory);
        let begun = prepared.map(|transfer| self.begin(transfer));
        let failed = begun.as_ref().err().cloned();
        // Others that have begun learn of the failure at the end, which this process takes part in.
        if let (Some(error), 1) = (&failed, self.0.comm.size()) {
            return Err(error.clone());
        }
        self.state().split = Some(Split { call: SplitCall::new(kind, at), begun });
        failed.map_or(Ok(()), Err)
    }

    /// Ends a split collective (collective). Of `at` the kind alone counts.
    ///
    /// # Errors
    /// Those of the access on any process, or none of the kind is under way.
    pub fn end_split(&self, kind: AccessKind, at: At) -> Result<Status> {
        let call = SplitCall::new(kind, at);
        let split = {
            let mut state = self.state();
            match state.split.take() {
                Some(split) if split.call == call => split,
                other => {
                    state.split = other;
                    let message = format!("{} has not been called", call.name());
                    return Err(Error::new(ErrorClass::Io, message));
                }
            }
        };
        let comm = &self.0.comm;
        let done = split
            .begun
            .and_then(|pending| comm.process().vci(Vci::FIRST).wait(|_| pending.result()));
        agree(comm, kind.routine(), done.map(status_of))
    }
}
