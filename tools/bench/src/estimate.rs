//! Estimates of the time that a measurement takes, as they are printed before it.

use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::library::Library;
use crate::planned::Plan;
use crate::programs;
use crate::report::Entry;
use crate::runner::Places;
use crate::scenario::IdealLink;

impl Plan {
    /// Estimates the duration of the plan with the libraries that are installed, without the time to raise a lab.
    pub fn estimate(&self, places: &Places) -> Duration {
        let link = IdealLink::of(self.place, &self.needs().spec(""));
        let is_here =
            |entry: &&Entry| Library::find(entry.library, &places.prefix, &places.peers).is_ok();
        let entries = self.entries().iter().filter(is_here).count() as u32;
        let cores = available_parallelism().map_or(1, NonZero::get);
        let description = self.workload.description();
        let run = |ranks: &u32| {
            let cases = self.workload.estimate(self.seconds, link.as_ref());
            match link {
                _ if description.is_own => cases,
                Some(_) => STARTING_IN_LAB + cases,
                // Ranks that share cores keep to their time less well.
                None if *ranks as usize > cores => STARTING + 2 * cases,
                None => STARTING + cases,
            }
        };
        let runs: Duration = self.workload.ranks.iter().map(run).sum();
        let compiling = match description.is_own {
            true => Duration::ZERO,
            false if programs::has_fortran(description.program) => COMPILING_FORTRAN,
            false => COMPILING,
        };
        DRAWING + entries * (compiling + self.rounds * runs)
    }
}

/// Approximate time to start and end a job on this machine.
const STARTING: Duration = Duration::from_millis(400);
/// The same on hosts of a lab.
const STARTING_IN_LAB: Duration = Duration::from_secs(2);
/// Approximate time to compile a program for a library.
const COMPILING: Duration = Duration::from_millis(600);
/// The same of a program with parts in Fortran.
const COMPILING_FORTRAN: Duration = Duration::from_secs(7);
/// Approximate time to draw the plots.
const DRAWING: Duration = Duration::from_millis(300);
