//! What follows from the costs of a link and of this machine: which messages ask first, how many share
//! a frame, how long a piece is. All sizes are powers of two, so that they hold still while the costs
//! are refined.
//!
//! Every limit is a balance of two prices, held within bounds; which of them decided is its
//! [`Because`], for those who ask.

use std::fmt;

use crate::cost::{Cost, HostCost};

/// The sizes by which a peer decides how messages travel on a link, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// How many unmatched bytes the peer accepts.
    pub credit_bytes: usize,
    /// The longest frame of whole messages that others should have to wait behind.
    pub chunk: usize,
    /// The shortest piece of a long message that is worth a frame of its own.
    pub piece_min: usize,
    /// The longest piece that others should have to wait behind.
    pub piece_max: usize,
    /// Messages up to this length go without asking.
    pub eager_max: usize,
    /// How much of a longer message goes with its request.
    pub rts_data_max: usize,
    /// So much of short messages is copied into one frame.
    pub aggregate_max: usize,
    /// Payloads up to this length are copied into the frame's head; longer ones are gathered.
    pub inline_max: usize,
}

/// A threshold and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The size, in bytes.
    pub bytes: u64,
    /// What it was held at.
    pub because: Because,
}

/// What decided a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Four times what is under way on the link in a round trip.
    RoundTrips,
    /// The share of the job's memory that this peer may use.
    Budget,
    /// Less would not carry a few messages.
    Least,
    /// More brings nothing, on any link.
    Most,
    /// The line carries so much within its latency.
    Latency,
    /// So much passes before a short message is late that would find the line idle.
    Wait,
    /// The gap is to be a small part of the frame's time.
    Gap,
    /// Copying more takes longer than a round trip.
    CopyOrAsk,
    /// So many messages of this length must fit the credit.
    Credit,
    /// Asking costs no more than a copy: nothing goes ahead.
    AskingIsCheap,
    /// Copying more takes longer than the gap that it saves.
    CopyOrGap,
    /// A longer frame would keep others waiting.
    Chunk,
    /// Copying more costs more than an element of the vector, and having the memory back later.
    CopyOrVector,
}

impl Thresholds {
    /// What follows for a link, when its peer may use `budget_bytes` of the receiver's memory.
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

/// The [`Thresholds`] with their reasons.
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
    /// As [`Thresholds::derive`].
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

    /// All of them by name, in the order in which one follows from the other.
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

/// `4 × bandwidth × round trip`: one round trip of data is under way while the word that the last was consumed comes
/// back, and as much waits at either end: to leave, and for the rest of a message.
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

/// `busy(chunk) ≤ latency`, so that a short message behind a piece is at most twice as late as on the
/// idle link; but `busy(chunk) ≥ 50 gap`, so that the gaps take 2 % at most.
fn chunk(cost: &Cost) -> Limit {
    let amortised = next_power(cost.bytes_within(cost.gap_ns().saturating_mul(FINE)));
    Limit::at(round_down(cost.bytes_within(cost.latency_ns())), Because::Latency)
        .at_least(amortised, Because::Gap)
        .at_least(PIECE_MIN, Because::Least)
        .at_most(CHUNK_MAX, Because::Most)
}

/// `busy(piece) ≥ 16 gap`: pieces let the receiver copy while the sender does, and cost 6 % for it.
fn piece(cost: &Cost, chunk: Limit) -> Limit {
    let amortised = round_down(cost.bytes_within(cost.gap_ns().saturating_mul(COARSE)));
    Limit::at(amortised, Because::Gap)
        .at_least(PIECE_MIN, Because::Least)
        .at_most(chunk.bytes, Because::Chunk)
}

/// `busy(piece) ≤ latency`, as of a chunk, or 0.8 ms: long messages are cut no finer than their gaps and the
/// receiver's wake-ups bear.
fn longest_piece(cost: &Cost, piece_min: Limit) -> Limit {
    let of_latency = Limit::at(round_down(cost.bytes_within(cost.latency_ns())), Because::Latency);
    of_latency
        .at_least(round_down(cost.bytes_within(WAIT_NS)), Because::Wait)
        .at_least(piece_min.bytes, Because::Gap)
        .at_most(CHUNK_MAX, Because::Most)
}

/// `copy(eager) ≤ round trip`: a message that comes before its receive is copied once more, and one
/// that asks waits for the answer. Sixteen such messages fit the credit, and none is cut.
fn eager(cost: &Cost, host: &HostCost, credit: Limit, chunk: Limit) -> Limit {
    Limit::at(copied_in_round_trip(cost, host), Because::CopyOrAsk)
        .at_least(EAGER_MIN, Because::Least)
        .at_most(credit.bytes / MESSAGES, Because::Credit)
        .at_most(EAGER_MAX, Because::Most)
        .at_most(chunk.bytes, Because::Chunk)
}

/// As `eager`, for what travels in pieces: worth it where copies are far from being as dear as asking,
/// and half of the credit is left for others.
fn rts_data(cost: &Cost, host: &HostCost, credit: Limit, eager: Limit) -> Limit {
    // To ask over a network takes a system call on either side, and may have to wake the receiver.
    let woken_ns = if cost.latency_ns() < host.call_ns { 0 } else { WAKE_NS };
    let asking_ns = cost.round_trip_ns().saturating_add(woken_ns);
    let affordable = round_down(host.bytes_copied_in(asking_ns));
    if affordable < 4 * eager.bytes {
        return Limit::at(0, Because::AskingIsCheap);
    }
    Limit::at(affordable, Because::CopyOrAsk).at_most(credit.bytes / 2, Because::Credit)
}

/// `copy(frame) ≤ gap`: as long as copying one more message into the frame takes less than the gap
/// that a frame of its own would add.
fn aggregate(cost: &Cost, host: &HostCost, chunk: Limit) -> Limit {
    Limit::at(round_down(host.bytes_copied_in(cost.gap_ns())), Because::CopyOrGap)
        .at_least(AGGREGATE_MIN, Because::Least)
        .at_most(chunk.bytes, Because::Chunk)
}

/// `copy(inline) ≤ vector element + hold`.
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

/// The greatest power of two that is no greater; 0 for 0.
fn round_down(bytes: u64) -> u64 {
    bytes.checked_ilog2().map_or(0, |bits| 1 << bits)
}

/// The least power of two that is no less, as long as there is one.
fn next_power(bytes: u64) -> u64 {
    bytes.checked_next_power_of_two().unwrap_or(CHUNK_MAX)
}

/// What a peer may use of the receiver's memory where nothing else is said.
pub const PEER_BUDGET_BYTES: u64 = 16 << 20;

/// A wake-up at the receiver is to bring more than a page.
const PIECE_MIN: u64 = 16 << 10;
/// A length at which a link's bandwidth shows.
const LONG: u64 = 1 << 20;
/// Gaps are at most a part in so many of a chunk's time…
const FINE: u64 = 50;
/// …and of a piece's.
const COARSE: u64 = 16;
/// So many unexpected messages are to fit the credit.
const MESSAGES: u64 = 16;
/// To give a body's memory back takes an event of its own, some hundred instructions in rail and engine.
const HOLD_NS: u64 = 100;
/// What it takes until a process runs again that sleeps in the kernel.
const WAKE_NS: u64 = 100_000;
/// No peer does with less, whatever the budget.
const CREDIT_MIN: u64 = 64 << 10;
/// A receiver that computes for a while should not stop its senders at once.
const CREDIT_FLOOR: u64 = 4 << 20;
/// One peer does not take more of a usual budget; of a greater one a quarter.
const CREDIT_MAX: u64 = 64 << 20;
/// Beyond this, frames are not sent faster, and receivers cannot copy while the sender does.
const CHUNK_MAX: u64 = 1 << 20;
/// What comes behind a piece may wait so long for it, wherever the link is: 64 KiB at 1 Gb/s, and also where its rate
/// is taken to be a quarter less; shorter ones begin to cost what they bring.
const WAIT_NS: u64 = 800_000;
const EAGER_MIN: u64 = 1 << 10;
/// What is longer goes ahead in pieces as early, and lets others pass.
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
    fn one_peer_takes_a_quarter_of_a_great_budget_where_the_link_holds_so_much() {
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

    /// As measured on a server of 2023, its caches warm.
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
    fn shared_memory_asks_for_what_is_long() {
        let shm = derive(host().shared_memory(190));
        assert!((8 * KB..=64 * KB).contains(&shm.eager_max), "{shm:?}");
        assert_eq!(shm.rts_data_max, 0);
        assert!((4 * KB..=128 * KB).contains(&shm.piece_min), "{shm:?}");
        assert!((2 * KB..=8 * KB).contains(&shm.inline_max), "{shm:?}");
        assert_eq!(shm.credit_bytes, 4 << 20);
    }

    #[test]
    fn a_network_within_the_site_sends_tens_of_kilobytes_unasked() {
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
    fn a_long_line_is_filled_while_the_answer_is_under_way() {
        let wan = derive(Cost::linear(5_800_000, 2_000, 118 * MB));
        let flight = 118 * 11_600;
        assert!((4 * flight..=8 * flight).contains(&wan.credit_bytes), "{wan:?}");
        assert!(wan.rts_data_max >= flight, "{wan:?}");
        assert!((64 * KB..=256 * KB).contains(&wan.eager_max), "{wan:?}");
        assert!((256 * KB..=1024 * KB).contains(&wan.chunk), "{wan:?}");
        assert!((256 * KB..=1024 * KB).contains(&wan.piece_max), "{wan:?}");
    }

    #[test]
    fn a_small_budget_bounds_all_that_comes_unasked() {
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
                let told = format!("2^{latency} ns, 2^{gap} ns, 2^{rate} B/s: {all:?}");
                assert!(all.eager_max.bytes * MESSAGES <= all.credit_bytes.bytes, "{told}");
                assert!(all.rts_data_max.bytes * 2 <= all.credit_bytes.bytes, "{told}");
                assert!(all.piece_min.bytes <= all.chunk.bytes, "{told}");
                assert!(all.piece_min.bytes <= all.piece_max.bytes, "{told}");
                assert!((PIECE_MIN..=CHUNK_MAX).contains(&all.chunk.bytes), "{told}");
                assert!(all.inline_max.bytes <= all.chunk.bytes, "{told}");
                for (name, limit) in all.all() {
                    let bytes = limit.bytes;
                    assert!(bytes == 0 || bytes.is_power_of_two(), "{name}: {told}");
                }
            }
        }
        Explained::derive(&Cost::measured(0, &[]), &HostCost::default(), u64::MAX);
        Explained::derive(&Cost::linear(u64::MAX, u64::MAX, 0), &HostCost::default(), 0);
    }
}
