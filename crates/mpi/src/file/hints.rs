//! Hints of files (MPI-5.0 §14.2.8).

use crate::Result;
use crate::info::Info;

/// Values of the hints that were given, in the order of [`HINTS`].
#[derive(Clone, Debug, Default)]
pub(super) struct Hints([Option<String>; HINTS.len()]);

impl Hints {
    /// The hints of a file just opened.
    pub fn new(given: &Info) -> Self {
        let mut hints = Self::default();
        hints.set(given);
        hints
    }

    /// Sets the hints in `given`; the others stay.
    pub fn set(&mut self, given: &Info) {
        for (key, known) in HINTS.iter().zip(&mut self.0) {
            if let Some(value) = given.value(key).ok().flatten() {
                *known = Some(value);
            }
        }
    }

    /// The hints that the file has.
    pub fn info(&self) -> Result<Info> {
        let info = Info::default();
        for (key, value) in HINTS.iter().zip(&self.0) {
            if let Some(value) = value {
                info.set(key, value)?;
            }
        }
        Ok(info)
    }
}

/// Hints that the library stores for the application. They change no access.
const HINTS: [&str; 15] = [
    "access_style",
    "collective_buffering",
    "cb_block_size",
    "cb_buffer_size",
    "cb_nodes",
    "chunked",
    "chunked_item",
    "chunked_size",
    "filename",
    "file_perm",
    "io_node_list",
    "nb_proc",
    "num_io_nodes",
    "striping_factor",
    "striping_unit",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_hints_stay_until_they_are_given_again() {
        let given = Info::default();
        for (key, value) in [("cb_nodes", "3"), ("colour", "green")] {
            given.set(key, value).unwrap();
        }
        let mut hints = Hints::new(&given);
        let again = Info::default();
        again.set("access_style", "write_once").unwrap();
        hints.set(&again);
        let info = hints.info().unwrap();
        assert_eq!(info.value("cb_nodes").unwrap().as_deref(), Some("3"));
        assert_eq!(info.value("access_style").unwrap().as_deref(), Some("write_once"));
        assert_eq!(info.len(), 2);
    }
}
