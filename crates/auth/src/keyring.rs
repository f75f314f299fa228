//! The keys with which a process authenticates its peers: the secret of its job, and for each process of another job a
//! key that only the two jobs share.
//!
//! A hello names the job of its sender, from which follows the key that both ends have to prove. A process of another
//! job proves that key and no more: it learns nothing of this job's secret, and cannot pass for one of its processes.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use connect::{HelloPrefix, Refusal};
use secret::Secret;
use wire::{PeerId, ProcessId};

use crate::credentials::{Caller, Credentials, Hello, NOTE_LEN, Nonce, check_hello, hello};
use crate::identity::Identity;

/// The keys of a process.
pub struct Keyring {
    own: SharedKey,
    others: OtherJobs,
}

/// The keys that a process shares with processes of other jobs.
pub struct OtherJobs {
    own: ProcessId,
    peers: BTreeMap<PeerId, Other>,
}

/// Knowledge that both ends of a link have.
struct SharedKey {
    credentials: Credentials,
    /// Number of the job, or of the pair of jobs, that has the key.
    of: u64,
    /// For encryption; made at its first use.
    identity: OnceCell<Identity>,
}

/// A peer of another job.
struct Other {
    process: ProcessId,
    key: SharedKey,
}

impl SharedKey {
    fn new(credentials: Credentials, of: u64) -> Self {
        Self { credentials, of, identity: OnceCell::new() }
    }

    fn identity(&self) -> &Identity {
        self.identity.get_or_init(|| Identity::of(&self.credentials.secret, self.of))
    }
}

impl OtherJobs {
    /// No keys of the process `own`.
    pub fn new(own: ProcessId) -> Self {
        Self { own, peers: BTreeMap::new() }
    }

    /// Adds a process of another job under the number `peer`, and the key that both have to prove.
    pub fn add(&mut self, peer: PeerId, process: ProcessId, key: &[u8; 32]) {
        let ProcessId { job, rank } = self.own;
        let credentials = Credentials { rank: PeerId(rank), job, secret: copied(key) };
        // The same at both ends.
        let key = SharedKey::new(credentials, job ^ process.job);
        self.peers.insert(peer, Other { process, key });
    }

    /// True if these processes are of the job `job`, and share this key.
    pub fn share(&self, job: u64, key: &[u8; 32]) -> bool {
        let is_same = |other: &Other| {
            other.process.job == job && other.key.credentials.secret.expose() == key
        };
        self.peers.values().all(is_same)
    }

    /// Identity that this process and a peer of another job present to each other.
    pub fn identity(&self, peer: PeerId) -> Option<&Identity> {
        self.peers.get(&peer).map(|other| other.key.identity())
    }

    /// The process that is this peer, if it is of another job.
    pub fn process(&self, peer: PeerId) -> Option<ProcessId> {
        self.peers.get(&peer).map(|other| other.process)
    }

    /// Knowledge that this process shares with a peer of another job.
    pub fn with(&self, peer: PeerId) -> Option<&Credentials> {
        self.peers.get(&peer).map(|other| &other.key.credentials)
    }

    /// The sender of a hello.
    ///
    /// # Errors
    /// Returned when the caller is none of these processes, or wants another process.
    pub fn check_hello(&self, hello: &Hello) -> Result<Caller, Refusal> {
        let Some((peer, other)) = self.named(hello) else { return Err(Refusal::Job) };
        let caller = check_hello(hello, other.process.job, PeerId(self.own.rank))?;
        Ok(Caller { peer, ..caller })
    }

    /// The process that a hello names as its sender.
    fn named(&self, hello: &Hello) -> Option<(PeerId, &Other)> {
        let mut prefix = [0; HelloPrefix::LEN];
        prefix.copy_from_slice(&hello[..HelloPrefix::LEN]);
        let named = HelloPrefix::process(&prefix);
        let found = self.peers.iter().find(|(_, other)| other.process == named);
        found.map(|(&peer, other)| (peer, other))
    }
}

impl fmt::Debug for OtherJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherJobs").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Keyring {
    /// A keyring with the secret of the own job.
    pub fn new(own: Credentials) -> Self {
        let process = ProcessId { job: own.job, rank: own.rank.0 };
        Self { own: SharedKey::new(own, process.job), others: OtherJobs::new(process) }
    }

    /// Adds a process of another job; see [`OtherJobs::add`].
    pub fn add(&mut self, peer: PeerId, process: ProcessId, key: &[u8; 32]) {
        self.others.add(peer, process, key);
    }

    /// This process.
    pub fn process(&self) -> ProcessId {
        self.others.own
    }

    /// Knowledge that this process shares with its job and its gateways.
    pub fn own(&self) -> &Credentials {
        &self.own.credentials
    }

    /// Rank of a peer in its job.
    pub fn rank_of(&self, peer: PeerId) -> PeerId {
        self.others.process(peer).map_or(peer, |process| PeerId(process.rank))
    }

    /// Knowledge that this process shares with a peer.
    pub fn with(&self, peer: PeerId) -> &Credentials {
        &self.key(peer).credentials
    }

    /// Identity that this process and a peer present to each other.
    pub fn identity(&self, peer: PeerId) -> &Identity {
        self.key(peer).identity()
    }

    fn key(&self, peer: PeerId) -> &SharedKey {
        self.others.peers.get(&peer).map_or(&self.own, |other| &other.key)
    }

    /// Returns the initiator's hello to `peer`.
    pub fn hello(&self, peer: PeerId, encrypts: bool, generation: u32, nonce: Nonce) -> Hello {
        hello(&self.prefix(peer, generation), encrypts, [0; NOTE_LEN], nonce)
    }

    /// Returns the beginning of the initiator's hello to `peer`.
    pub(crate) fn prefix(&self, peer: PeerId, generation: u32) -> HelloPrefix {
        let wanted = self.rank_of(peer);
        let Credentials { rank: caller, job, .. } = self.own.credentials;
        HelloPrefix { job, caller, wanted, generation }
    }

    /// The sender of a hello.
    ///
    /// # Errors
    /// Returned when the caller is of no known job, or wants another process.
    pub fn check_hello(&self, hello: &Hello) -> Result<Caller, Refusal> {
        match self.others.named(hello) {
            Some(_) => self.others.check_hello(hello),
            None => self.own.credentials.check_hello(hello),
        }
    }
}

/// Copies a key of the caller.
fn copied(key: &[u8; 32]) -> Secret {
    Secret::made(|copy| copy.copy_from_slice(key))
}
