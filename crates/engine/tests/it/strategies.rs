//! Gains of strategies, and the rules for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::strategy::{self, Carry, Choice, Piece, Strategy, View};
use engine::{Counters, SendMode};
use wire::Capabilities;

use testing::{Random, seeds};

use crate::network::{
    AHEAD_TWO_LINKS, ALL, Content, NEAR, Program, Receive, SLOW, SLOW_TWO_LINKS, Send, Shape,
    SimulatedNetwork, TWO_KINDS, TWO_LINKS,
};

#[test]
fn both_links_carry_a_long_message() {
    let shape = Shape { bytes_per_us: 100, jitter_ns: 0, ..TWO_LINKS };
    let took_ns = |links, seed| {
        let mut network = SimulatedNetwork::new(seed, 2, Shape { links, ..shape });
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        let begin_ns = network.now_ns;
        network.receive(1, Some(0), None, 1_000_000);
        network.send(0, 1, 1, 1_000_000);
        network.finish();
        network.now_ns - begin_ns
    };
    // The seeds are those of the strategy that splits.
    for seed in [4, 11, 18, 25] {
        let (one, two) = (took_ns(1, seed), took_ns(2, seed));
        assert!(two * 185 < one * 100, "seed {seed}: {one} ns over one link, {two} ns over two");
    }
}

#[test]
fn eager_messages_are_split_if_that_is_faster() {
    const KB: usize = 1 << 10;
    let near = Capabilities {
        frame_max: 256 * KB,
        eager_max: 128 * KB,
        rts_data_max: 256 * KB,
        piece_min: 16 * KB,
        piece_max: 64 * KB,
        credit_bytes: 1 << 20,
        credit_wanted: 1 << 20,
        ..TWO_LINKS.capabilities
    };
    let shape = Shape {
        bytes_per_us: 1000,
        latency_ns: 10_000,
        jitter_ns: 0,
        capabilities: near,
        ..TWO_LINKS
    };
    let took = |links, seed, bytes| {
        let split = || strategy::named("split").expect("a known name");
        let mut network =
            SimulatedNetwork::with_strategy(seed, 2, Shape { links, ..shape }, &split);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        let begin_ns = network.now_ns;
        network.receive(1, Some(0), None, bytes);
        network.send(0, 1, 1, bytes);
        network.finish();
        (network.end_ns() - begin_ns, network.counters(0).pieces)
    };
    for seed in 0..4 {
        let ((one, whole), (two, pieces)) = (took(1, seed, 128 * KB), took(2, seed, 128 * KB));
        assert!(whole == 0 && pieces > 1, "seed {seed}: {pieces} pieces");
        assert!(two * 3 < one * 2, "seed {seed}: {one} ns over one link, {two} ns over two");
        assert_eq!(took(2, seed, 4 * KB).1, 0, "seed {seed}: a short one goes whole");
    }
}

/// Long messages of an urgent context, such as a collective's, are sent one after another; others
/// are interleaved.
#[test]
fn urgent_long_messages_leave_in_order() {
    for seed in 0..4 {
        for (context, is_urgent) in [(0, false), (1, true)] {
            let mut network = SimulatedNetwork::new(seed, 2, Shape { bytes_per_us: 100, ..NEAR });
            let mode = SendMode::Standard;
            let receives = [0, 1, 2].map(|tag| {
                let tag = Some(tag);
                network
                    .submit_receive(1, Receive { source: Some(0), context, tag, capacity: 400_000 })
            });
            for tag in 0..3 {
                network.submit_send(0, Send { to: 1, context, tag, bytes: 400_000, mode });
            }
            let mut ends = [0; 3];
            for (end, receive) in ends.iter_mut().zip(receives) {
                while !network.is_complete(receive) {
                    network.run_steps(1);
                }
                *end = network.now_ns;
            }
            network.finish();
            let share = ends[0] as f64 / ends[2] as f64;
            assert!(if is_urgent { share < 0.5 } else { share > 0.7 }, "seed {seed}: {ends:?}");
        }
    }
}

#[test]
fn links_of_two_kinds_share_a_long_message_by_what_they_carry() {
    let strategy = || strategy::named("split").expect("a known name");
    let took_ns = |seed, shape: Shape| {
        let mut network = SimulatedNetwork::with_strategy(seed, 2, shape, &strategy);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        let begin_ns = network.now_ns;
        network.receive(1, Some(0), None, 2_000_000);
        network.send(0, 1, 1, 2_000_000);
        network.finish();
        (network.end_ns() - begin_ns) as f64
    };
    let Some(other) = TWO_KINDS.other else { panic!("two kinds") };
    let rate = TWO_KINDS.bytes_per_us as f64;
    let possible = rate / (rate + other.bytes_per_us as f64);
    for seed in 0..4 {
        let alone_ns = took_ns(seed, Shape { links: 1, ..TWO_KINDS });
        let share = took_ns(seed, TWO_KINDS) / alone_ns;
        assert!(share > possible * 0.95 && share < possible * 1.05, "seed {seed}: {share}");
    }
}

/// Returns the time for 2 MB in nanoseconds without disturbance, and the counters.
fn took_ns(strategy: &str, shape: Shape) -> (u64, Counters) {
    took_in_ns(strategy, shape, false)
}

/// Returns the same, with or without oversubscription.
fn took_in_ns(strategy: &str, shape: Shape, is_oversubscribed: bool) -> (u64, Counters) {
    let strategy = || strategy::named(strategy).expect("a known name");
    let once = |seed| {
        let mut network = SimulatedNetwork::with_strategy(seed, 2, shape, &strategy);
        if is_oversubscribed {
            network.oversubscribe();
        }
        network.send(0, 1, 0, 0);
        network.receive(1, Some(0), None, 0);
        network.run();
        let begin_ns = network.now_ns;
        network.receive(1, Some(0), None, 2_000_000);
        network.send(0, 1, 1, 2_000_000);
        network.finish();
        (network.end_ns() - begin_ns, network.counters(0))
    };
    (0..3).map(once).min_by_key(|(took_ns, _)| *took_ns).expect("three seeds")
}

#[test]
fn compression_halves_the_time_on_a_slow_link_and_delays_nothing_else() {
    for strategy in ["compress", "auto"] {
        let with = |content| took_ns(strategy, Shape { content, ..SLOW });
        let without = |content| took_ns("split", Shape { content, ..SLOW }).0;
        let ((sparse_ns, compressed), plain_ns) = (with(Content::Sparse), without(Content::Sparse));
        assert!(2 * sparse_ns < plain_ns, "{strategy}: {sparse_ns} ns, {plain_ns} ns as it is");
        assert!(compressed.uncompressed_bytes > 1_900_000, "{compressed:?}");
        let ((dense_ns, tried), plain_ns) = (with(Content::Dense), without(Content::Dense));
        assert!(100 * dense_ns <= 102 * plain_ns, "{strategy}: {dense_ns} ns, {plain_ns} ns");
        assert_eq!(tried.compressed, 0);
        assert!(tried.incompressible_bytes <= 40_000, "{tried:?}");
    }
}

#[test]
fn oversubscribed_ranks_compress_only_if_the_link_is_much_slower() {
    for strategy in ["compress", "auto"] {
        for (bytes_per_us, compresses) in [(100, false), (30, false), (1, true)] {
            let shape = Shape { content: Content::Sparse, bytes_per_us, ..SLOW };
            let (_, alone) = took_ns(strategy, shape);
            assert!(alone.compressed > 0, "{strategy}, {bytes_per_us} MB/s: {alone:?}");
            let (_, oversubscribed) = took_in_ns(strategy, shape, true);
            assert_eq!(
                oversubscribed.compressed > 0,
                compresses,
                "{strategy}, {bytes_per_us} MB/s: {oversubscribed:?}"
            );
        }
    }
}

#[test]
fn fast_links_compress_nothing() {
    let memory = Shape { bytes_per_us: 10_000, latency_ns: 200, ..SLOW };
    let far = Shape { bytes_per_us: 1_200, latency_ns: 5_000_000, ..SLOW };
    let silent = Capabilities { adapts: false, ..SLOW.capabilities };
    let untold = Shape { capabilities: silent, ..SLOW };
    for shape in [memory, far, untold] {
        for strategy in ["compress", "auto"] {
            let (_, counters) = took_ns(strategy, Shape { content: Content::Sparse, ..shape });
            assert_eq!((counters.compressed, counters.incompressible_bytes), (0, 0), "{shape:?}");
        }
    }
}

#[test]
fn compression_is_chosen_by_recent_pieces() {
    let strategy = || strategy::named("compress").expect("a known name");
    let mut network = SimulatedNetwork::with_strategy(3, 2, SLOW, &strategy);
    for tag in 0..60 {
        network.receive(1, Some(0), Some(tag), 300_000);
        let mode = if tag % 2 == 0 { SendMode::Standard } else { SendMode::Synchronous };
        network.submit_send(0, Send { to: 1, context: 0, tag, bytes: 300_000, mode });
        network.run();
    }
    network.finish();
    let Counters { uncompressed_bytes, compressed_bytes, incompressible_bytes, .. } =
        network.counters(0);
    // Two messages in three can be compressed, to three quarters and to a third.
    assert!(uncompressed_bytes > 60 * 300_000 / 3, "{:?}", network.counters(0));
    assert!(compressed_bytes * 10 < uncompressed_bytes * 8, "{:?}", network.counters(0));
    assert!(incompressible_bytes * 10 < uncompressed_bytes, "{:?}", network.counters(0));
}

#[test]
fn eager_bodies_become_compressed_rts_data() {
    let strategy = || strategy::named("auto").expect("a known name");
    let shape = Shape { content: Content::Sparse, ..SLOW };
    let mut network = SimulatedNetwork::with_strategy(3, 2, shape, &strategy);
    for tag in 0..40 {
        let receive = |network: &mut SimulatedNetwork| {
            let capacity = if tag % 3 == 0 { 5000 } else { 12_000 };
            network.receive(1, Some(0), Some(tag), capacity)
        };
        let early = (tag % 2 == 0).then(|| receive(&mut network));
        network.send(0, 1, tag, 12_000);
        network.run();
        let late = early.unwrap_or_else(|| receive(&mut network));
        network.run();
        assert!(network.is_complete(late));
    }
    network.finish();
    let Counters { compressed, eager, rendezvous, .. } = network.counters(0);
    assert_eq!((compressed, eager, rendezvous), (40, 0, 40), "{:?}", network.counters(0));
}

#[test]
fn a_strategy_that_breaks_a_rule_is_refused_with_its_reason() {
    #[derive(Debug)]
    struct Rogue(fn(&View<'_>, &mut Choice));
    impl Strategy for Rogue {
        fn name(&self) -> &'static str {
            "rogue"
        }
        fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
            (self.0)(view, choice);
        }
    }
    type Rule = fn(&View<'_>, &mut Choice);
    let rogues: [(Rule, &str); 11] = [
        (|_, choice| choice.controls = 7, "control packets"),
        (|_, choice| choice.messages.push((9, Carry::Inline)), "not to be had"),
        (|_, choice| choice.messages.push((2, Carry::Inline)), "overtakes an older one"),
        (
            |_, choice| choice.messages.extend([(3, Carry::Inline), (1, Carry::Inline)]),
            "overtakes an older one",
        ),
        (|_, choice| choice.messages.push((0, Carry::Inline)), "must ask"),
        (
            |_, choice| {
                choice.messages.extend([(0, Carry::Rts), (1, Carry::Inline), (1, Carry::Inline)]);
            },
            "not to be had",
        ),
        (
            |_, choice| {
                choice.messages.extend([(0, Carry::Rts), (1, Carry::Body), (2, Carry::Inline)])
            },
            "goes on behind a body",
        ),
        (|_, choice| choice.piece = Some(Piece::plain(3, 1)), "a piece of"),
        (|_, choice| choice.piece = Some(Piece::plain(0, 1)), "nothing chosen"),
        (
            |_, choice| {
                choice.messages.push((0, Carry::Rts));
                choice.piece = Some(Piece::plain(0, 1 << 20));
            },
            "has room for",
        ),
        (
            |_, choice| {
                choice.messages.push((0, Carry::Rts));
                choice.piece = Some(Piece { compressed_max: 970, ..Piece::plain(0, 1000) });
            },
            "may be compressed",
        ),
    ];
    for (rogue, reason) in rogues {
        let mut network = SimulatedNetwork::with_strategy(1, 2, NEAR, &|| {
            Box::new(Rogue(rogue)) as Box<dyn Strategy>
        });
        for (tag, bytes, context) in [(0, 20_000, 0), (1, 8, 0), (2, 8, 0), (3, 8, 2)] {
            let mode = SendMode::Standard;
            network.submit_send(0, Send { to: 1, context, tag, bytes, mode });
            let receive = Receive { source: Some(0), context, tag: Some(tag), capacity: bytes };
            network.submit_receive(1, receive);
        }
        network.finish();
        let [refusal] = network.refusals(0) else { panic!("the rogue was found out once") };
        assert!(refusal.contains("strategy rogue") && refusal.contains(reason), "{refusal}");
    }
}

#[test]
fn a_strategy_is_given_up_where_it_breaks_a_rule_and_goes_on_elsewhere() {
    /// A strategy that breaks a rule for one peer, another for the next, and serves the third well.
    #[derive(Debug)]
    struct Biased(Arc<[AtomicU64; 4]>);
    impl Strategy for Biased {
        fn name(&self) -> &'static str {
            "biased"
        }
        fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
            let peer = view.peer().0 as usize;
            self.0[peer].fetch_add(1, Ordering::Relaxed);
            match peer {
                1 => choice.controls = view.controls() + 1,
                2 => choice.messages.push((99, Carry::Inline)),
                _ => strategy::Aggregate.choose(view, choice),
            }
        }
    }
    let asked: Arc<[AtomicU64; 4]> = Arc::default();
    let biased = || Box::new(Biased(asked.clone())) as Box<dyn Strategy>;
    let mut network = SimulatedNetwork::with_strategy(1, 4, NEAR, &biased);
    for tag in 0..40 {
        for peer in 1..4 {
            network.send_synchronous(0, peer, tag, 100);
            network.receive(peer, Some(0), Some(tag), 100);
        }
        network.run();
    }
    network.finish();
    let reports = network.refusals(0);
    let reasons = ["control packets chosen of 0; to peer 1", "not to be had; to peer 2"];
    assert!(
        reports.len() == 2 && (0..2).all(|at| reports[at].contains(reasons[at])),
        "{reports:?}"
    );
    assert_eq!(network.counters(0).violations, 2);
    let asked: Vec<_> = asked.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert!(asked[1] == 1 && asked[2] == 1 && asked[3] >= 40, "{asked:?}");
}

/// Context 1 is urgent, like a collective.
#[test]
fn urgent_messages_pass_those_of_other_contexts() {
    let names = strategy::NAMES.len() as u64;
    for seed in seeds(names * ALL.len() as u64) {
        let shape = Shape { bytes_per_us: 10, ..ALL[(seed / names) as usize % ALL.len()] };
        let mut network = SimulatedNetwork::new(seed, 2, shape);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        let bulk: Vec<_> = (0..60).map(|tag| network.receive(1, Some(0), Some(tag), 900)).collect();
        let urgent = Receive { source: Some(0), context: 1, tag: Some(0), capacity: 8 };
        let urgent = network.submit_receive(1, urgent);
        for tag in 0..60 {
            network.send(0, 1, tag, 900);
        }
        let mode = SendMode::Standard;
        network.submit_send(0, Send { to: 1, context: 1, tag: 0, bytes: 8, mode });
        while !network.is_complete(urgent) {
            network.run_steps(1);
        }
        let passed = bulk.iter().filter(|&&one| !network.is_complete(one)).count();
        let orders = strategy::NAMES[(seed % names) as usize];
        let is_reordered = !["fifo", "aggregate"].contains(&orders);
        assert!(!is_reordered || passed >= 30, "{orders} let it pass {passed} of 60, {shape:?}");
        network.finish();
    }
}

/// A sender with two hundred waiting messages in one context starves no other context.
#[test]
fn overtaken_messages_leave_in_the_end() {
    let names = strategy::NAMES.len() as u64;
    // Without credit, short messages are streamed round-robin like long ones.
    let has_credit = |shape: &Shape| shape.capabilities.credit_wanted > 1 << 10;
    let shapes: Vec<_> = ALL.into_iter().filter(has_credit).collect();
    for seed in seeds(names * shapes.len() as u64) {
        let shape = Shape { bytes_per_us: 10, ..shapes[(seed / names) as usize % shapes.len()] };
        for (held, bytes) in [(1000, 200), (30_000, 100), (30_000, 200), (30_000, 600)] {
            let mut network = SimulatedNetwork::new(seed, 2, shape);
            network.receive(1, Some(0), None, 0);
            network.send(0, 1, 0, 0);
            network.run();
            let mut others = VecDeque::new();
            let mut exchange = |network: &mut SimulatedNetwork| {
                others.retain(|&other| !network.is_complete(other));
                let missing = 200 - others.len();
                for _ in 0..missing {
                    others.push_back(network.receive(1, Some(0), Some(2), bytes));
                    network.send(0, 1, 2, bytes);
                }
                network.run_steps(5);
                missing
            };
            exchange(&mut network);
            let (context, tag, mode) = (2, 1, SendMode::Standard);
            network.submit_send(0, Send { to: 1, context, tag, bytes: held, mode });
            let into = Receive { source: Some(0), context, tag: Some(1), capacity: held };
            let waits = network.submit_receive(1, into);
            let mut passed = 0;
            while !network.is_complete(waits) {
                passed += exchange(&mut network);
                assert!(passed < 8000, "{held} bytes wait for messages of {bytes}, {shape:?}");
            }
            network.finish();
        }
    }
}

/// A random strategy, which is mostly valid.
#[derive(Debug)]
struct Whim {
    random: Random,
    is_careless: bool,
}

impl Strategy for Whim {
    fn name(&self) -> &'static str {
        "whim"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        let Self { random, is_careless } = self;
        let is_careless = *is_careless && random.one_in(50);
        for _ in 0..20 {
            choice.clear();
            choice.controls = random.below(view.controls() + 2);
            for at in 0..random.below(4) {
                let at = if random.one_in(8) { random.below(6) } else { at };
                let carry = random.pick(&[Carry::Inline, Carry::Body, Carry::Rts]);
                choice.messages.push((at, carry));
            }
            if random.one_in(2) {
                let stream = random.below(view.streams().count() + 2);
                let len = random.below(view.room().min(6000) + 1);
                let compressed_max = if random.one_in(4) { random.below(len + 1) } else { 0 };
                choice.piece = Some(Piece { compressed_max, ..Piece::plain(stream, len) });
            }
            if is_careless || choice.check(view).is_ok() {
                return;
            }
        }
        choice.clear();
        strategy::Fifo.choose(view, choice);
    }
}

#[test]
fn any_choice_is_refused_or_delivers_everything() {
    for seed in seeds(4000) {
        let mut random = Random::new(!seed);
        let shape = random.pick(&ALL);
        let is_careless = random.one_in(2);
        let whim =
            || Box::new(Whim { random: Random::new(seed), is_careless }) as Box<dyn Strategy>;
        let mut program = Program::on(SimulatedNetwork::with_strategy(seed, 3, shape, &whim), 3);
        for _ in 0..10 + random.below(60) {
            program.act(&mut random);
            let steps = random.below(20);
            program.network.run_steps(steps);
        }
        let network = program.drain();
        let refusals = (0..3).flat_map(|rank| network.refusals(rank));
        for refusal in refusals {
            assert!(is_careless && refusal.starts_with("strategy whim: "), "{refusal}");
        }
    }
}

#[test]
fn a_strategy_that_chooses_nothing_stalls_only_itself() {
    #[derive(Debug)]
    struct Idle;
    impl Strategy for Idle {
        fn name(&self) -> &'static str {
            "idle"
        }
        fn choose(&mut self, _: &View<'_>, _: &mut Choice) {}
    }
    for shape in ALL {
        for bytes in [100, 100_000] {
            let idle = || Box::new(Idle) as Box<dyn Strategy>;
            let mut network = SimulatedNetwork::with_strategy(1, 2, shape, &idle);
            network.send_synchronous(0, 1, 0, bytes);
            network.receive(1, Some(0), Some(0), bytes);
            network.finish();
            let [refusal] = network.refusals(0) else { panic!("{shape:?}: one refusal") };
            assert!(refusal.contains("nothing"), "{shape:?}: {refusal}");
        }
    }
}

#[test]
fn a_strategy_may_leave_links_idle_as_long_as_another_goes_on() {
    /// A strategy that uses one link unless it is the last to be asked, with one frame with a body
    /// at a time.
    #[derive(Debug)]
    struct Choosy;
    impl Strategy for Choosy {
        fn name(&self) -> &'static str {
            "choosy"
        }
        fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
            let waits = view.links().any(|link| link.backlog_bytes() > 0);
            if view.is_last() || view.place() + 1 == view.links().count() && !waits {
                strategy::Fifo.choose(view, choice);
            }
        }
    }
    for shape in [TWO_LINKS, AHEAD_TWO_LINKS, SLOW_TWO_LINKS] {
        let choosy = || Box::new(Choosy) as Box<dyn Strategy>;
        let mut network = SimulatedNetwork::with_strategy(1, 2, shape, &choosy);
        for tag in 0..20 {
            network.send(0, 1, tag, [8, 700, 50_000][tag as usize % 3]);
            network.receive(1, Some(0), Some(tag), 50_000);
        }
        network.finish();
        assert!(network.refusals(0).is_empty(), "{shape:?}");
    }
}
