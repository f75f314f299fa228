//! Ranks of all hosts change places, as long as that saves something.

use std::collections::VecDeque;

use crate::graph::Graph;
use crate::{Host, Random};

/// Who is where, and what every rank is bound to.
#[derive(Clone, Debug)]
pub(crate) struct Seating<'a> {
    graph: &'a Graph,
    hosts: &'a [Host],
    /// The host of every rank.
    homes: Vec<u32>,
    /// The ranks on every host.
    members: Vec<Vec<u32>>,
    /// What every rank exchanges with every host, and with every site; empty where that would be too long.
    with_host: Vec<i64>,
    with_site: Vec<i64>,
    cost: i64,
}

impl<'a> Seating<'a> {
    pub fn new(graph: &'a Graph, hosts: &'a [Host], homes: Vec<u32>) -> Self {
        let mut members = vec![Vec::new(); hosts.len()];
        for (rank, &home) in (0u32..).zip(&homes) {
            members[home as usize].push(rank);
        }
        let fits = |(host, here): (&Host, &Vec<u32>)| here.len() <= host.slots as usize;
        assert!(hosts.iter().zip(&members).all(fits), "more ranks than slots");
        let (with_host, with_site) = (Vec::new(), Vec::new());
        let mut seating = Self { graph, hosts, homes, members, with_host, with_site, cost: 0 };
        let twice: i64 = (0..graph.size()).map(|rank| seating.cost_of(rank)).sum();
        seating.cost = twice / 2;
        if homes_times_hosts(graph, hosts) <= TABLE_MAX {
            seating.tabulate();
        }
        seating
    }

    /// What all exchanges cost: those between sites [`FAR`] times their weight, those between hosts once.
    pub fn cost(&self) -> i64 {
        self.cost
    }

    pub fn into_homes(self) -> Vec<u32> {
        self.homes
    }

    /// Changes places until no change of one or two ranks saves anything.
    pub fn settle(&mut self) {
        self.settle_from((0..self.graph.size()).collect());
    }

    /// Tries what settles after some ranks were put elsewhere, and keeps what is better.
    pub fn stir(&mut self) {
        let size = self.graph.size() as usize;
        if self.with_host.is_empty() {
            return;
        }
        let mut random = Random::new();
        let mut current = self.clone();
        for trial in 0..TRIALS_MAX.min(TRIAL_RANKS / size) {
            let mut changed = current.clone();
            let mut due = VecDeque::new();
            for _ in 0..2 + trial % 3 {
                let [one, other] = [0; 2].map(|_| random.below(size) as u32);
                if changed.home(one) != changed.home(other) {
                    changed.swap(one, other);
                    due.extend([one, other]);
                }
            }
            let near = due.iter().flat_map(|&rank| self.graph.neighbours(rank)).map(|edge| edge.0);
            due.extend(near.collect::<Vec<_>>());
            changed.settle_from(due);
            if changed.cost <= current.cost {
                current = changed;
            }
            if current.cost < self.cost {
                *self = current.clone();
            }
        }
    }

    /// As [`Seating::settle`], where only the places of these ranks are in question, and of those that
    /// exchange something with who has changed places.
    fn settle_from(&mut self, mut due: VecDeque<u32>) {
        if self.with_host.is_empty() {
            return;
        }
        let mut is_due = vec![false; self.homes.len()];
        due.iter().for_each(|&rank| is_due[rank as usize] = true);
        let mut budget = self.homes.len() * CHANGES_MAX;
        while let Some(rank) = due.pop_front() {
            is_due[rank as usize] = false;
            let Some((other, host)) = self.best_change(rank) else { continue };
            match other {
                Some(other) => self.swap(rank, other),
                None => self.shift(rank, host),
            }
            for changed in other.into_iter().chain([rank]) {
                let near = self.graph.neighbours(changed).iter().map(|edge| edge.0);
                for rank in near.chain([changed]) {
                    if !std::mem::replace(&mut is_due[rank as usize], true) {
                        due.push_back(rank);
                    }
                }
            }
            budget -= 1;
            if budget == 0 {
                return;
            }
        }
    }

    /// The host for a rank, and who goes to its place in return, by which most is saved.
    fn best_change(&self, rank: u32) -> Option<(Option<u32>, u32)> {
        let home = self.home(rank);
        let mut best = (0, None);
        for (index, host) in (0u32..).zip(self.hosts).filter(|(index, _)| *index != home) {
            let members = &self.members[index as usize];
            let own = self.saving(rank, index);
            // Of two that save something together one does alone, and its turn comes.
            if own <= 0 {
                continue;
            }
            if members.len() < host.slots as usize && own > best.0 {
                best = (own, Some((None, index)));
            }
            for &other in members {
                let both = own + self.saving(other, home);
                // What the two exchange was counted as saved twice, and stays as it was.
                if both > best.0 {
                    let between = 2 * self.between(rank, other) * self.distance(home, index);
                    if both - between > best.0 {
                        best = (both - between, Some((Some(other), index)));
                    }
                }
            }
        }
        best.1
    }

    fn home(&self, rank: u32) -> u32 {
        self.homes[rank as usize]
    }

    /// What is saved when a rank goes to a host, and the others stay.
    fn saving(&self, rank: u32, to: u32) -> i64 {
        let home = self.home(rank);
        let rows = self.hosts.len() * rank as usize;
        let on_host = |host: u32| self.with_host[rows + host as usize];
        let on_site = |host: u32| self.with_site[rows + self.hosts[host as usize].site as usize];
        let near = |host: u32| on_host(host) + (FAR - 1) * on_site(host);
        near(to) - near(home)
    }

    fn between(&self, one: u32, other: u32) -> i64 {
        let edges = self.graph.neighbours(one);
        let found = edges.binary_search_by_key(&other, |edge| edge.0);
        found.map_or(0, |at| edges[at].1 as i64)
    }

    fn distance(&self, one: u32, other: u32) -> i64 {
        if one == other {
            0
        } else if self.hosts[one as usize].site == self.hosts[other as usize].site {
            1
        } else {
            FAR
        }
    }

    fn cost_of(&self, rank: u32) -> i64 {
        let home = self.home(rank);
        let each =
            |&(other, weight): &(u32, u64)| weight as i64 * self.distance(home, self.home(other));
        self.graph.neighbours(rank).iter().map(each).sum()
    }

    fn swap(&mut self, one: u32, other: u32) {
        let (from, to) = (self.home(one), self.home(other));
        self.shift(one, to);
        self.shift(other, from);
    }

    /// Puts a rank on a host.
    fn shift(&mut self, rank: u32, to: u32) {
        let from = self.home(rank);
        self.cost -= self.saving(rank, to);
        self.members[from as usize].retain(|&member| member != rank);
        self.members[to as usize].push(rank);
        self.homes[rank as usize] = to;
        for &(other, weight) in self.graph.neighbours(rank) {
            self.bind(other, from, -(weight as i64));
            self.bind(other, to, weight as i64);
        }
    }

    fn tabulate(&mut self) {
        let entries = homes_times_hosts(self.graph, self.hosts);
        (self.with_host, self.with_site) = (vec![0; entries], vec![0; entries]);
        for rank in 0..self.graph.size() {
            for &(other, weight) in self.graph.neighbours(rank) {
                self.bind(rank, self.home(other), weight as i64);
            }
        }
    }

    /// A rank exchanges more with a host.
    fn bind(&mut self, rank: u32, host: u32, weight: i64) {
        let row = self.hosts.len() * rank as usize;
        self.with_host[row + host as usize] += weight;
        self.with_site[row + self.hosts[host as usize].site as usize] += weight;
    }
}

fn homes_times_hosts(graph: &Graph, hosts: &[Host]) -> usize {
    (graph.size() as usize).saturating_mul(hosts.len())
}

/// What is exchanged between sites costs so many times what is exchanged between hosts of one: nothing that
/// is saved within sites is worth more. Costs stay below 2^60.
const FAR: i64 = 1 << 20;

/// Entries of the tables: where there were more, ranks stay where cutting the graph has put them.
const TABLE_MAX: usize = 1 << 22;

/// Changes for each rank, on average.
const CHANGES_MAX: usize = 32;

/// How often some are put elsewhere; as often as makes so many ranks.
const TRIALS_MAX: usize = 200;
const TRIAL_RANKS: usize = 10_000;
