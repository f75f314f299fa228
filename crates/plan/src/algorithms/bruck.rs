//! Exchanges in ⌈log2 p⌉ rounds (Bruck, Ho, Kipnis, Upfal, Weathersby 1997).

use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Gathers the blocks of all positions everywhere, doubling their number in each round. `run` gives
/// the spans of so many blocks that end with one position, around the end: one span or two. Bruck's
/// rotation is not needed, since spans may lie anywhere.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    team: Team,
    run: &dyn Fn(u32, u32) -> [Option<Span>; 2],
) {
    let (me, size) = (team.me, team.size());
    let mut have = 1;
    while have < size {
        let passed = have.min(size - have);
        for span in run((me + size - have) % size, passed).into_iter().flatten() {
            schedule.receive(team.before(have), span);
        }
        for span in run(me, passed).into_iter().flatten() {
            schedule.send(team.after(have), span);
        }
        schedule.wait();
        have += passed;
    }
}

/// Sends block `i` of `input` to position `i`, and receives block `i` of `output` from there.
/// Blocks of `len` units travel by the bits of their distance, all with the same bit together.
pub(crate) fn alltoall(
    schedule: &mut Schedule,
    team: Team,
    len: u64,
    input: &dyn Fn(u32) -> Span,
    output: &dyn Fn(u32) -> Span,
) {
    let (me, size) = (team.me, team.size());
    let [moving, outgoing, received] = [(); 3].map(|()| schedule.room(u64::from(size) * len));
    let at = |all: Span, index: u32| all.part(u64::from(index) * len, len);
    for distance in 0..size {
        schedule.copy(input((me + distance) % size), at(moving, distance));
    }
    let mut bit = 1;
    while bit < size {
        let marked: Vec<u32> = (0..size).filter(|distance| distance & bit != 0).collect();
        for (index, &distance) in (0..).zip(&marked) {
            schedule.copy(at(moving, distance), at(outgoing, index));
        }
        let units = len * marked.len() as u64;
        schedule.receive(team.before(bit), received.part(0, units));
        schedule.send(team.after(bit), outgoing.part(0, units));
        schedule.wait();
        for (index, &distance) in (0..).zip(&marked) {
            schedule.copy(at(received, index), at(moving, distance));
        }
        bit *= 2;
    }
    for distance in 0..size {
        schedule.copy(at(moving, distance), output((me + size - distance) % size));
    }
}
