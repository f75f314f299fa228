//! Exchanges with given partners: between neighbours of a topology, and between two groups.

use crate::schedule::{Schedule, Span};

/// Returns a schedule that receives and sends everything at once. Messages between the same two
/// ranks match in the order in which each side lists them. Empty spans are neither sent nor
/// received.
pub fn exchange(
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
