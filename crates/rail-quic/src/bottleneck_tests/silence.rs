//! Links that are cut, with and without data in flight.

use std::time::Duration;

use crate::bottleneck_tests::{World, known, link};

/// Returns the time from a cut to the loss of a WAN link that may be silent for so long, with data in flight or not.
fn loss_after_cut(cut: Duration, silence: Duration, is_busy: bool) -> Option<Duration> {
    let link = link();
    let mut world = World::new(link, known(&link), 11);
    world.ends.iter_mut().for_each(|end| {
        if let Some((_, connection)) = &mut end.connection {
            connection.is_wan = true;
        }
    });
    world.send(1 << 20);
    world.link.cut = Some(world.now + cut);
    if is_busy {
        world.ends[0].backlog += 1 << 20;
        world.pump(0);
    }
    let begin = world.now;
    while world.now < begin + Duration::from_secs(20) {
        world.run_for(STEP);
        // Only packets of the first end are lost: on an idle link, the other one misses them.
        let connections = world.ends.iter().filter_map(|end| end.connection.as_ref());
        let mut losses = connections.map(|(_, one)| one.has_vanished(world.now, silence));
        if losses.any(|lost| lost.is_some()) {
            return Some(world.now - begin);
        }
    }
    None
}

#[test]
fn a_wan_link_is_lost_after_the_silence_that_it_is_granted() {
    for silence in [1500, 2500, 5000].map(Duration::from_millis) {
        for is_busy in [true, false] {
            let lost = loss_after_cut(Duration::from_secs(60), silence, is_busy);
            // Five probes without an answer: from the cut on, or after a PING and a second. The last answer before the
            // cut is noticed with the next probe.
            let probed = Duration::from_millis(if is_busy { 1500 } else { 5500 });
            let due = silence.max(probed) + 4 * STEP;
            assert!(lost.is_some_and(|lost| lost <= due), "{silence:?}, {is_busy}: {lost:?}");
            assert!(lost.is_some_and(|lost| lost + 2 * STEP >= silence), "{silence:?}: {lost:?}");
            let short = silence.min(Duration::from_secs(2)) / 2;
            assert_eq!(loss_after_cut(short, silence, is_busy), None, "a cut of {short:?}");
        }
    }
}

/// Interval of looks at a link that is cut.
const STEP: Duration = Duration::from_millis(100);
