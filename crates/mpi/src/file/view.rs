//! The view of a file (MPI-5.0 §14.3).

use std::hash::{DefaultHasher, Hash, Hasher};

use coll::Routine;
use datatype::Datatype;
use io::View;

use super::agreement::{agree, agree_on};
use super::object::File;
use super::representation::Representation;
use crate::info::Info;
use crate::{Error, ErrorClass, Result};

impl File {
    /// Sets the view, and both pointers to its beginning (collective). No displacement is
    /// `MPI_DISPLACEMENT_CURRENT`.
    ///
    /// # Errors
    /// What MPI-5.0 §14.3 rules out, and etypes of different extents or different representations; on all processes alike.
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
            let representation = Representation::find(datarep)?;
            let displacement = self.displacement(displacement)?;
            let in_file = (representation.in_file(&etype)?, representation.in_file(&filetype)?);
            let view = View::new(displacement, &in_file.0, &in_file.1, self.0.mode.writes());
            let class = match displacement {
                0.. => ErrorClass::Type,
                _ => ErrorClass::Arg,
            };
            let view = view.map_err(|fault| Error::new(class, fault.to_string()))?;
            Ok((view, (etype, filetype), representation, info?))
        });
        let extent = checked.as_ref().map_or(0, |(view, ..)| view.etype().extent().1);
        let mut same = DefaultHasher::new();
        (extent, datarep).hash(&mut same);
        let checked = agree_on(comm, Routine::FileSetView, same.finish(), checked)?;
        let (view, types, representation, info) = checked;
        let moved = if comm.rank() == 0 { self.0.shared.set(0) } else { Ok(()) };
        agree(comm, Routine::FileSetView, moved)?;
        let mut state = self.state();
        (state.view, state.position, state.patterns) = (view, 0, None);
        (state.types, state.representation) = (types, representation);
        drop(state);
        self.set_hints(&info);
        Ok(())
    }

    /// Displacement, etype, filetype and representation of the view.
    pub fn view(&self) -> (i64, Datatype, Datatype, Representation) {
        let state = self.state();
        let (etype, filetype) = state.types.clone();
        (state.view.displacement(), etype, filetype, state.representation.clone())
    }

    /// Extent of a datatype in the file, in bytes.
    ///
    /// # Errors
    /// Those of [`Representation::in_file`].
    pub fn type_extent(&self, datatype: &Datatype) -> Result<i64> {
        let representation = self.state().representation.clone();
        Ok(representation.in_file(datatype)?.extent().1 as i64)
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
                "disp: a displacement of MPI_DISPLACEMENT_CURRENT (-1) is for sequential files only",
            )),
            (Some(given), true) => Err(Error::argument(format!(
                "disp = {given}, and a sequential file needs MPI_DISPLACEMENT_CURRENT"
            ))),
        }
    }
}
