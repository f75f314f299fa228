//! This process in its job: from initialisation to finalisation (MPI-5.0 §11.2).
//!
//! The process joins its job once and leaves it once, however many interfaces of the library it uses:
//! the first that is initialised joins, the last that is finalised leaves.

use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

use boot::Job;
use cards::{CARD, gateways, locality, locality_of, publish_card};
use lock::Uncancelled;
use progress::{Policy, Progress, Worker};
use rail_shm::node_identity;
pub(crate) use rails::wanted_rails;
use rails::{Opened, open_rails};
use relay::Gateways;
use topo::sites::{Locality, SiteMap};

use crate::comm::Comm;
use crate::modex::{self, Modex};
use crate::vci::{self, Vci};
use crate::{Error, ErrorClass, Result, record};

mod cards;
mod rails;

/// Level of thread support (MPI-5.0 §11.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// The process has one thread.
    Single,
    /// Only the thread that initialised MPI calls it.
    Funneled,
    /// One thread calls at a time.
    Serialized,
    /// Any thread calls at any time.
    Multiple,
}

/// State of an initialised process.
pub struct Process {
    rank: u32,
    size: u32,
    job: Arc<Job>,
    progress: Arc<Progress>,
    /// VCIs after the first.
    later_vcis: Vec<Arc<Progress>>,
    world: Comm,
    myself: Comm,
    node_identity: Vec<u8>,
    modex: Modex,
    level: ThreadLevel,
    main_thread: ThreadId,
}

impl Process {
    /// Rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes in the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Progress engine of the first VCI, which also carries everything without a communicator.
    #[inline]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Progress engine of a VCI.
    #[inline]
    pub fn vci(&self, vci: Vci) -> &Progress {
        if vci == Vci::FIRST { &self.progress } else { self.later_vci(vci) }
    }

    /// Progress engine of a VCI other than the first; out of line, because it is rare.
    #[inline(never)]
    fn later_vci(&self, vci: Vci) -> &Progress {
        &self.later_vcis[vci.number() - 1]
    }

    /// Number of VCIs, the same on all processes.
    #[inline]
    pub fn vcis(&self) -> usize {
        1 + self.later_vcis.len()
    }

    /// Progress engines of all VCIs.
    fn all(&self) -> impl Iterator<Item = &Progress> {
        std::iter::once(&*self.progress).chain(self.later_vcis.iter().map(|vci| &**vci))
    }

    /// `MPI_COMM_WORLD`.
    #[inline]
    pub fn world(&self) -> &Comm {
        &self.world
    }

    /// `MPI_COMM_SELF`.
    pub fn myself(&self) -> &Comm {
        &self.myself
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

    /// Level of thread support.
    pub fn level(&self) -> ThreadLevel {
        self.level
    }

    /// True if the calling thread initialised MPI.
    pub fn is_main_thread(&self) -> bool {
        std::thread::current().id() == self.main_thread
    }

    /// The job as described by the launcher.
    pub fn job(&self) -> &Job {
        &self.job
    }
}

/// The initialised process.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, after finalisation, and in processes forked from one that is
/// initialised.
#[inline]
pub fn current() -> Result<&'static Process> {
    match (STATE.load(Ordering::Acquire), PROCESS.get()) {
        (LEAVING.., Some(process)) => Ok(process),
        (FORKED, _) => Err(forked()),
        (FINALIZED, _) => Err(Error::new(ErrorClass::Other, "called after MPI_Finalize")),
        _ => Err(Error::new(ErrorClass::Other, "called before MPI_Init")),
    }
}

/// True once initialisation has completed.
pub fn is_initialized() -> bool {
    matches!(STATE.load(Ordering::Acquire), ACTIVE | FINALIZED | FORKED)
}

/// True once finalisation has completed. True in forked processes, so that they do not finalise.
pub fn is_finalized() -> bool {
    matches!(STATE.load(Ordering::Acquire), FINALIZED | FORKED)
}

/// Fails in a process forked from one that has joined its job. Takes no lock, because another thread may have
/// held it at the fork.
///
/// # Errors
/// `MPI_ERR_OTHER` in such a process.
#[inline]
pub fn refuse_forked() -> Result<()> {
    if STATE.load(Ordering::Relaxed) == FORKED { Err(forked()) } else { Ok(()) }
}

#[cold]
fn forked() -> Error {
    let text = "called in a forked process, which has no part in the job: \
        its parent may call, or a program it executes";
    Error::new(ErrorClass::Other, text)
}

/// Initialises MPI in this process. Grants the requested level of thread support, or a higher one if the process
/// has already joined its job.
///
/// # Errors
/// A second call, and those of [`join`].
pub fn initialize(level: ThreadLevel) -> Result<&'static Process> {
    refuse_forked()?;
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(|poison| poison.into_inner());
    match STATE.load(Ordering::Acquire) {
        NEW => {}
        FINALIZED => return Err(Error::new(ErrorClass::Other, "MPI_Init after MPI_Finalize")),
        _ => return Err(Error::new(ErrorClass::Other, "MPI_Init called twice")),
    }
    let process = join(level)?;
    STATE.store(ACTIVE, Ordering::Release);
    Ok(process)
}

/// Ends MPI in this process.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, and those of [`leave`].
pub fn finalize() -> Result<()> {
    current()?;
    leave()?;
    STATE.store(FINALIZED, Ordering::Release);
    Ok(())
}

/// Counters of this process, once it has joined its job.
pub fn counters() -> Option<(progress::Counters, engine::Counters)> {
    let counted = |worker: &mut Worker| (worker.counters(), worker.engine.counters());
    let all = PROCESS.get()?.all().map(|vci| vci.look(counted));
    all.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Counts one more user of this process's communication. The first joins the job, opens the rails and
/// publishes their addresses.
///
/// # Errors
/// The process has left its job or was forked, the launcher is not supported, or the system lacks a resource.
/// The text says what to do.
pub fn join(level: ThreadLevel) -> Result<&'static Process> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    let mut users = users();
    if *users == 0 && PROCESS.get().is_some() {
        let message = "the process has left its job; it cannot join again";
        return Err(Error::new(ErrorClass::Other, message));
    }
    let process = match PROCESS.get() {
        Some(process) => process,
        None => {
            let process = start(level)?;
            rail::tell_forked(have_forked);
            PROCESS.get_or_init(|| process)
        }
    };
    *users += 1;
    Ok(process)
}

/// Counts one user less. The last one ends communication: all remaining processes meet in a barrier, messages in
/// flight arrive, and the launcher is notified.
///
/// # Errors
/// No user is left, the process was forked, or the launcher has failed.
pub fn leave() -> Result<()> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    let mut users = users();
    let process = match (PROCESS.get(), *users) {
        (Some(process), 1..) => process,
        _ => return Err(Error::new(ErrorClass::Other, "the process is in no job")),
    };
    if *users == 1 {
        let before = STATE.load(Ordering::Acquire);
        // The barrier is a collective, whose code requires an initialised process.
        STATE.store(before.max(LEAVING), Ordering::Release);
        let left = part(process);
        STATE.store(before, Ordering::Release);
        left?;
    }
    *users -= 1;
    Ok(())
}

fn part(process: &Process) -> Result<()> {
    let failed = |error: boot::BootError| Error::new(ErrorClass::Other, error.to_string());
    if let Some(counted) = record::counted(process.sites().site(process.rank)) {
        process.job.publish(boot::TRAFFIC_KEY, &counted).map_err(failed)?;
    }
    let has_met = meet(process);
    for vci in process.all() {
        let quiet = |worker: &mut Worker| worker.is_quiet().then_some(());
        if vci.wait_for(REPORT_PATIENCE, quiet).is_none() {
            let quiet = |worker: &mut Worker| worker.is_quiet_but_for_revoked().then_some(());
            vci.wait_for(FINALIZE_PATIENCE, quiet);
        }
    }
    if !has_met? {
        // Other processes wait for this process, and continue once it is gone.
        process.all().for_each(|vci| vci.look(Worker::close));
    }
    process.job.fence().map_err(failed)?;
    process.all().for_each(|vci| vci.look(Worker::close));
    process.job.finalize().map_err(failed)
}

/// Runs a barrier of all processes of the job; false if one has failed, which the others learn too.
fn meet(process: &Process) -> Result<bool> {
    let world = &process.world;
    // The first partners of the barrier may have to be connected before it starts.
    let known =
        process.later_vcis.iter().find_map(|vci| vci.look(|worker| worker.engine.first_failed()));
    let failed = process.progress.submit(|worker| {
        let failed = worker.engine.first_failed().or(known);
        failed.inspect(|failed| worker.revoke_context(world.collective_context(), *failed))
    });
    if failed.is_some() {
        return Ok(false);
    }
    match crate::collective::barrier(world) {
        Err(error) if error.class == ErrorClass::ProcAborted => Ok(false),
        met => met.map(|()| true),
    }
}

fn users() -> MutexGuard<'static, u32> {
    static USERS: Mutex<u32> = Mutex::new(0);
    USERS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Ends the job with `code`, without returning; a forked process ends only itself.
pub fn abort(code: i32) -> ! {
    let _uncancelled = Uncancelled::begin();
    if let Some(process) = PROCESS.get()
        && refuse_forked().is_ok()
        && process.job.abort(code)
    {
        // The launcher ends this process with the others; if it cannot, we end ourselves.
        std::thread::sleep(ABORT_PATIENCE);
    }
    std::process::exit(if code == 0 { 1 } else { code })
}

/// Runs in a forked process before anything else.
extern "C" fn have_forked() {
    STATE.store(FORKED, Ordering::Relaxed);
}

fn start(level: ThreadLevel) -> Result<Process> {
    let job = Job::join().map_err(|error| Error::new(ErrorClass::Other, error.to_string()))?;
    let (rank, size) = (job.rank(), job.size());
    let failed = |text: String| Error::new(ErrorClass::Other, text);
    if rank == 0 {
        report_unknown_settings();
    }
    crate::check::validate().map_err(failed)?;
    let known_sites = Arc::new(OnceLock::new());
    let policy = idle_pollers(policy(size)).map_err(failed)?;
    let own_vcis = vci::wanted(level, &policy).map_err(failed)?;
    let opened = open_rails(&job, &wanted_rails(), &known_sites).map_err(failed)?;
    let locality = locality(&opened.networks).map_err(failed)?;
    let gateways = gateways().map_err(failed)?;
    publish_card(&job, CARD, &opened, &locality, &gateways).map_err(failed)?;
    let host = topo::cache::host_cost(topo::Cache::of_environment().as_ref());
    modex::publish_own(&job, &locality, &host, own_vcis).map_err(failed)?;
    job.fence().map_err(|error| failed(error.to_string()))?;
    let modex = modex::exchange(&job, &locality, own_vcis, |rank| locality_of(&job, rank))
        .map_err(failed)?;
    known_sites.get_or_init(|| modex.sites.clone());
    let later_vcis = open_later_vcis(&job, &modex, &locality, &known_sites).map_err(failed)?;
    let job = Arc::new(job);
    let policy = policy.woken_in(Duration::from_nanos(host.wake_ns));
    let shares_machine = modex.is_oversubscribed && modex.sites.nodes() > 1;
    let policy = if shares_machine { policy.among_nodes() } else { policy };
    let policy = policy.in_vcis(modex.vcis);
    let worker = opened.worker(&job, (CARD, gateways), &modex).map_err(failed)?;
    let progress = Progress::new(worker, policy).map_err(|error| failed(error.to_string()))?;
    let begin = |(opened, card): (Opened, String)| {
        // Idle pollers serve the first VCI only.
        let policy = policy.without_idle_pollers();
        let worker = opened.worker(&job, (&card, Gateways::default()), &modex).map_err(failed)?;
        progress.new_sibling(worker, policy).map_err(|error| failed(error.to_string()))
    };
    let later_vcis = later_vcis.into_iter().map(begin).collect::<Result<Vec<_>>>()?;
    if modex.vcis > 1 {
        let all: Vec<&Progress> =
            std::iter::once(&progress).chain(&later_vcis).map(|it| &**it).collect();
        Progress::set_siblings(&all);
    }
    Ok(Process {
        rank,
        size,
        job,
        progress,
        later_vcis,
        world: Comm::world(rank, size),
        myself: Comm::myself(rank),
        node_identity: node_identity(),
        modex,
        level,
        main_thread: std::thread::current().id(),
    })
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
    sites: &Arc<OnceLock<SiteMap>>,
) -> Result<Vec<(Opened, String)>, String> {
    if modex.vcis == 1 {
        return Ok(Vec::new());
    }
    // Additional VCIs do not connect to other sites, unless the user names their rails.
    let rails = if settings::RAILS.given().is_some() { wanted_rails() } else { "shm,tcp".into() };
    let open = |vci: usize| {
        let card = format!("{CARD}-{vci}");
        let opened = open_rails(job, &rails, sites)?;
        publish_card(job, &card, &opened, locality, &Gateways::default())?;
        Ok((opened, card))
    };
    let later_vcis = (1..modex.vcis).map(open).collect::<Result<_, String>>()?;
    job.fence().map_err(|error| error.to_string())?;
    Ok(later_vcis)
}

/// Returns the waiting policy of threads. If the launcher does not provide the number of ranks on this node, all
/// ranks are assumed to be here.
fn policy(size: u32) -> Policy {
    let ranks = boot::local_ranks().unwrap_or(size as usize);
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

/// States of MPI in this process, whatever other interfaces do.
const NEW: u8 = 0;
const FINALIZED: u8 = 1;
/// A process forked from one in its job.
const FORKED: u8 = 2;
/// Not initialised, while the last interface leaves the job.
const LEAVING: u8 = 3;
const ACTIVE: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(NEW);
static PROCESS: OnceLock<Process> = OnceLock::new();
