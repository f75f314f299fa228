//! Exchanges whose partners are given: between neighbours of a topology, and between two groups.

use crate::schedule::{Schedule, Span};

/// Receives and sends, all at once. Messages between the same two ranks meet in the order in which each
/// side names them; spans without units neither leave nor come.
pub fn direct(
    receives: impl IntoIterator<Item = (u32, Span)>,
    sends: impl IntoIterator<Item = (u32, Span)>,
) -> Schedule {
    let mut schedule = Schedule::default();
    for (from, span) in receives {
        schedule.receive(from, span);
    }
    for (to, span) in sends {
        schedule.send(to, span);
    }
    schedule.wait();
    schedule
}
