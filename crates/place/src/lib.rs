//! Placement of ranks that makes their traffic cheap.
//!
//! [`place`] is pure: it computes each rank's host from the traffic between ranks ([`Graph`]) and
//! the slots of the hosts ([`Host`]). All callers get the same result. Traffic between sites counts
//! before traffic between hosts.
//!
//! The graph is bisected repeatedly (`bisect`), first among sites, then among the hosts of each.
//! The algorithm is multilevel, after Hendrickson and Leland, *A multilevel algorithm for
//! partitioning graphs*, SC 1995. Cuts are refined after Fiduccia and Mattheyses, DAC 1982. Then
//! ranks of all hosts change places as long as that helps (`exchange`).
//!
//! [`limits`] says how many ranks hosts of unequal speed take.
//!
//! [`traffic`] holds the counts of ranks.
#![forbid(unsafe_code)]

mod bisect;
mod capacity;
mod exchange;
mod graph;
mod host;
mod random;
pub mod traffic;

pub use capacity::{Capacity, limits};
pub use graph::Graph;
pub use host::Host;

use bisect::bisect;
use exchange::Assignment;

/// Returns the host of every rank with little traffic between sites, and then between hosts.
/// `before` is the default placement, which is returned if nothing is better.
///
/// # Panics
/// If `before` does not have a host for each rank, or gives a host more ranks than slots.
pub fn place(graph: &Graph, hosts: &[Host], before: &[u32]) -> Vec<u32> {
    assert_eq!(graph.size() as usize, before.len(), "a host for every rank");
    let stay = Assignment::new(graph, hosts, before.to_vec());
    if hosts.len() < 2 || graph.is_empty() || stay.cost() == 0 {
        return before.to_vec();
    }
    let mut best = stay;
    let divided = Assignment::new(graph, hosts, divide(graph, hosts));
    for mut assignment in [best.clone(), divided] {
        assignment.improve();
        if assignment.cost() < best.cost() {
            best = assignment;
        }
    }
    best.perturb();
    best.into_hosts()
}

/// Assigns hosts by repeated bisection of the graph.
fn divide(graph: &Graph, hosts: &[Host]) -> Vec<u32> {
    let mut host_of_rank = vec![0; graph.size() as usize];
    let mut sites: Vec<Room> = Vec::new();
    for host in hosts {
        match sites.iter_mut().find(|part| part.number == host.site) {
            Some(part) => part.room += u64::from(host.slots),
            None => sites.push(Room { number: host.site, room: u64::from(host.slots) }),
        }
    }
    let mut site_of = vec![0; graph.size() as usize];
    assign(graph, &(0..graph.size()).collect::<Vec<_>>(), &sites, &mut site_of);
    for site in sites {
        let members: Vec<u32> = (0u32..)
            .zip(&site_of)
            .filter(|(_, of)| **of == site.number)
            .map(|(it, _)| it)
            .collect();
        let own = (0u32..).zip(hosts).filter(|(_, host)| host.site == site.number);
        let parts: Vec<Room> =
            own.map(|(number, host)| Room { number, room: u64::from(host.slots) }).collect();
        assign(graph, &members, &parts, &mut host_of_rank);
    }
    host_of_rank
}

/// A site or a host with room for ranks.
#[derive(Clone, Copy)]
struct Room {
    number: u32,
    room: u64,
}

/// Assigns each of `members` the number of a part.
fn assign(graph: &Graph, members: &[u32], parts: &[Room], host_of_rank: &mut [u32]) {
    let [first, .., _] = parts else {
        let number = parts.first().map_or(0, |part| part.number);
        members.iter().for_each(|&member| host_of_rank[member as usize] = number);
        return;
    };
    let half = parts.iter().map(|part| part.room).sum::<u64>() / 2;
    let mut room = first.room;
    let mut middle = 1;
    while middle + 1 < parts.len() && room + parts[middle].room / 2 < half {
        room += parts[middle].room;
        middle += 1;
    }
    let (near, far) = parts.split_at(middle);
    let rooms = [near, far].map(|half| half.iter().map(|part| part.room).sum());
    let sides = bisect(&graph.part(members), rooms);
    for (side, half) in [near, far].into_iter().enumerate() {
        let of = members.iter().zip(&sides).filter(|(_, at)| usize::from(**at) == side);
        assign(graph, &of.map(|(&member, _)| member).collect::<Vec<_>>(), half, host_of_rank);
    }
}
