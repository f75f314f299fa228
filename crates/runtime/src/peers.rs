//! The processes that this one knows by their contacts: itself, those of other jobs, and those of its own job that have
//! taken part in a meeting with another one.

use std::collections::BTreeMap;

use auth::JobKey;
use boot::Job;
use topo::processor;
use wire::{PeerId, ProcessId};

use crate::contact::{Contact, JobFacts};
use crate::encryption::EncryptionRule;
use crate::modex::Modex;

/// Known processes.
pub(crate) struct KnownPeers {
    own: PeerId,
    /// The key of the job, from which follow those with other jobs.
    pub(crate) key: JobKey,
    /// True once this process has rails to processes of other jobs.
    pub(crate) is_open: bool,
    contacts: BTreeMap<PeerId, Contact>,
    /// Processes of other jobs.
    others: BTreeMap<ProcessId, PeerId>,
}

impl KnownPeers {
    /// Knows this process only, by its business card.
    pub fn of(job: &Job, modex: &Modex, card: Vec<u8>, encryption: EncryptionRule) -> Self {
        let key = JobKey::of(job.secret(), job.id());
        let own = PeerId(job.rank());
        let cores = processor::cores().machine as u32;
        let facts = JobFacts { key: key.public(), cores, costs: modex.costs, encryption };
        let process = ProcessId { job: job.id(), rank: job.rank() };
        let contacts = [(own, Contact::new(process, facts, card))].into();
        Self { own, key, is_open: job.size() > 1, contacts, others: BTreeMap::new() }
    }

    /// This process.
    pub fn own(&self) -> &Contact {
        let Some(own) = self.contacts.get(&self.own) else { unreachable!("it knows itself") };
        own
    }

    /// The contact of a process, if it is known.
    pub fn contact(&self, peer: PeerId) -> Option<&Contact> {
        self.contacts.get(&peer)
    }

    /// The peer that a process of another job is, if it is known.
    pub fn other(&self, process: ProcessId) -> Option<PeerId> {
        self.others.get(&process).copied()
    }

    /// The peers of other jobs.
    pub fn others(&self) -> Vec<PeerId> {
        self.others.values().copied().collect()
    }

    /// The peers of another job.
    pub fn of_job(&self, job: u64) -> Vec<PeerId> {
        let first = ProcessId { job, rank: 0 };
        let of_job = self.others.range(first..).take_while(|(process, _)| process.job == job);
        of_job.map(|(_, peer)| *peer).collect()
    }

    /// True if processes of other jobs are known.
    pub fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Notes the contact of a process of the own job, which may be this one.
    pub fn note_own(&mut self, peer: PeerId, contact: Contact) {
        self.contacts.insert(peer, contact);
    }

    /// Notes a process of another job.
    pub fn note_other(&mut self, peer: PeerId, contact: Contact) {
        self.others.insert(contact.process(), peer);
        self.contacts.insert(peer, contact);
    }
}
