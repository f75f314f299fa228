//! The butterfly (Brooks 1986) of any number of ranks, in ⌈log2 p⌉ rounds, which are the least: in a round
//! nobody hears of more than twice as many as before.
//!
//! Torres and Kofuji gave schedules for 5, 6 and 7 ranks that take as many rounds as 8. The rule behind them:
//! in each round everyone passes on as many operands as it has, but no more than are missing, over a
//! distance of as many (Bruck 1997). What everyone then has it combines in the same order.

use crate::algorithms::pairs;
use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Everyone's `whole`, combined in pairs in the order of positions, to everyone's. Each operand has a buffer of its
/// own, and so a message: a datatype's elements may lie between each other's parts.
pub(crate) fn allreduce(schedule: &mut Schedule, team: Team, whole: Span) {
    let (me, size) = (team.me, team.size());
    // The operand of who is so many positions before.
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
