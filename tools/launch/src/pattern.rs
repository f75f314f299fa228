//! The traffic of a job, as `mpiexec -record` writes it and `-place` reads it.

use place::Graph;
use place::traffic::{Counted, Sent, TrafficKind};
use serde::{Deserialize, Serialize};

/// Traffic between the ranks of a job, and their hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pattern {
    version: u32,
    /// Number of ranks.
    ranks: u32,
    /// Hosts of the ranks.
    hosts: Vec<HostRanks>,
    /// Traffic by phases of the job.
    phases: Vec<Phase>,
}

/// A host with its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostRanks {
    /// Name of the host for the launcher.
    pub host: String,
    /// Number of the site; hosts with equal numbers were found to be of one site.
    pub site: u32,
    /// Speed of a rank alone there, in hundredths of a usual core; none in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_percent: Option<u32>,
    /// Its ranks.
    pub ranks: Vec<u32>,
}

/// A part of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Phase {
    /// Last level given to `MPI_Pcontrol`; 1 before.
    level: i32,
    kind: TrafficKind,
    rows: Vec<SentRow>,
}

/// Traffic sent by one rank in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentRow {
    from: u32,
    /// Receiver, messages and bytes.
    to: Vec<(u32, u64, u64)>,
}

/// Traffic between hosts and sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crossing {
    /// Bytes between sites.
    pub sites_bytes: u64,
    /// Bytes between hosts of a site.
    pub hosts_bytes: u64,
}

/// Errors in a pattern file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    /// Another kind of file.
    #[error("is no recorded pattern ({0}): record it with mpiexec -record")]
    Foreign(String),
    /// File of another version.
    #[error("is of version {0}, understood is {VERSION}: record it again with mpiexec -record")]
    Version(u32),
    /// File that names ranks beyond their number.
    #[error("names rank {rank} of {ranks} ranks: record it again with mpiexec -record")]
    Stranger {
        /// Invalid rank.
        rank: u32,
        /// Returns the number of ranks.
        ranks: u32,
    },
}

impl Pattern {
    /// Builds the pattern of a job from the counts of every rank and its host.
    pub fn of(counted: &[Counted], hosts: &[String]) -> Self {
        let mut places: Vec<HostRanks> = Vec::new();
        let mut phases: Vec<Phase> = Vec::new();
        for (rank, (own, host)) in (0u32..).zip(counted.iter().zip(hosts)) {
            match places.iter_mut().find(|place| place.host == *host) {
                Some(place) => {
                    place.speed_percent = place.speed_percent.max(Some(own.speed_percent));
                    place.ranks.push(rank);
                }
                None => {
                    places.push(HostRanks {
                        host: host.clone(),
                        site: own.site,
                        speed_percent: Some(own.speed_percent),
                        ranks: vec![rank],
                    });
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
                    rows.push(SentRow { from: rank, to: Vec::new() });
                }
                let row = rows.last_mut().map(|row| &mut row.to);
                row.into_iter().for_each(|row| row.push((to, messages, bytes)));
            }
        }
        phases.sort_by_key(|phase| (phase.level, phase.kind));
        Self { version: VERSION, ranks: counted.len() as u32, hosts: places, phases }
    }

    /// Parses the text of a pattern file.
    ///
    /// # Errors
    /// Fails if the text is no pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let foreign = |error: serde_json::Error| PatternError::Foreign(error.to_string());
        let VersionField { version } = serde_json::from_str(text).map_err(foreign)?;
        if version != VERSION {
            return Err(PatternError::Version(version));
        }
        let pattern: Self = serde_json::from_str(text).map_err(foreign)?;
        let rows = pattern.phases.iter().flat_map(|phase| &phase.rows);
        let senders_and_receivers =
            rows.flat_map(|row| row.to.iter().map(|to| to.0).chain([row.from]));
        let placed = pattern.hosts.iter().flat_map(|place| place.ranks.iter().copied());
        match senders_and_receivers.chain(placed).find(|rank| *rank >= pattern.ranks) {
            Some(rank) => Err(PatternError::Stranger { rank, ranks: pattern.ranks }),
            None => Ok(pattern),
        }
    }

    /// Returns the text of a pattern file, with a line for every row.
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

    /// Returns the hosts with their ranks.
    pub fn hosts(&self) -> &[HostRanks] {
        &self.hosts
    }

    /// Returns the communication graph, without traffic that follows from the placement. A message counts as
    /// one packet plus its bytes.
    pub fn graph(&self) -> Graph {
        let traffic = self.sent().map(|(from, (to, messages, bytes))| {
            (from, to, messages.saturating_mul(PACKET_BYTES).saturating_add(bytes))
        });
        Graph::new(self.ranks, traffic)
    }

    /// Returns the traffic between hosts and sites for ranks on these hosts of these sites.
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
            TrafficKind::PointToPoint | TrafficKind::Collective => true,
            TrafficKind::CollectiveOfAll => false,
        });
        let rows = phases.flat_map(|phase| &phase.rows);
        rows.flat_map(|row| row.to.iter().map(|to| (row.from, *to)))
    }
}

/// Field that every version of the file has.
#[derive(Deserialize)]
struct VersionField {
    version: u32,
}

/// Returns the JSON text of numbers, strings and lists of such.
fn json(value: &impl Serialize) -> String {
    // They always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

/// Version of the file format.
const VERSION: u32 = 1;

/// Bytes of TCP payload in an Ethernet packet.
const PACKET_BYTES: u64 = 1448;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(kind: TrafficKind, to: u32, messages: u64, bytes: u64) -> Sent {
        Sent { level: 1, kind, to, messages, bytes }
    }

    fn three() -> Pattern {
        let counted = [
            Counted {
                site: 0,
                speed_percent: 97,
                sent: vec![
                    sent(TrafficKind::PointToPoint, 1, 2, 200),
                    sent(TrafficKind::PointToPoint, 2, 1, 7),
                    sent(TrafficKind::CollectiveOfAll, 2, 1000, 1_000_000),
                ],
            },
            Counted {
                site: 1,
                speed_percent: 60,
                sent: vec![sent(TrafficKind::Collective, 0, 1, 30)],
            },
            Counted {
                site: 0,
                speed_percent: 98,
                sent: vec![Sent { level: -3, ..sent(TrafficKind::PointToPoint, 0, 1, 1) }],
            },
        ];
        Pattern::of(&counted, &["a", "b", "a"].map(str::to_owned))
    }

    #[test]
    fn a_file_contains_the_counts() {
        let pattern = three();
        let text = pattern.text();
        assert_eq!(Pattern::parse(&text).unwrap(), pattern);
        assert!(
            text.contains("{\"host\":\"a\",\"site\":0,\"speed_percent\":98,\"ranks\":[0,2]}"),
            "{text}"
        );
        let older = text.replace("\"speed_percent\":98,", "");
        assert_eq!(Pattern::parse(&older).unwrap().hosts[0].speed_percent, None);
        assert!(text.contains("{\"from\":0,\"to\":[[1,2,200],[2,1,7]]}"), "{text}");
        assert_eq!(pattern.phases.len(), 4);
    }

    #[test]
    fn collectives_of_all_ranks_have_no_weight() {
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
    fn errors_are_one_line() {
        let traffic = |text: &str| {
            let traffic = Pattern::parse(text).unwrap_err().to_string();
            assert_eq!(traffic.lines().count(), 1, "{traffic}");
            traffic
        };
        assert!(traffic("").starts_with("is no recorded pattern"));
        assert!(traffic("[1, 2]").starts_with("is no recorded pattern"));
        assert!(traffic("{\"version\":7,\"new\":1}").contains("is of version 7, understood is 1"));
        let text = three().text();
        assert!(traffic(&text[..text.len() / 2]).starts_with("is no recorded pattern"));
        assert!(
            traffic(&text.replace("\"ranks\":3", "\"ranks\":2"))
                .contains("names rank 2 of 2 ranks")
        );
        assert!(traffic(&text.replace("rows", "lines")).starts_with("is no recorded pattern"));
    }
}
