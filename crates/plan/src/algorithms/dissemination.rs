//! Dissemination (Hensgen, Finkel, Manber 1988): after round `k` a rank knows of `2^(k+1)` ranks.

use crate::schedule::Schedule;
use crate::team::Team;

/// Waits until all ranks have arrived.
pub(crate) fn barrier(schedule: &mut Schedule, team: Team) {
    let mut distance = 1;
    while distance < team.size() {
        schedule.receive_signal(team.before(distance));
        schedule.send_signal(team.after(distance));
        schedule.wait();
        distance *= 2;
    }
}
