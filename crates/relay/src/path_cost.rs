//! Costs of routes through gateways, as the gateways of this process's site report them, and the order of the routes.
//!
//! The caller decides by what its own gateways know of their links to the other site's; the other end need not agree.
//! The cheapest route goes first. Routes that cost hardly more share the pairs of ranks by their bandwidth. If
//! nothing is known, all are equal.

use std::net::SocketAddr;
use std::time::Duration;

use cost::Cost;
use rustc_hash::FxHashMap;
use wire::PeerId;

/// Cost of a route from a gateway on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathCost {
    /// Known cost.
    Costs {
        /// Round trip.
        round_trip: Duration,
        /// Bandwidth for long messages.
        bytes_per_s: u64,
    },
    /// Unknown cost.
    #[default]
    Unknown,
    /// The last attempt on this route failed.
    Closed,
}

impl PathCost {
    /// Converts the cost of a link.
    pub fn of(cost: &Cost) -> Self {
        let round_trip = Duration::from_nanos(2 * cost.latency_ns());
        Self::Costs { round_trip, bytes_per_s: cost.bytes_per_s(LONG_BYTES) }
    }

    /// Time of a message of medium length over the route.
    fn transit_ns(self) -> Option<u64> {
        let Self::Costs { round_trip, bytes_per_s } = self else { return None };
        let latency_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX) / 2;
        Some(latency_ns.saturating_add(WEIGHED_BYTES * 1_000_000_000 / bytes_per_s.max(1)))
    }

    /// True if the route costs hardly more than the best.
    fn is_like(self, best: Self) -> bool {
        let most = best.transit_ns().map(|ns| ns.saturating_add(ns / ALIKE + SLACK_NS));
        self.transit_ns() <= most && self.weight() >= best.weight() / RATES_ALIKE
    }

    /// Weight by which it shares the pairs with routes of similar cost.
    fn weight(self) -> u64 {
        match self {
            Self::Costs { bytes_per_s, .. } => bytes_per_s.max(1),
            Self::Unknown | Self::Closed => 1,
        }
    }

    /// Encodes the cost.
    pub fn emit(self) -> [u8; PATH_COST_LEN] {
        let (micros, kilobytes) = match self {
            Self::Costs { round_trip, bytes_per_s } => {
                let whole = |number: u128| u32::try_from(number).unwrap_or(u32::MAX).max(1);
                (whole(round_trip.as_micros()), whole(u128::from(bytes_per_s / 1000)))
            }
            Self::Unknown => (0, 0),
            Self::Closed => (0, 1),
        };
        let mut bytes = [0; PATH_COST_LEN];
        bytes[..4].copy_from_slice(&micros.to_le_bytes());
        bytes[4..].copy_from_slice(&kilobytes.to_le_bytes());
        bytes
    }

    /// Decodes a cost that a gateway sent.
    pub fn parse(bytes: [u8; PATH_COST_LEN]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        match (word(0), word(4)) {
            (0, 0) => Self::Unknown,
            (0, _) => Self::Closed,
            (micros, kilobytes) => Self::Costs {
                round_trip: Duration::from_micros(micros.into()),
                bytes_per_s: u64::from(kilobytes) * 1000,
            },
        }
    }
}

/// A route: a gateway of this process's site and the other site's gateway that it calls. Without own gateways, a
/// gateway of the other site alone.
pub type RouteKey = (SocketAddr, Option<SocketAddr>);

/// Costs that the gateways of this process's site have reported.
#[derive(Debug, Default)]
pub struct PathCosts {
    answers: FxHashMap<RouteKey, (PathCost, Duration)>,
    /// Queries under route: the gateway, and the gateways that it is asked about.
    asked: Vec<(SocketAddr, Vec<SocketAddr>)>,
}

impl PathCosts {
    /// Sorts routes into the order in which the pair of ranks tries them.
    pub fn order(&self, routes: &[RouteKey], pair: (PeerId, PeerId)) -> Vec<RouteKey> {
        let path_costs: Vec<PathCost> = routes
            .iter()
            .map(|route| self.answers.get(route).map_or(PathCost::Unknown, |one| one.0))
            .collect();
        order(&path_costs, pair).into_iter().map(|at| routes[at]).collect()
    }

    /// True if the gateway is to be asked at `now` about the others: no query is pending, and the last is too old.
    pub fn is_due(&self, gateway: SocketAddr, others: &[SocketAddr], now: Duration) -> bool {
        let is_fresh = |other: &SocketAddr| {
            let answers = self.answers.get(&(gateway, Some(*other)));
            answers.is_some_and(|(_, at)| now.saturating_sub(*at) < FRESH)
        };
        !self.is_asked(gateway, others) && !others.iter().all(is_fresh)
    }

    /// Records a query about the others.
    pub fn note_asked(&mut self, gateway: SocketAddr, others: &[SocketAddr]) {
        self.asked.push((gateway, others.to_vec()));
    }

    /// True if a query about the others is pending.
    pub fn is_asked(&self, gateway: SocketAddr, others: &[SocketAddr]) -> bool {
        self.asked.iter().any(|(one, about)| *one == gateway && about == others)
    }

    /// Records the answer of a gateway at `now`; none means that it leads nowhere.
    pub fn handle_answer(
        &mut self,
        gateway: SocketAddr,
        others: &[SocketAddr],
        said: Option<&[PathCost]>,
        now: Duration,
    ) {
        self.asked.retain(|(one, about)| !(*one == gateway && about == others));
        for (at, other) in others.iter().enumerate() {
            let path_cost =
                said.map_or(PathCost::Closed, |said| said.get(at).copied().unwrap_or_default());
            self.answers.insert((gateway, Some(*other)), (path_cost, now));
        }
    }
}

/// Returns the order in which a pair of ranks tries routes, by index. First comes one of the cheapest, chosen by
/// bandwidth share, then the others of these. Dearer ones follow, then unknown ones, and last those that failed.
fn order(path_costs: &[PathCost], pair: (PeerId, PeerId)) -> Vec<usize> {
    let known = path_costs.iter().copied().filter(|path_cost| path_cost.transit_ns().is_some());
    let best = known.min_by_key(|path_cost| path_cost.transit_ns()).unwrap_or_default();
    let class = |at: usize| match path_costs[at].transit_ns() {
        Some(_) if path_costs[at].is_like(best) => (0, 0),
        Some(ns) => (1, ns),
        None if path_costs[at] == PathCost::Unknown => (2, 0),
        None => (3, 0),
    };
    let mut order: Vec<usize> = (0..path_costs.len()).collect();
    order.sort_by_key(|&at| class(at));
    for equal in order.chunk_by_mut(|&one, &other| class(one) == class(other)) {
        equal.rotate_left(choose(equal.iter().map(|&at| path_costs[at].weight()), pair));
    }
    order
}

/// Chooses the first of several weighted routes for a pair of ranks.
fn choose(weights: impl Iterator<Item = u64> + Clone, (one, other): (PeerId, PeerId)) -> usize {
    let (low, high) = (u64::from(one.0.min(other.0)), u64::from(one.0.max(other.0)));
    // Knuth's multiplier spreads neighbours over the high bits.
    let hash = (low << 32 | high).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let sum: u128 = weights.clone().map(u128::from).sum();
    let mut left = (sum * u128::from(hash)) >> 32;
    let is_passed = |weight: &u64| {
        let is_passed = left >= u128::from(*weight);
        left = left.saturating_sub(u128::from(*weight));
        is_passed
    };
    weights.take_while(is_passed).count()
}

pub const PATH_COST_LEN: usize = 8;
/// Message length by whose transfer time routes are compared.
const WEIGHED_BYTES: u64 = 256 << 10;
/// Limits within which routes share the pairs. Their time exceeds the best by at most a quarter and the delay of a
/// busy host. They carry at least half as much, since measurements of one link vary so much.
const ALIKE: u64 = 4;
const SLACK_NS: u64 = 100_000;
const RATES_ALIKE: u64 = 2;
/// Message length that shows a link's rate.
const LONG_BYTES: u64 = 1 << 20;
/// Age after which an answer is asked again, on the rail's clock.
const FRESH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn costs(millis: u64, megabytes_per_s: u64) -> PathCost {
        let bytes_per_s = megabytes_per_s * 1_000_000;
        PathCost::Costs { round_trip: Duration::from_millis(millis), bytes_per_s }
    }

    fn near(micros: u64) -> PathCost {
        PathCost::Costs { round_trip: Duration::from_micros(micros), bytes_per_s: 125_000_000 }
    }

    fn pairs() -> impl Iterator<Item = (PeerId, PeerId)> {
        (0..16).flat_map(|one| (16..32).map(move |other| (PeerId(one), PeerId(other))))
    }

    /// Counts the pairs that try each route first.
    fn shares(path_costs: &[PathCost]) -> Vec<usize> {
        let mut counts = vec![0; path_costs.len()];
        pairs().for_each(|pair| counts[order(path_costs, pair)[0]] += 1);
        counts
    }

    #[test]
    fn unknown_routes_share_the_pairs_evenly() {
        for routes in 1..=4 {
            let counts = shares(&vec![PathCost::Unknown; routes]);
            let fair = 256 / routes;
            assert!(counts.iter().all(|count| count.abs_diff(fair) <= fair / 4), "{counts:?}");
        }
    }

    #[test]
    fn slow_and_long_routes_are_avoided() {
        assert_eq!(shares(&[costs(12, 12), costs(12, 117)]), [0, 256]);
        assert_eq!(shares(&[costs(12, 117), costs(42, 117)]), [256, 0]);
        assert_eq!(shares(&[costs(200, 12), costs(200, 117)]), [0, 256], "however far");
        assert_eq!(shares(&[PathCost::Unknown, costs(42, 12), PathCost::Closed]), [0, 256, 0]);
    }

    #[test]
    fn similar_routes_share_by_bandwidth() {
        let counts = shares(&[costs(12, 117), costs(13, 78), costs(12, 12)]);
        assert_eq!(counts[2], 0);
        assert!((140..168).contains(&counts[0]), "{counts:?}");
        assert!(
            shares(&[near(60), near(90)]).iter().all(|count| *count > 100),
            "what hosts are late"
        );
    }

    #[test]
    fn failed_routes_are_tried_last() {
        let path_costs =
            [PathCost::Closed, costs(12, 100), PathCost::Unknown, costs(50, 100), costs(50, 90)];
        for pair in pairs() {
            assert_eq!(order(&path_costs, pair), [1, 3, 4, 2, 0]);
        }
    }

    #[test]
    fn a_gateway_is_not_asked_again_at_once() {
        let [one, other, far] =
            ["10.0.0.1:7", "10.0.0.2:7", "192.0.2.1:7"].map(|text| text.parse().unwrap());
        let (mut path_costs, at) = (PathCosts::default(), Duration::from_millis);
        let routes = [(one, Some(far)), (other, Some(far))];
        for gateway in [one, other] {
            assert!(path_costs.is_due(gateway, &[far], at(0)));
            path_costs.note_asked(gateway, &[far]);
            assert!(
                !path_costs.is_due(gateway, &[far], at(0)) && path_costs.is_asked(gateway, &[far])
            );
        }
        path_costs.handle_answer(one, &[far], None, at(5));
        path_costs.handle_answer(other, &[far], Some(&[costs(12, 100)]), at(5));
        for pair in pairs() {
            assert_eq!(path_costs.order(&routes, pair), [routes[1], routes[0]]);
        }
        assert!(!path_costs.is_asked(one, &[far]) && !path_costs.is_due(one, &[far], at(900)));
        assert!(path_costs.is_due(one, &[far], at(1100)), "it may be there again");
        // An answer shorter than the query leaves the rest unknown.
        path_costs.handle_answer(one, &[far], Some(&[]), at(1200));
        assert_eq!(path_costs.answers[&routes[0]].0, PathCost::Unknown);
    }

    fn any_path_cost() -> impl Strategy<Value = PathCost> {
        prop_oneof![
            (0..200u64, 1..1200u64).prop_map(|(millis, rate)| costs(millis, rate)),
            Just(PathCost::Unknown),
            Just(PathCost::Closed),
        ]
    }

    proptest! {
        #[test]
        fn every_route_is_listed_and_the_first_is_among_the_best(
            path_costs in prop::collection::vec(any_path_cost(), 0..12),
            one: u32,
            other: u32,
        ) {
            let pair = (PeerId(one), PeerId(other));
            let order = order(&path_costs, pair);
            prop_assert_eq!(&order, &super::order(&path_costs, (pair.1, pair.0)), "for both ends");
            let mut all = order.clone();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..path_costs.len()));
            let known: Vec<PathCost> = order.iter().map(|&at| path_costs[at]).take_while(|one| one.weight() > 1).collect();
            prop_assert!(order[known.len()..].iter().all(|&at| path_costs[at].transit_ns().is_none()));
            prop_assert!(order[known.len()..].is_sorted_by_key(|&at| path_costs[at] == PathCost::Closed));
            if let Some(best) = known.iter().copied().min_by_key(|one| one.transit_ns()) {
                let alike = known.iter().take_while(|one| one.is_like(best)).count();
                prop_assert!(known[..alike].contains(&best));
                prop_assert!(!known[alike..].iter().any(|one| one.is_like(best)));
                prop_assert!(known[alike..].is_sorted_by_key(|one| one.transit_ns()));
                // Without its first route the pair takes another known one.
                let mut fewer = path_costs.clone();
                fewer[order[0]] = PathCost::Closed;
                let next = super::order(&fewer, pair)[0];
                prop_assert!(known.len() < 2 || next != order[0] && path_costs[next].transit_ns().is_some());
            }
        }

        #[test]
        fn shares_are_by_rate(rates in prop::collection::vec(70..120u64, 1..5)) {
            let path_costs: Vec<PathCost> = rates.iter().map(|rate| costs(12, *rate)).collect();
            let sum: u64 = rates.iter().sum();
            for (count, rate) in shares(&path_costs).into_iter().zip(rates) {
                let fair = (256 * rate / sum) as usize;
                prop_assert!(count.abs_diff(fair) <= 2 + fair / 4, "{count} instead of {fair}");
            }
        }

        #[test]
        fn path_costs_survive_encoding(path_cost in any_path_cost(), bytes: [u8; PATH_COST_LEN]) {
            let near = |path_cost| match path_cost {
                PathCost::Costs { round_trip, bytes_per_s } => {
                    let round_trip = round_trip.max(Duration::from_micros(1));
                    PathCost::Costs { round_trip, bytes_per_s: bytes_per_s.max(1000) }
                }
                other => other,
            };
            prop_assert_eq!(PathCost::parse(path_cost.emit()), near(path_cost));
            let _ = PathCost::parse(bytes);
        }
    }
}
