//! Hints of files (MPI-5.0 §14.2.8).

use super::place::AccessKind;
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

    /// The hints that the file has: those given, and the defaults of those that change accesses.
    pub fn info(&self) -> Result<Info> {
        let info = Info::default();
        for key in HINTS {
            if let Some(value) = self.value(key) {
                info.set(key, value)?;
            }
        }
        Ok(info)
    }

    /// Returns the rules for collective accesses of a kind.
    pub fn buffering(&self, kind: AccessKind) -> Buffering {
        let key = match kind {
            AccessKind::Read => CB_READ,
            AccessKind::Write => CB_WRITE,
        };
        let number = |key| self.value(key).and_then(|value| value.trim().parse::<u64>().ok());
        let switch = match (self.value(key), self.value(COLLECTIVE)) {
            (Some("enable"), _) => BufferSwitch::Enable,
            (Some("disable"), _) | (_, Some("false")) => BufferSwitch::Disable,
            _ => BufferSwitch::Automatic,
        };
        let aggregators = number(CB_NODES).filter(|count| *count > 0);
        Buffering {
            switch,
            aggregators: aggregators.map(|count| count.min(u64::from(u32::MAX)) as u32),
            buffer_bytes: number(CB_BYTES).unwrap_or(0).clamp(BYTES_MIN, BYTES_MAX),
        }
    }

    fn value(&self, key: &str) -> Option<&str> {
        let known = HINTS.iter().zip(&self.0).find(|(known, _)| **known == key)?.1;
        let default = match key {
            CB_BYTES => Some("16777216"),
            CB_READ | CB_WRITE => Some("automatic"),
            _ => None,
        };
        known.as_deref().or(default)
    }
}

/// Rules for the buffering of collective accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffering {
    pub switch: BufferSwitch,
    /// Number of processes that access the file; none for as many as the library chooses.
    pub aggregators: Option<u32>,
    /// Bytes that each of them accesses at once.
    pub buffer_bytes: u64,
}

/// When collective accesses are buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferSwitch {
    /// Chosen by the library: if the data of processes are interleaved.
    Automatic,
    Enable,
    Disable,
}

const CB_NODES: &str = "cb_nodes";
const CB_BYTES: &str = "cb_buffer_size";
const CB_READ: &str = "romio_cb_read";
const CB_WRITE: &str = "romio_cb_write";
const COLLECTIVE: &str = "collective_buffering";
/// Bounds of a buffer in bytes.
const BYTES_MIN: u64 = 4096;
const BYTES_MAX: u64 = 1 << 30;

/// Hints that are stored. The constants above name those that change accesses.
const HINTS: [&str; 17] = [
    "access_style",
    COLLECTIVE,
    "cb_block_size",
    CB_BYTES,
    CB_NODES,
    CB_READ,
    CB_WRITE,
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
        assert_eq!(info.value("colour").unwrap(), None);
    }

    #[test]
    fn values_out_of_range_are_bounded_or_ignored() {
        let given = Info::default();
        for (key, value) in [(CB_NODES, "many"), (CB_BYTES, "1"), (CB_WRITE, "disable")] {
            given.set(key, value).unwrap();
        }
        let hints = Hints::new(&given);
        let expected = |switch| Buffering { switch, aggregators: None, buffer_bytes: BYTES_MIN };
        assert_eq!(hints.buffering(AccessKind::Write), expected(BufferSwitch::Disable));
        assert_eq!(hints.buffering(AccessKind::Read), expected(BufferSwitch::Automatic));
    }
}
