//! Short blocks of every pair of ranks, in one message for each pair of sites.

use crate::multisite::{RootRole, Route};
use crate::schedule::{Buffer, Schedule, Span};
use crate::topology::Levels;

/// Sends block `i` of everyone's input, `len` bytes, to rank `i`'s output.
pub(crate) fn alltoall(schedule: &mut Schedule, levels: &Levels, me: u32, len: u64) {
    let this = SiteExchange::new(levels, me, len);
    this.within(schedule);
    let outgoing = schedule.room(this.foreign() * len);
    let incoming = schedule.room(this.foreign() * len);
    for (place, span) in this.foreign_spans(outgoing) {
        schedule.copy(Buffer::Input.span(place, span.len), span);
    }
    if me == this.leader {
        this.exchange(schedule, outgoing, incoming);
    } else {
        schedule.send(this.leader, outgoing);
        schedule.receive(this.leader, incoming);
        schedule.wait();
    }
    for (place, span) in this.foreign_spans(incoming) {
        schedule.copy(span, Buffer::Output.span(place, span.len));
    }
}

struct SiteExchange<'a> {
    levels: &'a Levels,
    route: Route<'a>,
    me: u32,
    leader: u32,
    len: u64,
    /// Range of the own site's ranks in the order of the grid.
    own: (u32, u32),
}

impl<'a> SiteExchange<'a> {
    fn new(levels: &'a Levels, me: u32, len: u64) -> Self {
        let route = Route { levels, leader_index: 0, root_role: RootRole::None };
        let own = levels.places_of_site(levels.site(me));
        Self { levels, route, me, leader: route.site_leader_of(me), len, own }
    }

    /// Number of ranks in other sites.
    fn foreign(&self) -> u64 {
        self.levels.ranks().len() as u64 - u64::from(self.own.1 - self.own.0)
    }

    /// Number of ranks of other sites before a place in the order of the grid.
    fn foreign_before(&self, place: u32) -> u64 {
        u64::from(if place < self.own.1 { place } else { place - (self.own.1 - self.own.0) })
    }

    /// Returns the runs of ranks in other sites. Each has its start in the order of ranks, in bytes,
    /// and its part of `aggregate`, which is in the order of the grid.
    fn foreign_spans(&self, aggregate: Span) -> Vec<(u64, Span)> {
        let mut spans: Vec<(u64, Span)> = Vec::new();
        let (first, end) = (self.own.0 as usize, self.own.1 as usize);
        let ranks = self.levels.ranks();
        for (index, &rank) in (0..).zip(ranks[..first].iter().chain(&ranks[end..])) {
            let place = u64::from(rank) * self.len;
            match spans.last_mut() {
                Some((start, span)) if *start + span.len == place => span.len += self.len,
                _ => spans.push((place, aggregate.part(index * self.len, self.len))),
            }
        }
        spans
    }

    /// Exchanges the blocks of the site's ranks for each other.
    fn within(&self, schedule: &mut Schedule) {
        let block = |buffer: Buffer, rank: u32| buffer.span(u64::from(rank) * self.len, self.len);
        let others = self.levels.ranks_of_site(self.levels.site(self.me)).iter().copied();
        let others = others.filter(|&rank| rank != self.me);
        others.clone().for_each(|rank| schedule.receive(rank, block(Buffer::Output, rank)));
        others.for_each(|rank| schedule.send(rank, block(Buffer::Input, rank)));
        schedule.copy(block(Buffer::Input, self.me), block(Buffer::Output, self.me));
    }

    /// Collects the site's data for other sites, exchanges them with other leaders, and distributes
    /// the received ones.
    fn exchange(&self, schedule: &mut Schedule, outgoing: Span, incoming: Span) {
        let (levels, len) = (self.levels, self.len);
        let ranks = levels.ranks_of_site(levels.site(self.me));
        let collected: Vec<Span> = ranks
            .iter()
            .map(|&rank| match rank == self.me {
                true => outgoing,
                false => {
                    let place = schedule.room(outgoing.len);
                    schedule.receive(rank, place);
                    place
                }
            })
            .collect();
        schedule.wait();
        let given: Vec<Span> = ranks
            .iter()
            .map(|&rank| if rank == self.me { incoming } else { schedule.room(incoming.len) })
            .collect();
        let came = self.cross(schedule, &collected);
        schedule.wait();
        for (site, aggregate) in came {
            let (first, end) = levels.places_of_site(site);
            for (from, place) in (0..).zip(first..end) {
                let at = self.foreign_before(place) * len;
                for (to, given) in (0..).zip(&given) {
                    let block = (from * ranks.len() as u64 + to) * len;
                    schedule.copy(aggregate.part(block, len), given.part(at, len));
                }
            }
        }
        for (&rank, &given) in ranks.iter().zip(&given) {
            if rank != self.me {
                schedule.send(rank, given);
            }
        }
        schedule.wait();
    }

    /// Sends each site its part of `collected`, by sender and receiver, and returns the spans
    /// received from each.
    fn cross(&self, schedule: &mut Schedule, collected: &[Span]) -> Vec<(u32, Span)> {
        let mut came = Vec::new();
        for site in self.route.next_sites(self.me) {
            let (first, end) = self.levels.places_of_site(site);
            let each = u64::from(end - first) * self.len;
            let aggregate = schedule.room(each * collected.len() as u64);
            let place = schedule.room(each * collected.len() as u64);
            let at = self.foreign_before(first) * self.len;
            for (index, one) in (0..).zip(collected) {
                schedule.copy(one.part(at, each), aggregate.part(index * each, each));
            }
            schedule.receive(self.route.site_leader(site), place);
            schedule.send(self.route.site_leader(site), aggregate);
            came.push((site, place));
        }
        came
    }
}
