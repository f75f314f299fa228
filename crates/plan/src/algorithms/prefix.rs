//! Prefixes over distances 1, 2, 4… (Hillis, Steele 1986).

use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Computes prefixes. `passed` begins as the own operand and becomes the combination of the ranks
/// up to this one. `add` takes the data from the ranks before, nearest first; its flag is true the
/// first time.
pub(crate) fn prefix(
    schedule: &mut Schedule,
    team: Team,
    passed: Span,
    received: Span,
    mut add: impl FnMut(&mut Schedule, bool),
) {
    let (me, size) = (team.me, team.size());
    let mut distance = 1;
    while distance < size {
        if me >= distance {
            schedule.receive(team.rank(me - distance), received);
        }
        if me + distance < size {
            schedule.send(team.rank(me + distance), passed);
        }
        schedule.wait();
        if me >= distance {
            add(schedule, distance == 1);
            schedule.reduce(received, passed);
        }
        distance *= 2;
    }
}
