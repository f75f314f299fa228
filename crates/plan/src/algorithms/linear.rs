//! A star: one rank receives from all and sends to all. Every other rank waits once on the way up
//! and once on the way down. With trees and dissemination it waits in each of ⌈log2 p⌉ rounds.
//!
//! With more ranks than cores a message is cheap and a wait is expensive: the rank yields its core
//! and gets it back after the others have run.

use crate::algorithms::pairs;
use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// All signal the first rank, which signals all.
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

/// The first rank waits for a signal from all.
pub(crate) fn collect(schedule: &mut Schedule, team: Team) {
    if team.me == 0 {
        team.others().for_each(|from| schedule.receive_signal(team.rank(from)));
    } else {
        schedule.send_signal(team.rank(0));
    }
    schedule.wait();
}

/// The first rank signals all.
pub(crate) fn release(schedule: &mut Schedule, team: Team) {
    if team.me == 0 {
        team.others().for_each(|to| schedule.send_signal(team.rank(to)));
    } else {
        schedule.receive_signal(team.rank(0));
    }
    schedule.wait();
}

/// Sends the first one's `span` to all.
pub(crate) fn broadcast(schedule: &mut Schedule, team: Team, span: Span) {
    scatter(schedule, team, &|_| span);
}

/// Sends the first one's blocks to their positions. Its own is left in place.
pub(crate) fn scatter(schedule: &mut Schedule, team: Team, block: &dyn Fn(u32) -> Span) {
    if team.me == 0 {
        team.others().for_each(|to| schedule.send(team.rank(to), block(to)));
    } else {
        schedule.receive(team.rank(0), block(team.me));
    }
    schedule.wait();
}

/// Gathers the blocks of all at the first one, which has its own.
pub(crate) fn gather(schedule: &mut Schedule, team: Team, block: &dyn Fn(u32) -> Span) {
    if team.me == 0 {
        team.others().for_each(|from| schedule.receive(team.rank(from), block(from)));
    } else {
        schedule.send(team.rank(0), block(team.me));
    }
    schedule.wait();
}

/// Combines everyone's `own`, in pairs in the order of positions, to `result` at `root`.
pub(crate) fn reduce(schedule: &mut Schedule, team: Team, root: u32, own: Span, result: Span) {
    let to_root = team.led_by(root);
    if team.me != root {
        return gather(schedule, to_root, &|_| own);
    }
    // In separate buffers: elements may lie between each other's parts.
    let all: Vec<Span> = (0..team.size()).map(|_| schedule.room(own.len)).collect();
    schedule.copy(own, all[root as usize]);
    gather(schedule, to_root, &|from| all[((root + from) % team.size()) as usize]);
    let sum = pairs::combine(schedule, &all);
    schedule.copy(sum, result);
}
