//! Partitions of both sides of a message, and which of them overlap.

use std::ops::Range;

/// Partitions of one side: equal in length, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partitions {
    pub count: u32,
    /// Length of each in bytes.
    pub bytes: u64,
}

/// Partitions of the sender and of the receiver, of which none is without partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlap {
    /// Number of partitions, and length of each in a common unit.
    sender: (u64, u128),
    receiver: (u64, u128),
}

impl Partitions {
    /// Divides a message.
    pub fn of(count: u32, message_bytes: usize) -> Self {
        Self { count, bytes: message_bytes as u64 / u64::from(count.max(1)) }
    }

    /// Length of the message.
    pub fn message_bytes(&self) -> u64 {
        u64::from(self.count) * self.bytes
    }

    /// Number of partitions that a run sends. A message without partitions is sent as one of no bytes, so that its
    /// receiver learns of it.
    pub fn sent(&self) -> u32 {
        self.count.max(1)
    }

    /// True if each partition is sent as a call, perhaps with others.
    pub fn are_short(&self) -> bool {
        self.bytes <= SHORT_MAX
    }
}

impl Overlap {
    pub fn of(sender: Partitions, receiver: Partitions) -> Self {
        let (sent, received) = (u64::from(sender.sent()), u64::from(receiver.sent()));
        // Partitions of no bytes correspond by their share of all.
        let (from, to) = match sender.bytes == 0 || receiver.bytes == 0 {
            true => (u128::from(received), u128::from(sent)),
            false => (u128::from(sender.bytes), u128::from(receiver.bytes)),
        };
        Self { sender: (sent, from), receiver: (received, to) }
    }

    /// The receiver's partitions that a partition of the sender reaches.
    pub fn receivers_of(&self, partition: u32) -> Range<u32> {
        overlapping(partition, self.sender.1, self.receiver)
    }

    /// The sender's partitions that a partition of the receiver consists of.
    pub fn senders_of(&self, partition: u32) -> Range<u32> {
        overlapping(partition, self.receiver.1, self.sender)
    }
}

/// The partitions of the other side that overlap one of this length.
fn overlapping(partition: u32, len: u128, (count, other): (u64, u128)) -> Range<u32> {
    let begin = u128::from(partition) * len;
    let first = (begin / other).min(u128::from(count));
    let end = (begin + len).div_ceil(other).min(u128::from(count));
    first as u32..end as u32
}

/// Longest partition that is sent as a call, in bytes: two share a call.
const SHORT_MAX: u64 = engine::CALL_MAX as u64 / 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_sides_find_the_same_overlaps(
            sender in (0..20u32, 0..30u64), receiver in (0..20u32, 0..30u64),
        ) {
            let [sender, receiver] = [sender, receiver].map(|(count, bytes)| Partitions { count, bytes });
            let overlap = Overlap::of(sender, receiver);
            for from in 0..sender.sent() {
                for to in 0..receiver.sent() {
                    let reaches = overlap.receivers_of(from).contains(&to);
                    prop_assert_eq!(reaches, overlap.senders_of(to).contains(&from));
                    let (from, to) = (u64::from(from), u64::from(to));
                    if sender.bytes > 0 && receiver.bytes > 0 {
                        let begins = from * sender.bytes < (to + 1) * receiver.bytes;
                        let ends = to * receiver.bytes < (from + 1) * sender.bytes;
                        prop_assert_eq!(reaches, begins && ends);
                    }
                }
            }
        }

        #[test]
        fn a_message_of_no_bytes_fills_all_partitions(sender in 0..20u32, receiver in 0..20u32) {
            let [sender, receiver] = [sender, receiver].map(|count| Partitions { count, bytes: 0 });
            let overlap = Overlap::of(sender, receiver);
            for to in 0..receiver.sent() {
                prop_assert!(!overlap.senders_of(to).is_empty());
            }
        }
    }

    #[test]
    fn equal_partitions_correspond() {
        for bytes in [0, 1, 4096] {
            let both = Partitions { count: 7, bytes };
            let overlap = Overlap::of(both, both);
            assert!((0..7).all(|at| overlap.receivers_of(at) == (at..at + 1)));
        }
    }
}
