//! The view of a file (MPI-5.0 §14.3).

use coll::Routine;
use datatype::Datatype;
use io::View;

use super::agreement::{agree, agree_on};
use super::object::File;
use crate::info::Info;
use crate::{Error, ErrorClass, Result};

impl File {
    /// Sets the view, and both pointers to its beginning (collective). No displacement is
    /// `MPI_DISPLACEMENT_CURRENT`.
    ///
    /// # Errors
    /// What MPI-5.0 §14.3 rules out, and etypes of different extents; on all processes alike.
    pub fn set_view(
        &self,
        displacement: Option<i64>,
        types: Result<(Datatype, Datatype)>,
        datarep: &str,
        info: Result<Info>,
    ) -> Result<()> {
        let comm = &self.0.comm;
        let checked = types.and_then(|(etype, filetype)| {
            self.check_collective()?;
            check_datarep(datarep)?;
            let displacement = self.displacement(displacement)?;
            let view = View::new(displacement, &etype, &filetype, self.0.mode.writes());
            let class = match displacement {
                0.. => ErrorClass::Type,
                _ => ErrorClass::Arg,
            };
            Ok((view.map_err(|fault| Error::new(class, fault.to_string()))?, info?))
        });
        let extent = checked.as_ref().map_or(0, |(view, _)| view.etype().extent().1);
        let (view, info) = agree_on(comm, Routine::FileSetView, extent as u64, checked)?;
        let moved = if comm.rank() == 0 { self.0.shared.set(0) } else { Ok(()) };
        agree(comm, Routine::FileSetView, moved)?;
        let mut state = self.state();
        (state.view, state.position) = (view, 0);
        drop(state);
        self.set_hints(&info);
        Ok(())
    }

    /// The view.
    pub fn view(&self) -> View {
        self.state().view.clone()
    }

    /// Name of the data representation.
    pub fn datarep(&self) -> &'static str {
        NATIVE
    }

    /// The displacement of a view. That of the current position exists only in sequential files, and must be given there.
    fn displacement(&self, given: Option<i64>) -> Result<i64> {
        match (given, self.0.mode.is_sequential()) {
            (Some(given), false) => Ok(given),
            (None, true) => {
                let position = self.0.shared.fetch_add(0)?;
                let state = self.state();
                let stream = position.saturating_mul(state.view.etype().size() as u64);
                let outside = || Error::argument("the shared file pointer is out of range");
                state.view.byte_offset(stream).ok_or_else(outside)
            }
            (None, false) => Err(Error::argument(
                "disp is MPI_DISPLACEMENT_CURRENT, and the file is not sequential",
            )),
            (Some(given), true) => Err(Error::argument(format!(
                "disp = {given}, and a sequential file needs MPI_DISPLACEMENT_CURRENT"
            ))),
        }
    }
}

/// Checks that the library knows a data representation. That named `internal` is the same as `native`.
fn check_datarep(name: &str) -> Result<()> {
    match name {
        NATIVE | "internal" => Ok(()),
        _ => {
            let message = format!("datarep = {name} is not known");
            Err(Error::new(ErrorClass::UnsupportedDatarep, message))
        }
    }
}

const NATIVE: &str = "native";
