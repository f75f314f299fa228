//! The tournament (Hensgen, Finkel, Manber 1988): in each round half of those left tell the other half that
//! they have come, and whoever is left at the end tells all.

use crate::algorithms::binomial::{children, parent};
use crate::schedule::Schedule;
use crate::team::Team;

/// Nobody goes on before all have come.
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
