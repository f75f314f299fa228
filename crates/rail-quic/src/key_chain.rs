//! The keys that the two ends of a connection prove: the secret of the job, or a key that two jobs share.
//!
//! A server presents its key before the caller says who it is. So the connection ID of the first packet, which its key
//! has made, tells the server which key to present ([`auth::FirstIds`]). A caller with an unknown key meets the key of
//! the job, and refuses it. A connection belongs to the processes that were added with its key: no other may say hello
//! on it.

use auth::{Identity, MARK_LEN, OtherJobs};
use rail::RailError;
use wire::{PeerId, ProcessId};

use crate::settings::Keys;

/// All keys of a rail.
pub(super) struct KeyChain {
    own: Keys,
    shared: Vec<SharedKeys>,
}

/// A key that this process shares with processes of one other job.
struct SharedKeys {
    holders: OtherJobs,
    keys: Keys,
}

/// One of the keys of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyId {
    /// The secret of the job.
    Own,
    /// A key that is shared with another job.
    Shared(usize),
}

impl KeyChain {
    /// Creates a chain with the key of the job.
    ///
    /// # Errors
    /// Those of [`Keys::new`].
    pub fn new(own: &Identity) -> Result<Self, RailError> {
        Ok(Self { own: Keys::new(own)?, shared: Vec::new() })
    }

    /// Adds a process of another job and the key that it shares with the process `own`.
    ///
    /// # Errors
    /// Those of [`Keys::new`].
    pub fn add(
        &mut self,
        own: ProcessId,
        (peer, process): (PeerId, ProcessId),
        key: &[u8; 32],
    ) -> Result<(), RailError> {
        let mut all = self.shared.iter_mut();
        if let Some(known) = all.find(|shared| shared.holders.share(process.job, key)) {
            known.holders.add(peer, process, key);
            return Ok(());
        }
        let mut holders = OtherJobs::new(own);
        holders.add(peer, process, key);
        if let Some(identity) = holders.identity(peer) {
            let keys = Keys::new(identity)?;
            self.shared.push(SharedKeys { holders, keys });
        }
        Ok(())
    }

    /// The key with this number.
    pub fn get(&self, id: KeyId) -> &Keys {
        match id {
            KeyId::Own => &self.own,
            KeyId::Shared(index) => &self.shared[index].keys,
        }
    }

    /// The key that this process shares with a peer.
    pub fn with(&self, peer: PeerId) -> KeyId {
        let is_holder = |shared: &SharedKeys| shared.holders.process(peer).is_some();
        self.shared.iter().position(is_holder).map_or(KeyId::Own, KeyId::Shared)
    }

    /// The key that has made the connection ID of a first packet.
    pub fn maker(&self, id: &[u8]) -> Option<KeyId> {
        if self.own.has_made(id) {
            return Some(KeyId::Own);
        }
        let has_made = |shared: &SharedKeys| shared.keys.has_made(id);
        self.shared.iter().position(has_made).map(KeyId::Shared)
    }

    /// The marks in connection IDs of first packets, one for each key.
    pub fn marks(&self) -> impl Iterator<Item = [u8; MARK_LEN]> {
        let shared = self.shared.iter().map(|shared| shared.keys.mark());
        std::iter::once(self.own.mark()).chain(shared)
    }

    /// The processes of another job that have the key; `None` if it is the own job's.
    pub fn holders(&self, id: KeyId) -> Option<&OtherJobs> {
        match id {
            KeyId::Own => None,
            KeyId::Shared(index) => Some(&self.shared[index].holders),
        }
    }

    /// The process that is this peer, if it is of another job.
    pub fn process(&self, peer: PeerId) -> Option<ProcessId> {
        self.shared.iter().find_map(|shared| shared.holders.process(peer))
    }
}
