//! Traffic and queues of a rank, as lines of its report.

use std::fmt::Write as _;

/// Traffic of a rank since its counting began, and its queues now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankLoad {
    /// Time since the counting began, in microseconds.
    pub at_us: u64,
    /// Number of times that its threads were looked at, at even intervals.
    pub samples: u64,
    /// Those of them in which a thread was in the library.
    pub samples_in_mpi: u64,
    /// Number of receives without a message.
    pub posted: u64,
    /// Number of messages without a receive.
    pub unexpected: u64,
    /// Bytes of these in the memory of the rank.
    pub unexpected_bytes: u64,
    /// Number of sends that have not left as a whole.
    pub queued: u64,
    /// Number of peers to which no link leads at the moment, although one has.
    pub down: u64,
    /// Traffic by where it goes.
    pub sent: Vec<SentTo>,
}

/// Messages to the ranks of one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTo {
    /// Distance of the place.
    pub reach: Reach,
    /// One of its ranks.
    pub rank: u32,
    /// Number of messages and one-sided operations.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the open connections to there have retransmitted.
    pub retransmitted: u64,
    /// Longest round trip of these connections in microseconds; 0 if there is none.
    pub round_trip_us: u64,
}

/// Distance of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// On the same node.
    #[default]
    Node,
    /// On another node of the same site.
    Site,
    /// In another site.
    Far,
    /// In another job.
    OtherJob,
}

impl Reach {
    /// All, nearest first.
    pub const ALL: [Self; 4] = [Self::Node, Self::Site, Self::Far, Self::OtherJob];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Site => "site",
            Self::Far => "wan",
            Self::OtherJob => "job",
        }
    }
}

impl RankLoad {
    /// Appends the lines of an answer.
    pub(crate) fn write(&self, text: &mut String) {
        let counts: Vec<String> =
            self.counts().iter().map(|(name, count)| format!("{name}={count}")).collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "load\t{}", counts.join("\t"));
        for sent in self.sent.iter().take(PLACES_MAX) {
            let SentTo { reach, rank, messages, bytes, retransmitted, round_trip_us } = sent;
            let name = reach.name();
            let _ = writeln!(
                text,
                "sent\t{name}\t{rank}\t{messages}\t{bytes}\t{retransmitted}\t{round_trip_us}"
            );
        }
    }

    fn counts(&self) -> [(&'static str, u64); 8] {
        [
            ("at_us", self.at_us),
            ("samples", self.samples),
            ("in_mpi", self.samples_in_mpi),
            ("posted", self.posted),
            ("unexpected", self.unexpected),
            ("unexpected_bytes", self.unexpected_bytes),
            ("queued", self.queued),
            ("down", self.down),
        ]
    }

    /// Reads the counts that are known by their names.
    pub(crate) fn parse_counts(&mut self, words: &[&str]) {
        for (name, count) in words.iter().filter_map(|word| word.split_once('=')) {
            let Ok(count) = count.parse() else { continue };
            match name {
                "at_us" => self.at_us = count,
                "samples" => self.samples = count,
                "in_mpi" => self.samples_in_mpi = count,
                "posted" => self.posted = count,
                "unexpected" => self.unexpected = count,
                "unexpected_bytes" => self.unexpected_bytes = count,
                "queued" => self.queued = count,
                "down" => self.down = count,
                _ => {}
            }
        }
    }

    /// Reads the traffic to one place, if it is understood.
    pub(crate) fn parse_sent(&mut self, words: &[&str]) {
        let parse = || {
            let (name, numbers) = words.split_first()?;
            let reach = Reach::ALL.into_iter().find(|reach| reach.name() == *name)?;
            let numbers: Vec<u64> = numbers.iter().map_while(|word| word.parse().ok()).collect();
            let [rank, messages, bytes, retransmitted, round_trip_us] = numbers[..] else {
                return None;
            };
            let rank = u32::try_from(rank).ok()?;
            Some(SentTo { reach, rank, messages, bytes, retransmitted, round_trip_us })
        };
        self.sent.extend(parse().filter(|_| self.sent.len() < PLACES_MAX));
    }
}

/// Maximum number of places in an answer.
const PLACES_MAX: usize = 64;
