//! A profile as its file holds it.

use recorder::{ReadProfile, SIZE_CLASSES};
use serde::{Deserialize, Serialize};

/// A profile as its file holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profiled {
    /// Version of this form.
    pub canele_profile: u32,
    pub ranks: Vec<RankSummary>,
    pub calls: Vec<Calls>,
}

/// RankPlace of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlace {
    pub host: String,
    /// Number of its host, and of its site.
    pub node: usize,
    pub site: usize,
}

/// A rank, and what it did as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSummary {
    #[serde(flatten)]
    pub place: RankPlace,
    /// Time from its first call until the end of its last.
    pub seconds: f64,
    /// Calls that are not among the others, for want of room.
    pub lost: u64,
}

/// Calls of a rank that have function, communicator, phase and peer in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    pub rank: u32,
    pub function: String,
    pub phase: i32,
    /// Name of the communicator, or its size; none if the function has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communicator: Option<String>,
    /// Rank in the job that is sent to or received from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
    /// Distance to the peer, or between the members of the communicator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    pub calls: u64,
    pub seconds: f64,
    /// Bytes sent, as far as arguments show them.
    pub bytes: u64,
    /// Numbers of calls by size: of at most so many bytes, and more than the class before.
    pub sizes: Vec<(u64, u64)>,
}

/// Distance between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// On one node.
    Node,
    /// On nodes of one site.
    Site,
    /// At several sites.
    Wan,
}

impl Profiled {
    /// Makes the profile of ranks at these places from what they have counted.
    pub fn of(places: &[RankPlace], read: &[ReadProfile]) -> Self {
        let ranks = places
            .iter()
            .zip(read)
            .map(|(place, read)| RankSummary {
                place: place.clone(),
                seconds: read.time_ns as f64 / 1e9,
                lost: read.lost,
            })
            .collect();
        let calls = (0u32..).zip(read).flat_map(|(rank, read)| calls_of(rank, read, places));
        Self { canele_profile: VERSION, ranks, calls: calls.collect() }
    }
}

/// Returns the calls of a rank. Rows of several threads are one.
fn calls_of(rank: u32, read: &ReadProfile, places: &[RankPlace]) -> Vec<Calls> {
    let mut all: Vec<Calls> = Vec::new();
    let mut keys = Vec::new();
    for row in &read.rows {
        let at = keys.iter().position(|key| *key == row.key).unwrap_or_else(|| {
            let comm = read.comms.get(&row.key.comm);
            let peer = usize::try_from(row.key.peer).ok();
            let peer = peer.and_then(|peer| Some(*comm?.members.get(peer)?));
            let peer = peer.filter(|peer| (*peer as usize) < places.len());
            let reach = match (peer, comm) {
                (Some(peer), _) => reach(places, [rank, peer]),
                (None, Some(comm)) if comm.members.len() == comm.size as usize => {
                    reach(places, comm.members.iter().copied())
                }
                (None, _) => None,
            };
            let name = |id: &u16| read.functions.get(id).cloned();
            all.push(Calls {
                rank,
                function: name(&row.key.function).unwrap_or_else(|| "?".into()),
                phase: row.key.phase,
                communicator: comm.map(|comm| comm_name(&comm.name, comm.size)),
                peer,
                reach,
                calls: 0,
                seconds: 0.0,
                bytes: 0,
                sizes: Vec::new(),
            });
            keys.push(row.key);
            keys.len() - 1
        });
        let calls = &mut all[at];
        calls.calls += row.calls;
        calls.seconds += row.time_ns as f64 / 1e9;
        calls.bytes += row.bytes;
        add_sizes(
            &mut calls.sizes,
            (0..SIZE_CLASSES).map(|class| (bound(class), row.sizes[class])),
        );
    }
    all
}

fn comm_name(name: &str, size: u32) -> String {
    if name.is_empty() { format!("of {size} ranks") } else { name.to_owned() }
}

/// Returns the greatest size of a class.
fn bound(class: usize) -> u64 {
    match class {
        0 => 0,
        _ if class == SIZE_CLASSES - 1 => u64::MAX,
        _ => 1 << (class - 1),
    }
}

/// Adds numbers of calls by size, in the order of the sizes.
pub fn add_sizes(sizes: &mut Vec<(u64, u64)>, more: impl Iterator<Item = (u64, u64)>) {
    for (bound, calls) in more.filter(|(_, calls)| *calls > 0) {
        match sizes.binary_search_by_key(&bound, |(bound, _)| *bound) {
            Ok(at) => sizes[at].1 += calls,
            Err(at) => sizes.insert(at, (bound, calls)),
        }
    }
}

/// Returns how far the ranks are from each other; none if there are none, or unknown ones.
fn reach(places: &[RankPlace], ranks: impl IntoIterator<Item = u32>) -> Option<Reach> {
    let mut ranks = ranks.into_iter();
    let first = places.get(ranks.next()? as usize)?;
    let mut reach = Reach::Node;
    for rank in ranks {
        let place = places.get(rank as usize)?;
        reach = reach.max(match place {
            _ if place.site != first.site => Reach::Wan,
            _ if place.node != first.node => Reach::Site,
            _ => Reach::Node,
        });
    }
    Some(reach)
}

/// Form of the file.
pub const VERSION: u32 = 1;

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use recorder::{CallCounts, CallKey, CommFacts, NOBODY};

    use super::*;

    pub fn places() -> Vec<RankPlace> {
        let place =
            |(node, site): (usize, usize)| RankPlace { host: format!("host{node}"), node, site };
        [(0, 0), (0, 0), (1, 0), (2, 1)].map(place).into()
    }

    pub fn read() -> ReadProfile {
        let row = |function, peer, calls, bytes| {
            let mut sizes = [0; SIZE_CLASSES];
            sizes[recorder::size_class(bytes)] = calls;
            let key = CallKey { function, phase: 1, comm: 257, peer };
            CallCounts { key, calls, time_ns: 500_000_000, bytes: calls * bytes, sizes }
        };
        let world = CommFacts { size: 4, name: "MPI_COMM_WORLD".into(), members: vec![0, 1, 2, 3] };
        ReadProfile {
            functions: BTreeMap::from([(1, "MPI_Send".into()), (2, "MPI_Allreduce".into())]),
            comms: BTreeMap::from([(257, world)]),
            rows: vec![row(1, 1, 10, 8), row(1, 3, 5, 100), row(2, NOBODY, 2, 0), row(1, 1, 1, 8)],
            time_ns: 4_000_000_000,
            lost: 0,
        }
    }

    #[test]
    fn calls_know_how_far_they_reach() {
        let profiled = Profiled::of(&places(), &[read()]);
        let found: Vec<_> = profiled
            .calls
            .iter()
            .map(|calls| (&*calls.function, calls.peer, calls.reach, calls.calls, &calls.sizes[..]))
            .collect();
        assert_eq!(
            found,
            [
                ("MPI_Send", Some(1), Some(Reach::Node), 11, &[(8, 11)][..]),
                ("MPI_Send", Some(3), Some(Reach::Wan), 5, &[(128, 5)][..]),
                ("MPI_Allreduce", None, Some(Reach::Wan), 2, &[(0, 2)][..]),
            ]
        );
        assert_eq!(reach(&places(), [0, 2]), Some(Reach::Site));
        assert_eq!(reach(&places(), [0, 9]), None);
    }
}
