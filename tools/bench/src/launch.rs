//! Launch commands: how each library's launcher starts a program at a place, as pure functions.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use lab::Spec;

use crate::library::{Library, LibraryKind};

/// Hosts of the ranks.
#[derive(Clone, Debug, PartialEq)]
pub enum Testbed {
    /// This machine.
    Machine,
    /// Nodes of a lab.
    Grid(LabNodes),
}

/// Nodes of a lab, and the command that enters them.
#[derive(Clone, Debug, PartialEq)]
pub struct LabNodes {
    /// The lab.
    pub lab: Box<Spec>,
    /// Names of the nodes; ranks are distributed to them in blocks.
    pub nodes: Vec<String>,
    /// The `canele` command.
    pub canele: PathBuf,
    /// A command that enters a node as `ssh` would: options, host, then words for a shell.
    pub enter: PathBuf,
    /// Grid file with the gateways for Canele; without one, hosts are named on the command line.
    pub file: Option<PathBuf>,
}

impl LabNodes {
    /// Returns the text of a grid file with this number of gateways: that of the last site, or one of each. A
    /// gateway is on a node without ranks, if there is one.
    pub fn description(&self, ranks: u32, gateways: u32) -> String {
        let spec = &self.lab;
        let places = self.places(ranks);
        let mut text = String::new();
        for site in 0..spec.sites {
            let count = |node: u32| {
                let place = places.iter().find(|(name, _)| *name == spec.host(site, node));
                place.map_or(0, |(_, count)| *count)
            };
            if (0..spec.nodes).all(|node| count(node) == 0) {
                continue;
            }
            let host = |node| format!("\"{}:{}\"", spec.host(site, node), count(node));
            let hosts = (0..spec.nodes).map(host).collect::<Vec<_>>().join(", ");
            let launch = self.enter_by_agent();
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "[[site]]\nname = \"site{site}\"\nhosts = [{hosts}]\nlaunch = \"{launch}\"\n"
            );
            if site + gateways < spec.sites {
                continue;
            }
            let node = self.gateway(site, &places);
            let (host, address) = (spec.host(site, node), spec.address(site, node, 0));
            let subnet = address.rsplit_once('.').map_or("", |(subnet, _)| subnet);
            let _ = write!(
                text,
                "networks = [\"lan{site}\"]\n[[site.gateway]]\nhost = \"{host}\"\ninside = \"{address}\"\n\
                 outside = \"{address}\"\n[[network]]\nname = \"lan{site}\"\nsubnets = [\"{subnet}.0/24\"]\n"
            );
        }
        text
    }

    /// Returns the hosts of those gateways, in the order of the sites.
    pub fn gateways(&self, ranks: u32, gateways: u32) -> Vec<String> {
        let places = self.places(ranks);
        let sites = self.lab.sites.saturating_sub(gateways)..self.lab.sites;
        sites.map(|site| self.lab.host(site, self.gateway(site, &places))).collect()
    }

    /// Returns the node of a site's gateway: one without ranks, if there is one.
    fn gateway(&self, site: u32, places: &[(String, u32)]) -> u32 {
        let spec = &self.lab;
        let is_idle = |node: &u32| {
            let host = spec.host(site, *node);
            places.iter().all(|(name, count)| *name != host || *count == 0)
        };
        (0..spec.nodes).rev().find(is_idle).unwrap_or(spec.nodes - 1)
    }

    /// Returns the nodes that have ranks, with their numbers. Sites have equal parts of the ranks, in blocks, and
    /// so have the nodes of a site.
    pub fn places(&self, ranks: u32) -> Vec<(String, u32)> {
        let sites: Vec<&[String]> =
            self.nodes.chunk_by(|one, other| site(one) == site(other)).collect();
        let of_sites = shares(ranks, sites.len()).zip(sites);
        let all = of_sites
            .flat_map(|(ranks, nodes)| nodes.iter().cloned().zip(shares(ranks, nodes.len())));
        all.filter(|(_, ranks)| *ranks > 0).collect()
    }

    /// Returns the command that starts Canele's agents on nodes.
    fn enter_by_agent(&self) -> String {
        format!("{} lab run", text(&self.canele))
    }
}

/// A command to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Node of the lab; none for the machine itself.
    pub node: Option<String>,
    /// The command and its arguments.
    pub words: Vec<String>,
    /// Variables to set.
    pub environment: Vec<(String, String)>,
}

impl Launch {
    /// Returns the command that starts `program` with `arguments` on `ranks` ranks of a library.
    ///
    /// A peer's launcher starts in the first node, because the other nodes' agents connect to it. Canele's
    /// launcher speaks with its agents through their standard streams and stays outside.
    pub fn new(
        library: &Library,
        testbed: &Testbed,
        ranks: u32,
        program: &Path,
        arguments: &[String],
    ) -> Self {
        let mut launch = Self::default();
        launch.launcher(library, testbed);
        if let Testbed::Grid(grid) = testbed {
            launch.hosts(library.kind, grid, ranks);
        }
        launch.add(["-n".into(), ranks.to_string(), text(program)]);
        launch.words.extend_from_slice(arguments);
        launch
    }

    /// Formats the command as a line.
    pub fn line(&self) -> String {
        let place = self.node.iter().map(|node| format!("{node}:"));
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words = self.words.iter().cloned();
        place.chain(variables).chain(words).collect::<Vec<_>>().join(" ")
    }

    fn launcher(&mut self, library: &Library, testbed: &Testbed) {
        let program = match library.kind {
            LibraryKind::Mpich | LibraryKind::IntelMpi => "bin/mpiexec.hydra",
            LibraryKind::Canele
            | LibraryKind::OpenMpi
            | LibraryKind::RawTcp
            | LibraryKind::TcpStreams
            | LibraryKind::Memory => "bin/mpiexec",
        };
        self.add([text(&library.root.join(program))]);
        self.set("LD_LIBRARY_PATH", text(&library.libraries()));
        if library.kind == LibraryKind::OpenMpi {
            // Both oversubscription and root must be allowed.
            self.add(["--map-by".into(), ":OVERSUBSCRIBE".into()]);
            self.set("OMPI_ALLOW_RUN_AS_ROOT", "1".into());
            self.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".into());
        }
        if let (LibraryKind::IntelMpi, Testbed::Grid(_)) = (library.kind, testbed) {
            self.set("I_MPI_PIN", "0".into());
        }
    }

    /// Names the hosts. Nodes of a lab share the machine's cores, so a library that binds ranks would put all
    /// of them on the first cores. Binding is off there.
    fn hosts(&mut self, kind: LibraryKind, grid: &LabNodes, ranks: u32) {
        let places = grid.places(ranks);
        let with_slots = places.iter().map(|(node, count)| format!("{node}:{count}"));
        let list = with_slots.collect::<Vec<_>>().join(",");
        if kind.is_peer() {
            self.node = grid.nodes.first().cloned();
        }
        self.set("CANELE_LAB", grid.lab.name.clone());
        let enter = text(&grid.enter);
        match kind {
            LibraryKind::Canele => match &grid.file {
                Some(file) => self.add(["-grid".into(), text(file)]),
                None => {
                    let exec = grid.enter_by_agent();
                    self.add(["-launcher-exec".into(), exec, "-hosts".into(), list]);
                }
            },
            LibraryKind::Mpich => {
                self.add(["-launcher".into(), "ssh".into(), "-launcher-exec".into(), enter]);
                self.add(["-hosts".into(), list]);
            }
            LibraryKind::IntelMpi => {
                let each = places.iter().map(|(_, count)| *count).max().unwrap_or(1);
                let names: Vec<_> = places.into_iter().map(|(node, _)| node).collect();
                self.add(["-launcher".into(), "ssh".into(), "-launcher-exec".into(), enter]);
                self.add(["-hosts".into(), names.join(","), "-ppn".into(), each.to_string()]);
            }
            LibraryKind::OpenMpi => {
                self.add(["--prtemca".into(), "plm_ssh_agent".into(), enter]);
                self.add(["--bind-to".into(), "none".into(), "--host".into(), list]);
            }
            LibraryKind::RawTcp | LibraryKind::TcpStreams | LibraryKind::Memory => {}
        }
    }

    fn add<const N: usize>(&mut self, words: [String; N]) {
        self.words.extend(words);
    }

    fn set(&mut self, name: &str, value: String) {
        self.environment.push((name.into(), value));
    }
}

/// Divides ranks into equal parts; the first ones have one more if it does not divide.
fn shares(ranks: u32, parts: usize) -> impl Iterator<Item = u32> {
    let parts = parts as u32;
    (0..parts).map(move |index| ranks / parts + u32::from(index < ranks % parts))
}

/// Returns the site of a node of the lab.
fn site(node: &str) -> &str {
    node.rsplit_once('-').map_or(node, |(site, _)| site)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(kind: LibraryKind, on_grid: bool, ranks: u32) -> Launch {
        let library = Library { kind, root: "/mpi".into() };
        let grid = LabNodes {
            lab: Box::default(),
            nodes: vec!["a".into(), "b".into()],
            canele: "/p/bin/canele".into(),
            enter: "/w/enter".into(),
            file: None,
        };
        let testbed = if on_grid { Testbed::Grid(grid) } else { Testbed::Machine };
        Launch::new(&library, &testbed, ranks, Path::new("/w/pingpong"), &["1".into(), "8".into()])
    }

    #[test]
    fn on_the_machine_only_the_library_differs() {
        let ours = launch(LibraryKind::Canele, false, 2);
        assert_eq!(ours.line(), "LD_LIBRARY_PATH=/mpi/lib /mpi/bin/mpiexec -n 2 /w/pingpong 1 8");
        let peer = launch(LibraryKind::Mpich, false, 2);
        assert_eq!(
            peer.line(),
            "LD_LIBRARY_PATH=/mpi/lib /mpi/bin/mpiexec.hydra -n 2 /w/pingpong 1 8"
        );
        assert!(launch(LibraryKind::OpenMpi, false, 16).line().contains(":OVERSUBSCRIBE"));
    }

    #[test]
    fn a_peer_starts_in_the_first_node_of_a_grid_and_enters_the_others() {
        for kind in [LibraryKind::Mpich, LibraryKind::OpenMpi, LibraryKind::IntelMpi] {
            let launch = launch(kind, true, 2);
            assert_eq!(launch.node.as_deref(), Some("a"), "{kind:?}");
            assert!(launch.line().contains("/w/enter"), "{}", launch.line());
        }
        let ours = launch(LibraryKind::Canele, true, 2);
        assert_eq!(ours.node, None);
        assert!(ours.words.contains(&"/p/bin/canele lab run".to_owned()));
        assert!(ours.words.contains(&"a:1,b:1".to_owned()));
    }

    #[test]
    fn gateways_are_on_nodes_that_take_no_rank_where_there_are_some() {
        let grid = |nodes: &[&str]| LabNodes {
            lab: Box::default(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            canele: "/p/bin/canele".into(),
            enter: "/w/enter".into(),
            file: None,
        };
        let pair = grid(&["site0-node0", "site1-node1"]);
        let both = pair.description(2, 2);
        assert_eq!(
            both.lines().take(8).collect::<Vec<_>>(),
            [
                "[[site]]",
                "name = \"site0\"",
                "hosts = [\"site0-node0:1\", \"site0-node1:0\"]",
                "launch = \"/p/bin/canele lab run\"",
                "networks = [\"lan0\"]",
                "[[site.gateway]]",
                "host = \"site0-node1\"",
                "inside = \"10.77.0.11\"",
            ]
        );
        let hosts = |text: &str| -> Vec<String> {
            text.lines().filter_map(|line| Some(line.strip_prefix("host = ")?.to_owned())).collect()
        };
        assert_eq!(hosts(&both), ["\"site0-node1\"", "\"site1-node0\""]);
        assert_eq!(hosts(&pair.description(2, 1)), ["\"site1-node0\""]);
        assert_eq!(pair.gateways(2, 2), ["site0-node1", "site1-node0"]);
        assert_eq!(pair.gateways(2, 1), ["site1-node0"]);
        let all = grid(&["site0-node0", "site0-node1", "site1-node0", "site1-node1"]);
        assert_eq!(hosts(&all.description(8, 2)), ["\"site0-node1\"", "\"site1-node1\""]);
        assert_eq!(all.description(8, 2).matches(":2\"").count(), 4);
        let library = Library { kind: LibraryKind::Canele, root: "/mpi".into() };
        let described = LabNodes { file: Some("/w/grid.toml".into()), ..pair };
        let words = &["1".into()];
        let launch =
            Launch::new(&library, &Testbed::Grid(described), 2, Path::new("/w/pingpong"), words);
        assert!(
            launch.line().contains("-grid /w/grid.toml -n 2 /w/pingpong 1"),
            "{}",
            launch.line()
        );
    }

    #[test]
    fn ranks_are_dealt_in_blocks_and_sites_have_equal_parts() {
        let counts = |nodes: &[&str], ranks: u32| -> Vec<u32> {
            let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
            let (lab, canele, enter) = (Box::default(), PathBuf::new(), PathBuf::new());
            let grid = LabNodes { lab, nodes, canele, enter, file: None };
            grid.places(ranks).into_iter().map(|(_, count)| count).collect()
        };
        assert_eq!(counts(&["a", "b", "c"], 8), [3, 3, 2]);
        assert_eq!(counts(&["a", "b", "c"], 2), [1, 1]);
        let sites = ["s0-n0", "s0-n1", "s0-n2", "s1-n0", "s1-n1", "s1-n2"];
        assert_eq!(counts(&sites, 4), [1, 1, 1, 1], "two at each site");
        assert_eq!(counts(&sites, 8), [2, 1, 1, 2, 1, 1]);
        assert_eq!(counts(&sites[..3], 5), [2, 2, 1]);
    }
}
