//! Order of operands and results, if each site combines segments for the others.

use super::{CROSSING, NODES, RANKS, TO_NODES};

/// Order in which a site sends operands and results if each site combines one segment of each round
/// for all. In the first half of a round it sends a segment to each other site, from the next on,
/// so that not all send to the same one. In the second half it sends its combined segment of an
/// earlier round, for which all operands have arrived.
#[derive(Clone, Copy)]
pub(super) struct Rounds {
    pub sites: u32,
    /// Segments in flight in the meantime.
    pub crossing: u32,
}

impl Rounds {
    /// Returns the start of a segment's round.
    pub fn begin(self, index: u32) -> u32 {
        index / self.sites * self.len()
    }

    /// Returns the additional delay, at a site, of a stage of the segment that site `by` combines.
    pub fn stagger(self, stage: usize, by: u32, site: u32) -> u32 {
        match stage {
            RANKS | NODES | CROSSING => (by + self.sites - site) % self.sites,
            // Stages are later by `crossing` and one than the last of these; no rank waits in its
            // own round.
            _ => {
                let rounds = (self.crossing + self.sites).div_ceil(self.len()).max(1);
                let passed = rounds * self.len() + self.sites - 1 - self.crossing;
                let result = if stage < TO_NODES { 0 } else { self.len() };
                passed + result + by
            }
        }
    }

    fn len(self) -> u32 {
        2 * self.sites
    }
}

#[cfg(test)]
mod tests {
    use super::super::PASSING;
    use super::*;

    /// Returns site `from`'s messages to site `to` for so many segments, in the order of `site`'s
    /// timetable.
    fn messages(rounds: Rounds, segments: u32, [from, to, site]: [u32; 3]) -> Vec<(usize, u32)> {
        let by = |index: u32| (index + index / rounds.sites) % rounds.sites;
        let delay = |stage| if stage == CROSSING { 0 } else { 1 + rounds.crossing };
        let due = |stage, index| {
            rounds.begin(index) + delay(stage) + rounds.stagger(stage, by(index), site)
        };
        let of = |stage, sender| {
            let its = (0..segments).filter(move |&index| by(index) == sender);
            its.map(move |index| (due(stage, index), stage, index))
        };
        let mut all: Vec<_> = of(CROSSING, to).chain(of(PASSING, from)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, stage, index)| (stage, index)).collect()
    }

    #[test]
    fn both_sites_order_messages_alike_and_no_segment_waits_in_its_own_round() {
        for (sites, crossing) in (2..12).flat_map(|sites| [0, 1, 5, 64].map(|far| (sites, far))) {
            let rounds = Rounds { sites, crossing };
            for (from, to) in (0..sites).flat_map(|from| (0..from).map(move |to| (from, to))) {
                for [from, to] in [[from, to], [to, from]] {
                    let at = |site| messages(rounds, 5 * sites, [from, to, site]);
                    assert_eq!(at(from), at(to), "{from} to {to} of {sites}, {crossing} in flight");
                }
            }
            for (by, site) in (0..sites).flat_map(|by| (0..sites).map(move |site| (by, site))) {
                let passes = 1 + crossing + rounds.stagger(PASSING, by, by);
                assert!(passes >= rounds.stagger(CROSSING, by, site) + rounds.len());
            }
        }
    }
}
