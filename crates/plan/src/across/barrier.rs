//! The barrier of several sites.

use crate::across::{Pin, Way};
use crate::schedule::Schedule;
use crate::topology::Levels;

/// Sites hear of each other as soon as all their ranks have come.
pub(crate) fn barrier(schedule: &mut Schedule, levels: &Levels, me: u32) {
    let way = Way { levels, lane: 0, pin: Pin::None };
    let (head, site_head) = (way.head_of(me), way.site_head_of(me));
    if me != head {
        schedule.send_signal(head);
        schedule.receive_signal(head);
        return schedule.wait();
    }
    way.neighbours(me).for_each(|rank| schedule.receive_signal(rank));
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
    way.neighbours(me).for_each(|rank| schedule.send_signal(rank));
    schedule.wait();
}
