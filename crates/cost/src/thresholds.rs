//! Thresholds derived from the costs of a link and of this machine: eager limit, coalescing limit,
//! piece sizes, credits.
//!
//! All sizes are powers of two, so that they stay put while the costs are refined. Every limit
//! balances two costs, within bounds. [`Because`] names the one that decided.

use std::fmt;

use crate::cost::LONG;
use crate::{Cost, HostCost};

/// Sizes by which a peer decides how messages travel on a link, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Unmatched bytes that the peer accepts.
    pub credit_bytes: usize,
    /// Longest frame of whole messages that others should have to wait behind.
    pub chunk: usize,
    /// Shortest piece of a long message that is worth a frame of its own.
    pub piece_min: usize,
    /// Longest piece that others should have to wait behind.
    pub piece_max: usize,
    /// Longest message that is sent eagerly.
    pub eager_max: usize,
    /// Bytes of a longer message that follow its RTS at once.
    pub rts_data_max: usize,
    /// Bytes of short messages that are copied into one frame.
    pub aggregate_max: usize,
    /// Longest payload that is copied into the frame's head; longer ones are sent from their own
    /// memory (gather).
    pub inline_max: usize,
}

/// A threshold and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Size in bytes.
    pub bytes: u64,
    /// Reason for the size.
    pub because: Because,
}

/// Reason that decided a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Four times the link's BDP.
    RoundTrips,
    /// Share of the job's memory that this peer may use.
    Budget,
    /// Less would not carry a few messages.
    Least,
    /// More brings nothing, on any link.
    Most,
    /// Data that the link carries within its latency.
    Latency,
    /// Data that the link carries in 0.8 ms, the longest tolerable delay of a short message.
    Wait,
    /// The gap must be a small part of the frame's time.
    Gap,
    /// Copying more takes longer than a round trip.
    CopyOrAsk,
    /// Several messages of this length must fit the credit.
    Credit,
    /// A round trip costs no more than a copy, so no data follows the RTS.
    AskingIsCheap,
    /// Copying more takes longer than the gap that it saves.
    CopyOrGap,
    /// A longer frame would keep others waiting.
    Chunk,
    /// Copying more costs more than a vector element and the later release of the memory.
    CopyOrVector,
}

impl Thresholds {
    /// Derives the thresholds of a link whose peer may use `budget_bytes` of the receiver's memory.
    pub fn derive(cost: &Cost, host: &HostCost, budget_bytes: u64) -> Self {
        let explained = Explained::derive(cost, host, budget_bytes);
        let bytes = |limit: Limit| usize::try_from(limit.bytes).unwrap_or(usize::MAX);
        Self {
            credit_bytes: bytes(explained.credit_bytes),
            chunk: bytes(explained.chunk),
            piece_min: bytes(explained.piece_min),
            piece_max: bytes(explained.piece_max),
            eager_max: bytes(explained.eager_max),
            rts_data_max: bytes(explained.rts_data_max),
            aggregate_max: bytes(explained.aggregate_max),
            inline_max: bytes(explained.inline_max),
        }
    }
}

/// All [`Thresholds`] with their reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explained {
    /// See [`Thresholds::credit_bytes`].
    pub credit_bytes: Limit,
    /// See [`Thresholds::chunk`].
    pub chunk: Limit,
    /// See [`Thresholds::piece_min`].
    pub piece_min: Limit,
    /// See [`Thresholds::piece_max`].
    pub piece_max: Limit,
    /// See [`Thresholds::eager_max`].
    pub eager_max: Limit,
    /// See [`Thresholds::rts_data_max`].
    pub rts_data_max: Limit,
    /// See [`Thresholds::aggregate_max`].
    pub aggregate_max: Limit,
    /// See [`Thresholds::inline_max`].
    pub inline_max: Limit,
}

impl Explained {
    /// Derives them like [`Thresholds::derive`].
    pub fn derive(cost: &Cost, host: &HostCost, budget_bytes: u64) -> Self {
        let credit_bytes = credit(cost, budget_bytes);
        let chunk = chunk(cost);
        let eager_max = eager(cost, host, credit_bytes, chunk);
        let piece_min = piece(cost, chunk);
        Self {
            credit_bytes,
            chunk,
            piece_min,
            piece_max: longest_piece(cost, piece_min),
            eager_max,
            rts_data_max: rts_data(cost, host, credit_bytes, eager_max),
            aggregate_max: aggregate(cost, host, chunk),
            inline_max: inline(host, chunk),
        }
    }

    /// Returns all limits by name; each depends only on earlier ones.
    pub fn all(&self) -> [(&'static str, Limit); 8] {
        [
            ("credit_bytes", self.credit_bytes),
            ("chunk", self.chunk),
            ("piece_min", self.piece_min),
            ("piece_max", self.piece_max),
            ("eager_max", self.eager_max),
            ("rts_data_max", self.rts_data_max),
            ("aggregate_max", self.aggregate_max),
            ("inline_max", self.inline_max),
        ]
    }
}

/// Computes `4 × bandwidth × round trip`. One round trip of data is in flight while the credit for
/// the last one returns. As much waits at either end: to be sent, and for the rest of a message.
fn credit(cost: &Cost, budget_bytes: u64) -> Limit {
    let bytes_per_s = u128::from(cost.bytes_per_s(LONG));
    let flight = bytes_per_s * 4 * u128::from(cost.round_trip_ns()) / 1_000_000_000;
    let budget = round_down(budget_bytes).max(CREDIT_MIN);
    let most = CREDIT_MAX.max(budget / 4);
    let wanted = u64::try_from(flight).unwrap_or(u64::MAX).min(most).next_power_of_two();
    Limit::at(wanted, Because::RoundTrips)
        .at_least(CREDIT_FLOOR, Because::Least)
        .at_most(most, Because::Most)
        .at_most(budget, Because::Budget)
}

/// Computes `busy(chunk) ≤ latency`: a short message behind a piece is at most twice as late as on
/// the idle link. Also `busy(chunk) ≥ 50 gap`, so that gaps take 2 % at most.
fn chunk(cost: &Cost) -> Limit {
    let amortised = next_power(cost.bytes_within(cost.gap_ns().saturating_mul(FINE)));
    Limit::at(round_down(cost.bytes_within(cost.latency_ns())), Because::Latency)
        .at_least(amortised, Because::Gap)
        .at_least(PIECE_MIN, Because::Least)
        .at_most(CHUNK_MAX, Because::Most)
}

/// Computes `busy(piece) ≥ 16 gap`: pieces let sender and receiver copy at the same time, for 6 %
/// of overhead.
fn piece(cost: &Cost, chunk: Limit) -> Limit {
    let amortised = round_down(cost.bytes_within(cost.gap_ns().saturating_mul(COARSE)));
    Limit::at(amortised, Because::Gap)
        .at_least(PIECE_MIN, Because::Least)
        .at_most(chunk.bytes, Because::Chunk)
}

/// Computes `busy(piece) ≤ latency`, as for a chunk, or 0.8 ms. Shorter pieces would cost more in
/// gaps and receiver wake-ups.
fn longest_piece(cost: &Cost, piece_min: Limit) -> Limit {
    let of_latency = Limit::at(round_down(cost.bytes_within(cost.latency_ns())), Because::Latency);
    of_latency
        .at_least(round_down(cost.bytes_within(WAIT_NS)), Because::Wait)
        .at_least(piece_min.bytes, Because::Gap)
        .at_most(CHUNK_MAX, Because::Most)
}

/// Computes `copy(eager) ≤ round trip`: an unexpected eager message costs one more copy, a
/// rendezvous costs a round trip. Sixteen such messages fit the credit, and none is cut.
fn eager(cost: &Cost, host: &HostCost, credit: Limit, chunk: Limit) -> Limit {
    Limit::at(copied_in_round_trip(cost, host), Because::CopyOrAsk)
        .at_least(EAGER_MIN, Because::Least)
        .at_most(credit.bytes / MESSAGES, Because::Credit)
        .at_most(EAGER_MAX, Because::Most)
        .at_most(chunk.bytes, Because::Chunk)
}

/// Computes the same for data after an RTS. It pays only where copies are far cheaper than a round
/// trip; half of the credit is left for others.
fn rts_data(cost: &Cost, host: &HostCost, credit: Limit, eager: Limit) -> Limit {
    // An RTS over a network takes a system call on either side, and may have to wake the receiver.
    let woken_ns = if cost.latency_ns() < host.call_ns { 0 } else { WAKE_NS };
    let asking_ns = cost.round_trip_ns().saturating_add(woken_ns);
    let affordable = round_down(host.bytes_copied_in(asking_ns));
    if affordable < 4 * eager.bytes {
        return Limit::at(0, Because::AskingIsCheap);
    }
    Limit::at(affordable, Because::CopyOrAsk).at_most(credit.bytes / 2, Because::Credit)
}

/// Computes `copy(frame) ≤ gap`: copying one more message must take less than the gap of a frame of
/// its own.
fn aggregate(cost: &Cost, host: &HostCost, chunk: Limit) -> Limit {
    Limit::at(round_down(host.bytes_copied_in(cost.gap_ns())), Because::CopyOrGap)
        .at_least(AGGREGATE_MIN, Because::Least)
        .at_most(chunk.bytes, Because::Chunk)
}

/// Computes `copy(inline) ≤ vector element + hold`.
fn inline(host: &HostCost, chunk: Limit) -> Limit {
    let ns = host.vector_ns.saturating_add(HOLD_NS);
    Limit::at(round_down(host.bytes_copied_in(ns)), Because::CopyOrVector)
        .at_least(INLINE_MIN, Because::Least)
        .at_most(chunk.bytes, Because::Chunk)
}

fn copied_in_round_trip(cost: &Cost, host: &HostCost) -> u64 {
    round_down(host.bytes_copied_in(cost.round_trip_ns()))
}

impl Limit {
    fn at(bytes: u64, because: Because) -> Self {
        Self { bytes, because }
    }

    fn at_least(self, bytes: u64, because: Because) -> Self {
        if self.bytes < bytes { Self { bytes, because } } else { self }
    }

    fn at_most(self, bytes: u64, because: Because) -> Self {
        if self.bytes > bytes { Self { bytes, because } } else { self }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundTrips => "four times what the link carries in a round trip",
            Self::Budget => "this peer's share of the job's memory",
            Self::Least => "less is not worth the trouble on any link",
            Self::Most => "more brings nothing on any link",
            Self::Latency => "what the link carries within its latency",
            Self::Wait => "what the link carries in 0.8 ms",
            Self::Gap => "gaps are to take a small part of the time",
            Self::CopyOrAsk => "copying more takes longer than a round trip",
            Self::Credit => "messages of this length must fit the credit together",
            Self::AskingIsCheap => "asking costs no more than a copy",
            Self::CopyOrGap => "copying more takes longer than a gap",
            Self::Chunk => "others would wait behind a longer frame",
            Self::CopyOrVector => "copying more costs more than an element of the vector",
        })
    }
}

/// Rounds down to a power of two; 0 stays 0.
fn round_down(bytes: u64) -> u64 {
    bytes.checked_ilog2().map_or(0, |bits| 1 << bits)
}

/// Rounds up to a power of two, or returns [`CHUNK_MAX`] if there is none.
fn next_power(bytes: u64) -> u64 {
    bytes.checked_next_power_of_two().unwrap_or(CHUNK_MAX)
}

/// Default memory at the receiver that one peer may use.
pub const PEER_BUDGET_BYTES: u64 = 16 << 20;

/// Data worth a wake-up of the receiver: more than a page.
const PIECE_MIN: u64 = 16 << 10;
/// Minimal ratio of a chunk's busy time to the gap.
const FINE: u64 = 50;
/// Minimal ratio of a piece's busy time to the gap.
const COARSE: u64 = 16;
/// Number of unexpected messages that must fit the credit.
const MESSAGES: u64 = 16;
/// Cost of the event that releases a body's memory: some hundred instructions in rail and engine.
const HOLD_NS: u64 = 100;
/// Wake-up latency of a process that sleeps in the kernel.
const WAKE_NS: u64 = 100_000;
/// Minimal credit of a peer, whatever the budget.
const CREDIT_MIN: u64 = 64 << 10;
/// A receiver that computes for a while should not stop its senders at once.
const CREDIT_FLOOR: u64 = 4 << 20;
/// Maximal credit of a peer with a usual budget; of a larger budget, a quarter.
const CREDIT_MAX: u64 = 64 << 20;
/// Beyond this, frames are not sent faster, and receivers cannot copy while the sender does.
const CHUNK_MAX: u64 = 1 << 20;
/// Longest delay behind a piece, on any link: 64 KiB at 1 Gb/s, even if the rate is underestimated
/// by a quarter. Shorter pieces would cost as much as they bring.
const WAIT_NS: u64 = 800_000;
const EAGER_MIN: u64 = 1 << 10;
/// Longer messages are as fast as RTS with data in pieces, and let others pass.
const EAGER_MAX: u64 = 64 << 10;
const AGGREGATE_MIN: u64 = 1 << 10;
const INLINE_MIN: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    const KB: usize = 1 << 10;
    const MB: u64 = 1_000_000;
    const BUDGET: u64 = 64 << 20;

    #[test]
    fn one_peer_gets_a_quarter_of_a_large_budget_on_a_large_bdp() {
        let far = Cost::linear(150_000_000, 2000, 1_250 * MB);
        let of =
            |cost: &Cost, budget| Thresholds::derive(cost, &host(), budget).credit_bytes as u64;
        assert_eq!(
            [64 << 20, 256 << 20, 1 << 30].map(|budget| of(&far, budget)),
            [64 << 20, 64 << 20, 256 << 20]
        );
        let wan = Cost::linear(5_800_000, 2000, 118 * MB);
        assert_eq!(of(&wan, 1 << 30), of(&wan, 64 << 20));
    }

    /// Costs measured on a server of 2023 with warm caches.
    fn host() -> HostCost {
        HostCost {
            copy_ns: 3,
            near_ps_per_byte: 17,
            far_ps_per_byte: 21,
            vector_ns: 25,
            call_ns: 1000,
            ..HostCost::default()
        }
    }

    fn derive(cost: Cost) -> Thresholds {
        Thresholds::derive(&cost, &host(), BUDGET)
    }

    #[test]
    fn shared_memory_uses_rendezvous_for_long_messages() {
        let shm = derive(host().shared_memory(190));
        assert!((8 * KB..=64 * KB).contains(&shm.eager_max), "{shm:?}");
        assert_eq!(shm.rts_data_max, 0);
        assert!((4 * KB..=128 * KB).contains(&shm.piece_min), "{shm:?}");
        assert!((2 * KB..=8 * KB).contains(&shm.inline_max), "{shm:?}");
        assert_eq!(shm.credit_bytes, 4 << 20);
    }

    #[test]
    fn a_local_network_sends_tens_of_kilobytes_eagerly() {
        for mb_per_s in [118, 1_180, 4_000] {
            let lan = derive(Cost::linear(8_000, 2_000, mb_per_s * MB));
            assert!((16 * KB..=128 * KB).contains(&lan.eager_max), "{lan:?}");
            assert!((256 * KB..=2048 * KB).contains(&lan.rts_data_max), "{lan:?}");
            assert!((4 * KB..=128 * KB).contains(&lan.piece_min), "{lan:?}");
            assert!((8 * KB..=128 * KB).contains(&lan.aggregate_max), "{lan:?}");
            assert_eq!(lan.credit_bytes, 4 << 20, "{lan:?}");
            assert!(lan.piece_max >= 64 * KB && lan.chunk <= lan.piece_max, "{lan:?}");
        }
    }

    #[test]
    fn a_long_link_is_filled_during_a_round_trip() {
        let wan = derive(Cost::linear(5_800_000, 2_000, 118 * MB));
        let flight = 118 * 11_600;
        assert!((4 * flight..=8 * flight).contains(&wan.credit_bytes), "{wan:?}");
        assert!(wan.rts_data_max >= flight, "{wan:?}");
        assert!((64 * KB..=256 * KB).contains(&wan.eager_max), "{wan:?}");
        assert!((256 * KB..=1024 * KB).contains(&wan.chunk), "{wan:?}");
        assert!((256 * KB..=1024 * KB).contains(&wan.piece_max), "{wan:?}");
    }

    #[test]
    fn a_small_budget_bounds_all_unexpected_data() {
        let wan = Cost::linear(5_800_000, 2_000, 118 * MB);
        let poor = Explained::derive(&wan, &host(), 300_000);
        assert_eq!(poor.credit_bytes, Limit { bytes: 256 << 10, because: Because::Budget });
        assert_eq!(poor.eager_max, Limit { bytes: 16 << 10, because: Because::Credit });
        assert_eq!(poor.rts_data_max, Limit { bytes: 128 << 10, because: Because::Credit });
        let none = Thresholds::derive(&wan, &host(), 0);
        assert_eq!((none.credit_bytes, none.eager_max), (64 * KB, 4 * KB));
    }

    #[test]
    fn every_link_has_thresholds_that_fit_together() {
        let links = (0..40).flat_map(|latency| (0..24).map(move |gap| (latency, gap)));
        for (latency, gap) in links {
            for rate in (0..45).step_by(3) {
                let cost = Cost::linear(1 << latency, 1 << gap, 1 << rate);
                let all = Explained::derive(&cost, &host(), BUDGET);
                let text = format!("2^{latency} ns, 2^{gap} ns, 2^{rate} B/s: {all:?}");
                assert!(all.eager_max.bytes * MESSAGES <= all.credit_bytes.bytes, "{text}");
                assert!(all.rts_data_max.bytes * 2 <= all.credit_bytes.bytes, "{text}");
                assert!(all.piece_min.bytes <= all.chunk.bytes, "{text}");
                assert!(all.piece_min.bytes <= all.piece_max.bytes, "{text}");
                assert!((PIECE_MIN..=CHUNK_MAX).contains(&all.chunk.bytes), "{text}");
                assert!(all.inline_max.bytes <= all.chunk.bytes, "{text}");
                for (name, limit) in all.all() {
                    let bytes = limit.bytes;
                    assert!(bytes == 0 || bytes.is_power_of_two(), "{name}: {text}");
                }
            }
        }
        Explained::derive(&Cost::measured(0, &[]), &HostCost::default(), u64::MAX);
        Explained::derive(&Cost::linear(u64::MAX, u64::MAX, 0), &HostCost::default(), 0);
    }
}
