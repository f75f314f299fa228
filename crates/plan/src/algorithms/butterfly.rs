//! The butterfly (Brooks 1986) for any number of ranks, in ⌈log2 p⌉ rounds. Fewer are impossible: a
//! round at most doubles the number of operands that a rank has.
//!
//! Torres and Kofuji gave schedules for 5, 6 and 7 ranks that take as many rounds as 8. The rule
//! behind them is Bruck's (1997). In each round every rank passes on as many operands as it has,
//! but no more than are missing, over a distance of as many. All ranks then combine the operands in
//! the same order.

use crate::algorithms::pairs;
use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Combines everyone's `whole` in pairs in the order of positions, at everyone. Each operand has a
/// buffer and a message of its own, since elements of a datatype may lie between each other's
/// parts.
pub(crate) fn allreduce(schedule: &mut Schedule, team: Team, whole: Span) {
    let (me, size) = (team.me, team.size());
    // Operand of the rank so many positions before.
    let operands: Vec<Span> = (0..size).map(|_| schedule.room(whole.len)).collect();
    schedule.copy(whole, operands[0]);
    let mut have = 1;
    while have < size {
        let passed = have.min(size - have);
        for before in 0..passed {
            schedule.receive(team.before(have), operands[(have + before) as usize]);
            schedule.send(team.after(have), operands[before as usize]);
        }
        schedule.wait();
        have += passed;
    }
    let of = |position: u32| operands[((me + size - position) % size) as usize];
    let sum = pairs::combine(schedule, &(0..size).map(of).collect::<Vec<Span>>());
    schedule.copy(sum, whole);
}
