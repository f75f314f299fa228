//! Traffic statistics of a link besides its cost: loss and queue length.

use std::fmt;
use std::str::FromStr;

use crate::text::{CostError, fields, number};

/// Statistics of a link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    sent_bytes: u64,
    /// Retransmitted bytes among `sent_bytes`; never more.
    lost_bytes: u64,
    queue_bytes: u64,
    /// Number of stretches sampled.
    stretches: u64,
    /// Number of sampled stretches with a loss; never more than `stretches`.
    marred: u64,
}

impl Traffic {
    /// Length of a stretch of sent bytes: some 180 packets.
    pub const STRETCH_BYTES: u64 = 256 << 10;

    /// Creates statistics of bytes sent, bytes lost, and the longest queue on the path in bytes.
    pub fn new(sent_bytes: u64, lost_bytes: u64, queue_bytes: u64) -> Self {
        let sent_bytes = sent_bytes.min(BYTES_MAX);
        let lost_bytes = lost_bytes.min(sent_bytes);
        let queue_bytes = queue_bytes.min(BYTES_MAX);
        Self { sent_bytes, lost_bytes, queue_bytes, ..Self::default() }
    }

    /// Sets the number of sampled stretches, and of those with a loss.
    pub fn with_stretches(self, (stretches, marred): (u64, u64)) -> Self {
        let stretches = stretches.min(BYTES_MAX);
        Self { stretches, marred: marred.min(stretches), ..self }
    }

    /// Bytes sent, retransmissions included.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Fraction of bytes that was lost; `None` if too little was sent to tell.
    pub fn loss(&self) -> Option<f64> {
        self.is_telling().then(|| self.lost_bytes as f64 / self.sent_bytes as f64)
    }

    /// Probability of random loss, without bursts from an overflowing buffer. `None` if too few
    /// stretches were sampled.
    ///
    /// If all loss were random, the loss-free stretches would follow from the loss rate. Loss
    /// beyond that came in bursts, which are resent in the following stretches. The estimate is
    /// therefore the smaller of the two rates.
    pub fn chance(&self) -> Option<f64> {
        let loss = self.loss().filter(|_| self.stretches >= TELLING_STRETCHES)?;
        // If every stretch had a loss, half a stretch counts as loss-free.
        let clean = (self.stretches - self.marred) as f64;
        let clean = clean.max(0.5) / self.stretches as f64;
        let even = -clean.ln() / STRETCH_PACKETS;
        Some(if loss > even { even * even / loss } else { loss })
    }

    /// Longest queue on the path, in bytes; the bottleneck's buffer is at least that long.
    pub fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// True if enough was sent to know the loss: some hundred packets.
    pub fn is_telling(&self) -> bool {
        self.sent_bytes >= TELLING_BYTES
    }

    /// Returns both statistics combined; `later` was measured afterwards. Old figures are halved
    /// again and again, so that a link that has changed is soon known.
    pub fn followed_by(self, later: Self) -> Self {
        let is_much = self.sent_bytes.saturating_add(later.sent_bytes) > REMEMBERED_BYTES;
        let old = |figure: u64| if is_much { figure / 2 } else { figure };
        let both = |before: u64, later: u64| old(before).saturating_add(later);
        Self::new(
            both(self.sent_bytes, later.sent_bytes),
            both(self.lost_bytes, later.lost_bytes),
            old(self.queue_bytes).max(later.queue_bytes),
        )
        .with_stretches((both(self.stretches, later.stretches), both(self.marred, later.marred)))
    }
}

/// Writes `traffic/2 SENT LOST QUEUE STRETCHES MARRED`, the first three in bytes.
impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent_bytes, lost_bytes, queue_bytes, stretches, marred } = self;
        write!(f, "{TRAFFIC_WORD} {sent_bytes} {lost_bytes} {queue_bytes} {stretches} {marred}")
    }
}

impl FromStr for Traffic {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let most = |value: &u64| *value <= BYTES_MAX;
        let [sent, lost, queue, stretches, marred] =
            fields(text, TRAFFIC_WORD, |_, field| number(field).filter(most))?;
        if lost > sent {
            return Err(CostError::Number { field: 2 });
        }
        if marred > stretches {
            return Err(CostError::Number { field: 5 });
        }
        Ok(Self::new(sent, lost, queue).with_stretches((stretches, marred)))
    }
}

/// About 700 packets.
const TELLING_BYTES: u64 = 1 << 20;
/// Fewer stretches do not determine a loss probability.
const TELLING_STRETCHES: u64 = 32;
/// Packets in a stretch, on most networks.
const STRETCH_PACKETS: f64 = 181.0;
/// Beyond this many bytes, old figures are halved.
const REMEMBERED_BYTES: u64 = 4 << 30;
/// Upper bound of any byte count.
const BYTES_MAX: u64 = 1 << 60;

const TRAFFIC_WORD: &str = "traffic/2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_a_fraction_of_bytes_sent_once_they_suffice() {
        assert_eq!(Traffic::default().loss(), None);
        assert_eq!(Traffic::new(TELLING_BYTES - 1, 9, 0).loss(), None);
        assert_eq!(Traffic::new(1 << 24, 0, 0).loss(), Some(0.0));
        assert_eq!(Traffic::new(1 << 24, 1 << 14, 0).loss(), Some(1.0 / 1024.0));
        assert_eq!(Traffic::new(1 << 24, u64::MAX, 0).loss(), Some(1.0));
    }

    #[test]
    fn statistics_add_up_and_old_ones_fade() {
        let first = Traffic::new(10 << 20, 1 << 20, 500);
        let both = first.followed_by(Traffic::new(30 << 20, 0, 400));
        assert_eq!(both, Traffic::new(40 << 20, 1 << 20, 500));
        let (mut link, clean) =
            (Traffic::new(1 << 30, 1 << 29, 1 << 20), Traffic::new(1 << 30, 0, 1 << 10));
        for _ in 0..30 {
            link = link.followed_by(clean);
            assert!(link.sent_bytes() <= REMEMBERED_BYTES, "{link}");
        }
        assert!(link.loss().unwrap() < 1e-4, "{link}");
        assert_eq!(link.queue_bytes(), 1 << 10);
        let most = Traffic::new(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(most.followed_by(most).loss(), Some(1.0));
    }

    #[test]
    fn random_loss_affects_all_stretches() {
        let seen = |lost, stretches| Traffic::new(1 << 24, lost, 0).with_stretches(stretches);
        assert_eq!(seen(1 << 18, (TELLING_STRETCHES - 1, 3)).chance(), None);
        assert_eq!(seen(0, (64, 0)).chance(), Some(0.0));
        assert!(seen(1 << 20, (64, 2)).chance().unwrap() < 0.0002, "a buffer has overflowed");
        assert_eq!(seen(1 << 18, (64, 64)).chance(), Some(1.0 / 64.0), "never more than all");
        assert!(seen(1 << 20, (64, 64)).chance().unwrap() > 0.01);
        assert!(seen(1 << 19, (64, 24)).chance().unwrap() < 0.0005, "it took long to repeat all");
        let both = seen(1 << 18, (64, 60)).followed_by(seen(0, (64, 0)));
        assert_eq!(both, Traffic::new(1 << 25, 1 << 18, 0).with_stretches((128, 60)));
        let old =
            (0..300).fold(seen(1 << 18, (64, 64)), |old, _| old.followed_by(seen(0, (64, 0))));
        let much = (0..800).fold(old, |old, _| old.followed_by(seen(0, (64, 0))));
        assert!(much.chance() < old.chance(), "it is outlived");
    }

    #[test]
    fn text_round_trips_and_other_text_is_refused() {
        for traffic in
            [Traffic::default(), Traffic::new(1 << 30, 1 << 20, 1 << 18).with_stretches((9, 7))]
        {
            assert_eq!(traffic.to_string().parse(), Ok(traffic));
        }
        let reason = |text: &str| text.parse::<Traffic>().unwrap_err().to_string();
        assert!(reason("traffic/1 1 0 0").contains("version"));
        assert!(reason("traffic/2 1 0 0").contains("3 fields where 5 belong"));
        assert!(reason("traffic/2 1 2 0 0 0").contains("field 2"), "more is lost than was sent");
        assert!(reason("traffic/2 1 0 -3 0 0").contains("field 3"));
        assert!(reason("traffic/2 2305843009213693953 0 0 0 0").contains("field 1"));
        assert!(
            reason("traffic/2 1 0 0 3 4").contains("field 5"),
            "more are marred than there are"
        );
    }
}
