//! Exchanges with given partners: between neighbours of a topology, and between two groups.

use crate::schedule::{Schedule, Span};

/// Returns a schedule that receives and sends everything at once. Messages between the same two
/// ranks match in the order in which each side lists them. Empty spans are sent and received, too: a
/// rank that expects nothing learns so if another sends something, and neither waits for ever.
pub fn exchange(
    receives: impl IntoIterator<Item = (u32, Span)>,
    sends: impl IntoIterator<Item = (u32, Span)>,
) -> Schedule {
    let mut schedule = Schedule::default();
    for (from, span) in receives {
        schedule.receive_even_empty(from, span);
    }
    for (to, span) in sends {
        schedule.send_even_empty(to, span);
    }
    schedule.wait();
    schedule
}
