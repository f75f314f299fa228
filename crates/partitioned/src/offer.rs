//! Messages of both sides before partitions are sent.

use wire::RemoteKey;

use crate::layout::Partitions;

/// Offer of a sender to its receiver, before the first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Number of the sender in its process.
    pub number: u32,
    pub partitions: Partitions,
}

impl Offer {
    pub fn emit(&self) -> [u8; OFFER_LEN] {
        let Partitions { count, bytes } = self.partitions;
        let mut offer = [0; OFFER_LEN];
        offer[..4].copy_from_slice(&self.number.to_le_bytes());
        offer[4..8].copy_from_slice(&count.to_le_bytes());
        offer[8..].copy_from_slice(&bytes.to_le_bytes());
        offer
    }

    /// Reads an offer; `None` if no message has this length, or as many partitions.
    pub fn parse(&[a, b, c, d, e, f, g, h, bytes @ ..]: &[u8; OFFER_LEN]) -> Option<Self> {
        let (number, count) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let bytes = u64::from_le_bytes(bytes);
        let message = bytes.checked_mul(u64::from(count))?;
        let is_sound = count <= i32::MAX as u32 && message <= i64::MAX as u64;
        is_sound.then_some(Self { number, partitions: Partitions { count, bytes } })
    }
}

/// Encodes a key as an argument.
pub(crate) fn argument_of(key: RemoteKey) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

pub(crate) fn key_of(argument: u64) -> RemoteKey {
    RemoteKey { index: argument as u32, generation: (argument >> 32) as u32 }
}

/// Length of an offer, and of a go, which is the key of the receiver's memory.
pub(crate) const OFFER_LEN: usize = 16;
pub(crate) const GO_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn offers_and_keys_are_read_as_written(number: u32, count in 0..1u32 << 31, bytes in 0..1u64 << 32) {
            let offer = Offer { number, partitions: Partitions { count, bytes } };
            prop_assert_eq!(Offer::parse(&offer.emit()), Some(offer));
            let key = RemoteKey { index: number, generation: count };
            prop_assert_eq!(key_of(argument_of(key)), key);
        }

        #[test]
        fn absurd_offers_are_refused(number: u32, count in 2..u32::MAX, bytes in 1u64 << 62..u64::MAX) {
            let offer = Offer { number, partitions: Partitions { count, bytes } };
            prop_assert_eq!(Offer::parse(&offer.emit()), None);
        }
    }
}
