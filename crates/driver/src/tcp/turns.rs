//! What is posted between two polls.

use std::time::{Duration, Instant};

use memory::Region;
use wire::{Body, Frame, FrameToken, GateId};

use super::{BURST_MIN, Socket, TcpConfig, TcpRail};
use crate::rail::{Event, Post, Rail};

fn rail(rank: u32) -> TcpRail {
    let interface = Some("127.0.0.1".into());
    let (rank, connect_timeout) = (GateId(rank), Duration::from_secs(5));
    let usual = TcpConfig::new(rank, 5, [4; 32]);
    TcpRail::new(TcpConfig { interface, connect_timeout, ..usual }).unwrap()
}

/// Two rails with a link between them, of which the first takes the shortest bursts.
fn linked() -> [TcpRail; 2] {
    let mut rails = [rail(0), rail(1)];
    let address = rails[1].address();
    rails[0].connect(GateId(1), &address).unwrap();
    let mut up = [false; 2];
    let limit = Instant::now() + Duration::from_secs(20);
    while up != [true; 2] {
        for (rail, up) in rails.iter_mut().zip(&mut up) {
            rail.poll(&mut |event| *up |= matches!(event, Event::Up { .. }));
        }
        assert!(Instant::now() < limit, "up: {up:?}");
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
fn what_a_burst_leaves_behind_is_asked_for_at_the_next_poll() {
    let [mut rail, mut other] = linked();
    let frame = long(BURST_MIN / 4);
    for _ in 0..20 {
        let refused = (0..10).position(|_| rail.post(GateId(1), &frame) == Post::Full);
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
