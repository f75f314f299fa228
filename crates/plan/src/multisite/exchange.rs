//! Short blocks of every pair of ranks, in one message for each pair of sites.

use crate::multisite::{Pin, Way};
use crate::schedule::{Buffer, Schedule, Span};
use crate::topology::Levels;

/// Block `i` of everyone's input, `len` bytes, to rank `i`'s output.
pub(crate) fn alltoall(schedule: &mut Schedule, levels: &Levels, me: u32, len: u64) {
    let this = Exchange::new(levels, me, len);
    this.within(schedule);
    let outgoing = schedule.room(this.foreign() * len);
    let incoming = schedule.room(this.foreign() * len);
    for (place, span) in this.foreign_spans(outgoing) {
        schedule.copy(Buffer::Input.span(place, span.len), span);
    }
    if me == this.head {
        this.exchange(schedule, outgoing, incoming);
    } else {
        schedule.send(this.head, outgoing);
        schedule.receive(this.head, incoming);
        schedule.wait();
    }
    for (place, span) in this.foreign_spans(incoming) {
        schedule.copy(span, Buffer::Output.span(place, span.len));
    }
}

struct Exchange<'a> {
    levels: &'a Levels,
    way: Way<'a>,
    me: u32,
    head: u32,
    len: u64,
    /// Where the own site's ranks are in the order of the grid.
    own: (u32, u32),
}

impl<'a> Exchange<'a> {
    fn new(levels: &'a Levels, me: u32, len: u64) -> Self {
        let way = Way { levels, lane: 0, pin: Pin::None };
        let own = levels.places_of_site(levels.site(me));
        Self { levels, way, me, head: way.site_head_of(me), len, own }
    }

    /// How many ranks are in other sites.
    fn foreign(&self) -> u64 {
        self.levels.ranks().len() as u64 - u64::from(self.own.1 - self.own.0)
    }

    /// How many ranks of other sites are before a place in the order of the grid.
    fn foreign_before(&self, place: u32) -> u64 {
        u64::from(if place < self.own.1 { place } else { place - (self.own.1 - self.own.0) })
    }

    /// For runs of ranks in other sites: where they begin in the order of ranks, in bytes, and the part of
    /// `bundle`, which is in the order of the grid, that is theirs.
    fn foreign_spans(&self, bundle: Span) -> Vec<(u64, Span)> {
        let mut spans: Vec<(u64, Span)> = Vec::new();
        let (first, end) = (self.own.0 as usize, self.own.1 as usize);
        let ranks = self.levels.ranks();
        for (index, &rank) in (0..).zip(ranks[..first].iter().chain(&ranks[end..])) {
            let place = u64::from(rank) * self.len;
            match spans.last_mut() {
                Some((start, span)) if *start + span.len == place => span.len += self.len,
                _ => spans.push((place, bundle.part(index * self.len, self.len))),
            }
        }
        spans
    }

    /// The blocks of the site's ranks for each other.
    fn within(&self, schedule: &mut Schedule) {
        let block = |buffer: Buffer, rank: u32| buffer.span(u64::from(rank) * self.len, self.len);
        let others = self.levels.ranks_of_site(self.levels.site(self.me)).iter().copied();
        let others = others.filter(|&rank| rank != self.me);
        others.clone().for_each(|rank| schedule.receive(rank, block(Buffer::Output, rank)));
        others.for_each(|rank| schedule.send(rank, block(Buffer::Input, rank)));
        schedule.copy(block(Buffer::Input, self.me), block(Buffer::Output, self.me));
    }

    /// Collects what the site's ranks send elsewhere, exchanges it with other heads, and gives it out.
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
        for (site, bundle) in came {
            let (first, end) = levels.places_of_site(site);
            for (from, place) in (0..).zip(first..end) {
                let at = self.foreign_before(place) * len;
                for (to, given) in (0..).zip(&given) {
                    let block = (from * ranks.len() as u64 + to) * len;
                    schedule.copy(bundle.part(block, len), given.part(at, len));
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

    /// Sends each site what `collected` has for it, by sender and receiver, and gives what comes of each.
    fn cross(&self, schedule: &mut Schedule, collected: &[Span]) -> Vec<(u32, Span)> {
        let mut came = Vec::new();
        for site in self.way.next_sites(self.me) {
            let (first, end) = self.levels.places_of_site(site);
            let each = u64::from(end - first) * self.len;
            let bundle = schedule.room(each * collected.len() as u64);
            let place = schedule.room(each * collected.len() as u64);
            let at = self.foreign_before(first) * self.len;
            for (index, one) in (0..).zip(collected) {
                schedule.copy(one.part(at, each), bundle.part(index * each, each));
            }
            schedule.receive(self.way.site_head(site), place);
            schedule.send(self.way.site_head(site), bundle);
            came.push((site, place));
        }
        came
    }
}
