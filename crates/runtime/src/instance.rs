//! An instance of the runtime: this process in its job, from joining it to leaving it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use agree::Agreements;
use boot::Job;
use connect::PeerName;
use cost::CostStore;
use progress::{CallFinder, Policy, Progress, Worker};
use rail_shm::node_identity;
use relay::Gateways;
use topo::StoredCosts;
use topo::sites::{Locality, SiteMap};
use tracing::{debug, info};
use wire::PeerId;

use crate::cards::{CARD, gateways, locality, locality_of, make_card};
use crate::context::{self, Contexts, NameContext};
use crate::encryption::{EncryptionRule, LinkSites};
use crate::error::{Error, Result};
use crate::modex::{self, Modex};
use crate::peers::KnownPeers;
use crate::rails::{Opened, open_rails, wanted_rails};
use crate::vci::{self, Vci, VciSet};
use crate::{log, record};

/// Needs of an interface of the library.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// True if several threads communicate at the same time.
    pub is_multithreaded: bool,
    /// Facts about the contexts that the interface has drawn.
    pub contexts: Option<Contexts>,
    /// Names of the contexts that the interface has drawn, for reports.
    pub name_context: Option<NameContext>,
    /// Names the call that the calling thread is in and the place that has called it, for reports.
    pub find_call: Option<CallFinder>,
}

/// This process in its job.
pub struct Instance {
    job: Arc<Job>,
    progress: Arc<Progress>,
    /// VCIs after the first.
    later_vcis: Vec<Arc<Progress>>,
    node_identity: Vec<u8>,
    modex: Modex,
    /// Processes whose contacts are known, among them all of other jobs.
    known: Mutex<KnownPeers>,
    link_sites: Arc<LinkSites>,
    /// Number of communicators with processes of each other job.
    connections: Mutex<BTreeMap<u64, usize>>,
    contexts: Arc<OnceLock<Contexts>>,
    name_context: OnceLock<NameContext>,
    next_context: AtomicU32,
    /// Agreements of each VCI.
    agreements: Vec<Arc<Agreements>>,
}

impl Instance {
    /// Makes the instance of a process of `job`: opens the rails and publishes their addresses. Several instances may
    /// live side by side in one process, each in a job of its own or as another process of the same job.
    ///
    /// # Errors
    /// The launcher fails, a setting is malformed, or the system lacks a resource. The text says what to do.
    pub fn new(job: Job, needs: &Needs) -> Result<Self> {
        Self::start(job, needs).map_err(Error)
    }

    fn start(job: Job, needs: &Needs) -> Result<Self, String> {
        let text = |error: boot::BootError| error.to_string();
        log::begin(job.rank())?;
        device::open()?;
        if job.rank() == 0 {
            report_unknown_settings();
        }
        if let Some(notice) = job.notice() {
            // A message that nobody can read is lost.
            let _ = writeln!(std::io::stderr(), "canele: {notice}");
        }
        let link_sites = Arc::<LinkSites>::default();
        let policy = idle_pollers(policy(&job))?;
        let own_vcis = vci::wanted(needs.is_multithreaded, &policy)?;
        let costs: Arc<dyn CostStore> = Arc::new(StoredCosts::of_environment());
        let host = costs.host();
        let opened = open_rails(&job, &wanted_rails(), &link_sites, &costs)?;
        for rail in &opened.rails {
            debug!(rail = rail.name(), "is open");
        }
        let locality = locality(&opened.networks)?;
        let gateways = gateways()?;
        let card = make_card(&opened.rails, &locality, &gateways);
        job.publish(CARD, &card).map_err(text)?;
        modex::publish_own(&job, &locality, &host, own_vcis)?;
        job.fence().map_err(text)?;
        let modex =
            modex::exchange(&job, &locality, (own_vcis, &host), |rank| locality_of(&job, rank))?;
        opened.check_reach(&job, modex.sites.nodes())?;
        link_sites.map.get_or_init(|| modex.sites.clone());
        let later_vcis = open_later_vcis(&job, &modex, &locality, (&link_sites, &costs))?;
        let job = Arc::new(job);
        let policy = policy.woken_in(Duration::from_nanos(host.wake_ns));
        let shares_machine = modex.is_oversubscribed && modex.sites.nodes() > 1;
        let policy = if shares_machine { policy.among_nodes() } else { policy };
        let policy = policy.in_vcis(modex.vcis);
        let contexts = Arc::new(needs.contexts.map(OnceLock::from).unwrap_or_default());
        let mut agreements = Vec::new();
        let mut worker = opened.worker(&job, (CARD, gateways), &modex, host, &contexts)?;
        agreements.push(Agreements::new(&mut worker.engine));
        let progress =
            Progress::new(worker, policy).map_err(|error| match boot::shortage(&error) {
                Some(shortage) => format!("{error}: {shortage}"),
                None => error.to_string(),
            })?;
        let mut begin = |(opened, card): (Opened, String)| {
            // Idle pollers serve the first VCI only.
            let policy = policy.without_idle_pollers();
            let mut worker =
                opened.worker(&job, (&card, Gateways::default()), &modex, host, &contexts)?;
            agreements.push(Agreements::new(&mut worker.engine));
            progress.new_sibling(worker, policy).map_err(|error| error.to_string())
        };
        let later_vcis =
            later_vcis.into_iter().map(&mut begin).collect::<Result<Vec<_>, String>>()?;
        if modex.vcis > 1 {
            let all: Vec<&Progress> =
                std::iter::once(&progress).chain(&later_vcis).map(|it| &**it).collect();
            Progress::set_siblings(&all);
        }
        info!(
            size = job.size(),
            nodes = modex.sites.nodes(),
            sites = modex.sites.sites(),
            vcis = modex.vcis,
            "has joined its job"
        );
        let node_identity = node_identity();
        let next_context = AtomicU32::new(context::FIRST_DRAWN);
        let name_context = OnceLock::new();
        let rule = EncryptionRule::of_settings()?;
        let known = Mutex::new(KnownPeers::of(&job, &modex, card, rule));
        Ok(Self {
            job,
            progress,
            later_vcis,
            node_identity,
            modex,
            known,
            link_sites,
            connections: Mutex::default(),
            contexts,
            name_context,
            next_context,
            agreements,
        })
    }

    /// Adds what a further interface knows of the contexts that it has drawn.
    pub(crate) fn set_contexts(&self, contexts: Contexts) {
        self.contexts.get_or_init(|| contexts);
    }

    /// Adds the names of contexts that a further interface has drawn.
    pub(crate) fn set_name_context(&self, name: NameContext) {
        self.name_context.get_or_init(|| name);
    }

    /// Name of the communicator that a context belongs to.
    pub(crate) fn context_name(&self, context: u64) -> String {
        let name = self.name_context.get().and_then(|name| name(context));
        name.unwrap_or_else(|| "an unnamed communicator".into())
    }

    /// Processes that exchange messages of a context, if it is known.
    pub(crate) fn members_of(&self, context: u64) -> Option<Vec<PeerId>> {
        let collective = context | context::COLLECTIVES;
        self.contexts.get().and_then(|contexts| (contexts.members)(collective, self.own_peer()))
    }

    /// Ends communication: messages in flight arrive, all remaining processes of the job meet, and the launcher is
    /// notified.
    ///
    /// # Errors
    /// The launcher has failed.
    pub fn end(&self) -> Result<()> {
        let failed = |error: boot::BootError| Error(error.to_string());
        if let Some(counted) = record::counted(self.site(self.own_peer())) {
            self.job.publish(boot::TRAFFIC_KEY, &counted).map_err(failed)?;
        }
        self.settle();
        self.part_from_others();
        // Other jobs may have ended, as they should.
        let of_job = |peer: &PeerId| peer.0 < self.size();
        let first_failed = |worker: &mut Worker| worker.engine.first_failed().filter(of_job);
        match self.all().any(|vci| vci.look(first_failed).is_some()) {
            true => self.meet_survivors(),
            false => self.job.fence(),
        }
        .map_err(failed)?;
        self.close();
        self.progress.end_threads();
        self.job.finalize().map_err(failed)
    }

    /// Lets messages in flight arrive.
    pub(crate) fn settle(&self) {
        for vci in self.all() {
            let quiet = |worker: &mut Worker| worker.is_quiet().then_some(());
            if vci.wait_for(REPORT_PATIENCE, quiet).is_none() {
                let quiet = |worker: &mut Worker| worker.is_quiet_but_for_revoked().then_some(());
                vci.wait_for(FINALIZE_PATIENCE, quiet);
            }
        }
    }

    /// Meets the other processes after a failure. Some may wait for a message of this process because of it: they
    /// continue once this process is gone. It goes when those that only have to read its last messages have done so.
    fn meet_survivors(&self) -> Result<(), boot::BootError> {
        thread::scope(|scope| {
            let (met, waits) = mpsc::channel::<()>();
            let leave = move || {
                if waits.recv_timeout(REPORT_PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    self.close();
                }
            };
            let spawned = cpu::without_signals(|| {
                thread::Builder::new().name("canele-finalize".into()).spawn_scoped(scope, leave)
            });
            if spawned.is_err() {
                self.close();
            }
            let fence = self.job.fence();
            drop(met);
            fence
        })
    }

    fn close(&self) {
        self.all().for_each(|vci| vci.look(Worker::close));
    }

    /// Ends the whole job with `code`; returns if the launcher cannot.
    pub fn abort(&self, code: i32) {
        if self.job.abort(code) {
            // The launcher ends this process with the others.
            std::thread::sleep(ABORT_PATIENCE);
        }
    }

    /// Draws a context number that no other process draws. Once this process knows processes of other jobs, the number is
    /// random.
    pub fn draw_context(&self) -> u64 {
        self.draw_context_between_jobs(self.knows_other_jobs())
    }

    /// [`Instance::draw_context`], for processes of several jobs if `is_mixed`.
    pub fn draw_context_between_jobs(&self, is_mixed: bool) -> u64 {
        match is_mixed || self.knows_other_jobs() {
            true => context::drawn_at_random(),
            false => {
                context::number(self.rank(), self.next_context.fetch_add(1, Ordering::Relaxed))
            }
        }
    }

    /// Rank in the job.
    pub fn rank(&self) -> u32 {
        self.job.rank()
    }

    /// Number of processes in the job.
    pub fn size(&self) -> u32 {
        self.job.size()
    }

    /// The peer of a rank of the job. The peers of the job have the first numbers, in order of rank.
    pub fn peer(&self, rank: u32) -> Option<PeerId> {
        (rank < self.size()).then_some(PeerId(rank))
    }

    /// The peers of the job, in order of rank.
    pub fn job_peers(&self) -> impl Iterator<Item = PeerId> {
        (0..self.size()).map(PeerId)
    }

    /// The processes whose contacts are known.
    pub(crate) fn known(&self) -> MutexGuard<'_, KnownPeers> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sites of peers, for the encryption of links.
    pub(crate) fn link_sites(&self) -> &Arc<LinkSites> {
        &self.link_sites
    }

    /// Number of communicators with processes of each other job.
    pub(crate) fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if this process knows processes of other jobs.
    pub fn knows_other_jobs(&self) -> bool {
        self.known().has_others()
    }

    /// Values that all processes of the job have.
    pub(crate) fn modex(&self) -> &Modex {
        &self.modex
    }

    /// Facts about the contexts that interfaces have drawn.
    pub(crate) fn contexts(&self) -> &Arc<OnceLock<Contexts>> {
        &self.contexts
    }

    /// This process as a peer.
    pub fn own_peer(&self) -> PeerId {
        PeerId(self.rank())
    }

    /// The rank of a peer of the job.
    pub fn job_rank(&self, peer: PeerId) -> u32 {
        peer.0
    }

    /// The name of a peer in messages.
    pub fn peer_name(&self, peer: PeerId) -> PeerName {
        self.progress.look(|worker| worker.peer_name(peer))
    }

    /// True if a peer is of this process's job.
    #[inline]
    pub fn is_of_job(&self, peer: PeerId) -> bool {
        peer.0 < self.size()
    }

    /// The node of a peer of the job.
    pub fn node(&self, peer: PeerId) -> u32 {
        self.modex.sites.node(self.job_rank(peer))
    }

    /// The site of a peer of the job.
    pub fn site(&self, peer: PeerId) -> u32 {
        self.modex.sites.site(self.job_rank(peer))
    }

    /// The job as described by the launcher.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The job, for what outlives a call.
    pub(crate) fn shared_job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Progress engine of the first VCI, which also carries everything without a communicator.
    #[inline]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Progress engine of a VCI.
    #[inline]
    pub fn vci(&self, vci: Vci) -> &Arc<Progress> {
        if vci == Vci::FIRST { &self.progress } else { self.later_vci(vci) }
    }

    /// Agreements of a VCI.
    pub fn agreements(&self, vci: Vci) -> &Arc<Agreements> {
        &self.agreements[vci.number()]
    }

    /// Progress engine of a VCI other than the first; out of line, because it is rare.
    #[inline(never)]
    fn later_vci(&self, vci: Vci) -> &Arc<Progress> {
        &self.later_vcis[vci.number() - 1]
    }

    /// Number of VCIs, the same on all processes.
    #[inline]
    pub fn vcis(&self) -> usize {
        1 + self.later_vcis.len()
    }

    /// Returns the VCI of a communicator from its context and processes, the same on all of them.
    pub fn vci_of(&self, context: u64, mut peers: impl Iterator<Item = PeerId>) -> Vci {
        let (count, here) = (self.vcis(), self.site(self.own_peer()));
        let is_far = |peer| !self.is_of_job(peer) || self.site(peer) != here;
        if count == 1 || peers.any(is_far) {
            return Vci::FIRST;
        }
        // Above the bits that tell the messages of one communicator from each other.
        Vci::numbered((context >> 2) as usize & (count - 1))
    }

    /// Progress engines of all VCIs.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Progress> {
        std::iter::once(&*self.progress).chain(self.later_vcis.iter().map(|vci| &**vci))
    }

    /// Counters of all VCIs.
    pub fn counters(&self) -> (progress::Counters, engine::Counters) {
        let counted = |worker: &mut Worker| (worker.counters(), worker.engine.counters());
        let first = self.progress.look(counted);
        let later = self.later_vcis.iter().map(|vci| vci.look(counted));
        later.fold(first, |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Waits in several VCIs for what any of them may bring; see [`Progress::wait`].
    #[inline(always)]
    pub fn wait_in<T>(
        &self,
        vcis: VciSet,
        mut ready: impl FnMut(Vci, &mut Worker) -> Option<T>,
    ) -> T {
        if let Some(vci) = vcis.only() {
            return self.vci(vci).wait(|worker| ready(vci, worker));
        }
        let first: &Progress = &self.progress;
        let (mut all, mut count) = ([(Vci::FIRST, first); vci::VCIS_MAX], 0);
        for vci in vcis.iter() {
            all[count] = (vci, self.vci(vci));
            count += 1;
        }
        let of = all.map(|(_, progress)| progress);
        Progress::wait_in_any(&of[..count], |index, worker| ready(all[index].0, worker))
    }

    /// True if the whole job is on one node with more ranks than cores; the same on all processes.
    pub fn is_oversubscribed(&self) -> bool {
        self.modex.is_oversubscribed
    }

    /// Nodes and sites of the job's ranks, the same on all processes.
    #[inline]
    pub fn sites(&self) -> &SiteMap {
        &self.modex.sites
    }

    /// Algorithms that the user chose for some collectives, the same on all processes.
    #[inline]
    pub fn plans(&self) -> &Arc<plan::Plans> {
        &self.modex.plans
    }

    /// Predicted costs of messages, the same on all processes.
    #[inline]
    pub fn costs(&self) -> &plan::Costs {
        &self.modex.costs
    }

    /// Predicted costs between pairs of sites, by their numbers in the site map.
    pub fn pairs(&self) -> &plan::Pairs {
        &self.modex.pairs
    }

    /// Identity of the node: equal exactly in processes that share memory with this one.
    pub fn node_identity(&self) -> &[u8] {
        &self.node_identity
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.progress.end_threads();
    }
}

/// Prints unknown variables on standard error, unless our `mpiexec` has already done so.
fn report_unknown_settings() {
    for variable in settings::unknown_here() {
        // A message that nobody can read is lost.
        let _ = writeln!(std::io::stderr(), "canele: rank 0: {variable}");
    }
}

/// Opens the rails of the additional VCIs and publishes their addresses.
fn open_later_vcis(
    job: &Job,
    modex: &Modex,
    locality: &Locality,
    (sites, costs): (&Arc<LinkSites>, &Arc<dyn CostStore>),
) -> Result<Vec<(Opened, String)>, String> {
    if modex.vcis == 1 {
        return Ok(Vec::new());
    }
    // Additional VCIs do not connect to other sites, unless the user names their rails.
    let rails = if settings::RAILS.given().is_some() { wanted_rails() } else { "shm,tcp".into() };
    let open = |vci: usize| {
        let card = format!("{CARD}-{vci}");
        // Rails that could not be opened were told of with those of the first VCI.
        let opened = open_rails(job, &rails, sites, costs)?;
        let bytes = make_card(&opened.rails, locality, &Gateways::default());
        job.publish(&card, &bytes).map_err(|error| error.to_string())?;
        Ok((opened, card))
    };
    let later_vcis = (1..modex.vcis).map(open).collect::<Result<_, String>>()?;
    job.fence().map_err(|error| error.to_string())?;
    Ok(later_vcis)
}

/// Returns the waiting policy of threads. If the launcher does not provide the number of ranks on this node, all
/// ranks are assumed to be here.
fn policy(job: &Job) -> Policy {
    let ranks = job.local_ranks().unwrap_or(job.size() as usize);
    Policy::for_node(ranks, boot::node_cores()).bound_to(boot::own_cores())
}

/// The waiting policy, without idle pollers if the user disables them.
fn idle_pollers(policy: Policy) -> Result<Policy, String> {
    let wanted = settings::IDLE_CORES.text();
    match wanted.trim() {
        "auto" => Ok(policy),
        "leave" => Ok(policy.without_idle_pollers()),
        _ => {
            let variable = settings::IDLE_CORES.variable();
            Err(format!("{variable}={wanted}: `auto` or `leave` is needed"))
        }
    }
}

/// Time limit of finalisation for a peer to receive all data sent to it.
const FINALIZE_PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for connecting to a peer only to report another's failure, which other processes report as well. Longer
/// than opening a link takes with one lost packet.
const REPORT_PATIENCE: Duration = Duration::from_secs(3);

/// Time that an aborting process waits for the launcher to end it.
const ABORT_PATIENCE: Duration = Duration::from_secs(2);
