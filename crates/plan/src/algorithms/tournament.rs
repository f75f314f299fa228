//! The tournament (Hensgen, Finkel, Manber 1988): in each round half of the remaining ranks signal
//! the other half. The last one releases all.

use crate::algorithms::binomial::{children, parent};
use crate::schedule::Schedule;
use crate::team::Team;

/// Waits until all ranks have arrived.
pub(crate) fn barrier(schedule: &mut Schedule, team: Team) {
    let (me, size) = (team.me, team.size());
    children(me, size).for_each(|child| schedule.receive_signal(team.rank(child)));
    schedule.wait();
    if let Some(parent) = parent(me) {
        schedule.send_signal(team.rank(parent));
        schedule.receive_signal(team.rank(parent));
        schedule.wait();
    }
    children(me, size).for_each(|child| schedule.send_signal(team.rank(child)));
    schedule.wait();
}
