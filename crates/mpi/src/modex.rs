//! What collectives are planned from: where the job's ranks are, and what messages cost there.
//!
//! Every process must choose the same algorithms, whatever it knows itself: all take rank 0's word.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use boot::{BootError, Job};
use plan::{Costs, Pairs, Plans};
use topo::cache::Listing;
use topo::sites::{Locality, SiteMap};
use topo::transport::Sockets;
use topo::{Cache, KnownLink, LinkCost, NetworkCosts};
use wire::HostCost;

use crate::vci::VCIS_MAX;

/// Which two sites each, the lower first, try each other over QUIC first, for what is known of the ways between them.
pub(crate) type QuicFirst = BTreeSet<(u32, u32)>;

/// What rank 0 has said.
#[derive(Clone, Debug)]
pub(crate) struct Modex {
    /// Whether the whole job is on one machine, with more ranks than cores.
    pub is_oversubscribed: bool,
    /// How many vcis a process has.
    pub vcis: usize,
    /// Nodes and sites.
    pub sites: SiteMap,
    /// What messages cost.
    pub costs: Costs,
    /// What they cost between two sites each, as far as that is known.
    pub pairs: Pairs,
    /// Pairs of sites between which QUIC goes first.
    pub quic_first: QuicFirst,
    /// What the user wants for some collectives.
    pub plans: Arc<Plans>,
}

/// Publishes what rank 0 can say before it knows of the others; and what each other node remembers of links that lead
/// far, where there may be such.
pub(crate) fn publish_word(
    job: &Job,
    home: &Locality,
    host: &HostCost,
    vcis: usize,
) -> Result<(), String> {
    if job.rank() != 0 {
        let is_one_node = boot::local_ranks() == Some(job.size() as usize);
        let known = match boot::is_first_on_node() && !is_one_node {
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
    let mut word = cores.map(|cores| (cores as u32).to_le_bytes()).concat();
    word.push(u8::from(home.site.is_some()));
    word.push(vcis as u8);
    word.extend(within_a_node(host).emit());
    word.extend(plans.to_string().into_bytes());
    job.publish(WORD, &word).map_err(|error| error.to_string())
}

/// What is the same for all: where the launcher says that all are on one node, rank 0 has said whether they
/// are of sites that were named; else it makes a map of what all have published.
pub(crate) fn exchange(
    job: &Job,
    home: &Locality,
    own_vcis: usize,
    home_of: impl Fn(u32) -> Result<Locality, String>,
) -> Result<Modex, String> {
    if job.size() == 1 {
        let (costs, pairs, plans) = (Costs::default(), Pairs::default(), Arc::default());
        let (sites, quic_first) = (SiteMap::flat(), QuicFirst::new());
        let (is_oversubscribed, vcis) = (false, own_vcis);
        return Ok(Modex { is_oversubscribed, vcis, sites, costs, pairs, quic_first, plans });
    }
    let word = job.fetch(0, WORD).map_err(|error| error.to_string())?;
    let Word { cores, machine_cores, is_named, vcis, costs, plans } =
        Word::parse(&word).ok_or(NONSENSE)?;
    let is_one_node = boot::local_ranks() == Some(job.size() as usize);
    let (sites, costs, pairs, quic_first) = match (is_one_node, is_named, &home.site) {
        (true, false, None) => (SiteMap::flat(), costs, Pairs::default(), QuicFirst::new()),
        (true, false, Some(name)) => {
            let variable = settings::SITE.variable();
            return Err(format!(
                "{variable}={name}, but rank 0 has none: name the sites of all, or of none"
            ));
        }
        (true, true, _) | (false, _, _) => map(job, costs, home_of)?,
    };
    // Each of several nodes may be held to cores of its own.
    let cores = if sites.nodes() == 1 { cores } else { machine_cores };
    let is_oversubscribed = sites.is_one_machine() && job.size() > cores;
    Ok(Modex { is_oversubscribed, vcis, sites, costs, pairs, quic_first, plans })
}

/// What rank 0 said before it knew of the others.
struct Word {
    /// Those of rank 0's node.
    cores: u32,
    machine_cores: u32,
    is_named: bool,
    vcis: usize,
    costs: Costs,
    plans: Arc<Plans>,
}

impl Word {
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

/// The table that the setting names.
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

/// The map of the job, and what messages cost: rank 0 reads what all have published, the others what it
/// makes of that.
fn map(
    job: &Job,
    costs: Costs,
    home_of: impl Fn(u32) -> Result<Locality, String>,
) -> Result<(SiteMap, Costs, Pairs, QuicFirst), String> {
    let text = |error: BootError| error.to_string();
    if job.rank() == 0 {
        let homes = (0..job.size()).map(home_of).collect::<Result<Vec<Locality>, String>>()?;
        let map = SiteMap::of(&homes);
        job.publish(SITES, &map.emit()).map_err(text)?;
        let mut known = KnownLink::all(&remembered(), &Sockets::here());
        for rank in firsts(&map, job.size()) {
            // Who remembers nothing has published nothing.
            let told = job.fetch(rank, LINKS).ok().and_then(|bytes| KnownLink::parse(&bytes));
            known.extend(told.unwrap_or_default());
        }
        let between = NetworkCosts::of(&homes, &map, &known);
        let (costs, pairs) = between_nodes(costs, &between);
        // Who names the rails has put them in order.
        let is_free = settings::RAILS.given().is_none() && settings::CONGESTION.given().is_none();
        let quic_first = if is_free { between.quic_first } else { QuicFirst::new() };
        let told = [costs.emit(), emit_quic_first(&quic_first), pairs.emit()].concat();
        job.publish(COSTS, &told).map_err(text)?;
    }
    job.fence().map_err(text)?;
    let map = SiteMap::parse(&job.fetch(0, SITES).map_err(text)?, job.size());
    let told = job.fetch(0, COSTS).map_err(text)?;
    let (costs, rest) = told.split_at_checked(Costs::LEN).ok_or(NONSENSE)?;
    let (quic_first, pairs) = parse_quic_first(rest).ok_or(NONSENSE)?;
    let (costs, pairs) = (Costs::parse(costs), Pairs::parse(pairs));
    let (map, (costs, pairs)) = map.zip(costs.zip(pairs)).ok_or(NONSENSE)?;
    Ok((map, costs, pairs, quic_first))
}

/// So many pairs of sites, and which.
fn emit_quic_first(quic_first: &QuicFirst) -> Vec<u8> {
    let told = quic_first.iter().take(QUIC_FIRST_MOST);
    let mut bytes = (told.len() as u32).to_le_bytes().to_vec();
    told.for_each(|(one, other)| bytes.extend([one.to_le_bytes(), other.to_le_bytes()].concat()));
    bytes
}

/// Reads them off the beginning.
fn parse_quic_first(bytes: &[u8]) -> Option<(QuicFirst, &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (told, rest) = rest.split_at_checked(count.checked_mul(8)?)?;
    let (pairs, _) = told.as_chunks::<8>();
    let site = |bytes: &[u8]| bytes.iter().rev().fold(0, |site, byte| site << 8 | u32::from(*byte));
    Some((pairs.iter().map(|pair| (site(&pair[..4]), site(&pair[4..]))).collect(), rest))
}

/// The first rank of each node but rank 0's, where there are several sites.
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

/// The links that this machine remembers.
fn remembered() -> Listing {
    Cache::of_environment().and_then(|cache| cache.links().ok()).unwrap_or_default()
}

/// What messages cost within this node. Of what is beyond it the usual is said.
fn within_a_node(host: &HostCost) -> Costs {
    let usual = Costs::default();
    let links = LinkCost::in_memory(host);
    let bytes_per_s = links.bytes_per_s.unwrap_or(usual.node.bytes_per_s);
    let node = plan::Cost { latency_ns: links.latency_ns, bytes_per_s, overhead_ns: links.gap_ns };
    Costs { node, wake_ns: host.wake_ns, ..usual }
}

/// What they cost between nodes, and between two sites each, where that is remembered.
fn between_nodes(costs: Costs, between: &NetworkCosts) -> (Costs, Pairs) {
    let of =
        |usual: plan::Cost, links: Option<LinkCost>| links.map_or(usual, |it| linked(&it, usual));
    let (site, wide) = (of(costs.site, between.near), of(costs.wide, between.far));
    let pair = |(&(one, other), links): (&(u32, u32), &LinkCost)| (one, other, linked(links, wide));
    (Costs { site, wide, ..costs }, Pairs::new(between.pairs.iter().map(pair)))
}

/// What messages cost over links.
fn linked(links: &LinkCost, usual: plan::Cost) -> plan::Cost {
    plan::Cost::over_links(links.latency_ns, links.gap_ns, links.bytes_per_s, usual)
}

/// More pairs of sites are tried over TCP first, as without losses: it is the order only.
const QUIC_FIRST_MOST: usize = 256;
/// A table is not longer, in bytes.
const PLANS_LEN_MAX: u64 = 64 << 10;

const NONSENSE: &str = "rank 0 published nonsense";

/// What rank 0 says before it knows the others: the cores of its node and of its machine, whether it has a site's name, in how many vcis communicators lie, what messages cost on
/// its node, and what the user wants for collectives.
const WORD: &str = "word";
const SITES: &str = "sites";
const COSTS: &str = "costs";
/// What the first process of a node says: the links that lead far.
const LINKS: &str = "links";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_rank_0_is_read_as_it_was_told() {
        let costs = within_a_node(&HostCost::default());
        let table = "bcast * chain\n";
        let word =
            [&[7, 0, 0, 0, 9, 0, 0, 0][..], &[1, 4], &costs.emit(), table.as_bytes()].concat();
        let read = Word::parse(&word).unwrap();
        assert_eq!((read.cores, read.machine_cores), (7, 9));
        assert_eq!((read.is_named, read.vcis, read.costs), (true, 4, costs));
        let strange = [&word[..9], &[3], &word[10..]].concat();
        assert!(Word::parse(&strange).is_none(), "three vcis");
        assert_eq!(*read.plans, table.parse().unwrap());
        assert!(Word::parse(&word[..20]).is_none() && Word::parse(&[]).is_none());
        assert!(Word::parse(&word[..word.len() - 3]).is_none(), "`cha` is no algorithm");
    }

    #[test]
    fn a_table_that_cannot_be_read_is_told_of() {
        let file = std::env::temp_dir().join(format!("plans-{}", std::process::id()));
        assert!(read_plans(&file).unwrap_err().contains("No such file"));
        std::fs::write(&file, "allreduce 0..99 ring\nbcast 1 fast").unwrap();
        assert!(read_plans(&file).unwrap_err().starts_with("line 2: no `fast` for bcast: "));
        std::fs::write(&file, " ".repeat(PLANS_LEN_MAX as usize + 1)).unwrap();
        assert!(read_plans(&file).unwrap_err().contains("longer than 65536"));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn what_is_not_remembered_is_as_usual() {
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
    fn what_rank_0_says_of_losses_is_read_as_it_was_told() {
        let quic_first = QuicFirst::from([(0, 1), (3, 70_000)]);
        let told = [emit_quic_first(&quic_first), vec![9, 9]].concat();
        assert_eq!(parse_quic_first(&told), Some((quic_first, &[9, 9][..])));
        assert_eq!(parse_quic_first(&told[..11]), None);
        assert_eq!(parse_quic_first(&[255; 12]), None);
        assert_eq!(
            parse_quic_first(&emit_quic_first(&QuicFirst::new())),
            Some((QuicFirst::new(), &[][..]))
        );
    }

    #[test]
    fn each_two_sites_cost_what_is_remembered_of_them() {
        let far = LinkCost { latency_ns: 9_000_000, gap_ns: 2_000, bytes_per_s: Some(30_000_000) };
        let near = LinkCost { latency_ns: 1_000_000, bytes_per_s: None, ..far };
        let pairs = [((0, 1), near), ((1, 2), far)].into();
        let between = NetworkCosts { near: None, far: Some(far), pairs, ..NetworkCosts::default() };
        let (costs, pairs) = between_nodes(Costs::default(), &between);
        assert_eq!(pairs.cost(2, 1), Some(costs.wide));
        let latency_ns = near.latency_ns - 3_000;
        assert_eq!(pairs.cost(0, 1), Some(plan::Cost { latency_ns, ..costs.wide }));
        assert_eq!(pairs.cost(0, 2), None);
    }

    #[test]
    fn the_first_rank_of_each_other_node_is_asked() {
        let home = |node: u8, site: &str| Locality {
            node: vec![node],
            site: Some(site.into()),
            ..Locality::default()
        };
        let homes = [home(7, "a"), home(5, "a"), home(7, "a"), home(1, "b"), home(5, "a")];
        assert_eq!(firsts(&SiteMap::of(&homes), 5), [1, 3]);
        assert_eq!(firsts(&SiteMap::of(&homes[..3]), 3), []);
        assert_eq!(firsts(&SiteMap::flat(), 3), []);
    }
}
