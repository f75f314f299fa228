//! The traffic of a job, as `mpiexec -record` writes it and `-place` reads it.

use serde::{Deserialize, Serialize};

use crate::graph::Graph;

/// Who sent how much to whom, and where the ranks were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    version: u32,
    /// Number of ranks.
    ranks: u32,
    /// Where they ran.
    hosts: Vec<Where>,
    /// What they sent, by the phases of the job.
    phases: Vec<Phase>,
}

/// A host with the ranks that it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Where {
    /// What the launcher calls it.
    pub host: String,
    /// Hosts with equal numbers were found to be of one site.
    pub site: u32,
    /// Its ranks.
    pub ranks: Vec<u32>,
}

/// A part of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Phase {
    /// What `MPI_Pcontrol` was called with last; 1 before.
    level: i32,
    kind: Kind,
    rows: Vec<Row>,
}

/// What one rank sent in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    from: u32,
    /// Receiver, messages and bytes.
    to: Vec<(u32, u64, u64)>,
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

/// How much is sent where it is not for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossing {
    /// Bytes between sites.
    pub sites_bytes: u64,
    /// Bytes between hosts of a site.
    pub hosts_bytes: u64,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// It is another kind of file.
    #[error("is no recorded pattern ({0}): record it with mpiexec -record")]
    Foreign(String),
    /// Another version wrote it.
    #[error("is of version {0}, understood is {VERSION}: record it again with mpiexec -record")]
    Version(u32),
    /// It contradicts itself.
    #[error("names rank {rank} of {ranks} ranks: record it again with mpiexec -record")]
    Stranger {
        /// The rank that is not there.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
}

impl Pattern {
    /// The pattern of a job, from what every rank has counted, and the host where it did.
    pub fn of(counted: &[Counted], hosts: &[String]) -> Self {
        let mut places: Vec<Where> = Vec::new();
        let mut phases: Vec<Phase> = Vec::new();
        for (rank, (own, host)) in (0u32..).zip(counted.iter().zip(hosts)) {
            match places.iter_mut().find(|place| place.host == *host) {
                Some(place) => place.ranks.push(rank),
                None => {
                    places.push(Where { host: host.clone(), site: own.site, ranks: vec![rank] });
                }
            }
            for &Sent { level, kind, to, messages, bytes } in &own.sent {
                let is_same = |phase: &Phase| (phase.level, phase.kind) == (level, kind);
                let at = phases.iter().position(is_same).unwrap_or_else(|| {
                    phases.push(Phase { level, kind, rows: Vec::new() });
                    phases.len() - 1
                });
                let rows = &mut phases[at].rows;
                if rows.last().is_none_or(|row| row.from != rank) {
                    rows.push(Row { from: rank, to: Vec::new() });
                }
                let row = rows.last_mut().map(|row| &mut row.to);
                row.into_iter().for_each(|row| row.push((to, messages, bytes)));
            }
        }
        phases.sort_by_key(|phase| (phase.level, phase.kind));
        Self { version: VERSION, ranks: counted.len() as u32, hosts: places, phases }
    }

    /// The pattern in the text of a file.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let foreign = |error: serde_json::Error| PatternError::Foreign(error.to_string());
        let Stamp { version } = serde_json::from_str(text).map_err(foreign)?;
        if version != VERSION {
            return Err(PatternError::Version(version));
        }
        let pattern: Self = serde_json::from_str(text).map_err(foreign)?;
        let rows = pattern.phases.iter().flat_map(|phase| &phase.rows);
        let senders_and_receivers =
            rows.flat_map(|row| row.to.iter().map(|to| to.0).chain([row.from]));
        let seated = pattern.hosts.iter().flat_map(|place| place.ranks.iter().copied());
        match senders_and_receivers.chain(seated).find(|rank| *rank >= pattern.ranks) {
            Some(rank) => Err(PatternError::Stranger { rank, ranks: pattern.ranks }),
            None => Ok(pattern),
        }
    }

    /// The text of a file: a line for every row.
    pub fn text(&self) -> String {
        let list = |lines: Vec<String>| match lines.is_empty() {
            true => "[]".to_owned(),
            false => format!("[\n{}\n]", lines.join(",\n")),
        };
        let phase = |phase: &Phase| {
            let rows = list(phase.rows.iter().map(json).collect());
            let (level, kind) = (phase.level, json(&phase.kind));
            format!("{{\"level\":{level},\"kind\":{kind},\"rows\":{rows}}}")
        };
        let hosts = list(self.hosts.iter().map(json).collect());
        let phases = list(self.phases.iter().map(phase).collect());
        let Self { version, ranks, .. } = self;
        format!(
            "{{\"version\":{version},\"ranks\":{ranks},\n\"hosts\":{hosts},\n\"phases\":{phases}}}\n"
        )
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Where the ranks were.
    pub fn hosts(&self) -> &[Where] {
        &self.hosts
    }

    /// Who exchanges how much with whom, as far as it does not follow from where the ranks are. A message
    /// counts as much as a packet, and its bytes.
    pub fn graph(&self) -> Graph {
        let told = self.sent().map(|(from, (to, messages, bytes))| {
            (from, to, messages.saturating_mul(PACKET_BYTES).saturating_add(bytes))
        });
        Graph::new(self.ranks, told)
    }

    /// What crosses hosts and sites when the ranks are on these hosts, which are of these sites.
    pub fn crossing(&self, homes: &[u32], sites: &[u32]) -> Crossing {
        let mut crossing = Crossing::default();
        for (from, (to, _, bytes)) in self.sent() {
            let [from, to] = [from, to].map(|rank| homes[rank as usize]);
            if sites[from as usize] != sites[to as usize] {
                crossing.sites_bytes = crossing.sites_bytes.saturating_add(bytes);
            } else if from != to {
                crossing.hosts_bytes = crossing.hosts_bytes.saturating_add(bytes);
            }
        }
        crossing
    }

    fn sent(&self) -> impl Iterator<Item = (u32, (u32, u64, u64))> {
        let phases = self.phases.iter().filter(|phase| match phase.kind {
            Kind::PointToPoint | Kind::Collective => true,
            Kind::CollectiveOfAll => false,
        });
        let rows = phases.flat_map(|phase| &phase.rows);
        rows.flat_map(|row| row.to.iter().map(|to| (row.from, *to)))
    }
}

impl Counted {
    /// The counts as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION as u8];
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
        let mut rest = bytes.strip_prefix(&[VERSION as u8])?;
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

/// What every version of the file has.
#[derive(Deserialize)]
struct Stamp {
    version: u32,
}

/// The text of numbers, strings and lists of such.
fn json(value: &impl Serialize) -> String {
    // These always have one.
    serde_json::to_string(value).unwrap_or_default()
}

/// Seven bits in each byte, the lowest first; all but the last have the eighth set.
fn append(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Of the file, and of what ranks tell.
const VERSION: u32 = 1;

/// What TCP carries in a packet over Ethernet.
const PACKET_BYTES: u64 = 1448;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(kind: Kind, to: u32, messages: u64, bytes: u64) -> Sent {
        Sent { level: 1, kind, to, messages, bytes }
    }

    fn three() -> Pattern {
        let counted = [
            Counted {
                site: 0,
                sent: vec![
                    sent(Kind::PointToPoint, 1, 2, 200),
                    sent(Kind::PointToPoint, 2, 1, 7),
                    sent(Kind::CollectiveOfAll, 2, 1000, 1_000_000),
                ],
            },
            Counted { site: 1, sent: vec![sent(Kind::Collective, 0, 1, 30)] },
            Counted {
                site: 0,
                sent: vec![Sent { level: -3, ..sent(Kind::PointToPoint, 0, 1, 1) }],
            },
        ];
        Pattern::of(&counted, &["a", "b", "a"].map(str::to_owned))
    }

    #[test]
    fn a_file_says_what_was_counted() {
        let pattern = three();
        let text = pattern.text();
        assert_eq!(Pattern::parse(&text).unwrap(), pattern);
        assert!(text.contains("{\"host\":\"a\",\"site\":0,\"ranks\":[0,2]}"), "{text}");
        assert!(text.contains("{\"from\":0,\"to\":[[1,2,200],[2,1,7]]}"), "{text}");
        assert_eq!(pattern.phases.len(), 4);
    }

    #[test]
    fn collectives_of_all_ranks_pull_nobody() {
        let graph = three().graph();
        assert_eq!(graph.neighbours(0), [(1, 230 + 3 * PACKET_BYTES), (2, 8 + 2 * PACKET_BYTES)]);
        let crossing = |homes: &[u32], sites: &[u32]| {
            let Crossing { sites_bytes, hosts_bytes } = three().crossing(homes, sites);
            (sites_bytes, hosts_bytes)
        };
        assert_eq!(crossing(&[0, 1, 0], &[0, 1]), (230, 0));
        assert_eq!(crossing(&[0, 1, 2], &[0, 0, 1]), (8, 230));
        assert_eq!(crossing(&[0; 3], &[0]), (0, 0));
    }

    #[test]
    fn mistakes_are_told_in_a_line() {
        let told = |text: &str| {
            let told = Pattern::parse(text).unwrap_err().to_string();
            assert_eq!(told.lines().count(), 1, "{told}");
            told
        };
        assert!(told("").starts_with("is no recorded pattern"));
        assert!(told("[1, 2]").starts_with("is no recorded pattern"));
        assert!(told("{\"version\":7,\"new\":1}").contains("is of version 7, understood is 1"));
        let text = three().text();
        assert!(told(&text[..text.len() / 2]).starts_with("is no recorded pattern"));
        assert!(
            told(&text.replace("\"ranks\":3", "\"ranks\":2")).contains("names rank 2 of 2 ranks")
        );
        assert!(told(&text.replace("rows", "lines")).starts_with("is no recorded pattern"));
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
        assert_eq!(Counted::parse(&[VERSION as u8, 0, 1, 9, 0, 1, 1], 3), None);
        assert_eq!(Counted::parse(&[], 3), None);
    }
}
