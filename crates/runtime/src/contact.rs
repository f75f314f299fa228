//! The means by which processes of other jobs reach a process.

use wire::ProcessId;

use crate::cards;

/// A process and its business card, for a process of another job. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    process: ProcessId,
    card: Vec<u8>,
}

impl Contact {
    pub(crate) fn new(process: ProcessId, card: Vec<u8>) -> Self {
        Self { process, card }
    }

    /// The process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    pub(crate) fn card(&self) -> &[u8] {
        &self.card
    }

    /// Encodes the contact, for a message or a file.
    pub fn emit(&self) -> Vec<u8> {
        let ProcessId { job, rank } = self.process;
        [&job.to_le_bytes()[..], &rank.to_le_bytes(), &self.card].concat()
    }

    /// Decodes a contact; `None` if the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (job, rest) = bytes.split_first_chunk::<8>()?;
        let (rank, card) = rest.split_first_chunk::<4>()?;
        let process = ProcessId { job: u64::from_le_bytes(*job), rank: u32::from_le_bytes(*rank) };
        cards::is_card(card).then(|| Self::new(process, card.to_vec()))
    }
}
