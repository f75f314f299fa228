//! Calls for one or some of several requests (MPI-5.0 §3.7.5).

use std::cell::Cell;

use handles::Handle;
use progress::Worker;

use super::completion::{List, test_in, transposed};
use super::{Ended, watching};
use crate::Result;
use crate::process::Process;

/// Waits until at least one active request has ended and reports those that have, at most `most`;
/// handles become null as by [`wait_all`](super::wait_all). False when none is active.
///
/// # Errors
/// As [`wait`](super::wait).
pub fn wait_some(
    process: &Process,
    handles: &[Cell<Handle>],
    most: usize,
    report: impl FnMut(usize, Ended),
) -> Result<bool> {
    some(process, handles, most, true, report)
}

/// [`wait_some`] without waiting. Returns true if any request is active; possibly none is reported.
///
/// # Errors
/// As [`wait`](super::wait).
pub fn test_some(
    process: &Process,
    handles: &[Cell<Handle>],
    most: usize,
    report: impl FnMut(usize, Ended),
) -> Result<bool> {
    some(process, handles, most, false, report)
}

fn some(
    process: &Process,
    handles: &[Cell<Handle>],
    most: usize,
    waits: bool,
    mut report: impl FnMut(usize, Ended),
) -> Result<bool> {
    if watching::is_watched(process, handles) {
        return watching::some(process, handles, most, waits, report);
    }
    let mut list = List::of(process, handles)?;
    let (vcis, mut is_active) = (list.vcis, true);
    let look = |vci, worker: &mut Worker| {
        list.check(vci, worker)?;
        if !list.is_active {
            is_active = false;
            return Ok(Some(()));
        }
        let found = list.end_some(vci, worker, most, &mut report)?;
        if found == 0 {
            worker.await_any(|| list.ends(vci));
        }
        Ok((found > 0).then_some(()))
    };
    let found = match waits {
        true => Some(process.wait_in(vcis, transposed(look))?),
        false => test_in(process, vcis, look)?,
    };
    if found.is_none() {
        process.vci(vcis.first()).pause();
    }
    Ok(is_active)
}
