//! What the traffic over a link shows besides its costs: how much of it is lost, and what queue forms.

use std::fmt;
use std::str::FromStr;

use crate::cost::{CostError, fields, number};

/// What was seen of a link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    sent_bytes: u64,
    /// Of those, what had to be sent again; never more.
    lost_bytes: u64,
    queue_bytes: u64,
}

impl Traffic {
    /// So many bytes were sent, so many of them taken for lost, and so many waited on the way when most did.
    pub fn new(sent_bytes: u64, lost_bytes: u64, queue_bytes: u64) -> Self {
        let sent_bytes = sent_bytes.min(BYTES_MAX);
        let lost_bytes = lost_bytes.min(sent_bytes);
        Self { sent_bytes, lost_bytes, queue_bytes: queue_bytes.min(BYTES_MAX) }
    }

    /// All that was sent, repeats included.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Which part of that was lost; none where too little was sent to say.
    pub fn loss(&self) -> Option<f64> {
        self.is_telling().then(|| self.lost_bytes as f64 / self.sent_bytes as f64)
    }

    /// What has waited on the way when most did: the narrowest place has a buffer at least as long.
    pub fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Whether enough was sent for the loss to be known: some hundred packets.
    pub fn is_telling(&self) -> bool {
        self.sent_bytes >= TELLING_BYTES
    }

    /// Both together, of which `later` was seen afterwards. What was seen long ago counts for half, time and again, so that
    /// a link that has changed is known for what it is.
    pub fn followed_by(self, later: Self) -> Self {
        let Self { mut sent_bytes, mut lost_bytes, mut queue_bytes } = self;
        if sent_bytes.saturating_add(later.sent_bytes) > REMEMBERED_BYTES {
            (sent_bytes, lost_bytes, queue_bytes) =
                (sent_bytes / 2, lost_bytes / 2, queue_bytes / 2);
        }
        Self::new(
            sent_bytes.saturating_add(later.sent_bytes),
            lost_bytes.saturating_add(later.lost_bytes),
            queue_bytes.max(later.queue_bytes),
        )
    }
}

/// `traffic/1 SENT LOST QUEUE`, in bytes.
impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent_bytes, lost_bytes, queue_bytes } = self;
        write!(f, "{TRAFFIC_WORD} {sent_bytes} {lost_bytes} {queue_bytes}")
    }
}

impl FromStr for Traffic {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let most = |value: &u64| *value <= BYTES_MAX;
        let [sent, lost, queue] =
            fields(text, TRAFFIC_WORD, |_, field| number(field).filter(most))?;
        if lost > sent {
            return Err(CostError::Number { field: 2 });
        }
        Ok(Self::new(sent, lost, queue))
    }
}

/// Some 700 packets.
const TELLING_BYTES: u64 = 1 << 20;
/// More is of another time.
const REMEMBERED_BYTES: u64 = 4 << 30;
/// No link carries more in its life.
const BYTES_MAX: u64 = 1 << 60;

const TRAFFIC_WORD: &str = "traffic/1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_a_part_of_what_was_sent_once_that_is_enough() {
        assert_eq!(Traffic::default().loss(), None);
        assert_eq!(Traffic::new(TELLING_BYTES - 1, 9, 0).loss(), None);
        assert_eq!(Traffic::new(1 << 24, 0, 0).loss(), Some(0.0));
        assert_eq!(Traffic::new(1 << 24, 1 << 14, 0).loss(), Some(1.0 / 1024.0));
        assert_eq!(Traffic::new(1 << 24, u64::MAX, 0).loss(), Some(1.0));
    }

    #[test]
    fn what_was_seen_adds_up_and_is_outlived_by_what_is_seen() {
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
    fn it_is_a_text_and_no_other_text_is_one() {
        for traffic in [Traffic::default(), Traffic::new(1 << 30, 1 << 20, 1 << 18)] {
            assert_eq!(traffic.to_string().parse(), Ok(traffic));
        }
        let reason = |text: &str| text.parse::<Traffic>().unwrap_err().to_string();
        assert!(reason("traffic/2 1 0 0").contains("version"));
        assert!(reason("traffic/1 1 0").contains("2 fields where 3 belong"));
        assert!(reason("traffic/1 1 2 0").contains("field 2"), "more is lost than was sent");
        assert!(reason("traffic/1 1 0 -3").contains("field 3"));
        assert!(reason("traffic/1 2305843009213693953 0 0").contains("field 1"));
    }
}
