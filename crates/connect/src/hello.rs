//! The beginning of each hello, over TCP and QUIC alike: version, job, both ranks, number of the opening.

use wire::{PROTOCOL_VERSION, PeerId, ProcessId};

use crate::refusal::Refusal;

/// First words of a process that opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloPrefix {
    /// Number of the sender's job.
    pub job: u64,
    /// Rank of the sender there.
    pub caller: PeerId,
    /// Rank that the sender looks for, in the job of that process.
    pub wanted: PeerId,
    /// Number of this opening of the link, as the sender counts ([`Links`](crate::Links)).
    pub generation: u32,
}

impl HelloPrefix {
    /// Length in bytes.
    pub const LEN: usize = 28;

    /// Encodes the prefix.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&version_word());
        bytes[8..16].copy_from_slice(&self.job.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.caller.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.wanted.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// The process that a prefix names as its sender, before any check.
    pub fn process(bytes: &[u8; Self::LEN]) -> ProcessId {
        let (job, rest) = bytes[VERSION_LEN..].split_at(8);
        let job = job.iter().rev().fold(0, |job, byte| job << 8 | u64::from(*byte));
        let rank = rest[..4].iter().rev().fold(0, |rank, byte| rank << 8 | u32::from(*byte));
        ProcessId { job, rank }
    }

    /// Decodes the prefix of a hello to the process `own` of a job.
    ///
    /// # Errors
    /// The sender has another version or job, or looks for another process.
    pub fn check(bytes: &[u8; Self::LEN], job: u64, own: PeerId) -> Result<Self, Refusal> {
        let (version, rest) = bytes.split_at(VERSION_LEN);
        if let Some(refusal) = other_version(version) {
            return Err(refusal);
        }
        if version != version_word() {
            return Err(Refusal::Protocol);
        }
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&rest[at..at + 4]);
            u32::from_le_bytes(word)
        };
        if rest[..8] != job.to_le_bytes() || word(12) != own.0 {
            return Err(Refusal::Job);
        }
        Ok(Self { job, caller: PeerId(word(8)), wanted: own, generation: word(16) })
    }
}

/// Length of a version word in bytes.
pub const VERSION_LEN: usize = 8;

/// Name and version of the protocol, with which each hello begins in all versions. It is also the answer to a
/// sender of another version.
pub fn version_word() -> [u8; VERSION_LEN] {
    let mut word = [0; VERSION_LEN];
    word[..7].copy_from_slice(NAME);
    word[7] = PROTOCOL_VERSION;
    word
}

/// Returns the refusal of a sender whose words begin with the name of the protocol and another version.
pub fn other_version(words: &[u8]) -> Option<Refusal> {
    let version = *words.strip_prefix(NAME)?.first()?;
    let is_other = version != PROTOCOL_VERSION;
    is_other.then_some(Refusal::Version { theirs: version, own: PROTOCOL_VERSION })
}

/// The zero byte keeps line-oriented protocols out at once.
const NAME: &[u8; 7] = b"canele\x00";

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> HelloPrefix {
        HelloPrefix { job: 9, caller: PeerId(3), wanted: PeerId(1), generation: 0x0102_0304 }
    }

    #[test]
    fn a_hello_to_this_process_is_understood() {
        assert_eq!(HelloPrefix::check(&prefix().emit(), 9, PeerId(1)), Ok(prefix()));
        assert_eq!(HelloPrefix::process(&prefix().emit()), ProcessId { job: 9, rank: 3 });
    }

    #[test]
    fn each_strange_hello_is_refused_for_its_reason() {
        let check = |bytes| HelloPrefix::check(&bytes, 9, PeerId(1));
        assert_eq!(check([b'x'; HelloPrefix::LEN]), Err(Refusal::Protocol));
        assert_eq!(check(HelloPrefix { job: 8, ..prefix() }.emit()), Err(Refusal::Job));
        assert_eq!(check(HelloPrefix { wanted: PeerId(2), ..prefix() }.emit()), Err(Refusal::Job));
        for version in (0..=u8::MAX).filter(|version| *version != PROTOCOL_VERSION) {
            let mut bytes = prefix().emit();
            bytes[7] = version;
            let refusal = Refusal::Version { theirs: version, own: PROTOCOL_VERSION };
            assert_eq!(check(bytes), Err(refusal));
            // Whatever follows the version: it may mean something else there.
            assert_eq!(other_version(&bytes[..8]), Some(refusal));
            let text = refusal.to_string();
            assert!(text.contains(&format!("version {version} ")), "{text}");
            assert!(text.contains(&format!("version {PROTOCOL_VERSION}")), "{text}");
        }
        assert_eq!(other_version(&version_word()), None);
        assert_eq!(other_version(b"canele"), None);
    }
}
