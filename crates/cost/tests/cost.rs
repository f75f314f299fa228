//! Cost model: rising curves, shares that finish together, robust learning.

use cost::{Cost, CostError, HostCost, KNOTS, split};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const MB: u64 = 1_000_000;

/// Cost of a local network, a wide-area link, and shared memory.
fn lan() -> Cost {
    Cost::linear(15_000, 2_000, 1_250 * MB)
}

fn wan() -> Cost {
    Cost::linear(5_800_000, 2_000, 125 * MB)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..<_>::default() })]

    #[test]
    fn longer_frames_never_take_less(cost in costs(), a in sizes(), b in sizes()) {
        let (short, long) = (a.min(b), a.max(b));
        prop_assert!(cost.busy_ns(short) <= cost.busy_ns(long));
        prop_assert!(cost.arrival_ns(short) <= cost.arrival_ns(long));
        prop_assert_eq!(cost.busy_ns(0), cost.gap_ns());
    }

    #[test]
    fn bytes_that_fit_a_time_take_no_longer(cost in costs(), bytes in sizes(), ns in 0u64..1 << 40) {
        let within = cost.bytes_within(ns);
        prop_assert!(within == u64::MAX || within == 0 || cost.busy_ns(within) <= ns + 1);
        prop_assert!(cost.bytes_within(cost.busy_ns(bytes)) >= bytes.saturating_sub(1));
    }

    #[test]
    fn a_straight_line_is_predicted_everywhere(
        latency_ns in 0u64..1 << 30, gap_ns in 0u64..1 << 20, rate in MB..50_000 * MB, bytes in sizes(),
    ) {
        let cost = Cost::linear(latency_ns, gap_ns, rate);
        let expected = gap_ns as f64 + bytes as f64 * 1e9 / rate as f64;
        // Each knot rounds to a picosecond; the last two are extrapolated.
        let rounding = 2.0 + bytes as f64 / 3e6 / 1000.0;
        prop_assert!((cost.busy_ns(bytes) as f64 - expected).abs() <= rounding, "{expected}");
        prop_assert_eq!(cost.latency_ns(), latency_ns);
    }

    #[test]
    fn measured_points_are_met(points in prop::collection::vec((0usize..KNOTS.len(), 1u64..1 << 30), 2..8)) {
        let mut points: Vec<_> = points.into_iter().map(|(at, ns)| (KNOTS[at], ns)).collect();
        points.sort_unstable();
        points.dedup_by_key(|&mut (bytes, _)| bytes);
        let mut floor = 0;
        points.iter_mut().for_each(|point| { floor = point.1.max(floor); point.1 = floor; });
        let cost = Cost::measured(7, &points);
        let first = points[0];
        for &(bytes, ns) in &points {
            // A single point gives a proportion, from which no gap can be derived.
            prop_assert!(points.len() == 1 || cost.busy_ns(bytes).abs_diff(ns) <= 1, "{bytes} B");
        }
        prop_assert!(cost.gap_ns() <= first.1);
    }

    #[test]
    fn points_in_disorder_make_some_curve(points in prop::collection::vec((any::<u64>(), any::<u64>()), 0..6)) {
        let cost = Cost::measured(u64::MAX, &points);
        prop_assert!(cost.busy_ns(0) <= cost.busy_ns(u64::MAX));
    }

    #[test]
    fn data_compressed_to_the_limit_arrive_sooner(
        host in hosts(),
        (cost, queue_ns) in (costs(), prop_oneof![Just(0), times()]),
        bytes in 4096u64..1 << 20,
    ) {
        let most = host.compressed_max(&cost, bytes, queue_ns, false);
        prop_assert!(most == 0 || (bytes / 8..=bytes * 95 / 100 + 1).contains(&most), "{most}");
        if most > 0 {
            let compression_ns = queue_ns.max(bytes * host.compress_ps_per_byte / 1000);
            let decompression_ns = bytes * host.decompress_ps_per_byte / 1000;
            let with_ns = compression_ns + cost.busy_ns(most) + decompression_ns;
            prop_assert!(with_ns <= queue_ns + cost.busy_ns(bytes), "{with_ns} ns");
        }
        let later = host.compressed_max(&cost, bytes, queue_ns + 1000, false);
        prop_assert!(later >= most, "a queue hides packing");
        prop_assert!(host.compressed_max(&cost, bytes, queue_ns, true) <= most, "others want the cores");
    }

    #[test]
    fn shares_are_the_message(bytes in sizes(), links in links()) {
        let shares = split(bytes, &borrowed(&links));
        prop_assert_eq!(shares.iter().sum::<u64>(), bytes);
        let mut offset = 0;
        for &share in shares.iter().filter(|&&share| share > 0) {
            prop_assert_eq!(offset % PAGE, 0, "shares meet at pages: {:?}", shares);
            offset += share;
        }
    }

    #[test]
    fn sharing_is_never_slower_than_the_best_link_alone(bytes in sizes(), links in links()) {
        let links = borrowed(&links);
        let shares = split(bytes, &links);
        let alone = links.iter().map(|&link| finish_ns(link, bytes)).min().unwrap();
        prop_assert!(last_ns(&links, &shares) <= alone + 1, "{shares:?}");
    }

    #[test]
    fn shares_finish_together(bytes in 16u64 * PAGE..1 << 32, links in links()) {
        let links = borrowed(&links);
        let shares = split(bytes, &links);
        let last = last_ns(&links, &shares);
        let used = || links.iter().zip(&shares).filter(|&(_, &share)| share > 0);
        // Rounding and the message's end leave over a page, wherever it takes longest.
        let rounding = used().map(|(&(cost, _), &share)| {
            cost.busy_ns(share + PAGE * (1 + links.len() as u64)) - cost.busy_ns(share)
        });
        let rounding = rounding.max().unwrap();
        for (&link, &share) in used() {
            prop_assert!(finish_ns(link, share) + rounding + last / 8192 + 2 >= last, "{shares:?}");
        }
    }

    #[test]
    fn equal_links_carry_equal_shares(bytes in 64u64 * PAGE..1 << 32, cost in lines(), n in 2usize..5) {
        let links = vec![(&cost, 0); n];
        let shares = split(bytes, &links);
        let even = bytes / n as u64;
        prop_assume!(shares.iter().all(|&share| share > 0));
        for share in &shares {
            let slack = PAGE * (1 + n as u64) + even / 1000;
            prop_assert!(share.abs_diff(even) <= slack, "{shares:?}");
        }
    }

    #[test]
    fn a_steady_link_is_learned(
        truth in lines(), guess in costs(), bytes in sizes().prop_filter("long ones repeat the last knot", |b| *b < 1 << 23),
    ) {
        let mut cost = guess;
        let busy_ns = truth.busy_ns(bytes).max(1);
        let far = (cost.busy_ns(bytes).max(1) as f64 / busy_ns as f64).log2().abs();
        for _ in 0..60 + 8 * far as usize {
            cost.learn(bytes, busy_ns);
        }
        let ratio = cost.busy_ns(bytes) as f64 / busy_ns as f64;
        prop_assert!((0.9..1.1).contains(&ratio) || cost.busy_ns(bytes).abs_diff(busy_ns) <= 2, "{ratio}");
    }

    #[test]
    fn sleepers_do_not_ruin_the_prediction(seed in any::<[u8; 32]>(), truth in lines(), slept in 1u64..1 << 40) {
        let mut cost = truth;
        let sizes = [64, 1024, 16_384, 100_000, 1 << 20];
        for (turn, draw) in seed.iter().cycle().take(400).enumerate() {
            let bytes = sizes[turn % sizes.len()];
            let late = if draw % 32 == 0 { slept } else { 0 };
            cost.learn(bytes, truth.busy_ns(bytes) + late);
            cost.learn_latency(truth.latency_ns() + late);
        }
        let sleepers = seed.iter().filter(|&draw| draw % 32 == 0).count();
        prop_assume!(sleepers <= 3);
        for bytes in sizes {
            let ratio = (cost.busy_ns(bytes) as f64 + 1.0) / (truth.busy_ns(bytes) as f64 + 1.0);
            prop_assert!((0.7..1.6).contains(&ratio), "{bytes} B: {ratio}");
        }
        let ratio = (cost.latency_ns() + 100) as f64 / (truth.latency_ns() + 100) as f64;
        prop_assert!((0.9..1.4).contains(&ratio), "latency: {ratio}");
    }

    #[test]
    fn anything_may_be_learned(mut cost in costs(), samples in prop::collection::vec((any::<u64>(), any::<u64>()), 0..200)) {
        for (bytes, ns) in samples {
            cost.learn(bytes, ns);
            cost.learn_latency(ns);
            prop_assert!(KNOTS.windows(2).all(|pair| cost.busy_ns(pair[0]) <= cost.busy_ns(pair[1])));
            prop_assert_eq!(cost.to_string().parse(), Ok(cost));
        }
    }

    #[test]
    fn texts_come_back(cost in costs(), host in hosts()) {
        prop_assert_eq!(cost.to_string().parse(), Ok(cost));
        prop_assert_eq!(host.to_string().parse(), Ok(host));
    }

    #[test]
    fn any_text_is_a_cost_or_an_error(text in ".*", tail in "[0-9: ]{0,80}", damage in any::<(prop::sample::Index, char)>()) {
        for text in [text, format!("cost/1 {tail}"), format!("host/4 {tail}"), damaged(&lan().to_string(), damage)] {
            if let Ok(cost) = text.parse::<Cost>() {
                prop_assert_eq!(cost.to_string(), text);
            } else if let Ok(host) = text.parse::<HostCost>() {
                prop_assert_eq!(host.to_string(), text);
            }
        }
    }

    #[test]
    fn copies_within_a_time_take_no_longer(host in hosts(), ns in 0u64..1 << 40) {
        let bytes = host.bytes_copied_in(ns);
        prop_assert!(bytes == 0 || host.copy_ns(bytes) <= ns + 1, "{bytes} B");
    }
}

#[test]
fn the_faster_link_carries_more_and_the_busy_one_less() {
    let (slow, fast) = (Cost::linear(15_000, 2_000, 500 * MB), lan());
    let shares = split(14 << 20, &[(&slow, 0), (&fast, 0)]);
    let ratio = shares[1] as f64 / shares[0] as f64;
    assert!((2.4..2.6).contains(&ratio), "{shares:?}");
    // Ten milliseconds of backlog at 1250 MB/s are 12.5 MB.
    let shares = split(16 << 20, &[(&fast, 10_000_000), (&fast, 0)]);
    let more = shares[1] - shares[0];
    assert!(more.abs_diff(12_500_000) < 20_000, "{shares:?}");
}

#[test]
fn a_link_that_does_not_pay_gets_nothing() {
    assert_eq!(split(1 << 20, &[(&lan(), 0), (&wan(), 0)]), [1 << 20, 0], "5.8 ms is too late");
    assert_eq!(split(4096, &[(&lan(), 0), (&lan(), 0)]), [4096, 0], "one page");
    assert_eq!(split(1 << 20, &[(&lan(), u64::MAX), (&lan(), 0)]), [0, 1 << 20]);
    let trickle = Cost::linear(15_000, 2_000, MB);
    assert_eq!(split(64 << 20, &[(&trickle, 0), (&lan(), 0)]), [0, 64 << 20], "a thousandth");
    assert_eq!(split(0, &[(&lan(), 0), (&wan(), 0)]), [0, 0]);
    let shares = split(1 << 60, &[(&trickle, 0), (&trickle, 0)]);
    assert_eq!(shares.iter().sum::<u64>(), 1 << 60, "longer than all times");
    let free = Cost::measured(0, &[]);
    assert_eq!(split(u64::MAX, &[(&wan(), 0), (&free, 0)]), [0, u64::MAX]);
}

#[test]
fn links_of_nanoseconds_share_too() {
    let near = HostCost::default().shared_memory(0);
    for bytes in [2 * PAGE, 5 * PAGE + 1, 1 << 20] {
        let shares = split(bytes, &[(&near, 0), (&near, 0)]);
        assert_eq!(shares.iter().sum::<u64>(), bytes);
        assert!(shares[0].abs_diff(shares[1]) <= 2 * PAGE, "{shares:?}");
    }
    let quick = Cost::measured(0, &[(0, 0), (4 << 20, 1)]);
    assert_eq!(split(3 * PAGE, &[(&quick, 0), (&quick, 1)]), [3 * PAGE, 0]);
}

#[test]
fn a_link_that_slows_down_is_noticed_within_thirty_frames_at_all_sizes() {
    let mut cost = lan();
    let slow = Cost::linear(15_000, 2_000, 125 * MB);
    for _ in 0..30 {
        cost.learn(256 << 10, slow.busy_ns(256 << 10));
    }
    for bytes in [64 << 10, 256 << 10, 16 << 20] {
        let ratio = cost.bytes_per_s(bytes) as f64 / slow.bytes_per_s(bytes) as f64;
        assert!((0.7..1.6).contains(&ratio), "{bytes} B: {ratio}");
    }
    assert!(cost.gap_ns() < 4_000, "long frames say little of the gap: {}", cost.gap_ns());
}

#[test]
fn one_sleeper_moves_a_prediction_by_an_eighth() {
    let mut cost = lan();
    for _ in 0..20 {
        cost.learn(65_536, lan().busy_ns(65_536));
    }
    cost.learn(65_536, 3_000_000_000);
    let ratio = cost.busy_ns(65_536) as f64 / lan().busy_ns(65_536) as f64;
    assert!(ratio < 1.14, "{ratio}");
}

#[test]
fn foreign_texts_are_refused() {
    let parse = |text: &str| text.parse::<Cost>().unwrap_err();
    assert_eq!(parse(""), CostError::Version);
    assert_eq!(parse("cost/2 1:0"), CostError::Version);
    assert_eq!(parse("cost/1 1:0"), CostError::Fields { expected: 11, found: 1 });
    let with = |latency: &str, first: &str| {
        format!("cost/1 {latency} {first} 64:0 256:0 1024:0 4:0 5:0 6:0 7:0 8:0 9:0")
    };
    assert_eq!(parse(&with("5:0", "70:0")), CostError::Falling { field: 3 });
    assert_eq!(parse(&with("5:0", "7:0")), CostError::Falling { field: 6 });
    for bad in ["+5:0", "05:0", "5", "5:", "5:32", ":5", "99999999999999999999:0", "-1:0", "1e3:0"]
    {
        assert_eq!(parse(&with(bad, "7:0")), CostError::Number { field: 1 }, "{bad}");
    }
    let parse = |text: &str| text.parse::<HostCost>().unwrap_err();
    assert_eq!(parse("host/3 1 2 3 4 5 6 7 8"), CostError::Version);
    assert_eq!(parse("host/4 1 2 3 4"), CostError::Fields { expected: 9, found: 4 });
    assert_eq!(parse("host/4 1 2 3 4 5000000000 6 7 8 9"), CostError::Number { field: 5 });
}

#[test]
fn compression_pays_on_slow_links_only() {
    let host = HostCost::default();
    let part = |cost: &Cost, queue_ns| {
        host.compressed_max(cost, 256 << 10, queue_ns, false) as f64 / (256 << 10) as f64
    };
    let link = |mb_per_s: u64| Cost::linear(5_800_000, 2_000, mb_per_s * 1_000_000);
    assert!(part(&link(6), 0) > 0.85, "{}", part(&link(6), 0));
    assert!((0.4..0.7).contains(&part(&link(118), 0)), "{}", part(&link(118), 0));
    assert!((0.7..0.9).contains(&part(&link(118), 10_000_000)), "packing behind a queue");
    for queue_ns in [0, 1_000_000_000] {
        assert_eq!(part(&link(1_200), queue_ns), 0.0, "10 Gb/s");
        assert_eq!(part(&host.shared_memory(190), queue_ns), 0.0);
    }
}

#[test]
fn oversubscribed_compression_pays_on_very_slow_links_only() {
    // Sampled on a CPU core of 2023.
    let sampled =
        HostCost { compress_ps_per_byte: 1050, decompress_ps_per_byte: 310, ..HostCost::default() };
    let part = |mb_per_s: u64| {
        let cost = Cost::linear(5_800_000, 2_000, mb_per_s * 1_000_000);
        sampled.compressed_max(&cost, 256 << 10, 10_000_000, true) as f64 / (256 << 10) as f64
    };
    assert!(part(6) > 0.7, "{}", part(6));
    assert!((0.4..0.7).contains(&part(12)), "100 Mb/s: {}", part(12));
    assert_eq!((part(29), part(118)), (0.0, 0.0), "a quarter of a gigabit, and all of it");
}

#[test]
fn a_cost_is_small() {
    assert!(size_of::<Cost>() <= 128, "{}", size_of::<Cost>());
}

fn finish_ns((cost, backlog_ns): (&Cost, u64), share: u64) -> u64 {
    if share == 0 { 0 } else { cost.arrival_ns(share).saturating_add(backlog_ns) }
}

fn last_ns(links: &[(&Cost, u64)], shares: &[u64]) -> u64 {
    links.iter().zip(shares).map(|(&link, &share)| finish_ns(link, share)).max().unwrap()
}

fn borrowed(links: &[(Cost, u64)]) -> Vec<(&Cost, u64)> {
    links.iter().map(|(cost, backlog_ns)| (cost, *backlog_ns)).collect()
}

fn damaged(text: &str, (at, with): (prop::sample::Index, char)) -> String {
    let at = at.index(text.len());
    format!("{}{with}{}", &text[..at], &text[at + 1..])
}

/// All magnitudes are equally likely.
fn sizes() -> impl Strategy<Value = u64> {
    (0u32..34, any::<u64>()).prop_map(|(bits, draw)| draw & ((1 << bits) - 1))
}

fn lines() -> impl Strategy<Value = Cost> {
    (times(), 10u64..100_000, 1u64..20_000)
        .prop_map(|(latency_ns, gap_ns, mb_per_s)| Cost::linear(latency_ns, gap_ns, mb_per_s * MB))
}

/// From nothing to 30 ms; all magnitudes are equally likely.
fn times() -> impl Strategy<Value = u64> {
    (0u32..25, any::<u64>()).prop_map(|(bits, draw)| draw & ((1 << bits) - 1))
}

fn costs() -> impl Strategy<Value = Cost> {
    let point = (sizes(), 1u64..1 << 34);
    let curves =
        (times(), prop::collection::vec(point, 1..8)).prop_map(|(latency_ns, mut points)| {
            points.sort_unstable();
            Cost::measured(latency_ns, &points)
        });
    prop_oneof![lines(), curves]
}

fn links() -> impl Strategy<Value = Vec<(Cost, u64)>> {
    let backlog = prop_oneof![Just(0), times()];
    prop::collection::vec((costs(), backlog), 1..6)
}

fn hosts() -> impl Strategy<Value = HostCost> {
    let later = (0u64..10_000, 0u64..5000, 0u64..100_000, 0u64..1_000_000);
    (0u64..1000, 0u64..2000, 0u64..2000, 0u64..5000, 0u64..50_000, later).prop_map(
        |(copy_ns, near_ps_per_byte, far_ps_per_byte, vector_ns, call_ns, later)| HostCost {
            copy_ns,
            near_ps_per_byte,
            far_ps_per_byte,
            vector_ns,
            call_ns,
            compress_ps_per_byte: later.0,
            decompress_ps_per_byte: later.1,
            wake_ns: later.2,
            work_ns: later.3,
        },
    )
}
