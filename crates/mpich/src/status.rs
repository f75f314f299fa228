//! Statuses: the byte count comes first in MPICH's, with the mark of cancelled operations.

use std::ffi::c_int;
use std::ptr;

use binding::argument::Argument;
use binding::translation::Translation;

use crate::code::Code;
use crate::constants::{Rank, Tag};

/// `MPI_Status` of MPICH.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MpichStatus {
    count_lo: c_int,
    /// The upper 31 bits of the count, above the mark of cancelled operations.
    count_hi_and_cancelled: c_int,
    source: c_int,
    tag: c_int,
    error: c_int,
}

/// `MPI_Status` of the standard ABI. Its last integers are Canele's: the number of bytes, low word first, and the mark.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct StandardStatus {
    source: c_int,
    tag: c_int,
    error: c_int,
    count: [c_int; 2],
    cancelled: c_int,
    rest: [c_int; 2],
}

impl StandardStatus {
    /// A status of which C has written nothing.
    const UNWRITTEN: Self = Self {
        source: c_int::MIN,
        tag: c_int::MIN,
        error: c_int::MIN,
        count: [0; 2],
        cancelled: 0,
        rest: [0; 2],
    };

    pub(crate) fn of(status: &MpichStatus) -> Self {
        Self {
            source: Rank::to_c(status.source),
            tag: Tag::to_c(status.tag),
            error: Code::to_c(status.error),
            // The sign bit is one of the count.
            count: [
                status.count_lo,
                (status.count_hi_and_cancelled.cast_unsigned() >> 1).cast_signed(),
            ],
            cancelled: status.count_hi_and_cancelled & 1,
            rest: [0; 2],
        }
    }

    /// Writes what C has written. C leaves the error code of a single status as it is.
    pub(crate) fn give(&self, status: &mut MpichStatus) {
        if self.source != Self::UNWRITTEN.source {
            status.count_lo = self.count[0];
            status.count_hi_and_cancelled = self.count[1] << 1 | (self.cancelled & 1);
            status.source = Rank::to_program(self.source);
            status.tag = Tag::to_program(self.tag);
        }
        if self.error != Self::UNWRITTEN.error {
            status.error = Code::to_program(self.error);
        }
    }
}

/// True if a status, or several, are ignored.
#[inline]
fn is_ignored(status: *const MpichStatus) -> bool {
    status.addr() == 1
}

/// A status that C reads.
pub(crate) struct StatusValue(Option<StandardStatus>);

impl StatusValue {
    pub(crate) unsafe fn take(status: *const MpichStatus) -> Self {
        let is_given = !status.is_null() && !is_ignored(status);
        // SAFETY: the program passes the address of a status.
        Self(is_given.then(|| StandardStatus::of(unsafe { &*status })))
    }
}

impl Argument for StatusValue {
    type C = *const StandardStatus;

    fn c(&mut self) -> Self::C {
        self.0.as_ref().map_or(ptr::null(), ptr::from_ref)
    }
}

/// A status that C reads and writes.
pub(crate) struct StatusVariable {
    status: *mut MpichStatus,
    value: Option<StandardStatus>,
}

impl StatusVariable {
    pub(crate) unsafe fn take(status: *mut MpichStatus) -> Self {
        // SAFETY: the program passes the address of a status.
        Self { status, value: unsafe { StatusValue::take(status) }.0 }
    }
}

impl Argument for StatusVariable {
    type C = *mut StandardStatus;

    fn c(&mut self) -> Self::C {
        self.value.as_mut().map_or(ptr::null_mut(), ptr::from_mut)
    }

    fn give(self) {
        if let Some(value) = self.value {
            // SAFETY: the program passes the address of a status, which was read before.
            value.give(unsafe { &mut *self.status });
        }
    }
}

/// Room for a status, unless it is ignored.
pub(crate) struct StatusResult {
    status: *mut MpichStatus,
    value: StandardStatus,
}

impl StatusResult {
    #[inline]
    pub(crate) unsafe fn take(status: *mut MpichStatus) -> Self {
        let status = if is_ignored(status) { ptr::null_mut() } else { status };
        Self { status, value: StandardStatus::UNWRITTEN }
    }
}

impl Argument for StatusResult {
    type C = *mut StandardStatus;

    #[inline]
    fn c(&mut self) -> Self::C {
        if self.status.is_null() { ptr::null_mut() } else { &mut self.value }
    }

    #[inline]
    fn give(self) {
        // SAFETY: the program passes NULL or the address of a status.
        if let Some(status) = unsafe { self.status.as_mut() } {
            self.value.give(status);
        }
    }
}

/// Room for statuses, unless they are ignored.
pub(crate) struct StatusResults {
    statuses: *mut MpichStatus,
    values: Vec<StandardStatus>,
}

impl StatusResults {
    pub(crate) unsafe fn take(statuses: *mut MpichStatus, number: i64) -> Self {
        let is_given = !statuses.is_null() && !is_ignored(statuses);
        let number = if is_given { number.max(0) as usize } else { 0 };
        let statuses = if is_given { statuses } else { ptr::null_mut() };
        Self { statuses, values: vec![StandardStatus::UNWRITTEN; number] }
    }
}

impl Argument for StatusResults {
    type C = *mut StandardStatus;

    fn c(&mut self) -> Self::C {
        if self.statuses.is_null() { ptr::null_mut() } else { self.values.as_mut_ptr() }
    }

    fn give(self) {
        for (i, value) in self.values.iter().enumerate() {
            // SAFETY: the program passes room for as many statuses.
            value.give(unsafe { &mut *self.statuses.add(i) });
        }
    }
}

/// Calls a query function of the program, which writes to a status of C's. What neither has written stays so.
pub(crate) fn queried(
    status: &mut StandardStatus,
    query: impl FnOnce(*mut MpichStatus) -> c_int,
) -> c_int {
    let StandardStatus { source, tag, error, .. } = StandardStatus::UNWRITTEN;
    let mut given = MpichStatus { count_lo: 0, count_hi_and_cancelled: 0, source, tag, error };
    status.give(&mut given);
    let code = query(&mut given);
    *status = StandardStatus::of(&given);
    code
}
