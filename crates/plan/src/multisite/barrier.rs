//! The barrier of several sites.

use crate::algorithms::shmem::ShmAccess;
use crate::multisite::{RootRole, Route};
use crate::schedule::Schedule;
use crate::topology::Levels;

/// Waits until all ranks have arrived. Sites signal each other as soon as all their ranks have.
/// Within a node the shared segment is used if `shm` is given.
pub(crate) fn barrier(schedule: &mut Schedule, levels: &Levels, me: u32, shm: Option<ShmAccess>) {
    let route = Route { levels, leader_index: 0, root_role: RootRole::None };
    let leader = route.leader_of(me);
    if let Some(shm) = shm {
        let leader_at = route.leader_position(me);
        shm.collect(schedule, leader_at);
        if me == leader {
            among_leaders(schedule, route, me);
        }
        shm.release(schedule, leader_at);
        return schedule.wait();
    }
    if me != leader {
        schedule.send_signal(leader);
        schedule.receive_signal(leader);
        return schedule.wait();
    }
    route.neighbours(me).for_each(|rank| schedule.receive_signal(rank));
    among_leaders(schedule, route, me);
    route.neighbours(me).for_each(|rank| schedule.send_signal(rank));
    schedule.wait();
}

/// Exchanges signals between the leaders of nodes, after the ranks of each have arrived.
fn among_leaders(schedule: &mut Schedule, route: Route, me: u32) {
    let site_leader = route.site_leader_of(me);
    if me != site_leader {
        schedule.wait();
        schedule.send_signal(site_leader);
        schedule.receive_signal(site_leader);
    } else {
        route.other_nodes(me).for_each(|node| schedule.receive_signal(route.node_leader(node)));
        schedule.wait();
        for site in route.other_sites(me) {
            schedule.receive_signal(route.site_leader(site));
            schedule.send_signal(route.site_leader(site));
        }
        schedule.wait();
        route.other_nodes(me).for_each(|node| schedule.send_signal(route.node_leader(node)));
    }
    if me != site_leader {
        schedule.wait();
    }
}
