//! How what gets lost is spread over what is sent.
//!
//! Who sends more than the narrowest place takes overflows its buffer, and loses hundreds of packets at once; so do others
//! that share it, when they begin. A way that loses by itself does so all the time. So besides all that is lost it is
//! counted which stretches of what is sent have lost something, for [`Traffic`] to tell one from the other.

use wire::Traffic;

/// What was seen of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    /// How many bytes had been sent, and how many packets lost, when the latest stretch ended.
    sent: u64,
    lost: u64,
    stretches: u64,
    marred: u64,
}

impl Spread {
    /// So many bytes were sent until now, and so many packets lost. Where looks are rare, it counts as if each packet that is
    /// missed were of another stretch.
    pub fn look(&mut self, sent: u64, lost: u64) {
        let stretches = sent.saturating_sub(self.sent) / Traffic::STRETCH_BYTES;
        if stretches == 0 {
            return;
        }
        let missed = lost.saturating_sub(self.lost);
        self.stretches += stretches;
        self.marred += missed.min(stretches);
        (self.sent, self.lost) = (sent, self.lost.max(lost));
    }

    /// How many stretches there were, and in how many something got lost.
    pub fn counted(&self) -> (u64, u64) {
        (self.stretches, self.marred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a packet carries, on most networks.
    const PACKET_BYTES: u64 = 1448;

    /// Sends packets, each of which is lost or not, with a look now and then.
    fn sent(packets: u64, look_every: u64, is_lost: impl Fn(u64) -> bool) -> Traffic {
        let (mut spread, mut lost) = (Spread::default(), 0);
        for packet in 1..=packets {
            lost += u64::from(is_lost(packet));
            if packet.is_multiple_of(look_every) {
                spread.look(packet * PACKET_BYTES, lost);
            }
        }
        Traffic::new(packets * PACKET_BYTES, lost * PACKET_BYTES, 0)
            .with_stretches(spread.counted())
    }

    #[test]
    fn what_is_lost_at_once_is_told_from_what_is_lost_by_chance() {
        // An overflow at the beginning, and another later.
        let burst = sent(20_000, 100, |packet| packet % 10_000 < 300);
        assert!(burst.loss().unwrap() > 0.025, "{burst}");
        assert!(burst.chance().unwrap() < 0.0005, "{burst}");
        // One in 200, at places that have nothing to do with stretches.
        for look_every in [1, 100, 1000] {
            let even = sent(20_000, look_every, |packet| {
                packet.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 < u64::from(u32::MAX) / 200
            });
            let (loss, chance) = (even.loss().unwrap(), even.chance().unwrap());
            assert!(chance <= loss && chance > loss * 0.7, "{even}: {chance} of {loss}");
        }
    }

    proptest! {
        #[test]
        fn no_stretch_is_marred_twice(steps in prop::collection::vec((0u64..1 << 20, 0u64..1 << 20), 0..40)) {
            let (mut spread, mut at) = (Spread::default(), (0, 0));
            for (sent, lost) in steps {
                at = (at.0 + sent, at.1 + lost);
                spread.look(at.0, at.1);
            }
            let (stretches, marred) = spread.counted();
            prop_assert!(marred <= stretches && stretches <= at.0 / Traffic::STRETCH_BYTES);
        }
    }
}
