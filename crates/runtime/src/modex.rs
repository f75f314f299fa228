//! Exchange of localities and message costs at startup, from which collectives are planned.
//!
//! All processes must choose the same algorithms: every process uses the values that rank 0 publishes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use boot::{BootError, Job};
use cost::HostCost;
use plan::{Costs, Pairs, Plans};
use progress::VCIS_MAX;
use topo::cache::Listing;
use topo::sites::{Locality, SiteMap};
use topo::transport::Sockets;
use topo::{Cache, KnownLink, LinkCost, NetworkCosts};

/// Pairs of sites, the lower first, that try QUIC before TCP, because of what is known of their network path.
pub type QuicFirst = BTreeSet<(u32, u32)>;

/// Values that rank 0 has published, the same on all processes.
#[derive(Clone, Debug)]
pub(crate) struct Modex {
    /// True if the whole job is on one machine, with more ranks than cores.
    pub is_oversubscribed: bool,
    /// Number of VCIs per process.
    pub vcis: usize,
    /// Node and site of each rank.
    pub sites: SiteMap,
    /// Costs of messages within a node, a site and the wide area.
    pub costs: Costs,
    /// Costs between pairs of sites, if known.
    pub pairs: Pairs,
    /// Pairs of sites that try QUIC before TCP.
    pub quic_first: QuicFirst,
    /// Algorithms that the user chose for some collectives.
    pub plans: Arc<Plans>,
}

/// Publishes the values that rank 0 knows before it has read other business cards. The first rank of each other
/// node publishes its remembered links to other sites, unless the job has one node.
pub(crate) fn publish_own(
    job: &Job,
    locality: &Locality,
    host: &HostCost,
    vcis: usize,
) -> Result<(), String> {
    if job.rank() != 0 {
        let is_one_node = job.local_ranks() == Some(job.size() as usize);
        let known = match job.is_first_on_node() && !is_one_node {
            true => KnownLink::latest_far(&remembered(), &Sockets::here()),
            false => Vec::new(),
        };
        if !known.is_empty() {
            let published = job.publish(LINKS, &KnownLink::emit(&known));
            published.map_err(|error| error.to_string())?;
        }
        return Ok(());
    }
    let plans = plans_of_environment()?;
    let cores = [boot::node_cores(), topo::processor::cores().machine];
    let mut bytes = cores.map(|cores| (cores as u32).to_le_bytes()).concat();
    bytes.push(u8::from(locality.site.is_some()));
    bytes.push(vcis as u8);
    bytes.extend(within_a_node(host).emit());
    bytes.extend(plans.to_string().into_bytes());
    job.publish(PARAMETERS, &bytes).map_err(|error| error.to_string())
}

/// Returns the values that are the same on all processes; `host` holds the costs on this process's node. If the launcher placed all ranks on one node and no
/// site was named, no exchange of localities is needed; otherwise rank 0 builds and publishes the site map.
pub(crate) fn exchange(
    job: &Job,
    locality: &Locality,
    (own_vcis, host): (usize, &HostCost),
    locality_of: impl Fn(u32) -> Result<Locality, String>,
) -> Result<Modex, String> {
    if job.size() == 1 {
        let (costs, pairs, plans) = (within_a_node(host), Pairs::default(), Arc::default());
        let (sites, quic_first) = (SiteMap::flat(), QuicFirst::new());
        let (is_oversubscribed, vcis) = (false, own_vcis);
        return Ok(Modex { is_oversubscribed, vcis, sites, costs, pairs, quic_first, plans });
    }
    let bytes = job.fetch(0, PARAMETERS).map_err(|error| error.to_string())?;
    let Parameters { cores, machine_cores, is_named, vcis, costs, plans } =
        Parameters::parse(&bytes).ok_or(MALFORMED)?;
    let is_one_node = job.local_ranks() == Some(job.size() as usize);
    let (sites, costs, pairs, quic_first) = match (is_one_node, is_named, &locality.site) {
        (true, false, None) => (SiteMap::flat(), costs, Pairs::default(), QuicFirst::new()),
        (true, false, Some(name)) => {
            let variable = settings::SITE.variable();
            return Err(format!(
                "{variable}={name}, but rank 0 has none: name the sites of all, or of none"
            ));
        }
        (true, true, _) | (false, _, _) => map(job, costs, locality_of)?,
    };
    // Each of several nodes may be held to cores of its own.
    let cores = if sites.nodes() == 1 { cores } else { machine_cores };
    let is_oversubscribed = sites.is_one_machine() && job.size() > cores;
    Ok(Modex { is_oversubscribed, vcis, sites, costs, pairs, quic_first, plans })
}

/// Values that rank 0 publishes before it has read other business cards.
struct Parameters {
    /// Cores that rank 0's node may use.
    cores: u32,
    /// Cores of the whole machine.
    machine_cores: u32,
    /// True if rank 0 has a site name.
    is_named: bool,
    vcis: usize,
    costs: Costs,
    plans: Arc<Plans>,
}

impl Parameters {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (cores, rest) = bytes.split_first_chunk::<4>()?;
        let (machine_cores, rest) = rest.split_first_chunk::<4>()?;
        let (&[is_named, vcis], rest) = rest.split_first_chunk::<2>()?;
        let vcis = usize::from(vcis);
        let is_known = vcis.is_power_of_two() && vcis <= VCIS_MAX;
        let (costs, plans) = rest.split_at_checked(Costs::LEN)?;
        let plans = std::str::from_utf8(plans).ok()?.parse().ok()?;
        Some(Self {
            cores: u32::from_le_bytes(*cores),
            machine_cores: u32::from_le_bytes(*machine_cores),
            is_named: is_named != 0,
            vcis: is_known.then_some(vcis)?,
            costs: Costs::parse(costs)?,
            plans: Arc::new(plans),
        })
    }
}

/// Reads the table of algorithms from the file named by the setting.
fn plans_of_environment() -> Result<Plans, String> {
    let Some(path) = settings::PLANS.given() else { return Ok(Plans::default()) };
    let wrong = |reason: String| {
        format!("{}={}: {reason}", settings::PLANS.variable(), path.to_string_lossy())
    };
    read_plans(Path::new(path)).map_err(wrong)
}

fn read_plans(path: &Path) -> Result<Plans, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(PLANS_LEN_MAX + 1).read_to_string(&mut text);
    if read.map_err(|error| error.to_string())? as u64 > PLANS_LEN_MAX {
        return Err(format!("longer than {PLANS_LEN_MAX} bytes"));
    }
    text.parse()
}

/// Returns the site map and message costs. Rank 0 computes them from all business cards and publishes them; other
/// ranks read its result.
fn map(
    job: &Job,
    costs: Costs,
    locality_of: impl Fn(u32) -> Result<Locality, String>,
) -> Result<(SiteMap, Costs, Pairs, QuicFirst), String> {
    let text = |error: BootError| error.to_string();
    if job.rank() == 0 {
        let localities =
            (0..job.size()).map(locality_of).collect::<Result<Vec<Locality>, String>>()?;
        let map = SiteMap::of(&localities);
        job.publish(SITES, &map.emit()).map_err(text)?;
        let mut known = KnownLink::all(&remembered(), &Sockets::here());
        for rank in firsts(&map, job.size()) {
            // A node without remembered links has published nothing.
            let bytes = job.fetch(rank, LINKS).ok().and_then(|bytes| KnownLink::parse(&bytes));
            known.extend(bytes.unwrap_or_default());
        }
        let between = NetworkCosts::of(&localities, &map, &known);
        let (costs, pairs) = between_nodes(costs, &between);
        // Rails named by the user are tried in the user's order.
        let is_free = settings::RAILS.given().is_none() && settings::CONGESTION.given().is_none();
        let quic_first = if is_free { between.quic_first } else { QuicFirst::new() };
        let bytes = [costs.emit(), emit_quic_first(&quic_first), pairs.emit()].concat();
        job.publish(COSTS, &bytes).map_err(text)?;
    }
    job.fence().map_err(text)?;
    let map = SiteMap::parse(&job.fetch(0, SITES).map_err(text)?, job.size());
    let bytes = job.fetch(0, COSTS).map_err(text)?;
    let (costs, rest) = bytes.split_at_checked(Costs::LEN).ok_or(MALFORMED)?;
    let (quic_first, pairs) = parse_quic_first(rest).ok_or(MALFORMED)?;
    let (costs, pairs) = (Costs::parse(costs), Pairs::parse(pairs));
    let (map, (costs, pairs)) = map.zip(costs.zip(pairs)).ok_or(MALFORMED)?;
    Ok((map, costs, pairs, quic_first))
}

/// Encodes the number of pairs, then the pairs.
fn emit_quic_first(quic_first: &QuicFirst) -> Vec<u8> {
    let pairs = quic_first.iter().take(QUIC_FIRST_MOST);
    let mut bytes = (pairs.len() as u32).to_le_bytes().to_vec();
    pairs.for_each(|(one, other)| bytes.extend([one.to_le_bytes(), other.to_le_bytes()].concat()));
    bytes
}

/// Decodes pairs from the beginning of `bytes`; returns the rest.
fn parse_quic_first(bytes: &[u8]) -> Option<(QuicFirst, &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (bytes, rest) = rest.split_at_checked(count.checked_mul(8)?)?;
    let (pairs, _) = bytes.as_chunks::<8>();
    let site = |bytes: &[u8]| bytes.iter().rev().fold(0, |site, byte| site << 8 | u32::from(*byte));
    Some((pairs.iter().map(|pair| (site(&pair[..4]), site(&pair[4..]))).collect(), rest))
}

/// The first rank of each node except rank 0's; empty if there is one site.
fn firsts(map: &SiteMap, size: u32) -> Vec<u32> {
    let mut is_known = vec![false; map.nodes() as usize];
    is_known[0] = true;
    let ranks = if map.sites() > 1 { 0..size } else { 0..0 };
    let is_first = |rank: &u32| {
        let node = &mut is_known[map.node(*rank) as usize];
        !std::mem::replace(node, true)
    };
    ranks.filter(is_first).collect()
}

/// Links in this machine's cache of measurements.
fn remembered() -> Listing {
    Cache::of_environment().and_then(|cache| cache.links().ok()).unwrap_or_default()
}

/// Costs within this node; default values for the networks beyond it.
fn within_a_node(host: &HostCost) -> Costs {
    let usual = Costs::default();
    let links = LinkCost::in_memory(host);
    let bytes_per_s = links.bytes_per_s.unwrap_or(usual.node.bytes_per_s);
    let node =
        plan::MessageCost { latency_ns: links.latency_ns, bytes_per_s, overhead_ns: links.gap_ns };
    Costs { node, wake_ns: host.wake_ns, ..usual }
}

/// Replaces default costs by measured ones, between nodes and between pairs of sites.
fn between_nodes(costs: Costs, between: &NetworkCosts) -> (Costs, Pairs) {
    let of = |usual: plan::MessageCost, links: Option<LinkCost>| {
        links.map_or(usual, |it| linked(&it, usual))
    };
    let (site, wide) = (of(costs.site, between.near), of(costs.wide, between.far));
    let pair = |(&(one, other), links): (&(u32, u32), &LinkCost)| (one, other, linked(links, wide));
    (Costs { site, wide, ..costs }, Pairs::new(between.pairs.iter().map(pair)))
}

/// Cost of messages over links.
fn linked(links: &LinkCost, usual: plan::MessageCost) -> plan::MessageCost {
    plan::MessageCost::over_links(links.latency_ns, links.gap_ns, links.bytes_per_s, usual)
}

/// Maximum number of pairs that try QUIC first. Further pairs try TCP first; only the order differs.
const QUIC_FIRST_MOST: usize = 256;
/// Maximum length of a table of algorithms, in bytes.
const PLANS_LEN_MAX: u64 = 64 << 10;

const MALFORMED: &str =
    "rank 0 published values that cannot be read: do all ranks run the same version of Canele?";

/// Key of rank 0's [`Parameters`]: cores of its node and of its machine, whether it has a site name, number of VCIs,
/// costs on its node, and the user's algorithms.
const PARAMETERS: &str = "parameters";
const SITES: &str = "sites";
const COSTS: &str = "costs";
/// Key of the links to other sites, published by the first process of a node.
const LINKS: &str = "links";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_rank_0_survive_the_exchange() {
        let costs = within_a_node(&HostCost::default());
        let table = "bcast * chain\n";
        let bytes =
            [&[7, 0, 0, 0, 9, 0, 0, 0][..], &[1, 4], &costs.emit(), table.as_bytes()].concat();
        let read = Parameters::parse(&bytes).unwrap();
        assert_eq!((read.cores, read.machine_cores), (7, 9));
        assert_eq!((read.is_named, read.vcis, read.costs), (true, 4, costs));
        let strange = [&bytes[..9], &[3], &bytes[10..]].concat();
        assert!(Parameters::parse(&strange).is_none(), "three VCIs");
        assert_eq!(*read.plans, table.parse().unwrap());
        assert!(Parameters::parse(&bytes[..20]).is_none() && Parameters::parse(&[]).is_none());
        assert!(Parameters::parse(&bytes[..bytes.len() - 3]).is_none(), "`cha` is no algorithm");
    }

    #[test]
    fn unreadable_tables_are_reported() {
        let file = std::env::temp_dir().join(format!("plans-{}", std::process::id()));
        assert!(read_plans(&file).unwrap_err().contains("No such file"));
        std::fs::write(&file, "allreduce 0..99 ring\nbcast 1 fast").unwrap();
        assert!(read_plans(&file).unwrap_err().starts_with("line 2: no `fast` for bcast: "));
        std::fs::write(&file, " ".repeat(PLANS_LEN_MAX as usize + 1)).unwrap();
        assert!(read_plans(&file).unwrap_err().contains("longer than 65536"));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn unknown_costs_keep_their_defaults() {
        let usual = Costs::default();
        assert_eq!(between_nodes(usual, &NetworkCosts::default()), (usual, Pairs::default()));
        let links = LinkCost { latency_ns: 50_000, gap_ns: 2_000, bytes_per_s: None };
        let near = linked(&links, usual.site);
        assert_eq!((near.latency_ns, near.overhead_ns), (47_000, 3_000));
        assert_eq!(near.bytes_per_s, usual.site.bytes_per_s);
        let links = LinkCost { bytes_per_s: Some(100_000_000), ..links };
        assert_eq!(linked(&links, usual.site).bytes_per_s, 100_000_000);
    }

    #[test]
    fn quic_first_pairs_survive_the_exchange() {
        let quic_first = QuicFirst::from([(0, 1), (3, 70_000)]);
        let bytes = [emit_quic_first(&quic_first), vec![9, 9]].concat();
        assert_eq!(parse_quic_first(&bytes), Some((quic_first, &[9, 9][..])));
        assert_eq!(parse_quic_first(&bytes[..11]), None);
        assert_eq!(parse_quic_first(&[255; 12]), None);
        assert_eq!(
            parse_quic_first(&emit_quic_first(&QuicFirst::new())),
            Some((QuicFirst::new(), &[][..]))
        );
    }

    #[test]
    fn pairs_of_sites_have_their_remembered_costs() {
        let far = LinkCost { latency_ns: 9_000_000, gap_ns: 2_000, bytes_per_s: Some(30_000_000) };
        let near = LinkCost { latency_ns: 1_000_000, bytes_per_s: None, ..far };
        let pairs = [((0, 1), near), ((1, 2), far)].into();
        let between = NetworkCosts { near: None, far: Some(far), pairs, ..NetworkCosts::default() };
        let (costs, pairs) = between_nodes(Costs::default(), &between);
        assert_eq!(pairs.cost(2, 1), Some(costs.wide));
        let latency_ns = near.latency_ns - 3_000;
        assert_eq!(pairs.cost(0, 1), Some(plan::MessageCost { latency_ns, ..costs.wide }));
        assert_eq!(pairs.cost(0, 2), None);
    }

    #[test]
    fn first_rank_of_each_other_node_publishes_links() {
        let locality = |node: u8, site: &str| Locality {
            node: vec![node],
            site: Some(site.into()),
            ..Locality::default()
        };
        let localities = [
            locality(7, "a"),
            locality(5, "a"),
            locality(7, "a"),
            locality(1, "b"),
            locality(5, "a"),
        ];
        assert_eq!(firsts(&SiteMap::of(&localities), 5), [1, 3]);
        assert_eq!(firsts(&SiteMap::of(&localities[..3]), 3), []);
        assert_eq!(firsts(&SiteMap::flat(), 3), []);
    }
}
