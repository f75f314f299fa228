//! The shares of several links in one message.

use crate::cost::{Cost, LONG};

/// True if links are similar enough to count as equal. Costs are not known precisely enough for
/// shares to follow small differences.
pub fn are_alike<'a>(links: impl Iterator<Item = &'a Cost>) -> bool {
    let busy_ps = links.map(|cost| cost.busy_ps(LONG));
    let (least, most) =
        busy_ps.fold((u64::MAX, 0), |(least, most), ps| (least.min(ps), most.max(ps)));
    most.saturating_mul(2) < least.saturating_mul(3)
}

/// Splits a message into one share for each link, so that all shares arrive together and sum up to
/// `bytes`. A link is its cost and its remaining busy time in nanoseconds.
///
/// The common arrival time is the least `t` with `Σ bytesᵢ(t − backlogᵢ − latencyᵢ) ≥ bytes`, found
/// by bisection (water-filling). Shares follow the order of the links and meet at page boundaries.
/// A link that would carry less than a page, or less than 1/64 of the message, gets none. Rounding
/// may add a page to a share; the best link gives up a page for each of these. Shares are therefore
/// never predicted to arrive later than the whole message by the best link.
///
/// # Panics
/// Without a link.
pub fn split(bytes: u64, links: &[(&Cost, u64)]) -> Vec<u64> {
    let alone = (0..links.len()).min_by_key(|&at| finish_ps(links[at], bytes));
    let best = alone.expect("a message needs a link");
    let limit = finish_ps(links[best], bytes);
    let pays = |at: usize| at == best || finish_ps(links[at], PAGE) < limit;
    let mut used: Vec<bool> = (0..links.len()).map(pays).collect();
    let least = (bytes / SHARES_MAX).max(PAGE);
    loop {
        let shares = fill(bytes, links, &used, best);
        let others = (0..links.len()).filter(|&at| used[at] && at != best);
        let too_small = others.filter(|&at| shares[at] < least).min_by_key(|&at| shares[at]);
        match too_small {
            Some(at) => used[at] = false,
            None => return shares,
        }
    }
}

/// Arrival time of a share, in nanoseconds from now; 0 for an empty share. The link is as in
/// [`split`].
pub fn finish_ns(link: (&Cost, u64), share: u64) -> u64 {
    finish_ps(link, share).div_ceil(1000)
}

fn finish_ps((cost, backlog_ns): (&Cost, u64), share: u64) -> u64 {
    let before_ns = backlog_ns.saturating_add(cost.latency_ns());
    if share == 0 { 0 } else { cost.busy_ps(share).saturating_add(before_ns.saturating_mul(1000)) }
}

/// Computes shares in whole pages, except at the message's end. The best link alone would be done
/// by the limit.
fn fill(bytes: u64, links: &[(&Cost, u64)], used: &[bool], best: usize) -> Vec<u64> {
    let limit = finish_ps(links[best], bytes);
    let within = |at: usize, ps: u64| {
        let (cost, backlog_ns) = links[at];
        let before_ps = backlog_ns.saturating_add(cost.latency_ns()).saturating_mul(1000);
        let time_ps = if used[at] { ps.checked_sub(before_ps) } else { None };
        time_ps.map_or(0, |ps| cost.bytes_within_ps(ps).min(bytes))
    };
    let all = |ps: u64| (0..links.len()).map(|at| within(at, ps)).fold(0, u64::saturating_add);
    let (mut early, mut late) = (0, limit);
    while late - early > 1 + late / FINENESS {
        let middle = early + (late - early) / 2;
        if all(middle) >= bytes { late = middle } else { early = middle }
    }
    let mut left = bytes.div_ceil(PAGE);
    let unused = left.saturating_mul(PAGE) - bytes;
    let mut shares: Vec<u64> = (0..links.len())
        .map(|at| {
            let share = (within(at, late) / PAGE).min(left);
            left -= share;
            share
        })
        .collect();
    // Rounding down leaves over at most a page for each link; more remains only at the limit of the
    // number range.
    let many = left.saturating_sub(links.len() as u64);
    shares[best] += many;
    left -= many;
    while left > 0 {
        let next = |&at: &usize| finish_ps(links[at], (shares[at] + 1).saturating_mul(PAGE));
        let at = (0..links.len()).filter(|&at| used[at]).min_by_key(next);
        shares[at.expect("the best link is used")] += 1;
        left -= 1;
    }
    let end = shares.iter().rposition(|&share| share > 0);
    shares.iter_mut().for_each(|share| *share = share.saturating_mul(PAGE));
    if let Some(end) = end {
        shares[end] -= unused;
    }
    shares
}

/// Shares meet at multiples of this.
const PAGE: u64 = 4096;
/// Arrival times are computed to this relative precision.
const FINENESS: u64 = 1 << 22;
/// A link carries at least this part of a message, or nothing.
const SHARES_MAX: u64 = 64;
