//! Numbers of ranks that hosts of unequal speed take.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A host, its slots, and its speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of ranks that it takes at full speed.
    pub slots: u32,
    /// Speed of a rank there, in any unit.
    pub speed: u32,
}

/// Returns the most ranks that each host may take so that the slowest rank is as fast as possible.
/// None if no host is slower than the others, so that speeds say nothing.
///
/// A rank on a host with `r` ranks takes the time `max(slots, r) / (slots · speed)` for its share of
/// the work. Hosts take no more ranks than slots if the slots of all are enough. The sum may exceed
/// the number of ranks: traffic decides about the rest.
///
/// Hosts within an eighth of the fastest count as equally fast: measurements differ by as much.
pub fn limits(hosts: &[Capacity], ranks: u32) -> Option<Vec<u32>> {
    let fastest = hosts.iter().filter(|host| host.slots > 0).map(|host| host.speed).max()?;
    let alike = u64::from(fastest) * 7 / 8;
    let hosts: Vec<Share> = hosts
        .iter()
        .map(|&Capacity { slots, speed }| Share {
            // More slots than ranks are as good as one for each.
            slots: slots.min(ranks).into(),
            speed: if u64::from(speed) >= alike { fastest.into() } else { u64::from(speed.max(1)) },
        })
        .collect();
    if hosts.iter().all(|host| host.slots == 0 || host.speed == u64::from(fastest)) {
        return None;
    }
    let is_enough = hosts.iter().map(|host| host.slots).sum::<u64>() >= u64::from(ranks);
    let most = |host: &Share| match host.slots {
        0 => 0,
        slots if is_enough => slots,
        _ => u64::from(ranks),
    };
    let longest = longest(&hosts, ranks, most);
    let limit = |host: &Share| host.ranks_within(longest).min(most(host)) as u32;
    Some(hosts.iter().map(limit).collect())
}

/// Returns the least time within which all ranks finish: each in turn goes to the host where it
/// finishes first.
fn longest(hosts: &[Share], ranks: u32, most: impl Fn(&Share) -> u64) -> u64 {
    let next = |host: usize, taken: u64| {
        (taken < most(&hosts[host])).then(|| Reverse((hosts[host].time(taken + 1), host, taken)))
    };
    let mut free: BinaryHeap<_> = (0..hosts.len()).filter_map(|host| next(host, 0)).collect();
    let mut longest = 0;
    for _ in 0..ranks {
        let Some(Reverse((time, host, taken))) = free.pop() else { break };
        longest = longest.max(time);
        free.extend(next(host, taken + 1));
    }
    longest
}

struct Share {
    slots: u64,
    speed: u64,
}

impl Share {
    /// Time of each of so many ranks; below 2^52 for a million of them.
    fn time(&self, ranks: u64) -> u64 {
        (self.slots.max(ranks) << 32) / (self.slots * self.speed)
    }

    /// Returns the greatest number of ranks that take no longer than this.
    fn ranks_within(&self, time: u64) -> u64 {
        if self.slots == 0 || self.time(1) > time {
            return 0;
        }
        let capacity = u128::from(self.slots) * u128::from(self.speed);
        let ranks = ((u128::from(time) + 1) * capacity).saturating_sub(1) >> 32;
        self.slots.max(u64::try_from(ranks).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use testing::Random;

    use super::*;

    fn hosts(of: &[(u32, u32)]) -> Vec<Capacity> {
        of.iter().map(|&(slots, speed)| Capacity { slots, speed }).collect()
    }

    #[test]
    fn a_slower_host_takes_fewer_ranks() {
        for (of, ranks, expected) in [
            // No numbers are given, or more ranks than slots: in proportion to slots and speed.
            (&[(1, 100), (1, 60)][..], 8, &[5, 3][..]),
            (&[(4, 60), (4, 100)], 16, &[6, 10]),
            (&[(1, 60), (1, 36), (1, 60), (1, 36)], 8, &[3, 1, 3, 1]),
            (&[(2, 100), (1, 50)], 10, &[8, 2]),
            // Enough slots: the fast ones come first.
            (&[(4, 60), (4, 100)], 4, &[0, 4]),
            (&[(4, 60), (4, 100)], 6, &[4, 4]),
            (&[(4, 60), (4, 100), (4, 100)], 6, &[0, 4, 4]),
            (&[(1, 60), (1, 100)], 2, &[1, 1]),
            // A gateway's host takes none.
            (&[(0, 500), (1, 50), (1, 100)], 3, &[0, 1, 2]),
            // Measurements differ a little.
            (&[(1, 97), (1, 100), (1, 50)], 5, &[2, 2, 1]),
        ] {
            assert_eq!(limits(&hosts(of), ranks).as_deref(), Some(expected), "{of:?} {ranks}");
        }
    }

    #[test]
    fn equal_speeds_say_nothing() {
        for of in [&[(4, 100), (4, 90)][..], &[(1, 7)], &[], &[(0, 3)], &[(0, 9), (2, 5)]] {
            assert_eq!(limits(&hosts(of), 6), None, "{of:?}");
        }
    }

    #[test]
    fn no_distribution_is_faster() {
        for seed in testing::seeds(200) {
            let mut random = Random::new(seed);
            let of: Vec<_> =
                (0..3).map(|_| (random.below(4u32), 10 + 10 * random.below(9u32))).collect();
            let (hosts, ranks) = (hosts(&of), 1 + random.below(9u32));
            let Some(limits) = limits(&hosts, ranks) else { continue };
            let slots: u32 = of.iter().map(|host| host.0).sum();
            assert!(limits.iter().sum::<u32>() >= ranks, "{of:?} {ranks}: {limits:?}");
            // The time of the slowest rank; speeds within an eighth are the same.
            let fastest = of.iter().filter(|host| host.0 > 0).map(|host| host.1).max().unwrap();
            let time = |(slots, speed): (u32, u32), ranks: u32| match ranks {
                0 => 0.0,
                _ if speed * 8 >= fastest * 7 => {
                    f64::from(slots.max(ranks)) / f64::from(slots * fastest)
                }
                _ => f64::from(slots.max(ranks)) / f64::from(slots * speed),
            };
            let mut best = f64::MAX;
            for one in 0..=ranks {
                for other in 0..=ranks - one {
                    let counts = [one, other, ranks - one - other];
                    let fits = of.iter().zip(counts).all(|(host, count)| {
                        count == 0 || host.0 >= count || (host.0 > 0 && slots < ranks)
                    });
                    if fits {
                        let all = of.iter().zip(counts).map(|(&host, count)| time(host, count));
                        best = best.min(all.fold(0.0, f64::max));
                    }
                }
            }
            for (&host, &limit) in of.iter().zip(&limits) {
                assert!(time(host, limit) <= best * 1.000_001, "{of:?} {ranks}: {limits:?}");
            }
        }
    }
}
