//! Prefixes over sites: the head of a site has its ranks' operands, hears what the runs of other sites come
//! to, and tells each of its ranks the prefix.

use crate::across::reduction::{Run, runs};
use crate::across::{Cuts, Pin, Way, lane, timetable};
use crate::schedule::{Buffer, Schedule, Span, Ticket};
use crate::topology::{Across, Levels};

/// Which prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Of the ranks up to and with this one.
    Scan,
    /// Of the ranks below this one.
    Exscan,
}

/// The prefix of everyone's `own` to everyone's output. `own` lies outside the output.
pub(crate) fn prefix(
    schedule: &mut Schedule,
    across: &Across,
    me: u32,
    prefix: Prefix,
    own: Span,
    element: u64,
) {
    let cuts = Cuts::new(own.len, element, &across.costs);
    let pace = cuts.pace(element, across);
    let levels = &across.long;
    let sites = Sites::new(levels, me, prefix);
    let course = |index| {
        let (start, len) = cuts.segment(index);
        let way = Way { levels, lane: lane(index), pin: Pin::None };
        let result = Buffer::Output.span(start, len);
        let operands = Vec::new();
        Course { way, own: own.part(start, len), result, operands, foreign: Vec::new() }
    };
    let mut courses: Vec<Course> = (0..cuts.count).map(course).collect();
    let begins: Vec<u32> = (0..cuts.count).collect();
    let order = timetable(&begins, &[0, pace.ranks, pace.ranks + 1 + pace.crossing]);
    for &(stage, course) in &order {
        sites.expect(schedule, &mut courses[course], stage);
    }
    for &(stage, course) in &order {
        sites.send(schedule, &mut courses[course], stage);
    }
    schedule.wait();
}

/// From ranks to the head of their site; to other sites; back to ranks.
const RANKS: usize = 0;
const CROSSING: usize = 1;
const TO_RANKS: usize = 2;

/// One segment, as one rank sees it.
struct Course<'a> {
    way: Way<'a>,
    own: Span,
    result: Span,
    /// What the site's ranks have, the lowest first.
    operands: Vec<(Span, Ticket)>,
    /// What the runs of other sites come to.
    foreign: Vec<(Run, Span, Ticket)>,
}

struct Sites {
    me: u32,
    prefix: Prefix,
    own: u32,
    /// The ranks of the own site, the lowest first.
    ranks: Vec<u32>,
    /// The runs of each site.
    runs: Vec<Vec<Run>>,
}

impl Sites {
    fn new(levels: &Levels, me: u32, prefix: Prefix) -> Self {
        let sorted = |site: u32| {
            let mut ranks = levels.ranks_of_site(site).to_vec();
            ranks.sort_unstable();
            ranks
        };
        let own = levels.site(me);
        let runs = (0..levels.sites()).map(|site| runs(sorted(site).into_iter())).collect();
        Self { me, prefix, own, ranks: sorted(own), runs }
    }

    fn expect(&self, schedule: &mut Schedule, course: &mut Course, stage: usize) {
        let (way, me, len) = (course.way, self.me, course.own.len);
        let head = way.site_head_of(me);
        match stage {
            RANKS if me == head => {
                for &rank in &self.ranks {
                    let place = schedule.room(len);
                    let arrived = match rank == me {
                        true => Ticket::default(),
                        false => schedule.expect(rank, place),
                    };
                    course.operands.push((place, arrived));
                }
            }
            CROSSING if me == head => {
                for site in way.other_sites(me) {
                    for &run in &self.runs[site as usize] {
                        let place = schedule.room(len);
                        let arrived = schedule.expect(way.site_head(site), place);
                        course.foreign.push((run, place, arrived));
                    }
                }
            }
            TO_RANKS if me != head && self.has_result(me) => schedule.receive(head, course.result),
            _ => {}
        }
    }

    fn send(&self, schedule: &mut Schedule, course: &mut Course, stage: usize) {
        let head = course.way.site_head_of(self.me);
        match stage {
            RANKS if self.me != head => schedule.send(head, course.own),
            CROSSING if self.me == head => self.combine_own(schedule, course),
            TO_RANKS if self.me == head => self.combine_all(schedule, course),
            _ => {}
        }
    }

    /// Makes each operand the prefix within its run, and tells other sites what the runs come to.
    fn combine_own(&self, schedule: &mut Schedule, course: &mut Course) {
        let len = course.own.len;
        let runs = &self.runs[self.own as usize];
        let mut index = 0;
        for run in runs {
            for rank in run.first..run.end {
                let (place, arrived) = course.operands[index];
                schedule.settle(arrived);
                if rank == self.me {
                    schedule.copy(course.own, place);
                }
                if rank > run.first {
                    schedule.reduce(course.operands[index - 1].0, place);
                }
                index += 1;
            }
            // What the run comes to is on its way while its prefixes are extended.
            let total = schedule.room(len);
            schedule.copy(course.operands[index - 1].0, total);
            for site in course.way.next_sites(self.me) {
                schedule.send(course.way.site_head(site), total);
            }
        }
    }

    /// Goes through the runs of all sites in order; what is before a run goes to all in it.
    fn combine_all(&self, schedule: &mut Schedule, course: &mut Course) {
        let mut all: Vec<(Run, Option<Span>)> =
            self.runs[self.own as usize].iter().map(|&run| (run, None)).collect();
        for &(run, place, arrived) in &course.foreign {
            schedule.settle(arrived);
            all.push((run, Some(place)));
        }
        all.sort_unstable_by_key(|one| one.0.first);
        let mut before: Option<Span> = None;
        let mut index = 0;
        for (run, total) in all {
            if let Some(total) = total {
                extend(schedule, before, total);
                before = Some(total);
                continue;
            }
            for rank in run.first..run.end {
                let place = course.operands[index].0;
                let below =
                    if rank == run.first { before } else { Some(course.operands[index - 1].0) };
                extend(schedule, before, place);
                let prefix = match self.prefix {
                    Prefix::Scan => Some(place),
                    Prefix::Exscan => below,
                };
                match prefix {
                    Some(prefix) if rank == self.me => schedule.copy(prefix, course.result),
                    Some(prefix) => schedule.send(rank, prefix),
                    None => {}
                }
                index += 1;
            }
            before = Some(course.operands[index - 1].0);
        }
    }

    /// The lowest rank has nothing below it.
    fn has_result(&self, rank: u32) -> bool {
        self.prefix == Prefix::Scan || rank > 0
    }
}

/// Puts what is before to a combination.
fn extend(schedule: &mut Schedule, before: Option<Span>, place: Span) {
    if let Some(before) = before {
        schedule.reduce(before, place);
    }
}
