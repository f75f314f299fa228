//! The processes that see a file, and those that access it for others.

use crate::identity::FileIdentity;

/// Result of a process that has looked at the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It has opened a file.
    Opened(FileIdentity),
    /// It does not see one, and another process may.
    Unseen,
    /// It has failed for another reason.
    Failed,
}

/// The processes that see a file. It is the same on all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visibility {
    owner: u32,
    /// By rank; none for those who see the file themselves.
    servers: Vec<Option<u32>>,
}

/// Place of a process: equal numbers of nodes are one host, equal numbers of sites are near each other.
type Place = (u32, u32);

impl Finding {
    /// Length of [`Finding::encode`].
    pub const LEN: usize = FileIdentity::LEN + 1;

    /// Describes the finding for another process.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        match self {
            Self::Opened(identity) => {
                bytes[0] = OPENED;
                bytes[1..].copy_from_slice(&identity.encode());
            }
            Self::Unseen => bytes[0] = UNSEEN,
            Self::Failed => bytes[0] = FAILED,
        }
        bytes
    }

    /// Returns the finding that another process has described.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        match bytes.split_first_chunk::<1>() {
            Some(([OPENED], identity)) if let Some(identity) = identity.first_chunk() => {
                Self::Opened(FileIdentity::decode(identity))
            }
            Some(([UNSEEN], _)) => Self::Unseen,
            Some(_) | None => Self::Failed,
        }
    }
}

impl Visibility {
    /// Returns who sees the file, from what all processes have found. `creator` is the rank that has just created or opened it,
    /// if one did so first; else the file of the first rank that has one counts. None if nobody sees one, or if a process has
    /// failed.
    pub fn of(
        findings: &[Finding],
        creator: Option<u32>,
        place: impl Fn(u32) -> Place,
    ) -> Option<Self> {
        let opened = |rank: &u32| match findings.get(*rank as usize) {
            Some(Finding::Opened(identity)) => Some(*identity),
            Some(Finding::Unseen | Finding::Failed) | None => None,
        };
        let ranks = || 0..findings.len() as u32;
        let owner = creator.or_else(|| ranks().find(|rank| opened(rank).is_some()))?;
        let own = opened(&owner)?;
        if findings.contains(&Finding::Failed) {
            return None;
        }
        let sees = |rank: &u32| {
            let on_one_host = place(*rank).0 == place(owner).0;
            opened(rank).is_some_and(|identity| own.is_same(&identity, on_one_host))
        };
        let seeing: Vec<u32> = ranks().filter(sees).collect();
        let mut loads = vec![0; seeing.len()];
        let mut servers = Vec::new();
        for rank in ranks() {
            let is_served = seeing.binary_search(&rank).is_err();
            servers.push(is_served.then(|| server(rank, &seeing, &mut loads, &place)));
        }
        Some(Self { owner, servers })
    }

    /// Rank that creates, resizes and deletes the file.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// True if all processes see the file.
    pub fn is_complete(&self) -> bool {
        self.servers.iter().all(Option::is_none)
    }

    /// True if a rank sees the file.
    pub fn sees(&self, rank: u32) -> bool {
        self.server(rank).is_none()
    }

    /// Rank that accesses the file for one that does not see it.
    pub fn server(&self, rank: u32) -> Option<u32> {
        self.servers.get(rank as usize).copied().flatten()
    }

    /// True if a rank accesses the file for others.
    pub fn serves(&self, rank: u32) -> bool {
        self.servers.contains(&Some(rank))
    }
}

/// Chooses who serves a rank: one of its node, else of its site, else any; of these, the one that serves the fewest so far.
fn server(rank: u32, seeing: &[u32], loads: &mut [u32], place: impl Fn(u32) -> Place) -> u32 {
    let (node, site) = place(rank);
    let distance = |other: u32| match place(other) {
        (other_node, _) if other_node == node => 0,
        (_, other_site) if other_site == site => 1,
        _ => 2,
    };
    let chosen = (0..seeing.len()).min_by_key(|at| (distance(seeing[*at]), loads[*at]));
    // The owner sees the file.
    chosen.map_or(rank, |at| {
        loads[at] += 1;
        seeing[at]
    })
}

const OPENED: u8 = 1;
const UNSEEN: u8 = 2;
const FAILED: u8 = 3;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{OpenFile, OpenMode};

    /// Findings of ranks that look at these files.
    fn findings(files: &[Option<&str>]) -> Vec<Finding> {
        let place = tempfile::tempdir().unwrap();
        let mode = OpenMode { reads: true, writes: true, creates: true, is_exclusive: false };
        for name in files.iter().flatten() {
            OpenFile::open(&place.path().join(name), mode).unwrap();
        }
        let found = |name: &Option<&str>| match name {
            Some(name) => {
                let file = OpenFile::open(&place.path().join(name), mode).unwrap();
                let finding = Finding::Opened(file.identity().unwrap());
                Finding::decode(&finding.encode())
            }
            None => Finding::decode(&Finding::Unseen.encode()),
        };
        let all = files.iter().map(found).collect();
        fs::remove_dir_all(place.path()).unwrap();
        all
    }

    /// Servers of ranks of two sites with two nodes of two ranks each.
    fn servers(files: &[Option<&str>], creator: Option<u32>) -> Option<(u32, Vec<Option<u32>>)> {
        let seen = Visibility::of(&findings(files), creator, |rank| (rank / 2, rank / 4))?;
        let each = (0..files.len() as u32).map(|rank| seen.server(rank)).collect();
        Some((seen.owner(), each))
    }

    const HERE: Option<&str> = Some("here");

    #[test]
    fn everybody_sees_a_shared_file() {
        let seen = Visibility::of(&findings(&[HERE; 5]), Some(0), |rank| (rank, rank)).unwrap();
        assert!(seen.is_complete() && (0..5).all(|rank| seen.sees(rank) && !seen.serves(rank)));
        assert_eq!(seen.owner(), 0);
    }

    #[test]
    fn those_who_do_not_see_the_file_share_those_who_do() {
        let one_site = [HERE, HERE, HERE, HERE, None, None, None, None];
        let each = [None, None, None, None, Some(0), Some(1), Some(2), Some(3)].to_vec();
        assert_eq!(servers(&one_site, None), Some((0, each)));
        let other_site = [None, None, None, None, None, HERE, HERE, HERE];
        let each = [Some(5), Some(6), Some(7), Some(5), Some(5), None, None, None].to_vec();
        assert_eq!(servers(&other_site, None), Some((5, each)), "rank 4 asks its own node");
        let site_first = [HERE, None, None, None, HERE, None, None, None];
        let each = [None, Some(0), Some(0), Some(0), None, Some(4), Some(4), Some(4)].to_vec();
        assert_eq!(servers(&site_first, None), Some((0, each)));
    }

    #[test]
    fn another_file_of_the_same_name_is_not_seen() {
        let files = [Some("other"), Some("other"), HERE, HERE];
        let each = [Some(2), Some(3), None, None].to_vec();
        assert_eq!(servers(&files, Some(2)), Some((2, each)));
        assert_eq!(servers(&files, None), Some((0, vec![None, None, Some(0), Some(1)])));
    }

    #[test]
    fn a_failure_is_no_lack_of_sight() {
        assert_eq!(servers(&[None; 3], None), None);
        let mut failed = findings(&[HERE, None]);
        failed.push(Finding::decode(&Finding::Failed.encode()));
        assert_eq!(Visibility::of(&failed, None, |rank| (rank, 0)), None);
        assert_eq!(Finding::decode(&[9; Finding::LEN]), Finding::Failed, "of a stranger");
    }
}
