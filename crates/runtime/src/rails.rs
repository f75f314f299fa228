//! The rails of a process: which ones it opens, and the worker over them.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use auth::{Encryption, Identity};
use boot::Job;
use connect::Patience;
use cost::{CostStore, HostCost};
use engine::{Config, Engine};
use netpath::{Congestion, TcpNetworks, WanTcp};
use progress::Worker;
use rail::{LoopbackRail, Rail, RailError};
use rail_ofi::{OfiConfig, OfiNetwork, OfiRail, has_fast_device};
use rail_quic::{QuicConfig, QuicRail};
use rail_shm::{ShmConfig, ShmRail};
use rail_tcp::{TcpConfig, TcpRail};
use recorder::Recorder;
use relay::Gateways;
use tracing::debug;
use wire::PeerId;

use crate::cards::{CARD, Cards};
use crate::context::Contexts;
use crate::encryption::{EncryptionRule, LinkSites};
use crate::modex::Modex;
use crate::traced::traced;
use crate::{record, strategy};

/// Rails of a process.
#[derive(Default)]
pub(super) struct Opened {
    /// Rails in order of preference.
    pub(super) rails: Vec<Box<dyn Rail>>,
    /// Groups of rails that carry messages to one peer together.
    pub(super) teams: Vec<Vec<String>>,
    /// Networks that the rails over TCP serve.
    pub(super) networks: TcpNetworks,
    /// Rails that could not be opened.
    pub(super) closed: Vec<ClosedRail>,
}

/// A rail that could not be opened.
pub(super) struct ClosedRail {
    name: &'static str,
    reason: RailError,
}

impl Opened {
    /// Makes the worker that communicates over these rails with processes that published a card of the same name.
    pub(super) fn worker(
        self,
        job: &Arc<Job>,
        (card, gateways): (&str, Gateways),
        modex: &Modex,
        host: HostCost,
        contexts: &Arc<OnceLock<Contexts>>,
    ) -> Result<Worker, String> {
        let Self { mut rails, teams, networks, closed: _ } = self;
        let (rank, size) = (PeerId(job.rank()), job.size() as usize);
        let own = rails.iter().map(|rail| (rail.name().to_owned(), rail.address())).collect();
        let contexts = Arc::clone(contexts);
        let directory =
            Box::new(Cards::new((job, card), own, (networks, gateways), modex, contexts));
        let mut strategy = strategy::of_environment()?;
        if let Some(recorder) = Recorder::of_process()? {
            // The card of a further VCI ends in its number.
            let vci = card.trim_start_matches(CARD);
            (rails, strategy) = traced(rails, strategy, (vci, job.size()), recorder);
        }
        let number = |setting: &settings::Setting| setting.number().map_err(|it| it.to_string());
        let budget_bytes = number(&settings::UNMATCHED_BYTES)? as usize / modex.vcis;
        let patience = patience()?;
        let usual = Config::new(size);
        let mut engine = Engine::new(Config {
            budget_bytes,
            reopens: !patience.limit.is_zero(),
            host,
            strategy,
            first_generation: first_generation(),
            ..usual
        });
        record::begin(&mut engine, job);
        let worker = Worker::new(engine, rank, size, rails, directory).with_patience(patience);
        let join = |worker: Worker, team: &Vec<String>| {
            worker.with_team(&team.iter().map(String::as_str).collect::<Vec<_>>())
        };
        Ok(teams.iter().fold(worker, join))
    }

    /// Tells of the rails that could not be opened, once on each node.
    ///
    /// # Errors
    /// The open rails do not reach all of the job's processes, which are on this number of nodes.
    pub(super) fn check_reach(&self, job: &Job, nodes: u32) -> Result<(), String> {
        let is_open = |kind: &str| self.rails.iter().any(|rail| rail.name().starts_with(kind));
        let reaches_all =
            ["tcp", "quic", "ofi"].into_iter().any(is_open) || (is_open("shm") && nodes == 1);
        for ClosedRail { name, reason } in &self.closed {
            if !reaches_all {
                return Err(format!("rail {name}: {}", with_remedy(reason)));
            }
            if job.is_first_on_node() {
                // A message that nobody can read is lost.
                let _ = writeln!(
                    io::stderr(),
                    "canele: rail {name} is left out, since the others reach all ranks: {}",
                    with_remedy(reason)
                );
            }
        }
        Ok(())
    }

    /// Leaves a rail out that could not be opened.
    ///
    /// # Errors
    /// The user has asked for what it lacks.
    fn leave_out(&mut self, name: &'static str, reason: RailError) -> Result<(), String> {
        if settings::IFACE.given().is_some() || settings::CONGESTION.given().is_some() {
            return Err(format!("rail {name}: {reason}"));
        }
        self.closed.push(ClosedRail { name, reason });
        Ok(())
    }
}

/// Returns the first generation of an engine's operations. Engines of one process have distant ones, so that the handle
/// of a request names no operation of a later instance: that would need as many operations as lie between two numbers.
fn first_generation() -> u32 {
    static ENGINES: AtomicU32 = AtomicU32::new(0);
    // The golden ratio spreads multiples evenly (Knuth, The Art of Computer Programming, volume 3, §6.4).
    ENGINES.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9)
}

/// Opens these rails of this process, of which one alone in its job needs only that to itself. Settings restrict the
/// networks. `sites` says which links are encrypted.
pub(super) fn open_rails(
    job: &Job,
    wanted: &str,
    sites: &Arc<LinkSites>,
    costs: &Arc<dyn CostStore>,
) -> Result<Opened, String> {
    let own = LoopbackRail::new(PeerId(job.rank()));
    let own = own.map_err(|error| format!("rail self: {error}"))?;
    let mut opened = match job.size() {
        1 => Opened::default(),
        _ => open_rails_to_others(job, wanted, sites, costs)?,
    };
    opened.rails.insert(0, Box::new(own));
    Ok(opened)
}

/// Opens these rails to other processes.
pub(super) fn open_rails_to_others(
    job: &Job,
    wanted: &str,
    sites: &Arc<LinkSites>,
    costs: &Arc<dyn CostStore>,
) -> Result<Opened, String> {
    let mut opened = Opened::default();
    provide_open_files(wanted, job)?;
    let variable = settings::RAILS.variable();
    for team in wanted.split(',') {
        let names: Vec<_> = team.split('+').map(|name| name.trim().to_owned()).collect();
        for name in &names {
            let mut known = opened.rails.iter().map(|rail| rail.name());
            let is_closed = opened.closed.iter().any(|rail| rail.name == name);
            match name.as_str() {
                _ if is_closed || known.any(|open| open == name) => {
                    return Err(format!("{variable}={wanted}: `{name}` twice"));
                }
                "shm" => open_shm(job, costs.host(), &mut opened)?,
                "tcp" => open_tcp(job, sites, costs, &mut opened)?,
                "quic" => open_quic(job, costs, &mut opened)?,
                "ofi" => open_ofi(job, sites, &mut opened)?,
                "self" | "" => {}
                other => {
                    return Err(format!(
                        "{variable}={wanted}: no rail `{other}` (shm, ofi, tcp, quic)"
                    ));
                }
            }
        }
        if names.len() > 1 {
            opened.teams.push(names);
        }
    }
    Ok(opened)
}

/// Returns the text of an error, with the limit that was reached and the remedy.
fn with_remedy(error: &RailError) -> String {
    let shortage = match error {
        RailError::System { source, .. } => boot::shortage(source),
        RailError::Unreachable(_) => None,
    };
    shortage.map_or_else(|| error.to_string(), |shortage| format!("{error}: {shortage}"))
}

/// Raises this process's limit of open files to what links to all peers take.
///
/// # Errors
/// The hard limit is too low for links in shared memory to all ranks of this node. A link without files would hang.
fn provide_open_files(rails: &str, job: &Job) -> Result<(), String> {
    let names = rails.split([',', '+']).map(str::trim);
    let has_shm = names.clone().any(|name| name == "shm");
    let local = job.local_ranks().unwrap_or(1).max(1) as u64;
    let own = FILES_OF_PROCESS + FILES_OF_RAIL * names.count() as u64;
    let needed = own + FILES_OF_NEIGHBOUR * (local - 1);
    match boot::raise_open_files(needed + FILES_OF_PEER * u64::from(job.size())) {
        Some(limit) if has_shm && limit < needed => Err(format!(
            "the limit of {limit} open files is too low for {local} ranks on a host, which need \
             {needed}: raise the hard limit (ulimit -Hn)"
        )),
        Some(_) | None => Ok(()),
    }
}

/// Returns the rails to open: those that the user names, or all useful ones. The rail over libfabric is useful where
/// the node has a device of a fast network, or the user names a provider. A process with a site name also opens QUIC,
/// because a firewall between sites may pass UDP but not TCP. QUIC comes first if TCP restarts its congestion window
/// after each idle period; QUIC does not.
pub fn wanted_rails() -> Cow<'static, str> {
    let between_nodes = match (settings::RAILS.given(), settings::SITE.given()) {
        (Some(given), _) => return given.to_string_lossy(),
        (None, None) => "tcp",
        (None, Some(_)) if WanTcp::has_bbr() || settings::CONGESTION.given().is_some() => {
            "tcp,quic"
        }
        (None, Some(_)) => "quic,tcp",
    };
    let is_fast = settings::OFI_PROVIDER.given().is_some() || has_fast_device();
    let fast = if is_fast { "ofi," } else { "" };
    format!("shm,{fast}{between_nodes}").into()
}

/// Opens the rail over shared memory.
fn open_shm(job: &Job, host: HostCost, opened: &mut Opened) -> Result<(), String> {
    let config =
        ShmConfig { rank: PeerId(job.rank()), job: u128::from(job.id()).to_le_bytes(), host };
    match ShmRail::new(config) {
        Ok(rail) => opened.rails.push(Box::new(rail)),
        Err(reason) => opened.leave_out("shm", reason)?,
    }
    Ok(())
}

/// Opens the rail over TCP, and one more for each further network.
fn open_tcp(
    job: &Job,
    sites: &Arc<LinkSites>,
    costs: &Arc<dyn CostStore>,
    opened: &mut Opened,
) -> Result<(), String> {
    let config = TcpConfig {
        interface: interface(),
        connect_timeout: CONNECT_TIMEOUT,
        encryption: sites.encryption(job, EncryptionRule::of_settings()?),
        congestion: congestion(),
        costs: Arc::clone(costs),
        ..TcpConfig::new(PeerId(job.rank()), job.id(), job.secret().clone())
    };
    match TcpRail::new(config.clone()) {
        Ok(rail) => opened.rails.push(Box::new(rail)),
        Err(reason) => return opened.leave_out("tcp", reason),
    }
    let networks = TcpNetworks::find(config.interface.as_deref()).unwrap_or_default();
    for network in networks.all().iter().skip(1) {
        // A network without a listener is left out: the first rail reaches every peer.
        if let Ok(rail) = TcpRail::on(network, config.clone()) {
            opened.rails.push(Box::new(rail));
        }
    }
    opened.networks = networks;
    Ok(())
}

/// Congestion control of connections.
fn congestion() -> Congestion {
    match settings::CONGESTION.text().trim() {
        "auto" => Congestion::Auto,
        name => Congestion::Named(name.to_owned()),
    }
}

/// Opens the rail over UDP, preceded by a second one whose links overtake the first's (`QuicConfig::passes`).
fn open_quic(job: &Job, costs: &Arc<dyn CostStore>, opened: &mut Opened) -> Result<(), String> {
    let config = QuicConfig {
        rank: PeerId(job.rank()),
        job: job.id(),
        identity: Identity::of(job.secret(), job.id()),
        interface: interface(),
        connect_timeout: CONNECT_TIMEOUT,
        silence: patience()?.silence(),
        passes: true,
        costs: Arc::clone(costs),
    };
    let both = [config.clone(), QuicConfig { passes: false, ..config }].map(QuicRail::new);
    match both.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(both) => opened.rails.extend(both.into_iter().map(|rail| Box::new(rail) as _)),
        Err(reason) => opened.leave_out("quic", reason)?,
    }
    Ok(())
}

/// Opens the rail over libfabric. One that nobody has asked for may be missing.
fn open_ofi(job: &Job, sites: &Arc<LinkSites>, opened: &mut Opened) -> Result<(), String> {
    let config = OfiConfig {
        rank: PeerId(job.rank()),
        job: job.id(),
        secret: job.secret().clone(),
        connect_timeout: CONNECT_TIMEOUT,
        encryption: sites.encryption(job, EncryptionRule::of_settings()?),
    };
    let provider = settings::OFI_PROVIDER.given().map(|name| name.to_string_lossy().into_owned());
    let is_asked_for = provider.is_some() || settings::RAILS.given().is_some();
    let rail = match config.encryption {
        Encryption::All => Err(RailError::Unreachable(format!(
            "{}=all, and frames over libfabric are not encrypted",
            settings::ENCRYPT.variable()
        ))),
        Encryption::None | Encryption::Some(_) => {
            OfiNetwork::find(provider.as_deref(), interface().as_deref())
                .and_then(|network| OfiRail::new(network, config))
        }
    };
    match rail {
        Ok(rail) => opened.rails.push(Box::new(rail)),
        Err(reason) if is_asked_for => opened.closed.push(ClosedRail { name: "ofi", reason }),
        Err(reason) => debug!(%reason, "OFI: is left out"),
    }
    Ok(())
}

/// Limits of outages, of which the user sets one.
fn patience() -> Result<Patience, String> {
    let limit = settings::LINK_PATIENCE.number().map_err(|it| it.to_string())?;
    Ok(Patience { limit: Duration::from_secs(limit), ..Patience::default() })
}

/// The networks that the user allows.
pub(super) fn interface() -> Option<String> {
    settings::IFACE.given().map(|given| given.to_string_lossy().into_owned())
}

/// Open files of a process without rails: its streams, and what it waits with.
const FILES_OF_PROCESS: u64 = 10;
/// Open files of a rail without links: its listeners, timers, memory.
const FILES_OF_RAIL: u64 = 6;
/// Open files of a link in shared memory: its ring, and doorbell and process of the peer.
const FILES_OF_NEIGHBOUR: u64 = 3;
/// Open files of the links to a peer over networks, with those of all VCIs.
const FILES_OF_PEER: u64 = 16;

/// Time limit for attempts to connect to a peer's addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
