//! The send budget between two polls, and the probe beside it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cost::{CostStore, NoStore};

use memory::Region;
use netpath::{Knowledge, LONG_FRAME, LongSegment, Probe, TCP_NAMES};
use rail::{Event, Post, Rail};
use topo::{Cache, StoredCosts};
use wire::{Body, Frame, FrameToken, PeerId};

use crate::open::BURST_MIN;
use crate::shared_paths::Prefix;
use crate::{PADDING_OF_ALL, Socket, TcpConfig, TcpRail};

fn rail(rank: u32) -> TcpRail {
    let interface = Some("127.0.0.1".into());
    let (rank, connect_timeout) = (PeerId(rank), Duration::from_secs(5));
    let usual = TcpConfig::new(rank, 5, [4; 32]);
    TcpRail::new(TcpConfig { interface, connect_timeout, ..usual }).unwrap()
}

/// Returns rails, the first of which has a link to each other one and the shortest bursts.
fn linked<const N: usize>() -> [TcpRail; N] {
    let mut rails = std::array::from_fn(|rank| rail(rank as u32));
    for rail in &mut rails {
        // The burst does not depend on this host's cache.
        rail.knowledge = Knowledge::of_hosts(Arc::new(NoStore));
    }
    for peer in 1..N {
        let address = rails[peer].address();
        rails[0].connect(PeerId(peer as u32), &address).unwrap();
    }
    let mut up = 0;
    let limit = Instant::now() + Duration::from_secs(20);
    while up < 2 * (N - 1) {
        for rail in &mut rails {
            rail.poll(&mut |event| up += usize::from(matches!(event, Event::Up { .. })));
        }
        assert!(Instant::now() < limit, "{up} ends of links are up");
    }
    for socket in rails[0].sockets.values_mut() {
        if let Socket::Open(open) = socket {
            open.stream.burst = BURST_MIN;
        }
    }
    rails
}

fn long(bytes: usize) -> Frame {
    let region = Region::from_box(vec![1; bytes].into());
    Frame { head: vec![2; 8], body: Some(Body { region }), token: Some(FrameToken(9)) }
}

#[test]
fn frames_beyond_a_burst_are_invited_at_the_next_poll() {
    let [mut rail, mut other] = linked();
    let frame = long(BURST_MIN / 4);
    for _ in 0..20 {
        let refused = (0..10).position(|_| rail.post(PeerId(1), &frame) == Post::Full);
        assert!(refused.is_some_and(|taken| taken <= 4), "{refused:?}");
        assert!(!rail.is_flushed() && !rail.prepare_sleep(), "somebody has to poll");
        rail.finish_sleep();
        let limit = Instant::now() + Duration::from_secs(20);
        let mut rooms = 0;
        while rooms == 0 {
            rail.poll(&mut |event| rooms += usize::from(matches!(event, Event::Room { .. })));
            other.poll(&mut |_| {});
            assert!(Instant::now() < limit, "no room");
        }
        let mut events = 0;
        while !rail.is_flushed() || events == 0 {
            events += 1;
            rail.poll(&mut |_| {});
            other.poll(&mut |_| {});
            assert!(Instant::now() < limit, "what is posted does not leave");
        }
    }
}

#[test]
fn long_frames_on_links_of_a_path_share_a_window() {
    let [mut rail, mut first, mut second] = linked();
    let path = Prefix::of(([192, 0, 2, 1], 1).into());
    for (key, socket) in &mut rail.sockets {
        if let Socket::Open(open) = socket {
            open.path = Some(path);
            open.stream.burst = usize::MAX;
            rail.paths.add(path, *key, 0);
        }
    }
    // A link that sends alone takes all that its socket takes.
    let frame = long(LONG_FRAME);
    let alone = (0..).take_while(|_| rail.post(PeerId(1), &frame) != Post::Full).count();
    assert!(alone * LONG_FRAME > 1 << 20, "{alone} frames");
    assert!(!rail.paths.limits_any());
    // A root that sends to many is not limited, unless they send as well.
    assert_ne!(rail.post(PeerId(2), &frame), Post::Full);
    rail.paths.note_received(path, 1 << 20);
    assert_eq!(rail.post(PeerId(2), &frame), Post::Full);
    assert!(rail.paths.limits_any() && !rail.is_at_rest());
    assert_ne!(rail.post(PeerId(2), &long(100)), Post::Full, "short frames pass");
    // The ACKs of the first link make room.
    let (mut invited, limit) = (false, Instant::now() + Duration::from_secs(20));
    while !invited {
        first.poll(&mut |_| {});
        second.poll(&mut |_| {});
        rail.poll(&mut |event| invited |= matches!(event, Event::Room { peer: PeerId(2) }));
        assert!(Instant::now() < limit, "no room");
    }
    assert!(!rail.paths.limits_any());
    assert_ne!(rail.post(PeerId(2), &frame), Post::Full);
    rail.disconnect(PeerId(1));
    rail.disconnect(PeerId(2));
    assert!(rail.paths.is_empty());
}

#[test]
fn a_sleeper_is_woken_once_for_the_next_drop_look() {
    let [mut rail, mut other] = linked();
    let limit = Instant::now() + Duration::from_secs(20);
    let rings = |rail: &TcpRail, wait: Duration| {
        let timeout = Some(rustix::time::Timespec::try_from(wait).unwrap());
        let mut bells = [rustix::event::PollFd::new(&rail.epoll, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut bells, timeout.as_ref()) == Ok(1)
    };
    assert_ne!(rail.post(PeerId(1), &long(BURST_MIN / 2)), Post::Full);
    let is_open =
        |(key, socket): (&u64, &Socket)| matches!(socket, Socket::Open(_)).then_some(*key);
    let key = loop {
        rail.poll(&mut |_| {});
        other.poll(&mut |_| {});
        if let Some(key) = rail.sockets.iter().find_map(is_open) {
            break key;
        }
        assert!(Instant::now() < limit, "no link opens");
    };
    rail.poll(&mut |_| {});
    rail.qdisc_drops.add(key);
    assert!(rail.prepare_sleep() && rings(&rail, Duration::from_secs(20)), "it was to be looked");
    rail.finish_sleep();
    rail.poll(&mut |_| {});
    assert!(!rings(&rail, Duration::ZERO), "it rings on");
}

/// Returns the probe of the only link.
fn probe_of(rail: &mut TcpRail) -> &mut Probe {
    let open = rail.sockets.values_mut().find_map(|socket| match socket {
        Socket::Open(open) => Some(open),
        Socket::PendingConnection(_) => None,
    });
    &mut open.expect("a link").pacing.probe
}

/// Makes the rail take its link for a WAN link, with the given cache.
fn treat_as_wan(rail: &mut TcpRail, costs: Arc<dyn CostStore>) {
    // Tests of another run may be running.
    rail.knowledge = Knowledge::new(costs, TCP_NAMES[0], std::process::id().into());
    *probe_of(rail) = Probe::Due { round_trip: ROUND_TRIP, segment: LongSegment::Own };
}

/// Polls two rails until their links are at rest.
fn settle(rails: &mut [TcpRail; 2]) {
    let limit = Instant::now() + Duration::from_secs(20);
    let goes_on = |rail: &mut TcpRail| probe_of(rail).is_beginning() || !rail.is_at_rest();
    while rails.iter_mut().any(goes_on) {
        for rail in rails.iter_mut() {
            rail.poll(&mut |_| {});
        }
        assert!(Instant::now() < limit, "it has no end");
    }
}

#[test]
fn one_process_per_host_probes_a_path_and_others_warm_up() {
    let directory = std::env::temp_dir().join(format!("canele-ways-{}", std::process::id()));
    let (mut first, mut second) = (linked(), linked());
    for rail in first.iter_mut().chain(&mut second) {
        treat_as_wan(rail, Arc::new(StoredCosts::of(Some(Cache::at(directory.clone())))));
    }
    assert_ne!(first[0].post(PeerId(1), &long(LONG_FRAME)), Post::Full);
    assert!(probe_of(&mut first[0]).is_running());
    assert_ne!(second[0].post(PeerId(1), &long(LONG_FRAME)), Post::Full);
    assert!(probe_of(&mut second[0]).is_due(), "another one measures it");
    settle(&mut first);
    assert!(probe_of(&mut second[0]).is_due());
    let limit = Instant::now() + Duration::from_secs(20);
    while probe_of(&mut second[0]).is_due() {
        for rail in &mut second {
            rail.poll(&mut |_| {});
        }
        // Or the link has no room at the moment.
        second[0].post(PeerId(1), &long(LONG_FRAME));
        assert!(Instant::now() < limit, "it does not hear of the rate");
    }
    assert!(!probe_of(&mut second[0]).is_running(), "the rate is known");
    settle(&mut second);
    assert!(matches!(probe_of(&mut second[0]), Probe::Done));
    let padded = |rail: &TcpRail| PADDING_OF_ALL - rail.padding_left;
    assert!(padded(&first[0]) > 0 && padded(&second[0]) == 0, "as little as can be");
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn a_long_path_is_probed_both_ways_after_its_first_long_frame() {
    let mut rails: [TcpRail; 2] = linked();
    for rail in &mut rails {
        treat_as_wan(rail, Arc::new(NoStore));
    }
    let short = Frame { head: vec![2; 100], body: None, token: None };
    assert_eq!(rails[0].post(PeerId(1), &short), Post::Done);
    assert!(!probe_of(&mut rails[0]).is_running(), "short frames are of no consequence");
    assert_ne!(rails[0].post(PeerId(1), &long(LONG_FRAME)), Post::Full);
    assert!(probe_of(&mut rails[0]).is_running());
    let (mut ran, mut frames, mut costs) = ([false; 2], 0, [0; 2]);
    let limit = Instant::now() + Duration::from_secs(20);
    while !rails.iter_mut().all(|rail| matches!(probe_of(rail), Probe::Done)) {
        for (rank, rail) in rails.iter_mut().enumerate() {
            ran[rank] |= probe_of(rail).is_running();
            rail.poll(&mut |event| match event {
                Event::Frame { bytes, .. } => {
                    assert!([100, LONG_FRAME + 8].contains(&bytes.len()), "padding is shown");
                    frames += 1;
                }
                Event::Cost { .. } => costs[rank] += 1,
                Event::Sent { .. } | Event::Room { .. } | Event::Hampered { .. } => {}
                other => panic!("{other:?}"),
            });
        }
        assert!(Instant::now() < limit, "it has no end");
    }
    assert_eq!((ran, frames), ([true; 2], 2));
    assert!(costs[0] > 0 && costs[1] > 0, "what was learned is not told");
    while !rails.iter().all(|rail| rail.is_flushed() && rail.writing == 0) {
        for rail in &mut rails {
            rail.poll(&mut |_| {});
        }
        assert!(Instant::now() < limit, "something is left behind");
    }
    assert_ne!(rails[0].post(PeerId(1), &long(LONG_FRAME)), Post::Full);
    assert!(matches!(probe_of(&mut rails[0]), Probe::Done), "once is enough");
}

const ROUND_TRIP: Duration = Duration::from_millis(3);
