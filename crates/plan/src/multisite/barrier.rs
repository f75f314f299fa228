//! The barrier of several sites.

use crate::algorithms::shmem::Seat;
use crate::multisite::{Pin, Way};
use crate::schedule::Schedule;
use crate::topology::Levels;

/// Sites hear of each other as soon as all their ranks have come: at the shmem of their node, if the rank has a `seat`
/// there.
pub(crate) fn barrier(schedule: &mut Schedule, levels: &Levels, me: u32, seat: Option<Seat>) {
    let way = Way { levels, lane: 0, pin: Pin::None };
    let head = way.head_of(me);
    if let Some(seat) = seat {
        let head_at = way.head_position(me);
        seat.collect(schedule, head_at);
        if me == head {
            among_heads(schedule, way, me);
        }
        seat.release(schedule, head_at);
        return schedule.wait();
    }
    if me != head {
        schedule.send_signal(head);
        schedule.receive_signal(head);
        return schedule.wait();
    }
    way.neighbours(me).for_each(|rank| schedule.receive_signal(rank));
    among_heads(schedule, way, me);
    way.neighbours(me).for_each(|rank| schedule.send_signal(rank));
    schedule.wait();
}

/// What the heads of nodes tell each other when all of theirs have come.
fn among_heads(schedule: &mut Schedule, way: Way, me: u32) {
    let site_head = way.site_head_of(me);
    if me != site_head {
        schedule.wait();
        schedule.send_signal(site_head);
        schedule.receive_signal(site_head);
    } else {
        way.other_nodes(me).for_each(|node| schedule.receive_signal(way.node_head(node)));
        schedule.wait();
        for site in way.other_sites(me) {
            schedule.receive_signal(way.site_head(site));
            schedule.send_signal(way.site_head(site));
        }
        schedule.wait();
        way.other_nodes(me).for_each(|node| schedule.send_signal(way.node_head(node)));
    }
    if me != site_head {
        schedule.wait();
    }
}
