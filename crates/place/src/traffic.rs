//! What ranks count of their traffic, and how they tell it.

use serde::{Deserialize, Serialize};
use wire::number::{append, take};

/// What one rank has counted, as it tells the launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The number of its site in the job.
    pub site: u32,
    /// What it sent.
    pub sent: Vec<Sent>,
}

/// What one rank sent another in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    /// The phase.
    pub level: i32,
    /// What for.
    pub kind: Kind,
    /// To whom.
    pub to: u32,
    /// How many messages.
    pub messages: u64,
    /// How many bytes in them.
    pub bytes: u64,
}

/// What messages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// What ranks send each other.
    PointToPoint,
    /// Collectives of some of the ranks.
    Collective,
    /// Collectives of all ranks: they follow from where the ranks are, so these do not follow from them.
    CollectiveOfAll,
}

impl Counted {
    /// The counts as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        append(&mut bytes, u64::from(self.site));
        for sent in &self.sent {
            append(&mut bytes, u64::from(sent.level as u32));
            append(&mut bytes, sent.kind.number());
            append(&mut bytes, u64::from(sent.to));
            append(&mut bytes, sent.messages);
            append(&mut bytes, sent.bytes);
        }
        bytes
    }

    /// The counts of a rank in a job of so many; none where the bytes are none.
    pub fn parse(bytes: &[u8], ranks: u32) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let site = u32::try_from(take(&mut rest)?).ok()?;
        let mut sent = Vec::new();
        while !rest.is_empty() {
            let level = u32::try_from(take(&mut rest)?).ok()? as i32;
            let kind = Kind::numbered(take(&mut rest)?)?;
            let to = u32::try_from(take(&mut rest)?).ok().filter(|to| *to < ranks)?;
            sent.push(Sent {
                level,
                kind,
                to,
                messages: take(&mut rest)?,
                bytes: take(&mut rest)?,
            });
        }
        Some(Self { site, sent })
    }
}

impl Kind {
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

/// Of what ranks tell.
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(kind: Kind, to: u32, messages: u64, bytes: u64) -> Sent {
        Sent { level: 1, kind, to, messages, bytes }
    }

    #[test]
    fn what_ranks_tell_is_checked() {
        let counted = Counted {
            site: 300,
            sent: vec![
                Sent { level: -1, ..sent(Kind::Collective, 2, u64::MAX, 1 << 40) },
                sent(Kind::PointToPoint, 0, 0, 127),
            ],
        };
        let bytes = counted.emit();
        assert_eq!(Counted::parse(&bytes, 3), Some(counted));
        assert_eq!(Counted::parse(&bytes, 2), None);
        for end in 1..bytes.len() {
            // What ends between two entries is shorter, and sound.
            let cut = Counted::parse(&bytes[..end], 3);
            assert!(cut.is_none_or(|cut| cut.emit() == bytes[..end]));
        }
        assert_eq!(Counted::parse(&[VERSION, 0, 1, 9, 0, 1, 1], 3), None);
        assert_eq!(Counted::parse(&[], 3), None);
    }
}
