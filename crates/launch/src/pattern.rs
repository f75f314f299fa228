//! The traffic of a job, as `mpiexec -record` writes it and `-place` reads it.

use place::Graph;
use place::traffic::{Counted, Kind, Sent};
use serde::{Deserialize, Serialize};

/// Who sent how much to whom, and where the ranks were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pattern {
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
pub(crate) struct Where {
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

/// How much is sent where it is not for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crossing {
    /// Bytes between sites.
    pub sites_bytes: u64,
    /// Bytes between hosts of a site.
    pub hosts_bytes: u64,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
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

/// Of the file.
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
}
