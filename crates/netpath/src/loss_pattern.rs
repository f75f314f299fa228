//! Distribution of losses over the bytes sent.
//!
//! A sender that exceeds the bottleneck overflows its buffer and loses hundreds of packets at once. Other flows that
//! share the buffer do the same when they start. A path with random losses loses packets all the time. So this module
//! counts the stretches of sent bytes that lost something, and [`Traffic`] can tell the two apart.

use cost::Traffic;

/// Loss counters of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossPattern {
    /// Bytes sent and packets lost at the end of the last stretch.
    sent: u64,
    lost: u64,
    stretches: u64,
    lossy: u64,
}

impl LossPattern {
    /// Records the bytes sent and packets lost so far. If looks are rare, each lost packet counts as one of another
    /// stretch.
    pub fn look(&mut self, sent: u64, lost: u64) {
        let stretches = sent.saturating_sub(self.sent) / Traffic::STRETCH_BYTES;
        if stretches == 0 {
            return;
        }
        let missed = lost.saturating_sub(self.lost);
        self.stretches += stretches;
        self.lossy += missed.min(stretches);
        (self.sent, self.lost) = (sent, self.lost.max(lost));
    }

    /// Returns the number of stretches, and of those with losses.
    pub fn counted(&self) -> (u64, u64) {
        (self.stretches, self.lossy)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Payload of a packet on most networks, in bytes.
    const PACKET_BYTES: u64 = 1448;

    /// Sends packets, some of them lost, with a look every `look_every` packets.
    fn sent(packets: u64, look_every: u64, is_lost: impl Fn(u64) -> bool) -> Traffic {
        let (mut losses, mut lost) = (LossPattern::default(), 0);
        for packet in 1..=packets {
            lost += u64::from(is_lost(packet));
            if packet.is_multiple_of(look_every) {
                losses.look(packet * PACKET_BYTES, lost);
            }
        }
        Traffic::new(packets * PACKET_BYTES, lost * PACKET_BYTES, 0)
            .with_stretches(losses.counted())
    }

    #[test]
    fn bursts_are_told_from_random_losses() {
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
        fn no_stretch_is_counted_twice(steps in prop::collection::vec((0u64..1 << 20, 0u64..1 << 20), 0..40)) {
            let (mut losses, mut at) = (LossPattern::default(), (0, 0));
            for (sent, lost) in steps {
                at = (at.0 + sent, at.1 + lost);
                losses.look(at.0, at.1);
            }
            let (stretches, lossy) = losses.counted();
            prop_assert!(lossy <= stretches && stretches <= at.0 / Traffic::STRETCH_BYTES);
        }
    }
}
