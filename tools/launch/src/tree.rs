//! Tree of agents that `mpiexec` starts, with the ranks of each.
//!
//! Without a grid, `mpiexec` starts an agent for each host. On a grid, it starts one for each site, on the
//! site's first host with ranks, and that agent starts those of the other hosts.

use std::collections::HashMap;
use std::net::SocketAddr;

use netpath::ListenAddress;

use crate::binding::CoreBinding;
use crate::channel::{Branch, GatewayStart, RankStart, Start};
use crate::grid::routes::TransitRoute;
use crate::grid::{Gateway, Grid, Site};
use crate::host;
use crate::host_status::StatusRequest;
use crate::launch_context::LaunchContext;
use crate::launcher::Launcher;
use crate::options::{Inherited, Options, Program};
use crate::trace;

/// The world whose ranks a tree starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeWorld {
    /// Number of its job, by which gateways know it.
    pub job: u64,
    /// Its first process.
    pub first: u32,
    /// True if ranks of another world spawn it.
    pub is_spawned: bool,
    /// Host of the agent that leads to the other hosts of a site, as in messages, by the name of the site.
    pub leaders: HashMap<String, String>,
    /// Number of gateways that were started before.
    pub gateways: usize,
    /// Number of ranks of other worlds on each host; none where the list ends.
    pub others: Vec<u32>,
}

/// Agents and gateways to start, and the places of the ranks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Agents that `mpiexec` starts itself.
    pub branches: Vec<Branch>,
    /// Index of the branch that leads to each rank.
    pub branch_of_rank: Vec<usize>,
    /// Name of each rank's host in messages.
    pub hosts: Vec<String>,
    /// Gateways to start, by their numbers.
    pub gateways: Vec<StartedGateway>,
    /// Number of each rank's node, counting nodes with ranks in the order of hosts.
    pub nodes: Vec<usize>,
}

/// A gateway to start for the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartedGateway {
    /// Name in messages.
    pub name: String,
    /// Site that it belongs to.
    pub site: String,
    pub gateway: Gateway,
}

impl Tree {
    /// Builds the tree of a world.
    pub fn of(options: &Options, here: &LaunchContext, world: &TreeWorld) -> Self {
        let placement = options.placement();
        let sites = sites_of(options);
        let size = placement.len() as u32;
        let local = [("localhost".to_owned(), None)];
        let hosts = if options.hosts.is_empty() { &local[..] } else { &options.hosts };
        let mut ranks = ranks_of(options, here, world, &placement, &sites);
        let mut tree = Self {
            branches: Vec::new(),
            gateways: Vec::new(),
            branch_of_rank: vec![0; placement.len()],
            hosts: vec![String::new(); placement.len()],
            nodes: vec![0; placement.len()],
        };
        let used: Vec<&str> = ranks
            .keys()
            .filter_map(|&host| Some(sites.get(host).copied().flatten()?.name.as_str()))
            .collect();
        let routes = options.grid.as_ref().map_or(Vec::new(), Grid::transit_routes);
        let is_used = |site: &Site| {
            let is_on = |route: &&TransitRoute<'_>| {
                let ends = [route.from, route.to];
                ends.iter().all(|end| used.contains(&&*end.name)) && route.between.contains(&site)
            };
            used.contains(&&*site.name) || routes.iter().any(|route| is_on(&route))
        };
        let mut last_site: Option<&Site> = None;
        let mut nodes = 0;
        for (index, (host, _)) in hosts.iter().enumerate() {
            let mine = ranks.remove(&index).unwrap_or_default();
            let site = sites.get(index).copied().flatten();
            let name = site.map_or(host.clone(), |site| name_of(host, site));
            let leader = site.and_then(|site| world.leaders.get(&site.name));
            let is_leader = leader.is_some_and(|leader| *leader == name);
            let is_child = site.is_some() && (site == last_site || leader.is_some());
            let used_site = site.filter(|site| is_used(site));
            let mut gateways = Vec::new();
            if let (Some(grid), Some(site)) = (&options.grid, used_site) {
                for gateway in site.gateways.iter().filter(|gateway| gateway.host == *host) {
                    let name = format!("the gateway on host {name}");
                    let started =
                        StartedGateway { name, site: site.name.clone(), gateway: gateway.clone() };
                    let number = world.gateways + tree.gateways.len();
                    let mut start = started.start(number, grid, site, world.job);
                    start.arguments.extend(options.verbose.then(|| "--account".to_owned()));
                    gateways.push(start);
                    tree.gateways.push(started);
                }
            }
            if mine.is_empty() && gateways.is_empty() {
                continue;
            }
            let start_of = |ranks| Start {
                first: world.first,
                size,
                is_spawned: world.is_spawned,
                patience_s: here.patience_s,
                ranks,
                ..Start::default()
            };
            if let Some(leader) = leader.filter(|_| site != last_site) {
                let start = start_of(Vec::new());
                tree.branches.push(Branch { host: leader.clone(), command: Vec::new(), start });
            }
            for one in &mine {
                let rank = (one.rank - world.first) as usize;
                tree.branch_of_rank[rank] = tree.branches.len() - usize::from(is_child);
                tree.nodes[rank] = nodes;
                tree.hosts[rank].clone_from(&name);
            }
            nodes += usize::from(!mine.is_empty());
            let has_route = |site: &Site| routes.iter().any(|route| *route.from == *site);
            let awaits = site.filter(|site| !site.gateways.is_empty() || has_route(site));
            let awaits = awaits.map(|site| site.name.clone());
            let trace_bytes = options.trace.as_ref().map(|_| trace::room(placement.len()));
            let has_profile = options.profile.is_some();
            let start = Start { gateways, awaits, trace_bytes, has_profile, ..start_of(mine) };
            last_site = site;
            let launcher = launcher(host, site, is_child, options, here);
            let agent = agent(site, &launcher, options, here);
            let branch =
                |start| Branch { command: launcher.command(host, &agent), host: name, start };
            match tree.branches.last_mut().filter(|_| is_child) {
                Some(first) if is_leader => {
                    let branches = std::mem::take(&mut first.start.branches);
                    first.start = Start { branches, ..start };
                }
                Some(first) => first.start.branches.push(branch(start)),
                None => tree.branches.push(branch(start)),
            }
        }
        tree
    }
}

/// Returns the name of a site's host in messages.
pub(crate) fn name_of(host: &str, site: &Site) -> String {
    format!("{host}{OF_SITE}{}", site.name)
}

/// Returns the host, and the site if there is one, of a name in messages.
pub(crate) fn host_and_site(name: &str) -> (&str, Option<&str>) {
    name.split_once(OF_SITE).map_or((name, None), |(host, site)| (host, Some(site)))
}

/// Text between the host and its site in messages.
const OF_SITE: &str = " of site ";

/// Returns agents without ranks on the hosts of a command line without a grid.
pub(crate) fn bare(options: &Options, here: &LaunchContext) -> Vec<Branch> {
    let branch = |(host, _): &(String, Option<u32>)| {
        let launcher = launcher(host, None, false, options, here);
        let command = launcher.command(host, &agent(None, &launcher, options, here));
        Branch { host: host.clone(), command, start: Start::default() }
    };
    options.hosts.iter().map(branch).collect()
}

/// Returns the site of each host; none without a grid.
pub(crate) fn sites_of(options: &Options) -> Vec<Option<&Site>> {
    let sites = options.grid.iter().flat_map(|grid| &grid.sites);
    sites.flat_map(|site| site.hosts.iter().map(move |_| Some(site))).collect()
}

impl StartedGateway {
    fn start(&self, number: usize, grid: &Grid, site: &Site, job: u64) -> GatewayStart {
        let others = grid.sites.iter().filter(|other| other.name != site.name);
        let others =
            others.flat_map(|other| &other.gateways).filter_map(|one| one.outside.as_ref());
        let allow = grid.own_subnets(site).into_iter().map(|net| ("--allow", net.to_owned()));
        let others = others.map(|address| ("--gateways", address.ip().to_string()));
        let words = allow.chain(others);
        let is_transit = grid
            .transit_routes()
            .iter()
            .any(|route| route.between.iter().any(|it| it.name == site.name));
        let arguments = words.flat_map(|(name, value)| [name.to_owned(), value]);
        let arguments = arguments.chain(is_transit.then(|| "--transit".to_owned())).collect();
        let listen = self.gateway.listen_addresses().iter().map(ListenAddress::to_string).collect();
        GatewayStart { number, name: self.name.clone(), listen, arguments, job }
    }
}

/// Returns agents on all hosts of a grid, which report on their hosts. The hosts have numbers in order of the grid.
pub(crate) fn status(options: &Options, here: &LaunchContext) -> Vec<Branch> {
    let mut branches: Vec<Branch> = Vec::new();
    let mut number = 0;
    for site in options.grid.iter().flat_map(|grid| &grid.sites) {
        for (at, &host) in site.known_hosts().iter().enumerate() {
            let launcher = launcher(host, Some(site), at > 0, options, here);
            let agent = agent(Some(site), &launcher, options, here);
            let own = site.gateways.iter().filter(|gateway| gateway.host == host);
            let listen = |gateway: &Gateway| {
                gateway.listen_addresses().iter().map(ListenAddress::to_string).collect()
            };
            let gateways = own.map(listen).collect();
            let request = StatusRequest { number, gateways, has_slurm: site.awaits_hosts() };
            let patience_s = here.patience_s;
            let start = Start { status: Some(request), patience_s, ..Start::default() };
            let command = launcher.command(host, &agent);
            let branch = Branch { host: name_of(host, site), command, start };
            match branches.last_mut().filter(|_| at > 0) {
                Some(first) => first.start.branches.push(branch),
                None => branches.push(branch),
            }
            number += 1;
        }
    }
    branches
}

/// Returns the `CANELE_GATEWAYS` setting of each site, for gateways that listen at these addresses.
pub(crate) fn gateway_lists(
    grid: &Grid,
    got: &[(StartedGateway, Vec<SocketAddr>)],
) -> HashMap<String, String> {
    let mut lists: HashMap<String, String> = HashMap::new();
    let mut add = |site: &str, word: String| {
        let list = lists.entry(site.to_owned()).or_default();
        *list = if list.is_empty() { word } else { format!("{list},{word}") };
    };
    for (started, addresses) in got {
        // An agent that reports fewer addresses than requested is broken.
        add(&started.site, started.gateway.setting(addresses).unwrap_or_default());
    }
    for route in grid.transit_routes() {
        let hops = [&[route.from], &route.between[..], &[route.to]].concat();
        let stages: Vec<String> =
            hops.windows(2).map(|hop| stage(grid, (hop[0], hop[1]), got)).collect();
        // The gateways of sites without ranks are not started.
        if stages.iter().all(|stage| !stage.is_empty()) {
            add(&route.from.name, stages.join(">"));
        }
    }
    lists
}

/// Returns the addresses of gateways of a site that another site calls on the way to a third.
fn stage(
    grid: &Grid,
    (from, to): (&Site, &Site),
    got: &[(StartedGateway, Vec<SocketAddr>)],
) -> String {
    let callable: Vec<&Gateway> = grid.callable(from, to).collect();
    let of_site = got
        .iter()
        .filter(|(started, _)| started.site == to.name && callable.contains(&&started.gateway));
    let addresses = of_site.filter_map(|(started, got)| started.gateway.outside_address(got));
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join("|")
}

/// Returns the launcher for a host's agent, used from here or by the agent of its site.
pub(crate) fn launcher(
    host: &str,
    site: Option<&Site>,
    is_child: bool,
    options: &Options,
    here: &LaunchContext,
) -> Launcher {
    let launch = site.and_then(|site| site.launch.as_ref());
    let spread = site.and_then(|site| site.spread.as_ref()).filter(|_| is_child);
    let is_here = !is_child && (host::is_loopback(host) || host == here.host);
    let default = || match options.launcher.as_ref() {
        Some(launcher) => launcher.clone(),
        None if is_here => Launcher::Fork,
        None if options.allocated.iter().any(|one| one == host) => Launcher::slurm(),
        None => Launcher::ssh(),
    };
    match spread.or(launch) {
        Some(launcher) => launcher.clone(),
        None => default().with(&options.launcher_arguments),
    }
}

/// Returns the path of the agent on a host.
pub(crate) fn agent(
    site: Option<&Site>,
    launcher: &Launcher,
    options: &Options,
    here: &LaunchContext,
) -> String {
    let of_site = site.and_then(|site| site.agent.clone());
    let prefix = options.prefix.as_ref().filter(|_| *launcher != Launcher::Fork);
    let installed = prefix.map(|prefix| format!("{prefix}/bin/canele-agent"));
    of_site.or(installed).unwrap_or_else(|| here.agent.clone())
}

/// Returns what a program gets of the environment of `mpiexec`.
fn inherited(options: &Options, program: &Program, here: &LaunchContext) -> Vec<(String, String)> {
    let own = &here.environment;
    match program.inherited.as_ref().unwrap_or(&options.inherited) {
        Inherited::All => own.clone(),
        Inherited::Except(names) => {
            own.iter().filter(|(name, _)| !names.contains(name)).cloned().collect()
        }
        Inherited::Only(names) => {
            let value = |name: &String| Some((name.clone(), std::env::var(name).ok()?));
            names.iter().filter_map(value).collect()
        }
    }
}

/// Returns variables by which programs on other hosts find Canele in its folder there.
fn of_prefix(prefix: &str, environment: &[(String, String)]) -> [(String, String); 2] {
    [("PATH", "bin"), ("LD_LIBRARY_PATH", "lib")].map(|(variable, folder)| {
        let known = environment.iter().rev().find(|(name, _)| name == variable);
        let rest = known.map(|(_, value)| format!(":{value}")).unwrap_or_default();
        (variable.to_owned(), format!("{prefix}/{folder}{rest}"))
    })
}

/// Returns the starts of the ranks of each host.
fn ranks_of(
    options: &Options,
    here: &LaunchContext,
    world: &TreeWorld,
    placement: &[usize],
    sites: &[Option<&Site>],
) -> HashMap<usize, Vec<RankStart>> {
    let names: Vec<&str> = options.host_names().collect();
    let programs = options.programs.iter().flat_map(|one| vec![one; one.ranks as usize]);
    let bound = |to| CoreBinding { to, order: options.mapping.order, position: 0, ranks: 0 };
    let mut on_hosts: HashMap<usize, Vec<RankStart>> = HashMap::new();
    for ((rank, &host), program) in (world.first..).zip(placement).zip(programs) {
        let site = sites.get(host).copied().flatten();
        let mut environment = inherited(options, program, here);
        if let Some(prefix) = &options.prefix
            && launcher(names[host], site, false, options, here) != Launcher::Fork
        {
            environment.extend(of_prefix(prefix, &environment));
        }
        environment.extend(site.iter().flat_map(|site| site.environment.clone()));
        environment.extend(options.environment.iter().cloned());
        environment.extend(program.environment.iter().cloned());
        if options.record.is_some() {
            environment.push((boot::RECORD_VARIABLE.to_owned(), "1".into()));
        }
        if let Some(site) = site {
            environment.push((settings::SITE.variable().to_owned(), site.name.clone()));
        }
        let binaries = site.and_then(|site| site.binaries.clone());
        let without = match program.inherited.as_ref().unwrap_or(&options.inherited) {
            Inherited::Except(names) => Some(names.clone()),
            Inherited::All => Some(Vec::new()),
            Inherited::Only(_) => None,
        };
        let directory = program.directory.as_ref();
        let directory = directory.or(site.and_then(|site| site.directory.as_ref()));
        on_hosts.entry(host).or_default().push(RankStart {
            rank,
            command: program.command.clone(),
            binaries: program.path.iter().cloned().chain(binaries).collect(),
            directory: directory.or(here.directory.as_ref()).cloned(),
            environment,
            inherit: without.is_some(),
            without: without.unwrap_or_default(),
            has_input: options.input.has(rank),
            bound: program.binding.clone().or_else(|| options.binding()).map(bound),
            reports_binding: options.reports_bindings,
        });
    }
    for (host, ranks) in &mut on_hosts {
        let (count, of) = (ranks.len().to_string(), ranks.len() as u32);
        let others = world.others.get(*host).copied().unwrap_or(0);
        for (position, one) in ranks.iter_mut().enumerate() {
            if let Some(bound) = &mut one.bound {
                (bound.position, bound.ranks) = (others + position as u32, others + of);
            }
            one.environment.push(("MPI_LOCALNRANKS".into(), count.clone()));
            one.environment.push(("MPI_LOCALRANKID".into(), position.to_string()));
        }
    }
    on_hosts
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::command_line::Parsed;
    use crate::grid::Grid;

    fn options(line: &str) -> Options {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match Options::parse(&words).unwrap() {
            Parsed::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    fn here() -> LaunchContext {
        LaunchContext {
            agent: "/here/agent".into(),
            host: "head".into(),
            directory: Some("/here".into()),
            environment: vec![("A".into(), "here".into())],
            patience_s: 30,
        }
    }

    fn tree(line: &str, grid: &str) -> Tree {
        let mut options = options(line);
        if !grid.is_empty() {
            options.take_grid(Grid::parse(grid, "g").unwrap());
        }
        Tree::of(&options, &here(), &TreeWorld { job: 7, ..TreeWorld::default() })
    }

    fn shape(branches: &[Branch]) -> Vec<(&str, Vec<u32>, usize)> {
        branches
            .iter()
            .map(|branch| {
                let ranks = branch.start.ranks.iter().map(|one| one.rank).collect();
                (branch.host.as_str(), ranks, branch.start.branches.len())
            })
            .collect()
    }

    const GRID: &str = "[[site]]\nname = \"n\"\nhosts = [\"head:1\", \"b:2\"]\nbinaries = \"bin\"\n\
        [[site]]\nname = \"s\"\nhosts = [\"c\", \"d\", \"e\"]\nslots = 2\nlaunch = \"fork\"\n\
        spread = \"go {host} --\"\nagent = \"/there/agent\"\ndirectory = \"/run\"\n\
        environment = { A = \"there\", B = \"x\" }\n";

    #[test]
    fn mpiexec_starts_every_hosts_agent_without_a_grid() {
        let tree = tree("-n 4 -hosts head:1,b:2 x", "");
        assert_eq!(shape(&tree.branches), [("head", vec![0, 3], 0), ("b", vec![1, 2], 0)]);
        assert_eq!(
            (&tree.branch_of_rank[..], &tree.nodes[..]),
            (&[0, 1, 1, 0][..], &[0, 1, 1, 0][..])
        );
        assert_eq!(tree.branches[0].command, ["/here/agent"]);
        assert_eq!(tree.branches[1].command[..2], ["ssh", "-x"]);
        assert_eq!(tree.branches[0].start.ranks[0].directory.as_deref(), Some("/here"));
    }

    #[test]
    fn the_first_host_of_a_site_leads_to_its_others() {
        let tree = tree("-n 7 x", GRID);
        assert_eq!(
            shape(&tree.branches),
            [("head of site n", vec![0], 1), ("c of site s", vec![3, 4], 1)]
        );
        assert_eq!(shape(&tree.branches[1].start.branches), [("d of site s", vec![5, 6], 0)]);
        assert_eq!(tree.branch_of_rank, [0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(tree.nodes, [0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(tree.hosts[5], "d of site s");
        assert_eq!(tree.branches[1].start.all_ranks(), [3, 4, 5, 6]);
    }

    #[test]
    fn agents_are_started_by_the_launcher_of_their_site() {
        let tree = tree("-n 6 x", GRID);
        let [north, south] = &tree.branches[..] else { panic!("{tree:?}") };
        assert_eq!(north.command, ["/here/agent"]);
        assert_eq!(north.start.branches[0].command[..1], ["ssh"]);
        assert_eq!(south.command, ["/there/agent"]);
        assert_eq!(south.start.branches[0].command, ["go", "d", "--", "/there/agent"]);
    }

    #[test]
    fn ranks_get_the_settings_of_their_site_unless_the_command_line_overrides_them() {
        let value = |tree: &Tree, rank: usize, name: &str| {
            let branch = &tree.branches[tree.branch_of_rank[rank]];
            let children = branch.start.branches.iter().flat_map(|branch| &branch.start.ranks);
            let start =
                branch.start.ranks.iter().chain(children).find(|one| one.rank == rank as u32);
            let all = start.unwrap().environment.iter().rev();
            all.clone().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        let plain = tree("-n 6 x", GRID);
        let variable = settings::SITE.variable();
        assert_eq!(value(&plain, 0, variable).as_deref(), Some("n"));
        assert_eq!(value(&plain, 5, variable).as_deref(), Some("s"));
        assert_eq!(value(&plain, 0, "A").as_deref(), Some("here"));
        assert_eq!(value(&plain, 5, "A").as_deref(), Some("there"));
        assert_eq!(value(&plain, 3, "MPI_LOCALNRANKS").as_deref(), Some("2"));
        assert_eq!(plain.branches[1].start.ranks[0].directory.as_deref(), Some("/run"));
        assert_eq!(plain.branches[0].start.ranks[0].binaries, ["bin"]);
        let given = tree("-genv A g -n 6 -env B p -wdir /w x", GRID);
        assert_eq!(value(&given, 5, "A").as_deref(), Some("g"));
        assert_eq!(value(&given, 5, "B").as_deref(), Some("p"));
        assert_eq!(given.branches[1].start.ranks[0].directory.as_deref(), Some("/w"));
    }

    #[test]
    fn gateways_are_on_their_hosts_and_ranks_know_them() {
        let grid = "[[site]]\nname = \"n\"\nhosts = [\"a:2\", \"b\"]\nnetworks = [\"l\", \"w\"]\n\
            [[site.gateway]]\nhost = \"b\"\ninside = \"10.1.0.2:7\"\noutside = \"192.0.2.2:7-9\"\n\
            [[site]]\nname = \"s\"\nhosts = [\"c\"]\nnetworks = [\"m\", \"w\"]\n\
            [[site.gateway]]\nhost = \"c\"\ninside = \"10.2.0.3\"\n\
            [[network]]\nname = \"l\"\nsubnets = [\"10.1.0.0/16\"]\n\
            [[network]]\nname = \"m\"\nsubnets = [\"10.2.0.0/16\"]\n[[network]]\nname = \"w\"\n";
        let few = tree("-n 2 x", grid);
        let names = |tree: &Tree| -> Vec<String> {
            tree.gateways.iter().map(|started| started.name.clone()).collect()
        };
        assert_eq!(names(&few), ["the gateway on host b of site n"]);
        let first = &few.branches[0].start;
        assert_eq!(shape(&first.branches), [("b of site n", vec![], 0)]);
        assert_eq!(first.awaits.as_deref(), Some("n"));
        let gateway = &first.branches[0].start.gateways[0];
        assert_eq!(gateway.listen, ["10.1.0.2:7", "192.0.2.2:7-9"]);
        assert_eq!(gateway.arguments.join(" "), "--allow 10.1.0.0/16");
        assert_eq!(gateway.job, 7);
        // The gateway's host has no rank because there are few, or because it takes none.
        let third = |hosts: &str| {
            let tree = tree("-n 3 x", &grid.replace("\"b\"]", hosts));
            tree.hosts[2].clone()
        };
        assert_eq!(third("\"b\"]"), "b of site n");
        assert_eq!(third("\"b:0\"]"), "c of site s");
        let all = tree("-n 4 x", grid);
        let south = &all.branches[1].start.gateways[0];
        assert_eq!((south.number, &south.listen[..]), (1, &["10.2.0.3".to_owned()][..]));
        assert_eq!(south.arguments.join(" "), "--allow 10.2.0.0/16 --gateways 192.0.2.2");
        let got = [vec!["10.1.0.2:7", "192.0.2.2:9"], vec!["10.2.0.3:81"]];
        let got = got.map(|list| list.into_iter().map(|one| one.parse().unwrap()).collect());
        let known = Grid::parse(grid, "g").unwrap();
        let lists = gateway_lists(&known, &all.gateways.into_iter().zip(got).collect::<Vec<_>>());
        assert_eq!(lists["n"], "10.1.0.2:7=192.0.2.2:9");
        assert_eq!(lists["s"], "10.2.0.3:81");
    }

    #[test]
    fn spawned_ranks_are_reached_through_the_agents_that_run() {
        let mut options = options("-n 3 x");
        options.take_grid(Grid::parse(GRID, "g").unwrap());
        let leaders = [("s".to_owned(), "c of site s".to_owned())].into();
        let world = TreeWorld { first: 7, is_spawned: true, leaders, ..TreeWorld::default() };
        // Ranks go to host d only, then to c and d.
        for (homes, led, own) in [([3, 3, 3], 3, vec![]), ([2, 3, 2], 1, vec![7, 9])] {
            let (homes, summary) = (homes.to_vec(), Vec::new());
            options.placing = Some(crate::placing::Placing { homes, summary });
            let tree = Tree::of(&options, &here(), &world);
            assert_eq!(shape(&tree.branches), [("c of site s", own, 1)]);
            let [child] = &tree.branches[0].start.branches[..] else { panic!("{tree:?}") };
            assert_eq!((child.host.as_str(), child.start.ranks.len()), ("d of site s", led));
            assert_eq!(child.command, ["go", "d", "--", "/there/agent"]);
            assert!(child.start.is_spawned && tree.branches[0].start.first == 7);
            assert_eq!(tree.branch_of_rank, [0; 3]);
        }
    }

    #[test]
    fn sites_without_ranks_are_not_started() {
        let tree = tree("-n 2 x", GRID);
        assert_eq!(shape(&tree.branches), [("head of site n", vec![0], 1)]);
    }
}
