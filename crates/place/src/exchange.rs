//! Exchange of ranks between hosts, as long as that saves traffic.

use std::collections::VecDeque;

use crate::graph::Graph;
use crate::host::Host;
use crate::random::Xorshift;

/// Assignment of ranks to hosts, with each rank's traffic to hosts and sites.
#[derive(Clone, Debug)]
pub(crate) struct Assignment<'a> {
    graph: &'a Graph,
    hosts: &'a [Host],
    /// Host of every rank.
    host_of_rank: Vec<u32>,
    /// Ranks on every host.
    members: Vec<Vec<u32>>,
    /// Traffic of every rank with every host, and with every site; empty if the tables were too
    /// long.
    with_host: Vec<i64>,
    with_site: Vec<i64>,
    cost: i64,
}

impl<'a> Assignment<'a> {
    pub fn new(graph: &'a Graph, hosts: &'a [Host], host_of_rank: Vec<u32>) -> Self {
        let mut members = vec![Vec::new(); hosts.len()];
        for (rank, &current) in (0u32..).zip(&host_of_rank) {
            members[current as usize].push(rank);
        }
        let fits = |(host, here): (&Host, &Vec<u32>)| here.len() <= host.slots as usize;
        assert!(hosts.iter().zip(&members).all(fits), "more ranks than slots");
        let (with_host, with_site) = (Vec::new(), Vec::new());
        let mut assignment =
            Self { graph, hosts, host_of_rank, members, with_host, with_site, cost: 0 };
        let twice: i64 = (0..graph.size()).map(|rank| assignment.cost_of(rank)).sum();
        assignment.cost = twice / 2;
        if ranks_times_hosts(graph, hosts) <= TABLE_MAX {
            assignment.tabulate();
        }
        assignment
    }

    /// Cost of all traffic: [`FAR`] times the weight between sites, and once the weight between
    /// hosts.
    pub fn cost(&self) -> i64 {
        self.cost
    }

    pub fn into_hosts(self) -> Vec<u32> {
        self.host_of_rank
    }

    /// Moves and swaps ranks until no change of one or two ranks saves anything.
    pub fn improve(&mut self) {
        self.improve_from((0..self.graph.size()).collect());
    }

    /// Repeatedly swaps random ranks and improves the result, and keeps the best.
    pub fn perturb(&mut self) {
        let size = self.graph.size() as usize;
        if self.with_host.is_empty() {
            return;
        }
        let mut random = Xorshift::new();
        let mut current = self.clone();
        for trial in 0..TRIALS_MAX.min(TRIAL_RANKS / size) {
            let mut changed = current.clone();
            let mut due = VecDeque::new();
            for _ in 0..2 + trial % 3 {
                let [one, other] = [0; 2].map(|_| random.below(size) as u32);
                if changed.host_of(one) != changed.host_of(other) {
                    changed.swap(one, other);
                    due.extend([one, other]);
                }
            }
            let near = due.iter().flat_map(|&rank| self.graph.neighbours(rank)).map(|edge| edge.0);
            due.extend(near.collect::<Vec<_>>());
            changed.improve_from(due);
            if changed.cost <= current.cost {
                current = changed;
            }
            if current.cost < self.cost {
                *self = current.clone();
            }
        }
    }

    /// Improves like [`Assignment::improve`], but considers only these ranks, and the neighbours of
    /// ranks that change places.
    fn improve_from(&mut self, mut due: VecDeque<u32>) {
        if self.with_host.is_empty() {
            return;
        }
        let mut is_due = vec![false; self.host_of_rank.len()];
        due.iter().for_each(|&rank| is_due[rank as usize] = true);
        let mut budget = self.host_of_rank.len() * CHANGES_MAX;
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

    /// Returns the host for a rank, and the rank to swap with, with the greatest saving.
    fn best_change(&self, rank: u32) -> Option<(Option<u32>, u32)> {
        let current = self.host_of(rank);
        let mut best = (0, None);
        for (index, host) in (0u32..).zip(self.hosts).filter(|(index, _)| *index != current) {
            let members = &self.members[index as usize];
            let own = self.saving(rank, index);
            // If a swap of two saves something, one of them saves something alone, and is
            // considered in its turn.
            if own <= 0 {
                continue;
            }
            if members.len() < host.slots as usize && own > best.0 {
                best = (own, Some((None, index)));
            }
            for &other in members {
                let both = own + self.saving(other, current);
                // The traffic between the two was counted as saved twice, and stays as before.
                if both > best.0 {
                    let between = 2 * self.between(rank, other) * self.distance(current, index);
                    if both - between > best.0 {
                        best = (both - between, Some((Some(other), index)));
                    }
                }
            }
        }
        best.1
    }

    fn host_of(&self, rank: u32) -> u32 {
        self.host_of_rank[rank as usize]
    }

    /// Returns the saving if a rank moves to a host and the others stay.
    fn saving(&self, rank: u32, to: u32) -> i64 {
        let current = self.host_of(rank);
        let rows = self.hosts.len() * rank as usize;
        let on_host = |host: u32| self.with_host[rows + host as usize];
        let on_site = |host: u32| self.with_site[rows + self.hosts[host as usize].site as usize];
        let near = |host: u32| on_host(host) + (FAR - 1) * on_site(host);
        near(to) - near(current)
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
        let current = self.host_of(rank);
        let each = |&(other, weight): &(u32, u64)| {
            weight as i64 * self.distance(current, self.host_of(other))
        };
        self.graph.neighbours(rank).iter().map(each).sum()
    }

    fn swap(&mut self, one: u32, other: u32) {
        let (from, to) = (self.host_of(one), self.host_of(other));
        self.shift(one, to);
        self.shift(other, from);
    }

    /// Moves a rank to a host.
    fn shift(&mut self, rank: u32, to: u32) {
        let from = self.host_of(rank);
        self.cost -= self.saving(rank, to);
        self.members[from as usize].retain(|&member| member != rank);
        self.members[to as usize].push(rank);
        self.host_of_rank[rank as usize] = to;
        for &(other, weight) in self.graph.neighbours(rank) {
            self.bind(other, from, -(weight as i64));
            self.bind(other, to, weight as i64);
        }
    }

    fn tabulate(&mut self) {
        let entries = ranks_times_hosts(self.graph, self.hosts);
        (self.with_host, self.with_site) = (vec![0; entries], vec![0; entries]);
        for rank in 0..self.graph.size() {
            for &(other, weight) in self.graph.neighbours(rank) {
                self.bind(rank, self.host_of(other), weight as i64);
            }
        }
    }

    /// Adds to a rank's traffic with a host.
    fn bind(&mut self, rank: u32, host: u32, weight: i64) {
        let row = self.hosts.len() * rank as usize;
        self.with_host[row + host as usize] += weight;
        self.with_site[row + self.hosts[host as usize].site as usize] += weight;
    }
}

fn ranks_times_hosts(graph: &Graph, hosts: &[Host]) -> usize {
    (graph.size() as usize).saturating_mul(hosts.len())
}

/// Cost factor of traffic between sites: no saving within sites outweighs it. Costs stay below
/// 2^60.
const FAR: i64 = 1 << 20;

/// Maximum number of table entries. Above it ranks stay where bisection has put them.
const TABLE_MAX: usize = 1 << 22;

/// Maximum number of changes per rank, on average.
const CHANGES_MAX: usize = 32;

/// Maximum number of perturbations, and of ranks in all of them together.
const TRIALS_MAX: usize = 200;
const TRIAL_RANKS: usize = 10_000;
