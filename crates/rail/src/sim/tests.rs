//! Tests of the simulated network.

use wire::Body;

use crate::sim::*;

const A: PeerId = PeerId(0);
const B: PeerId = PeerId(1);

/// A path of 1 ms each way, and 1 byte per microsecond.
fn slow() -> SimPath {
    SimPath {
        latency: Duration::from_millis(1),
        bandwidth_bytes_per_s: Some(1_000_000),
        depth: 2,
        window_bytes: 10_000,
        ..SimPath::default()
    }
}

fn pair(seed: u64, path: SimPath) -> (SimNetwork, SimRail, SimRail) {
    let network = SimNetwork::new(seed);
    network.set_usual_path(path);
    let (mut a, mut b) = (network.rail(A), network.rail(B));
    a.connect(B, &b.address()).unwrap();
    while network.step() {}
    assert_eq!([events_of(&mut a), events_of(&mut b)], [["up"], ["up"]]);
    (network, a, b)
}

#[test]
fn frames_arrive_when_the_cost_of_their_path_predicts() {
    for len in [1, 100, 5_000] {
        let (network, mut a, mut b) = pair(1, slow());
        let posted = network.now();
        assert_eq!(a.post(B, &frame(len)), Post::Done);
        while events_of(&mut b).is_empty() {
            assert!(network.step(), "the frame arrives");
        }
        let predicted = slow().cost().arrival_ns(len as u64);
        assert_eq!((network.now() - posted).as_nanos(), u128::from(predicted));
    }
    let free = SimPath { bandwidth_bytes_per_s: None, ..slow() };
    assert_eq!(free.cost().arrival_ns(1 << 40), 1_000_000);
}

fn frame(len: usize) -> Frame {
    Frame { head: vec![7; len], body: None, token: None }
}

fn held(region: &Region) -> Frame {
    let body = Some(Body { region: region.clone() });
    Frame { head: Vec::new(), body, token: Some(FrameToken(4)) }
}

/// Polls a rail and returns its events as text.
fn events_of(rail: &mut SimRail) -> Vec<String> {
    let mut events = Vec::new();
    while rail.poll(&mut |event| {
        events.push(match event {
            Event::Up { .. } => "up".into(),
            Event::Cost { .. } => "cost".into(),
            Event::Frame { bytes, .. } => format!("{} × {}", bytes.len(), bytes[0]),
            Event::Sent { token, .. } => format!("sent {}", token.0),
            Event::Room { .. } => "room".into(),
            Event::Down { fault: Fault::Lost(_), .. } => "lost".into(),
            Event::Down { fault: Fault::Unreachable(_), .. } => "unreachable".into(),
            Event::Down { fault, .. } => format!("{fault:?}"),
            Event::Begun { .. } => return,
            Event::Rest { .. } => unreachable!("no test takes a beginning"),
            Event::Refused { .. } => unreachable!("no unauthenticated peers here"),
            Event::Hampered { .. } => unreachable!("nothing runs out here"),
        });
    }) {}
    events
}

#[test]
fn a_frame_takes_its_transmission_time_and_the_latency() {
    let (network, mut a, mut b) = pair(0, slow());
    let start = network.now();
    assert_eq!(a.post(B, &frame(500)), Post::Done);
    assert_eq!(a.post(B, &frame(300)), Post::Done);
    network.advance(Duration::from_micros(1499));
    assert!(events_of(&mut b).is_empty());
    network.advance(Duration::from_micros(1));
    assert_eq!(events_of(&mut b), ["500 × 7"]);
    while network.step() && events_of(&mut b).is_empty() {}
    assert_eq!(network.now() - start, Duration::from_micros(1800));
}

#[test]
fn a_full_queue_accepts_frames_after_a_departure() {
    let (network, mut a, mut b) = pair(0, slow());
    assert_eq!([0; 3].map(|_| a.post(B, &frame(100))), [Post::Done, Post::Done, Post::Full]);
    network.advance(Duration::from_micros(99));
    assert!(events_of(&mut a).is_empty());
    network.advance(Duration::from_micros(1));
    assert_eq!(events_of(&mut a), ["room"]);
    while network.step() {}
    assert_eq!(events_of(&mut b).len(), 2);
}

#[test]
fn memory_is_read_when_the_last_byte_leaves() {
    let (network, mut a, mut b) = pair(0, slow());
    let region = Region::owned(100);
    assert_eq!(a.post(B, &held(&region)), Post::Held);
    network.advance(Duration::from_micros(99));
    region.write(0, &[9; 100]);
    network.advance(Duration::from_micros(1));
    assert_eq!(events_of(&mut a), ["sent 4"]);
    region.write(0, &[1; 100]);
    while network.step() {}
    assert_eq!(events_of(&mut b), ["100 × 9"]);
}

#[test]
fn a_receiver_that_does_not_poll_stops_the_sender() {
    let (network, mut a, mut b) = pair(0, slow());
    let mut posted = 0;
    for _ in 0..100 {
        posted += usize::from(a.post(B, &frame(1000)) == Post::Done);
        network.advance(Duration::from_millis(2));
    }
    // 10 frames fit the window, and 2 wait in the queue.
    assert_eq!(posted, 12);
    assert_eq!(events_of(&mut b).len(), 10);
    while network.step() {}
    assert_eq!(events_of(&mut b).len(), 2);
}

#[test]
fn a_cut_loses_frames_in_flight_and_is_reported_once_at_both_ends() {
    let (network, mut a, mut b) = pair(0, slow());
    a.post(B, &frame(100));
    network.advance(Duration::from_micros(1100));
    a.post(B, &frame(100));
    network.advance(Duration::from_micros(500));
    network.cut(A, B);
    network.cut(A, B);
    while network.step() {}
    assert_eq!(events_of(&mut b), ["100 × 7", "lost"]);
    assert_eq!(events_of(&mut a), ["lost"]);
    assert_eq!(a.post(B, &frame(1)), Post::Full);
    b.connect(A, &a.address()).unwrap();
    while network.step() {}
    assert_eq!([events_of(&mut a), events_of(&mut b)], [["up"], ["up"]]);
}

#[test]
fn ended_and_unreachable_processes_have_different_faults() {
    let (network, mut a, b) = pair(0, slow());
    network.kill(B);
    while network.step() {}
    assert_eq!(events_of(&mut a), ["lost"]);
    drop(b);
    a.connect(B, &B.0.to_le_bytes()).unwrap();
    let before = network.now();
    while network.step() {}
    assert_eq!(events_of(&mut a), ["unreachable"]);
    assert_eq!(network.now() - before, CONNECT_PATIENCE);
}

#[test]
fn the_end_of_a_process_is_the_last_event_of_its_link() {
    let network = SimNetwork::new(0);
    network.set_usual_path(slow());
    let (mut a, b) = (network.rail(A), network.rail(B));
    a.connect(B, &b.address()).unwrap();
    network.advance(Duration::from_micros(500));
    network.kill(B);
    while network.step() {}
    assert_eq!([events_of(&mut a), events_of(&mut a)].concat(), ["up", "lost"]);
}

#[test]
fn a_seed_decides_which_frames_are_lost() {
    let run = |seed, loss| {
        let (network, mut a, mut b) = pair(seed, SimPath { loss, ..slow() });
        let mut arrivals = Vec::new();
        for _ in 0..200 {
            a.post(B, &frame(10));
            while network.step() {
                arrivals.extend(events_of(&mut b).into_iter().map(|event| (event, network.now())));
            }
        }
        arrivals
    };
    let delays = SimLoss::Delays { per_million: 200_000, by: Duration::from_millis(50) };
    assert_eq!(run(1, delays), run(1, delays));
    assert_ne!(run(1, delays), run(2, delays));
    assert_eq!(run(1, delays).len(), 200);
    let cut = run(1, SimLoss::Cuts { per_million: 50_000 });
    assert!(cut.len() < 200 && cut.last().unwrap().0 == "lost", "{}", cut.len());
}
