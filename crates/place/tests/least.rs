//! Placements cross sites and hosts no more than the best of all placements.

use place::{Graph, Host, place};
use testing::Random;

/// Returns the traffic between sites, and between hosts of a site.
fn cost(edges: &[(u32, u32, u64)], hosts: &[Host], host_of_rank: &[u32]) -> (u64, u64) {
    let mut cost = (0, 0);
    for &(from, to, weight) in edges {
        let [from, to] = [from, to].map(|rank| host_of_rank[rank as usize]);
        if hosts[from as usize].site != hosts[to as usize].site {
            cost.0 += weight;
        } else if from != to {
            cost.1 += weight;
        }
    }
    cost
}

/// Returns the least cost of all placements.
fn least(size: u32, edges: &[(u32, u32, u64)], hosts: &[Host]) -> (u64, u64) {
    struct Search<'a> {
        hosts: &'a [Host],
        /// Traffic of every rank with the ranks before it.
        before: Vec<Vec<(u32, u64)>>,
        host_of_rank: Vec<u32>,
        loads: Vec<u32>,
        best: (u64, u64),
    }
    impl Search<'_> {
        fn extend(&mut self, cost: (u64, u64)) {
            let rank = self.host_of_rank.len();
            if cost >= self.best {
                return;
            }
            if rank == self.before.len() {
                self.best = cost;
                return;
            }
            for index in 0..self.hosts.len() {
                if self.loads[index] == self.hosts[index].slots {
                    continue;
                }
                let mut next = cost;
                for &(other, weight) in &self.before[rank] {
                    let host = self.host_of_rank[other as usize] as usize;
                    if self.hosts[host].site != self.hosts[index].site {
                        next.0 += weight;
                    } else if host != index {
                        next.1 += weight;
                    }
                }
                self.loads[index] += 1;
                self.host_of_rank.push(index as u32);
                self.extend(next);
                self.host_of_rank.pop();
                self.loads[index] -= 1;
            }
        }
    }
    let mut before = vec![Vec::new(); size as usize];
    for &(from, to, weight) in edges.iter().filter(|(from, to, _)| from != to) {
        before[from.max(to) as usize].push((from.min(to), weight));
    }
    let (host_of_rank, loads) = (Vec::new(), vec![0; hosts.len()]);
    let mut search = Search { hosts, before, host_of_rank, loads, best: (u64::MAX, u64::MAX) };
    search.extend((0, 0));
    search.best
}

/// Makes hosts with these slots, for every site.
fn hosts(sites: &[&[u32]]) -> Vec<Host> {
    let sites = (0..).zip(sites);
    sites.flat_map(|(site, all)| all.iter().map(move |&slots| Host { site, slots })).collect()
}

/// Places one rank on each host in turn, and again from the first.
fn in_turn(size: u32, hosts: &[Host]) -> Vec<u32> {
    let mut loads = vec![0; hosts.len()];
    let mut host_of_rank = Vec::new();
    let mut next = (0..hosts.len()).cycle();
    while host_of_rank.len() < size as usize {
        let host = next.next().unwrap();
        if loads[host] < hosts[host].slots {
            loads[host] += 1;
            host_of_rank.push(host as u32);
        }
    }
    host_of_rank
}

fn ring(size: u32) -> Vec<(u32, u32, u64)> {
    (0..size).map(|rank| (rank, (rank + 1) % size, 1000)).collect()
}

/// A grid with more traffic along columns than along rows.
fn stencil(rows: u32, columns: u32, down: u64) -> Vec<(u32, u32, u64)> {
    let at = |row: u32, column: u32| row * columns + column;
    let mut edges = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            if column + 1 < columns {
                edges.push((at(row, column), at(row, column + 1), 1));
            }
            if row + 1 < rows {
                edges.push((at(row, column), at(row + 1, column), down));
            }
        }
    }
    edges
}

/// Makes a graph in which each pair has traffic with this chance in ten.
fn graph(random: &mut Random, size: u32, tenths: u64, weight: u64) -> Vec<(u32, u32, u64)> {
    let mut edges = Vec::new();
    for one in 0..size {
        for other in 0..one {
            if random.below(10) < tenths {
                edges.push((one, other, 1 + random.below(weight)));
            }
        }
    }
    edges
}

/// Places, and checks that no host has more ranks than slots.
fn placed(size: u32, edges: &[(u32, u32, u64)], hosts: &[Host]) -> Vec<u32> {
    let graph = Graph::new(size, edges.iter().copied());
    let before = in_turn(size, hosts);
    let host_of_rank = place(&graph, hosts, &before);
    assert_eq!(host_of_rank, place(&graph, hosts, &before), "the same for everybody");
    for (index, host) in (0u32..).zip(hosts) {
        assert!(host_of_rank.iter().filter(|host| **host == index).count() <= host.slots as usize);
    }
    assert!(cost(edges, hosts, &host_of_rank) <= cost(edges, hosts, &before));
    host_of_rank
}

fn check(size: u32, edges: &[(u32, u32, u64)], hosts: &[Host], what: &str) {
    let found = cost(edges, hosts, &placed(size, edges, hosts));
    assert_eq!(found, least(size, edges, hosts), "{what}: {size} ranks on {hosts:?}");
}

/// Returns some small grids, with room to spare and without.
fn grids(size: u32) -> Vec<Vec<Host>> {
    let (half, third) = (size.div_ceil(2), size.div_ceil(3));
    vec![
        hosts(&[&[half], &[size - half]]),
        hosts(&[&[half.div_ceil(2), half / 2], &[half.div_ceil(2), half / 2]]),
        hosts(&[&[third], &[third], &[third]]),
        hosts(&[&[1, third], &[size - third - 1]]),
        hosts(&[&[size - 1], &[2]]),
        hosts(&[&[half, half], &[half]]),
    ]
}

#[test]
fn rings_and_stencils_cross_the_least() {
    for size in 2..=12 {
        for hosts in grids(size) {
            check(size, &ring(size), &hosts, "ring");
        }
    }
    for (rows, columns) in [(2, 2), (2, 4), (3, 3), (2, 5), (3, 4), (4, 3)] {
        for (hosts, down) in grids(rows * columns).into_iter().zip([1, 5].into_iter().cycle()) {
            check(rows * columns, &stencil(rows, columns, down), &hosts, "stencil");
        }
    }
}

#[test]
fn random_graphs_cross_the_least() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let size = 2 + random.below(9) as u32;
        let (tenths, weight) = (1 + random.below(10), 1 + random.below(50));
        let edges = graph(&mut random, size, tenths, weight);
        let grids = grids(size);
        let hosts = &grids[random.below(grids.len() as u64) as usize];
        check(size, &edges, hosts, &format!("seed {seed}"));
    }
}

#[test]
fn separate_components_are_not_cut() {
    // Four teams of three, interleaved.
    let team = |rank: u32| rank % 4;
    let pairs = (0..12).flat_map(|one| (0..one).map(move |other| (one, other)));
    let edges: Vec<_> =
        pairs.filter(|(one, other)| team(*one) == team(*other)).map(|(a, b)| (a, b, 3)).collect();
    for hosts in [hosts(&[&[6], &[6]]), hosts(&[&[3, 3], &[3, 3]]), hosts(&[&[3], &[3, 6]])] {
        assert_eq!(cost(&edges, &hosts, &placed(12, &edges, &hosts)), (0, 0), "{hosts:?}");
    }
}

#[test]
fn all_ranks_go_to_one_site_with_room() {
    let edges = ring(8);
    let hosts = hosts(&[&[3], &[4, 4]]);
    assert_eq!(cost(&edges, &hosts, &placed(8, &edges, &hosts)), (0, 2000));
}

#[test]
fn no_rank_moves_without_a_saving() {
    let one = hosts(&[&[4]]);
    assert_eq!(place(&Graph::new(1, []), &one, &[0]), [0]);
    assert_eq!(place(&Graph::new(0, []), &one, &[]), [0; 0]);
    let two = hosts(&[&[2], &[2]]);
    assert_eq!(place(&Graph::new(4, []), &two, &[1, 0, 0, 1]), [1, 0, 0, 1]);
    // Every pair has the same traffic: no placement is better.
    let all = (0..4).flat_map(|one| (0..one).map(move |other| (one, other, 9)));
    assert_eq!(place(&Graph::new(4, all), &two, &[0, 1, 0, 1]), [0, 1, 0, 1]);
}

#[test]
fn many_ranks_are_placed_well() {
    // 32 × 32, interleaved over four sites of four hosts.
    let edges = stencil(32, 32, 1);
    let hosts = hosts(&[&[64; 4][..]; 4]);
    // Squares: 2 × 32 edges between sites, and 4 × 2 × 16 between hosts.
    assert_eq!(cost(&edges, &hosts, &placed(1024, &edges, &hosts)), (64, 128));
    let ring = ring(1000);
    assert_eq!(cost(&ring, &hosts, &placed(1000, &ring, &hosts)), (4000, 12_000));
    let random = graph(&mut Random::new(7), 300, 10, 1000);
    placed(300, &random, &hosts);
}
