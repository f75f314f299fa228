//! Links and peers that die, stall or stop polling.

use engine::strategy;
use engine::{Outcome, Selector};
use wire::Capabilities;

use testing::{Random, seeds};

use crate::network::{
    AHEAD_TWO_LINKS, ALL, Content, Fates, Handle, LONG_ROUND_TRIP, NEAR, Other, Program,
    SCARCE_TWO_LINKS, SLOW_TWO_LINKS, Shape, SimulatedNetwork, TWO_KINDS, TWO_LINKS,
};

#[test]
fn a_cut_ends_what_needs_the_peer_and_nothing_else() {
    for seed in seeds(1000) {
        let mut random = Random::new(!seed);
        let shape = random.pick(&ALL);
        let mut program = Program::new(seed, 3, shape);
        for _ in 0..40 {
            program.act(&mut random);
        }
        let steps = random.below(400);
        program.network.run_steps(steps);
        program.network.cut(0, 1);
        let to_failed = program.network.send_synchronous(0, 1, 0, 20_000);
        for _ in 0..20 {
            program.act(&mut random);
        }
        program.network.run();
        assert_eq!(program.network.end(to_failed).outcome, Outcome::PeerFailed);
        program.drain();
    }
}

#[test]
fn a_peer_that_fails_during_a_rendezvous_fails_both_sides() {
    for shape in ALL {
        for steps in 0..60 {
            let mut network = SimulatedNetwork::new(steps as u64, 2, shape);
            let send = network.send_synchronous(0, 1, 0, 50_000);
            let receive = network.receive(1, Some(0), None, 50_000);
            network.run_steps(steps);
            network.cut(0, 1);
            network.finish();
            let ends = [network.end(send).outcome, network.end(receive).outcome];
            assert!(ends.iter().all(|end| matches!(end, Outcome::Ok | Outcome::PeerFailed)));
        }
    }
}

#[test]
fn complete_messages_outlive_their_sender() {
    let mut network = SimulatedNetwork::new(0, 2, NEAR);
    network.send(0, 1, 1, 100);
    network.send(0, 1, 2, 100_000);
    network.run();
    network.cut(0, 1);
    network.run();
    let whole = network.receive(1, Some(0), Some(1), 100);
    let asked = network.receive(1, Some(0), Some(2), 100_000);
    network.finish();
    assert_eq!(network.end(whole).outcome, Outcome::Ok);
    assert_eq!(network.end(asked).outcome, Outcome::PeerFailed);
}

#[test]
fn complete_rts_data_outlive_their_sender() {
    let mut network = SimulatedNetwork::new(0, 2, LONG_ROUND_TRIP);
    let any = Selector { context: 0, source: None, tag: None };
    for (tag, bytes) in [(4, 100), (1, 6000), (2, 5000), (3, 20_000)] {
        network.send(0, 1, tag, bytes);
    }
    network.run();
    assert_eq!(network.counters(0).rendezvous, 3, "three are too long to be eager");
    let second = network.matched_probe(1, Selector { tag: Some(2), ..any }).expect("it has come");
    network.cut(0, 1);
    network.run();
    let first = Selector { tag: Some(1), ..any };
    assert_eq!(network.probe(1, first).map(|message| message.bytes), Some(6000));
    let whole = network.receive(1, Some(0), Some(1), 6000);
    let taken = network.matched_receive(1, second, 5000);
    let part = network.receive(1, Some(0), Some(3), 20_000);
    let eager = network.receive(1, Some(0), Some(4), 100);
    network.finish();
    for receive in [whole, taken, eager] {
        assert_eq!(network.end(receive).outcome, Outcome::Ok);
    }
    assert_eq!(network.end(part).outcome, Outcome::PeerFailed);
}

#[test]
fn links_that_die_lose_nothing_while_another_lives() {
    let mut taken = 0;
    for seed in seeds(3000) {
        taken += links_that_die(seed).granted;
    }
    if !testing::is_seed_given() {
        assert!(taken > 300, "only {taken} messages were taken in without a receive");
    }
}

#[test]
fn frames_are_lost_and_resent_and_overtake_one_another_while_links_die() {
    let mut sum = Fates::default();
    for Fates { lost, resent, overtaking, .. } in (0..300).map(|seed| links_that_die(seed).fates())
    {
        sum.lost += lost;
        sum.resent += resent;
        sum.overtaking += overtaking;
    }
    assert!(sum.lost > 100 && sum.resent > 100 && sum.overtaking > 1000, "{sum:?}");
}

/// Runs a random program while links die, except one between any two processes; it ends as if none
/// did.
fn links_that_die(seed: u64) -> SimulatedNetwork {
    let mut random = Random::new(!seed);
    let (links, size) = (2 + random.below(2), 2 + random.below(2));
    let shape = Shape {
        links,
        ..random.pick(&[
            TWO_LINKS,
            AHEAD_TWO_LINKS,
            SCARCE_TWO_LINKS,
            SLOW_TWO_LINKS,
            ALIKE_IN_LENGTH,
        ])
    };
    let mut program = Program::new(seed, size, shape);
    for _ in 0..10 + random.below(60) {
        program.act(&mut random);
        let steps = random.below(40);
        program.network.run_steps(steps);
        let (from, to) = (random.below(size), random.below(size));
        if random.one_in(6) && from != to && program.network.links(from, to) > 1 {
            let link = random.below(links);
            match random.one_in(2) {
                true => program.network.cut_link(from, to, link),
                false => program.network.lose(from, to, link),
            }
        }
    }
    program.drain_whole()
}

/// Shared memory, and a network whose frames it can carry if the network dies.
const ALIKE_IN_LENGTH: Shape = match TWO_KINDS.other {
    Some(other) => {
        let capabilities = Capabilities { adapts: true, ..TWO_LINKS.capabilities };
        Shape { other: Some(Other { capabilities, ..other }), ..TWO_KINDS }
    }
    None => TWO_KINDS,
};

#[test]
fn a_split_rendezvous_survives_a_link_that_dies_at_any_step() {
    // A seed is a step, a kind of death and, beyond all of these, another network.
    let deaths = DEATHS.len() as u64;
    for seed in seeds(deaths * STEPS_MAX as u64) {
        let (kind, link, death) = DEATHS[(seed % deaths) as usize];
        let step = (seed / deaths) as usize % STEPS_MAX;
        let (mut network, ends) = rendezvous(seed / deaths / STEPS_MAX as u64, kind);
        let left = step.saturating_sub(network.steps);
        network.run_steps(left);
        match death {
            Death::Link => network.cut_link(0, 1, link),
            Death::ThereFirst => network.lose(0, 1, link),
            Death::BackFirst => network.lose(1, 0, link),
            Death::Peer => network.cut(0, 1),
        }
        network.finish();
        for end in ends {
            let outcome = network.end(end).outcome;
            let may_fail = death == Death::Peer && outcome == Outcome::PeerFailed;
            assert!(outcome == Outcome::Ok || may_fail, "{death:?} of link {link}, step {step}");
        }
    }
}

#[test]
fn a_rendezvous_is_split_and_takes_no_more_steps_than_are_tried() {
    for kind in KINDS {
        let (mut network, _) = rendezvous(0, kind);
        network.finish();
        let steps = network.steps;
        assert!((STEPS_MAX / 2..=STEPS_MAX).contains(&steps), "{steps} steps, {kind:?}");
        for (from, to, link) in [(0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1)] {
            assert!(network.delivered(from, to, link) > 10, "link {link} is spared, {kind:?}");
        }
    }
}

/// Sends two long messages in each direction, one of them expected, over two links that both carry
/// some of each.
fn rendezvous(
    seed: u64,
    FaultKind { shape, strategy, bytes }: FaultKind,
) -> (SimulatedNetwork, Vec<Handle>) {
    let strategy = || strategy::named(strategy).expect("a known name");
    let mut network = SimulatedNetwork::with_strategy(seed, 2, shape, &strategy);
    let mut ends = vec![network.send(0, 1, 2, 0), network.receive(1, Some(0), Some(2), 0)];
    network.run();
    network.steps = 0;
    for (from, to) in [(0, 1), (1, 0)] {
        ends.push(network.receive(to, Some(from), Some(0), bytes));
        ends.push(network.send_synchronous(from, to, 0, bytes));
        ends.push(network.send(from, to, 1, bytes));
        network.run_steps(8);
        ends.push(network.receive(to, Some(from), Some(1), bytes));
    }
    (network, ends)
}

/// Method by which a long message is split.
#[derive(Clone, Copy, Debug)]
struct FaultKind {
    shape: Shape,
    strategy: &'static str,
    bytes: usize,
}

const KINDS: [FaultKind; 4] = [
    FaultKind { shape: TWO_LINKS, strategy: "split", bytes: 12_000 },
    FaultKind { shape: TWO_LINKS, strategy: "auto", bytes: 12_000 },
    FaultKind { shape: AHEAD_TWO_LINKS, strategy: "auto", bytes: 12_000 },
    FaultKind { shape: PACKED_TWO_LINKS, strategy: "compress", bytes: 60_000 },
];

/// Slow links whose frames are short.
const PACKED_TWO_LINKS: Shape = Shape {
    capabilities: Capabilities { frame_max: 9 << 10, ..SLOW_TWO_LINKS.capabilities },
    content: Content::Sparse,
    ..SLOW_TWO_LINKS
};

/// Kinds of failure between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// A link dies in both directions at once.
    Link,
    /// A link dies on the forward direction first.
    ThereFirst,
    /// A link dies on the backward direction first.
    BackFirst,
    /// All links die.
    Peer,
}

/// All deaths of all links in all kinds of rendezvous.
const DEATHS: [(FaultKind, usize, Death); 28] = {
    let deaths = [
        (0, Death::Link),
        (0, Death::ThereFirst),
        (0, Death::BackFirst),
        (1, Death::Link),
        (1, Death::ThereFirst),
        (1, Death::BackFirst),
        (0, Death::Peer),
    ];
    let mut all = [(KINDS[0], 0, Death::Peer); 28];
    let mut at = 0;
    while at < all.len() {
        let (link, death) = deaths[at % deaths.len()];
        all[at] = (KINDS[at / deaths.len()], link, death);
        at += 1;
    }
    all
};

/// Maximal number of steps of a rendezvous, at each of which it is interrupted.
const STEPS_MAX: usize = 480;

#[test]
fn a_silent_link_is_detected_by_the_other() {
    for seed in seeds(1000) {
        let mut random = Random::new(!seed);
        let shape = random.pick(&[TWO_LINKS, AHEAD_TWO_LINKS]);
        let mut network = SimulatedNetwork::new(seed, 2, shape);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        let link = random.below(2);
        network.drop_frames(0, 1, link);
        let mut ends = Vec::new();
        for tag in 0..40 {
            let bytes = random.pick(&[8, 1000, 5000, 30_000]);
            let (from, to) = random.pick(&[(0, 1), (1, 0)]);
            ends.push(network.send_synchronous(from, to, tag, bytes));
            ends.push(network.receive(to, Some(from), Some(tag), bytes));
            let steps = random.below(60);
            network.run_steps(steps);
        }
        while ends.iter().any(|&end| !network.is_complete(end)) {
            assert!(network.now_ns < 10_000_000_000, "ten seconds were not enough");
            network.run_steps(1);
        }
        assert!(ends.iter().all(|&end| network.end(end).outcome == Outcome::Ok));
    }
}

#[test]
fn a_peer_that_does_not_poll_is_not_a_dead_link() {
    for seed in seeds(40) {
        let mut network = SimulatedNetwork::new(seed, 2, TWO_LINKS);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        network.look_away(1, 5_000_000_000);
        for tag in 1..20 {
            network.send(0, 1, tag, 20_000);
            network.receive(1, Some(0), Some(tag), 20_000);
        }
        network.finish();
        assert_eq!(network.late_links, 0);
    }
}

#[test]
fn a_slow_link_does_not_stop_the_others() {
    for seed in seeds(6) {
        let mut network = SimulatedNetwork::new(seed, 2, TWO_LINKS);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        network.slow_down(0, 1, 1, 2_000_000_000);
        for tag in 0..6000 {
            network.receive(1, Some(0), Some(tag), 600);
            network.send(0, 1, tag, if tag % 100 == 0 { 600 } else { 8 });
            if tag % 16 == 0 {
                network.run_steps(100);
            }
        }
        network.finish();
    }
}
