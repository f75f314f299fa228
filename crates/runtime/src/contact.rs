//! The means by which processes of other jobs reach a process, and what they need to know of it.

use auth::PublicKey;
use plan::Costs;
use topo::sites::Locality;
use wire::ProcessId;

use crate::cards;
use crate::encryption::EncryptionRule;

/// A process, for processes of other jobs. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    process: ProcessId,
    job: JobFacts,
    card: Vec<u8>,
}

/// Facts about a job that all its processes tell alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobFacts {
    /// Public half of the job's key.
    pub key: PublicKey,
    /// Cores of the machine of its rank 0.
    pub cores: u32,
    /// Costs of messages.
    pub costs: Costs,
    /// The job's wish for encrypted links.
    pub encryption: EncryptionRule,
}

impl Contact {
    pub(crate) fn new(process: ProcessId, job: JobFacts, card: Vec<u8>) -> Self {
        Self { process, job, card }
    }

    /// The process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Facts about its job.
    pub(crate) fn job(&self) -> &JobFacts {
        &self.job
    }

    pub(crate) fn card(&self) -> &[u8] {
        &self.card
    }

    /// Its node, site and networks.
    pub(crate) fn locality(&self) -> Locality {
        // A contact is made of a card that has one.
        cards::locality_in(&self.card).unwrap_or_default()
    }

    /// True if only gateways of its job reach the process: others of its own job, and it calls all others.
    pub fn is_behind_gateways(&self) -> bool {
        cards::has_gateways(&self.card)
    }

    /// Encodes the contact, for a message or a file.
    pub fn emit(&self) -> Vec<u8> {
        let ProcessId { job, rank } = self.process;
        let JobFacts { key, cores, costs, encryption } = &self.job;
        let process = [&job.to_le_bytes()[..], &rank.to_le_bytes()].concat();
        let facts = [&key[..], &cores.to_le_bytes(), &costs.emit(), &[encryption.emit()]].concat();
        [&process[..], &facts, &self.card].concat()
    }

    /// Decodes a contact; `None` if the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (job, rest) = bytes.split_first_chunk::<8>()?;
        let (rank, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_first_chunk::<32>()?;
        let (cores, rest) = rest.split_first_chunk::<4>()?;
        let (costs, rest) = rest.split_at_checked(Costs::LEN)?;
        let (encryption, card) = rest.split_first()?;
        let encryption = EncryptionRule::parse(*encryption)?;
        let process = ProcessId { job: u64::from_le_bytes(*job), rank: u32::from_le_bytes(*rank) };
        let (cores, costs) = (u32::from_le_bytes(*cores), Costs::parse(costs)?);
        let job = JobFacts { key: *key, cores, costs, encryption };
        cards::is_card(card).then(|| Self::new(process, job, card.to_vec()))
    }
}
