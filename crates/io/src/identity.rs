//! The identity of a file, by which processes tell whether they see the same one.

use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, StatxFlags, StatxTimestamp};
use rustix::io;

/// Identity of an open file. The times are ns; 0 where the file system does not know one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    created: u64,
    modified: u64,
    changed: u64,
    size: u64,
}

impl FileIdentity {
    /// Length of [`FileIdentity::encode`].
    pub const LEN: usize = 48;

    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let status = fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
        let has_birth = status.stx_mask & StatxFlags::BTIME.bits() != 0;
        Ok(Self {
            device: u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor),
            inode: status.stx_ino,
            created: if has_birth { ns_of(status.stx_btime) } else { 0 },
            modified: ns_of(status.stx_mtime),
            changed: ns_of(status.stx_ctime),
            size: status.stx_size,
        })
    }

    /// True if both are the same file. Device numbers mean something on one host alone. Between hosts, inode and time of
    /// creation tell: other files with the same inode have been created at another time. Where the file system knows no such
    /// time, all times and the size must be equal.
    pub fn is_same(&self, other: &Self, on_one_host: bool) -> bool {
        let has_birth = self.created != 0 && other.created != 0;
        let is_alike = match has_birth {
            true => self.created == other.created,
            false => {
                (self.modified, self.changed, self.size)
                    == (other.modified, other.changed, other.size)
            }
        };
        self.inode == other.inode && (on_one_host && self.device == other.device || is_alike)
    }

    /// Describes the identity for another process.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let Self { device, inode, created, modified, changed, size } = *self;
        let mut bytes = [0; Self::LEN];
        let words = [device, inode, created, modified, changed, size];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Returns the identity that another process has described.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let mut words = [0; 6];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [device, inode, created, modified, changed, size] = words;
        Self { device, inode, created, modified, changed, size }
    }
}

fn ns_of(time: StatxTimestamp) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FileIdentity =
        FileIdentity { device: 7, inode: 12, created: 5, modified: 6, changed: 8, size: 100 };

    #[test]
    fn the_same_file_is_known_on_other_hosts() {
        let elsewhere = FileIdentity { device: 9, ..ONE };
        assert!(ONE.is_same(&elsewhere, false));
        assert!(ONE.is_same(&FileIdentity { size: 400, modified: 9, ..elsewhere }, false), "grown");
        assert!(!ONE.is_same(&FileIdentity { created: 4, ..elsewhere }, false), "another one");
        assert!(!ONE.is_same(&FileIdentity { inode: 13, ..elsewhere }, false));
        assert!(!ONE.is_same(&FileIdentity { created: 4, ..elsewhere }, true), "another tmpfs");
        assert!(ONE.is_same(&FileIdentity { created: 0, changed: 9, ..ONE }, true));
        let unborn = FileIdentity { created: 0, ..elsewhere };
        assert!(ONE.is_same(&unborn, false));
        assert!(!ONE.is_same(&FileIdentity { changed: 9, ..unborn }, false));
    }

    #[test]
    fn an_identity_comes_back_from_its_description() {
        assert_eq!(FileIdentity::decode(&ONE.encode()), ONE);
    }

    #[test]
    fn two_names_of_a_file_are_the_same() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("one"), "data").unwrap();
        std::fs::hard_link(path("one"), path("link")).unwrap();
        std::fs::write(path("two"), "data").unwrap();
        let of = |name| FileIdentity::of(std::fs::File::open(path(name)).unwrap()).unwrap();
        let [one, link, two] = ["one", "link", "two"].map(of);
        for on_one_host in [true, false] {
            assert!(one.is_same(&link, on_one_host) && !one.is_same(&two, on_one_host));
        }
    }
}
