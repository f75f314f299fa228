//! What strategies gain, and what they may not do.

use engine::strategy::{self, Carry, Choice, Piece, Strategy, View};
use engine::{Counters, SendMode};
use wire::Capabilities;

use crate::network::{Content, NEAR, Network, SLOW, Send, Shape, TWO_LINKS};

#[test]
fn both_links_carry_a_long_message() {
    let shape = Shape { bytes_per_us: 100, jitter_ns: 0, ..TWO_LINKS };
    let took_ns = |links, seed| {
        let mut network = Network::new(seed, 2, Shape { links, ..shape });
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        let begin_ns = network.now_ns;
        network.receive(1, Some(0), None, 1_000_000);
        network.send(0, 1, 1, 1_000_000);
        network.finish();
        network.now_ns - begin_ns
    };
    // Seeds are those of the strategy that splits.
    for seed in [4, 11, 18, 25] {
        let (one, two) = (took_ns(1, seed), took_ns(2, seed));
        assert!(two * 185 < one * 100, "seed {seed}: {one} ns over one link, {two} ns over two");
    }
}

/// How long 2 MB take, in nanoseconds, where nothing disturbs them, and what was packed for it.
fn took_ns(strategy: &str, shape: Shape) -> (u64, Counters) {
    let strategy = || strategy::named(strategy).expect("a known name");
    let once = |seed| {
        let mut network = Network::with_strategy(seed, 2, shape, &strategy);
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
fn on_a_slow_link_what_can_be_packed_arrives_twice_as_soon_and_the_rest_no_later() {
    for packing in ["compress", "auto"] {
        let with = |content| took_ns(packing, Shape { content, ..SLOW });
        let without = |content| took_ns("split", Shape { content, ..SLOW }).0;
        let ((sparse_ns, packed), plain_ns) = (with(Content::Sparse), without(Content::Sparse));
        assert!(2 * sparse_ns < plain_ns, "{packing}: {sparse_ns} ns, {plain_ns} ns as it is");
        assert!(packed.packed_from_bytes > 1_900_000, "{packed:?}");
        let ((dense_ns, tried), plain_ns) = (with(Content::Dense), without(Content::Dense));
        assert!(100 * dense_ns <= 102 * plain_ns, "{packing}: {dense_ns} ns, {plain_ns} ns");
        assert_eq!(tried.packed, 0);
        assert!(tried.packed_in_vain_bytes <= 40_000, "{tried:?}");
    }
}

#[test]
fn on_a_fast_link_nothing_is_packed() {
    let memory = Shape { bytes_per_us: 10_000, latency_ns: 200, ..SLOW };
    let far = Shape { bytes_per_us: 1_200, latency_ns: 5_000_000, ..SLOW };
    let silent = Capabilities { adapts: false, ..SLOW.capabilities };
    let untold = Shape { capabilities: silent, ..SLOW };
    for shape in [memory, far, untold] {
        for packing in ["compress", "auto"] {
            let (_, counters) = took_ns(packing, Shape { content: Content::Sparse, ..shape });
            assert_eq!((counters.packed, counters.packed_in_vain_bytes), (0, 0), "{shape:?}");
        }
    }
}

#[test]
fn what_is_packed_is_chosen_by_what_the_last_pieces_were() {
    let strategy = || strategy::named("compress").expect("a known name");
    let mut network = Network::with_strategy(3, 2, SLOW, &strategy);
    for tag in 0..60 {
        network.receive(1, Some(0), Some(tag), 300_000);
        let mode = if tag % 2 == 0 { SendMode::Standard } else { SendMode::Synchronous };
        network.submit_send(0, Send { to: 1, context: 0, tag, bytes: 300_000, mode });
        network.run();
    }
    network.finish();
    let Counters { packed_from_bytes, packed_to_bytes, packed_in_vain_bytes, .. } =
        network.counters(0);
    // Two messages in three can be packed, to three quarters and to a third.
    assert!(packed_from_bytes > 60 * 300_000 / 3, "{:?}", network.counters(0));
    assert!(packed_to_bytes * 10 < packed_from_bytes * 8, "{:?}", network.counters(0));
    assert!(packed_in_vain_bytes * 10 < packed_from_bytes, "{:?}", network.counters(0));
}

#[test]
fn messages_that_would_go_whole_go_ahead_packed() {
    let strategy = || strategy::named("auto").expect("a known name");
    let shape = Shape { content: Content::Sparse, ..SLOW };
    let mut network = Network::with_strategy(3, 2, shape, &strategy);
    for tag in 0..40 {
        let receive = |network: &mut Network| {
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
    let Counters { packed, eager, rendezvous, .. } = network.counters(0);
    assert_eq!((packed, eager, rendezvous), (40, 0, 40), "{:?}", network.counters(0));
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
    let rogues: [(Rule, &str); 9] = [
        (|_, choice| choice.controls = 7, "control packets"),
        (|_, choice| choice.messages.push((9, Carry::Copied)), "not to be had"),
        (|_, choice| choice.messages.push((2, Carry::Copied)), "overtakes an older one"),
        (|_, choice| choice.messages.push((0, Carry::Copied)), "must ask"),
        (
            |_, choice| {
                choice.messages.extend([(0, Carry::Asked), (1, Carry::Copied), (1, Carry::Copied)]);
            },
            "not to be had",
        ),
        (
            |_, choice| {
                choice.messages.extend([
                    (0, Carry::Asked),
                    (1, Carry::Gathered),
                    (2, Carry::Copied),
                ])
            },
            "goes on behind a body",
        ),
        (|_, choice| choice.piece = Some(Piece::plain(3, 1)), "a piece of"),
        (|_, choice| choice.piece = Some(Piece::plain(0, 1 << 20)), "has room for"),
        (
            |_, choice| {
                choice.messages.push((0, Carry::Asked));
                choice.piece = Some(Piece { packed_max: 970, ..Piece::plain(0, 1000) });
            },
            "may go packed",
        ),
    ];
    for (rogue, reason) in rogues {
        let mut network =
            Network::with_strategy(1, 2, NEAR, &|| Box::new(Rogue(rogue)) as Box<dyn Strategy>);
        for (tag, bytes) in [(0, 20_000), (1, 8), (2, 8)] {
            network.send(0, 1, tag, bytes);
        }
        for (tag, bytes) in [(0, 20_000), (1, 8), (2, 8)] {
            network.receive(1, Some(0), Some(tag), bytes);
        }
        network.finish();
        let refusal = network.refusal(0).expect("the rogue was found out");
        assert!(refusal.contains("strategy rogue") && refusal.contains(reason), "{refusal}");
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
    let mut network = Network::with_strategy(1, 2, NEAR, &|| Box::new(Idle) as Box<dyn Strategy>);
    network.send_synchronous(0, 1, 0, 100);
    network.receive(1, Some(0), Some(0), 100);
    network.finish();
    assert!(network.refusal(0).is_some_and(|text| text.contains("nothing")));
}
