//! One rank hears all and tells all, and everybody else waits once on the way up and once on the way down,
//! where trees and dissemination wait in each of ⌈log2 p⌉ rounds.
//!
//! With more ranks than cores a message costs little and a wait much: the rank gives up its core, and gets
//! it back when the others have had their turn.

use crate::algorithms::pairs;
use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// All tell the first one, which tells all.
pub(crate) fn barrier(schedule: &mut Schedule, team: Team) {
    if team.me == 0 {
        collect(schedule, team);
        release(schedule, team);
    } else {
        schedule.send_signal(team.rank(0));
        schedule.receive_signal(team.rank(0));
        schedule.wait();
    }
}

/// The first one hears that all have come.
pub(crate) fn collect(schedule: &mut Schedule, team: Team) {
    if team.me == 0 {
        team.others().for_each(|from| schedule.receive_signal(team.rank(from)));
    } else {
        schedule.send_signal(team.rank(0));
    }
    schedule.wait();
}

/// The first one lets all go on.
pub(crate) fn release(schedule: &mut Schedule, team: Team) {
    if team.me == 0 {
        team.others().for_each(|to| schedule.send_signal(team.rank(to)));
    } else {
        schedule.receive_signal(team.rank(0));
    }
    schedule.wait();
}

/// The first one's `span` to everyone's.
pub(crate) fn broadcast(schedule: &mut Schedule, team: Team, span: Span) {
    scatter(schedule, team, &|_| span);
}

/// The first one's blocks, by position, to those who are there. Its own is left where it is.
pub(crate) fn scatter(schedule: &mut Schedule, team: Team, block: &dyn Fn(u32) -> Span) {
    if team.me == 0 {
        team.others().for_each(|to| schedule.send(team.rank(to), block(to)));
    } else {
        schedule.receive(team.rank(0), block(team.me));
    }
    schedule.wait();
}

/// The blocks of all to the first one, which has its own.
pub(crate) fn gather(schedule: &mut Schedule, team: Team, block: &dyn Fn(u32) -> Span) {
    if team.me == 0 {
        team.others().for_each(|from| schedule.receive(team.rank(from), block(from)));
    } else {
        schedule.send(team.rank(0), block(team.me));
    }
    schedule.wait();
}

/// Everyone's `own`, combined in pairs in the order of positions, to `result` at `root`.
pub(crate) fn reduce(schedule: &mut Schedule, team: Team, root: u32, own: Span, result: Span) {
    let to_root = team.led_by(root);
    if team.me != root {
        return gather(schedule, to_root, &|_| own);
    }
    // Apart from one another: elements may lie between each other's parts.
    let all: Vec<Span> = (0..team.size()).map(|_| schedule.room(own.len)).collect();
    schedule.copy(own, all[root as usize]);
    gather(schedule, to_root, &|from| all[((root + from) % team.size()) as usize]);
    let sum = pairs::combine(schedule, &all);
    schedule.copy(sum, result);
}
