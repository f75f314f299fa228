//! Scenarios that every rail must pass.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use memory::{Layout, Region, Segment};
use rail::{Affinities, Fault, Neighbours, Rail, RemoteReader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CpuSet;
use testing::Random;
use wire::{Frame, PeerId, RemoteRegion};

use crate::kit::{End, Flow, Ground, Limit, Load, PATIENCE, pattern};

/// Runs a scenario in a thread, so that a blocking call is noticed.
pub fn run(ground: impl Ground + 'static, scenario: fn(&dyn Ground)) {
    if let Some(reason) = ground.lack() {
        return testing::skip(reason);
    }
    let (done, end) = mpsc::channel();
    let worker = thread::spawn(move || {
        scenario(&ground);
        // The receiver waits, or has given up.
        let _ = done.send(());
    });
    match end.recv_timeout(2 * PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a call of the rail blocked"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Ends with open links, and a function that lets time pass.
struct OpenEnds {
    ends: Vec<End>,
    pass: Box<dyn FnMut() + Send>,
    limit: Limit,
}

impl OpenEnds {
    fn new(ground: &dyn Ground, count: u32) -> Self {
        let field = ground.field(count);
        let ends = (0..).zip(field.rails).map(|(rank, rail)| End::new(rank, rail)).collect();
        Self { ends, pass: field.pass, limit: Limit::new() }
    }

    /// Returns two ends with an open link, or one that is open to itself.
    fn pair(ground: &dyn Ground) -> Self {
        let mut stage = Self::new(ground, if ground.is_alone() { 1 } else { 2 });
        stage.open(0, stage.other());
        stage
    }

    /// Index of the second end, or of the only one.
    fn other(&self) -> usize {
        self.ends.len() - 1
    }

    fn connect(&mut self, from: usize, to: usize) {
        let (peer, address) = (self.ends[to].rank, self.ends[to].rail.address());
        assert!(address.len() <= 512);
        self.ends[from].rail.connect(peer, &address).expect("the path to a neighbour");
    }

    fn open(&mut self, from: usize, to: usize) {
        self.connect(from, to);
        self.until("links are up", |ends| {
            ends[from].is_up(PeerId(to as u32)) && ends[to].is_up(PeerId(from as u32))
        });
    }

    fn poll_all(&mut self) {
        for end in &mut self.ends {
            end.poll();
        }
        (self.pass)();
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut [End]) -> bool) {
        while !is_so(&mut self.ends) {
            self.poll_all();
            self.limit.check(what);
        }
    }

    /// Runs flows to their end; afterwards nothing is held or left to report.
    fn run(&mut self, flows: &mut [Flow]) {
        self.until("all frames have arrived", |ends| {
            for flow in &mut *flows {
                flow.post(ends);
                flow.check(ends);
            }
            flows.iter().all(Flow::is_done)
        });
        self.until("all memory is free", |ends| {
            ends.iter().all(|end| end.held() == 0 && end.rail.is_flushed())
        });
        for _ in 0..100 {
            self.poll_all();
        }
        for flow in flows {
            flow.check(&mut self.ends);
        }
    }
}

/// Returns flows in both directions if there are two ends.
fn both_directions(stage: &OpenEnds, sizes: &[usize]) -> Vec<Flow> {
    let other = stage.other();
    let mut flows = vec![Flow::new(0, other, sizes.to_vec())];
    if other != 0 {
        flows.push(Flow::new(other, 0, sizes.iter().rev().copied().collect()));
    }
    flows
}

/// Frames of random lengths and all shapes arrive whole and in order, in both directions at once.
pub fn order(ground: &dyn Ground) {
    for seed in 1..4 {
        println!("seed {seed}");
        let mut stage = OpenEnds::pair(ground);
        let max = stage.ends[0].frame_max(PeerId(stage.other() as u32));
        let mut random = Random::new(seed);
        let sizes: Vec<usize> = (0..400)
            .map(|_| match random.below(12) {
                0 => random.below(max + 1),
                1..4 => random.below(10_000.min(max)),
                _ => random.below(300),
            })
            .collect();
        let mut flows = both_directions(&stage, &sizes);
        stage.run(&mut flows);
    }
}

/// Frames of every short length, and around every limit up to the longest frame.
pub fn sizes(ground: &dyn Ground) {
    let mut stage = OpenEnds::pair(ground);
    let max = stage.ends[0].frame_max(PeerId(stage.other() as u32));
    let mut sizes: Vec<usize> = (0..=600).collect();
    let powers = (10..).map(|power| 1usize << power).take_while(|&power| power <= 2 * max);
    for power in powers {
        sizes.extend([9, 8, 7, 1, 0].map(|less| power - less));
        sizes.extend([power + 1, power + 7, power + 8, 3 * power / 2]);
    }
    sizes.extend((0..9).map(|less| max - less));
    sizes.retain(|&size| size <= max);
    let mut flows = both_directions(&stage, &sizes);
    stage.run(&mut flows);
}

/// A peer that does not poll stops the sender without blocking it; later everything arrives.
pub fn full(ground: &dyn Ground) {
    let mut stage = OpenEnds::pair(ground);
    let other = stage.other();
    let peer = PeerId(other as u32);
    let size = stage.ends[0].frame_max(peer).min(64 << 10);
    let mut flow = Flow::new(0, other, vec![size; 1000]);
    if ground.is_alone() {
        flow.post(&mut stage.ends);
    } else {
        // The receiver is not polled; what was posted flows until all room is taken.
        let mut quiet = 0;
        while quiet < 300 {
            let refusals = flow.refusals;
            flow.post(&mut stage.ends);
            let moved = stage.ends[0].poll();
            (stage.pass)();
            quiet = if moved || flow.refusals > refusals { 0 } else { quiet + 1 };
            stage.limit.check("a sender runs out of room");
        }
        assert!(!flow.is_posted(), "1000 frames went nowhere");
        assert!(stage.ends[0].rail.prepare_sleep(), "waiting for room keeps the sender awake");
        stage.ends[0].rail.finish_sleep();
    }
    assert!(flow.refusals > 0, "nothing was ever refused");
    stage.run(&mut [flow]);
}

/// All ends talk to all, in bursts longer than one look takes.
pub fn many(ground: &dyn Ground) {
    let count = if ground.is_alone() { 1 } else { 9 };
    let mut stage = OpenEnds::new(ground, count);
    let count = count as usize;
    let mut flows = Vec::new();
    for from in 0..count {
        for to in 0..count {
            if from == to && count > 1 {
                continue;
            }
            // Both ends of each pair ask for the link; it comes up once all the same.
            stage.connect(from, to);
            let mut random = Random::new((from * count + to) as u64);
            let sizes = (0..120).map(|_| random.below(900)).collect();
            flows.push(Flow::new(from, to, sizes));
        }
    }
    stage.until("all links are up", |ends| {
        flows.iter().all(|flow| ends[flow.from].is_up(ends[flow.to].rank))
    });
    stage.run(&mut flows);
}

/// A burst on every link arrives though nothing follows it.
pub fn bursts(ground: &dyn Ground) {
    if ground.is_alone() {
        return order(ground);
    }
    let mut stage = OpenEnds::new(ground, 9);
    for from in 1..9 {
        stage.open(from, 0);
    }
    for _ in 0..3 {
        // Links that have been quiet for long are not looked at as often.
        for _ in 0..LONG {
            stage.poll_all();
        }
        let mut flows: Vec<Flow> = (1..9).map(|from| Flow::new(from, 0, vec![40; 100])).collect();
        for flow in &mut flows {
            flow.post(&mut stage.ends);
        }
        stage.run(&mut flows);
    }
}

/// Costs are known at both ends when a link has opened, before any frame has crossed it.
pub fn costs(ground: &dyn Ground) {
    let mut stage = OpenEnds::pair(ground);
    let is_known = |end: &mut End| end.peers.values().all(|seen| seen.cost.is_some());
    stage.until("the costs", |ends| ends.iter_mut().all(is_known));
    let costs = stage.ends.iter().flat_map(|end| end.peers.values().filter_map(|seen| seen.cost));
    for cost in costs {
        assert!(cost.latency_ns() > 0 && cost.gap_ns() < cost.busy_ns(1 << 20), "{cost:?}");
    }
}

/// If the link supports remote reads, the peer's memory is copied into any shape, and reads outside it are refused.
/// Other links offer no remote reads.
pub fn remote_read(ground: &dyn Ground) {
    let stage = OpenEnds::pair(ground);
    let peer = PeerId(stage.other() as u32);
    let source = pattern(1, 1, 50_000);
    let remote = RemoteRegion { address: source.as_ptr() as u64, len: source.len() as u64 };
    let can = stage.ends[0].peers[&peer].capabilities.expect("up").remote_read;
    let segments = [Segment { offset: 8, len: 5 }, Segment { offset: 0, len: 2 }];
    let layout = std::sync::Arc::new(Layout::new(segments, 16));
    let mut target = vec![0x55u8; 16 * 3000];
    // SAFETY: 3000 elements of extent 16 fill the target, which outlives the region.
    let holes = unsafe { Region::elements(target.as_mut_ptr(), 3000, &layout) };
    let rail = &stage.ends[0].rail;
    let remote_reader = rail.remote_reader(peer);
    assert_eq!(remote_reader.is_some(), can);
    let Some(remote_reader) = remote_reader else { return };
    remote_reader.remote_read(remote, 777, &holes).expect("a fetch");
    assert!(holes.to_vec() == source[777..777 + holes.len()]);
    assert!(target.chunks(16).all(|e| e[2..8] == [0x55; 6] && e[13..] == [0x55; 3]), "holes");
    assert!(
        remote_reader.remote_read(remote, 50_000 - 10, &Region::owned(11)).is_err(),
        "past the end"
    );
    assert!(remote_reader.remote_read(remote, u64::MAX, &Region::owned(2)).is_err(), "overflow");
    remote_reader.remote_read(remote, 50_000, &Region::empty()).expect("nothing, at the end");
    let stranger = rail.remote_reader(PeerId(77));
    let reads =
        |stranger: &dyn RemoteReader| stranger.remote_read(remote, 0, &Region::owned(1)).is_ok();
    assert!(!stranger.is_some_and(|stranger| reads(&*stranger)) || ground.is_alone());
}

/// A peer that leaves in good order is down once, behind everything it sent.
pub fn farewell(ground: &dyn Ground) {
    if ground.is_alone() {
        return;
    }
    let mut stage = OpenEnds::pair(ground);
    let mut flow = Flow::new(1, 0, vec![100; 40]);
    stage.until("all is posted", |ends| {
        flow.post(ends);
        ends[0].poll();
        flow.check(ends);
        flow.is_posted() && ends[1].rail.is_flushed()
    });
    let gone = stage.ends.pop().expect("two ends");
    drop(gone);
    let mut arrived = Vec::new();
    stage.until("the peer is down", |ends| {
        // Peers are checked before a sleep at the latest.
        ends[0].rail.prepare_sleep();
        ends[0].rail.finish_sleep();
        let seen = ends[0].seen(PeerId(1));
        arrived.extend(seen.frames.drain(..));
        seen.down.is_some()
    });
    assert_eq!(stage.ends[0].seen(PeerId(1)).down, Some(Fault::Closed));
    assert_eq!(arrived.len(), 40 - flow.arrived());
    for _ in 0..1000 {
        stage.poll_all();
    }
}

/// A link that is ended because the peer misbehaves is silent from then on, and down at the other
/// end, once.
pub fn disconnection(ground: &dyn Ground) {
    if ground.is_alone() {
        return;
    }
    let mut stage = OpenEnds::pair(ground);
    let mut flow = Flow::new(1, 0, vec![500; 30]);
    stage.until("some have arrived", |ends| {
        flow.post(ends);
        flow.check(ends);
        flow.arrived() > 0
    });
    flow.check(&mut stage.ends);
    stage.ends[0].rail.disconnect(PeerId(1));
    stage.until("the other end is down", |ends| {
        ends[1].rail.prepare_sleep();
        ends[1].rail.finish_sleep();
        ends[1].seen(PeerId(0)).down.is_some()
    });
    for _ in 0..1000 {
        stage.poll_all();
    }
    let seen = stage.ends[0].seen(PeerId(1));
    assert!(seen.frames.is_empty() && seen.down.is_none());
}

/// A process that sleeps whenever nothing is there is woken by every frame.
pub fn wake(ground: &dyn Ground) {
    if !ground.wakes() {
        let mut stage = OpenEnds::pair(ground);
        assert!(stage.ends.iter().all(|end| end.rail.descriptors().is_empty()));
        assert!(stage.ends[0].rail.prepare_sleep(), "nothing is there");
        return;
    }
    let mut stage = OpenEnds::pair(ground);
    if ground.is_alone() {
        return wake_oneself(&mut stage.ends[0]);
    }
    let second = stage.ends.pop().expect("two ends");
    let first = stage.ends.pop().expect("two ends");
    let mirror = thread::spawn(move || exchange(second, PeerId(0), false));
    exchange(first, PeerId(1), true);
    mirror.join().expect("the other end");
}

/// A frame posted by one thread wakes another that sleeps, and the eventfd is silent afterwards.
fn wake_oneself(end: &mut End) {
    let peer = end.rank;
    for round in 0..ROUNDS {
        assert!(end.rail.prepare_sleep(), "nothing is there");
        assert!(!rings(&*end.rail, Duration::ZERO), "round {round}: nothing was posted");
        for _ in 0..round % 3 {
            send_round(end, peer, round);
            assert!(rings(&*end.rail, Duration::ZERO), "round {round}: asleep, and not woken");
        }
        end.rail.finish_sleep();
        for _ in 0..round % 3 {
            receive_round(end, peer, round);
        }
        send_round(end, peer, round);
        assert!(!end.rail.prepare_sleep(), "round {round}: something is there");
        end.rail.finish_sleep();
        receive_round(end, peer, round);
    }
}

fn exchange(mut end: End, peer: PeerId, begins: bool) {
    let mut random = Random::new(u64::from(begins));
    for round in 0..ROUNDS {
        if begins {
            send_round(&mut end, peer, round);
        }
        receive_round(&mut end, peer, round);
        // The frame meets the other side before, while and after it goes to sleep.
        for _ in 0..random.below(400) {
            std::hint::spin_loop();
        }
        if !begins {
            send_round(&mut end, peer, round);
        }
    }
}

fn send_round(end: &mut End, peer: PeerId, round: u32) {
    let frame = Frame { head: round.to_le_bytes().into(), body: None, token: None };
    assert_eq!(end.rail.post(peer, &frame), rail::Post::Done);
}

fn receive_round(end: &mut End, peer: PeerId, round: u32) {
    let limit = Limit::new();
    loop {
        end.poll();
        if let Some(bytes) = end.seen(peer).frames.pop_front() {
            assert_eq!(bytes, round.to_le_bytes());
            return;
        }
        sleep(&mut *end.rail, round);
        limit.check("a frame arrives");
    }
}

/// Sleeps until the rail signals an event, which it must.
pub fn sleep(rail: &mut dyn Rail, round: u32) {
    if rail.prepare_sleep() {
        assert!(rings(rail, WAKE_LIMIT), "nothing woke the sleeper in round {round}");
    }
    rail.finish_sleep();
}

/// True if the rail signals an event before the limit.
fn rings(rail: &dyn Rail, limit: Duration) -> bool {
    let descriptors = rail.descriptors();
    let mut events: Vec<PollFd<'_>> = descriptors
        .iter()
        .map(|event| PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN))
        .collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    poll(&mut events, Some(&limit)).expect("poll") > 0
}

/// Neighbours learn each other's cores, as last reported, and on which they run while awake. A neighbour that has
/// reported nothing is not counted.
pub fn cores(ground: &dyn Ground) {
    let mut stage = OpenEnds::new(ground, 3);
    stage.open(0, 1);
    stage.open(0, 2);
    fn facet(stage: &mut OpenEnds, rank: usize) -> &mut dyn Neighbours {
        stage.ends[rank].rail.neighbours().expect("it connects the processes of a node")
    }
    let neighbours = |stage: &mut OpenEnds| {
        let facet = facet(stage, 0);
        (0..CpuSet::MAX_CPU as u32).filter(|core| facet.has_neighbour_on(*core)).count()
    };
    assert_eq!(neighbours(&mut stage), 0);
    facet(&mut stage, 1).shares_core();
    assert_eq!(neighbours(&mut stage), 1);
    assert!(stage.ends[1].rail.prepare_sleep());
    assert_eq!(neighbours(&mut stage), 0);
    stage.ends[1].rail.finish_sleep();
    assert_eq!(neighbours(&mut stage), 1);
    let mut compare = |rank: usize, own| facet(&mut stage, rank).compare_cores(own);
    let [all, some] = [7, 1];
    let seen = |alike, others| Affinities { alike, others };
    assert_eq!(compare(0, all), seen(0, 0));
    assert_eq!(compare(1, all), seen(1, 0));
    assert_eq!(compare(2, some), seen(0, 1));
    assert_eq!(compare(0, all), seen(1, 1));
    assert_eq!(compare(0, some), seen(1, 1));
    assert_eq!(compare(1, some), seen(1, 0));
    assert_eq!(compare(0, some), seen(2, 0));
}

/// A readiness probe reports arrived frames until they are read, on links from before its first look and after. It
/// reports nothing once the rail is gone.
pub fn readiness_probe(ground: &dyn Ground) {
    let mut stage = OpenEnds::new(ground, 3);
    stage.open(0, 1);
    let readiness_probe =
        stage.ends[1].rail.readiness_probe().expect("something comes from others");
    stage.open(2, 1);
    stage.until("all is taken in", |_| !readiness_probe.sees_events());
    for number in 0..10 {
        for from in [0, 2] {
            let peer = PeerId(1);
            let mut seen = false;
            let mut posted = 0;
            // Frames that the rail's own thread takes in at once are not seen.
            while !seen {
                stage.limit.check("what has come is seen");
                assert!(stage.ends[from].post(peer, Load::new(7, number, 40)).is_ok());
                posted += 1;
                seen = (0..1000).any(|_| {
                    stage.ends[from].poll();
                    readiness_probe.sees_events()
                });
            }
            let from = stage.ends[from].rank;
            stage.until("it is taken in", |ends| {
                ends[1].seen(from).frames.len() == posted && !readiness_probe.sees_events()
            });
            stage.ends[1].seen(from).frames.clear();
        }
    }
    stage.ends.truncate(1);
    stage.ends.clear();
    readiness_probe.sees_events();
}

/// A readiness probe ignores a peer whose link was closed, though frames are left.
pub fn blindness(ground: &dyn Ground) {
    let mut stage = OpenEnds::pair(ground);
    let readiness_probe =
        stage.ends[1].rail.readiness_probe().expect("something comes from others");
    stage.until("all is taken in", |_| !readiness_probe.sees_events());
    assert!(stage.ends[0].post(PeerId(1), Load::new(7, 1, 40)).is_ok());
    while !readiness_probe.sees_events() {
        stage.ends[0].poll();
        stage.limit.check("what has come is seen");
    }
    stage.ends[1].rail.disconnect(PeerId(0));
    assert!(!readiness_probe.sees_events(), "nobody takes it in");
}

/// A sender that sleeps for want of room is woken when there is some.
pub fn room(ground: &dyn Ground) {
    if !ground.wakes() || ground.is_alone() {
        return full(ground);
    }
    let mut stage = OpenEnds::pair(ground);
    let size = stage.ends[0].frame_max(PeerId(1)).min(64 << 10);
    let second = stage.ends.pop().expect("two ends");
    let (stuck, begin) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut end = second;
        let limit = Limit::new();
        let mut random = Random::new(5);
        begin.recv_timeout(PATIENCE).expect("the sender runs out of room");
        thread::sleep(Duration::from_millis(20));
        for _ in 0..ROOM_FRAMES {
            if random.below(40) == 0 {
                thread::sleep(Duration::from_millis(2));
            }
            while end.seen(PeerId(0)).frames.pop_front().is_none() {
                end.poll();
                limit.check("the next frame arrives");
            }
        }
        end
    });
    let end = &mut stage.ends[0];
    let mut sleeps = 0;
    for number in 0..ROOM_FRAMES {
        let mut load = Load::new(3, number, size);
        loop {
            let rooms = end.seen(PeerId(1)).rooms;
            match end.post(PeerId(1), load) {
                Ok(()) => break,
                Err(back) => load = back,
            }
            while end.seen(PeerId(1)).rooms == rooms {
                if !end.poll() && end.seen(PeerId(1)).rooms == rooms {
                    if sleeps == 0 {
                        stuck.send(()).expect("the reader waits");
                    }
                    sleep(&mut *end.rail, number as u32);
                    sleeps += 1;
                }
            }
        }
    }
    assert!(sleeps > 0, "there was always room");
    let limit = Limit::new();
    while end.held() > 0 || !end.rail.is_flushed() {
        end.poll();
        limit.check("the last frames leave");
    }
    reader.join().expect("the reader");
}

const ROUNDS: u32 = 4000;
/// Polls after which a rail may take a quiet link for an idle one.
const LONG: u32 = 10_000;
const ROOM_FRAMES: u64 = 600;
const WAKE_LIMIT: Duration = Duration::from_secs(10);
