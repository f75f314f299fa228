//! This process in its job: from initialisation to finalisation (MPI-5.0 §11.2).
//!
//! The process joins its job once and leaves it once, however many interfaces of the library it uses:
//! the first that is initialised joins, the last that is finalised leaves.

use std::borrow::Cow;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

use boot::Job;
use driver::{
    Congestion, Encryption, Gateways, Identity, LoopbackRail, QuicConfig, QuicRail, Rail,
    ShmConfig, ShmRail, TcpConfig, TcpNetworks, TcpRail, WanTcp, machine_identity, node_identity,
};
use engine::{Config, Engine};
use lock::Uncancelled;
use progress::{Directory, Policy, Progress, Worker};
use topo::sites::{Locality, Network, SiteMap};
use wire::PeerId;

use crate::comm::{self, Comm};
use crate::modex::{self, Modex, QuicFirst};
use crate::vci::{self, Vci};
use crate::{Error, ErrorClass, Result, record, strategy};

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
    beside: Vec<Arc<Progress>>,
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
        if vci == Vci::FIRST { &self.progress } else { self.vci_beside(vci) }
    }

    /// Progress engine of a VCI other than the first; out of line, because it is rare.
    #[inline(never)]
    fn vci_beside(&self, vci: Vci) -> &Progress {
        &self.beside[vci.number() - 1]
    }

    /// Number of VCIs, the same on all processes.
    #[inline]
    pub fn vcis(&self) -> usize {
        1 + self.beside.len()
    }

    /// Progress engines of all VCIs.
    fn all(&self) -> impl Iterator<Item = &Progress> {
        std::iter::once(&*self.progress).chain(self.beside.iter().map(|vci| &**vci))
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
            driver::tell_forked(have_forked);
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
        if vci.wait_for(WORD_PATIENCE, quiet).is_none() {
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
        process.beside.iter().find_map(|vci| vci.look(|worker| worker.engine.first_failed()));
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
    let home = home(&opened.networks).map_err(failed)?;
    let gateways = gateways().map_err(failed)?;
    publish_card(&job, CARD, &opened, &home, &gateways).map_err(failed)?;
    let host = topo::cache::host_cost(topo::Cache::of_environment().as_ref());
    modex::publish_own(&job, &home, &host, own_vcis).map_err(failed)?;
    job.fence().map_err(|error| failed(error.to_string()))?;
    let modex =
        modex::exchange(&job, &home, own_vcis, |rank| home_of(&job, rank)).map_err(failed)?;
    known_sites.get_or_init(|| modex.sites.clone());
    let beside = open_beside(&job, &modex, &home, &known_sites).map_err(failed)?;
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
    let beside = beside.into_iter().map(begin).collect::<Result<Vec<_>>>()?;
    if modex.vcis > 1 {
        let all: Vec<&Progress> =
            std::iter::once(&progress).chain(&beside).map(|it| &**it).collect();
        Progress::set_siblings(&all);
    }
    Ok(Process {
        rank,
        size,
        job,
        progress,
        beside,
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

/// Rails of a process.
struct Opened {
    /// Rails in order of preference.
    rails: Vec<Box<dyn Rail>>,
    /// Groups of rails that carry messages to one peer together.
    teams: Vec<Vec<String>>,
    /// Networks that the rails over TCP serve.
    networks: TcpNetworks,
}

impl Opened {
    /// Makes the worker that communicates over these rails with processes that published a card of the same name.
    fn worker(
        self,
        job: &Arc<Job>,
        (card, gateways): (&str, Gateways),
        modex: &Modex,
    ) -> Result<Worker, String> {
        let Self { rails, teams, networks } = self;
        let (rank, size) = (PeerId(job.rank()), job.size() as usize);
        let own = rails.iter().map(|rail| (rail.name().to_owned(), rail.address())).collect();
        let directory = Box::new(Cards {
            job: Arc::clone(job),
            card: card.to_owned(),
            own,
            networks,
            gateways,
            sites: modex.sites.clone(),
            quic_first: modex.quic_first.clone(),
            barred: Vec::new(),
        });
        let strategy = strategy::of_environment()?;
        let number = |setting: &settings::Setting| setting.number().map_err(|it| it.to_string());
        let budget_bytes = number(&settings::UNMATCHED_BYTES)? as usize / modex.vcis;
        let patience_ns = number(&settings::LINK_PATIENCE)?.saturating_mul(1_000_000_000);
        let host = topo::cache::host_cost(topo::Cache::of_environment().as_ref());
        let usual = Config::new(size);
        let mut engine = Engine::new(Config { budget_bytes, patience_ns, host, strategy, ..usual });
        record::begin(&mut engine, job);
        let worker = Worker::new(engine, rank, size, rails, directory);
        let join = |worker: Worker, team: &Vec<String>| {
            worker.with_team(&team.iter().map(String::as_str).collect::<Vec<_>>())
        };
        Ok(teams.iter().fold(worker, join))
    }
}

/// Opens the rails of the additional VCIs and publishes their addresses.
fn open_beside(
    job: &Job,
    modex: &Modex,
    home: &Locality,
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
        publish_card(job, &card, &opened, home, &Gateways::default())?;
        Ok((opened, card))
    };
    let beside = (1..modex.vcis).map(open).collect::<Result<_, String>>()?;
    job.fence().map_err(|error| error.to_string())?;
    Ok(beside)
}

/// Publishes the business card of this process: the addresses of some rails, and its locality.
fn publish_card(
    job: &Job,
    name: &str,
    opened: &Opened,
    home: &Locality,
    gateways: &Gateways,
) -> Result<(), String> {
    let mut card = Vec::new();
    for rail in &opened.rails {
        append(&mut card, rail.name().as_bytes());
        append(&mut card, &rail.address());
    }
    append(&mut card, HOME.as_bytes());
    append(&mut card, &home.emit());
    append(&mut card, GATEWAYS.as_bytes());
    append(&mut card, &gateways.publish());
    job.publish(name, &card).map_err(|error| error.to_string())
}

/// Opens these rails of this process. Settings restrict the networks. `sites` is set before the first link opens
/// and says which links cross sites.
fn open_rails(job: &Job, wanted: &str, sites: &Arc<OnceLock<SiteMap>>) -> Result<Opened, String> {
    let rank = PeerId(job.rank());
    let own = LoopbackRail::new(rank).map_err(|error| format!("rail self: {error}"))?;
    let mut opened =
        Opened { rails: vec![Box::new(own)], teams: Vec::new(), networks: TcpNetworks::default() };
    if job.size() == 1 {
        return Ok(opened);
    }
    let variable = settings::RAILS.variable();
    for team in wanted.split(',') {
        let names: Vec<_> = team.split('+').map(|name| name.trim().to_owned()).collect();
        for name in &names {
            let is_open = opened.rails.iter().skip(1).any(|rail| rail.name() == name);
            match name.as_str() {
                _ if is_open => return Err(format!("{variable}={wanted}: `{name}` twice")),
                "shm" => opened.rails.push(open_shm(job)?),
                "tcp" => opened.networks = open_tcp(job, sites, &mut opened.rails)?,
                "quic" => open_quic(job, &mut opened.rails)?,
                "self" | "" => {}
                other => {
                    return Err(format!("{variable}={wanted}: no rail `{other}` (shm, tcp, quic)"));
                }
            }
        }
        if names.len() > 1 {
            opened.teams.push(names);
        }
    }
    Ok(opened)
}

/// Returns the rails to open: those that the user names, or all useful ones. A process with a site name also opens
/// QUIC, because a firewall between sites may pass UDP but not TCP. QUIC comes first if TCP restarts its
/// congestion window after each idle period; QUIC does not.
pub(crate) fn wanted_rails() -> Cow<'static, str> {
    match (settings::RAILS.given(), settings::SITE.given()) {
        (Some(given), _) => given.to_string_lossy(),
        (None, None) => "shm,tcp".into(),
        (None, Some(_)) if WanTcp::has_bbr() || settings::CONGESTION.given().is_some() => {
            "shm,tcp,quic".into()
        }
        (None, Some(_)) => "shm,quic,tcp".into(),
    }
}

/// Returns the addresses of a business card in the order in which both processes try them; `own` is this process's
/// order of rails. QUIC goes before TCP if either process or the modex (for this pair of sites) says so.
fn agree(own: &[(String, Vec<u8>)], addresses: &mut [(String, Vec<u8>)], is_quic_first: bool) {
    let place =
        |list: &[(String, Vec<u8>)], rail: &str| list.iter().position(|(name, _)| name == rail);
    let (Some(quic), Some(tcp)) = (place(addresses, "quic"), place(addresses, "tcp")) else {
        return;
    };
    let is_first_here = place(own, "quic") < place(own, "tcp");
    if (is_first_here || is_quic_first) && quic > tcp {
        addresses[tcp..=quic].rotate_right(1);
    }
}

/// Opens the rail over shared memory.
fn open_shm(job: &Job) -> Result<Box<dyn Rail>, String> {
    let config = ShmConfig { rank: PeerId(job.rank()), job: u128::from(job.id()).to_le_bytes() };
    let rail = ShmRail::new(config).map_err(|error| format!("rail shm: {error}"))?;
    Ok(Box::new(rail))
}

/// Opens the rail over TCP, and one more for each further network.
fn open_tcp(
    job: &Job,
    sites: &Arc<OnceLock<SiteMap>>,
    rails: &mut Vec<Box<dyn Rail>>,
) -> Result<TcpNetworks, String> {
    let config = TcpConfig {
        interface: interface(),
        connect_timeout: CONNECT_TIMEOUT,
        encryption: encryption(job, sites)?,
        congestion: congestion(),
        ..TcpConfig::new(PeerId(job.rank()), job.id(), *job.secret().expose())
    };
    let rail = TcpRail::new(config.clone()).map_err(|error| format!("rail tcp: {error}"))?;
    rails.push(Box::new(rail));
    let networks = TcpNetworks::find(config.interface.as_deref()).unwrap_or_default();
    for network in networks.all().iter().skip(1) {
        // A network without a listener is left out: the first rail reaches every peer.
        if let Ok(rail) = TcpRail::on(network, config.clone()) {
            rails.push(Box::new(rail));
        }
    }
    Ok(networks)
}

/// Congestion control of connections.
fn congestion() -> Congestion {
    match settings::CONGESTION.text().trim() {
        "auto" => Congestion::Auto,
        name => Congestion::Named(name.to_owned()),
    }
}

/// Returns the links to encrypt: those between sites, unless the setting says otherwise. The rank in a hello may be
/// out of range, because it is not authenticated yet.
fn encryption(job: &Job, sites: &Arc<OnceLock<SiteMap>>) -> Result<Encryption, String> {
    let wanted = settings::ENCRYPT.text();
    match wanted.trim() {
        "sites" => {
            let (sites, own, size) = (Arc::clone(sites), job.rank(), job.size());
            let is_here =
                move |peer: u32, map: &SiteMap| peer < size && map.site(peer) == map.site(own);
            let covers = move |peer: PeerId| !sites.get().is_some_and(|map| is_here(peer.0, map));
            Ok(Encryption::Some(Arc::new(covers)))
        }
        "all" => Ok(Encryption::All),
        "none" => Ok(Encryption::None),
        _ => {
            let variable = settings::ENCRYPT.variable();
            Err(format!("{variable}={wanted}: `sites`, `all` or `none` is needed"))
        }
    }
}

/// Opens the rail over UDP, preceded by a second one whose links overtake the first's (`QuicConfig::passes`).
fn open_quic(job: &Job, rails: &mut Vec<Box<dyn Rail>>) -> Result<(), String> {
    let config = QuicConfig {
        rank: PeerId(job.rank()),
        job: job.id(),
        identity: Identity::of(job.secret().expose(), job.id()),
        interface: interface(),
        connect_timeout: CONNECT_TIMEOUT,
        passes: true,
    };
    for config in [config.clone(), QuicConfig { passes: false, ..config }] {
        let rail = QuicRail::new(config).map_err(|error| format!("rail quic: {error}"))?;
        rails.push(Box::new(rail));
    }
    Ok(())
}

/// The networks that the user allows.
fn interface() -> Option<String> {
    settings::IFACE.given().map(|given| given.to_string_lossy().into_owned())
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

/// Locality of this process.
fn home(rails: &TcpNetworks) -> Result<Locality, String> {
    let site = settings::SITE.given().map(|name| name.to_string_lossy().into_owned());
    if let Some(name) = site.as_deref().filter(|name| !(1..=SITE_NAME_MAX).contains(&name.len())) {
        let variable = settings::SITE.variable();
        return Err(format!(
            "{variable}={name}: the name of a site has 1 to {SITE_NAME_MAX} bytes"
        ));
    }
    let found;
    let networks = match rails.all() {
        // Hosts have networks even without rails over TCP.
        [] => {
            let interface = settings::IFACE.given().map(|given| given.to_string_lossy());
            found = TcpNetworks::find(interface.as_deref()).unwrap_or_default();
            found.all()
        }
        networks => networks,
    };
    let networks = networks.iter().map(|one| Network::new(one.address(), one.prefix())).collect();
    Ok(Locality { node: node_identity(), machine: machine_identity(), site, networks })
}

/// The gateways of this process's site.
fn gateways() -> Result<Gateways, String> {
    let list = settings::GATEWAYS.given().map(|list| list.to_string_lossy()).unwrap_or_default();
    let variable = settings::GATEWAYS.variable();
    Gateways::parse(&list).map_err(|error| format!("{variable}={list}: {error}"))
}

/// Locality that a process has published.
fn home_of(job: &Job, rank: u32) -> Result<Locality, String> {
    let card = job.fetch(rank, CARD).map_err(|error| error.to_string())?;
    let mut entries = parse_card(&card).into_iter().flatten();
    let entry = entries.find(|(name, _)| name == HOME);
    let home = entry.and_then(|(_, bytes)| Locality::parse(&bytes));
    home.ok_or_else(|| format!("process {rank} published nonsense"))
}

/// The published addresses of the job's processes.
struct Cards {
    job: Arc<Job>,
    card: String,
    own: Vec<(String, Vec<u8>)>,
    networks: TcpNetworks,
    gateways: Gateways,
    sites: SiteMap,
    quic_first: QuicFirst,
    /// Sites, and rails that do not reach other sites and are tried last.
    barred: Vec<(u32, String)>,
}

impl Directory for Cards {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        if peer.0 == self.job.rank() {
            return Ok(self.own.clone());
        }
        let card = self.job.fetch(peer.0, &self.card).map_err(|error| error.to_string())?;
        let nonsense = || format!("process {} published nonsense", peer.0);
        let mut addresses = parse_card(&card).ok_or_else(nonsense)?;
        let far = addresses.extract_if(.., |(name, _)| name == GATEWAYS).next();
        let (_, far) = far.ok_or_else(nonsense)?;
        let mut paired = self.networks.pair(addresses);
        let own = self.job.rank();
        if self.sites.site(own) == self.sites.site(peer.0) {
            if settings::RAILS.given().is_none() {
                paired.retain(|(name, _)| name != "quic");
            }
            return Gateways::default().lead(paired, &[]).ok_or_else(nonsense);
        }
        let (here, site) = (self.sites.site(own), self.sites.site(peer.0));
        let is_quic_first = self.quic_first.contains(&(here.min(site), here.max(site)));
        agree(&self.own, &mut paired, is_quic_first);
        paired
            .sort_by_key(|(name, _)| self.barred.iter().any(|bar| bar.0 == site && bar.1 == *name));
        self.gateways.lead(paired, &far).ok_or_else(nonsense)
    }

    fn note_unreachable(&mut self, peer: PeerId, rail: &str) {
        let bar = (self.sites.site(peer.0), rail.to_owned());
        if !self.barred.contains(&bar) {
            self.barred.push(bar);
        }
    }

    fn has_ended(&mut self, peer: PeerId) -> bool {
        self.job.has_ended(peer.0)
    }

    fn expects_soon(&self, context: u64) -> bool {
        Comm::has_collectives_in(context)
    }

    fn members(&mut self, context: u64) -> Option<Vec<PeerId>> {
        let (size, own) = (self.job.size(), self.job.rank());
        if context == comm::WORLD_CONTEXT | 1 {
            return Some((0..size).map(|step| PeerId((own + step) % size)).collect());
        }
        comm::members(context, own)
    }
}

fn append(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u16).to_le_bytes());
    to.extend(bytes);
}

fn parse_card(mut card: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut take = || {
        let (len, rest) = card.split_first_chunk::<2>()?;
        let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        card = rest;
        Some((bytes.to_vec(), rest.is_empty()))
    };
    let mut addresses = Vec::new();
    loop {
        let (name, _) = take()?;
        let (address, last) = take()?;
        addresses.push((String::from_utf8(name).ok()?, address));
        if last {
            return Some(addresses);
        }
    }
}

const CARD: &str = "rails";
/// Key of the locality in a business card.
const HOME: &str = "home";
/// Key of the gateways in a business card.
const GATEWAYS: &str = "gateways";

const SITE_NAME_MAX: usize = 255;

/// Time limit for attempts to connect to a peer's addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit of finalisation for a peer to receive all data sent to it.
const FINALIZE_PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for connecting to a peer only to report another's failure, which other processes report as well. Longer
/// than opening a link takes with one lost packet.
const WORD_PATIENCE: Duration = Duration::from_secs(3);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_calls_over_quic_first_decides_for_both() {
        let list = |rails: &str| -> Vec<_> {
            rails.split(',').map(|name| (name.to_owned(), Vec::new())).collect()
        };
        for (own, card, tried) in [
            ("shm,tcp,quic", "shm,tcp,tcp1,quic", "shm,tcp,tcp1,quic"),
            ("shm,quic,tcp,tcp1", "shm,tcp,tcp1,quic", "shm,quic,tcp,tcp1"),
            ("shm,tcp,tcp1,quic", "shm,quic,tcp", "shm,quic,tcp"),
            ("shm,quic,tcp", "shm,quic,tcp,tcp1", "shm,quic,tcp,tcp1"),
            ("shm,quic,tcp", "shm,tcp", "shm,tcp"),
            ("shm,tcp", "quic,tcp", "quic,tcp"),
        ] {
            let mut addresses = list(card);
            agree(&list(own), &mut addresses, false);
            assert_eq!(addresses, list(tried), "{own} meets {card}");
        }
        let mut addresses = list("shm,tcp,tcp1,quic");
        agree(&list("shm,tcp,quic"), &mut addresses, true);
        assert_eq!(addresses, list("shm,quic,tcp,tcp1"), "much is lost between the two");
    }
}
