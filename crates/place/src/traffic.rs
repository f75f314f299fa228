//! Traffic counts of ranks, and their encoding.

use serde::{Deserialize, Serialize};
use wire::number::{append, take};

/// Counts of one rank, as it sends them to the launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Number of its site in the job.
    pub site: u32,
    /// Speed of a rank alone on its host, in hundredths of a usual core.
    pub speed_percent: u32,
    /// Messages sent.
    pub sent: Vec<Sent>,
}

/// Messages from one rank to another in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    /// Number of the phase.
    pub level: i32,
    /// Purpose of the messages.
    pub kind: TrafficKind,
    /// Receiving rank.
    pub to: u32,
    /// Number of messages.
    pub messages: u64,
    /// Bytes in all of them.
    pub bytes: u64,
}

/// Purpose of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficKind {
    /// Point-to-point messages.
    PointToPoint,
    /// Collectives of some of the ranks.
    Collective,
    /// Collectives of all ranks. Their messages depend on the placement, so the placement does not
    /// depend on them.
    CollectiveOfAll,
}

impl Counted {
    /// Encodes the counts.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        append(&mut bytes, u64::from(self.site));
        append(&mut bytes, u64::from(self.speed_percent));
        for sent in &self.sent {
            append(&mut bytes, u64::from(sent.level as u32));
            append(&mut bytes, sent.kind.number());
            append(&mut bytes, u64::from(sent.to));
            append(&mut bytes, sent.messages);
            append(&mut bytes, sent.bytes);
        }
        bytes
    }

    /// Decodes the counts of a rank in a job of `ranks` ranks; none if the bytes are not valid.
    pub fn parse(bytes: &[u8], ranks: u32) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let site = u32::try_from(take(&mut rest)?).ok()?;
        let speed_percent = u32::try_from(take(&mut rest)?).ok()?;
        let mut sent = Vec::new();
        while !rest.is_empty() {
            let level = u32::try_from(take(&mut rest)?).ok()? as i32;
            let kind = TrafficKind::numbered(take(&mut rest)?)?;
            let to = u32::try_from(take(&mut rest)?).ok().filter(|to| *to < ranks)?;
            sent.push(Sent {
                level,
                kind,
                to,
                messages: take(&mut rest)?,
                bytes: take(&mut rest)?,
            });
        }
        Some(Self { site, speed_percent, sent })
    }
}

impl TrafficKind {
    fn number(self) -> u64 {
        match self {
            Self::PointToPoint => 0,
            Self::Collective => 1,
            Self::CollectiveOfAll => 2,
        }
    }

    fn numbered(number: u64) -> Option<Self> {
        [Self::PointToPoint, Self::Collective, Self::CollectiveOfAll]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// Version of the encoding.
const VERSION: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(kind: TrafficKind, to: u32, messages: u64, bytes: u64) -> Sent {
        Sent { level: 1, kind, to, messages, bytes }
    }

    #[test]
    fn counts_are_checked_when_decoded() {
        let counted = Counted {
            site: 300,
            speed_percent: 60,
            sent: vec![
                Sent { level: -1, ..sent(TrafficKind::Collective, 2, u64::MAX, 1 << 40) },
                sent(TrafficKind::PointToPoint, 0, 0, 127),
            ],
        };
        let bytes = counted.emit();
        assert_eq!(Counted::parse(&bytes, 3), Some(counted));
        assert_eq!(Counted::parse(&bytes, 2), None);
        for end in 1..bytes.len() {
            // A cut between two entries gives a shorter, valid encoding.
            let cut = Counted::parse(&bytes[..end], 3);
            assert!(cut.is_none_or(|cut| cut.emit() == bytes[..end]));
        }
        assert_eq!(Counted::parse(&[VERSION, 0, 100, 1, 9, 0, 1, 1], 3), None);
        assert_eq!(Counted::parse(&[], 3), None);
    }
}
