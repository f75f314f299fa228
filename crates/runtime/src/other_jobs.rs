//! Processes of other jobs: how they become peers, and where they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cost::CostStore;
use plan::Costs;
use progress::{Directory, Worker};
use topo::StoredCosts;
use topo::sites::{Locality, SiteMap};
use wire::{PeerId, ProcessId};

use crate::cards::{CARD, Cards, gateways, locality, make_card};
use crate::contact::Contact;
use crate::error::{Error, Result};
use crate::instance::Instance;
use crate::rails::{Opened, open_rails_to_others, wanted_rails};

/// Nodes and sites of processes of several jobs, and the costs between them. All of these processes find the same.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Node and site of each process, by its place in the list.
    pub sites: SiteMap,
    /// Costs that the job of the first process has measured.
    pub costs: Costs,
    /// True if all are on one machine, and outnumber its cores.
    pub is_oversubscribed: bool,
}

impl Instance {
    /// The means by which a process of another job reaches this one. Opens rails to others, if this process is alone in
    /// its job.
    ///
    /// # Errors
    /// No rail can be opened.
    pub fn contact(&self) -> Result<Contact> {
        self.open_to_others()?;
        Ok(self.known().own().clone())
    }

    /// The contact of a peer.
    ///
    /// # Errors
    /// Those of [`Instance::contact`], or the launcher does not tell the business card of a process of the own job.
    pub fn contact_of(&self, peer: PeerId) -> Result<Contact> {
        if peer == self.own_peer() {
            return self.contact();
        }
        if let Some(known) = self.known().contact(peer) {
            return Ok(known.clone());
        }
        if !self.is_of_job(peer) {
            return Err(Error(format!("{} has left no contact", self.peer_name(peer))));
        }
        let card = self.job().fetch(peer.0, CARD).map_err(|error| Error(error.to_string()))?;
        let process = ProcessId { job: self.job().id(), rank: peer.0 };
        Ok(Contact::new(process, *self.known().own().job(), card))
    }

    /// Adds a process of another job as a peer, or returns it if it is known. Each of the two processes adds the other.
    /// The first message opens a link, over which both prove the key of the two jobs. All messages take the first VCI.
    ///
    /// # Errors
    /// The contact names a process that does not exist, or has an invalid key; or no rail can be opened.
    pub fn add_peer(&self, contact: &Contact) -> Result<PeerId> {
        let process = contact.process();
        if process.job == self.job().id() {
            let missing = || Error(format!("{process} does not exist"));
            let peer = self.peer(process.rank).ok_or_else(missing)?;
            if peer != self.own_peer() {
                self.known().note_own(peer, contact.clone());
            }
            return Ok(peer);
        }
        self.open_to_others()?;
        let mut known = self.known();
        if let Some(peer) = known.other(process) {
            return Ok(peer);
        }
        let invalid = || Error(format!("the key of {process} is invalid"));
        let key = known.key.with(process.job, &contact.job().key).ok_or_else(invalid)?;
        let peer = self
            .progress()
            .look(|worker| worker.add_peer(process, key.expose(), contact.card().to_vec()));
        let sites = SiteMap::of(&[known.own().locality(), contact.locality()]);
        let rules = (known.own().job().encryption, contact.job().encryption);
        self.link_sites().note_other(peer, rules, sites.site(0) == sites.site(1));
        known.note_other(peer, contact.clone());
        Ok(peer)
    }

    /// Opens links to peers of other jobs, if these cannot call this process because it is behind gateways. They have
    /// added this process as a peer.
    ///
    /// # Errors
    /// One of them is not reached.
    pub fn call_peers(&self, peers: &[PeerId]) -> Result<()> {
        if !self.known().own().is_behind_gateways() {
            return Ok(());
        }
        let others: Vec<PeerId> =
            peers.iter().copied().filter(|peer| !self.is_of_job(*peer)).collect();
        let call = |worker: &mut Worker| others.iter().for_each(|peer| worker.submit_link(*peer));
        self.progress().submit(call);
        let settled =
            |worker: &mut Worker| others.iter().all(|peer| worker.has_settled(*peer)).then_some(());
        self.progress().wait(settled);
        let failed = |peer: &&PeerId| self.progress().look(|it| it.rail_name(**peer).is_none());
        let failed = others.iter().find(failed);
        failed.map_or(Ok(()), |peer| {
            Err(Error(format!("{} is not reached through gateways", self.peer_name(*peer))))
        })
    }

    /// Notes a new communicator with these peers. Returns the other jobs that they are of, for [`Instance::part_from`].
    pub fn connect_with(&self, peers: impl Iterator<Item = PeerId>) -> Vec<u64> {
        if !self.knows_other_jobs() {
            return Vec::new();
        }
        let others = peers.filter(|peer| !self.is_of_job(*peer));
        let jobs: BTreeSet<u64> =
            others.filter_map(|peer| Some(self.process_of(peer)?.job)).collect();
        let mut connections = self.connections();
        for job in &jobs {
            let count = connections.entry(*job).or_insert(0);
            *count += 1;
            if *count == 1 {
                self.set_may_end(*job, false);
                // A launcher that fails ends this process.
                let _ = self.job().tell_connection(*job, true);
            }
        }
        jobs.into_iter().collect()
    }

    /// Notes the end of a communicator with other jobs. The launcher knows it on return: it does not end this job any more
    /// when one of them fails, nor the reverse, once this holds for all processes of both.
    pub fn part_from(&self, jobs: &[u64]) {
        let mut connections = self.connections();
        for job in jobs {
            let Some(count) = connections.get_mut(job) else { continue };
            *count -= 1;
            if *count == 0 {
                connections.remove(job);
                self.set_may_end(*job, true);
                let _ = self.job().tell_connection(*job, false);
            }
        }
    }

    /// Sets whether the processes of another job may end without a word.
    fn set_may_end(&self, job: u64, may_end: bool) {
        let peers = self.known().of_job(job);
        self.progress().look(|worker| worker.set_may_end(&peers, may_end));
    }

    /// Waits until all messages to other jobs have arrived. Nothing else keeps this process until they have: it does not
    /// meet other jobs before it closes its links, and a link that is closed drops what is on its way.
    pub(crate) fn part_from_others(&self) {
        let others = self.known().others();
        let begin = Instant::now();
        let mut step = DELIVERY_STEP;
        while !others.is_empty() && begin.elapsed() < DELIVERY_PATIENCE {
            let is_delivered = |worker: &mut Worker| worker.has_delivered_to(&others).then_some(());
            // ACKs of the kernel wake nobody. All messages to other jobs take the first VCI.
            if self.progress().wait_for(step, is_delivered).is_some() {
                return;
            }
            step = (2 * step).min(DELIVERY_STEP_MAX);
        }
    }

    /// The peer that is this process, if it is known.
    pub fn find_peer(&self, process: ProcessId) -> Option<PeerId> {
        if process.job == self.job().id() {
            return self.peer(process.rank);
        }
        self.known().other(process)
    }

    /// The process that is this peer.
    pub fn process_of(&self, peer: PeerId) -> Option<ProcessId> {
        if self.is_of_job(peer) {
            return Some(ProcessId { job: self.job().id(), rank: peer.0 });
        }
        self.known().contact(peer).map(Contact::process)
    }

    /// Finds where processes are, some of them of other jobs. A pure function of their contacts, so that all find the
    /// same.
    ///
    /// # Errors
    /// Those of [`Instance::contact_of`].
    pub fn surroundings(&self, peers: impl Iterator<Item = PeerId>) -> Result<Surroundings> {
        let contacts: Vec<Contact> =
            peers.map(|peer| self.contact_of(peer)).collect::<Result<_>>()?;
        let localities: Vec<Locality> = contacts.iter().map(Contact::locality).collect();
        let sites = SiteMap::of(&localities);
        let job = contacts.first().map(Contact::job);
        let (costs, cores) = job.map_or((Costs::default(), 1), |job| (job.costs, job.cores));
        let is_oversubscribed = sites.is_one_machine() && contacts.len() > cores as usize;
        Ok(Surroundings { sites, costs, is_oversubscribed })
    }

    /// Opens rails to others, if this process is alone in its job and has none yet.
    fn open_to_others(&self) -> Result<()> {
        let mut known = self.known();
        if known.is_open {
            return Ok(());
        }
        let text = |error: std::io::Error| Error(error.to_string());
        let costs: Arc<dyn CostStore> = Arc::new(StoredCosts::of_environment());
        let opened = open_rails_to_others(self.job(), &wanted_rails(), self.link_sites(), &costs)
            .map_err(Error)?;
        let locality = locality(&opened.networks).map_err(Error)?;
        let gateways = gateways().map_err(Error)?;
        let card = make_card(&opened.rails, &locality, &gateways);
        opened.check_reach(self.job(), 2).map_err(Error)?;
        let Opened { rails, teams, networks, closed: _ } = opened;
        let directory = |own| -> Box<dyn Directory> {
            let (job, contexts) = (self.shared_job(), Arc::clone(self.contexts()));
            Box::new(Cards::new((job, CARD), own, (networks, gateways), self.modex(), contexts))
        };
        self.progress().add_rails(rails, &teams, directory).map_err(text)?;
        let own = known.own();
        let contact = Contact::new(own.process(), *own.job(), card);
        known.note_own(self.own_peer(), contact);
        known.is_open = true;
        Ok(())
    }
}

/// Time limit for messages to other jobs to arrive.
const DELIVERY_PATIENCE: Duration = Duration::from_secs(30);
/// First interval between two looks whether they have, and the longest: each is twice the last.
const DELIVERY_STEP: Duration = Duration::from_micros(100);
const DELIVERY_STEP_MAX: Duration = Duration::from_millis(20);
